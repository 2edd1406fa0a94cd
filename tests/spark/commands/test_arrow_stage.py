"""Frames through readers of Arrow batches: two readings are one stage of Python, if nothing is done in between."""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.spark.commands.test_kafka_presets import SCHEMA, record
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.header_names import HeaderNames
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.parse import parse_commands
from wheel_udf.common.errors import ContractError
from wheel_udf.job.sources.topics import with_default_delay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONTRACT = Contract(default_destination="out", max_delay_ms=None)
RECORDS = [
    record(b"a", headers=[("wheel-id", b"a"), ("wheel-delay", b"1s"), ("x", b"1")]),
    record(b"b", headers=[("wheel-id", b"b"), ("wheel-deliver-at", b"1767225600123")], offset=8),
    record(b"c", headers=[("wheel-id", b"c\xff"), ("wheel-event-time", b"soon")], offset=9),
    record(b"d", headers=[("scheduler-epoch", b"1767225600"), ("scheduler-target-topic", b"t")], offset=10),
    record(b"e", None, None, offset=11),
]


def stages(frame: DataFrame) -> int:
    """How many times the rows of a frame go through Python."""
    return len(re.findall(r"(?m)^\W*MapIn(?:Arrow|Pandas)", plan(frame)))


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("preset", ["native", "scheduler"])
def test_records_become_checked_commands_in_one_stage_of_python(spark: SparkSession, preset: str) -> None:
    commands = kafka_commands(spark.createDataFrame(RECORDS, SCHEMA), preset)
    assert stages(parse_commands(commands, CONTRACT)) == 1
    assert stages(parse_commands(with_default_delay(commands, 5, {"orders": 9}), CONTRACT)) == 1


def test_a_default_delay_costs_commands_of_json_no_stage_of_their_own(spark: SparkSession) -> None:
    commands = kafka_commands(spark.createDataFrame(RECORDS, SCHEMA), "json")
    assert stages(parse_commands(with_default_delay(commands, 5), CONTRACT)) == 1


@pytest.mark.parametrize("preset", ["native", "scheduler"])
def test_commands_that_somebody_changed_in_between_are_the_same_rows_in_two_stages(
    spark: SparkSession, preset: str
) -> None:
    commands = kafka_commands(spark.createDataFrame(RECORDS, SCHEMA), preset, HeaderNames(id_from="key"))
    changed = commands.withColumn("destination", F.col("destination"))
    once, twice = parse_commands(commands, CONTRACT), parse_commands(changed, CONTRACT)
    assert (stages(once), stages(twice)) == (1, 2)
    assert once.schema == twice.schema
    assert once.orderBy("source").collect() == twice.orderBy("source").collect()


def test_a_change_in_between_counts(spark: SparkSession) -> None:
    commands = kafka_commands(spark.createDataFrame(RECORDS[:2], SCHEMA), "native")
    changed = commands.where("source_seq = 8")
    (row,) = parse_commands(changed.withColumn("destination", F.lit("other")), CONTRACT).collect()
    assert (row.schedule_id, row.destination) == ("b", "other")


def test_one_frame_of_commands_may_be_read_by_several(spark: SparkSession) -> None:
    commands = kafka_commands(spark.createDataFrame(RECORDS, SCHEMA), "native")
    limited = Contract(default_destination="out", max_delay_ms=1)
    first, second = (parse_commands(commands, each) for each in (CONTRACT, limited))
    gc.collect()
    assert [row.error_code for row in first.orderBy("seq").collect()[:1]] == [None]
    assert [row.error_code for row in second.orderBy("seq").collect()[:1]] == ["beyond_max_delay"]
    assert len(commands.collect()) == len(RECORDS)


def test_a_column_of_an_impossible_type_is_named_with_the_type_that_the_user_sees(
    spark: SparkSession,
) -> None:
    records = spark.createDataFrame(RECORDS, SCHEMA)
    with pytest.raises(ContractError, match="key = 'boolean'"):
        kafka_commands(records.withColumn("key", F.lit(True)), "native")
    commands = kafka_commands(records, "native").withColumn("deliver_at", F.lit(1))
    with pytest.raises(ContractError, match="deliver_at = 'int'"):
        parse_commands(with_default_delay(commands, 5), CONTRACT)
