"""How the shards divide the most rows of a batch, and how the division travels with the clock."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, strategies as st

from tests.unit.control.ticks import ticks_of
from wheel_udf.control.board import ShardBoard, ShardReport
from wheel_udf.control.clocks import EventClock
from wheel_udf.control.reports import post_reports
from wheel_udf.control.shares import even_share, shares_of
from wheel_udf.control.source import ClockReader


def answer(*, behind: bool, released: int = 0) -> ShardReport:
    return ShardReport(
        1, 5 if behind else 20, clock_ms=10, watermark_ms=10, held_input=False, released=released
    )


def answers(*behind: bool, released: tuple[int, ...] = (0, 0, 0, 0)) -> dict[int, ShardReport]:
    return {shard: answer(behind=each, released=released[shard]) for shard, each in enumerate(behind)}


def test_the_shard_that_is_behind_gets_what_the_others_do_not_release() -> None:
    released = (25, 2, 0, 9)
    assert shares_of(100, answers(True, False, False, False, released=released), 4) == [75, 4, 3, 18]


def test_the_shares_are_even_if_no_shard_is_behind_or_all_are_or_one_has_not_answered() -> None:
    assert shares_of(100, answers(False, False, False, False), 4) is None
    assert shares_of(100, answers(True, True, True, True), 4) is None
    assert shares_of(100, answers(True, False), 4) is None
    assert shares_of(3, answers(True, False, False, False), 4) is None


@given(
    limit=st.integers(1, 1_000),
    standing=st.lists(st.tuples(st.booleans(), st.integers(0, 400)), min_size=1, max_size=9),
)
def test_the_shares_keep_the_limit_and_cost_no_shard_that_is_behind(
    limit: int, standing: list[tuple[bool, int]]
) -> None:
    shards = len(standing)
    told = {n: answer(behind=behind, released=released) for n, (behind, released) in enumerate(standing)}
    shares = shares_of(limit, told, shards)
    if shares is None:
        return
    assert sum(shares) == limit
    for shard, (behind, released) in enumerate(standing):
        even = even_share(limit, shard, shards)
        assert shares[shard] >= (even if behind else max(1, min(even, 2 * released)))


def reader(folder: Path, limit: int | None) -> ClockReader:
    return ClockReader(EventClock(), 4, ShardBoard(str(folder)), limit=limit)


def test_the_offset_carries_the_shares_of_its_batch_and_not_those_of_the_one_before(tmp_path: Path) -> None:
    clock = reader(tmp_path, 100)
    first = clock.latestOffset(clock.initialOffset())
    assert "shares" not in first
    post_reports(clock.board, "query", clock.run, answers(True, False, False, False))
    second = clock.latestOffset(first)
    assert second["shares"] == [91, 3, 3, 3]
    assert [tick.share for tick in ticks_of(clock, first, second)] == [91, 3, 3, 3]
    post_reports(clock.board, "query", clock.run, answers(True, True, True, True))
    third = clock.latestOffset(second)
    assert "shares" not in third
    assert [tick.share for tick in ticks_of(clock, second, third)] == [None] * 4


def test_a_repeated_batch_has_the_shares_of_its_offset_whatever_the_shards_say_now(tmp_path: Path) -> None:
    after_restart = reader(tmp_path, 100)
    ticks = ticks_of(after_restart, {"wheel_clock": 1}, {"wheel_clock": 2, "shares": [70, 10, 10, 10]})
    assert [tick.share for tick in ticks] == [70, 10, 10, 10]


def test_a_query_without_a_limit_has_no_shares(tmp_path: Path) -> None:
    ticks = ticks_of(
        reader(tmp_path, None), {"wheel_clock": 1}, {"wheel_clock": 2, "shares": [70, 10, 10, 10]}
    )
    assert [tick.share for tick in ticks] == [None] * 4
