"""What waits in a purgatory, as a table: :func:`operations_pending` of a running or stopped one, without touching it.

The operations are in Spark's state; its reader gives the state after a committed batch, and the chunks are opened where they are, as those of a wheel
(:mod:`wheel_udf.pending`). Cost: O(pending).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf.pending import from_state
from wheel_udf.watch_look import LOOK_SCHEMA, operations_of_text

OPERATIONS_PENDING: Final = (
    "op_id", "group", "keys", "rule", "event_time", "deadline", "limit", "present", "total", "generation", "destination", "key", "value",
    "headers", "source", "place",
)  # fmt: skip
"""``present``: the keys that have had their event; ``total``: what amounts have come to; ``place``: ``open``, ``resting`` (a join or a heartbeat between
two generations, without instants), or ``held`` (until it is known whether its id is free); ``headers`` is JSON text."""


def operations_pending(spark: SparkSession, checkpoint: str, *, as_of_ms: int | None = None) -> DataFrame:
    """The operations that wait.

    Args:
        spark: A session.
        checkpoint: Of the query over the frame of :func:`~wheel_udf.watch_operator.watch`.
        as_of_ms: Those that waited after the last batch planned by an earlier moment (UTC epoch ms) instead, as far back as Spark keeps batches
            (``spark.sql.streaming.minBatchesToRetain``).

    Returns:
        A row for each, with :data:`OPERATIONS_PENDING`, in no order.

    Raises:
        CheckpointError: The checkpoint is damaged, or does not go back so far.
    """
    rows = from_state(spark, checkpoint, operations_of_text, LOOK_SCHEMA, as_of_ms=as_of_ms)
    named = {
        name: F.timestamp_millis(f"{name}_ms").alias(name) for name in ("event_time", "deadline", "limit")
    }
    return rows.select(*(named.get(name, F.col(name)) for name in OPERATIONS_PENDING))
