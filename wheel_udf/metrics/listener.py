"""Listens to Spark's streaming queries, and passes the progress of a job's queries to its meter (public interface:
``StreamingQueryListener``).

A listener belongs to the session and gets the events of all its queries. A job's queries are found by name; Spark
reports an idle trigger by the query's id only, so the ids are noted as the queries start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from wheel_udf.metrics.lines import INTAKE, WHEEL, Progress
from wheel_udf.metrics.meter import Meter
from wheel_udf.spark.failures import is_jvm_end


@contextmanager
def listening(spark: SparkSession, name: str, meter: Meter) -> Iterator[None]:
    """Passes the progress of a job's queries to the meter while the context is open.

    Args:
        spark: The session in which they run.
        name: Name of the job.
        meter: The job's meter.
    """
    listener = _Listener(meter, {name: WHEEL, f"{name}-intake": INTAKE})
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        meter.close()
        try:
            spark.streams.removeListener(listener)
        except Exception as fault:
            if not is_jvm_end(fault):  # a JVM that has ended has no listeners
                raise


class _Listener(StreamingQueryListener):
    def __init__(self, meter: Meter, queries: Mapping[str, str]) -> None:
        self._meter, self._queries = meter, queries
        self._wheels: set[UUID] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if self._queries.get(event.name or "") == WHEEL:
            self._wheels.add(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = self._queries.get(progress.name or "")
        if query is not None:
            durations_ms = {str(phase): int(spent) for phase, spent in progress.durationMs.items()}
            self._meter.on_progress(Progress(query, progress.batchId, durations_ms))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        if event.id in self._wheels:
            self._meter.on_idle()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._wheels.discard(event.id)
