"""The job: from a checked config to a running query, and from its reports to an exit code.

A run is a composition of the library, the same a notebook would write::

    read_commands -> schedule -> deliver             compose()
    build_session, settings of a planned batch       run()
    progress lines, --until, signals, summary        Watch, supervise()

Settings that change the rows of a batch (:func:`row_settings`: contract, memory, limit, clock, until, destinations) belong to the batch that
was planned with them. Each start notes its own in the checkpoint. If the last run has left a batch that was planned and not
committed, and its settings were others, that one batch runs first with its own settings; the new ones apply from the next. Otherwise a
batch of which one table of two is written already would get other rows in the second.

A signal (SIGINT, SIGTERM) lets the running batch finish, stops the query, prints the summary and ends with exit code 0; a
second one ends at once. Under spark-submit a Ctrl-C also reaches the JVM, which ends Spark by itself: the batch is then cut off, and the
next start repeats it. Nothing is lost or delivered twice either way.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import FrameType
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from wheel_udf import kafka_admin, kafka_options, levels
from wheel_udf import settings as models
from wheel_udf.checkpoint import PlannedSettings, last_planned, open_checkpoint, planned_batch
from wheel_udf.clock import Clock, EventClock, ProcessingClock, SimulatedClock
from wheel_udf.commands import Contract
from wheel_udf.delivery import ONCE, deliver, take_lease
from wheel_udf.errors import ConfigError
from wheel_udf.kafka_sink import KafkaSink
from wheel_udf.limits import Limits
from wheel_udf.metrics import BatchReport, Summary, progress_line
from wheel_udf.operator import schedule
from wheel_udf.session import build_session, stop_session
from wheel_udf.settings import AnyJobConfig, JobConfig
from wheel_udf.sinks import DeltaSink, Destinations, FileSink, Sink
from wheel_udf.sources import LevelTopic, read_commands
from wheel_udf.tiered import Outlet, start_tiered
from wheel_udf.tiered_run import TieredRun, TieredWheel
from wheel_udf.watch_job import watch_row_settings, watched_frame
from wheel_udf.watch_settings import WatchJobConfig
from wheel_udf.watch_state import watch_fingerprint

SUCCESS = 0
_POLL_S = 0.2
_ENDING_OFFSETS = "endingOffsets"

Say = Callable[[str], None]
Starter = Callable[[str, Callable[[BatchReport], None]], "Query"]
"""(trigger, what to do with each report) -> the running query."""


# --- composition ------------------------------------------------------------------------------------------------------


def compose(spark: SparkSession, config: AnyJobConfig, until_ms: int | None = None) -> Starter:
    """Puts source, wheel and sinks together as the config says; nothing runs yet.

    Args:
        spark: The session.
        config: The checked config.
        until_ms: Where the clock is run on to (UTC epoch ms), or None.

    Returns:
        What starts the query.

    Raises:
        ConfigError: The source cannot be opened.
        ContractError: The source does not fit the command contract.
    """
    if isinstance(config, JobConfig) and config.mode == "tiered":
        return _compose_tiered(spark, config, until_ms)
    scheduled = frame_of(spark, config, until_ms)
    destinations, rejects = destinations_of(config), sink_of(config.rejects)

    def start(trigger: str, on_batch: Callable[[BatchReport], None]) -> Query:
        return deliver(
            scheduled,
            destinations=destinations,
            rejects=rejects,
            checkpoint=config.checkpoint,
            trigger=trigger,
            name=config.name,
            on_batch=on_batch,
        )

    return start


def _compose_tiered(spark: SparkSession, config: JobConfig, until_ms: int | None) -> Starter:
    assert config.store is not None, "checked with the config"
    commands = commands_of(spark, config)
    clock = clock_of(config.clock, until_ms)
    assert not isinstance(clock, SimulatedClock), "checked with the config"
    what = TieredWheel(
        layout=config.wheel.layout(),
        store=config.store.path,
        clock=clock,
        shards=config.wheel.shards,
        contract=contract_of(config),
        memory_ms=config.contract.memory_ms,
        limit=config.limits.fired_per_batch,
        limits=limits_of(config),
        on_limit=config.limits.on_limit,
        history_ms=config.store.history_ms,
        keep_ms=config.store.keep_ms,
    )

    def start(trigger: str, on_batch: Callable[[BatchReport], None]) -> TieredRun:
        return start_tiered(
            commands,
            what,
            outlet=Outlet(destinations_of(config), sink_of(config.rejects)),
            checkpoint=config.checkpoint,
            trigger=trigger,
            name=config.name,
            on_batch=on_batch,
        )

    return start


def frame_of(spark: SparkSession, config: AnyJobConfig, until_ms: int | None) -> DataFrame:
    """The frame of :func:`wheel_udf.operator.schedule` over the config's source, or of :func:`wheel_udf.watch_operator.watch` over its two."""
    if isinstance(config, WatchJobConfig):
        return watched_frame(spark, config, clock_of(config.clock, until_ms))
    assert isinstance(config, JobConfig), "there are two kinds"
    return schedule(
        commands_of(spark, config),
        wheel=config.wheel.wheel(),
        clock=clock_of(config.clock, until_ms),
        shards=config.wheel.shards,
        contract=contract_of(config),
        memory_ms=config.contract.memory_ms,
        limit=config.limits.fired_per_batch,
        limits=limits_of(config),
    )


def commands_of(spark: SparkSession, config: JobConfig) -> DataFrame:
    """The stream of commands from the config's source and the topics of its delay levels."""
    topics = {} if config.levels is None else config.levels.topics
    paused = () if config.levels is None else config.levels.paused
    topics_of_levels = [
        LevelTopic(topic, level_ms, paused=level_ms in paused) for topic, level_ms in sorted(topics.items())
    ]
    return read_commands(spark, config.source, preset=config.contract.preset, level_topics=topics_of_levels)


def limits_of(config: JobConfig) -> Limits:
    """The bounds on what is pending."""
    return Limits(**config.limits.bounds, soft=config.limits.soft)


def clock_of(clock: models.ClockConfig, until_ms: int | None) -> Clock:
    """The clock of the section ``clock``."""
    match clock:
        case models.EventClockConfig():
            return EventClock(
                delay_ms=clock.delay_ms,
                max_ahead_ms=clock.max_ahead_ms,
                heartbeat_ms=clock.heartbeat_ms,
                until_ms=until_ms,
            )
        case models.ProcessingClockConfig():
            return ProcessingClock(heartbeat_ms=clock.heartbeat_ms, until_ms=until_ms)
        case models.SimulatedClockConfig():
            return SimulatedClock(
                start_ms=clock.start_ms,
                step_ms=clock.step_ms,
                instants_ms=clock.instants_ms or (),
                until_ms=until_ms,
            )


def contract_of(config: JobConfig) -> Contract:
    """The contract of the commands; its allow-list is the keys of ``destinations``."""
    return Contract(
        max_delay_ms=config.contract.max_delay_ms,
        max_value_bytes=config.contract.max_value_bytes,
        destinations=tuple(config.destinations),
        default_destination=config.contract.default_destination,
        max_lateness_ms=config.contract.max_lateness_ms,
        levels=None if config.levels is None else config.levels.levels(config.wheel.tick_ms),
    )


def destinations_of(config: AnyJobConfig) -> Destinations:
    """The table of names and sinks."""
    return Destinations({pattern: sink_of(sink) for pattern, sink in config.destinations.items()})


def sink_of(sink: models.SinkConfig) -> Sink:
    """The sink of a destination or of the rejects."""
    if sink.sink == "kafka":
        return KafkaSink(options=sink.options, create=sink.create, topic=sink.topic)
    if sink.sink == "delta":
        return DeltaSink(path=sink.location, create=sink.create)
    return FileSink(path=sink.location, format=sink.sink)


# --- settings of a planned batch ----------------------------------------------------------------------------------


def row_settings(config: JobConfig, until_ms: int | None) -> dict[str, Any]:
    """The settings that change the rows of a batch, as JSON can hold them. No options but one: they may hold secrets."""
    settings = {
        "contract": config.contract.model_dump(mode="json"),
        "clock": config.clock.model_dump(mode="json", exclude={"heartbeat_ms"}),
        "until_ms": until_ms,
        "limits": config.limits.model_dump(mode="json"),
        # What is paused is not in the rows of a batch, whenever it was planned.
        "levels": config.levels and config.levels.model_dump(mode="json", exclude={"paused"}),
        "destinations": [[name, sink.sink, sink.path] for name, sink in config.destinations.items()],
        "rejects": [config.rejects.sink, config.rejects.topic or config.rejects.path],
    }
    end = kafka_options.option(config.source.options, _ENDING_OFFSETS)
    return settings if end is None else settings | {"ending_offsets": end}


def with_row_settings(config: JobConfig, recorded: Mapping[str, Any]) -> tuple[JobConfig, int | None]:
    """The config as it was when a batch was planned, and the until of then; the rest (source, triggers, creation, options) is today's.

    Raises:
        ConfigError: Rows of the batch went to a Kafka cluster that today's config does not have: how to reach it is not recorded.
    """
    sinks = {
        name: _sink_of_then(config.destinations.get(name), sink, path, f"destinations.{name}")
        for name, sink, path in recorded["destinations"]
    }
    rejects, place = recorded["rejects"]
    changes = {
        "contract": models.ContractConfig.model_construct(**recorded["contract"]),
        "clock": type(config.clock).model_construct(**{**config.clock.model_dump(), **recorded["clock"]}),
        "limits": models.LimitsConfig.model_construct(**recorded["limits"]),
        "levels": _levels_of_then(recorded["levels"]),
        "destinations": sinks,
        "rejects": _sink_of_then(config.rejects, rejects, place, "rejects"),
        "source": _source_of_then(config.source, recorded.get("ending_offsets")),
    }
    until_ms: int | None = recorded["until_ms"]
    return config.model_copy(update=changes), until_ms


def _sink_of_then(
    today: models.SinkConfig | None, sink: str, place: str | None, field: str
) -> models.SinkConfig:
    """A sink as recorded: its kind, and its path or (of rejects in Kafka) topic."""
    create = today is not None and today.create
    if sink != "kafka":
        return models.SinkConfig.model_construct(sink=sink, path=place, create=create)
    if today is None or today.sink != "kafka":
        raise ConfigError(
            "the last run has left a planned batch with rows for Kafka",
            field=field,
            rule="sink: kafka with its options, until that batch is done",
            hint="start once with the old setting and --trigger available-now, then change it",
        )
    return today.model_copy(update={"topic": place})


def _levels_of_then(recorded: Mapping[str, Any] | None) -> models.LevelsConfig | None:
    if recorded is None:
        return None
    return models.LevelsConfig.model_construct(
        **{**recorded, "list_ms": tuple(recorded["list_ms"])}, paused=()
    )


def _source_of_then(source: models.SourceConfig, end: str | None) -> models.SourceConfig:
    if source.format != "kafka":
        return source
    options = {key: value for key, value in source.options.items() if key.lower() != _ENDING_OFFSETS.lower()}
    return source.model_copy(update={"options": options | ({} if end is None else {_ENDING_OFFSETS: end})})


def note_settings(config: AnyJobConfig, until_ms: int | None) -> dict[str, Any] | None:
    """Notes today's settings for the batches that are still to be planned.

    Returns:
        The settings of a batch that was planned under others and is still to be done; None if there is none.

    Raises:
        GeometryChangedError: The checkpoint was made with another geometry, shard count or clock.
        CheckpointError: The checkpoint is damaged or not one of this package.
        LeaseError: The checkpoint is in use.
    """
    if isinstance(config, WatchJobConfig):
        _note_or_refuse(config.checkpoint, watch_row_settings(config, until_ms))
        return None
    assert isinstance(config, JobConfig), "there are two kinds"
    now = row_settings(config, until_ms)
    if config.mode == "tiered":
        _note_or_refuse(f"{config.checkpoint}/wheel", now)
        return None
    # The lease as deliver() takes it: one that an ended query of this process still holds is given back first.
    with closing(take_lease(config.checkpoint)):
        open_config_checkpoint(config)
        journal = PlannedSettings(config.checkpoint)
        planned = planned_batch(config.checkpoint)
        recorded = journal.settings_of(planned) if planned is not None else None
        newest = last_planned(config.checkpoint)
        _require_same_topics(journal, newest, now)
        journal.record(now, 0 if newest is None else newest + 1)
    return recorded if recorded != now else None


def _note_or_refuse(checkpoint: str, now: dict[str, Any]) -> None:
    """As :func:`note_settings`, where a batch that was planned under other settings is not done for the user."""
    if last_planned(checkpoint) is None:
        return
    with closing(take_lease(checkpoint)):
        journal, planned = PlannedSettings(checkpoint), planned_batch(checkpoint)
        recorded = journal.settings_of(planned) if planned is not None else None
        if recorded not in (None, now):
            raise ConfigError(
                "the last run has left a planned batch under other settings",
                field="checkpoint",
                value=checkpoint,
                rule="that batch is done with the settings it was planned with",
                hint="start once with the old settings, then change them",
            )
        newest = last_planned(checkpoint)
        _require_same_topics(journal, newest, now)
        journal.record(now, 0 if newest is None else newest + 1)


def _require_same_topics(journal: PlannedSettings, newest: int | None, now: Mapping[str, Any]) -> None:
    """Refuses other topics of delay levels than those that the checkpoint has offsets of: Spark knows its sources by their order alone."""
    before = None if newest is None else journal.settings_of(newest)
    if before is None:
        return
    there, here = (sorted((each.get("levels") or {}).get("topics", {})) for each in (before, now))
    if there != here:
        raise ConfigError(
            "the checkpoint has offsets of other topics of levels",
            field="levels.topics",
            value=", ".join(here) or "none",
            rule=f"fixed by the first start: {', '.join(there) or 'none'}",
            hint="read other topics with a job of its own, or start with a new checkpoint",
        )


def open_config_checkpoint(config: AnyJobConfig) -> None:
    """Makes or compares the identity of the config's checkpoint."""
    wheel = config.wheel.wheel().fingerprint()
    if isinstance(config, WatchJobConfig):
        identity = watch_fingerprint(wheel)
    else:
        assert isinstance(config, JobConfig), "there are two kinds"
        identity = levels.fingerprint(wheel, leveled=config.levels is not None)
    open_checkpoint(
        config.checkpoint,
        name=config.name,
        wheel_fingerprint=identity,
        shards=config.wheel.shards,
        clock_kind=config.clock.kind,
    )


# --- running ----------------------------------------------------------------------------------------------------------


class Query(Protocol):
    """What of Spark's query is used here; tests have their own."""

    def awaitTermination(self, timeout: Any) -> bool | None:  # noqa: N802  (Spark's name)
        """Waits for the end, at most so many seconds; whether it has come."""

    def stop(self) -> None:
        """Stops the query; Spark's own in the middle of a batch, if there is one."""

    @property
    def status(self) -> Mapping[str, Any]:
        """Has ``isTriggerActive``: whether a batch is being planned or runs."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802  (Spark's name)
        """The progress of the last batch that was committed, or None."""


class Watch:
    """Takes the reports of a run, prints a line for each, and knows when the run is to end.

    Args:
        say: Takes the lines.
        until_ms: End after the batch whose clock (or watermark) has come here with nothing due left; None: never.
    """

    def __init__(self, say: Say, until_ms: int | None) -> None:
        self.summary = Summary()
        self._say, self._until_ms = say, until_ms
        self._newest_batch = -1
        self._last_batch: int | None = None

    def on_batch(self, report: BatchReport) -> None:
        """Takes a report (on Spark's thread)."""
        self.summary.add(report)
        self._newest_batch = max(self._newest_batch, report.batch_id)
        self._say(progress_line(report))
        if self._last_batch is None and self._has_reached_until(report):
            self._last_batch = report.batch_id

    def _has_reached_until(self, report: BatchReport) -> bool:
        # The clock of an event-time batch is the watermark before it; the one after it is as certain, and may be the last to come.
        instants = [at for at in (report.clock_ms, report.watermark_ms) if at is not None]
        if self._until_ms is None or not instants or max(instants) < self._until_ms or not report.complete:
            return False
        return not report.backlog and (report.next_due_ms is None or report.next_due_ms > self._until_ms)

    def end_after_this_batch(self) -> None:
        """Asks for the end: after the batch that runs, if one does."""
        if self._last_batch is None:
            self._last_batch = self._newest_batch + 1

    @property
    def wants_end(self) -> bool:
        """Whether the end was asked for, by ``until`` or by :meth:`end_after_this_batch`."""
        return self._last_batch is not None

    def is_over(self, query: Query) -> bool:
        """Whether the query can be stopped now: asked for, and its last batch is committed or none runs."""
        if self._last_batch is None:
            return False
        progress = query.lastProgress
        committed = progress is not None and progress["batchId"] >= self._last_batch
        return committed or not query.status["isTriggerActive"]


def supervise(query: Query, watch: Watch) -> None:
    """Waits for the end of a query and stops it when the watch says so.

    Raises:
        StreamingQueryException: The query failed.
    """
    while not query.awaitTermination(_POLL_S):
        if watch.is_over(query):
            query.stop()
            return


@contextmanager
def graceful_signals(watch: Watch, say: Say) -> Iterator[None]:
    """While inside, the first SIGINT or SIGTERM asks the watch for the end; a second one acts as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(number: int, _frame: FrameType | None) -> None:
        say(f"{signal.Signals(number).name}: stopping after this batch; once more stops at once")
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        watch.end_after_this_batch()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(config: AnyJobConfig, until_ms: int | None, say: Say) -> int:
    """Runs the job until its input ends, ``until`` is reached, or a signal comes.

    Args:
        config: The checked config.
        until_ms: Where the clock is run on to (UTC epoch ms), or None.
        say: Takes the progress lines and the summary.

    Returns:
        0.

    Raises:
        WheelError: Config, source, checkpoint or lease do not allow the start.
        StreamingQueryException: The query failed.
    """
    with session(config.name) as spark:
        start = compose(spark, config, until_ms)
        recorded = note_settings(config, until_ms)
        bounded = config.trigger == models.AVAILABLE_NOW
        watch = Watch(say, None if bounded else until_ms)
        with graceful_signals(watch, say):
            try:
                if recorded is not None:
                    _finish_planned_batch(spark, config, recorded, watch, say)
                if not watch.wants_end:
                    supervise(start(config.trigger, watch.on_batch), watch)
            finally:
                say(watch.summary.render())
    return SUCCESS


def _finish_planned_batch(
    spark: SparkSession, config: AnyJobConfig, recorded: Mapping[str, Any], watch: Watch, say: Say
) -> None:
    """Runs the one batch that an earlier run has planned and not committed, with the settings of then."""
    say("the last run has left a planned batch: it runs first, with the settings it was planned with")
    assert isinstance(config, JobConfig), "of a purgatory nothing is recorded that was to be done"
    then, until_then_ms = with_row_settings(config, recorded)
    supervise(compose(spark, then, until_then_ms)(ONCE, watch.on_batch), watch)


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """The session for a job: the running one, which is left running, or one of its own, which is stopped."""
    running = SparkSession.getActiveSession()
    spark = build_session(name)
    try:
        yield spark
    finally:
        if running is None:
            kafka_admin.close_all()
            stop_session(spark)
