"""Acts on a slot store: the rows of an act, from its selection to the store.

The store has one writer, the keeper of the running job. So an act is a file of the checkpoint, as in the direct mode,
and its rows are a folder of Parquet beside it::

    another process                                     the job                              commit of the store
    selected entries --> acts/rows-3f, acts/7.json ---> keeper: rows placed by its cursor --> rows, acts: 7
         ^                                          |   (each second, and at its start before the wheel)
         `-- pending: store + acts not taken yet <--'

* The keeper takes the acts in order. The commit of an act carries its number, so a job that is killed at any moment
  takes each act once.
* A series waits in the state. The row of an act on one has no payload in the store: the shard completes it
  (:mod:`wheel_udf.wheel.acted`).
* Until an act is taken its rows are read as if the keeper had appended them (:func:`rows_not_taken`). So what is
  pending, also for the next act, is what the acts have left.
* Between selection and commit an entry may be handed over: the row says when its entry was due, and the cursor of the
  commit whether the wheel has that entry (:func:`~wheel_udf.store.intake.stored_rows`). What the row comes to if the
  entry has fired, or has a higher version, is in :mod:`wheel_udf.pending.acts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from wheel_udf.checkpoint.act_files import acts_of, new_rows, remove_rows, rows_place
from wheel_udf.common.errors import CheckpointError
from wheel_udf.common.paths import as_pattern
from wheel_udf.pending.audit import Rows, arrived_by
from wheel_udf.store.head import Head
from wheel_udf.store.intake import stored_rows
from wheel_udf.store.slot_store import SlotStore


def keep_rows(checkpoint: str, chosen: DataFrame, count: Callable[[DataFrame], int]) -> tuple[int, Rows]:
    """Writes the rows of an act beside the acts of a checkpoint.

    Args:
        checkpoint: Of the wheel's query.
        chosen: The selected entries as changed commands.
        count: Checks and counts them.

    Returns:
        Their number, and what the file of the act says of them. With 0, nothing is left.
    """
    spark, rows = chosen.sparkSession, new_rows()
    number = 0
    try:
        written = chosen.coalesce(spark.sparkContext.defaultParallelism).write
        written.parquet(rows_place(checkpoint, rows))
        number = count(commands_of(spark, checkpoint, rows))
    finally:
        if not number:
            remove_rows(checkpoint, rows)
    return number, rows


def commands_of(spark: SparkSession, checkpoint: str, rows: Rows) -> DataFrame:
    """Returns the rows of an act, as :func:`keep_rows` has got them.

    Raises:
        CheckpointError: They are not there.
    """
    place = rows_place(checkpoint, rows)
    try:
        return spark.read.parquet(as_pattern(place))
    except AnalysisException:
        raise CheckpointError(
            "the rows of an act are missing",
            field=place,
            hint="restore them from a copy; without them, what the act changed cannot be known",
        ) from None


def cancels_only(record: dict[str, Any]) -> bool:
    """Whether all rows of an act are CANCELs."""
    return bool(record["act"] == "cancel")


def rows_of_act(
    store: SlotStore, checkpoint: str, number: int, act: tuple[dict[str, Any], Rows], cursor_ms: int
) -> DataFrame:
    """Returns the rows of an act as rows of a store, placed by a cursor.

    Args:
        store: The store.
        checkpoint: Of the wheel's query.
        number: Number of the act.
        act: Its record and its rows.
        cursor_ms: The cursor.
    """
    record, rows = act
    return stored_rows(
        commands_of(store.spark, checkpoint, rows),
        store.layout,
        cursor_ms=cursor_ms,
        arrived=arrived_by(number),
        only_cancels=cancels_only(record),
    )


def rows_not_taken(store: SlotStore, head: Head, checkpoint: str) -> DataFrame | None:
    """Returns the rows of acts that a version of a store does not have yet, placed by its cursor; None if there are
    none.

    Raises:
        CheckpointError: The file of an act is damaged.
    """
    if head.cursor_ms is None:
        return None
    waiting = enumerate(acts_of(checkpoint, head.acts_taken), head.acts_taken)
    frames = [rows_of_act(store, checkpoint, number, act, head.cursor_ms) for number, act in waiting]
    return reduce(DataFrame.unionByName, frames) if frames else None
