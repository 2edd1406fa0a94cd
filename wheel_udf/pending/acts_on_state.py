"""Acts on what waits in the state of a query: the direct mode and the purgatory.

An act is a small file of the checkpoint, which the query takes with its next batch
(:mod:`wheel_udf.checkpoint.act_files`, :mod:`wheel_udf.delivery.act_courier`)::

    pending entries + acts not taken yet --select--> rows: id, version, what changes --> acts/7.json --> next batch

The query may be running or stopped; a stopped one takes the act with the first batch of its next start, before anything
fires. Until then :func:`changed` shows pending entries as the act has left them.

Rows are made per shard, because each shard gets its own: the number of shards is in the identity of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.checkpoint.act_files import acts_of, acts_taken
from wheel_udf.checkpoint.identity import identity_of
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.pending.audit import Rows
from wheel_udf.pending.state import clock_of
from wheel_udf.shard.arrow_text import table_to_text
from wheel_udf.shard.rows import CANCEL
from wheel_udf.stream.sharding import shard_of_id
from wheel_udf.stream.watch_worker import CANCELLATION_SCHEMA
from wheel_udf.wheel.acted import ACT_SCHEMA, ADD, CARRIED, acts_of_texts


def state_clock_ms(spark: SparkSession, checkpoint: str) -> int:
    """The clock of a query: under the processing clock the wall clock, else the latest clock of its shards. The wall
    clock if that has not begun.
    """
    if identity_of(checkpoint).clock == "processing":
        return wall_clock_ms()
    # Spark's watermark is 0 until it has seen an event time.
    return clock_of(spark, checkpoint) or wall_clock_ms()


# ---- acts that no batch has taken yet ------------------------------------------------------------


def changed(entries: DataFrame, checkpoint: str, ids: Sequence[str] | None = None) -> DataFrame:
    """Returns the pending entries of a state as the acts leave them that no committed batch has taken.

    Args:
        entries: Rows of the state, with the columns of ``ENTRY_SCHEMA``.
        checkpoint: Of the query.
        ids: The ids that they are of; None for all.
    """
    rows = acts_of_texts(_not_taken(checkpoint), ACT_SCHEMA)
    is_added = pc.equal(rows["op"], ADD)
    added, acts = rows.filter(is_added), rows.filter(pc.invert(is_added))
    if ids is not None:
        added = added.filter(pc.is_in(added["schedule_id"], value_set=pa.array(ids, pa.string())))
    if acts.num_rows:
        entries = changed_by(entries, entries.sparkSession.createDataFrame(acts))
    if not added.num_rows:
        return entries
    new = entries.sparkSession.createDataFrame(added).drop("op").withColumn("in_flight", F.lit(False))
    return entries.unionByName(new, allowMissingColumns=True)


def changed_by(entries: DataFrame, acts: DataFrame) -> DataFrame:
    """Returns pending entries of a state (the columns of ``ENTRY_SCHEMA``) as acts leave them (``ACT_SCHEMA``)."""
    names = [name for name in ACT_SCHEMA.names if name not in ("schedule_id", "seq", "op", *CARRIED)]
    # Of several acts on a version the highest counts: it was made of what the others had left.
    last = F.max_by(F.struct("op", *names), F.struct("op", "amend"))
    changes = acts.groupBy("schedule_id", "seq").agg(last.alias("last"))
    changes = changes.select(
        *("schedule_id", "seq", "last.op"), *(F.col(f"last.{name}").alias(f"new_{name}") for name in names)
    )
    met = entries.join(F.broadcast(changes), ["schedule_id", "seq"], "left")
    met = met.where(F.col("op").isNull() | (F.col("op") != CANCEL))
    newer = (F.col("new_amend") > F.col("amend")) & (
        F.col("new_occurrence").isNull() | F.col("new_occurrence").eqNullSafe(F.col("occurrence"))
    )
    # The nominal time of a series' occurrence stays.
    moved_ms = F.col("new_deliver_at_ms") - F.col("deliver_at_ms") + F.coalesce("level_error_ms", F.lit(0))
    news = {name: F.col(f"new_{name}") for name in names}
    # An act that skips an occurrence has no due time.
    news["deliver_at_ms"] = F.coalesce("new_deliver_at_ms", "deliver_at_ms")
    news["occurrence"] = F.col("occurrence")
    moved_ms = F.coalesce(moved_ms, F.col("level_error_ms"))
    news["level_error_ms"] = F.when(F.col("repeat").isNotNull(), moved_ms).otherwise(news["level_error_ms"])
    columns = {name: F.when(newer, new).otherwise(F.col(name)).alias(name) for name, new in news.items()}
    return met.select(*(columns.get(name, F.col(name)) for name in entries.columns))


def not_cancelled(operations: DataFrame, checkpoint: str) -> DataFrame:
    """Returns the pending operations of a purgatory, without those cancelled by acts that no batch has taken yet."""
    rows = acts_of_texts(_not_taken(checkpoint), CANCELLATION_SCHEMA)
    if not rows.num_rows:
        return operations
    cancelled = operations.sparkSession.createDataFrame(rows.select(["group", "op_id"])).distinct()
    return operations.join(F.broadcast(cancelled), ["group", "op_id"], "left_anti").select(
        *operations.columns
    )


def _not_taken(checkpoint: str) -> list[str]:
    """The rows of the acts that no committed batch has taken."""
    return [text for _, rows in acts_of(checkpoint, acts_taken(checkpoint)) for text in rows.values()]


# ---- new acts ------------------------------------------------------------------------------------


def keep_by_shard(checkpoint: str, chosen: DataFrame, count: Callable[[DataFrame], int]) -> tuple[int, Rows]:
    """Reads the rows of an act as text for each shard.

    Args:
        checkpoint: Of the query.
        chosen: The selected entries as changed commands, or the selected operations.
        count: Checks and counts them.

    Returns:
        Their number, and the rows.
    """
    schema, key = (CANCELLATION_SCHEMA, "group") if "op_id" in chosen.columns else (ACT_SCHEMA, "schedule_id")
    shard = shard_of_id(F.col(key), identity_of(checkpoint).shards).alias("shard")
    columns = [
        F.when(F.col("op") == ADD, F.col(name)).alias(name) if name in CARRIED else F.col(name)
        for name in schema.names
    ]
    chosen = chosen.select(shard, *columns).persist()
    try:
        number = count(chosen)
        return number, _by_shard(chosen.toArrow(), schema) if number else {}
    finally:
        chosen.unpersist()


def _by_shard(rows: pa.Table, schema: pa.Schema) -> dict[str, str]:
    found = {}
    for shard in pc.unique(rows["shard"]).to_pylist():
        mine = rows.filter(pc.equal(rows["shard"], shard))
        found[str(shard)] = table_to_text(mine.select(schema.names).cast(schema))
    return found
