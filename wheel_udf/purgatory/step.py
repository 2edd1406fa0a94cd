"""One step of one shard of a purgatory: operations arrive, events complete them, the clock expires the rest.

:func:`advance` is a pure function, as the wheel's (:mod:`wheel_udf.wheel.step`). Times decide, never the
order of arrival::

    event_time - lookback          event_time                         deadline        clock
    |------------------------------|----------------------------------|               |
      earlier events count           events complete it, cancels end it  else it expires, decided when deadline < clock
      as of its own time

* A row takes effect when the clock has passed its time; until then it waits. So a decision at some clock
  depends only on the rows with times before that clock: not on where batches end, nor on the order of rows in
  a batch.
* For an operation count: the first event on each key in its window, the first cancel, and the running sum of
  amounts. First ones are minima, which can be found in any order.
* An outcome has an instant: that of the event that completed the operation, of the cancel, or the deadline.
  The earliest wins; at the same instant complete beats cancel, and cancel beats expire. It is decided once,
  when that instant is before the clock.
* Under `all` and `n of m`, a satisfied key is no longer watched; a later cancel of it has no effect.
* A row behind the clock (late) takes effect in the step that brings it, on the operations that are open then.

A **join** is an operation with a limit. At a deadline that it does not meet it is extended by its initial
delay (up to the limit) if members came since the last deadline. A **heartbeat** (``BEAT``) is extended by its
initial delay from each event, and never completes. Both rest after their end, unless a cancel ended them; the
next event on one of their keys starts the next generation, at the event's time.

Cost: O(1) for a tick with nothing due and nothing new; otherwise O(new rows + rows of reached buckets + pairs
of a sum and its events), a hash probe for each watched key, and rewriting the chunks that hold operations on
the batch's keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.purgatory.future_events import pass_by
from wheel_udf.purgatory.identity import claims_of, contested, displaced, earliest, not_taken, opened_at_first
from wheel_udf.purgatory.operations import Operations, offsets_of
from wheel_udf.purgatory.outcomes import OUTCOME_SCHEMA, Resolved, resolve_outcomes
from wheel_udf.purgatory.state import (
    AHEAD_LEVEL,
    CANCEL_OPERATION,
    DUE,
    ENDED_SCHEMA,
    EVENTS_LEVEL,
    HELD_LEVEL,
    KINDS,
    OPERATION_SCHEMA,
    RESTING_LEVEL,
    WatchState,
)
from wheel_udf.purgatory.timeline import Timelines
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.rows import without
from wheel_udf.wheel.buckets import Buckets, merged
from wheel_udf.wheel.memory import remember, still_remembered

_GRACE_MS = 300_000
_IN_ORDER = [("at_ms", "ascending"), ("group", "ascending"), ("op_id", "ascending")]


@dataclass(frozen=True)
class WatchStep:
    """The result of a step.

    Attributes:
        state: The next state.
        clock_ms: The clock that the step worked with.
        outcomes: ``OUTCOME_SCHEMA``, ordered by their instant.
        changed: Whether the state must be written.
    """

    state: WatchState
    clock_ms: int
    outcomes: pa.Table
    changed: bool


def advance(
    state: WatchState,
    requests: pa.Table,
    events: pa.Table,
    now_ms: int,
    *,
    lookback_ms: int = 0,
    memory_ms: int | None,
) -> WatchStep:
    """Advances a shard to ``now_ms`` with the rows of a batch.

    Args:
        state: The shard's state after the last step.
        requests: New operations (``REQUEST_SCHEMA``), in any order.
        events: Events and cancels (``EVENT_SCHEMA``), in any order.
        now_ms: The clock; if it is before the state's clock, that one is kept.
        lookback_ms: How long before its own time events count for an operation.
        memory_ms: How long events and ended operations are remembered, at least ``lookback_ms``: during
            ``[time, time + memory_ms)``, an event at least to the end of the lookback. ``None``: operations for
            ever, events for ``lookback_ms`` plus five minutes.
    """
    clock_ms = now_ms if state.clock_ms is None else max(state.clock_ms, now_ms)
    quiet = not requests.num_rows and not events.num_rows
    if quiet and (state.next_due_ms is None or state.next_due_ms > clock_ms):
        return WatchStep(state, clock_ms, OUTCOME_SCHEMA.empty_table(), changed=False)

    counts = Counter(events=events.num_rows)
    news, ahead = pass_by(state.of_level(AHEAD_LEVEL), events, clock_ms)
    claims = _claims(state, requests, memory_ms, counts)
    buckets = Buckets(state.wheel, DUE)
    closed, opened = _open(state, buckets, news, claims, clock_ms)
    opened, claims = displaced(opened, claims, state.clock_ms)
    seen = _seen_by(state, claims, news, lookback_ms, memory_ms)

    done, held, repeated = _in_turn(opened, claims, news, seen, clock_ms, lookback_ms, memory_ms)
    outcomes = done.outcomes.sort_by(_IN_ORDER)
    counts.update(Counter(outcomes["outcome"].to_pylist()), generations=done.generations, duplicate=repeated)
    kept_ms = _event_memory(lookback_ms, memory_ms)
    to_keep = _not_forgotten(news, clock_ms, kept_ms)
    waiting, resting = (
        [c for c in closed if (c.level > MEMORY_LEVEL) == is_open] for is_open in (True, False)
    )
    after = state.with_chunks(
        clock_ms,
        {name: count + counts[name] for name, count in state.counts.items()},
        [
            *merged([*waiting, *buckets.place(done.waiting, clock_ms)], DUE),
            *_kept("ended", state.of_level(MEMORY_LEVEL), done.ended, clock_ms, memory_ms),
            *_kept("events", state.of_level(EVENTS_LEVEL), to_keep, clock_ms, kept_ms),
            *ahead,
            *_kept("resting", resting, done.resting, clock_ms, memory_ms),
            *([Chunk.of(HELD_LEVEL, 0, held, "event_time_ms")] if held.num_rows else []),
        ],
    )
    return WatchStep(after, clock_ms, outcomes, changed=True)


def _in_turn(
    opened: pa.Table,
    claims: pa.Table,
    news: pa.Table,
    seen: pa.Table,
    clock_ms: int,
    lookback_ms: int,
    memory_ms: int | None,
) -> tuple[Resolved, pa.Table, int]:
    """Settles the open operations, then of each id one new operation after the other, as soon as the id is free.

    Returns:
        The result, the new operations that are held (``CLAIM_SCHEMA``), and the number of duplicates.
    """
    lines = Timelines(news)
    parts = [resolve_outcomes(Operations(opened), lines, clock_ms, memory_ms)]
    claims, held, repeated = contested(claims, parts[0], clock_ms, memory_ms)
    if claims.num_rows and seen.num_rows > news.num_rows:  # remembered events are among them
        lines = Timelines(seen)
    while claims.num_rows:
        first, others = earliest(claims)
        parts.append(
            resolve_outcomes(Operations(opened_at_first(first, lookback_ms)), lines, clock_ms, memory_ms)
        )
        claims, more, again = contested(others, parts[-1], clock_ms, memory_ms)
        held, repeated = pa.concat_tables([held, more]), repeated + again
    return Resolved.of(parts), held, repeated


# --- input ----------------------------------------------------------------------------------------


def _claims(state: WatchState, requests: pa.Table, memory_ms: int | None, counts: Counter[str]) -> pa.Table:
    """The operations that may begin, new and held ones (``CLAIM_SCHEMA``), without those whose id is remembered."""
    held = [chunk.table() for chunk in state.of_level(HELD_LEVEL)]
    claims = pa.concat_tables([*held, claims_of(requests)])
    if not claims.num_rows:
        return claims
    asked = claims["op_hash"].combine_chunks()
    ended = [ENDED_SCHEMA.empty_table()]
    for chunk in _known_of(state, MEMORY_LEVEL, memory_ms):
        found = pc.is_in(chunk.table("op_hash")["op_hash"], value_set=asked)
        if pc.any(found).as_py():
            ended.append(chunk.table().filter(found))
    left = not_taken(claims, pa.concat_tables(ended), memory_ms)
    counts["duplicate"] += claims.num_rows - left.num_rows
    return left


def _open(
    state: WatchState, buckets: Buckets, news: pa.Table, claims: pa.Table, clock_ms: int
) -> tuple[list[Chunk], pa.Table]:
    """Splits operations into closed chunks and rows to work on (reached buckets, keys of new events, repeated ids)."""
    of_operation = pc.equal(news["what"], CANCEL_OPERATION)
    key_hashes = news["hash"].filter(pc.invert(of_operation)).unique()
    op_hashes = pa.concat_arrays(
        [news["hash"].filter(of_operation).unique(), claims["op_hash"].combine_chunks()]
    )
    closed: list[Chunk] = []
    opened = [OPERATION_SCHEMA.empty_table()]
    for chunk in (*state.open_chunks, *state.of_level(RESTING_LEVEL)):
        if chunk.level > MEMORY_LEVEL and buckets.reached(chunk, clock_ms):
            opened.append(chunk.table())
            continue
        hits = _hits(chunk, key_hashes, op_hashes)
        if not len(hits):
            closed.append(chunk)
            continue
        table = chunk.table()
        opened.append(table.take(pa.array(hits)))
        if len(hits) < chunk.rows:
            due = DUE if chunk.level > MEMORY_LEVEL else "from_ms"
            closed.append(Chunk.of(chunk.level, chunk.group, without(table, hits), due))
    return closed, pa.concat_tables(opened)


def _hits(chunk: Chunk, key_hashes: pa.Array, op_hashes: pa.Array) -> Int64s:
    """The rows of a chunk with one of these keys or ids, as places."""
    asked = [name for name, hashes in (("op_hash", op_hashes), ("key_hashes", key_hashes)) if len(hashes)]
    if not asked:
        return np.zeros(0, np.int64)
    table = chunk.table(*asked)
    hit: Bools = np.zeros(chunk.rows, bool)
    if "op_hash" in asked:
        hit |= pc.is_in(table["op_hash"], value_set=op_hashes).to_numpy()
    if "key_hashes" in asked:
        lists = table["key_hashes"].combine_chunks()
        found = pc.is_in(lists.flatten(), value_set=key_hashes).to_numpy(zero_copy_only=False)
        hit |= np.logical_or.reduceat(found, offsets_of(lists)[:-1])  # each operation has a key
    return np.flatnonzero(hit)


def _seen_by(
    state: WatchState, claims: pa.Table, news: pa.Table, lookback_ms: int, memory_ms: int | None
) -> pa.Table:
    """The events that new operations look back on: those of this step and the remembered ones."""
    if not claims.num_rows:
        return news
    wanted = pa.concat_arrays(
        [claims["op_hash"].combine_chunks(), claims["key_hashes"].combine_chunks().flatten()]
    )
    kept_ms, seen = _event_memory(lookback_ms, memory_ms), [news]
    for chunk in _known_of(state, EVENTS_LEVEL, kept_ms):
        found = pc.is_in(chunk.table("hash")["hash"], value_set=wanted)
        if pc.any(found).as_py():
            assert state.clock_ms is not None, "something is remembered"
            seen.append(_not_forgotten(chunk.table().filter(found), state.clock_ms, kept_ms))
    return pa.concat_tables(seen)


# --- memory ---------------------------------------------------------------------------------------


def _known_of(state: WatchState, level: int, memory_ms: int | None) -> list[Chunk]:
    """The memory at the end of the last step.

    By the last step's clock and not by this one's: otherwise a clock that jumps would forget what rows in
    time refer to.
    """
    clock_ms = state.clock_ms if state.clock_ms is not None else 0
    return still_remembered(state.of_level(level), clock_ms, memory_ms)


def _event_memory(lookback_ms: int, memory_ms: int | None) -> int:
    """How long events are remembered; never for ever, unlike ids and resting operations, as events never stop."""
    # An operation looks back on the event at the very beginning of its window, too.
    return lookback_ms + _GRACE_MS if memory_ms is None else max(memory_ms, lookback_ms + 1)


def _not_forgotten(events: pa.Table, clock_ms: int, memory_ms: int) -> pa.Table:
    return events.filter(pc.greater(events["event_time_ms"], clock_ms - memory_ms))


def _kept(
    kind: str, chunks: Sequence[Chunk], rows: pa.Table, clock_ms: int, memory_ms: int | None
) -> list[Chunk]:
    level, _, time_column = KINDS[kind]
    assert level is not None, "rows outside the wheel"
    return remember(chunks, rows, clock_ms, memory_ms, level=level, time_column=time_column)
