"""A dry run looks at the tables with the columns that their rows will have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.command_line import Said, say
from wheel_udf.sinks.destinations import DEAD, FIRED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TRIED = ", attempt bigint, amend int, first_amend int, failed_at timestamp, first_error string"


def dry_run(folder: Path, dead_letters: str) -> Said:
    tables = {"sink": "delta", "path": str(folder / "tables")}
    hook = {"sink": "http", "url": "http://127.0.0.1:1/hook", "retries": {"dead_letters": dead_letters}}
    settings = {
        "clock": {"kind": "processing"},
        "source": {
            "format": "json",
            "path": str(folder / "in"),
            "schema": "schedule_id string, deliver_at timestamp, destination string",
        },
        "destinations": {
            "hook": hook,
            "plain": tables,
            "tried": tables,
            "wrong": tables,
            "dead": tables,
            "x_*": tables,
        },
        "rejects": {"sink": "delta", "path": str(folder / "rejects")},
        "checkpoint": str(folder / "checkpoint"),
    }
    (folder / "in").mkdir(exist_ok=True)
    file = folder / "job.yml"
    file.write_text(json.dumps(settings))
    return say(file, "dry-run")


def test_tables_are_checked_against_the_columns_of_retries_and_of_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    def make(name: str, columns: str) -> None:
        spark.createDataFrame([], columns).write.format("delta").save(str(tmp_path / "tables" / name))

    make("plain", FIRED.columns)
    make("tried", FIRED.columns + TRIED)
    make("wrong", FIRED.columns + TRIED.replace("attempt bigint", "attempt string"))
    make("dead", DEAD.columns)
    make("x_dead", FIRED.columns)
    wrong = (
        f"cannot be written, the table {tmp_path}/tables/wrong does not fit: "
        "its column attempt is string, not bigint: destinations.wrong"
    )
    assert dry_run(tmp_path, "dead").err == f"error: {wrong}\n"
    told = dry_run(tmp_path, "x_dead").err
    assert wrong in told
    assert f"{tmp_path}/tables/x_dead does not fit: it has no column origin" in told
    assert "destinations.hook.retries.dead_letters" in told


def test_a_catalog_that_forgets_its_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
    named = {"sink": "delta", "table": "spark_catalog.reminders.{destination}", "create": True}
    settings = {
        "clock": {"kind": "processing"},
        "source": {"format": "delta", "table": "shop.commands"},
        "destinations": {"late*": named},
        "rejects": {"sink": "delta", "path": str(tmp_path / "rejects")},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    (tmp_path / "job.yml").write_text(json.dumps(settings))
    said = say(tmp_path / "job.yml", "dry-run")

    what = "error: the tables of this catalog are forgotten when the job ends"
    assert said.code == 2
    assert [line.partition("; rule")[0] for line in said.err.splitlines()[:2]] == [
        f"{what}: source.table = 'shop.commands'",
        f"{what}: destinations.late*.table = 'spark_catalog.reminders.{{destination}}'",
    ]
