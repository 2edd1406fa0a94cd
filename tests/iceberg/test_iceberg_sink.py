"""Batches go to Iceberg tables of a real catalog: once, whatever is repeated, and what does not fit to the rejects."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.job_process import COLUMNS, JobProcess, add_json, rows_due
from tests.iceberg.lake import settings
from wheel_udf.common.errors import SinkError
from wheel_udf.sinks.batch_writer import write_batch
from wheel_udf.sinks.destinations import FIRED_SCHEMA, REJECT_SCHEMA, Destinations
from wheel_udf.sinks.iceberg_sink import BATCH, IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _empty_catalog(spark: SparkSession) -> Iterator[None]:
    yield
    for row in spark.sql("SHOW TABLES IN lake.rem").collect():
        spark.sql(f"DROP TABLE lake.rem.`{row.tableName}`")


def fired(schedule_id: str, destination: str) -> tuple[Any, ...]:
    late = T0 + timedelta(milliseconds=250)
    headers = [("trace", b"\x01")]
    return schedule_id, 1, f"f-{schedule_id}", destination, b"k", b"\xff", headers, T0, late, 250


def rejected(schedule_id: str) -> tuple[Any, ...]:
    return "no_id", "why", "{}", "file:1", schedule_id, None, None, None, None, None, None, T0


class Batches:
    """Writes batches as the query does; a new one stands for a process that has started again."""

    def __init__(
        self, spark: SparkSession, table: str = "lake.rem.{destination}", *, create: bool = True
    ) -> None:
        self.spark = spark
        self.destinations = Destinations({"*": IcebergSink(table, create=create)})
        self.rejects = IcebergSink("lake.rem.rejects")

    def write(self, batch_id: int, *rows: tuple[Any, ...], rejects: tuple[tuple[Any, ...], ...] = ()) -> int:
        names = [row[3] for row in rows]
        return write_batch(
            self.spark.createDataFrame(list(rows), FIRED_SCHEMA),
            lambda: self.spark.createDataFrame(list(rejects), REJECT_SCHEMA),
            rows_to={name: names.count(name) for name in names},
            rejected=len(rejects),
            destinations=self.destinations,
            rejects=self.rejects,
            app_id="app",
            batch_id=batch_id,
        )


def ids(spark: SparkSession, table: str) -> list[str]:
    return sorted(row.schedule_id for row in spark.table(f"lake.rem.{table}").collect())


def reasons(spark: SparkSession) -> list[tuple[str, str]]:
    rows = spark.table("lake.rem.rejects").collect()
    return sorted((row.schedule_id, row.error_message) for row in rows)


def test_each_destination_has_its_own_table_with_all_columns_and_values(spark: SparkSession) -> None:
    Batches(spark).write(0, fired("a", "orders"), fired("b", "we-ird.name"))
    assert ids(spark, "orders") == ["a"]
    assert ids(spark, "`we-ird.name`") == ["b"]
    (row,) = spark.table("lake.rem.orders").collect()
    assert (bytes(row.key), bytes(row.value), row.deliver_at.timestamp()) == (b"k", b"\xff", T0.timestamp())
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("trace", b"\x01")]


def test_a_batch_that_is_repeated_after_a_start_changes_no_table(spark: SparkSession) -> None:
    Batches(spark).write(0, fired("a", "orders"), rejects=(rejected("x"),))
    Batches(spark).write(1, fired("b", "orders"), rejects=(rejected("y"),))
    Batches(spark).write(1, fired("b", "orders"), rejects=(rejected("y"),))
    assert ids(spark, "orders") == ["a", "b"]
    assert ids(spark, "rejects") == ["x", "y"]


def test_a_batch_that_is_repeated_in_the_same_process_changes_no_table(spark: SparkSession) -> None:
    batches = Batches(spark)
    for batch_id in (0, 1, 1, 2):
        batches.write(batch_id, fired(f"of-{batch_id}", "orders"))
    assert ids(spark, "orders") == ["of-0", "of-1", "of-2"]


def test_the_number_of_a_batch_is_in_the_snapshot_of_its_rows(spark: SparkSession) -> None:
    Batches(spark).write(7, fired("a", "orders"))
    summaries = [row.summary for row in spark.table("lake.rem.orders.snapshots").collect()]
    assert [(each["added-records"], each[BATCH]) for each in summaries if BATCH in each] == [("1", "7")]


def test_the_missing_part_of_a_batch_is_written_when_it_is_repeated(spark: SparkSession) -> None:
    Batches(spark).write(0, fired("a", "orders"))  # killed before the second table
    Batches(spark).write(0, fired("a", "orders"), fired("b", "parcels"))
    assert ids(spark, "orders") == ["a"]
    assert ids(spark, "parcels") == ["b"]


def test_two_destinations_may_share_a_table(spark: SparkSession) -> None:
    for _ in range(2):
        Batches(spark, "lake.rem.all").write(0, fired("a", "orders"), fired("b", "parcels"))
    assert ids(spark, "all") == ["a", "b"]


def test_rows_of_a_missing_table_are_rejects_unless_tables_are_created(spark: SparkSession) -> None:
    assert Batches(spark, create=False).write(0, fired("a", "orders")) == 1
    assert reasons(spark) == [("a", "the table lake.rem.orders is missing")]


def test_rows_of_a_missing_schema_are_rejects(spark: SparkSession) -> None:
    Batches(spark, "lake.none.{destination}").write(0, fired("a", "orders"))
    assert reasons(spark) == [("a", "there is no table lake.none.orders: the schema lake.none is missing")]


def test_a_table_that_was_dropped_is_made_again(spark: SparkSession) -> None:
    batches = Batches(spark)
    batches.write(0, fired("a", "orders"))
    spark.sql("DROP TABLE lake.rem.orders")
    batches.write(1, fired("b", "orders"))
    assert ids(spark, "orders") == ["b"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("RENAME COLUMN value TO body", "it has no column value"),
        ("ALTER COLUMN seq TYPE bigint", None),
        ("ADD COLUMN note string", None),
        ("DROP COLUMN lateness_ms", "it has no column lateness_ms"),
    ],
)
def test_rows_of_a_table_with_other_columns_are_rejects_that_name_the_column(
    spark: SparkSession, change: str, reason: str | None
) -> None:
    batches = Batches(spark)
    batches.write(0, fired("a", "orders"))
    spark.sql(f"ALTER TABLE lake.rem.orders {change}")
    batches.write(1, fired("b", "orders"))
    if reason is None:
        assert ids(spark, "orders") == ["a", "b"]
    else:
        assert reasons(spark) == [("b", f"the table lake.rem.orders does not fit: {reason}")]


def test_a_column_that_may_not_be_null_must_always_have_a_value(spark: SparkSession) -> None:
    columns = FIRED_SCHEMA.replace("fire_id string", "fire_id string NOT NULL")
    spark.sql(f"CREATE TABLE lake.rem.sound ({columns}) USING iceberg")
    spark.sql(f"CREATE TABLE lake.rem.further ({FIRED_SCHEMA}, more int NOT NULL) USING iceberg")
    spark.sql(
        f"CREATE TABLE lake.rem.strict ({FIRED_SCHEMA.replace('key binary', 'key binary NOT NULL')}) USING iceberg"
    )
    Batches(spark).write(0, fired("a", "sound"), fired("b", "further"), fired("c", "strict"))
    assert ids(spark, "sound") == ["a"]
    name = "the table lake.rem"
    assert reasons(spark) == [
        ("b", f"{name}.further does not fit: its further column more is NOT NULL"),
        ("c", f"{name}.strict does not fit: its column key is NOT NULL"),
    ]


def test_rows_for_a_catalog_that_the_session_does_not_have_are_rejects(spark: SparkSession) -> None:
    Batches(spark, "pond.rem.orders").write(0, fired("a", "orders"))
    assert reasons(spark) == [
        ("a", "there is no table pond.rem.orders: the catalog pond is not set up (spark.sql.catalog.pond)")
    ]


def test_a_catalog_whose_class_is_missing_stops_the_batch(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.catalog.sea", "org.example.NoCatalog")
    with pytest.raises(SinkError, match=r"class of the catalog is missing: sea = 'org.example.NoCatalog'"):
        Batches(spark, "sea.rem.orders").write(0, fired("a", "orders"))


def test_a_job_that_is_killed_and_goes_on_has_each_row_once(
    spark: SparkSession, tmp_path: Path, warehouse: Path
) -> None:
    (tmp_path / "in").mkdir()
    config = {
        "name": "reminders",
        "mode": "direct",
        "checkpoint": str(tmp_path / "checkpoint"),
        "source": {"format": "json", "path": str(tmp_path / "in"), "schema": COLUMNS},
        "clock": {"kind": "processing"},
        "wheel": {"tick": "100 ms", "size": 16, "levels": 5, "shards": 2},
        "destinations": {"orders": {"sink": "iceberg", "table": "lake.rem.{destination}", "create": True}},
        "rejects": {"sink": "iceberg", "table": "lake.rem.rejects"},
    }
    for name, waits in (("soon", [timedelta(0)] * 20), ("later", [timedelta(seconds=90)] * 20)):
        add_json(tmp_path, name, rows_due(name, datetime.now(UTC), waits, "orders"))
    add_json(tmp_path, "bad", [{"schedule_id": None, "destination": "orders"}])
    with JobProcess(tmp_path, config, settings=settings(warehouse)) as job:
        job.wait_for_fired(20)
        job.kill()
    with JobProcess(tmp_path, config, settings=settings(warehouse)) as job:
        job.wait_for_batches(1)
        job.wait_for_pending(0)  # not for 20 fired rows: the batch of the kill may be repeated
        assert job.end() == 0
    spark.catalog.refreshTable("lake.rem.orders")
    found = ids(spark, "orders")
    assert found == sorted(
        [*(f"soon-{number}" for number in range(20)), *(f"later-{number}" for number in range(20))]
    )
    assert len(ids_of_rejects(spark)) == 1


def ids_of_rejects(spark: SparkSession) -> list[str | None]:
    return [row.schedule_id for row in spark.table("lake.rem.rejects").collect()]
