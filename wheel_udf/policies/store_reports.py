"""The policy ``Report``: rows that report on the slot store: an entry went there, came from there, or ended there.

In the tiered mode far entries wait in a slot store. The shard receives a report of each (column ``act``) and
counts from the reports::

    act               the entry ...                       effect here
    FAR               went to the store                   remembered as IN_STORE: its version beats an older entry here
    MOVED             comes from the store                folded like a command that needs no room
    GONE_SUPERSEDED   ended there: a higher version       counted
    GONE_DUPLICATE    ended there: the same version       counted
    GONE_CANCELLED    ended there: a CANCEL               counted; the waiting CANCEL becomes applied

The store decides and the shard counts, so that each schedule and CANCEL is counted once. A FAR row has no
outcome: its entry gets one when it fires or ends.

A series waits here, and its row in the store is dropped long before it ends. An older far version of its id that comes
after that finds nothing in the store that beats it. So the shard remembers, until that entry is due, that it has ended.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from wheel_udf.common.arrays import repeats
from wheel_udf.shard.rows import CANCEL, FAR, GONE_CANCELLED, GONE_DUPLICATE, GONE_SUPERSEDED, MOVED
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.known import ENDED, PENDING, WAITING, Known
from wheel_udf.wheel.outcomes import records_of
from wheel_udf.wheel.version_order import Rows, is_later, order_of

_OUTCOME_OF = {
    GONE_CANCELLED: "cancelled",
    GONE_SUPERSEDED: "superseded",
    GONE_DUPLICATE: "duplicate",
}


class StoreReports:
    """The policy ``Report`` of a shard beside a slot store."""

    def count_ended(self, commands: pa.Table, counts: Counter[str]) -> tuple[pa.Table, int]:
        """As :meth:`wheel_udf.wheel.policies.Report.count_ended`; the rows of CANCELs that ended an entry are left."""
        acts = commands["act"].to_numpy()
        for act, outcome in _OUTCOME_OF.items():
            counts[outcome] += int((acts == act).sum())
        from_store = (acts >= MOVED) & (acts <= GONE_DUPLICATE)
        more = int((acts == FAR).sum()) - int(from_store.sum())
        return commands.filter(pa.array((acts != GONE_SUPERSEDED) & (acts != GONE_DUPLICATE))), more

    def drop_met(self, rows: Rows, known: Known, now_ms: int) -> tuple[Rows, pa.Table]:
        """As :meth:`wheel_udf.wheel.policies.Report.drop_met`.

        Each ends the wait of its CANCEL, if that is remembered or in the batch. It is remembered from when it was read,
        as in the direct mode.
        """
        is_met = rows.act == GONE_CANCELLED
        if not is_met.any():
            return rows, records_of(*(rows.code[:0], rows.seq[:0], rows.rank[:0], rows.seq[:0]), ENDED, known)
        code = rows.code
        waits = (
            (known.status[code] == WAITING) & (rows.seq == known.seq[code]) & (rows.rank == known.rank[code])
        )
        beside = repeats(code, rows.seq, rows.rank)
        remembered = is_met & (waits | beside | np.r_[beside[1:], False])
        met = rows.where(remembered)
        ended_at = np.where(waits, known.ended_at[code], now_ms)[remembered]
        known.status[code[is_met & waits]] = ENDED
        return rows.where(~is_met), records_of(met.code, met.seq, met.rank, ended_at, ENDED, known)

    def beaten(self, rows: Rows, known: Known, commands: pa.Table) -> pa.Table:
        """As :meth:`wheel_udf.wheel.policies.Report.beaten`."""
        code = rows.code
        is_above = is_later((rows.seq, order_of(rows.rank)), (known.seq[code], order_of(known.rank[code])))
        found = rows.where((rows.act == FAR) & (known.status[code] == PENDING) & ~is_above)
        due_ms = commands["deliver_at_ms"].fill_null(0).to_numpy()[found.at]
        # As a CANCEL of that version: above the entry when it comes.
        return records_of(found.code, found.seq, found.rank + np.int32(CANCEL), due_ms, ENDED, known)

    def apply_waiting(self, state: ShardState, ended: int, counts: Counter[str]) -> None:
        """As :meth:`wheel_udf.wheel.policies.Report.apply_waiting`."""
        met = min(ended, state.counts["waiting"] + counts["waiting"])
        counts.update(applied=met, waiting=-met)
