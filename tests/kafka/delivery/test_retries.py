"""A consumer of a real topic gives back what it cannot handle, until it does, or until it is a dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter
from pyspark.errors import StreamingQueryException

from tests.kafka.client import KafkaWorld, Row
from tests.spark.streams import at, at_ms
from wheel_udf import Destinations
from wheel_udf.client import kafka as client
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import SimulatedClock
from wheel_udf.delivery import query
from wheel_udf.delivery.query import deliver
from wheel_udf.job.models.source import SourceConfig
from wheel_udf.job.sources.commands import read_commands
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.policies.retries import Retries, Retry
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.stream.schedule_operator import schedule

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message
    from pyspark.sql import SparkSession

    from wheel_udf.client.kafka import Preset
    from wheel_udf.delivery.report import BatchReport

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
SOURCE: TypeAdapter[SourceConfig] = TypeAdapter(SourceConfig)


class World:
    """Topics of commands, deliveries and dead letters, and a job between them on a simulated clock."""

    def __init__(self, spark: SparkSession, kafka: KafkaWorld, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.commands, self.out, self.dead = (
            kafka.topic(prefix=name) for name in ("commands", "out", "dead")
        )
        self.preset: Preset = "native"
        self.servers = {"kafka.bootstrap.servers": kafka.bootstrap}
        self.reports: list[BatchReport] = []
        self.retry = Retry(first_ms=10_000, factor=1, jitter="none", attempts=2, dead_letters=self.dead)
        self.handled = 0

    def send(self, *records: client.Record) -> None:
        self.kafka.produce(self.commands, [(each["key"], each["value"], each["headers"]) for each in records])

    def schedule(self, schedule_id: str, due_s: float, **more: Any) -> None:
        """Sends a SCHEDULE of version 1 for the topic of deliveries."""
        given = {"destination": self.out, "seq": 1, "value": b"v", "preset": self.preset} | more
        self.send(client.schedule(schedule_id, deliver_at=at(due_s), **given))

    def give_back(self, *deliveries: Message, error: str = "out of stock") -> None:
        self.send(*(client.retry(each, error=error, preset=self.preset) for each in deliveries))

    def new(self) -> list[Message]:
        """The deliveries since the last call."""
        found = self.kafka.messages(self.out)
        before, self.handled = self.handled, len(found)
        return found[before:]

    def run(self, *instants_s: int, sends_to: str = "") -> None:
        """Runs the job to the last of these instants; `sends_to` are other servers for the deliveries."""
        options = self.servers | {"startingOffsets": "earliest"}
        given = {"format": "kafka", "topics": [self.commands], "options": options}
        frame = schedule(
            read_commands(self.spark, SOURCE.validate_python(given), preset=self.preset),
            wheel=WHEEL,
            clock=SimulatedClock(instants_ms=tuple(map(at_ms, instants_s))),
            shards=2,
            retries=Retries({"out-*": self.retry}, ("out-*", "dead-*", "*")),
        )
        topics = KafkaSink(self.servers)
        outs = KafkaSink(self.servers | ({"kafka.bootstrap.servers": sends_to} if sends_to else {}))
        tables = DeltaSink(str(self.folder / "tables"), create=True)
        deliver(
            frame,
            destinations=Destinations({"out-*": outs, "dead-*": topics, "*": tables}),
            rejects=DeltaSink(str(self.folder / "rejects"), create=True),
            checkpoint=str(self.folder / "checkpoint"),
            trigger="available-now",
            on_batch=self.reports.append,
        ).awaitTermination()

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        folder = self.folder / ("rejects" if name == "rejects" else f"tables/{name}")
        if not folder.exists():
            return []
        rows = self.spark.read.format("delta").load(str(folder))
        return sorted(tuple(row) for row in rows.select(*columns).collect())

    def counts(self, *names: str) -> list[int]:
        return [self.reports[-1].counts[name] for name in names]


def told(message: Message | Row, *names: str) -> list[str | None]:
    """Headers of a record, in full or without ``wheel-``."""
    pairs = message.headers if isinstance(message, Row) else message.headers() or []
    found = dict(pairs)
    return [
        None if (value := found.get(name, found.get(f"wheel-{name}"))) is None else value.decode()
        for name in names
    ]


HISTORY = ("id", "seq", "attempt", "amend", "first-amend", "failed-at", "first-error")


@pytest.fixture
def world(spark: SparkSession, kafka: KafkaWorld, tmp_path: Path) -> Iterator[World]:
    yield World(spark, kafka, tmp_path)
    kafka_admin.close_all()


@pytest.mark.sentinel
def test_what_a_consumer_gives_back_is_tried_again_and_ends_in_a_topic(world: World) -> None:
    world.schedule("a", 5, headers={"trace": "t", "__connect.errors.topic": "before"}, key="k")
    world.schedule("b", 5)
    world.run(0, 5)
    first, _ = sorted(world.new(), key=lambda each: told(each, "id"))
    assert told(first, *HISTORY) == ["a", "1", "1", "0", "0", None, None]

    world.give_back(first, first, error="out of stock")  # sent twice
    world.run(0, 5, 6, 15, 16)
    (second,) = world.new()
    assert told(second, *HISTORY) == ["a", "1", "2", "1", "0", "2024-01-01T00:00:06.000Z", "out of stock"]
    assert told(second, "fire-id", "deliver-at", "trace") == told(first, "fire-id", "deliver-at", "trace")
    assert (second.key(), second.value()) == (b"k", b"v")

    world.give_back(first, second, second, error="gone")  # the first one once more
    world.run(0, 5, 6, 15, 16, 17)
    assert world.new() == []
    (dead,) = world.kafka.everything(world.dead)
    (fire_id,) = told(first, "fire-id")
    assert fire_id is not None
    assert (dead.key, dead.value) == (b"k", b"v")
    assert dead.headers == [
        ("trace", b"t"),
        ("__connect.errors.topic", b"before"),
        ("wheel-id", b"a"),
        ("wheel-fire-id", fire_id.encode()),
        ("wheel-seq", b"1"),
        ("wheel-target", world.out.encode()),
        ("wheel-deliver-at", b"2024-01-01T00:00:05.000Z"),
        ("wheel-amend", b"2"),
        ("wheel-attempts", b"2"),
        ("wheel-reason", b"after 2 attempts"),
        ("wheel-first-error", b"out of stock"),
        ("wheel-failed-at", b"2024-01-01T00:00:06.000Z"),
        ("wheel-dead-at", b"2024-01-01T00:00:17.000Z"),
        ("__connect.errors.exception.message", b"gone"),
        ("__connect.errors.topic", world.commands.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"5"),  # of the last RETRY
    ]
    assert (world.reports[-1].pending, world.table("rejects", "error_code")) == (0, [])


def test_with_the_json_preset_it_ends_in_a_table_also_if_the_job_is_killed_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.preset = "json"
    world.retry = replace(world.retry, dead_letters="letters")
    world.schedule("a", 5, headers={"trace": "t"}, key="k")
    world.run(0, 5)
    (first,) = world.new()
    world.give_back(first)
    with monkeypatch.context() as patch:

        def fails(*_rows: Any, **_about: Any) -> None:
            if world.kafka.count(world.out) > 1:
                raise RuntimeError("killed before the commit")

        patch.setattr(query, "post_reports", fails)
        with pytest.raises(StreamingQueryException):
            world.run(0, 5, 6, 16)
    second, *_ = world.new()
    world.give_back(second)
    world.run(0, 5, 6, 16, 17, 30)

    (repeated,) = world.new()  # the batch that was repeated: the same attempt
    assert told(repeated, *HISTORY, "fire-id") == told(second, *HISTORY, "fire-id")
    columns = ("schedule_id", "origin", "attempts", "key", "value", "fire_id", "deliver_at")
    (fire_id,) = told(first, "fire-id")
    assert world.table("letters", *columns) == [
        ("a", world.out, 2, b"k", b"v", fire_id, at(5).replace(tzinfo=None))
    ]
    columns = ("seq", "reason", "first_error", "last_error", "source_topic", "source_offset")
    assert world.table("letters", *columns) == [
        (1, "after 2 attempts", "out of stock", "out of stock", world.commands, 2)
    ]
    assert (world.reports[-1].pending, world.table("rejects", "error_code")) == (0, [])


def test_a_cancel_and_a_higher_version_beat_what_is_given_back(world: World) -> None:
    for name in "abcd":
        world.schedule(name, 5)
    world.run(0, 5)
    a, b, c, d = sorted(world.new(), key=lambda each: told(each, "id"))
    world.send(client.cancel("a", seq=1))
    world.schedule("b", 100, seq=2)
    world.give_back(a, b, c, d)
    world.run(0, 5, 6)
    world.send(client.cancel("c", seq=1))
    world.schedule("d", 100, seq=2)
    world.run(0, 5, 6, 7, 60)
    assert world.new() == []
    assert world.reports[-1].pending == 2
    assert world.counts("cancelled", "applied", "superseded", "fired") == [2, 2, 2, 4]


def test_an_occurrence_that_is_given_back_is_tried_by_itself_and_the_series_goes_on(world: World) -> None:
    world.send(
        client.schedule(
            "s", repeat="every 1 minute", destination=world.out, seq=1, event_time=at(0), starts_at=at(0)
        )
    )
    world.run(1, 61)
    first, _ = world.new()
    world.give_back(first)
    world.run(1, 61, 62, 72, 73, 121)
    names = ("id", "attempt", "amend", "occurrence", "deliver-at", "fired-at", "failed-at")
    again, third = world.new()
    assert told(again, *names) == [
        *("s", "2", "1", "1"),
        *("2024-01-01T00:00:00.000Z", "2024-01-01T00:01:12.000Z", "2024-01-01T00:01:02.000Z"),
    ]
    assert told(third, *names) == [
        *("s", "1", "0", "3"),
        *("2024-01-01T00:02:00.000Z", "2024-01-01T00:02:01.000Z", None),
    ]
    assert all(value is not None for _, value in again.headers() or [])
    assert world.reports[-1].pending == 1


def test_a_missing_topic_is_a_dead_letter_at_once_and_brokers_that_are_away_are_asked_again(
    world: World,
) -> None:
    world.retry = replace(world.retry, dead_letters="letters", breaker_failures=1, breaker_cooldown_ms=60_000)
    world.schedule("a", 5, destination="out-of-nowhere")
    world.run(0, 5, 6)
    columns = ("schedule_id", "attempts", "reason", "last_error")
    assert world.table("letters", *columns) == [
        ("a", 1, "no attempt can succeed", "the topic out-of-nowhere is missing")
    ]

    world.schedule("b", 7)
    world.schedule("c", 7, destination="table")
    world.schedule("d", 8)
    world.run(0, 5, 6, 7, 8, 9, sends_to="127.0.0.1:1")
    assert world.table("table", "schedule_id", "lateness_ms") == [("c", 0)]
    assert world.reports[-1].breakers[world.out] == "open"
    assert (world.reports[-1].pending, world.new()) == (2, [])

    world.run(0, 5, 6, 7, 8, 9, 30, 70)
    assert sorted(told(each, "id", "attempt") for each in world.new()) == [["b", "2"], ["d", "1"]]
    assert world.reports[-1].pending == 0
