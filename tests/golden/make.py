"""Makes the golden checkpoints of the current formats: ``python -m tests.golden.make``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import SPARK_SETTINGS
from tests.delta.transfer.homes import SMALL, Home, Job
from tests.golden import pack
from tests.golden.purgatory import BEFORE, watch_over
from tests.spark.streams import cancel, due
from tests.spark.watches import add_rows
from wheel_udf.platform import build_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> None:
    """Makes all of them."""
    with tempfile.TemporaryDirectory() as folder:
        spark = build_session("golden", master="local[2]", conf=SPARK_SETTINGS, checkpoint=folder)
        for name, tiered in (("direct-8", False), ("tiered-8-2", True)):
            _schedule(spark, Path(folder) / name, name, tiered=tiered)
        _watch(spark, Path(folder) / "watch-3")
        stop_session(spark)


def _schedule(spark: SparkSession, folder: Path, name: str, *, tiered: bool) -> None:
    job = Job(spark, folder)
    home = Home(job, "checkpoint", SMALL, 2, tiered=tiered)
    home.store = job.place("store")
    job.say(
        [due("start", 1, 0)],
        [due("fired", 30, 20), due("near", 95, 80), due("far", 5_000, 80), due("off", 600, 80)],
        [cancel("off", 90, seq=2), cancel("early cancel", 90, seq=2)],
    )
    home.run()
    pack(name, folder, ("in", "checkpoint", "store"))


def _watch(spark: SparkSession, folder: Path) -> None:
    add_rows(folder, *BEFORE)
    watch_over(spark, folder)
    pack("watch-3", folder, ("operations", "events", "checkpoint"))


if __name__ == "__main__":
    main()
