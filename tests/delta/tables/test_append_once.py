"""Appends to tables of users: exactly once, and by Delta's own writer where only that honours the table's features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, types as T

from wheel_udf.common.errors import SinkError
from wheel_udf.spark.hadoop_files import hadoop_folder
from wheel_udf.tables import data_files, delta_log, log_checkpoints
from wheel_udf.tables.delta_transaction import ConflictError, Transaction, append_once

COLUMNS = T.StructType([T.StructField("id", T.LongType()), T.StructField("name", T.StringType())])


def make(spark: SparkSession, place: Path, columns: str = "id long, name string", more: str = "") -> str:
    spark.sql(f"CREATE TABLE delta.`{place}` ({columns}) USING delta {more}")
    return str(place)


def feature(name: str) -> str:
    return f"TBLPROPERTIES ('delta.feature.{name}' = 'supported')"


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(each, "x") for each in ids], COLUMNS).coalesce(1)


def found(spark: SparkSession, place: str) -> list[int]:
    return sorted(row[0] for row in spark.read.format("delta").load(place).collect())


def newest(place: str) -> list[dict[str, Any]]:
    log = max(Path(place, "_delta_log").glob("*.json"))
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def by_delta(place: str) -> bool:
    """Whether Delta's own writer has made the last commit."""
    (information,) = [line["commitInfo"] for line in newest(place) if "commitInfo" in line]
    return str(information["engineInfo"]).startswith("Apache-Spark")


@pytest.mark.sentinel
def test_a_repeated_batch_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    place = make(spark, tmp_path / "table")

    for batch_id in (0, 0, 1, 0, 1):
        append_once(rows(spark, batch_id), place, COLUMNS, (), app_id="job", batch_id=batch_id)
    append_once(rows(spark, 7), place, COLUMNS, (), app_id="other job", batch_id=0)

    assert found(spark, place) == [0, 1, 7]
    assert delta_log.snapshot(place).version == 3
    assert delta_log.snapshot(place).transactions() == {"job": 1, "other job": 0}


def test_a_table_that_is_gone_is_an_error_and_not_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "table"
    with pytest.raises(SinkError, match="the table is missing"):
        append_once(rows(spark, 1), str(place), COLUMNS, (), app_id="job", batch_id=0)
    assert not place.exists()


def test_batches_of_delta_s_own_writer_are_known_and_the_other_way_round(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(spark, tmp_path / "table")

    def write(batch_id: int) -> None:
        options = {"txnAppId": "job", "txnVersion": str(batch_id)}
        rows(spark, batch_id).write.format("delta").mode("append").options(**options).save(place)

    append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=1)
    write(1)
    write(2)
    append_once(rows(spark, 2), place, COLUMNS, (), app_id="job", batch_id=2)

    assert found(spark, place) == [1, 2]


def test_of_two_writers_of_one_batch_the_second_writes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(spark, tmp_path / "table")
    commit = Transaction.commit_append

    def late(*args: Any, **more: Any) -> int:
        monkeypatch.undo()
        append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=5)
        append_once(rows(spark, 2), place, COLUMNS, (), app_id="other", batch_id=5)
        return commit(*args, **more)

    monkeypatch.setattr(Transaction, "commit_append", late)
    append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=5)

    assert found(spark, place) == [1, 2]


def test_an_append_that_comes_second_to_another_one_is_committed_after_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(spark, tmp_path / "table")
    commit = Transaction.commit_append

    def late(*args: Any, **more: Any) -> int:
        monkeypatch.undo()
        rows(spark, 2).write.format("delta").mode("append").save(place)
        return commit(*args, **more)

    monkeypatch.setattr(Transaction, "commit_append", late)
    append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=0)

    assert found(spark, place) == [1, 2]
    assert delta_log.snapshot(place).version == 2


def test_transactions_are_found_in_a_log_that_was_cleaned_up(spark: SparkSession, tmp_path: Path) -> None:
    place = make(spark, tmp_path / "table")
    for batch_id in range(3):
        append_once(rows(spark, batch_id), place, COLUMNS, (), app_id="job", batch_id=batch_id)
    log_checkpoints.write_checkpoint(place, keeps_log=True)
    append_once(rows(spark, 9), place, COLUMNS, (), app_id="late", batch_id=5)
    for version in range(3):
        (tmp_path / "table" / "_delta_log" / f"{version:020}.json").unlink()
    moved = str(Path(place).rename(tmp_path / "moved"))

    assert delta_log.snapshot(moved).transactions() == {"job": 2, "late": 5}
    assert delta_log.snapshot(moved).columns() == COLUMNS.jsonValue()["fields"]


def test_a_table_that_was_created_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(spark, tmp_path / "table")
    append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=0)
    Path(place).rename(tmp_path / "old")
    make(spark, tmp_path / "table")
    rows(spark, 7).write.format("delta").mode("append").save(place)

    append_once(rows(spark, 2), place, COLUMNS, (), app_id="job", batch_id=0)

    assert found(spark, place) == [2, 7]


PLAIN: dict[str, tuple[str, str]] = {
    "nothing": ("id long, name string", ""),
    "capitals": ("ID long, Name string", ""),
    "appends only": ("id long, name string", "TBLPROPERTIES ('delta.appendOnly' = 'true')"),
    "a feed of changes": ("id long, name string", "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"),
    "deletion vectors": ("id long, name string", "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"),
    "partitions": ("id long, name string", "PARTITIONED BY (id)"),
    "times without a zone": ("id long, name string, at timestamp_ntz", ""),
}


@pytest.mark.parametrize("case", PLAIN)
def test_a_plain_table_is_written_without_delta_and_read_the_same_by_all(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    place = make(spark, tmp_path / "table", *PLAIN[case])
    append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=0)
    assert not by_delta(place)
    rows(spark, 2).write.format("delta").mode("append").save(place)
    append_once(rows(spark, 3), place, COLUMNS, (), app_id="job", batch_id=1)
    assert not by_delta(place)

    assert found(spark, place) == [1, 2, 3]
    operations = [row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{place}`").collect()]
    assert operations == ["STREAMING UPDATE", "WRITE", "STREAMING UPDATE", "CREATE TABLE"]
    table = DeltaTable(place)
    assert table.version() == 3
    assert table.transaction_version("job") == 1
    assert table.count() == 3


BEYOND: dict[str, tuple[str, str, str]] = {
    "row tracking": (
        "id long, name string",
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "the table features domainMetadata, rowTracking",
    ),
    "column mapping": (
        "id long, name string",
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "the property delta.columnMapping.mode",
    ),
    "a clustered table": (
        "id long, name string",
        "CLUSTER BY (id)",
        "the table features clustering, domainMetadata",
    ),
    "defaults": (
        "id long, name string, more string DEFAULT 'x'",
        feature("allowColumnDefaults"),
        "the table features allowColumnDefaults",
    ),
    "a generated column": (
        "id long, name string, twice long GENERATED ALWAYS AS (id * 2)",
        "",
        "a value or a rule of the column twice",
    ),
    "an identity": (
        "id long, name string, number long GENERATED BY DEFAULT AS IDENTITY",
        "",
        "a value or a rule of the column number",
    ),
    "times of commits": (
        "id long, name string",
        "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "the table features inCommitTimestamp",
    ),
    "wider types": (
        "id long, name string",
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "the table features typeWidening",
    ),
    "compaction by Delta": (
        "id long, name string",
        "TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')",
        "the property delta.autoOptimize.autoCompact",
    ),
}


@pytest.mark.parametrize("case", BEYOND)
def test_a_table_with_more_features_is_written_by_delta_s_own_writer(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    columns, more, reason = BEYOND[case]
    place = make(spark, tmp_path / "table", columns, more)

    assert delta_log.snapshot(place).beyond_plain() == reason
    for batch_id in (0, 1, 1, 0):
        append_once(rows(spark, batch_id), place, COLUMNS, (), app_id="job", batch_id=batch_id)

    assert found(spark, place) == [0, 1]
    assert by_delta(place)


def test_where_delta_s_own_writer_is_needed_a_table_that_forgets_transactions_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    forgets = "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days'{})"
    place = make(spark, tmp_path / "table", more=forgets.format(", 'delta.enableRowTracking' = 'true'"))
    with pytest.raises(SinkError, match="the table forgets transactions"):
        append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=0)
    assert found(spark, place) == []

    plain = make(spark, tmp_path / "plain", more=forgets.format(""))
    append_once(rows(spark, 1), plain, COLUMNS, (), app_id="job", batch_id=0)
    # Delta drops a transaction without a time from its first checkpoint on, whatever the table's time is.
    spark.sql(f"ALTER TABLE delta.`{plain}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    spark.sql(f"INSERT INTO delta.`{plain}` SELECT * FROM delta.`{plain}`")
    (saved, *_) = sorted(Path(plain, "_delta_log").glob("*.checkpoint*.parquet"), reverse=True)
    marks = pq.read_table(saved)["txn"].drop_null().to_pylist()
    assert [(mark["appId"], mark["version"]) for mark in marks] == [("job", 0)]


def test_statistics_are_those_that_delta_writes(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id long, name string, at timestamp, day date, price decimal(9,2), raw binary, of struct<x: long>, none long"
    place = make(spark, tmp_path / "table", columns)
    frame = spark.sql(
        "SELECT id, concat('n', id) name, timestamp_micros(1000001 + id) at, date'2013-01-01' day, "
        "cast(id as decimal(9,2)) price, binary('x') raw, named_struct('x', id) of, cast(null as long) none "
        "FROM range(0, 3, 1, 1)"
    )
    append_once(frame, place, frame.schema, frame.columns, app_id="job", batch_id=0)
    (own,) = [json.loads(line["add"]["stats"]) for line in newest(place) if "add" in line]

    assert own == {
        "numRecords": 3,
        "minValues": {"id": 0, "name": "n0", "at": "1970-01-01T00:00:01.000Z", "day": "2013-01-01"},
        "maxValues": {"id": 2, "name": "n2", "at": "1970-01-01T00:00:01.001Z", "day": "2013-01-01"},
        "nullCount": {"id": 0, "name": 0, "at": 0, "day": 0, "price": 0, "raw": 0, "none": 3},
    }


def test_a_file_system_of_hadoop_is_read_and_written_likewise(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(spark, tmp_path / "table", more="PARTITIONED BY (id)")
    monkeypatch.setattr(data_files, "local_folder", lambda _: None)
    monkeypatch.setattr(delta_log, "open_folder", lambda path: hadoop_folder(f"file://{path}"))
    for batch_id in (0, 1, 1):
        append_once(rows(spark, batch_id), place, COLUMNS, (), app_id="job", batch_id=batch_id)
    late = Transaction(place)
    append_once(rows(spark, 2), place, COLUMNS, (), app_id="job", batch_id=2)
    with pytest.raises(ConflictError):
        late.commit_append([], app_id="job", batch_id=2)

    assert found(spark, place) == [0, 1, 2]
    assert delta_log.snapshot(place).transactions() == {"job": 2}
    assert [file["partitionValues"] for file in delta_log.files_of(place)[1]] == [
        {"id": "0"},
        {"id": "1"},
        {"id": "2"},
    ]


def test_an_empty_log_has_version_minus_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)

    assert delta_log.snapshot(str(tmp_path / "table")).version == -1
