"""Folding a batch of commands: which version of each id wins, and how every command ends.

The commands of a batch take effect one by one in version order (:mod:`wheel_udf.wheel.version_order`),
whatever the order of their arrival, before the clock moves. This module computes the result of that sequence
for all ids at once::

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
    waiting CANCEL (2)      SCHEDULE 3        pending; the CANCEL counts as waiting for ever
    a CANCEL (1)            CANCEL 2          late: nothing is pending, whatever the first one has met
    any (v)                 the same again    duplicate

The steps of :func:`fold`, each in the module of its name::

    store_reports    count what ended in the slot store          (tiered mode)
    known            look the ids up: memory, pending entries
    version_order    sort by (id, version)
    ambiguous        count rows of one version that say different things
    versions         drop known, older, retried and copied versions; refuse what finds no room (limits)
    late_acts        drop moves and reroutes of what has fired
    outcomes         end the rest: winners, outcomes, memory records

Cost: O(b log b) for b commands, plus the look-up of their ids (:mod:`wheel_udf.wheel.known`), which does not depend on
how many are pending. No Python loop over rows.

Retries. A retry is recognised by the *requested* due time, not by the one to which it was rounded:
repeated a little later, the same due time is a shorter delay and may have another level; and two due times
that round to one instant are two commands.

Entries in a slot store (``stored``). The shard remembers the version of a far entry like that of any other
id, so it beats an older entry here; the entry itself comes later (MOVED) or ends there (GONE_...)::

    known of an id          row               outcome
    pending (1)             FAR 2             superseded; known is FAR (2)
    pending (2)             FAR 1             remembered until MOVED 1 comes, as ended
    FAR (2)                 SCHEDULE 1        superseded
    FAR (2)                 CANCEL 2 or 3     waiting, until the store reports what it ended: applied
    FAR (2)                 SCHEDULE 2 or 3   pending; the far one ends in the store
    FAR (2), or nothing     MOVED 2           pending
    CANCEL waiting (3)      MOVED 2           cancelled, and the CANCEL applied

The outcome of a CANCEL is decided when it is read, by what is remembered of its id, and does not tell near entries
from far ones; only ``waiting`` can become ``applied``, when an older SCHEDULE comes or the store reports one. So, once
all far entries have come or ended, the counts are those of a wheel without a store. Exception: an entry that goes to
the store after a higher version of its id was read ends by the order of versions there, not by what that version has
met.

Invariants: each SCHEDULE is counted once over the batches of its life, and so is each CANCEL; ``applied ==
cancelled``. With a store, ``applied <= cancelled``: a CANCEL that was counted and forgotten before its entry
appeared keeps its first outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, before_in_run, is_last, repeats
from wheel_udf.common.outcomes import RETRIED
from wheel_udf.shard.rows import (
    CANCEL,
    COMMAND,
    COMMAND_SCHEMA,
    ENTRY_SCHEMA,
    FAR,
    MEMORY_SCHEMA,
    RETRY,
    SCHEDULE,
    Int64s,
    asked_ms,
)
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.ambiguous import count_ambiguous
from wheel_udf.wheel.known import ENDED, FIRED, IN_STORE, NOTHING, PENDING, WAITING, Known, look_up
from wheel_udf.wheel.late_acts import drop_late_acts
from wheel_udf.wheel.outcomes import records_of, resolve_outcomes, with_ids
from wheel_udf.wheel.policies import NO_POLICIES, Admit, Before, Flight, Policies
from wheel_udf.wheel.version_order import (
    Rows,
    count_spread,
    in_version_order,
    is_later,
    order_of,
    partitions_of,
)

_NONE_REFUSED = COMMAND_SCHEMA.append(pa.field("bound", pa.string())).empty_table()


@dataclass(frozen=True)
class Folded:
    """The result of a fold.

    Attributes:
        winners: Entries that are pending now (``ENTRY_SCHEMA``).
        removed: For each index into the state's entry chunks, the rows that are no longer pending.
        records: Memory records to add (``MEMORY_SCHEMA``).
        counts: How much each outcome rises.
        spread: Number of ids whose versions are offsets of more than one partition.
        ambiguous: Number of schedules without a seq whose version another one has (:mod:`wheel_udf.wheel.ambiguous`).
        far: How many more entries are in the slot store, as reported to this shard.
        refused: Commands that found no room (``COMMAND_SCHEMA`` and ``bound``, the limit that refused them).
        fullest: How full the groups are that new entries came to (see
            :attr:`wheel_udf.wheel.policies.Verdict.fullest`).
    """

    winners: pa.Table
    removed: dict[int, Int64s]
    records: pa.Table
    counts: Counter[str]
    spread: int
    ambiguous: int
    far: int
    refused: pa.Table
    fullest: Mapping[str, int]


NOTHING_FOLDED = Folded(
    winners=ENTRY_SCHEMA.empty_table(),
    removed={},
    records=MEMORY_SCHEMA.empty_table(),
    counts=Counter(),
    spread=0,
    ambiguous=0,
    far=0,
    refused=_NONE_REFUSED,
    fullest={},
)
"""The result of a batch without commands."""


def fold(
    state: ShardState,
    commands: pa.Table,
    now_ms: int,
    memory_ms: int | None,
    *,
    policies: Policies = NO_POLICIES,
    flight: Flight | None = None,
    released: int | None = None,
) -> Folded:
    """Folds the valid commands of a batch into what a shard knows.

    Args:
        state: The shard before the batch.
        commands: ``COMMAND_SCHEMA``, any order, at least one row.
        now_ms: The clock of the batch; decides what is still remembered.
        memory_ms: How long an ended id is remembered; ``None`` for ever.
        policies: Which new entries find room, and what has become of entries that wait elsewhere.
        flight: What has left ahead of its due time; None for nothing.
        released: Most entries released in the batch; None for no bound.
    """
    counts: Counter[str] = Counter()
    far, report = 0, policies.report
    if report is not None:
        commands, far = report.count_ended(commands, counts)
    ended_elsewhere = counts["cancelled"]
    commands = commands.combine_chunks()
    counts[RETRIED] += int((commands["act"].to_numpy() == RETRY).sum())
    ids = pc.dictionary_encode(commands["schedule_id"]).combine_chunks()
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.chunk(0)
    partitions = partitions_of(commands)
    known = look_up(state, ids.dictionary, now_ms, memory_ms)
    rows = in_version_order(commands, ids.indices.to_numpy().astype(np.int64))
    met_elsewhere = []
    if report is not None:
        rows, met_records = report.drop_met(rows, known, now_ms)
        met_elsewhere += [met_records, report.beaten(rows, known, commands)]
    spread = 0 if partitions is None else count_spread(rows, partitions[rows.at], known.partition)
    ambiguous = count_ambiguous(state, commands, rows, known)
    rows = _drop_known(rows, known, counts)
    rows, matched = _drop_older(rows, known, counts)
    rows = _drop_retries(rows, known, commands, counts)
    rows, late = drop_late_acts(rows, known, commands, counts)
    rows = _drop_copies(rows, counts)
    removed = _removed(rows, known)
    refused = _NONE_REFUSED
    fullest: Mapping[str, int] = {}
    if policies.admit is not None:
        before = Before(state, removed, now_ms, released, flight or Flight())
        rows, refused, fullest = _refuse_without_room(rows, known, commands, policies.admit, before, counts)
    winners, records = resolve_outcomes(rows, known, now_ms, counts)
    met = records_of(matched, known.seq[matched], known.rank[matched], known.ended_at[matched], ENDED, known)
    if report is not None:
        report.apply_waiting(state, ended_elsewhere, counts)
    return Folded(
        winners=commands.select(ENTRY_SCHEMA.names).take(pa.array(winners)),
        removed=removed,
        records=with_ids([met, *met_elsewhere, *late, *records], ids.dictionary),
        counts=counts,
        spread=spread,
        ambiguous=ambiguous,
        far=far,
        refused=refused,
        fullest=fullest,
    )


def _removed(rows: Rows, known: Known) -> dict[int, Int64s]:
    """The pending entries that the rows end: for each index into the entry chunks, positions in the chunk."""
    touched = np.unique(rows.code[known.status[rows.code] == PENDING])
    chunks, at = known.chunk[touched], known.row[touched]
    return {int(chunk): np.sort(at[chunks == chunk]) for chunk in np.unique(chunks)}


def _drop_known(rows: Rows, known: Known, counts: Counter[str]) -> Rows:
    """Drops versions that are known already."""
    is_known = known.status[rows.code] != NOTHING
    same_as_known = is_known & (rows.seq == known.seq[rows.code]) & (rows.rank == known.rank[rows.code])
    # Of two equal versions the one that is due first is kept, so one that is here beats one in the store.
    same_as_known &= (known.status[rows.code] != IN_STORE) | (rows.act == FAR)
    _count(counts, rows, same_as_known, "duplicate", "cancel_duplicate")
    return rows.where(~same_as_known)


def _drop_copies(rows: Rows, counts: Counter[str]) -> Rows:
    """Drops versions that occur a second time in the batch.

    Last, because a version that is dropped for another reason is not remembered: its copies count like it, in
    this batch or in the next.
    """
    copies = repeats(rows.code, rows.seq, rows.rank)
    _count(counts, rows, copies, "duplicate", "cancel_duplicate")
    return rows.where(~copies)


def _drop_older(rows: Rows, known: Known, counts: Counter[str]) -> tuple[Rows, Int64s]:
    """Drops versions below the known one; also returns the codes whose waiting CANCEL met its schedule."""
    code = rows.code
    older = (known.status[code] != NOTHING) & is_later(
        (known.seq[code], order_of(known.rank[code])), (rows.seq, order_of(rows.rank))
    )
    met = older & (rows.op == SCHEDULE) & (rows.act != FAR) & (known.status[code] == WAITING)
    matched, first = np.unique(code[met], return_index=True)
    known.status[matched] = ENDED
    meets = len(first)
    counts.update(cancelled=meets, applied=meets, waiting=-meets)
    _count(counts, rows, older, "superseded", "cancel_superseded")
    counts["superseded"] -= meets
    return rows.where(~older), matched


def _drop_retries(rows: Rows, known: Known, commands: pa.Table, counts: Counter[str]) -> Rows:
    """Drops retries: no seq, the due time of the entry that has fired, before any other schedule of the id."""
    candidates = (rows.op == SCHEDULE) & (rows.act == COMMAND) & (known.status[rows.code] == FIRED)
    if not candidates.any():
        return rows
    asked = asked_ms(commands).fill_null(0).to_numpy()[rows.at]
    given = commands["seq_given"].to_numpy()[rows.at]
    once = commands["repeat"].is_null().to_numpy()[rows.at]
    candidates &= ~given & once & (rows.rank == SCHEDULE) & (asked == known.due[rows.code])
    other = (rows.op == SCHEDULE) & ~candidates
    retries = candidates & (before_in_run(other, rows.code) == 0)
    counts["duplicate"] += int(retries.sum())
    return rows.where(~retries)


def _refuse_without_room(
    rows: Rows, known: Known, commands: pa.Table, admit: Admit, before: Before, counts: Counter[str]
) -> tuple[Rows, pa.Table, Mapping[str, int]]:
    """Takes out the schedules that find no room: of an id that was not pending, those after its last CANCEL.

    The versions of an id in one batch are admitted or refused together: without the first, the second would
    have replaced nothing.

    Returns:
        The rows that are left, the refused commands with their ``bound``, and how full the groups are.
    """
    command = (rows.op == SCHEDULE) & (rows.act == COMMAND)
    winner = (rows.op == SCHEDULE) & (rows.act != FAR) & is_last(rows.code)
    is_new = winner & command & ~np.isin(known.status[rows.code], (PENDING, IN_STORE))
    if not is_new.any():
        return rows, _NONE_REFUSED, {}
    staying, new = (commands.take(pa.array(rows.at[which])) for which in (winner & ~is_new, is_new))
    bound_of_code = np.full(len(known.status), -1, np.int8)
    verdict = admit.judge(new, staying, before)
    bound_of_code[rows.code[is_new]] = verdict.refused_by
    cancels_after = before_in_run((rows.op == CANCEL)[::-1], rows.code[::-1])[::-1]
    out = command & (bound_of_code[rows.code] >= 0) & (cancels_after == 0)
    counts["rejected"] += int(out.sum())
    bounds = pa.array(admit.bounds).take(pa.array(bound_of_code[rows.code[out]]))
    refused = commands.take(pa.array(rows.at[out])).append_column("bound", bounds)
    return rows.where(~out), refused, verdict.fullest


def _count(
    counts: Counter[str], rows: Rows, chosen: Bools, schedule_outcome: str, cancel_outcome: str
) -> None:
    """Counts the chosen rows, but for FAR rows: their entries are counted when they end."""
    ops = rows.op[chosen & (rows.act != FAR)]
    cancels = int((ops == CANCEL).sum())
    counts.update({schedule_outcome: len(ops) - cancels, cancel_outcome: cancels})
