"""The meter of a run: joins the report of a batch and Spark's progress of it, keeps the figures, decides about health.

::

    batch 7 ends:      on_batch(report 7)                  figures; the line of 7 waits
    Spark commits it:  on_progress(progress 7)             seconds by phase; line 7 goes to batch log and job log
    no progress came:  on_batch(report 8), or close()      line 7 goes without them

Reports come on the thread of the query, progress on a thread of Spark's listeners, questions on threads of HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.delivery.report import BatchReport
from wheel_udf.metrics.figures import Figures, Sample
from wheel_udf.metrics.health import unhealthy_reason
from wheel_udf.metrics.lines import WHEEL, Progress, intake_line, line_of

_LAST_PROGRESS_S = 1.0
"""How long the end of a run waits for the progress of its last batch."""

NOT_STARTED = "the query has not started yet"


class Meter:
    """The figures, the health and the lines of one run.

    Args:
        info: Values of the labels of ``wheel_info``: name, mode, clock, version.
        unhealthy_after_ms: How late the oldest entry may be, and how long a batch may take.
        sinks: Take each line (see :mod:`wheel_udf.metrics`).
        now_ms: The wall clock.
    """

    def __init__(
        self,
        info: tuple[str, str, str, str],
        *,
        unhealthy_after_ms: int,
        sinks: Iterable[Callable[[Mapping[str, Any]], None]] = (),
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._figures, self._unhealthy_after_ms = Figures(info), unhealthy_after_ms
        self._sinks, self._now_ms = tuple(sinks), now_ms
        self._lock = threading.Lock()
        self._lines = threading.Condition()
        self._waiting: tuple[BatchReport, int] | None = None
        self._stopped: str | None = NOT_STARTED
        self._last: Mapping[str, Any] | None = None
        self._alive_ms = now_ms()

    # ---- what the run reports ------------------------------------------------------------------------

    def started(self) -> None:
        """Notes that a query of the run has started."""
        with self._lock:
            self._stopped, self._alive_ms = None, self._now_ms()

    def stopped(self, why: str) -> None:
        """Notes that no query runs any more, or for now."""
        with self._lock:
            self._stopped = why

    def on_batch(self, report: BatchReport) -> None:
        """Takes the report of a batch."""
        at_ms = self._now_ms()
        with self._lock:
            self._figures.add_report(report, at_ms)
            self._alive_ms = at_ms
        with self._lines:
            # A repetition of a batch takes the place of its first try.
            if self._waiting is not None and self._waiting[0].batch_id != report.batch_id:
                self._write(None)
            self._waiting = report, at_ms

    def on_progress(self, progress: Progress) -> None:
        """Takes Spark's progress of a batch."""
        at_ms = self._now_ms()
        with self._lock:
            self._figures.add_progress(progress, at_ms)
            self._alive_ms = at_ms
        with self._lines:
            if progress.query != WHEEL:
                self._send(intake_line(progress, at_ms))
            elif self._waiting is not None and self._waiting[0].batch_id == progress.batch_id:
                self._write(progress)

    def on_idle(self) -> None:
        """Takes a trigger that found nothing to do."""
        with self._lock:
            self._alive_ms = self._now_ms()

    def close(self) -> None:
        """Writes the line that still waits; waits a moment for its progress."""
        with self._lines:
            self._lines.wait_for(lambda: self._waiting is None, _LAST_PROGRESS_S)
            if self._waiting is not None:
                self._write(None)

    def _write(self, progress: Progress | None) -> None:
        assert self._waiting is not None, "a line waits"
        report, at_ms = self._waiting
        self._waiting = None
        self._send(line_of(report, at_ms, progress))
        self._lines.notify_all()

    def _send(self, line: Mapping[str, Any]) -> None:
        if line["query"] == WHEEL:
            self._last = line
        for sink in self._sinks:
            sink(line)

    # ---- what others ask -----------------------------------------------------------------------------

    def unhealthy_reason(self) -> str | None:
        """Returns why the job is not healthy; None if it is."""
        with self._lock:
            return unhealthy_reason(
                self._stopped,
                self._figures.oldest_due_since_ms,
                self._alive_ms,
                now_ms=self._now_ms(),
                unhealthy_after_ms=self._unhealthy_after_ms,
            )

    def samples(self) -> list[Sample]:
        """Returns the samples of all metrics, as of now."""
        healthy = int(self.unhealthy_reason() is None)
        with self._lock:
            return [*self._figures.samples(self._now_ms()), ("wheel_healthy", (), healthy)]

    def status(self) -> dict[str, Any]:
        """Returns the state of the run as JSON values.

        Returns:
            ``at_ms`` (UTC epoch ms); ``unhealthy``, why the job is not healthy, or null; ``last``, the line of the last
            batch of the wheel, or null; ``samples``, of the metrics that are numbers, each ``[name, [label, ...],
            value]``.
        """
        numbers = [sample for sample in self.samples() if isinstance(sample[-1], int | float)]
        return {
            "at_ms": self._now_ms(),
            "unhealthy": self.unhealthy_reason(),
            "last": self._last,
            "samples": numbers,
        }
