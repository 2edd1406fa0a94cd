"""Plain int and numpy geometry: the shape's rules, a worked example, every level edge, int against numpy."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from wheel_udf.common.errors import GeometryError, WheelError
from wheel_udf.common.geometry import (
    INT64_MAX,
    INT64_MIN,
    Wheel,
    bucket_interval,
    level_of,
    levels_of,
    slot_of,
    slots_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


KAFKA = Wheel(tick_ms=1, size=20, levels=3)
YEAR_9999 = 253_402_300_799_999


def int64s() -> st.SearchStrategy[int]:
    extremes = st.sampled_from(
        [INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2**53, YEAR_9999, INT64_MAX - 1, INT64_MAX]
    )
    return st.one_of(extremes, st.integers(-5_000, 5_000), st.integers(INT64_MIN, INT64_MAX))


@st.composite
def wheels(draw: st.DrawFn) -> Wheel:
    size = draw(st.one_of(st.integers(2, 100), st.integers(2, 2**40)))
    most = next(n for n in range(63, 0, -1) if size**n <= INT64_MAX)
    levels = draw(st.integers(1, most))
    tick_ms = draw(st.one_of(st.just(1), st.integers(1, INT64_MAX // size**levels)))
    return Wheel(tick_ms, size, levels)


@st.composite
def placed(draw: st.DrawFn) -> tuple[Wheel, int, list[int]]:
    """A wheel, a clock, and due times of which many lie on the edges of that clock's levels."""
    wheel, clock_ms = draw(wheels()), draw(int64s())
    ticks_ms = [wheel.tick_of(level) for level in range(1, wheel.levels + 1)]
    edges = [
        clock_ms // u * u + n * u + step for u in ticks_ms for n in (0, 1, wheel.size) for step in (-1, 0)
    ]
    inside = [edge for edge in edges if INT64_MIN <= edge <= INT64_MAX]
    due = int64s() if not inside else st.one_of(int64s(), st.sampled_from(inside))
    return wheel, clock_ms, draw(st.lists(due, max_size=20))


def test_a_level_is_as_wide_as_one_slot_of_the_level_above() -> None:
    assert [(KAFKA.tick_of(k), KAFKA.interval_of(k)) for k in (1, 2, 3)] == [(1, 20), (20, 400), (400, 8_000)]


def test_450_ms_lies_on_level_3_then_2_then_1_as_the_clock_comes_near() -> None:
    def place(clock_ms: int) -> tuple[int, int, tuple[int, int]]:
        level = level_of(KAFKA, 450, clock_ms)
        slot = slot_of(KAFKA, level, 450)
        return level, slot, bucket_interval(KAFKA, level, slot)

    assert place(0) == (3, 1, (400, 800))
    assert place(400) == (2, 22, (440, 460))
    assert place(440) == (1, 450, (450, 451))


@pytest.mark.parametrize(
    ("deliver_at_ms", "clock_ms", "level"),
    [
        #   clock 0:  level 1 [.., 20)   level 2 [20, 400)   level 3 [400, ..)
        (0, 0, 1),
        (19, 0, 1),
        (20, 0, 2),
        (399, 0, 2),
        (400, 0, 3),
        (7_999, 0, 3),
        (8_000, 0, 3),
        (YEAR_9999, 0, 3),
        (INT64_MAX, 0, 3),
        (-1, 0, 1),
        (INT64_MIN, 0, 1),
        #   clock 19: level 2's own clock still stands at 0
        (38, 19, 1),
        (39, 19, 2),
        (399, 19, 2),
        (400, 19, 3),
        #   clock 20: level 2's clock steps on to 20
        (419, 20, 2),
        (420, 20, 3),
        #   clock -1: level clocks are -1, -20, -400
        (18, -1, 1),
        (19, -1, 2),
        (379, -1, 2),
        (380, -1, 3),
        #   the extremes
        (INT64_MAX, INT64_MAX, 1),
        (INT64_MIN, INT64_MIN, 1),
        (INT64_MIN + 20, INT64_MIN, 2),
        (INT64_MAX, INT64_MIN, 3),
        (INT64_MIN, INT64_MAX, 1),
    ],
)
def test_the_level_at_every_edge_in_both_forms(deliver_at_ms: int, clock_ms: int, level: int) -> None:
    assert level_of(KAFKA, deliver_at_ms, clock_ms) == level
    assert levels_of(KAFKA, np.array([deliver_at_ms]), clock_ms).tolist() == [level]


@pytest.mark.parametrize(
    ("level", "deliver_at_ms", "slot", "bucket"),
    [
        (1, -1, -1, (-1, 0)),
        (2, -1, -1, (-20, 0)),
        (2, -20, -1, (-20, 0)),
        (2, -21, -2, (-40, -20)),
        (3, 8_000, 20, (8_000, 8_400)),
        (3, INT64_MAX, 23_058_430_092_136_939, (9_223_372_036_854_775_600, INT64_MAX)),
        (3, INT64_MIN, -23_058_430_092_136_940, (INT64_MIN, -9_223_372_036_854_775_600)),
    ],
)
def test_slot_and_bucket_round_down_and_stay_within_int64(
    level: int, deliver_at_ms: int, slot: int, bucket: tuple[int, int]
) -> None:
    assert slot_of(KAFKA, level, deliver_at_ms) == slot
    assert bucket_interval(KAFKA, level, slot) == bucket


@given(placed())
def test_the_level_is_the_lowest_whose_interval_holds_the_due_time(
    case: tuple[Wheel, int, list[int]],
) -> None:
    wheel, clock_ms, dues = case
    for due in dues:
        holding = [
            level
            for level in range(1, wheel.levels)
            if due < clock_ms // wheel.tick_of(level) * wheel.tick_of(level) + wheel.interval_of(level)
        ]
        assert level_of(wheel, due, clock_ms) == min(holding, default=wheel.levels)


@given(placed())
def test_int_and_numpy_agree(case: tuple[Wheel, int, list[int]]) -> None:
    wheel, clock_ms, dues = case
    by_int = []
    for due in dues:
        level = level_of(wheel, due, clock_ms)
        slot = slot_of(wheel, level, due)
        by_int.append((level, slot))

    due_times = np.array(dues, dtype=np.int64)
    levels = levels_of(wheel, due_times, clock_ms)
    slots = slots_of(wheel, levels, due_times)
    columns: list[NDArray[Any]] = [levels, slots]
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == by_int


def test_numpy_answers_have_the_types_of_the_contract_and_take_an_empty_array() -> None:
    for dues in (np.array([450], dtype=np.int64), np.array([], dtype=np.int64)):
        levels = levels_of(KAFKA, dues, 0)
        slots = slots_of(KAFKA, levels, dues)
        assert [a.dtype for a in (levels, slots)] == ["int32", "int64"]
        assert {len(a) for a in (levels, slots)} == {len(dues)}


def test_a_clock_that_is_a_numpy_number_does_not_overflow() -> None:
    assert levels_of(KAFKA, np.array([INT64_MAX]), np.int64(INT64_MAX)).tolist() == [1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tick_ms", "size", "levels", "complaint"),
    [
        (0, 20, 3, "tick_ms = 0; rule: a whole number, at least 1"),
        (-1, 20, 3, "tick_ms = -1; rule: a whole number, at least 1"),
        (1.5, 20, 3, "tick_ms = 1.5; rule: a whole number, at least 1"),
        (True, 20, 3, "tick_ms = True; rule: a whole number, at least 1"),
        (1, 1, 3, "size = 1; rule: a whole number, at least 2"),
        (1, 20, 0, "levels = 0; rule: a whole number, at least 1"),
        (1, 2, 63, "(1, 2, 63); rule: tick_ms * size**levels below 2**63"),
        (2**61, 2, 2, "rule: tick_ms * size**levels below 2**63"),
        (1_000, 20, 10**12, "rule: tick_ms * size**levels below 2**63"),
    ],
)
def test_a_wheel_that_cannot_be_built_says_which_number_is_wrong(
    tick_ms: int, size: int, levels: int, complaint: str
) -> None:
    with pytest.raises(GeometryError) as raised:
        Wheel(tick_ms, size, levels)
    assert complaint in str(raised.value)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, WheelError)


def test_the_largest_wheels_can_be_built() -> None:
    assert Wheel(1, 2, 62).interval_of(62) == 2**62
    assert Wheel(INT64_MAX // 2, 2, 1).interval_of(1) == INT64_MAX - 1


@pytest.mark.parametrize("level", [0, 4, -1])
def test_a_level_outside_the_wheel_is_an_error_and_not_another_level(level: int) -> None:
    with pytest.raises(GeometryError, match="from 1 to 3"):
        KAFKA.tick_of(level)
    with pytest.raises(GeometryError, match="from 1 to 3"):
        slot_of(KAFKA, level, 450)
    with pytest.raises(AssertionError, match="no such level"):
        slots_of(KAFKA, np.array([level], dtype=np.int32), np.array([450]))


def test_a_wheel_is_a_value_that_travels_by_pickle_and_has_a_fingerprint() -> None:
    assert pickle.loads(pickle.dumps(KAFKA)) == KAFKA
    assert len({KAFKA, Wheel(1, 20, 3), Wheel(1, 20, 4)}) == 2
    assert Wheel(tick_ms=1_000, size=20, levels=6).fingerprint() == "tick_ms=1000,size=20,levels=6"


def test_importing_the_geometry_does_not_import_pyspark() -> None:
    program = "import sys, wheel_udf.common.geometry; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
