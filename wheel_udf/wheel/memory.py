"""Memory: chunks of records in order of time. New records are added to the newest chunk, expired chunks are
dropped whole.

::

    clock 100, remembered for 16      [84 .. 89]  [90 .. 97]  [98 .. 99] <- new records are added here
    clock 106                          dropped    [90 .. 97]  [98 .. 105]

The newest chunk grows until it spans a sixteenth of the remembered time, or has half the rows of the largest chunk;
then a new one is started. So a chunk is dropped soon after its last record has expired. A batch that brings few
records starts a new chunk, too, and merges it with those before it that are not much larger
(:mod:`wheel_udf.shard.merging`). So a batch rewrites little, however many are remembered. A record can have a time
ahead of the clock; it is remembered from then on, and its chunk as long. A small chunk grows beyond a sixteenth, so
that there are never many chunks. An expired record may still be stored: a look-up compares times.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.shard import chunk_sizes
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.merging import to_merge

_PARTS = 16


def still_remembered(chunks: Sequence[Chunk], clock_ms: int, memory_ms: int | None) -> list[Chunk]:
    """The chunks with at least one record that has not expired; all if ``memory_ms`` is None."""
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
    """Drops expired chunks and adds records to the newest chunk.

    Args:
        chunks: The chunks so far, oldest first.
        records: Records to add; any number of rows.
        clock_ms: Now.
        memory_ms: How long a record is remembered after its time; None for ever.
        level: The ``level`` of the chunks (:attr:`wheel_udf.shard.chunks.Chunk.level`).
        time_column: Name of the column with the time of a record.
    """
    fresh = still_remembered(chunks, clock_ms, memory_ms)
    if memory_ms == 0:
        records = records.filter(pc.greater(records[time_column], clock_ms))
    if records.num_rows == 0:
        return fresh
    rows, merging = records.num_rows, list[Chunk]()
    while fresh and _grows(fresh[-1], rows, clock_ms, memory_ms):
        merging.insert(0, fresh.pop())
        rows += merging[0].rows
    if merging:
        older = pa.concat_tables([chunk.table() for chunk in merging])
        if memory_ms is not None:
            older = older.filter(pc.greater(older[time_column], clock_ms - memory_ms))
        records = pa.concat_tables([older, records])
    return [*fresh, Chunk.of(level, 0, records, time_column)]


def _grows(newest: Chunk, added: int, clock_ms: int, memory_ms: int | None) -> bool:
    """Whether the newest chunk takes so many rows more."""
    if newest.rows < chunk_sizes.SIZES.growing_memory:
        return True
    is_young = memory_ms is None or (clock_ms - newest.low_ms) * _PARTS < memory_ms
    return is_young and 2 * newest.rows < chunk_sizes.SIZES.largest and to_merge([added, newest.rows]) == 2
