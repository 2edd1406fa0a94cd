"""Whole jobs with everything on S3: source, checkpoint, store, tables, rejects, exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.command_line import say
from tests.s3.job import MODES, WAITING, Job, at, check_a_move, command
from wheel_udf.metrics.batch_log import read_batches

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.s3.server import Server


@pytest.fixture
def job(s3_spark: SparkSession, s3: Server, place: str, tmp_path: Path) -> Job:
    return Job(s3_spark, s3, place, tmp_path, root=f"s3a://bucket/{place}")


@pytest.mark.parametrize("mode", [pytest.param("direct", marks=pytest.mark.sentinel), "tiered"])
def test_a_job_on_s3_stops_goes_on_and_takes_acts_while_it_rests(job: Job, mode: str) -> None:
    job.scheduler(**MODES[mode])
    job.send(
        command("soon", 10),
        command("late", 1200),
        command("gone", 900),
        command("bad", 5, destination="../x"),
    )
    job("dry-run")
    out = job("run", "--until", at(60))
    waiting = WAITING[mode].format(2)
    assert (
        f"4 = {waiting} + 1 fired + 0 missed + 0 cancelled + 0 superseded + 0 duplicate + 1 rejected" in out
    ), out
    assert job.table("tables/out", "schedule_id") == [("soon",)]
    assert job.table("rejects", "schedule_id", "error_code") == [("bad", "bad_destination")]

    pending = job("pending")
    assert "late" in pending
    assert "gone" in pending
    job("cancel", "--id", "gone")

    job.send(command("next", 120, 61))
    out = job("run", "--until", at(1800))
    waiting = WAITING[mode].format(0)
    assert (
        f"5 = {waiting} + 3 fired + 0 missed + 1 cancelled + 0 superseded + 0 duplicate + 1 rejected" in out
    ), out
    assert job.table("tables/out", "schedule_id") == [("late",), ("next",), ("soon",)]


@pytest.mark.parametrize("mode", MODES)
def test_pending_entries_move_to_another_checkpoint_over_s3(job: Job, mode: str) -> None:
    check_a_move(job, mode)


def test_the_verbs_over_a_resting_job_read_and_change_what_is_on_s3(job: Job) -> None:
    job.scheduler()
    job.send(command("soon", 10), command("late", 1200), command("gone", 900))
    job("run", "--until", at(60))

    assert "fired" in job("history", "--id", "soon")
    job("forecast")
    job("reroute", "--id", "gone", "--to", "out")
    assert "reroute" in job("acts")
    assert "nothing to repair" in job("repair", "--dry-run")


def test_ids_are_forgotten_on_s3_and_the_job_goes_on(job: Job) -> None:
    job.scheduler()
    job.send(command("soon", 10), command("late", 1200), command("gone", 900))
    job("run", "--until", at(60))

    out = job("forget", "--id", "gone", "--id", "soon")
    assert "tables/out" in out
    assert job.table("tables/out", "schedule_id") == []
    job("run", "--until", at(1800))
    assert job.table("tables/out", "schedule_id") == [("late",)]


def test_a_damaged_checkpoint_on_s3_is_repaired_and_goes_on(job: Job) -> None:
    job.scheduler()
    job.send(command("soon", 10), command("late", 1200))
    job("run", "--until", at(60))
    newest = max(
        (name for name in job.server.names(f"{job.place}/checkpoint/commits") if name.isdecimal()), key=int
    )
    job.server.put(f"{job.place}/checkpoint/commits/{newest}", "v1\n{torn")

    code, _, err = say(job.file, "run", "--until", at(1800))
    assert code == 2
    assert "repair" in err
    out = job("repair")
    assert "repaired: start the job again" in out
    assert any("checkpoint-repaired-" in name for name in job.server.names(job.place))
    job("run", "--until", at(1800))
    assert job.table("tables/out", "schedule_id") == [("late",), ("soon",)]


def test_the_lines_of_a_jobs_batches_are_on_s3_for_the_page(job: Job) -> None:
    job.scheduler()
    job.send(command("soon", 10))
    job("run", "--until", at(60))

    lines = read_batches(f"{job.root}/checkpoint", 0)
    assert sum(line["fired"] or 0 for line in lines) == 1, lines


def test_a_purgatory_on_s3_stops_and_goes_on(job: Job) -> None:
    job.purgatory()
    job.send(
        {"op": "paid", "key": "a", "till": at(600), "at": at(0)},
        {"op": "late", "key": "b", "till": at(600), "at": at(0)},
        to="operations",
    )
    job.send({"key": "a", "at": at(30)}, to="events")
    job("dry-run")
    out = job("run", "--until", at(60))
    assert "2 = 1 pending + 1 completed" in out, out
    assert "late" in job("pending")
    job.send({"key": "none", "at": at(61)}, to="events")
    out = job("run", "--until", at(700))
    assert "2 = 0 pending + 1 completed + 1 expired" in out, out
    assert job.table("tables/out", "op_id", "outcome") == [("late", "expired"), ("paid", "completed")]
