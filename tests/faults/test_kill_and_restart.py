"""kill -9 of the driver at each crash point of a batch, a restart from the checkpoint each time."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.faults import tiered_victim
from tests.faults.checker import expected, faults_of, watch_faults_of
from tests.faults.victim import POINTS
from tests.faults.world import files, start, start_tiered_run, watched_files
from tests.spark.streams import add_files
from tests.spark.watches import add_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_the_checker_expects_neither_beaten_nor_cancelled_rows() -> None:
    rows = expected()
    assert ("far04", 1, "left") not in rows
    assert ("far04", 2, "left") in rows
    assert not any(schedule_id == "far05" for schedule_id, _, _ in rows)
    assert len(rows) == 40 + 15 + 6


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
