"""The state of one shard: a few scalars, and the chunks that hold its entries and its memory.

Spark moves the state of a touched shard whole, as one row of scalars and one text (``array`` and ``map``
states fail on Spark 4.2). So the layout keeps the row small and opens little of it::

    scalars   version | wheel | clock_ms | next_due_ms | pending | far | a counter per outcome
    chunks    one text: a directory, the encoded chunks (wheel_udf.shard.chunks), each of one bucket
              (wheel_udf.wheel.buckets), and the index of ids (wheel_udf.shard.id_index); or the directory with the
              names of their files (wheel_udf.shard.chunk_store)

A step leaves the chunks that it does not open where they are: in the text in which they came, or in their files. The
text of the next state is joined once, when its row is written. Spark's pickling of the row costs several times as much,
so long chunks are in files where that is possible.

The step of a tick with nothing due and nothing new reads ``next_due_ms`` alone. The status row is made from the
directory (:mod:`wheel_udf.shard.holdings`); no chunk is decoded.

Caveats: the row must stay below 2 GiB; :meth:`ShardState.to_row` refuses earlier
(:class:`~wheel_udf.common.errors.StateTooLargeError`). With chunks in files that is hundreds of millions of entries;
without, the remedy is more shards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import pyarrow as pa

from wheel_udf.common.errors import GeometryChangedError, StateTooLargeError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.outcomes import WHEEL_COUNTS
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.chunks import IN_FLIGHT_LEVEL, MEMORY_LEVEL, NO_SENDER, Chunk
from wheel_udf.shard.content import Content
from wheel_udf.shard.formats import FORMAT_VERSION
from wheel_udf.shard.id_index import INDEX_LEVEL, Places, indexed, places_of
from wheel_udf.shard.rows import PAUSED_MS
from wheel_udf.shard.shard_text import entries_of_text

LARGEST_STATE_BYTES = 1_500_000_000


class BaseShardState(ABC):
    """Base of the shard states of wheel and purgatory. Immutable; subclasses are frozen dataclasses."""

    FORMAT: ClassVar[int]
    """Raised when the layout changes; a row of another one is refused."""
    HELD: ClassVar[str]
    """What is pending, as a plural noun."""

    wheel: Wheel
    clock_ms: int | None
    next_due_ms: int | None
    pending: int
    counts: Mapping[str, int]
    content: Content

    @property
    def text(self) -> str:
        """The column ``chunks`` of its row."""
        return self.content.text

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks."""
        return self.content.chunks

    def counting(self, **more: int) -> Self:
        """The same state with some counts raised by these amounts."""
        counts = {name: count + more.get(name, 0) for name, count in self.counts.items()}
        return replace(self, counts=counts)  # type: ignore[type-var]  # subclasses are dataclasses

    @abstractmethod
    def to_row(self, shards: int) -> tuple[object, ...]:
        """The state as a row of the state store; with a :class:`ChunkStore`, long chunks are stored there.

        Raises:
            StateTooLargeError: The row would come near the 2 GiB that it can hold.
        """

    def head(self, shards: int) -> tuple[object, ...]:
        """The first columns of its row (:data:`HEAD_COLUMNS`).

        Raises:
            StateTooLargeError: The shard's state would come near the 2 GiB that a row can hold.
        """
        if len(self.text) > LARGEST_STATE_BYTES:
            raise StateTooLargeError(
                "the state of one shard is too large",
                field="bytes",
                value=len(self.text),
                rule=f"at most {LARGEST_STATE_BYTES}",
                hint=f"{self.pending} {self.HELD} are pending in this one of {shards} shards; use more shards",
            )
        identity = self.FORMAT, fingerprint(self.wheel, shards)
        return (*identity, self.clock_ms, self.next_due_ms, self.pending)

    @classmethod
    def refuse_other(cls, version: object, stored: object, wheel: Wheel, shards: int) -> None:
        """Refuses a stored state of another format version, geometry or number of shards.

        Raises:
            GeometryChangedError: They differ; the message has both values.
        """
        facts = [
            ("format version of the state", version, cls.FORMAT),
            ("geometry of the wheel", stored, fingerprint(wheel, shards)),
        ]
        for what, found, wanted in facts:
            if found != wanted:
                raise GeometryChangedError(
                    f"the stored state does not fit: {what} changed",
                    field="stored",
                    value=found,
                    rule=f"now asked for: {wanted!r}",
                    hint="go on with the stored one; or export the checkpoint with the release that made it, "
                    "and import it into a new one",
                )


HEAD_COLUMNS: Mapping[str, str] = {
    "version": "int",
    "wheel": "string",
    "clock_ms": "long",
    "next_due_ms": "long",
    "pending": "long",
}


@dataclass(frozen=True)
class ShardState(BaseShardState):
    """The state of one shard, immutable; :func:`wheel_udf.wheel.step.advance` makes the next one.

    Attributes:
        wheel: The geometry.
        clock_ms: The last clock written; ``None`` before the first.
        next_due_ms: Earliest ``deliver_at_ms`` pending; ``None`` when nothing is. What a sender has got, and paused
            series, do not count.
        pending: Number of pending entries, those in flight included.
        far: Number of entries that wait in the slot store, as reported to this shard.
        counts: Rows by outcome since the beginning, a key for each of
            :data:`~wheel_udf.common.outcomes.WHEEL_COUNTS`.
        tokens: What the gate of the wheel has left, as it writes it (:class:`wheel_udf.wheel.policies.Gate`).
        content: The chunks.
    """

    FORMAT: ClassVar[int] = FORMAT_VERSION
    HELD: ClassVar[str] = "entries"

    wheel: Wheel
    clock_ms: int | None = None
    next_due_ms: int | None = None
    pending: int = 0
    far: int = 0
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(WHEEL_COUNTS, 0))
    tokens: str = ""
    content: Content = field(default_factory=Content.empty)

    @staticmethod
    def empty(wheel: Wheel, texts: ChunkStore | None = None) -> ShardState:
        """The state before the first batch."""
        return ShardState(wheel, content=Content.empty(texts))

    @cached_property
    def entry_chunks(self) -> tuple[Chunk, ...]:
        """The chunks that hold the entries of the buckets."""
        return tuple(chunk for chunk in self.chunks if chunk.level > MEMORY_LEVEL)

    @cached_property
    def in_flight_chunks(self) -> tuple[Chunk, ...]:
        """The chunks of entries that were handed to the sender of the query, and are not confirmed."""
        return tuple(chunk for chunk in self.chunks if chunk.level == IN_FLIGHT_LEVEL)

    @property
    def in_flight(self) -> int:
        """Number of entries in flight."""
        return sum(chunk.rows for chunk in self.in_flight_chunks)

    @cached_property
    def memory_chunks(self) -> tuple[Chunk, ...]:
        """The chunks of memory records of ended ids, oldest first."""
        return tuple(chunk for chunk in self.chunks if chunk.level == MEMORY_LEVEL)

    @cached_property
    def index(self) -> tuple[Chunk, ...]:
        """The runs of the index of ids."""
        return tuple(chunk for chunk in self.chunks if chunk.level == INDEX_LEVEL)

    def places_of(self, ids: pa.Array) -> Places:
        """In which chunks each of some distinct ids may be."""
        return places_of(self.index, ids)

    def entries(self) -> pa.Table:
        """All pending entries (``ENTRY_SCHEMA``), in no order. Decodes everything: for inspection only."""
        return entries_of_text(self.text, texts=self.content.texts)

    def with_chunks(
        self,
        clock_ms: int,
        far: int,
        counts: Mapping[str, int],
        entries: Sequence[Chunk],
        memory: Sequence[Chunk],
        *,
        tokens: str = "",
    ) -> ShardState:
        """The state with these chunks at this clock; the other scalars are computed from the chunks.

        `entries` are the chunks of pending entries, those in flight included. All others are in the index: a command
        finds an entry in flight by its memory record.
        """
        in_flight = [chunk for chunk in entries if chunk.level == IN_FLIGHT_LEVEL]
        chunks, runs = indexed(
            [*(chunk for chunk in entries if chunk.level != IN_FLIGHT_LEVEL), *memory], self.index
        )
        return ShardState(
            wheel=self.wheel,
            clock_ms=clock_ms,
            next_due_ms=min(
                (each.low_ms for each in entries if not _is_given(each) and each.low_ms != PAUSED_MS),
                default=None,
            ),
            pending=sum(chunk.rows for chunk in entries),
            far=far,
            counts=counts,
            tokens=tokens,
            content=self.content.followed_by([*chunks, *in_flight, *runs]),
        )

    def to_row(self, shards: int) -> tuple[object, ...]:
        """The state as a row of the state store (:data:`STATE_COLUMNS`).

        Raises:
            StateTooLargeError: The shard's state would come near the 2 GiB that a row can hold.
        """
        counters = tuple(self.counts[name] for name in WHEEL_COUNTS)
        return (*self.head(shards), self.far, *counters, self.tokens, self.text)

    @staticmethod
    def from_row(
        row: Sequence[Any], wheel: Wheel, shards: int, texts: ChunkStore | None = None
    ) -> ShardState:
        """The state from a row of the state store.

        Args:
            row: The row.
            wheel: The geometry.
            shards: Number of shards.
            texts: What is outside the row; None if all is in it.

        Raises:
            GeometryChangedError: The row has another format version, geometry or number of shards; the
                message has both values.
        """
        version, stored, clock_ms, next_due_ms, pending, far, *counters, tokens, text = row
        ShardState.refuse_other(version, stored, wheel, shards)
        counts = dict(zip(WHEEL_COUNTS, counters, strict=True))
        return ShardState(
            wheel, clock_ms, next_due_ms, pending, far, counts, tokens, Content(text, texts=texts)
        )


STATE_COLUMNS: Mapping[str, str] = {
    **HEAD_COLUMNS,
    "far": "long",
    **dict.fromkeys(WHEEL_COUNTS, "long"),
    "tokens": "string",
    "chunks": "string",
}
"""Name and Spark type of each column of the state store's row."""


def _is_given(chunk: Chunk) -> bool:
    """Whether the sender of the query has the entries of a chunk."""
    return chunk.level == IN_FLIGHT_LEVEL and chunk.group != NO_SENDER


def fingerprint(wheel: Wheel, shards: int) -> str:
    """What must not change during the life of a checkpoint: the geometry and the number of shards."""
    return f"{wheel.fingerprint()},shards={shards}"
