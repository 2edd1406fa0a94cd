"""Joins and heartbeats: extends their deadlines, puts them to rest at their end, starts their next generation.

::

    join       [event_time ... deadline)  members since the last deadline -> deadline + first delay, up to the limit
    heartbeat  [event_time ... deadline)  a beat at t                     -> deadline = t + first delay
    both       end (not by a cancel) -> rest -> next event on a key -> next generation, from that event's time

Each function changes the arrays of :class:`~wheel_udf.purgatory.operations.Operations` in place and returns
which rows it changed.
"""

from __future__ import annotations

import numpy as np

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.purgatory.operations import Operations
from wheel_udf.purgatory.state import BEAT, NEVER


def extend_joins(operations: Operations, expired: Bools) -> Bools:
    """Extends expired joins that gained members since the last deadline; returns the mask of those extended."""
    limit_ms = operations.event_time_ms + operations.limit_delay_ms
    can = expired & (operations.limit_delay_ms > 0) & (operations.deadline_ms < limit_ms)
    if not can.any():
        return can
    happened = operations.effective(operations.done_ms)
    of = operations.of
    came = (happened > operations.since_ms[of]) & (happened <= operations.deadline_ms[of])
    extended = can & np.logical_or.reduceat(came, operations.offsets[:-1])
    deadline_ms = operations.deadline_ms[extended]
    operations.since_ms[extended] = deadline_ms
    operations.deadline_ms[extended] = np.minimum(
        deadline_ms + operations.delay_ms[extended], limit_ms[extended]
    )
    return np.asarray(extended, dtype=np.bool_)


def rearm_heartbeats(operations: Operations, which: Bools) -> Bools:
    """Extends the deadline of heartbeats from their last event in the window; the mask of those extended."""
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


def rest(operations: Operations, at_ms: Int64s, which: Bools) -> None:
    """Puts ended operations to rest: the first event after their end starts the next generation."""
    operations.from_ms[which] = at_ms[which] + 1
    operations.event_time_ms[which] = operations.deadline_ms[which] = NEVER
    _clear(operations, which)


def wake(operations: Operations, clock_ms: int, memory_ms: int | None) -> tuple[Bools, Bools, Int64s]:
    """Starts the next generation of resting operations that have had an event.

    Returns:
        Mask of the operations woken; mask of those that ended for good instead, by a cancel or because their
        rest was longer than `memory_ms`; and the instant at which each of these ended.
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


def rested_until(from_ms: Int64s, memory_ms: int | None) -> Int64s:
    """The last instant at which an event wakes operations that have rested from these instants on."""
    return remembered_until(from_ms - 1, memory_ms)


def remembered_until(at_ms: Int64s, memory_ms: int | None) -> Int64s:
    """The last instant at which ends are remembered.

    An end is remembered during ``[end, end + memory)``, as in the wheel, and in its own instant with a memory of 0,
    too.
    """
    if memory_ms is None:
        return np.full(len(at_ms), NEVER)
    return np.minimum(at_ms, NEVER - memory_ms) + max(memory_ms - 1, 0)
