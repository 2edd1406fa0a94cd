"""The news of a sender travel with the clock, and three things about it are reasons for a tick. No Spark runs, no time
passes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.control.ticks import ticks_of
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.control import wall as clock_module
from wheel_udf.control.board import SENDERS, STORES, Sending, ShardBoard, ShardReport, StoreProgress
from wheel_udf.control.clocks import ProcessingClock, StoreClock
from wheel_udf.control.reports import post_reports
from wheel_udf.control.source import ClockReader
from wheel_udf.policies.sender_news import Confirmed, SenderNews

if TYPE_CHECKING:
    from pathlib import Path

    from wheel_udf.control.clocks import Clock

FRAME = "frame"
AHEAD_MS = 4_000


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A wall clock that stands at 0 until a test moves it."""
    now = {"ms": 0}
    monkeypatch.setattr(clock_module, "wall_clock_ms", lambda: now["ms"])
    monkeypatch.setattr(clock_module, "elapsed_ms", lambda: now["ms"])
    return now


def news(batch: int, until_ms: int, since: int = 0) -> dict[str, Any]:
    return SenderNews(AHEAD_MS, 100, 10**6, (Confirmed(since, batch, until_ms),)).to_json()


class Run:
    """A query with a sender, as the clock source sees it."""

    def __init__(self, folder: Path, clock: Clock | StoreClock | None = None) -> None:
        self.board = ShardBoard(str(folder))
        clock = clock or ProcessingClock(heartbeat_ms=10**9)
        self.reader = ClockReader(clock, 1, self.board, FRAME, has_sender=True)
        self.offset: dict[str, Any] = self.reader.initialOffset()
        self.batch_id = -1

    def says(self, text: dict[str, Any], failed: int = 0) -> None:
        self.board.put(SENDERS, FRAME, Sending(text, failed))

    def plan(self) -> bool:
        before, self.offset = self.offset, self.reader.latestOffset(self.offset)
        return self.offset != before

    def answer(
        self, next_due_ms: int | None, beyond_ms: int | None = None, complete_ms: int | None = None
    ) -> None:
        self.batch_id += 1
        answer = ShardReport(
            self.batch_id,
            next_due_ms,
            0,
            None,
            held_input=False,
            beyond_ms=beyond_ms,
            complete_ms=complete_ms,
        )
        post_reports(self.board, "query", self.reader.run, {0: answer})


def test_each_tick_carries_the_news_and_a_quiet_sender_is_no_reason_for_one(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path)
    run.says(news(-1, INT64_MAX))
    assert run.plan()
    assert run.offset == {"wheel_clock": 1, "sender": news(-1, INT64_MAX)}
    run.answer(None)
    assert not run.plan()
    run.says(news(0, INT64_MAX))
    assert not run.plan(), "nothing is in flight"


def test_an_entry_that_comes_within_reach_of_the_sender_is_a_reason(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path)
    run.says(news(-1, INT64_MAX))
    run.plan()
    run.answer(10_000, beyond_ms=10_000)
    wall["ms"] = 5_999
    assert not run.plan()
    wall["ms"] = 6_000
    assert run.plan()
    run.answer(6_100, beyond_ms=None)
    assert not run.plan(), "what the batch has seen and not handed over waits for its due time"
    wall["ms"] = 6_100
    assert run.plan()


def test_a_batch_that_is_confirmed_whole_is_a_reason_and_part_of_one_is_not(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path)
    run.says(news(-1, INT64_MAX))
    run.plan()
    run.answer(None, complete_ms=500)
    run.says(news(0, 499))
    assert not run.plan()
    run.says(news(-1, INT64_MAX))
    assert not run.plan(), "the sender has not told that it has got the batch"
    run.says(news(0, 500))
    assert run.plan()
    assert run.offset["sender"] == news(0, 500)


def test_a_sender_that_has_failed_is_a_reason_every_time(tmp_path: Path, wall: dict[str, int]) -> None:
    run = Run(tmp_path)
    run.says(news(-1, INT64_MAX))
    run.plan()
    run.answer(None)
    run.says(news(0, 5), failed=1)
    assert run.plan()
    assert run.plan()


def test_a_replay_sees_the_news_of_its_batch_and_a_query_without_a_sender_none(tmp_path: Path) -> None:
    reader = ClockReader(ProcessingClock(), 1, ShardBoard(str(tmp_path)), FRAME, has_sender=True)
    start, end = {"wheel_clock": 4}, {"wheel_clock": 5, "sender": news(3, 7)}
    assert [each.sender for each in ticks_of(reader, start, end)] == [SenderNews.from_json(news(3, 7))]
    assert [each.sender for each in ticks_of(reader, start, {"wheel_clock": 5})] == [None], (
        "planned while it was off"
    )
    plain = ClockReader(ProcessingClock(), 1, ShardBoard(str(tmp_path)), FRAME)
    assert [each.sender for each in ticks_of(plain, start, end)] == [None]


def test_the_clock_of_a_store_moves_for_the_sender_and_never_past_the_cursor(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path, StoreClock(token="store", heartbeat_ms=10**9))
    run.board.put(STORES, "store", StoreProgress(cursor_ms=8_001, clock_ms=None, version=0))
    run.says(news(-1, INT64_MAX))
    run.plan()
    run.answer(9_000, beyond_ms=9_000)
    wall["ms"] = 4_000
    assert not run.plan()
    wall["ms"] = 5_000
    assert run.plan()
    assert (run.offset["instant_ms"], run.offset["sender"]) == (5_000, news(-1, INT64_MAX))
    run.answer(None, beyond_ms=12_001)
    wall["ms"] = 60_000
    assert not run.plan(), "the clock stands at the cursor, 8,000: its horizon is 12,000"


def test_a_frame_has_one_sender_at_a_time(tmp_path: Path) -> None:
    board = ShardBoard(str(tmp_path))
    assert board.claim(SENDERS, FRAME)
    assert not ShardBoard(str(tmp_path)).claim(SENDERS, FRAME)
    board.put(SENDERS, FRAME, Sending(news(0, 1)))
    board.remove(SENDERS, FRAME)
    assert board.get(SENDERS, FRAME) is None
    assert board.claim(SENDERS, FRAME)
    board.remove(SENDERS, FRAME)
    assert os.listdir(tmp_path / "senders") == []  # noqa: PTH208


def test_damaged_news_are_none(tmp_path: Path) -> None:
    board = ShardBoard(str(tmp_path))
    board.put(SENDERS, FRAME, Sending(news(0, 1)))
    (tmp_path / "senders" / f"{FRAME}.json").write_text('{"news": 7}')
    assert board.get(SENDERS, FRAME) is None
    assert board.get(SENDERS, "../runs") is None
