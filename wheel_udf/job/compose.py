"""Composes the job: from a checked config to the objects of the library and a query that can be started.

The same that a notebook would write::

    read_commands -> schedule -> deliver             a scheduler, mode direct
    read_commands -> start_tiered                    a scheduler, mode tiered
    read_both -----> watch ----> deliver             a purgatory
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.checkpoint.identity import check_checkpoint
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.commands import delay_levels
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.header_names import SETTINGS, HeaderNames
from wheel_udf.common.errors import ConfigError
from wheel_udf.control.clocks import Clock, EventClock, ProcessingClock, SimulatedClock
from wheel_udf.delivery.query import deliver
from wheel_udf.job.models.levels import FixedLevelsConfig
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.models.scheduler import SchedulerConfig, TieredConfig
from wheel_udf.job.models.service import ServedConfig, rates_of, retries_of
from wheel_udf.job.models.sink import (
    AnySink,
    DeltaSinkConfig,
    FileSinkConfig,
    HttpSinkConfig,
    IcebergSinkConfig,
    JdbcSinkConfig,
    KafkaSinkConfig,
    OwnSinkConfig,
)
from wheel_udf.job.models.wheel import ClockConfig
from wheel_udf.job.named import located
from wheel_udf.job.sources.commands import read_commands
from wheel_udf.job.sources.files import known_columns
from wheel_udf.job.sources.operations import read_both
from wheel_udf.pending.entries import PendingWork
from wheel_udf.policies.limits import Limits
from wheel_udf.policies.punctual import Punctual
from wheel_udf.purgatory.state import watch_fingerprint
from wheel_udf.sinks.catalog_sink import CatalogTableSink
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations, Sink
from wheel_udf.sinks.file_sink import FileSink
from wheel_udf.sinks.http_sink import HttpSink
from wheel_udf.sinks.iceberg_sink import IcebergSink
from wheel_udf.sinks.jdbc_sink import JdbcSink
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

_SERVICE: Final = frozenset(ServedConfig.model_fields)
"""Settings of a destination that are not those of its sink."""

_CLOCKS: Final[Mapping[str, Callable[..., Clock]]] = {
    clock.kind: clock for clock in (EventClock, ProcessingClock, SimulatedClock)
}


Query = StreamingQuery | TieredRun


def compose(
    config: AnyConfig,
    sources: Mapping[str, DataFrame],
    until_ms: int | None = None,
    lease_of: Callable[[str], Lease] | None = None,
) -> Callable[..., Query]:
    """Composes source, operator and sinks as configured. Starts nothing.

    Args:
        config: The checked config.
        sources: As :func:`sources_of` returns them.
        until_ms: The instant to which the clock runs (UTC epoch ms), or None.
        lease_of: As for :func:`~wheel_udf.deliver`.

    Returns:
        (trigger, on_batch, by name: as for :func:`~wheel_udf.deliver`) -> the running query.

    Raises:
        ContractError: The source does not fit the command contract.
    """
    destinations, rejects = destinations_of(config), sink_of(config.rejects)
    run: dict[str, Any] = {"checkpoint": config.checkpoint, "name": config.name, "lease_of": lease_of}
    if isinstance(config, TieredConfig):
        what = tiered_wheel_of(config, until_ms)
        outlet = Outlet(destinations, rejects, observes=config.metrics.observed)
        return partial(start_tiered, sources["source"], what, outlet=outlet, **run)
    scheduled = frame_of(config, sources, until_ms)
    if config.metrics.observed:
        scheduled = observed(scheduled)
    return partial(deliver, scheduled, destinations=destinations, rejects=rejects, **run)


def tiered_wheel_of(config: TieredConfig, until_ms: int | None) -> TieredWheel:
    """Returns what a run of the tiered mode is made of."""
    return TieredWheel(
        layout=config.wheel.layout(),
        store=config.store.folder,
        on_limit=config.limits.on_limit,
        history_ms=config.store.history_ms,
        keep_ms=config.store.keep_ms,
        lead_windows=config.store.lead_windows,
        **_wheel_settings(config, until_ms),
    )


def _wheel_settings(config: SchedulerConfig, until_ms: int | None) -> dict[str, Any]:
    """The settings of a wheel in both modes."""
    return {
        "clock": clock_of(config.clock, until_ms),
        "shards": config.wheel.shards,
        "contract": contract_of(config),
        "memory_ms": config.contract.memory_ms,
        "limit": config.limits.fired_per_batch,
        "limits": Limits(**config.limits.bounds, soft=config.limits.soft),
        "punctual": punctual_of(config),
        "retries": retries_of(config.destinations, config.dead_letters),
        "rates": rates_of(config.destinations, config.wheel.shards),
    }


def sources_of(spark: SparkSession, config: AnyConfig) -> dict[str, DataFrame]:
    """Opens the config's source or sources; returns them by section."""
    if isinstance(config, PurgatoryConfig):
        operations, events = read_both(spark, config.operations, config.events)
        return {"operations": operations, "events": events}
    contract = config.contract
    commands = read_commands(
        spark,
        config.source,
        preset=contract.preset,
        levels=config.levels,
        names=header_names_of(config),
        default_delay_ms=contract.default_delay_ms,
    )
    return {"source": commands}


def header_names_of(config: SchedulerConfig) -> HeaderNames:
    """Returns the headers of other systems that are read; with fixed levels their numbers are those of the list."""
    levels = config.levels
    listed = {"levels_ms": levels.list_ms} if isinstance(levels, FixedLevelsConfig) else {}
    return HeaderNames(**config.contract.named_headers, **listed)  # type: ignore[arg-type]


def columns_of(config: AnyConfig, sources: Mapping[str, DataFrame]) -> dict[str, Sequence[str]]:
    """Returns, by section, the columns that files and tables have; no section whose columns config or contract make."""
    return {
        name: known_columns(frame)
        for name, frame in sources.items()
        if (section := getattr(config, name)).format != "kafka"
        and not getattr(section, "columns", None)
        and (section.format != "json" or section.schema_ddl is not None)
    }


def frame_of(config: AnyConfig, sources: Mapping[str, DataFrame], until_ms: int | None) -> DataFrame:
    """Returns the frame of ``schedule`` or ``watch`` over the sources of the config."""
    if isinstance(config, PurgatoryConfig):
        return _watched(config, sources["operations"], sources["events"], clock_of(config.clock, until_ms))
    return schedule(sources["source"], wheel=config.wheel.wheel(), **_wheel_settings(config, until_ms))


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
        contract=contract_of(config),
        lookback_ms=config.watch.lookback_ms,
        memory_ms=contract.memory_ms,
        deliver=config.watch.deliver,
    )


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
    return _CLOCKS[clock.kind](**clock.model_dump(exclude={"kind"}), until_ms=until_ms)


def contract_of(config: AnyConfig) -> Contract:
    """Returns the contract of commands or operations. Its allow-list is the keys of ``destinations``."""
    of_records = {"preset", *SETTINGS, "default_delay_ms"}
    bounds = config.contract.model_dump(exclude={"memory_ms", *of_records})
    levels = config.levels if isinstance(config, SchedulerConfig) else None
    return Contract(
        **bounds,
        destinations=tuple(config.destinations),
        levels=None if levels is None else levels.levels(config.wheel.tick_ms),
    )


def destinations_of(config: AnyConfig) -> Destinations:
    """Returns the names and patterns of destinations, each with its sink."""
    return Destinations({pattern: sink_of(sink) for pattern, sink in config.destinations.items()})


def sink_of(sink: AnySink) -> Sink:  # noqa: PLR0911  # one for each kind
    """Returns the sink of a destination or of the rejects."""
    match sink:
        case KafkaSinkConfig():
            return KafkaSink(options=sink.options, create=sink.create, topic=sink.place)
        case DeltaSinkConfig():
            return _tables_of(sink)
        case IcebergSinkConfig():
            return IcebergSink(table=sink.table, create=sink.create)
        case FileSinkConfig():
            return FileSink(path=sink.path, format=sink.sink)
        case HttpSinkConfig():
            given = sink.model_dump(exclude={"sink", *_SERVICE})
            back: dict[str, Any] = {"waits": False, "cooldown_ms": 0} if sink.comes_back else {}
            return HttpSink(**given | back, retries=sink.retries.in_batch)
        case JdbcSinkConfig():
            given = sink.model_dump(exclude={"sink", "schema_", *_SERVICE})
            back = {"when_down": "undeliverable"} if sink.comes_back else {}
            return JdbcSink(**given | back, schema=sink.schema_)
        case OwnSinkConfig():
            return make_own_sink(sink.sink, sink.options)


def _tables_of(sink: DeltaSinkConfig) -> DeltaSink | CatalogTableSink:
    if sink.path is not None:
        return DeltaSink(path=sink.path, create=sink.create)
    assert sink.table is not None, "it has a path or a table"
    return CatalogTableSink(table=sink.table, create=sink.create)


def check_config_checkpoint(spark: SparkSession, config: AnyConfig) -> None:
    """Compares the config with its checkpoint and its slot store. Creates nothing.

    Raises:
        GeometryChangedError: They were made with another geometry, shard count or clock, or in another mode.
        CheckpointError: The checkpoint is damaged or not one of this package.
        StoreError: The slot store cannot be used, or belongs to another checkpoint.
    """
    config = located(spark, config)
    if isinstance(config, TieredConfig):
        check_tiered(spark, tiered_wheel_of(config, until_ms=None), config.checkpoint)
    else:
        check_checkpoint(config.checkpoint, **identity_of(config))


def identity_of(config: AnyConfig) -> dict[str, Any]:
    """Returns what a checkpoint of this config is recognised by; arguments of ``open_checkpoint``."""
    wheel = config.wheel.wheel().fingerprint()
    if isinstance(config, PurgatoryConfig):
        identity = watch_fingerprint(wheel)
    else:
        identity = delay_levels.fingerprint(wheel, leveled=config.levels is not None)
    return {
        "wheel_fingerprint": identity,
        "shards": config.wheel.shards,
        "clock_kind": config.clock.kind,
    }


def pending_work_of(spark: SparkSession, config: AnyConfig) -> PendingWork:
    """Returns where the pending work of a job is, with its contract; its store, in the tiered mode, must exist."""
    config = located(spark, config)
    if not isinstance(config, TieredConfig):
        return PendingWork(config.checkpoint, contract=contract_of(config))
    store = SlotStore.open(spark, config.store.folder, config.wheel.layout(), create=False)
    return PendingWork(config.checkpoint, store, contract_of(config))
