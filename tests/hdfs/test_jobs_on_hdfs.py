"""Whole jobs with everything on HDFS: source, checkpoint, store, tables, rejects, exports, leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.command_line import say
from tests.s3.job import MODES, WAITING, at, check_a_move, command
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.metrics.batch_log import read_batches

if TYPE_CHECKING:
    from tests.s3.job import Job


@pytest.mark.parametrize("mode", MODES)
def test_a_job_on_hdfs_stops_goes_on_and_takes_acts_while_it_rests(job: Job, mode: str) -> None:
    job.scheduler(**MODES[mode])
    job.send(command("soon", 10), command("late", 1200), command("gone", 900))
    job("dry-run")
    out = job("run", "--until", at(60))
    assert f"3 = {WAITING[mode].format(2)} + 1 fired" in out, out
    assert "late" in job("pending")
    job("cancel", "--id", "gone")
    job.send(command("next", 120, 61))
    out = job("run", "--until", at(1800))
    assert f"4 = {WAITING[mode].format(0)} + 3 fired + 0 missed + 1 cancelled" in out, out
    assert job.table("tables/out", "schedule_id") == [("late",), ("next",), ("soon",)]
    assert sum(line.get("fired") or 0 for line in read_batches(f"{job.root}/checkpoint", 0)) == 3


@pytest.mark.parametrize("mode", MODES)
def test_pending_entries_move_to_another_checkpoint_over_hdfs(job: Job, mode: str) -> None:
    check_a_move(job, mode)


def test_a_purgatory_on_hdfs_stops_and_goes_on(job: Job) -> None:
    job.purgatory()
    job.send({"op": "late", "key": "b", "till": at(600), "at": at(0)}, to="operations")
    job.send({"key": "a", "at": at(30)}, to="events")
    job("run", "--until", at(60))
    job.send({"key": "none", "at": at(61)}, to="events")
    out = job("run", "--until", at(700))
    assert "1 = 0 pending + 0 completed + 1 expired" in out, out


def test_a_second_start_on_hdfs_is_refused_and_names_the_holder(job: Job) -> None:
    job.scheduler()
    job.send(command("soon", 10))
    with Lease(f"{job.root}/checkpoint", 30_000):
        code, _, err = say(job.file, "run", "--until", at(60))
    assert code == 1
    assert "process" in err, err
    job("run", "--until", at(60))
    assert job.table("tables/out", "schedule_id") == [("soon",)]
