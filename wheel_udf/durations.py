"""Durations: one grammar, read here by plain Python and in :mod:`wheel_udf.columns` by Spark.

A duration is a fixed length of time in whole milliseconds, given as text in one of two forms::

    10 minutes   -5 seconds   1.5h   250 ms   2W       one number, one unit
    PT10M   P2D   P1DT2H3M4.5S   -PT5S   PT-5S   P1W   ISO 8601, as Java and Python libraries write it
    0                                                  zero needs no unit

    unit   ms millis millisecond(s) | s sec(s) second(s) | m min(s) minute(s) | h hr(s) hour(s) | d day(s) | w week(s)

Rules, the same for both readers (a test holds them against each other):

* Units are fixed: a day is 24 hours. Months and years have no fixed length and are refused (``1 month``, ``P1M``, ``P1Y``),
  and so is the single letter ``M``, which could mean either; minutes are ``m``. Otherwise case does not matter.
* A number has any number of digits before the point and up to nine behind it, in ASCII; no exponent.
* A fraction of a millisecond is rounded **up** (towards the future), as due times are: ``0.0001 ms`` is 1 ms, ``-0.9 ms`` is 0.
* What is too long for a 64-bit count saturates at plus or minus :data:`TOO_LONG_MS` and never wraps; that is more than any
  instant plus any delay of Spark can hold, so whoever adds it to an instant can tell, without an overflow of its own.
* Blanks, tabs and line ends around the text are ignored; anything else (the empty text, ``NaN``, ``1e3 s``) is no duration.

The pattern strings are written in the common part of the regular expressions of Python and Java.
"""

from __future__ import annotations

import re
from typing import Final

from wheel_udf.errors import ConfigError

TOO_LONG_MS: Final = 2**60
"""The magnitude, in ms, at which durations saturate."""

UNIT_MS: Final[dict[str, int]] = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
"""Length of each unit in ms, by its shortest name."""

UNIT_OF_PREFIX: Final[dict[str, str]] = {

        "ms": "ms",
        "mil": "ms",
        "s": "s",
        "sec": "s",
        "m": "m",
        "min": "m",
        "h": "h",
        "hr": "h",
        "hrs": "h",
        "hou": "h"
    ,
    "d": "d", "day": "d", "w": "w", "wee": "w",
}
"""The first three letters (lower case) of every unit's name that the grammar lets through, to its shortest name."""

BLANKS: Final = " \t\r\n"
RULE: Final = (
    "a number and a unit (ms, s, m, h, d, w or their words) or ISO 8601 such as PT10M; no months or years"
)

_UNITS: Final = (
    "m|(?i:ms|millis|milliseconds?|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
)
_COMPONENT: Final = r"([+-]?)([0-9]+)(?:\.([0-9]{1,9}))?"
# Groups: sign, digits, fraction, unit. The second alternative is zero without a unit.
WORDS_PATTERN: Final = (
    rf"[{BLANKS}]*([+-]?)(?:([0-9]+)(?:\.([0-9]{{1,9}}))? *({_UNITS})|0+(?:\.0{{1,9}})?)[{BLANKS}]*"
)
# Groups: sign of the whole, then (sign, digits, fraction) of each of the units of ISO_UNITS.
ISO_PATTERN: Final = (
    rf"[{BLANKS}]*([+-]?)[Pp](?=[-+0-9Tt])(?:{_COMPONENT}[Ww])?(?:{_COMPONENT}[Dd])?"
    rf"(?:[Tt](?=[-+0-9])(?:{_COMPONENT}[Hh])?(?:{_COMPONENT}[Mm])?(?:{_COMPONENT}[Ss])?)?[{BLANKS}]*"
)
ISO_UNITS: Final = ("w", "d", "h", "m", "s")

_NANO: Final = 1_000_000_000
_WORDS: Final = re.compile(WORDS_PATTERN)
_ISO: Final = re.compile(ISO_PATTERN)


def parse_duration_ms(text: str) -> int:
    """Read a duration.

    Args:
        text: A duration in the grammar of this module.

    Returns:
        Its length in ms, rounded up, within plus or minus :data:`TOO_LONG_MS`.

    Raises:
        ConfigError: The text is no duration.
    """
    if isinstance(text, str):
        if match := _WORDS.fullmatch(text):
            sign, digits, fraction, unit = match.groups(default="")
            unit = UNIT_OF_PREFIX[unit.lower()[:3]] if unit else "ms"
            return _total_ms(sign, [("", digits, fraction, UNIT_MS[unit])])
        if match := _ISO.fullmatch(text):
            sign, *rest = match.groups(default="")
            triples = zip(rest[0::3], rest[1::3], rest[2::3], ISO_UNITS, strict=True)
            return _total_ms(sign, [(s, d, f, UNIT_MS[unit]) for s, d, f, unit in triples])
    raise ConfigError("not a duration", field="duration", value=text, rule=RULE)


def _total_ms(sign: str, components: list[tuple[str, str, str, int]]) -> int:
    """The sum of (sign, digits, fraction, unit in ms), rounded up once, at the end."""
    whole_ms = part = 0  # part: billionths of a ms
    for minus, digits, fraction, unit_ms in components:
        direction = -1 if minus == "-" else 1
        # Components saturate one by one, as in Spark, where five of them must add up without an overflow.
        number = (
            int(digits or 0) if len(digits) < 1000 else int(digits.lstrip("0")[:20] or 0)
        )  # int() refuses 4301 digits
        whole_ms += direction * min(number * unit_ms, TOO_LONG_MS)
        part += direction * int(fraction.ljust(9, "0")) * unit_ms
    if sign == "-":
        whole_ms, part = -whole_ms, -part
    return max(-TOO_LONG_MS, min(TOO_LONG_MS, whole_ms - (-part // _NANO)))
