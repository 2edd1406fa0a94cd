"""A Delta without the internal classes: sinks write and read through public API, exactly once; the slot store says
that it cannot.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, types as T

from wheel_udf.common.errors import SinkError, UnsupportedVersionError
from wheel_udf.common.geometry import Wheel
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import FIRED_SCHEMA, fields
from wheel_udf.spark.private_api import DELTA_APPEND, required
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables import delta_log, delta_public
from wheel_udf.tables.delta_transaction import Transaction, append_once

DEFAULTS = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
COLUMNS = T.StructType([T.StructField("id", T.LongType()), T.StructField("name", T.StringType())])


@pytest.fixture(params=["no class", "another signature"])
def without_internals(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no class":
        monkeypatch.setattr(delta_log, "_DELTA", "org.apache.spark.sql.renamed")
        return

    @required(DELTA_APPEND)
    def renamed(self: Transaction, *args: Any, **more: Any) -> None:
        self._transaction.writeFilesUnderAnotherName(*args)

    monkeypatch.setattr(Transaction, "append_rows", renamed)


@pytest.fixture
def no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "_DELTA", "org.apache.spark.sql.renamed")


def make(spark: SparkSession, place: Path, columns: str = "id long, name string", more: str = "") -> str:
    spark.sql(f"CREATE TABLE delta.`{place}` ({columns}) USING delta {more}")
    return str(place)


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(each, "x") for each in ids], COLUMNS).coalesce(1)


def found(spark: SparkSession, place: str) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(place).collect())


@pytest.mark.usefixtures("without_internals")
def test_a_repeated_batch_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    place = make(spark, tmp_path / "table")

    for batch_id in (0, 0, 1, 0, 1):
        append_once(rows(spark, batch_id), place, COLUMNS, (), app_id="job", batch_id=batch_id)
    append_once(rows(spark, 7), place, COLUMNS, (), app_id="other job", batch_id=0)

    assert found(spark, place) == [0, 1, 7]
    assert delta_log.snapshot(spark, place).version == 3
    assert delta_log.snapshot(spark, place).transactions() == {"job": 1, "other job": 0}


def test_batches_written_through_the_internal_classes_are_known_and_the_other_way_round(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(spark, tmp_path / "table")
    append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=1)
    with monkeypatch.context() as patch:
        patch.setattr(delta_log, "_DELTA", "org.apache.spark.sql.renamed")
        append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=1)
        append_once(rows(spark, 2), place, COLUMNS, (), app_id="job", batch_id=2)

    append_once(rows(spark, 2), place, COLUMNS, (), app_id="job", batch_id=2)

    assert found(spark, place) == [1, 2]


def test_transactions_are_found_in_a_log_that_was_cleaned_up(spark: SparkSession, tmp_path: Path) -> None:
    place = make(spark, tmp_path / "table")
    for batch_id in range(3):
        append_once(rows(spark, batch_id), place, COLUMNS, (), app_id="job", batch_id=batch_id)
    delta_log.delta_log(spark, place).checkpoint()
    append_once(rows(spark, 9), place, COLUMNS, (), app_id="late", batch_id=5)
    for version in range(3):
        (tmp_path / "table" / "_delta_log" / f"{version:020}.json").unlink()

    assert delta_public.PublicState(spark, place).transactions() == {"job": 2, "late": 5}


@pytest.mark.parametrize(
    ("columns", "more", "reason"),
    [
        ("id long", "", "it has no column name"),
        ("id int, name string", "", "its column id is int, not bigint"),
        ("id long, name varchar(4)", "", "its column name is varchar(4), not string"),
        (
            "id long GENERATED ALWAYS AS IDENTITY, name string",
            "",
            "its column id is GENERATED ALWAYS AS IDENTITY",
        ),
        (
            "id long, name string",
            "PARTITIONED BY (name)",
            "it is partitioned by name, whose text may be too long for the name of a folder",
        ),
        ("id long NOT NULL, name string", "", "its column id is NOT NULL"),
        ("id long, name string, more string NOT NULL", "", "its further column more is NOT NULL"),
        (
            "ID long, name string, more string",
            "PARTITIONED BY (more)",
            "it is partitioned by its further column more",
        ),
        ("ID long, name string, more string DEFAULT 'x'", f"PARTITIONED BY (more) {DEFAULTS}", None),
    ],
)
def test_both_ways_find_the_same_contradictions(
    spark: SparkSession, tmp_path: Path, columns: str, more: str, reason: str | None
) -> None:
    place = make(spark, tmp_path / "table", columns, more)

    assert delta_log.log_snapshot(spark, place).contradiction(COLUMNS, ()) == reason
    assert delta_public.PublicState(spark, place).contradiction(COLUMNS, ()) == reason


def test_both_ways_find_a_check(spark: SparkSession, tmp_path: Path) -> None:
    place = make(spark, tmp_path / "table")
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT sane CHECK (id < 100)")

    assert delta_log.log_snapshot(spark, place).contradiction(COLUMNS, ()) == "it has the CHECK sane"
    assert delta_public.PublicState(spark, place).contradiction(COLUMNS, ()) == "it has the CHECK sane"

    delta_log.delta_log(spark, place).checkpoint()
    for commit in (tmp_path / "table" / "_delta_log").glob("*.json"):
        commit.unlink()
    assert delta_public.PublicState(spark, place).contradiction(COLUMNS, ()) == "it has the CHECK sane"


@pytest.mark.usefixtures("no_classes")
def test_an_empty_log_has_version_minus_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)

    assert delta_log.snapshot(spark, str(tmp_path / "table")).version == -1


@pytest.mark.usefixtures("no_classes")
def test_a_table_that_forgets_transactions_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    more = "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')"
    place = make(spark, tmp_path / "table", more=more)

    with pytest.raises(SinkError, match="the table forgets transactions"):
        append_once(rows(spark, 1), place, COLUMNS, (), app_id="job", batch_id=0)

    assert found(spark, place) == []


@pytest.mark.usefixtures("no_classes")
def test_a_delta_sink_works_as_before(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delta_public._report.cache_clear()
    sink = DeltaSink(str(tmp_path), create=True)
    frame = spark.createDataFrame([("a", 1, "f", "EWR", *[None] * 6)], FIRED_SCHEMA)

    with caplog.at_level(logging.WARNING):
        for batch_id in (0, 0, 1, 1):
            sink.write(frame, "EWR", app_id="job", batch_id=batch_id)
        assert sink.holds(spark, "EWR", app_id="job", batch_id=1)
        assert not sink.holds(spark, "EWR", app_id="job", batch_id=2)
        assert sink.missing_reason(spark, "EWR") is None

    assert spark.read.format("delta").load(str(tmp_path / "EWR")).count() == 2
    assert fields(FIRED_SCHEMA).names == spark.read.format("delta").load(str(tmp_path / "EWR")).columns
    (warning,) = [record.getMessage() for record in caplog.records if record.name == delta_public.__name__]
    assert "Delta's public API is used instead" in warning
    assert "Spark 4.2.0 and Delta 4.4.0" in warning


@pytest.mark.usefixtures("no_classes")
def test_the_slot_store_names_the_versions_instead(spark: SparkSession, tmp_path: Path) -> None:
    layout = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1)

    with pytest.raises(
        UnsupportedVersionError, match=r"as in Spark 4\.2\.0 and Delta 4\.4\.0; installed: Spark 4"
    ):
        SlotStore.open(spark, str(tmp_path / "store"), layout, create=True)
