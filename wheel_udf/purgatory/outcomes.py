"""Settles operations: applies the events of a step to them, and ends those whose end lies before the clock.

Works in rounds. In a round each operation learns from the timelines what lies in its window, and is judged:
completed, cancelled, or expired at its deadline. Operations that go on (an extended join, a heartbeat with a
beat, a next generation) enter the next round with a new window on the same events; the others are finished::

    round 1   a: completed at 7   b: beat at 5, deadline 15 -> round 2   b: no further beat, waits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s, runs_of
from wheel_udf.common.outcomes import CANCELLED, COMPLETED, EXPIRED
from wheel_udf.purgatory.generations import extend_joins, rearm_heartbeats, rest, wake
from wheel_udf.purgatory.operations import Operations
from wheel_udf.purgatory.state import BEAT, ENDED_SCHEMA, NEVER, SUM, named
from wheel_udf.purgatory.timeline import Timeline, Timelines

OUTCOME_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("op_id", pa.string()),
        ("generation", pa.int32()),
        ("outcome", pa.string()),
        ("by_key", pa.string()),
        ("at_ms", pa.int64()),
        ("present", pa.string()),
        ("missing", pa.string()),
        ("destination", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("source", pa.string()),
    ]
)
"""An outcome. ``by_key``: the key that completed or cancelled the operation; ``present``, ``missing``: its
keys with and without an event, joined by NUL."""

_PAYLOAD = ("destination", "key", "value", "headers", "source")


@dataclass(frozen=True)
class Resolved:
    """The result of settling some operations.

    Attributes:
        outcomes: ``OUTCOME_SCHEMA``.
        ended: Operations that ended for good, ``ENDED_SCHEMA``.
        waiting: Operations that are still open, ``OPERATION_SCHEMA``.
        resting: Operations between two generations, ``OPERATION_SCHEMA``.
        generations: Number of generations started, first ones not counted.
    """

    outcomes: pa.Table
    ended: pa.Table
    waiting: pa.Table
    resting: pa.Table
    generations: int

    @staticmethod
    def of(parts: Sequence[Resolved]) -> Resolved:
        """Several results as one."""
        outcomes, ended, waiting, resting = (
            pa.concat_tables(getattr(part, name) for part in parts)
            for name in ("outcomes", "ended", "waiting", "resting")
        )
        return Resolved(outcomes, ended, waiting, resting, sum(part.generations for part in parts))


@dataclass(frozen=True)
class _Verdict:
    """How and when each operation ends, as far as is known: completed, cancelled, or else expired at its deadline.

    Attributes:
        completed: Mask of the completed.
        cancelled: Mask of the cancelled.
        at_ms: Instant of the end.
        by: Place, among the flat keys, of the key that completed or cancelled it; -1 for none.
    """

    completed: Bools
    cancelled: Bools
    at_ms: Int64s
    by: Int64s


def resolve_outcomes(
    operations: Operations, lines: Timelines, clock_ms: int, memory_ms: int | None
) -> Resolved:
    """Applies events to operations, and ends those whose end lies before the clock.

    Args:
        operations: Open operations.
        lines: The events.
        clock_ms: The clock.
        memory_ms: How long a resting operation can be woken; ``None`` for ever.
    """
    parts: list[Resolved] = []
    while True:
        part, going_on = _round(operations, lines, clock_ms, memory_ms)
        parts.append(part)
        if not going_on.num_rows:
            break
        operations = Operations(going_on)
    return Resolved.of(parts)


def _round(
    operations: Operations, lines: Timelines, clock_ms: int, memory_ms: int | None
) -> tuple[Resolved, pa.Table]:
    """One round: the result for the operations that are finished, and the table of those that go on."""
    _learn(operations, lines)
    woken, gone, gone_at_ms = wake(operations, clock_ms, memory_ms)
    ended = _ends(operations, gone_at_ms, gone, clock_ms)
    beaten = rearm_heartbeats(operations, ~woken)
    verdict = _judge(operations)
    decided = ~(woken | beaten | operations.at_rest) & (verdict.at_ms < clock_ms)
    extended = extend_joins(operations, decided & ~verdict.completed & ~verdict.cancelled)
    ends = decided & ~extended
    outcomes = _outcomes(operations, verdict, ends)
    ends_for_good = ends & (verdict.cancelled | ~operations.goes_on)
    ended = pa.concat_tables([ended, _ends(operations, verdict.at_ms, ends_for_good, clock_ms)])
    rests = ends & ~ends_for_good
    rest(operations, verdict.at_ms, rests)
    goes_on = woken | beaten | extended | rests
    stays = ~(goes_on | gone | ends_for_good)
    look_at_ms = np.where(operations.at_rest, 0, verdict.at_ms + 1)
    part = Resolved(
        outcomes=outcomes,
        ended=ended,
        waiting=operations.written(stays & ~operations.at_rest, look_at_ms),
        resting=operations.written(stays & operations.at_rest, look_at_ms),
        generations=int(woken.sum()),
    )
    return part, operations.written(goes_on, look_at_ms)


def _learn(operations: Operations, lines: Timelines) -> None:
    """Applies the events in the windows of operations. Idempotent but for sums, which never enter a second round."""
    groups, ids = (operations.table[name].combine_chunks() for name in ("group", "op_id"))
    keys = named(groups.take(pa.array(operations.of)), operations.keys)
    of_events, of_cancels = lines.happened.codes(keys), lines.cancelled.codes(keys)
    to_ms = np.where(operations.at_rest, NEVER, operations.deadline_ms)
    at = np.flatnonzero((of_events >= 0) | (of_cancels >= 0))
    of = operations.of[at]
    window = operations.from_ms[of], to_ms[of]
    first, last = lines.happened.ranges(of_events[at], *window)
    beats = (operations.need[of] == BEAT) & ~operations.at_rest[of]
    happened = np.where(beats, lines.happened.last(first, last), lines.happened.first(first, last))
    since = operations.cancellable_from[of], to_ms[of]
    cancelled = lines.cancelled.first(*lines.cancelled.ranges(of_cancels[at], *since))
    operations.done_ms[at] = np.minimum(operations.done_ms[at], happened)
    operations.key_cancel_ms[at] = np.minimum(operations.key_cancel_ms[at], cancelled)

    of_operations = lines.operations.codes(named(groups, ids))
    rows = np.flatnonzero(of_operations >= 0)
    window = operations.cancellable_from[rows], to_ms[rows]
    cancelled = lines.operations.first(*lines.operations.ranges(of_operations[rows], *window))
    operations.cancel_at_ms[rows] = np.minimum(operations.cancel_at_ms[rows], cancelled)

    sums = (operations.need[of] == SUM) & (last > first)
    _add(operations, lines.happened, at[sums], first[sums], last[sums])


def _add(operations: Operations, line: Timeline, at: Int64s, first: Int64s, last: Int64s) -> None:
    """Adds amounts to running sums in time order, and records where a sum crosses its threshold.

    Pass k adds the k-th event of every operation. So the order of additions is that of times wherever batches
    end, and the last bit of a sum does not depend on batches.
    """
    sizes = last - first
    event = runs_of(first, sizes)
    watch = np.repeat(at, sizes)
    of, position = operations.of[watch], operations.position[watch]
    order = np.lexsort((line.amount[event], position, line.time_ms[event], of))
    event, of, position = event[order], of[order], position[order]
    starts = np.flatnonzero(np.r_[True, np.diff(of) != 0][: len(of)])
    lengths = np.diff(np.r_[starts, len(of)])
    for place in range(int(lengths.max(initial=0))):
        row = starts[lengths > place] + place
        operation = of[row]
        operations.total[operation] += line.amount[event[row]]
        crosses = (operations.total[operation] >= operations.threshold[operation]) & (
            operations.crossed_at_ms[operation] == NEVER
        )
        operations.crossed_at_ms[operation[crosses]] = line.time_ms[event[row[crosses]]]
        operations.crossed_by[operation[crosses]] = position[row[crosses]]


def _judge(operations: Operations) -> _Verdict:
    """Decides how and when each operation ends, as known now. Meaningless for operations at rest."""
    need, starts = operations.need, operations.offsets[:-1]
    lengths = np.diff(operations.offsets)
    by_time = np.lexsort((operations.position, operations.done_ms, operations.of))
    nth = by_time[starts + np.clip(need, 1, lengths) - 1]
    done_ms = np.where(
        need >= 1, operations.done_ms[nth], np.where(need == SUM, operations.crossed_at_ms, NEVER)
    )
    done_ms = np.maximum(done_ms, operations.event_time_ms)

    happened, cancel = (
        operations.effective(operations.done_ms),
        operations.effective(operations.key_cancel_ms),
    )
    # A satisfied key is no longer watched, so a later cancel of it has no effect; keys of a sum are never satisfied.
    cancel = np.where((need[operations.of] < 1) | (happened > cancel), cancel, NEVER)
    first = np.lexsort((operations.position, cancel, operations.of))[starts]
    key_cancel_ms = cancel[first]
    own_cancel_ms = np.maximum(operations.cancel_at_ms, operations.event_time_ms)
    cancel_ms = np.minimum(key_cancel_ms, own_cancel_ms)

    completed = (done_ms != NEVER) & (done_ms <= cancel_ms)
    cancelled = ~completed & (cancel_ms != NEVER)
    at_ms = np.where(completed, done_ms, np.where(cancelled, cancel_ms, operations.deadline_ms))
    by_key = np.where(need >= 1, nth, starts + operations.crossed_by)
    canceller = np.where(key_cancel_ms < own_cancel_ms, first, -1)
    by = np.where(completed, by_key, np.where(cancelled, canceller, -1))
    return _Verdict(completed, cancelled, at_ms, by)


# --- results --------------------------------------------------------------------------------------


def _outcomes(operations: Operations, verdict: _Verdict, which: Bools) -> pa.Table:
    rows = pa.array(np.flatnonzero(which))
    kind = np.where(verdict.completed, COMPLETED, np.where(verdict.cancelled, CANCELLED, EXPIRED))[which]
    came = operations.effective(operations.done_ms) <= verdict.at_ms[operations.of]
    by = pa.array(verdict.by[which], mask=verdict.by[which] < 0)
    columns = {
        **{name: operations.table[name].take(rows) for name in ("group", "op_id", *_PAYLOAD)},
        "generation": operations.generation[which],
        "outcome": kind.astype(object),
        "by_key": operations.keys.take(by),
        "at_ms": verdict.at_ms[which],
        "present": _joined(operations, which, came),
        "missing": _joined(operations, which, ~came),
    }
    return pa.table([columns[name] for name in OUTCOME_SCHEMA.names], schema=OUTCOME_SCHEMA)


def _joined(operations: Operations, which: Bools, keys: Bools) -> pa.Array:
    """The selected keys of the selected operations, as one text per operation."""
    keys = keys & which[operations.of]
    counts = np.bincount(operations.of[keys], minlength=len(operations))[which]
    offsets = pa.array(np.r_[0, np.cumsum(counts)], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, operations.keys.filter(pa.array(keys)))
    return pc.binary_join(lists, "\0")


def _ends(operations: Operations, at_ms: Int64s, which: Bools, clock_ms: int) -> pa.Table:
    rows = pa.array(np.flatnonzero(which))
    columns = [operations.table[name].take(rows) for name in ("group", "op_id", "op_hash")]
    columns += [pa.array(at_ms[which]), pa.array(np.full(len(rows), clock_ms))]
    return pa.table(columns, schema=ENDED_SCHEMA)
