"""Delay levels on real tables, in both modes: rounded up, told by level, cancelled and replaced, and the account
closes.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.pending.verbs import ask
from tests.spark.streams import add_files, at_ms, cancel, due, read_files
from wheel_udf.commands.delay_levels import FixedLevels
from wheel_udf.commands.parse import Contract
from wheel_udf.common.errors import GeometryChangedError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import FIRED_SCHEMA, Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from wheel_udf.delivery.report import BatchReport

GEOMETRY = Wheel(tick_ms=1_000, size=20, levels=4)
LEVELS = FixedLevels((10_000, 30_000, 600_000, 3_600_000))


class World:
    """A folder with input, tables and checkpoint, and runs over them in either mode."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "in").mkdir(parents=True)
        self.reports: list[BatchReport] = []
        self.destinations = Destinations({"*": DeltaSink(str(folder / "tables"), create=True)})
        self.rejects = DeltaSink(str(folder / "rejects"))

    def commands(self) -> DataFrame:
        return read_files(self.spark, self.folder / "in")

    def direct(self, levels: FixedLevels | None = LEVELS) -> StreamingQuery:
        clock = EventClock(max_ahead_ms=None, until_ms=at_ms(5_000))
        contract = Contract(levels=levels)
        scheduled = schedule(self.commands(), wheel=GEOMETRY, clock=clock, shards=2, contract=contract)
        return deliver(
            scheduled,
            destinations=self.destinations,
            rejects=self.rejects,
            checkpoint=str(self.folder / "checkpoint"),
            trigger="available-now",
            on_batch=self.reports.append,
        )

    def tiered(self, until_s: int | None = None) -> TieredRun:
        clock = EventClock(max_ahead_ms=None, until_ms=None if until_s is None else at_ms(until_s))
        what = TieredWheel(
            layout=StoreLayout(GEOMETRY, state_levels=1),
            store=str(self.folder / "store"),
            clock=clock,
            shards=2,
            contract=Contract(levels=LEVELS),
        )
        return start_tiered(
            self.commands(),
            what,
            outlet=Outlet(self.destinations, self.rejects),
            checkpoint=str(self.folder / "checkpoint"),
            trigger="available-now",
            on_batch=self.reports.append,
        )

    def table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.folder / name))

    def fired(self, table: str = "out") -> dict[str, tuple[float, float, int]]:
        """Id to asked and scheduled time, in seconds from the beginning, and error, in ms."""
        rows = self.table(f"tables/{table}").collect()
        return {
            row.schedule_id: (_seconds(row.deliver_at), _seconds(row.scheduled_at), row.level_error_ms)
            for row in rows
        }

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.reports[-1].counts.items() if count}

    def say(self, verb: str, *arguments: str) -> list[dict[str, Any]]:
        """The lines of a verb of the command line."""
        code, out, err = ask(self.folder, verb, *arguments, levels={"list": ["10s", "30s", "10m", "1h"]})
        assert code == 0, err
        return [json.loads(line) if line[:1] == "{" else {"said": line} for line in out]


def _seconds(instant: Any) -> float:
    return float(instant.timestamp() - at_ms(0) / 1_000)


# said at   0                                        40                  41
#           17 s: level 30s                          clock 0             clock 40: what is due by then has fired
#           cancelled before its level's time        cancelled           the first one once more, with a shorter delay
DIRECT: list[list[dict[str, Any]]] = [
    [
        due("rounded", 17, 0, seq=None),
        due("exact", 30, 0),
        due("past", -5, 0),
        due("cancelled", 300, 0),
        due("late", 20, 0, max_lateness="5 seconds"),
        due("beyond", 3_601, 0),
        due("lost", 9, 0, destination="old"),
    ],
    [cancel("cancelled", 40, seq=2)],
    [due("far", 700, 41)],
    [due("rounded", 17, 42, seq=None)],
]


def test_a_delay_waits_for_its_level_in_the_direct_mode_and_the_row_says_what_was_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    spark.createDataFrame([], FIRED_SCHEMA).write.format("delta").save(str(tmp_path / "tables" / "old"))
    add_files(tmp_path / "in", *DIRECT)
    world.direct().awaitTermination()
    assert world.fired() == {
        "rounded": (17, 30, 13_000),
        "exact": (30, 30, 0),
        "past": (-5, -5, 0),
        "far": (700, 41 + 3_600, (3_600 - 659) * 1_000),
    }
    out = world.table("tables/out")
    assert out.columns[-3:] == ["lateness_ms", "scheduled_at", "level_error_ms"]
    rounded = out.where("schedule_id = 'rounded'").collect()[0]
    assert rounded.lateness_ms == (rounded.fired_at - rounded.scheduled_at).total_seconds() * 1_000
    asked = "\x1f".join(["rounded", str(at_ms(0)), "0", str(at_ms(17))])
    assert rounded.fire_id == hashlib.md5(asked.encode()).hexdigest()
    rejected = {row.schedule_id: row for row in world.table("rejects").collect()}
    assert {name: row.error_code for name, row in rejected.items()} == {
        "late": "missed",
        "beyond": "beyond_levels",
        "lost": "undeliverable",
    }
    assert _seconds(rejected["late"].deliver_at) == 20
    assert "released too late: lateness_ms = 10000" in rejected["late"].error_message
    assert "it has no column scheduled_at" in rejected["lost"].error_message
    assert json.loads(rejected["lost"].record)["level_error_ms"] == 1_000
    assert world.reports[0].levels == {"10s": 1, "30s": 3, "10m": 1}
    assert world.reports[-1].levels == {}
    assert world.counts() == {
        "fired": 5,
        "missed": 1,
        "cancelled": 1,
        "applied": 1,
        "duplicate": 1,
        "rejected": 1,
    }
    assert sum(report.received for report in world.reports) == 10
    with pytest.raises(GeometryChangedError, match="delay_levels=on there"):
        world.direct(levels=None)


# said at   0                           10
#           a at 100: level 10m
#           b at 400, the same          b cancelled while it is far
#           c at 500, the same          c at 30: level 30s, near
TIERED: list[list[dict[str, Any]]] = [
    [
        due("near", 17, 0),
        due("a", 100, 0),
        due("b", 400, 0),
        due("c", 500, 0),
        due("moved", 500, 0),
        due("rerouted", 500, 0),
    ],
    [cancel("b", 10, seq=2), due("c", 30, 10, seq=2), due("beyond", 9_999, 10)],
]


def test_far_entries_keep_what_was_asked_and_their_level_through_the_store_and_through_acts(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    add_files(tmp_path / "in", *TIERED)
    world.tiered().awaitTermination()
    # All of them are far, so none is in the state, whose levels the report has; `pending` counts far entries, too.
    report = world.reports[-1]
    assert (report.pending, report.far, report.levels) == (7, 7, {})
    assert world.say("pending", "--where", "delay_level_ms = 600000", "--count")[0] == {"said": "pending 3"}
    shown = [
        (row["schedule_id"], row["deliver_at"][14:19], row["scheduled_at"][14:19], row["delay_level_ms"])
        for row in world.say("pending")
    ]
    assert shown == [
        ("near", "00:17", "00:30", 30_000),
        ("c", "00:30", "00:40", 30_000),
        ("a", "01:40", "10:00", 600_000),
        ("moved", "08:20", "10:00", 600_000),
        ("rerouted", "08:20", "10:00", 600_000),
    ]
    world.say("move", "--id", "moved", "--to", "deliver_at + interval 40 seconds")
    world.say(
        "reroute", "--where", "delay_level_ms = 600000 AND schedule_id = 'rerouted'", "--to", "elsewhere"
    )
    placed = [event.get("detail", "") for event in world.say("history", "--id", "a")]
    assert any(detail.endswith(", delay level 10m") for detail in placed)

    world.tiered(until_s=4_000).awaitTermination()
    assert world.fired() == {
        "near": (17, 30, 13_000),
        "c": (30, 40, 10_000),
        "a": (100, 600, 500_000),
        "moved": (540, 540, 0),
    }
    assert world.fired("elsewhere") == {"rerouted": (500, 600, 100_000)}
    assert world.table("tables/out").where("fired_at < scheduled_at OR lateness_ms < 0").isEmpty()
    assert (world.reports[-1].pending, world.reports[-1].levels) == (0, {})
    assert world.counts() == {
        "fired": 5,
        "superseded": 3,
        "cancelled": 1,
        "applied": 1,
        "rejected": 1,
    }
