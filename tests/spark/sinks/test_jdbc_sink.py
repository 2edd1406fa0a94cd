"""Batches go to tables of a real PostgreSQL: each delivery once, the good ones whatever the bad ones do, and the rest
to the rejects.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.postgres import PASSWORD, LocalPostgres, missing_reason
from tests.spark.sinks.batches import Batches
from wheel_udf import ConfigErrors, Destinations, FileSink, JdbcSink, SinkError
from wheel_udf.sinks.destinations import OUTCOME
from wheel_udf.spark.failures import explain
from wheel_udf.spark.jdbc import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = datetime(2026, 1, 1, 10, tzinfo=UTC)
LOGIN = {"user": "wheel", "password": PASSWORD}
DELIVERIES = """CREATE TABLE "{}" (
    fire_id text PRIMARY KEY, schedule_id text NOT NULL, seq bigint, destination text, key bytea, value bytea, headers jsonb,
    deliver_at timestamptz, fired_at timestamptz, lateness_ms bigint)"""


@pytest.fixture(scope="module")
def server() -> Iterator[LocalPostgres]:
    if (reason := missing_reason()) is not None:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    # Not below pytest's folder, which other users may not enter.
    with (
        tempfile.TemporaryDirectory(prefix="wheel-postgres-") as folder,
        LocalPostgres(Path(folder)) as running,
    ):
        yield running


class Sql:
    """Statements of a test."""

    def __init__(self, spark: SparkSession, server: LocalPostgres, **login: str) -> None:
        self._open = lambda: Database(spark, "org.postgresql.Driver", server.url, LOGIN | login)

    def __call__(self, statement: str) -> None:
        with self._open() as database:
            database.execute(statement)

    def rows(self, table: str, *columns: str) -> list[tuple[str | None, ...]]:
        with self._open() as database:
            return database.rows(f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY fire_id', len(columns))

    def ids(self, table: str) -> list[str | None]:
        return [each for (each,) in self.rows(table, "schedule_id")]

    def staging(self) -> list[tuple[str | None, ...]]:
        with self._open() as database:
            return database.rows("SELECT relname FROM pg_class WHERE relname LIKE 'wheel_staging%'", 1)


@pytest.fixture
def sql(spark: SparkSession, server: LocalPostgres) -> Sql:
    made = Sql(spark, server)
    made("DROP SCHEMA public CASCADE")
    made("CREATE SCHEMA public")
    return made


def fired_row(name: str, destination: str, **changes: Any) -> tuple[Any, ...]:
    row = {
        "schedule_id": name,
        "seq": 1,
        "fire_id": f"f-{name}",
        "destination": destination,
        "key": b"k",
        "value": b"\x00\xff",
        "headers": [("trace", b"\x01")],
        "deliver_at": T0,
        "fired_at": T0 + timedelta(milliseconds=250),
        "lateness_ms": 250,
        "source": None,
    }
    return tuple((row | changes).values())


class DatabaseBatches(Batches):
    """Writes batches as the query does: the database for ``db*``, Delta tables for the others."""

    def __init__(self, spark: SparkSession, folder: Path, url: str, **settings: Any) -> None:
        self.database = JdbcSink(url, LOGIN, **settings)
        tables = FileSink(str(folder / "tables"))
        super().__init__(spark, folder, Destinations({"db*": self.database, "*": tables}))


def test_a_delivery_is_in_its_table_once_however_often_its_batch_is_repeated(
    spark: SparkSession, tmp_path: Path, server: LocalPostgres, sql: Sql
) -> None:
    sql(DELIVERIES.format("db_orders"))
    sql(DELIVERIES.format("db-other.x"))
    batches = DatabaseBatches(spark, tmp_path, server.url)
    nothing = fired_row("n", "db_orders", key=None, value=None, headers=None)
    for _ in range(2):
        assert (
            batches.write(
                0, fired_row("a", "db_orders"), nothing, fired_row("b", "db-other.x"), fired_row("c", "t")
            )
            == 0
        )

    columns = (
        "schedule_id",
        "seq",
        "key",
        "value",
        "headers",
        "deliver_at AT TIME ZONE 'UTC'",
        "lateness_ms",
    )
    assert sql.rows("db_orders", *columns) == [
        ("a", "1", "\\x6b", "\\x00ff", '[{"key": "trace", "value": "AQ=="}]', "2026-01-01 10:00:00", "250"),
        ("n", "1", None, None, None, "2026-01-01 10:00:00", "250"),
    ]
    assert sql.ids("db-other.x") == ["b"]
    assert [row.schedule_id for row in batches.table("tables/t")] == ["c"]
    assert sql.staging() == []


def test_a_table_has_the_columns_that_its_owner_wants(
    spark: SparkSession, tmp_path: Path, server: LocalPostgres, sql: Sql
) -> None:
    sql(
        "CREATE TABLE all_of_them (id bigserial, fire_id varchar(64) UNIQUE, value jsonb, key text, noted text DEFAULT 'new')"
    )
    sql(
        "CREATE TABLE db_ended (fire_id text PRIMARY KEY, op_id text, outcome text, missing jsonb, at timestamp)"
    )
    batches = DatabaseBatches(spark, tmp_path, server.url, table="all_of_them")
    assert (
        batches.write(0, fired_row("a", "db_1", value=b'{"close": 7}'), fired_row("b", "db_2", value=b"8"))
        == 0
    )
    assert sql.rows("all_of_them", "fire_id", "value", "key", "noted") == [
        ("f-a", '{"close": 7}', "k", "new"),
        ("f-b", "8", "k", "new"),
    ]

    outcome = (
        "op",
        "g",
        "expired",
        None,
        T0,
        T0,
        ["a"],
        ["b"],
        0,
        "db_ended",
        b"k",
        None,
        None,
        "f-op",
        None,
    )
    assert DatabaseBatches(spark, tmp_path, server.url).write(1, outcome, shape=OUTCOME) == 0
    assert sql.rows("db_ended", "op_id", "outcome", "missing", "at") == [
        ("op", "expired", '["b"]', "2026-01-01 10:00:00")
    ]


def test_what_a_table_does_not_take_is_a_reject_and_the_others_are_written(
    spark: SparkSession, tmp_path: Path, server: LocalPostgres, sql: Sql
) -> None:
    sql(DELIVERIES.format("db_good"))
    sql(
        "CREATE TABLE db_short (fire_id text PRIMARY KEY, schedule_id varchar(3), key text CHECK (key <> 'bad'))"
    )
    sql("CREATE TABLE db_keyless (fire_id text)")
    sql("CREATE TABLE db_more (fire_id text PRIMARY KEY, owner text NOT NULL)")
    batches = DatabaseBatches(spark, tmp_path, server.url)
    short = [fired_row(f"{i:03}", "db_short") for i in range(20)]
    bad = [
        fired_row("long", "db_short"),
        fired_row("u", "db_short", key=b"\xff"),
        fired_row("v", "db_short", key=b"bad"),
    ]
    others = [fired_row("w", "db_keyless"), fired_row("x", "db_missing"), fired_row("y", "db_more")]
    assert batches.write(0, *short, *bad, *others, fired_row("z", "db_good")) == 6

    assert sql.ids("db_short") == [f"{i:03}" for i in range(20)]
    assert sql.ids("db_good") == ["z"]
    reasons = {row.schedule_id: row.error_message for row in batches.table("rejects")}
    assert {row.error_code for row in batches.table("rejects")} == {"undeliverable"}
    assert reasons.keys() == {"long", "u", "v", "w", "x", "y"}
    assert "value too long for type character varying(3)" in reasons["long"]
    assert 'invalid byte sequence for encoding "UTF8"' in reasons["u"]
    assert "violates check constraint" in reasons["v"]
    assert (
        reasons["w"] == 'the table "public"."db_keyless" has no primary key or unique index on fire_id alone'
    )
    assert reasons["x"] == 'the table "public"."db_missing" is missing'
    assert reasons["y"] == 'the table "public"."db_more" requires columns that deliveries do not have: owner'
    assert sql.staging() == []


def test_a_table_with_another_fault_stopped_all_destinations(
    spark: SparkSession, tmp_path: Path, server: LocalPostgres, sql: Sql
) -> None:
    for name in ("db_1", "db_2", "db_3"):
        sql(DELIVERIES.format(name))
    sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.schedule_id = 'bad' THEN RAISE EXCEPTION 'not on a Monday'; END IF; RETURN NEW; END $$"
    )
    sql("CREATE TRIGGER refuses BEFORE INSERT ON db_2 FOR EACH ROW EXECUTE FUNCTION refuse()")
    sql("CREATE TABLE db_typed (fire_id text PRIMARY KEY, deliver_at bigint)")
    batches = DatabaseBatches(spark, tmp_path, server.url)
    rows = [fired_row("a", "db_1"), fired_row("bad", "db_2"), fired_row("b", "db_2"), fired_row("c", "db_3")]
    assert batches.write(0, *rows, fired_row("d", "db_typed")) == 2
    assert [sql.ids(name) for name in ("db_1", "db_2", "db_3")] == [["a"], ["b"], ["c"]]
    reasons = {row.schedule_id: row.error_message for row in batches.table("rejects")}
    assert reasons.keys() == {"bad", "d"}
    assert "not on a Monday" in reasons["bad"]
    assert "cannot cast type timestamp with time zone to bigint" in reasons["d"]


def test_a_table_that_may_not_be_written_is_undeliverable(
    spark: SparkSession, tmp_path: Path, server: LocalPostgres, sql: Sql
) -> None:
    sql(DELIVERIES.format("db_1"))
    sql(DELIVERIES.format("db_2"))
    sql(
        "DO $$ BEGIN CREATE ROLE writer LOGIN PASSWORD 'w'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    sql("GRANT USAGE, CREATE ON SCHEMA public TO writer")
    sql("GRANT SELECT, INSERT ON db_1 TO writer")
    batches = DatabaseBatches(spark, tmp_path, server.url)
    object.__setattr__(batches.database, "options", {"user": "writer", "password": "w"})
    assert batches.write(0, fired_row("a", "db_1"), fired_row("b", "db_2")) == 1
    assert sql.ids("db_1") == ["a"]
    (reject,) = batches.table("rejects")
    assert "permission denied for table db_2" in reject.error_message


def test_a_database_that_is_away_fails_the_batch_after_the_others_and_gets_it_later(
    spark: SparkSession, tmp_path: Path, server: LocalPostgres, sql: Sql
) -> None:
    sql(DELIVERIES.format("db_1"))
    batches = DatabaseBatches(spark, tmp_path, server.url)
    rows = [fired_row("a", "db_1"), fired_row("b", "orders")]
    server.stop()
    try:
        with pytest.raises(
            SinkError, match=r"1 of 2 destinations of batch 0 could not be written \(db_1: the database"
        ) as caught:
            batches.write(0, *rows)
        assert PASSWORD not in str(caught.value)
        assert explain(caught.value).transient
        assert [row.schedule_id for row in batches.table("tables/orders")] == ["b"]
    finally:
        server.start()
    assert batches.write(0, *rows) == 0
    assert sql.ids("db_1") == ["a"]
    assert [row.schedule_id for row in batches.table("tables/orders")] == ["b"]


def test_with_undeliverable_a_database_that_is_away_or_hangs_stops_nobody(
    spark: SparkSession, tmp_path: Path, server: LocalPostgres, sql: Sql
) -> None:
    sql(DELIVERIES.format("db_1"))
    batches = DatabaseBatches(spark, tmp_path, server.url, when_down="undeliverable", timeout_ms=1_000)
    with closing(_Lock(spark, server, "db_1")):
        assert batches.write(0, fired_row("a", "db_1"), fired_row("b", "orders")) == 1
    server.stop()
    try:
        assert batches.write(1, fired_row("c", "db_1"), fired_row("d", "orders")) == 1
    finally:
        server.start()
    assert [row.schedule_id for row in batches.table("tables/orders")] == ["b", "d"]
    hung, refused = (row.error_message for row in batches.table("rejects"))
    assert "canceling statement due to statement timeout" in hung
    assert refused.startswith("the database is away: Connection to 127.0.0.1:")
    assert sql.ids("db_1") == []


class _Lock:
    """Another session that holds a table."""

    def __init__(self, spark: SparkSession, server: LocalPostgres, table: str) -> None:
        self._database = Database(spark, "org.postgresql.Driver", server.url, LOGIN)
        self._database.execute("BEGIN")
        self._database.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")

    def close(self) -> None:
        with self._database:
            self._database.execute("ROLLBACK")


def test_a_check_before_a_run_names_what_is_wrong(
    spark: SparkSession, server: LocalPostgres, sql: Sql
) -> None:
    sql(DELIVERIES.format("db_1"))
    sink = JdbcSink(server.url, LOGIN)
    assert sink.missing_reason(spark, "db_1") is None
    other = 'the table "public"."db_1" requires columns that deliveries do not have: schedule_id'
    assert sink.missing_reason(spark, "db_1", OUTCOME) == other
    assert sink.missing_reason(spark, "db_2") == 'the table "public"."db_2" is missing'
    assert sink.missing_reason(spark, None) == "a database takes no rejects"
    with pytest.raises(SinkError, match=r"password authentication failed .* hint: check that it is up"):
        JdbcSink(server.url, {"user": "wheel", "password": "wrong"}).missing_reason(spark, "db_1")


def test_settings_that_cannot_be_used_are_reported_together() -> None:
    with pytest.raises(ConfigErrors) as caught:
        JdbcSink("jdbc:mysql://u:p@h/d", timeout_ms=0, when_down="wait")
    assert [fault.field for fault in caught.value.faults] == ["url", "timeout_ms", "when_down"]
    assert "u:p" not in str(caught.value)
