"""Rates: a destination gets no more than its rate; what finds no token waits in the wheel, oldest first."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.rates import Rate, Rates, Turnstile
from wheel_udf.shard.rows import COMMAND_SCHEMA
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=1, size=20, levels=3)


class Shard:
    def __init__(self, gate: Turnstile) -> None:
        self.state, self.gate = ShardState.empty(WHEEL), gate
        self.seq = 0

    def batch(
        self, now_ms: int, *due: tuple[str, int], to: str = "crm", limit: int | None = None
    ) -> list[str]:
        """A batch with new entries (id, due time); returns the ids that it delivers."""
        rows = [
            {
                "schedule_id": name, "seq": 1, "amend": 0, "deliver_at_ms": at, "destination": to, "op": 0,
                "seq_given": True, "act": 0,
            }
            for name, at in due
        ]  # fmt: skip
        commands = pa.Table.from_pylist(rows, schema=COMMAND_SCHEMA)
        row = self.state.to_row(1)  # as after a restart
        state = ShardState.from_row(row, WHEEL, 1)
        step = advance(state, commands, now_ms, limit, memory_ms=0, policies=Policies(gate=self.gate))
        self.state, self.fired = step.state, step.fired
        return step.fired["schedule_id"].to_pylist()

    def cancel(self, now_ms: int, *names: str) -> None:
        rows = [
            {"schedule_id": name, "seq": 1, "amend": 0, "op": 1, "seq_given": True, "act": 0}
            for name in names
        ]
        commands = pa.Table.from_pylist(rows, schema=COMMAND_SCHEMA)
        step = advance(self.state, commands, now_ms, memory_ms=0, policies=Policies(gate=self.gate))
        self.state = step.state


def shard_with(per_s: float, burst: int, **more: object) -> Shard:
    return Shard(Turnstile(Rates({"crm": Rate(per_s, burst)}), 0, 1, **more))


def test_no_more_than_the_burst_leaves_at_once_and_the_rest_at_the_rate() -> None:
    shard = shard_with(10, 2)
    assert shard.batch(0, *((name, 0) for name in "abcde")) == ["a", "b"]
    assert shard.state.next_due_ms == 100
    assert shard.batch(99) == []
    assert shard.batch(100) == ["c"]
    assert shard.batch(250) == ["d"]
    assert shard.batch(300) == ["e"]
    assert shard.state.pending == 0
    assert shard.batch(400, ("f", 400)) == ["f"]


def test_a_bucket_that_has_rested_is_full_again_and_is_not_stored() -> None:
    shard = shard_with(10, 2)
    shard.batch(0, ("a", 0), ("b", 0))
    assert shard.state.tokens
    assert shard.batch(1000, *((name, 1000) for name in "cdef")) == ["c", "d"]
    assert shard.batch(5000) == ["e", "f"]
    shard.batch(9000, ("g", 9000))
    assert shard.batch(20000, ("h", 20000)) == ["h"]


def test_other_destinations_are_not_held_up() -> None:
    shard = shard_with(10, 1)
    shard.batch(0, *((f"a{n}", 0) for n in range(100)))
    assert shard.batch(5, *((f"b{n}", 5) for n in range(100)), to="other") == sorted(
        f"b{n}" for n in range(100)
    )


def test_a_backlog_that_is_held_back_kept_others_from_leaving_under_a_limit() -> None:
    shard = shard_with(0.01, 1)
    for part in range(20):
        shard.batch(part, *((f"a{part}-{number}", 1_000 + part) for number in range(500)))
    shard.batch(30, *((f"b{number:03}", 2_000) for number in range(150)), to="other")
    left = shard.batch(3_000, limit=100)
    assert len([name for name in left if name.startswith("b")]) >= 99


def test_what_was_due_first_leaves_first_even_if_it_was_held_back_later() -> None:
    shard = shard_with(10, 1)
    assert shard.batch(0, ("a", 0), ("b", 0), ("c", 0)) == ["a"]
    assert shard.batch(100, ("d", 50), ("e", 100)) == ["b"]
    assert [shard.batch(at) for at in (200, 300, 400)] == [["c"], ["d"], ["e"]]


def test_the_due_time_and_the_lateness_are_those_that_were_asked() -> None:
    shard = shard_with(10, 1)
    shard.batch(0, ("a", 0), ("b", 0))
    shard.batch(100)
    assert shard.fired["deliver_at_ms"].to_pylist() == [0]
    assert shard.fired["held_ms"].to_pylist() == [None]


def test_a_cancel_of_a_held_entry_is_applied() -> None:
    shard = shard_with(10, 1)
    shard.batch(0, ("a", 0), ("b", 0), ("c", 0))
    shard.cancel(10, "b")
    assert shard.state.counts["cancelled"] == 1
    assert [shard.batch(at) for at in (100, 200, 300)] == [[], ["c"], []]


def test_after_a_cancelled_backlog_new_entries_do_not_wait_behind_it() -> None:
    shard = shard_with(1, 1)
    shard.batch(0, *((f"a{n:04}", 0) for n in range(1000)))
    shard.cancel(10, *(f"a{n:04}" for n in range(1000)))
    assert shard.batch(2000, ("b", 2000), ("c", 2000)) == ["b"]
    assert shard.batch(6000) == ["c"]


def test_the_limit_of_a_batch_takes_no_tokens_from_what_it_keeps_back() -> None:
    shard = shard_with(10, 5)
    assert shard.batch(0, *((name, 0) for name in "abcde"), limit=2) == ["a", "b"]
    assert shard.batch(0, limit=2) == ["c", "d"]
    assert shard.batch(0, limit=2) == ["e"]


def test_a_resting_destination_gets_nothing_then_one_that_tries_it() -> None:
    shard = shard_with(1000, 100, closed={"crm": 500})
    assert shard.batch(0, *((name, 0) for name in "abc")) == []
    assert shard.state.next_due_ms == 500
    assert shard.batch(500) == ["a"]
    assert shard.batch(501) == []
    shard.gate = Turnstile(shard.gate.rates, 0, 1)
    assert shard.batch(1500) == ["b", "c"]


def test_a_rate_is_above_zero() -> None:
    with pytest.raises(Exception, match="rate"):
        Rate(0, 1)


@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=25),
    per_s=st.sampled_from([1, 3, 7, 50, 900]),
    burst=st.integers(1, 9),
    limit=st.sampled_from([None, 1, 3]),
)
def test_never_above_rate_times_time_plus_burst_and_nothing_starves(
    arrivals: list[tuple[int, int]], per_s: int, burst: int, limit: int | None
) -> None:
    shard = shard_with(per_s, burst)
    now, left, wanted = 0, [], 0
    for number, (step_ms, many) in enumerate(arrivals):
        now += step_ms
        new = [(f"{number:03}-{n:02}", now) for n in range(many)]
        wanted += many
        left += [(now, name) for name in shard.batch(now, *new, limit=limit)]
    while shard.state.next_due_ms is not None:
        now = max(now + (limit is not None), shard.state.next_due_ms)
        left += [(now, name) for name in shard.batch(now, limit=limit)]
    assert Counter(name for _, name in left).most_common(1) in ([], [(left[0][1], 1)]) if left else not wanted
    assert len(left) == wanted
    for first in range(len(left)):
        for last in range(first, len(left)):
            span_s = (left[last][0] - left[first][0]) / 1000
            assert last - first + 1 <= per_s * span_s + burst + 1e-6
    if wanted:
        assert (
            now
            <= arrivals[0][0] + sum(step for step, _ in arrivals) + 1000 * wanted / per_s + wanted * 40 + 1000
        )
