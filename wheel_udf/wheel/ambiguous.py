"""Counts commands whose order is not known: two schedules of one id that give no ``seq`` and have one version.

Without a ``seq`` the version is the event time (or the time of the file, or of the batch). Rows of one id with
one event time then have one version, so the second is a duplicate, and is lost if its content differs::

    a, event time 10:00, due 10:05       kept: of one version the one that is due first (or that came first)
    a, event time 10:00, due 10:30       a duplicate with other content: ambiguous
    a, event time 10:00, due 10:05       a duplicate, and no more than that: a producer's repetition

The row is compared with the other rows of the batch, with the pending entry, and with the due time of what has
fired. A CANCEL of the same version is above the schedule and is not ambiguous; Kafka's offsets differ.

Cost: nothing unless a version occurs again; then O(such rows), and the pending entries that they repeat.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, repeats
from wheel_udf.shard.rows import COMMAND, FAR, SCHEDULE, Int64s, asked_ms
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.known import FIRED, PENDING, Known
from wheel_udf.wheel.version_order import Rows

_CONTENT = ("repeat", "deliver_at_ms", "max_lateness_ms", "destination", "key", "value", "headers")


def count_ambiguous(state: ShardState, commands: pa.Table, rows: Rows, known: Known) -> int:
    """Counts the schedules without a seq that differ from another schedule of their version.

    Args:
        state: The shard before the batch.
        commands: The batch (``COMMAND_SCHEMA``).
        rows: All its rows, in version order.
        known: What the shard knows of each id.
    """
    unversioned = (rows.rank == SCHEDULE) & ((rows.act == COMMAND) | (rows.act == FAR))
    unversioned &= ~commands["seq_given"].to_numpy()[rows.at]
    same = (rows.seq == known.seq[rows.code]) & (rows.rank == known.rank[rows.code])
    status = np.where(unversioned & same, known.status[rows.code], 0)
    pending, fired = np.flatnonzero(status == PENDING), np.flatnonzero(status == FIRED)
    copies = np.flatnonzero(unversioned & repeats(rows.code, rows.seq, rows.rank) & (status == 0))
    if not len(pending) + len(fired) + len(copies):
        return 0
    found = _differ(_take(commands, rows.at[copies]), _take(commands, rows.at[copies - 1])).sum()
    code = rows.code[pending]
    for number in np.unique(known.chunk[code]):
        mine = known.chunk[code] == number
        entries = _take(state.entry_chunks[number].table(*_CONTENT), known.row[code[mine]])
        found += _differ(_take(commands, rows.at[pending[mine]]), entries).sum()
    asked = asked_ms(commands).fill_null(0).to_numpy()[rows.at[fired]]
    return int(found + (asked != known.due[rows.code[fired]]).sum())


def _take(table: pa.Table, rows: Int64s) -> pa.Table:
    return table.select(_CONTENT).take(pa.array(rows))


def _differ(left: pa.Table, right: pa.Table) -> Bools:
    """Row by row, whether two tables differ."""
    differs: Bools = np.zeros(left.num_rows, bool)
    for name in _CONTENT:
        a, b = left[name].combine_chunks(), right[name].combine_chunks()
        nulls = pc.and_(pc.is_null(a), pc.is_null(b))
        same = pc.or_(nulls, pc.fill_null(pc.equal(a, b), False))  # noqa: FBT003  # the value
        if name == "deliver_at_ms":
            same = pc.or_(same, pc.is_valid(left["repeat"].combine_chunks()))  # a series has gone on
        differs |= ~same.to_numpy(zero_copy_only=False)
    return differs
