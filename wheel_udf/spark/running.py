"""The session that this process runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_built: WeakSet[SparkSession] = WeakSet()


def note_built(spark: SparkSession) -> None:
    """Notes a session of :func:`wheel_udf.spark.session.build_session`."""
    _built.add(spark)


def running_session() -> SparkSession | None:
    """The session that this process runs, from any thread; None if Spark does not run.

    Of a session of :func:`build_session` itself: after a batch function has called ``createDataFrame`` pyspark calls
    the copy active that Spark made for the query, in all threads that have an active one.

    A process that has not loaded pyspark runs none; to load it takes longer than to take a lease.
    """
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        running = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return next((each for each in _built if each.sparkContext is running.sparkContext), running)
