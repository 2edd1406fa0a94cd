"""The reference wheel: the two worked traces in full, its edges one by one, and against a sorted list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

from wheel_udf.common.errors import ConfigError, GeometryError
from wheel_udf.wheel.reference import Entry, Fired, Moved, Rule, TimingWheel, Woke

Trace: TypeAlias = list[Woke | Moved | Fired]
RULES: list[Rule] = ["exact", "kafka"]
YEAR_MS = 365 * 86_400_000


def run_to_the_end(wheel: TimingWheel) -> list[tuple[int, object]]:
    """Drive as a timer thread would, from wake-up to wake-up: (when, what fired)."""
    fired: list[tuple[int, object]] = []
    while (at_ms := wheel.next_wakeup_ms()) is not None:
        fired += [(at_ms, entry.entry_id) for entry in wheel.advance(at_ms)]
    return fired


def jump_to_the_end(wheel: TimingWheel) -> list[tuple[int, object]]:
    """Drive in one long step to far beyond everything: (when, what fired)."""
    return [(10**12, entry.entry_id) for entry in wheel.advance(10**12)]


Driver: TypeAlias = Callable[[TimingWheel], list[tuple[int, object]]]
DRIVERS: list[Driver] = [run_to_the_end, jump_to_the_end]


# ---- the two worked traces -----------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("levels", [None, 3, 6])
@pytest.mark.parametrize("drive", DRIVERS)
def test_an_entry_at_450_ms_comes_down_from_level_3_in_three_wake_ups(
    drive: Driver, levels: int | None, rule: Rule
) -> None:
    #  1 ms x 20
    #  level 3  |0 .. 400|400 ....................................... 800|     [400, 800)  from    0
    #  level 2           |400|420|440 ..... 460|480| ...                       [440, 460)  from  400
    #  level 1                   |440|..|450|..|459|                           [450, 451)  from  440
    #  wake-ups          ^       ^      ^ fires
    #                   400     440    450
    trace: Trace = []
    wheel = TimingWheel(tick_ms=1, size=20, levels=levels, rule=rule, observer=trace.append)
    wheel.add("a", 450)
    drive(wheel)
    assert trace == [
        Moved(0, "a", level=3, start_ms=400, end_ms=800),
        Woke(400),
        Moved(400, "a", level=2, start_ms=440, end_ms=460),
        Woke(440),
        Moved(440, "a", level=1, start_ms=450, end_ms=451),
        Woke(450),
        Fired(450, "a"),
    ]
    assert wheel.levels == (levels or 3)


#  10 s x 8, at 0 s, entries at
#      12 18      35 36 38     53 54     62 65 69          100                           700
#  level 1                                             |           |                 |         |
#  0    |10  20|   |30  40|     |50  60| |60  70|       |           |                 |         |
#  level 2                                             |80 ........................ 160|         |
#  level 3                                                                        |640 ............... 1280|
AT_SECONDS = [12, 18, 35, 36, 38, 53, 54, 62, 65, 69, 100, 700]

PLACED_AT_FIRST: Trace = [
    Moved(0, 12, level=1, start_ms=10_000, end_ms=20_000),
    Moved(0, 18, level=1, start_ms=10_000, end_ms=20_000),
    Moved(0, 35, level=1, start_ms=30_000, end_ms=40_000),
    Moved(0, 36, level=1, start_ms=30_000, end_ms=40_000),
    Moved(0, 38, level=1, start_ms=30_000, end_ms=40_000),
    Moved(0, 53, level=1, start_ms=50_000, end_ms=60_000),
    Moved(0, 54, level=1, start_ms=50_000, end_ms=60_000),
    Moved(0, 62, level=1, start_ms=60_000, end_ms=70_000),
    Moved(0, 65, level=1, start_ms=60_000, end_ms=70_000),
    Moved(0, 69, level=1, start_ms=60_000, end_ms=70_000),
    Moved(0, 100, level=2, start_ms=80_000, end_ms=160_000),
    Moved(0, 700, level=3, start_ms=640_000, end_ms=1_280_000),
]


def ten_seconds_by_eight(rule: Rule, levels: int | None, trace: Trace) -> TimingWheel:
    wheel = TimingWheel(tick_ms=10_000, size=8, levels=levels, rule=rule, observer=trace.append)
    for seconds in AT_SECONDS:
        wheel.add(seconds, seconds * 1_000)
    return wheel


@pytest.mark.parametrize("levels", [None, 3])
@pytest.mark.parametrize("drive", DRIVERS)
def test_ten_seconds_by_eight_fires_each_entry_at_its_own_second_under_the_exact_rule(
    drive: Driver, levels: int | None
) -> None:
    #  wake-ups  10 12 18 | 30 35 36 38 | 50 53 54 | 60 62 65 69 | 80 | 100 | 640 | 700
    #  fires        12 18 |    35 36 38 |    53 54 |    62 65 69 |    | 100 |     | 700
    #            a tick begins at 10, 30, 50, 60, 100, 700; buckets come down a level at 80 and 640
    trace: Trace = []
    wheel = ten_seconds_by_eight("exact", levels, trace)
    drive(wheel)
    assert trace == [
        *PLACED_AT_FIRST,
        Woke(10_000),
        Woke(12_000),
        Fired(12_000, 12),
        Woke(18_000),
        Fired(18_000, 18),
        Woke(30_000),
        Woke(35_000),
        Fired(35_000, 35),
        Woke(36_000),
        Fired(36_000, 36),
        Woke(38_000),
        Fired(38_000, 38),
        Woke(50_000),
        Woke(53_000),
        Fired(53_000, 53),
        Woke(54_000),
        Fired(54_000, 54),
        Woke(60_000),
        Woke(62_000),
        Fired(62_000, 62),
        Woke(65_000),
        Fired(65_000, 65),
        Woke(69_000),
        Fired(69_000, 69),
        Woke(80_000),
        Moved(80_000, 100, level=1, start_ms=100_000, end_ms=110_000),
        Woke(100_000),
        Fired(100_000, 100),
        Woke(640_000),
        Moved(640_000, 700, level=1, start_ms=700_000, end_ms=710_000),
        Woke(700_000),
        Fired(700_000, 700),
    ]
    assert wheel.levels == 3


@pytest.mark.parametrize("levels", [None, 3])
@pytest.mark.parametrize("drive", DRIVERS)
def test_ten_seconds_by_eight_fires_each_tick_when_it_begins_under_the_kafka_rule(
    drive: Driver, levels: int | None
) -> None:
    #  wake-ups  10    | 30       | 50    | 60       | 80 | 100 | 640 | 700
    #  fires     12 18 | 35 36 38 | 53 54 | 62 65 69 |    | 100 |     | 700     up to 9 s early
    trace: Trace = []
    wheel = ten_seconds_by_eight("kafka", levels, trace)
    drive(wheel)
    assert trace == [
        *PLACED_AT_FIRST,
        Woke(10_000),
        Fired(10_000, 12),
        Fired(10_000, 18),
        Woke(30_000),
        Fired(30_000, 35),
        Fired(30_000, 36),
        Fired(30_000, 38),
        Woke(50_000),
        Fired(50_000, 53),
        Fired(50_000, 54),
        Woke(60_000),
        Fired(60_000, 62),
        Fired(60_000, 65),
        Fired(60_000, 69),
        Woke(80_000),
        Moved(80_000, 100, level=1, start_ms=100_000, end_ms=110_000),
        Woke(100_000),
        Fired(100_000, 100),
        Woke(640_000),
        Moved(640_000, 700, level=1, start_ms=700_000, end_ms=710_000),
        Woke(700_000),
        Fired(700_000, 700),
    ]
    assert wheel.levels == 3


def test_on_two_levels_the_top_one_is_open_ended_and_comes_down_in_one_step() -> None:
    #  level 2, tick 80 s:  | 80 .. 160 | ... | 560 .. 640 | 640 .. 720 |   700 lies beyond its span of 640 s
    trace: Trace = []
    wheel = ten_seconds_by_eight("exact", 2, trace)
    fired = run_to_the_end(wheel)
    assert [event for event in trace if isinstance(event, Moved) and event.entry_id == 700] == [
        Moved(0, 700, level=2, start_ms=640_000, end_ms=720_000),
        Moved(640_000, 700, level=1, start_ms=700_000, end_ms=710_000),
    ]
    assert fired == [(seconds * 1_000, seconds) for seconds in AT_SECONDS]


# ---- firing --------------------------------------------------------------------------------------


def ids(entries: list[Entry]) -> list[object]:
    return [entry.entry_id for entry in entries]


def test_the_exact_rule_holds_an_entry_to_its_millisecond_within_a_coarse_tick() -> None:
    wheel = TimingWheel(tick_ms=10_000, size=8)
    wheel.add("a", 12_345)
    assert (wheel.advance(10_000), wheel.advance(12_344), wheel.next_wakeup_ms()) == ([], [], 12_345)
    assert wheel.advance(12_345) == [Entry("a", 12_345)]


def test_the_kafka_rule_fires_what_is_due_within_the_current_tick_at_once() -> None:
    wheel = TimingWheel(tick_ms=10_000, size=8, rule="kafka")
    wheel.advance(11_000)
    wheel.add("this tick", 19_999)
    wheel.add("the next", 20_000)
    assert wheel.next_wakeup_ms() == 11_000
    assert ids(wheel.advance(11_000)) == ["this tick"]
    assert wheel.next_wakeup_ms() == 20_000


@pytest.mark.parametrize("rule", RULES)
def test_what_is_past_due_on_arrival_fires_at_the_next_advance_oldest_first(rule: Rule) -> None:
    wheel = TimingWheel(tick_ms=10, size=4, start_ms=1_000, rule=rule)
    wheel.add("now", 1_000)
    wheel.add("long ago", -5_000)
    wheel.add("just now", 999)
    assert wheel.next_wakeup_ms() == 1_000
    assert ids(wheel.advance(1_000)) == ["long ago", "just now", "now"]


def test_entries_due_at_one_instant_fire_in_the_order_of_adding_from_whatever_level_they_came() -> None:
    wheel = TimingWheel(tick_ms=1, size=4)
    wheel.add("from level 3", 40)
    wheel.advance(30)
    wheel.add("from level 2", 40)
    wheel.advance(38)
    wheel.add("from level 1", 40)
    assert ids(wheel.advance(40)) == ["from level 3", "from level 2", "from level 1"]


def test_an_entry_comes_back_with_its_payload() -> None:
    wheel = TimingWheel()
    wheel.add(("group", 7), 30, payload={"any": "thing"})
    assert wheel.advance(30) == [Entry(("group", 7), 30, {"any": "thing"})]


@pytest.mark.parametrize("rule", RULES)
def test_a_limit_stops_the_wheel_and_loses_nothing(rule: Rule) -> None:
    #  0 ... 5 6 6 ... 50 ... 700 ... now = 1000     limit 2, then an older one comes, then 2, then the rest
    wheel = TimingWheel(tick_ms=1, size=20, rule=rule)
    for entry_id, due_ms in [("a", 5), ("b", 6), ("c", 6), ("d", 50), ("e", 700), ("f", 1_001)]:
        wheel.add(entry_id, due_ms)
    assert ids(wheel.advance(1_000, limit=2)) == ["a", "b"]
    assert (len(wheel), wheel.clock_ms) == (4, 1_000)
    wheel.add("g", 3)
    assert ids(wheel.advance(1_000, limit=0)) == []
    assert ids(wheel.advance(1_000, limit=2)) == ["g", "c"]
    assert wheel.next_wakeup_ms() == 1_000
    assert ids(wheel.advance(1_000)) == ["d", "e"]
    assert ids(wheel.advance(1_001)) == ["f"]
    assert wheel.next_wakeup_ms() is None


def test_the_clock_holds_when_time_steps_back() -> None:
    wheel = TimingWheel(tick_ms=10, size=8)
    wheel.add("a", 95)
    assert (wheel.advance(90), wheel.advance(10), wheel.clock_ms) == ([], [], 90)
    wheel.add("due by the clock that holds", 50)
    assert ids(wheel.advance(-7)) == ["due by the clock that holds"]
    assert ids(wheel.advance(95)) == ["a"]


def test_a_backlog_held_back_by_a_limit_is_released_even_when_time_steps_back() -> None:
    wheel = TimingWheel(tick_ms=10, size=8)
    wheel.add("a", 5)
    wheel.add("b", 95)
    assert ids(wheel.advance(100, limit=1)) == ["a"]
    assert ids(wheel.advance(20)) == ["b"]


@pytest.mark.parametrize("start_ms", [-(2**63), -1_000, 2**53, 253_402_300_799_999, 2**63 - 10_000])
@pytest.mark.parametrize("tick_ms", [1, 7, 1_000])
def test_the_wheel_works_at_any_clock(start_ms: int, tick_ms: int) -> None:
    wheel = TimingWheel(tick_ms=tick_ms, size=3, start_ms=start_ms)
    for delay_ms in [9_999, 1, 0, 8_888]:
        wheel.add(delay_ms, start_ms + delay_ms)
    assert run_to_the_end(wheel) == [(start_ms + delay_ms, delay_ms) for delay_ms in [0, 1, 8_888, 9_999]]


# ---- cancelling and replacing --------------------------------------------------------------------


def test_cancel_says_whether_there_was_something_to_cancel() -> None:
    wheel = TimingWheel(tick_ms=10, size=8)
    for entry_id, due_ms in [("this tick", 5), ("level 1", 25), ("level 3", 1_000), ("stays", 26)]:
        wheel.add(entry_id, due_ms)
    for entry_id in ["this tick", "level 1", "level 3"]:
        assert entry_id in wheel
        assert wheel.cancel(entry_id) is True
        assert wheel.cancel(entry_id) is False
        assert entry_id not in wheel
    assert wheel.cancel("never added") is False
    assert len(wheel) == 1
    assert ids(wheel.advance(5_000)) == ["stays"]
    assert wheel.cancel("stays") is False
    assert len(wheel) == 0


def test_a_bucket_that_cancels_have_emptied_wakes_nobody() -> None:
    trace: Trace = []
    wheel = TimingWheel(tick_ms=1, size=20, observer=trace.append)
    wheel.add("a", 450)
    wheel.add("b", 10)
    wheel.cancel("a")
    assert run_to_the_end(wheel) == [(10, "b")]
    assert [event for event in trace if isinstance(event, Woke)] == [Woke(10)]


def test_an_emptied_bucket_takes_entries_again() -> None:
    wheel = TimingWheel(tick_ms=1, size=20)
    wheel.add("a", 450)
    wheel.cancel("a")
    wheel.add("b", 451)
    assert run_to_the_end(wheel) == [(451, "b")]


@pytest.mark.parametrize("first_ms", [5, 25, 1_000])
@pytest.mark.parametrize("second_ms", [6, 26, 2_000, 5, 25, 1_000])
def test_adding_an_id_again_replaces_the_pending_entry(first_ms: int, second_ms: int) -> None:
    wheel = TimingWheel(tick_ms=10, size=8)
    wheel.add("a", first_ms, "first")
    wheel.add("a", second_ms, "second")
    assert len(wheel) == 1
    assert wheel.advance(5_000) == [Entry("a", second_ms, "second")]


def test_entries_added_and_cancelled_for_ever_leave_nothing_behind() -> None:
    wheel = TimingWheel(tick_ms=1_000, size=7_200, levels=1)
    wheel.add("stays", 500)
    for number in range(5_000):
        wheel.add("far", number * 1_000_000)
        wheel.add("this tick", number % 1_000)
    wheel.cancel("far")
    wheel.cancel("this tick")
    assert len(wheel.queue) == len(wheel.buckets) < 100
    assert len(wheel.current) < 100
    assert run_to_the_end(wheel) == [(500, "stays")]


# ---- no empty ticks ------------------------------------------------------------------------------


def test_years_at_a_tick_of_one_ms_cost_a_handful_of_wake_ups() -> None:
    trace: Trace = []
    wheel = TimingWheel(tick_ms=1, size=20, observer=trace.append)
    wheel.add("in ten years", 10 * YEAR_MS + 1)
    wheel.add("in a thousand", 1_000 * YEAR_MS + 1)
    assert ids(wheel.advance(2_000 * YEAR_MS)) == ["in ten years", "in a thousand"]
    wake_ups = [event.at_ms for event in trace if isinstance(event, Woke)]
    assert wake_ups == [
        307_200_000_000,  # in ten years: each wake-up empties its bucket of level 9, 8, 7, 6 or 1
        314_880_000_000,
        315_328_000_000,
        315_360_000_000,
        315_360_000_001,
        30_720_000_000_000,  # in a thousand: levels 11, 10, 9, 8, 7, 1
        31_232_000_000_000,
        31_513_600_000_000,
        31_535_360_000_000,
        31_536_000_000_000,
        31_536_000_000_001,
    ]
    assert wheel.advance(10_000 * YEAR_MS) == []
    assert [event.at_ms for event in trace if isinstance(event, Woke)] == wake_ups


# ---- the wheel's edges ---------------------------------------------------------------------------


def test_overflow_levels_are_made_when_an_entry_first_needs_them() -> None:
    wheel = TimingWheel(tick_ms=1, size=20)
    assert wheel.levels == 1
    made = []
    for due_ms in [0, 19, 20, 399, 400, 7_999, 8_000, 2**63 - 1]:
        wheel.add(due_ms, due_ms)
        made.append(wheel.levels)
    #                                   20**14 < 2**63 <= 20**15: 14 levels are all that int64 needs
    assert made == [1, 1, 2, 2, 3, 3, 4, 14]


@pytest.mark.parametrize("levels", [None, 1, 2])
def test_an_empty_wheel_has_no_wake_up_and_its_clock_goes_on(levels: int | None) -> None:
    wheel = TimingWheel(tick_ms=1, size=20, levels=levels)
    assert (wheel.next_wakeup_ms(), wheel.advance(10**15), wheel.clock_ms, len(wheel)) == (
        None,
        [],
        10**15,
        0,
    )


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(GeometryError, match="tick_ms = 0"):
        TimingWheel(tick_ms=0)
    with pytest.raises(GeometryError, match="levels = 0"):
        TimingWheel(levels=0)
    with pytest.raises(ConfigError, match="rule = 'early'; rule: exact or kafka"):
        TimingWheel(rule="early")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="limit = -1; rule: at least 0"):
        TimingWheel().advance(0, limit=-1)


# ---- against a sorted list -----------------------------------------------------------------------


class SortedListTimer:
    """The same timer without any wheel: all pending entries, sorted at each step."""

    def __init__(self, tick_ms: int, start_ms: int, rule: Rule) -> None:
        self.reach_ms = tick_ms if rule == "kafka" else 1
        self.now_ms = start_ms
        self.pending: dict[int, tuple[int, int]] = {}
        self.added = 0

    def add(self, entry_id: int, deliver_at_ms: int) -> None:
        self.pending[entry_id] = (deliver_at_ms, self.added)
        self.added += 1

    def cancel(self, entry_id: int) -> bool:
        return self.pending.pop(entry_id, None) is not None

    def advance(self, now_ms: int, limit: int | None) -> list[int]:
        self.now_ms = max(self.now_ms, now_ms)
        end_ms = self.now_ms // self.reach_ms * self.reach_ms + self.reach_ms
        due = sorted((key, entry_id) for entry_id, key in self.pending.items() if key[0] < end_ms)[:limit]
        for _, entry_id in due:
            del self.pending[entry_id]
        return [entry_id for _, entry_id in due]


Step: TypeAlias = tuple[Literal["add", "cancel", "advance"], int, int | None]

NEAR_OR_FAR = st.one_of(st.integers(-50, 300), st.integers(-5_000, 500_000), st.integers(0, 2**48))
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 15), NEAR_OR_FAR),
    st.tuples(st.just("cancel"), st.integers(0, 15), st.none()),
    st.tuples(st.just("advance"), NEAR_OR_FAR, st.one_of(st.none(), st.integers(0, 4))),
)


@given(
    tick_ms=st.sampled_from([1, 2, 7, 10, 1_000]),
    size=st.integers(2, 21),
    levels=st.sampled_from([None, 1, 2, 3, 6]),
    start_ms=st.sampled_from([0, 3, -1_000_003, 1_356_998_400_000]),
    rule=st.sampled_from(RULES),
    steps=st.lists(STEPS, max_size=60),
)
def test_the_wheel_does_what_a_sorted_list_does(
    tick_ms: int, size: int, levels: int | None, start_ms: int, rule: Rule, steps: list[Step]
) -> None:
    wheel = TimingWheel(tick_ms, size, levels, start_ms=start_ms, rule=rule)
    model = SortedListTimer(tick_ms, start_ms, rule)
    for act, number, other in steps:
        if act == "add":
            assert other is not None
            wheel.add(number, model.now_ms + other)
            model.add(number, model.now_ms + other)
        elif act == "cancel":
            assert wheel.cancel(number) == model.cancel(number)
        else:
            now_ms = model.now_ms + number  # negative: a step back
            assert ids(wheel.advance(now_ms, other)) == model.advance(now_ms, other)
            assert wheel.clock_ms == model.now_ms
        assert len(wheel) == len(model.pending)
    pending = dict(model.pending)
    fired = run_to_the_end(wheel)
    assert [entry_id for _, entry_id in fired] == model.advance(2**62, None)
    if rule == "exact":
        assert all(at_ms >= pending[int(str(entry_id))][0] for at_ms, entry_id in fired)


@settings(deadline=None)
@given(
    tick_ms=st.sampled_from([1, 7, 1_000]),
    size=st.integers(2, 21),
    levels=st.sampled_from([None, 1, 3]),
    rule=st.sampled_from(RULES),
    dues=st.lists(NEAR_OR_FAR, max_size=15),
    instants=st.lists(NEAR_OR_FAR, max_size=15),
)
def test_one_long_step_and_many_short_ones_leave_the_same_trace(
    tick_ms: int, size: int, levels: int | None, rule: Rule, dues: list[int], instants: list[int]
) -> None:
    traces: list[Trace] = []
    for stops in ([], sorted(instants)):
        trace: Trace = []
        wheel = TimingWheel(tick_ms, size, levels, rule=rule, observer=trace.append)
        for entry_id, due_ms in enumerate(dues):
            wheel.add(entry_id, due_ms)
        for stop_ms in [*stops, 2**50]:
            wheel.advance(stop_ms)
        traces.append(trace)
    assert traces[0] == traces[1]
