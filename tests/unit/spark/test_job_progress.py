"""Tasks of Spark's jobs, counted from a status tracker that the test moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wheel_udf.spark.job_progress import Tasks


class Tracker:
    """Jobs and stages as Spark's status tracker returns them."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[str, list[int]]] = {}
        self.stages: dict[int, tuple[int, int]] = {}

    def getActiveJobsIds(self) -> list[int]:  # noqa: N802  (Spark's name)
        return [job for job, (status, _) in self.jobs.items() if status == "RUNNING"]

    def getJobInfo(self, job: int) -> Any:  # noqa: N802  (Spark's name)
        if job not in self.jobs:
            return None
        status, stages = self.jobs[job]
        return SimpleNamespace(status=status, stageIds=stages)

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802  (Spark's name)
        if stage not in self.stages:
            return None
        done, total = self.stages[stage]
        return SimpleNamespace(numCompletedTasks=done, numTasks=total)


def test_the_tasks_of_all_stages_of_a_job_count() -> None:
    tracker = Tracker()
    tracker.jobs = {0: ("RUNNING", [0, 1])}
    tracker.stages = {0: (3, 4), 1: (0, 2)}

    assert Tasks(tracker).count() == (3, 6)


def test_a_job_that_has_ended_counts_what_was_done_without_its_skipped_stages() -> None:
    tracker = Tracker()
    tracker.jobs = {0: ("RUNNING", [0, 1])}
    tracker.stages = {0: (0, 4), 1: (0, 2)}
    tasks = Tasks(tracker)
    tasks.count()
    tracker.jobs = {0: ("SUCCEEDED", [0, 1]), 1: ("RUNNING", [2])}
    tracker.stages = {0: (0, 4), 1: (2, 2), 2: (1, 8)}

    assert [tasks.count(), tasks.count()] == [(3, 10), (3, 10)]


def test_a_new_step_begins_a_new_count() -> None:
    tracker = Tracker()
    tracker.jobs = {0: ("RUNNING", [0])}
    tracker.stages = {0: (2, 2)}
    tasks = Tasks(tracker)
    tasks.count()
    tracker.jobs = {0: ("SUCCEEDED", [0])}
    assert tasks.count() == (2, 2)
    tasks.forget()
    assert tasks.count() == (0, 0)
    tracker.jobs[1] = ("RUNNING", [1])
    tracker.stages[1] = (1, 4)
    assert tasks.count() == (1, 4)


def test_a_job_or_a_stage_that_spark_does_not_know_any_more_is_left_out() -> None:
    tracker = Tracker()
    tracker.jobs = {0: ("RUNNING", [7])}
    tasks = Tasks(tracker)
    assert tasks.count() == (0, 0)
    tracker.jobs.clear()
    assert tasks.count() == (0, 0)
