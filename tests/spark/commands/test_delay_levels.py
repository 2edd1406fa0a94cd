"""Delay levels in Spark: the columns say what plain int says on hostile values, and what the contract makes of
commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import functions as F

from tests.delay_levels import error_of, level_of
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.delay_levels import BinaryLevels, FixedLevels, errors_of, levels_of
from wheel_udf.commands.parse import parse_commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
POLICIES = [
    FixedLevels(),
    FixedLevels(on_beyond="top"),
    FixedLevels(on_beyond="exact"),
    FixedLevels((1,)),
    FixedLevels((7, 2**31, 2**53 + 1, 2**60)),
    FixedLevels(tuple(range(1, 65))),
    BinaryLevels(1),
    BinaryLevels(1_000),
    BinaryLevels(2**60),
]


def delays() -> list[int]:
    """Zero, the extremes, and every power of two and every default level, one ms to either side."""
    edges = [0, 2**53, INT64_MAX, INT64_MIN, *(2**k for k in range(62)), *(1_000 << k for k in range(53))]
    edges += FixedLevels().list_ms
    near = {edge + off for edge in edges for off in (-1, 0, 1)} | {-edge for edge in edges}
    return sorted(each for each in near if INT64_MIN <= each <= INT64_MAX)


def test_the_levels_of_many_delays_are_what_plain_int_says() -> None:
    some = delays()
    for levels in POLICIES:
        levels_ms = levels_of(levels, np.array(some))
        errors_ms = errors_of(levels, np.array(some), levels_ms)
        for delay_ms, level_ms, error_ms in zip(some, levels_ms.tolist(), errors_ms.tolist(), strict=True):
            assert level_ms == level_of(levels, delay_ms), (levels, delay_ms)
            assert error_ms == error_of(levels, delay_ms, level_ms), (levels, delay_ms)


T0 = "2024-01-01T00:00:00Z"
T0_MS = 1_704_067_200_000
LAST = "+294247-01-10T04:00:54.775Z"  # the last ms that a timestamp can hold
COLUMNS = "schedule_id string, op string, deliver_at string, delay string, event_time string"


def parsed(spark: SparkSession, contract: Contract, *rows: tuple[str | None, ...]) -> list[Any]:
    frame = spark.createDataFrame(list(rows), COLUMNS)
    return parse_commands(frame.withColumn("destination", F.lit("out")), contract).collect()


def test_due_times_are_rounded_up_and_what_was_asked_for_can_be_told(spark: SparkSession) -> None:
    rows = parsed(
        spark,
        Contract(levels=FixedLevels()),
        ("rounded", None, None, "17 s", T0),
        ("exact", None, "2024-01-01T00:00:30Z", None, T0),
        ("now", None, None, "0", T0),
        ("past", None, "2023-12-31T23:59:59Z", None, T0),
        ("cancel", "CANCEL", None, "17 s", T0),
        ("bad", None, None, "soon", T0),
        ("beyond", None, None, "3 hours", T0),
        ("edge", None, LAST, None, "+294247-01-10T04:00:50Z"),
    )
    seen = [
        (
            row.schedule_id,
            row.deliver_at_ms and row.deliver_at_ms - T0_MS,
            row.delay_level_ms,
            row.level_error_ms,
            row.error_code,
        )
        for row in rows[:-1]
    ]
    assert seen == [
        ("rounded", 30_000, 30_000, 13_000, None),
        ("exact", 30_000, 30_000, 0, None),
        ("now", 0, None, None, None),
        ("past", -1_000, None, None, None),
        ("cancel", None, None, None, None),
        ("bad", None, None, None, "bad_delay"),
        ("beyond", 10_800_000, None, None, "beyond_levels"),
    ]
    assert rows[-2].error_message == (
        "beyond the last delay level: due = '3 hours'; rule: at most 2h after event_time; hint: on_beyond: top or exact takes it"
    )
    assert (rows[-1].error_code, rows[-1].delay_level_ms) == ("beyond_max_delay", None)


@pytest.mark.parametrize(
    ("contract", "delay", "scheduled_ms", "level_ms", "error_ms"),
    [
        (Contract(levels=FixedLevels((5_000,), "top")), "17 s", 5_000, 5_000, -12_000),
        (Contract(levels=FixedLevels((5_000,), "exact")), "17 s", 17_000, None, None),
        (Contract(levels=BinaryLevels(1_000)), "17.25 s", 17_250, 16_000, 0),
        # What was asked for is held to max_delay, not what it is rounded to.
        (Contract(max_delay_ms=17_000, levels=FixedLevels()), "17 s", 30_000, 30_000, 13_000),
    ],
)
def test_each_policy_places_a_delay_as_its_formula_says(
    spark: SparkSession,
    contract: Contract,
    delay: str,
    scheduled_ms: int,
    level_ms: int | None,
    error_ms: int | None,
) -> None:
    (row,) = parsed(spark, contract, ("a", None, None, delay, T0))
    assert (row.deliver_at_ms - T0_MS, row.delay_level_ms, row.level_error_ms) == (
        scheduled_ms,
        level_ms,
        error_ms,
    )
