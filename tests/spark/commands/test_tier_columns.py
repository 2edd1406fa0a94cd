"""The three forms of the geometry, plain int, numpy and Spark Column, give one answer on hostile values.

Every wheel meets every clock below with every due time that is near something: zero, the extremes of int64,
2**53 (where doubles lose whole numbers), the years 1900 and 9999, and each tick and level edge of that clock,
one ms to either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import SparkSession, functions as F

from wheel_udf.commands.tier_columns import level_column, slot_column
from wheel_udf.common.geometry import (
    INT64_MAX,
    INT64_MIN,
    Wheel,
    level_of,
    levels_of,
    slot_of,
    slots_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


YEAR_1900, YEAR_2013, YEAR_9999 = -2_208_988_800_000, 1_356_998_400_000, 253_402_300_799_999

WHEELS = [
    Wheel(tick_ms=1, size=20, levels=3),
    Wheel(tick_ms=1_000, size=20, levels=6),
    Wheel(tick_ms=10_000, size=8, levels=3),
    Wheel(tick_ms=1_000, size=7_200, levels=1),
    Wheel(tick_ms=1, size=2, levels=62),
    Wheel(tick_ms=7, size=3, levels=37),
    Wheel(tick_ms=1, size=2**62, levels=1),
    Wheel(tick_ms=2**60, size=2, levels=2),
    Wheel(tick_ms=2**62 - 1, size=2, levels=1),
]
CLOCKS = [
    0,
    1,
    -1,
    450,
    -12_345_678_901,
    YEAR_2013 + 7,
    2**53,
    YEAR_9999,
    INT64_MAX,
    INT64_MAX - 1,
    INT64_MIN,
]


def hostile_due_times(wheel: Wheel, clock_ms: int) -> list[int]:
    centres = [0, 2**53, -(2**53), YEAR_1900, YEAR_9999, INT64_MIN, INT64_MAX, clock_ms]
    # Of a wheel with very many levels the lowest and highest three will do.
    for level in sorted(
        {1, 2, 3, *range(wheel.levels - 2, wheel.levels + 1)} & {*range(1, wheel.levels + 1)}
    ):
        tick_ms, interval_ms = wheel.tick_of(level), wheel.interval_of(level)
        level_clock_ms = clock_ms // tick_ms * tick_ms
        centres += [level_clock_ms, level_clock_ms + tick_ms, level_clock_ms + interval_ms, tick_ms, -tick_ms]
        centres += [level_clock_ms + 3 * interval_ms, level_clock_ms - interval_ms]
    near = {centre + step for centre in centres for step in (-1, 0, 1)}
    return sorted(due for due in near if INT64_MIN <= due <= INT64_MAX)


@pytest.mark.parametrize("wheel", WHEELS, ids=Wheel.fingerprint)
def test_int_numpy_and_column_agree_on_hostile_values(spark: SparkSession, wheel: Wheel) -> None:
    pairs = [(clock_ms, due) for clock_ms in CLOCKS for due in hostile_due_times(wheel, clock_ms)]

    by_int = []
    for clock_ms, due in pairs:
        level = level_of(wheel, due, clock_ms)
        slot = slot_of(wheel, level, due)
        by_int.append((clock_ms, due, level, slot))

    by_numpy = []
    for clock_ms in CLOCKS:
        dues = np.array(hostile_due_times(wheel, clock_ms), dtype=np.int64)
        levels = levels_of(wheel, dues, clock_ms)
        slots = slots_of(wheel, levels, dues)
        columns: list[NDArray[Any]] = [dues, levels, slots]
        by_numpy += [(clock_ms, *row) for row in zip(*(c.tolist() for c in columns), strict=True)]

    frame = spark.createDataFrame(pairs, "clock_ms long, due long")
    frame = frame.withColumn("level", level_column(wheel, F.col("due"), F.col("clock_ms")))
    frame = frame.withColumn("slot", slot_column(wheel, F.col("level"), F.col("due")))
    by_column = [tuple(row) for row in frame.collect()]

    assert by_numpy == by_int
    assert by_column == by_int


def test_the_columns_are_null_for_null_and_for_a_level_that_the_wheel_has_not(spark: SparkSession) -> None:
    wheel = Wheel(tick_ms=1, size=20, levels=3)
    rows = [(None, 0, 1), (5, None, 1), (5, 0, None), (5, 0, 0), (5, 0, 4)]
    frame = spark.createDataFrame(rows, "due long, clock_ms long, level int").select(
        level_column(wheel, F.col("due"), F.col("clock_ms")).alias("level"),
        slot_column(wheel, F.col("level"), F.col("due")).alias("slot"),
    )
    assert [tuple(row) for row in frame.collect()] == [
        (None, None),
        (None, 5),
        (1, None),
        (1, None),
        (1, None),
    ]


def test_the_columns_take_plain_numbers_and_have_the_types_of_the_contract(spark: SparkSession) -> None:
    wheel = Wheel(tick_ms=1, size=20, levels=3)
    frame = spark.range(1).select(
        level_column(wheel, 450, 0).alias("level"),
        slot_column(wheel, 3, 450).alias("slot"),
    )
    assert frame.dtypes == [("level", "int"), ("slot", "bigint")]
    assert [tuple(row) for row in frame.collect()] == [(3, 1)]


def test_the_columns_are_jvm_expressions_with_no_python_in_the_plan(spark: SparkSession) -> None:
    wheel = Wheel(tick_ms=1_000, size=20, levels=6)
    level = level_column(wheel, F.col("id"), 0)
    frame = spark.range(4).select(level, slot_column(wheel, level, F.col("id")))
    assert "Python" not in frame._jdf.queryExecution().optimizedPlan().toString()
