"""Places in the slot store: plain int, numpy and Spark Column give one answer on hostile values."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession, functions as F

from tests.places import placed
from wheel_udf.common.geometry import INT64_MAX, INT64_MIN, Wheel
from wheel_udf.store.layout import INBOX, MARKS, NEAR, StoreLayout

YEAR_9999 = 253_402_300_799_999

LAYOUTS = [
    StoreLayout(Wheel(1_000, 20, 6), 1),
    StoreLayout(Wheel(1_000, 20, 6), 5),
    StoreLayout(Wheel(1_000, 100, 4), 2),
    StoreLayout(Wheel(1_000, 7_200, 1), 0, 600_500),
    StoreLayout(Wheel(7, 3, 5), 0, 50),
    StoreLayout(Wheel(1, 2, 3), 0, 1),
    StoreLayout(Wheel(1, 2, 62), 1),
    StoreLayout(Wheel(2**60, 2, 2), 1),
]


def hostile_pairs(layout: StoreLayout) -> list[tuple[int, int]]:
    """Cursors, and due times one ms around each of their bounds."""
    window, widths = layout.window_ms, [layout.width_ms(level) for level in layout.far_levels]
    cursors = {
        layout.cursor_of(clock) for clock in (0, -1, 1_356_998_400_007, YEAR_9999, INT64_MIN, INT64_MAX)
    }
    cursors |= {-(-INT64_MIN // window) * window, 0}
    pairs = set()
    for cursor in cursors:
        centres = [cursor, cursor - window, cursor - 2 * window, 0, YEAR_9999, INT64_MIN, INT64_MAX]
        centres += [cursor // w * w + n * w for w in widths for n in (0, 1, layout.wheel.size)]
        pairs |= {(cursor, centre + step) for centre in centres for step in (-1, 0, 1)}
    return sorted((c, due) for c, due in pairs if INT64_MIN <= due <= INT64_MAX)


@pytest.mark.parametrize("layout", LAYOUTS, ids=StoreLayout.fingerprint)
def test_int_numpy_and_column_agree_on_hostile_values(spark: SparkSession, layout: StoreLayout) -> None:
    pairs = hostile_pairs(layout)

    by_int = []
    for cursor, due in pairs:
        by_int.append((cursor, due, *placed(layout, due, cursor)))

    by_numpy = []
    for cursor in sorted({cursor for cursor, _ in pairs}):
        dues = np.array([due for c, due in pairs if c == cursor], dtype=np.int64)
        levels, slots = layout.place(dues, cursor)
        by_numpy += [(cursor, *row) for row in zip(*(c.tolist() for c in (dues, levels, slots)), strict=True)]

    frame = spark.createDataFrame(pairs, "cursor long, due long")
    frame = frame.withColumn("level", layout.level_column(F.col("due"), F.col("cursor")))
    frame = frame.withColumn("slot", layout.slot_column(F.col("level"), F.col("due"), F.col("cursor")))

    assert by_numpy == by_int
    assert [tuple(row) for row in frame.collect()] == by_int


def test_the_columns_are_null_for_null_have_the_store_s_types_and_take_plain_numbers(
    spark: SparkSession,
) -> None:
    layout = LAYOUTS[0]
    rows = [
        (None, 20_000, 0),
        (5, None, 0),
        (5, 20_000, None),
        (5, 20_000, 1),
        (5, 20_000, 7),
        (5, 20_000, 0),
    ]
    frame = spark.createDataFrame(rows, "due long, cursor long, level int").select(
        layout.level_column(F.col("due"), F.col("cursor")).alias("level"),
        layout.slot_column(F.col("level"), F.col("due"), F.col("cursor")).alias("slot"),
    )
    assert frame.dtypes == [("level", "int"), ("slot", "bigint")]
    assert [tuple(row) for row in frame.collect()] == [
        (None, None),
        (None, None),
        (0, None),
        (0, None),
        (0, None),
        (0, 0),
    ]
    plain = spark.range(1).select(layout.level_column(450, 0), layout.slot_column(2, 450, 0))
    assert [tuple(row) for row in plain.collect()] == [(2, 0)]


def test_the_columns_are_jvm_expressions_with_no_python_in_the_plan(spark: SparkSession) -> None:
    layout = LAYOUTS[0]
    level = layout.level_column(F.col("id"), 0)
    frame = spark.range(4).select(level, layout.slot_column(level, F.col("id"), 0))
    assert "Python" not in frame._jdf.queryExecution().optimizedPlan().toString()


@pytest.mark.parametrize("layout", LAYOUTS, ids=StoreLayout.fingerprint)
def test_int_and_column_agree_on_which_partitions_a_cursor_has_reached(
    spark: SparkSession, layout: StoreLayout
) -> None:
    cursors = sorted({cursor for cursor, _ in hostile_pairs(layout)})
    for cursor in cursors[:: max(1, len(cursors) // 3)]:
        places = [(level, slot) for level in (NEAR, MARKS, INBOX) for slot in (-1, 0)]
        places += [
            (level, cursor // layout.width_ms(level) + step)
            for level in layout.far_levels
            for step in (-1, 0, 1)
        ]
        places = [(level, slot) for level, slot in places if INT64_MIN <= slot <= INT64_MAX]
        frame = spark.createDataFrame(places, "level int, slot long")
        column = layout.reached_column(F.col("level"), F.col("slot"), cursor)
        assert [row[0] for row in frame.select(column).collect()] == [
            layout.reached(level, slot, cursor) for level, slot in places
        ]
