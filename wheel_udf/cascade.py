"""One step of one shard: fold the commands, move the clock, cascade, release what is due.

:func:`advance` is a pure function of its arguments: no clock is read, no Spark is needed, and the same arguments give the same answer,
so that a replayed batch repeats itself to the byte. The order of effects at one instant is fixed:

1. commands are folded in version order (:mod:`wheel_udf.fold`): a CANCEL in the batch that would fire wins;
2. the clock moves to the batch's instant, or holds if that lies behind (it never goes backwards);
3. buckets whose slot the clock has reached are opened; what is due leaves, oldest first, up to ``limit``;
4. the rest of the opened buckets, and new entries, are placed by the clock as it is now: an entry comes down a level at a time.

Worked example, ``Wheel(tick_ms=1, size=20, levels=3)``, one entry due at 450::

    clock   0   placed on level 3, slot 1 [400, 800)
    clock 400   that slot is reached: level 2, slot 22 [440, 460)
    clock 440   level 1, slot 450 [450, 451)
    clock 450   due: fired

A clock that jumps from 0 to 450 opens the level-3 bucket and fires the entry at once: no tick between is visited.

Cost: O(1) for a tick with nothing due and nothing new; otherwise O(commands + rows of opened buckets) plus a hash probe of each pending
id when there are commands. Caveat: an entry is released at the first *step* at or after its due time; lateness is the distance between steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.fold import ENDED, FIRED, Folded, count_levels, fold, rank_of
from wheel_udf.gate import Gate
from wheel_udf.limits import Limits
from wheel_udf.memory import remember
from wheel_udf.state import (
    ENTRY_SCHEMA,
    MEMORY_LEVEL,
    MEMORY_SCHEMA,
    SCHEDULE,
    Chunk,
    ShardState,
    Storage,
    asked_ms,
    merged,
    without,
)

OLDEST_FIRST = [("deliver_at_ms", "ascending"), ("schedule_id", "ascending"), ("seq", "ascending")]
"""The order of release within a shard, and of the rows of a batch."""


@dataclass(frozen=True)
class Step:
    """What a step did.

    Attributes:
        state: The next state.
        clock_ms: The clock that the step worked with (it can be ahead of the state's after a quiet step).
        fired: Released entries (``ENTRY_SCHEMA``), oldest first.
        missed: Entries released too late for their ``max_lateness_ms``, oldest first.
        changed: Whether the state must be written.
        spread: Ids that came over several partitions (see :attr:`wheel_udf.fold.Folded.spread`).
        refused: Commands that found no room (see :attr:`wheel_udf.fold.Folded.refused`); ``None`` where there are none.
        fullest: How full it is where new entries came to (see :attr:`wheel_udf.limits.Verdict.fullest`).
    """

    state: ShardState
    clock_ms: int
    fired: pa.Table
    missed: pa.Table
    changed: bool
    spread: int = 0
    refused: pa.Table | None = None
    fullest: Mapping[str, int] = field(default_factory=dict)


def advance(
    state: ShardState,
    rows: pa.Table | None,
    now_ms: int,
    limit: int | None = None,
    *,
    memory_ms: int | None,
    stored: bool = False,
    limits: Limits | None = None,
) -> Step:
    """Advances a shard to ``now_ms`` with a batch of commands.

    Args:
        state: The shard as the last step left it.
        rows: Valid commands (``COMMAND_SCHEMA``), in any order; ``None`` or empty for a plain tick.
        now_ms: The clock; an instant behind the state's holds it.
        limit: Most entries to release, at least 1; ``None`` for no bound. The rest stays due.
        memory_ms: How long ended ids are remembered, from their end; ``None`` for ever.
        stored: Whether entries may wait in a slot store, out of this shard's sight.
        limits: How much may be pending here; ``None`` for no bound.
    """
    clock_ms = now_ms if state.clock_ms is None else max(state.clock_ms, now_ms)
    quiet = rows is None or rows.num_rows == 0
    if quiet and (state.next_due_ms is None or state.next_due_ms > clock_ms):
        nothing = ENTRY_SCHEMA.empty_table()
        return Step(state, clock_ms, nothing, nothing, changed=False)

    gate = Gate(limits, limit) if limits else None
    folded = None if quiet else fold(state, rows, clock_ms, memory_ms, stored=stored, gate=gate)
    storage = Storage(state.wheel)
    levels = Counter(state.levels)
    closed, opened = _open_reached(state, storage, folded, clock_ms, levels)
    due, waiting = _split_due(opened, clock_ms, limit)
    fired, missed = _split_missed(due, clock_ms)

    counts = dict(state.counts)
    for outcome, more in (folded.counts if folded else {}).items():
        counts[outcome] += more
    counts["fired"] += fired.num_rows
    counts["missed"] += missed.num_rows
    levels.subtract(count_levels(due))

    records = [
        *([folded.records] if folded else []),
        _released(fired, FIRED, clock_ms),
        _released(missed, ENDED, clock_ms),
    ]
    memory = remember(
        state.memory_chunks,
        pa.concat_tables(records),
        clock_ms,
        memory_ms,
        level=MEMORY_LEVEL,
        time_column="ended_at_ms",
    )
    entries = merged([*closed, *storage.place(waiting, clock_ms)])
    far = state.far + (folded.far if folded else 0)
    after = state.with_chunks(clock_ms, far, counts, levels, entries, memory)
    if folded is None:
        return Step(after, clock_ms, fired, missed, changed=True)
    return Step(
        after,
        clock_ms,
        fired,
        missed,
        changed=True,
        spread=folded.spread,
        refused=folded.refused if folded.refused.num_rows else None,
        fullest=folded.fullest,
    )


def _open_reached(
    state: ShardState, storage: Storage, folded: Folded | None, clock_ms: int, levels: Counter[int]
) -> tuple[list[Chunk], pa.Table]:
    """Splits the shard's entries into chunks that stay closed and rows to work on: reached buckets, and new entries.

    What the fold has added and removed is counted into `levels`.
    """
    closed: list[Chunk] = []
    opened: list[pa.Table] = []
    for number, chunk in enumerate(state.entry_chunks):
        gone = folded.removed.get(number) if folded else None
        reached = storage.reached(chunk, clock_ms)
        if gone is None and not reached:
            closed.append(chunk)
            continue
        all_gone = gone is not None and len(gone) == chunk.rows
        if all_gone and not state.levels:
            continue
        rest = chunk.table()
        if gone is not None:
            levels.subtract(count_levels(rest.take(pa.array(gone))))
            rest = without(rest, gone)
        if all_gone:
            continue
        if reached:
            opened.append(rest)
        else:
            closed.append(Chunk.of_entries(chunk.level, chunk.group, rest))
    if folded:
        opened.append(folded.winners)
        levels.update(count_levels(folded.winners))
        levels.update(folded.far_levels)
    return closed, pa.concat_tables(opened) if opened else ENTRY_SCHEMA.empty_table()


def _split_due(entries: pa.Table, clock_ms: int, limit: int | None) -> tuple[pa.Table, pa.Table]:
    """Splits into what is released now, oldest first, and what stays."""
    is_due = pc.less_equal(entries["deliver_at_ms"], clock_ms)
    due, later = entries.filter(is_due), entries.filter(pc.invert(is_due))
    due = due.take(pc.sort_indices(due, sort_keys=OLDEST_FIRST))
    if limit is None or due.num_rows <= limit:
        return due, later
    return due.slice(0, limit), pa.concat_tables([due.slice(limit), later])


def _split_missed(due: pa.Table, clock_ms: int) -> tuple[pa.Table, pa.Table]:
    if due["max_lateness_ms"].null_count == due.num_rows:
        return due, due.slice(0, 0)
    # What is due lies behind the clock, so the distance fits into 64 bits without a sign, wherever in int64 the two are.
    lateness_ms = np.uint64(clock_ms % 2**64) - due["deliver_at_ms"].to_numpy().astype(np.uint64)
    bound_ms = due["max_lateness_ms"].fill_null(0).to_numpy().astype(np.uint64)
    on_time = due["max_lateness_ms"].is_null().to_numpy() | (lateness_ms <= bound_ms)
    return due.filter(pa.array(on_time)), due.filter(pa.array(~on_time))


def _released(entries: pa.Table, status: int, clock_ms: int) -> pa.Table:
    rows = entries.num_rows
    due = asked_ms(entries) if status == FIRED else pa.nulls(rows, pa.int64())
    rank = rank_of(entries["amend"].to_numpy(), SCHEDULE)
    ended, now = (pa.array(np.full(rows, value)) for value in (status, clock_ms))
    columns = [entries["schedule_id"], entries["seq"], pa.array(rank), ended, due, now]
    return pa.table(columns, names=MEMORY_SCHEMA.names).cast(MEMORY_SCHEMA)
