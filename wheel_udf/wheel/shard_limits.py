"""The limits of one shard: what it holds, and which new entries find room (:mod:`wheel_udf.wheel.limits` has
the bounds).

Applied after the fold, which decides which rows are new entries, and before the clock moves. What is held is
counted from the entries themselves whenever it is needed, so it is exact and there are no counters that could
drift::

    held  =  pending before the batch  -  removed by the batch  +  entries that replace others
             -  due now (they leave with the batch)  -  confirmed by a sender
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.rows import Int64s, without
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.in_flight import Flight
from wheel_udf.wheel.limits import Held, Limits, Verdict, counted, judge, keys_of

_COUNTED = ["destination", "deliver_at_ms"]
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class HeldByShard:
    """What a shard holds before the new entries of a batch are added.

    Attributes:
        state: The shard before the batch.
        removed: For each index into its entry chunks, the rows that the batch removes.
        now_ms: The clock of the batch.
        flight: What is in flight.
    """

    state: ShardState
    removed: Mapping[int, Int64s]
    now_ms: int
    flight: Flight

    def beside(self, staying: pa.Table, past_due: int, released: int | None) -> Held:
        """Returns the entries that count beside new ones.

        Args:
            staying: Entries that replace others.
            past_due: How many new entries are due already.
            released: Most entries released in the batch; None for no bound.
        """
        chunks = [*self.state.entry_chunks, *self.flight.loose]
        due = sum(self._due(number, chunk) for number, chunk in enumerate(chunks))
        for rows in (staying, self.flight.again):
            due += int((rows["deliver_at_ms"].to_numpy() <= self.now_ms).sum())
        all_leaves = released is None or due + past_due <= released
        gone = sum(map(len, self.removed.values())) + self.flight.confirmed
        count = self.state.pending - gone + staying.num_rows

        @cache
        def there() -> pa.Table:
            rest = [self._rest(number, chunk) for number, chunk in enumerate(chunks)]
            found = pa.concat_tables(
                [*rest, *(each.select(_COUNTED) for each in (self.flight.again, staying))]
            )
            if all_leaves:
                found = found.filter(pc.greater(found["deliver_at_ms"], self.now_ms))
            return pa.concat_tables(
                [found, *(chunk.table(*_COUNTED).select(_COUNTED) for chunk in self.flight.chunks)]
            )

        def counts(bound: str, names: pa.Array) -> Int64s:
            return counted(keys_of(bound, there(), self.state.wheel.tick_ms), names)

        return Held(count - due if all_leaves else count, counts)

    def _due(self, number: int, chunk: Chunk) -> int:
        """How many entries of a chunk are due and stay; a chunk is opened only if the clock is between its times."""
        removed = self.removed.get(number, _NONE)
        if chunk.high_ms <= self.now_ms:
            return chunk.rows - len(removed)
        if chunk.low_ms > self.now_ms:
            return 0
        times = np.delete(chunk.table("deliver_at_ms")["deliver_at_ms"].to_numpy(), removed)
        return int((times <= self.now_ms).sum())

    def _rest(self, number: int, chunk: Chunk) -> pa.Table:
        table, removed = chunk.table(*_COUNTED).select(_COUNTED), self.removed.get(number)
        return table if removed is None else without(table, removed)


@dataclass(frozen=True)
class ShardLimits:
    """The limits on the new entries of one shard in one batch.

    Attributes:
        limits: This shard's part of the limits.
        released: Most entries released in the batch; None for no bound.
        flight: What is in flight.
    """

    limits: Limits
    released: int | None
    flight: Flight

    def judge(self, new: pa.Table, held: HeldByShard, staying: pa.Table) -> Verdict:
        """As :func:`wheel_udf.wheel.limits.judge`; an entry that is already due is always admitted.

        Args:
            new: New entries, ``COMMAND_SCHEMA``.
            held: What the shard holds.
            staying: Entries of the batch that replace others.
        """
        waits = new["deliver_at_ms"].to_numpy() > held.now_ms
        refused_by = np.full(new.num_rows, -1, np.int8)
        beside = held.beside(staying, int((~waits).sum()), self.released)
        verdict = judge(self.limits, beside, new.filter(pa.array(waits)), held.state.wheel.tick_ms)
        refused_by[waits] = verdict.refused_by
        return Verdict(refused_by, verdict.fullest)
