"""Replays a planned batch with the settings that it was planned with.

Settings that change the rows of a batch (:func:`row_settings`: contract, memory, limits, clock, until, destinations
with their rates and retries, punctual delivery) belong to the batch that was planned with them. Each start records its
own in the checkpoint::

    last run        plans batch 7 under its settings, writes one table of two, and is killed
    this start      finds batch 7 planned and not committed, recorded under other settings
    this run        batch 7 with the recorded settings, then batch 8 with its own

Otherwise the second table would get other rows of batch 7 than the first. In the tiered mode, and of a purgatory, such
a start is refused.

They are recorded as a file would have them, defaults included, so that the models of the config read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

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
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.models.scheduler import SchedulerConfig, TieredConfig
from wheel_udf.job.models.section import adapters_of
from wheel_udf.job.models.service import ServedConfig
from wheel_udf.job.models.sink import AnySink, RejectsConfig, SinkConfig
from wheel_udf.job.models.source import KafkaSourceConfig, SourceConfig

_ENDING_OFFSETS = "endingOffsets"
_COLUMNS = "columns"
"""Key of the record beside the settings: columns of the contract that the sources had, by section."""
_CONTRACTS = {"source": COMMAND_FIELDS, "operations": OPERATION_COLUMNS, "events": EVENT_COLUMNS}


_PLACE: Final = {"sink", "path", "table", "topic"}
_SERVICE: Final = {"rate", "burst", "on_undeliverable", "retries"}
"""Which rows a destination gets, and when; recorded of those that have a rate or are tried again."""
_DEAD_LETTERS: Final = "dead_letters"
_MEANING: Final = {"columns", "where"}
_SECTIONS: Final = ("contract", "clock", "limits", "levels", "delivery")
_INCLUDED: Final[dict[str, Any]] = {
    **dict.fromkeys((*_SECTIONS, "watch"), True),
    **dict.fromkeys(("operations", "events"), _MEANING),
    "destinations": {"__all__": _PLACE | _SERVICE},
    "rejects": _PLACE,
    _DEAD_LETTERS: True,
}
_EXCLUDED: Final[dict[str, Any]] = {"clock": {"heartbeat_ms"}, "levels": {"paused"}}


def row_settings(config: AnyConfig, until_ms: int | None) -> dict[str, Any]:
    """Returns the settings that change the rows of a batch, as JSON values.

    Of sources and sinks, options are not among them, except ``endingOffsets``: they may hold secrets.
    """
    settings = config.model_dump(mode="json", by_alias=True, include=_INCLUDED, exclude=_EXCLUDED)
    if settings.get(_DEAD_LETTERS) is None:
        settings.pop(_DEAD_LETTERS, None)
    for name, sink in settings["destinations"].items():
        _forget_unset(sink)
        comes_back = config.destinations[name].comes_back
        for key in _SERVICE:
            if sink.get(key) is None or (key == "retries" and not comes_back):
                sink.pop(key, None)
    _forget_unset(settings["rejects"])
    options = config.source.options if isinstance(config, SchedulerConfig) else {}
    ends = {_ENDING_OFFSETS: kafka_options.option(options, _ENDING_OFFSETS)}
    return settings | ends | {"until_ms": until_ms}


def _forget_unset(sink: dict[str, Any]) -> None:
    """Of path and table one is given."""
    for key in ("path", "table"):
        if sink.get(key, "") is None:
            del sink[key]


def with_row_settings(config: SchedulerConfig, recorded: Mapping[str, Any]) -> SchedulerConfig:
    """Returns the config with recorded settings; the rest (source, triggers, creation, options) is today's.

    Raises:
        CheckpointError: The record cannot be read.
        ConfigError: Rows of the batch go to a Kafka cluster that today's config does not have: how to reach it is not
            recorded.
    """
    changes: dict[str, Any] = _read({name: recorded.get(name) for name in _SECTIONS}, type(config))
    if changes["clock"].kind != "simulated" and config.clock.kind != "simulated":
        heartbeat = {"heartbeat_ms": config.clock.heartbeat_ms}
        changes["clock"] = changes["clock"].model_copy(update=heartbeat)
    changes["destinations"] = {
        name: _sink_of_then(SinkConfig, config.destinations.get(name), sink, f"destinations.{name}")
        for name, sink in recorded["destinations"].items()
    }
    changes[_DEAD_LETTERS] = recorded.get(_DEAD_LETTERS)
    changes["rejects"] = _sink_of_then(RejectsConfig, config.rejects, recorded["rejects"], "rejects")
    changes["source"] = _source_of_then(config.source, recorded[_ENDING_OFFSETS])
    return config.model_copy(update=changes)


def _read(sections: Mapping[str, Any], model: type[SchedulerConfig]) -> dict[str, Any]:
    found, wrong = {}, set[str]()
    for name, section in sections.items():
        try:
            found[name] = adapters_of(model)[name].validate_python(section)
        except ValidationError as error:
            wrong |= {".".join(map(str, (name, *each["loc"]))) for each in error.errors(include_url=False)}
    if wrong:
        raise CheckpointError(
            "the recorded settings of a planned batch cannot be read",
            field=", ".join(sorted(wrong)),
            hint="a later version may have written them: continue with that version",
        )
    return found


def _sink_of_then(model: Any, today: AnySink | None, recorded: Mapping[str, Any], field: str) -> AnySink:
    """A sink as recorded: its kind, its path, its table or (of rejects in Kafka) topic, its rate and retries."""
    if "path" in recorded or recorded["sink"] == "delta":
        create = {"create": today is not None and today.creates}
        return TypeAdapter[AnySink](model).validate_python({**recorded, **create})
    sink = recorded["sink"]
    if today is None or today.sink != sink:
        raise ConfigError(
            f"the last run left a planned batch with rows for {'Kafka' if sink == 'kafka' else sink}",
            field=field,
            rule=f"sink: {sink} with its options, until that batch is done",
            hint="start once with the old setting and --trigger available-now, then change it",
        )
    place = {name: value for name, value in recorded.items() if name not in _SERVICE}
    return today.model_copy(update=place | _service_of_then(today, recorded))


def _service_of_then(today: AnySink, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The settings :data:`_SERVICE` of a sink as recorded; what is not recorded was not set."""
    then = ServedConfig.model_validate({name: recorded[name] for name in _SERVICE if name in recorded})
    service = {name: getattr(then, name) for name in _SERVICE}
    if then.retries is None and today.retries is not None:
        # Its tries in the batch change no rows.
        service["retries"] = today.retries.model_copy(update={"policy": "none", "waits": ()})
    return service


def _source_of_then(source: SourceConfig, end: str | None) -> SourceConfig:
    if not isinstance(source, KafkaSourceConfig):
        return source
    options = {key: value for key, value in source.options.items() if key.lower() != _ENDING_OFFSETS.lower()}
    return source.model_copy(update={"options": options | ({} if end is None else {_ENDING_OFFSETS: end})})


# --- the record -----------------------------------------------------------------------------------


def note_settings(
    config: AnyConfig,
    until_ms: int | None,
    lease_of: Callable[[str], Lease] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any] | None:
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
    folder, identity = config.checkpoints[-1], identity_of(config)
    now = row_settings(config, until_ms)
    if isinstance(config, TieredConfig):
        identity["clock_kind"] = StoreClock.kind
    with (lease_of or Lease)(folder):
        # Also before the first batch: the first run may be the one that leaves a planned batch.
        open_checkpoint(folder, name=config.name, **identity)
        planned = _of_planned_batch(folder)
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
    return planned if is_other else None


def _of_planned_batch(checkpoint: str) -> dict[str, Any] | None:
    """The settings of the planned, uncommitted batch; None if there is none."""
    planned = planned_batch(checkpoint)
    recorded = None if planned is None else PlannedSettings(checkpoint).settings_of(planned)
    return None if recorded is None else {name: recorded[name] for name in recorded if name != _COLUMNS}


def _record(config: AnyConfig, now: dict[str, Any], columns: Mapping[str, Sequence[str]]) -> None:
    folder = config.checkpoints[-1]
    newest, before = last_planned(folder), _of_newest_batch(folder)
    if before is not None:
        _require_same_topics(before, now)
        _require_columns(config, before, columns)
    had = (before or {}).get(_COLUMNS, {})
    has = {name: {*_CONTRACTS[name]}.intersection(columns[name]) for name in columns}
    if both := {name: sorted({*had.get(name, ()), *has.get(name, ())}) for name in {**had, **has}}:
        now = now | {_COLUMNS: both}
    PlannedSettings(folder).record(now, 0 if newest is None else newest + 1)


def _of_newest_batch(folder: str) -> dict[str, Any] | None:
    newest = last_planned(folder)
    return None if newest is None else PlannedSettings(folder).settings_of(newest)


def require_columns(config: AnyConfig, columns: Mapping[str, Sequence[str]]) -> None:
    """Refuses a source without a column that it had when the newest batch was planned: its rows would have nulls there.
    Changes nothing.

    Raises:
        ContractError: A column was renamed or dropped.
        CheckpointError: The journal of settings is damaged.
    """
    _require_columns(config, _of_newest_batch(config.checkpoints[-1]) or {}, columns)


def _require_columns(
    config: AnyConfig, before: Mapping[str, Any], columns: Mapping[str, Sequence[str]]
) -> None:
    for section, had in before.get(_COLUMNS, {}).items():
        now = columns.get(section)  # empty: nothing is known of it
        if now and (gone := [name for name in had if name not in now]):
            raise ContractError(
                f"the source has lost a column since the last run: {', '.join(gone)}",
                field=f"{section}.{'table' if getattr(config, section).path is None else 'path'}",
                value=getattr(config, section).place,
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
