"""A running job answers the verbs: the command line asks it and starts no Spark; a stopped one is read as before."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from tests.spark.job.test_metrics import configured
from wheel_udf.api.job import Job
from wheel_udf.common.errors import ActError
from wheel_udf.job import asking, loader
from wheel_udf.job.arguments import parse
from wheel_udf.job.begin import run
from wheel_udf.job.cli import main

COMMANDS: list[dict[str, Any]] = [
    {"schedule_id": "soon", "deliver_at": "2090-01-01T00:00:00Z", "value": "1"},
    {"schedule_id": "late", "deliver_at": "2099-01-01T00:00:00Z"},
    {"schedule_id": "series", "repeat": "0 9 * * *", "starts_at": "2095-01-01T00:00:00Z"},
    {"schedule_id": "past", "deliver_at": "2020-01-01T00:00:00Z", "value": "1"},
]


class Lines:
    """The lines of a run; when the first batch is committed a thread asks, and then ends the run."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self.lines: list[str] = []
        self.fault: BaseException | None = None
        self._ask = ask

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("batch     1 |"):
            threading.Thread(target=self._work).start()

    def _work(self) -> None:
        try:
            self._ask()
        except BaseException as fault:  # noqa: BLE001  # raised by the test
            self.fault = fault
        os.kill(os.getpid(), signal.SIGTERM)


def running(file: Path, ask: Callable[[], None]) -> None:
    """Runs the job of a config while `ask` is executed on a thread."""
    lines = Lines(ask)
    assert run(loader.load(file), None, lines) == 0
    if lines.fault is not None:
        raise lines.fault


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "user"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("".join(json.dumps(command) + "\n" for command in COMMANDS))
    return configured(tmp_path)


@pytest.fixture
def line(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Executes a command line that may not start Spark; returns what it prints."""

    def forbidden(*_: object) -> None:
        pytest.fail("the running job was not asked")

    def execute(*words: str, code: int = 0) -> list[str]:
        with monkeypatch.context() as patched:
            patched.setattr("wheel_udf.job.loader.load", forbidden)
            assert main([words[0], "--config", str(job), *words[1:]]) == code
        out, err = capsys.readouterr()
        return [*out.splitlines(), *err.splitlines()]

    return execute


def ids(lines: list[str]) -> list[str]:
    return [json.loads(line)["schedule_id"] for line in lines]


@pytest.mark.sentinel
def test_a_running_job_answers_each_verb_itself(
    spark: SparkSession, job: Path, line: Callable[..., list[str]], tmp_path: Path
) -> None:
    def ask() -> None:
        assert line("pending", "--count") == ["pending 3"]
        assert ids(line("pending")) == ["soon", "series", "late"]
        assert ids(line("pending", "--limit", "1")) == ["soon"]
        assert ids(line("pending", "--where", "schedule_id LIKE 'l%'")) == ["late"]
        assert line("pending", "--id", "nobody") == ["0 pending entries match"]
        assert json.loads(line("history", "--id", "past")[-1])["what"] == "remembered: fired"
        assert line("next", "--id", "series", "-n", "1")[0].startswith("2095-01-01T09:00:00.000Z")
        assert line("cancel", "--where", "true", "--dry-run") == ["would cancel 3 entries (dry run)"]
        assert line("move", "--id", "soon", "--to", "deliver_at + interval 1 year") == ["moved 1 entry"]
        assert line("cancel", "--id", "late") == ["cancelled 1 entry"]
        assert [json.loads(act)["act"] for act in line("acts")] == ["move", "cancel"]
        assert ids(line("pending")) == ["soon", "series"]
        (step, *_) = line(
            "forecast", "--every", "1 day", "--horizon", "1 day", "--png", str(tmp_path / "x.png")
        )
        assert json.loads(step)["rows"] == 1
        assert (tmp_path / "x.png").exists()

    running(job, ask)
    assert not any((tmp_path / "user" / "jobs").iterdir())


def test_a_tiered_job_answers_for_what_is_near_and_what_is_in_its_store(
    spark: SparkSession, job: Path, line: Callable[..., list[str]], tmp_path: Path
) -> None:
    configured(tmp_path, mode="tiered", store={"path": str(tmp_path / "store")}, trigger="1 second")

    def ask() -> None:
        # The wheel may run before the intake has read the file.
        assert any(line("pending", "--count") == ["pending 3", "stored 2"] for _ in range(100))
        assert ids(line("pending")) == ["soon", "series", "late"]
        assert line("cancel", "--id", "late") == ["cancelled 1 entry"]
        assert ids(line("pending")) == ["soon", "series"]
        assert json.loads(line("acts")[0])["act"] == "cancel"
        assert Job.connect("metered").pending()["place"].to_pylist() == ["store", "state"]

    running(job, ask)


def test_what_the_job_refuses_is_an_error_line_with_its_exit_code(
    spark: SparkSession, job: Path, line: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> None:
        assert "this predicate cannot be used" in line("pending", "--where", "nonsense(", code=2)[-1]
        assert "an act without ids and without a predicate" in line("cancel", code=2)[-1]
        assert "not an allowed destination" in line("reroute", "--id", "soon", "--to", "nowhere", code=2)[-1]
        monkeypatch.setattr("wheel_udf.job.serving.MOST_ROWS", 1)
        assert "too many rows for one answer: every; rule: up to 1 rows" in line("forecast", code=2)[-1]
        with pytest.raises(ActError, match="the new due time cannot be used"):
            Job.connect("metered").act("move", ids=["soon"], to="nothing")

    running(job, ask)


def test_a_program_gets_tables_of_a_running_job(spark: SparkSession, job: Path, tmp_path: Path) -> None:
    def ask() -> None:
        found = Job.connect(str(tmp_path / "state"))
        table = found.pending("schedule_id <> 'late'", payload=True)
        assert table.select(["schedule_id", "value"]).to_pylist() == [
            {"schedule_id": "soon", "value": "1"},
            {"schedule_id": "series", "value": None},
        ]
        assert found.count(ids=["soon", "late"]) == 2
        assert sum(found.forecast("1 day", horizon="1 day")["rows"].to_pylist()) == 3
        assert found.cancel(ids=["soon"]) == 1
        assert [act["act"] for act in found.acts()] == ["cancel"]

    running(job, ask)


def test_a_job_that_rests_or_whose_config_is_changed_on_the_command_line_is_not_asked(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = parse(["pending", "--config", str(job), "--set", "wheel.shards=2"])

    def ask() -> None:
        assert not asking.was_done(asked, print)
        assert not asking.was_done(parse(["pending", "--config", "missing.yml"]), print)

    running(job, ask)
    assert not asking.was_done(parse(["pending", "--config", str(job)]), print)
    assert main(["pending", "--config", str(job), "--count"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "pending 3"


def test_a_job_without_an_api_is_not_asked(spark: SparkSession, tmp_path: Path, job: Path) -> None:
    file = configured(tmp_path, api={"enabled": False})

    def ask() -> None:
        assert not asking.was_done(parse(["pending", "--config", str(file)]), print)

    running(file, ask)


def test_a_running_job_serves_its_page_until_the_reader_leaves_or_the_job_ends(
    spark: SparkSession, job: Path
) -> None:
    asked = parse(["ui", "--config", str(job), "--port", "0"])
    said: list[str] = []
    is_there, has_ended = threading.Event(), threading.Event()

    def look_and_leave(line: str) -> None:
        url, rest = line.split(" ", 1)
        assert rest == "(for looking only); Ctrl-C ends it"
        with urlopen(url, timeout=60) as answer:
            assert "metered" in answer.read().decode()
        raise KeyboardInterrupt

    def stay() -> None:
        def take(line: str) -> None:
            said.append(line)
            is_there.set()

        assert not asking.was_done(asked, take)  # still wanted: the command line serves it itself then
        has_ended.set()

    def ask() -> None:
        assert asking.was_done(asked, look_and_leave)
        threading.Thread(target=stay, daemon=True).start()
        assert is_there.wait(60)

    running(job, ask)
    assert has_ended.wait(60)
    assert said[1:] == ["the job has ended; the page goes on from what it has left"]
    assert not asking.was_done(asked, print)
