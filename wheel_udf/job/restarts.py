"""Starts a failed query again, from its checkpoint and in the same process, if the same batch may succeed a moment later.

::

    run --> query --> error --> transient? --no---------------------> raised: one sentence, exit code
     ^                              |
     |                              yes, and fewer than `most` failures since the last new batch
     '---- wait, 2 x wait, ... -----'

What counts as transient: :mod:`wheel_udf.platform.failures`. Never started again: a query that could not be started in the first place (what is
wrong then is usually the config), wrong settings, a lease, a damaged checkpoint, a JVM that has ended, a run that was asked to end.

One failure of a start is tried again, too: a Python worker of Spark that did not start in time, which happens on a busy machine. Nothing was
written then. This holds for the start of a query and, by :func:`patiently`, for the other verbs, as long as they have printed nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from wheel_udf.job.models import RestartsConfig
from wheel_udf.platform import explain, is_slow_worker

LONGEST_WAIT_MS = 60_000

Say = Callable[[str], None]


class Watched(Protocol):
    """What is known of the run between two starts of its query."""

    @property
    def newest_batch(self) -> int:
        """The highest batch that has been reported; -1 before the first."""

    @property
    def has_started(self) -> bool:
        """Whether a query of the run was started."""

    @property
    def wants_end(self) -> bool:
        """Whether the run was asked to end."""

    def pause(self, wait_ms: int) -> None:
        """Waits; returns earlier if the run is asked to end."""


def with_restarts(run_once: Callable[[], None], settings: RestartsConfig, watched: Watched, say: Say) -> None:
    """Runs a query to its end, starting it again after transient failures.

    Args:
        run_once: Starts the query and waits for its end.
        settings: How often, and how long to wait before the first try; each further wait is twice as long, up to a minute.
        watched: The run.
        say: Takes a line for each failure and each start.

    Raises:
        Exception: The last failure, as `run_once` has raised it.
    """
    failures, reached = 0, watched.newest_batch
    while True:
        try:
            return run_once()
        except Exception as error:
            failure = explain(error)
            if watched.newest_batch > reached:
                failures, reached = 0, watched.newest_batch
            failures += 1
            is_start = is_slow_worker(error) and watched.newest_batch < 0
            is_passing = failure.transient and watched.has_started
            if not (is_start or is_passing) or failures > settings.most or watched.wants_end:
                raise
            wait_ms = _wait_ms(failures, settings)
            if is_start:
                say(_again(failure.sentence, failures, settings))
            else:
                say(f"the query failed: {failure.sentence}")
                say(
                    f"it starts again from its checkpoint in {wait_ms / 1_000:g} s ({failures} of {settings.most})"
                )
            watched.pause(wait_ms)
            if watched.wants_end:
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
            code = step(noted)
        except Exception as error:
            failures += 1
            if not is_slow_worker(error) or has_said or failures > settings.most:
                raise
            warn(_again(explain(error).sentence, failures, settings))
            (pause or _pause)(_wait_ms(failures, settings))
        else:
            return code


def _wait_ms(failures: int, settings: RestartsConfig) -> int:
    times: int = 2 ** (failures - 1)
    return min(settings.wait_ms * times, LONGEST_WAIT_MS)


def _again(sentence: str, failures: int, settings: RestartsConfig) -> str:
    wait_s = _wait_ms(failures, settings) / 1_000
    return f"{sentence}; trying again in {wait_s:g} s ({failures} of {settings.most})"


def _pause(wait_ms: int) -> None:
    threading.Event().wait(wait_ms / 1_000)
