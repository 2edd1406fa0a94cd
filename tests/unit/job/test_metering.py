"""The sections metrics and log of a config, and what a run does with them before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.delivery.test_report import report
from tests.unit.job.configs import faults_of, written
from tests.unit.job.test_job import checked
from wheel_udf.common.errors import ConfigError
from wheel_udf.job import loader
from wheel_udf.job.metering import STOPPED, metering, running

GOOD = (
    "clock: {kind: event}\nsource: {format: json, path: in}\ndestinations: {a: {sink: csv, path: out}}\n"
    "rejects: {sink: json, path: bad}\ncheckpoint: state\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def test_without_the_section_a_job_is_unhealthy_after_five_minutes_or_two_triggers(
    file: Path, tmp_path: Path
) -> None:
    config = loader.load(file)
    assert (config.metrics.model_dump(), config.log) == (
        {"unhealthy_after_ms": None, "observed": False},
        "text",
    )

    for trigger, patience in (("1 second", "300 s"), ("10 minutes", "1,200 s"), ("available-now", "300 s")):
        with metering(checked(trigger=trigger, checkpoint=str(tmp_path / "state")), print) as meter:
            meter.started()
            meter.on_batch(report(1, next_due_ms=0))
            assert str(meter.unhealthy_reason()).endswith(f"late; limit: {patience}")


def test_all_that_is_wrong_with_the_sections_is_reported_together(file: Path) -> None:
    faults = faults_of(
        file,
        "metrics.port=9108",
        "metrics.adress=x",
        "metrics.unhealthy_after=5",
        "log=yaml",
        "api.port=65536",
    )

    assert faults == [
        "not a duration: metrics.unhealthy_after = 5; rule: a duration with its unit, such as 1 second, 10 minutes or PT10M",
        "does not belong here: metrics.port; rule: metrics are served at api.port and api.address",
        "unknown key: metrics.adress; hint: known here: observed, unhealthy_after",
        "not one of the known values: log = 'yaml'; rule: 'text' or 'json'",
        "too large: api.port = 65536; rule: at most 65535",
    ]


def test_a_job_whose_trigger_is_longer_than_its_patience_would_always_be_unhealthy(file: Path) -> None:
    assert faults_of(file, "metrics.unhealthy_after=5 minutes", "trigger=10 minutes") == [
        "the job would always be unhealthy: metrics.unhealthy_after = '300000 ms'; rule: longer than trigger, 600000 ms"
    ]
    loader.load(file, ["trigger=10 minutes"])
    loader.load(file, ["metrics.unhealthy_after=11 minutes", "trigger=10 minutes"])
    loader.load(file, ["metrics.unhealthy_after=5 minutes", "trigger=available-now"])


def test_a_run_writes_json_lines_and_the_batch_log(tmp_path: Path) -> None:
    said: list[str] = []
    config = checked(log="json", checkpoint=str(tmp_path / "state"))
    with metering(config, said.append) as meter, running(meter):
        assert meter.unhealthy_reason() is None
        meter.on_batch(report(3))
        meter.close()

    assert [json.loads(line)["batch_id"] for line in said] == [3]
    (log,) = (tmp_path / "state-batches").iterdir()
    assert log.read_text() == said[0] + "\n"
    assert meter.unhealthy_reason() == STOPPED


def test_a_query_that_fails_is_the_reason_of_bad_health(tmp_path: Path) -> None:
    with metering(checked(checkpoint=str(tmp_path / "state")), print) as meter:
        with pytest.raises(ConfigError), running(meter):
            raise ConfigError("the sink is full")
        assert meter.unhealthy_reason() == "the query has failed: the sink is full"
