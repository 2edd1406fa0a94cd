"""Under the event clock, both modes fire the same rows at the same clock on the same files, also over a stop in the middle of a backfill."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.streams import T0_MS, add_files, at_ms, cancel, due, read_files
from wheel_udf.clock import EventClock
from wheel_udf.delivery.delta_sink import DeltaSink
from wheel_udf.delivery.destinations import Destinations
from wheel_udf.delivery.query import deliver
from wheel_udf.store.layout import StoreLayout
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered
from wheel_udf.wheel.geometry import Wheel

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.delivery.report import BatchReport
    from wheel_udf.tiered.run import TieredRun

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
LAYOUT = StoreLayout(WHEEL, state_levels=1)  # windows of 20 s
CLOCK = EventClock(max_ahead_ms=None, until_ms=at_ms(50_000))
OUTCOMES = ("fired", "missed", "superseded", "cancelled", "applied", "late", "cancel_superseded")
FILE_S = 150
"""Event time in a file: several windows, as in a backfill."""

# said at   0                  150               300                450              600
#           a at 40                              a at 310           a at 455         a at 10,000
#           b at 160           b at 170          b at 320
#           c at 400, for 1 s                                       cancel c
Written = list[list[dict[str, Any]]]


def backfill() -> Written:
    """Files in the order of their event times: 12 ids that are armed again and again, before and after they were due, and now and then cancelled."""
    chance = random.Random(7)
    files: Written = []
    for number in range(8):
        rows = []
        for name in range(12):
            said_s = number * FILE_S + chance.randrange(FILE_S)
            if chance.random() < 0.15:
                rows.append(cancel(f"id{name:02}", said_s, seq=number))
            elif chance.random() < 0.8:
                wait_s = chance.choice((3, 30, 100, 200, 320, 700, 3_000))
                lateness = chance.choice((None, None, "100 seconds"))
                rows.append(due(f"id{name:02}", said_s + wait_s, said_s, seq=number, max_lateness=lateness))
        files.append([*rows, due(f"end{number}", number * FILE_S + FILE_S, number * FILE_S + FILE_S - 1)])
    return files


class Backfill:
    """The same files through both modes, one file a batch, each mode in a folder of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.reports: dict[str, BatchReport] = {}
        add_files(folder / "in", *backfill())

    def outlet(self, mode: str) -> dict[str, Any]:
        folder = self.folder / mode
        return {
            "destinations": Destinations({"*": DeltaSink(str(folder / "tables"), create=True)}),
            "rejects": DeltaSink(str(folder / "rejects")),
        }

    def note(self, report: BatchReport) -> None:
        self.reports["direct"] = report

    def direct(self) -> None:
        frame = schedule(read_files(self.spark, self.folder / "in"), wheel=WHEEL, clock=CLOCK, shards=2)
        place = str(self.folder / "direct" / "checkpoint")
        deliver(
            frame, **self.outlet("direct"), checkpoint=place, trigger="available-now", on_batch=self.note
        ).awaitTermination()

    def tiered(self, on_batch: Any = lambda _report: None) -> TieredRun:
        def note(report: BatchReport) -> None:
            self.reports["tiered"] = report
            on_batch(report)

        return start_tiered(
            read_files(self.spark, self.folder / "in"),
            TieredWheel(layout=LAYOUT, store=str(self.folder / "tiered" / "store"), clock=CLOCK, shards=2),
            outlet=Outlet(**self.outlet("tiered")),
            checkpoint=str(self.folder / "tiered" / "checkpoint"),
            trigger="available-now",
            on_batch=note,
        )

    def fired(self, mode: str) -> list[tuple[str, int, int, int]]:
        """(id, seq, due, fired at), in seconds from the beginning."""
        rows = self.spark.read.format("delta").load(str(self.folder / mode / "tables" / "out"))
        return sorted(
            (row.schedule_id, row.seq, *(int(at.timestamp() - T0_MS / 1_000) for at in (row.deliver_at, row.fired_at)))
            for row in rows.collect()
        )

    def account(self, mode: str) -> dict[str, int]:
        return {name: self.reports[mode].counts[name] for name in OUTCOMES}


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Backfill:
    """A backfill through the direct mode."""
    world = Backfill(spark, tmp_path)
    world.direct()
    return world


def test_a_backfill_fires_the_rows_of_the_direct_mode_at_the_same_clock(world: Backfill) -> None:
    world.tiered().awaitTermination()
    assert world.fired("tiered") == world.fired("direct")
    assert world.account("tiered") == world.account("direct")
