"""One step of one shard: fold the commands, move the clock, cascade, release what is due.

:func:`advance` is a pure function: it reads no clock and needs no Spark, and the same arguments give the same
result, so a replayed batch writes the same bytes. The order of effects at one instant is fixed:

1. Commands are folded in version order (:mod:`wheel_udf.wheel.versions`). So a CANCEL that comes in the batch
   in which its entry would fire still cancels it. Then FIRE_NOW commands make due what is left
   (:mod:`wheel_udf.wheel.fire_now`).
2. The clock moves to the batch's instant, or stays if that is earlier: it never goes backwards.
3. Buckets whose slot the clock has reached are opened. Due entries of these buckets, and those that an earlier sender
   has left, are released, oldest first, up to ``limit``. Entries that are due soon after may leave, too
   (``policies.hold``): they are handed over ahead.
4. The rest of the opened buckets (the cascade), and new entries, are placed by the new clock
   (:mod:`wheel_udf.wheel.buckets`).

Worked example, ``Wheel(tick_ms=1, size=20, levels=3)``, one entry due at 450::

    clock   0   placed on level 3, slot 1 [400, 800)
    clock 400   that slot is reached: level 2, slot 22 [440, 460)
    clock 440   level 1, slot 450 [450, 451)
    clock 450   due: fired

A clock that jumps from 0 to 450 opens the level-3 bucket and fires the entry at once: the ticks in between
are not visited.

Cost: of a tick with nothing due and nothing new, a look at the directory of the chunks; otherwise O(commands + rows of
opened chunks), whatever the number of pending entries. A command reads the keys of the row in which its id is
(:mod:`wheel_udf.wheel.known`), and a removed row is noted in its chunk (:meth:`~wheel_udf.shard.chunks.Chunk.less`).
Under a ``limit`` a batch opens the chunks that hold its oldest due rows, and the rest of a backlog stays closed, also
the buckets that would move down a level. Only the directory grows with the number of chunks.

Caveat: an entry is released by the first *step* at or after its due time, so lateness is at most the distance between
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.rows import ENTRY_SCHEMA, Int64s, unheld_ms, with_columns, without
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.buckets import Buckets, is_wanted, merged
from wheel_udf.wheel.fire_now import fire_now
from wheel_udf.wheel.known import ENDED, FIRED, released
from wheel_udf.wheel.memory import remember
from wheel_udf.wheel.policies import NO_POLICIES, Policies
from wheel_udf.wheel.releases import RELEASE_SCHEMA, release
from wheel_udf.wheel.versions import NOTHING_FOLDED, Folded, fold


@dataclass(frozen=True)
class Step:
    """What a step did.

    Attributes:
        state: The next state.
        clock_ms: The clock of the step (after a quiet step it can be ahead of the clock in the state).
        fired: Released entries (``RELEASE_SCHEMA``), oldest first.
        missed: Entries released too late for their ``max_lateness_ms``, oldest first; then dropped occurrences.
        changed: Whether the state must be written.
        spread: Number of ids that came over several partitions (see
            :attr:`wheel_udf.wheel.versions.Folded.spread`).
        ambiguous: Number of schedules without a seq that say something else than another one of their version.
        refused: Commands that found no room (see :attr:`wheel_udf.wheel.versions.Folded.refused`); ``None``
            where there are none.
        fullest: How full the groups are that new entries came to (see
            :attr:`wheel_udf.wheel.policies.Verdict.fullest`).
        handed: Entries handed to the sender of the query ahead of their due time, oldest first.
        confirmed: Number of entries in flight that have fired, as the sender has confirmed.
        dead: Entries that came back and are not tried again (``ENTRY_SCHEMA``).
    """

    state: ShardState
    clock_ms: int
    fired: pa.Table
    missed: pa.Table
    changed: bool
    spread: int = 0
    ambiguous: int = 0
    refused: pa.Table | None = None
    fullest: Mapping[str, int] = field(default_factory=dict)
    handed: pa.Table = field(default_factory=ENTRY_SCHEMA.empty_table)
    confirmed: int = 0
    dead: pa.Table = field(default_factory=ENTRY_SCHEMA.empty_table)


def advance(
    state: ShardState,
    rows: pa.Table | None,
    now_ms: int,
    limit: int | None = None,
    *,
    memory_ms: int | None,
    policies: Policies = NO_POLICIES,
    fires: pa.Table | None = None,
) -> Step:
    """Advances a shard to ``now_ms`` with a batch of commands.

    Args:
        state: The shard as the last step left it.
        rows: Valid commands (``COMMAND_SCHEMA``), in any order; ``None`` or empty for a plain tick.
        now_ms: The clock; an instant before the clock of the state leaves it where it is.
        limit: Most entries to release; ``None`` for no bound, 0 for a batch that releases none. The rest stays due.
        memory_ms: How long ended ids are remembered, from their end; ``None`` for ever.
        policies: Which new entries find room, which leave ahead of their due time, what became of those elsewhere.
        fires: FIRE_NOW commands (``COMMAND_SCHEMA``); ``None`` or empty for none.
    """
    clock_ms = now_ms if state.clock_ms is None else max(state.clock_ms, now_ms)
    quiet = rows is None or rows.num_rows == 0
    has_fires = fires is not None and fires.num_rows > 0
    hold = policies.hold
    if quiet and not has_fires and hold.has_no_work(state, clock_ms):
        nothing = RELEASE_SCHEMA.empty_table()
        return Step(state, clock_ms, nothing, nothing, changed=False)

    flight = hold.flight(state)
    folded = NOTHING_FOLDED
    if not quiet:
        # Behind a gate nobody knows yet what leaves.
        sure = limit if policies.gate is None else 0
        folded = fold(state, rows, clock_ms, memory_ms, policies=policies, flight=flight, released=sure)
    folded, dead = _without_dead(folded)
    if has_fires:
        folded = fire_now(state, folded, fires, clock_ms, memory_ms)
    buckets = Buckets(state.wheel)
    horizon_ms = hold.horizon_ms(clock_ms)
    pending = state.pending + folded.winners.num_rows
    wanted = limit
    while True:
        latest_ms = _latest_needed([*state.entry_chunks, *flight.loose], folded.removed, clock_ms, wanted)
        closed, opened = _open_reached(state, buckets, folded, horizon_ms, latest_ms)
        flying, again = flight.opened(horizon_ms, latest_ms)
        leaving = release(again, opened, clock_ms, limit, policies, tokens=state.tokens, pending=pending)
        if not wanted or latest_ms == INT64_MAX or policies.gate is None or leaving.released >= (limit or 0):
            break
        # What the gate holds back is not to keep others of the backlog from leaving.
        wanted *= _MORE
    room = None if limit is None else limit - leaving.released
    handed = hold.hand_over(leaving.flown, leaving.waiting, clock_ms, room)
    fired, missed = (_once(rows, policies) for rows in (leaving.fired, leaving.missed))

    counts = dict(state.counts)
    for outcome, more in folded.counts.items():
        counts[outcome] += more
    counts["fired"] += fired.num_rows + flight.confirmed
    counts["missed"] += missed.num_rows
    counts["ended"] += leaving.ended.num_rows
    counts["dead"] += dead.num_rows
    for outcome, more in leaving.counts.items():
        counts[outcome] += more

    records = [
        folded.records,
        released(fired, FIRED, clock_ms),
        released(missed, ENDED, clock_ms),
        released(leaving.ended, ENDED, clock_ms),
        released(dead, ENDED, clock_ms),
        released(handed.new, FIRED, handed.new["deliver_at_ms"].to_numpy()),
    ]
    memory = remember(
        state.memory_chunks,
        pa.concat_tables(records),
        clock_ms,
        memory_ms,
        level=MEMORY_LEVEL,
        time_column="ended_at_ms",
    )
    entries = merged([*closed, *_placed(handed.waiting, buckets, clock_ms, horizon_ms)], clock_ms=clock_ms)
    entries += [*flying, *handed.chunks]
    after = state.with_chunks(
        clock_ms, state.far + folded.far, counts, entries, memory, tokens=leaving.tokens or ""
    )
    return Step(
        after,
        clock_ms,
        leaving.fired,
        leaving.missed,
        changed=True,
        spread=folded.spread,
        ambiguous=folded.ambiguous,
        refused=folded.refused if folded.refused.num_rows else None,
        fullest=folded.fullest,
        handed=handed.entries,
        confirmed=flight.confirmed,
        dead=dead,
    )


_MORE: Final = 8
"""How many times more entries are opened when a gate has held back some of those that a limit lets through."""


def _without_dead(folded: Folded) -> tuple[Folded, pa.Table]:
    """Takes out the new entries that are dead letters; nothing holds them back any more."""
    reasons = folded.winners["dead_reason"]
    if reasons.null_count == len(reasons):
        return folded, folded.winners.slice(0, 0)
    dead = folded.winners.filter(reasons.is_valid())
    due_ms = unheld_ms(dead)
    dead = with_columns(dead, deliver_at_ms=due_ms, held_ms=pa.nulls(dead.num_rows, pa.int64()))
    return replace(folded, winners=folded.winners.filter(reasons.is_null())), dead


def _open_reached(
    state: ShardState, buckets: Buckets, folded: Folded, horizon_ms: int, latest_ms: int
) -> tuple[list[Chunk], pa.Table]:
    """Splits the entries of a shard into chunks that stay closed and open rows: those of reached buckets, and
    new entries.

    Of chunks that begin after `latest_ms` nothing can leave with this batch.
    """
    closed: list[Chunk] = []
    opened = [folded.winners]
    for number, chunk in enumerate(state.entry_chunks):
        removed = folded.removed.get(number)
        if removed is not None and len(removed) == chunk.rows:
            continue
        if is_wanted(chunk, latest_ms) and buckets.reached(chunk, horizon_ms):
            table = chunk.table()
            opened.append(table if removed is None else without(table, removed))
        else:
            closed.append(chunk if removed is None else chunk.less(removed))
    return closed, pa.concat_tables(opened)


def _latest_needed(
    chunks: Sequence[Chunk], removed: Mapping[int, Int64s], clock_ms: int, limit: int | None
) -> int:
    """The due time after which no entry can leave with this batch, because ``limit`` entries are due before.

    `removed` has rows of the first chunks, by their index.
    """
    if limit is None:
        return INT64_MAX
    ends = sorted(
        (chunk.high_ms, chunk.rows - len(removed.get(number, ())))
        for number, chunk in enumerate(chunks)
        if chunk.high_ms <= clock_ms
    )
    due = 0
    for high_ms, rows in ends:
        due += rows
        if due >= limit:
            return high_ms
    return INT64_MAX


def _placed(entries: pa.Table, buckets: Buckets, clock_ms: int, horizon_ms: int) -> list[Chunk]:
    """Places the entries that stay, those before the horizon apart from the rest: each batch opens them."""
    if horizon_ms == clock_ms:
        return buckets.place(entries, clock_ms)
    passed = pc.less_equal(entries["deliver_at_ms"], horizon_ms)
    return [
        *buckets.place(entries.filter(passed), clock_ms),
        *buckets.place(entries.filter(pc.invert(passed)), horizon_ms),
    ]


def _once(rows: pa.Table, policies: Policies) -> pa.Table:
    """Released rows whose entries are over with them: those that are not of series."""
    if policies.repeat is None or rows["repeat"].null_count == rows.num_rows:
        return rows
    return rows.filter(rows["repeat"].is_null())
