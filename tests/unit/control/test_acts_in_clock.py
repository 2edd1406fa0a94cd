"""Acts travel with the clock: their number is in its offset, their rows are in the ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.control.test_clock import Run
from tests.unit.control.ticks import ticks_of
from wheel_udf.control.board import ACTS, FRAMES, ActRows, Link, ShardBoard
from wheel_udf.control.clocks import EventClock, SimulatedClock
from wheel_udf.control.source import ClockReader

if TYPE_CHECKING:
    from pathlib import Path


def rows(run: Run, start: dict[str, Any]) -> list[tuple[str, ...]]:
    """What the ticks bring to each shard."""
    return [tick.acts for tick in ticks_of(run.reader, start, run.offset)]


def test_a_new_act_is_a_reason_for_a_tick_and_is_taken_once(tmp_path: Path) -> None:
    run = Run(tmp_path, EventClock(heartbeat_ms=10**9))
    run.plan()
    run.answer(None, None)
    assert not run.plan()
    run.board.put(ACTS, f"query/{0}", ActRows({"1": "rows of 1"}))
    run.board.put(ACTS, f"query/{1}", ActRows({"0": "rows of 0", "1": "more of 1"}))
    start = run.offset
    assert run.plan()
    assert run.offset == start | {"query": "query", "acts": 2}
    assert rows(run, start) == [("rows of 0",), ("rows of 1", "more of 1")]
    assert not run.plan()
    run.board.put(ACTS, f"query/{2}", ActRows({"0": "third"}))
    start = run.offset
    assert run.plan()
    assert rows(run, start) == [("third",), ()]


def test_a_tick_for_another_reason_keeps_the_number_of_acts(tmp_path: Path) -> None:
    run = Run(tmp_path, EventClock(heartbeat_ms=10**9))
    run.plan()
    run.answer(None, None, watermark_ms=0)
    run.board.put(ACTS, f"query/{0}", ActRows({"0": "x"}))
    run.plan()
    run.answer(5, None, watermark_ms=9)
    start = run.offset
    assert run.plan()
    assert run.offset == {"wheel_clock": start["wheel_clock"] + 1, "query": "query", "acts": 1}
    assert rows(run, start) == [(), ()]


def test_the_first_tick_after_a_restart_takes_what_was_done_at_rest(tmp_path: Path) -> None:
    board = ShardBoard(str(tmp_path))
    board.put(ACTS, f"query/{3}", ActRows({"0": "x"}))  # 0 to 2 are in committed batches
    board.put(FRAMES, "frame", Link("query"))
    reader = ClockReader(EventClock(), 2, board, "frame")
    end = reader.latestOffset({"wheel_clock": 8, "query": "query", "acts": 3})
    assert end == {"wheel_clock": 9, "query": "query", "acts": 4}
    assert ClockReader(EventClock(), 2, board, "other").latestOffset({"wheel_clock": 8}) == {"wheel_clock": 9}


def test_a_replay_sees_the_acts_of_its_batch_and_not_those_after(tmp_path: Path) -> None:
    board = ShardBoard(str(tmp_path))
    for number in range(3):
        board.put(ACTS, f"query/{number}", ActRows({"0": f"act {number}"}))
    reader = ClockReader(EventClock(), 1, board)
    start, end = (
        {"wheel_clock": 4, "query": "query", "acts": 1},
        {"wheel_clock": 5, "query": "query", "acts": 2},
    )
    assert [tick.acts for tick in ticks_of(reader, start, end)] == [("act 1",)]


def test_an_act_moves_a_simulated_clock_no_further(tmp_path: Path) -> None:
    run = Run(tmp_path, SimulatedClock(start_ms=1_000, step_ms=100))
    run.plan()
    run.answer(10**9, None, clock_ms=1_000)
    run.plan()
    before = run.offset
    run.answer(None, None, clock_ms=before["instant_ms"])
    run.board.put(ACTS, f"query/{0}", ActRows({"0": "x"}))
    assert run.plan()
    assert run.offset == before | {"query": "query", "acts": 1}


def test_an_act_that_was_not_posted_is_an_error_and_not_an_empty_tick(tmp_path: Path) -> None:
    reader = ClockReader(EventClock(), 1, ShardBoard(str(tmp_path)))
    with pytest.raises(FileNotFoundError):
        reader.partitions({"wheel_clock": 1}, {"wheel_clock": 2, "query": "query", "acts": 1})
