"""Ctrl-C while a verb works: a process gets a SIGINT while Spark reads; it ends with one line, and the same command
again does all of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.command_line import say
from tests.spark.streams import add_files, due
from wheel_udf.checkpoint.act_files import acts_made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
_LONGEST_S = 120
STATE = "wheel_udf.pending.state:from_state"
TABLES = "wheel_udf.transfer.importing:table_of"


class Place(NamedTuple):
    """The folder of a test, and the config of a job in it."""

    folder: Path
    config: Path


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    """A direct job that has run: of four entries one has fired."""
    add_files(
        tmp_path / "in", [due("start", 1, 0), due("b", 500, 20), due("c", 900, 20)], [due("clock", 3_000, 40)]
    )
    config = _config(tmp_path, "first")
    assert say(config, "run", "--trigger", "available-now").code == 0
    return Place(tmp_path, config)


def _config(folder: Path, name: str) -> Path:
    settings = {
        "name": name,
        "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2},
        "clock": {"kind": "event", "max_ahead": "none"},
        "source": {"format": "parquet", "path": str(folder / "in"), "schema": "schedule_id string, op string, seq long, deliver_at timestamp, event_time timestamp, destination string, value binary, max_lateness string"},
        "destinations": {"*": {"sink": "delta", "path": str(folder / "tables"), "create": True}},
        "rejects": {"sink": "delta", "path": str(folder / "rejects")},
        "checkpoint": str(folder / name),
    }  # fmt: skip
    file = folder / f"{name}.yml"
    file.write_text(json.dumps(settings), encoding="utf-8")
    return file


class Ended(NamedTuple):
    """How a process ended: exit code, standard output, the last line of standard error, the jobs that ran when Spark
    was stopped.
    """

    code: int
    out: str
    last_line: str
    jobs: str


def interrupted(folder: Path, blocked: str, *arguments: str) -> Ended:
    """Executes a verb in a process, and interrupts it when Spark's workers have begun to read."""
    mark = folder / f"{arguments[0]}.began"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.delta.job.interrupted", str(mark), blocked, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        tick = threading.Event()
        while not mark.exists() and process.poll() is None:
            tick.wait(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_LONGEST_S)
    assert "Traceback" not in err, "one line says what has happened"
    jobs = Path(f"{mark}.jobs")
    assert jobs.exists(), f"Spark was not stopped: {err}"
    return Ended(process.returncode, out, err.splitlines()[-1], jobs.read_text(encoding="utf-8"))


def test_an_interrupted_export_can_be_made_again_and_imported(place: Place) -> None:
    folder, export = place.folder, str(place.folder / "export")
    ended = interrupted(folder, STATE, "export", "--config", str(place.config), "--to", export)

    assert ended == Ended(
        130,
        "",
        "export: interrupted; the export is not used until it is complete: the same command again makes or completes it",
        "[]",
    )  # fmt: skip
    assert say(place.config, "run", "--trigger", "available-now").code == 0, "the job is as it was"
    later = _config(folder, "second")
    assert "there is no complete export here" in say(later, "import", "--from", export).err
    made = say(place.config, "export", "--to", export)
    assert (made.code, made.err) == (0, "")
    assert "3 pending; counted so far: 1 fired" in made.out
    assert say(later, "import", "--from", export).code == 0
    assert say(later, "pending", "--count").out == "pending 3\n"


def test_an_interrupted_import_is_refused_as_a_job_and_completed_by_the_same_command(place: Place) -> None:
    folder, export = place.folder, str(place.folder / "export")
    assert say(place.config, "export", "--to", export).code == 0
    later = _config(folder, "second")
    ended = interrupted(folder, TABLES, "import", "--config", str(later), "--from", export)

    assert ended == Ended(
        130,
        "",
        "import: interrupted; the new checkpoint does not start until the import is complete: the same command again completes it",
        "[]",
    )  # fmt: skip
    assert "has not finished" in say(later, "run", "--trigger", "available-now").err
    assert say(later, "import", "--from", export).code == 0
    assert say(later, "pending", "--count").out == "pending 3\n"


def test_an_interrupted_act_has_changed_nothing(place: Place) -> None:
    argv = ("cancel", "--config", str(place.config), "--where", "true")
    ended = interrupted(place.folder, STATE, *argv)

    assert ended == Ended(
        130,
        "",
        "cancel: interrupted; an act is done completely or not at all: `wheel-udf acts` shows whether it was",
        "[]",
    )
    assert acts_made(str(place.folder / "first")) == 0
    assert say(place.config, "cancel", "--where", "true").out == "cancelled 3 entries\n"


def test_an_interrupted_count_is_one_line(place: Place) -> None:
    argv = ("pending", "--config", str(place.config), "--count", "--where", "true")
    ended = interrupted(place.folder, STATE, *argv)

    assert ended == Ended(130, "", "pending: interrupted", "[]")
