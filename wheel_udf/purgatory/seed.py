"""Seeds: the state of a shard of a purgatory made anew from its content; see :mod:`wheel_udf.wheel.seed`.

The rows are kept by kind, each with the schema that it has in the state (:mod:`wheel_udf.purgatory.state`)::

    kind          level of its chunks
    operations    buckets of the wheel, by the new geometry
    ended         0        remembered ends
    events       -1        remembered events
    ahead        -2        events ahead of the clock
    resting      -3        between two generations
    held         -4        whether their id is free is not known yet
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from wheel_udf.purgatory.future_events import LARGEST_RUN
from wheel_udf.purgatory.identity import CLAIM_SCHEMA
from wheel_udf.purgatory.state import (
    AHEAD_LEVEL,
    ENDED_SCHEMA,
    EVENT_SCHEMA,
    EVENTS_LEVEL,
    HELD_LEVEL,
    OPERATION_SCHEMA,
    RESTING_LEVEL,
    WatchState,
)
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.shard_text import chunks_from_text
from wheel_udf.wheel.buckets import Buckets
from wheel_udf.wheel.seed import Seed, encoded_runs

_DUE: Final = "look_at_ms"


class Kind(NamedTuple):
    """A kind of rows in the state.

    Attributes:
        level: Of its chunks; None for the buckets of the wheel.
        schema: Its columns.
        time_column: The column by which its chunks are ordered.
    """

    level: int | None
    schema: pa.Schema
    time_column: str


KINDS: Final[Mapping[str, Kind]] = {
    "operations": Kind(None, OPERATION_SCHEMA, _DUE),
    "ended": Kind(MEMORY_LEVEL, ENDED_SCHEMA, "ended_at_ms"),
    "events": Kind(EVENTS_LEVEL, EVENT_SCHEMA, "event_time_ms"),
    "ahead": Kind(AHEAD_LEVEL, EVENT_SCHEMA, "event_time_ms"),
    "resting": Kind(RESTING_LEVEL, OPERATION_SCHEMA, "from_ms"),
    "held": Kind(HELD_LEVEL, CLAIM_SCHEMA, "event_time_ms"),
}
"""All rows of a state, by kind."""


def rows_of_text(kind: str, text: str) -> pa.Table:
    """All rows of a kind, from the column ``chunks`` of a shard's row."""
    level, schema, _ = KINDS[kind]
    chunks = chunks_from_text(text)
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
    chunks = [
        chunk
        for name, kind in KINDS.items()
        if name in rows and rows[name].num_rows
        for chunk in _chunks(empty, kind, rows[name], seed.clock_ms)
    ]
    return empty.with_chunks(seed.clock_ms, counts, chunks)


def _chunks(empty: WatchState, kind: Kind, rows: pa.Table, clock_ms: int) -> Iterator[Chunk]:
    if kind.level is None:
        yield from Buckets(empty.wheel, kind.time_column).place(rows, clock_ms)
    elif kind.level == HELD_LEVEL:
        yield Chunk.of(HELD_LEVEL, 0, rows, kind.time_column)
    elif kind.level == AHEAD_LEVEL:
        ordered = rows.sort_by(kind.time_column)
        for start in range(0, ordered.num_rows, LARGEST_RUN):
            yield Chunk.of(AHEAD_LEVEL, 0, ordered.slice(start, LARGEST_RUN), kind.time_column)
    else:
        yield from encoded_runs(rows, level=kind.level, time_column=kind.time_column)
