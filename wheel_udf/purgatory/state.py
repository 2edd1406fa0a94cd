"""The state of one shard of a purgatory: scalars, and chunks of Arrow rows that are opened only when needed.

It consists of the same chunks as a wheel's state and is stored by Spark in the same way::

    level  rows                       schema            ordered by
    1...   open operations            OPERATION_SCHEMA  look_at_ms: first clock that decides something if no row comes
     0     ended operations           ENDED_SCHEMA      ended_at_ms; an id is a duplicate while its end is remembered
    -1     events and cancels         EVENT_SCHEMA      event_time_ms; operations that arrive later look back on them
    -2     events ahead of the clock  EVENT_SCHEMA      event_time_ms
    -3     operations at rest         OPERATION_SCHEMA  from_ms; a join or a heartbeat between two generations
    -4     operations that are held   CLAIM_SCHEMA      event_time_ms; whether their id is free is undecided

Keys are looked up by 64-bit hashes: of a chunk without any of the batch's keys only two columns are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.geometry import Wheel
from wheel_udf.common.outcomes import WATCH_COUNTS
from wheel_udf.shard import id_index
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.content import Content
from wheel_udf.shard.rows import Int64s
from wheel_udf.shard.state import HEAD_COLUMNS, BaseShardState

WATCH_FORMAT_VERSION = 4
"""Format version of a purgatory's state and of its checkpoint's identity; raised when the layout below changes."""

EVENTS_LEVEL, AHEAD_LEVEL, RESTING_LEVEL, HELD_LEVEL = -1, -2, -3, -4

NEVER = 2**63 - 1
"""An instant that never comes."""

EVENT, CANCEL, CANCEL_OPERATION = 0, 1, 2
"""Kinds of event rows (``what``): event on a key; cancel of all operations under a key; cancel of one operation."""

SUM, BEAT = 0, -1
"""Values of ``need`` that are not a number of keys: a sum of amounts, a heartbeat."""

EVENT_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("name", pa.string()),
        ("hash", pa.int64()),
        ("event_time_ms", pa.int64()),
        ("amount", pa.float64()),
        ("what", pa.int8()),
    ]
)
"""An event or a cancel. ``name`` is the key, or the operation's id for CANCEL_OPERATION; ``hash`` is :func:`hashes_of`
group and name.
"""

REQUEST_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("op_id", pa.string()),
        ("event_time_ms", pa.int64()),
        ("deadline_ms", pa.int64()),
        ("limit_ms", pa.int64()),
        ("need", pa.int32()),
        ("threshold", pa.float64()),
        ("keys", pa.list_(pa.string())),
        ("destination", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("source", pa.string()),
    ]
)
"""A new operation. ``need`` is the number of its keys that it waits for, or :data:`SUM` (amounts up to
``threshold``), or :data:`BEAT`. With a ``limit_ms`` it is a join, whose deadline is extended up to that
instant. Keys are distinct, and there is at least one."""

OPERATION_SCHEMA = pa.schema(
    [
        *REQUEST_SCHEMA,
        ("op_hash", pa.int64()),
        ("from_ms", pa.int64()),
        ("delay_ms", pa.int64()),
        ("limit_delay_ms", pa.int64()),
        ("since_ms", pa.int64()),
        ("generation", pa.int32()),
        ("total", pa.float64()),
        ("crossed_at_ms", pa.int64()),
        ("crossed_by", pa.int32()),
        ("cancel_at_ms", pa.int64()),
        ("key_hashes", pa.list_(pa.int64())),
        ("done_at_ms", pa.list_(pa.int64())),
        ("key_cancel_at_ms", pa.list_(pa.int64())),
        ("look_at_ms", pa.int64()),
    ]
)
"""An open operation: the request, and what has happened on its keys between ``from_ms`` and the deadline.
``delay_ms`` and ``limit_delay_ms`` are the initial distances of deadline and limit from its event time. An
instant that has not come is :data:`NEVER`, as is the event time of an operation at rest."""

ENDED_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("op_id", pa.string()),
        ("op_hash", pa.int64()),
        ("at_ms", pa.int64()),
        ("ended_at_ms", pa.int64()),
    ]
)
"""An ended operation as it is remembered: the instant of its end, and the clock at which that was decided."""

CLAIM_SCHEMA = pa.schema(
    [*REQUEST_SCHEMA, *(OPERATION_SCHEMA.field(name) for name in ("op_hash", "key_hashes"))]
)
"""An operation that claims its id."""

DUE = "look_at_ms"
"""The column of an operation by which it is placed in the buckets of the wheel."""


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
    "operations": Kind(None, OPERATION_SCHEMA, DUE),
    "ended": Kind(MEMORY_LEVEL, ENDED_SCHEMA, "ended_at_ms"),
    "events": Kind(EVENTS_LEVEL, EVENT_SCHEMA, "event_time_ms"),
    "ahead": Kind(AHEAD_LEVEL, EVENT_SCHEMA, "event_time_ms"),
    "resting": Kind(RESTING_LEVEL, OPERATION_SCHEMA, "from_ms"),
    "held": Kind(HELD_LEVEL, CLAIM_SCHEMA, "event_time_ms"),
}
"""All rows of a state, by kind."""


def hashes_of(texts: pa.ChunkedArray | pa.Array) -> Int64s:
    """A 64-bit hash of each text or byte string (not null). It is only a filter: after a match, compare the texts."""
    objects = np.asarray(texts.to_numpy(zero_copy_only=False), dtype=object)
    return np.asarray(pd.util.hash_array(objects, categorize=False), dtype=np.uint64).view(np.int64)


def named(groups: pa.Array, names: pa.Array) -> pa.Array:
    """Group and name as one text; neither contains a NUL."""
    return pc.binary_join_element_wise(groups, names, "\0")


def watch_fingerprint(wheel: str) -> str:
    """The identity of a purgatory's checkpoint: differs from that of every wheel, of every other format version, and of
    every other hash function (pandas may bring one).

    Args:
        wheel: Fingerprint of the geometry.
    """
    return f"{wheel},purgatory={WATCH_FORMAT_VERSION},hash={id_index.check()}"


@dataclass(frozen=True)
class WatchState(BaseShardState):
    """The state of one shard, immutable; :func:`wheel_udf.purgatory.step.advance` returns the next one.

    Attributes:
        wheel: The geometry.
        clock_ms: The last clock written; ``None`` before the first.
        next_due_ms: First clock at which something is decided if no further row comes; ``None`` for none.
        pending: Number of operations that are open or held.
        resting: Number of operations between two generations.
        ahead: Number of events whose time the clock has not passed.
        counts: Counts since the checkpoint began, a key for each of
            :data:`~wheel_udf.common.outcomes.WATCH_COUNTS`.
        content: The chunks.
    """

    FORMAT: ClassVar[int] = WATCH_FORMAT_VERSION
    HELD: ClassVar[str] = "operations"

    wheel: Wheel
    clock_ms: int | None = None
    next_due_ms: int | None = None
    pending: int = 0
    resting: int = 0
    ahead: int = 0
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(WATCH_COUNTS, 0))
    content: Content = field(default_factory=Content.empty)

    @staticmethod
    def empty(wheel: Wheel, texts: ChunkStore | None = None) -> WatchState:
        """The state before the first batch."""
        return WatchState(wheel, content=Content.empty(texts))

    def of_level(self, level: int) -> list[Chunk]:
        """The chunks of a level; those of 0 and below are no buckets of the wheel."""
        return [chunk for chunk in self.chunks if chunk.level == level]

    @property
    def open_chunks(self) -> list[Chunk]:
        """The chunks of open operations."""
        return [chunk for chunk in self.chunks if chunk.level > MEMORY_LEVEL]

    def with_chunks(self, clock_ms: int, counts: Mapping[str, int], chunks: Sequence[Chunk]) -> WatchState:
        """The state with these chunks at this clock; its other scalars are computed from the chunks."""
        opened = [chunk for chunk in chunks if chunk.level > MEMORY_LEVEL]
        held = [chunk for chunk in chunks if chunk.level == HELD_LEVEL]
        ahead = [chunk for chunk in chunks if chunk.level == AHEAD_LEVEL]
        looks = [chunk.low_ms for chunk in opened] + [chunk.low_ms + 1 for chunk in (*held, *ahead)]
        return WatchState(
            wheel=self.wheel,
            clock_ms=clock_ms,
            next_due_ms=min(looks, default=None),
            pending=sum(chunk.rows for chunk in (*opened, *held)),
            resting=sum(chunk.rows for chunk in chunks if chunk.level == RESTING_LEVEL),
            ahead=sum(chunk.rows for chunk in ahead),
            counts=counts,
            content=self.content.followed_by(chunks),
        )

    def to_row(self, shards: int) -> tuple[object, ...]:
        """As :meth:`wheel_udf.shard.state.ShardState.to_row` (:data:`WATCH_STATE_COLUMNS`)."""
        counters = (self.counts[name] for name in WATCH_COUNTS)
        return (*self.head(shards), self.resting, self.ahead, *counters, self.text)

    @staticmethod
    def from_row(
        row: Sequence[Any], wheel: Wheel, shards: int, texts: ChunkStore | None = None
    ) -> WatchState:
        """As :meth:`wheel_udf.shard.state.ShardState.from_row`."""
        version, stored, clock_ms, next_due_ms, pending, resting, ahead, *counters, text = row
        WatchState.refuse_other(version, stored, wheel, shards)
        counts = dict(zip(WATCH_COUNTS, counters, strict=True))
        content = Content(text, texts=texts)
        return WatchState(wheel, clock_ms, next_due_ms, pending, resting, ahead, counts, content)


WATCH_STATE_COLUMNS: Mapping[str, str] = {
    **HEAD_COLUMNS,
    "resting": "long",
    "ahead": "long",
    **dict.fromkeys(WATCH_COUNTS, "long"),
    "chunks": "string",
}
"""Name and Spark type of each column of the state store's row."""
