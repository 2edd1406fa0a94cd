"""The limits of one shard: what it holds, and which new entries find room (:mod:`wheel_udf.policies.limits` has
the bounds).

Applied after the fold, which decides which rows are new entries, and before the clock moves. What is held is
counted from the entries themselves whenever it is needed, so it is exact and there are no counters that could
drift::

    held  =  pending before the batch  -  removed by the batch  +  entries that replace others
             -  due now (they leave with the batch; series go on)  -  confirmed by a sender
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import pyarrow as pa

from wheel_udf.common.arrays import Bools
from wheel_udf.policies.limits import BOUNDS, Held, Limits, counted, judge, keys_of
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.rows import Int64s, without
from wheel_udf.wheel.policies import Before, Verdict

_COUNTED = ["destination", "deliver_at_ms", "repeat"]
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class ShardLimits:
    """The policy ``Admit``: the limits on the new entries of one shard.

    Attributes:
        limits: This shard's part of the limits.
    """

    limits: Limits
    bounds: ClassVar[Sequence[str]] = BOUNDS

    def judge(self, new: pa.Table, staying: pa.Table, before: Before) -> Verdict:
        """As :meth:`wheel_udf.wheel.policies.Admit.judge`; an entry that is already due is always admitted."""
        waits = new["deliver_at_ms"].to_numpy() > before.now_ms
        refused_by = np.full(new.num_rows, -1, np.int8)
        held = _Held(before).beside(staying, int((~waits).sum()))
        verdict = judge(self.limits, held, new.filter(pa.array(waits)), before.state.wheel.tick_ms)
        refused_by[waits] = verdict.refused_by
        return Verdict(refused_by, verdict.fullest)


@dataclass(frozen=True)
class _Held:
    """What a shard holds before the new entries of a batch are added."""

    before: Before

    def beside(self, staying: pa.Table, past_due: int) -> Held:
        """Returns the entries that count beside new ones.

        Args:
            staying: Entries that replace others.
            past_due: How many new entries are due already.
        """
        state, flight, released = self.before.state, self.before.flight, self.before.released
        chunks = [*state.entry_chunks, *flight.loose]
        due = 0
        if released != 0:  # else nothing surely leaves, and no chunk is opened to count it
            due = sum(self._due(number, chunk) for number, chunk in enumerate(chunks))
            due += sum(int(self._leaves(rows).sum()) for rows in (staying, flight.again))
        all_leaves = released is None or 0 < released >= due + past_due
        gone = sum(map(len, self.before.removed.values())) + flight.confirmed
        count = state.pending - gone + staying.num_rows

        @cache
        def there() -> pa.Table:
            rest = [self._rest(number, chunk) for number, chunk in enumerate(chunks)]
            found = pa.concat_tables([*rest, *(each.select(_COUNTED) for each in (flight.again, staying))])
            if all_leaves:
                found = found.filter(pa.array(~self._leaves(found)))
            return pa.concat_tables(
                [found, *(chunk.table(*_COUNTED).select(_COUNTED) for chunk in flight.chunks)]
            )

        def counts(bound: str, names: pa.Array) -> Int64s:
            return counted(keys_of(bound, there(), state.wheel.tick_ms), names)

        return Held(count - due if all_leaves else count, counts)

    def _due(self, number: int, chunk: Chunk) -> int:
        """How many entries of a chunk leave for good; a chunk that has none that is due is not opened."""
        if chunk.low_ms > self.before.now_ms:
            return 0
        leaves = self._leaves(chunk.table("deliver_at_ms", "repeat"))
        return int(np.delete(leaves, self.before.removed.get(number, _NONE)).sum())

    def _leaves(self, rows: pa.Table) -> Bools:
        """Which entries are due, and over then: a series goes on, and counts."""
        is_due = rows["deliver_at_ms"].to_numpy() <= self.before.now_ms
        return np.asarray(is_due & rows["repeat"].is_null().to_numpy(), bool)

    def _rest(self, number: int, chunk: Chunk) -> pa.Table:
        table, removed = chunk.table(*_COUNTED).select(_COUNTED), self.before.removed.get(number)
        return table if removed is None else without(table, removed)
