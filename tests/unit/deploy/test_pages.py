"""The pages about platforms: each file of conf/deploy is on one, and each says what was run."""

from __future__ import annotations

import re

import pytest

from tests.deployment import FILES, ROOT
from tests.documents import PAGES, text_of

OVERVIEW = "docs/platforms.md"
PLATFORMS = [page for page in PAGES if page.startswith("docs/platforms/")]


def test_each_file_is_linked_from_a_page() -> None:
    text = "".join(text_of(page) for page in (OVERVIEW, *PLATFORMS))

    assert [name for name in FILES if f"`{name}`](" not in text] == []


@pytest.mark.parametrize("page", PLATFORMS)
def test_each_file_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"conf/deploy/[\w./-]+\w", text_of(page))

    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PLATFORMS)
def test_a_page_says_first_what_was_run_and_last_where_it_comes_from(page: str) -> None:
    text = text_of(page)
    first, *_ = [line for line in text.splitlines() if line.startswith("|")]

    assert first.startswith("| run here |")
    assert "not run" in text
    assert re.search(r"^## Sources$.*\b20\d\d\b", text, flags=re.MULTILINE | re.DOTALL)


def test_the_overview_begins_with_all_platforms() -> None:
    table = text_of(OVERVIEW).split("\n\n")[2]

    assert table.startswith("| run here |")
    assert {f"docs/{page}" for page in re.findall(r"\]\((platforms/[\w-]+\.md)\)", table)} == set(PLATFORMS)
