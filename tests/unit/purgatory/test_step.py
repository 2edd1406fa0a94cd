"""The purgatory's step: what completes, cancels and expires an operation, and when; the same wherever batches end."""

from __future__ import annotations

import pytest

from tests.unit.purgatory.shard import Shard
from tests.unit.purgatory.watch_model import BEAT, CANCEL, CANCEL_OPERATION, SUM, Event, Outcome, Request
from wheel_udf.common.geometry import Wheel
from wheel_udf.purgatory.inspect import operations_of_text
from wheel_udf.purgatory.state import EVENTS_LEVEL
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table
from wheel_udf.wheel.step import advance


def order(op_id: str = "o", keys: str = "paid", need: int = 1, time: int = 0, deadline: int = 30) -> Request:
    return Request(op_id, tuple(keys.split()), need, time, deadline)


def test_an_event_on_a_watched_key_completes_an_operation_when_the_clock_has_passed_it() -> None:
    shard = Shard()
    assert shard.batch(5, order(), Event("paid", 10)) == []
    assert shard.batch(10) == []
    assert shard.batch(11) == [Outcome("o", 1, "completed", "paid", 10, ("paid",), ())]
    assert shard.state.pending == 0


def test_an_operation_that_nothing_completes_expires_when_its_deadline_is_behind_the_clock() -> None:
    shard = Shard()
    shard.batch(5, order())
    assert shard.state.next_due_ms == 31
    assert shard.batch(30) == []
    assert shard.batch(31) == [Outcome("o", 1, "expired", None, 30, (), ("paid",))]


def test_what_lies_between_is_the_earliest_thing_and_each_operation_has_one_outcome() -> None:
    shard = Shard()
    rows = [order(), Event("paid", 20), Event("o", 15, CANCEL_OPERATION), Event("paid", 17)]
    assert shard.batch(100, *rows) == [Outcome("o", 1, "cancelled", None, 15, (), ("paid",))]
    assert shard.batch(200) == []


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([Event("paid", 30), Event("o", 30, CANCEL_OPERATION)], "completed"),
        ([Event("o", 30, CANCEL_OPERATION)], "cancelled"),
        ([Event("paid", 30, CANCEL)], "cancelled"),
        ([Event("paid", 31)], "expired"),
    ],
)
def test_at_one_instant_complete_is_before_cancel_and_cancel_before_expire(
    events: list[Event], outcome: str
) -> None:
    assert [found.outcome for found in Shard().batch(100, order(), *events)] == [outcome]


def test_all_waits_for_every_key_and_names_the_last() -> None:
    shard = Shard()
    shard.batch(1, order(keys="a b c", need=3))
    assert shard.batch(10, Event("c", 9), Event("a", 5)) == []
    assert shard.batch(20, Event("b", 12)) == [Outcome("o", 1, "completed", "b", 12, ("a", "b", "c"), ())]


def test_n_of_m_completes_with_the_nth_key_and_says_which_are_missing() -> None:
    events = [Event("d", 3), Event("a", 4), Event("a", 5), Event("b", 6)]
    assert Shard().batch(50, order(keys="a b c d", need=2), *events) == [
        Outcome("o", 1, "completed", "a", 4, ("a", "d"), ("b", "c"))
    ]


def test_a_key_that_has_had_its_event_is_waited_for_no_more_so_its_cancel_comes_to_nothing() -> None:
    rows = [order(keys="a b", need=2), Event("a", 3), Event("a", 3, CANCEL), Event("a", 8, CANCEL)]
    assert [o.outcome for o in Shard().batch(50, *rows)] == ["expired"]
    assert Shard().batch(50, *rows, Event("b", 9, CANCEL)) == [
        Outcome("o", 1, "cancelled", "b", 9, ("a",), ("b",))
    ]


def test_a_cancel_of_a_key_cancels_all_that_wait_under_it() -> None:
    rows = [order("x", "a"), order("y", "b a", need=2), order("z", "b"), Event("a", 7, CANCEL)]
    found = Shard().batch(8, *rows)
    assert [(o.op_id, o.outcome, o.by_key) for o in found] == [
        ("x", "cancelled", "a"),
        ("y", "cancelled", "a"),
    ]


def test_a_sum_completes_at_the_event_that_brings_it_to_its_threshold() -> None:
    fetch = Request("fetch", ("p0", "p1"), SUM, 0, 30, threshold=100.0)
    shard = Shard()
    shard.batch(10, fetch, Event("p0", 3, amount=60.0))
    assert shard.batch(20, Event("p1", 12, amount=39.5)) == []
    assert shard.batch(25, Event("p0", 22, amount=0.5), Event("p1", 23, amount=500.0)) == [
        Outcome("fetch", 1, "completed", "p0", 22, ("p0", "p1"), ())
    ]


def test_the_last_bit_of_a_sum_does_not_hang_on_where_batches_end() -> None:
    fetch = Request("fetch", ("p",), SUM, 0, 99, threshold=1.0)
    tenths = [Event("p", at, amount=0.1) for at in range(1, 12)]
    at_once = Shard().batch(50, fetch, *reversed(tenths))
    one_by_one = Shard()
    one_by_one.batch(1, fetch)
    for event in tenths:
        one_by_one.batch(event.time + 1, event)
    assert [o.at for o in at_once] == [o.at for o in one_by_one.outcomes] == [11]


def test_events_seen_within_lookback_complete_an_operation_as_soon_as_it_comes() -> None:
    for lookback, outcome in ((10, "completed"), (9, "expired")):
        shard = Shard(lookback=lookback)
        shard.batch(20, Event("paid", 10))
        assert [o.outcome for o in shard.batch(60, order(time=20, deadline=40))] == [outcome]
    assert shard.outcomes[0].at == 40


def test_what_was_before_an_operation_counts_as_of_its_own_time_and_a_cancel_there_comes_too_late() -> None:
    rows = [Event("paid", 12), Event("o", 5, CANCEL_OPERATION), order(time=20, deadline=40)]
    assert Shard(lookback=100).batch(60, *rows) == [Outcome("o", 1, "completed", "paid", 20, ("paid",), ())]


def test_an_event_is_forgotten_when_memory_is_over_and_not_before() -> None:
    for clock, outcome in ((110, "completed"), (111, "expired")):
        shard = Shard(lookback=100, memory=100)
        shard.batch(20, Event("paid", 10))
        shard.batch(clock, order("other", time=clock, deadline=clock))
        found = shard.batch(clock + 1, order(time=30, deadline=40))
        assert [o.outcome for o in found if o.op_id == "o"] == [outcome], "late, so the clock decides"


def test_a_clock_that_jumps_past_memory_forgets_nothing_that_is_in_time() -> None:
    assert [o.outcome for o in Shard(memory=10).batch(1_000, order(), Event("paid", 10))] == ["completed"]
    shard = Shard(memory=10)
    shard.batch(11, Event("paid", 10))
    assert [o.outcome for o in shard.batch(1_000, order(time=12, deadline=30), Event("paid", 12))] == [
        "completed"
    ]
    shard = Shard(memory=10)
    shard.batch(31, order())
    shard.batch(32, order("other", time=31, deadline=99))
    shard.batch(1_000, order(time=35, deadline=50))
    assert (shard.state.counts["duplicate"], [o.op_id for o in shard.outcomes]) == (1, ["o", "other"])


def test_an_operation_is_not_lost_to_an_earlier_one_of_its_id_that_is_refused() -> None:
    for apart in (True, False):
        shard = Shard(memory=10)
        shard.batch(6, order(deadline=5))
        again = [order(time=16, deadline=60), order(time=12, deadline=20)]
        for rows in [again[:1], again[1:]] if apart else [again]:
            shard.batch(8, *rows)
        assert (shard.state.pending, shard.state.counts["duplicate"]) == (1, 1)


def test_the_last_end_of_an_id_counts() -> None:
    shard = Shard(memory=100)
    for clock, rows in ((90, [order(deadline=5)]), (106, [order(time=106, deadline=106)]), (107, [])):
        shard.batch(clock, *rows)
    shard.batch(110, order(time=110, deadline=111))
    assert (shard.state.pending, shard.state.counts["duplicate"]) == (0, 1)


def test_what_rests_longer_than_memory_does_not_wake_whatever_else_comes_meanwhile() -> None:
    for meanwhile in ([], [order("other", time=59, deadline=59)]):
        shard = Shard(memory=10)
        shard.batch(35, Request("m1", ("m1",), BEAT, 0, 30))
        shard.batch(60, *meanwhile)
        shard.batch(200, Event("m1", 100))
        assert [o.generation for o in shard.outcomes if o.op_id == "m1"] == [1]
        assert shard.state.resting == 0
        shard.batch(300, Request("m1", ("m1",), BEAT, 210, 240))
        assert [o.at for o in shard.outcomes if o.op_id == "m1"] == [30, 240]


def test_a_late_cancel_counts_for_a_heartbeat_that_has_beaten_since() -> None:
    shard = Shard()
    shard.batch(9, Request("m1", ("m1",), BEAT, 0, 10), Event("m1", 8))
    assert [(o.outcome, o.at) for o in shard.batch(12, Event("m1", 7, CANCEL_OPERATION))] == [
        ("cancelled", 7)
    ]


def test_events_are_not_kept_for_ever_where_operations_are() -> None:
    shard = Shard()
    shard.batch(1, Request("m1", ("m1",), BEAT, 0, 1_000_000))
    for minute in range(1, 30):
        shard.batch(60_000 * minute + 1, Event("m1", 60_000 * minute))
    assert sum(chunk.rows for chunk in shard.state.of_level(EVENTS_LEVEL)) < 10
    assert shard.state.pending == 1


def test_a_late_event_counts_if_its_operation_is_still_open() -> None:
    shard = Shard()
    shard.batch(20, order(keys="a b", need=2), Event("a", 15))
    assert shard.batch(25, Event("b", 3)) == [Outcome("o", 1, "completed", "a", 15, ("a", "b"), ())]
    assert shard.batch(90, Event("b", 4)) == []


def test_a_repeated_id_is_a_duplicate_while_it_is_open_or_remembered() -> None:
    shard = Shard(memory=10)
    shard.batch(5, order(), order(time=3, deadline=99))
    shard.batch(31, order(time=20, deadline=50))
    shard.batch(39, order(time=39, deadline=50))
    assert shard.state.counts["duplicate"] == 3
    assert [(o.outcome, o.at) for o in shard.outcomes] == [("expired", 30)]
    shard.batch(41, order(time=40, deadline=60))
    assert shard.state.pending == 1


def test_memory_ends_at_the_same_instant_as_in_the_wheel() -> None:
    # ---30------39---40--->   memory 10: [30, 40)
    for again_at, begins in ((39, 0), (40, 1)):
        shard = Shard(memory=10)
        shard.batch(31, order(deadline=30))
        shard.batch(again_at, order(time=again_at, deadline=99))
        assert shard.state.pending == begins
        beats = Shard(memory=10)
        beats.batch(31, Request("m1", ("m1",), BEAT, 0, 30))
        beats.batch(70, Event("m1", again_at))
        assert [o.generation for o in beats.outcomes] == ([1, 2] if not begins else [1])
        rows = commands_table([{"schedule_id": "a", "seq": 1, "deliver_at_ms": 30}])
        fired = advance(ShardState.empty(Wheel(1, 20, 3)), rows, 30, memory_ms=10)
        assert advance(fired.state, rows, again_at, memory_ms=10).fired.num_rows == begins


def test_with_memory_0_two_copies_of_an_operation_in_one_batch_are_one() -> None:
    shard = Shard(lookback=10, memory=0)
    shard.batch(30, Event("paid", 15), order(time=20, deadline=25), order(time=20, deadline=25))
    assert [(o.outcome, o.at) for o in shard.outcomes] == [("completed", 20)]
    assert shard.state.counts["duplicate"] == 1


def test_an_id_begins_anew_when_its_memory_is_over_in_the_same_batch_too() -> None:
    shard = Shard(memory=10)
    rows = [
        order(deadline=5),
        order(time=15, deadline=20),
        order(time=16, deadline=18),
        order(time=40, deadline=41),
    ]
    shard.batch(99, *rows, Event("paid", 17))
    assert [(o.outcome, o.at) for o in shard.outcomes] == [("expired", 5), ("completed", 17), ("expired", 41)]
    assert shard.state.counts["duplicate"] == 1


@pytest.mark.parametrize(("paid_at", "at"), [(5, [5, 70]), (48, [48])])
def test_an_operation_is_held_while_an_earlier_one_of_its_id_may_live_on_into_its_time(
    paid_at: int, at: list[int]
) -> None:
    shard = Shard(memory=10)
    shard.batch(1, order(deadline=90), order(time=50, deadline=70))
    assert (shard.state.pending, shard.state.next_due_ms) == (2, 51)
    shard.batch(39, *([Event("paid", paid_at)] if paid_at < 39 else []))
    shard.batch(49, *([Event("paid", paid_at)] if paid_at > 39 else []))
    shard.batch(99)
    assert [o.at for o in shard.outcomes] == at
    assert shard.state.counts["duplicate"] == 2 - len(at)


def test_of_two_operations_with_one_id_the_earlier_is_meant_whichever_batch_brings_it() -> None:
    shard = Shard()
    shard.batch(5, order(time=9, deadline=60))
    shard.batch(6, order(time=8, deadline=20))
    assert shard.batch(99) == [Outcome("o", 1, "expired", None, 20, (), ("paid",))]
    assert shard.state.counts["duplicate"] == 1


def test_of_two_operations_of_one_id_and_time_the_same_is_meant_in_whatever_order_they_come() -> None:
    rows = [order(keys="a", deadline=10), order(keys="b", deadline=10)]
    one, two, apart = Shard(), Shard(), Shard()
    one.batch(20, *rows, Event("b", 5))
    two.batch(20, *reversed(rows), Event("b", 5))
    apart.batch(0, rows[0])
    apart.batch(0, rows[1])
    apart.batch(20, Event("b", 5))
    assert one.outcomes == two.outcomes == apart.outcomes


def test_ids_and_keys_are_those_of_their_group() -> None:
    there = Request("o", ("paid",), 1, 0, 30, group="there")
    found = Shard().batch(
        50, order(), there, Event("paid", 7, group="there"), Event("o", 3, CANCEL_OPERATION)
    )
    assert [(o.outcome, o.at) for o in found] == [("cancelled", 3), ("completed", 7)]


def test_a_join_is_put_off_by_its_first_delay_while_members_come_up_to_its_limit() -> None:
    join = Request("join", ("a", "b", "c"), 3, 0, 3, limit=10)
    members = [Event("a", 2), Event("b", 6)]
    assert Shard().batch(50, join, *members) == [Outcome("join", 1, "expired", None, 9, ("a", "b"), ("c",))]
    # At 3 a has come, at 6 b, at 9 nobody; one at 8 puts it off once more, to the limit.
    assert [o.at for o in Shard().batch(50, join, *members, Event("c", 8))] == [8]
    assert [
        o.at
        for o in Shard().batch(50, join._replace(need=4, keys=("a", "b", "c", "d")), *members, Event("c", 8))
    ] == [10]


def test_a_late_member_begins_the_next_generation_of_a_join() -> None:
    shard = Shard()
    shard.batch(2, Request("join", ("a", "b"), 2, 0, 3, limit=10))
    assert [(o.generation, o.outcome, o.at) for o in shard.batch(9, Event("a", 5))] == [(1, "expired", 3)]
    assert (shard.state.pending, shard.state.resting) == (1, 0)
    assert shard.batch(10, Event("b", 6)) == [Outcome("join", 2, "completed", "b", 6, ("a", "b"), ())]


def test_each_beat_puts_a_heartbeat_off_and_a_missed_one_expires_the_member() -> None:
    shard = Shard()
    shard.batch(1, Request("m1", ("m1",), BEAT, 0, 10))
    for clock in range(5, 50, 5):
        shard.batch(clock, Event("m1", clock - 1))
    assert shard.outcomes == []
    assert shard.state.next_due_ms == 55
    assert [(o.outcome, o.at) for o in shard.batch(55)] == [("expired", 54)]


def test_a_beat_at_the_very_deadline_wins() -> None:
    beats = [Event("m1", 10), Event("m1", 20), Event("m1", 31)]
    found = Shard().batch(60, Request("m1", ("m1",), BEAT, 0, 10), *beats)
    assert [(o.generation, o.at) for o in found] == [(1, 30), (2, 41)]


def test_a_member_that_leaves_is_cancelled_and_its_next_beat_is_nobodys() -> None:
    rows = [
        Request("m1", ("m1",), BEAT, 0, 10),
        Event("m1", 8),
        Event("m1", 12, CANCEL_OPERATION),
        Event("m1", 14),
    ]
    found = Shard().batch(60, *rows)
    assert [(o.generation, o.outcome, o.at) for o in found] == [(1, "cancelled", 12)]


def test_a_tick_with_nothing_due_and_nothing_new_changes_nothing() -> None:
    shard = Shard()
    shard.batch(5, order())
    before = shard.state
    assert not shard.step(20).changed
    assert shard.state is before


def test_a_step_back_of_the_clock_holds_it() -> None:
    shard = Shard()
    shard.batch(50)
    shard.batch(20, order(time=60, deadline=70), Event("paid", 65))
    assert shard.outcomes == []
    assert [o.at for o in shard.batch(66)] == [65]


def test_what_waits_can_be_looked_at_open_at_rest_and_held() -> None:
    shard = Shard(memory=100)
    shard.batch(
        10,
        Request("o", ("a", "b", "c"), 2, 0, 200),
        Request("o", ("a",), 1, 150, 160),
        Request("sum", ("a",), SUM, 1, 40, 7.5),
        Request("member", ("m",), BEAT, 0, 5),
        Request("group", ("a", "x"), 2, 2, 7, limit=90),
        Event("a", 3),
        Event("b", 11),
    )
    shown = {
        (
            row["op_id"],
            row["place"],
            row["rule"],
            row["event_time_ms"],
            row["deadline_ms"],
            row["limit_ms"],
        ): (
            row["present"],
            row["generation"],
        )
        for row in operations_of_text(shard.state.text).to_pylist()
    }
    assert shown == {
        ("o", "open", "n:2", 0, 200, None): (["a"], 1),
        ("o", "held", "any", 150, 160, None): ([], 1),
        ("sum", "open", "sum>=7.5", 1, 40, None): (["a"], 1),
        ("member", "resting", "beat", None, None, None): ([], 1),
        ("group", "open", "all", 2, 12, 90): (["a"], 1),
    }
