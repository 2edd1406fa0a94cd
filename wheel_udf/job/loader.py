"""Reads a config file: a YAML mapping in, a checked :class:`AnyConfig` out, or all its errors together.

Reading has four steps; each adds to one list of errors, which is raised as one :class:`ConfigErrors`::

    text --YAML--> mapping --overrides--> mapping --secrets--> mapping --models--> SchedulerConfig | PurgatoryConfig
         syntax,           --set a.b=c            ${env:NAME}          types, bounds, unknown keys, rules
         duplicate keys                           ${file:/path}        (wheel_udf.job.models, wheel_udf.job.faults)

Values. A duration is a text with a unit (``1 second``, ``PT10M``), never a bare number, and becomes an attribute that
ends in ``_ms``. An instant is an ISO text, UTC if it has no zone. ``clock.max_ahead: none``, ``contract.memory:
unlimited`` (remember for ever) and ``contract.max_delay: unlimited`` lift a bound. Relative paths are relative to the
working directory. Unknown keys are errors; a setting of another mode, clock, format, sink or policy is reported as
such.

Overrides (``--set``). ``a.b=c`` sets key ``b`` of section ``a``; the value is read as YAML, and an empty value removes
the setting. A key that holds dots is put in double quotes (mind the shell's own quoting)::

    --set wheel.size=60   --set 'destinations."reminders.*".path=data/out'   --set limits.fired_per_batch=

Secrets (:mod:`wheel_udf.common.secrets`) never appear in a message.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.common.secrets import redacted, resolve
from wheel_udf.job.faults import Location, faults_of
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.models.scheduler import AnySchedulerConfig, DirectConfig, TieredConfig
from wheel_udf.job.models.section import keys_of

# --- reading --------------------------------------------------------------------------------------


def load(path: str | Path, overrides: Sequence[str] = ()) -> AnyConfig:
    """Reads, overrides and checks a config file. One with a section ``operations`` or ``events`` is a purgatory's.

    Args:
        path: The YAML file.
        overrides: Settings as ``a.b=c``, applied in order before the check.

    Returns:
        The checked config.

    Raises:
        ConfigError: If there is no such file or it is not YAML.
        ConfigErrors: With all other errors of the file and the overrides together.
    """
    return check(mapping_of_text(_read(Path(path)), str(path)), overrides)


_SECTIONS = {key for model in (DirectConfig, TieredConfig, PurgatoryConfig) for key in keys_of(model)}


def check(raw: dict[str, Any], overrides: Sequence[str] = ()) -> AnyConfig:
    """Checks a config that is a mapping already; see :func:`load`. ``raw`` is not changed."""
    faults: list[ConfigError] = []
    settings = deepcopy(raw)
    for override in overrides:
        try:
            apply_override(settings, override)
        except ConfigError as fault:
            faults.append(fault)
    model: Any = PurgatoryConfig if {"operations", "events"} & settings.keys() else AnySchedulerConfig
    # An empty section (all its settings are commented out) counts as missing. A misspelled one stays an unknown key.
    settings = {key: value for key, value in settings.items() if value is not None or key not in _SECTIONS}
    settings, unfilled = resolve(settings)
    faults += unfilled.values()
    config: AnyConfig | None = None
    try:
        config = TypeAdapter[AnyConfig](model).validate_python(settings)
    except ValidationError as error:
        found = _in_order_of(settings, faults_of(error, model))
        faults += [_without_secrets(fault) for path, fault in found if tuple(map(str, path)) not in unfilled]
    if config is None or faults:
        raise ConfigErrors(faults)
    return config


def _in_order_of(
    settings: dict[str, Any], faults: Iterable[tuple[Location, ConfigError]]
) -> list[tuple[Location, ConfigError]]:
    """The errors in the order of the sections in the file; those of missing sections are last."""
    places = {key: place for place, key in enumerate(settings)}
    return sorted(faults, key=lambda each: places.get(str([*each[0], each[1].field][0]), len(places)))


def _without_secrets(fault: ConfigError) -> ConfigError:
    # Here, and not where it is printed: an error shortens its value, and half a secret is not found any more.
    value = redacted(fault.value)
    return ConfigError(fault.what, field=fault.field, value=value, rule=fault.rule, hint=fault.hint)


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
    """Safe YAML: instants stay texts, a duplicate key is an error, and so is all that PyYAML itself stumbles over."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002  # as PyYAML's
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, AttributeError):  # 0x_, a number of 5000 digits, !!bool of a word
            problem = f"not a value of the type {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


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
                problem=f"the key {key!r} occurs twice", problem_mark=key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def _yaml(text: str) -> Any:
    """The value of a YAML text; raises YAMLError for other texts."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="nested too deeply") from None


def mapping_of_text(text: str, origin: str) -> dict[str, Any]:
    """The settings in the text of a config; `origin` names it in errors."""
    try:
        settings = _yaml(text)
    except yaml.YAMLError as error:
        # Only the problem and its place: the line itself may hold a password.
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise ConfigError(
            f"the config file is not valid YAML ({problem})", field=f"{origin}{place}"
        ) from None
    if not isinstance(settings, dict):
        found = "nothing" if settings is None else f"a {type(settings).__name__}"
        raise ConfigError(
            f"the config file holds {found}", field=origin, rule="a mapping of settings at the top"
        )
    return settings


_KEY = r'(?:"[^"]+"|[^."=\s]+)'
_PATH = re.compile(rf"\s*({_KEY}(?:\.{_KEY})*)\s*=")


def apply_override(settings: dict[str, Any], override: str) -> None:
    """Puts the value of a ``--set`` into settings."""
    path, value = _split(override)
    section = settings
    for depth, key in enumerate(path[:-1], start=1):
        inner = section.setdefault(key, {})
        if inner is None:
            inner = section[key] = {}
        if not isinstance(inner, dict):
            raise ConfigError(
                "--set names a key inside a value that is not a section", field=".".join(path[:depth])
            )
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
            "--set cannot be read", field=override.partition("=")[0] or "--set", rule="a.b=c", hint=hint
        )
    keys = [key.strip('"') for key in re.findall(_KEY, match[1])]
    try:
        return keys, _yaml(override[match.end() :])
    except yaml.YAMLError:
        raise ConfigError("the value of --set is not valid YAML", field=".".join(keys)) from None
