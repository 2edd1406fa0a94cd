"""Chunks: runs of Arrow rows that stay encoded until they are needed, and the text that holds all chunks of a
shard.

::

    text of a shard    <directory> <chunk 1><chunk 2><chunk 3>...      the directory has one row for each chunk:

        level  group  rows   low_ms        high_ms      length of its text
          1      3    120    earliest due  latest due   12,000     entries of level 1 of the wheel
          2      0    800    ...           ...          80,000     entries of level 2
          0      0    500    first end     last end     20,000     memory records of ended ids (MEMORY_LEVEL)

Decisions, each measured:

* A chunk is base64 text, each by itself: one that stays closed passes through as the text it came as. Spark
  pickles a binary column (Java to Python) as one Latin-1 character for each byte in UTF-8, and Python
  reverses both: for 8 MB, 43 ms in Python and as much in the JVM. ASCII text takes 1 ms, plus 3 ms for each
  MB that is opened.
* The columns of the delay levels are left out of a chunk in which no entry has a level.
* Chunks from :data:`_COMPRESS_FROM_BYTES` on are compressed (zstd): every byte saved is saved four times, in
  the pickle, the Arrow stream, the changelog and on the way back.
"""

from __future__ import annotations

import binascii
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.wheel.rows import ENTRY_SCHEMA, MEMORY_SCHEMA

MEMORY_LEVEL = 0
"""The ``level`` of chunks of memory records; levels of the wheel count from 1."""

_COMPRESS_FROM_BYTES = 16_384
_ID = "schedule_id"

_LEVEL_COLUMNS = ("delay_level_ms", "level_error_ms")
_PLAIN_COLUMNS = [name for name in ENTRY_SCHEMA.names if name not in _LEVEL_COLUMNS]

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


@dataclass(frozen=True, slots=True)
class Chunk:
    """An encoded run of rows: which bucket it belongs to, how many rows, their times, and the Arrow IPC bytes.

    Attributes:
        level: Level of the wheel, from 1; 0 and less for rows outside the wheel (:data:`MEMORY_LEVEL`).
        group: Number of the run of slots on that level.
        rows: Number of rows.
        low_ms: Earliest time inside: ``deliver_at_ms`` of entries, ``ended_at_ms`` of memory records.
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
        """Encodes entries (``ENTRY_SCHEMA``, at least one row)."""
        return Chunk.of(level, group, entries, "deliver_at_ms")

    @staticmethod
    def of(level: int, group: int, rows: pa.Table, time_column: str) -> Chunk:
        """Encodes rows (at least one)."""
        limits = pc.min_max(rows[time_column]).as_py()
        text = _text(encoded(_without_level_columns(rows)))
        return Chunk(level, group, rows.num_rows, limits["min"], limits["max"], text)

    def table(self, *columns: str) -> pa.Table:
        """Decodes the chunk; with ``columns`` (not those of the delay levels), decompresses only these."""
        octets = pa.py_buffer(_octets(self.text))
        # The schema stands in front of the rows: 10 us.
        schema = pa.ipc.read_schema(octets) if columns else None
        chosen = [schema.get_field_index(name) for name in columns] if schema else None
        options = pa.ipc.IpcReadOptions(included_fields=chosen, use_threads=False)
        with pa.ipc.open_stream(octets, options=options) as reader:
            rows = reader.read_all()
        return rows if columns else _with_level_columns(rows)


def chunks_to_text(chunks: Sequence[Chunk]) -> str:
    """Joins the text of the directory, a blank, and the texts of the chunks."""
    columns = [
        *([getattr(chunk, name) for chunk in chunks] for name in _DIRECTORY_SCHEMA.names[:-1]),
        [len(chunk.text) for chunk in chunks],
    ]
    directory = pa.table(columns, schema=_DIRECTORY_SCHEMA)
    return "".join([_text(encoded(directory)), " ", *(chunk.text for chunk in chunks)])


def chunks_from_text(text: str) -> tuple[Chunk, ...]:
    """The inverse of :func:`chunks_to_text`."""
    if not text:
        return ()
    *scalars, lengths = directory_of(text).to_pydict().values()
    ends = np.cumsum([text.index(" ") + 1, *lengths], dtype=np.int64).tolist()
    texts = [text[a:b] for a, b in pairwise(ends)]
    return tuple(Chunk(*values) for values in zip(*scalars, texts, strict=True))


def directory_of(text: str) -> pa.Table:
    """The directory of a shard's text (not empty): a row for each chunk, without opening any."""
    return pa.ipc.open_stream(_octets(text[: text.index(" ")])).read_all()


def entries_of_text(text: str, ids: Collection[str] | None = None) -> pa.Table:
    """All pending entries (``ENTRY_SCHEMA``) of a shard, or those of some ids, from the column ``chunks`` of its state row."""
    tables = _tables([chunk for chunk in chunks_from_text(text) if chunk.level != MEMORY_LEVEL], ids)
    return pa.concat_tables(tables) if tables else ENTRY_SCHEMA.empty_table()


def memory_of_text(text: str, ids: Collection[str] | None = None) -> pa.Table:
    """All memory records (``MEMORY_SCHEMA``) of a shard, or those of some ids, from the column ``chunks`` of its state row."""
    tables = _tables([chunk for chunk in chunks_from_text(text) if chunk.level == MEMORY_LEVEL], ids)
    return pa.concat_tables(tables) if tables else MEMORY_SCHEMA.empty_table()


def _tables(chunks: Sequence[Chunk], ids: Collection[str] | None) -> list[pa.Table]:
    """The rows of chunks, or those of some ids: of a chunk without any of them, only the column of the ids is decompressed."""
    if ids is None:
        return [chunk.table() for chunk in chunks]
    wanted = pa.array(ids, pa.string())
    found = ((chunk, pc.is_in(chunk.table(_ID)[_ID], value_set=wanted)) for chunk in chunks)
    return [chunk.table().filter(is_wanted) for chunk, is_wanted in found if pc.any(is_wanted).as_py()]


def table_to_text(table: pa.Table) -> str:
    """A table as text: what is encoded like a chunk and is none."""
    return _text(encoded(table))


def table_from_text(text: str) -> pa.Table:
    """The inverse of :func:`table_to_text`."""
    return pa.ipc.open_stream(_octets(text)).read_all()


def encoded(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow IPC stream, compressed if it is large."""
    # zstd takes 200 us however small the table; below the threshold the schema message is most of the bytes
    # anyway.
    compression = "zstd" if table.nbytes >= _COMPRESS_FROM_BYTES else None
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(_without_remains(table.combine_chunks()))
    return sink.getvalue()


def _without_remains(table: pa.Table) -> pa.Table:
    """Writes zeros where a number is null. Arrow leaves there what was in memory before, such as a part of other rows: rows that have been forgotten, and
    other bytes in each repetition.
    """
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if column.null_count and pa.types.is_primitive(field.type) and not pa.types.is_boolean(field.type):
            values = column.fill_null(0).to_numpy()
            zeroed = pa.array(values, field.type, mask=column.is_null().to_numpy())
            table = table.set_column(place, field, zeroed)
    return table


def _without_level_columns(rows: pa.Table) -> pa.Table:
    """Drops the columns of the delay levels from entries, if none of them has a level."""
    if rows.schema.names != ENTRY_SCHEMA.names or rows["delay_level_ms"].null_count < rows.num_rows:
        return rows
    return rows.drop_columns(list(_LEVEL_COLUMNS))


def _with_level_columns(rows: pa.Table) -> pa.Table:
    if rows.schema.names != _PLAIN_COLUMNS:
        return rows
    for name in _LEVEL_COLUMNS:
        rows = rows.append_column(ENTRY_SCHEMA.field(name), pa.nulls(rows.num_rows, pa.int64()))
    return rows


def _text(octets: pa.Buffer) -> str:
    return binascii.b2a_base64(octets, newline=False).decode("ascii")


def _octets(text: str) -> bytes:
    return binascii.a2b_base64(text)
