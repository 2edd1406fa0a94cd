"""The contract: the limits and names that :mod:`wheel_udf.commands.parse` checks every row against.

The rule of names, and the match of the allow-list: :mod:`wheel_udf.common.names`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

MOST_MISSED: Final = 1_000_000_000
"""The largest ``most_missed``."""

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
        time_zone: The zone of rows without one.
        most_missed: Most occurrences of a series that are released late with ``on_missed: all``.
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
    time_zone: str = "UTC"
    most_missed: int = 1_000
    from_batch: bool = False

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise faults[0] if len(faults) == 1 else ConfigErrors(faults)
        if self.destinations is not None:
            object.__setattr__(self, "destinations", tuple(self.destinations))

    def _faults(self) -> Iterator[ConfigError]:
        for name in (field.name for field in fields(self) if field.name.startswith("max_")):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and 0 <= value < 2**63):
                rule = "a whole number from 0 to 2**63 - 1, or None"
                yield ConfigError("not a limit", field=name, value=value, rule=rule)
        if not (type(self.most_missed) is int and 1 <= self.most_missed <= MOST_MISSED):
            rule = f"a whole number, from 1 to {MOST_MISSED}"
            yield ConfigError("not a limit", field="most_missed", value=self.most_missed, rule=rule)
        levels: object = self.levels
        if not isinstance(levels, Levels | None):
            rule = "FixedLevels, BinaryLevels or None"
            yield ConfigError("not delay levels", field="levels", value=levels, rule=rule)
        yield from self._destination_faults()

    def _destination_faults(self) -> Iterator[ConfigError]:
        listed: object = self.destinations
        if listed is not None and (not isinstance(listed, tuple | list) or not listed):
            rule = "a tuple of at least one name or pattern, or None for any well-formed name"
            yield ConfigError("not an allow-list", field="destinations", value=listed, rule=rule)
            return
        wrong = [each for each in self.destinations or () if not is_destination_pattern(each)]
        for each in wrong:
            yield ConfigError("no destination can match", field="destinations", value=each, rule=PATTERN_RULE)
        default: object = self.default_destination
        field = "default_destination"
        if wrong or default is None:
            return
        if not isinstance(default, str) or not is_destination_name(default):
            yield ConfigError("not a destination", field=field, value=default, rule=NAME_RULE)
        elif AllowList(self.destinations or ["*"]).first(default) is None:
            rule, hint = f"one of {shortened(self.destinations or ())}", "add it to destinations"
            yield ConfigError("not an allowed destination", field=field, value=default, rule=rule, hint=hint)


def shortened(destinations: Sequence[str]) -> str:
    """The first ten entries of an allow-list, for a message."""
    return ", ".join(destinations[:10]) + (
        f" and {len(destinations) - 10} more" if len(destinations) > 10 else ""
    )
