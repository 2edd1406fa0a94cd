"""A mode of a soak, from its first file to the batch after which nothing waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.soak.feeder import Feeder, make_folders, now_ms
from tests.soak.plan import Plan
from tests.soak.sampler import Book, Sampler
from tests.soak.traffic import Row, Traffic
from wheel_udf import (
    BatchReport,
    DeltaSink,
    Destinations,
    ProcessingClock,
    Wheel,
    deliver,
    schedule,
    watch,
)
from wheel_udf.store.layout import StoreLayout
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

_DDL = {
    "commands": "schedule_id string, op string, seq long, deliver_at timestamp, event_time timestamp, destination string, value binary",
    "operations": "op_id string, group string, keys array<string>, rule string, deadline string, event_time timestamp, destination string, value binary",
    "events": "group string, key string, op string, event_time timestamp",
}
SOURCES = {
    "direct": ("commands",),
    "tiered": ("commands",),
    "purgatory": ("operations", "events"),
}
# An idle wheel would tell only once a minute that nothing is pending any more.
_CLOCK = ProcessingClock(heartbeat_ms=2_000)
_WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
_SHARDS = 4
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Ended:
    """What is known of a mode that has ended.

    Attributes:
        mode: Which.
        folder: With its input (``in``, ``archive``, ``written.jsonl``), ``tables`` and ``rejects``.
        report: The last report.
        until_ms: What was due by then must be out.
    """

    mode: str
    folder: Path
    report: BatchReport
    until_ms: int


class Soak:
    """Runs one mode after the other in one session."""

    def __init__(self, spark: SparkSession, folder: Path, scratch: Path, plan: Plan, book: Book) -> None:
        self.spark, self.folder, self.scratch, self.plan, self.book = spark, folder, scratch, plan, book

    def run(self, mode: str, say: Callable[[str], None]) -> Ended:
        """Runs a mode: starts it, feeds it, waits until nothing is pending, stops it."""
        folder = self.folder / mode
        make_folders(folder, SOURCES[mode])
        if mode == "tiered":
            (folder / "store").mkdir()
        sampler = Sampler(self.spark, self.book, folder, self.scratch, self.plan.collect_every_s)
        reports: list[BatchReport | None] = [None]

        def on_batch(report: BatchReport) -> None:
            reports[0], sampler.pending = report, report.pending

        feeder = Feeder(folder, self._rows(mode))
        query = self._start(mode, folder, on_batch)
        try:
            self._wait(query, lambda: reports[0] is not None, _PATIENCE_S)
            say(f"{mode}: runs")
            self.book.begin(mode)
            sampler.start()
            feeder.start()
            self._wait(query, lambda: False, self.plan.feed_s)
            feeder.stop()
            sampler.stop()
            fed_ms = now_ms()
            self._wait(query, lambda: False, self.plan.drain_s)
            empty = self._wait(query, lambda: _pending(reports) == 0, _PATIENCE_S)
            say(
                f"{mode}: fed for {self.plan.feed_s:.0f} s, {'nothing' if empty else _pending(reports)} pending"
            )
        finally:
            query.stop()
            self.book.end()
        report = reports[0]
        assert report is not None, "the first batch has reported"
        until_ms = fed_ms + int(self.plan.delay_s[1] * 1_000)
        return Ended(mode, folder, report, until_ms)

    def _wait(self, query: Any, over: Callable[[], bool], at_most_s: float) -> bool:
        """Waits; whether it is over. A query that has failed raises its error."""
        until_s = time.monotonic() + at_most_s
        while not over():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            query.awaitTermination(max(0.01, min(0.2, left_s)))
            assert query.isActive, "a query of a soak ends only by an error, which is raised here"
        return True

    def _rows(self, mode: str) -> Callable[[int, int], dict[str, list[Row]]]:
        traffic = Traffic(7, self.plan.rate, self.plan.delay_s)
        if mode != "purgatory":
            return lambda second, at_ms: {"commands": traffic.commands(second, at_ms)}
        return lambda second, at_ms: dict(
            zip(("operations", "events"), traffic.operations(second, at_ms), strict=True)
        )

    def _read(self, folder: Path, name: str) -> DataFrame:
        # Archived, so that the source's folder stays small and the input is there for the ledger.
        reader = self.spark.readStream.schema(_DDL[name]).option("cleanSource", "archive")
        return reader.option("sourceArchiveDir", str(folder / "archive")).parquet(str(folder / "in" / name))

    def _start(self, mode: str, folder: Path, on_batch: Callable[[BatchReport], None]) -> Any:
        tables = Destinations({"*": DeltaSink(str(folder / "tables"), create=True)})
        rejects = DeltaSink(str(folder / "rejects"), create=True)
        trigger_s = self.plan.tiered_trigger_s if mode == "tiered" else 1
        named = {
            "checkpoint": str(folder / "checkpoint"),
            "trigger": f"{trigger_s} seconds",
            "name": f"soak-{mode}",
        }
        memory_ms = int(self.plan.memory_s * 1_000)
        frames = [self._read(folder, name) for name in SOURCES[mode]]
        if mode == "tiered":
            layout = StoreLayout(Wheel(tick_ms=1_000, size=self.plan.window_s, levels=3), state_levels=1)
            store = str(folder / "store")
            what = TieredWheel(layout=layout, store=store, clock=_CLOCK, shards=_SHARDS, memory_ms=memory_ms)
            return start_tiered(*frames, what, outlet=Outlet(tables, rejects), on_batch=on_batch, **named)
        operator = watch if mode == "purgatory" else schedule
        scheduled = operator(*frames, wheel=_WHEEL, clock=_CLOCK, shards=_SHARDS, memory_ms=memory_ms)
        return deliver(scheduled, destinations=tables, rejects=rejects, on_batch=on_batch, **named)


def _pending(reports: list[BatchReport | None]) -> int:
    return -1 if reports[0] is None else reports[0].pending
