"""The purgatory of the golden checkpoints: what it was given, and how it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.spark.streams import at_ms
from tests.spark.watches import event, operation, read_rows
from wheel_udf.clock import EventClock
from wheel_udf.delivery import BatchReport, DeltaSink, Destinations, deliver
from wheel_udf.stream import watch
from wheel_udf.wheel import Wheel

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BEFORE: Final = (
    ([operation("done", 0, "a")], [event("a", 5)]),
    ([operation("waits", 10, "b"), operation("half", 10, "c", "d", rule="all")], [event("c", 12)]),
    ([operation("expires", 14, "e")], [event("ahead", 18)]),
)
AFTER: Final = (
    ([operation("late", 15, "ahead"), operation("done", 0, "a")], [event("b", 19), event("d", 20)]),
)


def watch_over(spark: SparkSession, folder: Path, until_s: int | None = None) -> list[BatchReport]:
    """Runs the purgatory over all its input; the reports of its batches."""
    reports: list[BatchReport] = []
    clock = EventClock(max_ahead_ms=None, until_ms=None if until_s is None else at_ms(until_s))
    wheel = Wheel(tick_ms=1_000, size=20, levels=4)
    tables = Destinations({"*": DeltaSink(str(folder / "tables"), create=True)})
    deliver(
        watch(*read_rows(spark, folder), wheel=wheel, clock=clock, shards=2),
        destinations=tables,
        rejects=DeltaSink(str(folder / "rejects")),
        checkpoint=str(folder / "checkpoint"),
        trigger="available-now",
        on_batch=reports.append,
    ).awaitTermination()
    return reports
