"""The metrics: name, type, unit, labels and one sentence of each. The one declaration; the exporter, the guide and the
tests read it.

A *counter* begins at 0 with the process, except where its sentence says that it counts since the checkpoint began. A
metric that does not apply to a job (the store in the direct mode, the watermark of a processing clock) is not
exported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name; that of a counter ends in ``_total``.
        kind: Its type.
        labels: Names of its labels.
        text: What it measures, in one sentence.
        unit: Its unit.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "summary"]
    text: str
    unit: str = ""
    labels: tuple[str, ...] = ()


def _counter(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, unit, labels)


def _gauge(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, unit, labels)


INFO: Final = _gauge(
    "wheel_info", "", "1; its labels say which job this is.", "name", "mode", "clock", "version"
)
HEALTHY: Final = _gauge("wheel_healthy", "", "1 if /healthz answers 200, else 0.")

BATCHES: Final = _counter("wheel_batches_total", "batches", "Batches that have ended.", "query")
LAST_BATCH: Final = _gauge(
    "wheel_last_batch_timestamp_seconds", "s", "Wall clock when the last batch of the query ended.", "query"
)
BATCH_SECONDS: Final = Metric("wheel_batch_seconds", "summary", "Duration of the batches.", "s", ("query",))
PHASE_SECONDS: Final = Metric(
    "wheel_batch_phase_seconds",
    "summary",
    "Duration of the phases of the batches, in Spark's words: addBatch is operator and sinks together.",
    "s",
    ("query", "phase"),
)

RECEIVED: Final = _counter(
    "wheel_received_total", "rows", "Commands that were read; of a purgatory operations and events."
)
SCHEDULED: Final = _counter(
    "wheel_scheduled_total",
    "rows",
    "Schedules that are pending or have an outcome, since the checkpoint began (of a purgatory: operations).",
)
SCHEDULES: Final = _counter(
    "wheel_schedules_total",
    "rows",
    "Schedules by outcome (fired, missed, cancelled, superseded, duplicate, rejected), since the checkpoint began.",
    "outcome",
)
CANCELS: Final = _counter(
    "wheel_cancels_total",
    "rows",
    "CANCELs by outcome (applied, waiting, late, superseded, duplicate, rejected), since the checkpoint began; "
    "waiting can fall.",
    "outcome",
)
OPERATIONS: Final = _counter(
    "wheel_operations_total",
    "operations",
    "Purgatory: operations by outcome (completed, expired, cancelled, duplicate, rejected), "
    "since the checkpoint began.",
    "outcome",
)
EVENTS: Final = _counter(
    "wheel_events_total",
    "events",
    "Purgatory: events by outcome (used, rejected), since the checkpoint began.",
    "outcome",
)
FIRED: Final = _counter(
    "wheel_fired_total", "rows", "Rows released to destinations, undeliverable ones included."
)
REJECTED: Final = _counter("wheel_rejected_total", "rows", "Rejected and missed rows by error_code.", "code")
UNDELIVERABLE: Final = _counter("wheel_undeliverable_total", "rows", "Fired rows that a sink refused.")
HANDED_OVER: Final = _counter(
    "wheel_handed_over_total",
    "rows",
    "Tiered mode: rows that have left a level of the store, because the clock came near.",
    "level",
)

PENDING: Final = _gauge(
    "wheel_pending",
    "rows",
    "Entries that wait, in Spark's state or in the store; in the store, replaced and cancelled ones count "
    "until their window is handed over.",
    "place",
)
PENDING_BY_LEVEL: Final = _gauge(
    "wheel_pending_by_level",
    "rows",
    "Entries that wait, by place and level of the wheel; those of the store are up to 10 s old.",
    "place",
    "level",
)
PENDING_BY_DELAY_LEVEL: Final = _gauge(
    "wheel_pending_by_delay_level",
    "rows",
    "Entries that wait in Spark's state, by delay level: a sample of at most 4 MB of a shard, about once a minute.",
    "delay",
)
PENDING_BY_DESTINATION: Final = _gauge(
    "wheel_pending_by_destination",
    "rows",
    "Entries in Spark's state by destination, the twenty largest of each shard: "
    "a sample of at most 4 MB of a shard, about once a minute.",
    "destination",
)
IN_FLIGHT: Final = _gauge(
    "wheel_in_flight",
    "rows",
    "Punctual delivery: pending entries that the sender has got and that are not confirmed.",
)
DUE_WITHIN: Final = _gauge(
    "wheel_due_within",
    "rows",
    "Entries that fall due within 1m, 5m, 1h or 24h of the wheel's clock; "
    "exact but for the bucket that the horizon cuts.",
    "within",
)
OLDEST_DUE: Final = _gauge(
    "wheel_oldest_due_age_seconds",
    "s",
    "How long the oldest due entry has been due; 0 if none is. "
    "Event and simulated clock: on the wall clock, since it was first seen due.",
)
CLOCK_LAG: Final = _gauge("wheel_clock_lag_seconds", "s", "Wall clock minus the wheel's clock.")
WATERMARK_LAG: Final = _gauge(
    "wheel_watermark_lag_seconds", "s", "Wall clock minus the watermark; event clock."
)
BACKLOG: Final = _gauge("wheel_backlog", "", "1 while limits.fired_per_batch holds due entries back, else 0.")
PAUSED: Final = _gauge("wheel_intake_paused", "", "1 while the intake is paused, else 0.")
LIMIT_USED: Final = _gauge(
    "wheel_limit_used_ratio",
    "",
    "Used part of each limit, 1 is full; direct mode: of the fullest shard.",
    "limit",
)

STATE_ROWS: Final = _gauge(
    "wheel_state_rows", "rows", "Rows in Spark's state: pending, and remembered of ended ids.", "kind"
)
STATE_BYTES: Final = _gauge("wheel_state_bytes", "bytes", "Size of Spark's state.")
STORE_FILES: Final = _gauge("wheel_store_files", "files", "Tiered mode: files of the store, up to 10 s old.")
STORE_BYTES: Final = _gauge(
    "wheel_store_bytes", "bytes", "Tiered mode: size of the files of the store, up to 10 s old."
)

LATENESS: Final = Metric(
    "wheel_lateness_seconds",
    "histogram",
    "Lateness of the fired rows on the wheel's clock; event and simulated clock: distance in the data's own time.",
    "s",
)
LATENESS_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 86_400.0)
"""Upper bounds of the buckets of :data:`LATENESS`."""

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in the order above."""
