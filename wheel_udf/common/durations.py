"""Durations: one grammar, read here by Python and in :mod:`wheel_udf.commands.time_readers` by Spark.

A duration is a fixed length of time in whole milliseconds, given as text in one of two forms::

    10 minutes   -5 seconds   1.5h   250 ms   2 W      one number, one unit
    PT10M   P2D   P1DT2H3M4.5S   -PT5S   PT-1H-30M     ISO 8601, as the libraries of Java and Python write it
    0                                                  zero needs no unit

    w week(s), d day(s), h hr(s) hour(s), m min(s) minute(s), s sec(s) second(s), ms millis millisecond(s)

Rules, the same for both readers (a test holds them against each other):

* Units are fixed: a day is 24 hours. Months and years have no fixed length and are refused (``1 month``,
  ``P1M``), and so is the single letter ``M`` after a number, which is ambiguous; minutes are ``m``.
  Otherwise case does not matter.
* A number is in ASCII digits, with up to nine behind a point and without an exponent.
* A duration may be negative. ISO 8601 has one sign in front, or (Java) one minus in each component.
* A fraction of a millisecond is rounded **up** (towards the future), as due times are: ``0.0001 ms`` is 1 ms,
  ``-0.9 ms`` is 0.
* A duration beyond plus or minus :data:`TOO_LONG_MS` is set to that limit and never wraps. The
  limit is longer than the distance between any two instants of Spark, and short enough to be added to any of
  them in 64 bits.
* Blanks, tabs and line ends around the text are ignored; anything else (the empty text, ``NaN``, ``1e3 s``, a
  text of more than :data:`LONGEST_TEXT` characters) is not a duration.
"""

from __future__ import annotations

import re
from typing import Final

from wheel_udf.common.errors import ConfigError

TOO_LONG_MS: Final = 2**60
"""The magnitude, in ms, at which durations saturate."""

UNITS_MS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000, 1)
"""Weeks, days, hours, minutes, seconds and milliseconds, in ms."""

LONGEST_TEXT: Final = 100
"""In characters. A number of a million digits would take seconds to read."""

BLANKS: Final = " \t\r\n"
DURATION_RULE: Final = (
    "a number and a unit (ms, s, m, h, d, w or their words) or ISO 8601 such as PT10M; no months or years"
)

_NUMBER: Final = r"([0-9]+(?:\.[0-9]{1,9})?)"
_NAMES: Final = (
    "(?i:w|weeks?)",
    "(?i:d|days?)",
    "(?i:h|hrs?|hours?)",
    "(?:m|(?i:mins?|minutes?))",
    "(?i:s|secs?|seconds?)",
    "(?i:ms|millis|milliseconds?)",
)
_WORDS: Final = rf"[+-]?(?:{'|'.join(f'{_NUMBER} *{name}' for name in _NAMES)}|0+(?:\.0{{1,9}})?)"
# After P either no sign, or no component without one; then at least one component, and one after T.
_SIGNS: Final = "(?:[+-]?[Pp](?!.*[+-])|[Pp](?!.*[A-Za-z][0-9+]))(?=[-0-9Tt])"
_WEEKS, _DAYS, _HOURS, _MINUTES, _SECONDS = (f"(?:-?{_NUMBER}[{x}{x.lower()}])?" for x in "WDHMS")
_ISO: Final = f"{_SIGNS}{_WEEKS}{_DAYS}(?:[Tt](?=[-0-9]){_HOURS}{_MINUTES}{_SECONDS})?"

DURATION_PATTERN: Final = f"[{BLANKS}]*(?:{_WORDS}|{_ISO})[{BLANKS}]*"
"""The grammar, for a full match, in the common subset of the regular expressions of Python and Java.

Groups 1 to 6 hold the number of each of :data:`UNITS_MS` in the first form, 7 to 11 those of the second."""

_GRAMMAR: Final = re.compile(DURATION_PATTERN)
_NANO: Final = 1_000_000_000


def parse_duration_ms(text: str) -> int:
    """Read a duration.

    Args:
        text: A duration in the grammar of this module.

    Returns:
        Its length in ms, rounded up, within plus or minus :data:`TOO_LONG_MS`.

    Raises:
        ConfigError: The text is not a duration.
    """
    match = _GRAMMAR.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise ConfigError("not a duration", field="duration", value=text, rule=DURATION_RULE)
    groups = match.groups(default="")
    numbers = [words or iso for words, iso in zip(groups[:6], (*groups[6:], ""), strict=True)]
    size = sum(_size(number, unit_ms) for number, unit_ms in zip(numbers, UNITS_MS, strict=True))
    total_ms = -(size // _NANO) if "-" in text else -(-size // _NANO)
    return max(-TOO_LONG_MS, min(TOO_LONG_MS, total_ms))


def _size(number: str, unit_ms: int) -> int:
    """One component, saturated, in billionths of a ms."""
    digits, _, fraction = number.partition(".")
    size = (int(digits or 0) * _NANO + int(fraction.ljust(9, "0"))) * unit_ms
    return min(size, TOO_LONG_MS * _NANO)
