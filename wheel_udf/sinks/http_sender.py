"""Sends the rows of one task to webhooks: what an executor does for :class:`~wheel_udf.sinks.http_sink.HttpSink`.

::

    Arrow batches of (destination, fire_id, body, headers)
        --> by destination, each an Endpoint with workers of its own, all on one event loop
        --> rows (destination, fire_id, reason): those not delivered, and at the end one for each endpoint that failed

A hanging endpoint blocks its own workers, and the next Arrow batch of its task, by its budget at most, once. Executors
load this module: pyarrow and httpx, nothing of Spark.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from wheel_udf.common.errors import SinkError
from wheel_udf.sinks.http_endpoint import Endpoint, Plan, Request

if TYPE_CHECKING:
    import httpx
    import pyarrow as pa

REPORT: Final = (
    "destination string, fire_id string, reason string, rests boolean, is_final boolean, is_tried boolean, "
    "retry_after_ms long"
)
"""The result of a task, as DDL. Without a fire id: why an endpoint is to rest, or to be tried with one row first."""

Line = tuple[str, str | None, str, bool, bool, bool, int | None]

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_CONNECTIONS: Final = 256
# Headers that decide how a request is sent, or on whose behalf: never from a row.
_NOT_FROM_ROWS: Final = re.compile(
    r"authorization|cookie|host|forwarded|connection|keep-alive|expect|te|trailer|upgrade|accept-encoding"
    r"|(?:proxy|x-forwarded)-.*|content-length|transfer-encoding",
    re.IGNORECASE,
)


def send_partition(batches: Iterator[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """Sends the rows of a partition (the function of ``mapInArrow``); yields rows of :data:`REPORT`.

    Raises:
        SinkError: httpx is not installed on this executor.
    """
    with asyncio.Runner() as runner:
        sender = _Sender(plan)
        try:
            for batch in batches:
                yield from _report(runner.run(sender.send(batch.to_pylist())))
            yield from _report(sender.endpoints_report())
        finally:
            runner.run(sender.close())


def _report(rows: list[Line]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if rows:
        text, flag = pa.string(), pa.bool_()
        kinds = (text, text, text, flag, flag, flag, pa.int64())
        names = [column.split()[0] for column in REPORT.split(", ")]
        columns = [
            pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=names)


class _Sender:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._endpoints: dict[str, Endpoint] = {}
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._client: httpx.AsyncClient | None = None

    async def send(self, rows: list[dict[str, Any]]) -> list[Line]:
        by_destination: dict[str, list[Request]] = {}
        for row in rows:
            by_destination.setdefault(row["destination"], []).append(_request_of(row, self._plan))
        client = self._opened()
        refused = await asyncio.gather(
            *(self._endpoint(name).send(client, requests) for name, requests in by_destination.items())
        )
        return [
            (name, row.fire_id, row.reason, False, row.is_final, row.is_tried, row.retry_after_ms)
            for name, rows_of in zip(by_destination, refused, strict=True)
            for row in rows_of
        ]

    def endpoints_report(self) -> list[Line]:
        return [
            (name, None, reason, endpoint.failed_reason is not None, False, False, None)
            for name, endpoint in self._endpoints.items()
            if (reason := endpoint.failed_reason or endpoint.doubt) is not None
        ]

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _endpoint(self, name: str) -> Endpoint:
        if name not in self._endpoints:
            url, probation = self._plan.url.replace("{destination}", name), name in self._plan.on_probation
            self._endpoints[name] = Endpoint(url, self._plan, self._slots, probation)
        return self._endpoints[name]

    def _opened(self) -> httpx.AsyncClient:
        try:
            import httpx
        except ImportError:
            hint = "pip install 'wheel-udf[http]' on every executor"
            raise SinkError(
                "the package httpx is not installed on an executor", field="sink: http", hint=hint
            ) from None
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=_CONNECTIONS)
            # The time-outs are those of Endpoint: httpx has none for a whole answer.
            self._client = httpx.AsyncClient(timeout=None, limits=limits)  # noqa: S113
        return self._client


def _request_of(row: dict[str, Any], plan: Plan) -> Request:
    own = {name.lower() for name, _ in plan.headers} | {plan.id_header.lower()}
    more = [
        (pair["key"], _value_of(pair["value"]))
        for pair in row["headers"] or ()
        if _is_passed_on(pair["key"]) and pair["key"].lower() not in own
    ]
    headers = [*plan.headers, (plan.id_header, _value_of(row["fire_id"].encode())), *more]
    return Request(row["fire_id"], row["body"] or b"", headers)


def _is_passed_on(name: str) -> bool:
    return is_header_name(name) and _NOT_FROM_ROWS.fullmatch(name) is None


def is_header_name(name: str) -> bool:
    """Whether a header may have this name."""
    return _TOKEN.fullmatch(name) is not None


def _value_of(value: bytes | None) -> str:
    """The value of a header: printable ASCII as it is; other bytes, and the percent sign, percent-encoded."""
    octets = bytes(value or b"")
    text = octets.decode("latin-1")
    return text.strip() if text.isascii() and text.isprintable() else quote(octets, safe=_PRINTABLE)
