"""A scheduler that lives in one place after another: its input and tables stay, mode, geometry, shards, checkpoint and
store change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.spark.streams import add_files, at_ms, read_files
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock, ProcessingClock
from wheel_udf.delivery.query import deliver
from wheel_udf.pending.entries import PendingWork
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered
from wheel_udf.transfer.exporting import export_job
from wheel_udf.transfer.importing import import_direct
from wheel_udf.transfer.into_store import import_tiered
from wheel_udf.transfer.manifest import Manifest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from wheel_udf.delivery.report import BatchReport

SMALL = Wheel(tick_ms=1_000, size=20, levels=4)
WIDE = Wheel(tick_ms=500, size=8, levels=6)
EVENT = EventClock(max_ahead_ms=None)
Clock = EventClock | ProcessingClock


class Home:
    """A place where the job lives for a while: mode, geometry, shards, clock, checkpoint, store."""

    def __init__(
        self, job: Job, name: str, wheel: Wheel, shards: int, *, tiered: bool, clock: Clock = EVENT
    ) -> None:
        self.job, self.wheel, self.shards, self.tiered, self.clock = job, wheel, shards, tiered, clock
        self.checkpoint, self.store = job.place(name), job.place(f"{name}-store")

    def run(self, until_s: int | None = None) -> None:
        start = self._start_tiered if self.tiered else self._start_direct
        start(replace(self.clock, until_ms=None if until_s is None else at_ms(until_s)))

    def _start_direct(self, clock: Clock) -> None:
        frame = schedule(self.job.commands(), wheel=self.wheel, clock=clock, shards=self.shards)
        deliver(
            frame,
            destinations=self.job.outlet.destinations,
            rejects=self.job.outlet.rejects,
            checkpoint=self.checkpoint,
            trigger="available-now",
            on_batch=self.job.note,
        ).awaitTermination()

    def _start_tiered(self, clock: Clock) -> None:
        start_tiered(
            self.job.commands(),
            self.what(clock),
            outlet=self.job.outlet,
            checkpoint=self.checkpoint,
            trigger="available-now",
            on_batch=self.job.note,
        ).awaitTermination()

    def what(self, clock: Clock) -> TieredWheel:
        layout = StoreLayout(self.wheel, state_levels=1)
        return TieredWheel(layout=layout, store=self.store, clock=clock, shards=self.shards)

    @property
    def work(self) -> PendingWork:
        if not self.tiered:
            return PendingWork(self.checkpoint)
        layout = StoreLayout(self.wheel, state_levels=1)
        return PendingWork(self.checkpoint, SlotStore.open(self.job.spark, self.store, layout, create=False))

    def leave(self) -> Manifest:
        return export_job(self.job.spark, self.work, f"{self.checkpoint}-export")

    def come_from(self, old: Home) -> Manifest:
        folder = f"{old.checkpoint}-export"
        if self.tiered:
            what = self.what(self.clock)
            return import_tiered(self.job.spark, folder, what, checkpoint=self.checkpoint)
        return import_direct(
            self.job.spark,
            folder,
            checkpoint=self.checkpoint,
            wheel=self.wheel,
            clock=self.clock,
            shards=self.shards,
        )


class Job:
    """What stays: the input and the tables."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.last: BatchReport | None = None
        tables = DeltaSink(self.place("tables"), create=True)
        self.outlet = Outlet(Destinations({"*": tables}), DeltaSink(self.place("rejects")))

    def place(self, name: str) -> str:
        return str(self.folder / name)

    def say(self, *batches: list[dict[str, Any]]) -> None:
        add_files(self.folder / "in", *batches)

    def commands(self) -> DataFrame:
        return read_files(self.spark, self.folder / "in")

    def note(self, report: BatchReport) -> None:
        self.last = report

    @property
    def account(self) -> dict[str, int]:
        assert self.last is not None
        counts = {name: count for name, count in self.last.counts.items() if count}
        return {"pending": self.last.pending, **counts}

    def fired(self) -> list[tuple[str, int, int]]:
        """(id, seq, due in seconds); none early, none twice."""
        rows = self.spark.read.format("delta").load(self.place("tables/out"))
        assert rows.where("fired_at < deliver_at").isEmpty()
        assert rows.count() == rows.select("fire_id").distinct().count()
        found = [(row.schedule_id, row.seq, row.deliver_at.timestamp()) for row in rows.collect()]
        return sorted((name, seq, int(seconds - at_ms(0) / 1_000)) for name, seq, seconds in found)
