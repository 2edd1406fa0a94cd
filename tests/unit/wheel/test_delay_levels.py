"""Delay levels: the worked examples, every edge, plain int against numpy, what can be no list; and what the wheel
makes of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.rows import ENTRY_SCHEMA
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.delay_levels import (
    DEFAULT_LIST_MS,
    LONGEST_LEVEL_MS,
    NO_LEVEL,
    BinaryLevels,
    FixedLevels,
    Levels,
    error_of,
    errors_of,
    is_beyond,
    level_name,
    level_of,
    levels_of,
)
from wheel_udf.wheel.step import advance

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
    assert [is_beyond(FixedLevels(), delay_ms) for delay_ms in (7_200_000, 7_200_001)] == [False, True]
    assert place(FixedLevels(on_beyond="top"), 7_200_001) == (7_200_000, -1)
    assert place(FixedLevels(on_beyond="exact"), 7_200_001) == (NO_LEVEL, 0)
    assert not is_beyond(FixedLevels(on_beyond="top"), INT64_MAX)
    assert not is_beyond(BinaryLevels(1), INT64_MAX)


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
def test_numpy_says_what_plain_int_says(asked: tuple[Levels, list[int]]) -> None:
    levels, delays = asked
    delay_ms = np.array(delays, np.int64)
    level_ms = levels_of(levels, delay_ms)
    assert level_ms.tolist() == [level_of(levels, each) for each in delays]
    assert errors_of(levels, delay_ms, level_ms).tolist() == [place(levels, each)[1] for each in delays]


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


# ---- in the wheel --------------------------------------------------------------------------------

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)


def entry(
    schedule_id: str, asked_s: int, level_s: int | None, error_s: int = 0, **more: object
) -> dict[str, object]:
    """An entry that is asked for at some second and goes to a level that adds an error."""
    level = {} if level_s is None else {"delay_level_ms": level_s * 1_000, "level_error_ms": error_s * 1_000}
    return {"schedule_id": schedule_id, "deliver_at_ms": (asked_s + error_s) * 1_000} | level | more


def test_pending_is_counted_by_level_from_arrival_to_every_kind_of_end() -> None:
    rows = [
        entry("fires", 17, 30, 13, seq=1),
        entry("cancelled", 29, 30, 1, seq=1),
        entry("replaced", 50, 60, 10, seq=1),
        entry("missed", 30, 30, 0, seq=1, max_lateness_ms=0),
        entry("exact", 9_999, None, seq=1),
    ]
    step = advance(ShardState.empty(WHEEL), commands_table(rows), 0, memory_ms=None)
    assert step.state.levels == {30_000: 3, 60_000: 1}
    ends = [{"schedule_id": "cancelled", "seq": 2, "op": "CANCEL"}, entry("replaced", 100, 120, 20, seq=2)]
    step = advance(step.state, commands_table(ends), 1_000, memory_ms=None)
    assert step.state.levels == {30_000: 2, 120_000: 1}
    stored = ShardState.from_bytes(step.state.to_bytes(), WHEEL)
    step = advance(stored, None, 29_999, memory_ms=None)
    assert not step.changed
    assert step.state.levels == stored.levels
    step = advance(stored, None, 30_001, memory_ms=None)
    assert step.state.levels == {120_000: 1}
    (fired,) = rows_of(step.fired)
    assert (fired["schedule_id"], fired["deliver_at_ms"], fired["level_error_ms"]) == (
        "fires",
        30_000,
        13_000,
    )


@pytest.mark.parametrize(
    ("again", "outcome"),
    [
        # Asked for at 17 s, said at 0 s: level 30s. The same, said at 8 s: 9 s to go, level 10s, so another instant.
        (entry("a", 17, 10, 1, seq_given=False, seq=8), "duplicate"),
        # Asked for at 25 s and said at 0 s: the instant is the same, the command is not.
        (entry("a", 25, 30, 5, seq_given=False, seq=8), "fired"),
    ],
)
def test_a_retry_is_known_by_the_due_time_that_was_asked_for(again: dict[str, object], outcome: str) -> None:
    first = entry("a", 17, 30, 13, seq_given=False, seq=1)
    step = advance(ShardState.empty(WHEEL), commands_table([first]), 30_000, memory_ms=None)
    step = advance(step.state, commands_table([again]), 30_001, memory_ms=None)
    assert step.state.counts[outcome] == (2 if outcome == "fired" else 1)


def test_a_chunk_without_levels_pays_nothing_for_them() -> None:
    plain = commands_table([entry("a", 1, None)]).select(ENTRY_SCHEMA.names)
    leveled = commands_table([entry("a", 1, 5, 4)]).select(ENTRY_SCHEMA.names)
    chunks = [Chunk.of_entries(1, 0, rows) for rows in (plain, leveled)]
    assert len(chunks[0].text) < len(chunks[1].text)
    assert [chunk.table().schema for chunk in chunks] == [ENTRY_SCHEMA, ENTRY_SCHEMA]
    assert chunks[0].table().equals(plain)
    assert chunks[1].table().equals(leveled)
