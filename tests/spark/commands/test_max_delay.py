"""The longest delay holds on every way in: frames, Kafka's presets, topics of delay levels, change feeds, operations.

The way of files and tables: tests/spark/job. The way of acts: tests/delta/pending/test_acts.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from wheel_udf.commands.change_feed import change_commands
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.operations import parse_operations
from wheel_udf.commands.parse import parse_commands
from wheel_udf.control.clocks import EventClock, ProcessingClock, SimulatedClock
from wheel_udf.job.sources.topics import with_default_delay
from wheel_udf.stream.sharded_query import clocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

DAY_MS = 86_400_000
CONTRACT = Contract(max_delay_ms=DAY_MS, default_destination="t")
NOON = "timestamp'2026-01-05 12:00:00Z'"
ON_TIME, TOO_LATE = "2026-01-06T12:00:00Z", "2026-01-06T12:00:00.001Z"
RECORD = f"'orders' AS topic, 3 AS partition, offset, {NOON} AS timestamp"
HEADER = "struct('{}' AS key, cast({} AS binary) AS value)"


def frame(spark: SparkSession, columns: str) -> DataFrame:
    return spark.sql(f"SELECT {columns} FROM VALUES (1L, '{ON_TIME}'), (2L, '{TOO_LATE}') AS t(offset, due)")


def columns(spark: SparkSession) -> DataFrame:
    return frame(spark, f"offset AS schedule_id, due AS deliver_at, {NOON} AS event_time")


def delays(spark: SparkSession) -> DataFrame:
    return frame(
        spark, f"offset AS schedule_id, if(offset = 1, '1 day', '86400001 ms') AS delay, {NOON} AS event_time"
    )


def native(spark: SparkSession) -> DataFrame:
    headers = (
        f"array({HEADER.format('wheel-id', 'offset || offset')}, {HEADER.format('wheel-deliver-at', 'due')})"
    )
    return kafka_commands(
        frame(spark, f"X'00' AS key, X'00' AS value, {headers} AS headers, {RECORD}"), "native"
    )


def as_json(spark: SparkSession) -> DataFrame:
    value = "cast(to_json(named_struct('schedule_id', offset, 'deliver_at', due)) AS binary)"
    none = "cast(null AS array<struct<key: string, value: binary>>)"
    return kafka_commands(
        frame(spark, f"X'00' AS key, {value} AS value, {none} AS headers, {RECORD}"), "json"
    )


def scheduler(spark: SparkSession) -> DataFrame:
    epoch = "cast(1767700800 + if(offset = 1, 0, 1) AS string)"
    headers = f"array({HEADER.format('scheduler-epoch', epoch)})"
    key = "cast(cast(offset AS string) AS binary)"
    return kafka_commands(
        frame(spark, f"{key} AS key, X'00' AS value, {headers} AS headers, {RECORD}"), "scheduler"
    )


def topics_of_levels(spark: SparkSession) -> DataFrame:
    headers = f"array({HEADER.format('wheel-id', 'cast(offset AS string)')}) AS headers"
    record = RECORD.replace("'orders'", "'in-' || offset")
    commands = kafka_commands(frame(spark, f"X'00' AS key, X'00' AS value, {headers}, {record}"), "native")
    return with_default_delay(commands, None, {"in-1": DAY_MS, "in-2": DAY_MS + 1})


def changes(spark: SparkSession) -> DataFrame:
    rows = frame(
        spark,
        f"offset AS schedule_id, due AS deliver_at, 'insert' AS _change_type, offset AS _commit_version, "
        f"{NOON} AS _commit_timestamp",
    )
    return change_commands(rows, "orders").withColumn("event_time", F.col("_commit_timestamp"))


@pytest.mark.parametrize("way", [columns, delays, native, as_json, scheduler, topics_of_levels, changes])
def test_a_command_due_later_than_the_longest_delay_is_rejected_on_every_way_in(
    spark: SparkSession, way: Callable[[SparkSession], DataFrame]
) -> None:
    rows = parse_commands(way(spark), CONTRACT).orderBy("schedule_id").collect()
    assert [row.error_code for row in rows] == [None, "beyond_max_delay"]


def test_the_deadline_and_the_limit_of_an_operation_are_no_later_either(spark: SparkSession) -> None:
    of = f"offset AS op_id, 'g' AS group, array('k') AS keys, {NOON} AS event_time"
    deadlines = frame(spark, f"{of}, due AS deadline")
    limits = frame(spark, f"{of}, '1 hour' AS deadline, due AS limit")
    for rows, code in ((deadlines, "beyond_max_delay"), (limits, "bad_limit")):
        good, bad = parse_operations(rows, CONTRACT).orderBy("name").collect()
        assert good.reject is None
        assert f'"error_code":"{code}"' in bad.reject


def test_with_the_processing_clock_an_event_time_of_the_future_makes_no_delay_longer(
    spark: SparkSession,
) -> None:
    # 2999 is a day before the due time, and a thousand years after the batch.
    commands = spark.sql(
        "SELECT 'a' AS schedule_id, '1 hour' AS delay, timestamp'2999-01-01' AS event_time, 'o' AS op_id, 'g' AS group, "
        "array('k') AS keys, '1 hour' AS deadline"
    )
    contract = clocked(CONTRACT, ProcessingClock())
    (row,) = parse_commands(commands.drop("op_id", "group", "keys", "deadline"), contract).collect()
    assert row.error_code == "beyond_max_delay"
    assert "rule: at most 86400000 ms after event_time and after the time of the batch" in row.error_message
    (operation,) = parse_operations(commands.drop("schedule_id", "delay"), contract).collect()
    assert '"error_code":"beyond_max_delay"' in operation.reject


def test_other_clocks_have_times_of_their_own() -> None:
    assert clocked(CONTRACT, EventClock(max_ahead_ms=5)) == Contract(
        max_delay_ms=DAY_MS, default_destination="t", max_ahead_ms=5
    )
    assert clocked(CONTRACT, SimulatedClock(start_ms=0, step_ms=1)) == CONTRACT
