"""The line of a batch: :func:`line_of` makes it from the batch's report, :func:`intake_line` from the progress of the
intake's query.

The members are described in :mod:`wheel_udf.metrics`; :data:`MEMBERS` lists them, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from wheel_udf.delivery.report import BatchReport
from wheel_udf.wheel.lateness import LatenessHistogram

MEMBERS: Final = (
    "at_ms", "query", "batch_id", "received", "fired", "missed", "rejected", "undeliverable", "ended",
    "pending", "near", "far", "complete", "clock_ms", "watermark_ms", "next_due_ms",
    "backlog", "paused", "lateness", "seconds", "phases",
)  # fmt: skip
"""The members of a line, in their order."""

_OF_REPORT: Final = (
    "batch_id", "received", "fired", "missed", "rejected", "undeliverable", "pending", "complete",
    "clock_ms", "watermark_ms", "next_due_ms", "backlog", "paused",
)  # fmt: skip
"""Members that are attributes of a report."""

WHEEL: Final = "wheel"
INTAKE: Final = "intake"

_WHOLE: Final = "triggerExecution"
"""Spark's name for the whole of a batch among its phases."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Spark's report about a batch, after it.

    Attributes:
        query: ``wheel`` or ``intake``.
        batch_id: The batch.
        durations_ms: ms by phase.
    """

    query: str
    batch_id: int
    durations_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase."""
        return {name: spent / 1_000 for name, spent in self.durations_ms.items() if name != _WHOLE}

    @property
    def seconds(self) -> float | None:
        """Seconds of the whole batch."""
        whole_ms = self.durations_ms.get(_WHOLE)
        return None if whole_ms is None else whole_ms / 1_000


def line_of(report: BatchReport, at_ms: int, progress: Progress | None = None) -> dict[str, Any]:
    """Returns the line of a batch of the wheel (or purgatory).

    Args:
        report: Its report.
        at_ms: The wall clock at its end (UTC epoch ms).
        progress: Spark's progress of the same batch; None if there is none.
    """
    near_and_far = {word: report.waiting.get(word) for word in ("near", "far")}
    return _line(
        {name: getattr(report, name) for name in _OF_REPORT}
        | near_and_far
        | {
            "at_ms": at_ms,
            "query": WHEEL,
            "ended": report.decided if report.purgatory else None,
            "lateness": _lateness(report.lateness),
        },
        progress,
    )


def intake_line(progress: Progress, at_ms: int) -> dict[str, Any]:
    """Returns the line of a batch of the intake."""
    known = {"at_ms": at_ms, "query": INTAKE, "batch_id": progress.batch_id}
    return _line(known, progress)


def line_text(line: Mapping[str, Any]) -> str:
    """Returns a line as JSON text, without a line end."""
    return json.dumps(line, separators=(",", ":"))


def _line(known: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
    timed = {
        "seconds": None if progress is None else progress.seconds,
        "phases": {} if progress is None else progress.phases,
    }
    values = {**known, **timed}
    return {name: values.get(name) for name in MEMBERS}


def _lateness(histogram: LatenessHistogram) -> dict[str, int | None] | None:
    if not histogram.count:
        return None
    return {
        "count": histogram.count,
        "p50_ms": histogram.quantile(0.5),
        "p99_ms": histogram.quantile(0.99),
        "max_ms": histogram.maximum_ms,
    }
