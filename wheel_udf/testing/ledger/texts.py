"""Instants and durations as text: a reading of the contract's grammar of its own, on purpose not the product's.

::

    2026-01-01 10:00   2026-01-01T10:00:00.25Z   2026-01-01T12:00+02:00     no zone: UTC
    10 minutes   10m   1.5 h   1 hour 30 m   PT10M   P2D   -PT5S   0        fixed units

It reads the common forms. Other text gives None, which makes the command *unclear*, not wrong.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_FINER: Final = re.compile(r"[.,]\d{6}0*[1-9]")
_UNITS: Final = (
    ("w|weeks?", 604_800_000),
    ("d|days?", 86_400_000),
    ("h|hrs?|hours?", 3_600_000),
    ("m|mins?|minutes?", 60_000),
    ("s|secs?|seconds?", 1_000),
    ("ms|millis|milliseconds?", 1),
)
_NUMBER: Final = r"\d+(?:\.\d{1,9})?"
_ONE_UNIT: Final = re.compile(rf"([+-]?)({_NUMBER}) *([A-Za-z]+)")
_SEVERAL: Final = re.compile(
    rf"(?:interval +)?({_NUMBER} *[A-Za-z]+(?: *{_NUMBER} *[A-Za-z]+)*)", re.IGNORECASE
)
_ISO: Final = re.compile(
    r"([+-]?)P(?=\d|T\d)(?:([\d.]+)W)?(?:([\d.]+)D)?(?:T(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?)?"
)


def instant_ms(value: datetime | str, *, up: bool) -> int | None:
    """Reads an instant (UTC without a zone) as UTC epoch ms, rounded up or down. None for other text."""
    is_cut = False
    if isinstance(value, str):
        is_cut = _FINER.search(value) is not None  # Python leaves out what is finer than a microsecond
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if up and is_cut:
        value += timedelta(microseconds=1)
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return -((_EPOCH - value) // _MS) if up else (value - _EPOCH) // _MS


def duration_ms(text: str) -> int | None:
    """Reads a duration in ms, rounded up. None for text in other forms."""
    text = text.strip(" \t\r\n")
    if text in ("0", "+0", "-0"):
        return 0
    if found := _ONE_UNIT.fullmatch(text):
        return _signed(found[1], [(found[2], _unit_ms(found[3]))])
    if found := _SEVERAL.fullmatch(text):
        parts = [
            (number, _unit_ms(name)) for number, name in re.findall(rf"({_NUMBER}) *([A-Za-z]+)", found[1])
        ]
        units = [unit_ms or 0 for _, unit_ms in parts]
        return _signed("", parts) if units == sorted(set(units), reverse=True) else None
    if (found := _ISO.fullmatch(text)) and any(found.groups()[1:]):
        spans = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)
        return _signed(
            found[1], [(number or "0", span) for number, span in zip(found.groups()[1:], spans, strict=True)]
        )
    return None


def _unit_ms(name: str) -> int | None:
    if name == "M":  # minutes or months
        return None
    return next((ms for pattern, ms in _UNITS if re.fullmatch(pattern, name.lower())), None)


def _signed(sign: str, parts: list[tuple[str, int | None]]) -> int | None:
    total = Decimal(0)
    for number, unit_ms in parts:
        if unit_ms is None or number.count(".") > 1:
            return None
        total += Decimal(number) * unit_ms
    return int((-total if sign == "-" else total).to_integral_value(ROUND_CEILING))
