"""The tiered mode on real tables: far entries wait in the slot store, near ones in the state, and the account is that of the direct mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.streams import add_files, at_ms, cancel, due, read_files
from wheel_udf.clock import EventClock
from wheel_udf.errors import LeaseError, StoreError
from wheel_udf.geometry import Wheel
from wheel_udf.sinks import DeltaSink, Destinations
from wheel_udf.slot_store import SlotStore
from wheel_udf.store_layout import StoreLayout
from wheel_udf.tiered import Outlet, TieredRun, TieredWheel, start_tiered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.metrics import BatchReport

LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1)

# said at   0         10         40         200
#           a at 5               a at 45                    fires twice, a version each
#           b at 50              b at 500                   far and replaced by a farther one
#           c at 100  cancel                                cancelled while it is far
#           d at 3000                       cancel          the same, from a higher level
#           e at 300  e at 30                               far and replaced by a near one
FIRST: list[list[dict[str, Any]]] = [
    [
        due("a", 5, 0),
        due("b", 50, 0),
        due("c", 100, 0),
        due("d", 3_000, 0),
        due("e", 300, 0),
        due(None, 1, 0),
    ],
    [cancel("c", 10, seq=2), due("e", 30, 10, seq=2)],
]
SECOND: list[list[dict[str, Any]]] = [
    [due("b", 500, 40, seq=2), due("a", 45, 40, seq=2)],
    [cancel("d", 200, seq=2)],
]


class World:
    """A folder with input, store, tables and checkpoint, and runs over them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "in").mkdir(parents=True)
        self.reports: list[BatchReport] = []

    def start(self, until_s: int | None = None, checkpoint: str = "checkpoint") -> TieredRun:
        clock = EventClock(max_ahead_ms=None, until_ms=None if until_s is None else at_ms(until_s))
        return start_tiered(
            read_files(self.spark, self.folder / "in"),
            TieredWheel(layout=LAYOUT, store=str(self.folder / "store"), clock=clock, shards=2),
            outlet=Outlet(
                Destinations({"*": DeltaSink(str(self.folder / "tables"), create=True)}),
                DeltaSink(str(self.folder / "rejects")),
            ),
            checkpoint=str(self.folder / checkpoint),
            trigger="available-now",
            on_batch=self.reports.append,
        )

    def fired(self) -> list[tuple[str, int, float]]:
        rows = self.spark.read.format("delta").load(str(self.folder / "tables" / "out"))
        assert rows.where("fired_at < deliver_at").isEmpty()
        return sorted((row.schedule_id, row.seq, row.deliver_at.timestamp()) for row in rows.collect())


def test_far_entries_are_replaced_cancelled_and_fired_over_a_restart_and_the_account_closes(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    add_files(tmp_path / "in", *FIRST)
    world.start().awaitTermination()
    assert [each[:2] for each in world.fired()] == [("a", 1)]

    add_files(tmp_path / "in", *SECOND)
    run = world.start(until_s=4_000)
    with pytest.raises(LeaseError):
        world.start(checkpoint="other")
    run.awaitTermination()
    in_s = [(name, seq, int(at - at_ms(0) / 1_000)) for name, seq, at in world.fired()]
    assert in_s == [("a", 1, 5), ("a", 2, 45), ("b", 2, 500), ("e", 2, 30)]
    report = world.reports[-1]
    assert {name: count for name, count in report.counts.items() if count} == {
        "fired": 4,
        "superseded": 2,
        "cancelled": 2,
        "applied": 2,
        "rejected": 1,
    }
    assert report.pending == 0
    assert spark.read.format("delta").load(str(tmp_path / "rejects")).count() == 1
    store = SlotStore.open(spark, str(tmp_path / "store"), LAYOUT, create=False)
    assert [partition for partition in store.partitions() if partition.level > 0] == []

    with pytest.raises(StoreError, match="belongs to another checkpoint"):
        world.start(checkpoint="other")
