"""Pending entries of a store: of one with many rows only ids with several versions are compared, and the count reads the
others from the log; one with few rows is read whole. The answers are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Column, functions as F

from tests.delta.pending.test_acts import work_of
from tests.delta.tiered.test_keeper import World
from tests.spark.streams import at_ms
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.job.next import lines_of
from wheel_udf.pending import comparison, in_store
from wheel_udf.pending.entries import count_pending, pending
from wheel_udf.store import intake, ranking, scan
from wheel_udf.store.slot_store import SlotStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT = [("a", 2, 600), ("b", 1, 9_000), ("d", 1, 10), ("e", 1, 9_000)]
"""What is pending of the commands below: id, seq, due in seconds."""


@pytest.fixture(params=["compared in part", "read whole"])
def world(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> World:
    if request.param == "compared in part":
        for module in (comparison, in_store):
            monkeypatch.setattr(module, "FEW_ROWS", -1)
    return World(spark, tmp_path)


def found(world: World, **asked: Any) -> list[tuple[str, int, int]]:
    rows = pending(world.spark, work_of(world), **asked)
    found = rows.select("schedule_id", "seq", F.unix_millis("deliver_at")).collect()
    return sorted((name, seq, (due_ms - at_ms(0)) // 1_000) for name, seq, due_ms in found)


def check(world: World, left: list[tuple[str, int, int]]) -> None:
    """All questions have the same answer."""
    assert found(world) == left
    assert count_pending(world.spark, work_of(world)) == len(left)
    for name in "abcde":
        assert found(world, ids=[name]) == [row for row in left if row[0] == name]
    assert found(world, ids=["a", "e", "nobody"]) == [row for row in left if row[0] in "ae"]
    in_order = sorted(left, key=lambda row: (row[2], row[0]))
    for most in range(1, len(left) + 1):
        assert {*in_order[:most]} <= {*found(world, first=most)}


def take_in(world: World) -> None:
    world.take_in(("a", "schedule", 1, 500), ("b", "schedule", 1, 9_000), ("c", "schedule", 1, 9_000))
    world.take_in(("d", "schedule", 1, 10), ("e", "schedule", 1, 9_000))
    assert count_pending(world.spark, work_of(world)) == 5, "no id has two versions"
    world.take_in(("a", "replace", 2, 600), ("c", "cancel", 1, None), ("e", "schedule", 1, 9_000))


@pytest.mark.parametrize("hashes", ["apart", pytest.param("all the same", marks=pytest.mark.sentinel)])
def test_ids_with_several_versions_and_ids_of_one_hash_are_counted_exactly(
    world: World, monkeypatch: pytest.MonkeyPatch, hashes: str
) -> None:
    def one_hash(schedule_id: Column) -> Column:
        return F.length(schedule_id).cast("long")

    if hashes == "all the same":
        monkeypatch.setattr(intake, "id_hash", one_hash)
        monkeypatch.setattr(scan, "hash_of", len)
    world.take_in(("b", "schedule", 0, 9_000))
    world.take_in(("a", "schedule", 1, 500), ("b", "schedule", 1, 9_000), ("c", "schedule", 1, 9_000))
    world.take_in(("d", "schedule", 1, 10), ("e", "schedule", 1, 9_000), ("e", "schedule", 1, 9_000))
    world.take_in(("a", "replace", 2, 600), ("c", "cancel", 1, None))
    check(world, LEFT)
    monkeypatch.setattr(in_store, "FEW_HASHES", 0)
    monkeypatch.setattr(ranking, "MOST_HASHES", 2)
    check(world, LEFT)


def test_entries_that_wait_in_the_inbox_or_were_handed_over_and_not_dropped_are_counted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(world)
    check(world, LEFT)
    world.keeper.empty_inbox()
    monkeypatch.setattr(SlotStore, "drop", lambda *_, **__: None)
    moved = world.keeper.step(at_ms(590))
    assert moved is not None
    assert moved.rows == 2, "both versions of a, whose slots stay"
    check(world, LEFT)


def test_the_next_time_of_an_entry_that_waits_in_the_store_is_its_due_time(world: World) -> None:
    world.take_in(("b", "schedule", 1, 9_000))
    due = instant_text_ms(at_ms(9_000))
    assert lines_of(world.spark, work_of(world), ["b"], 3) == [f"{due}  {due[:-1]}+00:00 UTC"]
