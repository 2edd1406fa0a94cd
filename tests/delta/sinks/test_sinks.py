"""Batches go to real tables: once, in order, the good ones whatever the bad ones do, and what cannot go there to the
rejects.
"""

from __future__ import annotations

import base64
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, functions as F

from tests.hostile import BAD_NAMES, RESERVED_NAMES
from wheel_udf.checkpoint.identity import Identity, open_checkpoint
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.planned_settings import PlannedSettings
from wheel_udf.checkpoint.spark_logs import planned_batch
from wheel_udf.common.errors import LeaseError, SinkError
from wheel_udf.sinks.batch_writer import write_batch
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import FIRED_SCHEMA, REJECT_SCHEMA, Destinations, Sink, fields
from wheel_udf.sinks.file_sink import FileSink
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.hadoop_files import hadoop_folder
from wheel_udf.tables.table_state import TableState
from wheel_udf.testing.ledger import read_delta

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

T0 = datetime(2024, 1, 1, tzinfo=UTC)
APP = "departures-1f"


def fired_row(schedule_id: str, destination: str, due_s: int = 0, **changes: Any) -> tuple[Any, ...]:
    deliver_at, fired_at = T0 + timedelta(seconds=due_s), T0 + timedelta(seconds=due_s, milliseconds=250)
    row = {
        "schedule_id": schedule_id,
        "seq": 1,
        "fire_id": f"f-{schedule_id}",
        "destination": destination,
        "key": b"\x00k",
        "value": b"\xff" + schedule_id.encode(),
        "headers": [("trace", b"\x01")],
        "deliver_at": deliver_at,
        "fired_at": fired_at,
        "lateness_ms": 250,
    }
    return tuple((row | changes).values())


def reject_row(code: str, schedule_id: str | None = None) -> tuple[Any, ...]:
    return (code, "why", "{}", "file:1", schedule_id, None, None, None, None, None, None, T0)


class Batches:
    """Writes batches as the query does."""

    def __init__(self, spark: SparkSession, destinations: dict[str, Sink], rejects: Sink) -> None:
        self.spark, self.destinations, self.rejects = spark, Destinations(destinations), rejects

    def write(
        self, batch_id: int, *fired: tuple[Any, ...], rejected: tuple[tuple[Any, ...], ...] = ()
    ) -> int:
        rows_to: dict[str, int] = {}
        for row in fired:
            rows_to[row[3]] = rows_to.get(row[3], 0) + 1
        return write_batch(
            self.spark.createDataFrame(list(fired), FIRED_SCHEMA),
            lambda: self.spark.createDataFrame(list(rejected), REJECT_SCHEMA),
            rows_to=rows_to,
            rejected=len(rejected),
            destinations=self.destinations,
            rejects=self.rejects,
            app_id=APP,
            batch_id=batch_id,
        )


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path) -> Batches:
    """Every name may be made, but what begins with ``old``; that has to be there."""
    tables = str(tmp_path / "tables")
    destinations: dict[str, Sink] = {"old*": DeltaSink(tables), "*": DeltaSink(tables, create=True)}
    return Batches(spark, destinations, DeltaSink(str(tmp_path / "rejects")))


def table(spark: SparkSession, place: Path) -> DataFrame:
    return spark.read.format("delta").load(str(place))


def ids(spark: SparkSession, place: Path) -> list[str]:
    return sorted(row.schedule_id for row in table(spark, place).collect())


def undeliverable(spark: SparkSession, tmp_path: Path) -> list[Row]:
    return (
        table(spark, tmp_path / "rejects")
        .where("error_code = 'undeliverable'")
        .orderBy("schedule_id")
        .collect()
    )


def commits(place: Path) -> list[list[dict[str, Any]]]:
    """The actions of each commit of a table."""
    logs = sorted((place / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


# --- exactly once ---------------------------------------------------------------------------------


@pytest.mark.sentinel
def test_three_destinations_of_one_batch_get_their_rows_as_they_are(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    nothing = fired_row("n", "LGA", key=None, value=None, headers=None)
    assert (
        batches.write(0, fired_row("a", "EWR"), fired_row("b", "JFK"), nothing, fired_row("c", "EWR", 5)) == 0
    )
    assert ids(spark, tmp_path / "tables/EWR") == ["a", "c"]
    assert ids(spark, tmp_path / "tables/JFK") == ["b"]
    assert not (tmp_path / "rejects").exists()
    (row,) = table(spark, tmp_path / "tables/LGA").collect()
    assert (row.key, row.value, row.headers) == (None, None, None)
    (row,) = table(spark, tmp_path / "tables/JFK").collect()
    assert (row.key, row.value, row.headers) == (b"\x00k", b"\xffb", [("trace", bytearray(b"\x01"))])
    assert (row.seq, row.fire_id, row.destination, row.lateness_ms) == (1, "f-b", "JFK", 250)
    times = table(spark, tmp_path / "tables/JFK").selectExpr(
        "unix_millis(deliver_at)", "unix_millis(fired_at)"
    )
    assert [tuple(row) for row in times.collect()] == [(1_704_067_200_000, 1_704_067_200_250)]


def test_the_ledger_reads_the_tables_without_spark(batches: Batches, tmp_path: Path) -> None:
    far_s = 7_000 * 365 * 86_400  # its nanoseconds are beyond 64 bits
    batches.write(0, fired_row("a", "EWR", far_s), fired_row("b", "JFK"))
    one, two = read_delta(tmp_path / "tables").to_pylist()
    assert (one["schedule_id"], one["table"], one["deliver_at"]) == (
        "a",
        "EWR",
        T0 + timedelta(seconds=far_s),
    )
    assert (two["table"], two["value"], two["fired_at"]) == (
        "JFK",
        b"\xffb",
        T0 + timedelta(milliseconds=250),
    )


def test_a_repeated_batch_leaves_one_copy_even_where_it_made_the_table(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    for batch_id in (0, 0, 1, 1, 0):
        row = fired_row(f"a{batch_id}", "EWR")
        assert batches.write(batch_id, row, rejected=(reject_row("bad_op", f"r{batch_id}"),)) == 0
    assert ids(spark, tmp_path / "tables/EWR") == ["a0", "a1"]
    assert ids(spark, tmp_path / "rejects") == ["r0", "r1"]
    assert len(commits(tmp_path / "tables/EWR")) == 2


def test_a_batch_that_died_between_two_tables_is_completed_by_its_repetition(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    first = spark.createDataFrame([fired_row("a", "EWR")], FIRED_SCHEMA)
    DeltaSink(str(tmp_path / "tables"), create=True).write(first, "EWR", app_id=APP, batch_id=0)
    rejected = (reject_row("bad_op", "r"),)
    assert batches.write(0, fired_row("a", "EWR"), fired_row("b", "JFK"), rejected=rejected) == 0
    assert ids(spark, tmp_path / "tables/EWR") == ["a"]
    assert ids(spark, tmp_path / "tables/JFK") == ["b"]
    assert ids(spark, tmp_path / "rejects") == ["r"]


def test_the_data_the_transaction_and_the_new_table_are_one_commit(batches: Batches, tmp_path: Path) -> None:
    batches.write(7, fired_row("a", "EWR"))
    (actions,) = commits(tmp_path / "tables/EWR")
    kinds = {kind: action[kind] for action in actions for kind in action}
    assert kinds.keys() >= {"txn", "metaData", "add"}
    assert (kinds["txn"]["appId"], kinds["txn"]["version"]) == (APP, 7)
    assert kinds["metaData"]["configuration"]["delta.logRetentionDuration"] == "interval 7 days"
    assert "value" not in json.loads(kinds["add"]["stats"])["minValues"]


def test_an_append_is_one_spark_job(spark: SparkSession, batches: Batches) -> None:
    batches.write(0, fired_row("a", "EWR"))
    spark.sparkContext.setJobGroup("one append", "", interruptOnCancel=False)
    try:
        batches.write(1, fired_row("b", "EWR"))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("one append")) == 1


def test_of_two_writers_of_one_batch_the_second_adds_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DeltaSink(str(tmp_path), create=True)
    rows = spark.createDataFrame([fired_row("a", "EWR")], FIRED_SCHEMA)
    sink.write(rows, "EWR", app_id=APP, batch_id=0)
    look = TableState.contradiction

    def meanwhile(*args: Any) -> str | None:  # called when the first writer's transaction has begun
        monkeypatch.setattr(TableState, "contradiction", look)
        sink.write(rows, "EWR", app_id=APP, batch_id=1)
        return look(*args)

    monkeypatch.setattr(TableState, "contradiction", meanwhile)
    sink.write(rows, "EWR", app_id=APP, batch_id=1)
    assert ids(spark, tmp_path / "EWR") == ["a", "a"]


def test_a_batch_makes_one_file_in_the_order_of_due_times(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    rows = [
        fired_row("b", "EWR", 9),
        fired_row("a", "EWR", 9),
        fired_row("z", "EWR", 1),
        fired_row("c", "JFK", 5),
    ]
    batches.write(0, *rows)
    (file,) = (tmp_path / "tables/EWR").glob("*.parquet")
    assert [row.schedule_id for row in spark.read.parquet(str(file)).collect()] == ["z", "a", "b"]


def test_a_batch_without_rows_touches_nothing(batches: Batches, tmp_path: Path) -> None:
    assert batches.write(0) == 0
    assert list(tmp_path.iterdir()) == []


def test_another_series_of_batches_is_not_mistaken_for_a_repetition(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = DeltaSink(str(tmp_path), create=True)
    rows = spark.createDataFrame([fired_row("a", "EWR")], FIRED_SCHEMA)
    sink.write(rows, "EWR", app_id="first", batch_id=0)
    assert sink.holds(spark, "EWR", app_id="first", batch_id=0)
    assert not sink.holds(spark, "EWR", app_id="first", batch_id=1)
    assert not sink.holds(spark, "EWR", app_id="second", batch_id=0)
    sink.write(rows, "EWR", app_id="second", batch_id=0)
    assert ids(spark, tmp_path / "EWR") == ["a", "a"]


# --- what cannot be delivered ---------------------------------------------------------------------


@pytest.mark.sentinel
def test_rows_of_a_missing_table_are_undeliverable_and_the_others_unaffected(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    rows = [fired_row("a", "EWR"), fired_row("lost", "old_orders", 3), fired_row("lost2", "old_orders", 4)]
    assert batches.write(0, *rows, rejected=(reject_row("bad_op", "r"),)) == 2
    assert ids(spark, tmp_path / "tables/EWR") == ["a"]
    assert not (tmp_path / "tables/old_orders").exists()
    assert ids(spark, tmp_path / "rejects") == ["lost", "lost2", "r"]
    assert len(commits(tmp_path / "rejects")) == 1
    row = undeliverable(spark, tmp_path)[0]
    assert row.error_message == f"the table {tmp_path}/tables/old_orders is missing"
    assert (row.schedule_id, row.seq, row.destination, row.source) == ("lost", 1, "old_orders", None)
    assert (row.key, row.value, row.headers) == (b"\x00k", b"\xfflost", [("trace", bytearray(b"\x01"))])
    assert json.loads(row.record) == {
        "schedule_id": "lost",
        "seq": 1,
        "fire_id": "f-lost",
        "destination": "old_orders",
        "deliver_at": "2024-01-01T00:00:03.000Z",
        "fired_at": "2024-01-01T00:00:03.250Z",
        "lateness_ms": 250,
    }
    times = table(spark, tmp_path / "rejects").where("schedule_id = 'lost'")
    when = times.selectExpr("unix_millis(deliver_at)", "unix_millis(rejected_at)").collect()
    assert [tuple(row) for row in when] == [(1_704_067_203_000, 1_704_067_203_250)]


def test_a_repetition_does_not_deliver_what_it_has_reported_as_undeliverable(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    batches.write(0, fired_row("lost", "old_orders"))
    make_table(spark, tmp_path / "tables/old_orders", FIRED_SCHEMA)
    batches.write(0, fired_row("lost", "old_orders"))
    assert ids(spark, tmp_path / "tables/old_orders") == []
    assert [row.schedule_id for row in undeliverable(spark, tmp_path)] == ["lost"]
    assert batches.write(1, fired_row("good", "old_orders")) == 0
    assert ids(spark, tmp_path / "tables/old_orders") == ["good"]


def test_a_repetition_does_not_report_as_undeliverable_what_it_has_delivered(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    batches.write(0, fired_row("a", "EWR"))
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/tables/EWR` ADD CONSTRAINT sane CHECK (lateness_ms < 1000)")
    assert batches.write(0, fired_row("a", "EWR")) == 0
    assert ids(spark, tmp_path / "tables/EWR") == ["a"]
    assert not (tmp_path / "rejects").exists()


def test_rows_for_hostile_names_become_rejects_and_are_written_nowhere(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    names = [*BAD_NAMES, *RESERVED_NAMES]
    evil = [fired_row(f"{number:03}", name) for number, name in enumerate(names)]
    assert batches.write(0, *evil, fired_row("a", "EWR")) == len(names)
    assert ids(spark, tmp_path / "tables/EWR") == ["a"]
    assert [row.destination for row in undeliverable(spark, tmp_path)] == names
    assert sorted(place.name for place in tmp_path.iterdir()) == ["rejects", "tables"]
    assert [place.name for place in (tmp_path / "tables").iterdir()] == ["EWR"]


def make_table(spark: SparkSession, place: Path, columns: str, more: str = "") -> None:
    spark.sql(f"CREATE TABLE delta.`{place}` ({columns}) USING delta {more}")


@dataclass(frozen=True)
class Form:
    """A table as a user may have made it: its columns, what follows them, what is done to it (``{t}``); and why it is
    refused (None: it is taken).
    """

    columns: str
    refused: str | None = None
    more: str = ""
    then: str = ""


def changed(*change: str) -> str:
    """The columns of a delivery, with one text in place of another."""
    assert change[0] in FIRED_SCHEMA
    return FIRED_SCHEMA.replace(*change)


BY_NAME = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
WIDENING = "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
DEFAULTS = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
FORMS = {
    "mapped_by_name": Form(FIRED_SCHEMA, more=BY_NAME),
    "mapped_by_id": Form(FIRED_SCHEMA, more="TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"),
    "mapped_later": Form(
        FIRED_SCHEMA, then="ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    ),
    "mapped_and_partitioned_and_renamed": Form(
        changed("lateness_ms", "late_ms"),
        more=f"PARTITIONED BY (schedule_id) {BY_NAME}",
        then="ALTER TABLE {t} RENAME COLUMN late_ms TO lateness_ms",
    ),
    "renamed_away": Form(
        FIRED_SCHEMA,
        "it has no column lateness_ms",
        more=BY_NAME,
        then="ALTER TABLE {t} RENAME COLUMN lateness_ms TO late_ms",
    ),
    "comments": Form(
        changed("<key: string", "<key: string COMMENT 'its name'").replace(
            "seq bigint", "seq bigint COMMENT 'version'"
        ),
        more="COMMENT 'deliveries'",
    ),
    "capitals": Form(FIRED_SCHEMA.upper().replace("SCHEDULE_ID STRING", "SCHEDULE_ID STRING NOT NULL")),
    "partitioned": Form(FIRED_SCHEMA, more="PARTITIONED BY (destination, fired_at)"),
    "partitioned_by_a_text": Form(
        FIRED_SCHEMA,
        "it is partitioned by schedule_id, whose text may be too long for the name of a folder",
        more="PARTITIONED BY (schedule_id)",
    ),
    "partitioned_by_bytes": Form(
        FIRED_SCHEMA,
        "it is partitioned by key, and Delta changes binary values of partitions",
        more=f"PARTITIONED BY (key) {BY_NAME}",
    ),
    "partitioned_by_a_further_column": Form(
        f"{FIRED_SCHEMA}, region string",
        "it is partitioned by its further column region",
        more="PARTITIONED BY (region)",
    ),
    "clustered_with_deletion_vectors": Form(
        FIRED_SCHEMA,
        more="CLUSTER BY (fired_at, schedule_id) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        then="DELETE FROM {t} WHERE seq = 7",
    ),
    "other_features": Form(
        FIRED_SCHEMA,
        more="TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableChangeDataFeed' = 'true', 'delta.appendOnly' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true', 'delta.checkpointPolicy' = 'v2')",
    ),
    "further_not_null": Form(f"{FIRED_SCHEMA}, n int NOT NULL", "its further column n is NOT NULL"),
    "further_not_null_inside": Form(
        f"{FIRED_SCHEMA}, place struct<X: int NOT NULL>", "its further column place.X is NOT NULL"
    ),
    "defaults": Form(
        f"{changed('seq bigint', 'seq bigint DEFAULT 5')}, region string, place struct<x: int>, n int DEFAULT 3, m int NOT NULL DEFAULT 4",
        more=f"PARTITIONED BY (n) {DEFAULTS}",
    ),
    "default_null": Form(
        f"{FIRED_SCHEMA}, n int NOT NULL DEFAULT NULL", "its further column n is NOT NULL", more=DEFAULTS
    ),
    "generated": Form(
        f"{FIRED_SCHEMA}, day date GENERATED ALWAYS AS (CAST(fired_at AS DATE))", more="PARTITIONED BY (day)"
    ),
    "generated_own": Form(
        changed("fire_id string", "fire_id string GENERATED ALWAYS AS (concat('f-', schedule_id))"),
        "its column fire_id is GENERATED ALWAYS AS (concat('f-', schedule_id))",
    ),
    "identity": Form(f"{FIRED_SCHEMA}, n bigint NOT NULL GENERATED ALWAYS AS IDENTITY"),
    "identity_own": Form(
        changed("seq bigint", "seq bigint GENERATED ALWAYS AS IDENTITY"),
        "its column seq is GENERATED ALWAYS AS IDENTITY",
    ),
    "identity_by_default": Form(
        changed("seq bigint", "seq bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY")
    ),
    "not_null_payload": Form(changed(" key binary", " key binary NOT NULL"), "its column key is NOT NULL"),
    "check": Form(
        FIRED_SCHEMA,
        "it has the CHECK sane",
        then="ALTER TABLE {t} ADD CONSTRAINT sane CHECK (lateness_ms < 1000)",
    ),
    "widened": Form(
        changed("lateness_ms bigint", "lateness_ms int"),
        more=WIDENING,
        then="ALTER TABLE {t} ALTER COLUMN lateness_ms TYPE bigint",
    ),
    "widened_away": Form(
        FIRED_SCHEMA,
        "its column seq is decimal(20,0), not bigint",
        more=WIDENING,
        then="ALTER TABLE {t} ALTER COLUMN seq TYPE decimal(20, 0)",
    ),
    "narrow": Form(changed("seq bigint", "seq int"), "its column seq is int, not bigint", more=WIDENING),
    "without_zone": Form(
        changed("fired_at timestamp", "fired_at timestamp_ntz"),
        "its column fired_at is timestamp_ntz, not timestamp",
    ),
    "limited": Form(
        changed("fire_id string", "fire_id varchar(4)"),
        "its column fire_id is varchar(4), not string",
        more=BY_NAME,
    ),
    "limited_inside": Form(
        changed("<key: string", "<key: varchar(4)"),
        "its column headers is array<struct<key:varchar(4),value:binary>>, not array<struct<key:string,value:binary>>",
    ),
    "other_inside": Form(
        changed("value: binary", "value: string"),
        "its column headers is array<struct<key:string,value:string>>, not array<struct<key:string,value:binary>>",
    ),
    "missing": Form(changed("value binary, headers", "headers"), "it has no column value"),
    "two_faults": Form(
        f"{changed('seq bigint', 'seq int')}, n int NOT NULL",
        "its column seq is int, not bigint, its further column n is NOT NULL",
    ),
}


FURTHER = {
    "defaults": [(None, None, 3, 4)],
    "generated": [(date(2024, 1, 1),)],
    "identity": [(1,), (2,)],
}
"""What the columns hold that deliveries do not have."""


def test_a_table_of_any_form_gets_its_rows_once_or_is_refused_with_the_true_reason(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    for name, form in FORMS.items():
        make_table(spark, tmp_path / "tables" / name, form.columns, form.more)
        if form.then:
            spark.sql(form.then.format(t=f"delta.`{tmp_path}/tables/{name}`"))
    # Delta sets this when it makes a session; the fixture's settings are older.
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", True)
    refused = {name: form.refused for name, form in FORMS.items() if form.refused is not None}

    for _ in range(2):
        batches.write(0, *(fired_row("a", name) for name in FORMS))
    batches.write(1, fired_row("b", "mapped_by_name"), fired_row("b", "identity"))

    assert {row.destination: row.error_message for row in undeliverable(spark, tmp_path)} == {
        name: f"the table {tmp_path}/tables/{name} does not fit: {reason}" for name, reason in refused.items()
    }
    columns = ("schedule_id", "seq", "fire_id", "key", "headers", "lateness_ms")
    taken = FORMS.keys() - refused.keys()
    tables = (table(spark, tmp_path / "tables" / name).select(F.lit(name), *columns) for name in taken)
    assert sorted(map(tuple, reduce(DataFrame.union, tables).collect())) == [
        (name, schedule_id, 1, f"f-{schedule_id}", b"\x00k", [("trace", b"\x01")], 250)
        for name in sorted(taken)
        for schedule_id in ("ab" if name in ("mapped_by_name", "identity") else "a")
    ]
    for name, expected in FURTHER.items():
        rows = table(spark, tmp_path / "tables" / name).orderBy("schedule_id").collect()
        assert [tuple(row)[len(fields(FIRED_SCHEMA)) :] for row in rows] == expected, name


def test_the_rejects_go_to_a_table_with_column_mapping_or_stop_the_job_with_the_true_reason(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    make_table(spark, tmp_path / "rejects", REJECT_SCHEMA, f"PARTITIONED BY (error_code) {BY_NAME}")
    for _ in range(2):
        batches.write(0, fired_row("lost", "old"), rejected=(reject_row("bad_op", "r"),))
    assert ids(spark, tmp_path / "rejects") == ["lost", "r"]
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/rejects` ADD CONSTRAINT sane CHECK (error_code <> 'late')")
    with pytest.raises(SinkError, match=r"rejects cannot be written: .* does not fit: it has the CHECK sane"):
        Batches(spark, {}, DeltaSink(str(tmp_path / "rejects"))).write(1, rejected=(reject_row("bad_op"),))


def test_tables_that_the_job_makes_with_column_mapping_by_default_are_written_on(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    spark.conf.set("spark.databricks.delta.properties.defaults.columnMapping.mode", "name")
    for batch_id in (0, 0, 1):
        rejected = (reject_row("bad_op", f"r{batch_id}"),)
        assert batches.write(batch_id, fired_row(f"a{batch_id}", "EWR"), rejected=rejected) == 0
    assert "delta.columnMapping.mode" in str(commits(tmp_path / "tables/EWR")[0])
    assert ids(spark, tmp_path / "tables/EWR") == ["a0", "a1"]
    assert ids(spark, tmp_path / "rejects") == ["r0", "r1"]


def _hold(turn: str, value: str) -> str:
    """In a worker: reports that it runs, and returns once it may. Opening a FIFO waits for the other side."""
    Path(f"{turn}.begun").write_text("now")
    Path(f"{turn}.done").read_text()
    return value


@pytest.mark.parametrize(
    ("columns", "found"), [(FIRED_SCHEMA, ["a", "b"]), (changed("seq bigint", "seq int"), ["b"])]
)
def test_of_two_queries_that_make_one_table_at_a_time_the_later_one_looks_again(
    spark: SparkSession, batches: Batches, tmp_path: Path, columns: str, found: list[str]
) -> None:
    turn, place = str(tmp_path / "turn"), tmp_path / "tables/EWR"
    for end in ("begun", "done"):
        os.mkfifo(f"{turn}.{end}")
    rows = spark.createDataFrame([fired_row("a", "EWR")], FIRED_SCHEMA)
    later = partial(
        write_batch,
        rows.withColumn("fire_id", F.udf(lambda value: _hold(turn, value), "string")("fire_id")).cache(),
        lambda: spark.createDataFrame([], REJECT_SCHEMA),
        rows_to={"EWR": 1},
        rejected=0,
        destinations=batches.destinations,
        rejects=batches.rejects,
        app_id=APP,
        batch_id=0,
    )
    with ThreadPoolExecutor(1) as pool:
        undelivered = pool.submit(later)
        Path(f"{turn}.begun").read_text()
        first = spark.createDataFrame([fired_row("b", "EWR")], columns)
        first.write.format("delta").mode("append").save(str(place))
        Path(f"{turn}.done").write_text("now")
        assert undelivered.result() == 2 - len(found)
    assert later() == 2 - len(found)
    assert ids(spark, place) == found


def test_a_table_that_goes_while_the_query_runs_makes_rejects_and_is_not_made_again(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    make_table(spark, tmp_path / "tables/old", FIRED_SCHEMA)
    assert batches.write(0, fired_row("a", "old")) == 0
    (tmp_path / "tables/old").rename(tmp_path / "gone")
    assert batches.write(1, fired_row("b", "old")) == 1
    assert not (tmp_path / "tables/old").exists()
    (tmp_path / "gone").rename(tmp_path / "tables/old")
    assert batches.write(2, fired_row("c", "old")) == 0
    assert ids(spark, tmp_path / "tables/old") == ["a", "c"]


def test_a_table_that_changes_while_the_query_runs_is_looked_at_again_when_a_write_fails(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    make_table(spark, tmp_path / "tables/old", FIRED_SCHEMA)
    assert batches.write(0, fired_row("a", "old")) == 0
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/tables/old` ADD CONSTRAINT sane CHECK (lateness_ms < 1000)")
    assert batches.write(1, fired_row("b", "old", lateness_ms=5000), fired_row("c", "EWR")) == 1
    assert ids(spark, tmp_path / "tables/EWR") == ["c"]
    assert [row.schedule_id for row in undeliverable(spark, tmp_path)] == ["b"]


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("folder", ["old", "old/eu"])
def test_a_folder_of_other_files_is_not_taken_for_a_table(
    spark: SparkSession, tmp_path: Path, folder: str, create: bool
) -> None:
    spark.createDataFrame([("x",)], "a string").write.parquet(str(tmp_path / folder))
    sink = DeltaSink(str(tmp_path), create=create)
    assert sink.missing_reason(spark, "old") == f"{tmp_path}/old is not a Delta table"


@pytest.mark.parametrize("folder", ["", "kD"])
def test_what_a_killed_first_write_left_does_not_keep_the_table_from_being_made(
    spark: SparkSession, batches: Batches, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "tables/EWR/_delta_log").mkdir(parents=True)
    (tmp_path / "tables/EWR" / folder).mkdir(exist_ok=True)
    (tmp_path / "tables/EWR" / folder / "part-00000-5e1f52bf-c000.parquet").touch()
    assert batches.write(0, fired_row("a", "EWR")) == 0
    assert ids(spark, tmp_path / "tables/EWR") == ["a"]


def test_tables_are_not_put_inside_a_table(spark: SparkSession, tmp_path: Path) -> None:
    make_table(spark, tmp_path / "rejects", REJECT_SCHEMA)
    reason = DeltaSink(str(tmp_path / "rejects"), create=True).missing_reason(spark, "EWR")
    assert reason == f"the folder of the tables, {tmp_path}/rejects, is a table itself"


def test_thousands_of_missing_tables_are_one_commit_of_rejects(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    rows = [fired_row(f"x{number}", f"old{number}") for number in range(2000)]
    assert batches.write(0, *rows) == 2000
    assert len(commits(tmp_path / "rejects")) == 1
    assert (
        table(spark, tmp_path / "rejects")
        .where("error_message like '%tables/' || destination || ' is missing'")
        .count()
        == 2000
    )


# --- failures -------------------------------------------------------------------------------------


class BrokenSink(DeltaSink):
    """A disk that is full, for all one can see beforehand."""

    def write(self, *args: Any, **_: Any) -> None:
        message = f"no space left for {args[1]}\n\tat java.io.Pages.ofIt"
        raise OSError(message)


class DarkSink(DeltaSink):
    """A table that cannot even be looked at."""

    def missing_reason(self, *_: Any, **__: Any) -> str | None:
        message = "the catalog refuses access"
        raise OSError(message)


def test_a_destination_that_cannot_be_looked_at_kept_all_others_from_their_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    dark, good = DarkSink(str(tmp_path), create=True), DeltaSink(str(tmp_path), create=True)
    batches = Batches(spark, {"dark": dark, "*": good}, DeltaSink(str(tmp_path / "rejects")))
    with pytest.raises(SinkError) as failure:
        batches.write(0, fired_row("a", "dark"), fired_row("b", "EWR"))
    said = "1 of 2 destinations of batch 0 could not be written (dark: the catalog refuses access)"
    assert str(failure.value).startswith(said)
    assert ids(spark, tmp_path / "EWR") == ["b"]


def test_all_failures_of_a_batch_are_one_error_and_the_other_tables_are_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    broken, good = BrokenSink(str(tmp_path), create=True), DeltaSink(str(tmp_path), create=True)
    batches = Batches(spark, {"full*": broken, "*": good}, DeltaSink(str(tmp_path / "rejects")))
    rows = [fired_row("a", "full1"), fired_row("b", "EWR"), fired_row("c", "full2")]
    with pytest.raises(SinkError) as failure:
        batches.write(0, *rows, rejected=(reject_row("bad_op", "r"),))
    said = "2 of 3 destinations of batch 0 could not be written (full1: no space left for full1; full2: no space left for full2)"
    assert str(failure.value).startswith(said)
    assert ids(spark, tmp_path / "EWR") == ["b"]
    assert not (tmp_path / "rejects").exists()
    repaired = Batches(spark, {"*": good}, DeltaSink(str(tmp_path / "rejects")))
    assert repaired.write(0, *rows, rejected=(reject_row("bad_op", "r"),)) == 0
    assert [ids(spark, tmp_path / name) for name in ("EWR", "full1", "full2", "rejects")] == [
        ["b"],
        ["a"],
        ["c"],
        ["r"],
    ]


def test_rejects_that_cannot_be_written_stop_the_batch(
    spark: SparkSession, batches: Batches, tmp_path: Path
) -> None:
    make_table(spark, tmp_path / "rejects", FIRED_SCHEMA)
    with pytest.raises(SinkError, match=r"the rejects cannot be written: .* it has no column error_code"):
        batches.write(0, fired_row("a", "EWR"), rejected=(reject_row("bad_op"),))


def test_writers_beside_each_other_keep_the_streams_own_properties(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[tuple[str, str | None]] = []

    class LookingSink(DeltaSink):
        def write(self, *args: Any, **_: Any) -> None:
            seen.append((args[1], spark.sparkContext.getLocalProperty("spark.jobGroup.id")))

    batches = Batches(
        spark, {"*": LookingSink(str(tmp_path), create=True)}, DeltaSink(str(tmp_path / "rejects"))
    )
    spark.sparkContext.setJobGroup("run-1", "the stream's", interruptOnCancel=True)
    try:
        batches.write(0, fired_row("a", "EWR"), fired_row("b", "JFK"))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert sorted(seen) == [("EWR", "run-1"), ("JFK", "run-1")]


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_files_of_a_batch_are_replaced_by_its_repetition(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    batches = Batches(
        spark, {"*": FileSink(str(tmp_path / "out"), kind)}, DeltaSink(str(tmp_path / "rejects"))
    )
    for batch_id in (0, 1, 1):
        batches.write(batch_id, fired_row(f"a{batch_id}", "EWR"), fired_row(f"b{batch_id}", "EWR"))
    reader = spark.read.format(kind).option("header", "true")
    rows = reader.load(str(tmp_path / "out/EWR")).orderBy("batch", "schedule_id").collect()
    assert [(row.run, row.batch, row.schedule_id) for row in rows] == [
        (APP, 0, "a0"),
        (APP, 0, "b0"),
        (APP, 1, "a1"),
        (APP, 1, "b1"),
    ]
    value, headers = rows[0].value, rows[0].headers
    if kind != "parquet":
        value = base64.b64decode(value)
    if kind == "csv":
        headers = json.loads(headers)
    assert value == b"\xffa0"
    assert len(headers) == 1


def test_files_keep_to_their_folder_and_out_of_tables(spark: SparkSession, tmp_path: Path) -> None:
    make_table(spark, tmp_path / "EWR", FIRED_SCHEMA)
    sink = FileSink(str(tmp_path))
    assert sink.missing_reason(spark, "EWR") == f"{tmp_path}/EWR is a Delta table"
    assert sink.missing_reason(spark, "JFK") is None
    assert "not a destination name" in (sink.missing_reason(spark, "../x") or "")
    with pytest.raises(SinkError):
        sink.write(spark.createDataFrame([], FIRED_SCHEMA), "../x", app_id=APP, batch_id=0)


def test_rejects_may_go_to_files_too(spark: SparkSession, tmp_path: Path) -> None:
    batches = Batches(
        spark, {"*": DeltaSink(str(tmp_path / "none"))}, FileSink(str(tmp_path / "rejects"), "json")
    )
    for _ in range(2):
        assert batches.write(0, fired_row("lost", "EWR"), rejected=(reject_row("bad_op", "r"),)) == 1
    rows = spark.read.json(str(tmp_path / "rejects")).orderBy("schedule_id").collect()
    assert [(row.schedule_id, row.error_code) for row in rows] == [("lost", "undeliverable"), ("r", "bad_op")]


# --- a checkpoint on another file system ----------------------------------------------------------


def test_a_dry_run_writes_through_hadoop_as_it_does_locally_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    for kind in (hadoop_folder, open_folder):
        assert kind(f"{tmp_path}/a/b").unwritable_reason() is None
        assert kind(str(tmp_path)).unwritable_reason() is None
        reason = kind(f"{tmp_path}/file/b").unwritable_reason()
        assert reason is not None
        assert f"{tmp_path}/file" in reason
    assert [each.name for each in tmp_path.rglob("*")] == ["file"]


def test_a_checkpoint_through_hadoop_is_the_same_as_a_local_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "checkpoint")

    def start() -> Identity:
        return open_checkpoint(place, name="n", wheel_fingerprint="w", shards=2, clock_kind="event")

    with monkeypatch.context() as through_hadoop:
        for module in ("identity", "planned_settings", "spark_logs"):
            through_hadoop.setattr(f"wheel_udf.checkpoint.{module}.open_folder", hadoop_folder)
        first = start()
        assert start() == first
        assert planned_batch(place) is None
        journal = PlannedSettings(place)
        journal.record({"limit": 1}, 0)
        journal.record({"limit": 2}, 3)
        assert journal.settings_of(2) == {"limit": 1}
    assert start() == first
    with Lease(place):
        assert PlannedSettings(place).settings_of(3) == {"limit": 2}


def test_a_lease_through_hadoop_has_one_holder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheel_udf.checkpoint.lease.local_folder", lambda _path: None)
    monkeypatch.setattr("wheel_udf.checkpoint.lease.open_folder", lambda path, **_: hadoop_folder(path))
    place, records = str(tmp_path / "checkpoint"), tmp_path / "checkpoint" / "wheel.lease"
    with Lease(place) as lease:
        lease.check()
        assert not hadoop_folder(place).create("wheel.lease/0", b"another")
        with pytest.raises(LeaseError, match="in use by another process"):
            Lease(place).require_free(waits=False)
    assert sorted(each.name for each in records.iterdir() if each.name.isdecimal()) == ["0", "1"]
    Lease(place).require_free(waits=False)
    hadoop_folder(place).remove_files("wheel.lease", ["0", "7"])
    assert sorted(each.name for each in records.iterdir() if each.name.isdecimal()) == ["1"]
