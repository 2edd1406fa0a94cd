"""Composes the job: from a checked config to the objects of the library and a query that can be started.

The same that a notebook would write::

    read_commands -> schedule -> deliver             a scheduler, mode direct
    read_commands -> start_tiered                    a scheduler, mode tiered
    read_both -----> watch ----> deliver             a purgatory
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.checkpoint.identity import check_checkpoint
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.commands import delay_levels
from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ConfigError
from wheel_udf.control.clocks import Clock, EventClock, ProcessingClock, SimulatedClock
from wheel_udf.delivery.query import deliver
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job.models.purgatory import PurgatoryConfig
from wheel_udf.job.models.scheduler import JobConfig, SchedulerConfig, TieredConfig
from wheel_udf.job.models.sink import (
    AnySink,
    DeltaSinkConfig,
    FileSinkConfig,
    HttpSinkConfig,
    JdbcSinkConfig,
    KafkaSinkConfig,
    OwnSinkConfig,
)
from wheel_udf.job.models.wheel import (
    ClockConfig,
    EventClockConfig,
    ProcessingClockConfig,
    SimulatedClockConfig,
)
from wheel_udf.job.sources.commands import read_commands
from wheel_udf.job.sources.files import known_columns
from wheel_udf.job.sources.operations import read_both
from wheel_udf.job.sources.topics import LevelTopic
from wheel_udf.pending.entries import PendingWork
from wheel_udf.policies.limits import Limits
from wheel_udf.policies.punctual import Punctual
from wheel_udf.purgatory.state import watch_fingerprint
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations, Sink
from wheel_udf.sinks.file_sink import FileSink
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.sinks.own_sink import make_own_sink
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.observation import observed
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.stream.watch_operator import watch
from wheel_udf.tiered.checks import check_tiered
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

SUCCESS = 0


class Query(Protocol):
    """The part of Spark's query that the job uses; tests have their own."""

    def awaitTermination(self, timeout: Any) -> bool | None:  # noqa: N802  (Spark's name)
        """Waits for the end, at most so many seconds; returns whether it has come."""

    def stop(self) -> None:
        """Stops the query; Spark's own query stops in the middle of a running batch."""

    @property
    def status(self) -> Mapping[str, Any]:
        """Has ``isTriggerActive``: whether a batch is being planned or runs."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802  (Spark's name)
        """The progress of the last batch that was committed, or None."""


@dataclass(frozen=True)
class Starter:
    """Starts the query of a composed job.

    Attributes:
        start: (trigger, callback for each report) -> the running query.
        columns: As :func:`columns_of` returns them.
    """

    start: Callable[[str, Callable[[BatchReport], None]], Query]
    columns: Mapping[str, Sequence[str]]

    def __call__(self, trigger: str, on_batch: Callable[[BatchReport], None]) -> Query:
        """Starts the query."""
        return self.start(trigger, on_batch)


def compose(
    spark: SparkSession,
    config: JobConfig,
    until_ms: int | None = None,
    lease_of: Callable[[str], Lease] | None = None,
) -> Starter:
    """Composes source, operator and sinks as configured. Starts nothing.

    Args:
        spark: The session.
        config: The checked config.
        until_ms: The instant to which the clock runs (UTC epoch ms), or None.
        lease_of: As for :func:`~wheel_udf.deliver`.

    Returns:
        What starts the query.

    Raises:
        ConfigError: The source cannot be opened.
        ContractError: The source does not fit the command contract.
    """
    sources = sources_of(spark, config)
    columns = columns_of(config, sources)
    if isinstance(config, TieredConfig):
        return Starter(_start_of_tiered(sources["source"], config, until_ms, lease_of), columns)
    scheduled = frame_of(config, sources, until_ms)
    if config.metrics is not None:
        scheduled = observed(scheduled)
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
            lease_of=lease_of,
        )

    return Starter(start, columns)


def _start_of_tiered(
    commands: DataFrame,
    config: TieredConfig,
    until_ms: int | None,
    lease_of: Callable[[str], Lease] | None,
) -> Callable[[str, Callable[[BatchReport], None]], Query]:
    what = tiered_wheel_of(config, until_ms)

    def start(trigger: str, on_batch: Callable[[BatchReport], None]) -> TieredRun:
        return start_tiered(
            commands,
            what,
            outlet=Outlet(
                destinations_of(config), sink_of(config.rejects), observes=config.metrics is not None
            ),
            checkpoint=config.checkpoint,
            trigger=trigger,
            name=config.name,
            on_batch=on_batch,
            lease_of=lease_of,
        )

    return start


def tiered_wheel_of(config: TieredConfig, until_ms: int | None) -> TieredWheel:
    """Returns what a run of the tiered mode is made of."""
    clock = clock_of(config.clock, until_ms)
    assert not isinstance(clock, SimulatedClock), "the model of the tiered mode has none"
    return TieredWheel(
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
        lead_windows=config.store.lead_windows,
        punctual=punctual_of(config),
    )


def sources_of(spark: SparkSession, config: JobConfig) -> dict[str, DataFrame]:
    """Opens the config's source or sources; returns them by section."""
    if isinstance(config, PurgatoryConfig):
        operations, events = read_both(spark, config.operations, config.events)
        return {"operations": operations, "events": events}
    assert isinstance(config, SchedulerConfig), "there are two kinds"
    return {"source": _commands_of(spark, config)}


def columns_of(config: JobConfig, sources: Mapping[str, DataFrame]) -> dict[str, Sequence[str]]:
    """Returns, by section, the columns that files and tables have; no section whose columns config or contract make."""
    return {
        name: known_columns(frame)
        for name, frame in sources.items()
        if (section := getattr(config, name)).format != "kafka"
        and not getattr(section, "columns", None)
        and (section.format != "json" or section.schema_ddl is not None)
    }


def frame_of(config: JobConfig, sources: Mapping[str, DataFrame], until_ms: int | None) -> DataFrame:
    """Returns the frame of ``schedule`` or ``watch`` over the sources of the config."""
    clock = clock_of(config.clock, until_ms)
    if isinstance(config, PurgatoryConfig):
        return _watched(config, sources["operations"], sources["events"], clock)
    assert isinstance(config, SchedulerConfig), "there are two kinds"
    return schedule(
        sources["source"],
        wheel=config.wheel.wheel(),
        clock=clock,
        shards=config.wheel.shards,
        contract=contract_of(config),
        memory_ms=config.contract.memory_ms,
        limit=config.limits.fired_per_batch,
        limits=limits_of(config),
        punctual=punctual_of(config),
    )


def _watched(config: PurgatoryConfig, operations: DataFrame, events: DataFrame, clock: Clock) -> DataFrame:
    contract = config.contract
    named = "destination" in (name.lower() for name in operations.columns)
    if config.watch.deliver and not named and contract.default_destination is None:
        raise ConfigError(
            "outcomes have no destination",
            field="contract.default_destination",
            rule="a default, or a column destination of the operations",
            hint="watch.deliver: [] if they are only to be counted",
        )
    return watch(
        operations,
        events,
        wheel=config.wheel.wheel(),
        clock=clock,
        shards=config.wheel.shards,
        contract=Contract(
            max_delay_ms=contract.max_delay_ms,
            max_value_bytes=contract.max_value_bytes,
            destinations=tuple(config.destinations),
            default_destination=contract.default_destination,
        ),
        lookback_ms=config.watch.lookback_ms,
        memory_ms=contract.memory_ms,
        deliver=config.watch.deliver,
    )


def _commands_of(spark: SparkSession, config: SchedulerConfig) -> DataFrame:
    topics = {} if config.levels is None else config.levels.topics
    paused = () if config.levels is None else config.levels.paused
    topics_of_levels = [
        LevelTopic(topic, level_ms, paused=level_ms in paused) for topic, level_ms in sorted(topics.items())
    ]
    return read_commands(spark, config.source, preset=config.contract.preset, level_topics=topics_of_levels)


def limits_of(config: SchedulerConfig) -> Limits:
    """Returns the bounds on what is pending."""
    return Limits(**config.limits.bounds, soft=config.limits.soft)


def punctual_of(config: SchedulerConfig) -> Punctual | None:
    """Returns how rows are handed to the sender; None if batches release what is due."""
    delivery = config.delivery
    if not delivery.punctual:
        return None
    kinds = {name: isinstance(sink, KafkaSinkConfig) for name, sink in config.destinations.items()}
    return Punctual(
        ahead_ms=delivery.ahead_ms,
        destinations=tuple(name for name, is_kafka in kinds.items() if is_kafka),
        among=tuple(kinds),
        rows=delivery.rows,
        bytes=delivery.bytes,
    )


def clock_of(clock: ClockConfig, until_ms: int | None) -> Clock:
    """Returns the clock of the section ``clock``."""
    match clock:
        case EventClockConfig():
            return EventClock(
                delay_ms=clock.delay_ms,
                max_ahead_ms=clock.max_ahead_ms,
                heartbeat_ms=clock.heartbeat_ms,
                until_ms=until_ms,
            )
        case ProcessingClockConfig():
            return ProcessingClock(heartbeat_ms=clock.heartbeat_ms, until_ms=until_ms)
        case SimulatedClockConfig():
            return SimulatedClock(
                start_ms=clock.start_ms,
                step_ms=clock.step_ms,
                instants_ms=clock.instants_ms or (),
                until_ms=until_ms,
            )


def contract_of(config: SchedulerConfig) -> Contract:
    """Returns the contract of the commands. Its allow-list is the keys of ``destinations``."""
    return Contract(
        max_delay_ms=config.contract.max_delay_ms,
        max_value_bytes=config.contract.max_value_bytes,
        destinations=tuple(config.destinations),
        default_destination=config.contract.default_destination,
        max_lateness_ms=config.contract.max_lateness_ms,
        levels=None if config.levels is None else config.levels.levels(config.wheel.tick_ms),
    )


def destinations_of(config: JobConfig) -> Destinations:
    """Returns the names and patterns of destinations, each with its sink."""
    return Destinations({pattern: sink_of(sink) for pattern, sink in config.destinations.items()})


def sink_of(sink: AnySink) -> Sink:
    """Returns the sink of a destination or of the rejects."""
    match sink:
        case KafkaSinkConfig():
            return KafkaSink(options=sink.options, create=sink.create, topic=sink.place)
        case DeltaSinkConfig():
            return DeltaSink(path=sink.path, create=sink.create)
        case FileSinkConfig():
            return FileSink(path=sink.path, format=sink.sink)
        case HttpSinkConfig() | JdbcSinkConfig():
            return sink.made()
        case OwnSinkConfig():
            return make_own_sink(sink.sink, sink.options)


def check_config_checkpoint(spark: SparkSession, config: JobConfig) -> None:
    """Compares the config with its checkpoint and its slot store. Creates nothing.

    Raises:
        GeometryChangedError: They were made with another geometry, shard count or clock, or in another mode.
        CheckpointError: The checkpoint is damaged or not one of this package.
        StoreError: The slot store cannot be used, or belongs to another checkpoint.
    """
    if isinstance(config, TieredConfig):
        check_tiered(spark, tiered_wheel_of(config, until_ms=None), config.checkpoint)
    else:
        check_checkpoint(config.checkpoint, **identity_of(config))


def identity_of(config: JobConfig) -> dict[str, Any]:
    """Returns what a checkpoint of this config is recognised by; arguments of ``open_checkpoint``."""
    wheel = config.wheel.wheel().fingerprint()
    if isinstance(config, PurgatoryConfig):
        identity = watch_fingerprint(wheel)
    else:
        assert isinstance(config, SchedulerConfig), "there are two kinds"
        identity = delay_levels.fingerprint(wheel, leveled=config.levels is not None)
    return {
        "wheel_fingerprint": identity,
        "shards": config.wheel.shards,
        "clock_kind": config.clock.kind,
    }


def pending_work_of(spark: SparkSession, config: JobConfig) -> PendingWork:
    """Returns where the pending work of a job is; its store, in the tiered mode, must exist."""
    if not isinstance(config, TieredConfig):
        return PendingWork(config.checkpoint)
    store = SlotStore.open(spark, config.store.path, config.wheel.layout(), create=False)
    return PendingWork(config.checkpoint, store, contract_of(config))
