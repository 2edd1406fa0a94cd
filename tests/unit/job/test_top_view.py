"""What ``wheel-udf top`` shows of the status of a job."""

from __future__ import annotations

from typing import Any

from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import Clock, T, meter, progress
from wheel_udf.job.top_view import Panel, Status, headline, panels
from wheel_udf.shard.holdings import Holdings
from wheel_udf.wheel.lateness import LatenessHistogram


def status(*samples: tuple[str, list[str], float], **more: Any) -> Status:
    return Status({"at_ms": T, "unhealthy": None, "last": None, "samples": samples} | more)


def shown(now: Status, before: Status | None = None) -> dict[str, list[str]]:
    found: list[Panel] = panels(now, before or now, [])
    return {panel.title: list(panel.lines) for panel in found}


def test_a_job_before_its_first_batch_says_so_in_each_panel() -> None:
    assert shown(status()) == {
        "rates": ["no batch has ended yet"],
        "lateness": ["nothing has been released yet"],
        "pending": ["nothing"],
        "by level": ["no entries"],
        "held back": ["nothing"],
        "rejects": ["none"],
        "last acts": ["none"],
    }


def test_the_status_of_a_meter_is_shown_with_rates_since_an_earlier_look() -> None:
    clock = Clock()
    job = meter(clock)
    job.started()
    before = Status(job.status())
    job.on_batch(
        report(
            7,
            received=500,
            fired=1_200,
            rejected=2,
            codes={"bad_due_time": 2},
            pending=1_000,
            next_due_ms=T + 90_000,
            clock_ms=T,
            lateness=LatenessHistogram.of([3, 5]),
            held=Holdings(by_level={1: 100, 3: 900}, due_within={"1m": 100, "1h": 1_000}),
        )
    )
    job.on_progress(progress(7, addBatch=640, walCommit=40, triggerExecution=700))
    clock.now_ms += 10_000
    now = Status(job.status())
    assert headline(now).endswith("  healthy")
    found = shown(now, before)
    assert found["rates"] == [
        "in          50/s   500 in this run",
        "out        120/s   1,200 in this run",
        "batch 7 took 0.70 s (addBatch 0.64, walCommit 0.04)",
    ]
    assert found["lateness"] == [
        "last batch  p50 3 ms, p99 5 ms, max 5 ms, of 2",
        "the clock is 10.0 s behind now",
    ]
    assert found["pending"][0].split() == ["state", "1,000"]
    assert found["pending"][1].endswith(", in 1.3 min")
    assert found["pending"][2] == "due within 1m 100, 1h 1,000"
    assert [line.split()[0::2] for line in found["by level"]] == [["1", "100"], ["3", "900"]]
    assert [line.count("█") for line in found["by level"]] == [3, 24]
    assert found["rejects"] == [f"{'bad_due_time':<22}{2:>10}"]


def test_what_is_held_back_and_lost_is_named() -> None:
    found = shown(
        status(
            ("wheel_backlog", [], 1),
            ("wheel_intake_paused", [], 1),
            ("wheel_in_flight", [], 12),
            ("wheel_breaker_state", ["hook"], 2),
            ("wheel_breaker_state", ["mail"], 0),
            ("wheel_held_rows", ["hook"], 3_000),
            ("wheel_limit_used_ratio", ["pending"], 0.5),
            ("wheel_dead_letters_total", [], 4),
            ("wheel_undeliverable_total", [], 0),
        )
    )
    assert found["held back"] == [
        "due entries wait: more than fired_per_batch",
        "the intake is paused: a limit is reached",
        "in flight 12",
        "hook: breaker open",
        "hook: 3,000 wait for their turn",
        "limit pending: 50% used",
    ]
    assert found["rejects"] == [f"{'dead letters':<22}{4:>10}"]


def test_a_job_that_is_not_healthy_says_why_and_the_newest_act_comes_first() -> None:
    now = status(("wheel_info", ["orders", "tiered", "processing", "0.3"], 1), unhealthy="no batch for 6 min")
    assert headline(now) == (
        "orders  tiered, processing clock, wheel-udf 0.3  NOT HEALTHY: no batch for 6 min"
    )
    acts = [
        {
            "at": "2026-01-01T00:00:00.123Z",
            "act": "cancel",
            "by": "ada",
            "change": "",
            "picked": "(true)",
            "rows": 3,
        },
        {"at": "2026-01-01T00:00:05Z", "act": "reroute", "by": "ada", "change": "to mail", "rows": 1},
    ]
    assert list(panels(now, now, acts)[-1].lines) == [
        "2026-01-01T00:00:05  reroute to mail: 1, by ada",
        "2026-01-01T00:00:00  cancel (true): 3, by ada",
    ]
