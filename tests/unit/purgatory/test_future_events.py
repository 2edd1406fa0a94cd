"""Rows that the clock has still to pass."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, strategies as st

from wheel_udf.purgatory.future_events import LARGEST_RUN, pass_by
from wheel_udf.shard.chunks import Chunk

SCHEMA = pa.schema([("event_time_ms", pa.int64())])


def step(chunks: list[Chunk], times: list[int], clock: int) -> tuple[list[int], list[Chunk]]:
    passed, left = pass_by(chunks, pa.table({"event_time_ms": times}, schema=SCHEMA), clock)
    return passed["event_time_ms"].to_pylist(), left


def test_a_row_is_passed_when_its_time_is_before_the_clock_and_not_earlier() -> None:
    passed, left = step([], [30, 10, 20], 20)
    assert passed == [10]
    assert [(chunk.rows, chunk.low_ms, chunk.high_ms) for chunk in left] == [(2, 20, 30)]
    assert step(left, [], 20) == ([], left)
    assert step(left, [], 31) == ([20, 30], [])


def test_a_step_opens_the_runs_that_the_clock_has_come_into_and_no_others() -> None:
    _, runs = step([], list(range(4 * LARGEST_RUN)), 0)
    passed, left = step(runs, [], 10)
    assert passed == list(range(10))
    kept = {id(chunk) for chunk in left}
    assert [id(run) in kept for run in runs] == [False, True, True, True]


def test_many_small_batches_do_not_make_many_chunks() -> None:
    left: list[Chunk] = []
    for batch in range(200):
        _, left = step(left, [1_000 + batch] * 20, 0)
    assert len(left) < 6


@given(st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=9), st.integers(0, 55)), max_size=8))
def test_every_row_is_passed_once_by_the_first_clock_behind_it(batches: list[tuple[list[int], int]]) -> None:
    left: list[Chunk] = []
    waiting: list[int] = []
    for times, clock in batches:
        waiting += times
        passed, left = step(left, times, clock)
        assert sorted(passed) == sorted(time for time in waiting if time < clock)
        waiting = [time for time in waiting if time >= clock]
    assert sorted(time for chunk in left for time in chunk.table()["event_time_ms"].to_pylist()) == sorted(
        waiting
    )
