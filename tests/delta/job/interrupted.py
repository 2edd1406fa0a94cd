"""A process that executes a verb of the command line and never ends by itself: ``python -m tests.delta.job.interrupted
MARK FUNCTION ARGUMENT...``.

The tables that the named function (``module:name``) returns block in Spark's workers when they are read. The first
worker that does creates the file MARK. Before Spark is stopped, the jobs that run are written to the file MARK.jobs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wheel_udf.job.cli import main
from wheel_udf.spark import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def block(mark: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Waits, on a worker, until the worker is ended."""
    Path(mark).touch()
    threading.Event().wait()
    yield from batches


def hold(mark: str, module: str, name: str) -> None:
    """Lets the tables that a function returns block."""
    before = getattr(import_module(module), name)

    def held(*args: Any, **more: Any) -> DataFrame:
        rows: DataFrame = before(*args, **more)
        return rows.mapInArrow(partial(block, mark), rows.schema)

    setattr(import_module(module), name, held)


def note_jobs(mark: str) -> None:
    """Lets the end of the session write down which jobs run."""
    before = session.end_session

    def stop(spark: SparkSession) -> None:
        jobs = spark.sparkContext.statusTracker().getActiveJobsIds()
        Path(f"{mark}.jobs").write_text(str(jobs), encoding="utf-8")
        before(spark)

    session.end_session = stop  # type: ignore[assignment]


if __name__ == "__main__":
    hold(sys.argv[1], *sys.argv[2].split(":"))
    note_jobs(sys.argv[1])
    sys.exit(main(sys.argv[3:]))
