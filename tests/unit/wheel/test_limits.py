"""How much may be pending, and who is turned away: the limits of a shard, without a JVM."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tests.unit.wheel.heap_model import CANCEL_OUTCOMES, SCHEDULE_OUTCOMES
from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.limits import Held, Limits, judge
from wheel_udf.policies.rates import Rate, Rates, Turnstile
from wheel_udf.policies.series import Series, begin
from wheel_udf.policies.shard_limits import ShardLimits
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import Step, advance

WHEEL = Wheel(tick_ms=1_000, size=20, levels=3)
Row = dict[str, Any]


def due(name: str, at_s: int, seq: int = 1, to: str = "out") -> Row:
    return {"schedule_id": name, "deliver_at_ms": at_s * 1_000, "seq": seq, "destination": to}


def cancel(name: str, seq: int) -> Row:
    return {"schedule_id": name, "op": "CANCEL", "seq": seq}


def step(
    rows: list[Row],
    limits: Limits | None,
    state: ShardState | None = None,
    now_s: int = 0,
    released: int | None = None,
) -> Step:
    state = state or ShardState.empty(WHEEL)
    return advance(
        state,
        commands_table(rows),
        now_s * 1_000,
        released,
        memory_ms=None,
        policies=Policies(admit=ShardLimits(limits) if limits else None),
    )


def refused(done: Step) -> list[tuple[str, int, str]]:
    return sorted((row["schedule_id"], row["seq"], row["bound"]) for row in rows_of(done.refused))


def pending(done: Step) -> list[str]:
    return sorted(row["schedule_id"] for row in rows_of(done.state.entries()))


def test_what_is_due_and_does_not_leave_counts_series_and_what_a_rate_holds_back() -> None:
    text = json.dumps({"repeat": "* * * * *", "time_zone": "UTC"})
    for rule, policies in (
        (text, {"repeat": Series(1_000)}),
        (None, {"gate": Turnstile(Rates({"out": Rate(1, 1)}), 0, 1)}),
    ):
        state = ShardState.empty(WHEEL)
        for minute in range(5):
            now_ms = minute * 60_000
            commands = commands_table([due(f"{minute}-{number}", minute * 60 + 60) for number in range(10)])
            if rule is not None:
                new = {
                    "repeat": rule,
                    "anchor_ms": now_ms,
                    "last_ms": now_ms,
                    "spread_ms": 0,
                    "deliver_at_ms": None,
                }
                rows = [row | new for row in commands.to_pylist()]
                commands, _ = begin(pa.Table.from_pylist(rows, schema=commands.schema), state, now_ms, None)
            admit = ShardLimits(Limits(pending=10))
            state = advance(
                state, commands, now_ms, memory_ms=None, policies=Policies(admit=admit, **policies)
            ).state
            assert state.pending <= 10


def test_beyond_the_limit_new_entries_are_refused_first_come_first_served() -> None:
    done = step([due("c", 9, seq=3), due("a", 9, seq=1), due("b", 9, seq=2)], Limits(pending=2))
    assert (pending(done), refused(done)) == (["a", "b"], [("c", 3, "pending")])
    assert (done.state.pending, done.state.counts["rejected"]) == (2, 1)


def test_each_destination_has_its_own_room() -> None:
    rows = [due("a", 9, to="x"), due("b", 9, to="x"), due("c", 9, to="y")]
    done = step(rows, Limits(per_destination=1))
    assert (pending(done), refused(done)) == (["a", "c"], [("b", 1, "per_destination")])


def test_each_due_slot_has_its_own_room() -> None:
    done = step([due("a", 9), due("b", 9), due("c", 10)], Limits(per_slot=1))
    assert (pending(done), refused(done)) == (["a", "c"], [("b", 1, "per_slot")])
    # 9.999 s is the same slot of a second as 9 s, 10 s is not.
    late = {**due("d", 9), "deliver_at_ms": 9_999}
    assert refused(step([late], Limits(per_slot=1), done.state)) == [("d", 1, "per_slot")]


def test_what_replaces_an_entry_needs_no_room_and_neither_does_a_cancel() -> None:
    full = step([due("a", 9), due("b", 9)], Limits(pending=2))
    done = step([due("a", 30, seq=2), cancel("b", 2), cancel("nobody", 1)], Limits(pending=2), full.state)
    assert (pending(done), refused(done)) == (["a"], [])
    assert (done.state.counts["applied"], done.state.counts["waiting"]) == (1, 1)


def test_a_cancel_in_the_batch_makes_room_in_the_batch() -> None:
    full = step([due("a", 9), due("b", 9)], Limits(pending=2))
    done = step([cancel("b", 2), due("c", 9), due("d", 9)], Limits(pending=2), full.state)
    assert (pending(done), refused(done)) == (["a", "c"], [("d", 1, "pending")])


def test_what_is_due_leaves_its_room_to_the_batch_unless_it_is_held_back() -> None:
    full = step([due("a", 9), due("b", 9)], Limits(pending=2))
    done = step([due("c", 30), due("d", 30)], Limits(pending=2), full.state, now_s=9)
    assert (pending(done), refused(done), done.fired.num_rows) == (["c", "d"], [], 2)
    held_back = step([due("c", 30), due("d", 30)], Limits(pending=2), full.state, now_s=9, released=1)
    assert (pending(held_back), len(refused(held_back))) == (["b"], 2)


def test_what_is_due_when_it_comes_is_never_refused() -> None:
    full = step([due("a", 90)], Limits(pending=1))
    done = step([due("now", 5)], Limits(pending=1), full.state, now_s=9)
    assert (rows_of(done.fired)[0]["schedule_id"], refused(done)) == ("now", [])


def test_the_versions_of_an_id_in_a_batch_stand_or_fall_together() -> None:
    full = step([due("a", 90)], Limits(pending=1))
    done = step([due("x", 50, seq=1), due("x", 60, seq=2)], Limits(pending=1), full.state)
    assert refused(done) == [("x", 1, "pending"), ("x", 2, "pending")]
    after_cancel = step(
        [due("y", 50, seq=1), cancel("y", 2), due("y", 60, seq=3)], Limits(pending=1), full.state
    )
    assert refused(after_cancel) == [("y", 3, "pending")]
    assert (after_cancel.state.counts["cancelled"], after_cancel.state.counts["applied"]) == (1, 1)


def test_a_refused_command_does_not_use_up_its_seq() -> None:
    full = step([due("a", 9)], Limits(pending=1))
    away = step([due("b", 30, seq=7)], Limits(pending=1), full.state)
    again = step([due("b", 30, seq=7)], Limits(pending=1), away.state, now_s=9)
    assert (pending(again), again.state.counts["duplicate"]) == (["b"], 0)


def test_the_parts_of_the_shards_are_the_whole() -> None:
    parts = [Limits(pending=10, per_slot=4).share(shard, 4) for shard in range(4)]
    assert [part.pending for part in parts] == [3, 3, 2, 2]
    assert [part.per_slot for part in parts] == [1, 1, 1, 1]
    assert {part.per_destination for part in parts} == {None}


def test_how_full_it_is_is_told_for_the_fullest_group_that_was_touched() -> None:
    done = step(
        [due("a", 9, to="x"), due("b", 9, to="y"), due("c", 8, to="y")],
        Limits(per_destination=10, per_slot=9),
    )
    assert done.fullest == {"per_slot": 2, "per_destination": 2}


def many(count: int, seq: int = 1) -> pa.Table:
    return commands_table([due(f"e{number}", 9, seq) for number in range(count)])


def verdict(limits: Limits, held: int, new: pa.Table) -> Counter[int]:
    nothing = Held(held, lambda _, names: np.zeros(len(names), np.int64))
    return Counter(judge(limits, nothing, new, 1_000).refused_by.tolist())


@pytest.mark.parametrize(
    ("held", "least", "most"),
    [
        (0, 1_000, 1_000),  # 1,000 beside nothing: up to the zone, all are admitted
        (1_000, 590, 675),  # at the zone's beginning: 1 - 1/e of the zone's width
        (1_500, 255, 375),  # half through it
        (1_990, 0, 20),
        (2_000, 0, 0),
        (3_000, 0, 0),  # a limit that was lowered
    ],
)
def test_in_the_soft_zone_fewer_and_fewer_are_admitted(held: int, least: int, most: int) -> None:
    admitted = verdict(Limits(pending=2_000, soft=0.5), held, many(1_000))[-1]
    assert least <= admitted <= most


def test_the_soft_zone_refuses_the_same_rows_again_and_another_version_gets_another_chance() -> None:
    limits, new = Limits(pending=2_000, soft=0.5), many(500)
    nothing = Held(1_800, lambda _, names: np.zeros(len(names), np.int64))
    once, again = (judge(limits, nothing, new, 1_000).refused_by.tolist() for _ in range(2))
    other = judge(limits, nothing, many(500, seq=2), 1_000).refused_by.tolist()
    assert once == again
    assert once != other


def test_a_soft_zone_lets_a_wheel_fill_up_to_the_limit_and_never_beyond() -> None:
    limits, held = Limits(pending=100, soft=0.5), 0
    for batch in range(200):
        held += verdict(limits, held, many(10, seq=batch))[-1]
        assert held <= 100
    assert held == 100


commands = st.lists(
    st.builds(
        lambda name, at_s, seq, to, is_cancel: cancel(name, seq) if is_cancel else due(name, at_s, seq, to),
        st.sampled_from("abcdefghij"),
        st.integers(0, 12),
        st.integers(1, 4),
        st.sampled_from("xyz"),
        st.integers(0, 3).map(lambda draw: draw == 0),
    ),
    max_size=25,
)
bounds = st.none() | st.integers(1, 6)


@given(
    st.lists(st.tuples(st.integers(-1, 3), commands), min_size=1, max_size=5),
    st.builds(Limits, bounds, bounds, bounds, st.just(1.0) | st.floats(0.1, 0.9)),
    st.none() | st.integers(1, 4),
)
def test_the_account_closes_and_no_limit_is_passed_whatever_comes(
    batches: list[tuple[int, list[Row]]], limits: Limits, released: int | None
) -> None:
    state, now_s, received = ShardState.empty(WHEEL), 0, 0
    commanded: Counter[object] = Counter()
    for step_s, rows in batches:
        now_s += step_s
        before, done = state.pending, step(rows, limits, state, now_s, released)
        state, received = done.state, received + len(rows)
        entries = rows_of(state.entries())
        waiting = [row for row in entries if row["deliver_at_ms"] > done.clock_ms]
        totals = {
            "pending": len(waiting),
            "per_destination": max(Counter(row["destination"] for row in waiting).values(), default=0),
            "per_slot": max(Counter(row["deliver_at_ms"] // 1_000 for row in waiting).values(), default=0),
        }
        commanded.update(row["schedule_id"] for row in rows)
        replaced = (
            max(commanded.values(), default=0) > 1
        )  # a replacement may go to a full destination or slot
        # Overdue entries that `released` has kept back come on top, also if a later version makes them wait again.
        assert limits.pending is None or totals["pending"] <= max(limits.pending, before)
        for bound in ("per_destination", "per_slot"):
            most = getattr(limits, bound)
            assert most is None or totals[bound] <= most or replaced
        assert state.pending == len(entries)
        assert (
            state.pending + sum(state.counts[name] for name in SCHEDULE_OUTCOMES + CANCEL_OUTCOMES)
            == received
        )
        assert all(count >= 0 for count in state.counts.values())


@given(st.lists(commands, min_size=1, max_size=4))
def test_limits_that_nothing_reaches_change_nothing(batches: list[list[Row]]) -> None:
    bounded = free = ShardState.empty(WHEEL)
    for number, rows in enumerate(batches):
        wide = step(rows, Limits(1_000, 1_000, 1_000), bounded, now_s=number)
        without = step(rows, None, free, now_s=number)
        assert rows_of(wide.fired) == rows_of(without.fired)
        assert wide.state == without.state
        bounded, free = wide.state, without.state


def test_limits_are_asked_without_a_pass_over_what_is_held_where_only_the_total_is_bounded() -> None:
    def never(_: str, __: pa.Array) -> Any:
        raise AssertionError("asked")

    assert judge(Limits(pending=5), Held(4, never), many(3), 1_000).refused_by.tolist().count(-1) == 1
