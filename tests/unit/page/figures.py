"""A job without Spark: a subject, and figures as readings return them."""

from __future__ import annotations

from typing import Any, cast

from wheel_udf.common.geometry import Wheel
from wheel_udf.common.outcomes import WATCH_COUNTS, WHEEL_COUNTS
from wheel_udf.page.hour import hour_of
from wheel_udf.page.reader import Figure
from wheel_udf.page.subject import Subject

NOW_MS = 1_767_261_600_000
"""2026-01-01 10:00 UTC."""

GEOMETRY = Wheel(tick_ms=1_000, size=20, levels=4)


def subject_of(mode: str = "direct", clock: str = "event") -> Subject:
    return Subject("reminders", mode, *cast("list[Any]", [None] * 2), lambda: cast("Any", None), GEOMETRY, *cast("list[Any]", [None] * 2), clock)  # fmt: skip


def next_of(name: str, ahead_ms: int, *, is_series: bool = False) -> dict[str, Any]:
    """An entry that is due so many ms from now."""
    due_ms = NOW_MS + ahead_ms
    return {"schedule_id": name, "due_ms": due_ms, "destination": "sms", "is_series": is_series}


def wheel_of(**others: Any) -> dict[str, Any]:
    """Three entries in the state: two due within 3 s, one within the minute."""
    found = {
        "runs": True,
        "clock_ms": NOW_MS,
        "next_due_ms": NOW_MS + 2_000,
        "pending": 3,
        "far": 0,
        "counts": dict.fromkeys(WHEEL_COUNTS, 0) | {"fired": 5, "rejected": 1, "late": 2},
        "cells": [(1, NOW_MS // 1_000 + 2, 2), (2, NOW_MS // 20_000 + 2, 1)],
        "steps": {"sms": {2: 2}, "mail": {5: 1}},
        "resting": 0,
        "held": 0,
        "paused": 0,
        "next": [next_of("a", 2_000), next_of("b", 2_500), next_of("c", 50_000, is_series=True)],
    }
    return found | others


def watch_of(**others: Any) -> dict[str, Any]:
    """The same of a purgatory."""
    return wheel_of(counts=dict.fromkeys(WATCH_COUNTS, 0) | {"completed": 4, "events": 9}, **others)


def line(before_ms: int, **others: Any) -> dict[str, Any]:
    """A line of the batch log, so many ms before now."""
    lateness = {"count": 10, "p50_ms": 400, "p99_ms": 900, "max_ms": 1_200}
    found = {"at_ms": NOW_MS - before_ms, "query": "wheel", "fired": 10, "received": 12, "rejected": 1}
    return found | {"seconds": 0.5, "paused": False, "lateness": lateness} | others


def figures_of(**values: Any) -> dict[str, Figure]:
    """All figures of a direct job, read 3 s ago in 400 ms."""
    defaults = {
        "wheel": wheel_of(),
        "batches": hour_of([line(90_000), line(30_000)], NOW_MS),
        "rejects": {"codes": {}, "samples": []},
        "acts": {"acts": []},
    }
    return {name: Figure(value, NOW_MS - 3_000, 400) for name, value in (defaults | values).items()}


STORE = {
    "rows": 1_000,
    "inbox": 0,
    "windows": [(3, NOW_MS + 400_000, NOW_MS + 800_000, 1_000)],
    "files": 3,
    "bytes": 1_234_567,
    "cursor_ms": NOW_MS,
}
