"""Answers what watches a job, without a token: metrics for Prometheus and health for a supervisor.

::

    GET /metrics    200, the text format of Prometheus (or OpenMetrics, if the client requests it)
                    501 if the package of the extra `metrics` is not installed
    GET /healthz    200 "ok", or 503 and the reason as text
    other paths     503, until the query has started and the job answers questions (wheel_udf.api.server)
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import Any

from wheel_udf.api.answer import RefusedError
from wheel_udf.api.words import JSON, SERVER
from wheel_udf.common.extras import missing_package
from wheel_udf.metrics.meter import Meter

_TEXT = "text/plain; charset=utf-8"


class WatchHandler(BaseHTTPRequestHandler):
    """Answers from figures that are in memory: a scrape reads neither Spark nor the store."""

    timeout = 10.0
    """Seconds: a client that sends nothing for so long is hung up on."""

    server_version, sys_version = SERVER, ""
    meter: Meter

    def do_GET(self) -> None:
        """Answers by the path."""
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer_metrics()
            case "/healthz":
                reason = self.meter.unhealthy_reason()
                self.answer(200 if reason is None else 503, f"{reason or 'ok'}\n".encode(), _TEXT)
            case path:
                self.get(path)

    def do_POST(self) -> None:
        """Answers by the path."""
        self.post(self.path)

    def get(self, path: str) -> None:
        """Answers any other path."""
        self.post(path)

    def post(self, path: str) -> None:
        """Answers a question."""
        self.refuse(503, RefusedError(f"the job answers no questions yet: {path}", 1))

    def _answer_metrics(self) -> None:
        if (missing := missing_package("prometheus_client", "metrics", "/metrics")) is not None:
            self.answer(501, f"{missing}\n".encode(), _TEXT)
            return
        from wheel_udf.metrics.exporter import exposition  # the first scrape loads it

        kind, content = exposition(self.meter, self.headers.get("Accept", ""))
        self.answer(200, content, kind)

    def refuse(self, code: int, refusal: RefusedError) -> None:
        """Answers with a refusal."""
        self.close_connection = True  # the rest of the request may not have been read
        self.answer(code, refusal.to_json().encode())

    def answer(self, code: int, content: bytes, kind: str = JSON) -> None:
        """Answers."""
        self.begin(code, kind, len(content))
        self.wfile.write(content)

    def begin(self, code: int, kind: str, length: int | None = None) -> None:
        """Writes status and headers."""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Nothing: the lines of a run are those of its batches."""
