"""Progress of Spark's jobs: how many tasks are done, read from the status tracker while another thread waits for the
result.

::

    thread of the work    count() ------------------------------------------> result
    this thread              tracker: job 7, stages 9, 10 -> 3 of 8 tasks       every half second

All jobs of the session count, not only those of a job group: the jobs of a streaming query and of a broadcast have
groups, or threads, of their own.

Cost: some calls of the JVM each half second, below a millisecond each. Caveat: the tasks of a later job are not known
before it begins, so the time left is that of the jobs so far. A task is done or not: of a task that runs, Spark
reports no rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.common.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.5
_RUNNING: Final = "RUNNING"


class Tasks:
    """Counts the tasks of the jobs that were seen since the last :meth:`forget`.

    Args:
        tracker: Spark's status tracker.
    """

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._running: set[int] = set()
        self._counted: dict[int, tuple[int, int]] = {}

    def forget(self) -> None:
        """Leaves out what was counted so far, but jobs that still run."""
        self._counted.clear()

    def count(self) -> tuple[int, int]:
        """Looks at Spark; returns the number of tasks that are done, and of all."""
        jobs = self._running.union(self._tracker.getActiveJobsIds())
        self._running.clear()
        for job in jobs:
            done, total, runs = self._of_job(job)
            # Stages that were skipped, because their output was there, never get done.
            self._counted[job] = done, total if runs else done
            if runs:
                self._running.add(job)
        return sum(done for done, _ in self._counted.values()), sum(
            total for _, total in self._counted.values()
        )

    def _of_job(self, job: int) -> tuple[int, int, bool]:
        info = self._tracker.getJobInfo(job)
        if info is None:
            return 0, 0, False
        stages = [stage for each in info.stageIds if (stage := self._tracker.getStageInfo(each)) is not None]
        done, total = sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)
        return done, total, info.status == _RUNNING


@contextmanager
def showing_tasks(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Inside, the tasks of the session's jobs are shown.

    Args:
        spark: The session.
        progress: Where; a new step of it begins a new count.
    """
    ended = threading.Event()
    tasks = Tasks(spark.sparkContext.statusTracker())
    thread = threading.Thread(target=_watch, args=(tasks, progress, ended), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(tasks: Tasks, progress: Progress, ended: threading.Event) -> None:
    steps = progress.steps
    while not ended.wait(_POLL_S):
        if progress.steps != steps:
            steps = progress.steps
            tasks.forget()
        try:
            progress.show(*tasks.count())
        except Exception:  # noqa: BLE001  # the JVM ends, or has no such interface: the work goes on without a bar
            return
