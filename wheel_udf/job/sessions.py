"""The session of a job. Loading this module loads no Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from wheel_udf.job.phases import Phases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(name: str, checkpoint: str | None = None, phases: Phases | None = None) -> Iterator[SparkSession]:
    """Provides the session of a job: the running one, left running, or a new one, stopped at the end.

    Args:
        name: As of ``build_session``.
        checkpoint: Likewise.
        phases: Those of the start that this is a part of; None: a start of its own, which a terminal shows.
    """
    from wheel_udf.kafka import admin as kafka_admin
    from wheel_udf.spark.interrupts import at_end, ending_on_interrupt
    from wheel_udf.spark.running import running_session
    from wheel_udf.spark.session import build_session, stop_session

    running = running_session()
    if running is not None:
        yield build_session(name, checkpoint=checkpoint)
        return
    with closing(Phases(None, sys.stderr)) as alone:
        if phases is None:
            alone.begin("starting Spark")
        spark = build_session(name, checkpoint=checkpoint)
    with ending_on_interrupt(spark):
        try:
            yield spark
        finally:
            at_end(kafka_admin.close_all)
            stop_session(spark)
