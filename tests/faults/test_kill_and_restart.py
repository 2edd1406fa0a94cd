"""kill -9 of the driver at each crash point of a batch, a restart from the checkpoint each time."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.faults import tiered_victim
from tests.faults.checker import faults_of, ledger_faults, watch_faults_of
from tests.faults.victim import POINTS
from tests.faults.world import files, start, start_tiered_run, watched_files
from tests.spark.streams import add_files, due
from tests.spark.watches import add_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def delivered() -> list[dict[str, Any]]:
    """The rows of a right run: each is released when it is due, or when it is read."""
    last = {row["schedule_id"]: row for rows in files() for row in rows if row["schedule_id"] is not None}
    return [
        {name: row[name] for name in ("schedule_id", "seq", "deliver_at", "destination")}
        | {
            "fired_at": max(row["deliver_at"], row["event_time"]),
            "fire_id": row["schedule_id"],
            "table": row["destination"],
        }
        for row in last.values()
        if "op" not in row
    ]


REJECTED = [{"schedule_id": None, "error_code": "no_schedule_id", "error_message": "no id"}] * len(files())


def test_the_checker_expects_neither_beaten_nor_cancelled_rows() -> None:
    fired = delivered()
    assert len(fired) == 40 + 15 + 6
    assert ledger_faults(fired, REJECTED) == []
    beaten, called_off = (
        due("far04", 2_540, 0, destination="left"),
        due("far05", 2_550, 0, destination="right"),
    )
    rows = [
        row | {"fired_at": row["deliver_at"], "fire_id": "x", "table": row["destination"]}
        for row in (beaten, called_off)
    ]
    assert [fault.split(":")[0] for fault in ledger_faults([*fired, rows[0]], REJECTED)] == ["superseded"]
    assert [fault.split(":")[0] for fault in ledger_faults([*fired, rows[1]], REJECTED)] == ["after_cancel"]
    assert [fault.split(":")[0] for fault in ledger_faults(fired[1:], REJECTED[1:])] == [
        "lost",
        "reject_missing",
    ]


def kill(folder: Path, point: str, run: str) -> None:
    """Lets a victim run until there."""
    victim = subprocess.run(
        [sys.executable, "-m", "tests.faults.victim", str(folder), point, run], check=False
    )
    assert victim.returncode == -signal.SIGKILL, point


def test_a_driver_killed_at_each_point_of_a_batch_in_turn_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_files(tmp_path / "in", *files())
    for point in POINTS:
        kill(tmp_path, point, "wheel")
    start(spark, tmp_path).awaitTermination()
    assert faults_of(spark, tmp_path) == []


def test_a_purgatory_killed_between_two_tables_ends_each_operation_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_rows(tmp_path, *watched_files())
    kill(tmp_path, POINTS[1], "purgatory")
    start(spark, tmp_path, "purgatory").awaitTermination()
    assert watch_faults_of(spark, tmp_path) == []


def test_a_tiered_run_killed_behind_its_commits_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_files(tmp_path / "in", *files())
    for point in tiered_victim.POINTS:
        victim = subprocess.run(
            [sys.executable, "-m", "tests.faults.tiered_victim", str(tmp_path), point], check=False
        )
        assert victim.returncode == -signal.SIGKILL, point
    start_tiered_run(spark, tmp_path).awaitTermination()
    assert faults_of(spark, tmp_path) == []
