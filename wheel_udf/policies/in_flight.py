"""The policy ``Hold`` of a query with a sender: a shard hands entries over ahead of their due time, and they are *in
flight* until Kafka has acknowledged them.

::

    clock C = 10:00:00, horizon H = C + ahead = 10:00:04                        chunk of the state

    due by C                     released by the batch, as without a sender     none
    due in (C, H], room          handed over by this batch, 41                  in flight (IN_FLIGHT_LEVEL), group 41
    due in (C, H], no room       waits                                          of its bucket
    due after H                  waits                                          of its bucket

A chunk in flight contains its payload. The news of the sender (:mod:`~wheel_udf.policies.sender_news`) comes
with a clock row, and decides what happens to it::

    group 41, the sender gets batches since 40   confirmed up to 41 and the chunk's last due time: dropped, its rows
                                                 have fired; else: stays
    group 38, given to an earlier sender         rows that the earlier sender has noted as confirmed: have fired
                                                 other rows are *handed over again*: split by C and H once more
    no sender any more (the setting is off)      as of an earlier sender; without a note, all are split once more

Entries that are handed over again, and neither leave nor find room, stay outside the buckets, *loose*, in chunks of the
group :data:`NO_SENDER`: an earlier sender may have sent them, so a CANCEL is too late for them. Due ones leave
together with those of the buckets, oldest first; a backlog is stored in runs, too.

Invariants
    * An entry handed over has a memory record FIRED that ends at its due time. To the fold it has fired, as long as it
      is in flight or remembered: a later CANCEL is late, a later version starts the id anew.
    * It counts as pending until it is confirmed (or released by a batch), and as fired from then on.
    * Everything here follows from the state, the rows, the clock and the journaled news. So a replay hands over the
      same rows.

Cost: a confirmed chunk is dropped unopened. A chunk that is confirmed in
part stays whole: no chunk is rewritten while its sender lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools
from wheel_udf.common.geometry import INT64_MAX, INT64_MIN
from wheel_udf.policies.sender_news import Confirmed
from wheel_udf.shard import chunk_sizes
from wheel_udf.shard.chunks import IN_FLIGHT_LEVEL, NO_SENDER, Chunk, in_runs
from wheel_udf.shard.rows import ENTRY_SCHEMA, OLDEST_FIRST, Int64s
from wheel_udf.shard.shard_text import directory_of
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.policies import Flight, Handed

_ROW_BYTES = 400
"""What a row costs the sender besides its payload: headers of its own, and the objects that hold it."""
_SIZED = ("schedule_id", "key", "value", "headers", "source")


@dataclass(frozen=True)
class HandOver:
    """How a shard hands entries over in a batch.

    Attributes:
        batch_id: The batch.
        ahead_ms: How long before its due time an entry is handed over.
        is_punctual: Which destinations the sender serves: names to a mask of the same length.
        free_rows: How many rows the sender takes from this shard.
        free_bytes: Their size.
        confirmed: As in :class:`~wheel_udf.policies.sender_news.SenderNews`; empty in a batch that brings no news.
    """

    batch_id: int
    ahead_ms: int
    is_punctual: Callable[[pa.ChunkedArray], Bools]
    free_rows: int
    free_bytes: int
    confirmed: tuple[Confirmed, ...] = ()

    def horizon_ms(self, clock_ms: int) -> int:
        """Up to which due time entries are handed over."""
        return min(clock_ms + self.ahead_ms, INT64_MAX)


@dataclass(frozen=True)
class InFlight:
    """The policy ``Hold`` of a shard whose query has a sender, or had one.

    Attributes:
        over: How the batch hands over; None if there is no sender any more.
    """

    over: HandOver | None = None

    def horizon_ms(self, clock_ms: int) -> int:
        """As :meth:`wheel_udf.wheel.policies.Hold.horizon_ms`."""
        return clock_ms if self.over is None else self.over.horizon_ms(clock_ms)

    def has_no_work(self, state: ShardState, clock_ms: int) -> bool:
        """As :meth:`wheel_udf.wheel.policies.Hold.has_no_work`: the sender's news ends no chunk, too."""
        if state.next_due_ms is not None and state.next_due_ms <= self.horizon_ms(clock_ms):
            return False
        if not state.pending:
            return True
        directory = directory_of(state.text).select(["level", "group", "high_ms"])
        flying = directory.filter(pc.equal(directory["level"], IN_FLIGHT_LEVEL))
        groups, highs = flying["group"].to_pylist(), flying["high_ms"].to_pylist()
        return all(self._remains(group, high) for group, high in zip(groups, highs, strict=True))

    def flight(self, state: ShardState) -> Flight:
        """Decides the end of each chunk in flight: closed, fired, or handed over again."""
        stay: list[Chunk] = []
        loose = tuple(chunk for chunk in state.in_flight_chunks if _is_loose(chunk))
        again: list[pa.Table] = [ENTRY_SCHEMA.empty_table()]
        confirmed = 0
        for chunk in state.in_flight_chunks:
            if _is_loose(chunk):
                continue
            if self._remains(chunk.group, chunk.high_ms):
                stay.append(chunk)
                continue
            until_ms = self._noted_ms(chunk.group)
            if chunk.high_ms > until_ms:
                rows = chunk.table()
                again.append(rows.filter(pc.greater(rows["deliver_at_ms"], until_ms)))
                confirmed -= again[-1].num_rows
            confirmed += chunk.rows
        return Flight(tuple(stay), loose, pa.concat_tables(again), confirmed)

    def hand_over(self, again: pa.Table, waiting: pa.Table, clock_ms: int, room: int | None) -> Handed:
        """As :meth:`wheel_udf.wheel.policies.Hold.hand_over`."""
        if self.over is None and not again.num_rows:
            return Handed(again, again, waiting, [])
        flown, chosen = np.zeros(again.num_rows, bool), np.zeros(waiting.num_rows, bool)
        if self.over is not None:
            flown, chosen = _chosen([again, waiting], self.over, clock_ms, room)
        new = waiting.filter(pa.array(chosen))
        entries = pa.concat_tables([again.filter(pa.array(flown)), new])
        entries = entries.take(pc.sort_indices(entries, sort_keys=OLDEST_FIRST))
        chunks = _loose(again.filter(pa.array(~flown)), clock_ms)
        if self.over is not None and entries.num_rows:
            chunks.append(Chunk.of_entries(IN_FLIGHT_LEVEL, self.over.batch_id, entries))
        return Handed(entries, new, waiting.filter(pa.array(~chosen)), chunks)

    def _remains(self, group: int, high_ms: int) -> bool:
        """Whether a chunk remains closed and in flight. Chunks without a sender count in ``next_due_ms``."""
        if group == NO_SENDER:
            return True
        if self.over is None:
            return False
        if not self.over.confirmed:
            return True
        present = self.over.confirmed[-1]
        return group >= present.since and not (present.covers(group) and high_ms <= present.until_ms)

    def _noted_ms(self, group: int) -> int:
        """Up to which due time the rows of a batch are confirmed; the least int64 if no sender has confirmed it."""
        noted = (each.until_ms for each in (self.over.confirmed if self.over else ()) if each.covers(group))
        return next(noted, INT64_MIN)


def beyond_ms(state: ShardState, horizon_ms: int) -> int | None:
    """The earliest due time after a horizon, by the directory (a lower bound if a chunk spans it); None: nothing."""
    waiting = [chunk for chunk in state.chunks if chunk.level > 0 or _is_loose(chunk)]
    after = [max(chunk.low_ms, horizon_ms + 1) for chunk in waiting if chunk.high_ms > horizon_ms]
    return min(after, default=None)


def flight_size(state: ShardState) -> tuple[int, int]:
    """How many entries a shard has in flight, and what they cost the sender, in bytes. Cost: opens their chunks."""
    chunks = state.in_flight_chunks
    return state.in_flight, sum(int(_sizes(chunk.table(*_SIZED)).sum()) for chunk in chunks)


def complete_ms(state: ShardState) -> int | None:
    """The due time that the sender has to confirm before a chunk in flight can be dropped; None: nothing in flight."""
    given = [chunk for chunk in state.in_flight_chunks if not _is_loose(chunk)]
    return min((chunk.high_ms for chunk in given), default=None)


def _is_loose(chunk: Chunk) -> bool:
    return chunk.level == IN_FLIGHT_LEVEL and chunk.group == NO_SENDER


def _loose(entries: pa.Table, clock_ms: int) -> list[Chunk]:
    if not entries.num_rows:
        return []
    rows = entries.sort_by("deliver_at_ms")
    most = chunk_sizes.SIZES.most(rows["deliver_at_ms"][0].as_py(), clock_ms)
    return in_runs(IN_FLIGHT_LEVEL, NO_SENDER, rows, "deliver_at_ms", most)


def _chosen(
    tables: Sequence[pa.Table], hand_over: HandOver, clock_ms: int, room: int | None
) -> tuple[Bools, Bools]:
    """Which entries of two tables are handed over, as a mask of each."""
    both = pa.concat_tables(tables)
    due = both["deliver_at_ms"].to_numpy()
    # A series waits on while its occurrence is delivered. What waits for its turn is due at another time.
    is_once = both["repeat"].is_null().to_numpy() & both["held_ms"].is_null().to_numpy()
    fits = np.flatnonzero((due > clock_ms) & (due <= hand_over.horizon_ms(clock_ms)) & is_once)
    candidates = both.take(pa.array(fits))
    fits = fits[hand_over.is_punctual(candidates["destination"])]
    candidates = both.take(pa.array(fits))
    order = pc.sort_indices(candidates, sort_keys=OLDEST_FIRST).to_numpy()
    rows = hand_over.free_rows if room is None else min(hand_over.free_rows, room)
    rows = min(
        rows, int(np.searchsorted(np.cumsum(_sizes(candidates)[order]), hand_over.free_bytes, "right"))
    )
    mask = np.zeros(both.num_rows, bool)
    mask[fits[order[: max(rows, 0)]]] = True
    return mask[: tables[0].num_rows], mask[tables[0].num_rows :]


def _sizes(entries: pa.Table) -> Int64s:
    """What each entry costs the sender, in bytes."""
    sizes = np.full(entries.num_rows, _ROW_BYTES, np.int64)
    for name in _SIZED:
        sizes += pc.binary_length(entries[name]).fill_null(0).to_numpy()
    return sizes
