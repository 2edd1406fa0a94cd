"""The partitions of the slot store: a worked example, the shape's rules, and that no cursor overlooks or repeats an
entry.
"""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.places import placed
from wheel_udf.common.errors import ConfigError, GeometryError
from wheel_udf.common.geometry import INT64_MAX, INT64_MIN, Wheel
from wheel_udf.store.layout import NEAR, StoreLayout

SECONDS = Wheel(tick_ms=1_000, size=20, levels=4)
LAYOUT = StoreLayout(SECONDS, state_levels=1)
HOUR = 3_600_000
YEAR_9999 = 253_402_300_799_999


def at(hours: int, minutes: int, seconds: int) -> int:
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000


@st.composite
def layouts(draw: st.DrawFn) -> StoreLayout:
    """Small and large sizes (above 32 several slots share a partition), with and without levels in the state."""
    size = draw(st.one_of(st.integers(2, 40), st.integers(2, 2_000)))
    tick_ms = draw(st.sampled_from([1, 7, 1_000]))
    # Two factors of the size are left free, for the grouping and for a horizon.
    most = next(n for n in range(40, 0, -1) if tick_ms * size ** (n + 2) <= INT64_MAX)
    levels = draw(st.integers(2, max(2, min(most, 7))))
    state_levels = draw(st.integers(0, levels - 1))
    horizon_ms = None if state_levels else draw(st.integers(tick_ms, tick_ms * size))
    return StoreLayout(Wheel(tick_ms, size, levels), state_levels, horizon_ms)


@st.composite
def with_cursors(draw: st.DrawFn) -> tuple[StoreLayout, list[int], list[int]]:
    """A layout, rising cursors, and due times of which many lie on bounds of partitions near one of them."""
    layout = draw(layouts())
    windows = st.one_of(
        st.integers(-50, 50),
        st.integers(0, layout.width_ms(layout.far_levels[-1]) * 3 // layout.window_ms),
    )
    cursors = sorted(number * layout.window_ms for number in draw(st.lists(windows, min_size=1, max_size=6)))
    widths = [layout.width_ms(level) for level in layout.far_levels]
    bounds = [
        cursor // width * width + n * width + step
        for cursor in cursors
        for width in widths
        for n in (-1, 0, 1, 2, layout.wheel.size)
        for step in (-1, 0, 1)
    ]
    inside = st.sampled_from([bound for bound in bounds if INT64_MIN <= bound <= INT64_MAX])
    anywhere = st.one_of(
        st.integers(INT64_MIN, INT64_MAX), st.sampled_from([YEAR_9999, INT64_MAX, INT64_MIN, -1])
    )
    around = st.integers(cursors[0] - 3 * layout.window_ms, cursors[-1] + 3 * widths[-1])
    dues = st.one_of(inside, anywhere, around.filter(lambda due: INT64_MIN <= due <= INT64_MAX))
    return layout, cursors, draw(st.lists(dues, max_size=30))


# --- the worked example ---------------------------------------------------------------------------


def test_windows_are_20_seconds_and_the_partitions_above_are_slots_of_the_wheel() -> None:
    assert LAYOUT.window_ms == 20_000
    assert [LAYOUT.width_ms(level) for level in LAYOUT.far_levels] == [20_000, 400_000, 8_000_000]


def test_an_entry_due_at_1_13_05_comes_near_in_two_moves() -> None:
    due = at(1, 13, 5)

    assert placed(LAYOUT, due, at(1, 0, 0)) == (3, at(1, 6, 40) // 400_000)
    assert placed(LAYOUT, due, at(1, 7, 0)) == (2, at(1, 13, 0) // 20_000)
    assert placed(LAYOUT, due, at(1, 13, 20)) == (NEAR, at(1, 13, 0) // 20_000)


def test_a_cursor_reaches_the_partitions_that_begin_before_it() -> None:
    level_3, level_2 = at(1, 6, 40) // 400_000, at(1, 6, 20) // 20_000

    assert not LAYOUT.reached(3, level_3, at(1, 6, 40))
    assert LAYOUT.reached(3, level_3, at(1, 7, 0))
    assert not LAYOUT.reached(2, level_2, at(1, 6, 20))
    assert LAYOUT.reached(2, level_2, at(1, 6, 40))
    assert not LAYOUT.reached(NEAR, 0, at(1, 6, 40)), "what is near stays near"


@pytest.mark.parametrize(
    ("due", "place"),
    [
        (at(0, 59, 59) + 999, (NEAR, 179)),
        (at(1, 0, 0), (2, 180)),
        (at(1, 6, 39) + 999, (2, 199)),
        (at(1, 6, 40), (3, 10)),
        (at(3, 13, 19) + 999, (3, 28)),
        (at(3, 13, 20), (4, 1)),
        (YEAR_9999, (4, 31_675_287)),
        (at(0, 59, 20), (NEAR, 178)),
        (at(0, 59, 20) - 1, (NEAR, 178)),
        (-1, (NEAR, 178)),
    ],
)
def test_the_edges_at_one_o_clock(due: int, place: tuple[int, int]) -> None:
    assert placed(LAYOUT, due, HOUR) == place


def test_a_size_above_32_puts_neighbouring_slots_together_on_every_level() -> None:
    layout = StoreLayout(Wheel(1_000, 100, 4), state_levels=1)

    assert [layout.width_ms(level) for level in layout.far_levels] == [400_000, 40_000_000, 4_000_000_000]


def test_without_levels_in_the_state_the_horizon_says_how_wide_a_window_is() -> None:
    one_level = StoreLayout(Wheel(1_000, 7_200, 1), state_levels=0, state_horizon_ms=600_500)
    assert (one_level.window_ms, list(one_level.far_levels)) == (600_000, [1])
    assert placed(one_level, 600_000, 600_000) == (1, 1)
    assert placed(one_level, YEAR_9999, 600_000) == (1, YEAR_9999 // 600_000)

    three_levels = StoreLayout(Wheel(1_000, 20, 3), state_levels=0, state_horizon_ms=600_000)
    assert [three_levels.width_ms(level) for level in (1, 2, 3)] == [600_000, 12_000_000, 240_000_000]


# --- the cursor -----------------------------------------------------------------------------------


def test_the_cursor_is_the_first_window_beyond_clock_and_lead_and_moves_on_a_bit_before_the_clock_is_there() -> (
    None
):
    assert LAYOUT.lead_ms == 10_000
    assert [LAYOUT.cursor_of(clock) for clock in (0, 9_999, 10_000, -1, -10_001, -30_001)] == [
        20_000,
        20_000,
        40_000,
        20_000,
        0,
        -20_000,
    ]
    assert [LAYOUT.is_due(clock, 20_000) for clock in (0, 14_999, 15_000, 50_000)] == [
        False,
        False,
        True,
        True,
    ]


def test_the_lead_is_never_more_than_a_minute() -> None:
    assert StoreLayout(Wheel(1_000, 20, 4), state_levels=2).lead_ms == 60_000


def test_at_the_end_of_time_the_cursor_stands_and_is_not_due_for_ever() -> None:
    last = LAYOUT.cursor_of(INT64_MAX)

    assert last == INT64_MAX // 20_000 * 20_000
    assert not LAYOUT.is_due(INT64_MAX, last)


@given(layouts(), st.one_of(st.integers(-10_000, 10_000), st.integers(INT64_MIN, 2**62)))
def test_a_due_cursor_always_has_somewhere_to_go(layout: StoreLayout, clock_ms: int) -> None:
    cursor = layout.cursor_of(clock_ms)

    assert cursor % layout.window_ms == 0
    if cursor < INT64_MAX // layout.window_ms * layout.window_ms:
        assert clock_ms + layout.lead_ms < cursor <= clock_ms + layout.lead_ms + layout.window_ms
    assert not layout.is_due(clock_ms, cursor)
    if layout.is_due(clock_ms, cursor - layout.window_ms):
        assert layout.cursor_of(clock_ms) > cursor - layout.window_ms


# --- properties of places -------------------------------------------------------------------------


@given(with_cursors())
def test_numpy_places_by_the_rule(drawn: tuple[StoreLayout, list[int], list[int]]) -> None:
    layout, cursors, dues = drawn
    for cursor in cursors:
        levels, slots = layout.place(np.array(dues, dtype=np.int64), cursor)

        assert (levels.dtype, slots.dtype) == (np.int32, np.int64)
        expected = [placed(layout, due, cursor) for due in dues]
        assert list(zip(levels.tolist(), slots.tolist(), strict=True)) == expected


@given(with_cursors())
def test_partitions_are_disjoint_nested_and_hold_what_lies_in_them(
    drawn: tuple[StoreLayout, list[int], list[int]],
) -> None:
    layout, cursors, dues = drawn
    widths = [layout.width_ms(level) for level in layout.far_levels]

    assert [wide % narrow for narrow, wide in pairwise(widths)] == [0] * (len(widths) - 1)
    for level, slot, due in ((*placed(layout, due, cursors[0]), due) for due in dues):
        if level != NEAR:
            assert slot * layout.width_ms(level) <= due < (slot + 1) * layout.width_ms(level)


@given(with_cursors())
def test_near_is_what_is_due_before_the_cursor_in_one_of_two_partitions(
    drawn: tuple[StoreLayout, list[int], list[int]],
) -> None:
    layout, cursors, dues = drawn
    for cursor in cursors:
        places = {due: placed(layout, due, cursor) for due in dues}
        near = {due: slot for due, (level, slot) in places.items() if level == NEAR}

        assert set(near) == {due for due in dues if due < cursor}
        assert set(near.values()) <= {cursor // layout.window_ms - 2, cursor // layout.window_ms - 1}


@given(with_cursors())
def test_an_intake_never_writes_into_a_partition_that_its_cursor_has_reached(
    drawn: tuple[StoreLayout, list[int], list[int]],
) -> None:
    layout, cursors, dues = drawn
    for cursor in cursors:
        for level, slot in (placed(layout, due, cursor) for due in dues):
            assert not layout.reached(level, slot, cursor)


@given(with_cursors())
def test_whole_reached_partitions_empty_to_lower_levels_once_for_each_and_nothing_due_stays_far(
    drawn: tuple[StoreLayout, list[int], list[int]],
) -> None:
    layout, cursors, dues = drawn
    places = {due: placed(layout, due, cursors[0]) for due in dues}
    for cursor in cursors:
        for due, (level, slot) in places.items():
            if layout.reached(level, slot, cursor):
                places[due] = placed(layout, due, cursor)
                assert places[due][0] < level
                assert not layout.reached(*places[due], cursor), (
                    "one cascade is enough, however far the cursor jumped"
                )
        assert [due for due, (level, _) in places.items() if level != NEAR and due < cursor] == []


# --- the shape's rules ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"state_levels": -1}, "state_levels"),
        ({"state_levels": 4}, "state_levels"),
        ({"state_levels": True}, "state_levels"),
        ({"state_levels": 0}, "state_horizon_ms"),
        ({"state_levels": 0, "state_horizon_ms": 999}, "state_horizon_ms"),
        ({"state_levels": 1, "state_horizon_ms": 60_000}, "state_horizon_ms"),
        ({"state_levels": 0, "state_horizon_ms": 2**60}, "wheel"),
    ],
)
def test_a_layout_that_cannot_be_names_field_value_rule_and_hint(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreLayout(SECONDS, **changes)
    assert caught.value.field == field
    assert None not in (caught.value.value, caught.value.rule, caught.value.hint)


@pytest.mark.parametrize("level", [0, 1, 5])
def test_a_level_that_is_not_in_the_store_has_no_width(level: int) -> None:
    with pytest.raises(GeometryError, match="no such level"):
        LAYOUT.width_ms(level)


def test_only_multiples_of_the_window_are_cursors() -> None:
    with pytest.raises(AssertionError, match="no multiple of the window"):
        LAYOUT.place(np.array([0], dtype=np.int64), 20_001)


def test_the_fingerprint_tells_layouts_apart_and_a_layout_can_be_sent() -> None:
    horizon = StoreLayout(SECONDS, 0, 60_000)

    assert LAYOUT.fingerprint() == "tick_ms=1000,size=20,levels=4,state_levels=1"
    assert horizon.fingerprint() == "tick_ms=1000,size=20,levels=4,state_levels=0,state_horizon_ms=60000"
    assert pickle.loads(pickle.dumps(LAYOUT)) == LAYOUT
    assert [StoreLayout.parse(each.fingerprint()) for each in (LAYOUT, horizon)] == [LAYOUT, horizon]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tick_ms=1000",
        "tick_ms=1000,size=20,levels=4,state_levels=9",
        "tick_ms=1000,size=20,levels=4,state_levels=1,x=2",
    ],
)
def test_what_is_no_fingerprint_of_a_layout_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not the layout of a slot store"):
        StoreLayout.parse(text)
