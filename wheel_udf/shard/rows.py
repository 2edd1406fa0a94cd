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

from wheel_udf.common.instants import MAX_INSTANT_MS

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
        ("held_ms", pa.int64()),
        ("attempt", pa.int64()),
        ("first_amend", pa.int32()),
        ("failed_at_ms", pa.int64()),
        ("first_error", pa.string()),
        ("last_error", pa.string()),
        ("dead_reason", pa.string()),
    ]
)
"""An entry, pending or released. ``amend`` counts the acts of the project's own API on this ``seq``.

``deliver_at_ms`` is when the wheel releases the entry: the requested time plus ``level_error_ms``, if it was rounded,
spread or moved, plus ``held_ms``, if it is held back beyond that by a rate, a breaker or the wait before another
attempt; each is null if there is none. ``delay_level_ms`` says to what it was rounded, and is payload to the wheel.

``attempt`` is how many attempts to deliver the entry have failed, ``first_amend`` its amend before the first of them,
``failed_at_ms`` when that was, and ``first_error`` and ``last_error`` are the reasons; null if there was none.
``dead_reason`` is why there is no further attempt: such an entry becomes a dead letter with the batch that brings it.

Five columns, from ``repeat`` to ``occurrence``, are those of a series, null of other entries. The requested time of a
series is the nominal time of its next occurrence. ``repeat`` is its rule (JSON, :mod:`wheel_udf.policies.series`),
``anchor_ms`` the instant from which the rule counts, ``spread_ms`` how much later than its nominal time each occurrence
is released, ``last_ms`` the nominal time of the last occurrence, and ``occurrence`` how many there have been."""

PAUSED_MS = MAX_INSTANT_MS
"""``deliver_at_ms`` of a paused series, which the clock never reaches. Its requested time stays, so ``level_error_ms``
leads back to it."""

SERIES_COLUMNS = ("repeat", "anchor_ms", "spread_ms", "last_ms", "occurrence")
"""The columns of ``ENTRY_SCHEMA`` that belong to a series."""

FAILURE_COLUMNS = ("attempt", "first_amend", "failed_at_ms", "first_error", "last_error", "dead_reason")
"""The columns of ``ENTRY_SCHEMA`` of entries that could not be delivered yet."""

HELD_COLUMNS = ("held_ms", *FAILURE_COLUMNS)
"""The columns of ``ENTRY_SCHEMA`` of entries that are held back."""

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

FIRE_NOW_OP = 2
"""``op`` of a FIRE_NOW in a frame of parsed commands; to the wheel it is an ``act``."""

COMMAND, FAR, MOVED, GONE_CANCELLED, GONE_SUPERSEDED, GONE_DUPLICATE, FIRE_NOW, RETRY, ACTED = range(9)
"""``act``: what a row is to the wheel. RETRY: an entry that was released and could not be delivered comes back, with an
``amend`` raised by one. In the tiered mode, where far entries wait in a slot store, a row is not always a command: FAR:
this version went to the store (no payload), MOVED: it comes from there, GONE_...: it ended there, ACTED: an act changes
a series, which the state has (:mod:`wheel_udf.wheel.acted`). A GONE_CANCELLED row carries the version of the CANCEL.
FIRE_NOW: this is no version, but releases the one that waits (:mod:`wheel_udf.wheel.fire_now`)."""


OLDEST_FIRST = [("deliver_at_ms", "ascending"), ("schedule_id", "ascending"), ("seq", "ascending")]
"""The order of release within a shard, and of the rows of a batch."""


ID_JOINT = "\x00"
"""In the id of an entry that a series has left behind, such as an occurrence that is tried again: behind the id of the
series. No id of a producer has it."""


def outer_id(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ids that producers gave: without what stands behind :data:`ID_JOINT`."""
    if not len(ids) or not pc.any(pc.match_substring(ids, ID_JOINT)).as_py():
        return ids
    return pc.replace_substring_regex(ids, f"{ID_JOINT}.*", "")


def asked_ms(entries: pa.Table) -> pa.ChunkedArray:
    """The requested due times, int64[n]; null without a due time."""
    due_ms = unheld_ms(entries)
    if entries["level_error_ms"].null_count == entries.num_rows:
        return due_ms
    # Neither a rounded due time nor its error is near the ends of int64.
    return pc.subtract(due_ms, entries["level_error_ms"].fill_null(0))


def unheld_ms(entries: pa.Table) -> pa.ChunkedArray:
    """When the entries are to be released if nothing holds them back, int64[n]; null without a due time."""
    if entries["held_ms"].null_count == entries.num_rows:
        return entries["deliver_at_ms"]
    return pc.subtract(entries["deliver_at_ms"], entries["held_ms"].fill_null(0))


def with_columns(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    """Rows with other values in some of their columns."""
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, each cast to its type; null where the rows lack one."""
    columns = (
        rows[each.name].cast(each.type)
        if each.name in rows.schema.names
        else pa.nulls(rows.num_rows, each.type)
        for each in schema
    )
    return pa.table(list(columns), schema=schema)


def without(table: pa.Table, rows: Int64s) -> pa.Table:
    """Drops some rows of a table, given by their positions."""
    keep = np.ones(table.num_rows, bool)
    keep[rows] = False
    return table.filter(pa.array(keep))


def partition_texts(sources: pa.ChunkedArray) -> pa.ChunkedArray:
    """``topic/partition/`` of ``topic/partition/offset``; null of null."""
    return pc.utf8_rtrim(sources, "0123456789")
