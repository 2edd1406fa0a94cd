"""How the commands of a batch end, once repeated and older versions are dropped: winners, outcomes, and what
to remember.

For the rows of one id, in version order, each row ends the one before it::

    known: PENDING (1)     SCHEDULE 2    SCHEDULE 3    CANCEL 3    SCHEDULE 4
           superseded      superseded    cancelled     applied     pending: the winner

Vectorised: neighbours within a run of an id are compared with shifts and cumulative sums
(:mod:`wheel_udf.common.arrays`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from wheel_udf.common.arrays import before_in_run, is_last, repeats
from wheel_udf.shard.rows import CANCEL, FAR, MEMORY_SCHEMA, SCHEDULE, Int64s
from wheel_udf.wheel.known import ENDED, FIRED, IN_STORE, NOTHING, PENDING, WAITING, Known
from wheel_udf.wheel.version_order import Int32s, Rows


def resolve_outcomes(
    rows: Rows, known: Known, now_ms: int, counts: Counter[str]
) -> tuple[Int64s, list[pa.Table]]:
    """Ends the rows above the known version.

    Args:
        rows: Rows whose versions differ from each other and are higher than the known one of their id.
        known: What the shard knows of each id.
        now_ms: The clock of the batch.
        counts: Outcomes are added to these.

    Returns:
        The positions in the batch of the winners (entries that are pending now), and memory records
        (:func:`records_of`).
    """
    status = known.status[rows.code]
    follows = repeats(rows.code)
    last = is_last(rows.code)
    schedule = rows.op == SCHEDULE
    entry = schedule & (rows.act != FAR)
    next_op = np.r_[rows.op[1:], np.int32(0)][: len(follows)]
    counts["superseded"] += int((entry & ~last & (next_op == SCHEDULE)).sum())
    counts["cancelled"] += int((entry & ~last & (next_op == CANCEL)).sum())

    cancel = ~schedule
    after_entry, after_far = (
        cancel & follows & np.r_[False, each[:-1]][: len(follows)] for each in (entry, schedule & ~entry)
    )
    leading = cancel & (before_in_run(schedule, rows.code) == 0)
    on_entry = leading & ~follows & (status == PENDING)
    applied = after_entry | on_entry
    waits = (leading & ~follows & np.isin(status, (NOTHING, IN_STORE))) | after_far
    counts["applied"] += int(applied.sum())
    counts["waiting"] += int(waits.sum())
    counts["late"] += int((cancel & ~applied & ~waits).sum())

    # The first row above the known version ends what was known of the id.
    counts["cancelled"] += int(on_entry.sum())
    counts["superseded"] += int((schedule & ~follows & (status == PENDING)).sum())

    final = last & ~entry
    # Of several CANCELs one after the other, the first has met what there was.
    at = np.arange(len(rows.code))
    first = np.maximum.accumulate(np.where(cancel & follows & ~(after_entry | after_far), 0, at))
    unmet = (after_far | (leading & np.isin(status, (NOTHING, WAITING, IN_STORE))))[first]
    outcome = np.where(unmet, WAITING, np.where(leading & (status == FIRED), FIRED, ENDED))
    outcome = np.where(schedule, IN_STORE, outcome)
    now = np.full(len(rows.code), now_ms, np.int64)
    records = [
        records_of(rows.code[chosen], rows.seq[chosen], rows.rank[chosen], now[chosen], kind, known)
        for kind in (WAITING, IN_STORE, ENDED, FIRED)
        if (chosen := final & (outcome == kind)).any()
    ]
    return rows.at[entry & last], records


def records_of(
    code: Int64s, seq: Int64s, rank: Int32s, ended_at: Int64s, status: int, known: Known
) -> pa.Table:
    """Memory records of one status, with the code of the id in place of the id."""
    due = pa.array(known.due[code]) if status == FIRED else pa.nulls(len(code), pa.int64())
    return pa.table(
        {
            "code": pa.array(code),
            "seq": pa.array(seq),
            "rank": pa.array(rank),
            "status": pa.array(np.full(len(code), status, np.int8)),
            "deliver_at_ms": due,
            "ended_at_ms": pa.array(ended_at),
        }
    )


def with_ids(parts: Sequence[pa.Table], ids: pa.Array) -> pa.Table:
    """Records of :func:`records_of` as memory records (``MEMORY_SCHEMA``); ``ids`` by code."""
    records = pa.concat_tables(parts).combine_chunks()
    named = records.set_column(0, "schedule_id", ids.take(records["code"]))
    return named.cast(MEMORY_SCHEMA)
