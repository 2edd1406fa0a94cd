"""Serves metrics and health over HTTP: ``/metrics`` for Prometheus, ``/healthz`` for a supervisor; extra ``metrics``.

::

    GET /metrics    200, the text format of Prometheus (or OpenMetrics, if the client requests it)
    GET /healthz    200 "ok", or 503 and the reason as text
    other paths     404

The port is bound when the object is made, so a port that is in use stops a job before it starts. Requests are answered
on threads of their own, from figures that are in memory: a scrape reads neither Spark nor the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric as Family,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from wheel_udf.metrics.figures import Spent, Value
from wheel_udf.metrics.http_server import SLOWEST_CLIENT_S, HttpServer
from wheel_udf.metrics.meter import Meter
from wheel_udf.metrics.names import LATENESS_BOUNDS_S, METRICS
from wheel_udf.wheel.lateness import LatenessHistogram


class Exporter:
    """An HTTP server for the metrics and the health of one run.

    Args:
        address: The address to listen on.
        port: The port; 0 takes any free one.

    Raises:
        ConfigError: The port is in use, or the address is not one of this machine.
    """

    def __init__(self, address: str, port: int) -> None:
        self._server = HttpServer(address, port, "wheel-metrics", purpose="metrics", field="metrics.port")

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        return self._server.url

    def serve(self, meter: Meter) -> None:
        """Begins to answer requests."""
        registry = CollectorRegistry()
        registry.register(Samples(meter))
        ProcessCollector(registry=registry)
        self._server.serve(type("Handler", (_Handler,), {"registry": registry, "meter": meter}))

    def close(self) -> None:
        """Stops answering and frees the port."""
        self._server.close()


class _Handler(MetricsHandler):
    timeout = SLOWEST_CLIENT_S
    meter: Meter

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            super().do_GET()
        elif path == "/healthz":
            reason = self.meter.unhealthy_reason()
            self._answer(200 if reason is None else 503, reason or "ok")
        else:
            self._answer(404, "/metrics or /healthz")

    def _answer(self, code: int, text: str) -> None:
        content = f"{text}\n".encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


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
