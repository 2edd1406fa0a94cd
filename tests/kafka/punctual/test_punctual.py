"""Punctual delivery with a real broker: never early, each once, over stops and starts; what cannot be sent is a
reject.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.kafka.client import PATIENCE_S, KafkaWorld
from wheel_udf import (
    BatchReport,
    ConfigError,
    Contract,
    Destinations,
    FileSink,
    KafkaSink,
    ProcessingClock,
    Punctual,
    Wheel,
    deliver,
    schedule,
)
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.kafka import admin as kafka_admin

AHEAD_MS = 60_000  # a loaded machine may take seconds for a batch


class Job:
    """A query from topic to topic, with punctual delivery."""

    def __init__(self, spark: SparkSession, kafka: KafkaWorld, folder: Path, **punctual: Any) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.commands, self.out = kafka.topic(), kafka.topic()
        self.punctual = Punctual(**{"ahead_ms": AHEAD_MS, **punctual})
        self.reports: list[BatchReport] = []

    @contextmanager
    def running(self, **options: Any) -> Iterator[StreamingQuery]:
        query = self.start(**options)
        try:
            yield query
        finally:
            query.stop()

    def start(self, *, off: bool = False, trigger: str = "0 seconds") -> StreamingQuery:
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap}
        options = {
            **servers,
            "subscribe": self.commands,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
        }
        commands = kafka_commands(self.spark.readStream.format("kafka").options(**options).load(), "native")
        scheduled = schedule(
            commands,
            wheel=Wheel(tick_ms=1_000, size=20, levels=4),
            clock=ProcessingClock(),
            shards=2,
            contract=Contract(),
            punctual=None if off else self.punctual,
        )
        self.query = deliver(
            scheduled,
            destinations=Destinations({"*": KafkaSink(servers)}),
            rejects=FileSink(str(self.folder / "rejects"), "json"),
            checkpoint=str(self.folder / "checkpoint"),
            trigger=trigger,
            on_batch=self.reports.append,
        )
        return self.query

    def say(self, schedule_id: str, in_s: float, target: str | None = None, value: str = "v") -> int:
        """Sends a SCHEDULE that is due in some seconds; returns its due time."""
        due_ms = time.time_ns() // 1_000_000 + int(in_s * 1000)
        headers = {
            "wheel-id": schedule_id,
            "wheel-target": target or self.out,
            "wheel-deliver-at": str(due_ms),
        }
        self.kafka.produce(self.commands, [(schedule_id, value, headers)])
        return due_ms

    def until(self, holds: Callable[[BatchReport], bool]) -> BatchReport:
        """Waits for a report."""
        for _ in range(PATIENCE_S * 80):
            found = [report for report in self.reports if holds(report)]
            if found:
                return found[0]
            self.query.awaitTermination(0.05)
        raise AssertionError(f"not reported: {self.reports[-1:]}")


@pytest.fixture
def job(spark: SparkSession, kafka: KafkaWorld, tmp_path: Path) -> Iterator[Job]:
    yield Job(spark, kafka, tmp_path)
    kafka_admin.close_all()


def fired_at(headers: list[tuple[str, bytes | None]]) -> str:
    return (dict(headers)["wheel-fired-at"] or b"").decode()


@pytest.mark.sentinel
def test_a_row_is_sent_at_its_due_time_and_counted_when_it_is_confirmed(job: Job) -> None:
    with job.running():
        job.until(lambda report: report.complete)
        due_ms = job.say("a", 15)
        handed = job.until(lambda report: report.in_flight == 1)
        assert (handed.pending, handed.counts["fired"]) == (1, 0)
        ((key, value, headers, _),) = job.kafka.consume(job.out, 1)
        confirmed = job.until(lambda report: report.counts["fired"] == 1)
    assert (key, value) == (b"a", b"v")
    assert instant_text_ms(due_ms) <= fired_at(headers) < instant_text_ms(due_ms + 1_000)
    assert dict(headers)["wheel-deliver-at"] == instant_text_ms(due_ms).encode()
    assert [name for name, _ in headers] == [
        "wheel-id", "wheel-fire-id", "wheel-deliver-at", "wheel-fired-at", "wheel-seq", "wheel-source",
    ]  # fmt: skip
    assert (confirmed.pending, confirmed.in_flight, confirmed.fired) == (0, 0, 1)
    assert sum(report.lateness.count for report in job.reports) == 1


def test_a_stop_leaves_what_is_in_flight_to_the_next_start_and_repeats_nothing_that_is_noted(
    job: Job,
) -> None:
    with job.running():
        job.until(lambda report: report.complete)
        job.say("early", 12)
        job.say("later", 30)
        job.until(lambda report: report.in_flight == 2)
        job.kafka.consume(job.out, 1)
    job.reports.clear()
    with job.running():
        job.until(lambda report: report.counts["fired"] == 2)
    assert [key for key, *_ in job.kafka.everything(job.out)] == [b"early", b"later"]
    assert (job.reports[-1].pending, job.reports[-1].in_flight) == (0, 0)


@pytest.mark.parametrize("off", [False, True])
def test_a_record_that_the_topic_refuses_becomes_a_reject_at_the_hand_over(job: Job, *, off: bool) -> None:
    small = job.kafka.topic(config={"max.message.bytes": "2000"})
    with job.running(off=off):
        job.until(lambda report: report.complete)
        job.say("fits", 12, target=small)
        job.say("too-large", 12, target=small, value="x" * 5_000)
        job.say("missing", 12, target=f"missing-{uuid.uuid4().hex}")
        job.until(lambda report: report.counts["fired"] == 3)
        assert [key for key, *_ in job.kafka.consume(small, 1)] == [b"fits"]
    assert sum(report.undeliverable for report in job.reports) == 2
    rows = [
        json.loads(line)
        for file in (job.folder / "rejects").rglob("*.json")
        for line in file.read_text().splitlines()
    ]
    rejected = {
        row["schedule_id"]: (row["error_code"], row["error_message"].partition(" is ")[2][:9]) for row in rows
    }
    assert rejected == {"too-large": ("undeliverable", "too large"), "missing": ("undeliverable", "missing")}


def test_turned_off_the_job_delivers_what_was_in_flight_when_it_is_due_and_repeats_nothing_that_is_noted(
    job: Job,
) -> None:
    with job.running():
        job.until(lambda report: report.complete)
        job.say("sent", 12)
        job.say("later", 30)
        job.until(lambda report: report.in_flight == 2)
        job.kafka.consume(job.out, 1)
    job.reports.clear()
    with job.running(off=True):
        job.until(lambda report: report.counts["fired"] == 2)
    assert [key for key, *_ in job.kafka.everything(job.out)] == [b"sent", b"later"]


@pytest.mark.parametrize(
    ("ahead_ms", "rows"),
    [pytest.param(100, 200_000, id="smaller than a batch"), pytest.param(600_000, 20, id="little room")],
)
def test_an_ahead_that_is_too_small_or_too_large_loses_and_repeats_nothing_and_no_row_is_early(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path, ahead_ms: int, rows: int
) -> None:
    job = Job(spark, kafka, tmp_path, ahead_ms=ahead_ms, rows=rows)
    try:
        with job.running():
            job.until(lambda report: report.complete)
            dues = {f"r{number:02}": job.say(f"r{number:02}", 8 + number / 10) for number in range(60)}
            job.until(lambda report: report.counts["fired"] == 60)
    finally:
        kafka_admin.close_all()
    records = job.kafka.everything(job.out)
    assert sorted((row.key or b"").decode() for row in records) == sorted(dues)
    for row in records:
        assert fired_at(row.headers) >= instant_text_ms(dues[(row.key or b"").decode()])
    # Later it may be more: a row counts until all rows of its batch are confirmed.
    assert next(report.in_flight for report in job.reports if report.in_flight) <= rows
    assert (job.reports[-1].pending, job.reports[-1].in_flight) == (0, 0)


def test_a_frame_has_one_sender_and_only_topics_are_punctual(job: Job, tmp_path: Path) -> None:
    commands = (
        job.spark.readStream.format("rate")
        .load()
        .selectExpr("'a' AS schedule_id", "'1 s' AS delay", "'x' AS destination")
    )
    scheduled = schedule(commands, wheel=Wheel(1_000, 20, 4), clock=ProcessingClock(), punctual=Punctual())
    with pytest.raises(ConfigError, match=r"only topics of Kafka can be served punctually.*destinations\.x"):
        deliver(
            scheduled,
            destinations=Destinations({"x": FileSink(str(tmp_path / "x"))}),
            rejects=FileSink(str(tmp_path / "rejects")),
            checkpoint=str(tmp_path / "c"),
        )
