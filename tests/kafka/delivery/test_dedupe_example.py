"""The consumer of the Kafka guide: it sees each delivery once, though a batch was sent twice."""

from __future__ import annotations

import re
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.documents import text_of
from tests.kafka.client import KafkaWorld

MARKER = "<!-- dedupe example -->"


def example() -> str:
    """The block behind the marker."""
    found = re.search(rf"{MARKER}\n```python\n(.*?)```", text_of("docs/kafka.md"), re.DOTALL)
    assert found is not None, f"no example behind {MARKER}"
    return found[1]


def test_the_consumer_of_the_guide_sees_a_batch_that_was_sent_twice_once(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    batch = [(b"k1", b"close 7", {"wheel-fire-id": "f1"}), (b"k2", b"close 9", {"wheel-fire-id": "f2"})]
    kafka.produce(topic, [*batch, *batch, (b"k1", b"close 7", {"wheel-fire-id": "f3"})])
    kafka.produce(topic, [(b"", b"end", {"wheel-fire-id": "f4"})])
    seen = []

    def take(key: bytes, value: bytes) -> None:
        if value == b"end":  # the example goes on until Ctrl-C
            raise KeyboardInterrupt
        seen.append((key, value))

    program = example().replace("127.0.0.1:9092", kafka.bootstrap).replace("orders_to_close", topic)
    namespace: dict = {"print": take}
    with pytest.raises(KeyboardInterrupt):
        exec(compile(program, "docs/kafka.md", "exec"), namespace)
    namespace["consumer"].close()
    assert seen == [(b"k1", b"close 7"), (b"k2", b"close 9"), (b"k1", b"close 7")]


class FakeConsumer:
    """Hands out the fire ids that it was given."""

    def __init__(self, *fire_ids: str) -> None:
        self.messages = [
            SimpleNamespace(headers=lambda it=it: [("wheel-fire-id", it)], error=lambda: None)
            for it in fire_ids
        ]
        self.stored = 0

    def poll(self, _: float) -> SimpleNamespace | None:
        return self.messages.pop(0) if self.messages else None

    def store_offsets(self, _: SimpleNamespace) -> None:
        self.stored += 1


def test_the_window_forgets_the_oldest_id_first_and_offsets_are_stored_behind_the_handling() -> None:
    definitions = example().split("settings = ")[0]
    namespace: dict = {}
    exec(compile(definitions, "docs/kafka.md", "exec"), namespace)
    consumer = FakeConsumer("a", "b", "a", "c", "a")
    each = namespace["deliveries"](consumer, window=2)
    seen = [(dict(message.headers())["wheel-fire-id"], consumer.stored) for message in islice(each, 4)]
    assert seen == [("a", 0), ("b", 1), ("c", 3), ("a", 4)]
