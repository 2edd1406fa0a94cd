"""Restarts a failed query from its checkpoint, in the same process, if the same batch may succeed a moment later.

::

    run --> query --> error --> retried? --no------------------------> raised: one sentence, exit code
     ^                              |
     |                              yes, and fewer than `most` failures since the last new batch
     '---- wait, 2 x wait, ... -----'

The session stays open, so a new start takes a second or two; a process that a supervisor starts again has to
start Spark first. All else is the supervisor's: a JVM that has ended, a start that failed, the tries after `most`.
Which causes are retried: :class:`~wheel_udf.spark.failures.Cause`.

One failure of a start is tried again, too: a Python worker of Spark that did not start in time, which happens on a
busy machine. Nothing was written then. This holds for the start of a query and, by :func:`patiently`, for the other
verbs, as long as they have printed nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from wheel_udf.job.models.bounds import RestartsConfig
from wheel_udf.spark.failures import explain, is_slow_worker

if TYPE_CHECKING:
    from wheel_udf.job.supervise import Supervisor

LONGEST_WAIT_MS = 60_000

Say = Callable[[str], None]


def with_restarts(
    run_once: Callable[[], None], settings: RestartsConfig, supervisor: Supervisor, say: Say
) -> None:
    """Runs a query to its end, starting it again after failures that may be over a moment later.

    Args:
        run_once: Starts the query and waits for its end.
        settings: How often, and how long to wait before the first try; each further wait is twice as long, up to a
            minute.
        supervisor: Knows the newest batch, whether a query was started, and whether the run is to end.
        say: Takes a line for each failure that is tried again.

    Raises:
        Exception: The last failure, as `run_once` has raised it.
    """
    failures, reached = 0, supervisor.newest_batch
    while True:
        try:
            return run_once()
        except Exception as error:
            failure = explain(error)
            if supervisor.newest_batch > reached:
                failures, reached = 0, supervisor.newest_batch
            failures += 1
            is_passing = failure.transient and (supervisor.has_started or is_slow_worker(error))
            if not is_passing or failures > settings.most or supervisor.wants_end:
                raise
            what = "it starts again from its checkpoint" if supervisor.has_started else "trying again"
            say(_again(failure.sentence, what, failures, settings))
            supervisor.pause(_wait_ms(failures, settings))
            if supervisor.wants_end:
                raise


def patiently(
    step: Callable[[Say], int],
    settings: RestartsConfig,
    say: Say,
    warn: Say,
    pause: Callable[[int], None] | None = None,
) -> int:
    """Executes a verb, again if a Python worker of Spark did not start in time and the verb has printed nothing yet.

    Args:
        step: The verb; takes where its lines go.
        settings: As for :func:`with_restarts`.
        say: Takes the lines of the verb.
        warn: Takes a line for each failure.
        pause: Waits so many ms.

    Returns:
        What the verb returns.

    Raises:
        Exception: The last failure, as the verb has raised it.
    """
    has_said = False

    def noted(line: str) -> None:
        nonlocal has_said
        has_said = True
        say(line)

    failures = 0
    while True:
        try:
            return step(noted)
        except Exception as error:
            failures += 1
            if not is_slow_worker(error) or has_said or failures > settings.most:
                raise
            warn(_again(explain(error).sentence, "trying again", failures, settings))
            (pause or _pause)(_wait_ms(failures, settings))


def _wait_ms(failures: int, settings: RestartsConfig) -> int:
    times: int = 2 ** (failures - 1)
    return min(settings.wait_ms * times, LONGEST_WAIT_MS)


def _again(sentence: str, what: str, failures: int, settings: RestartsConfig) -> str:
    return f"{sentence}; {what} in {_wait_ms(failures, settings) / 1_000:g} s ({failures} of {settings.most})"


def _pause(wait_ms: int) -> None:
    threading.Event().wait(wait_ms / 1_000)
