"""Comparison of versions: the DataFrames find what the simulator's lists find, and read no file without a hash of a
leaving entry.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from tests.simulation.tier_rows import StoredRow, verdicts as verdicts_of_lists
from wheel_udf.shard.rows import CANCEL, GONE_DUPLICATE, SCHEDULE
from wheel_udf.store.layout import NEAR
from wheel_udf.store.versions import FILE, no_verdicts, verdicts

COLUMNS = (
    "uid long, file string, level int, schedule_id string, id_hash long, seq long, amend int, op byte, "
    "deliver_at_ms long, arrived long"
)
FAR = 2


def stored(random: Random, ids: int, *, far: bool) -> StoredRow:
    op = SCHEDULE if far or random.random() < 0.5 else CANCEL
    return StoredRow(
        FAR if far else NEAR,
        0,
        f"order-{random.randrange(ids)}",
        seq=random.randrange(3),
        amend=random.randrange(2),
        op=op,
        due_ms=None if op == CANCEL else random.randrange(10),
        arrived=random.randrange(5),
    )


def frame(spark: SparkSession, rows: list[tuple[int | None, str, StoredRow]]) -> DataFrame:
    """Rows of the store, as far as versions are concerned; ids with the same last digit share a hash."""
    return spark.createDataFrame(
        [
            (
                uid,
                file,
                row.level,
                row.id,
                int(row.id[-1]),
                row.seq,
                row.amend,
                row.op,
                row.due_ms,
                row.arrived,
            )
            for uid, file, row in rows
        ],
        COLUMNS,
    )


def found(ended: DataFrame | None) -> dict[int, tuple[object, ...]]:
    rows = [] if ended is None else ended.collect()
    return {row.uid: (row.act, row.schedule_id, row.seq, row.amend, row.op) for row in rows}


@pytest.mark.parametrize("seed", range(4))
def test_the_verdicts_are_those_of_a_model_over_lists(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    leaving = [stored(random, 60, far=True) for _ in range(80)]
    others = [stored(random, 60, far=random.random() < 0.3) for _ in range(120)]
    files = [f"part-{random.randrange(6)}" for _ in others]

    def rows(names: AbstractSet[str] | None) -> DataFrame:
        kept = [
            (None, file, row)
            for file, row in zip(files, others, strict=True)
            if names is None or file in names
        ]
        return frame(spark, kept).drop("uid")

    ended = verdicts(frame(spark, [(at, "left", row) for at, row in enumerate(leaving)]).drop(FILE), rows)

    expected = verdicts_of_lists(leaving, others)
    assert found(ended) == {at: (row.act, row.id, row.seq, row.amend, row.op) for at, row in expected.items()}


def test_a_file_without_a_hash_of_a_leaving_entry_is_not_read_again(spark: SparkSession) -> None:
    entry = StoredRow(FAR, 0, "order-1", due_ms=5)
    by_file = {"a": replace(entry, level=NEAR, op=CANCEL, due_ms=None), "b": replace(entry, id="order-2")}
    asked: list[AbstractSet[str] | None] = []

    def rows(names: AbstractSet[str] | None) -> DataFrame:
        asked.append(names)
        return frame(
            spark, [(None, name, row) for name, row in by_file.items() if names is None or name in names]
        )

    assert found(verdicts(frame(spark, [(7, "", entry)]).drop(FILE), rows)).keys() == {7}
    assert asked == [None, {"a"}]


def test_nothing_has_ended_where_no_hash_occurs_again(spark: SparkSession) -> None:
    entry = StoredRow(FAR, 0, "order-1", due_ms=5)
    leaving = frame(spark, [(7, "", entry)]).drop(FILE)
    others = frame(spark, [(None, "a", replace(entry, id="order-2"))])

    assert verdicts(leaving, lambda _: others) is None
    assert no_verdicts(leaving).collect() == []


def test_of_an_entry_that_leaves_twice_the_one_that_is_due_first_is_kept(spark: SparkSession) -> None:
    entry = StoredRow(FAR, 0, "order-1", due_ms=5)
    leaving = frame(spark, [(1, "", replace(entry, due_ms=6)), (2, "", entry)]).drop(FILE)
    nothing = frame(spark, [(None, "a", entry)]).where(F.lit(False))

    assert found(verdicts(leaving, lambda _: nothing)) == {1: (GONE_DUPLICATE, "order-1", 0, 0, SCHEDULE)}
