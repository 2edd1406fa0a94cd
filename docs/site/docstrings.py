"""Griffe extension: rewrites the reStructuredText in docstrings (roles, literal blocks, simple tables) as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):`(~?)([^`]+)`")
_RULE = re.compile(r" *=+( +=+)+ *$")


class MarkdownDocstrings(Extension):
    """Rewrites each docstring when its object has been collected."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrites the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """Markdown of a docstring: code instead of roles, fences instead of ``::`` blocks and simple tables."""
    return "\n".join(_markdown(text.splitlines()))


def _markdown(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if _RULE.match(line):
            end = _end_of_table(lines, at)
            yield from _fence(lines[at:end])
        elif line.endswith("::"):
            end = _end_of_block(lines, at)
            if line.strip() != "::":
                yield _prose(line[:-1])
            yield from _fence(lines[at + 1 : end])
        else:
            end = at + 1
            yield _prose(line)
        at = end


def _prose(line: str) -> str:
    return _ROLE.sub(_code, line).replace("``", "`")


def _code(found: re.Match[str]) -> str:
    return f"`{_name(found)}`"


def _name(found: re.Match[str]) -> str:
    short, name = found.groups()
    return name.rsplit(".", 1)[-1] if short else name


def _end_of_table(lines: list[str], start: int) -> int:
    """Where a simple table ends: behind the first further rule that no row follows."""
    for at in range(start + 1, len(lines)):
        if _RULE.match(lines[at]) and (at + 1 == len(lines) or not lines[at + 1].strip()):
            return at + 1
    return len(lines)


def _end_of_block(lines: list[str], start: int) -> int:
    """Where the block that is indented more than line `start` ends."""
    indent = _indent(lines[start])
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _fence(lines: list[str]) -> list[str]:
    block = textwrap.dedent("\n".join(lines)).strip("\n")
    return ["", "~~~~text", _ROLE.sub(_name, block).replace("``", ""), "~~~~", ""]
