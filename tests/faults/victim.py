"""A driver that kills itself, hard, at a crash point of its third batch: ``python -m tests.faults.victim FOLDER POINT RUN``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.world import start
from wheel_udf.delivery.delta_sink import DeltaSink
from wheel_udf.delivery.destinations import FIRED, Shape
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.platform.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wheel_udf.delivery.report import BatchReport

POINTS = ("before the first table", "between two tables", "before the rejects", "before the commit log")
SETTINGS: dict[str, str | float | bool] = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_BATCH = 2
_PENDING_THEN = 60
"""After the batches 0 and 1, the last that the first victim has committed."""


def die() -> None:
    """No handler, no flush, no goodbye."""
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlySink(DeltaSink):
    """A Delta sink that kills the driver before, or after, it writes."""

    point = ""

    def write(
        self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int, shape: Shape = FIRED
    ) -> None:
        """Writes, unless this is the moment to die."""
        here = batch_id == _BATCH
        if here and (self.point == POINTS[0] or (self.point == POINTS[2] and destination is None)):
            die()
        super().write(frame, destination, app_id=app_id, batch_id=batch_id, shape=shape)
        if here and self.point == POINTS[1]:
            die()


def main(folder: str, point: str, run: str) -> None:
    """Runs until the crash point."""
    DeadlySink.point = point

    def on_batch(report: BatchReport) -> None:
        if report.batch_id == _BATCH and point == POINTS[3]:
            die()

    spark = build_session("victim", master="local[2]", conf=SETTINGS, checkpoint=folder)
    if (run, point) == ("wheel", POINTS[1]):
        # A state store is read where no stream has run yet: Spark does not make what that needs by itself.
        assert pending(spark, PendingWork(f"{folder}/checkpoint")).count() == _PENDING_THEN
    start(
        spark, Path(folder), run, sink=lambda path: DeadlySink(path, create=True), on_batch=on_batch
    ).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
