"""The outside of the Kafka bench: a producer that keeps a rate and a consumer that notes when records arrive, plain
clients in processes of their own. A record's value begins with 13 digits, the instant (UTC epoch ms) from which its
lateness counts; the rest is random.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import Queue
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, Producer

VALUE_BYTES = 100
_DIGITS = 13
_SLICE_S = 0.01
_CONTEXT = get_context("spawn")  # a fork would copy the threads of the broker's client


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Commands at a steady rate.

    Attributes:
        name: Beginning of the ids.
        rate: Commands a second; 0 for as fast as the client can.
        count: How many.
        delays_ms: Shortest and longest delay, evenly spread; ``None``: due when produced (what a query without the
            wheel is measured by).
        due_ms: One due time for all, instead.
        destination: Topic they name.
    """

    name: str
    rate: int
    count: int
    delays_ms: tuple[int, int] | None = None
    due_ms: int | None = None
    destination: str


@dataclass(frozen=True)
class Arrivals:
    """What the consumer saw, in order of arrival; arrays of one length.

    Attributes:
        due_ms: From when each record's lateness counts (int64, UTC epoch ms).
        received_ms: When it was received (float64: of whole ones, 3.9 and 4.0 ms would be 3 and 4).
        distinct: How many different ids there were.
    """

    due_ms: npt.NDArray[np.int64]
    received_ms: npt.NDArray[np.float64]
    distinct: int

    @property
    def lateness_ms(self) -> npt.NDArray[np.float64]:
        """Arrival less due time."""
        return self.received_ms - self.due_ms


class Inflow:
    """A flow that is produced by a process of its own."""

    def __init__(self, bootstrap: str, topic: str, flow: Flow) -> None:
        self._process = _CONTEXT.Process(target=_produce, args=(bootstrap, topic, flow))
        self._process.start()

    def wait(self, timeout_s: float) -> None:
        """Waits until all is produced.

        Raises:
            TimeoutError: It takes longer.
            RuntimeError: The producer failed.
        """
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            self._process.kill()
            raise TimeoutError(f"the producer was not done in {timeout_s:g} s")
        if self._process.exitcode:
            raise RuntimeError(f"the producer ended with {self._process.exitcode}")


class Outflow:
    """A topic that is consumed by a process of its own, until as many ids have come as are expected, or nothing comes
    any more.
    """

    def __init__(self, bootstrap: str, topic: str, expected: int, patience_s: float) -> None:
        self._queue: Queue[Any] = _CONTEXT.Queue()
        arguments = (bootstrap, topic, expected, patience_s, self._queue)
        self._process = _CONTEXT.Process(target=_consume, args=arguments, daemon=True)
        self._process.start()

    def arrivals(self, timeout_s: float) -> Arrivals:
        """What has come, once all of it has."""
        due, received, distinct = self._queue.get(timeout=timeout_s)
        self._process.join()
        return Arrivals(due, received, distinct)


def _produce(bootstrap: str, topic: str, flow: Flow) -> None:
    chance = random.Random(flow.name)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(settings)
    rest = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=VALUE_BYTES - _DIGITS))
    for number in paced(flow):
        now_ms = time.time_ns() // 1_000_000
        due_ms = due_ms_of(flow, now_ms, chance)
        identity = f"{flow.name}-{number}".encode()
        headers = [("wheel-id", identity), ("wheel-target", flow.destination.encode())]
        headers.append(("wheel-deliver-at", str(due_ms).encode()))
        producer.produce(topic, key=identity, value=f"{due_ms:0{_DIGITS}}{rest}".encode(), headers=headers)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the broker takes no records")


def paced(flow: Flow) -> Iterator[int]:
    """The numbers of the flow, each when its time has come."""
    if not flow.rate:
        yield from range(flow.count)
        return
    began_s, done = time.monotonic(), 0
    while done < flow.count:
        allowed = min(int((time.monotonic() - began_s) * flow.rate) + 1, flow.count)
        yield from range(done, allowed)
        done = allowed
        time.sleep(_SLICE_S)


def due_ms_of(flow: Flow, now_ms: int, chance: random.Random) -> int:
    """When an entry of the flow that is sent now falls due."""
    if flow.due_ms is not None:
        return flow.due_ms
    return now_ms if flow.delays_ms is None else now_ms + chance.randint(*flow.delays_ms)


def _consume(bootstrap: str, topic: str, expected: int, patience_s: float, queue: Queue[Any]) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"bench-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    due: list[int] = []
    received: list[float] = []
    ids: set[bytes | str | None] = set()
    last_s = time.monotonic()
    while len(ids) < expected and time.monotonic() - last_s < patience_s:
        # It waits so long for its 5,000, and all of them have the time of its end: with 20 ms, half of that was in
        # each median.
        messages = consumer.consume(5_000, timeout=0.002)
        now_ms = time.time_ns() / 1_000_000
        for message in messages:
            value = message.value()
            if message.error() is None and value is not None:
                due.append(int(value[:_DIGITS]))
                received.append(now_ms)
                ids.add(message.key())
                last_s = time.monotonic()
    consumer.close()
    queue.put((np.array(due, np.int64), np.array(received, np.float64), len(ids)))
