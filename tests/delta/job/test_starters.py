"""The configs of ``init`` with their sample input, from files and tables: what a new user sees after the commands that
it prints.
"""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tests.command_line import say
from wheel_udf.job.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def started(use: str, folder: Path, until: str = "2100-01-01") -> list[str]:
    """The lines of a run over the sample input of a use, by default to the end of time."""
    assert main(["init", use, "--into", str(folder)], out=io.StringIO()) == 0
    for file in (folder / f"{use}.yml", folder / f"{use}_sample.py"):
        file.write_text(file.read_text().replace("data/", f"{folder}/data/"))
    with redirect_stdout(io.StringIO()):
        runpy.run_path(str(folder / f"{use}_sample.py"))
    more = ("--trigger", "available-now", "--until", until, "--set", "wheel.shards=2")
    code, out, err = say(folder / f"{use}.yml", "run", *more)
    assert (code, err) == (0, ""), err
    return out.splitlines()


def test_an_order_that_is_neither_paid_nor_cancelled_is_to_be_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    started("orders", tmp_path)
    rows = spark.read.format("delta").load(f"{tmp_path}/data/orders/tables/orders_to_close")
    assert [row.op_id for row in rows.collect()] == ["order-3"]


def test_all_of_half_a_year_is_in_the_tables_after_a_run_to_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = started("months", tmp_path)
    assert "1,000 fired" in " ".join(lines)
    tables = f"{tmp_path}/data/months/tables"
    counts = [
        spark.read.format("delta").load(f"{tables}/{name}").count() for name in ("renewals", "birthdays")
    ]
    assert counts == [666, 334]


def test_of_the_short_series_the_last_occurrence_fires_and_tells_of_those_missed_and_the_others_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    end = datetime.now(UTC) + timedelta(minutes=11)
    lines = started("recurring", tmp_path, end.isoformat())
    assert "1 ended" in " ".join(lines)
    rows = spark.read.format("delta").load(f"{tmp_path}/data/recurring/tables/reports_pulse")
    assert [(row.occurrence, row.missed_before) for row in rows.collect()] == [(5, 4)]


def test_the_reminders_of_a_table_fire_but_for_the_deleted_one(spark: SparkSession, tmp_path: Path) -> None:
    began = datetime.now(UTC)
    started("reminders", tmp_path)
    rows = spark.read.format("delta").load(f"{tmp_path}/data/reminders/sent/reminders_mail")
    found = sorted((row.schedule_id, bytes(row.value)) for row in rows.collect())
    assert found == [(f"reminder-{number}", f"hello {number}".encode()) for number in (1, 3, 4, 5)]
    first_s = rows.agg(F.min(F.unix_seconds("deliver_at"))).first()[0]  # after the first start of a user
    assert first_s >= int(began.timestamp()) + 120


def test_the_table_of_reminders_is_written_by_the_command_that_init_prints(tmp_path: Path) -> None:
    # In a process of its own: its paths are relative, and begin where its JVM was started. SQL does not take a
    # relative path for a table.
    assert main(["init", "reminders", "--into", str(tmp_path)], out=io.StringIO()) == 0
    command = [sys.executable, "reminders_sample.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (
        0,
        ["data/reminders/source: 4 reminders; next: wheel-udf run --config reminders.yml"],
    ), ended.stderr
    assert (tmp_path / "data" / "reminders" / "source" / "_delta_log").is_dir()
