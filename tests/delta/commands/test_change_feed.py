"""A Delta table as a compacted log: its rows are what is pending, whatever becomes of them by insert, update, delete
and merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable
from pydantic import TypeAdapter
from pyspark.sql import functions as F

from wheel_udf.commands.change_feed import change_commands
from wheel_udf.commands.parse import Contract, parse_commands
from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.job.compose import compose, sources_of
from wheel_udf.job.dry_run import source_lines
from wheel_udf.job.loader import check
from wheel_udf.job.models.source import SourceConfig
from wheel_udf.job.sources.commands import read_commands

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.delivery.report import BatchReport

IN_2100 = "timestamp'2100-01-01 00:00:00Z'"
IN_2100_MS = 4_102_444_800_000


class Reminders:
    """The table `reminders` and a job that reads its changes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.path = str(folder / "reminders")
        self.reports: list[BatchReport] = []
        spark.sql(
            f"CREATE TABLE delta.`{self.path}` "
            "(schedule_id STRING, deliver_at TIMESTAMP, delay STRING, destination STRING, value STRING) "
            "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        self.config = check(
            {
                "wheel": {"shards": 2},
                "clock": {"kind": "event"},
                "source": {"format": "delta", "path": self.path, "options": {"readChangeFeed": True}},
                "contract": {"max_delay": "unlimited"},
                "destinations": {"out": {"sink": "parquet", "path": str(folder)}},
                "rejects": {"sink": "parquet", "path": str(folder / "rejects")},
                "checkpoint": str(folder / "checkpoint"),
            }
        )

    def commit(self, statement: str) -> None:
        """One commit; the table is `{table}`, a due time of the next century is `{due}`."""
        self.spark.sql(statement.format(table=f"delta.`{self.path}`", due=IN_2100))

    def run(self, until_ms: int | None = None) -> None:
        start = compose(self.config, sources_of(self.spark, self.config), until_ms)
        start(trigger="available-now", on_batch=self.reports.append).awaitTermination()

    def rows(self, what: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.spark.read.parquet(str(self.folder / what))
        return sorted(tuple(row) for row in frame.selectExpr(*columns).collect())

    def committed_ms(self, version: int) -> int:
        history = DeltaTable.forPath(self.spark, self.path).history().where(F.col("version") == version)
        at_ms: int = history.select(F.unix_millis("timestamp")).collect()[0][0]
        return at_ms


def test_a_table_fires_what_it_holds_whatever_becomes_of_its_rows_over_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Reminders(spark, tmp_path)
    names = ("kept", "moved", "gone", "replaced")
    rows = ", ".join(f"('{name}', {{due}}, NULL, 'out', 'first')" for name in names)
    table.commit(f"INSERT INTO {{table}} VALUES {rows}")
    table.run()  # the table as it stands: version 1
    assert (table.reports[-1].pending, table.reports[-1].fired) == (4, 0)

    table.commit("UPDATE {table} SET deliver_at = {due} + interval 1 second WHERE schedule_id = 'moved'")
    table.commit("DELETE FROM {table} WHERE schedule_id = 'gone'")
    table.commit(  # `kept` becomes a reject, and what was said before stays
        "MERGE INTO {table} t USING (SELECT explode(array('kept', 'fresh')) AS id) s ON t.schedule_id = s.id "
        "WHEN MATCHED THEN UPDATE SET destination = '..' "
        "WHEN NOT MATCHED THEN INSERT (schedule_id, delay, destination, value) VALUES (s.id, '10 minutes', 'out', 'fourth')"
    )
    table.commit(  # deletes and inserts in one commit
        "INSERT INTO {table} REPLACE WHERE schedule_id = 'replaced' SELECT 'replaced', {due}, NULL, 'out', 'fifth'"
    )
    table.run(until_ms=IN_2100_MS + 1_000)

    found = table.rows("out", "schedule_id", "seq", "cast(value AS string)", "unix_millis(deliver_at)")
    assert found == [
        ("fresh", 4, "fourth", table.committed_ms(4) + 600_000),  # a delay counts from the commit
        ("kept", 1, "first", IN_2100_MS),
        ("moved", 2, "first", IN_2100_MS + 1_000),
        ("replaced", 5, "fifth", IN_2100_MS),
    ]
    assert table.rows("rejects", "schedule_id", "error_code", "source") == [
        ("kept", "bad_destination", "reminders@v4")
    ]
    counts = {name: count for name, count in table.reports[-1].counts.items() if count}
    assert counts == {"fired": 4, "superseded": 1, "cancelled": 2, "applied": 2, "rejected": 1}
    assert sum(each.received for each in table.reports) == 4 + 6, "all but what an update found"
    assert sum(each.spread for each in table.reports) == 0
    (line,) = source_lines(table.config, sources_of(spark, table.config))
    assert line.startswith(f"  source        delta {table.path}, its change feed: schedule_id")


def test_each_kind_of_change_is_a_command_of_its_version_and_an_unknown_one_a_reject(
    spark: SparkSession,
) -> None:
    kinds = ["insert", "update_preimage", "update_postimage", "delete", "copy", None]
    changes = spark.createDataFrame(
        [(kind or "null", "1s", "out", kind, 7) for kind in kinds],
        "schedule_id string, delay string, destination string, _change_type string, _commit_version long",
    )
    rows = parse_commands(change_commands(changes, "/tables/reminders/"), Contract()).collect()
    assert [
        (row.schedule_id, row.op, row.seq, row.seq_given, row.error_code, row.source) for row in rows
    ] == [
        ("insert", 0, 7, False, None, "reminders@v7"),
        ("update_postimage", 0, 7, False, None, "reminders@v7"),
        ("delete", 1, 6, False, None, "reminders@v7"),
        ("copy", 0, 7, False, "bad_op", "reminders@v7"),
        ("null", 0, 7, False, "bad_op", "reminders@v7"),
    ]


def test_a_table_that_keeps_no_changes_or_says_itself_what_they_are_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    def refusal(kind: type[Exception], columns: str, kept: str) -> str:
        path = str(tmp_path / columns.replace(" ", "_"))
        spark.sql(
            f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = {kept})"
        )
        source = TypeAdapter[SourceConfig](SourceConfig).validate_python(
            {"format": "delta", "path": path, "options": {"readChangeFeed": True}}
        )
        with pytest.raises(kind) as caught:
            read_commands(spark, source)
        return str(caught.value)

    assert refusal(ConfigError, "schedule_id STRING", "false").startswith(
        "the table keeps no changes: source.path"
    )
    said = refusal(ContractError, "schedule_id STRING, Seq LONG, OP STRING", "true")
    assert said.startswith("the table has columns that the change feed determines: source.path")
    assert "hint: found: Seq, OP; rename them" in said
