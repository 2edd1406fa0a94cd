"""Seeds: the state of a shard of a purgatory made anew from its content; see :mod:`wheel_udf.wheel.seed`.

The rows are kept by kind (:data:`~wheel_udf.purgatory.state.KINDS`), each with the schema that it has in the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from wheel_udf.purgatory.state import KINDS, Kind, WatchState
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.shard_text import chunks_from_text
from wheel_udf.wheel.buckets import Buckets
from wheel_udf.wheel.seed import Seed, encoded_runs


def rows_of_text(kind: str, text: str, texts: ChunkStore | None = None) -> pa.Table:
    """All rows of a kind, from the column ``chunks`` of a shard's row."""
    level, schema, _ = KINDS[kind]
    chunks = chunks_from_text(text, texts)
    wanted = [c for c in chunks if (c.level > MEMORY_LEVEL if level is None else c.level == level)]
    return pa.concat_tables([schema.empty_table(), *(chunk.table() for chunk in wanted)])


def seeded(empty: WatchState, seed: Seed, rows: Mapping[str, pa.Table]) -> WatchState:
    """Makes the state of a shard.

    Args:
        empty: The state before the first batch, with the new geometry.
        seed: Clock and counts.
        rows: The rows by kind; a missing kind has none.
    """
    counts = {name: seed.counts.get(name, 0) for name in empty.counts}
    if seed.clock_ms is None:
        assert not any(table.num_rows for table in rows.values()), "rows come with a clock"
        return replace(empty, counts=counts)
    chunks: list[Chunk] = []
    for name, kind in KINDS.items():
        if name in rows and rows[name].num_rows:
            chunks += _chunks(empty, kind, rows[name], seed.clock_ms)
    return empty.with_chunks(seed.clock_ms, counts, chunks)


def _chunks(empty: WatchState, kind: Kind, rows: pa.Table, clock_ms: int) -> list[Chunk]:
    if kind.level is None:
        return Buckets(empty.wheel, kind.time_column).place(rows, clock_ms)
    return encoded_runs(rows, level=kind.level, time_column=kind.time_column)
