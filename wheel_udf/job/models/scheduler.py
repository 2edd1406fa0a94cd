"""The whole file of a scheduler: one model for each mode, and the rules across sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import InitErrorDetails

from wheel_udf.checkpoint.identity import TIERED_PARTS
from wheel_udf.commands.contract import DEFAULT_PRESET, PRESETS
from wheel_udf.commands.delay_levels import level_name
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.names import shares_a_folder
from wheel_udf.common.paths import names_of
from wheel_udf.common.table_names import TableName, is_same, may_be_one
from wheel_udf.job.kafka_options import option
from wheel_udf.job.models.api import ApiConfig
from wheel_udf.job.models.bounds import (
    ContractConfig,
    DeliveryConfig,
    LeaseConfig,
    LimitsConfig,
    OperationContractConfig,
    RestartsConfig,
    StoreConfig,
)
from wheel_udf.job.models.levels import LevelsConfig
from wheel_udf.job.models.metrics import MetricsConfig
from wheel_udf.job.models.section import Rule, Section, all_defaults, looks_at
from wheel_udf.job.models.service import burst_faults, dead_letters_faults, not_allowed
from wheel_udf.job.models.sink import (
    AnySink,
    DestinationsConfig,
    KafkaRejectsConfig,
    KafkaSinkConfig,
    RejectsConfig,
)
from wheel_udf.job.models.source import KafkaSourceConfig, SourceConfig
from wheel_udf.job.models.tables import table_of
from wheel_udf.job.models.values import DestinationName, FolderPath, as_written, duration_or, fault_at
from wheel_udf.job.models.wheel import ClockConfig, TieredClockConfig, TieredWheelConfig, WheelConfig
from wheel_udf.punctual.producers import settings_of

AVAILABLE_NOW: Final = "available-now"

Faults = Iterator[InitErrorDetails]


Name = Annotated[StrictStr, Field(pattern="^[A-Za-z0-9._-]{1,100}$"), WithJsonSchema({"type": "string"})]


# --- any job --------------------------------------------------------------------------------------


@looks_at(contract="default_destination", destinations="*")
def _default_is_allowed(contract: OperationContractConfig, destinations: Mapping[str, AnySink]) -> Faults:
    if (default := contract.default_destination) is not None:
        yield from not_allowed(
            "the default destination is", default, destinations, "contract", "default_destination"
        )


@looks_at(source="path", operations="path", events="path", rejects="path", store="path")
def _paths_have_one_use(
    source: object = None,
    operations: object = None,
    events: object = None,
    rejects: object = None,
    store: object = None,
    checkpoint: str | None = None,
) -> Faults:
    if path_of(events) is not None and path_of(events) == path_of(operations):
        events = None  # one table may hold both
    sections = {
        "source": source,
        "operations": operations,
        "events": events,
        "rejects": rejects,
        "store": store,
    }
    paths = {(name, "path"): path_of(section) for name, section in sections.items()}
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for location, path in [*paths.items(), (("checkpoint",), checkpoint)]:
        if path is not None and (other := seen.setdefault(names_of(path), location)) != location:
            rule = f"not the path of {'.'.join(other)}"
            yield fault_at(*location, what="one path with two uses", value=path, rule=rule)


@looks_at(source="table", operations="table", events="table", rejects="table", store="table")
def _tables_have_one_use(
    source: object = None,
    operations: object = None,
    events: object = None,
    rejects: object = None,
    store: object = None,
) -> Faults:
    sections = {
        "source": source,
        "operations": operations,
        "events": events,
        "rejects": rejects,
        "store": store,
    }
    seen: dict[str, TableName] = {}
    for section, settings in sections.items():
        table = table_of(settings)
        other = None if table is None else next((name for name in seen if is_same(seen[name], table)), None)
        if table is None:
            continue
        seen.setdefault(section, table)
        if other is not None and (other, section) != ("operations", "events"):  # one table may hold both
            rule = f"not the table of {other}"
            yield fault_at(section, "table", what="one table with two uses", value=str(table), rule=rule)


@looks_at(rejects="table", destinations="*.table", store="table")
def _tables_are_apart(
    rejects: RejectsConfig, destinations: Mapping[str, AnySink], store: object = None
) -> Faults:
    if (own := table_of(rejects)) is not None and own.is_template:
        rule = "the name of one table"
        yield fault_at(
            "rejects", "table", what="{destination} has no meaning here", value=str(own), rule=rule
        )
        return
    for section, table in (("rejects", own), ("store", table_of(store))):
        for pattern, sink in destinations.items():
            template = table_of(sink)
            if table is not None and template is not None and may_be_one(table, pattern, template):
                rule = f"no table of destinations.{pattern}, {template}"
                what = f"the {section} and a destination share a table"
                yield fault_at(section, "table", what=what, value=str(table), rule=rule)
                break


@looks_at(rejects="path", destinations="*.path")
def _rejects_are_apart(rejects: RejectsConfig, destinations: Mapping[str, AnySink]) -> Faults:
    own = path_of(rejects)
    for pattern, sink in destinations.items():
        other = path_of(sink)
        if own is not None and other is not None and shares_a_folder(own, pattern, other):
            rule = f"neither in nor above the folder of destinations.{pattern} below {other}"
            what = "the rejects and a destination share a folder"
            yield fault_at("rejects", "path", what=what, value=own, rule=rule)
            return


def _rejects_are_not_served(rejects: RejectsConfig) -> Faults:
    for name in sorted(rejects.service):
        yield fault_at(
            "rejects", name, what="a setting without effect", rule="of destinations, not of the rejects"
        )


@looks_at(metrics="unhealthy_after")
def _health_allows_for_the_trigger(metrics: MetricsConfig, trigger_ms: int | None) -> Faults:
    after_ms = metrics.unhealthy_after_ms
    if after_ms is None or trigger_ms is None or after_ms > trigger_ms:
        return
    what, value = "the job would always be unhealthy", f"{after_ms} ms"
    rule = f"longer than trigger, {trigger_ms} ms"
    yield fault_at("metrics", "unhealthy_after", what=what, value=value, rule=rule)


def path_of(section: object) -> str | None:
    """Returns the path of a section that has one."""
    return getattr(section, "path", None)


class JobConfig(Section):
    """The settings of every job."""

    name: Name = "wheel"
    """Label of the query in metrics and transaction ids."""

    wheel: WheelConfig = all_defaults(WheelConfig)
    """Geometry and shards."""

    clock: ClockConfig
    """The clock of the wheel."""

    destinations: DestinationsConfig
    """The allow-list: name or pattern (* any text, ? any character) and its sink. The first match counts."""

    rejects: RejectsConfig
    """Where rows go that cannot be used or delivered, each with its reason."""

    trigger_ms: Annotated[int | None, *duration_or(AVAILABLE_NOW)] = Field(
        as_written("1 second"), alias="trigger"
    )
    """The interval between batches; or available-now: reads what is there, then ends."""

    checkpoint: FolderPath
    """The folder of the query's progress, and its identity: a stopped run continues from it."""

    lease: LeaseConfig = all_defaults(LeaseConfig)
    """One process at a time runs the checkpoint and the store."""

    restarts: RestartsConfig = all_defaults(RestartsConfig)
    """New starts of the query after a failure."""

    metrics: MetricsConfig = all_defaults(MetricsConfig)
    """When the job is unhealthy."""

    api: ApiConfig = all_defaults(ApiConfig)
    """Where the running job serves metrics and health, and answers the verbs."""

    log: Literal["text", "json"] = "text"
    """How a run prints its batches: a line to read, or a JSON object."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _default_is_allowed,
        _paths_have_one_use,
        _tables_have_one_use,
        _rejects_are_apart,
        _tables_are_apart,
        _rejects_are_not_served,
        _health_allows_for_the_trigger,
    )

    @property
    def kind(self) -> str:
        """The mode of a scheduler; ``purgatory``."""
        return str(getattr(self, "mode", "purgatory"))

    @property
    def sources(self) -> Mapping[str, SourceConfig]:
        """The sections of the sources, by name."""
        names = ("source", "operations", "events")
        return {name: getattr(self, name) for name in names if name in type(self).model_fields}

    @property
    def level_topics(self) -> Mapping[str, int]:
        """The topics of delay levels, each with its delay in ms."""
        return {}

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoints of the queries: the first one reads the sources, the last one has the wheel."""
        return (self.checkpoint,)

    @property
    def trigger(self) -> str:
        """The trigger, as :func:`~wheel_udf.deliver` takes it."""
        return AVAILABLE_NOW if self.trigger_ms is None else f"{self.trigger_ms} milliseconds"


# --- a scheduler ----------------------------------------------------------------------------------


@looks_at(source="format", contract="preset")
def _preset_fits_the_source(source: SourceConfig, contract: ContractConfig) -> Faults:
    preset = contract.preset
    reads_kafka = isinstance(source, KafkaSourceConfig)
    if reads_kafka and preset == "columns" and "preset" in contract.model_fields_set:
        what, rule = "a Kafka record has no such columns", f"one of {', '.join(PRESETS)} with a kafka source"
        yield fault_at("contract", "preset", what=what, value=preset, rule=rule)
    if not reads_kafka and preset in PRESETS:
        what, rule = "a preset of Kafka records", "columns, unless the source is kafka"
        yield fault_at("contract", "preset", what=what, value=preset, rule=rule)


@looks_at(source="format", contract="preset")
def _headers_are_read(source: SourceConfig, contract: ContractConfig) -> Faults:
    if not isinstance(source, KafkaSourceConfig):
        rule, settings = "source.format: kafka", dict(contract.named_headers)
        if contract.default_delay_ms is not None:
            settings["default_delay"] = f"{contract.default_delay_ms} ms"
    else:
        rule = "contract.preset: native"
        is_default = "preset" not in contract.model_fields_set
        settings = {} if is_default or contract.preset == "native" else contract.named_headers
    for name, value in settings.items():
        yield fault_at("contract", name, what="a setting without effect", value=value, rule=rule)


def _rejects_do_not_come_back(
    source: SourceConfig, rejects: RejectsConfig, levels: LevelsConfig | None = None
) -> Faults:
    what = "the rejects would come back as commands"
    if not isinstance(rejects, KafkaRejectsConfig) or not isinstance(source, KafkaSourceConfig):
        return
    if rejects.topic in source.topic_names:
        yield fault_at("rejects", "topic", what=what, value=rejects.topic, rule="not a topic of the source")
    if levels is not None and rejects.topic in levels.topics:
        rule = "not a topic of levels.topics"
        yield fault_at("rejects", "topic", what=what, value=rejects.topic, rule=rule)


def _topics_have_a_level(levels: LevelsConfig | None, wheel: WheelConfig) -> Faults:
    for topic, level_ms in levels.topics.items() if levels is not None else ():
        assert levels is not None
        if not levels.levels(wheel.tick_ms).has(level_ms):
            rule = "one of levels.list" if levels.policy == "fixed" else "a power of two of wheel.tick"
            value = level_name(level_ms)
            yield fault_at("levels", "topics", topic, what="not a delay level", value=value, rule=rule)


def _level_topics_are_read_once(levels: LevelsConfig | None, source: SourceConfig) -> Faults:
    if levels is None or not levels.topics:
        return
    if not isinstance(source, KafkaSourceConfig):
        yield fault_at("levels", "topics", what="a setting of kafka sources", rule="source.format: kafka")
        return
    if option(source.options, "subscribePattern") is not None:
        rule = "source.topics, or the option subscribe or assign: what a pattern matches may be one of these"
        yield fault_at("levels", "topics", what="topics beside a pattern", rule=rule)
    for topic in levels.topics:
        if topic in source.topic_names:
            what, rule = "this topic is read already", "not a topic of the source"
            yield fault_at("levels", "topics", what=what, value=topic, rule=rule)


@looks_at(destinations="*.burst", wheel="shards")
def _bursts_reach_each_shard(destinations: Mapping[str, AnySink], wheel: WheelConfig) -> Faults:
    yield from burst_faults(destinations, wheel.shards)


@looks_at(destinations="*")
def _dead_letters_are_allowed(dead_letters: str | None, destinations: Mapping[str, AnySink]) -> Faults:
    if dead_letters is not None:
        yield from not_allowed("dead letters are", dead_letters, destinations, "dead_letters")


@looks_at(destinations=("*.on_undeliverable", "*.retries"))
def _dead_letters_have_a_place(
    destinations: Mapping[str, AnySink], dead_letters: str | None = None
) -> Faults:
    yield from dead_letters_faults(destinations, dead_letters)


@looks_at(clock="kind")
def _punctual_needs_the_wall_clock(delivery: DeliveryConfig, clock: ClockConfig) -> Faults:
    if delivery.punctual and clock.kind != "processing":
        what, rule = "punctual delivery needs the wall clock", "clock.kind: processing"
        yield fault_at("delivery", "punctual", what=what, value=True, rule=rule)


@looks_at(destinations="*.options")
def _punctual_needs_kafka(delivery: DeliveryConfig, destinations: Mapping[str, AnySink]) -> Faults:
    if not delivery.punctual:
        for name in sorted(delivery.model_fields_set - {"punctual"}):
            key = DeliveryConfig.model_fields[name].alias or name
            yield fault_at(
                "delivery", key, what="a setting without effect", rule="with delivery.punctual: true"
            )
        return
    topics = {name: sink for name, sink in destinations.items() if isinstance(sink, KafkaSinkConfig)}
    if not topics:
        what, rule = "only topics of Kafka can be served punctually", "a destination with sink: kafka"
        yield fault_at("delivery", "punctual", what=what, value=True, rule=rule)
    for name, sink in topics.items():
        yield from _refused_by_the_sender(name, sink.options)


def _refused_by_the_sender(name: str, options: Mapping[str, str]) -> Faults:
    try:
        settings_of(options)
    except ConfigError as error:
        key = (error.field or "").removeprefix("options.")
        yield fault_at(
            "destinations", name, "options", key, what=error.what, rule=error.rule or "", hint=error.hint
        )


@looks_at(limits="on_limit", clock="kind")
def _intake_can_pause(limits: LimitsConfig, mode: str, clock: ClockConfig | None = None) -> Faults:
    of_event_clock = clock is not None and clock.kind == "event"
    if limits.on_limit == "pause" and (mode == "direct" or of_event_clock):
        where = "mode: direct" if mode == "direct" else "the event clock"
        yield fault_at(
            "limits",
            "on_limit",
            what="the intake cannot pause here",
            value="pause",
            rule=f"not with {where}, where commands move the clock or the wheel: nothing would make room again",
            hint="reject; or mode: tiered with the processing clock",
        )


class SchedulerConfig(JobConfig):
    """The settings of a scheduler in both modes."""

    discriminator: ClassVar = "mode"

    source: SourceConfig
    """Where commands come from."""

    contract: ContractConfig = all_defaults(ContractConfig)
    """Bounds and defaults of commands."""

    limits: LimitsConfig = all_defaults(LimitsConfig)
    """Bounds on the work of a batch and on what is pending."""

    levels: LevelsConfig | None = None
    """Delay levels. Default: there are none."""

    dead_letters: DestinationName | None = None
    """The destination of rows that are not tried again. Default: they go to the rejects."""

    delivery: DeliveryConfig = all_defaults(DeliveryConfig)
    """Punctual delivery to Kafka. Default: each batch releases what is due."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *JobConfig.rules,
        _bursts_reach_each_shard,
        _dead_letters_are_allowed,
        _dead_letters_have_a_place,
        _punctual_needs_the_wall_clock,
        _punctual_needs_kafka,
        _preset_fits_the_source,
        _headers_are_read,
        _rejects_do_not_come_back,
        _topics_have_a_level,
        _level_topics_are_read_once,
        _intake_can_pause,
    )

    @property
    def level_topics(self) -> Mapping[str, int]:
        """The topics of delay levels, each with its delay in ms."""
        return {} if self.levels is None else self.levels.topics

    @field_validator("contract")
    @classmethod
    def _kafka_has_its_preset(cls, contract: ContractConfig, info: ValidationInfo) -> ContractConfig:
        if "preset" in contract.model_fields_set or not isinstance(
            info.data.get("source"), KafkaSourceConfig
        ):
            return contract
        return contract.model_copy(update={"preset": DEFAULT_PRESET})


def _each_shard_has_its_part(limits: LimitsConfig, wheel: WheelConfig) -> Faults:
    for bound, most in limits.bounds.items():
        if most < wheel.shards:
            rule = f"at least wheel.shards, {wheel.shards}: each shard has a part of it"
            yield fault_at("limits", bound, what="too small a limit", value=most, rule=rule)


class DirectConfig(SchedulerConfig):
    """A scheduler with all pending entries in Spark state: one query from the source to the destinations."""

    mode: Literal["direct"] = "direct"
    """direct: all pending entries are in Spark state."""

    rules: ClassVar[tuple[Rule, ...]] = (*SchedulerConfig.rules, _each_shard_has_its_part)


class TieredConfig(SchedulerConfig):
    """A scheduler with its near entries in Spark state and its far ones in a slot store."""

    mode: Literal["tiered"]
    """tiered: entries due later wait in a slot store."""

    wheel: TieredWheelConfig = all_defaults(TieredWheelConfig)
    """Geometry and shards, and which levels are in Spark state."""

    clock: TieredClockConfig
    """Event or processing clock. The event clock with --until plays bounded input to its end without waiting."""

    store: StoreConfig
    """Mode tiered keeps its far levels at store.path, or in store.table."""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Those of the intake and of the wheel."""
        return tuple(f"{self.checkpoint}/{part}" for part in TIERED_PARTS)


def _with_mode(settings: Any) -> Any:
    return {"mode": "direct", **settings} if isinstance(settings, Mapping) else settings


AnySchedulerConfig = Annotated[
    DirectConfig | TieredConfig, Field(discriminator="mode"), BeforeValidator(_with_mode)
]
