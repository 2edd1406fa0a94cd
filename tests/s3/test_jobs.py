"""Whole jobs with everything on S3: source, checkpoint, store, tables, rejects, exports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.command_line import say

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.s3.server import Server

START = "2013-01-01T00:00:00Z"
MODES: dict[str, dict[str, Any]] = {"direct": {}, "tiered": {"mode": "tiered"}}
WAITING = {"direct": "{} pending", "tiered": "0 near + {} far"}


def at(second: int) -> str:
    return f"2013-01-01T00:{second // 60:02}:{second % 60:02}Z"


class Job:
    """A job in a folder of the bucket; only its config is a local file."""

    def __init__(self, spark: SparkSession, server: Server, place: str, folder: Path) -> None:
        self.spark, self.server, self.place, self.file = spark, server, place, folder / "job.yml"
        self.root = f"s3a://bucket/{place}"
        self.files = 0

    def scheduler(self, **changes: Any) -> None:
        settings = {
            "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2},
            "clock": {"kind": "event", "max_ahead": "none"},
            "source": {"format": "json", "path": f"{self.root}/in"},
            "contract": {"max_delay": "unlimited", "default_destination": "out"},
            "destinations": {"out": {"sink": "delta", "path": f"{self.root}/tables", "create": True}},
            "rejects": {"sink": "delta", "path": f"{self.root}/rejects"},
            "trigger": "available-now",
            "checkpoint": f"{self.root}/checkpoint",
        }
        if changes.get("mode") == "tiered":
            settings["store"] = {"path": f"{self.root}/store"}
        self.file.write_text(json.dumps(settings | changes))

    def purgatory(self) -> None:
        settings = {
            "wheel": {"shards": 2},
            "clock": {"kind": "event", "max_ahead": "none"},
            "operations": {
                "format": "json",
                "path": f"{self.root}/operations",
                "schema": "op STRING, key STRING, till STRING, at STRING",
                "columns": {
                    "op_id": "op",
                    "group": "key",
                    "keys": "array('done')",
                    "deadline": "till",
                    "event_time": "at",
                    "destination": "'out'",
                },
            },
            "events": {
                "format": "json",
                "path": f"{self.root}/events",
                "schema": "key STRING, at STRING",
                "columns": {"group": "key", "key": "'done'", "event_time": "at"},
            },
            "destinations": {"out": {"sink": "delta", "path": f"{self.root}/tables", "create": True}},
            "rejects": {"sink": "delta", "path": f"{self.root}/rejects"},
            "trigger": "available-now",
            "checkpoint": f"{self.root}/checkpoint",
        }
        self.file.write_text(json.dumps(settings))

    def send(self, *rows: dict[str, Any], to: str = "in") -> None:
        self.files += 1
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.server.put(f"{self.place}/{to}/{self.files:03}.json", text)

    def __call__(self, verb: str, *more: str) -> str:
        code, out, err = say(self.file, verb, *more)
        assert code == 0, f"{verb}: {err}\n{out}"
        return out

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.spark.read.format("delta").load(f"{self.root}/{name}")
        return sorted(tuple(row) for row in rows.select(*columns).collect())


@pytest.fixture
def job(s3_spark: SparkSession, s3: Server, place: str, tmp_path: Path) -> Job:
    return Job(s3_spark, s3, place, tmp_path)


def command(name: str, due: int, sent: int = 0, **more: Any) -> dict[str, Any]:
    return {"schedule_id": name, "deliver_at": at(due), "event_time": at(sent), "value": name, **more}


@pytest.mark.parametrize("mode", [pytest.param(MODES[0], marks=pytest.mark.sentinel), *MODES[1:]])
def test_a_job_on_s3_stops_goes_on_and_takes_acts_while_it_rests(job: Job, mode: str) -> None:
    job.scheduler(**MODES[mode])
    job.send(
        command("soon", 10),
        command("late", 1200),
        command("gone", 900),
        command("bad", 5, destination="../x"),
    )
    job("dry-run")
    out = job("run", "--until", at(60))
    waiting = WAITING[mode].format(2)
    assert (
        f"4 = {waiting} + 1 fired + 0 missed + 0 cancelled + 0 superseded + 0 duplicate + 1 rejected" in out
    ), out
    assert job.table("tables/out", "schedule_id") == [("soon",)]
    assert job.table("rejects", "schedule_id", "error_code") == [("bad", "bad_destination")]

    pending = job("pending")
    assert "late" in pending
    assert "gone" in pending
    job("cancel", "--id", "gone")

    job.send(command("next", 120, 61))
    out = job("run", "--until", at(1800))
    waiting = WAITING[mode].format(0)
    assert (
        f"5 = {waiting} + 3 fired + 0 missed + 1 cancelled + 0 superseded + 0 duplicate + 1 rejected" in out
    ), out
    assert job.table("tables/out", "schedule_id") == [("late",), ("next",), ("soon",)]


@pytest.mark.parametrize("mode", MODES)
def test_pending_entries_move_to_another_checkpoint_over_s3(job: Job, mode: str) -> None:
    job.scheduler(**MODES[mode])
    job.send(command("soon", 10), command("late", 1200))
    job("run", "--until", at(60))
    job("export", "--to", f"{job.root}/export")
    changes: dict[str, Any] = {"checkpoint": f"{job.root}/new"}
    if mode == "tiered":
        changes["store"] = {"path": f"{job.root}/new_store"}
    job.scheduler(**MODES[mode] | changes)
    job("import", "--from", f"{job.root}/export")
    job("run", "--until", at(1800))
    assert job.table("tables/out", "schedule_id") == [("late",), ("soon",)]


def test_the_verbs_over_a_resting_job_read_and_change_what_is_on_s3(job: Job) -> None:
    job.scheduler()
    job.send(command("soon", 10), command("late", 1200), command("gone", 900))
    job("run", "--until", at(60))

    assert "fired" in job("history", "--id", "soon")
    job("forecast")
    job("reroute", "--id", "gone", "--to", "out")
    assert "reroute" in job("acts")
    assert "nothing to repair" in job("repair", "--dry-run")


def test_a_purgatory_on_s3_stops_and_goes_on(job: Job) -> None:
    job.purgatory()
    job.send(
        {"op": "paid", "key": "a", "till": at(600), "at": at(0)},
        {"op": "late", "key": "b", "till": at(600), "at": at(0)},
        to="operations",
    )
    job.send({"key": "a", "at": at(30)}, to="events")
    job("dry-run")
    out = job("run", "--until", at(60))
    assert "2 = 1 pending + 1 completed" in out, out
    assert "late" in job("pending")
    job.send({"key": "none", "at": at(61)}, to="events")
    out = job("run", "--until", at(700))
    assert "2 = 0 pending + 1 completed + 1 expired" in out, out
    assert job.table("tables/out", "op_id", "outcome") == [("late", "expired"), ("paid", "completed")]
