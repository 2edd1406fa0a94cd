"""Removes the rows of ids from a sink's Delta tables (:func:`remove_rows`), or counts them (:func:`count_rows`).

::

    a frame of ids  --MERGE ... WHEN MATCHED THEN DELETE-->  one commit of the table

The ids come as a frame and are joined. As literals of a predicate (``DELETE WHERE schedule_id IN (...)``), they would
be written into the history of the table, Spark's event log and its page, and an id with quotes would have to be
escaped.

A commit that removes rows removes them from the newest version only. The files of the versions before hold them until
VACUUM; a table with deletion vectors keeps them even in the files of the newest version, until REORG TABLE ... APPLY
(PURGE).

Appends of the job do not conflict with the commit. Another writer may: then it is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import ActError, SinkError
from wheel_udf.tables import delta_log

ID: Final = "forgotten_id"
"""The column of a frame of ids."""

_TRIES: Final = 5
_VECTORS: Final = "delta.enableDeletionVectors"


def frame_of_ids(spark: SparkSession, ids: Sequence[str]) -> DataFrame:
    """Returns the ids as a frame, each once.

    Raises:
        ActError: There is none, or one is empty or not UTF-8.
    """
    if not ids:
        raise ActError("no id is given", field="id", rule="at least one")
    for each in ids:
        try:
            each.encode()
        except UnicodeEncodeError:
            raise ActError("not a text", field="id", value=each, rule="UTF-8") from None
        if not each:
            raise ActError("an empty id", field="id", value=each, rule="at least one character")
    return spark.createDataFrame([(each,) for each in dict.fromkeys(ids)], f"{ID} string")


def rows_of_ids(rows: DataFrame, ids: DataFrame, *columns: str) -> DataFrame:
    """Returns the rows in which one of the columns holds one of the ids."""
    return rows.join(F.broadcast(ids), _is_one_of(rows, ids, columns), "left_semi")


def rows_without_ids(rows: DataFrame, ids: DataFrame, *columns: str) -> DataFrame:
    """Returns the other rows; also those without an id."""
    return rows.join(F.broadcast(ids), _is_one_of(rows, ids, columns), "left_anti")


def _is_one_of(rows: DataFrame, ids: DataFrame, columns: Sequence[str]) -> Column:
    return reduce(or_, (rows[name] == ids[ID] for name in columns))


def count_rows(rows: DataFrame, ids: DataFrame, column: str) -> int | None:
    """Returns the number of rows of the ids; None if the rows have no such column."""
    return rows_of_ids(rows, ids, column).count() if column in rows.columns else None


def count_texts(rows: DataFrame, ids: DataFrame, columns: Sequence[str]) -> int:
    """Returns the number of rows with one of the ids in the text of a column, as it is or as JSON writes it."""
    text = F.concat_ws("\n", *(rows[name].cast("string") for name in columns))
    # Of a struct with one member: {"i":"..."}
    as_json = F.to_json(F.struct(ids[ID].alias("i")))
    escaped = F.substring(as_json, F.lit(7), F.length(as_json) - 8)
    same = F.contains(text, ids[ID]) | F.contains(text, escaped)
    return rows.join(F.broadcast(ids), same, "left_semi").count()


def remove_rows(spark: SparkSession, place: str, ids: DataFrame, column: str) -> None:
    """Removes the rows of the ids from a Delta table, in one commit.

    Args:
        spark: A session.
        place: Path or URI of the table.
        ids: A frame of :func:`frame_of_ids`.
        column: The column that has the id of a row.

    Raises:
        SinkError: Other writers have changed the same rows again and again.
    """
    table = DeltaTable.forPath(spark, place).alias("kept")
    same = F.col(f"kept.{column}") == F.col(f"forgotten.{ID}")
    for _ in range(_TRIES):
        try:
            table.merge(ids.alias("forgotten"), same).whenMatchedDelete().execute()
        except DeltaConcurrentModificationException:
            continue
        return
    raise SinkError(
        f"gave up after {_TRIES} conflicting commits", field=place, hint="pause its other writers"
    )


def has_deletion_vectors(spark: SparkSession, place: str) -> bool:
    """Whether removed rows stay in the files of the newest version of a table."""
    return delta_log.snapshot(spark, place).properties().get(_VECTORS, "").lower() == "true"
