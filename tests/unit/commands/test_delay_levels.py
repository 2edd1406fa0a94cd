"""Delay levels: the worked examples, every edge, what can be no list."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.delay_levels import error_of, level_of
from wheel_udf.commands.delay_levels import (
    DEFAULT_LIST_MS,
    LONGEST_LEVEL_MS,
    NO_LEVEL,
    BinaryLevels,
    FixedLevels,
    Levels,
    level_name,
    refused_beyond_ms,
)
from wheel_udf.common.errors import ConfigError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
HOSTILE_MS = (INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2**53, 2**53 + 1, 2**60, 2**62, INT64_MAX - 1, INT64_MAX)


def policies() -> st.SearchStrategy[Levels]:
    spans = st.integers(1, 100) | st.integers(1, LONGEST_LEVEL_MS)
    lists = st.lists(spans, min_size=1, max_size=64, unique=True).map(sorted).map(tuple)
    return st.builds(FixedLevels, lists, st.sampled_from(("reject", "top", "exact"))) | st.builds(
        BinaryLevels, spans
    )


@st.composite
def asked(draw: st.DrawFn) -> tuple[Levels, list[int]]:
    """A policy, and delays of which many lie on the edges of its levels."""
    levels = draw(policies())
    spans = (
        levels.list_ms
        if isinstance(levels, FixedLevels)
        else [levels.tick_ms << k for k in range(63) if levels.tick_ms << k <= INT64_MAX]
    )
    edges = st.builds(
        lambda span, off: min(INT64_MAX, span + off), st.sampled_from(spans), st.integers(-1, 1)
    )
    delays = (
        edges | st.sampled_from(HOSTILE_MS) | st.integers(INT64_MIN, INT64_MAX) | st.integers(-100, 100_000)
    )
    return levels, draw(st.lists(delays, max_size=20))


def place(levels: Levels, delay_ms: int) -> tuple[int, int]:
    level_ms = level_of(levels, delay_ms)
    return level_ms, error_of(levels, delay_ms, level_ms)


@pytest.mark.parametrize(
    ("delay_ms", "level_ms", "error_ms"),
    [
        (17_000, 30_000, 13_000),
        (30_000, 30_000, 0),
        (30_001, 60_000, 29_999),
        (1, 5_000, 4_999),
        (0, NO_LEVEL, 0),
        (-1, NO_LEVEL, 0),
        (INT64_MIN, NO_LEVEL, 0),
        (7_200_000, 7_200_000, 0),
    ],
)
def test_a_delay_is_rounded_up_to_the_next_level_and_one_that_is_over_is_not(
    delay_ms: int, level_ms: int, error_ms: int
) -> None:
    assert place(FixedLevels(), delay_ms) == (level_ms, error_ms)


def test_beyond_the_last_level_a_delay_is_refused_or_fires_earlier_or_is_kept() -> None:
    assert DEFAULT_LIST_MS[-1] == 7_200_000
    assert refused_beyond_ms(FixedLevels()) == 7_200_000
    assert place(FixedLevels(on_beyond="top"), 7_200_001) == (7_200_000, -1)
    assert place(FixedLevels(on_beyond="exact"), 7_200_001) == (NO_LEVEL, 0)
    assert refused_beyond_ms(FixedLevels(on_beyond="top")) is None
    assert refused_beyond_ms(BinaryLevels(1)) is None


@pytest.mark.parametrize(
    ("delay_ms", "level_ms"),
    [
        (13_000, 8_000),
        (8_000, 8_000),
        (7_999, 4_000),
        (1_000, 1_000),
        (999, NO_LEVEL),
        (0, NO_LEVEL),
        (-8_000, NO_LEVEL),
    ],
)
def test_a_binary_level_is_the_highest_power_of_two_ticks_that_is_not_above_the_delay(
    delay_ms: int, level_ms: int
) -> None:
    assert place(BinaryLevels(1_000), delay_ms) == (level_ms, 0)


@given(asked=asked())
def test_the_error_is_what_the_level_adds_and_never_early_but_for_the_top_level(
    asked: tuple[Levels, list[int]],
) -> None:
    levels, delays = asked
    for delay_ms in delays:
        level_ms, error_ms = place(levels, delay_ms)
        assert level_ms == NO_LEVEL or levels.has(level_ms)
        if isinstance(levels, BinaryLevels):
            assert error_ms == 0
            assert level_ms == NO_LEVEL or level_ms <= delay_ms < 2 * level_ms
        else:
            assert error_ms == 0 or delay_ms + error_ms == level_ms
            assert error_ms >= 0 or (levels.on_beyond, level_ms) == ("top", levels.list_ms[-1])
            assert all(each < delay_ms for each in levels.list_ms if each < level_ms)


@pytest.mark.parametrize(
    "list_ms", [(), (0,), (-1, 5), (5, 5), (10, 5), (1.5,), (True, 5), (2**60 + 1,), tuple(range(1, 66))]
)
def test_a_list_of_levels_is_positive_rising_and_not_endless(list_ms: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="not a list of delay levels: list_ms"):
        FixedLevels(list_ms)


def test_other_words_and_ticks_are_refused() -> None:
    with pytest.raises(ConfigError, match="reject, top, exact"):
        FixedLevels(on_beyond="drop")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not a tick"):
        BinaryLevels(0)


def test_a_level_is_named_by_its_span_in_the_largest_unit_that_is_whole() -> None:
    names = "5s 10s 30s 1m 2m 5m 10m 20m 30m 45m 1h 2h"
    assert " ".join(map(level_name, DEFAULT_LIST_MS)) == names
    assert [level_name(ms) for ms in (1, 1_500, 90_000, 5_400_000, 86_400_000)] == [
        "1ms",
        "1500ms",
        "90s",
        "90m",
        "1d",
    ]
