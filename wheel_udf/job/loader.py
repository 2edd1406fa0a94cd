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

from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.common.secrets import redacted, resolve
from wheel_udf.job.config_text import apply_override, mapping_of_text, text_of
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
    return check(mapping_of_text(text_of(Path(path)), str(path)), overrides)


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
