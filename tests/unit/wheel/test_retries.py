"""Entries that could not be delivered come back: when, how often, and what beats them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from wheel_udf.common.errors import ConfigErrors
from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.retries import RETURNED_SCHEMA, Retries, Retry, come_back
from wheel_udf.shard.rows import COMMAND_SCHEMA, outer_id
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.step import Step, advance

WHEEL = Wheel(tick_ms=1, size=20, levels=3)
PLAIN = Retry(first_ms=100, factor=2, jitter="none", attempts=3)


class Shard:
    def __init__(self, retry: Retry = PLAIN, memory_ms: int = 10_000) -> None:
        self.state, self.retries, self.memory_ms = ShardState.empty(WHEEL), Retries({"crm": retry}), memory_ms

    def batch(
        self, now_ms: int, *commands: dict[str, Any], returned: list[dict[str, Any]] | None = None
    ) -> Step:
        rows = [pa.Table.from_pylist(list(commands), schema=COMMAND_SCHEMA)]
        if returned:
            rows.append(
                come_back(pa.Table.from_pylist(returned, schema=RETURNED_SCHEMA), self.retries, now_ms)
            )
        step = advance(self.state, pa.concat_tables(rows), now_ms, memory_ms=self.memory_ms)
        self.state = ShardState.from_row(step.state.to_row(1), WHEEL, 1)
        return step

    def count(self, name: str) -> int:
        return self.state.counts[name]


def schedule(seq: int, due_ms: int, name: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "schedule_id": name, "seq": seq, "amend": 0, "deliver_at_ms": due_ms, "destination": "crm", "op": 0,
        "seq_given": True, "act": 0, **more,
    }  # fmt: skip


def cancel(seq: int, name: str = "a") -> dict[str, Any]:
    return {"schedule_id": name, "seq": seq, "amend": 0, "op": 1, "seq_given": True, "act": 0}


def back(step: Step, error: str = "HTTP 503", **more: Any) -> list[dict[str, Any]]:
    """What a step has released, as a sink reports it."""
    about = {"error": error, "is_final": False, "is_tried": True, **more}
    return [{**row, **about} for row in step.fired.to_pylist()]


def test_an_entry_comes_back_after_each_wait_until_its_attempts_are_used_up() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    assert shard.batch(11, returned=back(fired)).fired.num_rows == 0
    assert (shard.state.pending, shard.state.next_due_ms) == (1, 111)
    fired = shard.batch(111)
    assert [(row["attempt"], row["amend"], row["first_amend"]) for row in fired.fired.to_pylist()] == [
        (1, 1, 0)
    ]
    shard.batch(112, returned=back(fired, "HTTP 500"))
    assert shard.state.next_due_ms == 312
    fired = shard.batch(312)
    dead = shard.batch(313, returned=back(fired, "HTTP 502")).dead.to_pylist()
    assert [(row["schedule_id"], row["attempt"], row["first_error"], row["last_error"]) for row in dead] == [
        ("a", 3, "HTTP 503", "HTTP 502")
    ]
    assert dead[0]["failed_at_ms"] == 11
    assert (dead[0]["deliver_at_ms"], dead[0]["held_ms"]) == (10, None)
    assert dead[0]["dead_reason"] == "after 3 attempts"
    assert (shard.state.pending, shard.count("fired"), shard.count("retried"), shard.count("dead")) == (
        0,
        3,
        3,
        1,
    )


def test_the_requested_time_stays_and_the_due_time_is_not_late_by_the_wait_alone() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    shard.batch(11, returned=back(fired))
    assert shard.batch(111).fired["deliver_at_ms"].to_pylist() == [10]


def test_an_entry_that_is_too_late_for_its_max_lateness_is_missed_and_not_tried() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10, max_lateness_ms=50))
    shard.batch(11, returned=back(fired))
    step = shard.batch(111)
    assert (step.fired.num_rows, step.missed.num_rows) == (0, 1)


@pytest.mark.parametrize("when", ["before the report", "with the report", "after the report"])
def test_a_cancel_ends_an_entry_that_could_not_be_delivered(when: str) -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    if when == "before the report":
        shard.batch(10, cancel(1))
    both = [cancel(1)] if when == "with the report" else []
    shard.batch(11, *both, returned=back(fired))
    if when == "after the report":
        shard.batch(12, cancel(1))
    assert shard.state.pending == 0
    assert shard.batch(500).fired.num_rows == 0


def test_a_higher_seq_beats_an_entry_that_comes_back() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    shard.batch(11, schedule(2, 400), returned=back(fired))
    assert shard.state.pending == 1
    assert [(at, shard.batch(at).fired["seq"].to_pylist()) for at in (111, 400)] == [(111, []), (400, [2])]


def test_a_report_that_is_read_twice_counts_once() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    shard.batch(11, returned=back(fired) + back(fired))
    shard.batch(12, returned=back(fired))
    assert (shard.state.pending, shard.count("duplicate")) == (1, 2)
    fired = shard.batch(111)
    assert fired.fired["attempt"].to_pylist() == [1]


def test_of_a_last_report_that_is_read_twice_one_dead_letter_is_made() -> None:
    shard = Shard(Retry(attempts=1))
    fired = shard.batch(10, schedule(1, 10))
    dead = [shard.batch(at, returned=back(fired)).dead.num_rows for at in (11, 12)]
    assert dead == [1, 0]


def test_an_entry_that_was_not_tried_comes_back_at_once_without_an_attempt() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    fired = shard.batch(11, returned=back(fired, "not tried", is_tried=False))
    assert fired.fired["attempt"].to_pylist() == [0]


def test_what_no_attempt_can_help_is_a_dead_letter_at_once() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    dead = shard.batch(11, returned=back(fired, "HTTP 400", is_final=True)).dead
    assert dead["dead_reason"].to_pylist() == ["no attempt can succeed"]


def test_the_wait_that_the_receiver_asks_for_counts_if_it_is_longer() -> None:
    shard = Shard()
    fired = shard.batch(10, schedule(1, 10))
    shard.batch(11, returned=back(fired, retry_after_ms=5000))
    assert shard.state.next_due_ms == 5011


def test_no_attempt_is_later_than_max_age() -> None:
    shard = Shard(Retry(first_ms=100, jitter="none", max_age_ms=250))
    fired = shard.batch(10, schedule(1, 10))
    shard.batch(11, returned=back(fired))
    fired = shard.batch(111)
    assert shard.batch(112, returned=back(fired)).dead["dead_reason"].to_pylist() == [
        "the next attempt would be later than max_age, 250 ms"
    ]


def test_an_occurrence_comes_back_beside_its_series() -> None:
    shard = Shard()
    row = schedule(1, 10, "s", level_error_ms=0, occurrence=4)
    fired = shard.batch(10, row)
    shard.batch(11, schedule(1, 70_000, "s", occurrence=4), returned=back(fired))
    assert shard.state.entries()["schedule_id"].to_pylist() in (
        ["s\x0010"],
        ["s", "s\x0010"],
        ["s\x0010", "s"],
    )
    assert outer_id(shard.batch(111).fired["schedule_id"]).to_pylist() == ["s"]


WAITS = [
    (Retry(first_ms=1000, factor=3, cap_ms=20_000, jitter="none"), [1000, 3000, 9000, 20_000, 20_000]),
    (Retry(policy="linear", first_ms=1000, cap_ms=3500, jitter="none"), [1000, 2000, 3000, 3500, 3500]),
    (Retry(policy="list", waits_ms=(5, 60), jitter="none"), [5, 60, 60, 60, 60]),
    (Retry(first_ms=1000, factor=2, jitter="equal"), [750, 1500, 3000, 6000, 12_000]),
    (Retry(first_ms=1000, factor=2, jitter="full"), [500, 1000, 2000, 4000, 8000]),
]


@pytest.mark.parametrize(("retry", "waits"), WAITS)
def test_waits(retry: Retry, waits: list[int]) -> None:
    assert retry.waits(np.arange(1, 6), np.full(5, 0.5)).tolist() == waits


def test_a_thousandth_wait_is_the_cap() -> None:
    assert Retry(jitter="none").waits(np.array([1000]), np.array([0.0])).tolist() == [3_600_000]


def test_all_faults_of_a_policy_are_told_at_once() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Retry(policy="often", factor=0.5, attempts=0)
    assert {fault.field for fault in caught.value.faults} == {"policy", "factor", "attempts"}
