"""Cron: the days that match, times the times of day that match.

cronsim reads an expression. Its sets are turned into two sorted arrays, so that no occurrence is computed by a loop::

    0 9,13 * * MON      days           Mon 2 March, Mon 9 March ...    of 400 years, after which they repeat
                        times of day   09:00  13:00
                        occurrence     day + time of day; the next one is found by bisection in both

Both arrays are kept for a few expressions only, and are made anew in a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.common.errors import ConfigError
from wheel_udf.recurrence.local_times import CYCLE_DAYS, DAY_MS

if TYPE_CHECKING:
    from cronsim import CronSim

CRON_RULE: Final = "cron of 5 fields, or of 6 with the seconds first"

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

Int32s = npt.NDArray[np.int32]

# The cycle begins on 1 January 2000.
_CYCLE_FROM_DAY: Final = 10_957


def read_cron(text: str) -> str:
    """Reads a cron expression.

    Args:
        text: Five or six fields, in any case.

    Returns:
        Six fields in upper case, with one blank between them.

    Raises:
        ConfigError: cronsim refuses it, it never fires, or cronsim is not installed.
    """
    fields = text.upper().split()
    if "?" in text:
        raise _refused(text, "? is of another cron; write *")
    cron = " ".join(fields if len(fields) == 6 else ["0", *fields])
    _simulated(cron, text)
    if not len(_matching_days(" ".join(cron.split()[3:]))):
        raise _refused(text, "no day matches it")
    return cron


def runs_by_elapsed_time(cron: str) -> bool:
    """Whether a cron rule (six fields) occurs at each instant whose local time matches: its hours begin with ``*``."""
    return cron.split()[2].startswith("*")


@dataclass(frozen=True)
class CronTimes:
    """The local times of a cron expression (:class:`wheel_udf.recurrence.sources.LocalTimes`).

    Attributes:
        cron: Its six fields, as :func:`read_cron` returns them.
    """

    cron: str

    def next_after(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:  # noqa: ARG002  # cron has no anchor
        """The first occurrence after each local time: int64[n]."""
        days, times = self._tables()
        day, time_ms = np.divmod(local_ms, DAY_MS)
        later = np.searchsorted(times, time_ms.astype(np.int32), side="right")
        found = _next_day(days, day)
        today = (found == day) & (later < len(times))
        over = (found == day) & ~today
        found[over] = _next_day(days, day[over] + 1)
        return np.asarray(found * DAY_MS + times[np.where(today, later, 0)], np.int64)

    def last_upto(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:  # noqa: ARG002  # cron has no anchor
        """The last occurrence at or before each local time: int64[n]."""
        days, times = self._tables()
        day, time_ms = np.divmod(local_ms, DAY_MS)
        upto = np.searchsorted(times, time_ms.astype(np.int32), side="right")
        found = _last_day(days, day)
        today = (found == day) & (upto > 0)
        over = (found == day) & ~today
        found[over] = _last_day(days, day[over] - 1)
        return np.asarray(found * DAY_MS + times[np.where(today, upto, len(times)) - 1], np.int64)

    def count(self, after_ms: Int64s, upto_ms: Int64s, anchor_ms: Int64s) -> Int64s:  # noqa: ARG002  # the same
        """How many occurrences are in (after, upto]: int64[n]. Exact."""
        return self._rank(upto_ms) - self._rank(after_ms)

    def _rank(self, local_ms: Int64s) -> Int64s:
        """How many occurrences there are from the beginning of the cycle to each local time, inclusive."""
        days, times = self._tables()
        day, time_ms = np.divmod(local_ms, DAY_MS)
        cycle, place = np.divmod(day - _CYCLE_FROM_DAY, CYCLE_DAYS)
        before = cycle * len(days) + np.searchsorted(days, place.astype(np.int32))
        today = _next_day(days, day) == day
        upto = np.searchsorted(times, time_ms.astype(np.int32), side="right")
        return np.asarray(before * len(times) + np.where(today, upto, 0), np.int64)

    def _tables(self) -> tuple[Int32s, Int32s]:
        seconds, minutes, hours, days = self.cron.split(maxsplit=3)
        return _matching_days(days), _times_of_day(f"{seconds} {minutes} {hours}")


def _next_day(days: Int32s, day: Int64s) -> Int64s:
    """The first matching day at or after each day (from 1970-01-01)."""
    cycle, place = np.divmod(day - _CYCLE_FROM_DAY, CYCLE_DAYS)
    over, number = np.divmod(np.searchsorted(days, place.astype(np.int32)), len(days))
    return np.asarray(_CYCLE_FROM_DAY + (cycle + over) * CYCLE_DAYS + days[number], np.int64)


def _last_day(days: Int32s, day: Int64s) -> Int64s:
    """The last matching day at or before each day."""
    cycle, place = np.divmod(day - _CYCLE_FROM_DAY, CYCLE_DAYS)
    over, number = np.divmod(np.searchsorted(days, place.astype(np.int32), side="right") - 1, len(days))
    return np.asarray(_CYCLE_FROM_DAY + (cycle + over) * CYCLE_DAYS + days[number], np.int64)


# At most a third of a MB each.
@lru_cache(maxsize=64)
def _times_of_day(fields: str) -> Int32s:
    """The times of day, in ms, that match the fields of seconds, minutes and hours; sorted."""
    read = _simulated(f"{fields} * * *", fields)
    hours, minutes, seconds = (np.array(sorted(each)) for each in (read.hours, read.minutes, read.seconds))
    found = (hours[:, None, None] * 60 + minutes[:, None]) * 60 + seconds
    return np.asarray(found.ravel() * 1000, np.int32)


# At most half a MB each.
@lru_cache(maxsize=64)
def _matching_days(fields: str) -> Int32s:
    """The days of the cycle that match the fields of days, months and weekdays; sorted."""
    read, dates = _simulated(f"0 0 0 {fields}", fields), _dates()
    by_day = _table(32, read.days)[dates.day]
    by_day |= dates.is_last & (read.LAST in read.days)
    by_day |= dates.is_last_weekday & (read.LAST_WEEKDAY in read.days)
    by_weekday = np.zeros(len(dates.day), bool)
    for each in read.weekdays:
        weekday, which = each if isinstance(each, tuple) else (each, None)
        same = dates.weekday == weekday % 7
        if which == read.LAST:
            same &= dates.is_last_week
        elif which is not None:
            same &= dates.week == which
        by_weekday |= same
    matching = by_day & by_weekday if read.day_and else by_day | by_weekday
    return np.flatnonzero(matching & _table(13, read.months)[dates.month]).astype(np.int32)


def _table(size: int, members: set[int]) -> Bools:
    table: Bools = np.zeros(size, bool)
    table[[each for each in members if each >= 0]] = True
    return table


@dataclass(frozen=True, eq=False)
class _Dates:
    """The days of the cycle; arrays [CYCLE_DAYS]. `weekday` is 0 on Sundays, `week` counts those of a month from 1."""

    month: npt.NDArray[np.int8]
    day: npt.NDArray[np.int8]
    weekday: npt.NDArray[np.int8]
    week: npt.NDArray[np.int8]
    is_last: Bools
    is_last_week: Bools
    is_last_weekday: Bools


@lru_cache(maxsize=1)
def _dates() -> _Dates:
    days = _CYCLE_FROM_DAY + np.arange(CYCLE_DAYS)
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    first, end = (each.astype("datetime64[D]").astype(np.int64) for each in (months, months + 1))
    # 1 January 1970 was a Thursday.
    weekday, last_weekday = (days + 4) % 7, (end + 3) % 7
    # From a Sunday the last weekday of a month is two days back, from a Saturday one.
    back = np.where(last_weekday == 0, 2, np.where(last_weekday == 6, 1, 0))
    return _Dates(
        month=(months.astype(np.int64) % 12 + 1).astype(np.int8),
        day=(days - first + 1).astype(np.int8),
        weekday=weekday.astype(np.int8),
        week=((days - first) // 7 + 1).astype(np.int8),
        is_last=days == end - 1,
        is_last_week=days + 7 >= end,
        is_last_weekday=days == end - 1 - back,
    )


def _simulated(cron: str, text: str) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        hint = "pip install 'cronsim>=2.7,<3'"
        raise ConfigError(
            "the package cronsim is not installed", field="repeat", value=text, hint=hint
        ) from None
    from datetime import datetime

    try:
        return CronSim(cron, datetime(2000, 1, 1))  # noqa: DTZ001  # local times have no zone
    except (CronSimError, AssertionError, ValueError) as fault:
        # It asserts what it has not checked.
        raise _refused(text, str(fault) or None) from None


def _refused(text: str, hint: str | None) -> ConfigError:
    return ConfigError("not a cron expression", field="repeat", value=text, rule=CRON_RULE, hint=hint)
