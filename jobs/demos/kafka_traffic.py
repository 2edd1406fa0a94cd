"""The two plain Kafka clients of the Kafka demo: one that says the commands at their time, one that hears what comes out.

They share nothing with the job but the broker, so what they measure is what a user's programs would see. The sender
stamps each record with the moment in which it is said; the receiver notes its own clock as soon as it has a record in
hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from jobs.demos.kafka_account import Received
from jobs.demos.kafka_plan import Command, Sent, headers_of, key_of, value_of
from wheel_udf.common.errors import SessionError

_TIMEOUT_S = 60.0
_POLL_S = 0.1


def now_ms() -> int:
    """The wall clock of this machine, UTC epoch ms; sender and receiver share it."""
    return time.time_ns() // 1_000_000


class Sender:
    """Says commands when it is time for them.

    Args:
        bootstrap: Bootstrap servers.
        topic: Of the commands.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        # Idempotent: a retry of the client can neither repeat a command nor change the order.
        # Nothing but what is critical: what fails is found here, and a broker that starts or stops is no news.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        )
        self.sent: list[Sent] = []

    def print_line(self, command: Command) -> Sent:
        """Sends one command, now."""
        sent = Sent(command, now_ms())
        self.sent.append(sent)

        def acked(error: KafkaError | None, _: Message) -> None:
            sent.acked_ms = now_ms() if error is None else None

        pairs: list[tuple[str, str | bytes | None]] = [*headers_of(sent)]
        self._producer.produce(
            self._topic,
            key=key_of(command),
            value=value_of(command),
            headers=pairs,
            timestamp=sent.said_ms,
            on_delivery=acked,
        )
        return sent

    def say_all(self, commands: Sequence[Command], *, meanwhile: Callable[[int], None]) -> None:
        """Sends commands, each at its time from now on.

        Args:
            commands: In the order of their times.
            meanwhile: Called between commands with the ms since the start; has to be quick.

        Raises:
            SessionError: The broker does not take them all within a minute after the last.
        """
        start_ms, tick = now_ms(), threading.Event()
        for command in commands:
            while (left_ms := start_ms + command.at_ms - now_ms()) > 0:
                # Not in the client's own poll: a signal that comes while it waits there is lost in a SystemError.
                tick.wait(left_ms / 1000)
                self._producer.poll(0)
                meanwhile(now_ms() - start_ms)
            self._producer.poll(0)
            self.print_line(command)
        self.flush()

    def flush(self) -> None:
        """Waits until the broker has all that was said.

        Raises:
            SessionError: It does not within a minute.
        """
        tick = threading.Event()
        for _ in range(int(_TIMEOUT_S / _POLL_S)):
            if len(self._producer) == 0:
                return
            self._producer.poll(0)
            tick.wait(_POLL_S)
        raise SessionError(
            "the broker does not take the commands", field="not taken", value=len(self._producer)
        )


class Receiver:
    """Reads topics from their beginning in a thread of its own; a context manager.

    Args:
        bootstrap: Bootstrap servers.
        topics: All partitions of these are read, without a consumer group.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "wheel-demo",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        self._topics = topics
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="receiver", daemon=True)
        self._fault: Exception | None = None
        self.received: list[Received] = []
        """In the order of receipt; only ever appended to."""

    def _read(self) -> None:
        try:
            while not self._over.is_set():
                message = self._consumer.poll(_POLL_S)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    raise KafkaException(error)  # noqa: TRY301  # caught below for the thread that asks
                self.received.append(_received(message, now_ms()))
        except Exception as fault:  # noqa: BLE001  # raised by check() where somebody listens
            self._fault = fault

    def check(self) -> None:
        """Raises what went wrong in the thread.

        Raises:
            SessionError: The consumer has failed.
        """
        if self._fault is not None:
            raise SessionError("the consumer failed", field="Kafka", value=str(self._fault)) from self._fault

    def __enter__(self) -> Self:
        partitions = []
        for topic in self._topics:
            found = self._consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
            partitions += [TopicPartition(topic, number, 0) for number in found]
        self._consumer.assign(partitions)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()


def _received(message: Message, received_ms: int) -> Received:
    headers: Any = message.headers() or []  # a list of pairs; the client's stubs allow for more
    return Received(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
        stamped_ms=message.timestamp()[1],
        received_ms=received_ms,
    )
