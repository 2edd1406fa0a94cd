"""The state of one shard of a purgatory on Spark: scalars, and chunks of Arrow rows that stay closed until they are needed.

Built of the same chunks as a wheel's state (:mod:`wheel_udf.state`), and moved through Spark in the same way::

    level  what                         rows                    by which time
    1...   open operations              OPERATION_SCHEMA        look_at_ms: the first clock that decides something, were nothing more to come
     0     ended operations             ENDED_SCHEMA            ended_at_ms; an id is a duplicate while it is remembered
    -1     events and cancels           EVENT_SCHEMA            event_time_ms; operations that come later look back on them
    -2     events ahead of the clock    EVENT_SCHEMA            event_time_ms
    -3     operations at rest           OPERATION_SCHEMA        from_ms; a join or a heartbeat between two generations
    -4     operations that are held     CLAIM_SCHEMA            event_time_ms; their id may be taken then, or not

Keys are looked up by 64-bit hashes: a chunk that holds none of the batch's keys is opened in two columns and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.geometry import Wheel
from wheel_udf.state import HEAD_COLUMNS, MEMORY_LEVEL, Chunk, Int64s, Kept, chunks_to_text

WATCH_FORMAT_VERSION = 2
"""Raised when the layout below changes; a checkpoint of another version is refused."""

EVENTS_LEVEL, AHEAD_LEVEL, RESTING_LEVEL, HELD_LEVEL = -1, -2, -3, -4

NEVER = 2**63 - 1
"""An instant that does not come."""

EVENT, CANCEL, CANCEL_OPERATION = 0, 1, 2
"""What a row of the events does: something happened on a key; every operation that waits under a key is cancelled; one operation is."""

SUM, BEAT = 0, -1
"""What ``need`` says where it is no number of keys."""

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
"""An event or a cancel; ``name`` is the key, of CANCEL_OPERATION the operation's id. ``hash`` is :func:`hashes_of` group and name."""

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
"""An operation as it comes. ``need`` is how many of its keys it waits for, :data:`SUM` (amounts up to ``threshold``) or :data:`BEAT`; with a
``limit_ms`` it is a join, whose deadline is put off up to there. Keys differ, and there is one at least."""

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
"""An open operation: what was asked, and what has happened on its keys between ``from_ms`` and the deadline. ``delay_ms`` and ``limit_delay_ms``
are how far deadline and limit were from its time at first. Instants that have not come are :data:`NEVER`; an operation at rest has no time of its own."""

ENDED_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("op_id", pa.string()),
        ("op_hash", pa.int64()),
        ("at_ms", pa.int64()),
        ("ended_at_ms", pa.int64()),
    ]
)
"""What is remembered of an ended operation: when it ended, and the clock at which that was decided."""

OUTCOMES = ("completed", "expired", "cancelled", "duplicate", "rejected")
"""How an operation ends, but for those that are pending."""
COUNTED = (*OUTCOMES, "generations", "events", "event_rejected")
"""What a shard counts since the beginning; ``generations``: those of joins and heartbeats after their first."""

_PRIME = np.uint64(0x100000001B3)


def hashes_of(texts: pa.Array) -> Int64s:
    """A 64-bit hash of each text or octets (not null): a polynomial of its bytes, by numpy, the same in every release. Only a filter: who finds a
    hash compares the texts.
    """
    texts = pc.cast(texts, pa.large_binary())
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    size = len(texts)
    if not size:
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(texts.buffers()[1], np.int64, size + 1, texts.offset * 8)
    first, last = int(offsets[0]), int(offsets[-1])
    octets = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[first:last].astype(np.uint64) + np.uint64(1)
    lengths = np.diff(offsets)
    place = np.arange(last - first) - np.repeat(offsets[:-1] - first, lengths)
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _PRIME))
    summed = np.r_[np.uint64(0), np.cumsum(octets * powers[place])]
    total: npt.NDArray[np.uint64] = summed[offsets[1:] - first] - summed[offsets[:-1] - first]
    return (total ^ (total >> np.uint64(31))).view(np.int64)


def named(groups: pa.Array, names: pa.Array) -> pa.Array:
    """Group and name as one text; neither has a NUL in it."""
    return pc.binary_join_element_wise(groups, names, "\0")


def watch_fingerprint(of_wheel: str) -> str:
    """What a purgatory's checkpoint is known by: no wheel's is one, nor that of another format."""
    return f"{of_wheel},purgatory={WATCH_FORMAT_VERSION}"


@dataclass(frozen=True)
class WatchState(Kept):
    """The state of one shard, immutable; :func:`wheel_udf.watching.advance` makes the next one.

    Attributes:
        wheel: The geometry.
        clock_ms: The last clock written; ``None`` before the first.
        next_due_ms: The first clock that decides something, were nothing more to come; ``None`` for none.
        pending: Number of operations that are open or held.
        resting: Number of operations between two generations.
        ahead: Number of events that the clock has still to pass.
        counts: Since the beginning, a key for each of :data:`COUNTED`.
        text: The chunks, encoded; taken apart once, when first asked for.
    """

    FORMAT: ClassVar[int] = WATCH_FORMAT_VERSION
    HELD: ClassVar[str] = "operations"

    wheel: Wheel
    clock_ms: int | None = None
    next_due_ms: int | None = None
    pending: int = 0
    resting: int = 0
    ahead: int = 0
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    text: str = ""

    def of_level(self, level: int) -> list[Chunk]:
        """The chunks of what is no bucket of the wheel."""
        return [chunk for chunk in self.chunks if chunk.level == level]

    @property
    def open_chunks(self) -> list[Chunk]:
        """The chunks of open operations."""
        return [chunk for chunk in self.chunks if chunk.level > MEMORY_LEVEL]

    def with_chunks(self, clock_ms: int, counts: Mapping[str, int], chunks: Sequence[Chunk]) -> WatchState:
        """The state that holds these chunks at this clock; the other scalars follow from the chunks."""
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
            text=chunks_to_text(chunks),
        )

    def to_row(self, shards: int) -> tuple[object, ...]:
        """The state as a row of the state store (:data:`WATCH_STATE_COLUMNS`).

        Raises:
            StateTooLargeError: The shard's state would come near the 2 GiB that a row can hold.
        """
        counters = (self.counts[name] for name in COUNTED)
        return (*self.head(shards), self.resting, self.ahead, *counters, self.text)

    @staticmethod
    def from_row(row: Sequence[Any], wheel: Wheel, shards: int) -> WatchState:
        """The state from a row of the state store.

        Raises:
            GeometryChangedError: The row was written by another format version, geometry or shard count; says both.
        """
        version, stored, clock_ms, next_due_ms, pending, resting, ahead, *counters, text = row
        WatchState.refuse_other(version, stored, wheel, shards)
        counts = dict(zip(COUNTED, counters, strict=True))
        return WatchState(wheel, clock_ms, next_due_ms, pending, resting, ahead, counts, text)


WATCH_STATE_COLUMNS: Mapping[str, str] = {
    **HEAD_COLUMNS,
    "resting": "long",
    "ahead": "long",
    **dict.fromkeys(COUNTED, "long"),
    "chunks": "string",
}
"""Name and Spark type of each column of the state store's row."""
