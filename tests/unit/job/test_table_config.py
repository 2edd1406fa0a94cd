"""Tables by name in a config: what is checked before a catalog is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.job.configs import faults_of, written
from wheel_udf.job import compose
from wheel_udf.job.loader import load
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.replay import row_settings, with_row_settings
from wheel_udf.sinks.catalog_sink import CatalogTableSink

GOOD = """
mode: tiered
clock: {kind: processing}
source: {format: delta, table: shop.commands}
destinations:
  "late*": {sink: delta, table: "reminders.{destination}", create: true}
  audit: {sink: delta, table: main.audit.deliveries}
rejects: {sink: delta, table: reminders.rejects}
store: {table: reminders.waiting, location: data/waiting}
checkpoint: state
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def test_a_config_names_its_tables(file: Path) -> None:
    config = load(file)

    assert dict(compose.destinations_of(config)) == {
        "late*": CatalogTableSink("reminders.{destination}", create=True),
        "audit": CatalogTableSink("main.audit.deliveries"),
    }
    assert compose.sink_of(config.rejects) == CatalogTableSink("reminders.rejects")


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        (
            "destinations.audit.path=data",
            "two places for one table: destinations.audit.table = 'main.audit.deliveries'; rule: only one",
        ),
        (
            "destinations.audit.table=",
            "a required setting is missing: destinations.audit.path; rule: a folder; or table, a name",
        ),
        (
            "destinations.audit.table=a-b",
            "not the name of a table: destinations.audit.table = 'a-b'; rule: table, schema.table",
        ),
        (
            "destinations.audit.table=main.{destination}.due",
            "destinations may not choose the schema of their table: destinations.audit.table = ",
        ),
        (
            "rejects.table=a.{destination}",
            "{destination} has no meaning here: rejects.table = 'a.{destination}'; rule: the name of one table",
        ),
        (
            "rejects.table=reminders.late_rejects",
            "the rejects and a destination share a table: rejects.table = 'reminders.late_rejects'",
        ),
        (
            "store.table=main.audit.Deliveries",
            "the store and a destination share a table: store.table = 'main.audit.Deliveries'",
        ),
        (
            "source.table=reminders.waiting",
            "one table with two uses: store.table = 'reminders.waiting'; rule: not the table of source",
        ),
        (
            "source.table=a.{destination}",
            "{destination} has no meaning here: source.table = 'a.{destination}'",
        ),
        ("store.path=data/store", "two places for one table: store.table = 'reminders.waiting'"),
        (
            "store={path: a, location: b}",
            "a setting without effect: store.location = 'b'; rule: with store.table",
        ),
    ],
)
def test_a_fault_names_its_field_its_value_and_the_rule(file: Path, override: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults_of(file, override)), faults_of(file, override)


def test_a_planned_batch_is_replayed_into_the_tables_of_then(tmp_path: Path) -> None:
    direct = GOOD.replace("mode: tiered\n", "").replace("store:", "# store:")
    then = load(written(tmp_path, direct))
    recorded = row_settings(then, None)
    assert recorded["destinations"] == {
        "late*": {"sink": "delta", "table": "reminders.{destination}"},
        "audit": {"sink": "delta", "table": "main.audit.deliveries"},
    }
    assert recorded["rejects"] == {"sink": "delta", "table": "reminders.rejects"}

    now = load(written(tmp_path, direct.replace("reminders.", "others.")))
    assert isinstance(now, SchedulerConfig)
    replayed = compose.destinations_of(with_row_settings(now, recorded))
    assert dict(replayed) == dict(compose.destinations_of(then))
