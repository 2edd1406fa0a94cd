"""Sinks of users: imports the class that a config names (``sink: my.module:MySink``), makes a sink with the
``options``, and checks it against the protocol :class:`~wheel_udf.sinks.destinations.Sink`.

::

    "my.module:MySink", {"path": "out"} --> MySink(path="out") --> missing_reason, write, holds? --> sink or ConfigError
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, cast

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.secrets import hide

if TYPE_CHECKING:
    from wheel_udf.sinks.destinations import Sink

OWN_SINK_PATTERN: Final = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
"""A module and a class in it."""

_RULE: Final = "module:Class, such as my.module:MySink"
_HINT: Final = "the module has to be installed, or in a folder of PYTHONPATH"


def make_own_sink(name: str, options: Mapping[str, Any]) -> Sink:
    """Makes a sink of a user's class, ``module:Class``, with the options as its arguments.

    Raises:
        ConfigError: There is no such class, it cannot be made with these options, or it lacks a method of the protocol.
    """
    from wheel_udf.sinks.destinations import JointSink  # needs pyspark; the pattern of a name does not

    made = _class_of(name)
    try:
        sink = made(**options)
    except Exception as fault:  # whatever the class raises  # noqa: BLE001
        raise ConfigError(
            "the sink cannot be made with these options",
            field="options",
            rule=hide(f"{made.__name__}: {_message_of(fault)}"),
        ) from None
    methods = ("missing_reason", "write", "holds")
    if missing := [method for method in methods if not callable(getattr(sink, method, None))]:
        hint, rule = (
            "they are described in wheel_udf.sinks.destinations.Sink",
            f"it has methods {', '.join(missing)}",
        )
        raise ConfigError("not a sink", field="sink", value=name, rule=rule, hint=hint)
    if isinstance(sink, JointSink) and type(sink).__hash__ is None:
        rule = "one with write_all is hashable: a frozen dataclass, for example"
        raise ConfigError("not a sink", field="sink", value=name, rule=rule)
    return cast("Sink", sink)


def _class_of(name: str) -> Callable[..., object]:
    if not re.fullmatch(OWN_SINK_PATTERN, name):
        raise ConfigError("not the name of a class", field="sink", value=name, rule=_RULE)
    try:
        found = resolve_name(name)
    except AttributeError as fault:
        raise ConfigError(
            "the module has no such class", field="sink", value=name, rule=_message_of(fault)
        ) from None
    except Exception as fault:  # a module may raise anything  # noqa: BLE001
        what = "the module of a sink cannot be imported"
        raise ConfigError(what, field="sink", value=name, rule=hide(_message_of(fault)), hint=_HINT) from None
    if not callable(found):
        raise ConfigError("not a class", field="sink", value=name, rule=_RULE)
    return cast("Callable[..., object]", found)


def _message_of(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"
