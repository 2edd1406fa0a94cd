"""Rows whose time the clock has not passed: kept in runs in time order, of which a step opens only those that the clock
has reached.

::

    clock 50, rows ahead     [52 .. 61]  [61 .. 75]  [75 .. 80]
    clock 60                  52 .. 59 are passed; the rest of the opened run is written again, together with new rows
                             [60 .. 64]  [61 .. 75]  [75 .. 80]

So a step reads and writes its new rows and a run or two, however far ahead the rows are and however many they
are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.purgatory.state import AHEAD_LEVEL
from wheel_udf.shard.chunks import Chunk

LARGEST_RUN = 8_192
_TIME = "event_time_ms"
_SMALL_RUN = 1_024


def pass_by(chunks: Sequence[Chunk], events: pa.Table, clock_ms: int) -> tuple[pa.Table, list[Chunk]]:
    """Removes the events with times before the clock, and adds new ones.

    Args:
        chunks: The events ahead of the last clock.
        events: New ones (``EVENT_SCHEMA``), any number.
        clock_ms: The clock; an event is passed when its time is before it.

    Returns:
        The passed events, and the chunks of those that are still ahead.
    """
    closed = [chunk for chunk in chunks if chunk.low_ms >= clock_ms]
    reached = [chunk.table() for chunk in chunks if chunk.low_ms < clock_ms]
    known = pa.concat_tables([*reached, events])
    behind = pc.less(known[_TIME], clock_ms)
    ahead = known.filter(pc.invert(behind))
    if not ahead.num_rows:
        return known, closed
    if closed and closed[-1].rows < _SMALL_RUN:  # keeps the number of runs small
        ahead = pa.concat_tables([ahead, closed.pop().table()])
    ahead = ahead.take(pa.array(np.argsort(ahead[_TIME].to_numpy(), kind="stable")))
    runs = (ahead.slice(first, LARGEST_RUN) for first in range(0, ahead.num_rows, LARGEST_RUN))
    return known.filter(behind), [*closed, *(Chunk.of(AHEAD_LEVEL, 0, run, _TIME) for run in runs)]
