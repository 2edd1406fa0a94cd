"""Pending operations of a purgatory as a table: :func:`operations_pending` reads them from a running or stopped one and
changes nothing.

The operations are in Spark's state (:mod:`wheel_udf.pending.state`). Cost: O(pending).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.checkpoint.identity import require_checkpoint
from wheel_udf.pending.acts_on_state import not_cancelled
from wheel_udf.pending.state import from_state
from wheel_udf.purgatory.inspect import LOOK_SCHEMA, operations_of_text

OPERATIONS_PENDING: Final = (
    "op_id", "group", "keys", "rule", "event_time", "deadline", "limit", "present", "total", "generation",
    "destination", "key", "value", "headers", "source", "place",
)  # fmt: skip
"""``present``: the keys whose event has come; ``total``: the sum of amounts so far; ``place``: ``open``, ``resting`` (a
join or a heartbeat between two generations, without instants), or ``held`` (until it is known whether its id is free);
``headers`` is JSON text."""


def operations_pending(spark: SparkSession, checkpoint: str, *, as_of_ms: int | None = None) -> DataFrame:
    """Returns the pending operations.

    Args:
        spark: A session.
        checkpoint: Checkpoint folder of the query over the frame of :func:`~wheel_udf.stream.watch`.
        as_of_ms: Read the operations that were pending after the last batch planned by this earlier moment (UTC epoch
            ms), as far back as Spark keeps batches (``spark.sql.streaming.minBatchesToRetain``).

    Returns:
        One row per operation with :data:`OPERATIONS_PENDING`, in no order.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged, or does not go back so far.
    """
    require_checkpoint(checkpoint)
    rows = from_state(spark, checkpoint, operations_of_text, LOOK_SCHEMA, as_of_ms=as_of_ms)
    named = {
        name: F.timestamp_millis(f"{name}_ms").alias(name) for name in ("event_time", "deadline", "limit")
    }
    shown = rows.select(*(named.get(name, F.col(name)) for name in OPERATIONS_PENDING))
    return shown if as_of_ms is not None else not_cancelled(shown, checkpoint)
