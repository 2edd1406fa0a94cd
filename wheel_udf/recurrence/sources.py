"""What a rule is to the clock: the local times at which it occurs, whatever zone the clock stands in.

::

    a local time    09:30            next_after(09:30)  13:00        count(09:00, 13:00)  1
    occurrences          |           last_upto(09:30)   09:00        the range is (09:00, 13:00]
         09:00           v      13:00

All arrays are int64[n] and all times local, in ms. `anchor_ms` is the local time of an entry's anchor: a rule that is
counted from its anchor occurs after it (the anchor itself is left to the caller). A cron rule ignores it.
"""

from __future__ import annotations

from typing import Final, Protocol

from wheel_udf.common.arrays import Int64s

NONE: Final = 2**60
"""In place of a local time that there is not: ``NONE`` after all others, ``-NONE`` before them."""

MOST: Final = 100_000
"""How many occurrences are counted at most."""


class LocalTimes(Protocol):
    """The local times at which a rule occurs."""

    def next_after(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The first occurrence after each local time; :data:`NONE` where there is none."""
        ...

    def last_upto(self, local_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """The last occurrence at or before each local time; ``-NONE`` where there is none."""
        ...

    def count(self, after_ms: Int64s, upto_ms: Int64s, anchor_ms: Int64s) -> Int64s:
        """How many occurrences are in (after, upto]; exact to :data:`MOST`, and beyond it at least that."""
        ...
