"""A job all of whose files are in a bucket, or on HDFS, and its commands."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tests.command_line import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

START = "2013-01-01T00:00:00Z"
MODES: dict[str, dict[str, Any]] = {"direct": {}, "tiered": {"mode": "tiered"}}
WAITING = {"direct": "{} pending", "tiered": "0 near + {} far"}


def at(second: int) -> str:
    return f"2013-01-01T00:{second // 60:02}:{second % 60:02}Z"


class Server(Protocol):
    """Where its files are."""

    def put(self, name: str, content: str) -> None:
        """Writes a file."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder."""


class Job:
    """A job in a folder of another file system; only its config is a local file."""

    def __init__(self, spark: SparkSession, server: Server, place: str, folder: Path, *, root: str) -> None:
        self.spark, self.server, self.place, self.file = spark, server, place, folder / "job.yml"
        self.root = root
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


def command(name: str, due: int, sent: int = 0, **more: Any) -> dict[str, Any]:
    return {"schedule_id": name, "deliver_at": at(due), "event_time": at(sent), "value": name, **more}


def check_a_move(job: Job, mode: str) -> None:
    """Pending entries move to another checkpoint, by an export on the same file system."""
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


@contextmanager
def sparks_file_manager(spark: SparkSession) -> Iterator[None]:
    """Inside, the session writes checkpoints as on another file system than the local one."""
    name = "spark.sql.streaming.checkpointFileManagerClass"
    manager = spark.conf.get(name, None)
    spark.conf.unset(name)
    yield
    if manager is not None:
        spark.conf.set(name, manager)
