"""Metrics in the text format of Prometheus; needs the extra ``metrics``.

Figures are in memory: a scrape reads neither Spark nor the store. A query without a job has its figures in a registry
of its own: ``registry.register(Samples(meter))``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric as Family,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from wheel_udf.metrics.figures import Spent, Value
from wheel_udf.metrics.meter import Meter
from wheel_udf.metrics.names import LATENESS_BOUNDS_S, METRICS
from wheel_udf.wheel.lateness import LatenessHistogram


def exposition(meter: Meter, accept: str) -> tuple[str, bytes]:
    """Returns the metrics of a run and of this process as (content type, content), in the format that a client accepts.

    Args:
        meter: The meter of the run.
        accept: The header ``Accept`` of the request.
    """
    registry = CollectorRegistry()
    registry.register(Samples(meter))
    ProcessCollector(registry=registry)
    encode, kind = choose_encoder(accept)
    return kind, encode(registry)


_FAMILIES: Final[Mapping[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "summary": SummaryMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Samples(Collector):
    """The samples of a meter, for a registry of Prometheus.

    Args:
        meter: The meter.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def collect(self) -> Iterable[Family]:
        """The families of all metrics that the job has."""
        families: dict[str, Any] = {}
        for name, labels, value in self._meter.samples():
            if name not in families:
                metric = METRICS[name]
                families[name] = _FAMILIES[metric.kind](name, metric.text, labels=metric.labels)
            families[name].add_metric(labels, **_parts_of(value))
        return families.values()


def _parts_of(value: Value) -> dict[str, Any]:
    """The value of a sample as the families of its kind take it."""
    match value:
        case Spent():
            return {"count_value": value.count, "sum_value": value.seconds}
        case LatenessHistogram():
            return {"buckets": _buckets(value), "sum_value": value.sum_ms / 1_000}
    return {"value": value}


def _buckets(histogram: LatenessHistogram) -> list[tuple[str, float]]:
    bounded = [(str(bound), histogram.at_most(round(bound * 1_000))) for bound in LATENESS_BOUNDS_S]
    return [*bounded, ("+Inf", histogram.count)]
