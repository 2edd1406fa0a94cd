"""The rows that the wheel works on: commands, entries, memory records, as Arrow schemas.

::

    command (COMMAND_SCHEMA)   --fold-->  entry (ENTRY_SCHEMA)  --fired, ...-->  memory record (MEMORY_SCHEMA)
    schedule, replace, cancel             waits in a bucket                      what is known of an ended id

Instants are int64 UTC epoch ms. ``headers`` is JSON text that the wheel never reads. ``source`` is
``topic/partition/offset`` of a Kafka record, else null.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
        ("repeat", pa.string()),
        ("anchor_ms", pa.int64()),
        ("spread_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("occurrence", pa.int64()),
    ]
)
"""An entry, pending or released. ``amend`` counts the acts of the project's own API on this ``seq``.

``deliver_at_ms`` is when the wheel releases the entry: the requested time plus ``level_error_ms``, if it was rounded,
spread or moved, else null. ``delay_level_ms`` says to what it was rounded, and is payload to the wheel.

The last five columns are those of a series, null of other entries. The requested time of a series is the nominal time
of its next occurrence. ``repeat`` is its rule (JSON, :mod:`wheel_udf.policies.series`), ``anchor_ms`` the instant from
which the rule counts, ``spread_ms`` how much later than its nominal time each occurrence is released, ``last_ms`` the
nominal time of the last occurrence, and ``occurrence`` how many there have been."""

SERIES_COLUMNS = ("repeat", "anchor_ms", "spread_ms", "last_ms", "occurrence")
"""The columns of ``ENTRY_SCHEMA`` that belong to a series."""

COMMAND_SCHEMA = pa.schema([*ENTRY_SCHEMA, ("op", pa.int8()), ("seq_given", pa.bool_()), ("act", pa.int8())])
"""A valid command: an entry plus ``op`` (:data:`SCHEDULE` or :data:`CANCEL`), whether the producer gave its
``seq``, and ``act``, which is :data:`COMMAND` unless entries wait in a slot store. Of a row of an act (``amend``
above 0) ``seq_given`` is whether its entry was in the slot store (:mod:`wheel_udf.wheel.late_acts`)."""

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
"""What the wheel remembers of an ended id: its version ``(seq, rank)`` with ``rank = 2 * amend + op``, how it
ended, and, of a fired one, the due time that was requested (else null)."""

SCHEDULE, CANCEL = 0, 1
"""``op``. REPLACE is a SCHEDULE."""

COMMAND, FAR, MOVED, GONE_CANCELLED, GONE_SUPERSEDED, GONE_DUPLICATE, ACTED = range(7)
"""``act``: what a row is to the wheel. In the tiered mode, where far entries wait in a slot store, a row is
not always a command: FAR: this version went to the store (no payload), MOVED: it comes from there,
GONE_...: it ended there, ACTED: an act changes a series, which the state has (:mod:`wheel_udf.wheel.acted`). A
GONE_CANCELLED row carries the version of the CANCEL."""


OLDEST_FIRST = [("deliver_at_ms", "ascending"), ("schedule_id", "ascending"), ("seq", "ascending")]
"""The order of release within a shard, and of the rows of a batch."""


def asked_ms(entries: pa.Table) -> pa.ChunkedArray:
    """The requested due times, int64[n]: ``deliver_at_ms`` less the rounding; null without a due time."""
    if entries["level_error_ms"].null_count == entries.num_rows:
        return entries["deliver_at_ms"]
    # Neither a rounded due time nor its error is near the ends of int64.
    return pc.subtract(entries["deliver_at_ms"], entries["level_error_ms"].fill_null(0))


def with_columns(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    """Rows with other values in some of their columns."""
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def without(table: pa.Table, rows: Int64s) -> pa.Table:
    """Drops some rows of a table, given by their positions."""
    keep = np.ones(table.num_rows, bool)
    keep[rows] = False
    return table.filter(pa.array(keep))


def partition_texts(sources: pa.ChunkedArray) -> pa.ChunkedArray:
    """``topic/partition/`` of ``topic/partition/offset``; null of null."""
    return pc.utf8_rtrim(sources, "0123456789")
