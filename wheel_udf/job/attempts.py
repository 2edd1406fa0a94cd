"""Runs the query of a job from its first start to the end of the run: again after failures, after a step of the wall
clock, after a planned batch.

::

    begin --> run_held --> attempt: compose, compare, start --> supervise --> end of input, until, signal
                              ^                                    |
                              '- a transient failure, wall clock --'

How a run ends, and after which failures it starts again: :mod:`wheel_udf.job.supervise`. What a topic has lost is
found before each start, meanwhile, and after a failure: :mod:`wheel_udf.job.source_topics`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from wheel_udf.checkpoint.lease import Leases
from wheel_udf.checkpoint.spark_logs import planned_batch
from wheel_udf.common.errors import WheelError
from wheel_udf.common.progress import PrintLine
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.delivery.progress import next_line, progress_line
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job.compose import SUCCESS, check_config_checkpoint, columns_of, compose, sources_of
from wheel_udf.job.metering import metering, running
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.named import StoreName, check_names, located
from wheel_udf.job.phases import Phases
from wheel_udf.job.replay import note_settings, with_row_settings
from wheel_udf.job.serving import answering
from wheel_udf.job.sessions import session
from wheel_udf.job.source_topics import SourceTopics
from wheel_udf.job.supervise import (
    ClockRewindDetector,
    Supervisor,
    graceful_signals,
    supervise,
    with_restarts,
)
from wheel_udf.metrics.listener import listening
from wheel_udf.metrics.meter import Meter
from wheel_udf.spark.failures import explain, is_jvm_end
from wheel_udf.spark.queries import ONCE


def run_held(
    config: AnyConfig, until_ms: int | None, print_line: PrintLine, leases: Leases, phases: Phases
) -> int:
    """Runs the job of a start that :mod:`wheel_udf.job.begin` has begun.

    Returns:
        0; after a signal that cut a batch off 128 + its number.

    Raises:
        WheelError: Config, source, checkpoint or lease do not allow the start.
        StreamingQueryException: The query failed, and new starts did not help.
    """
    with metering(config, print_line) as meter, session(config.name, config.checkpoint) as spark:
        check_names(spark, config)
        config = located(spark, config, create=True)
        bounded = config.trigger_ms is None
        lines = (
            [_lines(print_line, tells_next=not bounded and until_ms is None)] if config.log == "text" else []
        )
        supervisor = Supervisor(
            None if bounded else until_ms, lambda _report: phases.close(), meter.on_batch, *lines
        )
        leases.take()
        with (
            graceful_signals(supervisor, print_line),
            answering(spark, config, meter, print_line) as begin_answering,
        ):
            try:
                with listening(spark, config.name, meter):
                    topics = SourceTopics(config, print_line)
                    attempt = _Attempt(
                        spark,
                        config,
                        until_ms,
                        supervisor,
                        print_line,
                        leases,
                        topics,
                        meter,
                        phases,
                        begin_answering,
                    )
                    with_restarts(attempt.run, config.restarts, supervisor, print_line)
            except Exception as error:
                # The signal may have ended the JVM or workers of it.
                if supervisor.signal is None or not (is_jvm_end(error) or explain(error).transient):
                    raise
                supervisor.cut_off = True
            finally:
                phases.close()
                if supervisor.has_started:
                    print_line(supervisor.summary.render())
        if supervisor.signal is None or not supervisor.cut_off:
            return SUCCESS
        return _after_a_cut(supervisor.signal, config, print_line)


def _lines(print_line: PrintLine, *, tells_next: bool) -> Callable[[BatchReport], None]:
    """Takes the reports of a run, prints a line for each, and after the first what the job waits for. In the tiered
    mode the wheel runs before the intake has read anything: that is not said before something is pending.
    """
    is_first = tells_next

    def take(report: BatchReport) -> None:
        nonlocal is_first
        print_line(progress_line(report))
        if not is_first or (report.far is not None and not report.pending):
            return
        if not report.in_data_time:
            print_line(next_line(report, wall_clock_ms()))
        is_first = False

    return take


@dataclass(frozen=True)
class _Attempt:
    """A start of the query, which can be made again; with what it needs."""

    spark: SparkSession
    config: AnyConfig
    until_ms: int | None
    supervisor: Supervisor
    print_line: PrintLine
    leases: Leases
    topics: SourceTopics
    meter: Meter
    phases: Phases
    begin_answering: Callable[[], None]

    def run(self) -> None:
        """Runs the query to its end, and starts it again whenever the wall clock was set back.

        Raises:
            SourceLostError: Records of a topic are lost; Spark's error, if there was one, is its cause.
        """
        try:
            while back_ms := self._run_once():
                self.print_line(
                    f"the wall clock was set back by {back_ms / 1_000:,.0f} s: "
                    "the query starts again from its checkpoint"
                )
        except Exception as error:
            if not isinstance(error, WheelError) and not is_jvm_end(error):
                self.topics.check(error)
            raise
        finally:
            self.supervisor.summary.lost = self.topics.lost

    def _run_once(self) -> int:
        """Starts the query and waits for its end; returns what :func:`~wheel_udf.job.supervise.supervise` does."""
        supervisor, config, phases = self.supervisor, self.config, self.phases
        phases.begin("opening the source and planning the query")
        sources = sources_of(self.spark, config)
        start = compose(config, sources, self.until_ms, self.leases.of)
        phases.begin("comparing the config with its checkpoint")
        check_config_checkpoint(self.spark, config)
        recorded = note_settings(config, self.until_ms, self.leases.of, columns_of(config, sources))
        self.topics.check()
        if recorded is not None:
            self._finish_planned_batch(recorded)
        if supervisor.wants_end:
            return 0
        steps = None if config.trigger_ms is None else ClockRewindDetector()
        store = StoreName(self.spark, config)
        phases.begin("starting the query")
        query = start(trigger=config.trigger, on_batch=supervisor.on_batch)
        self.begin_answering()
        phases.begin("the first batch")

        def look() -> None:
            self.topics.look()
            store.check()

        with running(self.meter):
            return supervise(query, supervisor, steps, look, self.leases.check)

    def _finish_planned_batch(self, recorded: Mapping[str, Any]) -> None:
        """Runs the one batch that an earlier run planned and did not commit, with the settings of that run."""
        self.print_line(
            "the last run left a planned batch: it runs first, with the settings that it was planned with"
        )
        assert isinstance(self.config, SchedulerConfig), (
            "a purgatory with a batch of other settings is refused"
        )
        then = with_row_settings(self.config, recorded)
        start = compose(then, sources_of(self.spark, then), recorded["until_ms"], self.leases.of)
        query = start(trigger=ONCE, on_batch=self.supervisor.on_batch)
        with running(self.meter):
            supervise(query, self.supervisor, require_lease=self.leases.check)


def _after_a_cut(number: signal.Signals, config: AnyConfig, print_line: PrintLine) -> int:
    """Prints which batch was cut off, and returns the exit code."""
    try:
        cut_off = [batch for part in config.checkpoints if (batch := planned_batch(part)) is not None]
    except Exception as error:
        if not is_jvm_end(error):  # a checkpoint that only the JVM can read
            raise
        print_line(
            f"stopped by {number.name}: the next start repeats the batch that was cut off, if there was one"
        )
        return 128 + number
    if not cut_off:
        return SUCCESS
    print_line(f"stopped by {number.name}: the next start repeats batch {max(cut_off)}")
    return 128 + number
