"""The config file of a purgatory: what it may say, and that all its faults are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.job.configs import faults_of, written
from wheel_udf.job import cli, loader as config
from wheel_udf.job.models.purgatory import PurgatoryConfig

CONF = Path(__file__).parents[3] / "conf"
GOOD = """
clock: {kind: processing}
operations: {format: json, path: orders}
events: {format: kafka, topics: [payments], options: {kafka.bootstrap.servers: "broker:9092"}}
destinations: {orders_to_close: {sink: delta, path: tables}}
rejects: {sink: delta, path: rejects}
checkpoint: state
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def test_a_short_config_gets_the_defaults(file: Path) -> None:
    job = config.load(file)
    assert isinstance(job, PurgatoryConfig)
    assert (job.name, job.watch.lookback_ms, job.watch.deliver) == (
        "purgatory",
        0,
        ("completed", "expired", "cancelled"),
    )
    assert (job.contract.memory_ms, job.contract.max_delay_ms) == (300_000, 730 * 86_400_000)
    assert (job.operations.columns, job.events.where) == ({}, None)


@pytest.mark.parametrize("name", ["unpaid_orders", "produce_acks", "fetch", "members"])
def test_the_configs_that_come_with_it_are_good_ones(name: str) -> None:
    assert isinstance(config.load(CONF / f"{name}.yml"), PurgatoryConfig)


def test_all_faults_are_told_at_once_each_with_its_place(file: Path) -> None:
    found = faults_of(
        file,
        "source.path=in",
        "mode=tiered",
        "operations.columns.schedule_id=id",
        "events.path=there",
        "events.topics=",
        "watch.deliver=[paid]",
        "watch.lokback=1 s",
        "contract.preset=json",
        "contract.default_destination=elsewhere",
        "rejects.path=orders",
    )
    told = "\n".join(found)
    for place in ("source", "mode", "operations.columns", "events.path", "watch.lokback", "contract.preset"):
        assert f": {place}" in told
    assert "did you mean lookback?" in told
    assert "not one of the known values: operations.columns.schedule_id = 'schedule_id'" in told
    assert "not one of the known values: watch.deliver.0 = 'paid'" in told
    assert (
        "the default destination is not on the allow-list: contract.default_destination = 'elsewhere'" in told
    )
    assert "one path with two uses: rejects.path = 'orders'; rule: not the path of operations.path" in told
    assert "no topics: events; rule: one of: topics" in told


def test_an_operation_cannot_look_back_further_than_events_are_remembered(file: Path) -> None:
    (fault,) = faults_of(file, "watch.lookback=6 minutes")
    assert fault.startswith(
        "the lookback is longer than events are remembered: watch.lookback = '360000 ms'; rule: at most"
    )
    assert config.load(file, ["watch.lookback=6 minutes", "contract.memory=unlimited"])


def test_one_table_may_hold_operations_and_events(file: Path) -> None:
    job = config.load(
        file,
        [
            "operations.where=what = 'order'",
            "events.format=json",
            "events.topics=",
            "events.options=",
            "events.path=orders",
        ],
    )
    assert isinstance(job, PurgatoryConfig)
    assert (job.operations.where, job.events.path) == ("what = 'order'", "orders")


def test_a_config_is_a_schedulers_or_a_purgatorys(file: Path) -> None:
    (fault,) = faults_of(file, "source.path=in")
    assert fault.startswith("does not belong here: source; rule: a scheduler's config has a source")


def test_what_a_purgatory_has_no_verb_for_is_told_with_what_to_do_instead(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reroute", "--config", str(file), "--id", "o", "--to", "elsewhere"]) == 2
    told = capsys.readouterr().err
    assert "a purgatory has no such verb: verb = 'reroute'; rule: pending, cancel, acts" in told
    assert "cancel it, and send a new one" in told
