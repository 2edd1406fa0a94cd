"""A consumer sees each delivery once: over repetitions, restarts, rebalances; and a producer's record is the command
that it meant.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.documents import blocks
from tests.kafka.client import PATIENCE_S, KafkaWorld
from wheel_udf import ConfigError
from wheel_udf.client.deliveries import Deliveries
from wheel_udf.testing.topics import create_topics

PAGE = "docs/clients.md"


def sent(*fire_ids: str, key: str | None = "k", partition: int = 0) -> list[tuple]:
    """Deliveries, each with its fire id as its value."""
    return [(key, fire_id, {"wheel-fire-id": fire_id}, partition) for fire_id in fire_ids]


class Group:
    """Consumers of one topic that share a group."""

    def __init__(self, kafka: KafkaWorld, topic: str, **settings: Any) -> None:
        self.topic = topic
        self.settings = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex, **settings}

    def commit(self, offset: int) -> None:
        consumer = Consumer(self.settings)
        consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
        consumer.close()

    def join(self, memory: int = 100) -> Deliveries:
        return Deliveries(self.settings, [self.topic], memory=memory)


def read(deliveries: Deliveries, last: str) -> list[str]:
    """What is returned up to the delivery `last`, with which the reader stops; that one is not handled."""
    values: list[str] = []
    for _ in range(PATIENCE_S * 5):
        message = deliveries.poll(0.2)
        if message is not None:
            values.append(value_of(message))
            if values[-1] == last:
                return values
    raise AssertionError(f"{last} did not come, only {values}")


def value_of(message: Message) -> str:
    return (message.value() or b"").decode()


def test_a_batch_that_was_sent_twice_is_seen_once(kafka: KafkaWorld) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [*sent("f1", "f2"), *sent("f1", "f2", "f3")])
    kafka.produce(topic, [("k", "not a delivery", {}, 0), ("k", "not a delivery", {}, 0), *sent("end")])
    with Group(kafka, topic).join() as deliveries:
        assert read(deliveries, "end") == ["f1", "f2", "f3", "not a delivery", "not a delivery", "end"]
        assert deliveries.repeated == 2


def test_the_memory_is_bounded_and_forgets_the_oldest_first(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    kafka.produce(topic, sent("a", "b", "a", "c", "b", "a", "end"))
    with Group(kafka, topic).join(memory=2) as deliveries:
        # Before the second b there are an a, which was dropped, and the c.
        assert read(deliveries, "end") == ["a", "b", "c", "b", "a", "end"]


def test_a_further_attempt_was_taken_for_a_repetition(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    attempts = [
        ("k", f"f1/{attempt}", {"wheel-fire-id": "f1", "wheel-attempt": attempt}, 0) for attempt in "12"
    ]
    kafka.produce(topic, [attempts[0], *attempts, *sent("end")])
    with Group(kafka, topic).join() as deliveries:
        assert read(deliveries, "end") == ["f1/1", "f1/2", "end"]


def test_a_repetition_is_dropped_by_the_process_that_comes_after_a_restart(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    group = Group(kafka, topic)
    kafka.produce(topic, sent("f1", "f2", "f3"))
    with group.join() as before:
        assert read(before, "f3") == ["f1", "f2", "f3"]

    kafka.produce(topic, sent("f1", "f2", "f3", "f4"))  # the job died, too, and sends its batch again
    with group.join() as after:
        assert read(after, "f4") == ["f3", "f4"]  # f3 had not been handled
        assert after.repeated == 3

    with group.join(
        memory=2
    ) as short:  # it remembers f2 and f3, the last that were handled, and nothing before them
        kafka.produce(topic, sent("f3", "f1"))
        assert read(short, "f1") == ["f4", "f1"]


def test_a_handler_that_fails_gets_its_delivery_again(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    group = Group(kafka, topic)
    kafka.produce(topic, sent("f1", "f2"))

    def handle_all(deliveries: Deliveries) -> None:
        for delivery in deliveries:
            if value_of(delivery) == "f2":
                raise KeyError

    with pytest.raises(KeyError), group.join() as deliveries:
        handle_all(deliveries)
    with group.join() as again:
        assert read(again, "f2") == ["f2"]


@pytest.mark.parametrize("memory", [100, 100_000])
def test_a_group_that_had_committed_beyond_the_end_of_the_log_read_nothing(
    kafka: KafkaWorld, memory: int
) -> None:
    topic = kafka.topic()
    group = Group(kafka, topic)
    kafka.produce(topic, sent("f1", "f2"))
    group.commit(1_000)
    with group.join(memory) as deliveries:
        assert read(deliveries, "f2") == ["f1", "f2"]
        kafka.produce(topic, sent("f2", "f3"))
        assert read(deliveries, "f3") == ["f3"]
    with group.join(memory) as after:
        kafka.produce(topic, sent("f1", "f4"))
        assert read(after, "f4") == ["f3", "f4"]


@pytest.mark.parametrize("committed", [1, 1_000], ids=["before the beginning", "beyond the end"])
@pytest.mark.parametrize("rule", ["latest", "error"])
def test_what_was_committed_and_is_not_in_the_log_is_left_to_the_rule_of_the_client(
    kafka: KafkaWorld, rule: str, committed: int
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, sent("f1", "f2", "f3"))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 2
    group = Group(kafka, topic, **{"auto.offset.reset": rule})
    group.commit(committed)
    with group.join(100_000) as deliveries:
        if rule == "error":
            with pytest.raises(KafkaException, match="AUTO_OFFSET_RESET"):
                read(deliveries, "never")
        else:
            for _ in range(PATIENCE_S * 5):  # nothing says that the client has come to the end
                kafka.produce(topic, sent("new"))
                if (message := deliveries.poll(0.2)) is not None:
                    break
            assert message is not None
            assert value_of(message) == "new"


def test_deliveries_of_a_log_that_began_anew_were_taken_for_those_before_the_committed_offset(
    kafka: KafkaWorld,
) -> None:
    topic = kafka.topic()
    group = Group(kafka, topic)
    kafka.produce(topic, [("k", "a", {}, 0), ("k", "b", {}, 0)])
    group.commit(2)
    with group.join() as deliveries:
        kafka.produce(topic, sent("f3"))
        assert read(deliveries, "f3") == ["f3"]
        deliveries.consumer.seek(
            TopicPartition(topic, 0, 0)
        )  # as the client does if its position is not in the log
        assert read(deliveries, "b") == ["a", "b"]


def test_a_log_that_began_anew_lost_what_came_before_the_committed_offset_if_nothing_was_new(
    kafka: KafkaWorld,
) -> None:
    topic = kafka.topic()
    group = Group(kafka, topic)
    kafka.produce(topic, sent("a", "b", "c"))
    group.commit(3)
    with group.join() as deliveries:
        for _ in range(20):
            assert deliveries.poll(0.2) is None  # what was handled is read again, to be remembered
        deliveries.consumer.seek(TopicPartition(topic, 0, 0))
        kafka.produce(topic, sent("end"))
        assert read(deliveries, "end") == ["end"]
        assert deliveries.repeated == 3


def test_a_topic_that_does_not_exist_yet_is_waited_for(
    kafka: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"later-{uuid.uuid4().hex}"
    with Group(kafka, topic, **{"topic.metadata.refresh.interval.ms": 200}).join() as deliveries:
        while not caplog.messages:
            assert deliveries.poll(0.2) is None
        assert f"waiting for a topic: Subscribed topic not available: {topic}" in caplog.text
        create_topics(kafka.bootstrap, [topic])
        kafka.produce(topic, sent("f1"))
        assert read(deliveries, "f1") == ["f1"]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_that_takes_a_partition_over_drops_what_another_has_handled(
    kafka: KafkaWorld, strategy: str
) -> None:
    topic = kafka.topic(partitions=2)
    group = Group(kafka, topic, **{"partition.assignment.strategy": strategy})
    kafka.produce(topic, [*sent("a1", "a2", partition=0), *sent("b1", "b2", partition=1)])
    with group.join() as first:
        seen: set[str] = set()
        while seen != {"a1", "a2", "b1", "b2"}:
            message = first.poll(0.2)
            seen |= set() if message is None else {value_of(message)}
        first.poll(0)
        with group.join() as second:
            while not second.consumer.assignment():
                first.poll(0.1)
                second.poll(0.1)
            (mine,) = second.consumer.assignment()
            letter = "ab"[mine.partition]
            kafka.produce(topic, sent(f"{letter}1", f"{letter}2", f"{letter}3", partition=mine.partition))
            assert read(second, f"{letter}3") == [f"{letter}3"]
            assert second.repeated == 2


def test_settings_that_would_lose_deliveries_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"deliveries would be lost: enable.auto.offset.store; rule: false"):
        Deliveries({"group.id": "g", "enable.auto.offset.store": True}, ["t"])
    with pytest.raises(ConfigError, match=r"not a number of records: memory = 0; rule: at least 1"):
        Deliveries({"group.id": "g"}, ["t"], memory=0)


def test_the_producer_and_the_consumer_of_the_guide_run_as_they_stand(kafka: KafkaWorld) -> None:
    commands, deliveries = kafka.topic(), kafka.topic()
    produce, consume = (
        program.replace("127.0.0.1:9092", kafka.bootstrap)
        .replace('"commands"', f'"{commands}"')
        .replace("orders_to_close", deliveries)
        for program in blocks(PAGE, "python")[:2]
    )
    exec(compile(produce, PAGE, "exec"), {})
    assert [row.key for row in kafka.everything(commands)] == [
        b"order-7",
        b"order-8",
        b"order-8",
        b"order-7",
    ]

    kafka.produce(deliveries, [*sent("f1", "f2"), *sent("f1", "f2", "end")])
    seen: list[bytes] = []

    def take(_: bytes, value: bytes) -> None:
        if value == b"end":  # the example goes on until Ctrl-C
            raise KeyboardInterrupt
        seen.append(value)

    with pytest.raises(KeyboardInterrupt):
        exec(compile(consume, PAGE, "exec"), {"print": take})
    assert seen == [b"f1", b"f2"]


def test_a_delivery_is_put_back_as_the_guide_says(kafka: KafkaWorld) -> None:
    commands, topic = kafka.topic(), kafka.topic()
    program = (
        blocks(PAGE, "python")[2].replace('"commands"', f'"{commands}"').replace("orders_to_close", topic)
    )
    due = {"wheel-deliver-at": "2026-01-01T10:00:00.000Z", "wheel-seq": "41", "wheel-source": "commands/0/41"}
    for fire_id, value in (("f1", "later"), ("f1", "later"), ("f2", "end")):
        kafka.produce(topic, [("k", value, {"trace": "t", "wheel-id": "a", "wheel-fire-id": fire_id} | due)])

    def close(order: bytes) -> bool:
        if order == b"end":
            raise KeyboardInterrupt
        return False

    names = {
        "close": close,
        "settings": Group(kafka, topic).settings,
        "producer": Producer({"bootstrap.servers": kafka.bootstrap}),
    }
    with pytest.raises(KeyboardInterrupt):
        exec(compile(program, PAGE, "exec"), names)
    (row,) = kafka.everything(commands)
    headers = [
        *(("wheel-id", b"a"), ("wheel-op", b"SCHEDULE"), ("wheel-seq", b"42"), ("wheel-delay", b"5 minutes")),
        *(("wheel-target", topic.encode()), ("trace", b"t")),
    ]
    assert row == (b"k", b"later", headers, 0)


def test_produce_takes_the_arguments_as_they_are(kafka: KafkaWorld) -> None:
    from wheel_udf.client import kafka as commands

    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, **commands.schedule("a", delay="1 s", value=b"\xff", headers={"x": None}))
    assert producer.flush(PATIENCE_S) == 0
    (row,) = kafka.everything(topic)
    headers = [("wheel-id", b"a"), ("wheel-op", b"SCHEDULE"), ("wheel-delay", b"1 s"), ("x", None)]
    assert row == (b"a", b"\xff", headers, 0)
