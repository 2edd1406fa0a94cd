"""Commands from real topics: from the first record to the account, through the wheel, with literal times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions as F

from tests.command_line import Said, say
from tests.kafka.client import KafkaWorld
from tests.spark.streams import account
from wheel_udf.commands.delay_levels import FixedLevels
from wheel_udf.commands.parse import Contract
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job.compose import compose, frame_of, sources_of
from wheel_udf.job.loader import check
from wheel_udf.job.models.levels import FixedLevelsConfig
from wheel_udf.job.models.source import SourceConfig
from wheel_udf.job.source_topics import NOTED
from wheel_udf.job.sources.commands import read_commands
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.spark.failures import LOST_HINT, Cause, explain
from wheel_udf.stream.outputs import fired, rejects, status
from wheel_udf.stream.schedule_operator import schedule

T0 = "2024-01-01T00:00:00Z"
UNTIL_MS = 1_704_067_260_000  # a minute later
T0_MS = UNTIL_MS - 60_000

Run = Callable[..., DataFrame]
SOURCE: TypeAdapter[SourceConfig] = TypeAdapter(SourceConfig)


def said(schedule_id: str, delay: str = "10 seconds", **more: str) -> dict[str, bytes]:
    """Headers of the native preset, said at T0."""
    named = {"id": schedule_id, "delay": delay, "target": "out", "event-time": T0} | more
    return {f"wheel-{name}": text.encode() for name, text in named.items() if text}


@pytest.fixture
def run_wheel(spark: SparkSession, kafka: KafkaWorld, tmp_path: Path) -> Iterator[Run]:
    """Runs the wheel over a source until its end, and the clock on to a minute after T0; again from where it was."""

    def act(*topics: str, preset: str = "native", **options: str) -> DataFrame:
        scheduled = schedule(
            read_commands(spark, source(kafka, *topics, **options), preset=preset),
            wheel=Wheel(tick_ms=1_000, size=20, levels=4),
            shards=2,
            clock=EventClock(max_ahead_ms=None, until_ms=UNTIL_MS),
        )
        return _written(scheduled, tmp_path / "checkpoint", tmp_path / "rows")

    yield act
    kafka_admin.close_all()


def _written(scheduled: DataFrame, checkpoint: Path, rows: Path) -> DataFrame:
    # Files and no table in memory, which cannot go on from a checkpoint.
    writer = scheduled.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(rows)).awaitTermination()
    return scheduled.sparkSession.read.schema(scheduled.schema).parquet(str(rows))


def source(kafka: KafkaWorld, *topics: str, **options: str) -> SourceConfig:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    given = {"format": "kafka", "options": servers | options} | ({"topics": topics} if topics else {})
    return SOURCE.validate_python(given)


def told(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in columns) for row in rows.collect())


def test_commands_of_several_partitions_go_through_the_wheel(kafka: KafkaWorld, run_wheel: Run) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(
        topic,
        [
            (b"k", b"\xff1", [("trace", b"x"), *said("a").items()], 0),
            (None, None, said("b", "2 days"), 0),
            (None, b"3", said("gone"), 1),
            (None, None, said("gone", "", op="cancel"), 1),
            (None, b"4", said("new", "9 days"), 1),
            (None, b"5", said("new"), 1),
            (b"k", b"6", said("lost", target=".."), 1),
        ],
    )
    rows = run_wheel(topic)
    assert told(rows.where("kind = 'fired'"), "schedule_id", "seq", "key", "value", "source") == [
        ("a", 0, b"k", b"\xff1", f"{topic}/0/0"),
        ("new", 3, None, b"5", f"{topic}/1/3"),
    ]
    (first, _) = fired(rows).orderBy("schedule_id").collect()
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("trace", b"x")]
    assert told(rejects(rows), "schedule_id", "error_code", "key", "value", "source") == [
        ("lost", "bad_destination", b"k", b"6", f"{topic}/1/4")
    ]
    assert account(rows) == {
        "pending": 1,
        "fired": 2,
        "cancelled": 1,
        "superseded": 1,
        "rejected": 1,
        "applied": 1,
    }


def test_a_second_start_goes_on_behind_what_was_read(kafka: KafkaWorld, run_wheel: Run) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [(None, b"1", said("a", "1 day")), (None, b"2", said("b"))])
    assert told(fired(run_wheel(topic)), "schedule_id") == [("b",)]
    kafka.produce(topic, [(None, None, said("a", "", op="cancel")), (None, b"3", said("c"))])
    rows = run_wheel(topic)
    assert told(fired(rows), "schedule_id", "value") == [("b", b"2"), ("c", b"3")]
    assert account(rows) == {"fired": 2, "cancelled": 1, "applied": 1}


def test_a_compacted_topic_fires_what_a_fold_over_it_leaves_over_gaps_bad_records_and_a_restart(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path
) -> None:
    topic = kafka.topic(config={"cleanup.policy": "compact"})
    headers = {
        "scheduler-epoch": b"4102444800",  # 2100-01-01
        "scheduler-target-topic": b"out",
        "scheduler-target-key": b"tk",
    }
    job = {
        "wheel": {"shards": 2},
        "clock": {"kind": "event"},
        "source": source(
            kafka, topic, **{"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "4"}
        ).model_dump(exclude_defaults=True),
        "contract": {"preset": "scheduler", "max_delay": "unlimited"},
        "destinations": {"out": {"sink": "parquet", "path": str(tmp_path)}},
        "rejects": {"sink": "parquet", "path": str(tmp_path / "rejects")},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    reports: list[BatchReport] = []

    def run(until_ms: int | None = None) -> None:
        start = compose(check(job), sources_of(spark, check(job)), until_ms)
        start(trigger="available-now", on_batch=reports.append).awaitTermination()

    kafka.produce(topic, [("a", b"0", headers), ("b", b"1", headers), ("a", None), ("d", b"3", headers)])
    run()
    assert (reports[-1].pending, reports[-1].fired) == (2, 0)

    # A batch of offsets without a record is not the end of the input: `d` would fire, and is cancelled behind it.
    kafka.abort(topic, 6)  # offsets 4 to 10
    bad = headers | {"scheduler-epoch": b"soon"}
    later = [("b", b"11", headers), ("c", b"12", headers), ("c", b"13", bad), ("never", None), ("d", None)]
    kafka.produce(topic, later)
    run(until_ms=4_102_444_800_000)
    assert any(each.held_input and each.received == 0 for each in reports)
    fired_rows = spark.read.parquet(str(tmp_path / "out"))
    assert told(fired_rows, "schedule_id", "seq", "key", "value") == [
        ("b", 11, b"tk", b"11"),
        ("c", 12, b"tk", b"12"),
    ]
    reject_rows = spark.read.parquet(str(tmp_path / "rejects"))
    assert told(reject_rows, "schedule_id", "error_code", "source") == [
        ("c", "bad_deliver_at", f"{topic}/0/13")
    ]
    counts = {name: count for name, count in reports[-1].counts.items() if count}
    assert counts == {
        "fired": 2,
        "superseded": 1,
        "cancelled": 2,
        "applied": 2,
        "rejected": 1,
        "waiting": 1,
    }
    kafka_admin.close_all()


def test_json_that_is_none_is_a_reject_with_its_text(kafka: KafkaWorld, run_wheel: Run) -> None:
    topic = kafka.topic()
    good = {"schedule_id": "a", "delay": "1s", "event_time": T0, "destination": "out", "value": {"n": 1}}
    kafka.produce(topic, [(b"k", b"{torn"), (None, json.dumps(good)), (None, None)])
    rows = run_wheel(topic, preset="json")
    assert told(fired(rows), "schedule_id", "value") == [("a", b'{"n": 1}')]
    found = {row.source: (row.error_code, row.key, row.value) for row in rejects(rows).collect()}
    assert found == {
        f"{topic}/0/0": ("unreadable", b"k", b"{torn"),
        f"{topic}/0/2": ("unreadable", None, None),
    }


@pytest.mark.parametrize(
    ("contract", "delivered"),
    [
        (
            {"id_from": "key", "default_delay": "30 seconds"},
            [("user-7", b"3", T0_MS + 50_000), ("user-8", b"4", T0_MS + 51_000)],
        ),
        (
            {"id_from": "key", "default_delay": "0 seconds", "seq_from": "constant"},
            [("user-7", b"1", T0_MS), ("user-8", b"4", T0_MS + 21_000)],
        ),
        (
            {"id_from": "offset", "due_from": "header:eta", "default_delay": "0 seconds"},
            [
                ("{topic}/0/0", b"1", T0_MS),
                ("{topic}/0/1", b"2", T0_MS + 10_000),
                ("{topic}/0/2", b"3", T0_MS + 40_000),
                ("{topic}/0/3", b"4", T0_MS + 21_000),
            ],
        ),
    ],
    ids=["debounce", "throttle", "eta"],
)
def test_plain_events_are_commands_by_the_settings_of_the_contract(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path, contract: dict[str, str], delivered: list[Any]
) -> None:
    topic = kafka.topic()

    def at(second: int, eta: str) -> dict[str, bytes]:
        return {"wheel-event-time": f"2024-01-01T00:00:{second:02}Z".encode(), "eta": eta.encode()}

    kafka.produce(
        topic,
        [
            (b"user-7", b"1", at(0, "null")),
            (b"user-7", b"2", at(10, "")),
            (b"user-7", b"3", at(20, "2024-01-01T00:00:40+00:00")),
            (b"user-8", b"4", at(21, "null")),
        ],
    )
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    config = {
        "clock": {"kind": "event", "max_ahead": "none"},
        "source": {"format": "kafka", "topics": [topic], "options": servers},
        "contract": contract | {"default_destination": "changed"},
        "destinations": {"changed": {"sink": "parquet", "path": str(tmp_path / "out")}},
        "rejects": {"sink": "json", "path": str(tmp_path / "bad")},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    rows = _written(
        frame_of(job := check(config), sources_of(spark, job), UNTIL_MS),
        tmp_path / "query",
        tmp_path / "rows",
    )
    kafka_admin.close_all()
    found = told(
        fired(rows).withColumn("due_ms", F.unix_millis("deliver_at")), "schedule_id", "value", "due_ms"
    )
    assert found == [(name.format(topic=topic), value, due_ms) for name, value, due_ms in delivered]


def test_of_an_id_that_is_spread_over_partitions_the_higher_offset_wins(
    kafka: KafkaWorld, run_wheel: Run
) -> None:
    topic = kafka.topic(partitions=2)
    others = [(None, b"x", said(f"other-{number}", "1 day"), 0) for number in range(3)]
    kafka.produce(topic, [*others, (None, b"first", said("a"), 0), (None, b"later", said("a"), 1)])
    rows = run_wheel(topic)
    assert told(fired(rows), "schedule_id", "seq", "value") == [("a", 3, b"first")]
    assert account(rows)["superseded"] == 1


def test_an_id_that_gives_its_own_seq_may_be_spread(kafka: KafkaWorld, run_wheel: Run) -> None:
    topic = kafka.topic(partitions=2)
    others = [(None, b"x", said(f"other-{number}", "1 day"), 0) for number in range(3)]
    kafka.produce(
        topic, [*others, (None, b"first", said("a", seq="1"), 0), (None, b"later", said("a", seq="2"), 1)]
    )
    assert told(fired(run_wheel(topic)), "schedule_id", "seq", "value") == [("a", 2, b"later")]


def test_reading_starts_where_the_options_say(kafka: KafkaWorld, run_wheel: Run) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [(None, b"x", said(name)) for name in "abc"])
    rows = run_wheel(topic, startingOffsets=json.dumps({topic: {"0": 2}}))
    assert told(fired(rows), "schedule_id") == [("c",)]


def test_reading_ends_before_the_ending_offsets_and_elsewhere_not_at_all(
    kafka: KafkaWorld, run_wheel: Run
) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(
        topic, [(None, b"x", said(f"{name}{number}"), number) for name in "abc" for number in (0, 1)]
    )
    rows = run_wheel(topic, endingOffsets=json.dumps({topic: {"0": 1}}))
    assert told(fired(rows), "schedule_id") == [("a0",), ("a1",), ("b1",), ("c1",)]


def test_a_rate_limit_bounds_what_a_batch_reads(kafka: KafkaWorld, run_wheel: Run) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [(None, b"x", said(f"id-{number}")) for number in range(5)])
    rows = run_wheel(topic, maxOffsetsPerTrigger="2")
    by_batch = status(rows).groupBy("batch_id").agg(F.sum("received").alias("received")).orderBy("batch_id")
    received = [row.received for row in by_batch.collect() if row.received]
    assert (received, fired(rows).count()) == ([2, 2, 1], 5)


def test_topics_by_pattern_and_by_assignment(kafka: KafkaWorld, run_wheel: Run) -> None:
    topic = kafka.topic(partitions=2, prefix="assigned")
    kafka.produce(topic, [(None, b"x", said("a"), 0), (None, b"x", said("b"), 1)])
    assert told(fired(run_wheel(assign=json.dumps({topic: [1]}))), "schedule_id") == [("b",)]


def test_missing_topics_are_named_before_anything_starts(spark: SparkSession, kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    with pytest.raises(ConfigError, match=r"there is nothing to read: source\.topics = 'nope-1, nope-2'"):
        read_commands(spark, source(kafka, "nope-2", topic, "nope-1"))
    kafka_admin.close_all()


@dataclass
class Job:
    """A job from a topic into files, and the command line for it."""

    kafka: KafkaWorld
    folder: Path
    topic: str
    config: dict[str, Any]

    def send(self, *ids: str) -> None:
        """Sends commands that are due 10 s after T0."""
        self.kafka.produce(self.topic, [(None, name.encode(), said(name)) for name in ids])

    def say(self, verb: str, *more: str) -> Said:
        file = self.folder / "job.yml"
        file.write_text(json.dumps(self.config))
        return say(file, verb, *more)

    def fired(self, spark: SparkSession) -> list[str]:
        return sorted(row.schedule_id for row in spark.read.parquet(str(self.folder / "out")).collect())


@pytest.fixture
def job(kafka: KafkaWorld, tmp_path: Path, spark: SparkSession) -> Iterator[Job]:
    topic = kafka.topic()
    config = {
        "wheel": {"shards": 1},
        "clock": {"kind": "event", "max_ahead": "none"},
        "source": source(kafka, topic).model_dump(exclude_defaults=True),
        "contract": {"preset": "native", "memory": "0 seconds"},
        "destinations": {"out": {"sink": "parquet", "path": str(tmp_path)}},
        "rejects": {"sink": "parquet", "path": str(tmp_path / "rejects")},
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": "available-now",
    }
    yield Job(kafka, tmp_path, topic, config)
    kafka_admin.close_all()


SKIP_LOST = ("--set", "source.options.failOnDataLoss=false")
UNTIL = ("--until", "2024-01-01T00:01:00Z")


def test_a_topic_that_is_created_again_under_a_job_ends_it_at_once_with_both_ids(job: Job) -> None:
    job.send("a", "b", "c")
    job.config |= {"trigger": "1 second", "restarts": {"most": 3, "wait": "1 second"}}
    ends: list[Said] = []
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(lambda: ends.append(job.say("run")))
        while not running.done() and not (job.folder / "checkpoint" / NOTED).exists():
            wait([running], timeout=0.1)
        job.kafka.create_again(job.topic)
        job.send("d")
    [(code, out, err)] = ends
    assert code == 2, err
    assert "it starts again" not in out
    assert re.fullmatch(
        rf"error: topic {job.topic} was deleted and created again \(id \S{{22}}, now \S{{22}}\): partition 0 was read up to "
        rf"offset 3, and now (holds offsets 0 to 0|is empty): hint: {re.escape(LOST_HINT)}\n",
        err,
    ), err


def test_a_topic_that_is_longer_when_it_is_created_again_is_not_taken_for_the_old_one(
    spark: SparkSession, job: Job
) -> None:
    job.send("a", "b", "c")
    assert job.say("run").code == 0
    job.kafka.create_again(job.topic)
    job.send("d", "e", "f", "g")
    code, _, err = job.say("run")
    assert code == 2, err
    assert "created again (id " in err
    assert "read up to offset 3, and now holds offsets 0 to 3" in err

    # On in place: what the new topic holds before that offset is lost, and counted.
    assert job.say("export", "--to", str(job.folder / "export"), "--keep").code == 0
    code, out, err = job.say("run", *SKIP_LOST)
    assert code == 0, err
    assert "warning: source.options.failOnDataLoss: false: " in out
    assert "and now holds offsets 0 to 3: 3 offsets are lost" in out
    assert "warning     3 offsets of the source are lost: failOnDataLoss is false" in out
    code, out, err = job.say("run", *UNTIL)  # the new id is noted
    assert (code, "lost" in out) == (0, False), err
    assert job.fired(spark) == ["a", "b", "c", "g"]

    # Or moved, and the topic read from its beginning.
    job.config["checkpoint"] = str(job.folder / "moved")
    job.config["destinations"]["out"]["path"] = str(job.folder / "moved-out")
    move = ("import", "--from", str(job.folder / "export"), "--anew")
    assert "a topic cannot be read anew: --anew = 'other'" in job.say(*move, "other").err
    code, out, err = job.say(*move, job.topic)
    assert code == 0, err
    assert f"goes on at {{'{job.topic}': {{'0': 0}}}}" in out
    code, _, err = job.say("run", *UNTIL)
    assert code == 0, err
    rows = spark.read.parquet(str(job.folder / "moved-out" / "out")).collect()
    assert sorted(row.schedule_id for row in rows) == ["a", "b", "c", "d", "e", "f", "g"]


def test_records_that_retention_deletes_unread_are_named_and_counted(spark: SparkSession, job: Job) -> None:
    job.send("a", "b", "c")
    assert job.say("run").code == 0
    job.send("d", "e", "f", "g")
    job.kafka.delete_records(job.topic, 5)
    code, _, err = job.say("run")
    assert code == 2, err
    assert err.startswith(
        f"error: offsets 3 to 4 of {job.topic}/0 were deleted before they were read: hint: "
    )
    code, out, err = job.say("run", *SKIP_LOST, *UNTIL)
    assert code == 0, err
    assert (
        f"warning: offsets 3 to 4 of {job.topic}/0 were deleted before they were read: 2 offsets are lost"
        in out
    )
    assert job.fired(spark) == ["a", "b", "c", "f", "g"]


def test_a_batch_whose_records_are_gone_is_told_by_sparks_own_reason_where_no_job_looks(
    kafka: KafkaWorld, run_wheel: Run
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [(None, b"x", said(name)) for name in "abc"])
    run_wheel(topic)
    kafka.produce(topic, [(None, b"x", said(name)) for name in "defg"])
    kafka.delete_records(topic, 5)
    with pytest.raises(StreamingQueryException) as caught:
        run_wheel(topic)
    failure = explain(caught.value)
    assert failure.cause is Cause.SOURCE_LOST
    reason = f"Could not read records in offset [3, 7) for topic partition {topic}-0"
    assert failure.sentence.startswith(f"records of a topic are gone that were not read ({reason}")


def test_a_source_of_a_library_call_has_the_same_rules() -> None:
    with pytest.raises(ValidationError, match="2 validation errors"):
        SOURCE.validate_python({"format": "kafka"})


def test_topics_are_described_and_made(kafka: KafkaWorld) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    name = kafka.topic(config={"cleanup.policy": "compact", "max.message.bytes": "5000"})
    kafka_admin.create(options, f"{name}-made", partitions=3)
    kafka_admin.create(options, f"{name}-made", partitions=5)  # it is there: left as it is
    # The broker knows the topic a moment later than the controller.
    assert any(kafka_admin.describe(options, [f"{name}-made"]) for _ in range(1_000))
    found = kafka_admin.describe(options, [name, f"{name}-made", f"{name}-not", "not a name", ".."])
    assert {topic: info.partitions for topic, info in found.items()} == {name: 1, f"{name}-made": 3}
    assert (found[name].max_message_bytes, found[name].compacted) == (5_000, True)
    assert not found[f"{name}-made"].compacted
    assert name in kafka_admin.topic_names(options)
    assert not kafka_admin.INTERNAL_TOPICS & set(kafka_admin.topic_names(options))
    kafka_admin.close_all()


def test_a_topic_whose_partitions_have_no_leader_yet_is_no_cluster_that_does_not_answer(
    kafka: KafkaWorld,
) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    for number in range(10):  # without a second question, every other one failed
        name = f"{kafka.topic()}-{number}"
        kafka_admin.create(options, name, partitions=3)
        looks = (kafka_admin.offsets(options, [name]) for _ in range(1_000))
        found = next(filter(None, looks))  # the broker knows the topic a moment later than the controller
        assert found[name].ranges == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    kafka_admin.close_all()


def test_the_intake_of_a_level_pauses_alone_and_goes_on_where_it_was(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path
) -> None:
    own, of_level = kafka.topic(), kafka.topic(partitions=2)

    def run(*, paused: bool) -> DataFrame:
        levels = FixedLevelsConfig.model_validate(
            {"topics": {of_level: "30s"}, "paused": ["30s"] if paused else []}
        )
        commands = read_commands(spark, source(kafka, own), levels=levels)
        clock = EventClock(max_ahead_ms=None, until_ms=UNTIL_MS)
        contract = Contract(levels=FixedLevels())
        wheel = Wheel(tick_ms=1_000, size=20, levels=4)
        scheduled = schedule(commands, wheel=wheel, shards=2, clock=clock, contract=contract)
        return _written(scheduled, tmp_path / "checkpoint", tmp_path / "rows")

    def out(*, paused: bool) -> list[tuple[Any, ...]]:
        return told(fired(run(paused=paused)), "schedule_id", "level_error_ms")

    try:
        kafka.produce(of_level, [(None, None, said("its own", ""), 0), (None, None, said("said", "17 s"), 1)])
        assert out(paused=False) == [("its own", 0), ("said", 13_000)]
        kafka.produce(of_level, [(None, None, said("waits", ""), 0), (None, None, said("too", "9 s"), 1)])
        kafka.produce(own, [(None, None, said("goes on", "10 s"))])
        assert out(paused=True) == [("goes on", 0), ("its own", 0), ("said", 13_000)]
        kafka.produce(own, [(None, None, said("no delay", ""))])
        rows = run(paused=False)
        assert told(fired(rows), "schedule_id", "level_error_ms")[-2:] == [("too", 1_000), ("waits", 0)]
        assert account(rows) == {"fired": 5, "rejected": 1}
    finally:
        kafka_admin.close_all()
