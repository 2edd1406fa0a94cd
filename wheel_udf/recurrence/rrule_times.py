"""RRULE of RFC 5545, by dateutil on local times.

dateutil counts from the start of a rule, up to the year 9999, however far away that is and whether anything matches. So
it is not given the anchor itself. Time is cut into blocks of some periods each, counted from the anchor's, and dateutil
begins at the block that is asked for::

    FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE      anchor Friday 2 January 2026, 09:00

    block 0    29 December, 12 January, 26 January, ...     BLOCKS["WEEKLY"] times two weeks
    block 1    ...                                          with BYHOUR=9;BYMINUTE=0 of the anchor

400 years later the calendar is the same. So dateutil works in the last centuries before 9999, and gives up after 400
to 800 years instead of 8000.

BYSETPOS of FREQ=WEEKLY chooses from whole weeks, also from that of the anchor. dateutil, from the anchor, would choose
from what is left of its week.

The milliseconds of the anchor are added to each occurrence, unless the rule has BYSECOND.

Most rules are dates and times of day (:class:`DatedRRule`). Of those dateutil is asked for the dates only, which are
the same for all anchors of one phase, such as the first of two weeks: rows with a thousand anchors share them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wheel_udf.common.arrays import Int64s
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.extras import missing_package
from wheel_udf.recurrence.local_times import CYCLE_DAYS, DAY_MS
from wheel_udf.recurrence.sources import MOST, NONE

if TYPE_CHECKING:
    from dateutil.rrule import rrule

RRULE_RULE: Final = "RRULE of RFC 5545 such as RRULE:FREQ=WEEKLY;BYDAY=MO,WE"

_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY")

BLOCKS: Final = {"YEARLY": 1, "MONTHLY": 4, "WEEKLY": 8, "DAILY": 16, "HOURLY": 32, "MINUTELY": 64}
"""How many periods a block has, by frequency."""

# About a century each: a rule that waits longer has no use, and the search for its next occurrence has an end.
_WIDEST: Final = {
    "YEARLY": 100, "MONTHLY": 1_200, "WEEKLY": 5_200, "DAILY": 36_500, "HOURLY": 876_000, "MINUTELY": 52_560_000,
}  # fmt: skip

# The least and most of the numbers of a part; whether it may count from the end, with a minus.
_NUMBERS: Final = {
    "BYSETPOS": (1, 366, True),
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
}
_UNITS_MS: Final = {"BYHOUR": 3_600_000, "BYMINUTE": 60_000, "BYSECOND": 1_000}
_DATED: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
_DAY_PARTS: Final = ("BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,8}")
_INTERVAL: Final = re.compile(r"0*[1-9][0-9]{0,7}")
_WEEKDAY: Final = re.compile(rf"([+-]?[0-9]{{1,2}})?({'|'.join(_WEEKDAYS)})")

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # local times have no zone
_CYCLE_MS: Final = CYCLE_DAYS * DAY_MS
# 400 years before dateutil's end.
_LATEST_START_MS: Final = 253_402_300_800_000 - _CYCLE_MS
# 1 January of the year 1.
_FIRST_DAY: Final = -719_162
# 40 years have all calendars a year can have.
_SAMPLE: Final = datetime(9960, 1, 1)  # noqa: DTZ001  # the same

Parts = tuple[tuple[str, str], ...]


def read_rrule(text: str) -> Parts:
    """Reads an RRULE.

    Args:
        text: The rule, in any case, with or without ``RRULE:`` in front.

    Returns:
        Its parts: name and value, both in upper case, the name FREQ first.

    Raises:
        ConfigError: It is not a rule of RFC 5545, has a part that is a column here, never fires, or dateutil is not
            installed.
    """
    found: dict[str, str] = {}
    for pair in text.upper().removeprefix("RRULE:").split(";"):
        name, equals, value = pair.strip().partition("=")
        if name.startswith("DTSTART"):
            raise _refused(text, "the anchor of the entry is its start; omit DTSTART")
        if name in {"COUNT", "UNTIL"}:
            raise _refused(text, f"use the column {name.lower()}; omit {name}")
        if not equals or name in found:
            raise _refused(text, f"{name or 'an empty part'} stands twice or has no value")
        found[name] = value
        hint = _fault(name, value)
        if hint is not None:
            raise _refused(text, hint)
    parts = tuple(sorted(found.items(), key=lambda part: part[0] != "FREQ"))
    hint = _fault_together(found)
    if hint is not None:
        raise _refused(text, hint)
    fault = missing_package("dateutil", "rrule", "repeat")
    if fault is not None:
        raise fault
    if not _fires(parts):
        raise _refused(text, "no day matches it")
    return parts


def _fault(name: str, value: str) -> str | None:
    if name in _NUMBERS:
        return _fault_in_numbers(name, value)
    if name == "FREQ":
        instead = "; for seconds write every 1 second" if value == "SECONDLY" else ""
        is_good, rule = value in _FREQUENCIES, f"FREQ is one of {', '.join(_FREQUENCIES)}{instead}"
    elif name == "INTERVAL":
        is_good, rule = _INTERVAL.fullmatch(value) is not None, "INTERVAL is a number, at least 1"
    elif name == "WKST":
        is_good, rule = value in _WEEKDAYS, "WKST is a day such as MO"
    elif name == "BYDAY":
        is_good, rule = all(map(_is_weekday, value.split(","))), "BYDAY has days such as MO or -1FR"
    else:
        is_good, rule = False, f"{name} is no part of a rule"
    return None if is_good else rule


def _fault_in_numbers(name: str, value: str) -> str | None:
    least, most, signed = _NUMBERS[name]
    for each in value.split(","):
        number = int(each) if _NUMBER.fullmatch(each) else None
        if number is None or not least <= (abs(number) if signed else number) <= most:
            return f"{name} has numbers from {least} to {most}{', or minus them' if signed else ''}"
    return None


def _is_weekday(text: str) -> bool:
    day = _WEEKDAY.fullmatch(text)
    return day is not None and 1 <= abs(int(day[1] or 1)) <= 53


def _fault_together(parts: dict[str, str]) -> str | None:
    if "FREQ" not in parts:
        return "it has no FREQ"
    frequency = parts["FREQ"]
    if int(parts.get("INTERVAL", "1")) > _WIDEST[frequency]:
        return f"INTERVAL is at most {_WIDEST[frequency]}, about a hundred years"
    numbers = [int(each) for each in re.findall("[0-9]+", parts.get("BYDAY", ""))]
    if max(numbers, default=0) > 5 and (frequency == "MONTHLY" or "BYMONTH" in parts):
        return "BYDAY has numbers from 1 to 5 in a month, or minus them"
    if numbers and (frequency not in {"YEARLY", "MONTHLY"} or "BYWEEKNO" in parts):
        return "BYDAY has numbers only with FREQ=MONTHLY or YEARLY, and not with BYWEEKNO"
    if "BYSETPOS" in parts and not any(each.startswith("BY") and each != "BYSETPOS" for each in parts):
        return "BYSETPOS chooses from another part with BY"
    return None


def _refused(text: str, hint: str) -> ConfigError:
    return ConfigError("not an RRULE", field="repeat", value=text, rule=RRULE_RULE, hint=hint)


def _fires(parts: Parts) -> bool:
    every = tuple(part for part in parts if part[0] != "INTERVAL")
    return next(_dated(every, _SAMPLE, _SAMPLE), None) is not None


def rrule_times(parts: Parts) -> RRuleTimes | DatedRRule:
    """The local times of an RRULE.

    Args:
        parts: As :func:`read_rrule` returns them.
    """
    given = dict(parts)
    # BYSETPOS chooses from all times of a period, so they must be one for each date.
    is_dated = given["FREQ"] in _DATED and ("BYSETPOS" not in given or len(_times_of_day(parts)) == 1)
    return DatedRRule(parts) if is_dated else RRuleTimes(parts)


@dataclass(frozen=True)
class DatedRRule:
    """The local times of an RRULE that are dates and times of day (:class:`wheel_udf.recurrence.sources.LocalTimes`).

    Each distinct pair of a date and a phase of the anchor costs a call of Python.

    Attributes:
        parts: As :func:`read_rrule` returns them.
    """

    parts: Parts

    @cached_property
    def _dates(self) -> RRuleTimes:
        kept = tuple(part for part in self.parts if part[0] not in _UNITS_MS)
        return RRuleTimes((*kept, *((name, "0") for name in _UNITS_MS)), has_anchor=True)

    def next_after(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The first occurrence after each local time: int64[n]."""
        past_ms, phase_ms = np.maximum(local_ms, anchor_ms), self._phase(anchor_ms)
        rest_ms, times = self._rest(anchor_ms), _times_of_day(self.parts)
        day_ms, number = self._passed(past_ms, rest_ms)
        # The first date from the day on; from the next day on, if all times of the day have passed.
        date_ms = self._dates.next_after(np.where(number < len(times), day_ms - 1, day_ms), phase_ms)
        time_ms = times[np.where(date_ms == day_ms, number % len(times), 0)]
        return np.where(date_ms < NONE, date_ms + rest_ms + time_ms, NONE)

    def last_upto(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The last occurrence at or before each local time: int64[n]; ``-NONE`` where there is none."""
        phase_ms, rest_ms, times = self._phase(anchor_ms), self._rest(anchor_ms), _times_of_day(self.parts)
        day_ms, number = self._passed(np.maximum(local_ms, anchor_ms), rest_ms)
        date_ms = self._dates.last_upto(np.where(number > 0, day_ms, day_ms - 1), phase_ms)
        found = date_ms + rest_ms + times[np.where(date_ms == day_ms, number, len(times)) - 1]
        return np.where((date_ms > -NONE) & (found > anchor_ms), found, -NONE)

    def count(self, after_ms: Int64s, upto_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """How many occurrences are in (after, upto]: int64[n]; exact to :data:`MOST`, and beyond it at least that."""
        past_ms, phase_ms, rest_ms = (
            np.maximum(after_ms, anchor_ms),
            self._phase(anchor_ms),
            self._rest(anchor_ms),
        )
        first_ms, first_number = self._passed(past_ms, rest_ms)
        last_ms, last_number = self._passed(np.maximum(upto_ms, past_ms), rest_ms)
        dates = self._dates.count(first_ms - 1, last_ms - 1, phase_ms)
        at_first, at_last = (self._dates.is_at(each, phase_ms) for each in (first_ms, last_ms))
        found = dates * len(_times_of_day(self.parts)) + at_last * last_number - at_first * first_number
        return np.asarray(found, np.int64)

    def is_at(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """Whether a local time, from the anchor on, is an occurrence: 1 or 0, int64[n]."""
        rest_ms = self._rest(anchor_ms)
        time_ms = local_ms % DAY_MS - rest_ms
        is_time = np.isin(time_ms, _times_of_day(self.parts))
        return self._dates.is_at(local_ms - local_ms % DAY_MS, self._phase(anchor_ms)) * is_time

    def _passed(self, local_ms: Int64s, rest_ms: Int64s) -> tuple[Int64s, Int64s]:
        """The day of a local time, in ms, and how many times of the day it has reached."""
        time_ms = local_ms % DAY_MS
        return local_ms - time_ms, np.searchsorted(_times_of_day(self.parts), time_ms - rest_ms, side="right")

    def _rest(self, anchor_ms: Int64s) -> Int64s:
        """What the time of day has of the anchor: the hours, minutes, seconds that the rule does not give."""
        given, time_ms = dict(self.parts), anchor_ms % DAY_MS
        rest_ms = np.zeros(len(anchor_ms), np.int64)
        for name, unit_ms in _UNITS_MS.items():
            whole_ms = time_ms if name == "BYSECOND" else time_ms // unit_ms * unit_ms
            rest_ms += 0 if name in given else whole_ms
            time_ms = time_ms % unit_ms
        return rest_ms

    def _phase(self, anchor_ms: Int64s) -> Int64s:
        """An anchor for the dates, the same one for all anchors that have the same dates, but for their beginning."""
        frequency, interval = _pace(self.parts)
        day = anchor_ms // DAY_MS
        if frequency in {"DAILY", "WEEKLY"}:
            width = interval if frequency == "DAILY" else interval * 7
            day = _FIRST_DAY + (day - _FIRST_DAY) % width
        return np.asarray(day * DAY_MS, np.int64)


@dataclass(frozen=True)
class RRuleTimes:
    """The local times of any RRULE (:class:`wheel_udf.recurrence.sources.LocalTimes`).

    Each pair of a local time and an anchor costs a call of Python; blocks are kept.

    Attributes:
        parts: As :func:`read_rrule` returns them.
        has_anchor: Whether the anchor itself counts, if the rule matches it.
    """

    parts: Parts
    has_anchor: bool = False

    def next_after(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The first occurrence after each local time: int64[n]."""
        return _for_pairs(self._next, local_ms, anchor_ms)

    def last_upto(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The last occurrence at or before each local time: int64[n]."""
        return _for_pairs(self._last, local_ms, anchor_ms)

    def count(self, after_ms: Int64s, upto_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """How many occurrences are in (after, upto]: int64[n]; exact to :data:`MOST`, and beyond it at least that."""
        found = np.zeros(len(after_ms), np.int64)
        anchors, place = np.unique(anchor_ms, return_inverse=True)
        ends = np.cumsum(np.bincount(place, minlength=len(anchors)))
        rows_of = np.split(np.argsort(place, kind="stable"), ends[:-1]) if len(anchors) else []
        for anchor, rows in zip(anchors.tolist(), rows_of, strict=True):
            past = np.maximum(after_ms[rows], anchor - self.has_anchor)
            found[rows] = self._count(past, np.maximum(upto_ms[rows], past), anchor)
        return found

    def is_at(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """Whether a local time, from the anchor on, is an occurrence: 1 or 0, int64[n]."""
        return _for_pairs(self._is_at, local_ms, anchor_ms)

    def _next(self, local_ms: int, anchor_ms: int) -> int:
        past_ms = max(local_ms, anchor_ms - self.has_anchor)
        times = _block(self.parts, anchor_ms, self._number(past_ms, anchor_ms))
        # A block ends with the first occurrence behind it.
        place = int(np.searchsorted(times, past_ms, side="right"))
        return int(times[place])

    def _last(self, local_ms: int, anchor_ms: int) -> int:
        # A rule may never fire from some anchors, and each search that finds nothing goes through centuries.
        bound_ms = anchor_ms - self.has_anchor
        if local_ms <= bound_ms or self._next(bound_ms, anchor_ms) > local_ms:
            return -NONE
        end = self._number(local_ms, anchor_ms)
        times = _block(self.parts, anchor_ms, end)
        last = next(reversed(times[times <= local_ms].tolist()), -NONE)
        # Back by more and more blocks, each time over time that is known to be empty up to the first of them.
        width = 1
        while last == -NONE and end > 0:
            end, width = max(0, end - width), width * 2
            for last in self._within(end, local_ms, anchor_ms):  # noqa: B007  # the last one is what is wanted
                pass
        return last if last > bound_ms else -NONE

    def _within(self, block: int, upto_ms: int, anchor_ms: int) -> Iterator[int]:
        """The occurrences from the beginning of a block through a local time."""
        return takewhile(lambda each: each <= upto_ms, _from_block(self.parts, anchor_ms, block))

    def _count(self, after_ms: Int64s, upto_ms: Int64s, anchor_ms: int) -> Int64s:
        """Those of one anchor, which has passed."""
        found = np.zeros(len(after_ms), np.int64)
        left = np.flatnonzero(
            (after_ms < upto_ms) & (upto_ms >= self._next(anchor_ms - self.has_anchor, anchor_ms))
        )
        while len(left):
            first, last = int(after_ms[left].min()), int(upto_ms[left].max())
            within = self._within(self._number(first, anchor_ms), last, anchor_ms)
            times = np.fromiter(islice((each for each in within if each > first), MOST + 1), np.int64)
            after, upto = (np.searchsorted(times, each[left], side="right") for each in (after_ms, upto_ms))
            found[left] = upto - after
            if len(times) <= MOST:
                break
            # The first ones have their count. For the others it goes on, from the first of them.
            left = left[(found[left] <= MOST) & (upto_ms[left] > times[-1])]
        return found

    def _is_at(self, local_ms: int, anchor_ms: int) -> int:
        return int(local_ms in _block(self.parts, anchor_ms, self._number(local_ms, anchor_ms)))

    def _number(self, local_ms: int, anchor_ms: int) -> int:
        """The block that a local time is in."""
        frequency, interval = _pace(self.parts)
        periods = _period(frequency, local_ms, self.parts) - _period(frequency, anchor_ms, self.parts)
        return periods // (interval * BLOCKS[frequency])


@lru_cache(maxsize=1024)
def _times_of_day(parts: Parts) -> Int64s:
    """The times of day that a rule gives, in ms, without what comes from the anchor; sorted."""
    times = {0}
    for name, unit_ms in _UNITS_MS.items():
        values = [int(each) for each in dict(parts).get(name, "0").split(",")]
        times = {time + value * unit_ms for time in times for value in values}
    return np.array(sorted(times), np.int64)


def _for_pairs(found: Callable[[int, int], int], local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
    """A function of distinct pairs, for all of them."""
    local, local_place = np.unique(local_ms, return_inverse=True)
    anchor, anchor_place = np.unique(anchor_ms, return_inverse=True)
    pairs, place = np.unique(local_place * len(anchor) + anchor_place, return_inverse=True)
    values = [
        found(int(local[pair // len(anchor)]), int(anchor[pair % len(anchor)])) for pair in pairs.tolist()
    ]
    return np.array(values, np.int64)[place]


# Of a rule of each day a block has half a kB.
@lru_cache(maxsize=4096)
def _block(parts: Parts, anchor_ms: int, number: int) -> Int64s:
    """The occurrences in a block and the first one behind it, or :data:`NONE`; sorted."""
    frequency, interval = _pace(parts)
    end = _begin(
        frequency, _period(frequency, anchor_ms, parts) + (number + 1) * interval * BLOCKS[frequency], parts
    )
    found = []
    for each in _from_block(parts, anchor_ms, number):
        found.append(each)
        if each >= end * 1000:
            return np.array(found, np.int64)
    return np.array([*found, NONE], np.int64)


def _from_block(parts: Parts, anchor_ms: int, number: int) -> Iterator[int]:
    """The occurrences from the beginning of a block on, in ms."""
    frequency, interval = _pace(parts)
    period = _period(frequency, anchor_ms, parts) + number * interval * BLOCKS[frequency]
    begin_s = _begin(frequency, period, parts)
    rest_ms = 0 if any(name == "BYSECOND" for name, _ in parts) else anchor_ms % 1000
    # The start in another cycle: the anchor says which day and time, not which year.
    anchor = _EPOCH + timedelta(milliseconds=anchor_ms % _CYCLE_MS)
    shift_ms = max(0, (_LATEST_START_MS - begin_s * 1000) // _CYCLE_MS) * _CYCLE_MS
    try:
        start = _EPOCH + timedelta(seconds=begin_s, milliseconds=shift_ms)
    except OverflowError:
        return
    for each in _dated(parts, start, anchor):
        yield (each - _EPOCH) // timedelta(milliseconds=1) - shift_ms + rest_ms


def _dated(parts: Parts, start: datetime, anchor: datetime) -> Iterator[datetime]:
    """The occurrences from the beginning of a period on, to the year 9999."""
    try:
        yield from _rule(parts, start, anchor)
    except (ValueError, OverflowError):
        # From this anchor the interval never comes to what BYHOUR or BYMINUTE wants; or the year 9999 is over.
        return


def _rule(parts: Parts, start: datetime, anchor: datetime) -> rrule:
    from dateutil import rrule as library

    given = dict(parts)
    frequency = given["FREQ"]
    settings: dict[str, Any] = {
        name.lower(): [int(each) for each in given[name].split(",")] for name in _NUMBERS if name in given
    }
    days = [_WEEKDAY.fullmatch(each) for each in given["BYDAY"].split(",")] if "BYDAY" in given else []
    weekdays = [getattr(library, day[2])(int(day[1]) if day[1] else None) for day in days if day]
    if weekdays:
        settings["byweekday"] = weekdays
    if not any(name in given for name in _DAY_PARTS):
        if frequency == "YEARLY":
            settings.setdefault("bymonth", anchor.month)
        if frequency in {"YEARLY", "MONTHLY"}:
            settings["bymonthday"] = anchor.day
        if frequency == "WEEKLY":
            settings["byweekday"] = anchor.weekday()
    if frequency not in {"HOURLY", "MINUTELY"}:
        settings.setdefault("byhour", anchor.hour)
    if frequency != "MINUTELY":
        settings.setdefault("byminute", anchor.minute)
    settings.setdefault("bysecond", anchor.second)
    return library.rrule(
        getattr(library, frequency),
        dtstart=start,
        interval=int(given.get("INTERVAL", "1")),
        wkst=_WEEKDAYS.index(given.get("WKST", "MO")),
        **settings,
    )


# ---- periods: years, months, weeks, days, hours or minutes, counted from 1970 ----------------------


def _pace(parts: Parts) -> tuple[str, int]:
    return parts[0][1], int(dict(parts).get("INTERVAL", "1"))


def _week_shift(parts: Parts) -> int:
    """From Thursday 1 January 1970 back to the day on which weeks begin."""
    return (3 - _WEEKDAYS.index(dict(parts).get("WKST", "MO"))) % 7


_SECONDS: Final = {"DAILY": 86_400, "HOURLY": 3_600, "MINUTELY": 60}


def _period(frequency: str, local_ms: int, parts: Parts) -> int:
    """The period that a local time is in."""
    if frequency in _SECONDS:
        return local_ms // 1000 // _SECONDS[frequency]
    day = local_ms // DAY_MS
    if frequency == "WEEKLY":
        return (day + _week_shift(parts)) // 7
    months = int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))
    return months // 12 if frequency == "YEARLY" else months


def _begin(frequency: str, period: int, parts: Parts) -> int:
    """The local time at which a period begins, in s."""
    if frequency in _SECONDS:
        return period * _SECONDS[frequency]
    if frequency == "WEEKLY":
        return (period * 7 - _week_shift(parts)) * 86_400
    month = np.datetime64(period * 12 if frequency == "YEARLY" else period, "M")
    return int(month.astype("datetime64[D]").astype(np.int64)) * 86_400
