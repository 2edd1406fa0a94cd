"""The progress of a verb, on standard error (:mod:`wheel_udf.common.progress`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from wheel_udf.common.progress import Progress
from wheel_udf.control.wall import elapsed_ms
from wheel_udf.spark.job_progress import showing_tasks


@contextmanager
def progress_of(spark: SparkSession, what: str) -> Iterator[Progress]:
    """Inside, the progress of Spark's jobs is shown.

    Yields:
        The display: its ``step`` takes the steps, its ``around`` lets lines be printed beside a bar.
    """
    with Progress(what, sys.stderr, elapsed_ms) as progress, showing_tasks(spark, progress):
        yield progress
