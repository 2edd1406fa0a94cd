"""A query with a sender over several starts, as its promises see it: the step, the sender and its note, and a broker, a
journal and a wall clock by hand.

::

    commands, clock, news --plan, journaled--> advance --> give --> write what is due --> commit
                                                 |          |            |
                                               crash      crash        crash     the next start plans the same batch again

Beside it a model that knows nothing of chunks and confirmations: which ids are said, cancelled, out of reach of a
cancel, and what a topic has got.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.punctual.test_sender import T0, Message, timed_records
from wheel_udf.common.geometry import INT64_MAX, Wheel
from wheel_udf.policies.in_flight import InFlight, flight_size
from wheel_udf.policies.punctual import Punctual
from wheel_udf.policies.sender_news import SenderNews
from wheel_udf.punctual.sender import Sender
from wheel_udf.punctual.sender_note import SenderNote
from wheel_udf.shard.chunks import NO_SENDER
from wheel_udf.shard.shard_text import entries_of_text
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=1, size=20, levels=3)
POINTS = ("before the hand-over", "after the hand-over", "after the write")


class CrashError(Exception):
    """The process ends here."""


class Files:
    """The folder of the checkpoint, which outlives a process."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._content.get(name)

    def replace(self, name: str, content: bytes) -> None:
        self._content[name] = content


class Topic:
    """What has arrived, whoever has sent it."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()


class Broker:
    """The producer of one start. A heap of the due times that were given says which record has to be next."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.due: list[int] = []
        self.unknown: dict[str, int] = {}
        self.wrong: list[str] = []
        self._open: list[tuple[str, Any]] = []
        self._ready: list[tuple[str, Any, object]] = []
        self._hurries = 0

    def expect(self, dues: dict[str, int]) -> None:
        """Records that the sender gets."""
        self.unknown |= dues
        for due_ms in dues.values():
            heapq.heappush(self.due, due_ms)

    def produce(self, topic: str, *, on_delivery: Any, key: bytes, **_: Any) -> None:  # noqa: ARG002
        due_ms = self.unknown[key.decode()]
        # Said later: the sender takes whatever a producer raises for a fault of its own.
        if due_ms > self._life.now_ms:
            self.wrong.append("early")
        if due_ms != heapq.heappop(self.due):
            self.wrong.append("not the oldest")
        self._open.append((key.decode(), on_delivery))

    def acknowledge(self, most: int = 10**9, fault: object = None) -> None:
        """The broker has some records; the sender knows it when it polls."""
        taken, self._open = self._open[:most], self._open[most:]
        for name, callback in taken:
            if fault is None:
                self._life.topic.times[name] += 1
            self._ready.append((name, callback, fault))

    def poll(self, timeout: float) -> int:
        if timeout:
            self.acknowledge(1)
        ready, self._ready = self._ready, []
        for name, callback, fault in ready:
            if fault is None:
                del self.unknown[name]
            callback(fault, Message("out"))
        return len(ready)

    def hurry(self) -> None:
        # Each second time the broker is fast enough: the sender gets an acknowledgement in the middle of a turn.
        self._hurries += 1
        self.acknowledge(self._hurries % 2)
        self.poll(0)

    def flush(self, timeout: float) -> int:  # noqa: ARG002
        self.acknowledge()
        return self.poll(0)

    def purge(self) -> None:
        self._open = []


@dataclass(frozen=True)
class Plan:
    """What Spark journals of a batch before it runs."""

    commands: tuple[dict[str, Any], ...]
    clock_ms: int
    news: SenderNews | None


@dataclass
class Life:
    """The query and its model.

    Attributes:
        punctual: The settings.
        now_ms: The wall clock.
        dues: Each id that was said, and when it is due.
        cancelled: Ids whose cancel came in time.
        gone: Ids that a committed batch has released or handed over.
        crashes: How many starts did not end by themselves.
    """

    punctual: Punctual
    now_ms: int = T0
    dues: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    late: int = 0
    crashes: int = 0
    _tried: set[str] = field(default_factory=set)
    _batch: int = 0
    _planned: Plan | None = None

    def __post_init__(self) -> None:
        self.state, self.topic, self.files = ShardState.empty(WHEEL), Topic(), Files()
        self.start()

    # ---- starts and ends -----------------------------------------------------------------------------

    def start(self) -> None:
        """A new process."""
        self.broker, self._note = Broker(self), SenderNote(self.files)
        self.sender = Sender(
            lambda: self.now_ms,
            self._batch,
            rows=self.punctual.rows,
            octets=self.punctual.bytes,
            earlier=self._note.read(self._batch),
        )
        self.note()

    def crash(self) -> None:
        """The process is killed, and started again."""
        self.crashes += 1
        self.start()

    def repair(self) -> None:
        """The process is killed, the batch that was planned is taken back, and its commands come with another one."""
        self.crash()
        if self._planned is not None:
            self._planned = Plan(self._planned.commands, self.now_ms, self._news())

    def stop(self) -> None:
        """The query is stopped, and started again."""
        self.turn()
        self.sender.flush(0)
        self.note()
        self.sender.purge()
        self.start()

    def off(self) -> None:
        """The query is stopped; a start without a sender runs a batch, and is followed by one that has a sender."""
        self.stop()
        if self._planned is not None:  # it is repeated under the settings that it was planned with
            return
        noted = self._note.news(self._batch)
        over = (
            Punctual(rows=0).hand_over(
                self._batch, 0, 1, SenderNews.from_json(json.loads(noted)), lambda: (0, 0)
            )
            if noted
            else None
        )
        step = advance(self.state, None, self.now_ms, memory_ms=None, policies=Policies(hold=InFlight(over)))
        released = [row["schedule_id"] for row in rows_of(step.fired)]
        self.topic.times.update(released)
        self._commit(Plan((), self.now_ms, None), step.state, set(released))
        self.start()

    # ---- the sender ----------------------------------------------------------------------------------

    def turn(self) -> None:
        self.sender.turn()
        assert self.broker.wrong == []
        self.check_confirmed()

    def move(self, step_ms: int) -> None:
        """The wall clock goes on, or steps."""
        self.now_ms += step_ms
        self.turn()

    def acknowledge(self, most: int) -> None:
        self.broker.acknowledge(most)
        self.check_confirmed()

    def note(self) -> None:
        self._note.write(self.sender.confirmed())

    def check_confirmed(self) -> None:
        """What the sender says never reaches beyond what it knows to be acknowledged, and in the end as far."""
        until_ms = self.sender.confirmed()[-1].until_ms
        assert until_ms < min(self.broker.unknown.values(), default=INT64_MAX + 1)
        assert self.broker.unknown or until_ms == INT64_MAX
        assert self.broker.unknown or self.sender.held == (0, 0)

    # ---- batches -------------------------------------------------------------------------------------

    def batch(
        self, waits_ms: Sequence[int], cancels: Sequence[int], *, brings_news: bool, point: str = ""
    ) -> None:
        """A batch with new commands, unless one was planned already; it may end at a point."""
        if self._planned is None:
            commands = self._schedules(waits_ms) + self._cancels(cancels)
            self._planned = Plan(tuple(commands), self.now_ms, self._news() if brings_news else None)
        try:
            self._run(self._planned, point)
        except CrashError:
            self.crash()

    def _news(self) -> SenderNews:
        return SenderNews(self.punctual.ahead_ms or 0, *self.sender.free, self.sender.confirmed())

    def _schedules(self, waits_ms: Sequence[int]) -> list[dict[str, Any]]:
        first = len(self.dues)
        new = {f"{first + number}": self.now_ms + wait_ms for number, wait_ms in enumerate(waits_ms)}
        self.dues |= new
        return [{"schedule_id": name, "seq": 1, "deliver_at_ms": due_ms} for name, due_ms in new.items()]

    def _cancels(self, cancels: Sequence[int]) -> list[dict[str, Any]]:
        names = {str(number % len(self.dues)) for number in cancels} if self.dues else set()
        new = sorted(names - self.cancelled - self._tried)
        self._tried.update(new)
        return [{"schedule_id": name, "op": "CANCEL", "seq": 2} for name in new]

    def _run(self, plan: Plan, point: str) -> None:
        if self.sender.fault is not None:
            raise CrashError
        over = self.punctual.hand_over(self._batch, 0, 1, plan.news, lambda: flight_size(self.state))
        table = commands_table(plan.commands) if plan.commands else None
        step = advance(
            self.state, table, plan.clock_ms, memory_ms=None, policies=Policies(hold=InFlight(over))
        )
        handed = {row["schedule_id"]: row["deliver_at_ms"] for row in rows_of(step.handed)}
        self._pass(point, POINTS[0])
        if handed:
            self.broker.expect(handed)
            dues = {name: due_ms - T0 for name, due_ms in handed.items()}
            self.sender.give(self._batch, [(self.broker, timed_records(dues))])
        else:
            self.sender.give(self._batch, [])
        self.turn()
        self._pass(point, POINTS[1])
        for row in rows_of(step.fired):
            assert row["deliver_at_ms"] <= step.clock_ms, "early"
            self.topic.times[row["schedule_id"]] += 1
        self._pass(point, POINTS[2])
        self._commit(plan, step.state, {*handed, *(row["schedule_id"] for row in rows_of(step.fired))})

    def _pass(self, point: str, here: str) -> None:
        if point == here:
            raise CrashError

    def _commit(self, plan: Plan, state: ShardState, left: set[str]) -> None:
        asked = {row["schedule_id"] for row in plan.commands if row.get("op") == "CANCEL"}
        self.cancelled |= asked - self.gone
        self.late += len(asked & self.gone)
        self.gone |= left
        self.state = ShardState.from_row(state.to_row(1), WHEEL, 1)
        self._batch, self._planned = self._batch + 1, None
        self.check_account(plan)

    def check_account(self, plan: Plan) -> None:
        """Each id is pending, cancelled, or has fired; and what counts as fired has arrived."""
        counts = self.state.counts
        pending = (
            set(entries_of_text(self.state.text)["schedule_id"].to_pylist()) if self.state.text else set()
        )
        fired = self.dues.keys() - pending - self.cancelled
        assert (self.state.pending, counts["fired"]) == (len(pending), len(fired))
        assert (counts["cancelled"], counts["late"]) == (len(self.cancelled), self.late)
        assert not pending & self.cancelled
        assert fired <= self.topic.times.keys(), "counted as fired, and never arrived"
        assert self.state.in_flight <= len(pending)
        self.check_flight(plan)

    def check_flight(self, plan: Plan) -> None:
        """The sender keeps its room; what it has is in the state; a chunk leaves as soon as all its rows are
        confirmed.
        """
        assert len(self.broker.unknown) <= self.sender.held[0] <= self.punctual.rows
        given = [chunk for chunk in self.state.in_flight_chunks if chunk.group != NO_SENDER]
        kept = {name for chunk in given for name in chunk.table("schedule_id")["schedule_id"].to_pylist()}
        assert self.broker.unknown.keys() <= kept
        if plan.news is not None:
            # Those of this batch are new; an earlier one stays for a row that the news do not say is confirmed.
            told = plan.news.confirmed[-1]
            stayed = [chunk for chunk in given if chunk.group < self._batch - 1]
            assert all(chunk.group >= told.since and chunk.high_ms > told.until_ms for chunk in stayed)

    def end(self) -> None:
        """Time passes, the broker acknowledges everything, and batches go on until nothing is pending."""
        for _ in range(8):
            self.move(10**7)
            self.broker.acknowledge()
            self.turn()
            self.batch((), (), brings_news=True)
        assert self.state.pending == 0
        assert self.topic.times.keys() == self.dues.keys() - self.cancelled, (
            "each arrived, no cancelled one did"
        )
        assert self.crashes or set(self.topic.times.values()) <= {1}, "twice, and nothing has crashed"
