"""The Python worker of the first batch of a moved checkpoint: the rows of a shard in, its state out. Calls ``seeded``
of the wheel (:mod:`wheel_udf.wheel.seed`) or of the purgatory (:mod:`wheel_udf.purgatory.seed`).

Rows come packed, many to a *parcel*: one Arrow table of one kind and one shard. So every type arrives as it left,
whatever pandas makes of nulls and lists, and a group has few rows.

Imports numpy, pandas and pyarrow only, besides the standard library and pure modules: it runs on executors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from wheel_udf.common.geometry import Wheel
from wheel_udf.purgatory.seed import seeded as purgatory_seeded
from wheel_udf.purgatory.state import KINDS, WatchState
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.rows import ENTRY_SCHEMA, MEMORY_SCHEMA
from wheel_udf.shard.state import BaseShardState, ShardState
from wheel_udf.stream.worker import chunk_files, row_of
from wheel_udf.wheel.seed import Seed, seeded as wheel_seeded

PARCEL_TYPE = "shard int, kind string, parcel binary"
SEEDED_TYPE = "shard int, pending long, far long, clock_ms long"
"""What a shard reports."""

ENTRIES, MEMORY = "entries", "memory"


def packer(kind: str, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow``: rows of ``schema`` and ``shard`` to parcels (:data:`PARCEL_TYPE`)."""

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            shards = table["shard"].to_numpy()
            rows = table.select(schema.names).cast(schema)
            for shard in np.unique(shards):
                octets = _octets(rows.filter(pa.array(shards == shard)))
                columns = [pa.array([shard], pa.int32()), pa.array([kind]), pa.array([octets], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, names=["shard", "kind", "parcel"])

    return packed


def _octets(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def _unpacked(frames: Iterable[pd.DataFrame]) -> dict[str, pa.Table]:
    """The rows of a shard by kind."""
    tables: dict[str, list[pa.Table]] = {}
    for frame in frames:
        for kind, parcel in zip(frame["kind"], frame["parcel"], strict=True):
            if parcel is not None:  # the row that only touches the shard
                tables.setdefault(kind, []).append(pa.ipc.open_stream(parcel).read_all())
    return {kind: pa.concat_tables(parts) for kind, parts in tables.items()}


@dataclass(frozen=True)
class SeedWorker(ABC):
    """The function that the first batch passes to ``applyInPandasWithState``: one call makes the state of one shard.

    Attributes:
        wheel: The new geometry.
        shards: The new number of shards.
        keys: Grouping key of each shard, by its number.
        seeds: Clock and counts of each shard.
    """

    wheel: Wheel
    shards: int
    keys: tuple[int, ...]
    seeds: tuple[Seed, ...]

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group: Any
    ) -> Iterator[pd.DataFrame]:
        """Makes the state of one shard, as ``applyInPandasWithState`` calls it."""
        shard = self.keys.index(key[0])
        rows, seed = _unpacked(frames), self.seeds[shard]
        state = self.state_of(seed, rows, chunk_files(shard))
        group.update(self.row_of(state))
        far = state.far if isinstance(state, ShardState) else 0
        yield pd.DataFrame(
            {"shard": [shard], "pending": [state.pending], "far": [far], "clock_ms": [state.clock_ms or 0]}
        )

    @abstractmethod
    def state_of(self, seed: Seed, rows: Mapping[str, pa.Table], texts: ChunkStore | None) -> BaseShardState:
        """The state from the rows by kind."""

    def row_of(self, state: Any) -> tuple[object, ...]:
        """The state as a row of the state store."""
        return row_of(state, self.shards)


class WheelSeedWorker(SeedWorker):
    """Of ``schedule``: the kinds are :data:`ENTRIES` and :data:`MEMORY`."""

    def state_of(self, seed: Seed, rows: Mapping[str, pa.Table], texts: ChunkStore | None) -> BaseShardState:
        """The state from the rows by kind."""
        entries = rows.get(ENTRIES, ENTRY_SCHEMA.empty_table())
        memory = rows.get(MEMORY, MEMORY_SCHEMA.empty_table())
        return wheel_seeded(ShardState.empty(self.wheel, texts), seed, entries, memory)


class WatchSeedWorker(SeedWorker):
    """Of ``watch``: the kinds are those of :data:`~wheel_udf.purgatory.state.KINDS`."""

    def state_of(self, seed: Seed, rows: Mapping[str, pa.Table], texts: ChunkStore | None) -> BaseShardState:
        """The state from the rows by kind."""
        assert rows.keys() <= KINDS.keys(), "these are all kinds"
        return purgatory_seeded(WatchState.empty(self.wheel, texts), seed, rows)
