"""Rules of whole days or months: the k-th occurrence is so many days or months after the anchor, at its time of day.

::

    every 1 month, anchor 31 January 09:00       k  1  28 February 09:00     the month's last day, if it is shorter
                                                    2  31 March 09:00        counted from the anchor, so it comes back
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from wheel_udf.common.arrays import Int64s
from wheel_udf.recurrence.local_times import DAY_MS
from wheel_udf.recurrence.sources import NONE


@dataclass(frozen=True)
class Steps:
    """The local times of a rule (:class:`wheel_udf.recurrence.sources.LocalTimes`): one of `days` and `months` is
    positive, the other 0. At most :data:`LONGEST_DAYS` or :data:`LONGEST_MONTHS`, so that nothing here leaves 64 bits.
    """

    days: int
    months: int

    def next_after(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The first occurrence after each local time: int64[n]."""
        return self._at(self._number(local_ms, anchor_ms) + 1, anchor_ms)

    def last_upto(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The last occurrence at or before each local time: int64[n]; ``-NONE`` where there is none."""
        number = self._number(local_ms, anchor_ms)
        return np.where(number > 0, self._at(number, anchor_ms), -NONE)

    def count(self, after_ms: Int64s, upto_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """How many occurrences are in (after, upto]: int64[n]. Exact."""
        return self._number(upto_ms, anchor_ms) - self._number(after_ms, anchor_ms)

    def _number(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """Of the last occurrence at or before each local time; 0 before the first."""
        past_ms = np.maximum(local_ms, anchor_ms)
        if self.days:
            return np.asarray((past_ms - anchor_ms) // (self.days * DAY_MS), np.int64)
        number = np.asarray((_month(past_ms) - _month(anchor_ms)) // self.months, np.int64)
        # In the month of the last one it may be too early yet.
        return number - (self._at(number, anchor_ms) > past_ms)

    def _at(self, number: Int64s, anchor_ms: Int64s) -> Int64s:
        if self.days:
            return anchor_ms + number * (self.days * DAY_MS)
        day, time_ms = np.divmod(anchor_ms, DAY_MS)
        month = _month(anchor_ms)
        goal = month + number * self.months
        in_month = np.minimum(day - _first_day(month), _first_day(goal + 1) - _first_day(goal) - 1)
        return np.asarray((_first_day(goal) + in_month) * DAY_MS + time_ms, np.int64)


LONGEST_DAYS: Final = 4_000_000
"""More days than the years 1 to 9999 have: a rule of so many occurs at its anchor only."""

LONGEST_MONTHS: Final = 120_000
"""As many months."""


def _month(local_ms: Int64s) -> Int64s:
    """Months from January 1970."""
    return (local_ms // DAY_MS).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_day(month: Int64s) -> Int64s:
    """Days from 1 January 1970 to the first of a month."""
    return month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
