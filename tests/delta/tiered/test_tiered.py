"""The tiered mode on real tables: far entries wait in the slot store, near ones in the state, and the account is that
of the direct mode.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from tests.delta.pending.verbs import ask
from tests.spark.streams import add_files, at_ms, cancel, due, read_files, waiting
from wheel_udf.common.errors import LeaseError, StoreError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock
from wheel_udf.pending.entries import PendingWork
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.delivery.report import BatchReport

LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1)

# said at   0         10         40         200
#           a at 5               a at 45                    fires twice, a version each
#           b at 50              b at 500                   far and replaced by a farther one
#           c at 100  cancel                                cancelled while it is far
#           d at 3000                       cancel          the same, from a higher level
#           e at 300  e at 30                               far and replaced by a near one
#
# and between the two runs, from the command line: one more cancelled, one moved to later, one to sooner, one rerouted
FIRST: list[list[dict[str, Any]]] = [
    [
        due("a", 5, 0),
        due("b", 50, 0),
        due("c", 100, 0),
        due("d", 3_000, 0),
        due("e", 300, 0),
        due("near", 15, 0),
        due("called off", 600, 0),
        due("moved", 400, 0),
        due("hurried", 700, 0),
        due("rerouted", 800, 0, value=b"v"),
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

    def say(self, verb: str, *arguments: str) -> list[str]:
        """What a verb of the command line says, after its exit code."""
        code, out, err = ask(self.folder, verb, *arguments)
        return [str(code), *out, *err]

    def pending(self) -> list[tuple[str, int, int, str]]:
        """(id, seq, due in seconds, place), by due time."""
        store = SlotStore.open(self.spark, str(self.folder / "store"), LAYOUT, create=False)
        return waiting(self.spark, PendingWork(str(self.folder / "checkpoint"), store))


@pytest.mark.sentinel
def test_far_entries_are_replaced_cancelled_and_fired_over_a_restart_and_the_account_closes(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    add_files(tmp_path / "in", *FIRST)
    world.start().awaitTermination()
    assert [each[:2] for each in world.fired()] == [("a", 1)]
    _look_and_act(world)

    add_files(tmp_path / "in", *SECOND)
    run = world.start(until_s=4_000)
    with pytest.raises(LeaseError):
        world.start(checkpoint="other")
    run.awaitTermination()
    in_s = [(name, seq, int(at - at_ms(0) / 1_000)) for name, seq, at in world.fired()]
    assert in_s == [
        ("a", 1, 5),
        ("a", 2, 45),
        ("b", 2, 500),
        ("e", 2, 30),
        ("hurried", 1, 32),
        ("moved", 1, 500),
        ("near", 1, 15),
    ]
    elsewhere = spark.read.format("delta").load(str(tmp_path / "tables" / "elsewhere"))
    assert [row.schedule_id for row in elsewhere.collect()] == ["rerouted"]
    report = world.reports[-1]
    assert {name: count for name, count in report.counts.items() if count} == {
        "fired": 8,
        "superseded": 5,
        "cancelled": 3,
        "applied": 3,
        "rejected": 1,
    }
    assert report.pending == 0
    assert report.store is not None
    assert {level for level, rows in report.store.handed_over.items() if rows} == {"2", "3"}
    assert report.store.files > 0
    assert world.pending() == []
    assert spark.read.format("delta").load(str(tmp_path / "rejects")).count() == 1
    store = SlotStore.open(spark, str(tmp_path / "store"), LAYOUT, create=False)
    assert [partition for partition in store.partitions() if partition.level > 0] == []

    with pytest.raises(StoreError, match="belongs to another checkpoint"):
        world.start(checkpoint="other")


def committed_ms(world: World) -> int:
    """When the store's last commit was made."""
    history = DeltaTable.forPath(world.spark, str(world.folder / "store")).history(1)
    at_ms: int = history.select(F.unix_millis("timestamp")).collect()[0][0]
    return at_ms


def _look_and_act(world: World) -> None:
    before = [
        ("near", 1, 15, "state"),
        ("e", 2, 30, "store"),
        ("b", 1, 50, "store"),
        ("moved", 1, 400, "store"),
        ("called off", 1, 600, "store"),
        ("hurried", 1, 700, "store"),
        ("rerouted", 1, 800, "store"),
        ("d", 1, 3_000, "store"),
    ]
    assert world.pending() == before
    looked_ms = committed_ms(world)
    assert world.say("pending", "--count") == ["0", "pending 8", "stored 9"], (
        "the cheap count has `c`, which is cancelled"
    )
    meant = world.say("cancel", "--where", "destination = 'out'", "--dry-run")
    assert meant == ["0", "would cancel 8 entries (dry run)"]
    assert world.say("cancel")[1].startswith("error: an act without ids and without a predicate")
    assert world.say("move", "--id", "d", "--to", "banana")[0] == "2"

    assert world.say("cancel", "--id", "called off", "--id", "a", "--id", "nobody") == [
        "0",
        "cancelled 1 entry",
    ]
    world.say("move", "--id", "moved", "--to", "deliver_at + interval 100 seconds")
    world.say("move", "--where", "schedule_id LIKE 'hurr%'", "--to", "timestamp'2024-01-01 00:00:32'")
    world.say("reroute", "--id", "rerouted", "--to", "elsewhere")
    assert world.pending() == [
        ("near", 1, 15, "state"),
        ("e", 2, 30, "store"),
        ("hurried", 1, 32, "store"),
        ("b", 1, 50, "store"),
        ("moved", 1, 500, "store"),
        ("rerouted", 1, 800, "store"),
        ("d", 1, 3_000, "store"),
    ]
    store = SlotStore.open(world.spark, str(world.folder / "store"), LAYOUT, create=False)
    work = PendingWork(str(world.folder / "checkpoint"), store)
    assert {(name, due_s) for name, _, due_s, _ in waiting(world.spark, work, as_of_ms=looked_ms)} == {
        (name, due_s) for name, _, due_s, _ in before
    }
    assert waiting(world.spark, work, as_of_ms=0) == []
    # What is remembered bears the clock of the wheel's batch, and which files that had is not the test's choice.
    code, *told = (line for line in world.say("history", "--id", "moved") if "remembered" not in line)
    assert (code, [(event["what"], event.get("at", "-")[11:19]) for event in map(json.loads, told)]) == (
        "0",
        [
            ("SCHEDULE", "00:00:00"),
            ("on a level of the wheel", "00:00:00"),
            ("SCHEDULE", "00:00:10"),
            ("on a level of the wheel", "00:00:10"),
            ("on a level of the wheel", "00:06:40"),
            ("on a level of the wheel", "00:08:20"),
            ("will fire", "00:08:20"),
        ],
    )
    assert [json.loads(line)["act"] for line in world.say("acts")[1:]] == [
        "cancel",
        "move",
        "move",
        "reroute",
    ]
    shown = world.say("pending", "--id", "rerouted", "--payload")[1:]
    assert [json.loads(line)["value"] for line in shown] == ["v"]
    picture = world.folder / "pictures" / "coming.png"
    lines = world.say("forecast", "--every", "1 hour", "--png", str(picture))
    assert [json.loads(line)["rows"] for line in lines[1:-1]] == [1, 6]
    assert picture.stat().st_size > 5_000
