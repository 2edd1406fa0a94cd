"""Webhook sink: each row is a POST to the URL of its destination. At least once; the fire id is the idempotency key.

::

    batch --> rows --mapInArrow--> task: one Endpoint for each destination --> POST ... Idempotency-Key: <fire_id>
                                                         |
              rejects <-- undeliverable, with the reason-'   e.g. HTTP 500: out of order (4 tries)

Rows go in the order of their due times within a task (strictly with ``concurrency=1``). After the last try a row
becomes a reject ``undeliverable``; the other rows are sent, and the batch does not fail.

An endpoint delays a batch by ``budget_ms`` at most. After five consecutive rows that were given up, the rest of the
batch is refused without a try; for ``cooldown_ms`` its rows are refused at once, then one row is tried, once, before
the others. An endpoint that accepted no row, but failed fewer, does not rest; the next batch tries it with one row
first. The tasks wait in executor slots: on few cores, other writes of the batch start later by that budget at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.common.extras import missing_package
from wheel_udf.common.instants import LONGEST_WAIT_MS
from wheel_udf.common.secrets import hide, hide_from_now_on, is_secret_name
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.sinks.destinations import FIRED, ISO_STYLE, LeftOut, Refusal, Shape, WithoutRecord
from wheel_udf.sinks.http_endpoint import Plan
from wheel_udf.sinks.http_sender import REPORT, is_header_name, send_partition
from wheel_udf.sinks.kafka_record import delivery_headers

_NAME: Final = "{destination}"
_URL_RULE: Final = f"http:// or https:// and a host, without a password; {_NAME} only after the host"
_LEAST: Final = {
    "timeout_ms": 1,
    "concurrency": 1,
    "budget_ms": 1,
    "retries": 0,
    "backoff_ms": 0,
    "cooldown_ms": 0,
}


@dataclass(frozen=True)
class HttpSink(WithoutRecord):
    """A webhook for each destination. At least once.

    Attributes:
        url: Where rows are posted; ``{destination}`` stands for the destination's name.
        headers: Headers of every request, such as ``Authorization``. Never shown, because they may hold secrets.
        body: ``json``: the row as a JSON object; ``value``: the bytes of its value, with the other columns as headers.
        id_header: The header that gets the fire id.
        timeout_ms: The longest time of one try.
        retries: Tries after the first one.
        backoff_ms: The wait before the second try; it doubles with each further one. ``Retry-After`` of an answer
            replaces it.
        concurrency: Rows that a task sends to one endpoint at the same time.
        budget_ms: The longest time for all rows of an endpoint in a task.
        cooldown_ms: How long an endpoint that failed is not tried.
        waits: Whether the rows of a batch wait if the endpoint asks for that; otherwise they are left out.

    Raises:
        ConfigErrors: The URL or a number cannot be used, or httpx is not installed.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    body: str = "json"
    id_header: str = "Idempotency-Key"
    timeout_ms: int = 5_000
    retries: int = 3
    backoff_ms: int = 500
    concurrency: int = 8
    budget_ms: int = 30_000
    cooldown_ms: int = 30_000
    waits: bool = True
    _failed: dict[str, tuple[int | None, str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if is_secret_name(name):
                hide_from_now_on(value)
                hide_from_now_on(value.split()[-1] if value.split() else "")
        faults = [fault for fault in self._faults() if fault is not None]
        if faults:
            raise ConfigErrors(faults)

    def _faults(self) -> list[ConfigError | None]:
        numbers = [
            ConfigError("out of range", field=name, value=value, rule=f"{least} to {LONGEST_WAIT_MS}")
            for name, least in _LEAST.items()
            if not least <= (value := getattr(self, name)) <= LONGEST_WAIT_MS
        ]
        body = None
        if self.body not in ("json", "value"):
            body = ConfigError("an unknown body", field="body", value=self.body, rule="json or value")
        return [
            *numbers,
            body,
            *map(_header_fault, self.headers.items()),
            _url_fault(self.url),
            missing_package("httpx", "http", "sink: http"),
        ]

    def missing_reason(
        self,
        spark: SparkSession,  # noqa: ARG002
        destination: str | None,
        shape: Shape = FIRED,  # noqa: ARG002  # a body has any columns
    ) -> str | None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.missing_reason`; no request: it might have effects."""
        return "a webhook takes no rejects" if destination is None else None

    def write_all(
        self,
        frame: DataFrame,
        rows_to: Mapping[str, int],
        *,
        largest_to: Mapping[str, int] | None = None,  # noqa: ARG002  # the receiver decides
        shape: Shape = FIRED,
    ) -> LeftOut:
        """See :meth:`~wheel_udf.sinks.destinations.JointSink.write_all`. Cost: one Spark job."""
        reasons, tried = self._resting(rows_to)
        rows = frame.where(F.col("destination").isin(tried))
        report = [] if not tried else self._sent(rows, shape)
        self._note([line for line in report if line.fire_id is None], tried)
        refused = {
            line.fire_id: Refusal(line.reason, line.is_final, line.is_tried, line.retry_after_ms)
            for line in report
            if line.fire_id is not None
        }
        return LeftOut.of(reasons, rows, refused)

    def _sent(self, rows: DataFrame, shape: Shape) -> list[Any]:
        # No more tasks than run at the same time: a waiting one would begin when others have used up their budget.
        together = rows.coalesce(rows.sparkSession.sparkContext.defaultParallelism)
        ordered = together.sortWithinPartitions(*shape.order)
        plan = self._plan()
        requests = ordered.select("destination", "fire_id", *self._request(shape))
        return requests.mapInArrow(partial(send_partition, plan=plan), REPORT).collect()

    def _plan(self) -> Plan:
        given = {name.lower() for name in self.headers}
        kind = "application/json" if self.body == "json" else "application/octet-stream"
        usual = {"Content-Type": kind, "Accept-Encoding": "identity", "User-Agent": "wheel_udf"}
        added = {name: value for name, value in usual.items() if name.lower() not in given}
        return Plan(
            self.url,
            tuple({**added, **self.headers}.items()),
            self.id_header,
            self.timeout_ms / 1000,
            self.retries,
            self.backoff_ms / 1000,
            self.budget_ms / 1000,
            self.concurrency,
            frozenset(self._failed),
            self.waits,
        )

    def _request(self, shape: Shape) -> list[Column]:
        """The columns ``body`` and ``headers`` of a request."""
        if self.body == "value":
            return [F.col("value").alias("body"), delivery_headers(shape).alias("headers")]
        none = F.lit(None).cast("array<struct<key: string, value: binary>>")
        return [
            F.to_json(F.struct(*_json_columns(shape)), ISO_STYLE).cast("binary").alias("body"),
            none.alias("headers"),
        ]

    # --- endpoints that failed in an earlier batch ----------------------------------------------------

    def _resting(self, rows_to: Mapping[str, int]) -> tuple[dict[str, Refusal], list[str]]:
        """Returns the destinations that are not tried for now, each with its reason, and the others."""
        now_ms, reasons = wall_clock_ms(), dict[str, Refusal]()
        for name in rows_to:
            failed_ms, why = self._failed.get(name, (None, ""))
            # A clock that was set back does not make the rest longer.
            if failed_ms is not None and 0 <= now_ms - failed_ms < self.cooldown_ms:
                reason = f"not tried for {self.cooldown_ms / 1000:g} s after the endpoint failed: {why}"
                reasons[name] = Refusal(reason, is_final=False, is_tried=False)
        return reasons, [name for name in rows_to if name not in reasons]

    def _note(self, lines: list[Any], tried: list[str]) -> None:
        """Notes the tasks' reports on the endpoints that they have tried."""
        now_ms = wall_clock_ms()
        for name in tried:
            self._failed.pop(name, None)
        for line in sorted(lines, key=lambda line: line.rests):  # an endpoint rests if any task reports it
            self._failed[line.destination] = (now_ms if line.rests else None, hide(line.reason))


def _url_fault(url: str) -> ConfigError | None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
        # A destination comes from a producer: it must not choose the host.
        good = good and _NAME not in parts.netloc and "@" not in parts.netloc and not parts.fragment
    except ValueError:
        good = False
    if good and url.isascii() and url.isprintable() and " " not in url:
        return None
    hint = "a password belongs into headers: {Authorization: ...}" if "@" in url else None
    return ConfigError(
        "not a URL for rows", field="url", value=None if "@" in url else url, rule=_URL_RULE, hint=hint
    )


def _header_fault(header: tuple[str, str]) -> ConfigError | None:
    name, value = header
    if is_header_name(name) and value.isascii() and value.isprintable():
        return None
    rule = "a name of letters, digits and dashes, and a value of printable ASCII"
    return ConfigError("not a header", field=f"headers.{name}", rule=rule)


def _json_columns(shape: Shape) -> list[Column]:
    """The columns of a delivery for JSON: bytes as text where they are UTF-8, else in base64 under another name."""
    columns = []
    for name in shape.names:
        if name == "headers":
            pairs = F.transform(
                "headers",
                lambda each: F.struct(each["key"].alias("key"), *_text_or_base64(each["value"], "value")),
            )
            columns.append(pairs.alias(name))
        elif name in ("key", "value"):
            columns += _text_or_base64(F.col(name), name)
        else:
            columns.append(F.col(name))
    return columns


def _text_or_base64(octets: Column, name: str) -> list[Column]:
    text = octets.cast("string")
    return [
        F.when(F.is_valid_utf8(text), text).alias(name),
        F.when(~F.is_valid_utf8(text), F.base64(octets)).alias(f"{name}_base64"),
    ]
