"""The clock of a store under the event clock: rows that a batch has read without their instant wait for it. No Spark
runs, no time passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from wheel_udf.control import wall as clock_module
from wheel_udf.control.board import STORES, ShardBoard, ShardReport, StoreProgress
from wheel_udf.control.clocks import StoreClock
from wheel_udf.control.reports import post_reports
from wheel_udf.control.source import ClockReader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    now = {"ms": 0}
    monkeypatch.setattr(clock_module, "elapsed_ms", lambda: now["ms"])
    return now


@dataclass
class Run:
    """A query on a store, as the clock source sees it."""

    folder: Path
    leads: bool = True

    def __post_init__(self) -> None:
        self.board = ShardBoard(str(self.folder))
        clock = StoreClock(token="store", heartbeat_ms=10**9, leads=self.leads)
        self.reader = ClockReader(clock, 1, self.board)
        self.offset: dict[str, Any] = self.reader.initialOffset()
        self.batch_id = -1

    def publish(self, clock_ms: int, version: int) -> None:
        self.board.put(STORES, "store", StoreProgress(cursor_ms=10**6, clock_ms=clock_ms, version=version))

    def plan(self) -> bool:
        before, self.offset = self.offset, self.reader.latestOffset(self.offset)
        return self.offset != before

    def answer(self, next_due_ms: int | None, released: int = 0) -> None:
        self.batch_id += 1
        clock_ms = self.offset["instant_ms"]
        answer = ShardReport(self.batch_id, next_due_ms, clock_ms, None, held_input=False, released=released)
        post_reports(self.board, "query", self.reader.run, {0: answer})


def at_1000(run: Run) -> None:
    run.publish(1_000, 3)
    assert run.plan()
    run.answer(None)
    assert not run.plan()


def test_rows_that_were_read_before_their_instant_was_published_are_released_at_it(
    tmp_path: Path, elapsed: dict[str, int]
) -> None:
    run = Run(tmp_path)
    at_1000(run)
    # Spark asks the clock, the intake commits version 4, Spark asks the store: a batch with the rows of version 4 and
    # no instant.
    run.answer(700)
    elapsed["ms"] = 500
    assert not run.plan(), "at 1,000 they would be released by the clock before theirs"
    run.publish(2_000, 4)
    assert run.plan()
    assert (run.offset["instant_ms"], run.offset["version"]) == (2_000, 4)


def test_an_offset_had_the_version_of_one_publication_and_the_instant_of_the_next(
    tmp_path: Path, elapsed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    at_1000(run)
    run.publish(2_000, 4)
    read = ShardBoard.get

    def then_published(board: ShardBoard, topic: Any, key: str) -> Any:
        found = read(board, topic, key)
        if topic is STORES:
            run.publish(found.clock_ms + 1_000, found.version + 1)
        return found

    monkeypatch.setattr(ShardBoard, "get", then_published)
    assert run.plan()
    assert (run.offset["instant_ms"], run.offset["version"]) == (2_000, 4)


def test_what_an_act_has_made_due_has_no_instant_and_is_released_after_two_seconds(
    tmp_path: Path, elapsed: dict[str, int]
) -> None:
    run = Run(tmp_path)
    at_1000(run)
    elapsed["ms"] = 60_000
    run.answer(700)
    assert not run.plan()
    elapsed["ms"] = 61_999
    assert not run.plan()
    elapsed["ms"] = 62_000
    assert run.plan()
    assert run.offset["instant_ms"] == 1_000
    run.answer(None, released=1)
    assert not run.plan()


def test_what_was_cancelled_while_it_waited_left_no_time_to_the_next_that_waits(
    tmp_path: Path, elapsed: dict[str, int]
) -> None:
    run = Run(tmp_path)
    at_1000(run)
    run.answer(700)
    assert not run.plan()
    run.answer(None)
    assert not run.plan()
    elapsed["ms"] = 60_000
    run.answer(700)
    assert not run.plan(), "it waits from now on, not from a minute ago"


def test_a_backlog_over_the_limit_does_not_wait(tmp_path: Path, elapsed: dict[str, int]) -> None:
    run = Run(tmp_path)
    at_1000(run)
    run.answer(700, released=5)
    assert run.plan()
    assert run.offset["instant_ms"] == 1_000


def test_under_the_wall_clock_rows_have_no_instant_and_do_not_wait(
    tmp_path: Path, elapsed: dict[str, int]
) -> None:
    run = Run(tmp_path, leads=False)
    at_1000(run)
    run.answer(700)
    assert run.plan()
