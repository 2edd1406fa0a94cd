"""What a step works on: open operations as arrays, the events of the step by key and time, and the rounds in which they are settled.

::

    operations        keys (flat)        happened, by key and time
    a  needs 2    ->  a x   a y   a z    x: 3 7    y: 5    z:
    b  sum >= 10  ->  b x                                       window of b: [4, 9]  ->  the 7

A key is looked up once; the events in an operation's window are a range of the sorted events, found by two binary searches. So the first and
the last event of a window cost no more than the search, however many events there are on a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.runs import Bools, Int64s
from wheel_udf.watch_state import (
    BEAT,
    CANCEL,
    CANCEL_OPERATION,
    ENDED_SCHEMA,
    EVENT,
    NEVER,
    OPERATION_SCHEMA,
    SUM,
    named,
)

COMPLETED, CANCELLED, EXPIRED = "completed", "cancelled", "expired"

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
"""An outcome. ``by_key``: the key that completed or cancelled it; ``present`` and ``missing``: its keys with and without an event, joined by NUL."""

_ARRAYS = (
    "event_time_ms", "deadline_ms", "need", "threshold", "from_ms", "delay_ms", "limit_delay_ms", "since_ms", "generation", "total",
    "crossed_at_ms", "crossed_by", "cancel_at_ms",
)  # fmt: skip
_PAYLOAD = ("destination", "key", "value", "headers", "source")


class Timeline:
    """Rows of one kind by name and time.

    Args:
        events: ``EVENT_SCHEMA``.
    """

    def __init__(self, events: pa.Table) -> None:
        names = named(events["group"], events["name"]).combine_chunks()
        self._names = pc.unique(names)
        time, amount = events["event_time_ms"].to_numpy(), events["amount"].fill_null(0).to_numpy()
        code = pc.index_in(names, value_set=self._names).to_numpy().astype(np.int64)
        order = np.lexsort((amount, time, code))
        self.time_ms, self.amount = time[order], amount[order]
        self._times = np.unique(time)
        self._place = self._at(code[order], np.searchsorted(self._times, self.time_ms))

    def _at(self, code: Int64s, rank: Int64s) -> Int64s:
        return code * (len(self._times) + 1) + rank

    def codes(self, names: pa.Array) -> Int64s:
        """Numbers of names; -1 for one of which there is nothing."""
        found = pc.fill_null(pc.index_in(names, value_set=self._names), -1)
        return np.asarray(found.to_numpy(), dtype=np.int64)

    def ranges(self, code: Int64s, from_ms: Int64s, to_ms: Int64s) -> tuple[Int64s, Int64s]:
        """Of each name the rows with a time in ``[from_ms, to_ms]``, as a half-open range of places in time order."""
        if not len(self._place):
            return np.zeros_like(code), np.zeros_like(code)
        first = np.searchsorted(
            self._place, self._at(code, np.searchsorted(self._times, from_ms)), side="left"
        )
        last = np.searchsorted(
            self._place, self._at(code, np.searchsorted(self._times, to_ms, side="right")), side="left"
        )
        return np.where(code < 0, 0, first), np.where(code < 0, 0, np.maximum(first, last))

    def first(self, first: Int64s, last: Int64s) -> Int64s:
        """The time of the first row of each range; NEVER for an empty one."""
        return _taken(self.time_ms, first, last > first)

    def last(self, first: Int64s, last: Int64s) -> Int64s:
        """The time of the last row of each range; NEVER for an empty one."""
        return _taken(self.time_ms, last - 1, last > first)


def _taken(times: Int64s, at: Int64s, there: Bools) -> Int64s:
    found = np.full(len(at), NEVER)
    found[there] = times[at[there]]
    return found


class Timelines:
    """The events of a step: what happened on keys, cancels of keys, cancels of operations.

    Args:
        events: ``EVENT_SCHEMA``.
    """

    def __init__(self, events: pa.Table) -> None:
        self.happened, self.cancelled, self.operations = (
            Timeline(events.filter(pc.equal(events["what"], what)))
            for what in (EVENT, CANCEL, CANCEL_OPERATION)
        )


class Operations:
    """Open operations as arrays: one row for each, and flat ones with one for each of their keys.

    Args:
        table: ``OPERATION_SCHEMA``.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        for name in _ARRAYS:
            setattr(self, name, np.array(table[name].to_numpy()))
        keys = table["keys"].combine_chunks()
        self.offsets = (
            keys.offsets.to_numpy().astype(np.int64) - keys.offsets[0].as_py()
            if len(keys)
            else np.zeros(1, np.int64)
        )
        self.keys = keys.flatten()
        lengths = np.diff(self.offsets)
        self.of = np.repeat(np.arange(table.num_rows), lengths)
        self.position = np.arange(len(self.keys)) - np.repeat(self.offsets[:-1], lengths)
        self.done_ms, self.key_cancel_ms = (
            np.array(table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False), dtype=np.int64)
            for name in ("done_at_ms", "key_cancel_at_ms")
        )

    event_time_ms: Int64s
    deadline_ms: Int64s
    need: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    from_ms: Int64s
    delay_ms: Int64s
    limit_delay_ms: Int64s
    since_ms: Int64s
    generation: npt.NDArray[np.int32]
    total: npt.NDArray[np.float64]
    crossed_at_ms: Int64s
    crossed_by: npt.NDArray[np.int32]
    cancel_at_ms: Int64s

    def __len__(self) -> int:
        return len(self.need)

    @property
    def goes_on(self) -> Bools:
        """Which have further generations."""
        return np.asarray((self.limit_delay_ms > 0) | (self.need == BEAT), dtype=np.bool_)

    @property
    def at_rest(self) -> Bools:
        """Which are between two generations."""
        return np.asarray(self.event_time_ms == NEVER, dtype=np.bool_)

    @property
    def cancellable_from(self) -> Int64s:
        """From when on cancels count: of a heartbeat, whose window follows its beats, still from its beginning."""
        return np.minimum(self.from_ms, np.where(self.at_rest, NEVER, self.event_time_ms))

    def effective(self, flat_ms: Int64s) -> Int64s:
        """Times on keys as they count: what was before an operation counts as of its own time."""
        effective: Int64s = np.maximum(flat_ms, self.event_time_ms[self.of])
        return effective

    def least(self, flat: Int64s) -> Int64s:
        """Of each operation the least value of its keys."""
        found: Int64s = np.minimum.reduceat(flat, self.offsets[:-1]) if len(self) else np.zeros(0, np.int64)
        return found

    def written(self, rows: Bools, look_at_ms: Int64s) -> pa.Table:
        """Some of them as ``OPERATION_SCHEMA`` again."""
        offsets = pa.array(self.offsets, pa.int32())
        columns = {name: self.table[name] for name in OPERATION_SCHEMA.names}
        columns |= {name: pa.array(getattr(self, name)) for name in _ARRAYS}
        columns |= {
            "done_at_ms": pa.ListArray.from_arrays(offsets, pa.array(self.done_ms)),
            "key_cancel_at_ms": pa.ListArray.from_arrays(offsets, pa.array(self.key_cancel_ms)),
            "look_at_ms": pa.array(look_at_ms),
        }
        table = pa.table([columns[name] for name in OPERATION_SCHEMA.names], schema=OPERATION_SCHEMA)
        return table.filter(pa.array(rows))


@dataclass(frozen=True)
class Settled:
    """What came of some operations.

    Attributes:
        outcomes: ``OUTCOME_SCHEMA``.
        ended: Of those that have no further generation, ``ENDED_SCHEMA``.
        waiting: Those that are open, ``OPERATION_SCHEMA``.
        resting: Those between two generations, ``OPERATION_SCHEMA``.
        generations: How many have begun that were not the first.
    """

    outcomes: pa.Table
    ended: pa.Table
    waiting: pa.Table
    resting: pa.Table
    generations: int

    @staticmethod
    def of(parts: Sequence[Settled]) -> Settled:
        """What came of several."""
        outcomes, ended, waiting, resting = (
            pa.concat_tables(getattr(part, name) for part in parts)
            for name in ("outcomes", "ended", "waiting", "resting")
        )
        return Settled(outcomes, ended, waiting, resting, sum(part.generations for part in parts))


@dataclass(frozen=True)
class _Verdict:
    """When each operation ends, as far as is known: as completed, as cancelled, or else at its deadline."""

    completed: Bools
    cancelled: Bools
    at_ms: Int64s
    by: Int64s


def rested_until(from_ms: Int64s, memory_ms: int | None) -> Int64s:
    """The last instant at which something wakes operations at rest, that have rested from these instants on."""
    return np.full(len(from_ms), NEVER) if memory_ms is None else from_ms - 1 + memory_ms


def settle(operations: Operations, lines: Timelines, clock_ms: int, memory_ms: int | None) -> Settled:
    """Lets events happen to operations, and ends those whose end is behind the clock.

    In rounds: who goes on (a join that is put off, a heartbeat, the next generation) looks at the same events again, in its new window, and the others
    are done with.
    """
    parts: list[Settled] = []
    while True:
        part, going_on = _round(operations, lines, clock_ms, memory_ms)
        parts.append(part)
        if not going_on.num_rows:
            break
        operations = Operations(going_on)
    return Settled.of(parts)


def _round(
    operations: Operations, lines: Timelines, clock_ms: int, memory_ms: int | None
) -> tuple[Settled, pa.Table]:
    """One round: what came of operations, and those that go on."""
    _learn(operations, lines, _codes(operations, lines))
    woken, gone, gone_at_ms = _wake(operations, clock_ms, memory_ms)
    ended = _ends(operations, gone_at_ms, gone, clock_ms)
    beaten = _rearm(operations, ~woken)
    verdict = _judge(operations)
    decided = ~(woken | beaten | operations.at_rest) & (verdict.at_ms < clock_ms)
    put_off = _put_off(operations, decided & ~verdict.completed & ~verdict.cancelled)
    ends = decided & ~put_off
    outcomes = _outcomes(operations, verdict, ends)
    ends_for_good = ends & (verdict.cancelled | ~operations.goes_on)
    ended = pa.concat_tables([ended, _ends(operations, verdict.at_ms, ends_for_good, clock_ms)])
    rests = ends & ~ends_for_good
    _rest(operations, verdict.at_ms, rests)
    goes_on = woken | beaten | put_off | rests
    stays = ~(goes_on | gone | ends_for_good)
    look_at_ms = np.where(operations.at_rest, 0, verdict.at_ms + 1)
    part = Settled(
        outcomes=outcomes,
        ended=ended,
        waiting=operations.written(stays & ~operations.at_rest, look_at_ms),
        resting=operations.written(stays & operations.at_rest, look_at_ms),
        generations=int(woken.sum()),
    )
    return part, operations.written(goes_on, look_at_ms)


def _codes(operations: Operations, lines: Timelines) -> _Codes:
    groups, ids = (operations.table[name].combine_chunks() for name in ("group", "op_id"))
    keys = named(groups.take(pa.array(operations.of)), operations.keys)
    return _Codes(
        lines.happened.codes(keys), lines.cancelled.codes(keys), lines.operations.codes(named(groups, ids))
    )


@dataclass(frozen=True)
class _Codes:
    """Numbers of the operations' keys and ids in the timelines."""

    happened: Int64s
    cancelled: Int64s
    operations: Int64s


def _learn(operations: Operations, lines: Timelines, codes: _Codes) -> None:
    """Takes from the timelines what lies in the windows of operations; what is taken twice changes nothing (but for sums, which never go on)."""
    to_ms = np.where(operations.at_rest, NEVER, operations.deadline_ms)
    at = np.flatnonzero((codes.happened >= 0) | (codes.cancelled >= 0))
    of = operations.of[at]
    window = operations.from_ms[of], to_ms[of]
    first, last = lines.happened.ranges(codes.happened[at], *window)
    beats = (operations.need[of] == BEAT) & ~operations.at_rest[of]
    happened = np.where(beats, lines.happened.last(first, last), lines.happened.first(first, last))
    since = operations.cancellable_from[of], to_ms[of]
    cancelled = lines.cancelled.first(*lines.cancelled.ranges(codes.cancelled[at], *since))
    operations.done_ms[at] = np.minimum(operations.done_ms[at], happened)
    operations.key_cancel_ms[at] = np.minimum(operations.key_cancel_ms[at], cancelled)

    rows = np.flatnonzero(codes.operations >= 0)
    window = operations.cancellable_from[rows], to_ms[rows]
    cancelled = lines.operations.first(*lines.operations.ranges(codes.operations[rows], *window))
    operations.cancel_at_ms[rows] = np.minimum(operations.cancel_at_ms[rows], cancelled)

    sums = (operations.need[of] == SUM) & (last > first)
    _add(operations, lines.happened, at[sums], first[sums], last[sums])


def _add(operations: Operations, line: Timeline, at: Int64s, first: Int64s, last: Int64s) -> None:
    """Adds amounts to running sums in time order, one after the other, and notes where a sum crosses its threshold.

    The pass over the k-th event of every operation, for rising k: the order of additions is that of times wherever batches end, and so is
    the last bit of the sum.
    """
    sizes = last - first
    event = np.repeat(first - np.r_[0, np.cumsum(sizes)[:-1]], sizes) + np.arange(sizes.sum())
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
    """When and how each operation ends by what is known of it now. Of those at rest it says nothing of use."""
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
    # A key that has had its event is waited for no more, but where events add up.
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


# --- joins, heartbeats, generations ----------------------------------------------------------------------------------------


def _put_off(operations: Operations, expired: Bools) -> Bools:
    """Puts the deadline of joins off that members have come to since the last one; says which."""
    limit_ms = operations.event_time_ms + operations.limit_delay_ms
    can = expired & (operations.limit_delay_ms > 0) & (operations.deadline_ms < limit_ms)
    if not can.any():
        return can
    happened = operations.effective(operations.done_ms)
    of = operations.of
    came = (happened > operations.since_ms[of]) & (happened <= operations.deadline_ms[of])
    put_off = can & np.logical_or.reduceat(came, operations.offsets[:-1])
    deadline_ms = operations.deadline_ms[put_off]
    operations.since_ms[put_off] = deadline_ms
    operations.deadline_ms[put_off] = np.minimum(
        deadline_ms + operations.delay_ms[put_off], limit_ms[put_off]
    )
    return np.asarray(put_off, dtype=np.bool_)


def _rearm(operations: Operations, which: Bools) -> Bools:
    """Puts the deadline of heartbeats off, by their last event in the window; says which."""
    beats: Bools = which & (operations.need == BEAT) & ~operations.at_rest
    if not beats.any():
        return beats
    found = np.where(operations.done_ms == NEVER, -1 - NEVER, operations.done_ms)
    last_ms = np.maximum.reduceat(found, operations.offsets[:-1])
    beats &= last_ms != -1 - NEVER
    last_ms = last_ms[beats]
    operations.deadline_ms[beats] = np.maximum(
        operations.deadline_ms[beats], last_ms + operations.delay_ms[beats]
    )
    operations.from_ms[beats] = last_ms + 1
    operations.done_ms[beats[operations.of]] = NEVER
    return beats


def _rest(operations: Operations, at_ms: Int64s, which: Bools) -> None:
    """Lays operations to rest that have ended: what comes after that instant begins the next generation."""
    operations.from_ms[which] = at_ms[which] + 1
    operations.event_time_ms[which] = operations.deadline_ms[which] = NEVER
    _clear(operations, which)


def _wake(operations: Operations, clock_ms: int, memory_ms: int | None) -> tuple[Bools, Bools, Int64s]:
    """Begins the next generation of those at rest that have had an event; says which, and which are gone instead, and since when: taken away by a cancel,
    or at rest for as long as they are remembered.
    """
    resting = operations.at_rest
    if not resting.any():
        return resting, resting, operations.cancel_at_ms
    event_ms = operations.least(operations.done_ms)
    cancel_ms = np.minimum(operations.least(operations.key_cancel_ms), operations.cancel_at_ms)
    until_ms = rested_until(operations.from_ms, memory_ms)
    cancelled = resting & (cancel_ms < event_ms) & (cancel_ms <= until_ms)
    woken = resting & ~cancelled & (event_ms != NEVER) & (event_ms <= until_ms)
    gone = cancelled | (resting & ~woken & (until_ms < clock_ms))
    gone_at_ms = np.where(cancelled, cancel_ms, operations.from_ms - 1)
    event_ms = event_ms[woken]
    operations.event_time_ms[woken] = operations.from_ms[woken] = event_ms
    operations.deadline_ms[woken] = event_ms + operations.delay_ms[woken]
    operations.since_ms[woken] = event_ms - 1
    operations.generation[woken] += 1
    _clear(operations, woken)
    return woken, gone, gone_at_ms


def _clear(operations: Operations, which: Bools) -> None:
    operations.cancel_at_ms[which] = NEVER
    keys = which[operations.of]
    operations.done_ms[keys] = operations.key_cancel_ms[keys] = NEVER


# --- what goes out -----------------------------------------------------------------------------------------------------


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
    """Some keys of some operations as one text for each operation."""
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
