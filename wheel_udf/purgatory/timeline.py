"""The events of a step, sorted by key and time, so that the events in an operation's window are a range.

::

    happened, by key and time
    x: 3 7    y: 5    z:             b waits for x in the window [4, 9]  ->  the range that holds 7

A key is looked up once. The events in a window are found by two binary searches, so the first and the last of
them cost no more than the searches, however many events a key has.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.purgatory.state import CANCEL, CANCEL_OPERATION, EVENT, NEVER, named


class Timeline:
    """Rows of one kind, sorted by name and time.

    Args:
        events: ``EVENT_SCHEMA``.
    """

    def __init__(self, events: pa.Table) -> None:
        names = named(events["group"], events["name"]).combine_chunks()
        self._names = pc.unique(names)
        time, amount = events["event_time_ms"].to_numpy(), events["amount"].fill_null(0).to_numpy()
        code = pc.index_in(names, value_set=self._names).to_numpy().astype(np.int64)
        order = np.lexsort((amount, time, code))
        self.time_ms, self.amount = time[order], amount[order]
        self._times = np.unique(time)
        self._place = self._at(code[order], np.searchsorted(self._times, self.time_ms))

    def _at(self, code: Int64s, rank: Int64s) -> Int64s:
        return code * (len(self._times) + 1) + rank

    def codes(self, names: pa.Array) -> Int64s:
        """The number of each name; -1 for a name without rows."""
        found = pc.fill_null(pc.index_in(names, value_set=self._names), -1)
        return np.asarray(found.to_numpy(), dtype=np.int64)

    def ranges(self, code: Int64s, from_ms: Int64s, to_ms: Int64s) -> tuple[Int64s, Int64s]:
        """For each name its rows with a time in ``[from_ms, to_ms]``, as a half-open range of places in time order."""
        if not len(self._place):
            return np.zeros_like(code), np.zeros_like(code)
        first = np.searchsorted(
            self._place, self._at(code, np.searchsorted(self._times, from_ms)), side="left"
        )
        last = np.searchsorted(
            self._place, self._at(code, np.searchsorted(self._times, to_ms, side="right")), side="left"
        )
        return np.where(code < 0, 0, first), np.where(code < 0, 0, np.maximum(first, last))

    def first(self, first: Int64s, last: Int64s) -> Int64s:
        """The time of the first row of each range; NEVER for an empty range."""
        return _times_at(self.time_ms, first, last > first)

    def last(self, first: Int64s, last: Int64s) -> Int64s:
        """The time of the last row of each range; NEVER for an empty range."""
        return _times_at(self.time_ms, last - 1, last > first)


def _times_at(times: Int64s, at: Int64s, there: Bools) -> Int64s:
    found = np.full(len(at), NEVER)
    found[there] = times[at[there]]
    return found


class Timelines:
    """The events of a step in three timelines: events on keys, cancels of keys, cancels of operations.

    Args:
        events: ``EVENT_SCHEMA``.
    """

    def __init__(self, events: pa.Table) -> None:
        self.happened, self.cancelled, self.operations = (
            Timeline(events.filter(pc.equal(events["what"], what)))
            for what in (EVENT, CANCEL, CANCEL_OPERATION)
        )
