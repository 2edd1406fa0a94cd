"""Starts a failed query again, from its checkpoint and in the same process, if the same batch may succeed a moment later.

::

    run --> query --> error --> transient? --no---------------------> raised: one sentence, exit code
     ^                              |
     |                              yes, and fewer than `most` failures since the last new batch
     '---- wait, 2 x wait, ... -----'

What counts as transient: :mod:`wheel_udf.platform.failures`. Never started again: a query that could not be started in the first place (what is
wrong then is usually the config), wrong settings, a lease, a damaged checkpoint, a JVM that has ended, a run that was asked to end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from wheel_udf.job.models import RestartsConfig
from wheel_udf.platform import explain

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
            if (
                not (failure.transient and watched.has_started)
                or failures > settings.most
                or watched.wants_end
            ):
                raise
            wait_ms = min(settings.wait_ms * 2 ** (failures - 1), LONGEST_WAIT_MS)
            say(f"the query failed: {failure.sentence}")
            say(
                f"it starts again from its checkpoint in {wait_ms / 1_000:g} s ({failures} of {settings.most})"
            )
            watched.pause(wait_ms)
            if watched.wants_end:
                raise
