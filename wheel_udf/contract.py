"""What a command or an operation may ask for: the limits and names that :mod:`wheel_udf.commands` holds every row to.

Destinations are names in the style of Kafka's topics. A name is checked against that rule before any pattern
of the allow-list is tried, so that no pattern, however wide, can let a path or a piece of SQL through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from wheel_udf.errors import ConfigError, ConfigErrors
from wheel_udf.levels import Levels

NAME_PATTERN: Final = "[A-Za-z0-9._-]{1,249}"
"""Well-formed names of destinations, but for ``.`` and ``..``."""

NAME_RULE: Final = "1 to 249 of A-Z a-z 0-9 . _ - and neither . nor .."

OPERATION_COLUMNS: Final = (
    "op_id", "group", "keys", "rule", "deadline", "limit", "event_time", "destination", "key", "value", "headers",
)  # fmt: skip
EVENT_COLUMNS: Final = ("group", "key", "op", "amount", "event_time")
"""The columns of a purgatory's two frames; what they mean: :mod:`wheel_udf.watch_rows`."""

_WILDCARDS: Final = {"*": ".*", "?": "."}


def is_well_named(name: object) -> bool:
    """Whether a destination may be called that."""
    return isinstance(name, str) and re.fullmatch(NAME_PATTERN, name) is not None and name not in {".", ".."}


@dataclass(frozen=True)
class Contract:
    """What a command may ask for. Without arguments: anything that is well formed.

    Args:
        max_delay_ms: Longest time from ``event_time`` to the due time, in ms.
        max_value_bytes: Most bytes of value, key and headers (their keys and values) together.
        destinations: Allow-list of names; ``*`` stands for any text, ``?`` for any character. None: any
            well-formed name.
        default_destination: Where rows without a destination go. None: they are rejected.
        max_ahead_ms: How far ``event_time`` may lie beyond the time of the batch, in ms.
        max_lateness_ms: ``max_lateness`` of rows without one, in ms. None: deliver however late.
        levels: The policy of delay levels (:mod:`wheel_udf.levels`). None: there are none.

    Raises:
        ConfigError: A value that cannot work; all faults at once.
    """

    max_delay_ms: int | None = None
    max_value_bytes: int | None = None
    destinations: tuple[str, ...] | None = None
    default_destination: str | None = None
    max_ahead_ms: int | None = None
    max_lateness_ms: int | None = None
    levels: Levels | None = None

    def __post_init__(self) -> None:
        limits = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name.startswith("max_")
        }
        faults = [fault for name, value in limits.items() for fault in _limit_faults(name, value)]
        faults += _list_faults(self.destinations) or _default_faults(
            self.default_destination, self.destinations
        )
        if faults:
            raise faults[0] if len(faults) == 1 else ConfigErrors(faults)
        if self.destinations is not None:
            object.__setattr__(self, "destinations", tuple(self.destinations))


def allow_list(destinations: Sequence[str]) -> tuple[list[str], str | None]:
    """An allow-list as its plain names, and (if any) its patterns as one expression of Python and Java."""
    names = [each for each in destinations if not _WILDCARDS.keys() & set(each)]
    patterns = [
        "".join(_WILDCARDS.get(char) or re.escape(char) for char in each)
        for each in destinations
        if each not in names
    ]
    return names, "|".join(patterns) or None


def _limit_faults(name: str, value: object) -> list[ConfigError]:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63):
        return []
    return [
        ConfigError(
            "not a limit", field=name, value=value, rule="a whole number from 0 to 2**63 - 1, or None"
        )
    ]


def _list_faults(destinations: object) -> list[ConfigError]:
    if destinations is None:
        return []
    if not isinstance(destinations, tuple | list) or not destinations:
        rule = "a tuple of at least one name or pattern, or None for any well-formed name"
        return [ConfigError("not an allow-list", field="destinations", value=destinations, rule=rule)]
    return [
        ConfigError(
            "no destination can match",
            field="destinations",
            value=each,
            rule=f"{NAME_RULE}; * for any text, ? for any one character",
        )
        for each in destinations
        if not (isinstance(each, str) and is_well_named(each.replace("*", "_").replace("?", "_")))
    ]


def _default_faults(name: object, destinations: Sequence[str] | None) -> list[ConfigError]:
    if name is None:
        return []
    if not isinstance(name, str) or not is_well_named(name):
        return [ConfigError("not a destination", field="default_destination", value=name, rule=NAME_RULE)]
    names, patterns = allow_list(destinations or ["*"])
    if name in names or (patterns and re.fullmatch(patterns, name)):
        return []
    return [
        ConfigError(
            "not an allowed destination",
            field="default_destination",
            value=name,
            rule=f"one of {shortened(destinations or ())}",
            hint="add it to destinations",
        )
    ]


def shortened(destinations: Sequence[str]) -> str:
    """An allow-list for a message: its first ten entries."""
    return ", ".join(destinations[:10]) + (
        f" and {len(destinations) - 10} more" if len(destinations) > 10 else ""
    )
