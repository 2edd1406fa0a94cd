"""Numbers, spans, instants and foreign texts as the page writes them."""

from __future__ import annotations

import unicodedata
from typing import Final

from markupsafe import Markup, escape

from wheel_udf.common.instants import instant_text
from wheel_udf.delivery.progress import duration_text

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of invisible or reordering characters: control, format, line separators."""

_LONGEST_BYTES: Final = 64


def count_text(count: int) -> str:
    """A count with separators: ``1,234,567``."""
    return f"{count:,}"


def short_count(count: int) -> str:
    """A count in at most five characters: ``999``, ``1.2k``, ``12k``, ``3.4M``."""
    for unit, size in (("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            part = count / size
            return f"{part:.1f}{unit}" if part < 9.95 else f"{part:.0f}{unit}"
    return str(count)


def bytes_text(size: int) -> str:
    """A size: ``12 B``, ``3.4 MB``."""
    if size < 1_000:
        return f"{size} B"
    return f"{short_count(size).replace('k', ' k').replace('M', ' M').replace('G', ' G')}B"


def span_text(span_ms: int) -> str:
    """A span without needless decimals: ``1 s``, ``20 s``, ``6.7 min``, ``1.9 d``."""
    return duration_text(span_ms).replace(".0 ", " ") if span_ms >= 0 else f"-{span_text(-span_ms)}"


def when_text(instant_ms: int | None) -> str:
    """An instant in UTC: ``2026-01-01 10:00:00``."""
    return instant_text(instant_ms).replace("T", " ").removesuffix("Z")


def until_text(instant_ms: int | None, clock_ms: int | None) -> str:
    """How far an instant is from a clock: ``in 12 s``, ``3 s ago``, ``now``; ``-`` if either is not known."""
    if instant_ms is None or clock_ms is None:
        return "-"
    ahead_ms = instant_ms - clock_ms
    if ahead_ms == 0:
        return "now"
    return f"in {span_text(ahead_ms)}" if ahead_ms > 0 else f"{span_text(-ahead_ms)} ago"


def literal(text: object) -> Markup:
    """A foreign text as HTML that shows each of its characters.

    Characters that are not seen, or that reorder others (marks of direction), are written as their codes (a backslash,
    u, four digits). The text stands in an element that isolates its direction from what is around it.
    """
    parts = [_shown(character) for character in str(text)]
    return Markup('<bdi class="literal">{}</bdi>').format(Markup("").join(parts))


def _shown(character: str) -> Markup:
    if unicodedata.category(character) not in _HIDDEN:
        return escape(character)
    code = ord(character)
    written = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return Markup('<span class="code">{}</span>').format(written)


def payload_text(payload: bytes | None, size: int | None = None) -> str:
    """Bytes as text if they are UTF-8; otherwise their number and the first of them in hex.

    Args:
        payload: The bytes, or the first of them.
        size: The number of all of them; None if there are no others.
    """
    if payload is None:
        return ""
    whole = len(payload) if size is None else size
    for cut in range(1 if whole == len(payload) else 4):  # the end may be inside a character
        try:
            text = bytes(payload[: len(payload) - cut]).decode()
        except UnicodeDecodeError:
            continue
        return text if whole == len(payload) else f"{text} ..."
    more = " ..." if whole > _LONGEST_BYTES else ""
    return f"binary, {whole:,} bytes: {bytes(payload[:_LONGEST_BYTES]).hex(' ')}{more}"
