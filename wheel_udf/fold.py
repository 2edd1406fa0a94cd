"""Folding a batch of commands: which of them win, and how each of them ends.

The commands of a batch take effect one by one in version order, ``(seq, amend, kind)`` with SCHEDULE below CANCEL at an equal ``seq`` and
``amend``, whatever the order they came in, before the clock moves. This module computes the result of that sequence for all ids at once::

    known of an id          command           outcome
    nothing                 SCHEDULE          pending
    nothing                 CANCEL            waiting
    pending (1)             SCHEDULE 2        pending, and the old one superseded
    pending (1)             CANCEL 1 or 2     applied, and the entry cancelled
    pending (2)             SCHEDULE 1        superseded
    fired (1)               CANCEL 2          late
    fired (1, due d)        SCHEDULE at d     duplicate, if its seq was not given (a producer's retry)
    fired (1)               SCHEDULE 2        pending: the id starts anew
    waiting CANCEL (2)      SCHEDULE 1        cancelled, and the CANCEL applied
    waiting CANCEL (2)      SCHEDULE 3        pending, and the CANCEL superseded
    any (v)                 the same again    duplicate

Vectorised: rows are sorted by (id, version); runs of an id are worked on with shifts and cumulative sums. Cost: O(b log b) for b
commands, plus one hash probe (about 10 ns) for each pending and each remembered id.

Where rows bear no version of their own, Kafka's offset is it, and offsets of two partitions say nothing about each other. The fold goes by
the number all the same, and counts the ids for which it saw that (:attr:`Folded.spread`): in one batch, or between a batch and what is pending.

A retry is known by the due time that was *asked for*, not by the one to which a delay level has rounded it: said again a little later, the same
due time is a shorter delay, which may have another level; and two due times that round to one instant are two commands.

Where far entries wait in a slot store (``stored``), the shard is told of each (FAR) and remembers its version as that of any other id, so that it
beats an older entry here; the entry itself comes later (MOVED) or has ended there (GONE_...)::

    known of an id          row               outcome
    pending (1)             FAR 2             superseded; known is FAR (2)
    FAR (2)                 SCHEDULE 1        superseded
    FAR (2)                 CANCEL 2 or 3     waiting, until the store says what it ended: applied
    FAR (2)                 SCHEDULE 2 or 3   pending; the far one ends in the store
    FAR (2), or nothing     MOVED 2           pending
    CANCEL waiting (3)      MOVED 2           cancelled, and the CANCEL applied

A FAR row itself is never an outcome: its entry gets one when it fires or ends. There a waiting CANCEL may have an entry in the store, so
nothing but such an entry ends its waiting: a later SCHEDULE or CANCEL does not make it superseded.

Invariants: each SCHEDULE counts once over the batches of its life, each CANCEL once; ``applied == cancelled`` (with a store: ``applied <= cancelled``, for
a CANCEL that had been counted and forgotten before its entry came to light stays counted as what it was).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.gate import Gate, HeldIf
from wheel_udf.limits import BOUNDS
from wheel_udf.runs import Bools, before_in_run, is_last, repeats
from wheel_udf.state import (
    CANCEL,
    COMMAND,
    COMMAND_SCHEMA,
    ENTRY_SCHEMA,
    FAR,
    GONE_CANCELLED,
    GONE_DUPLICATE,
    GONE_SUPERSEDED,
    MEMORY_SCHEMA,
    MOVED,
    SCHEDULE,
    Chunk,
    Int64s,
    ShardState,
    asked_ms,
)

Bytes = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]

NOTHING, WAITING, IN_STORE, ENDED, FIRED, PENDING = range(6)
"""What is known of an id. A memory record's ``status`` is one of WAITING, IN_STORE, ENDED (cancelled or missed) and FIRED."""

_ENDED_IN_STORE = {
    GONE_CANCELLED: "cancelled",
    GONE_SUPERSEDED: "superseded",
    GONE_DUPLICATE: "duplicate",
}


@dataclass(frozen=True)
class Folded:
    """The result of a fold.

    Attributes:
        winners: Entries that are pending now (``ENTRY_SCHEMA``).
        removed: For each index into the state's entry chunks, the rows that are no longer pending.
        records: Memory records to add (``MEMORY_SCHEMA``).
        counts: How much each outcome rises.
        spread: Ids whose versions are offsets of more than one partition.
        far: How many more entries are in the slot store, as far as this shard was told.
        far_levels: The same by delay level (its span in ms).
        refused: Commands that found no room (``COMMAND_SCHEMA`` and ``bound``, the limit that refused them).
        fullest: How full it is where new entries came to (see :attr:`wheel_udf.limits.Verdict.fullest`).
    """

    winners: pa.Table
    removed: dict[int, Int64s]
    records: pa.Table
    counts: Counter[str]
    spread: int
    far: int
    far_levels: Counter[int]
    refused: pa.Table
    fullest: Mapping[str, int]


@dataclass
class _Known:
    """What the shard knows of each id of the batch; arrays of one length, indexed by the id's code."""

    status: Bytes
    seq: Int64s
    rank: Int32s
    due: Int64s
    ended_at: Int64s
    chunk: Int64s
    row: Int64s
    partition: npt.NDArray[np.object_]

    @staticmethod
    def nothing(size: int) -> _Known:
        longs = (np.zeros(size, np.int64) for _ in range(5))
        status, rank = np.zeros(size, np.int8), np.zeros(size, np.int32)
        seq, due, ended_at, chunk, row = longs
        return _Known(status, seq, rank, due, ended_at, chunk, row, np.full(size, None))


@dataclass
class _Rows:
    """Some commands in (id, version) order; arrays of one length."""

    at: Int64s
    code: Int64s
    seq: Int64s
    rank: Int32s
    act: Bytes

    @property
    def op(self) -> Int32s:
        return self.rank & 1

    def where(self, keep: Bools) -> _Rows:
        return _Rows(self.at[keep], self.code[keep], self.seq[keep], self.rank[keep], self.act[keep])


def rank_of(amend: npt.NDArray[np.integer], op: npt.NDArray[np.integer] | int) -> Int32s:
    """``(amend, op)`` as one number of the same order."""
    return np.asarray(2 * amend.astype(np.int32) + op, dtype=np.int32)


def fold(
    state: ShardState,
    commands: pa.Table,
    now_ms: int,
    memory_ms: int | None,
    *,
    stored: bool = False,
    gate: Gate | None = None,
) -> Folded:
    """Folds the valid commands of a batch into what a shard knows.

    Args:
        state: The shard before the batch.
        commands: ``COMMAND_SCHEMA``, any order, at least one row.
        now_ms: The clock of the batch; decides what is still remembered.
        memory_ms: How long an ended id is remembered; ``None`` for ever.
        stored: Whether entries may wait in a slot store.
        gate: The limits that new entries have to pass; ``None`` for none.
    """
    counts: Counter[str] = Counter()
    gone = MEMORY_SCHEMA.empty_table()
    far, far_levels = 0, Counter[int]()
    if stored:
        far = _far(commands["act"].to_numpy())
        far_levels = _far_levels(commands)
        commands, gone = _end_in_store(commands, now_ms, counts)
    commands = commands.combine_chunks()
    ids = pc.dictionary_encode(commands["schedule_id"]).combine_chunks()
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.chunk(0)
    partitions = _partitions(commands)
    known = _look_up(state, ids.dictionary, now_ms, memory_ms, with_partition=partitions is not None)
    rows = _in_version_order(commands, ids.indices.to_numpy().astype(np.int64))
    spread = 0 if partitions is None else _spread(rows, known, partitions[rows.at])
    rows = _drop_repeated(rows, known, counts)
    rows, matched = _drop_older(rows, known, counts)
    rows = _drop_retries(rows, known, commands, counts)
    touched = np.unique(rows.code[known.status[rows.code] == PENDING])
    removed = {
        int(c): np.sort(known.row[touched][known.chunk[touched] == c])
        for c in np.unique(known.chunk[touched])
    }
    turned_away = _NOBODY
    fullest: Mapping[str, int] = {}
    if gate is not None:
        held = HeldIf(state, removed, now_ms)
        rows, turned_away, fullest = _turn_away(rows, known, commands, gate, held, counts)
    winners, records = _settle(rows, known, now_ms, counts, stored=stored)
    met = _record_columns(
        matched, known.seq[matched], known.rank[matched], known.ended_at[matched], ENDED, known
    )
    _settle_in_store(state, gone.num_rows, counts)
    return Folded(
        winners=commands.select(ENTRY_SCHEMA.names).take(pa.array(winners)),
        removed=removed,
        records=pa.concat_tables([_records_table([met, *records], ids.dictionary), gone]),
        counts=counts,
        spread=spread,
        far=far,
        far_levels=far_levels,
        refused=turned_away,
        fullest=fullest,
    )


def _far(acts: Bytes) -> int:
    """How many more entries are in the store after these rows."""
    return int((acts == FAR).sum()) - int((acts >= MOVED).sum())


def _far_levels(commands: pa.Table) -> Counter[int]:
    """How many more entries of each delay level are in the store after these rows."""
    if commands["delay_level_ms"].null_count == commands.num_rows:
        return Counter()
    acts = commands["act"].to_numpy()
    more = count_levels(commands.filter(pa.array(acts == FAR)))
    more.subtract(count_levels(commands.filter(pa.array(acts >= MOVED))))
    return more


def count_levels(entries: pa.Table) -> Counter[int]:
    """How many of some entries have which delay level, by its span in ms."""
    if entries["delay_level_ms"].null_count == entries.num_rows:
        return Counter()
    pairs = pc.value_counts(entries["delay_level_ms"].drop_null()).to_pylist()
    return Counter({pair["values"]: pair["counts"] for pair in pairs})


def _end_in_store(commands: pa.Table, now_ms: int, counts: Counter[str]) -> tuple[pa.Table, pa.Table]:
    """Counts what has ended in the store; answers the other rows, and memory records of the CANCELs that ended something."""
    acts = commands["act"].to_numpy()
    for act, outcome in _ENDED_IN_STORE.items():
        counts[outcome] += int((acts == act).sum())
    by_cancel = commands.filter(pa.array(acts == GONE_CANCELLED))
    size = by_cancel.num_rows
    rank = rank_of(by_cancel["amend"].to_numpy(), CANCEL)
    ended = pa.array(np.full(size, ENDED, np.int8))
    now = pa.array(np.full(size, now_ms, np.int64))
    columns = [
        by_cancel["schedule_id"],
        by_cancel["seq"],
        pa.array(rank),
        ended,
        pa.nulls(size, pa.int64()),
        now,
    ]
    records = pa.table(columns, schema=MEMORY_SCHEMA)
    return commands.filter(pa.array(acts < GONE_CANCELLED)), records


def _settle_in_store(state: ShardState, cancelled: int, counts: Counter[str]) -> None:
    """Turns waiting CANCELs into applied ones, for entries that they ended in the store."""
    met = min(cancelled, state.counts["waiting"] + counts["waiting"])
    counts.update(applied=met, waiting=-met)


def _look_up(
    state: ShardState, ids: pa.Array, now_ms: int, memory_ms: int | None, *, with_partition: bool
) -> _Known:
    known = _Known.nothing(len(ids))
    for chunk in state.memory_chunks:
        if memory_ms is None or now_ms < chunk.high_ms + memory_ms:
            _look_up_memory(chunk, ids, known, now_ms, memory_ms)
    for number, chunk in enumerate(state.entry_chunks):
        codes, rows = _matches(chunk, ids)
        if len(codes):
            seqs = chunk.table("seq")["seq"].to_numpy()[rows]
            amends = chunk.table("amend")["amend"].to_numpy()[rows]
            known.status[codes], known.seq[codes], known.rank[codes] = (
                PENDING,
                seqs,
                rank_of(amends, SCHEDULE),
            )
            known.chunk[codes], known.row[codes] = number, rows
            if with_partition:
                sources = chunk.table("source")["source"].take(pa.array(rows))
                known.partition[codes] = _without_offset(sources)
    return known


def _look_up_memory(chunk: Chunk, ids: pa.Array, known: _Known, now_ms: int, memory_ms: int | None) -> None:
    codes, at = _matches(chunk, ids)
    if not len(codes):
        return
    table = chunk.table().take(pa.array(at))
    seq, rank, status = (table[name].to_numpy() for name in ("seq", "rank", "status"))
    ended_at = table["ended_at_ms"].to_numpy()
    due = table["deliver_at_ms"].fill_null(0).to_numpy()
    fresh = np.ones(len(codes), bool) if memory_ms is None else now_ms - ended_at < memory_ms
    # An id may be remembered several times over; its highest version says what is known, and of one version the later status.
    order = np.lexsort((status, rank, seq, codes))
    order = order[fresh[order]]
    last = order[is_last(codes[order])]
    code = codes[last]
    better = (known.status[code] == NOTHING) | _later(
        (seq[last], rank[last], status[last]), (known.seq[code], known.rank[code], known.status[code])
    )
    last, code = last[better], code[better]
    known.status[code], known.seq[code], known.rank[code] = status[last], seq[last], rank[last]
    known.due[code], known.ended_at[code] = due[last], ended_at[last]


def _matches(chunk: Chunk, ids: pa.Array) -> tuple[Int64s, Int64s]:
    """Codes of the batch's ids that occur in the chunk, and the rows where they do."""
    found = pc.index_in(chunk.table("schedule_id")["schedule_id"], value_set=ids)
    rows = np.flatnonzero(found.is_valid().to_numpy())
    return found.take(pa.array(rows)).to_numpy().astype(np.int64), rows


def _later(left: Sequence[npt.NDArray[np.generic]], right: Sequence[npt.NDArray[np.generic]]) -> Bools:
    """Row by row, whether the tuple on the left is greater."""
    greater: Bools = np.zeros(len(left[0]), bool)
    equal: Bools = np.ones(len(left[0]), bool)
    for a, b in zip(left, right, strict=True):
        greater |= equal & (a > b)  # type: ignore[operator]
        equal &= a == b
    return np.asarray(greater, dtype=np.bool_)


def _in_version_order(commands: pa.Table, code: Int64s) -> _Rows:
    seq, act = commands["seq"].to_numpy(), commands["act"].to_numpy()
    rank = rank_of(commands["amend"].to_numpy(), commands["op"].to_numpy())
    is_far = act == FAR
    order = np.lexsort((is_far, rank, seq, code))
    again = repeats(code[order], seq[order], rank[order])
    if again.any():
        # Of several copies one is kept; which one must not hang on the order of arrival, that a replay may change.
        copies = again | np.r_[again[1:], False]
        subset = commands.take(pa.array(order[copies])).append_column("code", pa.array(code[order[copies]]))
        subset = subset.append_column("rank", pa.array(rank[order[copies]]))
        subset = subset.append_column("is_far", pa.array(is_far[order[copies]]))
        keys = (
            "code",
            "seq",
            "rank",
            "is_far",
            "deliver_at_ms",
            "level_error_ms",
            "delay_level_ms",
            "destination",
            "value",
            "key",
            "headers",
            "max_lateness_ms",
            "seq_given",
            "source",
        )
        order[copies] = order[copies][
            pc.sort_indices(subset, sort_keys=[(key, "ascending") for key in keys]).to_numpy()
        ]
    return _Rows(order.astype(np.int64), code[order], seq[order], rank[order], act[order])


def _partitions(commands: pa.Table) -> npt.NDArray[np.object_] | None:
    """The topic and partition of the commands whose version is their offset (else None); None if there is no such command."""
    by_offset = pc.and_(pc.is_valid(commands["source"]), pc.invert(commands["seq_given"]))
    if not pc.any(by_offset).as_py():
        return None
    return _without_offset(pc.if_else(by_offset, commands["source"], pa.scalar(None, pa.string())))


def _without_offset(sources: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    """``topic/partition/`` of ``topic/partition/offset``; None of null."""
    found: npt.NDArray[np.object_] = pc.utf8_rtrim(sources, "0123456789").to_numpy(zero_copy_only=False)
    return found


def _spread(rows: _Rows, known: _Known, partitions: npt.NDArray[np.object_]) -> int:
    """How many ids have rows of several partitions, one after the other or after what is pending."""
    before = np.r_[[None], partitions[:-1]]
    starts = ~repeats(rows.code)
    before[starts] = known.partition[rows.code[starts]]
    differs = (before != partitions) & (before != None) & (partitions != None)  # noqa: E711  # element by element
    return len(np.unique(rows.code[differs]))


def _drop_repeated(rows: _Rows, known: _Known, counts: Counter[str]) -> _Rows:
    is_known = known.status[rows.code] != NOTHING
    same_as_known = is_known & (rows.seq == known.seq[rows.code]) & (rows.rank == known.rank[rows.code])
    # Of two equal versions the one that is due first is kept, so one that is here beats one in the store.
    same_as_known &= (known.status[rows.code] != IN_STORE) | (rows.act == FAR)
    repeated = same_as_known | repeats(rows.code, rows.seq, rows.rank)
    _count(counts, rows, repeated, "duplicate", "cancel_duplicate")
    return rows.where(~repeated)


def _drop_older(rows: _Rows, known: _Known, counts: Counter[str]) -> tuple[_Rows, Int64s]:
    """Takes out what is below the known version; also answers the codes whose waiting CANCEL met its schedule."""
    code = rows.code
    older = (known.status[code] != NOTHING) & _later(
        (known.seq[code], known.rank[code]), (rows.seq, rows.rank)
    )
    met = older & (rows.op == SCHEDULE) & (rows.act != FAR) & (known.status[code] == WAITING)
    matched, first = np.unique(code[met], return_index=True)
    known.status[matched] = ENDED
    meets = len(first)
    counts.update(cancelled=meets, applied=meets, waiting=-meets)
    _count(counts, rows, older, "superseded", "cancel_superseded")
    counts["superseded"] -= meets
    return rows.where(~older), matched


def _drop_retries(rows: _Rows, known: _Known, commands: pa.Table, counts: Counter[str]) -> _Rows:
    """Takes out a producer's retries: no seq given, and the due time of what has fired, before any other schedule of the id."""
    candidates = (rows.op == SCHEDULE) & (rows.act == COMMAND) & (known.status[rows.code] == FIRED)
    if not candidates.any():
        return rows
    asked = asked_ms(commands).fill_null(0).to_numpy()[rows.at]
    given = commands["seq_given"].to_numpy()[rows.at]
    candidates &= ~given & (asked == known.due[rows.code])
    other = (rows.op == SCHEDULE) & ~candidates
    retries = candidates & (before_in_run(other, rows.code) == 0)
    counts["duplicate"] += int(retries.sum())
    return rows.where(~retries)


_NOBODY = COMMAND_SCHEMA.append(pa.field("bound", pa.string())).empty_table()


def _turn_away(
    rows: _Rows, known: _Known, commands: pa.Table, gate: Gate, held: HeldIf, counts: Counter[str]
) -> tuple[_Rows, pa.Table, Mapping[str, int]]:
    """Takes out the schedules that find no room: of an id that was not pending, those after its last CANCEL.

    The versions of an id in one batch stand or fall together: had the first found no room, the second would have replaced nothing.
    """
    command = (rows.op == SCHEDULE) & (rows.act == COMMAND)
    winner = (rows.op == SCHEDULE) & (rows.act != FAR) & is_last(rows.code)
    is_new = winner & command & ~np.isin(known.status[rows.code], (PENDING, IN_STORE))
    if not is_new.any():
        return rows, _NOBODY, {}
    staying, new = (commands.take(pa.array(rows.at[which])) for which in (winner & ~is_new, is_new))
    bound_of_code = np.full(len(known.status), -1, np.int8)
    verdict = gate.judge(new, held, staying)
    bound_of_code[rows.code[is_new]] = verdict.refused_by
    cancels_after = before_in_run((rows.op == CANCEL)[::-1], rows.code[::-1])[::-1]
    out = command & (bound_of_code[rows.code] >= 0) & (cancels_after == 0)
    counts["rejected"] += int(out.sum())
    bounds = pa.array(BOUNDS).take(pa.array(bound_of_code[rows.code[out]]))
    away = commands.take(pa.array(rows.at[out])).append_column("bound", bounds)
    return rows.where(~out), away, verdict.fullest


def _settle(
    rows: _Rows, known: _Known, now_ms: int, counts: Counter[str], *, stored: bool
) -> tuple[Int64s, list[pa.Table]]:
    """Ends the rows above the known version; answers the winners' places in the batch and the memory records."""
    status = known.status[rows.code]
    follows = repeats(rows.code)
    last = is_last(rows.code)
    schedule = rows.op == SCHEDULE
    entry = schedule & (rows.act != FAR)
    next_op = np.r_[rows.op[1:], np.int32(0)][: len(follows)]
    counts["superseded"] += int((entry & ~last & (next_op == SCHEDULE)).sum())
    counts["cancelled"] += int((entry & ~last & (next_op == CANCEL)).sum())

    cancel = ~schedule
    after_entry, after_far = (
        cancel & follows & np.r_[False, each[:-1]][: len(follows)] for each in (entry, schedule & ~entry)
    )
    leading = cancel & (before_in_run(schedule, rows.code) == 0)
    on_entry = leading & ~follows & (status == PENDING)
    unmet = (leading & np.isin(status, (NOTHING, WAITING, IN_STORE))) | after_far
    applied = after_entry | on_entry
    waits = unmet if stored else unmet & last
    counts["applied"] += int(applied.sum())
    counts["waiting"] += int(waits.sum())
    counts["cancel_superseded"] += int((unmet & ~waits).sum())
    counts["late"] += int((cancel & ~applied & ~unmet).sum())

    # What was known before the batch ends through the first row above it.
    counts["cancelled"] += int(on_entry.sum())
    counts["superseded"] += int((schedule & ~follows & (status == PENDING)).sum())
    if not stored:
        overtaken = int((~follows & (status == WAITING)).sum())
        counts.update(waiting=-overtaken, cancel_superseded=overtaken)

    final = last & ~entry
    outcome = np.where(unmet, WAITING, np.where(leading & (status == FIRED), FIRED, ENDED))
    outcome = np.where(schedule, IN_STORE, outcome)
    now = np.full(len(rows.code), now_ms, np.int64)
    records = [
        _record_columns(rows.code[chosen], rows.seq[chosen], rows.rank[chosen], now[chosen], kind, known)
        for kind in (WAITING, IN_STORE, ENDED, FIRED)
        if (chosen := final & (outcome == kind)).any()
    ]
    return rows.at[entry & last], records


def _record_columns(
    code: Int64s, seq: Int64s, rank: Int32s, ended_at: Int64s, status: int, known: _Known
) -> pa.Table:
    """Memory records of one status, with the id's code in place of the id."""
    due = pa.array(known.due[code]) if status == FIRED else pa.nulls(len(code), pa.int64())
    return pa.table(
        {
            "code": pa.array(code),
            "seq": pa.array(seq),
            "rank": pa.array(rank),
            "status": pa.array(np.full(len(code), status, np.int8)),
            "deliver_at_ms": due,
            "ended_at_ms": pa.array(ended_at),
        }
    )


def _records_table(parts: Sequence[pa.Table], ids: pa.Array) -> pa.Table:
    records = pa.concat_tables(parts).combine_chunks()
    named = records.set_column(0, "schedule_id", ids.take(records["code"]))
    return named.cast(MEMORY_SCHEMA)


def _count(
    counts: Counter[str], rows: _Rows, chosen: Bools, schedule_outcome: str, cancel_outcome: str
) -> None:
    """Counts the chosen rows; one that tells of the store has its outcome there."""
    ops = rows.op[chosen & (rows.act != FAR)]
    cancels = int((ops == CANCEL).sum())
    counts.update({schedule_outcome: len(ops) - cancels, cancel_outcome: cancels})
