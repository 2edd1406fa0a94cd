"""Meters a run as configured: the batch log, the log of the job as JSON, the exporter (:mod:`wheel_udf.metrics`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import wheel_udf
from wheel_udf.common.extras import missing_package
from wheel_udf.common.progress import PrintLine
from wheel_udf.common.secrets import hide
from wheel_udf.job.models.metrics import MetricsConfig
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.metrics.batch_log import BatchLog
from wheel_udf.metrics.lines import line_text
from wheel_udf.metrics.meter import Meter
from wheel_udf.spark.failures import explain

if TYPE_CHECKING:
    from wheel_udf.metrics.exporter import Exporter

STOPPED = "the query has stopped"
_DEFAULT_UNHEALTHY_AFTER_MS = 300_000


@contextlib.contextmanager
def metering(config: AnyConfig, print_line: PrintLine) -> Iterator[Meter]:
    """Provides the meter of a run, and serves it over HTTP if the config says so.

    Args:
        config: The config of the job.
        print_line: Takes the lines of the batches, if they are to be JSON, and a line with the address of the exporter.

    Raises:
        ConfigError: The port is in use, or the package for it is missing.
    """
    exporter = exporter_of(config.metrics)
    log = BatchLog(config.checkpoint)
    meter = _meter_of(config, log, print_line)
    with (
        contextlib.closing(log),
        contextlib.nullcontext() if exporter is None else contextlib.closing(exporter),
    ):
        if exporter is not None:
            exporter.serve(meter)
            print_line(f"metrics at {exporter.url}/metrics, health at {exporter.url}/healthz")
        yield meter


def exporter_of(settings: MetricsConfig | None) -> Exporter | None:
    """Returns the exporter of a config, its port bound; None if the config has none.

    Raises:
        ConfigError: The port is in use, or the package for it is missing.
    """
    if settings is None:
        return None
    if (missing := missing_package("prometheus_client", "metrics", "metrics")) is not None:
        raise missing
    from wheel_udf.metrics.exporter import Exporter

    return Exporter(settings.address, settings.port)


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


def check_ports(config: AnyConfig) -> None:
    """Checks that a run could serve its metrics, and answer questions.

    Raises:
        ConfigError: A port is in use, or the package for it is missing.
    """
    exporter = exporter_of(config.metrics)
    if exporter is not None:
        exporter.close()
    if config.api.enabled and config.api.address_is_chosen:
        from wheel_udf.api.server import ApiServer

        ApiServer(config.api.address, config.api.port).close()


def _meter_of(config: AnyConfig, log: BatchLog, print_line: PrintLine) -> Meter:
    def say_line(line: Mapping[str, Any]) -> None:
        print_line(line_text(line))

    settings = config.metrics
    return Meter(
        (config.name, config.kind, config.clock.kind, wheel_udf.__version__),
        unhealthy_after_ms=_DEFAULT_UNHEALTHY_AFTER_MS if settings is None else settings.unhealthy_after_ms,
        sinks=[log.append, *([say_line] if config.log == "json" else [])],
    )
