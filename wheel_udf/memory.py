"""What is remembered for a while: chunks of records that grow at the young end and are dropped whole at the old one.

::

    clock 100, remembered for 16      [84 .. 89]  [90 .. 97]  [98 .. 99] <- new records are added here
    clock 106                          dropped    [90 .. 97]  [98 .. 105]

The newest chunk grows to a sixteenth of the time remembered, then a new one is begun: so a batch rewrites little, and chunks are dropped whole soon
after the last of their records has run out. A small chunk grows on, so that there are never many. What has run out may be stored
for a while yet: who looks something up compares times.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.state import Chunk

_PARTS = 16
_LARGEST_TIMELESS_PART = 65_536
_SMALL_PART = 1_024


def still_remembered(chunks: Sequence[Chunk], clock_ms: int, memory_ms: int | None) -> list[Chunk]:
    """The chunks with a record that has not run out; ``memory_ms`` None: all."""
    return [chunk for chunk in chunks if memory_ms is None or clock_ms < chunk.high_ms + memory_ms]


def remember(
    chunks: Sequence[Chunk],
    records: pa.Table,
    clock_ms: int,
    memory_ms: int | None,
    *,
    level: int,
    time_column: str,
) -> list[Chunk]:
    """Drops the chunks of which nothing is remembered any more and adds records to the newest.

    Args:
        chunks: What is remembered so far, oldest first.
        records: More of it; any number of rows.
        clock_ms: Now.
        memory_ms: How long a record is remembered after its time; None for ever.
        level: The chunks' mark.
        time_column: Where the records have their time.
    """
    fresh = still_remembered(chunks, clock_ms, memory_ms)
    if records.num_rows == 0 or memory_ms == 0:
        return fresh
    if fresh and _grows(fresh[-1], clock_ms, memory_ms):
        older = fresh.pop().table()
        if memory_ms is not None:
            older = older.filter(pc.greater(older[time_column], clock_ms - memory_ms))
        records = pa.concat_tables([older, records])
    return [*fresh, Chunk.of(level, 0, records, time_column)]


def _grows(newest: Chunk, clock_ms: int, memory_ms: int | None) -> bool:
    if memory_ms is None:
        return newest.rows < _LARGEST_TIMELESS_PART
    return newest.rows < _SMALL_PART or (clock_ms - newest.low_ms) * _PARTS < memory_ms
