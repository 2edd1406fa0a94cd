"""The session of a job. Loading this module loads no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(name: str, checkpoint: str | None = None) -> Iterator[SparkSession]:
    """Provides the session of a job: the running one, left running, or a new one, stopped at the end."""
    from wheel_udf.kafka import admin as kafka_admin
    from wheel_udf.spark.interrupts import at_end, ending_on_interrupt
    from wheel_udf.spark.running import running_session
    from wheel_udf.spark.session import build_session, stop_session

    running = running_session()
    spark = build_session(name, checkpoint=checkpoint)
    if running is not None:
        yield spark
        return
    with ending_on_interrupt(spark):
        try:
            yield spark
        finally:
            at_end(kafka_admin.close_all)
            stop_session(spark)
