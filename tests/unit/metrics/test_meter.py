"""The line of a batch: a report and Spark's progress, joined."""

from __future__ import annotations

import json
from typing import Any

import wheel_udf.metrics
from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import Clock, T, meter, progress
from wheel_udf.metrics.lines import MEMBERS, line_text
from wheel_udf.metrics.meter import Meter
from wheel_udf.wheel.lateness import LatenessHistogram


def metered(clock: Clock | None = None) -> tuple[Meter, list[Any]]:
    lines: list[Any] = []
    return meter(clock, lines.append), lines


def test_a_line_has_the_figures_of_the_batch_and_the_seconds_of_its_phases() -> None:
    job, lines = metered()
    job.on_batch(
        report(
            7, received=5, fired=2, missed=1, rejected=1, undeliverable=1, pending=9, far=4, clock_ms=T, watermark_ms=T - 1, next_due_ms=T + 1,
            backlog=True, paused=True, lateness=LatenessHistogram.of([3, 5]),
        )
    )  # fmt: skip
    assert lines == []
    job.on_progress(progress(7, addBatch=640, walCommit=40, triggerExecution=700))

    assert lines == [
        {
            "at_ms": T, "query": "wheel", "batch_id": 7, "received": 5, "fired": 2, "missed": 1, "rejected": 1, "undeliverable": 1, "ended": None,
            "pending": 9, "near": 5, "far": 4, "complete": True, "clock_ms": T, "watermark_ms": T - 1, "next_due_ms": T + 1, "backlog": True,
            "paused": True, "lateness": {"count": 2, "p50_ms": 3, "p99_ms": 5, "max_ms": 5}, "seconds": 0.7,
            "phases": {"addBatch": 0.64, "walCommit": 0.04},
        }
    ]  # fmt: skip
    assert json.loads(line_text(lines[0])) == lines[0]


def test_a_line_without_store_releases_or_progress_has_nulls() -> None:
    job, lines = metered()
    job.on_batch(report(purgatory=True, decided=3))
    job.close()

    (line,) = lines
    assert [line[name] for name in ("near", "far", "lateness", "seconds", "phases", "ended")] == [
        None,
        None,
        None,
        None,
        {},
        3,
    ]


def test_the_intake_has_lines_of_its_own() -> None:
    job, lines = metered()
    job.on_progress(progress(3, "intake", addBatch=5, triggerExecution=8))

    (line,) = lines
    known = {name: value for name, value in line.items() if value is not None}
    assert known == {
        "at_ms": T, "query": "intake", "batch_id": 3, "seconds": 0.008, "phases": {"addBatch": 0.005},
    }  # fmt: skip
    assert tuple(line) == MEMBERS


def test_a_batch_whose_progress_never_comes_gets_its_line_with_the_next_one() -> None:
    job, lines = metered()
    job.on_batch(report(1))
    job.on_batch(report(2))
    job.on_progress(progress(1, addBatch=1))
    job.on_progress(progress(2, addBatch=2))

    assert [(line["batch_id"], line["phases"]) for line in lines] == [(1, {}), (2, {"addBatch": 0.002})]


def test_a_batch_that_failed_and_is_repeated_has_one_line() -> None:
    job, lines = metered()
    job.on_batch(report(1, fired=2))
    job.on_batch(report(1, fired=2, undeliverable=1))
    job.on_progress(progress(1))

    assert [line["undeliverable"] for line in lines] == [1]


def test_the_line_tells_when_the_batch_ended_and_not_when_it_was_written() -> None:
    clock = Clock()
    job, lines = metered(clock)
    job.on_batch(report(1))
    clock.now_ms += 500
    job.on_progress(progress(1))

    assert lines[0]["at_ms"] == T


def test_the_documented_members_are_those_of_a_line() -> None:
    rows = [row for row in (wheel_udf.metrics.__doc__ or "").splitlines() if row.startswith("``")]
    named = [word.strip("`,") for row in rows for word in row[:20].split()]

    assert tuple(named) == MEMBERS
