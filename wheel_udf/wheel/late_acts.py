"""Acts that come too late: a move or reroute of an entry that has fired meanwhile changes nothing.

An act (:mod:`wheel_udf.pending.acts`) selects pending entries and then commits, for each, the same ``seq`` with
a higher ``amend``. The wheel may release the entry before it reads that commit::

    known of an id            row of an act (1, amend 1)             outcome
    pending (1)               any                                    pending, and the old one superseded
    fired (1)                 any                                    late: superseded
    anything else             on an entry that the wheel has had     late: superseded (it has ended, maybe forgotten)
    anything else             on an entry in the slot store          pending: such an entry cannot have fired

So an entry fires at most once, however long the act took and however short ``memory`` is. The wheel *has had*
an entry that was due before the store's cursor when the act was committed: it reads the entry no later than
the act, and releases nothing that is due at or after the cursor. A row of an act on such an entry has
``seq_given`` False, all other rows of acts have True.

A late act that moves its entry to the slot store (FAR) is recognised now, and the entry comes back later, as
MOVED, in a batch that begins before its due time. So its end is remembered until then, plus ``memory``.

Caveat: until then that entry counts as far and is shown as pending.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from wheel_udf.common.arrays import Bools, repeats
from wheel_udf.shard.rows import CANCEL, FAR, MOVED, RETRY, SCHEDULE
from wheel_udf.wheel.known import FIRED, IN_STORE, PENDING, Known
from wheel_udf.wheel.outcomes import records_of
from wheel_udf.wheel.version_order import Rows


def drop_late_acts(
    rows: Rows, known: Known, commands: pa.Table, counts: Counter[str]
) -> tuple[Rows, list[pa.Table]]:
    """Drops the rows of acts that came too late.

    Args:
        rows: Rows above the known version of their id.
        known: What the shard knows of each id.
        commands: The batch.
        counts: Outcomes are added to these.

    Returns:
        The rows that are left, and memory records (:func:`~wheel_udf.wheel.outcomes.records_of`) of those that went to
        the slot store.
    """
    acts = (rows.rank > CANCEL) & (rows.op == SCHEDULE) & (rows.act != RETRY)
    if not acts.any():
        return rows, []
    fired = (known.status[rows.code] == FIRED) & (known.seq[rows.code] == rows.seq)
    of_wheel = acts & ~commands["seq_given"].to_numpy()[rows.at] & (rows.act != MOVED)
    late = acts & (fired | (of_wheel & ~_is_pending(rows, known, of_wheel)))
    far = late & (rows.act == FAR)
    counts["superseded"] += int((late & ~far).sum())
    due = commands["deliver_at_ms"].fill_null(0).to_numpy()[rows.at[far]]
    # As a CANCEL of that version: above the entry when it comes.
    rank = rows.rank[far] + np.int32(CANCEL)
    records = [records_of(rows.code[far], rows.seq[far], rank, due, FIRED, known)] if far.any() else []
    return rows.where(~late), records


def _is_pending(rows: Rows, known: Known, of_wheel: Bools) -> Bools:
    """Whether an entry of the row's seq is pending when the row takes effect, without the rows of `of_wheel`."""
    places = np.arange(len(rows.code))
    before = np.maximum.accumulate(np.where(of_wheel, -1, places))
    starts = np.maximum.accumulate(np.where(repeats(rows.code), 0, places))
    in_batch = (rows.op[before] == SCHEDULE) & (rows.seq[before] == rows.seq)
    status = known.status[rows.code]
    in_state = ((status == PENDING) | (status == IN_STORE)) & (known.seq[rows.code] == rows.seq)
    return np.asarray(np.where(before >= starts, in_batch, in_state), dtype=np.bool_)
