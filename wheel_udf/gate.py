"""The gate of a shard: new entries pass it if the limits leave room beside what the shard holds (:mod:`wheel_udf.limits`).

It stands behind the fold, which says which rows are new entries, and before the clock moves. Counts are taken from the entries
themselves whenever they are needed, so they are exact and there is nothing that could go out of step with them::

    pending before the batch  -  removed by it  +  those that replace  -  due now (they leave with the batch)  =  held

Pure: numpy, pandas and pyarrow alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.limits import Held, Limits, Verdict, counted, judge, keys_of
from wheel_udf.runs import Int64s
from wheel_udf.state import ShardState, without

_COUNTED = ["destination", "deliver_at_ms"]


@dataclass(frozen=True)
class HeldIf:
    """What a shard holds, before new entries come.

    Attributes:
        state: The shard before the batch.
        removed: For each index into its entry chunks, the rows that the batch removes.
        now_ms: The clock of the batch.
    """

    state: ShardState
    removed: Mapping[int, Int64s]
    now_ms: int

    def beside(self, staying: pa.Table, past_due: int, released: int | None) -> Held:
        """What is held beside new entries.

        Args:
            staying: Entries that replace others.
            past_due: How many new entries are due already.
            released: Most entries released in the batch; None for no bound.
        """
        due = sum(int((at <= self.now_ms).sum()) for at in self._due_times(staying))
        all_leaves = released is None or due + past_due <= released
        count = self.state.pending - sum(map(len, self.removed.values())) + staying.num_rows

        @cache
        def there() -> pa.Table:
            found = pa.concat_tables([*self._rest(), staying.select(_COUNTED)])
            return found.filter(pc.greater(found["deliver_at_ms"], self.now_ms)) if all_leaves else found

        def counts(bound: str, names: pa.Array) -> Int64s:
            return counted(keys_of(bound, there(), self.state.wheel.tick_ms), names)

        return Held(count - due if all_leaves else count, counts)

    def _due_times(self, staying: pa.Table) -> Iterator[Int64s]:
        yield staying["deliver_at_ms"].to_numpy()
        for number, chunk in enumerate(self.state.entry_chunks):
            if chunk.low_ms <= self.now_ms:
                due = chunk.table("deliver_at_ms")["deliver_at_ms"].to_numpy()
                yield np.delete(due, self.removed.get(number, []))

    def _rest(self) -> Iterator[pa.Table]:
        for number, chunk in enumerate(self.state.entry_chunks):
            table, gone = chunk.table(*_COUNTED).select(_COUNTED), self.removed.get(number)
            yield table if gone is None else without(table, gone)


@dataclass(frozen=True)
class Gate:
    """What new entries have to pass.

    Attributes:
        limits: This shard's part of the limits.
        released: Most entries released in the batch; None for no bound.
    """

    limits: Limits
    released: int | None = None

    def judge(self, new: pa.Table, held: HeldIf, staying: pa.Table) -> Verdict:
        """As :func:`wheel_udf.limits.judge`; what is due already passes.

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
