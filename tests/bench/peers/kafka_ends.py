"""Both ends of our scheduler for the bench of the peers: plain Kafka clients that speak the protocol of
:mod:`tests.bench.peers.peer`.

``python -m tests.bench.peers.kafka_ends feed BOOTSTRAP VALUE`` and ``... drain BOOTSTRAP``
"""

from __future__ import annotations

import os
import sys

from confluent_kafka import Consumer, KafkaError, Message, Producer

COMMANDS, RELEASED = "commands", "released"
_POLL_EVERY = 1_000
_FLUSH_S = 120
_MOST_AT_ONCE = 5_000
_MOMENT_S = 0.002


def main(arguments: list[str]) -> int:
    """Runs one end; see the module."""
    if arguments[0] == "feed":
        return _feed(arguments[1], arguments[2].encode())
    _drain(arguments[1])
    return 0


def _feed(bootstrap: str, value: bytes) -> int:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
    producer = Producer(settings)
    faults: list[str] = []

    def settled(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            faults.append(str(error))

    for number, line in enumerate(sys.stdin.buffer):
        identity, due_ms = line.split()
        headers = [("wheel-id", identity), ("wheel-target", RELEASED.encode()), ("wheel-deliver-at", due_ms)]
        while True:
            try:
                producer.produce(COMMANDS, key=identity, value=value, headers=headers, on_delivery=settled)
                break
            except BufferError:  # full: the broker is slower than the input
                producer.poll(0.1)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(_FLUSH_S)
    if left or faults:
        sys.stderr.write(f"{left} left, {len(faults)} refused: {faults[:1]}\n")
        return 1
    return 0


def _drain(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([RELEASED])
    while True:
        # It waits so long for its 5,000, and none of them is told before (see tests.bench.kafka_traffic).
        messages = consumer.consume(_MOST_AT_ONCE, timeout=_MOMENT_S)
        keys = [message.key() for message in messages if message.error() is None]
        if keys:
            os.write(1, b"".join(key + b"\n" for key in keys if isinstance(key, bytes)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
