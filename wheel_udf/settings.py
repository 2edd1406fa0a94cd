"""The sections of the job's config as models: names, types, bounds and defaults of every setting.

One class for each section, named as in the file; :mod:`wheel_udf.config` reads the file into them. Durations come as texts with a unit
and become attributes that end in ``_ms``; instants come as ISO texts and become UTC epoch ms; None means that there is no bound.

Every rule of a section speaks on its own, also when another one has failed, so that one reading finds all faults. The rules of Kafka are in :mod:`wheel_udf.kafka_options`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from wheel_udf.errors import GeometryError
from wheel_udf.geometry import Wheel
from wheel_udf.kafka_options import DEFAULT_PRESET, option
from wheel_udf.levels import DEFAULT_LIST_MS, BinaryLevels, FixedLevels, Levels, list_rule
from wheel_udf.setting_values import (
    DURATION_RULE,
    DestinationName,
    Instant,
    NotNegativeMs,
    Options,
    PositiveMs,
    Section,
    Span,
    Text,
    UnboundedMs,
    at_least,
    duration_of,
    fault,
    none_for,
)
from wheel_udf.store_layout import StoreLayout

AVAILABLE_NOW = "available-now"
_DAY_MS = 86_400_000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,249}")
_CHANGE_FEED = ("readChangeFeed", "readChangeData")  # Delta knows both names


class WheelConfig(Section):
    """Section ``wheel``: the geometry and the number of shards. Durations in ms.

    Attributes:
        state_levels: Of the tiered mode: how many of the levels, from the lowest, are in Spark's state. None: half of them.
        state_horizon_ms: Of the tiered mode with ``state_levels: 0``: how much of the time to come is in Spark's state at once.
    """

    tick_ms: PositiveMs = Field(1_000, alias="tick")
    size: StrictInt = Field(20, ge=2)
    levels: StrictInt = Field(6, ge=1, le=62)
    shards: StrictInt = Field(4, ge=1, le=1024)
    state_levels: StrictInt | None = Field(None, ge=0)
    state_horizon_ms: PositiveMs | None = Field(None, alias="state_horizon")

    @model_validator(mode="after")
    def _fits_int64(self) -> WheelConfig:
        try:
            self.wheel()
        except GeometryError as error:
            raise fault(
                error.what, rule=error.rule or "tick * size^levels below 2^63 ms", hint=error.hint
            ) from error
        return self

    def wheel(self) -> Wheel:
        """The geometry."""
        return Wheel(tick_ms=self.tick_ms, size=self.size, levels=self.levels)

    def layout(self) -> StoreLayout:
        """What of it is in the store, in the tiered mode.

        Raises:
            ConfigError: These levels cannot be split so.
        """
        levels = self.levels // 2 if self.state_levels is None else self.state_levels
        return StoreLayout(self.wheel(), levels, self.state_horizon_ms)


class EventClockConfig(Section):
    """Section ``clock`` of kind event: the watermark is the time. ``max_ahead_ms`` None = no bound (``none``)."""

    kind: Literal["event"]
    delay_ms: NotNegativeMs = Field(0, alias="delay")
    max_ahead_ms: Annotated[int | None, none_for("none"), at_least(0, "not negative, or none")] = Field(
        60_000, alias="max_ahead"
    )
    heartbeat_ms: PositiveMs = Field(60_000, alias="heartbeat")


class ProcessingClockConfig(Section):
    """Section ``clock`` of kind processing: the batch's own timestamp is the time."""

    kind: Literal["processing"]
    heartbeat_ms: PositiveMs = Field(60_000, alias="heartbeat")


class SimulatedClockConfig(Section):
    """Section ``clock`` of kind simulated: ``start`` and ``step``, or a list of ``instants`` (UTC epoch ms)."""

    kind: Literal["simulated"]
    start_ms: Instant | None = Field(None, alias="start")
    step_ms: PositiveMs | None = Field(None, alias="step")
    instants_ms: tuple[Instant, ...] | None = Field(None, alias="instants")

    @model_validator(mode="after")
    def _has_one_form(self) -> SimulatedClockConfig:
        given = {"start": self.start_ms, "step": self.step_ms, "instants": self.instants_ms}
        named = {key for key, value in given.items() if value is not None}
        if named not in ({"start", "step"}, {"instants"}):
            found = ", ".join(key for key in given if key in named) or "none of them"
            raise fault(f"found {found}", rule="either start and step, or instants")
        if self.instants_ms is not None and not self.instants_ms:
            raise fault("the list of instants is empty", rule="at least one instant")
        return self


ClockConfig = Annotated[
    EventClockConfig | ProcessingClockConfig | SimulatedClockConfig, Field(discriminator="kind")
]


class SourceConfig(Section):
    """Section ``source``: where commands come from.

    Attributes:
        format: Spark's name of the format.
        path: Folder of files, or a Delta table; None for kafka.
        schema_ddl: Key ``schema``: columns of the files as SQL DDL, instead of what is found there.
        topics: Of kafka, unless options name them.
        options: Passed to Spark's reader as they are; for kafka see :mod:`wheel_udf.kafka_options`. Of delta, ``readChangeFeed`` says
            that the rows are changes (:mod:`wheel_udf.changes`).
    """

    format: Literal["parquet", "json", "csv", "delta", "kafka"]
    path: Text | None = Field(None, validate_default=True)
    schema_ddl: Text | None = Field(None, alias="schema")
    topics: tuple[Text, ...] | None = None
    options: Options = Field(default_factory=dict)

    @field_validator("path")
    @classmethod
    def _has_path(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("format", "kafka") != "kafka":
            raise fault("missing", rule="the folder or table to read")
        return value

    @field_validator("schema_ddl")
    @classmethod
    def _files_only(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("format") == "delta":
            raise fault("a delta source has its own schema", rule="schema only with parquet, json or csv")
        return value

    @field_validator("topics")
    @classmethod
    def _kafka_only(cls, value: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if value is not None and info.data.get("format", "kafka") != "kafka":
            raise fault("a setting of kafka sources", rule=f"{info.data['format']} has a path")
        return value

    @field_validator("options")
    @classmethod
    def _has_a_change_feed(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        # Other readers take the option in silence, and would read something else than what is meant.
        name = next((name for name in _CHANGE_FEED if option(value, name) is not None), None)
        if name is not None and info.data.get("format", "delta") != "delta":
            raise fault(f"{info.data['format']} has no change feed", rule=f"{name} only with delta")
        return value

    @property
    def reads_changes(self) -> bool:
        """Whether the change feed of a Delta table is read, and not the table itself."""
        asked = (option(self.options, name) for name in _CHANGE_FEED)
        return self.format == "delta" and any(value and value.lower() == "true" for value in asked)

    @property
    def location(self) -> str:
        """The path, which every format but kafka has."""
        assert self.path is not None
        return self.path


class AnyContractConfig(Section):
    """Section ``contract``: what a command or an operation may look like. None = no bound (``unlimited``; for ``memory`` = for ever)."""

    max_delay_ms: UnboundedMs = Field(730 * _DAY_MS, alias="max_delay")
    memory_ms: UnboundedMs = Field(300_000, alias="memory")
    max_value_bytes: StrictInt = Field(1_048_576, ge=0)
    default_destination: DestinationName | None = None


class ContractConfig(AnyContractConfig):
    """Section ``contract`` of a scheduler.

    The preset says how a record becomes a command: ``columns`` by the names of its columns, the others are for Kafka
    (see :mod:`wheel_udf.presets`). With a kafka source the job fills in ``native``.
    """

    preset: Literal["columns", "native", "json", "scheduler"] = "columns"
    max_lateness_ms: NotNegativeMs | None = Field(None, alias="max_lateness")


class SinkConfig(Section):
    """A destination, or the section ``rejects``.

    Attributes:
        sink: delta (a table for each destination name under ``path``), kafka (a topic for each), or a file format, for a first look.
        path: The folder; None for kafka.
        create: Whether a missing Delta table or topic may be made (folders of files, and what rejects go to, always are).
        topic: Of rejects that go to kafka.
        options: Of kafka: ``kafka.bootstrap.servers`` and other settings of its producer.
    """

    sink: Literal["delta", "kafka", "parquet", "json", "csv"]
    path: Text | None = Field(None, validate_default=True)
    create: StrictBool = False
    topic: Text | None = None
    options: Options = Field(default_factory=dict)

    @field_validator("path")
    @classmethod
    def _has_path(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("sink", "kafka") != "kafka":
            raise fault("missing", rule="the folder to write to")
        return value

    @field_validator("topic")
    @classmethod
    def _kafka_only(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("sink", "kafka") != "kafka":
            raise fault("a setting of kafka sinks", rule=f"{info.data['sink']} has a path")
        return value

    @field_validator("options")
    @classmethod
    def _kafka_has_options(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if value and info.data.get("sink", "kafka") != "kafka":
            raise fault("this sink takes no options", rule="options only with kafka")
        return value

    @property
    def location(self) -> str:
        """The path, which every sink but kafka has."""
        assert self.path is not None
        return self.path


class StoreConfig(Section):
    """Section ``store``, of the tiered mode: where the slot store is, and what it keeps. Durations in ms.

    Attributes:
        history_ms: How long rows stay in it after their due time, beside what ``contract.memory`` needs.
        keep_ms: How long files and log entries stay that nothing needs any more: how far back a look at earlier moments goes. Set when the store is made.
    """

    path: Text
    history_ms: NotNegativeMs = Field(0, alias="history")
    keep_ms: Annotated[int, Span, at_least(3_600_000, "at least 1 hour")] = Field(86_400_000, alias="keep")


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise fault("not a share", rule="above 0 and at most 1, such as 0.5")
    return float(value)


PENDING_BOUNDS = ("pending", "per_destination", "per_slot")
"""The settings of the section ``limits`` that bound what is pending."""


class LimitsConfig(Section):
    """Section ``limits``: bounds on the work of a batch and on what is pending. None = no bound.

    Attributes:
        fired_per_batch: Rows released in a batch.
        pending: Entries that wait, in all.
        per_destination: Entries that wait for one destination.
        per_slot: Entries due in one tick of the wheel.
        soft: Share of a bound at which its soft zone begins; 1: there is none.
        on_limit: What happens to a command that finds no room: it is rejected, or the intake pauses (tiered only).
    """

    fired_per_batch: StrictInt | None = Field(None, ge=1)
    pending: StrictInt | None = Field(None, ge=1)
    per_destination: StrictInt | None = Field(None, ge=1)
    per_slot: StrictInt | None = Field(None, ge=1)
    soft: Annotated[float, BeforeValidator(_share)] = 1.0
    on_limit: Literal["reject", "pause"] = "reject"

    @property
    def bounds(self) -> dict[str, int]:
        """The bounds on what is pending that are set."""
        return {name: most for name in PENDING_BOUNDS if (most := getattr(self, name)) is not None}


class LevelsConfig(Section):
    """Section ``levels``: the policy of delay levels (:mod:`wheel_udf.levels`). Durations in ms.

    Attributes:
        policy: fixed: a delay is rounded up to the next level of the list. binary: levels of 1, 2, 4, ... ticks, delays as they are.
        list_ms: Key ``list``, of the fixed policy: the levels, rising.
        on_beyond: Of the fixed policy: what becomes of a delay beyond the last level.
        topics: Of a kafka source, beside ``source.topics``: topics whose records have the delay of a level unless they say when they are due.
        paused: Levels whose topics are not read; their offsets wait.
    """

    policy: Literal["fixed", "binary"] = "fixed"
    list_ms: tuple[PositiveMs, ...] = Field(DEFAULT_LIST_MS, alias="list")
    on_beyond: Literal["reject", "top", "exact"] = "reject"
    topics: dict[Text, PositiveMs] = Field(default_factory=dict)
    paused: tuple[PositiveMs, ...] = ()

    @field_validator("list_ms")
    @classmethod
    def _is_a_list(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if rule := list_rule(value):
            raise fault("not a list of delay levels", rule=rule)
        return value

    def levels(self, tick_ms: int) -> Levels:
        """The policy, over the ticks of a wheel."""
        return BinaryLevels(tick_ms) if self.policy == "binary" else FixedLevels(self.list_ms, self.on_beyond)


def _trigger(value: object) -> str:
    if value == AVAILABLE_NOW:
        return AVAILABLE_NOW
    try:
        trigger_ms = duration_of(value)
    except PydanticCustomError:
        raise fault("not a trigger", rule=f"{AVAILABLE_NOW}, or {DURATION_RULE}") from None
    if trigger_ms < 0:
        raise fault("too short a duration", rule="not negative")
    return f"{trigger_ms} milliseconds"


def _patterns(value: object) -> object:
    if isinstance(value, Mapping) and not value:
        raise fault("no destination", rule="at least one name or pattern with its sink")
    return value


def _pattern(value: object) -> object:
    if not isinstance(value, str) or value in (".", "..") or not _PATTERN.fullmatch(value):
        raise fault(
            "not a destination pattern",
            rule="1 to 249 of A-Z a-z 0-9 . _ -, with * for any text and ? for any one character; not . or ..",
        )
    return value


class AnyJobConfig(Section):
    """What every job's file has.

    Attributes:
        name: Label of the query in metrics and transaction ids.
        wheel: Geometry and shards.
        clock: What time it is.
        destinations: Allow-list: name or pattern to sink, in the order of the file.
        rejects: Where rows go that cannot be used or delivered.
        trigger: ``available-now`` or ``<n> milliseconds``.
        checkpoint: The query's identity.
    """

    name: StrictStr = "wheel"
    wheel: WheelConfig = Field(default_factory=lambda: WheelConfig.model_validate({}))
    clock: ClockConfig
    destinations: Annotated[
        dict[Annotated[str, BeforeValidator(_pattern)], SinkConfig], BeforeValidator(_patterns)
    ]
    rejects: SinkConfig
    trigger: Annotated[str, BeforeValidator(_trigger)] = "1000 milliseconds"
    checkpoint: Text

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise fault("not a name", rule="1 to 100 of A-Z a-z 0-9 . _ -")
        return value

    @property
    def trigger_ms(self) -> int | None:
        """The interval of the trigger in ms; None for available-now."""
        return None if self.trigger == AVAILABLE_NOW else int(self.trigger.split()[0])


class JobConfig(AnyJobConfig):
    """The whole file of a scheduler.

    Attributes:
        mode: direct: all levels in state, one query. tiered: far levels in the slot store.
        source: Where commands come from.
        contract: What a command may look like.
        limits: Bounds on the work of a batch and on what is pending.
        levels: None: there are no delay levels.
        store: Of the tiered mode.
    """

    mode: Literal["direct", "tiered"] = "direct"
    source: SourceConfig
    contract: ContractConfig = Field(default_factory=lambda: ContractConfig.model_validate({}))
    limits: LimitsConfig = Field(default_factory=lambda: LimitsConfig.model_validate({}))
    levels: LevelsConfig | None = None
    store: StoreConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _kafka_has_its_preset(cls, settings: object) -> object:
        if not isinstance(settings, dict) or not isinstance(source := settings.get("source"), dict):
            return settings
        contract = settings.get("contract", {})
        if source.get("format") != "kafka" or not isinstance(contract, dict):
            return settings
        return {**settings, "contract": {"preset": DEFAULT_PRESET, **contract}}
