"""Delta tables on S3: what is done to them without Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import FIRED_SCHEMA
from wheel_udf.tables.delta_transaction import append_once, create_once
from wheel_udf.tables.log_checkpoints import write_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3.server import Server


def test_the_log_of_a_table_on_s3_gets_a_checkpoint(s3_spark: SparkSession, s3: Server, place: str) -> None:
    table = f"s3a://bucket/{place}"
    s3_spark.range(3).write.format("delta").save(table)
    write_checkpoint(table, keeps_log=False)
    assert "00000000000000000000.checkpoint.parquet" in s3.names(f"{place}/_delta_log")
    assert s3_spark.read.format("delta").load(table).count() == 3


ROWS = [
    (
        "a",
        1,
        "lager/ü %41",
        dt.datetime(2026, 1, 1, 0, 0, 0, 123_456, dt.UTC),
        b"\0x",
        dt.date(2026, 1, 1),
        [("h", b"v")],
    ),
    ("b", 2, None, None, None, None, None),
    ("c", -3, "z", dt.datetime(1999, 12, 31, 23, 59, 59, 0, dt.UTC), b"", dt.date(1970, 1, 1), []),
]
COLUMNS = "name string, number long, place string, at timestamp, value binary, day date, headers array<struct<key: string, value: binary>>"


@pytest.mark.sentinel
def test_rows_of_all_kinds_in_a_partitioned_table_are_read_by_spark_and_by_delta_rs(
    s3_spark: SparkSession, s3: Server, place: str
) -> None:
    table = f"s3a://bucket/{place}"
    s3_spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta PARTITIONED BY (place, day)")
    frame = s3_spark.createDataFrame(ROWS, COLUMNS)

    for batch_id in (0, 1, 1):
        append_once(frame, table, frame.schema, (), ("place",), app_id="job", batch_id=batch_id)

    by_spark = s3_spark.read.format("delta").load(table)
    assert sorted(by_spark.collect()) == sorted(frame.union(frame).collect())
    assert by_spark.where("place = 'lager/ü %41' AND day = date'2026-01-01'").count() == 2
    assert by_spark.where("number < 0").count() == 2
    by_rust = DeltaTable(f"s3://bucket/{place}", storage_options=s3.environment).to_pyarrow_table()
    assert sorted(map(str, by_rust["name"].to_pylist())) == ["a", "a", "b", "b", "c", "c"]
    assert set(by_rust["place"].to_pylist()) == {"lager/ü %41", None, "z"}


def test_an_append_to_a_table_on_s3_asks_for_little(s3_spark: SparkSession, s3: Server, place: str) -> None:
    table = f"s3a://bucket/{place}"
    s3_spark.sql(f"CREATE TABLE delta.`{table}` (name string, number long) USING delta")
    frame = s3_spark.createDataFrame([("a", 1), ("b", 2)], "name string, number long").coalesce(1)
    append_once(frame, table, frame.schema, (), app_id="job", batch_id=0)
    before = sum(s3.requests().values())
    append_once(frame, table, frame.schema, (), app_id="job", batch_id=1)

    # The newest commit once more, the one after it, a file, a commit; and what a thread of Hadoop may ask meanwhile. Spark's
    # own writer of files asks forty times.
    assert 4 <= sum(s3.requests().values()) - before < 10


def test_a_sink_creates_its_table_on_s3_without_replacing_the_first_commit_of_another(
    s3_spark: SparkSession, s3: Server, place: str
) -> None:
    sink = DeltaSink(f"s3a://bucket/{place}", create=True)
    row = (*("a", 1, "fire", "orders", None, b"x", None), *[dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 2, 0)
    frame = s3_spark.createDataFrame([row], FIRED_SCHEMA)
    for batch_id in (0, 0, 1):
        sink.write(frame, "orders", app_id="job", batch_id=batch_id)
    create_once(f"s3a://bucket/{place}/orders", frame.schema, {})  # by another driver: it comes second

    table = f"s3a://bucket/{place}/orders"
    assert s3_spark.read.format("delta").load(table).collect() == frame.union(frame).collect()
    history = s3_spark.sql(f"DESCRIBE HISTORY delta.`{table}`").orderBy("version").collect()
    assert [row.operation for row in history] == ["CREATE TABLE", "STREAMING UPDATE", "STREAMING UPDATE"]
    detail = s3_spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]
    assert detail.properties["delta.logRetentionDuration"] == "interval 7 days"
    assert sink.missing_reason(s3_spark, "orders") is None
