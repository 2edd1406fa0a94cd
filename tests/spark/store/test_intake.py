"""Rows of the slot store: what Spark makes of a batch of the intake."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.generated import generated_code
from wheel_udf.commands.parse import Contract, parse_commands
from wheel_udf.common.geometry import Wheel
from wheel_udf.store.intake import stored_rows
from wheel_udf.store.layout import StoreLayout

LAYOUT = StoreLayout(Wheel(1_000, 20, 6), state_levels=3)
COMMANDS = "schedule_id string, deliver_at timestamp, destination string, value binary"


def test_the_number_of_a_batch_was_part_of_the_code_so_that_every_batch_was_compiled_anew(
    spark: SparkSession,
) -> None:
    parsed = parse_commands(spark.createDataFrame([], COMMANDS), Contract())
    first, second = (
        stored_rows(parsed, LAYOUT, cursor_ms=0, arrived=number, inbox=True) for number in (500, 501)
    )

    assert generated_code(first)
    assert generated_code(first) == generated_code(second)


def test_each_row_has_the_number_of_its_batch(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", "out"), ("b", "out")], "schedule_id string, destination string")
    parsed = parse_commands(rows.selectExpr("*", "timestamp_millis(0) AS deliver_at"), Contract())

    stored = stored_rows(parsed, LAYOUT, cursor_ms=0, arrived=500).where("act = 0")

    assert sorted((row.schedule_id, row.arrived) for row in stored.collect()) == [("a", 500), ("b", 500)]
