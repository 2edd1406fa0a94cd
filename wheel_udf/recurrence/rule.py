"""Rules of recurrence: one grammar of texts.

::

    0 9 * * MON-FRI     30 0 9 * * *      cron of 5 fields, or of 6 with the seconds first; names, L, LW, #, steps
    @hourly  @daily  @midnight  @weekly  @monthly  @yearly  @annually
    every 15 minutes    every hour        a duration (wheel_udf.common.durations), at least 1 ms; no number means 1
    every 3 months      every 1 year      months and years, alone
    R/PT15M   R5/P1D    R/P1M             ISO 8601: R5 fires 5 times, the first firing included
    R/2026-01-01T09:00:00Z/P1D            the same with a start; without an offset it is local time of the rule's zone
    RRULE:FREQ=WEEKLY;BYDAY=MO,WE         RFC 5545, on local times; RRULE: may be omitted

Case does not matter. Which clock does a rule follow?

========================================================  ============================================================
cron whose hours begin with ``*``                          elapsed time: it fires at each instant whose local time
                                                           matches, twice in a fold and not in a gap
any other cron, RRULE                                      local time, with the policies `on_gap` and `on_fold`
a period of whole weeks, days, months or years **as        local time: the anchor's time of day, every so many days
written**: ``every 1 day``, ``P2W``, ``P1M``               or months, with both policies
any other period: ``every 24 hours``, ``every 1 day 1 h``  elapsed milliseconds
========================================================  ============================================================

Months are counted from the anchor: 31 January, 28 February, 31 March.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np

from wheel_udf.common.command_facts import LONGEST_REPEAT, ON_FOLD, ON_GAP, REPEAT_RULE
from wheel_udf.common.durations import DURATION_PATTERN, parse_duration_ms
from wheel_udf.common.errors import ConfigError
from wheel_udf.recurrence.cron_times import MACROS, read_cron
from wheel_udf.recurrence.local_times import DAY_MS, to_instants_ms, zone_of
from wheel_udf.recurrence.rrule_times import Parts, read_rrule
from wheel_udf.recurrence.steps import LONGEST_DAYS, LONGEST_MONTHS

_EVERY: Final = re.compile(r"every[ \t]+(.+)", re.IGNORECASE | re.DOTALL)
_REPEATING: Final = re.compile(r"R([0-9]{0,9})/(?:([^/]+)/)?([^/]+)")
_MONTHS: Final = re.compile(
    r"(?=[0-9P])(?:P(?=[0-9])(?:([0-9]{1,9})Y)?(?:([0-9]{1,9})M)?"
    r"|(?:([0-9]{1,9}) *years?)? *(?:([0-9]{1,9}) *months?)?)",
    re.IGNORECASE,
)
_DURATION: Final = re.compile(DURATION_PATTERN)
_WHOLE: Final = re.compile(r"[0-9]+(?:\.0+)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(StrEnum):
    """What a rule counts."""

    CRON = "cron"
    ELAPSED = "elapsed"
    DAYS = "days"
    MONTHS = "months"
    RRULE = "rrule"


@dataclass(frozen=True)
class Rule:
    """A rule of recurrence that is known to be good: :func:`parse_rule` makes it.

    Attributes:
        repeat: Its text.
        zone: Its time zone.
        on_gap: ``shift`` or ``skip``.
        on_fold: ``first``, ``last`` or ``both``.
        kind: What it counts.
        size: The period: ms of `ELAPSED`, days of `DAYS`, months of `MONTHS`; else 0.
        cron: The six fields of `CRON`; else empty.
        parts: Those of `RRULE`; else none.
        count: How many times it fires by its text (``R5/...``), the first firing included; None if it does not say.
        starts_ms: The start in its text, UTC epoch ms; None if it has none. The caller makes it the anchor.
    """

    repeat: str
    zone: str = "UTC"
    on_gap: str = "shift"
    on_fold: str = "first"
    kind: Kind = Kind.ELAPSED
    size: int = 0
    cron: str = ""
    parts: Parts = ()
    count: int | None = None
    starts_ms: int | None = None

    @property
    def is_anchored(self) -> bool:
        """Whether it is counted from an anchor: all rules but cron."""
        return self.kind != Kind.CRON


@lru_cache(maxsize=4096)
def parse_rule(repeat: str, zone: str = "UTC", on_gap: str = "shift", on_fold: str = "first") -> Rule:
    """Reads a rule.

    Args:
        repeat: Text in the grammar of this module.
        zone: A time zone (:func:`wheel_udf.recurrence.local_times.zone_of`).
        on_gap: What happens to local times that the clock skips: ``shift`` to the first instant after the gap, or
            ``skip``.
        on_fold: At which instant of a local time that the clock shows twice it fires: ``first``, ``last`` or ``both``.

    Raises:
        ConfigError: One of them is wrong; `field` is ``repeat``, ``time_zone``, ``on_gap`` or ``on_fold``. Or the
            package for this kind of rule is not installed.
    """
    zone_of(zone)
    for field, value, choices in (("on_gap", on_gap, ON_GAP), ("on_fold", on_fold, ON_FOLD)):
        if value not in choices:
            raise ConfigError(
                "a setting is not one of its values", field=field, value=value, rule=", ".join(choices)
            )
    text = repeat.strip() if len(repeat) <= LONGEST_REPEAT else ""
    if not text:
        raise _refused(repeat, f"it has 1 to {LONGEST_REPEAT} characters")
    where = repeat, zone, on_gap, on_fold
    if text.startswith("@"):
        if text.lower() not in MACROS:
            raise _refused(repeat, f"one of {', '.join(MACROS)}")
        return Rule(*where, kind=Kind.CRON, cron=read_cron(MACROS[text.lower()]))
    if every := _EVERY.fullmatch(text):
        kind, size = _period(every[1].strip(), repeat)
        return Rule(*where, kind=kind, size=size)
    if text[:2].upper() == "R/" or re.match("R[0-9-]+/", text, re.IGNORECASE):
        return _repeating(text.upper(), where)
    if text.upper().startswith(("RRULE:", "FREQ=", "DTSTART")):
        return Rule(*where, kind=Kind.RRULE, parts=read_rrule(text))
    if len(text.split()) in {5, 6}:
        return Rule(*where, kind=Kind.CRON, cron=read_cron(text))
    instead = f"write every {text}" if _DURATION.fullmatch(text) or _MONTHS.fullmatch(text) else None
    raise _refused(repeat, instead)


def _refused(repeat: str, hint: str | None) -> ConfigError:
    return ConfigError("not a rule of recurrence", field="repeat", value=repeat, rule=REPEAT_RULE, hint=hint)


def _period(text: str, repeat: str) -> tuple[Kind, int]:
    """Reads the length of a period."""
    period = f"1 {text}" if re.fullmatch("[A-Za-z]+", text) else text
    if months := _MONTHS.fullmatch(period):
        years, rest, more_years, more_rest = (int(each) for each in months.groups(default="0"))
        return Kind.MONTHS, _positive(
            min((years + more_years) * 12 + rest + more_rest, LONGEST_MONTHS), repeat
        )
    try:
        size_ms = parse_duration_ms(period)
    except ConfigError:
        hint = (
            "months and years stand alone" if re.search("month|year|P.*[YM]", text, re.IGNORECASE) else None
        )
        raise _refused(repeat, hint) from None
    _positive(size_ms, repeat)
    match = _DURATION.fullmatch(period)
    groups = match.groups() if match else ()
    written = [number for number in groups if number is not None]
    in_days = [number for number in (*groups[:2], *groups[6:8]) if number is not None]
    if written == in_days and all(_WHOLE.fullmatch(number) for number in written):
        return Kind.DAYS, min(size_ms // DAY_MS, LONGEST_DAYS)
    return Kind.ELAPSED, size_ms


def _positive(size: int, repeat: str) -> int:
    if size < 1:
        raise _refused(repeat, "a period is at least 1 ms")
    return size


def _repeating(text: str, where: tuple[str, str, str, str]) -> Rule:
    """Reads a repeating interval of ISO 8601."""
    repeat, zone, _, on_fold = where
    match = _REPEATING.fullmatch(text)
    if match is None or not match[3].startswith("P"):
        raise _refused(repeat, "a repeating interval is R/PT15M, R5/PT15M or R/2026-01-01T09:00:00Z/P1D")
    times, start, period = match.groups()
    if times and int(times) == 0:
        raise _refused(repeat, "it fires at least once; R without a number has no end")
    kind, size = _period(period, repeat)
    starts_ms = (
        None if start is None else _start(start, zone, "last" if on_fold == "last" else "first", repeat)
    )
    return Rule(*where, kind=kind, size=size, count=int(times) if times else None, starts_ms=starts_ms)


def _start(text: str, zone: str, on_fold: str, repeat: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _refused(repeat, f"the start {text} is not a date or a time of ISO 8601") from None
    if moment.tzinfo is not None:
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    local_ms = (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
    # A start in a gap is shifted, whatever becomes of the later ones: there is always a start.
    return int(to_instants_ms(np.array([local_ms]), zone, "shift", on_fold)[0][0])
