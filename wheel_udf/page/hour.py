"""The last hour of a job, minute by minute, from the lines of its batch log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

MINUTE_MS: Final = 60_000
MINUTES: Final = 60
_COUNTS: Final = ("fired", "received", "rejected")
_LATENESS: Final = ("p50_ms", "p99_ms", "max_ms")


def hour_of(lines: Iterable[Mapping[str, Any]], now_ms: int) -> dict[str, Any]:
    """Adds up batches by minute.

    Args:
        lines: Lines of the batch log (:func:`wheel_udf.metrics.batch_log.read_batches`).
        now_ms: The end of the hour (UTC epoch ms).

    Returns:
        ``from_ms``, the start of the first of 60 minutes; ``minutes``, for each of them ``fired``, ``received`` and
        ``rejected`` rows, and ``p50_ms``, ``p99_ms`` and ``max_ms`` of lateness (None if nothing fired; of several
        batches the one that the percentile of the minute's rows is in, as if all rows of a batch were as late as its
        percentile); ``fired``, ``received``, ``rejected`` and ``batches`` of the hour, ``p99_ms`` of the
        worst minute, and ``paused`` by the latest line.
    """
    from_ms = now_ms - now_ms % MINUTE_MS - (MINUTES - 1) * MINUTE_MS
    minutes: list[dict[str, Any]]
    minutes = [dict.fromkeys(_COUNTS, 0) | dict.fromkeys(_LATENESS) for _ in range(MINUTES)]
    batches, paused = 0, False
    late: list[list[Mapping[str, Any]]] = [[] for _ in range(MINUTES)]
    for line in lines:
        place = (line["at_ms"] - from_ms) // MINUTE_MS
        # In the tiered mode the wheel counts what the intake has read.
        if 0 <= place < MINUTES and line.get("query") != "intake":
            for name in _COUNTS:
                minutes[place][name] += line.get(name) or 0
            late[place] += [found] if (found := line.get("lateness")) else []
            batches, paused = batches + 1, bool(line.get("paused"))
    minutes = [minute | _lateness(found) for minute, found in zip(minutes, late, strict=True)]
    totals = {name: sum(minute[name] for minute in minutes) for name in _COUNTS}
    worst = max((minute["p99_ms"] for minute in minutes if minute["p99_ms"] is not None), default=None)
    hour = {"from_ms": from_ms, "minutes": minutes, "batches": batches, "p99_ms": worst, "paused": paused}
    return hour | totals


def _lateness(batches: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The lateness of a minute, from those of its batches."""
    if not batches:
        return {}
    return {
        "p50_ms": _percentile(batches, "p50_ms", 0.5),
        "p99_ms": _percentile(batches, "p99_ms", 0.99),
        "max_ms": max(each["max_ms"] for each in batches),
    }


def _percentile(batches: list[Mapping[str, Any]], name: str, share: float) -> int:
    ordered = sorted((each[name], each["count"]) for each in batches)
    rows = np.cumsum([count for _, count in ordered])
    place = int(np.searchsorted(rows, share * rows[-1]))
    return int(ordered[place][0])
