"""Collects what is known of one operation of a purgatory: whether it waits, how it was decided, why it was refused.

::

    source                       what it contains
    state                        the operation while it waits: its rule, deadline, and the keys that have come
    tables of the destinations   its outcomes, as long as the tables are kept
    table of the rejects         why it was refused

Caveats: topics and files are not searched. An id may occur in several groups: all of them are returned.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.pending.history import rejected_to_table, written_tables
from wheel_udf.pending.in_topics import Event
from wheel_udf.pending.operations import operations_pending
from wheel_udf.sinks.destinations import Destinations, Sink


def operation_history_of(
    spark: SparkSession,
    checkpoint: str,
    op_id: str,
    *,
    destinations: Destinations | None = None,
    rejects: Sink | None = None,
) -> list[Event]:
    """Returns everything that is known of an operation.

    Args:
        spark: A session.
        checkpoint: Checkpoint folder of the purgatory.
        op_id: Its id.
        destinations: Where its outcomes may have been delivered.
        rejects: Where rejects are written.

    Returns:
        The facts, ordered by time; facts without a recorded time come last. Empty if nothing is known.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    events = [*_waiting(spark, checkpoint, op_id)]
    for table in written_tables(spark, destinations):
        events += _decided(table, op_id)
    events += rejected_to_table(spark, rejects, op_id)
    return sorted(events, key=lambda event: (event.at_ms is None, event.at_ms or 0))


def _waiting(spark: SparkSession, checkpoint: str, op_id: str) -> Iterator[Event]:
    rows = operations_pending(spark, checkpoint).where(F.col("op_id") == op_id)
    instants = (F.unix_millis(name).alias(f"{name}_ms") for name in ("event_time", "deadline"))
    names = ("group", "keys", "rule", "present", "generation", "destination", "place")
    for row in rows.select(*names, *instants).collect():
        about = f"group {row.group}, rule {row.rule}"
        if row.event_time_ms is not None:
            yield Event(row.event_time_ms, "operation", destination=row.destination, detail=about)
        came = f"{len(row.present)} of {len(row.keys)} keys have come: {', '.join(row.present) or 'none'}"
        detail = f"{about}, {row.place}, generation {row.generation}, {came}"
        what = "expires, if it is not complete by then"
        yield Event(row.deadline_ms, what, None, None, row.deadline_ms, row.destination, detail)


def _decided(table: DataFrame, op_id: str) -> Iterator[Event]:
    rows = table.where(F.col("op_id") == op_id)
    at_ms = F.unix_millis("at").alias("at_ms")
    names = ("group", "outcome", "by_key", "generation", "destination", "missing", "fire_id")
    for row in rows.select(*names, at_ms).collect():
        by = f", by key {row.by_key}" if row.by_key is not None else ""
        missing = f", missing {', '.join(row.missing)}" if row.missing else ""
        detail = f"group {row.group}, generation {row.generation}{by}{missing}, fire_id {row.fire_id}"
        yield Event(row.at_ms, row.outcome, destination=row.destination, detail=detail)
