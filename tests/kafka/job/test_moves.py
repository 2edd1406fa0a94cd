"""A job that reads topics and moves: the new one goes on at the offsets of the old one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.command_line import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka.client import KafkaWorld


def said(schedule_id: str, due: str, made: str) -> tuple[bytes, bytes]:
    command = {"schedule_id": schedule_id, "deliver_at": due, "event_time": made, "destination": "out"}
    return schedule_id.encode(), json.dumps(command).encode()


def test_records_are_read_once_over_a_move(spark: SparkSession, kafka: KafkaWorld, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2)
    config = {
        "wheel": {"shards": 2},
        "clock": {"kind": "event", "max_ahead": "none"},
        "source": {
            "format": "kafka",
            "topics": [topic],
            "options": {"kafka.bootstrap.servers": kafka.bootstrap},
        },
        # Nothing is remembered: a record that was read a second time would fire a second time.
        "contract": {"preset": "json", "memory": "0 seconds"},
        "destinations": {"out": {"sink": "delta", "path": str(tmp_path / "tables"), "create": True}},
        "rejects": {"sink": "delta", "path": str(tmp_path / "rejects")},
        "trigger": "available-now",
        "checkpoint": str(tmp_path / "old"),
    }
    kafka.produce(
        topic, [said(name, f"2024-01-01T00:00:0{n}Z", "2024-01-01") for n, name in enumerate("abcd")]
    )
    _say(tmp_path, config, "run", "--until", "2024-01-01T00:00:01Z")
    _say(tmp_path, config, "export", "--to", str(tmp_path / "export"))

    config["checkpoint"] = str(tmp_path / "new")
    config["wheel"] = {"shards": 1}  # the export had more
    told = _say(tmp_path, config, "import", "--from", str(tmp_path / "export"))
    assert f"goes on at {{'{topic}': {{'0': " in told
    kafka.produce(topic, [said("e", "2024-01-01T00:00:09Z", "2024-01-01T00:00:05Z")])
    told = _say(tmp_path, config, "run", "--until", "2024-01-02")

    assert "schedules   5 = 0 pending + 5 fired" in told
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "out")).collect()
    assert sorted(row.schedule_id for row in rows) == ["a", "b", "c", "d", "e"]


def _say(folder: Path, config: dict[str, Any], verb: str, *more: str) -> str:
    file = folder / "job.yml"
    file.write_text(json.dumps(config))
    code, out, err = say(file, verb, *more)
    assert code == 0, err
    return out


def test_the_topics_of_delay_levels_are_read_once_over_a_move(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path
) -> None:
    soon, hour = kafka.topic(), kafka.topic()
    config = {
        "wheel": {"shards": 2},
        "clock": {"kind": "processing"},
        "source": {
            "format": "kafka",
            "topics": [kafka.topic()],
            "options": {"kafka.bootstrap.servers": kafka.bootstrap},
        },
        "levels": {"list": ["30m", "1h"], "topics": {soon: "30m", hour: "1h"}},
        "contract": {"preset": "json", "memory": "0 seconds"},
        "destinations": {"out": {"sink": "delta", "path": str(tmp_path / "tables"), "create": True}},
        "rejects": {"sink": "delta", "path": str(tmp_path / "rejects")},
        "trigger": "available-now",
        "checkpoint": str(tmp_path / "old"),
    }
    kafka.produce(soon, [(b"a", json.dumps({"schedule_id": "a", "destination": "out"}).encode())])
    kafka.produce(hour, [(b"b", json.dumps({"schedule_id": "b", "destination": "out"}).encode())])
    told = _say(tmp_path, config, "run")
    assert "levels 30m 1 1h 1" in told
    _say(tmp_path, config, "export", "--to", str(tmp_path / "export"))

    config["checkpoint"] = str(tmp_path / "new")
    _say(tmp_path, config, "import", "--from", str(tmp_path / "export"))
    kafka.produce(hour, [(b"c", json.dumps({"schedule_id": "c", "destination": "out"}).encode())])
    told = _say(tmp_path, config, "run", "--until", "2099-01-01")

    assert "schedules   3 = 0 pending + 3 fired" in told
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "out")).collect()
    assert sorted((row.schedule_id, row.level_error_ms) for row in rows) == [("a", 0), ("b", 0), ("c", 0)]
