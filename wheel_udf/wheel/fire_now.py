"""FIRE_NOW: what waits under an id is due now.

A FIRE_NOW is no version of its id. It takes effect after the other commands of its batch, on the entry that they leave,
if the ``seq`` of that entry is not above its own; that is what its place in the order of versions would give, because
nothing is released before the clock moves::

    waits, after the batch's commands       FIRE_NOW 2      outcome
    entry 1 or 2                            due now         applied; the entry fires with this batch, or when the limit
                                                            of the batch has room
    entry 3                                 -               late: what it was meant for has been replaced
    nothing: fired, cancelled, unknown      -               late
    a paused series, or one that is over    -               late
    in flight, with the sender              -               late

The due time of an entry becomes the clock, unless it was due before; a series keeps the nominal time of its occurrence,
and goes on with the one after it. Version and payload stay. Of several FIRE_NOW of an id the one with the highest
``seq`` counts, the others are late. Nothing is remembered: one that is read before its SCHEDULE is late.

Cost: the chunks of these entries are opened.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.shard.rows import FIRE_NOW, PAUSED_MS, asked_ms, unheld_ms, with_columns
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.known import PENDING, look_up
from wheel_udf.wheel.versions import Folded


def split_fires(commands: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The commands with a version of their own, and those that are FIRE_NOW."""
    is_fire = pc.equal(commands["act"], FIRE_NOW)
    if not pc.any(is_fire).as_py():
        return commands, commands.slice(0, 0)
    return commands.filter(pc.invert(is_fire)), commands.filter(is_fire)


def fire_now(
    state: ShardState, folded: Folded, fires: pa.Table, clock_ms: int, memory_ms: int | None
) -> Folded:
    """Makes due what FIRE_NOW commands are for.

    Args:
        state: The shard before the batch.
        folded: The result of the other commands of the batch.
        fires: The commands (``COMMAND_SCHEMA``), at least one.
        clock_ms: The clock of the batch.
        memory_ms: As for the fold.

    Returns:
        `folded` with the entries that are due now among the winners.
    """
    ids, seq = _highest(fires)
    known = look_up(state, ids, clock_ms, memory_ms)
    winner = pc.index_in(ids, value_set=folded.winners["schedule_id"].combine_chunks())
    is_winner = winner.is_valid().to_numpy(zero_copy_only=False)
    at = winner.fill_null(0).to_numpy()
    removed = dict(folded.removed)
    taken = [folded.winners.take(pa.array(at[is_winner]))]
    seqs, kept = [seq[is_winner]], np.ones(folded.winners.num_rows, bool)
    waits = (known.status == PENDING) & ~is_winner & (known.seq <= seq)
    for number in np.unique(known.chunk[waits]).tolist():
        codes = np.flatnonzero(waits & (known.chunk == number))
        before = removed.get(number, np.zeros(0, np.int64))
        codes = codes[~np.isin(known.row[codes], before)]
        rows = state.entry_chunks[number].table().take(pa.array(known.row[codes]))
        is_live = _goes_on(rows)
        taken.append(rows.filter(pa.array(is_live)))
        seqs.append(seq[codes[is_live]])
        if is_live.any():
            removed[number] = np.sort(np.r_[before, known.row[codes[is_live]]])
    of_winners = (taken[0]["seq"].to_numpy() <= seqs[0]) & _goes_on(taken[0])
    kept[at[is_winner][of_winners]] = False
    taken[0] = taken[0].filter(pa.array(of_winners))
    due = _due_now(pa.concat_tables(taken), clock_ms)
    counts = folded.counts.copy()
    counts.update(fire_applied=due.num_rows, fire_late=fires.num_rows - due.num_rows)
    winners = pa.concat_tables([folded.winners.filter(pa.array(kept)), due])
    return replace(folded, winners=winners, removed=removed, counts=counts)


def _highest(fires: pa.Table) -> tuple[pa.Array, Int64s]:
    """The distinct ids, and the highest seq of each."""
    best = fires.group_by("schedule_id", use_threads=False).aggregate([("seq", "max")])
    return best["schedule_id"].combine_chunks(), best["seq_max"].to_numpy()


def _goes_on(rows: pa.Table) -> Bools:
    """All but paused series, and those that were begun without any occurrence."""
    is_over = pc.less_equal(asked_ms(rows), rows["last_ms"])
    stands = pc.or_kleene(pc.equal(rows["deliver_at_ms"], PAUSED_MS), is_over)
    return np.asarray(pc.invert(pc.and_kleene(rows["repeat"].is_valid(), stands)).to_numpy(), bool)


def _due_now(rows: pa.Table, clock_ms: int) -> pa.Table:
    """The rows with the clock as their due time, if it is earlier; an act would leave them so, too."""
    later = pc.greater(rows["deliver_at_ms"], clock_ms)
    # What is held back keeps its requested time: only the wait ends.
    is_held = pc.and_(later, rows["held_ms"].is_valid())
    held_ms = pc.if_else(is_held, pc.subtract(clock_ms, unheld_ms(rows)), rows["held_ms"])
    rows = with_columns(
        rows, deliver_at_ms=pc.if_else(is_held, clock_ms, rows["deliver_at_ms"]), held_ms=held_ms
    )
    later = pc.and_(later, pc.invert(is_held))
    moved_ms = pc.if_else(rows["repeat"].is_valid(), pc.subtract(clock_ms, asked_ms(rows)), None)
    return with_columns(
        rows,
        deliver_at_ms=pc.if_else(later, clock_ms, rows["deliver_at_ms"]),
        level_error_ms=pc.if_else(later, moved_ms, rows["level_error_ms"]),
        delay_level_ms=pc.if_else(later, None, rows["delay_level_ms"]),
    )
