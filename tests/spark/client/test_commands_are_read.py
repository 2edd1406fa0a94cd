"""What the builders write is what the parser reads: for both presets and for frames, every argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from wheel_udf import Contract, ContractError
from wheel_udf.client import frames, kafka
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.parse import parse_commands

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000
RECORD = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
FULL: dict[str, Any] = {
    "destination": "orders",
    "key": "customer-3",
    "seq": 7,
    "event_time": NOON,
    "max_lateness": timedelta(minutes=1),
}


def parsed(commands: DataFrame) -> list[Row]:
    contract = Contract(destinations=("orders",), default_destination="orders")
    return parse_commands(commands, contract).orderBy("schedule_id").collect()


def read_back(spark: SparkSession, preset: Any, *records: kafka.Record) -> list[Row]:
    rows = [
        (each["key"], each["value"], "commands", 0, offset, NOON, each["headers"] or None)
        for offset, each in enumerate(records)
    ]
    return parsed(kafka_commands(spark.createDataFrame(rows, RECORD), preset))


@pytest.mark.parametrize("preset", ["native", "json"])
def test_a_record_is_read_as_it_was_meant(spark: SparkSession, preset: Any) -> None:
    headers = [("trace", b"\x01")]
    later, due, cancel, fire = read_back(
        spark,
        preset,
        kafka.schedule("a", delay="1 hour 30 minutes", value="x", headers=headers, preset=preset, **FULL),
        kafka.replace("b", deliver_at=NOON + timedelta(microseconds=1), preset=preset),
        kafka.cancel("c", preset=preset),
        kafka.fire_now("d", preset=preset),
    )

    assert [each.error_code for each in (later, due, cancel, fire)] == [None] * 4
    assert (later.deliver_at_ms, later.event_time_ms, later.seq) == (NOON_MS + 5_400_000, NOON_MS, 7)
    assert (later.destination, later.max_lateness_ms) == ("orders", 60_000)
    assert (later.key, later.value, later.headers) == (
        b"customer-3",
        b"x",
        '[{"key":"trace","value":"AQ=="}]',
    )
    assert (due.deliver_at_ms, due.seq, due.key, due.op) == (NOON_MS + 1, 1, b"b", 0)
    assert (cancel.op, cancel.seq) == (1, 2)
    assert (fire.op, fire.seq, fire.key, fire.destination) == (2, 3, None, None)


def test_the_commands_of_a_frame_are_read_as_they_were_meant(spark: SparkSession) -> None:
    orders = spark.sql(
        "SELECT 7 AS id, timestamp'2026-01-01 12:00:00Z' AS made, 'x' AS text, map('t', 'u') AS h"
    )
    later = frames.schedule(
        orders,
        schedule_id=F.concat(F.lit("order-"), "id"),
        delay="1 hour 30 minutes",
        destination="orders",
        value="text",
        key=F.col("id").cast("string"),
        headers="h",
        seq="id",
        event_time="made",
        max_lateness=timedelta(minutes=1),
    )
    due = frames.replace(orders, schedule_id=F.lit("p"), deliver_at=NOON, destination=F.lit("orders"))
    cancel = frames.cancel(orders, schedule_id=F.lit("q"), event_time="made")
    fire = frames.fire_now(orders, schedule_id=F.lit("r"), seq="id")
    commands = later.unionByName(due, allowMissingColumns=True).unionByName(cancel, allowMissingColumns=True)
    first, second, third, fourth = parsed(commands.unionByName(fire, allowMissingColumns=True))

    assert [each.error_code for each in (first, second, third, fourth)] == [None] * 4
    assert (first.schedule_id, first.deliver_at_ms, first.seq) == ("order-7", NOON_MS + 5_400_000, 7)
    assert (first.key, first.value, first.max_lateness_ms) == (b"7", b"x", 60_000)
    assert (second.schedule_id, second.deliver_at_ms, second.op) == ("p", NOON_MS, 0)
    assert (third.schedule_id, third.op, third.seq) == ("q", 1, NOON_MS)
    assert (fourth.schedule_id, fourth.op, fourth.seq) == ("r", 2, 7)


def test_two_due_times_in_columns_are_refused_and_a_rule_in_a_column_may_stand_beside_one(
    spark: SparkSession,
) -> None:
    frame = spark.range(1).selectExpr("id", "'1 s' AS span", "now() AS at", "'@daily' AS rule")
    with pytest.raises(ContractError, match="two due times"):
        frames.schedule(frame, schedule_id="id", delay=F.col("span"), deliver_at=F.col("at"))
    made = frames.schedule(
        frame, schedule_id="id", repeat=F.col("rule"), delay=F.col("span"), starts_at=F.col("at")
    )
    assert {"repeat", "delay", "starts_at"} <= set(made.columns)


def test_two_beginnings_of_a_series_were_not_refused_beside_a_column_of_another_argument(
    spark: SparkSession,
) -> None:
    frame = spark.range(1).selectExpr("id", "'out' AS place")
    with pytest.raises(ContractError, match="two beginnings of a series"):
        frames.schedule(
            frame,
            schedule_id="id",
            destination=F.col("place"),
            repeat="@daily",
            delay="1 s",
            starts_at="2026-12-01T00:00:00Z",
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "no due time"),
        ({"delay": "1 s", "count": 3}, "an argument of a series without a rule: count = 3"),
    ],
)
def test_what_is_no_series_has_a_due_time_and_no_argument_of_one(
    spark: SparkSession, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ContractError, match=words):
        frames.schedule(spark.range(1), schedule_id="id", **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "no due time"),
        ({"delay": "soon"}, "not a duration: delay = 'soon'"),
        ({"deliver_at": datetime(2026, 1, 1)}, "an instant without a time zone"),  # noqa: DTZ001
        ({"delay": "1 s", "destination": "a/b"}, "not a destination: destination = 'a/b'"),
        ({"delay": "1 s", "seq": 7}, "not a column: seq = 7; rule: a Column, or the name of one; hint: a value"),
        ({"delay": "1 s", "schedule_id": None}, "not a column: schedule_id"),
    ],
)  # fmt: skip
def test_a_value_that_breaks_the_contract_is_refused_before_anything_runs(
    spark: SparkSession, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ContractError, match=words):
        frames.schedule(spark.range(1), **({"schedule_id": "id"} | arguments))
