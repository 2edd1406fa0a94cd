"""What a shard knows of the ids of a batch: looked up in its memory and among its pending entries.

::

    ids of the batch     a    b    c    d
    memory chunks        -    FIRED 3    -    WAITING 5        records younger than memory_ms
    chunks in flight     what is in flight has a record, FIRED; they are searched when that may have been forgotten
    entry chunks         PENDING 1 (chunk 0, row 7)   -   -   -
    known                PENDING 1   FIRED 3   NOTHING   WAITING 5

Cost: the index (:mod:`wheel_udf.shard.id_index`) finds the chunk and the row that may hold an id of the batch. Only the
keys of these rows are read (:mod:`wheel_udf.shard.row_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import is_last
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.rows import MEMORY_SCHEMA, SCHEDULE, Int64s, asked_ms
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.version_order import Int8s, Int32s, Objects, is_later, order_of, rank_of

NOTHING, WAITING, IN_STORE, ENDED, FIRED, PENDING = range(6)
"""What is known of an id. The ``status`` of a memory record is WAITING (a CANCEL that has met no entry),
IN_STORE (the entry is in the slot store), ENDED (cancelled or missed) or FIRED."""


@dataclass
class Known:
    """What the shard knows of each id of the batch: arrays of one length, indexed by the id's code.

    Attributes:
        status: NOTHING, WAITING, IN_STORE, ENDED, FIRED or PENDING.
        seq: The highest known version.
        rank: Its second part (:func:`~wheel_udf.wheel.version_order.rank_of`).
        due: Of FIRED, the due time that was requested.
        ended_at: When it ended.
        chunk: Of PENDING, the index of its chunk among the entry chunks.
        row: Of PENDING, its row in that chunk.
        partition: Of PENDING, its topic and partition.
    """

    status: Int8s
    seq: Int64s
    rank: Int32s
    due: Int64s
    ended_at: Int64s
    chunk: Int64s
    row: Int64s
    partition: Objects

    @staticmethod
    def nothing(size: int) -> Known:
        """Nothing is known of this many ids."""
        status, rank = np.zeros(size, np.int8), np.zeros(size, np.int32)
        seq, due, ended_at, chunk, row = np.zeros((5, size), np.int64)
        return Known(status, seq, rank, due, ended_at, chunk, row, np.full(size, None))


def look_up(state: ShardState, ids: pa.Array, now_ms: int, memory_ms: int | None) -> Known:
    """Looks ids up in a shard.

    Args:
        state: The shard.
        ids: Distinct ids; the position of an id is its code.
        now_ms: The clock of the batch; decides what is still remembered.
        memory_ms: How long an ended id is remembered; None for ever.
    """
    known = Known.nothing(len(ids))
    # A record can be ahead of the clock (late_acts). What it is kept for comes in the batch that passes its time, at
    # the latest.
    standing_ms = now_ms if state.clock_ms is None else state.clock_ms
    places = state.places_of(ids)
    for chunk in state.memory_chunks:
        is_young = memory_ms is None or now_ms < chunk.high_ms + memory_ms or standing_ms < chunk.high_ms
        if is_young and chunk.number in places:
            codes = np.unique(places[chunk.number][0])
            _look_up_memory(chunk.table(), ids, codes, known, now_ms, standing_ms, memory_ms)
    for chunk in state.in_flight_chunks:
        if memory_ms is not None and chunk.low_ms <= min(now_ms - memory_ms, standing_ms):
            flying = chunk.table("schedule_id", "seq", "amend", "deliver_at_ms", "level_error_ms", "held_ms")
            records, codes = released(flying, FIRED, flying["deliver_at_ms"].to_numpy()), np.arange(len(ids))
            _look_up_memory(records, ids, codes, known, now_ms, standing_ms, None)
    wanted = ids.to_pylist()
    for number, chunk in enumerate(state.entry_chunks):
        if chunk.number in places:
            _look_up_rows(chunk, number, wanted, *places[chunk.number], known)
    return known


def released(entries: pa.Table, status: int, ended_ms: int | Int64s) -> pa.Table:
    """Memory records (``MEMORY_SCHEMA``) of released entries, which end at one instant or each at its own."""
    rows = entries.num_rows
    due = asked_ms(entries) if status == FIRED else pa.nulls(rows, pa.int64())
    rank = rank_of(entries["amend"].to_numpy(), SCHEDULE)
    ended, now = (pa.array(np.full(rows, value)) for value in (status, ended_ms))
    columns = [entries["schedule_id"], entries["seq"], pa.array(rank), ended, due, now]
    return pa.table(columns, names=MEMORY_SCHEMA.names).cast(MEMORY_SCHEMA)


def _look_up_rows(
    chunk: Chunk, number: int, wanted: Sequence[str], codes: Int64s, rows: Int64s, known: Known
) -> None:
    """Looks ids up in the rows of a chunk in which they may be."""
    ids, seq, amend, partition = chunk.keys_at(rows)
    same = np.array([wanted[code] == name for code, name in zip(codes.tolist(), ids, strict=True)])
    if chunk.gone:
        gone = chunk.gone_rows()
        before = np.searchsorted(gone, rows)
        same &= gone[np.minimum(before, len(gone) - 1)] != rows
        rows = rows - before
    codes = codes[same]
    known.status[codes] = PENDING
    known.seq[codes] = np.array(seq, np.int64)[same]
    known.rank[codes] = rank_of(np.array(amend, np.int32)[same], SCHEDULE)
    known.chunk[codes], known.row[codes] = number, rows[same]
    known.partition[codes] = np.array(partition, object)[same]


def _look_up_memory(
    records: pa.Table,
    ids: pa.Array,
    codes: Int64s,
    known: Known,
    now_ms: int,
    standing_ms: int,
    memory_ms: int | None,
) -> None:
    codes, at = _matches(records, ids, codes)
    if not len(codes):
        return
    table = records.take(pa.array(at))
    seq, rank, status = (table[name].to_numpy() for name in ("seq", "rank", "status"))
    ended_at = table["ended_at_ms"].to_numpy()
    due = table["deliver_at_ms"].fill_null(0).to_numpy()
    fresh = np.ones(len(codes), bool)
    if memory_ms is not None:
        fresh = (now_ms - ended_at < memory_ms) | (standing_ms < ended_at)
    # An id may have several records: the highest version counts, and of one version the later status.
    order = np.lexsort((status, order_of(rank), seq, codes))
    order = order[fresh[order]]
    last = order[is_last(codes[order])]
    code = codes[last]
    better = (known.status[code] == NOTHING) | is_later(
        (seq[last], order_of(rank[last]), status[last]),
        (known.seq[code], order_of(known.rank[code]), known.status[code]),
    )
    last, code = last[better], code[better]
    known.status[code], known.seq[code], known.rank[code] = status[last], seq[last], rank[last]
    known.due[code], known.ended_at[code] = due[last], ended_at[last]


def _matches(table: pa.Table, ids: pa.Array, codes: Int64s) -> tuple[Int64s, Int64s]:
    """Those of the codes whose ids occur in a table, and the rows where they do."""
    found = pc.index_in(table["schedule_id"], value_set=ids.take(pa.array(codes)))
    rows = np.flatnonzero(found.is_valid().to_numpy())
    return codes[found.take(pa.array(rows)).to_numpy()], rows
