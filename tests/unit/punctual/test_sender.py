"""The sender with a clock moved by hand and a producer that acknowledges when it is told to. No broker, no thread, no
waiting.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from wheel_udf.common.errors import LeaseError
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.policies.sender_news import Confirmed
from wheel_udf.punctual.sender import Sender
from wheel_udf.punctual.timed_records import TimedRecords

T0 = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Message:
    """What a delivery callback gets."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic


class Broker:
    """A producer and its cluster: keeps what it gets, and acknowledges it in poll() once `acknowledge` was called."""

    def __init__(self, room: int = 10**9) -> None:
        self.records: list[tuple[str, Any, Any, list[Any]]] = []
        self.hurried_after: list[int] = []
        self.room, self.polls = room, 0
        self._open: list[Any] = []
        self._ready: list[tuple[Any, Any]] = []

    def produce(self, topic: str, *, on_delivery: Any, key: Any, value: Any, headers: list[Any]) -> None:
        if len(self._open) + len(self._ready) >= self.room:
            raise BufferError
        self.records.append((topic, key, value, list(headers)))
        self._open.append(on_delivery)

    def acknowledge(self, most: int = 10**9, fault: object = None) -> None:
        taken, self._open = self._open[:most], self._open[most:]
        self._ready += [(each, fault) for each in taken]

    def poll(self, timeout: float) -> int:
        self.polls += 1
        if timeout:  # a full producer waits for its broker
            self.acknowledge(1)
        ready, self._ready = self._ready, []
        for callback, fault in ready:
            callback(fault, Message("out"))
        return len(ready)

    def hurry(self) -> None:
        self.hurried_after.append(len(self.records))

    def flush(self, timeout: float) -> int:  # noqa: ARG002
        self.acknowledge()
        self.poll(0)
        return 0

    def purge(self) -> None:
        self._open = []

    @property
    def keys(self) -> list[bytes]:
        return [key for _, key, _, _ in self.records]


class World:
    """A sender, its clock and its broker."""

    def __init__(self, since: int = 5, earlier: tuple[Confirmed, ...] = ()) -> None:
        self.now_ms = T0
        self.broker = Broker()
        self.sender = Sender(lambda: self.now_ms, since, rows=100, octets=100_000, earlier=earlier)

    def give(self, batch: int, **dues: int) -> None:
        """Gives records by their keys; due times count from T0."""
        self.sender.give(batch, [(self.broker, timed_records(dues))])

    def at(self, now_ms: int) -> float:
        self.now_ms = T0 + now_ms
        return self.sender.turn()

    @property
    def present(self) -> tuple[int, int, int]:
        confirmed = self.sender.confirmed()[-1]
        until = confirmed.until_ms
        return confirmed.since, confirmed.batch, until if until == INT64_MAX else until - T0


def timed_records(dues: dict[str, int], topic: str = "out", value: bytes | None = b"v") -> TimedRecords:
    count = len(dues)
    columns = {
        "topic": [topic] * count,
        "key": pa.array([key.encode() for key in dues], pa.binary()),
        "value": pa.array([value] * count, pa.binary()),
        "headers": pa.nulls(count, HEADERS),
        "due_ms": [T0 + due for due in dues.values()],
        "wheel-id": ["x"] * count,
        "wheel-fired-at": pa.nulls(count, pa.int64()),
        "wheel-seq": ["7"] * count,
    }
    return TimedRecords.of(pa.table(columns))


def test_a_record_is_sent_at_its_due_time_and_not_a_millisecond_before() -> None:
    world = World()
    world.give(5, a=4_000)
    world.at(0)
    world.at(3_999)
    assert world.broker.records == []
    world.at(4_000)
    (record,) = world.broker.records
    assert record == (
        "out",
        b"a",
        b"v",
        [("wheel-id", b"x"), ("wheel-fired-at", b"2023-11-14T22:13:24.000Z"), ("wheel-seq", b"7")],
    )


def test_the_thread_sleeps_until_the_next_due_time_but_notices_a_step_of_the_clock() -> None:
    world = World()
    assert world.at(0) == 0.1
    world.give(5, a=30)
    assert world.at(0) == 0.03
    world.give(6, b=90_000)
    assert world.at(10) == 0.02


def test_while_more_than_five_records_are_due_each_millisecond_they_are_gathered_for_five() -> None:
    world = World()
    world.at(0)
    world.give(
        5, **{f"{due}-{number}": due for due in range(10, 40) for number in range(6 if due < 30 else 5)}
    )
    assert world.at(10) == 0.001  # 6 in 10 ms
    assert world.at(11) == 0.005
    assert world.at(16) == 0.005
    assert world.at(29) == 0.005
    assert world.at(30) == 0.001
    assert len(world.broker.records) == 20 * 6 + 5


def test_a_clock_that_is_set_back_holds_what_is_not_due_again() -> None:
    world = World()
    world.give(5, a=1_000, b=1_001)
    world.at(1_000)
    world.at(-60_000)
    assert world.broker.keys == [b"a"]
    world.at(1_001)
    assert world.broker.keys == [b"a", b"b"]


def test_records_of_several_batches_are_sent_in_order_of_their_due_times() -> None:
    world = World()
    world.give(5, a=10, d=40, e=50)
    world.give(6, b=20, c=30, f=60)
    world.at(55)
    assert world.broker.keys == [b"a", b"b", b"c", b"d", b"e"]
    world.at(60)
    assert world.broker.keys[-1] == b"f"


def test_a_burst_is_sent_whole_in_one_turn() -> None:
    world = World()
    world.give(5, **{f"k{number}": 10 for number in range(1_700)})
    world.at(10)
    assert len(world.broker.records) == 1_700
    assert world.sender.drain_lateness().count == 1_700


def test_confirmation_reaches_up_to_the_earliest_record_that_is_not_acknowledged() -> None:
    world = World(since=5)
    assert world.present == (5, 4, INT64_MAX)
    world.give(5, a=10, b=20, c=30)
    assert world.present == (5, 5, 9)
    world.at(10)
    world.at(20)
    assert world.present == (5, 5, 9), "a and b are sent, neither is acknowledged"
    world.broker.acknowledge(1)
    world.at(21)
    assert world.present == (5, 5, 19)
    world.broker.acknowledge()
    world.at(22)
    assert world.present == (5, 5, 29), "c waits"
    world.at(30)
    world.broker.acknowledge()
    world.at(31)
    assert world.present == (5, 5, INT64_MAX)


def test_records_sent_together_are_confirmed_together() -> None:
    world = World()
    world.give(5, a=10, b=20)
    world.at(20)
    world.broker.acknowledge(1)
    world.at(21)
    assert world.present == (5, 5, 9)
    world.broker.acknowledge()
    world.at(22)
    assert world.present == (5, 5, INT64_MAX)


def test_a_batch_without_rows_is_confirmed_by_being_given() -> None:
    world = World()
    world.sender.give(9, [])
    assert world.present == (5, 9, INT64_MAX)


def test_what_earlier_senders_have_noted_is_told_first() -> None:
    earlier = (Confirmed(0, 4, T0),)
    assert World(earlier=earlier).sender.confirmed() == (*earlier, Confirmed(5, 4, INT64_MAX))


def test_room_is_what_neither_waits_nor_is_unacknowledged() -> None:
    world = World()
    assert world.sender.free == (100, 100_000)
    world.give(5, a=10, b=20)
    rows, octets = world.sender.free
    assert (rows, 98_000 < octets < 100_000) == (98, True)
    world.at(20)
    assert world.sender.held[0] == 2
    world.broker.acknowledge()
    world.at(20)
    assert world.sender.free == (100, 100_000)


def test_a_full_producer_is_waited_for_and_no_record_is_skipped_or_sent_twice() -> None:
    world = World()
    world.broker.room = 2
    world.give(5, a=1, b=2, c=3, d=4, e=5)
    world.at(5)
    assert world.broker.keys == [b"a", b"b", b"c", b"d", b"e"]


def test_a_refused_record_ends_the_sender_and_is_never_confirmed() -> None:
    world = World()
    world.give(5, a=1, b=50)
    world.at(1)
    world.broker.acknowledge(fault="message timed out")
    world.at(2)
    assert world.sender.fault == "the topic out does not take a record: message timed out"
    world.at(60)
    assert world.broker.keys == [b"a"], "nothing is sent any more"
    assert world.present == (5, 5, 0)


def test_what_the_client_itself_refuses_ends_the_sender() -> None:
    world = World()

    def refuse(topic: str, **_: Any) -> None:
        raise ValueError(f"{topic} is full of nonsense")

    world.broker.produce = refuse  # type: ignore[method-assign,assignment]
    world.give(5, a=1)
    world.at(1)
    assert world.sender.fault == "the topic out does not take a record: out is full of nonsense"
    assert world.present == (5, 5, 0)


def test_a_record_does_not_wait_for_others_to_come_into_its_batch_but_a_burst_goes_in_large_batches() -> None:
    world = World()
    world.give(5, a=10, **{f"b{number}": 20 for number in range(1_200)})
    world.at(9)
    world.at(10)
    world.at(20)
    assert world.broker.hurried_after == [1, 1_201]


def test_the_time_that_a_hurry_takes_was_added_to_the_wait_for_the_next_record() -> None:
    world = World()
    world.give(5, a=10, b=14)
    world.broker.hurry = lambda: setattr(world, "now_ms", world.now_ms + 3)  # type: ignore[method-assign]
    assert world.at(10) == 0.001


def test_only_the_producer_that_has_got_a_record_hurries() -> None:
    world, other = World(), Broker()
    world.sender.give(5, [(world.broker, timed_records({"a": 10})), (other, timed_records({"b": 20}))])
    world.at(10)
    world.at(20)
    assert (world.broker.hurried_after, other.hurried_after) == ([1], [1])


def test_lateness_is_the_senders_and_is_told_once() -> None:
    world = World()
    world.give(5, a=10, b=14)
    world.at(14)
    late = world.sender.drain_lateness()
    assert (late.count, late.minimum_ms, late.maximum_ms) == (2, 0, 4)
    assert world.sender.drain_lateness().count == 0


def test_lateness_that_nobody_asks_for_was_kept_as_long_as_the_query_ran() -> None:
    # deliver() without on_batch: an array for each millisecond in which something was sent.
    world = World()
    world.give(5, **{f"id{number}": number for number in range(2_500)})
    for now_ms in range(2_500):
        world.at(now_ms + 3)
    assert len(world.sender.late_rows) < 1_000
    late = world.sender.drain_lateness()
    assert (late.count, late.minimum_ms, late.maximum_ms) == (2_500, 0, 3)


def test_sent_records_are_released_while_the_last_record_of_their_batch_waits() -> None:
    # With `ahead: 10 minutes` each batch stayed whole until its last record was sent, beyond the bounds of rows and
    # bytes.
    world = World()
    world.give(5, late=600_000, **{f"id{number:04}": number for number in range(3_000)})
    world.at(1_500)
    ((_, _, waiting),) = world.sender.queue
    assert len(waiting.records.due_ms) == 1_500
    world.at(2_999)
    ((_, _, waiting),) = world.sender.queue
    assert len(waiting.records.due_ms) <= 500
    world.at(600_000)
    assert world.broker.keys == [*(b"id%04d" % number for number in range(3_000)), b"late"]


@pytest.mark.parametrize("sent", [0, 1, 2, 3])
def test_whatever_was_sent_when_it_ends_the_note_never_covers_what_is_not_acknowledged(sent: int) -> None:
    world = World()
    world.give(5, a=1, b=2, c=3)
    for now_ms in range(1, sent + 1):
        world.at(now_ms)
    world.broker.acknowledge(max(0, sent - 1))
    world.sender.turn()
    acknowledged = max(0, sent - 1)
    assert world.present == (5, 5, acknowledged)


def test_a_sender_that_has_lost_its_lease_sends_nothing_more() -> None:
    world = World()

    def refuse() -> None:
        raise LeaseError("this process has lost the lease of the checkpoint")

    world.give(5, a=1_000, b=2_000)
    world.at(1_000)
    assert world.broker.keys == [b"a"]
    world.sender.require_lease = refuse
    with pytest.raises(LeaseError):
        world.at(2_000)
    assert world.broker.keys == [b"a"]
