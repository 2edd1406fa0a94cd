"""The config file of the job: a YAML mapping in, a checked :class:`JobConfig` out, or all its faults at once.

Reading goes through five steps; each adds to one list of faults, which is raised as one :class:`ConfigErrors`::

    text --YAML--> mapping --overrides--> mapping --secrets--> mapping --models--> JobConfig --rules across sections--> JobConfig
         syntax,           --set a.b=c            ${env:NAME}          types, bounds,         default_destination, presets,
         duplicate keys                           ${file:/path}        unknown keys           paths and topics that collide

Values. A duration is a text with a unit (``1 second``, ``PT10M``), never a bare number, and becomes an attribute that ends in
``_ms``. An instant is an ISO text, UTC where it names no zone. ``clock.max_ahead: none``, ``contract.memory: unlimited`` (remember for
ever) and ``contract.max_delay: unlimited`` lift a bound. Relative paths are relative to the working directory. Unknown keys are errors;
what belongs to the other mode is refused by name.

Overrides (``--set``). ``a.b=c`` sets key ``b`` of section ``a``; the value is read as YAML, and an empty value removes the setting. A key
that holds dots is put in double quotes (mind the shell's own quoting)::

    --set wheel.size=60   --set 'destinations."reminders.*".path=data/out'   --set limits.fired_per_batch=

Secrets (:mod:`wheel_udf.secrets`) never appear in a message.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wheel_udf import kafka_options
from wheel_udf import settings as models
from wheel_udf.errors import ConfigError, ConfigErrors
from wheel_udf.levels import level_name
from wheel_udf.secrets import HIDDEN, is_secret_name, redacted, resolve
from wheel_udf.settings import AnyJobConfig, JobConfig
from wheel_udf.watch_settings import (
    EventsConfig,
    OperationsConfig,
    WatchConfig,
    WatchJobConfig,
)

__all__ = ["AnyJobConfig", "JobConfig", "WatchJobConfig", "check", "load"]

_CLOCK_KEYS: dict[str, frozenset[str]] = {
    kind: frozenset(field.alias or name for name, field in model.model_fields.items())
    for kind, model in (
        ("event", models.EventClockConfig),
        ("processing", models.ProcessingClockConfig),
        ("simulated", models.SimulatedClockConfig),
    )
}


# --- reading ----------------------------------------------------------------------------------------------------------


def load(path: str | Path, overrides: Sequence[str] = ()) -> AnyJobConfig:
    """Reads, overrides and checks a config file. One with a section ``operations`` or ``events`` is a purgatory's.

    Args:
        path: The YAML file.
        overrides: Settings as ``a.b=c``, applied in order before the check.

    Returns:
        The checked config.

    Raises:
        ConfigError: If there is no such file or it is not YAML.
        ConfigErrors: With all other faults of the file and the overrides at once.
    """
    return check(_mapping(_read(Path(path)), str(path)), overrides)


def check(raw: dict[str, Any], overrides: Sequence[str] = ()) -> AnyJobConfig:
    """Checks a config that is a mapping already; as :func:`load` otherwise. ``raw`` is left as it is."""
    faults: list[ConfigError] = []
    settings = _copy(raw)
    for override in overrides:
        try:
            _apply(settings, override)
        except ConfigError as fault:
            faults.append(fault)
    settings, unfilled = resolve(settings)
    faults += unfilled.values()
    config = None
    try:
        config = _model_of(settings).model_validate(settings)
    except ValidationError as error:
        details = error.errors(include_url=False)
        faults += [_as_fault(detail, settings) for detail in details if _keys_of(detail) not in unfilled]
    faults += [_without_secrets(fault) for fault in _faults_across(settings)]
    if config is None or faults:
        raise ConfigErrors(faults)
    return config


def _model_of(settings: dict[str, Any]) -> type[AnyJobConfig]:
    return WatchJobConfig if {"operations", "events"} & settings.keys() else JobConfig


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("there is no such config file", field=str(path)) from None
    except UnicodeDecodeError:
        raise ConfigError("the config file is not text", field=str(path), rule="UTF-8") from None
    except OSError as error:
        raise ConfigError(f"the config file cannot be read ({error.strerror})", field=str(path)) from None


class _Loader(yaml.SafeLoader):
    """Safe YAML, without guessing at dates and with duplicate keys as errors."""


# A copy without timestamps: an instant is text here, so that 2013-01-01 and 2013-01-01T00:00Z are read by one rule.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="a key must be a text", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def _mapping(text: str, origin: str) -> dict[str, Any]:
    try:
        settings = yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
    except yaml.YAMLError as error:
        # Only the problem and its place: the line itself may hold a password.
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise ConfigError(f"the config file is not good YAML ({problem})", field=f"{origin}{place}") from None
    if not isinstance(settings, dict):
        found = "nothing" if settings is None else f"a {type(settings).__name__}"
        raise ConfigError(
            f"the config file holds {found}", field=origin, rule="a mapping of settings at the top"
        )
    return settings


def _copy(value: Any) -> Any:
    return {key: _copy(inner) for key, inner in value.items()} if isinstance(value, dict) else value


_KEY = r'(?:"[^"]+"|[^."=\s]+)'
_PATH = re.compile(rf"\s*({_KEY}(?:\.{_KEY})*)\s*=")


def _apply(settings: dict[str, Any], override: str) -> None:
    path, value = _split(override)
    section = settings
    for depth, key in enumerate(path[:-1], start=1):
        inner = section.setdefault(key, {})
        if inner is None:
            inner = section[key] = {}
        if not isinstance(inner, dict):
            raise ConfigError("--set goes into a value that has no keys", field=".".join(path[:depth]))
        section = inner
    if value is None:
        section.pop(path[-1], None)
    else:
        section[path[-1]] = value


def _split(override: str) -> tuple[list[str], Any]:
    match = _PATH.match(override)
    if match is None:
        hint = 'a key with dots goes in double quotes: destinations."a.b".path=out'
        raise ConfigError(
            "--set is not understood", field=override.partition("=")[0] or "--set", rule="a.b=c", hint=hint
        )
    keys = [key.strip('"') for key in re.findall(_KEY, match[1])]
    try:
        return keys, yaml.load(override[match.end() :], _Loader)  # noqa: S506  (a SafeLoader)
    except yaml.YAMLError:
        raise ConfigError("the value of --set is not good YAML", field=".".join(keys)) from None


# --- faults -----------------------------------------------------------------------------------------------------------


def _as_fault(detail: ErrorDetails, settings: dict[str, Any]) -> ConfigError:
    location = _without_tags(detail["loc"])
    path, given = _path_text(location), detail["input"]
    value = HIDDEN if any(is_secret_name(part) for part in location) else redacted(given)
    context = detail.get("ctx", {})
    kind, field = detail["type"], path
    what: str = "not a good value"
    rule: str | None = detail["msg"]
    hint: str | None = None
    if kind == "extra_forbidden":
        return _unknown_key(location, settings)
    if kind == "missing":
        return ConfigError("a required setting is missing", field=path)
    if kind.startswith("union_tag"):
        field, rule = f"{path}.kind", _one_of(_CLOCK_KEYS)
        value = redacted(given.get("kind")) if isinstance(given, dict) else None
        what = (
            "a required setting is missing"
            if kind == "union_tag_not_found"
            else "not one of the known values"
        )
    elif kind == "literal_error":
        what, rule = "not one of the known values", context["expected"]
    elif kind == "setting":
        what, rule, hint = context["what"], context.get("rule"), context.get("hint")
        value = None if isinstance(given, dict | BaseModel) else value
    elif kind in _TYPE_WORDS:
        what, rule = _TYPE_WORDS[kind]
    elif kind in ("greater_than_equal", "less_than_equal"):
        what, rule = (
            ("too small", f"at least {context['ge']}")
            if "ge" in context
            else ("too large", f"at most {context['le']}")
        )
    return ConfigError(what, field=field, value=value, rule=rule, hint=hint)


_SECTION = ("not a section", "keys with values")
_TYPE_WORDS = {
    "int_type": ("not a whole number", "a whole number"),
    "string_type": ("not a text", "a text (in quotes if it looks like a number)"),
    "bool_type": ("not true or false", "true or false"),
    "tuple_type": ("not a list", "a list"),
    "dict_type": _SECTION,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
}


def _without_tags(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    # The models of the clock are told apart by a tag that stands in the location but not in the file; a bad key of a
    # mapping is told with a trailing marker.
    if location[:1] == ("clock",) and len(location) > 1 and location[1] in _CLOCK_KEYS:
        location = (location[0], *location[2:])
    return location[:-1] if location[-1:] == ("[key]",) else location


def _without_secrets(fault: ConfigError) -> ConfigError:
    # Now, and not where it is printed: an error cuts its value, and half a secret is not found any more.
    value = redacted(fault.value)
    return ConfigError(fault.what, field=fault.field, value=value, rule=fault.rule, hint=fault.hint)


def _keys_of(detail: ErrorDetails) -> tuple[str, ...]:
    return tuple(str(part) for part in _without_tags(detail["loc"]))


def _path_text(location: Iterable[int | str]) -> str:
    return ".".join(f'"{part}"' if isinstance(part, str) and "." in part else str(part) for part in location)


def _unknown_key(location: tuple[int | str, ...], settings: dict[str, Any]) -> ConfigError:
    path, key = _path_text(location), str(location[-1])
    section = "" if len(location) == 1 else str(location[0])
    if section == "clock":
        kinds = [kind for kind, keys in _CLOCK_KEYS.items() if key in keys]
        if kinds:
            rule = f"{key} belongs to the clock kind {' and '.join(kinds)}, this one is {settings['clock']['kind']}"
            return ConfigError("a setting of another kind of clock", field=path, rule=rule)
    if not section and key in JobConfig.model_fields:
        rule = "a scheduler's config has a source of commands, a purgatory's operations and events"
        return ConfigError("not a setting of a purgatory", field=path, rule=rule)
    known = _known_keys(section, settings)
    close = difflib.get_close_matches(key, known, n=1) or [name for name in known if key == f"{name}_ms"]
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return ConfigError("unknown key", field=path, hint=hint)


def _known_keys(section: str, settings: dict[str, Any]) -> list[str]:
    if section == "clock":
        return sorted(_CLOCK_KEYS[settings["clock"]["kind"]])
    model = _model_of(settings)
    sections: dict[str, type[BaseModel]] = {
        "": model,
        "wheel": models.WheelConfig,
        "source": models.SourceConfig,
        "operations": OperationsConfig,
        "events": EventsConfig,
        "watch": WatchConfig,
        "contract": models.AnyContractConfig if model is WatchJobConfig else models.ContractConfig,
        "destinations": models.SinkConfig,
        "rejects": models.SinkConfig,
        "limits": models.LimitsConfig,
        "levels": models.LevelsConfig,
        "store": models.StoreConfig,
    }
    return [field.alias or name for name, field in sections[section].model_fields.items()]


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"


def _faults_across(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """Rules that need two sections. They look at the raw settings, so that they speak up beside other faults."""
    contract, destinations = settings.get("contract"), settings.get("destinations")
    default = contract.get("default_destination") if isinstance(contract, dict) else None
    if isinstance(default, str) and isinstance(destinations, dict) and destinations:
        patterns = [pattern for pattern in destinations if isinstance(pattern, str)]
        if not any(fnmatch.fnmatchcase(default, pattern) for pattern in patterns):
            yield ConfigError(
                "the default destination is not on the allow-list",
                field="contract.default_destination",
                value=default,
                rule=f"a name that one of destinations matches: {', '.join(patterns)}",
            )
    yield from _kafka_faults(settings)
    if _model_of(settings) is WatchJobConfig:
        yield from _watch_faults(settings)
    else:
        yield from _mode_faults(settings)
        yield from _limit_faults(settings)
        yield from _level_faults(settings)
    seen: dict[str, str] = {}
    for field, path in _paths(settings):
        if (other := seen.setdefault(str(Path(path)), field)) != field:
            yield ConfigError(
                "one path with two uses", field=field, value=path, rule=f"not the path of {other}"
            )


def _kafka_faults(settings: dict[str, Any]) -> Iterator[ConfigError]:
    source, contract, rejects = (_section(settings, name) for name in ("source", "contract", "rejects"))
    reads_kafka = source.get("format") == "kafka"
    preset = contract.get("preset", kafka_options.DEFAULT_PRESET if reads_kafka else "columns")
    if reads_kafka:
        yield from kafka_options.source_faults(source)
        if preset == "columns":
            rule = f"one of {', '.join(kafka_options.PRESETS)} with a kafka source"
            yield ConfigError(
                "a Kafka record has no such columns", field="contract.preset", value=preset, rule=rule
            )
    elif preset in kafka_options.PRESETS and "format" in source:
        rule = "columns, unless the source is kafka"
        yield ConfigError("a preset of Kafka records", field="contract.preset", value=preset, rule=rule)
    for name, sink in _section(settings, "destinations").items():
        if isinstance(sink, dict) and sink.get("sink") == "kafka":
            field = _path_text(("destinations", str(name)))
            yield from kafka_options.sink_faults(sink, field, is_rejects=False)
    if rejects.get("sink") == "kafka":
        yield from kafka_options.sink_faults(rejects, "rejects", is_rejects=True)
        if reads_kafka and rejects.get("topic") in kafka_options.topic_names(source):
            what, rule = "the rejects would come back as commands", "not a topic of the source"
            yield ConfigError(what, field="rejects.topic", value=rejects["topic"], rule=rule)


def _watch_faults(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """Rules of a purgatory's sections."""
    for name in ("operations", "events"):
        if _section(settings, name).get("format") == "kafka":
            yield from kafka_options.source_faults(_section(settings, name), name)
    try:
        lookback_ms = WatchConfig.model_validate(_section(settings, "watch")).lookback_ms
        memory_ms = models.AnyContractConfig.model_validate(_section(settings, "contract")).memory_ms
    except ValidationError:
        return  # their own faults are told by the sections
    if memory_ms is not None and lookback_ms > memory_ms:
        yield ConfigError(
            "an operation cannot look back so far",
            field="watch.lookback",
            value=f"{lookback_ms} ms",
            rule=f"at most contract.memory, {memory_ms} ms: what is forgotten cannot be seen",
        )


def _mode_faults(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """What belongs to one mode and not to the other."""
    mode, wheel, clock = (
        settings.get("mode", "direct"),
        _section(settings, "wheel"),
        _section(settings, "clock"),
    )
    if mode != "tiered":
        given = [("store", settings.get("store"))]
        given += [(f"wheel.{name}", wheel.get(name)) for name in ("state_levels", "state_horizon")]
        for field, value in given:
            if value is not None:
                rule = "mode: tiered (in mode direct all levels are in Spark's state)"
                yield ConfigError(
                    "a setting of the tiered mode", field=field, value=redacted(value), rule=rule
                )
        return
    if "store" not in settings:
        yield ConfigError(
            "a required setting is missing",
            field="store",
            rule="mode: tiered keeps its far levels at store.path",
        )
    if clock.get("kind") == "simulated":
        hint = "event with until plays bounded input to its end without waiting"
        yield ConfigError(
            "no clock of the tiered mode",
            field="clock.kind",
            value="simulated",
            rule="event or processing",
            hint=hint,
        )
    try:
        models.WheelConfig.model_validate(wheel).layout()
    except ValidationError:
        pass  # its own faults are told by the section
    except ConfigError as fault:
        yield ConfigError(
            fault.what,
            field=f"wheel.{(fault.field or '').removesuffix('_ms')}",
            value=fault.value,
            rule=fault.rule,
            hint=fault.hint,
        )


def _limit_faults(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """Rules of the limits on what is pending."""
    limits, clock, wheel = (_section(settings, name) for name in ("limits", "clock", "wheel"))
    tiered = settings.get("mode", "direct") == "tiered"
    if limits.get("on_limit") == "pause" and (not tiered or clock.get("kind") == "event"):
        what = "the event clock" if tiered else "mode: direct"
        yield ConfigError(
            "the intake cannot pause here",
            field="limits.on_limit",
            value="pause",
            rule=f"not with {what}, where commands move the clock or the wheel: nothing would make room again",
            hint="reject; or mode: tiered with the processing clock",
        )
    shards = wheel.get("shards", models.WheelConfig.model_fields["shards"].default)
    for bound in models.PENDING_BOUNDS if not tiered and isinstance(shards, int) else ():
        most = limits.get(bound)
        if isinstance(most, int) and 0 < most < shards:
            rule = f"at least wheel.shards, {shards}: each shard has a part of it"
            yield ConfigError("too small a limit", field=f"limits.{bound}", value=most, rule=rule)


def _level_faults(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """Rules of the delay levels that look at the source or the wheel."""
    section = _section(settings, "levels")
    if section.get("policy") == "binary":
        for key in ("list", "on_beyond"):
            if section.get(key) is not None:
                rule = "policy: fixed (the levels of policy binary are all powers of two of wheel.tick)"
                yield ConfigError(
                    "a setting of the other policy", field=f"levels.{key}", value=section[key], rule=rule
                )
    try:
        found = models.LevelsConfig.model_validate(section)
        levels = found.levels(models.WheelConfig.model_validate(_section(settings, "wheel")).tick_ms)
    except (ValidationError, ConfigError):
        return  # told by the sections
    for topic, level_ms in found.topics.items():
        if not levels.has(level_ms):
            yield ConfigError(
                "not a delay level",
                field=_path_text(("levels", "topics", topic)),
                value=section["topics"][topic],
                rule="one of levels.list" if found.policy == "fixed" else "a power of two of wheel.tick",
            )
    yield from kafka_options.level_topic_faults(
        found.topics, _section(settings, "source"), _section(settings, "rejects")
    )
    for level_ms in found.paused:
        if level_ms not in found.topics.values():
            named = ", ".join(dict.fromkeys(level_name(each) for each in found.topics.values()))
            rule = f"a level with a topic of its own in levels.topics: {named or 'there is none'}"
            yield ConfigError(
                "the intake of this level cannot pause",
                field="levels.paused",
                value=level_name(level_ms),
                rule=rule,
            )


def _section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    return section if isinstance(section := settings.get(name), dict) else {}


def _paths(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    operations = _section(settings, "operations").get("path")
    for section in ("source", "operations", "events", "rejects", "store"):
        path = _section(settings, section).get("path")
        # One table may hold both operations and events.
        if isinstance(path, str) and not (section == "events" and path == operations):
            yield f"{section}.path", path
    if isinstance(settings.get("checkpoint"), str):
        yield "checkpoint", settings["checkpoint"]
