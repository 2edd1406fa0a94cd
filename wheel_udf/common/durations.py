"""Durations: one grammar, for one text here, for a column of them in :mod:`wheel_udf.commands.time_readers`.

A duration is a fixed length of time in whole milliseconds, given as text in one of these forms::

    10 minutes   -5 seconds   1.5h   250 ms   2 W      a number and a unit
    1 hour 30 minutes   1h30m   interval 2 days 3 h    several of them, the longest unit first, as Spark's intervals
    PT10M   P2D   P1DT2H3M4.5S   -PT5S   PT-1H-30M     ISO 8601, as the libraries of Java and Python write it
    0                                                  zero needs no unit

    w week(s), d day(s), h hr(s) hour(s), m min(s) minute(s), s sec(s) second(s), ms millis millisecond(s)

Rules:

* Units are fixed: a day is 24 hours. Months and years have no fixed length and are refused (``1 month``,
  ``P1M``), and so is the single letter ``M`` after a number, which is ambiguous; minutes are ``m``.
  Otherwise case does not matter.
* A number is in ASCII digits, with up to nine behind a point and without an exponent.
* A duration may be negative. One unit has one sign in front. Several units have a minus each (``-1 hour -30
  minutes``); a sign in front alone is refused, because Spark applies it to the first unit and ISO 8601 to all. ISO
  8601 has one sign in front, or (Java) one minus in each component.
* The word ``interval`` in front is ignored. SQL's literals with quotes (``INTERVAL '1' HOUR``) are expressions and not
  durations.
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
    "numbers with units (ms, s, m, h, d, w or their words), the longest first, such as 1 hour 30 minutes, "
    "or ISO 8601 such as PT10M; no months or years"
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
# Another number behind a unit, without a minus of its own.
_MORE: Final = "(?!.*[A-Za-z] *[0-9])"
# No sign; or one plus before one unit; or a minus before each unit. At least one unit follows, because no other part
# of the grammar takes a digit.
_WORD_SIGNS: Final = rf"(?:(?=[0-9])(?!.*[+-])|[+](?=[0-9])(?!.*[+-]){_MORE}|(?=-)(?!.*[+]){_MORE})"
# The blanks between units are inside the optional parts: with six runs of blanks in a row, a match would take minutes
# to fail.
_UNITS: Final = "".join(f"(?: *-?{_NUMBER} *{name})?" for name in _NAMES)
_WORDS: Final = rf"(?:(?i:interval +)?{_WORD_SIGNS}{_UNITS}|[+-]?0+(?:\.0{{1,9}})?)"
# After P either no sign, or no component without one; then at least one component, and one after T.
_SIGNS: Final = "(?:[+-]?[Pp](?!.*[+-])|[Pp](?!.*[A-Za-z][0-9+]))(?=[-0-9Tt])"
_WEEKS, _DAYS, _HOURS, _MINUTES, _SECONDS = (f"(?:-?{_NUMBER}[{x}{x.lower()}])?" for x in "WDHMS")
_ISO: Final = f"{_SIGNS}{_WEEKS}{_DAYS}(?:[Tt](?=[-0-9]){_HOURS}{_MINUTES}{_SECONDS})?"

DURATION_PATTERN: Final = f"[{BLANKS}]*(?:{_WORDS}|{_ISO})[{BLANKS}]*"
"""The grammar, for a full match.

Groups 1 to 6 hold the number of each of :data:`UNITS_MS` in the forms with units, 7 to 11 those of ISO 8601."""

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
