"""The contract: the limits and names that :mod:`wheel_udf.commands.parse` checks every row against.

The rule of names, and the match of the allow-list: :mod:`wheel_udf.common.names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from wheel_udf.commands.delay_levels import Levels
from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.common.names import (
    NAME_RULE,
    PATTERN_RULE,
    AllowList,
    is_destination_name,
    is_destination_pattern,
)

PRESETS: Final = ("native", "json", "scheduler")
"""Names of the presets of Kafka records."""
DEFAULT_PRESET: Final = "native"

OPERATION_COLUMNS: Final = (
    "op_id", "group", "keys", "rule", "deadline", "limit", "event_time", "destination", "key", "value", "headers",
)  # fmt: skip
EVENT_COLUMNS: Final = ("group", "key", "op", "amount", "event_time")
"""The columns of the purgatory's two frames; their meaning: :mod:`wheel_udf.commands.operations`."""


@dataclass(frozen=True)
class Contract:
    """Limits of a command or an operation. Without arguments: anything that is well formed.

    Args:
        max_delay_ms: Longest time from ``event_time`` to the due time, in ms.
        max_value_bytes: Most bytes of value, key and headers (their keys and values) together.
        destinations: Allow-list of names; ``*`` stands for any text, ``?`` for any character. None: any
            well-formed name.
        default_destination: Where rows without a destination go. None: they are rejected.
        max_ahead_ms: How far ``event_time`` may be after the time of the batch, in ms.
        max_lateness_ms: ``max_lateness`` of rows without one, in ms. None: deliver however late.
        levels: The policy of delay levels (:mod:`wheel_udf.commands.delay_levels`). None: there are none.
        from_batch: Whether ``max_delay_ms`` counts from the time of the batch where that is before ``event_time``, as
            with the processing clock: else an event time of the far future would make any due time a short delay.

    Raises:
        ConfigError: A value is not allowed; all errors are reported together.
    """

    max_delay_ms: int | None = None
    max_value_bytes: int | None = None
    destinations: tuple[str, ...] | None = None
    default_destination: str | None = None
    max_ahead_ms: int | None = None
    max_lateness_ms: int | None = None
    levels: Levels | None = None
    from_batch: bool = False

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
            rule=PATTERN_RULE,
        )
        for each in destinations
        if not is_destination_pattern(each)
    ]


def _default_faults(name: object, destinations: Sequence[str] | None) -> list[ConfigError]:
    if name is None:
        return []
    if not isinstance(name, str) or not is_destination_name(name):
        return [ConfigError("not a destination", field="default_destination", value=name, rule=NAME_RULE)]
    if AllowList(destinations or ["*"]).first(name) is not None:
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
    """The first ten entries of an allow-list, for a message."""
    return ", ".join(destinations[:10]) + (
        f" and {len(destinations) - 10} more" if len(destinations) > 10 else ""
    )
