"""The state of one shard: scalars, and chunks of Arrow rows that stay closed until they are needed.

A shard holds its pending entries and what it remembers of ended ids. Spark moves the state of a touched shard whole, as one row of
scalars and one text (``array`` and ``map`` states fail on Spark 4.2), so the layout serves two aims: few bytes, and few bytes *opened*.

::

    scalars   version | wheel | clock_ms | next_due_ms | pending | one counter per outcome | pending by delay level
    chunks    directory (Arrow IPC), a row per chunk:
                level  group  rows   low_ms        high_ms      length of its text
                  1      3    120    earliest due  latest due   12,000     Arrow IPC of entries      <- level 1 of the wheel
                  2      0    800    ...           ...          80,000     ...                       <- level 2
                  0      0    500    first end     last end     20,000     Arrow IPC of memory       <- ended ids (level 0)

* A tick with nothing due and nothing new looks at ``next_due_ms`` alone: not even the directory is decoded.
* A chunk belongs to a bucket of the wheel (a level and a slot, or a run of slots where a wheel has more than
  :data:`GROUPS_PER_LEVEL` of them). Adding to a bucket adds a chunk, O(rows added); only a bucket with more than
  :data:`CHUNKS_PER_BUCKET` chunks is merged. Nothing else is rewritten but what is opened.
* Levels above the wheel's own top are made on demand (the *overflow wheels* of the classic design), so that the open-ended top level never
  becomes a chunk per slot.
* Chunks are base64 text, each by itself: one that stays closed passes through as the text it came as. Spark's way of pickling a binary
  column (Java to Python) makes a character of Latin-1 of each byte and UTF-8 of those, and Python takes both back: measured on 8 MB, 43 ms in
  Python alone and as much in the JVM; text of ASCII takes 1 ms, and 3 ms more for each MB that is opened.
* The columns of the delay levels are left out of a chunk in which no entry has a level: who has no levels pays no byte for them.
* Chunks of some size are compressed (zstd): every byte saved is saved four times, in the pickle, the Arrow stream, the changelog and back.

Caveats: a shard's state is one row and must stay below 2 GiB; :meth:`ShardState.to_row` refuses earlier
(:class:`~wheel_udf.errors.StateTooLargeError`), and the remedy is more shards.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.errors import GeometryChangedError, StateTooLargeError
from wheel_udf.geometry import Wheel, levels_of, slots_of

FORMAT_VERSION = 5
"""Raised when the layout below changes; a checkpoint of another version is refused."""

GROUPS_PER_LEVEL = 32
"""A level is kept in about this many buckets at most; a wheel with more slots keeps a run of slots in one."""

CHUNKS_PER_BUCKET = 4
LARGEST_STATE_BYTES = 1_500_000_000
_COMPRESS_FROM_BYTES = 16_384
MEMORY_LEVEL = 0
_LARGEST_INT64 = 2**63 - 1

Int64s = npt.NDArray[np.int64]

ENTRY_SCHEMA = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("seq", pa.int64()),
        ("amend", pa.int32()),
        ("deliver_at_ms", pa.int64()),
        ("max_lateness_ms", pa.int64()),
        ("destination", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("source", pa.string()),
        ("delay_level_ms", pa.int64()),
        ("level_error_ms", pa.int64()),
    ]
)
"""A pending entry, and a released one. ``amend`` counts what the project's own API did to this ``seq``; ``headers`` is JSON text, opaque here; ``source`` is null but for records of Kafka,
where it is ``topic/partition/offset``.

``deliver_at_ms`` is when the wheel releases it. Of an entry with a delay level (:mod:`wheel_udf.levels`) that is the time that was asked for plus
``level_error_ms``, and ``delay_level_ms`` is the level's span; both are null without a level."""

_LEVEL_COLUMNS = ("delay_level_ms", "level_error_ms")
_PLAIN_COLUMNS = [name for name in ENTRY_SCHEMA.names if name not in _LEVEL_COLUMNS]

COMMAND_SCHEMA = pa.schema([*ENTRY_SCHEMA, ("op", pa.int8()), ("seq_given", pa.bool_()), ("act", pa.int8())])
"""A valid command: an entry plus ``op`` (:data:`SCHEDULE` or :data:`CANCEL`), whether the producer gave its ``seq``, and what
the row is to the wheel (:data:`COMMAND`, but where entries wait in a slot store)."""

MEMORY_SCHEMA = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("seq", pa.int64()),
        ("rank", pa.int32()),
        ("status", pa.int8()),
        ("deliver_at_ms", pa.int64()),
        ("ended_at_ms", pa.int64()),
    ]
)
"""What is remembered of an ended id: its version ``(seq, rank)`` with ``rank = 2 * amend + op``, how it ended, and the due time that was
asked for of what fired (else null)."""

SCHEDULE, CANCEL = 0, 1

COMMAND, FAR, MOVED, GONE_CANCELLED, GONE_SUPERSEDED, GONE_DUPLICATE = range(6)
"""What a row is to the wheel (``act``). Where far entries wait in a slot store (the tiered mode), a row can also say: this version has gone
to the store (FAR, no payload); here it comes (MOVED); it has ended in the store. Of GONE_CANCELLED the version is the CANCEL's."""

SCHEDULE_OUTCOMES = ("fired", "missed", "cancelled", "superseded", "duplicate", "rejected")
CANCEL_OUTCOMES = ("applied", "waiting", "late", "cancel_superseded", "cancel_duplicate", "cancel_rejected")
OUTCOMES = SCHEDULE_OUTCOMES + CANCEL_OUTCOMES


@dataclass(frozen=True, slots=True)
class Chunk:
    """A closed run of rows: where it belongs, how much it is, what its times are, and its Arrow IPC bytes.

    Attributes:
        level: Level of the wheel, from 1; 0 and less for what is no bucket of it (:data:`MEMORY_LEVEL`).
        group: Number of the run of slots on that level.
        rows: How many rows.
        low_ms: Earliest time inside: of entries ``deliver_at_ms``, of memory ``ended_at_ms``.
        high_ms: Latest one.
        text: Arrow IPC stream of one table, in base64.
    """

    level: int
    group: int
    rows: int
    low_ms: int
    high_ms: int
    text: str

    @staticmethod
    def of_entries(level: int, group: int, entries: pa.Table) -> Chunk:
        """Closes entries (``ENTRY_SCHEMA``, at least one row) into a chunk."""
        return Chunk.of(level, group, entries, "deliver_at_ms")

    @staticmethod
    def of(level: int, group: int, rows: pa.Table, time_column: str) -> Chunk:
        """Closes rows (at least one) into a chunk."""
        limits = pc.min_max(rows[time_column]).as_py()
        text = _text(_encoded(_without_level_columns(rows)))
        return Chunk(level, group, rows.num_rows, limits["min"], limits["max"], text)

    def table(self, *columns: str) -> pa.Table:
        """Opens the chunk; with ``columns`` (not those of the delay levels), decompresses just those."""
        octets = pa.py_buffer(_octets(self.text))
        # The schema stands in front of the rows: 10 us.
        schema = pa.ipc.read_schema(octets) if columns else None
        chosen = [schema.get_field_index(name) for name in columns] if schema else None
        options = pa.ipc.IpcReadOptions(included_fields=chosen, use_threads=False)
        with pa.ipc.open_stream(octets, options=options) as reader:
            rows = reader.read_all()
        return rows if columns else _with_level_columns(rows)


def _without_level_columns(rows: pa.Table) -> pa.Table:
    """Rows as they are kept: entries without the columns of the delay levels, if none of them has a level."""
    if rows.schema.names != ENTRY_SCHEMA.names or rows["delay_level_ms"].null_count < rows.num_rows:
        return rows
    return rows.drop_columns(list(_LEVEL_COLUMNS))


def _with_level_columns(rows: pa.Table) -> pa.Table:
    if rows.schema.names != _PLAIN_COLUMNS:
        return rows
    for name in _LEVEL_COLUMNS:
        rows = rows.append_column(ENTRY_SCHEMA.field(name), pa.nulls(rows.num_rows, pa.int64()))
    return rows


def asked_ms(entries: pa.Table) -> pa.ChunkedArray:
    """The due times that were asked for, int64[n]: ``deliver_at_ms`` less what a delay level has added; null where there is none."""
    if entries["level_error_ms"].null_count == entries.num_rows:
        return entries["deliver_at_ms"]
    # Neither a due time with a level nor its error is near the ends of int64.
    return pc.subtract(entries["deliver_at_ms"], entries["level_error_ms"].fill_null(0))


def _encoded(table: pa.Table) -> pa.Buffer:
    # zstd takes 200 us however small the table; below the threshold the schema message is most of the bytes anyway.
    compression = "zstd" if table.nbytes >= _COMPRESS_FROM_BYTES else None
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


_DIRECTORY_SCHEMA = pa.schema(
    [
        ("level", pa.int32()),
        ("group", pa.int64()),
        ("rows", pa.int64()),
        ("low_ms", pa.int64()),
        ("high_ms", pa.int64()),
        ("length", pa.int64()),
    ]
)


def entries_of_text(text: str) -> pa.Table:
    """All pending entries (``ENTRY_SCHEMA``) of a shard's state, from the column ``chunks`` of its row."""
    tables = [chunk.table() for chunk in chunks_from_text(text) if chunk.level != MEMORY_LEVEL]
    return pa.concat_tables(tables) if tables else ENTRY_SCHEMA.empty_table()


def memory_of_text(text: str) -> pa.Table:
    """All that a shard remembers of ended ids (``MEMORY_SCHEMA``), from the column ``chunks`` of its row."""
    tables = [chunk.table() for chunk in chunks_from_text(text) if chunk.level == MEMORY_LEVEL]
    return pa.concat_tables(tables) if tables else MEMORY_SCHEMA.empty_table()


def chunks_to_text(chunks: Sequence[Chunk]) -> str:
    """The directory's text, a blank, and the texts of the chunks, end to end."""
    columns = [
        *([getattr(chunk, name) for chunk in chunks] for name in _DIRECTORY_SCHEMA.names[:-1]),
        [len(chunk.text) for chunk in chunks],
    ]
    directory = pa.table(columns, schema=_DIRECTORY_SCHEMA)
    return "".join([_text(_encoded(directory)), " ", *(chunk.text for chunk in chunks)])


def chunks_from_text(text: str) -> tuple[Chunk, ...]:
    """The inverse of :func:`chunks_to_text`."""
    if not text:
        return ()
    begin = text.index(" ")
    rows = pa.ipc.open_stream(_octets(text[:begin])).read_all().to_pydict()
    *scalars, lengths = rows.values()
    ends = np.cumsum([begin + 1, *lengths], dtype=np.int64).tolist()
    texts = [text[a:b] for a, b in pairwise(ends)]
    return tuple(Chunk(*values) for values in zip(*scalars, texts, strict=True))


def _text(octets: pa.Buffer) -> str:
    return binascii.b2a_base64(octets, newline=False).decode("ascii")


def _octets(text: str) -> bytes:
    return binascii.a2b_base64(text)


class Kept:
    """What the state of a shard has in common, whatever it holds. Immutable; subclasses are frozen dataclasses."""

    FORMAT: ClassVar[int]
    """Raised when the layout changes; a checkpoint of another version is refused."""
    HELD: ClassVar[str]
    """What is pending."""

    wheel: Wheel
    clock_ms: int | None
    next_due_ms: int | None
    pending: int
    counts: Mapping[str, int]
    text: str

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks; the text is taken apart once, when first asked for."""
        return chunks_from_text(self.text)

    def counting(self, **more: int) -> Self:
        """The same state with some counts raised."""
        counts = {name: count + more.get(name, 0) for name, count in self.counts.items()}
        return replace(self, counts=counts)  # type: ignore[type-var]  # subclasses are dataclasses

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
        """Refuses a row of another kind.

        Raises:
            GeometryChangedError: It was written by another format version, geometry or shard count; says both.
        """
        refuse_other("format version of the state", version, cls.FORMAT)
        refuse_other("geometry of the wheel", stored, fingerprint(wheel, shards))


HEAD_COLUMNS: Mapping[str, str] = {
    "version": "int",
    "wheel": "string",
    "clock_ms": "long",
    "next_due_ms": "long",
    "pending": "long",
}


@dataclass(frozen=True)
class ShardState(Kept):
    """The state of one shard, immutable; :func:`wheel_udf.cascade.advance` makes the next one.

    Attributes:
        wheel: The geometry.
        clock_ms: The last clock written; ``None`` before the first.
        next_due_ms: Earliest ``deliver_at_ms`` pending; ``None`` when nothing is.
        pending: Number of pending entries.
        far: Number of entries that were told of as gone to the slot store and have neither come nor ended since.
        counts: Rows by outcome since the beginning, a key for each of :data:`OUTCOMES`.
        levels: Of the pending and far entries, how many have which delay level, by its span in ms; levels of none are left out.
        text: The chunks, encoded; taken apart once, when first asked for.
    """

    FORMAT: ClassVar[int] = FORMAT_VERSION
    HELD: ClassVar[str] = "entries"

    wheel: Wheel
    clock_ms: int | None = None
    next_due_ms: int | None = None
    pending: int = 0
    far: int = 0
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    levels: Mapping[int, int] = field(default_factory=dict)
    text: str = ""

    @staticmethod
    def empty(wheel: Wheel) -> ShardState:
        """The state before the first batch."""
        return ShardState(wheel)

    @property
    def entry_chunks(self) -> tuple[Chunk, ...]:
        """The chunks that hold pending entries."""
        return tuple(chunk for chunk in self.chunks if chunk.level != MEMORY_LEVEL)

    @property
    def memory_chunks(self) -> tuple[Chunk, ...]:
        """The chunks that hold what is remembered of ended ids, oldest first."""
        return tuple(chunk for chunk in self.chunks if chunk.level == MEMORY_LEVEL)

    def entries(self) -> pa.Table:
        """All pending entries (``ENTRY_SCHEMA``), in no order; for looking, not for the hot path."""
        return entries_of_text(self.text)

    def with_chunks(
        self,
        clock_ms: int,
        far: int,
        counts: Mapping[str, int],
        levels: Mapping[int, int],
        entries: Sequence[Chunk],
        memory: Sequence[Chunk],
    ) -> ShardState:
        """The state that holds these chunks at this clock; the other scalars follow from the chunks."""
        return ShardState(
            wheel=self.wheel,
            clock_ms=clock_ms,
            next_due_ms=min((chunk.low_ms for chunk in entries), default=None),
            pending=sum(chunk.rows for chunk in entries),
            far=far,
            counts=counts,
            levels={level_ms: count for level_ms, count in sorted(levels.items()) if count},
            text=chunks_to_text([*entries, *memory]),
        )

    def to_row(self, shards: int) -> tuple[object, ...]:
        """The state as a row of the state store (:data:`STATE_COLUMNS`).

        Raises:
            StateTooLargeError: The shard's state would come near the 2 GiB that a row can hold.
        """
        counters = tuple(self.counts[name] for name in OUTCOMES)
        return (
            *self.head(shards),
            self.far,
            *counters,
            json.dumps(list(self.levels.items())) if self.levels else "",
            self.text,
        )

    @staticmethod
    def from_row(row: Sequence[Any], wheel: Wheel, shards: int) -> ShardState:
        """The state from a row of the state store.

        Raises:
            GeometryChangedError: The row was written by another format version, geometry or shard count; says both.
        """
        version, stored, clock_ms, next_due_ms, pending, far, *counters, levels, text = row
        ShardState.refuse_other(version, stored, wheel, shards)
        counts = dict(zip(OUTCOMES, counters, strict=True))
        by_level = dict(json.loads(levels)) if levels else {}
        return ShardState(wheel, clock_ms, next_due_ms, pending, far, counts, by_level, text)

    def to_bytes(self, shards: int = 1) -> bytes:
        """The whole state as bytes, for tests and tools; Spark stores :meth:`to_row`."""
        row = dict(zip(STATE_COLUMNS, self.to_row(shards), strict=True))
        table = pa.table(
            {
                name: pa.array([value], _ARROW_OF[kind])
                for (name, kind), value in zip(STATE_COLUMNS.items(), row.values(), strict=True)
            }
        )
        return _encoded(table).to_pybytes()  # type: ignore[no-any-return]

    @staticmethod
    def from_bytes(data: bytes, wheel: Wheel, shards: int = 1) -> ShardState:
        """The inverse of :meth:`to_bytes`; raises what :meth:`from_row` raises."""
        row = pa.ipc.open_stream(data).read_all().to_pylist()[0]
        return ShardState.from_row(list(row.values()), wheel, shards)


STATE_COLUMNS: Mapping[str, str] = {
    **HEAD_COLUMNS,
    "far": "long",
    **dict.fromkeys(OUTCOMES, "long"),
    "levels": "string",
    "chunks": "string",
}
"""Name and Spark type of each column of the state store's row."""

_ARROW_OF = {"int": pa.int32(), "long": pa.int64(), "string": pa.large_string()}


def fingerprint(wheel: Wheel, shards: int) -> str:
    """What must not change while a checkpoint lives: the geometry and the number of shards."""
    return f"{wheel.fingerprint()},shards={shards}"


def refuse_other(what: str, stored: object, wanted: object) -> None:
    """Refuses a stored state of another kind.

    Raises:
        GeometryChangedError: Says both values.
    """
    if stored != wanted:
        raise GeometryChangedError(
            f"the stored state does not fit: {what} changed",
            field="stored",
            value=stored,
            rule=f"now asked for: {wanted!r}",
            hint="go on with the stored one, or start with a new checkpoint",
        )


@dataclass(frozen=True)
class Storage:
    """Where entries of a wheel are kept: levels as deep as int64 goes, slots grouped where a level has many.

    The user's ``levels`` bound the *named* levels, of which the top one is open-ended. Storage splits that open end with the same
    formula (more levels of the same size), which changes no firing time and keeps the number of buckets logarithmic in the horizon.

    Attributes:
        wheel: The geometry.
        due: Name of the column with the time by which rows are placed.
    """

    wheel: Wheel
    due: str = "deliver_at_ms"

    @cached_property
    def deep(self) -> Wheel:
        """The wheel of the same tick and size with as many levels as int64 can hold."""
        levels = self.wheel.levels
        while self.wheel.tick_ms * self.wheel.size ** (levels + 1) <= _LARGEST_INT64:
            levels += 1
        return replace(self.wheel, levels=levels)

    @cached_property
    def slots_per_group(self) -> int:
        """How many neighbouring slots share a bucket."""
        return -(-self.wheel.size // GROUPS_PER_LEVEL)

    def place(self, entries: pa.Table, clock_ms: int) -> list[Chunk]:
        """Sorts rows into new chunks, one for each bucket they fall into at this clock.

        An entry that is due already is kept in the bucket of the clock itself: a backlog of years is one bucket, not one per tick.
        """
        if entries.num_rows == 0:
            return []
        due = np.maximum(entries[self.due].to_numpy(), clock_ms)
        levels = levels_of(self.deep, due, clock_ms)
        groups = slots_of(self.deep, levels, due) // self.slots_per_group
        order = np.lexsort((groups, levels))
        levels, groups = levels[order], groups[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(levels) != 0) | (np.diff(groups) != 0)])
        ordered = entries.take(pa.array(order))
        bounds = [*starts.tolist(), len(order)]
        return [
            Chunk.of(int(levels[a]), int(groups[a]), ordered.slice(a, b - a), self.due)
            for a, b in pairwise(bounds)
        ]

    def reached(self, chunk: Chunk, clock_ms: int) -> bool:
        """Whether the clock has reached the slot of the chunk's earliest entry: it must be fired or cascaded now."""
        if chunk.level == 1:
            return chunk.low_ms <= clock_ms
        tick_ms = self.deep.tick_of(chunk.level)
        return chunk.low_ms // tick_ms * tick_ms <= clock_ms


def without(table: pa.Table, rows: Int64s) -> pa.Table:
    """The table but for some of its rows, given by their places."""
    keep = np.ones(table.num_rows, bool)
    keep[rows] = False
    return table.filter(pa.array(keep))


def merged(chunks: Sequence[Chunk], due: str = "deliver_at_ms") -> list[Chunk]:
    """Merges the buckets that have come to more than :data:`CHUNKS_PER_BUCKET` chunks; the others pass through closed."""
    buckets: dict[tuple[int, int], list[Chunk]] = {}
    for chunk in chunks:
        buckets.setdefault((chunk.level, chunk.group), []).append(chunk)
    result: list[Chunk] = []
    for (level, group), members in buckets.items():
        if len(members) <= CHUNKS_PER_BUCKET:
            result += members
        else:
            result.append(
                Chunk.of(level, group, pa.concat_tables([member.table() for member in members]), due)
            )
    return result
