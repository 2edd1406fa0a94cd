"""The last hour of a job, minute by minute, from the lines of its batch log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

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
        ``rejected`` rows, and ``p50_ms``, ``p99_ms`` and ``max_ms`` of lateness (None if nothing fired; the largest of
        the minute's batches); ``fired``, ``received``, ``rejected`` and ``batches`` of the hour, ``p99_ms`` of the
        worst minute, and ``paused`` by the latest line.
    """
    from_ms = now_ms - now_ms % MINUTE_MS - (MINUTES - 1) * MINUTE_MS
    minutes: list[dict[str, Any]]
    minutes = [dict.fromkeys(_COUNTS, 0) | dict.fromkeys(_LATENESS) for _ in range(MINUTES)]
    batches, paused = 0, False
    for line in lines:
        place = (line["at_ms"] - from_ms) // MINUTE_MS
        # In the tiered mode the wheel counts what the intake has read.
        if 0 <= place < MINUTES and line.get("query") != "intake":
            _add(minutes[place], line)
            batches, paused = batches + 1, bool(line.get("paused"))
    totals = {name: sum(minute[name] for minute in minutes) for name in _COUNTS}
    worst = max((minute["p99_ms"] for minute in minutes if minute["p99_ms"] is not None), default=None)
    hour = {"from_ms": from_ms, "minutes": minutes, "batches": batches, "p99_ms": worst, "paused": paused}
    return hour | totals


def _add(minute: dict[str, Any], line: Mapping[str, Any]) -> None:
    for name in _COUNTS:
        minute[name] += line.get(name) or 0
    for name, found in (line.get("lateness") or {}).items():
        if name in _LATENESS and found is not None:
            minute[name] = max(minute[name] or 0, found)
