"""Rows that the clock has still to pass: kept in runs of the time order, of which a step opens those alone that the clock has come into.

::

    clock 50, rows ahead     [52 .. 61]  [61 .. 75]  [75 .. 80]
    clock 60                  52 .. 59 are passed; what is left of the opened run is written again with the rows that have come
                             [60 .. 64]  [61 .. 75]  [75 .. 80]

So a step opens and writes no more than the rows that come and a run or two, however far the rows are ahead and however many they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.state import Chunk

LARGEST_RUN = 8_192
_SMALL_RUN = 1_024


def pass_by(
    chunks: Sequence[Chunk], rows: pa.Table, clock_ms: int, *, level: int, time_column: str
) -> tuple[pa.Table, list[Chunk]]:
    """Takes out the rows of before the clock, and puts new ones in.

    Args:
        chunks: The rows that were ahead so far.
        rows: Those that have come, any number.
        clock_ms: The clock; a row is passed when its time is before it.
        level: The chunks' mark.
        time_column: Where the rows have their time.

    Returns:
        The rows that are passed, and the chunks of those that are still ahead.
    """
    closed = [chunk for chunk in chunks if chunk.low_ms >= clock_ms]
    reached = [chunk.table() for chunk in chunks if chunk.low_ms < clock_ms]
    known = pa.concat_tables([*reached, rows])
    behind = pc.less(known[time_column], clock_ms)
    ahead = known.filter(pc.invert(behind))
    if not ahead.num_rows:
        return known, closed
    if closed and closed[-1].rows < _SMALL_RUN:  # so that there are never many
        ahead = pa.concat_tables([ahead, closed.pop().table()])
    ahead = ahead.take(pa.array(np.argsort(ahead[time_column].to_numpy(), kind="stable")))
    runs = (ahead.slice(first, LARGEST_RUN) for first in range(0, ahead.num_rows, LARGEST_RUN))
    return known.filter(behind), [*closed, *(Chunk.of(level, 0, run, time_column) for run in runs)]
