"""The job that is killed and started again: input, wheel and sinks, the same in all processes of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.faults.inputs import end_s
from tests.faults.points import PURGATORY, TIERED
from tests.settings import INTERPRETED, SMALL
from tests.spark.streams import at_ms, read_files
from tests.spark.watches import read_rows
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.pending.entries import PendingWork
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations, Sink
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.stream.watch_operator import watch
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered
from wheel_udf.transfer.exporting import export_job
from wheel_udf.transfer.importing import import_direct, import_watch
from wheel_udf.transfer.into_store import import_tiered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from wheel_udf.delivery.report import BatchReport

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
SHARDS = 3
SETTINGS: dict[str, str | float | bool] = {
    **SMALL,
    **INTERPRETED,
    # A second less for each start: a victim lives for seconds.
    "spark.python.daemon.module": "tests.faults.daemon",
    # Old entries of the logs and old files of the state go at once, and snapshots are made: the clean-up is a point,
    # too.
    "spark.sql.streaming.minBatchesToRetain": 2,
    "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": 2,
}


def _same(frame: DataFrame) -> DataFrame:
    return frame


@dataclass
class Job:
    """One job of a chain, in one process.

    Attributes:
        folder: Of the chain: input, sinks, and the job's homes, checkpoint and store each.
        mode: Of :data:`~tests.faults.points.MODES`.
        files: How many files of input there are in the end.
        home: 0, or 1 after the job has moved.
        sink: Makes the sink of tables, and that of the rejects.
        source: What is done to each frame of the input.
        kafka: Bootstrap servers: all destinations but ``left`` are topics there. None: all are tables.
        on_batch: Called after each batch.
    """

    folder: Path
    mode: str
    files: int
    home: int = 0
    sink: Callable[[str], Sink] = lambda path: DeltaSink(path, create=True)
    source: Callable[[DataFrame], DataFrame] = _same
    kafka: str | None = None
    on_batch: Callable[[BatchReport], None] | None = None

    def place(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def checkpoint(self) -> str:
        return self.place(f"checkpoint{self.home}")

    @property
    def store(self) -> str:
        return self.place(f"store{self.home}")

    @property
    def state_query(self) -> str:
        """Checkpoint of the query with the state, which also writes the sinks."""
        return f"{self.checkpoint}/wheel" if self.mode == TIERED else self.checkpoint

    def clock(self, *, to_the_end: bool) -> EventClock:
        return EventClock(until_ms=at_ms(end_s(self.files)) if to_the_end else None)

    def layout(self) -> StoreLayout:
        return StoreLayout(WHEEL, state_levels=1)

    def what(self, clock: EventClock) -> TieredWheel:
        return TieredWheel(layout=self.layout(), store=self.store, clock=clock, shards=SHARDS)

    def work(self, spark: SparkSession) -> PendingWork:
        if self.mode != TIERED:
            return PendingWork(self.checkpoint)
        return PendingWork(self.checkpoint, SlotStore.open(spark, self.store, self.layout(), create=False))

    def start(self, spark: SparkSession, *, to_the_end: bool) -> Any:
        """Starts the job over all its input; with its clock to the end it ends there, else with the input."""
        clock = self.clock(to_the_end=to_the_end)
        wanted: dict[str, Any] = {"trigger": "available-now", "checkpoint": self.checkpoint}
        wanted["on_batch"] = self.on_batch
        tables, rejects = self._destinations(), self.sink(self.place("rejects"))
        if self.mode == TIERED:
            commands = self.source(read_files(spark, self.folder / "in"))
            return start_tiered(commands, self.what(clock), outlet=Outlet(tables, rejects), **wanted)
        return deliver(self._frame(spark, clock), destinations=tables, rejects=rejects, **wanted)

    def _destinations(self) -> Destinations:
        tables = self.sink(self.place("tables"))
        if self.kafka is None:
            return Destinations({"*": tables})
        topics = KafkaSink({"kafka.bootstrap.servers": self.kafka}, create=True)
        return Destinations({"left": tables, "*": topics})

    def _frame(self, spark: SparkSession, clock: EventClock) -> DataFrame:
        if self.mode == PURGATORY:
            rows = [self.source(frame) for frame in read_rows(spark, self.folder)]
            return watch(*rows, wheel=WHEEL, clock=clock, shards=SHARDS)
        commands = self.source(read_files(spark, self.folder / "in"))
        return schedule(commands, wheel=WHEEL, clock=clock, shards=SHARDS)

    def move(self, spark: SparkSession) -> None:
        """Exports the job at rest and imports it at its next home; said again, it goes on where it stopped."""
        export = self.place("export")
        export_job(spark, self.work(spark), export)
        self.home += 1
        clock = self.clock(to_the_end=False)
        if self.mode == TIERED:
            import_tiered(spark, export, self.what(clock), checkpoint=self.checkpoint)
            return
        bring = import_watch if self.mode == PURGATORY else import_direct
        bring(spark, export, checkpoint=self.checkpoint, wheel=WHEEL, clock=clock, shards=SHARDS)
