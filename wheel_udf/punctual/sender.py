"""The sender: sends rows to Kafka at their due time, to the millisecond, and tracks their acknowledgement.

::

    give(batch 41, records) --> heap, by due time of the next record --turn(): due <= now--> producer --> acknowledged
                                                                                                              |
    confirmed() = "all records of batches 40 to 41 due by 10:00:04.199"   <-- earliest unacknowledged: 10:00:04.200

* Never early: a record is sent when the wall clock has reached its due time. A clock that is set back holds the
  records.
* In order of due times, over all batches. Kafka keeps that order within a partition.
* At the millisecond; while more than five records a millisecond are due, every five.
* A record counts as confirmed when Kafka has acknowledged it. The first one that Kafka refuses, or does not take
  within the client's own ``delivery.timeout.ms``, ends the sender: :attr:`Sender.fault`.

One thread calls :meth:`Sender.turn`, which also gets the acknowledgements; any thread calls the other methods. Wall
clock and producers are arguments. Records that are due together are sent together, so an acknowledgement counts down
one number.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wheel_udf.common.arrays import Int64s
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.common.secrets import hide
from wheel_udf.policies.sender_news import Confirmed
from wheel_udf.punctual.timed_records import TimedRecords
from wheel_udf.wheel.lateness import LatenessHistogram

if TYPE_CHECKING:
    from wheel_udf.punctual.producers import Producer

_AT_ONCE: Final = 500
"""The most records between two looks at the clock and at the acknowledgements."""
_LEAST_WAIT_S: Final = 0.001
_MOST_WAIT_S: Final = 0.1
"""A step of the wall clock is noticed after this time."""
_MANY_PER_MS: Final = 5
_GATHER_S: Final = 0.005
"""How long records are gathered while more than :data:`_MANY_PER_MS` are due each millisecond. Otherwise the broker
would get a request for a few records each millisecond and partition, and as many fetches of consumers."""
_ACKNOWLEDGED_EVERY_S: Final = 0.005
_FULL_WAIT_S: Final = 0.05
_LET_GO: Final = 1_000
"""Sent records are released when they are so many, and at least half of their batch, which bounds the copying."""
_UNCOUNTED: Final = 1_000
"""How many arrays of lateness are counted together, unless a report asks for them before."""


@dataclass(eq=False)
class SentRows:
    """Records that were sent together, until all are acknowledged."""

    sender: Sender
    low_ms: int
    left: int
    rows: int
    octets: int

    def acknowledged(self, fault: object, message: Any) -> None:
        """Called by the producer for each record, inside ``poll``, ``hurry`` or ``flush``."""
        if fault is not None:
            self.sender.fail(f"the topic {message.topic()} does not take a record: {fault}")
            return
        self.left -= 1
        if not self.left:
            self.sender.confirm(self)


@dataclass
class _Waiting:
    """The records of a batch, and the number of those sent."""

    records: TimedRecords
    producer: Producer
    at: int = 0

    @property
    def head_ms(self) -> int:
        return int(self.records.due_ms[self.at])

    def let_go(self) -> _Waiting:
        """The same without the sent records, if they are many: the rest may wait for minutes."""
        if self.at < _LET_GO or 2 * self.at < len(self.records.due_ms):
            return self
        return _Waiting(self.records.rest(self.at), self.producer)


@dataclass(frozen=True)
class _Run:
    """Neighbouring records of a batch."""

    waiting: _Waiting
    start: int
    stop: int

    @property
    def due_ms(self) -> Int64s:
        return self.waiting.records.due_ms[self.start : self.stop]

    @property
    def octets(self) -> int:
        return int(self.waiting.records.sizes[self.start : self.stop].sum())


@dataclass(eq=False)
class Sender:
    """Sends the records that the batches of one run of a query hand over.

    Attributes:
        now_ms: The wall clock.
        since: The first batch that this sender gets.
        rows: The most records that wait here.
        octets: The most bytes.
        earlier: What earlier senders have noted.
        fault: Why it cannot send; None while it can.
        require_lease: Asked before each record; raises a LeaseError if another process may have taken over.
    """

    now_ms: Callable[[], int]
    since: int
    rows: int
    octets: int
    earlier: tuple[Confirmed, ...] = ()
    fault: str | None = None
    require_lease: Callable[[], None] = lambda: None
    _batch: int = field(init=False)
    queue: list[tuple[int, int, _Waiting]] = field(default_factory=list)
    _sent: set[SentRows] = field(default_factory=set)
    _producers: list[Producer] = field(default_factory=list)
    late_rows: list[Int64s] = field(default_factory=list)
    _lateness: LatenessHistogram = field(default_factory=LatenessHistogram)
    _held: list[int] = field(default_factory=lambda: [0, 0])
    _numbers: Iterator[int] = field(default_factory=count)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _turned_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._batch, self._turned_ms = self.since - 1, self.now_ms()

    # --- what batches and reports ask -----------------------------------------------------------------

    def give(self, batch: int, records: Sequence[tuple[Producer, TimedRecords]]) -> None:
        """Takes the records of a batch; past due records are sent at once."""
        with self._changed:
            self._batch = batch
            for producer, part in records:
                if len(part.due_ms):
                    self._push(_Waiting(part, producer))
                    self._hold(len(part.due_ms), int(part.sizes.sum()))
                if all(producer is not known for known in self._producers):
                    self._producers.append(producer)
            self._changed.notify_all()

    def confirmed(self) -> tuple[Confirmed, ...]:
        """The confirmations of earlier senders, and last that of this one."""
        with self._changed:
            lows = [sent.low_ms for sent in self._sent] + [head_ms for head_ms, _, _ in self.queue[:1]]
            until_ms = min(lows) - 1 if lows else INT64_MAX
            return (*self.earlier, Confirmed(self.since, self._batch, until_ms))

    @property
    def held(self) -> tuple[int, int]:
        """How many records wait here or are not acknowledged, and about how many bytes."""
        with self._changed:
            return self._held[0], self._held[1]

    @property
    def free(self) -> tuple[int, int]:
        """The free capacity, in records and bytes."""
        rows, octets = self.held
        return max(0, self.rows - rows), max(0, self.octets - octets)

    def drain_lateness(self) -> LatenessHistogram:
        """The lateness of the records sent since the last call."""
        with self._changed:
            self._count_late()
            drained, self._lateness = self._lateness, LatenessHistogram()
        return drained

    def wait(self, timeout_s: float) -> None:
        """Waits for new records, at most so long."""
        with self._changed:
            self._changed.wait(timeout_s)

    def wake(self) -> None:
        """Ends a wait."""
        with self._changed:
            self._changed.notify_all()

    # --- what the thread of the sender does -----------------------------------------------------------

    def turn(self) -> float:
        """Sends due records and takes acknowledgements; returns the seconds until the next turn."""
        records, since_ms = 0, self._turned_ms
        used: dict[Producer, None] = {}
        while self.fault is None:
            for producer in list(self._producers):
                producer.poll(0)
            self._turned_ms = now_ms = self.now_ms()
            sent, runs = self._take(now_ms)
            if sent is None:
                for producer in used:
                    producer.hurry()
                are_many = records > _MANY_PER_MS * max(1, now_ms - since_ms)
                return self._pause_s(now_ms, _GATHER_S if are_many else _LEAST_WAIT_S)
            records += sent.rows
            used |= dict.fromkeys(run.waiting.producer for run in runs)
            self._send(sent, runs, now_ms)
        return _MOST_WAIT_S

    def flush(self, timeout_s: float) -> None:
        """Waits until all sent records are acknowledged, at most so long for each producer."""
        for producer in self._producers:
            producer.flush(timeout_s)

    def purge(self) -> None:
        """Forgets what is not acknowledged."""
        for producer in self._producers:
            producer.purge()

    def fail(self, why: str) -> None:
        """Ends the sender."""
        with self._changed:
            self.fault = self.fault or hide(why)
            self._changed.notify_all()

    def confirm(self, sent: SentRows) -> None:
        """Records sent together are all acknowledged."""
        with self._changed:
            self._sent.discard(sent)
            self._hold(-sent.rows, -sent.octets)
            self._changed.notify_all()

    # --- parts ----------------------------------------------------------------------------------------

    def _push(self, waiting: _Waiting) -> None:
        # The number orders batches of one due time as they came.
        heapq.heappush(self.queue, (waiting.head_ms, next(self._numbers), waiting))

    def _hold(self, rows: int, octets: int) -> None:
        self._held[0] += rows
        self._held[1] += octets

    def _count_late(self) -> None:
        if self.late_rows:
            self._lateness = self._lateness.merge(LatenessHistogram.of(np.concatenate(self.late_rows)))
            self.late_rows.clear()

    def _take(self, now_ms: int) -> tuple[SentRows | None, list[_Run]]:
        """Takes the oldest records that are due off the heap. From here on they are sent, and not acknowledged."""
        runs: list[_Run] = []
        room = _AT_ONCE
        with self._changed:
            while room and self.queue and self.queue[0][0] <= now_ms:
                _, _, waiting = heapq.heappop(self.queue)
                until_ms = min(now_ms, self.queue[0][0]) if self.queue else now_ms
                due_ms = waiting.records.due_ms
                stop = min(int(np.searchsorted(due_ms, until_ms, "right")), waiting.at + room)
                runs.append(_Run(waiting, waiting.at, stop))
                room -= stop - waiting.at
                waiting.at = stop
                if stop < len(due_ms):
                    self._push(waiting.let_go())
            if not runs:
                return None, runs
            rows, octets = _AT_ONCE - room, sum(run.octets for run in runs)
            sent = SentRows(self, int(runs[0].due_ms[0]), rows, rows, octets)
            self._sent.add(sent)
            self.late_rows += [now_ms - run.due_ms for run in runs]
            if len(self.late_rows) >= _UNCOUNTED:
                self._count_late()
        return sent, runs

    def _send(self, sent: SentRows, runs: Sequence[_Run], now_ms: int) -> None:
        fired_at = instant_text_ms(now_ms).encode()
        for run in runs:
            producer = run.waiting.producer
            done = sent.acknowledged
            for topic, key, value, headers in run.waiting.records.records(run.start, run.stop, fired_at):
                while self.fault is None:
                    self.require_lease()
                    try:
                        producer.produce(topic, key=key, value=value, headers=headers, on_delivery=done)
                    except BufferError:
                        producer.poll(_FULL_WAIT_S)
                    except Exception as fault:  # noqa: BLE001  # whatever the client raises, the record is not sent
                        self.fail(f"the topic {topic} does not take a record: {fault}")
                    else:
                        break

    def _pause_s(self, began_ms: int, least_s: float) -> float:
        """How long to wait: at least so long since an instant, at most until the next record is due."""
        now_ms = self.now_ms()
        with self._changed:
            waits = [_ACKNOWLEDGED_EVERY_S] if self._sent else []
            waits += [(head_ms - now_ms) / 1000 for head_ms, _, _ in self.queue[:1]]
        return max(0, least_s - max(0, now_ms - began_ms) / 1000, min([_MOST_WAIT_S, *waits]))
