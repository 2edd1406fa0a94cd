"""How late rows come with and without punctual delivery, on a time line of its own: batches of 700 ms, a trigger of a
second, any ``ahead``.

The clock source, the step and the sender are real; what they take no time for here takes none. So lateness is exact,
and no machine is too slow.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.punctual.test_sender import T0, Broker, timed_records
from wheel_udf.common.geometry import Wheel
from wheel_udf.control import wall as clock_module
from wheel_udf.control.board import SENDERS, Sending, ShardBoard, ShardReport
from wheel_udf.control.clocks import ProcessingClock
from wheel_udf.control.reports import post_reports
from wheel_udf.control.source import ClockReader
from wheel_udf.policies.in_flight import InFlight, beyond_ms, complete_ms, flight_size
from wheel_udf.policies.punctual import Punctual
from wheel_udf.policies.sender_news import SenderNews
from wheel_udf.punctual.sender import Sender
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import advance

if TYPE_CHECKING:
    from pathlib import Path

    from wheel_udf.policies.in_flight import HandOver

BATCH_MS, TRIGGER_MS, STEP_MS = 700, 1_000, 50
LONGEST_MS = TRIGGER_MS + 2 * BATCH_MS
"""Without a sender: a batch that began a moment before the row was due, the wait for the trigger, and the batch that
releases the row.
"""
WHEEL = Wheel(tick_ms=100, size=20, levels=4)


class TimeLine:
    """A query of one shard; all times count from its start."""

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        punctual: Punctual | None,
        said: dict[str, tuple[int, int]],
    ) -> None:
        self.now_ms, self.punctual, self.said = T0, punctual, said
        patch.setattr(clock_module, "wall_clock_ms", lambda: self.now_ms)
        patch.setattr(clock_module, "elapsed_ms", lambda: self.now_ms)
        self.board, self.broker = ShardBoard(str(folder)), Broker()
        clock = ProcessingClock(heartbeat_ms=60_000)
        self.reader = ClockReader(clock, 1, self.board, "frame", has_sender=punctual is not None)
        self.offset: dict[str, Any] = self.reader.initialOffset()
        rows, octets = (punctual.rows, punctual.bytes) if punctual else (0, 0)
        self.sender = Sender(lambda: self.now_ms, 0, rows=rows, octets=octets)
        self.state, self.batches = ShardState.empty(WHEEL), 0
        self.late: dict[str, int] = {}

    def run(self) -> dict[str, int]:
        """By how much each row was late, once all are out."""
        unread = sorted(self.said, key=lambda name: self.said[name][0])
        while len(self.late) < len(self.said):
            self._post()
            before, self.offset = self.offset, self.reader.latestOffset(self.offset)
            read = [name for name in unread if T0 + self.said[name][0] <= self.now_ms]
            unread = unread[len(read) :]
            start_ms = self.now_ms
            if read or self.offset != before:
                self._batch(read, self.offset.get("sender") if self.offset != before else None)
            self._pass((start_ms - T0) // TRIGGER_MS * TRIGGER_MS + TRIGGER_MS + T0)
        return self.late

    def _post(self) -> None:
        if self.punctual is not None:
            ahead_ms = self.punctual.ahead_ms or 0
            news = SenderNews(ahead_ms, *self.sender.free, self.sender.confirmed())
            self.board.put(SENDERS, "frame", Sending(news.to_json()))

    def _batch(self, read: list[str], news: dict[str, Any] | None) -> None:
        over: HandOver | None = None
        if self.punctual is not None:
            told = SenderNews.from_json(news) if news else None
            over = self.punctual.hand_over(self.batches, 0, 1, told, lambda: flight_size(self.state))
        rows = [{"schedule_id": name, "seq": 1, "deliver_at_ms": T0 + self.said[name][1]} for name in read]
        step = advance(
            self.state,
            commands_table(rows) if rows else None,
            self.now_ms,
            memory_ms=None,
            policies=Policies(hold=InFlight(over)),
        )
        self.state = step.state
        self._pass(self.now_ms + BATCH_MS // 2)
        handed = {row["schedule_id"]: row["deliver_at_ms"] - T0 for row in rows_of(step.handed)}
        self.sender.give(self.batches, [(self.broker, timed_records(handed))] if handed else [])
        assert self.punctual is None or self.sender.held[0] <= self.punctual.rows, "more than it has room for"
        self._pass(self.now_ms + BATCH_MS // 2)
        for row in rows_of(step.fired):
            self._came(row["schedule_id"])
        answer = ShardReport(
            self.batches,
            self.state.next_due_ms,
            step.clock_ms,
            None,
            held_input=bool(read),
            beyond_ms=beyond_ms(self.state, over.horizon_ms(step.clock_ms)) if over else None,
            complete_ms=complete_ms(self.state) if over else None,
        )
        post_reports(self.board, "query", self.reader.run, {0: answer})
        self.batches += 1

    def _pass(self, until_ms: int) -> None:
        """Time passes, and the sender sends what comes due."""
        while True:
            seen = len(self.broker.records)
            self.sender.turn()
            for key in self.broker.keys[seen:]:
                self._came(key.decode())
            self.broker.acknowledge()
            self.sender.turn()
            if self.now_ms >= until_ms:
                return
            self.now_ms += STEP_MS

    def _came(self, name: str) -> None:
        assert name not in self.late, "twice"
        self.late[name] = self.now_ms - T0 - self.said[name][1]


def said(longest_ms: int, seed: int) -> dict[str, tuple[int, int]]:
    """Rows by id: when each is read at the earliest, and when it is due, some at once and some much later."""
    rng = random.Random(seed)
    reads = (rng.randrange(0, 20_000, STEP_MS) for _ in range(60))
    return {
        f"r{number}": (read_ms, read_ms + rng.randrange(0, longest_ms, STEP_MS))
        for number, read_ms in enumerate(reads)
    }


CASES = {
    "smaller than a batch": Punctual(ahead_ms=100),
    "as long as a batch": Punctual(ahead_ms=700),
    "four seconds": Punctual(ahead_ms=4_000),
    "ten minutes": Punctual(ahead_ms=600_000),
    "ten minutes and little room": Punctual(ahead_ms=600_000, rows=3),
    "no room": Punctual(ahead_ms=4_000, rows=0),
}


@pytest.mark.parametrize(("longest_ms", "seed"), [(2_000, 1), (20_000, 2)])
@pytest.mark.parametrize("case", CASES)
def test_no_row_is_early_or_later_than_it_may_be_without_a_sender_whatever_ahead_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, longest_ms: int, seed: int
) -> None:
    rows = said(longest_ms, seed)
    without = TimeLine(tmp_path / "without", monkeypatch, None, rows).run()
    late = TimeLine(tmp_path / "with", monkeypatch, CASES[case], rows).run()
    assert late.keys() == without.keys() == rows.keys()
    assert min(late.values()) >= 0
    assert max(without.values()) <= LONGEST_MS
    assert max(late.values()) <= LONGEST_MS
    if CASES[case].rows > 3:
        assert sum(late.values()) <= sum(without.values())


@pytest.mark.parametrize("ahead_ms", [4_000, 600_000])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_row_that_is_known_two_batches_and_a_trigger_before_it_is_due_comes_at_its_due_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_ms: int, seed: int
) -> None:
    rows = said(20_000, seed)
    late = TimeLine(tmp_path, monkeypatch, Punctual(ahead_ms=ahead_ms), rows).run()
    known = [name for name, (read_ms, due_ms) in rows.items() if due_ms - read_ms >= LONGEST_MS]
    assert len(known) > 30
    assert {name: late[name] for name in known if late[name]} == {}
