"""Watches a running query: prints progress, ends it at ``--until`` or at a signal, starts it again after a failure
that may be over a moment later, and sums up.

A signal (SIGINT, SIGTERM) lets the running batch finish, stops the query, prints the summary and ends with exit code
0; a second one ends at once. A batch that does not end within 20 s is cut off.

``timeout`` and service managers send a signal to all processes of a job. The JVM ignores it, and Spark tries the tasks
of its workers again; but under spark-submit the JVM ends at once. The exit code after a batch that was cut off is 128
+ the number of the signal (SIGINT 130, SIGTERM 143). The next start repeats that batch. Nothing is lost or delivered
twice either way.

Spark waits for the next trigger until the wall clock has reached it. If the wall clock is set back, by a day for
example, no batch would run for a day. So the query then starts again, from its checkpoint; the clock of the wheel
stands meanwhile (:mod:`wheel_udf.control.source`).

After a transient failure (:class:`~wheel_udf.spark.failures.Cause`) the query starts again in the same session, which
takes a second or two; a process that a service manager starts again has to start Spark first. All else is for the
service manager: a JVM that has ended, a start that failed, the tries after ``restarts.most``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType

from wheel_udf.common.progress import PrintLine
from wheel_udf.control.wall import elapsed_ms, wall_clock_ahead_ms
from wheel_udf.delivery.report import BatchReport
from wheel_udf.delivery.summary import Summary
from wheel_udf.job.compose import Query
from wheel_udf.job.models.bounds import RestartsConfig
from wheel_udf.spark.failures import explain

_POLL_S = 0.2
_LAST_BATCH_MS = 20_000
"""How long a batch may take to finish after a signal: 20 s."""
_POLLS_PER_LOOK = 25
"""The source is looked at every 5 s."""
_LONGEST_WAIT_MS = 60_000
_LEAST_STEP_BACK_MS = 5_000
"""After a smaller step back of the wall clock, the query waits until time has passed it: a new start takes as long."""


class Supervisor:
    """Takes the reports of a run, and decides when the run ends.

    Args:
        until_ms: The run ends after the batch whose clock (or watermark) has reached this instant with nothing due
            left; None: never.
        on_report: These take each report, too.

    Attributes:
        summary: The account of the run so far.
        has_started: Whether a query was started.
        signal: The signal that requested the end; None without one.
        cut_off: Whether the running batch may have been cut off after the signal.
        newest_batch: The highest batch that was reported; -1 before the first.
    """

    def __init__(self, until_ms: int | None, *on_report: Callable[[BatchReport], None]) -> None:
        self.summary = Summary()
        self._until_ms, self._on_report = until_ms, on_report
        self.has_started = False
        self.signal: signal.Signals | None = None
        self.cut_off = False
        self.newest_batch = -1
        self._last_batch: int | None = None
        self._end = threading.Event()

    def on_batch(self, report: BatchReport) -> None:
        """Takes a report (on Spark's thread)."""
        self.summary.add(report)
        self.newest_batch = max(self.newest_batch, report.batch_id)
        if self._last_batch is None and self._has_reached_until(report):
            self._last_batch = report.batch_id
        # Last: one that fails (a closed output, `... | head`) is logged, and must not keep the run from its end.
        for take in self._on_report:
            take(report)

    def _has_reached_until(self, report: BatchReport) -> bool:
        # The clock of an event-time batch is the watermark before it. The watermark after it is known too, and may be
        # the last one to come.
        instants = [at for at in (report.clock_ms, report.watermark_ms) if at is not None]
        if self._until_ms is None or not instants or max(instants) < self._until_ms or not report.complete:
            return False
        return not report.backlog and (report.next_due_ms is None or report.next_due_ms > self._until_ms)

    def end_after_this_batch(self) -> None:
        """Requests the end: after the running batch, if there is one."""
        if self._last_batch is None:
            self._last_batch = self.newest_batch + 1
        self._end.set()

    def end_by(self, number: signal.Signals) -> None:
        """As :meth:`end_after_this_batch`, because of a signal; a batch that does not end soon is cut off."""
        self.signal = number
        self.end_after_this_batch()

    def pause(self, wait_ms: int) -> None:
        """Waits; returns earlier if the end is requested."""
        self._end.wait(wait_ms / 1_000)

    @property
    def wants_end(self) -> bool:
        """Whether the end was requested, by ``until`` or by :meth:`end_after_this_batch`."""
        return self._last_batch is not None

    def is_over(self, query: Query) -> bool:
        """Returns whether the query can be stopped: the end was requested, and its last batch is committed or over."""
        if self._last_batch is None:
            return False
        progress = query.lastProgress
        committed = progress is not None and progress["batchId"] >= self._last_batch
        return committed or not query.status["isTriggerActive"]


class ClockRewindDetector:
    """Sums up by how much the wall clock is set back.

    Args:
        ahead_ms: As :func:`~wheel_udf.control.source.wall_clock_ahead_ms`.

    Attributes:
        sum_ms: The sum so far.
    """

    def __init__(self, ahead_ms: Callable[[], int] = wall_clock_ahead_ms) -> None:
        self._look, self._ahead_ms = ahead_ms, ahead_ms()
        self.sum_ms = 0

    def look(self) -> None:
        """Compares the two clocks once more."""
        before_ms, self._ahead_ms = self._ahead_ms, self._look()
        step_ms = before_ms - self._ahead_ms
        if step_ms >= _LEAST_STEP_BACK_MS:
            self.sum_ms += step_ms


def supervise(
    query: Query,
    supervisor: Supervisor,
    steps: ClockRewindDetector | None = None,
    look: Callable[[], None] | None = None,
    require_lease: Callable[[], None] = lambda: None,
) -> int:
    """Waits for the end of a query, and stops it when the supervisor ends the run.

    Args:
        query: The running query.
        supervisor: Decides when the run ends.
        steps: Notices that the wall clock is set back; None for a query that waits for no trigger.
        look: Called every few seconds and at the end; a SourceLostError or StoreError that it raises ends the query.
        require_lease: Called more often, and at the end; a LeaseError that it raises ends the query.

    Returns:
        0, or by how many ms the wall clock was set back: then the query was stopped between two batches, and has to
        start again.

    Raises:
        StreamingQueryException: The query failed.
        SourceLostError, StoreError: `look` has raised it.
        LeaseError: `require_lease` has raised it.
    """
    supervisor.has_started = True
    look = look or (lambda: None)
    try:
        back_ms = _until_over(query, supervisor, steps, look, require_lease)
        require_lease()
        look()
    except Exception:
        query.stop()  # does nothing to one that has ended
        raise
    return back_ms


def _until_over(
    query: Query,
    supervisor: Supervisor,
    steps: ClockRewindDetector | None,
    look: Callable[[], None],
    require_lease: Callable[[], None],
) -> int:
    signal_ms: int | None = None
    for number in count(1):
        if query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # Spark takes fractions of a second
            break
        require_lease()
        if supervisor.signal is not None:
            signal_ms = elapsed_ms() if signal_ms is None else signal_ms
            supervisor.cut_off = elapsed_ms() - signal_ms > _LAST_BATCH_MS
        if supervisor.is_over(query) or supervisor.cut_off:
            query.stop()
            break
        if steps is not None:
            steps.look()
            if steps.sum_ms and not query.status["isTriggerActive"]:
                query.stop()
                return steps.sum_ms
        if number % _POLLS_PER_LOOK == 0 and supervisor.signal is None:
            look()
    return 0


def with_restarts(
    run_once: Callable[[], None], settings: RestartsConfig, supervisor: Supervisor, print_line: PrintLine
) -> None:
    """Runs a query to its end, starting it again after transient failures.

    Args:
        run_once: Starts the query and waits for its end.
        settings: How often without a new batch in between, and how long to wait before the first try; each further
            wait is twice as long, up to a minute.
        supervisor: Has the newest batch, whether a query was started, and whether the run is to end.
        print_line: Takes a line for each failure that is tried again.

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
            is_passing = failure.transient and supervisor.has_started
            if not is_passing or failures > settings.most or supervisor.wants_end:
                raise
            wait_ms = min(settings.wait_ms * 2 ** (failures - 1), _LONGEST_WAIT_MS)
            print_line(
                f"{failure.sentence}; it starts again from its checkpoint in {wait_ms / 1_000:g} s "
                f"({failures} of {settings.most})"
            )
            supervisor.pause(wait_ms)
            if supervisor.wants_end:
                raise


@contextmanager
def graceful_signals(supervisor: Supervisor, print_line: PrintLine) -> Iterator[None]:
    """Inside, the first SIGINT or SIGTERM ends the run after the running batch; a second one has its default action."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(number: int, _frame: FrameType | None) -> None:
        # At last the line: whoever reads it may have stopped to read, and then a second signal is wanted.
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        supervisor.end_by(signal.Signals(number))
        print_line(f"{signal.Signals(number).name}: stopping after this batch; a second signal stops at once")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
