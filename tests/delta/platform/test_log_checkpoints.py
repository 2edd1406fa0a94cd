"""Checkpoints of Delta logs are written beside the commits, and a log without one is as good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, types as T

from wheel_udf.platform import append_once, log_checkpoints
from wheel_udf.platform.delta_log import log_snapshot
from wheel_udf.platform.delta_transaction import begin_transaction

COLUMNS = T.StructType([T.StructField("id", T.StringType())])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """An empty table whose log has a checkpoint at each second version."""
    place = str(tmp_path / "table")
    begin_transaction(spark, place).commit_creation(COLUMNS, (), {"delta.checkpointInterval": "2"})
    return place


@contextmanager
def a_busy_worker() -> Iterator[None]:
    """Inside, no checkpoint is written."""
    free = threading.Event()
    log_checkpoints._worker.submit(free.wait)
    try:
        yield
    finally:
        free.set()


def append(spark: SparkSession, table: str, batch_id: int) -> None:
    rows = spark.createDataFrame([(f"row {batch_id}",)], COLUMNS).coalesce(1)
    append_once(rows, table, COLUMNS, (), app_id="a query", batch_id=batch_id)


def checkpoints(table: str) -> list[int]:
    """The versions of which the log has a checkpoint."""
    return sorted(
        int(file.name.split(".")[0]) for file in Path(table, "_delta_log").glob("[0-9]*.checkpoint.parquet")
    )


def read(spark: SparkSession, table: str) -> list[str]:
    return sorted(row.id for row in spark.read.format("delta").load(table).collect())


def test_a_commit_does_not_wait_for_the_checkpoint_that_is_due(spark: SparkSession, table: str) -> None:
    append(spark, table, 1)
    with a_busy_worker():
        append(spark, table, 2)
        append(spark, table, 3)
        assert log_snapshot(spark, table).version == 3
        assert checkpoints(table) == []
    log_checkpoints.finish()

    assert checkpoints(table) == [2]
    assert read(spark, table) == ["row 1", "row 2", "row 3"]


def test_a_table_waits_for_one_checkpoint_at_most(spark: SparkSession, table: str) -> None:
    with a_busy_worker():
        for batch_id in range(1, 7):
            append(spark, table, batch_id)
    log_checkpoints.finish()

    assert checkpoints(table) == [2], "those of versions 4 and 6 were due while it waited"
    append(spark, table, 7)
    append(spark, table, 8)
    log_checkpoints.finish()
    assert checkpoints(table) == [2, 8]
    assert len(read(spark, table)) == 8


def test_a_new_reader_begins_at_the_checkpoint(spark: SparkSession, table: str) -> None:
    for batch_id in (1, 2, 3):
        append(spark, table, batch_id)
    log_checkpoints.finish()
    for version in (0, 1):
        Path(table, "_delta_log", f"{version:020}.json").unlink()
    moved = f"{table}-moved"
    Path(table).rename(moved)

    assert read(spark, moved) == ["row 1", "row 2", "row 3"]
    append(spark, moved, 3)
    assert len(read(spark, moved)) == 3, "the transaction of batch 3 is known"


def test_a_checkpoint_that_fails_is_said_and_the_next_one_is_written(
    spark: SparkSession, table: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(log_checkpoints, "scala_none", lambda _: 1 / 0)
        append(spark, table, 1)
        append(spark, table, 2)
        log_checkpoints.finish()
    assert checkpoints(table) == []
    assert [record.message for record in caplog.records if "checkpoint" in record.message] == [
        f"the log of file:{table} has no new checkpoint: division by zero; a later commit tries again"
    ]
    append(spark, table, 3)
    append(spark, table, 4)
    log_checkpoints.finish()

    assert checkpoints(table) == [4]


def test_where_delta_has_no_such_hook_it_writes_the_checkpoint_itself(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_checkpoints, "_HOOK", "org.apache.spark.sql.delta.hooks.NoSuchHook$")
    with a_busy_worker():
        append(spark, table, 1)
        append(spark, table, 2)
        assert checkpoints(table) == [2]
