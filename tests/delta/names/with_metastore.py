"""Tables by their names in a Hive metastore: what is written, refused and read again, one case each.

Run by ``test_names.py``; alone with ``python -m pytest tests/delta/names/with_metastore.py``.
"""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.command_line import Said, say
from tests.delta.sinks.test_sinks import APP, T0, Batches, fired_row, reject_row
from wheel_udf.common.errors import SinkError, StoreError
from wheel_udf.common.table_names import table_name
from wheel_udf.job.loader import load
from wheel_udf.job.models.scheduler import TieredConfig
from wheel_udf.job.named import StoreName, located
from wheel_udf.sinks.catalog_sink import CatalogTableSink
from wheel_udf.sinks.delta_sink import TABLE_PROPERTIES
from wheel_udf.sinks.destinations import FIRED_SCHEMA, Sink, fields
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables.named_tables import look_up, misfit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLE = "spark_catalog.reminders.{destination}"
REJECTS = "spark_catalog.reminders.rejects"


@pytest.fixture
def schema(spark: SparkSession, warehouse: Path) -> Iterator[Path]:
    """The empty schema ``reminders``; returns its folder."""
    spark.sql("CREATE SCHEMA reminders")
    yield warehouse / "reminders.db"
    spark.sql("DROP SCHEMA IF EXISTS reminders CASCADE")
    shutil.rmtree(warehouse / "reminders.db", ignore_errors=True)


def batches(spark: SparkSession, *, create: bool = True, table: str = TABLE) -> Batches:
    """What a job that has just started writes with: names that begin with ``old`` have to be there."""
    destinations: dict[str, Sink] = {
        "old*": CatalogTableSink(table),
        "*": CatalogTableSink(table, create=create),
    }
    return Batches(spark, destinations, CatalogTableSink(REJECTS))


def ids(spark: SparkSession, name: str) -> list[str]:
    return sorted(row.schedule_id for row in spark.table(f"reminders.{name}").collect())


def undeliverable(spark: SparkSession) -> list[tuple[str, str]]:
    rows = spark.table(REJECTS).where("error_code = 'undeliverable'").orderBy("schedule_id").collect()
    return [(row.schedule_id, row.error_message) for row in rows]


def made(spark: SparkSession, name: str, *more: str, properties: str = "") -> None:
    """A table of somebody else."""
    columns = ", ".join([FIRED_SCHEMA, *more])
    spark.sql(f"CREATE TABLE reminders.{name} ({columns}) USING delta {properties}")


# --- exactly once ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("schema")
def test_missing_tables_are_created_and_a_repeated_batch_changes_nothing(spark: SparkSession) -> None:
    rows = (fired_row("1", "late"), fired_row("2", "early"))
    first = batches(spark)
    first.write(0, *rows, rejected=(reject_row("malformed"),))
    first.write(0, *rows, rejected=(reject_row("malformed"),))
    batches(spark).write(0, *rows, rejected=(reject_row("malformed"),))

    assert (ids(spark, "late"), ids(spark, "early")) == (["1"], ["2"])
    assert [row.error_code for row in spark.table(REJECTS).collect()] == ["malformed"]
    properties = {row.key: row.value for row in spark.sql("SHOW TBLPROPERTIES reminders.late").collect()}
    assert properties.items() >= TABLE_PROPERTIES.items()


@pytest.mark.usefixtures("schema")
def test_a_sink_knows_which_batches_its_table_holds(spark: SparkSession) -> None:
    batches(spark).write(3, fired_row("1", "late"))

    sink = CatalogTableSink(TABLE)
    held = [sink.holds(spark, "late", app_id=APP, batch_id=batch) for batch in (2, 3, 4)]
    assert held == [True, True, False]
    assert not sink.holds(spark, "other", app_id=APP, batch_id=3)


@pytest.mark.usefixtures("schema")
def test_destinations_with_one_table_each_have_their_rows_in_it_once(spark: SparkSession) -> None:
    rows = (fired_row("1", "Late"), fired_row("2", "late"), fired_row("3", "LATE"))
    for _ in range(2):
        batches(spark).write(0, *rows)
    for _ in range(2):
        batches(spark, table="reminders.shared").write(0, *rows)

    assert ids(spark, "late") == ids(spark, "shared") == ["1", "2", "3"]


@pytest.mark.usefixtures("schema")
def test_a_table_of_others_takes_rows_whatever_its_order_capitals_and_further_columns(
    spark: SparkSession,
) -> None:
    columns = [f"{each.name.capitalize()} {each.dataType.simpleString()}" for each in fields(FIRED_SCHEMA)]
    spark.sql(
        f"CREATE TABLE reminders.old (more INT, {', '.join(reversed(columns))}) USING delta PARTITIONED BY (Destination)"
    )
    batches(spark).write(0, fired_row("1", "old"))

    row = spark.table("reminders.old").collect()[0]
    assert (row.Schedule_id, row.Destination, row.more) == ("1", "old", None)


# --- what becomes a reject ------------------------------------------------------------------------


@pytest.mark.usefixtures("schema")
def test_a_missing_table_that_may_not_be_created_is_undeliverable(spark: SparkSession) -> None:
    batches(spark).write(0, fired_row("1", "old"), fired_row("2", "late"))

    assert undeliverable(spark) == [("1", "the table spark_catalog.reminders.old is missing")]
    assert ids(spark, "late") == ["2"]


@pytest.mark.usefixtures("schema")
def test_a_missing_schema_is_undeliverable(spark: SparkSession) -> None:
    batches(spark, table="spark_catalog.nowhere.{destination}").write(0, fired_row("1", "late"))

    why = "there is no table spark_catalog.nowhere.late: the schema spark_catalog.nowhere is missing"
    assert undeliverable(spark) == [("1", why)]


@pytest.mark.usefixtures("schema")
def test_an_unknown_catalog_is_undeliverable(spark: SparkSession) -> None:
    batches(spark, table="main.reminders.{destination}").write(0, fired_row("1", "late"))

    why = "there is no table main.reminders.late: the catalog main is not set up (spark.sql.catalog.main)"
    assert undeliverable(spark) == [("1", why)]


@pytest.mark.usefixtures("schema")
def test_a_name_that_the_metastore_refuses_is_undeliverable(spark: SparkSession) -> None:
    batches(spark).write(0, fired_row("1", "late-2"), fired_row("2", "late"))

    why = "there is no table spark_catalog.reminders.`late-2`: tables of this catalog have names of A-Z a-z 0-9 _"
    assert undeliverable(spark) == [("1", why)]
    assert ids(spark, "late") == ["2"]


def test_a_folder_that_is_not_empty_is_undeliverable_until_it_is(spark: SparkSession, schema: Path) -> None:
    (schema / "late").mkdir(parents=True)
    (schema / "late" / "notes.txt").write_text("not a table")
    writer = batches(spark)
    writer.write(0, fired_row("1", "late"))
    shutil.rmtree(schema / "late")
    writer.write(1, fired_row("2", "late"))

    ((schedule_id, why),) = undeliverable(spark)
    assert schedule_id == "1"
    assert "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION" in why
    assert ids(spark, "late") == ["2"]


@pytest.mark.usefixtures("schema")
def test_views_and_tables_of_other_formats_are_undeliverable(spark: SparkSession) -> None:
    made(spark, "base")
    spark.sql("CREATE VIEW reminders.seen AS SELECT * FROM reminders.base")
    spark.sql(f"CREATE TABLE reminders.plain ({FIRED_SCHEMA}) USING parquet")
    batches(spark).write(0, fired_row("1", "seen"), fired_row("2", "plain"))

    assert undeliverable(spark) == [
        ("1", "the table spark_catalog.reminders.seen does not fit: it is a view"),
        ("2", "the table spark_catalog.reminders.plain does not fit: it is a table of parquet, not of Delta"),
    ]


def test_a_table_whose_folder_is_gone_is_undeliverable(spark: SparkSession, schema: Path) -> None:
    made(spark, "late")
    shutil.rmtree(schema / "late")
    batches(spark).write(0, fired_row("1", "late"))

    why = "the catalog has it, and its folder is gone (DROP TABLE removes the entry)"
    assert undeliverable(spark) == [("1", f"the table spark_catalog.reminders.late does not fit: {why}")]


@pytest.mark.usefixtures("schema")
def test_a_table_that_forgets_transactions_is_undeliverable(spark: SparkSession) -> None:
    made(
        spark,
        "late",
        properties="TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')",
    )
    batches(spark).write(0, fired_row("1", "late"))

    ((_, why),) = undeliverable(spark)
    assert "it forgets transactions (delta.setTransactionRetentionDuration)" in why


# --- while the job runs ---------------------------------------------------------------------------


@pytest.mark.usefixtures("schema")
def test_a_table_dropped_between_two_batches_is_created_again_or_its_rows_are_rejects(
    spark: SparkSession,
) -> None:
    made(spark, "old")
    writer = batches(spark)
    writer.write(0, fired_row("1", "late"), fired_row("2", "old"))
    spark.sql("DROP TABLE reminders.late")
    spark.sql("DROP TABLE reminders.old")
    writer.write(1, fired_row("3", "late"), fired_row("4", "old"))

    assert ids(spark, "late") == ["3"]
    assert undeliverable(spark) == [("4", "the table spark_catalog.reminders.old is missing")]


def test_a_table_that_is_dropped_after_its_check_is_found_missing_by_the_write(
    spark: SparkSession, schema: Path, tmp_path: Path
) -> None:
    # An external table: its log stays, so only the catalog knows.
    for name in ("late", "old"):
        made(spark, name, properties=f"LOCATION '{tmp_path / name}'")
    writer = batches(spark)
    writer.write(0, fired_row("1", "late"), fired_row("2", "old"))
    for name in ("late", "old"):
        spark.sql(f"DROP TABLE reminders.{name}")
    writer.write(1, fired_row("3", "late"), fired_row("4", "old"))

    assert ids(spark, "late") == ["3"]
    assert (schema / "late" / "_delta_log").is_dir()
    assert undeliverable(spark) == [("4", "the table spark_catalog.reminders.old is missing")]


@pytest.mark.usefixtures("schema")
def test_a_table_created_again_with_other_columns_gets_no_rows(spark: SparkSession) -> None:
    writer = batches(spark)
    writer.write(0, fired_row("1", "late"))
    spark.sql("DROP TABLE reminders.late")
    spark.sql(
        f"CREATE TABLE reminders.late ({FIRED_SCHEMA.replace('lateness_ms bigint', 'lateness_ms string')}) USING delta"
    )
    writer.write(1, fired_row("2", "late"))

    why = "the table spark_catalog.reminders.late does not fit: its column lateness_ms is string, not bigint"
    assert undeliverable(spark) == [("2", why)]
    assert ids(spark, "late") == []


@pytest.mark.usefixtures("schema")
def test_a_renamed_column_is_named_by_the_reject(spark: SparkSession) -> None:
    made(spark, "late", properties="TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    writer = batches(spark)
    writer.write(0, fired_row("1", "late"))
    spark.sql("ALTER TABLE reminders.late RENAME COLUMN value TO payload")
    writer.write(1, fired_row("2", "late"))

    why = "the table spark_catalog.reminders.late does not fit: it has no column value"
    assert undeliverable(spark) == [("2", why)]
    assert ids(spark, "late") == ["1"]


def test_a_place_that_cannot_be_written_fails_the_batch_and_names_the_table(
    spark: SparkSession, schema: Path
) -> None:
    shutil.rmtree(schema, ignore_errors=True)
    schema.write_text("a file where the folder of the schema should be")
    writer = Batches(
        spark,
        {"late": CatalogTableSink(TABLE, create=True), "good": CatalogTableSink("default.good", create=True)},
        CatalogTableSink("default.rejects"),
    )
    with pytest.raises(SinkError) as failed:
        writer.write(0, fired_row("1", "late"), fired_row("2", "good"))

    assert "late: the table cannot be created" in str(failed.value)
    assert "Cannot create file:" in str(failed.value)
    assert [row.schedule_id for row in spark.table("default.good").collect()] == ["2"]
    schema.unlink()
    writer.write(0, fired_row("1", "late"), fired_row("2", "good"))
    assert ids(spark, "late") == ["1"]
    assert [row.schedule_id for row in spark.table("default.good").collect()] == ["2"]
    spark.sql("DROP TABLE default.good")


# --- tables whose commits are a catalog's ---------------------------------------------------------


@pytest.mark.usefixtures("schema")
def test_what_a_catalog_alone_knows_of_a_table_is_asked_of_the_catalog(spark: SparkSession) -> None:
    feature = "TBLPROPERTIES ('delta.feature.coordinatedCommits-preview' = 'supported')"
    made(spark, "old", "more INT", properties=f"PARTITIONED BY (destination, more) {feature}")
    table = look_up(spark, table_name("reminders.old"))

    assert table is not None
    assert (table.has_log, table.catalog_feature) == (False, "coordinatedCommits-preview")
    assert table.state.partition_columns() == ("destination", "more")
    columns = spark.table("reminders.old").drop("more").schema
    fault = misfit(table, columns, frozenset(), frozenset({"destination"}))
    assert fault == "it is partitioned by its further column more"


@pytest.mark.usefixtures("schema")
def test_a_repeated_batch_is_skipped_by_delta_where_its_transactions_are_not_known(
    spark: SparkSession,
) -> None:
    made(spark, "old", properties="TBLPROPERTIES ('delta.feature.coordinatedCommits-preview' = 'supported')")
    for _ in range(2):
        batches(spark).write(0, fired_row("1", "old"))

    assert ids(spark, "old") == ["1"]
    assert not CatalogTableSink(TABLE).holds(spark, "old", app_id=APP, batch_id=0)


# --- whole jobs -----------------------------------------------------------------------------------

COMMANDS = "schedule_id STRING, deliver_at TIMESTAMP, event_time TIMESTAMP, destination STRING"


def job_of(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "wheel": {"tick": "1 second", "size": 20, "levels": 3, "shards": 2},
        "clock": {"kind": "event"},
        "source": {"format": "delta", "table": "reminders.commands"},
        "destinations": {"late*": {"sink": "delta", "table": TABLE, "create": True}},
        "rejects": {"sink": "delta", "table": REJECTS},
        "trigger": "available-now",
        "checkpoint": str(folder / "state"),
    } | changes


def tiered(folder: Path, **store: Any) -> dict[str, Any]:
    wheel = {"tick": "1 second", "size": 20, "levels": 3, "shards": 2, "state_levels": 1}
    return job_of(folder, mode="tiered", wheel=wheel, store={"table": "reminders.waiting"} | store)


def told(folder: Path, job: dict[str, Any], verb: str, *more: str) -> Said:
    (folder / "job.yml").write_text(json.dumps(job))
    return say(folder / "job.yml", verb, *more)


def until(second: int) -> tuple[str, str]:
    return "--until", (T0 + timedelta(seconds=second)).isoformat()


def command(spark: SparkSession, *rows: tuple[str, int, str]) -> None:
    """Commands of now, 00:00, with their id, their due second and their destination."""
    made = [(name, T0 + timedelta(seconds=due_s), T0, where) for name, due_s, where in rows]
    frame = spark.createDataFrame(made, COMMANDS)
    frame.write.format("delta").mode("append").saveAsTable("reminders.commands")


@pytest.mark.parametrize("job", [job_of, tiered])
@pytest.mark.usefixtures("schema")
def test_a_job_by_names_stops_and_goes_on(spark: SparkSession, tmp_path: Path, job: Any) -> None:
    command(spark, ("a", 5, "late"), ("b", 600, "late_2"), ("c", 5, "elsewhere"))
    dry = told(tmp_path, job(tmp_path), "dry-run", *until(60))
    assert dry.code == 0, dry.err
    assert "delta reminders.commands: " in dry.out
    assert f"late* -> delta table {TABLE} (created if missing)" in " ".join(dry.out.split())
    assert not spark.catalog.tableExists("reminders.waiting")

    first = told(tmp_path, job(tmp_path), "run", *until(60))
    assert first.code == 0, first.err
    assert ids(spark, "late") == ["a"]
    assert [row.error_code for row in spark.table(REJECTS).collect()] == ["unknown_destination"]
    waiting = told(tmp_path, job(tmp_path), "pending")
    assert [json.loads(line)["schedule_id"] for line in waiting.out.splitlines()] == ["b"]

    command(spark, ("d", 700, "late"))
    second = told(tmp_path, job(tmp_path), "run", *until(1_000))
    assert second.code == 0, second.err
    assert (ids(spark, "late"), ids(spark, "late_2")) == (["a", "d"], ["b"])

    known = told(tmp_path, job(tmp_path), "history", "--id", "b")
    assert "fired" in [json.loads(line)["what"] for line in known.out.splitlines()]
    gone = told(tmp_path, job(tmp_path), "forget", "--id", "b")
    assert gone.code == 0, gone.err
    assert ids(spark, "late_2") == []
    assert "then: VACUUM `spark_catalog`.`reminders`.`late_2` RETAIN 168 HOURS" in gone.out


@pytest.mark.usefixtures("schema")
def test_all_schemas_that_are_missing_stop_the_job_before_it_starts(tmp_path: Path) -> None:
    job = job_of(
        tmp_path,
        source={"format": "delta", "table": "shop.commands"},
        rejects={"sink": "delta", "table": "bad.rows"},
    )
    for verb in ("dry-run", "run"):
        refused = told(tmp_path, job, verb)
        assert refused.code == 2
        assert [line.partition("; rule")[0] for line in refused.err.splitlines()[:2]] == [
            "error: the schema shop is missing: source.table = 'shop.commands'",
            "error: the schema bad is missing: rejects.table = 'bad.rows'",
        ]


@pytest.mark.usefixtures("schema")
def test_a_source_that_was_dropped_and_created_again_stops_the_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    command(spark, ("a", 5, "late"))
    assert told(tmp_path, job_of(tmp_path), "run", *until(60)).code == 0
    spark.sql("DROP TABLE reminders.commands")
    missing = told(tmp_path, job_of(tmp_path), "run", *until(60))
    assert (missing.code, missing.err.splitlines()[0]) == (
        2,
        "error: there is nothing to read: source.table = 'reminders.commands'; rule: a Delta table of a catalog",
    )
    command(spark, ("b", 70, "late"))
    other = told(tmp_path, job_of(tmp_path), "run", *until(100))
    assert other.code == 2
    assert other.err.startswith(
        "error: the source table was dropped and created again, or is another one: source = 'table "
    )
    assert (
        "which the checkpoint has read; hint: restore that table; or begin with a new checkpoint" in other.err
    )


@pytest.mark.usefixtures("schema")
def test_a_view_is_no_source(spark: SparkSession, tmp_path: Path) -> None:
    command(spark, ("a", 5, "late"))
    spark.sql("CREATE VIEW reminders.seen AS SELECT * FROM reminders.commands")
    refused = told(tmp_path, job_of(tmp_path, source={"format": "delta", "table": "reminders.seen"}), "run")
    assert refused.code == 2
    assert refused.err.startswith(
        "error: there is nothing to read (it is a view): source.table = 'reminders.seen'"
    )


def test_a_store_is_created_where_the_config_says(spark: SparkSession, tmp_path: Path, schema: Path) -> None:
    command(spark, ("a", 500, "late"))
    job = tiered(tmp_path, location=str(tmp_path / "waiting"))
    run = told(tmp_path, job, "run", *until(60))
    assert run.code == 0, run.err
    assert (tmp_path / "waiting" / "_delta_log").is_dir()
    assert not (schema / "waiting").exists()


@pytest.mark.usefixtures("schema")
def test_a_store_whose_commits_a_catalog_keeps_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    command(spark, ("a", 500, "late"))
    feature = "TBLPROPERTIES ('delta.feature.coordinatedCommits-preview' = 'supported')"
    spark.sql(f"CREATE TABLE reminders.waiting (level INT) USING delta {feature}")
    refused = told(tmp_path, tiered(tmp_path), "run")
    assert refused.code == 1
    assert refused.err.startswith(
        "error: the catalog keeps the commits of this table, and the slot store makes its own: "
        "store.table = 'reminders.waiting'; rule: a table without the feature coordinatedCommits-preview"
    )


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.usefixtures("schema")
def test_a_store_that_was_dropped_is_not_replaced_by_an_empty_one(
    spark: SparkSession, tmp_path: Path, is_made_again: bool
) -> None:
    command(spark, ("a", 500, "late"))
    assert told(tmp_path, tiered(tmp_path), "run", *until(60)).code == 0
    spark.sql("DROP TABLE reminders.waiting")
    if is_made_again:
        other = tiered(tmp_path) | {"checkpoint": str(tmp_path / "other")}
        assert told(tmp_path, other, "run", *until(0)).code == 0
    refused = told(tmp_path, tiered(tmp_path), "run", *until(1_000))
    assert refused.code != 0
    assert refused.err.startswith(
        "error: the slot store belongs to another checkpoint: "
        if is_made_again
        else "error: the checkpoint belongs to another slot store: reminders.waiting = 'missing'"
    )
    assert spark.catalog.tableExists("reminders.waiting") == is_made_again


@pytest.mark.usefixtures("schema")
def test_a_store_that_is_dropped_while_the_job_runs_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    command(spark, ("a", 500, "late"))
    assert told(tmp_path, tiered(tmp_path), "run", *until(60)).code == 0
    config = located(spark, load(str(tmp_path / "job.yml")))
    assert isinstance(config, TieredConfig)
    name, store = (
        StoreName(spark, config),
        SlotStore.open(spark, config.store.folder, config.wheel.layout(), create=False),
    )
    name.check()
    store.append(None, app_id="cascade", batch_id=1_000)
    spark.sql("DROP TABLE reminders.waiting")

    with pytest.raises(StoreError, match=r"was dropped, or created anew, while the job runs: store\.table"):
        name.check()
    with pytest.raises(StoreError, match="was dropped, or created anew, while it is in use"):
        store.append(None, app_id="cascade", batch_id=1_001)


@pytest.mark.usefixtures("schema")
def test_repair_sees_the_batches_of_tables_by_name(spark: SparkSession, tmp_path: Path) -> None:
    command(spark, ("a", 5, "late"))
    assert told(tmp_path, job_of(tmp_path), "run", *until(60)).code == 0
    seen = told(tmp_path, job_of(tmp_path), "repair", "--dry-run")
    assert "table      spark_catalog.reminders.late holds batches up to " in seen.out
