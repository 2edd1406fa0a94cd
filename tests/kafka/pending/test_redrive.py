"""Dead letters of a table and of a topic are sent again, through the wheel."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.command_line import say
from tests.spark.streams import add_files, at, due
from wheel_udf.sinks.destinations import DEAD

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.client import KafkaWorld

HEADERS = {
    "wheel-id": "schedule_id", "wheel-seq": "seq", "wheel-target": "origin", "wheel-amend": "amend",
    "wheel-occurrence": "occurrence", "wheel-attempts": "attempts", "wheel-reason": "reason",
    "wheel-fire-id": "fire_id", "wheel-first-error": "first_error",
}  # fmt: skip
INSTANTS = {"wheel-deliver-at": "deliver_at", "wheel-failed-at": "failed_at", "wheel-dead-at": "dead_at"}


def letter(schedule_id: str, died_s: float, origin: str = "out", seq: int = 1, **more: Any) -> dict[str, Any]:
    row = dict.fromkeys(DEAD.names) | {"schedule_id": schedule_id, "seq": seq, "origin": origin, "amend": 2}
    row |= {
        "fire_id": f"f-{schedule_id}",
        "destination": "dead",
        "value": schedule_id.encode(),
        "attempts": 3,
    }
    row |= {"headers": [("trace", b"t")], "reason": "after 3 attempts", "first_error": "HTTP 503"}
    return row | {"deliver_at": at(5), "failed_at": at(5), "dead_at": at(died_s)} | more


LETTERS = [
    letter("a", 11),
    letter("a", 12, value=b"newer", amend=3),
    letter("b", 13, source_topic="commands", source_partition=0, source_offset=7),
    letter("newer", 14),
    letter("s", 15, occurrence=3, deliver_at=at(60)),
    letter("other", 16, origin="elsewhere"),
]


class Job:
    """A job with a table and a topic of dead letters."""

    def __init__(self, spark: SparkSession, kafka: KafkaWorld, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.topic = kafka.topic(prefix="dead")
        self.config = folder / "job.yml"
        place = {name: str(folder / name) for name in ("in", "tables", "rejects", "checkpoint")}
        servers = {"kafka.bootstrap.servers": kafka.bootstrap}
        settings = {
            "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2},
            "clock": {"kind": "event", "max_ahead": "none"},
            "source": {"format": "parquet", "path": place["in"]},
            "destinations": {
                "dead-*": {"sink": "kafka", "options": servers},
                "none": {"sink": "json", "path": place["tables"]},
                "*": {"sink": "delta", "path": place["tables"], "create": True},
            },
            "dead_letters": "dead",
            "rejects": {"sink": "delta", "path": place["rejects"]},
            "trigger": "available-now",
            "checkpoint": place["checkpoint"],
        }
        self.config.write_text(json.dumps(settings))

    def say(self, *arguments: str) -> str:
        code, out, err = say(self.config, *arguments)
        assert (code, err) == (0, "")
        return out.strip()

    def fails(self, *arguments: str) -> str:
        code, _, err = say(self.config, *arguments)
        assert code != 0
        return err

    def die(self, where: str) -> None:
        """Writes the letters to the table or to the topic."""
        if where == "table":
            rows = self.spark.createDataFrame([tuple(each.values()) for each in LETTERS], DEAD.columns)
            rows.write.format("delta").save(str(self.folder / "tables" / "dead"))
            return
        rows = []
        for each in LETTERS:
            named = [(header, str(each[name])) for header, name in HEADERS.items() if each[name] is not None]
            named += [(header, each[name].isoformat()) for header, name in INSTANTS.items()]
            connect = [
                ("__connect.errors.topic", "of an earlier life"),
                ("__connect.errors.topic", "commands"),
            ]
            rows.append((None, each["value"], [*each["headers"], *connect, *named]))
        strange = {"wheel-id": "strange", "wheel-seq": "many"}
        self.kafka.produce(self.topic, [*rows, (None, b"no letter", strange), (None, b"no letter")])

    def out(self, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.spark.read.format("delta").load(str(self.folder / "tables" / "out"))
        return sorted(tuple(row) for row in rows.select(*columns).collect())


@pytest.fixture
def job(spark: SparkSession, kafka: KafkaWorld, tmp_path: Path) -> Job:
    job = Job(spark, kafka, tmp_path)
    add_files(tmp_path / "in", [due("newer", 500, 0, seq=2), due("x", 10, 10)])
    job.say("run", "--until", at(20).isoformat())
    return job


@pytest.mark.parametrize("where", ["table", "topic"])
def test_dead_letters_are_sent_again_at_their_rate_and_once(job: Job, where: str) -> None:
    job.die(where)
    asked = ("--where", "origin = 'out'", *(("--from", job.topic) if where == "topic" else ()))
    assert job.say("redrive", *asked, "--dry-run") == "would redrive 4 dead letters (dry run)"
    assert job.say("redrive", *asked, "--rate", "30/min") == "sent again 4 dead letters"
    add_files(job.folder / "in", [due("y", 40, 40)])
    job.say("run", "--until", at(40).isoformat())
    sent = [
        ("a", 1, b"newer", at(20).replace(tzinfo=None)),
        ("b", 1, b"b", at(22).replace(tzinfo=None)),
        ("s@2024-01-01T00:01:00Z", 1, b"s", at(26).replace(tzinfo=None)),
        ("x", 1, None, at(10).replace(tzinfo=None)),
        ("y", 1, None, at(40).replace(tzinfo=None)),
    ]
    assert job.out("schedule_id", "seq", "value", "deliver_at") == sent
    if where == "table":
        assert job.say("redrive", *asked) == "sent again 4 dead letters"
        job.say("run", "--until", at(50).isoformat())
        assert job.out("schedule_id", "seq", "value", "deliver_at") == sent
        assert [json.loads(line)["act"] for line in job.say("acts").splitlines()] == ["redrive", "redrive"]


def test_what_cannot_be_sent_again_is_said(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    everything = ("redrive", "--where", "true")
    table = job.folder / "tables" / "dead"
    missing = f"error: dead letters cannot be read, the table {table} is missing: dead_letters = 'dead'\n"
    assert job.fails(*everything) == missing
    assert job.fails(*everything, "--from", "dead-no") == (
        "error: dead letters cannot be read, the topic dead-no is missing: dead_letters = 'dead-no'\n"
    )
    assert job.fails(*everything, "--from", "none") == (
        "error: dead letters cannot be read from there: dead_letters = 'none'; "
        "rule: a Delta table or a topic of Kafka\n"
    )
    job.fails(*everything, "--rate", "fast")  # said by argparse
    assert "argument --rate: not a rate: 'fast'; rule: a number with /s" in capsys.readouterr().err
    assert job.fails("redrive").startswith("error: an act without ids and without a predicate: where; rule")
    assert job.fails(*everything, "--set", "dead_letters=null") == (
        "error: no dead letters: dead_letters; rule: a destination; "
        "hint: name the destination with --from, or set dead_letters in the config\n"
    )
    job.die("table")
    assert "this predicate cannot be used" in job.fails("redrive", "--where", "nobody = 1")
    assert job.say("acts") == "0 acts"
