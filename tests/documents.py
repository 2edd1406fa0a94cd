"""The documentation as tests read it: its pages, and their code blocks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(path.relative_to(ROOT).as_posix() for folder in ("docs", "docs/platforms") for path in sorted((ROOT / folder).glob("*.md"))))  # fmt: skip
LANGUAGES = {"bash", "python", "text", "yaml"}

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)


def text_of(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def prose_of(page: str) -> str:
    """The text of a page without its code blocks."""
    return _FENCE.sub("", text_of(page))


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [body for _, tag, body in _FENCE.findall(text_of(page)) if tag == language]


def languages(page: str) -> set[str]:
    """The languages of a page's code blocks; an empty text for a block without one."""
    return {tag for _, tag, _ in _FENCE.findall(text_of(page))}


def commands(page: str) -> list[list[str]]:
    """The words of each shell command of a page."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def configs(page: str) -> list[dict[str, Any]]:
    """The configs of a page. A block without a name shows some sections of the complete config before it, else of
    ``conf/scheduler.yml``.
    """
    whole = yaml.safe_load((ROOT / "conf" / "scheduler.yml").read_text(encoding="utf-8"))
    found = []
    for block in blocks(page, "yaml"):
        shown = yaml.safe_load(block)
        whole = shown if "name" in shown else whole
        found.append(whole | shown)
    return found
