"""The orders demo without a broker: how orders are drawn, what must come of them, what the account finds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from jobs.demos.orders import DAY_MS, Orders, draw, expected, messages, settings, take_account
from wheel_udf.job import loader as config
from wheel_udf.job.models.purgatory import PurgatoryConfig

MINUTE_MS = 60_000


def test_what_must_come_of_an_order_follows_from_its_times_alone() -> None:
    def times(*minutes: float) -> np.ndarray:
        return np.array([-1 if m < 0 else DAY_MS + int(m * MINUTE_MS) for m in minutes], np.int64)

    orders = Orders(
        times(0, 0, 0, 0, 0), times(30, 30.001, -1, -1, -1), times(-1, -1, 30, 31, -1), 30 * MINUTE_MS
    )
    assert list(expected(orders).values()) == ["completed", "expired", "cancelled", "expired", "expired"]


def test_most_orders_are_paid_some_late_and_some_are_cancelled() -> None:
    ends = Counter(expected(draw(20_000, DAY_MS, 86_400_000, 30 * MINUTE_MS)).values())
    assert 0.88 < ends["completed"] / 20_000 < 0.92
    assert 0.04 < ends["cancelled"] / 20_000 < 0.06


def test_everything_is_said_in_the_order_of_its_time() -> None:
    orders = draw(500, DAY_MS, 3_600_000, 30 * MINUTE_MS)
    said = messages(orders)
    assert [at for at, _, _ in said] == sorted(at for at, _, _ in said)
    assert sum(kind == "orders" for _, kind, _ in said) == 500


def test_the_account_finds_what_is_missing_what_came_twice_and_what_ended_otherwise() -> None:
    must = {"a": "completed", "b": "expired", "c": "cancelled", "d": "expired"}
    found = [("a", "completed"), ("b", "completed"), ("c", "cancelled"), ("c", "cancelled"), ("x", "expired")]
    account = take_account(must, found)
    assert (account.missing, account.twice, account.other) == (1, 2, 1)


def test_the_jobs_of_the_demo_have_good_configs() -> None:
    for clock in (
        {"kind": "processing"},
        {"kind": "simulated", "start": "2026-01-01T00:00:00Z", "step": "1 hour"},
    ):
        checked = config.check(settings(Path("data"), "broker:9092", "day", 15_000, clock, "1 second"))
        assert isinstance(checked, PurgatoryConfig)
