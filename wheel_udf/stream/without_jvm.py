"""What an operator cannot do on a session of Spark Connect, where shards and driver have no board in common.

::

    setting                 needs, and Spark Connect has not
    punctual, retries       news for the shards, which the driver posts
    until                   the end of the input, which the shards report
    simulated with a step   the next due time, which the shards report
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.control.clocks import Clock, SimulatedClock
from wheel_udf.policies.punctual import Punctual
from wheel_udf.policies.retries import Retries
from wheel_udf.spark.connect_session import is_connect


def require_possible(spark: SparkSession, clock: Clock, punctual: Punctual | None, retries: Retries) -> None:
    """Refuses settings that a session cannot serve.

    Raises:
        ConfigErrors: It is a session of Spark Connect, and these need a JVM.
    """
    if not is_connect(spark):
        return
    faults = {
        "punctual": (punctual is not None, "without: a row leaves in the run after its due time"),
        "retries": (bool(retries), "without: a table that is repaired gets its rows in the next run"),
        "clock.until_ms": (clock.until_ms is not None, "without: the end of the input is not known there"),
        "clock.step_ms": (
            isinstance(clock, SimulatedClock) and clock.step_ms is not None,
            "instants_ms in its place",
        ),
    }
    found = [
        ConfigError("a setting needs a session with a JVM, and this is Spark Connect", field=field, rule=rule)
        for field, (is_asked, rule) in faults.items()
        if is_asked
    ]
    if found:
        raise ConfigErrors(found)
