"""Meters a run as configured: the batch log, the log of the job as JSON (:mod:`wheel_udf.metrics`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import wheel_udf
from wheel_udf.common.progress import PrintLine
from wheel_udf.common.secrets import hide
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.metrics.batch_log import BatchLog
from wheel_udf.metrics.lines import line_text
from wheel_udf.metrics.meter import Meter
from wheel_udf.spark.failures import explain

STOPPED = "the query has stopped"
_UNHEALTHY_AFTER_MS: Final = 300_000


@contextlib.contextmanager
def metering(config: AnyConfig, print_line: PrintLine) -> Iterator[Meter]:
    """Provides the meter of a run.

    Args:
        config: The config of the job.
        print_line: Takes the lines of the batches, if they are to be JSON.
    """

    def say_line(line: Mapping[str, Any]) -> None:
        print_line(line_text(line))

    default_ms = max(_UNHEALTHY_AFTER_MS, 2 * (config.trigger_ms or 0))
    with contextlib.closing(BatchLog(config.checkpoint)) as log:
        yield Meter(
            (config.name, config.kind, config.clock.kind, wheel_udf.__version__),
            unhealthy_after_ms=config.metrics.unhealthy_after_ms or default_ms,
            sinks=[log.append, *([say_line] if config.log == "json" else [])],
        )


@contextlib.contextmanager
def running(meter: Meter) -> Iterator[None]:
    """Inside, a query of the run is running; outside, its job is not healthy."""
    meter.started()
    try:
        yield
    except Exception as fault:
        meter.stopped(f"the query has failed: {hide(explain(fault).sentence)}")
        raise
    meter.stopped(STOPPED)
