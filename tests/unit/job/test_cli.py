"""The command line: arguments, exit codes, and how errors are told. What the verbs do is put in place by the tests."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import wheel_udf
from wheel_udf.common.errors import CheckpointError, ConfigError, ConfigErrors, LeaseError
from wheel_udf.job import begin, dry_run
from wheel_udf.job.arguments import SHARED, VERBS
from wheel_udf.job.cli import line_printer, main
from wheel_udf.job.models.scheduler import JobConfig, SchedulerConfig

ROOT = Path(__file__).parents[3]
GOOD = """
clock: {kind: event}
source: {format: json, path: in}
destinations: {"reminders.*": {sink: json, path: out}}
rejects: {sink: json, path: bad}
checkpoint: state
"""


@dataclass
class Program:
    """The command line with verbs that note how they were called."""

    file: Path
    failure: Exception | None = None
    calls: list[tuple[str, SchedulerConfig, int | None]] = field(default_factory=list)
    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)

    def verb(self, name: str) -> Callable[[JobConfig, int | None, Callable[[str], None]], int]:
        def act(config: JobConfig, until_ms: int | None, say: Callable[[str], None]) -> int:
            assert isinstance(config, SchedulerConfig)
            self.calls.append((name, config, until_ms))
            if self.failure is not None:
                raise self.failure
            say("a line")
            return 0

        return act

    def __call__(self, *argv: str) -> int:
        return main(argv, out=self.out, err=self.err)

    @property
    def errors(self) -> list[str]:
        return self.err.getvalue().splitlines()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    file = tmp_path / "job.yml"
    file.write_text(GOOD)
    program = Program(file)
    monkeypatch.setattr(begin, "run", program.verb("run"))
    monkeypatch.setattr(dry_run, "run", program.verb("dry-run"))
    return program


def test_run_gets_the_config_and_until(program: Program) -> None:
    assert program("run", "--config", str(program.file), "--until", "1970-01-01T00:00:01Z") == 0
    ((verb, config, until_ms),) = program.calls
    assert (verb, config.checkpoint, until_ms) == ("run", "state", 1_000)
    assert program.out.getvalue() == "a line\n"
    assert program.errors == []


def test_dry_run_is_the_other_verb_and_until_may_be_left_out(program: Program) -> None:
    assert program("dry-run", "--config", str(program.file)) == 0
    assert [(verb, until_ms) for verb, _, until_ms in program.calls] == [("dry-run", None)]


@pytest.mark.parametrize(
    ("clock", "trigger", "warning"),
    [
        ("{kind: simulated, start: 1970-01-03, step: 1s}", "9s", "the run ends as soon as nothing is due"),
        ("{kind: simulated, start: 1970-01-03, step: 1s}", "available-now", "it has no effect"),
        ("{kind: simulated, instants: [1970-01-03, 1970-01-01]}", "available-now", "it has no effect"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "dry-run"])
def test_an_until_that_the_clock_has_passed_is_a_warning_of_one_line(
    program: Program, verb: str, clock: str, trigger: str, warning: str
) -> None:
    settings = ("--config", str(program.file), "--set", f"clock={clock}", "--trigger", trigger)
    assert program(verb, *settings, "--until", "1970-01-02") == 0
    past = "--until 1970-01-02T00:00:00Z is in the past, the clock of the job is at 1970-01-03T00:00:00Z"
    assert program.errors == [f"warning: {past}: {warning}"]
    assert len(program.calls) == 1


def test_with_the_processing_clock_the_past_is_that_of_the_wall_clock(program: Program) -> None:
    settings = ("--config", str(program.file), "--set", "clock={kind: processing}")
    assert program("run", *settings, "--until", "1970-01-02") == 0
    (line,) = program.errors
    assert line.startswith("warning: --until 1970-01-02T00:00:00Z is in the past, the wall clock is at 2")
    program.err.truncate(0)
    assert program("run", *settings, "--until", "9999-01-01") == 0
    assert program.errors == []


def test_under_spark_submit_a_checkpoint_in_a_bucket_is_not_looked_at_before_spark_runs(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    settings = ("--config", str(program.file), "--set", "checkpoint=s3a://bucket/checkpoint")
    assert program("run", *settings, "--set", "clock={kind: event}", "--until", "1970-01-02") == 0
    assert program.errors == []


def test_with_the_event_clock_the_past_is_behind_the_watermark_of_the_checkpoint(
    program: Program, tmp_path: Path
) -> None:
    offsets = tmp_path / "state" / "offsets"
    offsets.mkdir(parents=True)
    offsets.joinpath("0").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":9}\n{"a":1}')
    settings = (
        "--config",
        str(program.file),
        "--set",
        f"checkpoint={tmp_path / 'state'}",
        "--until",
        "1970-01-02",
    )
    assert program("run", *settings) == 0
    assert program.errors == []
    offsets.joinpath("1").write_text('v1\n{"batchWatermarkMs":86400000,"batchTimestampMs":9}\n{"a":2}')
    assert program("run", *settings) == 0
    (line,) = program.errors
    assert "is in the past, the clock of the job is at 1970-01-02T00:00:00Z" in line


def test_overrides_apply_in_order_and_the_trigger_last(program: Program) -> None:
    sets = ["--set", "wheel.size=30", "--set", "wheel.size=40", "--set", "trigger=9 seconds"]
    assert program("run", "--config", str(program.file), *sets, "--trigger", "5 seconds") == 0
    config = program.calls[0][1]
    assert (config.wheel.size, config.trigger_ms) == (40, 5_000)


def test_a_pattern_with_dots_is_reached_by_double_quotes(program: Program) -> None:
    assert (
        program("run", "--config", str(program.file), "--set", 'destinations."reminders.*".path=elsewhere')
        == 0
    )
    assert program.calls[0][1].destinations["reminders.*"].path == "elsewhere"


def test_an_instant_without_a_zone_is_utc(program: Program) -> None:
    program("run", "--config", str(program.file), "--until", "1970-01-02")
    assert program.calls[0][2] == 86_400_000


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["run"],
        ["--config", "x"],
        ["walk", "--config", "x"],
        ["run", "--config", "x", "--until", "tomorrow"],
        ["run", "--config", "x", "--until", "1357000000000"],
        ["run", "--conf", "x"],
        ["run", "--config", "x", "--shards", "4"],
    ],
)
def test_wrong_usage_is_exit_code_2(
    program: Program, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(*argv) == 2
    assert "usage:" in capsys.readouterr().err
    assert program.calls == []


def test_help_tells_until_exit_codes_and_an_example(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("--help") == 0
    text = capsys.readouterr().out
    for clock in ("event", "processing", "simulated"):
        assert [line for line in text.splitlines() if line.startswith(f"  {clock}")]
        assert f"  {clock:<10}  available-now  " in text
        assert f"  {clock:<10}  interval       " in text
    assert "exit codes:" in text
    assert "spark-submit jobs/delay_scheduler.py run --config conf/scheduler.yml" in text


def test_help_names_the_columns_that_conditions_can_use() -> None:
    from wheel_udf.pending.entries import PENDING_COLUMNS
    from wheel_udf.pending.operations import OPERATIONS_PENDING

    entries, operations = ", ".join(PENDING_COLUMNS), ", ".join(OPERATIONS_PENDING)
    assert SHARED["--where"]["help"] == f"an SQL condition over {entries}"
    either = VERBS["pending"]["options"]["--where"]["help"]
    assert either == f"an SQL condition over {entries} (of a purgatory: {operations})"


def test_a_config_with_three_faults_prints_three_lines_and_ends_with_2(program: Program) -> None:
    program.file.write_text(
        GOOD.replace("event", "evnt").replace("format", "fromat") + "limits: {fired_per_batch: 0}\n"
    )
    assert program("run", "--config", str(program.file)) == 2
    assert program.errors == [
        "error: not one of the known values: clock.kind = 'evnt'; rule: one of event, processing, simulated",
        "error: a required setting is missing: source.format; rule: one of parquet, json, csv, delta, kafka",
        "error: unknown key: source.fromat; hint: did you mean format?",
        "error: too small: limits.fired_per_batch = 0; rule: at least 1",
    ]
    assert program.calls == []


def test_a_missing_config_is_exit_code_2(program: Program) -> None:
    assert program("run", "--config", "none.yml") == 2
    assert program.errors == ["error: there is no such config file: none.yml"]


@pytest.mark.parametrize(
    ("failure", "exit_code", "lines"),
    [
        (ConfigError("bad path", field="source.path"), 2, ["error: bad path: source.path"]),
        (ConfigErrors([ConfigError("a"), ConfigError("b")]), 2, ["error: a", "error: b"]),
        (CheckpointError("foreign"), 2, ["error: foreign"]),
        (LeaseError("in use"), 1, ["error: in use", "(--debug shows the stack trace)"]),
        (
            ZeroDivisionError("by zero"),
            1,
            ["error: ZeroDivisionError: by zero", "(--debug shows the stack trace)"],
        ),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_an_exit_code(
    program: Program, failure: Exception, exit_code: int, lines: list[str]
) -> None:
    program.failure = failure
    assert program("run", "--config", str(program.file)) == exit_code
    assert program.errors == lines


def test_debug_shows_the_stack_trace_before_the_sentence(program: Program) -> None:
    program.failure = LeaseError("in use")
    assert program("run", "--config", str(program.file), "--debug") == 1
    assert program.errors[0] == "Traceback (most recent call last):"
    assert program.errors[-1] == "error: in use"


def test_a_reader_that_has_gone_away_does_not_end_the_run() -> None:
    class Closed(io.StringIO):
        writes = 0

        def write(self, _text: str) -> int:
            self.writes += 1
            raise BrokenPipeError

    stream = Closed()
    say = line_printer(stream)
    say("one")
    say("two")
    assert stream.writes == 1


@pytest.mark.parametrize("argument", ["conf", "--help"])
def test_a_reader_that_has_gone_away_leaves_no_trace_on_standard_error(argument: str) -> None:
    command, pipe = [sys.executable, "-m", "wheel_udf", argument], subprocess.PIPE
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, cwd=ROOT, env=buffered, stdout=pipe, stderr=pipe) as program:
        assert program.stdout is not None
        program.stdout.close()
        assert program.communicate()[1] == b""
    assert program.returncode == 0


def test_the_version_is_that_of_the_package(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert program("--version") == 0
    assert capsys.readouterr().out == f"wheel-udf {wheel_udf.__version__}\n"


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_is_in_the_help_under_its_task_and_has_a_help_of_its_own(
    program: Program, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("--help") == 0
    assert f"\n  {verb:<10} {VERBS[verb]['help']}\n" in capsys.readouterr().out
    assert program(verb, "--help") == 0
    assert f"usage: wheel-udf {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["wheel_udf", "jobs/delay_scheduler.py"])
def test_help_is_printed_without_spark_and_pydantic(module: str) -> None:
    program = (
        "import runpy, sys\nsys.argv = ['x', '--help']\n"
        f"try: {'runpy.run_path' if '/' in module else 'runpy.run_module'}({module!r}, run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(sorted({'pyspark', 'py4j', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_example_configs_are_listed_printed_and_copied(program: Program, tmp_path: Path) -> None:
    assert program("conf") == 0
    assert [line.split()[0] for line in program.out.getvalue().splitlines()] == sorted(
        path.stem for path in (ROOT / "conf").glob("*.yml")
    )
    program.out.truncate(program.out.seek(0))
    assert program("conf", "scheduler") == 0
    assert program.out.getvalue() == (ROOT / "conf" / "scheduler.yml").read_text()
    assert program("conf", "--copy", str(tmp_path / "to")) == 0
    assert (tmp_path / "to" / "schema" / "scheduler.schema.json").is_file()
    assert (tmp_path / "to" / "delay_scheduler.py").is_file()
    assert program("conf", "--copy", str(tmp_path / "to")) == 2
    assert program("conf", "nothing") == 2
    assert [error.split(":")[1] for error in program.errors] == [
        " files would be overwritten",
        " there is no such example config",
    ]


def test_an_interrupt_is_one_line_and_exit_code_130(program: Program) -> None:
    program.failure = KeyboardInterrupt()  # type: ignore[assignment]  # as Ctrl-C raises it
    assert program("run", "--config", str(program.file)) == 130
    assert program.errors == ["run: interrupted; the next start goes on from the checkpoint"]


def test_an_error_of_what_is_closed_after_an_interrupt_is_not_reported(program: Program) -> None:
    closing = RuntimeError("an answer of another question")
    closing.__context__ = KeyboardInterrupt()
    program.failure = closing
    assert program("dry-run", "--config", str(program.file)) == 130
    assert program.errors == ["dry-run: interrupted"]
