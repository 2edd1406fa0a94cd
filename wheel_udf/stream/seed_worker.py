"""The Python worker of the first batch of a moved checkpoint: the rows of a shard in, its state out. Calls ``seeded``
of the wheel (:mod:`wheel_udf.wheel.seed`) or of the purgatory (:mod:`wheel_udf.purgatory.seed`).

Rows come packed, many to a *parcel*: one Arrow table of one kind and one shard. So every type arrives as it left,
whatever pandas makes of nulls and lists, and a group has few rows.

Imports numpy, pandas and pyarrow only, besides the standard library and pure modules: it runs on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from wheel_udf.common.geometry import Wheel
from wheel_udf.purgatory.seed import seeded as purgatory_seeded
from wheel_udf.purgatory.state import KINDS, WatchState
from wheel_udf.shard.arrow_text import encoded
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.rows import ENTRY_SCHEMA, MEMORY_SCHEMA
from wheel_udf.shard.state import BaseShardState, ShardState
from wheel_udf.spark.object_stores import Settings
from wheel_udf.stream.worker import chunk_files, row_of
from wheel_udf.wheel.seed import Seed, seeded as wheel_seeded

PARCEL_TYPE = "shard int, kind string, parcel binary"
SEEDED_TYPE = "shard int, pending long, far long, clock_ms long"
"""What a shard reports."""

ENTRIES, MEMORY = "entries", "memory"

StateOf = Callable[[Wheel, ChunkStore | None, Seed, Mapping[str, pa.Table]], BaseShardState]


def packer(kind: str, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow``: rows of ``schema`` and ``shard`` to parcels (:data:`PARCEL_TYPE`)."""

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            shards = table["shard"].to_numpy()
            rows = table.select(schema.names).cast(schema)
            for shard in np.unique(shards):
                octets = encoded(rows.filter(pa.array(shards == shard))).to_pybytes()
                columns = [pa.array([shard], pa.int32()), pa.array([kind]), pa.array([octets], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, names=["shard", "kind", "parcel"])

    return packed


def _unpacked(frames: Iterable[pd.DataFrame]) -> dict[str, pa.Table]:
    """The rows of a shard by kind."""
    tables: dict[str, list[pa.Table]] = {}
    for frame in frames:
        for kind, parcel in zip(frame["kind"], frame["parcel"], strict=True):
            if parcel is not None:  # the row that only touches the shard
                tables.setdefault(kind, []).append(pa.ipc.open_stream(parcel).read_all())
    return {kind: pa.concat_tables(parts) for kind, parts in tables.items()}


@dataclass(frozen=True)
class SeedWorker:
    """The function that the first batch passes to ``applyInPandasWithState``: one call makes the state of one shard.

    Attributes:
        wheel: The new geometry.
        shards: The new number of shards.
        keys: Grouping key of each shard, by its number.
        seeds: Clock and counts of each shard.
        make: Makes a state from the rows by kind: :func:`wheel_state` or :func:`watch_state`.
        stores: As of :class:`~wheel_udf.stream.worker.ShardWorker`.
    """

    wheel: Wheel
    shards: int
    keys: tuple[int, ...]
    seeds: tuple[Seed, ...]
    make: StateOf
    stores: Settings

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group: Any
    ) -> Iterator[pd.DataFrame]:
        """Makes the state of one shard, as ``applyInPandasWithState`` calls it."""
        shard = self.keys.index(key[0])
        state = self.make(self.wheel, chunk_files(shard, self.stores), self.seeds[shard], _unpacked(frames))
        group.update(row_of(state, self.shards))
        far = state.far if isinstance(state, ShardState) else 0
        yield pd.DataFrame(
            {"shard": [shard], "pending": [state.pending], "far": [far], "clock_ms": [state.clock_ms or 0]}
        )


def wheel_state(
    wheel: Wheel, texts: ChunkStore | None, seed: Seed, rows: Mapping[str, pa.Table]
) -> ShardState:
    """The state of a shard of ``schedule``; the kinds are :data:`ENTRIES` and :data:`MEMORY`."""
    entries = rows.get(ENTRIES, ENTRY_SCHEMA.empty_table())
    memory = rows.get(MEMORY, MEMORY_SCHEMA.empty_table())
    return wheel_seeded(ShardState.empty(wheel, texts), seed, entries, memory)


def watch_state(
    wheel: Wheel, texts: ChunkStore | None, seed: Seed, rows: Mapping[str, pa.Table]
) -> WatchState:
    """The state of a shard of ``watch``; the kinds are those of :data:`~wheel_udf.purgatory.state.KINDS`."""
    assert rows.keys() <= KINDS.keys(), "these are all kinds"
    return purgatory_seeded(WatchState.empty(wheel, texts), seed, rows)
