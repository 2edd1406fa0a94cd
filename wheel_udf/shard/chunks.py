"""Chunks: runs of Arrow rows that stay encoded until they are needed.

::

    text of a chunk    <keys><head><body><rows removed>     of few entries, and of others: <all columns><rows removed>
                        |     |     key, value, headers, ...: what only a delivery reads
                        |     due times, destinations, sources: what counts read
                        ids and versions, row by row: what a command reads (wheel_udf.shard.row_keys)

Decisions:

* A chunk is ASCII text, each by itself: base64, and a line of JSON before the keys. One that stays closed passes
  through as the text it came as. Spark pickles a binary column (Java to Python) as one Latin-1 character for each byte
  in UTF-8, and Python reverses both. ASCII text is passed on as it is, and decoded only where it is opened.
* The rows and the bytes of a chunk are bounded (:mod:`wheel_udf.shard.chunk_sizes`), so a command opens a bounded
  amount. Of a large one a command reads the keys of one row, and no column; counts read the head alone: a tenth of the
  text with values of 100 bytes.
* A chunk in a bucket is in order of its due times. So they are read for its new bounds only when its first or last row
  is removed.
* Removed rows are noted beside the chunk, and the chunk stays as it is until a quarter is gone: a cancel of one
  row writes 8 bytes, not the chunk.
* A chunk is a place in the text that it came in (:class:`~wheel_udf.shard.chunk_store.Span`), or a file: nothing is
  copied before the text of the next state is joined.
* The columns of delay levels and of series are left out of a chunk in which no entry has a value.
* Chunks from 16 KB on are compressed (zstd): every byte saved is saved four times, in
  the pickle, the Arrow stream, the changelog and on the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.shard import chunk_sizes
from wheel_udf.shard.arrow_text import base64_of, encoded, octets_of
from wheel_udf.shard.chunk_store import Span
from wheel_udf.shard.row_keys import KEY_COLUMNS, RowKeys, keys_of, packed
from wheel_udf.shard.rows import ENTRY_SCHEMA, HELD_COLUMNS, SERIES_COLUMNS, Int64s, without

MEMORY_LEVEL = 0
"""The ``level`` of chunks of memory records; levels of the wheel count from 1."""

UNNUMBERED: Final = -1
"""The number of a chunk that is in no index."""

IN_FLIGHT_LEVEL = -1
"""The ``level`` of chunks handed to the sender (:mod:`wheel_udf.policies.in_flight`); their ``group`` is the batch."""

NO_SENDER = -1
"""The ``group`` of entries in flight that the present sender has not got."""

_RARE_COLUMNS = ("delay_level_ms", "level_error_ms", *SERIES_COLUMNS, *HELD_COLUMNS)
_PLAIN_COLUMNS = frozenset(ENTRY_SCHEMA.names).difference(_RARE_COLUMNS)
_HEAD_COLUMNS = ("deliver_at_ms", "destination", "source", "delay_level_ms")


@dataclass(frozen=True, slots=True)
class Chunk:
    """An encoded run of rows: which bucket it belongs to, how many rows, their times, and the Arrow IPC bytes.

    Attributes:
        level: Level of the wheel, from 1; 0 and less for rows outside the wheel (:data:`MEMORY_LEVEL`).
        group: Number of the run of slots on that level.
        rows: Number of rows, without the removed ones.
        low_ms: Earliest time inside: ``deliver_at_ms`` of entries, ``ended_at_ms`` of memory records.
        high_ms: Latest one.
        span: The keys, if there are any, and one or two Arrow IPC streams, each in base64.
        number: Name of the chunk in the index of its shard; -1 if it is in no index.
        head: Length of the first stream if there are two, else 0.
        keys: Length of the keys; 0 if there are none.
        gone: The removed rows, their places as uint32 in base64.
        file: Name of the span among the texts outside the row (:mod:`~wheel_udf.shard.chunk_store`); empty if none.
        ids: Of a chunk that was made in this process, the ids of its rows.
    """

    level: int
    group: int
    rows: int
    low_ms: int
    high_ms: int
    span: Span
    number: int = UNNUMBERED
    head: int = 0
    keys: int = 0
    gone: str = ""
    file: str = ""
    ids: pa.ChunkedArray | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of_entries(level: int, group: int, entries: pa.Table) -> Chunk:
        """Encodes entries (``ENTRY_SCHEMA``, at least one row)."""
        return Chunk.of(level, group, entries, "deliver_at_ms")

    @staticmethod
    def of(level: int, group: int, rows: pa.Table, time_column: str) -> Chunk:
        """Encodes rows (at least one)."""
        limits = pc.min_max(rows[time_column]).as_py()
        keys, head, body = _parts_of(rows)
        ids = rows["schedule_id"] if "schedule_id" in rows.schema.names else None
        times, span = (limits["min"], limits["max"]), Span.of(keys + head + body)
        return Chunk(level, group, rows.num_rows, *times, span, head=len(head), keys=len(keys), ids=ids)

    @property
    def text(self) -> str:
        """The chunk as it is stored."""
        return str(self.span) + self.gone

    @property
    def size(self) -> int:
        """Length of :attr:`text`."""
        return self.span.end - self.span.start + len(self.gone)

    @property
    def encoded_rows(self) -> int:
        """Number of rows with the removed ones (three are 16 characters)."""
        return self.rows + len(self.gone) * 3 // 16

    @property
    def is_known(self) -> bool:
        """Whether the chunk is in the index of its shard."""
        return self.number != UNNUMBERED

    def table(self, *columns: str) -> pa.Table:
        """Decodes the chunk; with ``columns`` (not those that may be left out alone), decompresses only these."""
        rows = self._stored(*columns)
        if self.gone:
            rows = without(rows, self.gone_rows())
        return _with_rare_columns(rows, columns)

    def gone_rows(self) -> Int64s:
        """The places of the removed rows, in order, among all that are stored."""
        return np.frombuffer(octets_of(self.gone), np.uint32).astype(np.int64)

    def keys_at(self, rows: Int64s) -> list[list[Any]]:
        """The ids, seqs, amends and partitions (or None) of some of the stored rows of a chunk of entries."""
        if self.keys:
            return RowKeys(self.span.whole, self.span.start).at(rows)
        return keys_of(self._stored(*KEY_COLUMNS, "source").take(pa.array(rows)))

    def less(self, rows: Int64s) -> Chunk:
        """The chunk of entries, in order of their due times, without some rows.

        Args:
            rows: Their places in :meth:`table`, in order; not all.
        """
        gone, stored = self.gone_rows(), self.encoded_rows
        # The place of a row moves behind each removed row that is not after it.
        places = rows + np.searchsorted(gone - np.arange(len(gone)), rows, side="right")
        gone = np.sort(np.concatenate([gone, places]))
        sizes = chunk_sizes.SIZES
        if stored < sizes.rewrite_below or len(gone) >= sizes.rewrite_at_gone * stored:
            return Chunk.of_entries(self.level, self.group, without(self.table(), rows))
        low_ms, high_ms = self.low_ms, self.high_ms
        if rows[0] == 0 or rows[-1] == self.rows - 1:
            due = np.delete(self.table("deliver_at_ms")["deliver_at_ms"].to_numpy(), rows)
            low_ms, high_ms = int(due[0]), int(due[-1])
        return replace(
            self,
            rows=self.rows - len(rows),
            low_ms=low_ms,
            high_ms=high_ms,
            gone=base64_of(gone.astype(np.uint32).tobytes()),
        )

    def _stored(self, *columns: str) -> pa.Table:
        """As :meth:`table`, with the removed rows."""
        whole, start, end = self.span
        head = start + self.keys
        body = head + self.head
        if not self.head:
            return decoded_table(whole[start:end], columns)
        in_keys, in_head = ([name for name in columns if name in of] for of in (KEY_COLUMNS, _HEAD_COLUMNS))
        in_body = [name for name in columns if name not in (*in_keys, *in_head)]
        parts = []
        if in_keys or not columns:
            parts.append(RowKeys(whole, start).table(*in_keys))
        if in_head or not columns:
            parts.append(decoded_table(whole[head:body], in_head))
        if in_body or not columns:
            parts.append(decoded_table(whole[body:end], in_body))
        return parts[0] if len(parts) == 1 else _joined(parts)


def in_runs(level: int, group: int, rows: pa.Table, time_column: str, most: int) -> list[Chunk]:
    """Encodes rows (at least one) in their order, in as few chunks of about the same size as the bounds allow."""
    by_bytes = -(-rows.nbytes // chunk_sizes.SIZES.largest_bytes)
    parts = min(rows.num_rows, max(-(-rows.num_rows // most), by_bytes))
    ends = [rows.num_rows * part // parts for part in range(parts + 1)]
    return [Chunk.of(level, group, rows.slice(a, b - a), time_column) for a, b in pairwise(ends)]


def _parts_of(rows: pa.Table) -> tuple[str, str, str]:
    """The texts of the keys and of the head, if they are kept apart, and that of the rest."""
    if rows.schema.names != ENTRY_SCHEMA.names:
        return "", "", base64_of(encoded(rows))
    rows = rows.drop_columns([name for name in _RARE_COLUMNS if rows[name].null_count == rows.num_rows])
    if rows.num_rows < chunk_sizes.SIZES.apart_from:
        return "", "", base64_of(encoded(rows))
    head = rows.select([name for name in rows.schema.names if name in _HEAD_COLUMNS])
    body = rows.drop_columns([*KEY_COLUMNS, *head.schema.names])
    return packed(rows), base64_of(encoded(head)), base64_of(encoded(body))


def decoded_table(text: str, columns: Sequence[str]) -> pa.Table:
    """The table of one stream; with ``columns``, only these."""
    octets = pa.py_buffer(octets_of(text))
    # The schema stands in front of the rows.
    schema = pa.ipc.read_schema(octets) if columns else None
    chosen = [at for name in columns if (at := schema.get_field_index(name)) >= 0] if schema else None
    options = pa.ipc.IpcReadOptions(included_fields=chosen, use_threads=False)
    with pa.ipc.open_stream(octets, options=options) as reader:
        return reader.read_all()


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    """The columns of some tables, in the order of ``ENTRY_SCHEMA``."""
    columns = {name: part[name] for part in parts for name in part.schema.names}
    fields = [field for field in ENTRY_SCHEMA if field.name in columns]
    return pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))


def _with_rare_columns(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows with the columns that their chunk has left out, or with those that were asked for."""
    if not columns and not _PLAIN_COLUMNS.issubset(rows.schema.names):
        return rows  # no entries
    missing = [name for name in columns or ENTRY_SCHEMA.names if name not in rows.schema.names]
    for name in missing:
        field = ENTRY_SCHEMA.field(name)
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(ENTRY_SCHEMA.names) if missing and not columns else rows
