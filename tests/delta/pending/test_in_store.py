"""Pending entries of a store of many rows: only ids with several versions are compared, and the count reads the others
from the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Column, functions as F

from tests.delta.pending.test_acts import work_of
from tests.delta.tiered.test_keeper import World
from tests.spark.streams import at_ms
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.job.next import lines_of
from wheel_udf.pending import in_store
from wheel_udf.pending.entries import count_pending, pending
from wheel_udf.store import intake
from wheel_udf.store.slot_store import SlotStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT = [("a", 2, 600), ("b", 1, 9_000), ("d", 1, 10), ("e", 1, 9_000)]
"""What is pending of the commands below: id, seq, due in seconds."""


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(in_store, "FEW_ROWS", -1)
    return World(spark, tmp_path)


def found(world: World) -> list[tuple[str, int, int]]:
    rows = pending(world.spark, work_of(world)).select("schedule_id", "seq", F.unix_millis("deliver_at"))
    return sorted((name, seq, (due_ms - at_ms(0)) // 1_000) for name, seq, due_ms in rows.collect())


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
    world.take_in(("b", "schedule", 0, 9_000))
    world.take_in(("a", "schedule", 1, 500), ("b", "schedule", 1, 9_000), ("c", "schedule", 1, 9_000))
    world.take_in(("d", "schedule", 1, 10), ("e", "schedule", 1, 9_000), ("e", "schedule", 1, 9_000))
    world.take_in(("a", "replace", 2, 600), ("c", "cancel", 1, None))
    assert found(world) == LEFT
    assert count_pending(world.spark, work_of(world)) == 4
    monkeypatch.setattr(in_store, "FEW_IDS", 0)
    assert found(world) == LEFT, "also if too many ids have several versions for a broadcast"
    assert count_pending(world.spark, work_of(world)) == 4


def test_entries_that_wait_in_the_inbox_or_were_handed_over_and_not_dropped_are_counted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(world)
    assert (found(world), count_pending(world.spark, work_of(world))) == (LEFT, 4)
    world.keeper.empty_inbox()
    monkeypatch.setattr(SlotStore, "drop", lambda *_, **__: None)
    moved = world.keeper.step(at_ms(590))
    assert moved is not None
    assert moved.rows == 2, "both versions of a, whose slots stay"
    assert (found(world), count_pending(world.spark, work_of(world))) == (LEFT, 4)


def test_the_next_time_of_an_entry_that_waits_in_the_store_is_its_due_time(world: World) -> None:
    world.take_in(("b", "schedule", 1, 9_000))
    due = instant_text_ms(at_ms(9_000))
    assert lines_of(world.spark, work_of(world), ["b"], 3) == [f"{due}  {due[:-1]}+00:00 UTC"]
