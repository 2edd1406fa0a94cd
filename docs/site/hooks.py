"""MkDocs hooks: pages from files outside ``docs``, and links that hold in the repository as well as on the site.

::

    README.md, CONTRIBUTING.md, CHANGELOG.md   ->  index.md, contributing.md, changelog.md
    conf/*, conf/deploy/**                     ->  conf/<name>.md, the file as a code block
    wheel_udf/<room>/*.py                      ->  rooms/<room>.md, the docstrings of the room and of its modules
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs loads a hook by its path

from docstrings import to_markdown

ROOT = Path(__file__).parents[2]
TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#\s]+)(#[^)]*)?\)")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(docs/([^)]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    for source, page in TOP.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        _add(files, config, page, text if source.endswith(".md") else f"# License\n\n```text\n{text}\n```\n")
    for path in sorted((*(ROOT / "conf").iterdir(), *(ROOT / "conf" / "deploy").rglob("*"))):
        if path.is_file():
            _add(files, config, f"{path.relative_to(ROOT).as_posix()}.md", _listing(path))
    for room, modules in _rooms().items():
        _add(files, config, f"rooms/{room}.md", _room_page(room, modules))
    _add(files, config, "rooms/index.md", _room_index())
    return files


def _add(files: Files, config: MkDocsConfig, page: str, text: str) -> None:
    files.append(File.generated(config, page, content=text))


def _listing(path: Path) -> str:
    language = {".yml": "yaml", ".yaml": "yaml", ".json": "json", ".xml": "xml"}.get(path.suffix, "text")
    return f"# {path.name}\n\n```{language}\n{path.read_text(encoding='utf-8')}\n```\n"


def _rooms() -> dict[str, list[Path]]:
    """Each room in the order of CONTRIBUTING.md, and its modules."""
    names = re.findall(
        r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    folders = [ROOT / "wheel_udf" / name for name in names]
    return {
        folder.name: sorted(path for path in folder.rglob("*.py") if path.name != "__init__.py")
        for folder in folders
        if (folder / "__init__.py").exists()
    }


def _room_page(room: str, modules: list[Path]) -> str:
    parts = [f"# {room}", _docstring(ROOT / "wheel_udf" / room / "__init__.py")]
    for path in modules:
        name = path.relative_to(ROOT / "wheel_udf" / room).with_suffix("").as_posix()
        parts += [f"## {name}", _docstring(path)]
    return "\n\n".join(parts) + "\n"


def _docstring(path: Path) -> str:
    return to_markdown(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


def _room_index() -> str:
    rows = [
        f"| [{room}]({room}.md) | {_summary(ROOT / 'wheel_udf' / room / '__init__.py')} |"
        for room in _rooms()
    ]
    return (
        "# Rooms\n\nThe design notes of the code.\n\n| room | contents |\n|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _summary(path: Path) -> str:
    return " ".join(_docstring(path).split("\n\n")[0].split())


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files of the repository into links to their pages; those to files without a page become code."""
    source = next((name for name, target in TOP.items() if target == page.file.src_uri), None)
    base = "." if source else posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    if page.file.src_uri.startswith(("rooms/", "conf/")) or page.file.src_uri == "api.md":
        return markdown

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        page_of = _page_of(posixpath.normpath(posixpath.join(base, target)))
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"[{text}]({posixpath.relpath(page_of, here)}{anchor or ''})" if page_of else text

    return _IMAGE.sub(r"![\1](\2)", _LINK.sub(link, markdown))


def _page_of(path: str) -> str | None:
    """The page of a file of the repository; None if it has none."""
    if path in TOP:
        return TOP[path]
    if path.startswith("conf/"):
        return f"{path}.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages of the rooms in the navigation."""
    pages: list[Any] = ["rooms/index.md", *({room: f"rooms/{room}.md"} for room in _rooms())]
    for entry in config.nav or []:
        if "Rooms" in entry:
            entry["Rooms"] = pages
    return config
