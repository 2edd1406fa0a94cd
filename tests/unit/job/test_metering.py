"""The sections metrics and log of a config, and what a run does with them before Spark starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.delivery.test_report import report
from tests.unit.job.configs import faults_of, written
from tests.unit.job.test_job import checked
from wheel_udf.common.errors import ConfigError
from wheel_udf.job import loader
from wheel_udf.job.dry_run import metrics_text
from wheel_udf.job.metering import STOPPED, check_ports, metering, running

GOOD = (
    "clock: {kind: event}\nsource: {format: json, path: in}\ndestinations: {a: {sink: csv, path: out}}\n"
    "rejects: {sink: json, path: bad}\ncheckpoint: state\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def test_without_the_sections_there_are_no_metrics_and_lines_are_texts(file: Path) -> None:
    config = loader.load(file)

    assert (config.metrics, config.log) == (None, "text")


def test_metrics_listen_on_this_machine_only_unless_the_config_says_otherwise(file: Path) -> None:
    config = loader.load(file, ["metrics.port=9108", "log=json"])

    assert config.metrics is not None
    assert config.metrics.model_dump() == {
        "port": 9108,
        "address": "127.0.0.1",
        "unhealthy_after_ms": 300_000,
    }
    assert config.log == "json"
    assert metrics_text(config.metrics) == "/metrics and /healthz on 127.0.0.1, 9108; unhealthy after 5.0 min"


def test_all_that_is_wrong_with_the_sections_is_reported_together(file: Path) -> None:
    faults = faults_of(
        file, "metrics.port=65536", "metrics.adress=x", "metrics.unhealthy_after=5", "log=yaml"
    )

    assert faults == [
        "too large: metrics.port = 65536; rule: at most 65535",
        "not a duration: metrics.unhealthy_after = 5; rule: a duration with its unit, such as 1 second, 10 minutes or PT10M",
        "unknown key: metrics.adress; hint: did you mean address?",
        "not one of the known values: log = 'yaml'; rule: 'text' or 'json'",
    ]


def test_a_section_without_a_port_is_an_error(file: Path) -> None:
    assert faults_of(file, "metrics.address=0.0.0.0") == [
        "a required setting is missing: metrics.port; rule: the port"
    ]


def test_a_job_whose_trigger_is_longer_than_its_patience_would_always_be_unhealthy(file: Path) -> None:
    assert faults_of(file, "metrics.port=0", "trigger=10 minutes") == [
        "the job would always be unhealthy: metrics.unhealthy_after = '300000 ms'; rule: longer than trigger, 600000 ms"
    ]
    loader.load(file, ["metrics.port=0", "metrics.unhealthy_after=11 minutes", "trigger=10 minutes"])
    loader.load(file, ["metrics.port=0", "trigger=available-now"])


def test_without_the_package_the_error_has_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("wheel_udf.metrics.Exporter", raising=False)
    monkeypatch.delitem(sys.modules, "wheel_udf.metrics.exporter", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError) as error:
        check_ports(checked(metrics={"port": 0}))

    assert str(error.value) == (
        "the package prometheus_client is not installed: metrics; hint: pip install 'wheel-udf[metrics]'"
    )


def test_a_run_names_the_address_of_its_metrics_and_writes_json_lines_and_the_batch_log(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    config = checked(metrics={"port": 0}, log="json", checkpoint=str(tmp_path / "state"))
    with metering(config, said.append) as meter, running(meter):
        assert meter.unhealthy_reason() is None
        meter.on_batch(report(3))
        meter.close()

    assert said[0].startswith("metrics at http://127.0.0.1:")
    assert [json.loads(line)["batch_id"] for line in said[1:]] == [3]
    (log,) = (tmp_path / "state-batches").iterdir()
    assert log.read_text() == said[1] + "\n"
    assert meter.unhealthy_reason() == STOPPED


def test_a_query_that_fails_is_the_reason_of_bad_health(tmp_path: Path) -> None:
    with metering(checked(checkpoint=str(tmp_path / "state")), print) as meter:
        with pytest.raises(ConfigError), running(meter):
            raise ConfigError("the sink is full")
        assert meter.unhealthy_reason() == "the query has failed: the sink is full"
