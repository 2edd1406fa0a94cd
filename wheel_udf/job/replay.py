"""Replays a planned batch with the settings that it was planned with.

Settings that change the rows of a batch (:class:`RowSettings`: contract, memory, limits, clock, until, destinations,
punctual delivery) belong to the batch that was planned with them. Each start records its own in the checkpoint::

    last run        plans batch 7 under its settings, writes one table of two, and is killed
    this start      finds batch 7 planned and not committed, recorded under other settings
    this run        batch 7 with the recorded settings, then batch 8 with its own

Otherwise the second table would get other rows of batch 7 than the first. In the tiered mode, and of a purgatory, such
a start is refused.

Recorded settings have the names of the models' attributes, durations in ms and instants in UTC epoch ms. The models of
the config read them (context :data:`~wheel_udf.job.models.values.RECORDED`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from wheel_udf.checkpoint.identity import open_checkpoint
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.planned_settings import PlannedSettings
from wheel_udf.checkpoint.spark_logs import last_planned, planned_batch
from wheel_udf.commands.contract import EVENT_COLUMNS, OPERATION_COLUMNS
from wheel_udf.commands.json_objects import COMMAND_FIELDS
from wheel_udf.common.errors import CheckpointError, ConfigError, ContractError
from wheel_udf.control.clocks import StoreClock
from wheel_udf.job import kafka_options
from wheel_udf.job.compose import identity_of
from wheel_udf.job.models.bounds import ContractConfig, DeliveryConfig, LimitsConfig
from wheel_udf.job.models.levels import LevelsConfig
from wheel_udf.job.models.purgatory import PurgatoryConfig
from wheel_udf.job.models.scheduler import JobConfig, SchedulerConfig, TieredConfig
from wheel_udf.job.models.section import all_defaults
from wheel_udf.job.models.sink import AnySink, KafkaSinkConfig, RejectsConfig, SinkConfig
from wheel_udf.job.models.source import KafkaSourceConfig, SourceConfig
from wheel_udf.job.models.values import RECORDED
from wheel_udf.job.models.wheel import ClockConfig

_ENDING_OFFSETS = "endingOffsets"
_COLUMNS = "columns"
"""Key of the record beside the settings: columns of the contract that the sources had, by section."""
_CONTRACTS = {"source": COMMAND_FIELDS, "operations": OPERATION_COLUMNS, "events": EVENT_COLUMNS}


class RowSettings(BaseModel):
    """The settings of a scheduler that change the rows of a batch. No options except one: they may hold secrets.

    Attributes:
        contract: The section.
        clock: The section; its heartbeat changes no rows and is not recorded.
        until_ms: The instant to which the clock runs (UTC epoch ms), or None.
        limits: The section.
        levels: The section; which levels are paused changes no rows of a planned batch and is not recorded.
        destinations: (name or pattern, sink, path) of each.
        rejects: (sink, path or topic).
        ending_offsets: The option of a Kafka source.
        delivery: The section.
    """

    model_config = ConfigDict(frozen=True)

    contract: ContractConfig
    clock: ClockConfig
    until_ms: int | None
    limits: LimitsConfig
    levels: LevelsConfig | None
    destinations: tuple[tuple[str, str, str | None], ...]
    rejects: tuple[str, str | None]
    ending_offsets: str | None = None
    delivery: DeliveryConfig = all_defaults(DeliveryConfig)

    @classmethod
    def of(cls, config: SchedulerConfig, until_ms: int | None) -> Self:
        """Returns those of a config."""
        return cls(
            contract=config.contract,
            clock=config.clock,
            until_ms=until_ms,
            limits=config.limits,
            levels=config.levels,
            destinations=places_of(config),
            rejects=(config.rejects.sink, config.rejects.place),
            ending_offsets=kafka_options.option(config.source.options, _ENDING_OFFSETS),
            delivery=config.delivery,
        )

    @classmethod
    def read(cls, recorded: Mapping[str, Any]) -> Self:
        """Reads what a checkpoint has recorded.

        Raises:
            CheckpointError: The record cannot be read.
        """
        try:
            return cls.model_validate(recorded, context=RECORDED)
        except ValidationError as error:
            fields = sorted({".".join(map(str, each["loc"])) for each in error.errors(include_url=False)})
            raise CheckpointError(
                "the recorded settings of a planned batch cannot be read",
                field=", ".join(fields),
                hint="a later version may have written them: continue with that version",
            ) from None

    def record(self) -> dict[str, Any]:
        """Returns the settings as a checkpoint records them: values of JSON."""
        left_out = {"clock": {"heartbeat_ms"}, "levels": {"paused"}}
        settings = self.model_dump(mode="json", exclude=left_out)
        if self.ending_offsets is None:
            del settings["ending_offsets"]
        return settings


def places_of(config: JobConfig) -> tuple[tuple[str, str, str | None], ...]:
    """(name or pattern, sink, path) of each destination."""
    return tuple((name, sink.sink, sink.place) for name, sink in config.destinations.items())


def purgatory_settings(config: PurgatoryConfig, until_ms: int | None) -> dict[str, Any]:
    """Returns the settings of a purgatory that change a batch's rows, as JSON values; no options (secrets)."""
    return {
        "contract": config.contract.model_dump(mode="json"),
        "watch": config.watch.model_dump(mode="json"),
        "clock": config.clock.model_dump(mode="json", exclude={"heartbeat_ms"}),
        "until_ms": until_ms,
        "meaning": {
            name: [dict(section.columns), section.where]
            for name, section in (("operations", config.operations), ("events", config.events))
        },
        "destinations": [list(place) for place in places_of(config)],
        "rejects": [config.rejects.sink, config.rejects.place],
    }


# --- the recorded config --------------------------------------------------------------------------


def with_row_settings(config: SchedulerConfig, recorded: RowSettings) -> SchedulerConfig:
    """Returns the config with recorded settings; the rest (source, triggers, creation, options) is today's.

    Raises:
        ConfigError: Rows of the batch go to a Kafka cluster that today's config does not have: how to reach it is not
            recorded.
    """
    clock, today = recorded.clock, config.clock
    if clock.kind != "simulated" and today.kind != "simulated":
        clock = clock.model_copy(update={"heartbeat_ms": today.heartbeat_ms})
    sinks = {
        name: _sink_of_then(SinkConfig, config.destinations.get(name), sink, path, f"destinations.{name}")
        for name, sink, path in recorded.destinations
    }
    changes = {
        "contract": recorded.contract,
        "clock": clock,
        "limits": recorded.limits,
        "levels": recorded.levels,
        "delivery": recorded.delivery,
        "destinations": sinks,
        "rejects": _sink_of_then(RejectsConfig, config.rejects, *recorded.rejects, "rejects"),
        "source": _source_of_then(config.source, recorded.ending_offsets),
    }
    return config.model_copy(update=changes)


def _sink_of_then(model: Any, today: AnySink | None, sink: str, place: str | None, field: str) -> AnySink:
    """A sink as recorded: its kind, and its path or (of rejects in Kafka) topic."""
    settings: dict[str, Any] = {"sink": sink, "create": today is not None and today.creates}
    if place is not None and sink != "kafka":
        return TypeAdapter[AnySink](model).validate_python({**settings, "path": place})
    if today is None or today.sink != sink:
        raise ConfigError(
            f"the last run left a planned batch with rows for {'Kafka' if sink == 'kafka' else sink}",
            field=field,
            rule=f"sink: {sink} with its options, until that batch is done",
            hint="start once with the old setting and --trigger available-now, then change it",
        )
    if not isinstance(today, KafkaSinkConfig):
        return today
    settings["options"] = today.options
    topic = {} if place is None else {"topic": place}
    return TypeAdapter[AnySink](model).validate_python({**settings, **topic})


def _source_of_then(source: SourceConfig, end: str | None) -> SourceConfig:
    if not isinstance(source, KafkaSourceConfig):
        return source
    options = {key: value for key, value in source.options.items() if key.lower() != _ENDING_OFFSETS.lower()}
    return source.model_copy(update={"options": options | ({} if end is None else {_ENDING_OFFSETS: end})})


# --- the record -----------------------------------------------------------------------------------


def note_settings(
    config: JobConfig,
    until_ms: int | None,
    lease_of: Callable[[str], Lease] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> RowSettings | None:
    """Records today's settings for the batches that will be planned.

    Args:
        config: The checked config.
        until_ms: The instant to which the clock runs (UTC epoch ms), or None.
        lease_of: As for :func:`~wheel_udf.deliver`.
        columns: As :func:`~wheel_udf.job.compose.columns_of` returns them.

    Returns:
        The settings of an uncommitted batch that was planned under other settings; None if there is none.

    Raises:
        ConfigError: Such a batch is in the checkpoint of a purgatory or of the tiered mode, or the topics of delay
            levels have changed.
        ContractError: As :func:`require_columns`.
        GeometryChangedError: The checkpoint was made with another geometry, shard count or clock, or in another mode.
        CheckpointError: The checkpoint is damaged or not one of this package.
        LeaseError: The checkpoint is in use.
    """
    folder, identity = _folder_of(config), identity_of(config)
    if isinstance(config, PurgatoryConfig):
        now = purgatory_settings(config, until_ms)
    else:
        assert isinstance(config, SchedulerConfig), "there are two kinds"
        now = RowSettings.of(config, until_ms).record()
    if isinstance(config, TieredConfig):
        identity["clock_kind"] = StoreClock.kind
    with (lease_of or Lease)(folder):
        # Also before the first batch: the first run may be the one that leaves a planned batch.
        open_checkpoint(folder, name=config.name, **identity)
        planned = _of_planned_batch(PlannedSettings(folder), folder)
        is_other = planned not in (None, now)
        if is_other and isinstance(config, PurgatoryConfig | TieredConfig):
            raise ConfigError(
                "the last run left a planned batch under other settings",
                field="checkpoint",
                value=folder,
                rule="that batch is done with the settings that it was planned with",
                hint="start once with the old settings, then change them",
            )
        _record(config, now, columns or {})
    return RowSettings.read(planned or {}) if is_other else None


def _of_planned_batch(journal: PlannedSettings, checkpoint: str) -> dict[str, Any] | None:
    """The settings of the planned, uncommitted batch, as this version would record them; None if there is none."""
    planned = planned_batch(checkpoint)
    recorded = journal.settings_of(planned) if planned is not None else None
    if recorded is not None and "meaning" in recorded:  # of a purgatory
        return {name: value for name, value in recorded.items() if name != _COLUMNS}
    return None if recorded is None else RowSettings.read(recorded).record()


def _record(config: JobConfig, now: dict[str, Any], columns: Mapping[str, Sequence[str]]) -> None:
    folder = _folder_of(config)
    newest, before = last_planned(folder), _of_newest_batch(folder)
    if before is not None:
        _require_same_topics(before, now)
        _require_columns(config, before, columns)
    had = (before or {}).get(_COLUMNS, {})
    has = {name: {*_CONTRACTS[name]}.intersection(columns[name]) for name in columns}
    if both := {name: sorted({*had.get(name, ()), *has.get(name, ())}) for name in {**had, **has}}:
        now = now | {_COLUMNS: both}
    PlannedSettings(folder).record(now, 0 if newest is None else newest + 1)


def _folder_of(config: JobConfig) -> str:
    """The checkpoint whose batches are planned under the settings."""
    return f"{config.checkpoint}/wheel" if isinstance(config, TieredConfig) else config.checkpoint


def _of_newest_batch(folder: str) -> dict[str, Any] | None:
    newest = last_planned(folder)
    return None if newest is None else PlannedSettings(folder).settings_of(newest)


def require_columns(config: JobConfig, columns: Mapping[str, Sequence[str]]) -> None:
    """Refuses a source without a column that it had when the newest batch was planned: its rows would have nulls there.
    Changes nothing.

    Args:
        config: The checked config.
        columns: As :func:`~wheel_udf.job.compose.columns_of` returns them.

    Raises:
        ContractError: A column was renamed or dropped.
        CheckpointError: The journal of settings is damaged.
    """
    _require_columns(config, _of_newest_batch(_folder_of(config)) or {}, columns)


def _require_columns(
    config: JobConfig, before: Mapping[str, Any], columns: Mapping[str, Sequence[str]]
) -> None:
    for section, had in before.get(_COLUMNS, {}).items():
        now = columns.get(section)  # empty: nothing is known of it
        if now and (gone := [name for name in had if name not in now]):
            raise ContractError(
                f"the source has lost a column since the last run: {', '.join(gone)}",
                field=f"{section}.path",
                value=getattr(config, section).path,
                rule=f"the columns of the contract that it had: {', '.join(had)}; it has: {', '.join(now)}",
                hint="rename the column back, or add it again (nulls if it is no longer needed); "
                "or begin a new checkpoint",
            )


def _require_same_topics(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses other topics of delay levels than the checkpoint's: Spark identifies its sources by their order."""
    there, here = (sorted((each.get("levels") or {}).get("topics", {})) for each in (before, now))
    if there != here:
        raise ConfigError(
            "the checkpoint has offsets of other topics of levels",
            field="levels.topics",
            value=", ".join(here) or "none",
            rule=f"fixed by the first start: {', '.join(there) or 'none'}",
            hint="read other topics with a job of its own, or start with a new checkpoint",
        )
