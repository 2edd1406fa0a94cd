"""A checkpoint that is damaged while the job is stopped: the run says in one sentence what to do, the repair does it,
the job goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tests.command_line import say
from tests.unit.checkpoint.damaged import flip, lose

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

HINT = "wheel-udf repair --dry-run says whether it can be repaired; else restore the folder from a copy"


def due(schedule_id: str, at: str, said: str) -> dict[str, Any]:
    """A command; times of day of 2024-01-01."""
    return {
        "schedule_id": schedule_id,
        "deliver_at": f"2024-01-01T{at}Z",
        "event_time": f"2024-01-01T{said}Z",
    }


@dataclass
class Job:
    """A job of the command line, with its input and its tables in one folder."""

    spark: SparkSession
    folder: Path
    out: str = ""
    err: str = ""

    def configure(self) -> None:
        settings = {
            "wheel": {"shards": 2},
            "clock": {"kind": "event", "max_ahead": "none"},
            "source": {
                "format": "json",
                "path": str(self.folder / "in"),
                "options": {"maxFilesPerTrigger": 1},
            },
            "contract": {"default_destination": "t"},
            "destinations": {"t": {"sink": "delta", "path": str(self.folder / "out"), "create": True}},
            "rejects": {"sink": "delta", "path": str(self.folder / "rejects")},
            "trigger": "available-now",
            "checkpoint": str(self.folder / "checkpoint"),
            "restarts": {"most": 0},
        }
        (self.folder / "job.yml").write_text(yaml.safe_dump(settings))

    def send(self, name: str, *commands: dict[str, Any]) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        (self.folder / "in" / name).write_text("".join(json.dumps(command) + "\n" for command in commands))

    def __call__(self, verb: str, *argv: str) -> int:
        code, self.out, self.err = say(self.folder / "job.yml", verb, *argv)
        return code

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def newest_state(self) -> Path:
        """The newest changes of the state that are not empty."""
        files = [file for file in self.checkpoint.rglob("state/0/*/*.changelog") if file.stat().st_size > 300]
        return max(files, key=lambda file: int(file.name.partition("_")[0]))

    def fired(self) -> list[str]:
        table = self.spark.read.format("delta").load(str(self.folder / "out" / "t"))
        return [row.schedule_id for row in table.orderBy("deliver_at").collect()]

    def files(self) -> dict[str, bytes]:
        return {
            str(file.relative_to(self.checkpoint)): file.read_bytes()
            for file in self.checkpoint.rglob("*")
            if file.is_file() and file.name != "wheel.lease"
        }


def test_a_job_with_a_flipped_byte_and_then_a_lost_commit_is_repaired_and_fires_each_entry_once(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job(spark, tmp_path)
    job.configure()
    job.send("1.json", due("a", "00:10:00", "00:00:00"), due("b", "01:00:00", "00:00:00"))
    job.send("2.json", due("c", "02:00:00", "00:20:00"))
    assert job("run") == 0
    assert job("repair") == 0
    assert job.out.splitlines()[-1] == "nothing to repair"

    # A byte of the newest state.
    damaged = job.newest_state()
    batch = int(damaged.name.partition("_")[0]) - 1
    flip(damaged)
    job.send("3.json", due("d", "03:00:00", "01:10:00"))
    capfd.readouterr()
    assert job("run") == 2
    assert job.err == f"error: a file of the checkpoint is damaged: {damaged}; hint: {HINT}\n"
    assert len(capfd.readouterr().err.splitlines()) < 25  # Spark's own lines, one for each try of a task

    before = job.files()
    assert job("repair", "--dry-run") == 0
    assert job.files() == before
    where = damaged.relative_to(job.checkpoint)
    assert f"  damaged    {where}: it does not match its checksum\n" in job.out
    assert f"  repair     batch {batch} is repeated with the rows of its plan" in job.out
    assert job("repair") == 0
    (aside,) = tmp_path.glob("checkpoint-repaired-*")
    assert (aside / where).exists()
    assert not damaged.exists()
    assert job("run") == 0
    assert job.fired() == ["a", "b"]

    # The newest commit: its batch is repeated, and the tables skip what they have.
    newest = max(int(file.name) for file in (job.checkpoint / "commits").glob("[0-9]*"))
    lose(job.checkpoint / "commits" / str(newest))
    job.send("4.json", due("e", "05:00:00", "04:00:00"))
    assert job("run") == 0
    assert job.fired() == ["a", "b", "c", "d"]

    # The commit before a planned batch.
    newest = max(int(file.name) for file in (job.checkpoint / "commits").glob("[0-9]*"))
    for lost in (newest - 1, newest):
        lose(job.checkpoint / "commits" / str(lost))
    assert job("run") == 2
    assert job.err.startswith(
        f"error: the newest planned batch is {newest} and the newest committed one is {newest - 2}: "
    )
    assert job.err.endswith(f"; hint: {HINT}\n")
