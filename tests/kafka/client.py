"""A plain Kafka client for tests: literal rows in, literal rows out, waits that end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from wheel_udf.testing.topics import create_topics

# Long enough for a loaded machine; nobody waits for it unless something is wrong.
PATIENCE_S = 60
_POLL_S = 0.2

Headers = list[tuple[str, bytes | None]]


class Row(NamedTuple):
    """A record as it came: equal to the tuple (key, value, headers, partition)."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int


class KafkaWorld:
    """A broker and a client for it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def topic(
        self, partitions: int = 1, *, config: Mapping[str, str] | None = None, prefix: str = "t"
    ) -> str:
        """The name of a fresh topic."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        create_topics(self.bootstrap, [name], partitions=partitions, config=config)
        return name

    def create_again(self, topic: str, partitions: int = 1) -> None:
        """Deletes a topic and creates it again."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        for _ in range(1_000):  # the name is taken until the broker has deleted the topic
            with suppress(KafkaException):
                admin.create_topics([NewTopic(topic, partitions)])[topic].result(PATIENCE_S)
                return
        raise AssertionError("the topic is not deleted")

    def delete_records(self, topic: str, before: int) -> None:
        """Deletes the records of partition 0 before an offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
            future.result(PATIENCE_S)

    def topics(self) -> set[str]:
        """The topics that there are, without Kafka's own."""
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=PATIENCE_S).topics
        return {name for name in found if not name.startswith("__")}

    def produce(self, topic: str, rows: Iterable[tuple]) -> None:
        """Writes rows (key, value[, headers[, partition]]) in order; returns when the broker has them all.

        Texts are written as UTF-8; headers are pairs, or a mapping. Without a partition the key decides.
        """
        faults: list[str] = []
        # One request at a time keeps the order, at less cost for the broker than idempotence.
        producer = Producer({"bootstrap.servers": self.bootstrap, "max.in.flight": 1})
        for key, value, *more in rows:
            headers = more[0] if more else []
            placed = {"partition": more[1]} if len(more) > 1 else {}
            pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
            producer.produce(
                topic,
                key=key,
                value=value,
                headers=pairs,
                on_delivery=lambda fault, _: faults.append(str(fault)) if fault else None,
                **placed,
            )
        assert producer.flush(PATIENCE_S) == 0, "the broker takes no rows"
        assert not faults, faults[0]

    def abort(self, topic: str, count: int) -> None:
        """Leaves `count` + 1 offsets without a record, as compaction does: a transaction that is aborted (for who
        reads committed records).
        """
        end = self.count(topic) + count + 1
        name = f"aborts-{uuid.uuid4().hex}"
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, key=b"aborted", value=str(number).encode())
        producer.flush(PATIENCE_S)  # else they would never be sent
        producer.abort_transaction(PATIENCE_S)
        # The broker answers before it writes the mark of the end, and what is written at once would stand before it.
        assert any(self.count(topic) >= end for _ in range(1_000)), "the transaction has no end"

    def consume(self, topic: str, count: int, *, patience_s: float = PATIENCE_S) -> list[Row]:
        """The first `count` records of a topic (fewer if they do not come in time), partition by partition in order of
        offset.
        """
        with _Reader(self.bootstrap, topic) as reader:
            rows = reader.read(count, patience_s)
        return [Row(m.key(), m.value(), m.headers() or [], m.partition()) for m in sorted(rows, key=_place)]

    def messages(self, topic: str) -> list[Message]:
        """As :meth:`everything`, as confluent-kafka has them: with their timestamps."""
        with _Reader(self.bootstrap, topic) as reader:
            return sorted(reader.read(sum(reader.ends()), PATIENCE_S), key=_place)

    def everything(self, topic: str) -> list[Row]:
        """All records that the topic holds at this moment."""
        return self.consume(topic, self.count(topic))

    def count(self, topic: str) -> int:
        """How many records have been written to the topic (of transactions: their marks, too)."""
        with _Reader(self.bootstrap, topic) as reader:
            return sum(reader.ends())


class _Reader:
    """A consumer without a group: from the beginning, all partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
            }
        )
        found = self._consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        self._partitions = [TopicPartition(topic, number, 0) for number in found.partitions]

    def ends(self) -> list[int]:
        return [
            self._consumer.get_watermark_offsets(place, timeout=PATIENCE_S)[1] for place in self._partitions
        ]

    def read(self, count: int, patience_s: float) -> list[Message]:
        self._consumer.assign(self._partitions)
        rows: list[Message] = []
        for _ in range(int(patience_s / _POLL_S)):
            if len(rows) >= count:
                break
            for message in self._consumer.consume(count - len(rows), timeout=_POLL_S):
                if message.error() is not None:
                    raise KafkaException(message.error())
                rows.append(message)
        return rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _place(message: Message) -> tuple[int, int]:
    return message.partition(), message.offset()
