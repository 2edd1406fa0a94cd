"""The verb ``dry-run``: checks and reports everything that can be known before a run. It starts no query and leaves
nothing behind.

Checked, in addition to the config itself: the source can be opened and has usable columns (the whole plan of the wheel
is composed on it), destinations can be written, a small file can be written where the job will write (it is removed
again), the checkpoint is one of this package, of the same mode, geometry, shards and clock, and the slot store belongs
to it. Kafka's topics are read from their clusters. All errors of destinations are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.checkpoint.spark_logs import last_planned, planned_batch
from wheel_udf.commands.delay_levels import level_name
from wheel_udf.commands.rules import MISREAD
from wheel_udf.common.errors import ConfigError, ConfigErrors, SinkError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.instants import instant_text
from wheel_udf.common.names import KAFKA_SERVERS
from wheel_udf.common.progress import PrintLine
from wheel_udf.delivery.progress import duration_text
from wheel_udf.job import kafka_options
from wheel_udf.job.begin import check_port
from wheel_udf.job.compose import (
    check_config_checkpoint,
    columns_of,
    frame_of,
    sink_of,
    sources_of,
)
from wheel_udf.job.models.api import ApiConfig
from wheel_udf.job.models.bounds import ContractConfig, DeliveryConfig
from wheel_udf.job.models.levels import LevelsConfig
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig, StreamConfig
from wheel_udf.job.models.scheduler import SchedulerConfig, TieredConfig, path_of
from wheel_udf.job.models.service import dead_letters_of
from wheel_udf.job.models.sink import AnySink, JdbcSinkConfig, KafkaSinkConfig
from wheel_udf.job.models.source import KafkaSourceConfig, SourceConfig
from wheel_udf.job.models.wheel import (
    ClockConfig,
    EventClockConfig,
    ProcessingClockConfig,
    SimulatedClockConfig,
)
from wheel_udf.job.named import check_names
from wheel_udf.job.replay import require_columns
from wheel_udf.job.sessions import session
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.sinks.destinations import DEAD, FIRED, Shape, shape_of
from wheel_udf.spark.files import open_folder
from wheel_udf.stream.frame_facts import facts_of

_LEAST_WINDOW_MS = 60_000
_WILDCARDS = str.maketrans("*?", "xx")


def run(config: AnyConfig, until_ms: int | None, print_line: PrintLine) -> None:
    """Checks and reports; see the module.

    Raises:
        WheelError: The job could not run.
    """
    check_port(config)
    with session(config.name) as spark:
        check_names(spark, config)
        sources = sources_of(spark, config)
        check_destinations(spark, config, shape_of(facts_of(frame_of(config, sources, until_ms))))
        check_config_checkpoint(spark, config)
        require_columns(config, columns_of(config, sources))
        batches = _batches_text(config)
        for line in report(config, until_ms, source_lines(config, sources), batches):
            print_line(line)


def source_lines(config: AnyConfig, sources: Mapping[str, DataFrame]) -> list[str]:
    """Returns a line for each source: where it is and which columns it has."""
    preset = _preset_text(config.contract) if isinstance(config, SchedulerConfig) else None
    return [
        f"  {name:<13} {_source_text(getattr(config, name), preset)}: {_named(frame)}"
        for name, frame in sources.items()
    ]


def _preset_text(contract: ContractConfig) -> str:
    settings = dict(contract.named_headers)
    if contract.default_delay_ms is not None:
        settings["default_delay"] = duration_text(contract.default_delay_ms)
    named = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"{contract.preset} ({named})" if named else contract.preset


def _named(frame: DataFrame) -> str:
    return ", ".join(name for name in frame.columns if name != MISREAD)


def check_destinations(spark: SparkSession, config: AnyConfig, shape: Shape) -> None:
    """Checks that each sink, the store and the checkpoint can be written; `shape` is that of the rows of destinations.

    Destinations of dead letters get rows of another shape. The names that a pattern with wildcards will match are not
    known yet. Its sink is checked with a made-up name, and
    only where missing tables may be created (otherwise the answer would always be that this name is missing).

    Raises:
        ConfigErrors: All sinks that cannot be written.
    """
    dead = (
        {}
        if isinstance(config, PurgatoryConfig)
        else dead_letters_of(config.destinations, config.dead_letters)
    )
    found = {
        f"destinations.{pattern}": _reason(spark, sink, pattern, DEAD if pattern in dead else shape)
        for pattern, sink in config.destinations.items()
    }
    found |= {
        field: _reason(spark, config.destinations[pattern], name, DEAD)
        for name, (field, pattern) in dead.items()
        if name != pattern
    }
    found["rejects"] = _reason(spark, config.rejects, None, FIRED)
    reasons = {field: reason for field, reason in found.items() if reason is not None}
    for field, place in places_written(config).items():
        reason = None if field in reasons else open_folder(place).unwritable_reason()
        if reason is not None:
            reasons[field] = f"{place}: {reason}"
    faults = [
        ConfigError(f"cannot be written, {reason}", field=field, hint=_hint(config, field, reason))
        for field, reason in reasons.items()
    ]
    if faults:
        raise ConfigErrors(faults)


def places_written(config: AnyConfig) -> dict[str, str]:
    """Returns the folders that a run of the config writes to, by their setting.

    Of a destination that is a name it is its table, if that exists or may be created; of a pattern with wildcards the
    folder of its tables, if tables may be created in it. Kafka is not among them: a record cannot be taken back.
    """
    places = {}
    for pattern, sink in config.destinations.items():
        path, creates = path_of(sink), sink.creates
        is_name = pattern == pattern.translate(_WILDCARDS)
        if path is not None and (creates or is_name):
            places[f"destinations.{pattern}"] = f"{path}/{pattern}" if is_name else path
    rejects = path_of(config.rejects)
    folder = config.store.path if isinstance(config, TieredConfig) else None
    store = {"store.path": folder} if folder is not None else {}
    return places | ({"rejects": rejects} if rejects else {}) | store | {"checkpoint": config.checkpoint}


def _reason(spark: SparkSession, sink: AnySink, pattern: str | None, shape: Shape) -> str | None:
    """Returns why a sink cannot be written; None if it can, as far as that can be known."""
    name = None if pattern is None else pattern.translate(_WILDCARDS)
    try:
        if name == pattern or sink.creates:
            return sink_of(sink).missing_reason(spark, name, shape)
        if isinstance(sink, KafkaSinkConfig):
            kafka_admin.topic_names(sink.options)
        if isinstance(sink, JdbcSinkConfig):
            sink_of(sink).missing_reason(spark, name, shape)  # of a made-up name: only whether it answers
    except SinkError as fault:
        return str(fault)
    return None


def _hint(config: AnyConfig, field: str, reason: str) -> str | None:
    sink = config.destinations.get(field.removeprefix("destinations."))
    if sink is None or "missing" not in reason:
        return None
    return f"create the {'topic' if sink.sink == 'kafka' else 'table'}, or set create: true"


def _batches_text(config: AnyConfig) -> str:
    checkpoint = config.checkpoints[-1]
    newest = last_planned(checkpoint)
    if newest is None:
        return "new: the first start creates it"
    if planned_batch(checkpoint) is not None:
        return f"continues with batch {newest}, which was planned and not committed"
    return f"continues after batch {newest}"


def report(config: AnyConfig, until_ms: int | None, sources: list[str], batches: str) -> Iterator[str]:
    """Yields the lines that describe what a run would do."""
    yield "dry run: no query is started, nothing is left behind"
    yield f"  name          {config.name}"
    yield f"  mode          {_mode_text(config)}"
    yield from sources
    yield f"  clock         {clock_text(config.clock)}" + (
        f", until {instant_text(until_ms)}" if until_ms is not None else ""
    )
    yield f"  trigger       {_trigger_text(config)}"
    yield f"  lateness      {lateness_text(config)}"
    if isinstance(config, SchedulerConfig) and config.limits.bounds:
        yield f"  limits        {limits_text(config)}"
    if isinstance(config, SchedulerConfig) and config.levels is not None:
        yield f"  levels        {levels_text(config.levels)}"
    if isinstance(config, SchedulerConfig) and config.delivery.punctual:
        yield f"  delivery      {delivery_text(config.delivery)}"
    contract = config.contract
    events = "" if isinstance(config, SchedulerConfig) else "; an event likewise, after its time"
    memory = _span(contract.memory_ms, "for ever")
    yield f"  memory        {memory} after its end, on the wheel's clock, an id is remembered{events}"
    yield f"  max_delay     {_span(contract.max_delay_ms, 'unlimited')}; max_value_bytes {contract.max_value_bytes:,}"
    for pattern, sink in config.destinations.items():
        yield f"  destination   {pattern} -> {_sink_text(sink)}"
    yield f"  rejects       {_sink_text(config.rejects, always_created=True)}"
    if (answers := api_text(config.api)) is not None:
        yield f"  api           {answers}"
    yield f"  checkpoint    {config.checkpoint}: {batches}"
    wheel = config.wheel.wheel()
    yield f"  wheel         {wheel.levels} levels of {wheel.size} buckets, {config.wheel.shards} shards"
    yield from geometry_table(wheel)


def api_text(api: ApiConfig) -> str | None:
    """Returns where the job serves metrics and answers questions; None if that is the default."""
    if not api.enabled:
        return "off: no metrics, and the verbs start a Spark of their own"
    where = f"on {api.address}, {api.port or 'any free port'}"
    return f"{where}: /metrics, /healthz; questions with the token" if api.address_is_chosen else None


def delivery_text(delivery: DeliveryConfig) -> str:
    """Returns how punctual delivery works, and what it means for a cancel."""
    ahead = "about two batches" if delivery.ahead_ms is None else duration_text(delivery.ahead_ms)
    most = f"{delivery.rows:,} at most"
    return f"punctual: rows for Kafka are handed over {ahead} ahead, {most}; a later cancel of them is late"


def limits_text(config: SchedulerConfig) -> str:
    """Returns the limits on pending entries, and what happens at them."""
    limits = config.limits
    bounds = ", ".join(f"{name} {most:,}" for name, most in limits.bounds.items())
    zone = "" if limits.soft == 1 else f" (some of them from {limits.soft:.0%} of it on)"
    pauses = limits.on_limit == "pause"
    beyond = "the intake pauses and resumes by itself" if pauses else f"new entries are rejected{zone}"
    shared = "" if isinstance(config, TieredConfig) else f"; shared by {config.wheel.shards} shards"
    return f"{bounds}; at a limit {beyond}{shared}"


def levels_text(levels: LevelsConfig) -> str:
    """Returns the policy of delay levels, and the topics that have one."""
    if levels.policy == "binary":
        policy = "binary: 1, 2, 4, ... ticks; delays are kept as they are"
    else:
        beyond = {
            "reject": "longer delays are rejected",
            "top": "longer delays get the last level and fire earlier than requested",
            "exact": "longer delays are kept as they are",
        }
        listed = " ".join(map(level_name, levels.list_ms))
        policy = f"fixed: delays are rounded up to one of {listed}; {beyond[levels.on_beyond]}"
    topics = [
        f"; topic {topic} has {level_name(level_ms)}{', paused' if level_ms in levels.paused else ''}"
        for topic, level_ms in sorted(levels.topics.items())
    ]
    return policy + "".join(topics)


def _mode_text(config: AnyConfig) -> str:
    if isinstance(config, PurgatoryConfig):
        delivered = ", ".join(config.watch.deliver) or "none"
        return (
            "purgatory: operations wait for events in Spark state, one query; "
            f"lookback {duration_text(config.watch.lookback_ms)}; delivered outcomes: {delivered}"
        )
    if not isinstance(config, TieredConfig):
        return "direct: all pending entries are in Spark state, one query from source to sinks"
    layout = config.wheel.layout()
    return (
        f"tiered: entries due within about {duration_text(layout.window_ms)} are in Spark state, "
        f"the rest in the slot store {config.store.place}; "
        f"the cost of a batch does not depend on the number pending{_short_window(layout.window_ms)}"
    )


def _short_window(window_ms: int) -> str:
    if window_ms >= _LEAST_WINDOW_MS:
        return ""
    return f"; a window of {duration_text(window_ms)} leaves its hand-over little time: rows can be late by seconds"


def geometry_table(wheel: Wheel) -> Iterator[str]:
    """Yields level, tick and interval of each level, in readable units."""
    yield f"    {'level':>5}  {'tick':>14}  {'interval':>14}"
    for level in range(1, wheel.levels + 1):
        tick, interval = duration_text(wheel.tick_of(level)), duration_text(wheel.interval_of(level))
        open_end = " and all beyond" if level == wheel.levels else ""
        yield f"    {level:>5}  {tick:>14}  {interval:>14}{open_end}"


def lateness_text(config: AnyConfig) -> str:
    """Returns the worst case of the design: a trigger and a batch, twice where two queries follow each other."""
    if config.trigger_ms is None:
        base = "an available-now run has no trigger to wait for: at worst one batch, plus the time between two runs"
    else:
        base = f"at worst one trigger ({duration_text(config.trigger_ms)}) plus the time of one batch"
    limit = config.limits.fired_per_batch if isinstance(config, SchedulerConfig) else None
    over = f", plus one batch for each {limit:,} rows that fall due together" if limit is not None else ""
    by = " of the wall clock" if config.clock.kind == "processing" else "; measured on the wheel's own clock"
    twice = "; for the intake and again for the wheel" if isinstance(config, TieredConfig) else ""
    return base + over + by + twice


def clock_text(clock: ClockConfig) -> str:
    """Returns the clock in words."""
    match clock:
        case EventClockConfig():
            ahead = _span(clock.max_ahead_ms, "any time")
            return (
                f"event: the watermark, {duration_text(clock.delay_ms)} behind the latest event time; "
                f"up to {ahead} ahead of the wall clock"
            )
        case ProcessingClockConfig():
            return f"processing: the wall clock; a heartbeat each {duration_text(clock.heartbeat_ms)}"
        case SimulatedClockConfig():
            if clock.instants_ms:
                return (
                    f"simulated: {len(clock.instants_ms)} instants from {instant_text(clock.instants_ms[0])}"
                )
            assert clock.step_ms is not None
            return (
                f"simulated: from {instant_text(clock.start_ms)} in steps of {duration_text(clock.step_ms)}"
            )


def _span(span_ms: int | None, unbounded: str) -> str:
    return unbounded if span_ms is None else duration_text(span_ms)


def _trigger_text(config: AnyConfig) -> str:
    return config.trigger if config.trigger_ms is None else f"every {duration_text(config.trigger_ms)}"


def _source_text(source: SourceConfig | StreamConfig, preset: str | None = None) -> str:
    if not isinstance(source, KafkaSourceConfig):
        feed = ", its change feed" if source.reads_changes else ""
        return f"{source.format} {source.place}{feed}"
    read = kafka_options.reader_options(source.options, source.topics)
    named = ", ".join(source.topic_names) or kafka_options.option(read, "subscribePattern")
    start = kafka_options.option(read, "startingOffsets") or "a timestamp"
    servers = kafka_options.option(read, KAFKA_SERVERS)
    return (
        f"kafka {servers}, topics {named}{f', preset {preset}' if preset else ''}, first start from {start}"
    )


def _sink_text(sink: AnySink, *, always_created: bool = False) -> str:
    created = " (created if missing)" if sink.creates or always_created else ""
    return f"{sink.sink} {sink.shown}{created}"
