"""Tasks: work behind a click that takes longer than a request may: a search, a dry run, an act.

A click adds a task and gets its page at once; the page shows the result when it is there. One task runs at a time, so
clicks cannot load the machine with more than one Spark query. The same question gets the same task until that is done,
and for some seconds after it was asked for.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from wheel_udf.common.errors import ActError
from wheel_udf.common.secrets import hide
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.spark.failures import explain

_MOST_WAITING: Final = 20
_MOST_KEPT: Final = 100
_SAME_MS: Final = 5_000


@dataclass
class Task:
    """A task, which a thread completes.

    Attributes:
        kind: ``search``, ``check`` (a dry run) or ``act``.
        asked: The request.
        number: Its id in addresses; not to be guessed.
        at_ms: When it was requested (UTC epoch ms).
        result: What was found; None before its end, and after a failure.
        error: Why it failed.
        is_done: Whether it has ended.
        is_used: Whether its result was acted on: a dry run is confirmed once.
    """

    kind: str
    asked: Mapping[str, Any]
    at_ms: int
    number: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    result: Any = None
    error: str | None = None
    is_done: bool = False
    is_used: bool = False


class Tasks:
    """Runs tasks one after the other.

    Args:
        now_ms: The wall clock.
    """

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms, self._lock = now_ms, threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="page-task")

    def add(self, kind: str, asked: Mapping[str, Any], work: Callable[[], Any]) -> Task:
        """Adds a task, unless the same was requested some seconds ago.

        Raises:
            ActError: Too many tasks wait.
        """
        with self._lock:
            now_ms = self._now_ms()
            same = [each for each in self._tasks.values() if (each.kind, each.asked) == (kind, asked)]
            answers = same and kind != "act" and not same[-1].is_used
            if answers and (not same[-1].is_done or now_ms - same[-1].at_ms < _SAME_MS):
                return same[-1]
            if sum(not each.is_done for each in self._tasks.values()) >= _MOST_WAITING:
                raise ActError(
                    "too many questions wait for an answer",
                    rule=f"up to {_MOST_WAITING}",
                    hint="try again later",
                )
            task = Task(kind, asked, now_ms)
            self._tasks[task.number] = task
            for old in list(self._tasks)[:-_MOST_KEPT]:
                del self._tasks[old]
        self._pool.submit(self._do, task, work)
        return task

    def find(self, number: str, *kinds: str) -> Task | None:
        """Returns the task of a number, if it is of one of these kinds; None if it is not known (any more)."""
        with self._lock:
            task = self._tasks.get(number)
        return task if task is not None and task.kind in kinds else None

    def use(self, task: Task) -> bool:
        """Marks a successful dry run as confirmed; False if it is not done, failed, or was confirmed before."""
        with self._lock:
            if not task.is_done or task.error is not None or task.is_used:
                return False
            task.is_used = True
            return True

    def stop(self) -> None:
        """Ends after the task that runs; those that wait are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _do(self, task: Task, work: Callable[[], Any]) -> None:
        try:
            task.result = work()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is shown
            task.error = hide(explain(error).sentence)
        task.is_done = True
