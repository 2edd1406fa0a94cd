"""The section ``delivery``: off by default, what it needs, and that a planned batch is replayed with the setting that
it was planned with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.job.configs import faults_of, written
from wheel_udf.job import loader as config
from wheel_udf.job.compose import punctual_of
from wheel_udf.job.dry_run import delivery_text
from wheel_udf.job.models.purgatory import PurgatoryConfig
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.replay import row_settings, with_row_settings
from wheel_udf.policies.punctual import Punctual

GOOD = """
clock: {kind: processing}
source: {format: kafka, topics: [commands], options: {kafka.bootstrap.servers: "broker-1:9092"}}
destinations:
  orders_x: {sink: delta, path: data/tables}
  orders_*: {sink: kafka, options: {kafka.bootstrap.servers: "broker-1:9092"}}
rejects: {sink: delta, path: data/rejects}
checkpoint: data/checkpoints/orders
"""
ON = "delivery.punctual=true"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def load(file: Path, *overrides: str) -> SchedulerConfig:
    job = config.load(file, overrides)
    assert isinstance(job, SchedulerConfig)
    return job


def test_it_is_off_by_default(file: Path) -> None:
    job = load(file)
    assert punctual_of(job) is None


def test_the_topics_are_served_and_the_order_of_the_allow_list_is_kept(file: Path) -> None:
    job = load(file, ON, "delivery.ahead=4 seconds", "delivery.rows=1000")
    served = punctual_of(job)
    assert served == Punctual(
        ahead_ms=4_000, destinations=("orders_*",), among=("orders_x", "orders_*"), rows=1_000
    )
    assert [served.serves(name) for name in ("orders_1", "orders_x", "other", None)] == [
        True,
        False,
        False,
        False,
    ]


def test_without_ahead_the_job_chooses(file: Path) -> None:
    job = load(file, ON)
    assert job.delivery.ahead_ms is None
    assert delivery_text(job.delivery) == (
        "punctual: rows for Kafka are handed over about two batches ahead, 200,000 at most; a later cancel of them is late"
    )


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("clock.kind=event", "punctual delivery needs the wall clock: delivery.punctual = True; rule: clock.kind: processing"),
        ("delivery.ahead=50 ms", "delivery.ahead"),
        ("delivery.ahead=11 minutes", "too large: delivery.ahead = '11 minutes'; rule: at most 600,000 ms"),
        ("delivery.rows=0", "delivery.rows"),
        ("delivery.late=1", "delivery.late"),
        ('destinations={"t": {"sink": "delta", "path": "x"}}', "only topics of Kafka can be served punctually"),
    ],
)  # fmt: skip
def test_what_it_needs_is_told(file: Path, override: str, fault: str) -> None:
    (found,) = faults_of(file, ON, override)
    assert fault in found


def test_an_option_that_the_sender_does_not_have_is_refused_by_its_place(file: Path) -> None:
    (found,) = faults_of(
        file,
        ON,
        'destinations.orders_*.options={"kafka.bootstrap.servers": "b:1", "kafka.metric.reporters": "x"}',
    )
    assert "punctual delivery cannot use this option of Kafka" in found
    assert "kafka.metric.reporters" in found


def test_a_setting_that_has_no_effect_is_refused(file: Path) -> None:
    (found,) = faults_of(file, "delivery.ahead=4 seconds")
    assert "a setting without effect: delivery.ahead" in found


def test_a_planned_batch_is_replayed_with_the_setting_that_it_was_planned_with(file: Path) -> None:
    on, off = load(file, ON, "delivery.ahead=9 seconds"), load(file)
    for then, now in ((on, off), (off, on)):
        recorded = row_settings(then, None)
        assert punctual_of(with_row_settings(now, recorded)) == punctual_of(then)


def test_a_purgatory_has_no_such_section() -> None:
    assert "delivery" in PurgatoryConfig.not_here
