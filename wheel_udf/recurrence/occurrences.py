"""The occurrences of a rule: the next one, the newest one, how many. For whole columns of instants.

::

    rule = occurrences_of("0 9 * * MON-FRI", "Europe/Paris")
    rule.after(nominal_ms, anchor_ms)          the next occurrence, strictly after each
    rule.first(at_ms, anchor_ms)               the first one, at or after each
    rule.upto(after_ms, now_ms, anchor_ms)     how many have passed, and the newest of them
    rule.between(from_ms, to_ms, anchor_ms, most=10)     some of them, for a listing

The answer depends on the arguments and on the data of the time zones, and on nothing else: not on what was asked
before. Instants are UTC epoch ms, of the years 1 to 9999. All of int64 may be asked for: what is before the year 1
counts as its beginning, and there is no occurrence after the year 9999 (:data:`NEVER`).

No Python loop over rows. Only dateutil, for an RRULE, is asked once for each distinct pair of a date and a phase of the
anchor; with FREQ=HOURLY or MINUTELY, of a local time and an anchor, about 0.1 ms each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.recurrence import zoned
from wheel_udf.recurrence.cron_times import CronTimes, runs_by_elapsed_time
from wheel_udf.recurrence.local_times import (
    DAY_MS,
    NEAR_END_MS,
    NEVER,
    ClockPieces,
    pieces_of,
    to_local_ms,
)
from wheel_udf.recurrence.rrule_times import DatedRRule, RRuleTimes, rrule_times
from wheel_udf.recurrence.rule import Kind, Rule, parse_rule
from wheel_udf.recurrence.sources import MOST, LocalTimes
from wheel_udf.recurrence.steps import Steps

FIRST_MS: Final = -62_135_596_800_000
"""0001-01-01T00:00Z."""

LAST_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""


class Occurrences:
    """The occurrences of one rule.

    A cron rule ignores the anchor. All others begin at it: the anchor is their first occurrence, and the others are
    counted from it. Of an RRULE it is one only if it matches.

    Args:
        rule: The rule.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule: Final = rule
        self._local: Final = _local_times(rule)
        # By elapsed time is each piece of the clock for itself: nothing is shifted, and all of a fold happens twice.
        by_elapsed_time = rule.kind == Kind.CRON and runs_by_elapsed_time(rule.cron)
        self._policies: Final = ("skip", "both") if by_elapsed_time else (rule.on_gap, rule.on_fold)

    def after(self, nominal_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The next occurrence.

        Args:
            nominal_ms: Instants, int64[n].
            anchor_ms: Anchors, int64[n].

        Returns:
            The first occurrence strictly after each instant, int64[n]; :data:`NEVER` where there is none.
        """
        at_ms, anchor_ms = (
            np.clip(nominal_ms, FIRST_MS - 1, LAST_MS),
            np.clip(anchor_ms, FIRST_MS, LAST_MS + 1),
        )
        if self.rule.kind == Kind.CRON:
            distinct, place = np.unique(at_ms, return_inverse=True)
            found = self._zoned_after(distinct, distinct)[place]
        elif self.rule.kind == Kind.ELAPSED:
            past = np.maximum(at_ms, anchor_ms)
            found = past + self.rule.size - (past - anchor_ms) % self.rule.size
            found = np.where(at_ms < anchor_ms, anchor_ms, found)
        else:
            local_ms = to_local_ms(anchor_ms, self.rule.zone)
            found = self._zoned_after(np.maximum(at_ms, anchor_ms), local_ms)
            found = np.where(self._begins(at_ms < anchor_ms, local_ms), anchor_ms, found)
        return np.where(found > LAST_MS, NEVER, found)

    def first(self, at_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The first occurrence at or after each instant: int64[n]; :data:`NEVER` where there is none."""
        # An occurrence is never at the end of int64, where one less is the other end.
        return self.after(np.maximum(at_ms, FIRST_MS) - 1, anchor_ms)

    def upto(self, after_ms: Int64s, upto_ms: Int64s | int, anchor_ms: Int64s) -> tuple[Int64s, Int64s]:
        """What has passed.

        Args:
            after_ms: Instants, int64[n].
            upto_ms: The instant up to which it is asked, inclusive: one, or int64[n].
            anchor_ms: Anchors, int64[n].

        Returns:
            How many occurrences there are in (after, upto], int64[n], at most :data:`MOST`; and the newest of them,
            int64[n], exact whatever their number; `after_ms` where there is none.
        """
        if isinstance(upto_ms, int):
            upto_ms = np.full(len(after_ms), max(FIRST_MS - 1, min(LAST_MS, upto_ms)), np.int64)
        end_ms = np.clip(upto_ms, FIRST_MS - 1, LAST_MS)
        past, anchor = np.clip(after_ms, FIRST_MS - 1, LAST_MS), np.clip(anchor_ms, FIRST_MS, LAST_MS + 1)
        if self.rule.kind == Kind.CRON:
            pairs, place = np.unique(np.stack([past, end_ms]), axis=1, return_inverse=True)
            distinct, ends_ms = pairs
            count, newest = (each[place.ravel()] for each in self._zoned_upto(distinct, ends_ms, distinct))
        elif self.rule.kind == Kind.ELAPSED:
            passed = _passed(end_ms, anchor, self.rule.size)
            count = np.clip(passed - _passed(past, anchor, self.rule.size), 0, MOST)
            newest = anchor + (passed - 1) * self.rule.size
        else:
            local_ms = to_local_ms(anchor, self.rule.zone)
            begins = self._begins((past < anchor) & (anchor <= end_ms), local_ms)
            count, newest = self._zoned_upto(np.maximum(past, anchor), end_ms, local_ms)
            newest = np.where(count > 0, newest, anchor)
            count = np.minimum(count + begins, MOST)
        return count, np.where(count > 0, newest, after_ms)

    def between(self, after_ms: int, upto_ms: int, anchor_ms: int, most: int) -> Int64s:
        """The occurrences in (after, upto], in order, for a listing: about 0.1 ms for each.

        Args:
            after_ms: From here, exclusive.
            upto_ms: To here, inclusive.
            anchor_ms: The anchor.
            most: How many at most; the first ones are returned.

        Returns:
            Instants, int64[k].
        """
        anchor, at = _one(anchor_ms), _one(after_ms)
        found: list[int] = []
        while len(found) < most:
            at = self.after(at, anchor)
            if at[0] > upto_ms or at[0] == NEVER:
                break
            found.append(int(at[0]))
        return np.array(found, np.int64)

    def _begins(self, is_within: Bools, anchor_local_ms: Int64s) -> Bools:
        """Whether the anchor is an occurrence, of those that are within what is asked for."""
        if isinstance(self._local, RRuleTimes | DatedRRule) and is_within.any():
            anchors = anchor_local_ms[is_within]
            is_within[is_within] = self._local.is_at(anchors, anchors) > 0
        return is_within

    def _clock(self, upto_ms: int) -> ClockPieces:
        return pieces_of(self.rule.zone, *self._policies, upto_ms)

    def _zoned_after(self, at_ms: Int64s, anchor_local_ms: Int64s) -> Int64s:
        assert self._local is not None
        latest_ms = int(at_ms.max(initial=FIRST_MS))
        found = zoned.next_after(self._local, self._clock(latest_ms), at_ms, anchor_local_ms)
        if latest_ms < NEAR_END_MS:
            # What comes after the near pieces is right to some hours only.
            far = (found >= NEAR_END_MS) & (found < LAST_MS + DAY_MS)
            if far.any():
                clock = self._clock(NEAR_END_MS)
                found[far] = zoned.next_after(self._local, clock, at_ms[far], anchor_local_ms[far])
        return found

    def _zoned_upto(self, past_ms: Int64s, upto_ms: Int64s, anchor_local_ms: Int64s) -> tuple[Int64s, Int64s]:
        assert self._local is not None
        clock = self._clock(int(upto_ms.max(initial=FIRST_MS - 1)))
        count, newest = np.zeros(len(past_ms), np.int64), past_ms.copy()
        rows = np.flatnonzero(past_ms < upto_ms)
        newest[rows] = zoned.last_upto(self._local, clock, upto_ms[rows], anchor_local_ms[rows])
        # It costs more to count nothing than to find that there is nothing.
        rows = np.flatnonzero(newest > past_ms)
        count[rows] = zoned.count(self._local, clock, past_ms[rows], upto_ms[rows], anchor_local_ms[rows])
        return count, newest


def _passed(at_ms: Int64s | np.int64, anchor_ms: Int64s, size_ms: int) -> Int64s:
    """How many occurrences there are from the anchor through an instant."""
    return np.asarray(np.where(at_ms < anchor_ms, 0, (at_ms - anchor_ms) // size_ms + 1), np.int64)


def _one(at_ms: int) -> Int64s:
    return np.array([max(FIRST_MS - 1, min(LAST_MS + 1, at_ms))], np.int64)


def _local_times(rule: Rule) -> LocalTimes | None:
    """The local times of a rule; None if it counts elapsed time from its anchor."""
    if rule.kind == Kind.CRON:
        return CronTimes(rule.cron)
    if rule.kind == Kind.RRULE:
        return rrule_times(rule.parts)
    if rule.kind == Kind.ELAPSED:
        return None
    return Steps(days=rule.size, months=0) if rule.kind == Kind.DAYS else Steps(days=0, months=rule.size)


@lru_cache(maxsize=1024)
def occurrences_of(
    repeat: str, zone: str = "UTC", on_gap: str = "shift", on_fold: str = "first"
) -> Occurrences:
    """The occurrences of a rule, as :func:`wheel_udf.recurrence.rule.parse_rule` reads it; kept for 1024 rules.

    Raises:
        ConfigError: The rule is wrong.
    """
    return Occurrences(parse_rule(repeat, zone, on_gap, on_fold))
