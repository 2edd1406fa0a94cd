"""The job from end to end, through its command line: files in, tables out, lines and exit codes."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.command_line import say
from wheel_udf.job.cli import main
from wheel_udf.sinks.destinations import FIRED_SCHEMA, REJECT_SCHEMA

START = "2013-01-01T00:00:00Z"
# Event times move the event clock from 00:00:00 to 00:00:30. `far` stays pending unless the clock is run on beyond it.
COMMANDS: list[dict[str, Any]] = [
    {"schedule_id": "soon", "delay": "10 seconds", "event_time": START, "value": "1"},
    {"schedule_id": "hour", "delay": "1 hour", "event_time": START, "value": "2"},
    {"schedule_id": "gone", "delay": "1 hour", "event_time": START, "seq": 1},
    {"schedule_id": "gone", "op": "cancel", "event_time": "2013-01-01T00:00:30Z", "seq": 2},
    {"schedule_id": "far", "deliver_at": "2099-01-01", "event_time": START, "value": "3"},
    {"schedule_id": "lost", "delay": "1 second", "event_time": START, "destination": "../../x"},
]


@dataclass
class Job:
    """A job in a folder of its own: writes input, runs the command line, reads tables."""

    folder: Path
    spark: SparkSession
    out: str = ""
    err: str = ""

    def configure(self, **changes: Any) -> None:
        settings = {
            "wheel": {"shards": 2},
            "clock": {"kind": "event"},
            "source": {"format": "json", "path": str(self.folder / "in")},
            "contract": {"max_delay": "unlimited", "default_destination": "t"},
            "destinations": {"t": {"sink": "delta", "path": str(self.folder / "out"), "create": True}},
            "rejects": {"sink": "delta", "path": str(self.folder / "bad")},
            "trigger": "available-now",
            "checkpoint": str(self.folder / "state"),
        }
        (self.folder / "job.yml").write_text(yaml.safe_dump(settings | changes))

    def send(self, commands: list[dict[str, Any]], name: str = "1.json") -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        (self.folder / "in" / name).write_text("".join(json.dumps(command) + "\n" for command in commands))

    def __call__(self, verb: str, *argv: str) -> int:
        code, self.out, self.err = say(self.folder / "job.yml", verb, *argv)
        return code

    def fired(self) -> list[tuple[str, bytes | None]]:
        """Id and value of what is in the table, in the order of the due times."""
        if not (self.folder / "out" / "t").exists():
            return []
        table = self.spark.read.format("delta").load(str(self.folder / "out" / "t")).orderBy("deliver_at")
        return [(row.schedule_id, row.value and bytes(row.value)) for row in table.collect()]

    def rejected(self) -> list[tuple[str | None, str]]:
        """Id and code of what is in the rejects."""
        table = self.spark.read.format("delta").load(str(self.folder / "bad"))
        return [(row.schedule_id, row.error_code) for row in table.collect()]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    job = Job(tmp_path, spark)
    job.configure()
    return job


SOON, HOUR, FAR = ("soon", b"1"), ("hour", b"2"), ("far", b"3")


@pytest.mark.parametrize(
    ("clock", "trigger", "until", "expected"),
    [
        ({"kind": "event"}, "available-now", None, [SOON]),
        ({"kind": "event"}, "available-now", "2013-01-01T02:00", [SOON, HOUR]),
        ({"kind": "event"}, "0 seconds", "2013-01-01T00:00:20", [SOON]),
        ({"kind": "processing"}, "available-now", "2100-01-01", [SOON, HOUR, FAR]),
        ({"kind": "processing"}, "0 seconds", "2013-01-01", [SOON, HOUR]),
        (
            {"kind": "simulated", "start": START, "step": "10 seconds"},
            "available-now",
            "2013-01-01T02:00",
            [SOON, HOUR],
        ),
        (
            {"kind": "simulated", "start": START, "step": "10 seconds"},
            "0 seconds",
            "2013-01-01T02:00",
            [SOON, HOUR],
        ),
    ],
)
def test_until_means_for_every_clock_and_trigger_what_the_help_says(
    job: Job, clock: dict[str, Any], trigger: str, until: str | None, expected: list[tuple[str, bytes]]
) -> None:
    job.configure(clock=clock)
    job.send(COMMANDS)
    assert job("run", "--trigger", trigger, *(["--until", until] if until else [])) == 0, job.err
    assert job.fired() == expected
    assert job.rejected() == [("lost", "bad_destination")]
    pending = 3 - len(expected)
    schedules = f"5 = {pending} pending + {len(expected)} fired + 0 missed + 1 cancelled + 0 superseded + 0 duplicate + 1 rejected"
    summary = job.out[job.out.index("summary of") :]
    assert schedules in summary
    assert "1 = 1 applied" in summary
    assert "every command accounted for: yes; cancelled = applied: yes" in summary
    lines = job.out.splitlines()
    batches = next(number for number, line in enumerate(lines) if line.startswith("summary of"))
    assert batches > 0
    assert all(line.startswith("batch ") and " | watermark " in line for line in lines[:batches])
    assert f"summary of {batches} batch" in lines[batches]
    in_the_past = clock == {"kind": "processing"} and until == "2013-01-01"
    assert [line[:21] for line in job.err.splitlines()] == ["warning: --until 2013"] * in_the_past


@pytest.mark.sentinel
def test_a_second_run_goes_on_where_the_first_one_ended(job: Job) -> None:
    job.send(COMMANDS)
    assert job("run") == 0
    job.send([{"schedule_id": "next", "delay": "-1 hour", "event_time": "2013-01-01T00:01:00Z"}], "2.json")
    assert job("run", "--until", "2013-01-01T02:00") == 0
    assert sorted(name for name, _ in job.fired()) == ["hour", "next", "soon"]
    assert "6 = 1 pending + 3 fired" in job.out
    assert "every command accounted for: yes" in job.out


def test_a_batch_planned_under_other_settings_runs_first_with_its_own(job: Job) -> None:
    job.send(COMMANDS)
    assert job("run", "--until", "2013-01-01T02:00") == 0
    newest = max((job.folder / "state" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()
    fired = job.fired()
    assert job("run", "--set", "limits.fired_per_batch=1", "--set", "contract.memory=1 hour") == 0, job.err
    first, replayed, *_ = job.out.splitlines()
    assert (
        first
        == "the last run left a planned batch: it runs first, with the settings that it was planned with"
    )
    assert replayed.startswith(f"batch {newest.name:>5} |")
    assert job.fired() == fired
    journal = json.loads((job.folder / "state" / "wheel-settings.json").read_text())
    assert [(entry["from_batch"], entry["settings"]["limits"]["fired_per_batch"]) for entry in journal] == [
        (0, None),
        (int(newest.name) + 1, 1),
    ]
    assert job("run", "--set", "limits.fired_per_batch=1", "--set", "contract.memory=1 hour") == 0
    assert "the last run left" not in job.out


def test_a_job_killed_while_its_first_batch_was_planned_starts_again(job: Job) -> None:
    job.send(COMMANDS)
    assert job("run", "--until", "2013-01-01T02:00") == 0, job.err
    # Back to the moment before `offsets/0` got its name: nothing that comes after it is there yet.
    state = job.folder / "state"
    (state / "offsets" / "0").rename(state / "offsets" / ".0.38881445-6812-477c-8227-437955f70c78.tmp")
    (state / "offsets" / ".0.crc").rename(
        state / "offsets" / "..0.38881445-6812-477c-8227-437955f70c78.tmp.crc"
    )
    for log in ("offsets", "commits"):
        for file in (state / log).glob("*[0-9]*"):
            if not file.name.endswith((".tmp", ".tmp.crc")):
                file.unlink()
    for folder in (state / "state", job.folder / "out", job.folder / "bad"):
        shutil.rmtree(folder)
    assert job("run", "--until", "2013-01-01T02:00") == 0, job.err
    assert job.fired() == [SOON, HOUR]


class AnotherDriver(io.StringIO):
    """Output of a job, during whose first batch another driver writes an entry to a log of the checkpoint."""

    def __init__(self, entry: Path) -> None:
        super().__init__()
        self.entry = entry

    def write(self, text: str) -> int:
        if text.startswith("batch     0"):
            shutil.copy(self.entry.parent.parent / "offsets" / "0", self.entry)
        return super().write(text)


@pytest.mark.parametrize("entry", ["offsets/1", "commits/0"])
def test_a_second_driver_on_the_checkpoint_ends_the_job_which_does_not_try_again(
    job: Job, entry: str
) -> None:
    job.configure(restarts={"most": 3, "wait": "1 second"}, trigger="0 seconds")
    job.send(COMMANDS)
    out, err = AnotherDriver(job.folder / "state" / entry), io.StringIO()
    assert main(["run", "--config", str(job.folder / "job.yml")], out=out, err=err) == 2
    assert "it starts again" not in out.getvalue()
    assert re.match(
        rf"error: another driver writes this checkpoint: (file:)?{job.folder}/state; rule: ", err.getvalue()
    )


def test_an_empty_source_is_a_run_without_commands(job: Job) -> None:
    job.send([])
    assert job("run", "--until", "2014-01-01") == 0
    assert "0 = 0 pending + 0 fired" in job.out


def test_a_line_that_is_no_json_is_a_reject_with_its_text(job: Job) -> None:
    (job.folder / "in").mkdir()
    (job.folder / "in" / "1.json").write_text('{"schedule_id": "a", "delay"')
    assert job("run") == 0
    (row,) = job.spark.read.format("delta").load(str(job.folder / "bad")).collect()
    assert row.error_code == "unreadable"
    assert json.loads(row.record)["_corrupt_record"] == '{"schedule_id": "a", "delay"'
    assert row.source.endswith("/in/1.json")


def test_a_line_with_a_value_of_20_mib_is_oversize_and_keeps_its_id_and_record(job: Job) -> None:
    big = {"schedule_id": "big", "delay": "0", "event_time": START, "value": "x" * 20 * 2**20}
    job.send([big, COMMANDS[0]])
    assert job("run", "--until", "2013-01-01T02:00") == 0, job.err
    assert job.fired() == [SOON]
    assert job.rejected() == [("big", "oversize")]
    row = job.spark.read.format("delta").load(str(job.folder / "bad")).collect()[0]
    assert row.error_message.startswith("too large: bytes = '20971520'; rule: at most 1048576 bytes")
    assert json.loads(row.record) == {name: text for name, text in big.items() if name != "value"}
    assert row.value == big["value"].encode()


def test_dry_run_tells_the_geometry_and_writes_nothing(job: Job) -> None:
    job.send(COMMANDS)
    before = sorted(job.folder.rglob("*"))
    assert job("dry-run", "--trigger", "5 seconds") == 0, job.err
    assert "lateness      at worst one trigger (5.0 s) plus the time of one batch" in job.out
    assert "destination   t -> delta" in job.out
    assert "        6          37.0 d         740.7 d and all beyond" in job.out
    assert sorted(job.folder.rglob("*")) == before


def test_dry_run_tries_to_write_where_the_job_will_and_names_every_place_that_refuses(job: Job) -> None:
    job.send(COMMANDS)
    (job.folder / "file").write_text("a folder is wanted here")
    at = {name: str(job.folder / "file" / name) for name in ("out", "bad", "state", "store")}
    job.configure(
        mode="tiered",
        clock={"kind": "event"},
        destinations={"*": {"sink": "delta", "path": at["out"], "create": True}},
        rejects={"sink": "delta", "path": at["bad"]},
        store={"path": at["store"]},
        checkpoint=at["state"],
    )
    before = sorted(job.folder.rglob("*"))
    assert job("dry-run") == 2
    assert [line.rpartition(": ")[2] for line in job.err.splitlines()] == [
        "destinations.*", "rejects", "store.path", "checkpoint",
    ]  # fmt: skip
    assert sorted(job.folder.rglob("*")) == before


def test_dry_run_names_all_destinations_that_cannot_be_written(job: Job) -> None:
    job.send([])
    out = str(job.folder / "out")
    job.configure(destinations={"t": {"sink": "delta", "path": out}, "u": {"sink": "delta", "path": out}})
    assert job("dry-run") == 2
    assert [line.split(",")[0] for line in job.err.splitlines()] == ["error: cannot be written"] * 2
    assert "destinations.t" in job.err
    assert "destinations.u" in job.err


def test_dry_run_refuses_tables_for_the_reason_that_the_job_would_have(job: Job) -> None:
    job.send(COMMANDS)
    job.configure(levels={"list": ["10s", "1h"]})
    for place, columns in ((f"{job.folder}/out/t", FIRED_SCHEMA), (f"{job.folder}/bad", REJECT_SCHEMA)):
        job.spark.sql(
            f"CREATE TABLE delta.`{place}` ({columns}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )
    assert job("dry-run") == 2
    assert [line.split(" does not fit: ")[1].split(": ")[0] for line in job.err.splitlines()] == [
        "it has no column scheduled_at, it has no column level_error_ms"
    ]
    job.configure()
    assert job("dry-run") == 0, job.err
    job.spark.sql(f"ALTER TABLE delta.`{job.folder}/bad` ADD CONSTRAINT sane CHECK (seq > 0)")
    assert job("dry-run") == 2
    assert f"the table {job.folder}/bad does not fit: it has the CHECK sane: rejects" in job.err


@pytest.mark.parametrize("verb", ["run", "dry-run"])
def test_another_geometry_is_refused_with_both_values(job: Job, verb: str) -> None:
    job.send(COMMANDS)
    assert job("run") == 0
    assert job(verb, "--set", "wheel.size=60", "--set", "wheel.shards=3") == 2
    for value in ("size=20", "size=60", "shards 2 there, 3 here"):
        assert value in job.err
    assert job.err.startswith("error: ")
    assert "Traceback" not in job.err


def test_a_source_that_is_not_there_or_has_other_columns_is_exit_code_2(job: Job) -> None:
    assert job("run") == 2
    assert job.err.startswith("error: there is nothing to read: source.path = ")
    job.send([{"id": "a", "at": 1}])
    assert job("run") == 2
    assert job.err.startswith("error: the source has no column schedule_id")
    assert "hint: found: at, id" in job.err


def test_a_later_parquet_file_of_other_types_is_named(job: Job) -> None:
    folder = str(job.folder / "in")
    job.configure(source={"format": "parquet", "path": folder})
    row = "'10 seconds' AS delay, timestamp'2013-01-01' AS event_time"
    job.spark.sql(f"SELECT 'a' AS schedule_id, {row}").coalesce(1).write.parquet(folder)
    assert job("run") == 0
    job.spark.sql(f"SELECT 5L AS schedule_id, {row}").coalesce(1).write.mode("append").parquet(folder)
    # Spark takes the types of any one of the files, so the config says which are meant.
    assert job("run", "--set", "source.schema=schedule_id STRING, delay STRING, event_time TIMESTAMP") == 2
    (line,) = job.err.splitlines()
    assert line.startswith(
        "error: a file of the source has another type in column schedule_id: file = 'file:"
    )
    assert "rule: string, not INT64" in line
