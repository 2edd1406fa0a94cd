"""Checkpoints of Delta logs are written beside the commits, and a log without one is as good."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, types as T

from wheel_udf.tables import log_checkpoints
from wheel_udf.tables.delta_log import snapshot
from wheel_udf.tables.delta_transaction import Transaction, append_once

COLUMNS = T.StructType([T.StructField("id", T.StringType())])


@pytest.fixture(autouse=True)
def _after_each_second_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_checkpoints, "EVERY", 2)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """An empty table, as this package makes them."""
    return made(spark, tmp_path, {})


def made(spark: SparkSession, folder: Path, properties: Mapping[str, str]) -> str:
    place = str(folder / "table")
    Transaction(place).commit_creation(COLUMNS, (), properties)
    return place


def with_an_old_log(spark: SparkSession, folder: Path) -> tuple[str, Path]:
    """A table whose log is kept for a week, with four batches of 1970; and its log."""
    for_a_week = {"delta.logRetentionDuration": "interval 7 days"}
    table = made(spark, folder, for_a_week)
    log = Path(table, "_delta_log")
    for batch_id in range(1, 5):
        append(spark, table, batch_id)
        log_checkpoints.finish()
    for minute, file in enumerate(sorted(log.glob("0*"))):
        os.utime(file, times=(60 * minute, 60 * minute))
    return table, log


@contextmanager
def another_at_work() -> Iterator[None]:
    """Inside, a checkpoint of another table is being written."""
    with log_checkpoints.writing:
        yield


def append(spark: SparkSession, table: str, batch_id: int) -> None:
    rows = spark.createDataFrame([(f"row {batch_id}",)], COLUMNS).coalesce(1)
    append_once(rows, table, COLUMNS, (), app_id="a query", batch_id=batch_id)


def checkpoints(table: str) -> list[int]:
    """The versions of which the log has a checkpoint."""
    files = Path(table, "_delta_log").glob("[0-9]*.checkpoint.parquet")
    return sorted(int(file.name.split(".")[0]) for file in files)


def read(spark: SparkSession, table: str) -> list[str]:
    return sorted(row.id for row in spark.read.format("delta").load(table).collect())


def test_a_commit_does_not_wait_for_the_checkpoint_that_is_due(spark: SparkSession, table: str) -> None:
    with another_at_work():
        append(spark, table, 1)
        append(spark, table, 2)
        append(spark, table, 3)
        assert snapshot(table).version == 3
        assert checkpoints(table) == []
    log_checkpoints.finish()

    assert checkpoints(table) == [3], "of the table as it is when the checkpoint is written"
    assert read(spark, table) == ["row 1", "row 2", "row 3"]


def test_a_table_waits_for_one_checkpoint_at_most(spark: SparkSession, table: str) -> None:
    with another_at_work():
        for batch_id in range(1, 7):
            append(spark, table, batch_id)
    log_checkpoints.finish()

    assert checkpoints(table) == [6], "those of versions 2 and 4 are in it"
    append(spark, table, 7)
    append(spark, table, 8)
    log_checkpoints.finish()
    assert checkpoints(table) == [6, 8]
    assert len(read(spark, table)) == 8


def test_a_new_reader_begins_at_the_checkpoint(spark: SparkSession, table: str) -> None:
    append(spark, table, 1)
    append(spark, table, 2)
    log_checkpoints.finish()
    append(spark, table, 3)
    assert checkpoints(table) == [2]
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
        broken.setattr(log_checkpoints, "local_folder", lambda *_: 1 / 0)
        append(spark, table, 1)
        append(spark, table, 2)
        log_checkpoints.finish()
    assert checkpoints(table) == []
    assert [record.message for record in caplog.records if "checkpoint" in record.message] == [
        f"the log of {table} has no new checkpoint: division by zero; a later commit tries again"
    ]
    append(spark, table, 3)
    append(spark, table, 4)
    log_checkpoints.finish()

    assert checkpoints(table) == [4]


def test_a_commit_goes_on_without_a_checkpoint_when_no_thread_can_be_started(
    spark: SparkSession, table: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    append(spark, table, 1)
    with monkeypatch.context() as full:
        full.setattr(log_checkpoints.threading.Thread, "start", refused)
        append(spark, table, 2)
    assert [record.message for record in caplog.records if "checkpoint" in record.message] == [
        f"the log of {table} has no new checkpoint: can't start new thread; a later commit tries again"
    ]
    append(spark, table, 3)
    append(spark, table, 4)
    log_checkpoints.finish(timeout_s=60)

    assert read(spark, table) == ["row 1", "row 2", "row 3", "row 4"]
    assert checkpoints(table) == [4]


def test_the_end_of_the_process_waits_no_longer_than_it_may(spark: SparkSession, table: str) -> None:
    with another_at_work():
        append(spark, table, 1)
        append(spark, table, 2)
        log_checkpoints.finish(timeout_s=0)
        assert checkpoints(table) == []
    log_checkpoints.finish()

    assert checkpoints(table) == [2]


def test_what_has_expired_is_deleted_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    table, log = with_an_old_log(spark, tmp_path)
    append(spark, table, 5)
    append(spark, table, 6)
    log_checkpoints.finish()

    assert checkpoints(table) == [4, 6]
    assert sorted(file.name for file in log.glob("0*.json")) == [f"{n:020}.json" for n in (4, 5, 6)]
    assert len(read(spark, table)) == 6


def test_a_writer_that_knows_a_slow_reader_keeps_what_has_expired(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, log = with_an_old_log(spark, tmp_path)
    for keeps_log, left in ((True, 7), (False, 5)):
        for _ in range(2):
            transaction = Transaction(table, keeps_log=keeps_log)
            version = transaction.before.version + 1
            transaction.commit_append([], app_id="store", batch_id=version)
        log_checkpoints.finish()
        assert checkpoints(table)[-1] == version, "a checkpoint deletes nothing by itself"
        assert len(list(log.glob("0*.json"))) == left
