"""Links of the documentation lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import PAGES, ROOT, prose_of, text_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ON_THE_SITE_ONLY = {"rooms/index.md"}


def anchors_of(path: Path) -> set[str]:
    """The anchors of a page's headings, as repositories and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(str(path.relative_to(ROOT))), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def fault_of(page: str, target: str) -> str | None:
    path, _, anchor = target.partition("#")
    file = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
    if path in ON_THE_SITE_ONLY:
        return None
    if not file.exists():
        return "no such file"
    if ROOT not in file.parents:
        return "outside the repository"
    return "no such heading" if anchor and anchor not in anchors_of(file) else None


@pytest.mark.parametrize("page", PAGES)
def test_each_link_leads_to_a_file_and_a_heading(page: str) -> None:
    targets = [target for target in LINK.findall(prose_of(page)) if not target.startswith("https://")]

    assert {target: fault for target in targets if (fault := fault_of(page, target))} == {}


@pytest.mark.parametrize("page", PAGES)
def test_each_file_that_is_named_exists(page: str) -> None:
    """Names of files in code, such as ``conf/scheduler.yml``; what a release of before had is history."""
    if page == "CHANGELOG.md":
        return
    named = re.findall(r"`((?:conf|docs|jobs|tests|wheel_udf)/[\w./-]+)`", prose_of(page))

    assert [name for name in named if not (ROOT / name).exists()] == []


def is_linked(page: str) -> bool:
    """A guide is linked from the README, one in a folder from the guide with the name of the folder."""
    folder, _, name = page.removeprefix("docs/").rpartition("/")
    return (
        f"]({folder}/{name})" in text_of(f"docs/{folder}.md")
        if folder
        else f"]({page})" in text_of("README.md")
    )


def test_each_guide_is_linked_and_listed_on_the_site() -> None:
    guides = {page for page in PAGES if page.startswith("docs/")} - {"docs/api.md"}
    site = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")

    assert {page for page in guides if not is_linked(page)} == set()
    assert {page for page in guides if page.removeprefix("docs/") not in site} == set()


def test_the_readme_is_short() -> None:
    assert len(text_of("README.md").split()) <= 2_400, "words"


def test_the_api_reference_lists_the_public_names() -> None:
    import wheel_udf

    listed = re.findall(r"^::: wheel_udf\.(\w+)$", text_of("docs/api.md"), flags=re.MULTILINE)

    assert sorted(listed) == sorted(wheel_udf.__dir__())
