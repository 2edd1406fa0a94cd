"""Batches go to real topics: all that Kafka takes, with one write, and what it would refuse to the rejects, before it
can refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.client import KafkaWorld, Row
from wheel_udf import DeltaSink, Destinations, KafkaSink, SinkError
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.sinks.batch_writer import write_batch
from wheel_udf.sinks.destinations import FIRED_SCHEMA, REJECT_SCHEMA, JointSink, Sink, fields

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = datetime(2026, 1, 1, 10, tzinfo=UTC)
APP = "orders-1f"
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    kafka_admin.close_all()


def fired_row(schedule_id: str, destination: str, due_s: int = 0, **changes: Any) -> tuple[Any, ...]:
    row = {
        "schedule_id": schedule_id,
        "seq": 1,
        "fire_id": f"f-{schedule_id}",
        "destination": destination,
        "key": b"\x00k",
        "value": b"\xff" + schedule_id.encode(),
        "headers": [("trace", b"\x01")],
        "deliver_at": T0 + timedelta(seconds=due_s),
        "fired_at": T0 + timedelta(seconds=due_s, milliseconds=250),
        "lateness_ms": 250,
        "source": f"commands/0/{due_s}",
    }
    return tuple((row | changes).values())


def reject_row(code: str, schedule_id: str | None = None, **changes: Any) -> tuple[Any, ...]:
    row: dict[str, Any] = dict.fromkeys(fields(REJECT_SCHEMA).fieldNames())
    told = {"error_code": code, "error_message": "why", "record": '{"op":"x"}', "schedule_id": schedule_id}
    return tuple((row | told | {"rejected_at": T0} | changes).values())


class Batches:
    """Writes batches as the query does."""

    def __init__(self, spark: SparkSession, destinations: dict[str, Sink], rejects: Sink) -> None:
        self.spark, self.destinations, self.rejects = spark, Destinations(destinations), rejects

    def write(
        self,
        batch_id: int,
        *fired: tuple[Any, ...],
        rejected: tuple[tuple[Any, ...], ...] = (),
        largest_to: dict[str, int] | None = None,
    ) -> int:
        rows_to: dict[str, int] = {}
        for row in fired:
            rows_to[row[3]] = rows_to.get(row[3], 0) + 1
        return write_batch(
            # One partition as one shard: a topic has the order of each.
            self.spark.createDataFrame(list(fired), f"{FIRED_SCHEMA}, source string").coalesce(1),
            lambda: self.spark.createDataFrame(list(rejected), REJECT_SCHEMA),
            rows_to=rows_to,
            rejected=len(rejected),
            destinations=self.destinations,
            rejects=self.rejects,
            app_id=APP,
            batch_id=batch_id,
            largest_to=largest_to,
        )


@pytest.fixture
def options(kafka: KafkaWorld) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap}


@pytest.fixture
def batches(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Batches:
    """Every name is a topic's; rejects go to a table."""
    return Batches(spark, {"*": KafkaSink(options)}, DeltaSink(str(tmp_path / "rejects")))


def ids(rows: list[Row]) -> list[str]:
    return [dict(row.headers)["wheel-id"].decode() for row in rows]


def fire_ids(rows: list[Row]) -> list[str]:
    return [dict(row.headers)["wheel-fire-id"].decode() for row in rows]


def rejected(spark: SparkSession, tmp_path: Path) -> list[tuple[str, str, str]]:
    rows = spark.read.format("delta").load(str(tmp_path / "rejects")).orderBy("schedule_id").collect()
    return [(row.schedule_id, row.error_code, row.error_message) for row in rows]


def jobs_of(spark: SparkSession, batches: Batches, *fired: tuple[Any, ...], **more: Any) -> int:
    spark.sparkContext.setJobGroup("one batch", "", interruptOnCancel=False)
    try:
        batches.write(0, *fired, **more)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup("one batch"))


# --- deliveries -----------------------------------------------------------------------------------


@pytest.mark.sentinel
def test_each_topic_of_a_batch_gets_its_rows_with_payload_and_headers_oldest_first(
    kafka: KafkaWorld, batches: Batches
) -> None:
    orders, mails = kafka.topic(), kafka.topic()
    rows = [
        fired_row("late", orders, 9),
        fired_row("mail", mails, key=None, value=None, headers=None, source=None),
        fired_row("early", orders, 1),
    ]
    assert batches.write(0, *rows) == 0
    early, late = kafka.everything(orders)
    assert (ids([early, late]), early.key, early.value) == (["early", "late"], b"\x00k", b"\xffearly")
    assert early.headers == [
        ("trace", b"\x01"),
        ("wheel-id", b"early"),
        ("wheel-fire-id", b"f-early"),
        ("wheel-deliver-at", b"2026-01-01T10:00:01.000Z"),
        ("wheel-fired-at", b"2026-01-01T10:00:01.250Z"),
        ("wheel-seq", b"1"),
        ("wheel-source", b"commands/0/1"),
    ]
    (mail,) = kafka.everything(mails)
    assert (mail.key, mail.value, len(mail.headers)) == (None, None, 5)


def test_all_topics_of_equal_sinks_are_one_spark_job_where_the_sizes_are_known(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    names = [kafka.topic(prefix=f"{first}-orders") for first in "aabb"]
    patterns: dict[str, Sink] = {"a*": KafkaSink(options), "b*": KafkaSink(dict(options))}
    batches = Batches(spark, patterns, DeltaSink(str(tmp_path / "rejects")))
    rows = [fired_row(name, name) for name in names]
    assert jobs_of(spark, batches, *rows, largest_to=dict.fromkeys(names, 100)) == 1
    assert [ids(kafka.everything(name)) for name in names] == [[name] for name in names]


def test_a_batch_that_is_repeated_is_sent_again_with_the_same_fire_ids(
    kafka: KafkaWorld, batches: Batches
) -> None:
    topic = kafka.topic()
    for _ in range(2):
        batches.write(0, fired_row("a", topic), fired_row("b", topic, 1))
    assert fire_ids(kafka.everything(topic)) == ["f-a", "f-b", "f-a", "f-b"]


# --- topics that take nothing ---------------------------------------------------------------------


def test_rows_of_a_missing_topic_are_undeliverable_and_the_others_are_sent(
    kafka: KafkaWorld, spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    topic = kafka.topic()
    assert batches.write(0, fired_row("a", topic), fired_row("lost", "no-such-topic")) == 1
    assert ids(kafka.everything(topic)) == ["a"]
    assert "no-such-topic" not in kafka.topics()
    assert rejected(spark, tmp_path) == [("lost", "undeliverable", "the topic no-such-topic is missing")]


def test_a_missing_topic_is_made_where_that_is_allowed(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    sink = KafkaSink(options, create=True)
    batches = Batches(spark, {"*": sink}, DeltaSink(str(tmp_path / "rejects")))
    name = f"made-{kafka.topic()}"
    assert sink.missing_reason(spark, name) is None
    assert name not in kafka.topics()
    assert batches.write(0, fired_row("a", name)) == 0
    assert ids(kafka.everything(name)) == ["a"]


def test_a_topic_that_the_cluster_refuses_to_make_is_no_failed_batch(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    batches = Batches(spark, {"*": KafkaSink(options, create=True)}, DeltaSink(str(tmp_path / "rejects")))
    there = kafka.topic(prefix="like.it")
    too_like = there.replace("like.it", "like_it")
    assert batches.write(0, fired_row("a", there), fired_row("lost", too_like)) == 1
    assert ids(kafka.everything(there)) == ["a"]
    ((_, code, message),) = rejected(spark, tmp_path)
    assert (code, message.startswith(f"the topic {too_like} cannot be created")) == ("undeliverable", True)


@pytest.mark.parametrize("create", [False, True])
def test_kafkas_own_topics_are_no_destinations(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path, create: bool
) -> None:
    batches = Batches(spark, {"*": KafkaSink(options, create=create)}, DeltaSink(str(tmp_path / "rejects")))
    assert batches.write(0, fired_row("evil", "__consumer_offsets")) == 1
    assert rejected(spark, tmp_path)[0][2] == "the topic __consumer_offsets is an internal topic of Kafka"


def test_a_name_that_no_pattern_allows_is_undeliverable_though_there_is_such_a_topic(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    topic = kafka.topic()
    batches = Batches(spark, {"orders_*": KafkaSink(options)}, DeltaSink(str(tmp_path / "rejects")))
    assert batches.write(0, fired_row("lost", topic)) == 1
    assert kafka.count(topic) == 0
    assert rejected(spark, tmp_path)[0][2] == "no destination of the allow-list matches"


# --- rows that a topic does not take --------------------------------------------------------------


def test_a_record_that_is_too_large_is_undeliverable_and_its_neighbours_are_sent(
    kafka: KafkaWorld, spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    one, two = kafka.topic(), kafka.topic()
    rows = [fired_row("huge", one, value=b"v" * MIB), fired_row("a", one), fired_row("b", two)]
    assert batches.write(0, *rows) == 1
    assert [ids(kafka.everything(topic)) for topic in (one, two)] == [["a"], ["b"]]
    ((_, code, message),) = rejected(spark, tmp_path)
    assert (code, message.split(": ")[0]) == ("undeliverable", "the record is too large")
    (row,) = spark.read.format("delta").load(str(tmp_path / "rejects")).collect()
    assert (row.value, row.source, row.destination) == (b"v" * MIB, "commands/0/0", one)


def test_a_hint_that_is_near_the_limit_makes_the_sink_look(
    kafka: KafkaWorld, spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    topic = kafka.topic()
    rows = [fired_row("huge", topic, value=b"v" * MIB), fired_row("a", topic)]
    assert batches.write(0, *rows, largest_to={topic: MIB + 20}) == 1
    assert ids(kafka.everything(topic)) == ["a"]


def test_each_topic_has_its_own_limit_and_the_producer_has_one_for_all(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    small, usual = kafka.topic(config={"max.message.bytes": "1000"}), kafka.topic()
    sink = KafkaSink({**options, "kafka.max.request.size": "3000"})
    batches = Batches(spark, {"*": sink}, DeltaSink(str(tmp_path / "rejects")))
    rows = [
        fired_row(f"{size}-{number}", topic, value=b"v" * size)
        for size in (10, 2000, 5000)
        for number, topic in enumerate((small, usual))
    ]
    assert batches.write(0, *rows) == 3
    assert [ids(kafka.everything(topic)) for topic in (small, usual)] == [["10-0"], ["10-1", "2000-1"]]
    limits = [message.split("at most ")[1] for _, _, message in rejected(spark, tmp_path)]
    assert limits == ["1000", "1000", "3000"]


@pytest.mark.parametrize("over", [0, 1])
def test_kafka_takes_a_record_of_the_very_size_that_is_allowed(
    kafka: KafkaWorld, spark: SparkSession, batches: Batches, tmp_path: Path, over: int
) -> None:
    topic = kafka.topic(config={"max.message.bytes": "2000"})
    # 243 of batch, record, key and headers, 2 for the length of the value.
    value = b"v" * (2000 - 243 - 2 + over)
    assert batches.write(0, fired_row("a", topic, key=b"\x00k", value=value)) == over
    assert kafka.count(topic) == 1 - over


def test_a_topic_with_a_small_limit_gets_a_thousand_small_records_in_batches_that_it_takes(
    kafka: KafkaWorld, batches: Batches
) -> None:
    topic = kafka.topic(config={"max.message.bytes": "1000"})
    rows = [fired_row(f"{number:04}", topic, value=b"v" * 100) for number in range(1000)]
    assert batches.write(0, *rows) == 0
    assert sorted(ids(kafka.everything(topic))) == [f"{number:04}" for number in range(1000)]


def test_a_compacted_topic_takes_no_record_without_a_key(
    kafka: KafkaWorld, spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    compacted = kafka.topic(config={"cleanup.policy": "compact,delete"})
    usual = kafka.topic()
    rows = [fired_row("lost", compacted, key=None), fired_row("gone", compacted, value=None)]
    sizes = {compacted: 100, usual: 100}
    assert batches.write(0, *rows, fired_row("a", usual, key=None), largest_to=sizes) == 1
    assert [ids(kafka.everything(topic)) for topic in (compacted, usual)] == [["gone"], ["a"]]
    assert rejected(spark, tmp_path)[0][2] == "the topic is compacted and takes no record without a key"


# --- topics that change while they are written ----------------------------------------------------


class StaleSink(KafkaSink):
    """Uses at its first check the state of the topics before they were changed."""

    def check_topics(self, *args: Any) -> Any:
        check = super().check_topics(*args)
        if not hasattr(self, "stale"):
            unlimited = {name: kafka_admin.TopicInfo(partitions=1) for name in check.infos}
            object.__setattr__(self, "stale", True)
            return type(check)(unlimited, check.reasons)
        return check


def test_a_limit_that_sinks_while_the_batch_is_written_makes_a_reject_and_no_failed_batch(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    small, usual = kafka.topic(config={"max.message.bytes": "1000"}), kafka.topic()
    batches = Batches(spark, {"*": StaleSink(options)}, DeltaSink(str(tmp_path / "rejects")))
    # One record to the small topic: a batch of several would be split by the client, see wheel_udf.sinks.kafka_sink.
    assert batches.write(0, fired_row("large", small, value=b"v" * 2000), fired_row("a", usual)) == 1
    assert kafka.count(small) == 0
    assert set(ids(kafka.everything(usual))) == {"a"}
    assert [row[0] for row in rejected(spark, tmp_path)] == ["large"]


# --- failures -------------------------------------------------------------------------------------


def test_a_cluster_that_is_down_fails_the_batch_with_one_error_that_names_the_destinations(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_admin.describe, "__kwdefaults__", {"timeout_ms": 1500})
    down = KafkaSink({"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.sasl.jaas.config": "canary"})
    tables = DeltaSink(str(tmp_path / "tables"), create=True)
    batches = Batches(spark, {"topic*": down, "*": tables}, DeltaSink(str(tmp_path / "rejects")))
    rows = [fired_row("a", "topic1"), fired_row("b", "topic2"), fired_row("c", "table")]
    with pytest.raises(SinkError) as failure:
        batches.write(0, *rows, rejected=(reject_row("bad_op"),))
    said = "2 of 3 destinations of batch 0 could not be written (topic1, topic2: the Kafka cluster does not answer"
    assert str(failure.value).startswith(said)
    assert "canary" not in str(failure.value)
    assert spark.read.format("delta").load(str(tmp_path / "tables/table")).count() == 1
    assert not (tmp_path / "rejects").exists()


def test_a_write_that_fails_though_no_topic_has_changed_fails_the_batch(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    topic = kafka.topic()
    sink = KafkaSink({**options, "kafka.acks": "7"})
    batches = Batches(spark, {"*": sink}, DeltaSink(str(tmp_path / "rejects")))
    with pytest.raises(SinkError, match=rf"1 of 1 destinations of batch 0 could not be written \({topic}: "):
        batches.write(0, fired_row("a", topic))
    assert not (tmp_path / "rejects").exists()


# --- tables and topics in one batch ---------------------------------------------------------------


@pytest.mark.sentinel
def test_tables_and_topics_of_one_batch_are_exactly_once_and_at_least_once(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    topic, tables = kafka.topic(), DeltaSink(str(tmp_path / "tables"), create=True)
    batches = Batches(spark, {"t-*": KafkaSink(options), "*": tables}, DeltaSink(str(tmp_path / "rejects")))
    for _ in range(2):
        assert batches.write(0, fired_row("a", topic), fired_row("b", "orders")) == 0
    assert fire_ids(kafka.everything(topic)) == ["f-a", "f-a"]
    table = spark.read.format("delta").load(str(tmp_path / "tables/orders"))
    assert [row.fire_id for row in table.collect()] == ["f-b"]
    assert "source" not in table.columns


def test_a_batch_whose_rejects_are_in_a_table_was_complete_and_is_not_sent_again(
    kafka: KafkaWorld, batches: Batches
) -> None:
    topic = kafka.topic()
    for _ in range(2):
        batches.write(0, fired_row("a", topic), rejected=(reject_row("bad_op"),))
    assert ids(kafka.everything(topic)) == ["a"]


# --- rejects in a topic ---------------------------------------------------------------------------


def test_rejects_go_to_a_topic_that_is_made_when_it_is_missing(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str]
) -> None:
    name = f"bad-{kafka.topic()}"
    batches = Batches(spark, {"*": KafkaSink(options)}, KafkaSink(options, topic=name))
    bad = reject_row("bad_op", "r", key=b"k", value=b"v", headers=[("trace", b"\x01")], source="commands/0/9")
    assert (
        batches.write(0, fired_row("lost", "no-such-topic", 5), rejected=(bad, reject_row("unreadable"))) == 1
    )
    unreadable, bad_op, lost = kafka.everything(name)
    assert (unreadable.key, unreadable.value) == (None, b'{"op":"x"}')
    assert unreadable.headers == [("wheel-error-code", b"unreadable"), ("wheel-error-message", b"why")]
    reasons = [("wheel-error-code", b"bad_op"), ("wheel-error-message", b"why"), ("wheel-id", b"r")]
    assert bad_op[:3] == (b"k", b"v", [("trace", b"\x01"), *reasons, ("wheel-source", b"commands/0/9")])
    assert (lost.key, lost.value) == (b"\x00k", b"\xfflost")
    assert lost.headers == [
        ("trace", b"\x01"),
        ("wheel-error-code", b"undeliverable"),
        ("wheel-error-message", b"the topic no-such-topic is missing"),
        ("wheel-id", b"lost"),
        ("wheel-destination", b"no-such-topic"),
        ("wheel-source", b"commands/0/5"),
    ]


def test_a_row_that_is_too_large_for_its_topic_and_for_the_rejects_loses_its_value_there(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str]
) -> None:
    topic, bad = kafka.topic(), kafka.topic(config={"max.message.bytes": "10000"})
    batches = Batches(spark, {"*": KafkaSink(options)}, KafkaSink(options, topic=bad))
    assert batches.write(0, fired_row("huge", topic, value=b"v" * MIB), fired_row("a", topic)) == 1
    (row,) = kafka.everything(bad)
    assert (row.key, row.value) == (b"\x00k", None)
    assert dict(row.headers)["wheel-dropped"] == b"value"
    assert ids(kafka.everything(topic)) == ["a"]


def test_a_repetition_sends_the_rejects_again_and_what_has_become_deliverable_both_ways(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str]
) -> None:
    bad, late = kafka.topic(), f"late-{kafka.topic()}"
    batches = Batches(spark, {"*": KafkaSink(options)}, KafkaSink(options, topic=bad))
    assert batches.write(0, fired_row("a", late), rejected=(reject_row("bad_op", "r"),)) == 1
    kafka_admin.create(options, late)
    assert batches.write(0, fired_row("a", late), rejected=(reject_row("bad_op", "r"),)) == 0
    assert ids(kafka.everything(bad)) == ["r", "a", "r"]
    assert ids(kafka.everything(late)) == ["a"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"max.message.bytes": "9999"}, "takes records of 9999 bytes; rule: 10000 at least"),
        ({"cleanup.policy": "compact"}, "is compacted, and rejects may have no key"),
    ],
)
def test_a_topic_that_could_refuse_a_reject_is_refused_as_a_whole(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str], config: dict[str, str], reason: str
) -> None:
    bad = kafka.topic(config=config)
    sink = KafkaSink(options, topic=bad)
    assert sink.missing_reason(spark, None) == f"the topic {bad} {reason}"
    batches = Batches(spark, {"*": KafkaSink(options)}, sink)
    with pytest.raises(SinkError, match="the rejects cannot be written: the topic"):
        batches.write(0, rejected=(reject_row("bad_op"),))


def test_a_sink_of_rejects_without_a_topic_says_so(spark: SparkSession, options: dict[str, str]) -> None:
    assert KafkaSink(options).missing_reason(spark, None) == "the Kafka sink of the rejects names no topic"


def test_a_dry_look_at_a_topic_tells_whether_it_can_be_written(
    kafka: KafkaWorld, spark: SparkSession, options: dict[str, str]
) -> None:
    sink = KafkaSink(options)
    assert isinstance(sink, JointSink)
    assert sink.missing_reason(spark, kafka.topic()) is None
    assert sink.missing_reason(spark, "no-such-topic") == "the topic no-such-topic is missing"
