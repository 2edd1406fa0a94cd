"""Seeds: the state of a shard made anew from its content, for any geometry and number of shards.

A checkpoint that is moved (:mod:`wheel_udf.transfer`) leaves its entries and memory as plain rows. The first
batch of the new checkpoint places them by the new geometry::

    rows of this shard                                   state of the shard, clock and counts from the seed
    entries    (ENTRY_SCHEMA)   --Buckets.place-->       entry chunks, by the seed's clock
    memory     (MEMORY_SCHEMA)  --in order of time-->    memory chunks
    seed       clock, counts, entries in the store       scalars

Nothing is folded and nothing is released: an entry that is due already stays due, and the first step fires it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from wheel_udf.shard import chunk_sizes
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.buckets import Buckets

_RUNS = 16
_SMALLEST_RUN = 1_024


@dataclass(frozen=True)
class Seed:
    """The scalars of a shard that do not follow from its rows.

    Attributes:
        clock_ms: The clock; ``None`` if the wheel never had one, and then there are no rows.
        counts: Rows by outcome; a missing outcome counts 0.
        far: Number of entries that wait in the slot store.
    """

    clock_ms: int | None
    counts: Mapping[str, int] = field(default_factory=dict)
    far: int = 0


def seeded(empty: ShardState, seed: Seed, entries: pa.Table, memory: pa.Table) -> ShardState:
    """Makes the state of a shard.

    Args:
        empty: The state before the first batch, with the new geometry.
        seed: The scalars.
        entries: The pending entries, ``ENTRY_SCHEMA``.
        memory: The memory records, ``MEMORY_SCHEMA``, any order.
    """
    counts = {name: seed.counts.get(name, 0) for name in empty.counts}
    if seed.clock_ms is None:
        assert not entries.num_rows + memory.num_rows, "rows come with a clock"
        return replace(empty, counts=counts)
    return empty.with_chunks(
        seed.clock_ms,
        seed.far,
        counts,
        Buckets(empty.wheel).place(entries, seed.clock_ms),
        encoded_runs(memory, level=MEMORY_LEVEL, time_column="ended_at_ms"),
    )


def encoded_runs(rows: pa.Table, *, level: int, time_column: str) -> list[Chunk]:
    """Encodes rows in order of time, in sixteen runs or more, so that old ones can be dropped soon."""
    ordered = rows.sort_by(time_column)
    size = min(max(_SMALLEST_RUN, -(-ordered.num_rows // _RUNS)), chunk_sizes.SIZES.largest)
    starts = range(0, ordered.num_rows, size)
    return [Chunk.of(level, 0, ordered.slice(start, size), time_column) for start in starts]
