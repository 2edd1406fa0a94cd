"""When a job is healthy: the decision, and what a meter knows for it."""

from __future__ import annotations

import pytest

from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import MINUTE, Clock, T, meter, progress
from wheel_udf.metrics.health import unhealthy_reason


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ((None, None, T), None),
        ((None, T - 5 * MINUTE, T), None),
        ((None, T + 99, T), None),
        ((None, T - 5 * MINUTE - 1, T), "the oldest due entry is 300 s late; limit: 300 s"),
        ((None, None, T - 5 * MINUTE), None),
        ((None, None, T - 90 * MINUTE), "no batch has ended for 5,400 s; limit: 300 s"),
        (("the query has stopped", T - 90 * MINUTE, T), "the query has stopped"),
    ],
)
def test_a_job_is_unhealthy_for_one_reason_at_a_time(
    known: tuple[str | None, int | None, int], reason: str | None
) -> None:
    assert unhealthy_reason(*known, now_ms=T, unhealthy_after_ms=5 * MINUTE) == reason


def test_a_job_is_healthy_only_while_its_query_runs() -> None:
    job = meter()
    assert job.unhealthy_reason() == "the query has not started yet"
    job.started()
    assert job.unhealthy_reason() is None
    job.stopped("the query has failed: a sink")
    assert job.unhealthy_reason() == "the query has failed: a sink"
    job.started()
    assert job.unhealthy_reason() is None


def test_a_job_that_stands_still_becomes_unhealthy_as_time_passes() -> None:
    clock = Clock()
    job = meter(clock)
    job.started()
    job.on_batch(report(next_due_ms=T + MINUTE))
    clock.now_ms = T + 6 * MINUTE
    job.on_idle()
    assert job.unhealthy_reason() is None
    clock.now_ms += 1
    assert job.unhealthy_reason() == "the oldest due entry is 300 s late; limit: 300 s"
    job.on_batch(report(1, next_due_ms=None))
    assert job.unhealthy_reason() is None


def test_a_batch_that_does_not_end_is_noticed_and_an_idle_wheel_is_healthy() -> None:
    clock = Clock()
    job = meter(clock)
    job.started()
    for _ in range(10):
        clock.now_ms += MINUTE
        job.on_idle()
    assert job.unhealthy_reason() is None
    clock.now_ms += 5 * MINUTE + 1
    assert job.unhealthy_reason() == "no batch has ended for 300 s; limit: 300 s"
    job.on_progress(progress(0))
    assert job.unhealthy_reason() is None


def test_a_backfill_that_is_years_behind_is_healthy_while_its_oldest_entry_changes() -> None:
    clock = Clock()
    job = meter(clock)
    job.started()
    for batch in range(20):
        job.on_batch(report(batch, clock_kind="event", backlog=True, next_due_ms=batch, clock_ms=99))
        clock.now_ms += MINUTE
    assert job.unhealthy_reason() is None
    for _ in range(6):
        job.on_batch(report(20, clock_kind="event", backlog=True, next_due_ms=19, clock_ms=99))
        clock.now_ms += MINUTE
    assert job.unhealthy_reason() == "the oldest due entry is 420 s late; limit: 300 s"
