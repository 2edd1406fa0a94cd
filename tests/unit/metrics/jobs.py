"""A job to be metered, without Spark: its reports, its progress, its meter, what it exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from wheel_udf.metrics.exporter import Samples
from wheel_udf.metrics.lines import Progress
from wheel_udf.metrics.meter import Meter

T = 1_767_225_600_000
"""2026-01-01T00:00Z, when all of this happens."""

MINUTE = 60_000


def progress(batch_id: int, query: str = "wheel", **durations_ms: int) -> Progress:
    """Spark's progress of a batch."""
    return Progress(query, batch_id, durations_ms)


class Clock:
    """A wall clock that a test moves."""

    def __init__(self, now_ms: int = T) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def meter(now_ms: Callable[[], int] | None = None, *sinks: Callable[[Mapping[str, Any]], None]) -> Meter:
    """The meter of a job with the default settings."""
    info = ("job", "direct", "processing", "1.2.3")
    return Meter(info, unhealthy_after_ms=5 * MINUTE, sinks=sinks, now_ms=now_ms or Clock())


def exported(job: Meter) -> str:
    """What Prometheus gets of a job."""
    registry = CollectorRegistry()
    registry.register(Samples(job))
    return generate_latest(registry).decode()
