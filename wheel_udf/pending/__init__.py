"""Pending: reads pending work as tables and changes it.

In: a :class:`PendingWork` (the checkpoint folder of a run and, in the tiered mode, its slot store). Out: DataFrames, and rows that an act (cancel,
move, reroute) adds to the slot store. The running job is not involved; any process with a session can do this::

    question or action                                   function              module
    which entries are pending now, or were at a time?    pending               entries
    how many entries are pending?                        count_pending         entries
    how many rows are in the store (no data read)?       stored                entries
    how much falls due when?                             forecast              entries
    what happened to this id?                            history_of            history, in_topics
    which operations of a purgatory are pending?         operations_pending    operations
    what happened to this operation?                     operation_history_of  operation_history
    cancel, move, reroute by id or by predicate          acts.cancel, ...      acts
                                                         (reads of Spark's state: state; of the slot store: in_store)

    direct    Spark's state -----------------------------> entries
    tiered    Spark's state (near) + slot store (far) ---> entries <--- acts adds rows to the store

May import: common, wheel, purgatory, platform, clock, commands, delivery, store; pyspark, pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.pending import acts as acts
    from wheel_udf.pending.audit import (
        has_id as has_id,
        records_without as records_without,
        take_over as take_over,
    )
    from wheel_udf.pending.entries import (
        PendingWork as PendingWork,
        count_pending as count_pending,
        forecast as forecast,
        pending as pending,
        stored as stored,
    )
    from wheel_udf.pending.history import (
        history_of as history_of,
    )
    from wheel_udf.pending.in_store import (
        read_to as read_to,
    )
    from wheel_udf.pending.operation_history import (
        operation_history_of as operation_history_of,
    )
    from wheel_udf.pending.operations import (
        operations_pending as operations_pending,
    )
    from wheel_udf.pending.state import (
        from_state as from_state,
        heads_of as heads_of,
        in_state as in_state,
        remembered as remembered,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "entries": ("PendingWork", "count_pending", "forecast", "pending", "stored"),
            "audit": ("has_id", "records_without", "take_over"),
            "history": ("history_of",),
            "in_store": ("read_to",),
            "operation_history": ("operation_history_of",),
            "operations": ("operations_pending",),
            "state": ("from_state", "heads_of", "in_state", "remembered"),
        },
        modules=("acts",),
    )
