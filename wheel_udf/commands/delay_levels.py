"""Delay levels, the classic design of message brokers: which level a delay belongs to, and how large the
rounding error is.

A *delay level* is a fixed delay with a partition, a topic and a count of its own; it has nothing to do with
the levels of the wheel. A delay is the due time less ``event_time``. To the wheel a rounded due time is a due time, and
the level and the error are columns that an entry carries. There are two policies;
:func:`levels_of` and :func:`errors_of` compute them:

* :class:`FixedLevels` (RocketMQ's ``messageDelayLevel``): a list of delays; a delay between two of them is
  rounded **up**, so an entry is never early, and the error is bounded by the gap::

      list        5s   10s         30s                1m
      delay            10s  17s --> 30s                          error 0 for 10 s, 13 s for 17 s
      beyond 1m   reject: refused | top: 1m, earlier than requested (negative error) | exact: as requested, no level

* :class:`BinaryLevels` (the delay infrastructure of NServiceBus on RabbitMQ, a queue for each bit of the
  delay): levels of 2^k ticks. A delay is a sum of such levels, so it is kept to the millisecond, and the error is 0.
  The level of an entry is the first one that it would wait on, the highest that is not longer than its delay::

      tick 1 s    13 s = 8 s + 4 s + 1 s    level 8s

A level is named by its span (30 s is ``30s``), in stored data, too. So a list that changes between two starts
does not change the level of waiting entries. A delay of 0 or less has no level and no error; neither has a
delay of less than a tick under binary levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from wheel_udf.common.arrays import Int64s
from wheel_udf.common.durations import TOO_LONG_MS
from wheel_udf.common.errors import ConfigError

DEFAULT_LIST_MS: Final = tuple(
    seconds * 1_000 for seconds in (5, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 2_700, 3_600, 7_200)
)
"""5s 10s 30s 1m 2m 5m 10m 20m 30m 45m 1h 2h."""

MOST_LEVELS: Final = 64
"""Most levels of a list: each is a metric, a topic and a line of the page."""

LONGEST_LEVEL_MS: Final = TOO_LONG_MS
"""The longest duration (:mod:`wheel_udf.common.durations`): added to any instant of Spark it fits into 64 bits."""

ON_BEYOND: Final = ("reject", "top", "exact")
NO_LEVEL: Final = 0
"""In place of a span: no level."""

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


@dataclass(frozen=True, slots=True)
class FixedLevels:
    """A list of levels; a delay is rounded up to the next one.

    Args:
        list_ms: Spans of the levels in ms, positive and rising; at most :data:`MOST_LEVELS`.
        on_beyond: What happens to a delay beyond the last level: ``reject`` it, give it the ``top`` level (it
            then fires earlier than requested), or keep it ``exact``, without a level.

    Raises:
        ConfigError: The list or the word is not allowed.
    """

    list_ms: tuple[int, ...] = DEFAULT_LIST_MS
    on_beyond: Literal["reject", "top", "exact"] = "reject"

    def __post_init__(self) -> None:
        object.__setattr__(self, "list_ms", tuple(self.list_ms))
        if rule := list_rule(self.list_ms):
            raise ConfigError("not a list of delay levels", field="list_ms", value=self.list_ms, rule=rule)
        if self.on_beyond not in ON_BEYOND:
            rule = f"one of {', '.join(ON_BEYOND)}"
            raise ConfigError(
                "not one of the known values", field="on_beyond", value=self.on_beyond, rule=rule
            )

    def has(self, level_ms: int) -> bool:
        """Whether this is the span of a level."""
        return level_ms in self.list_ms


@dataclass(frozen=True, slots=True)
class BinaryLevels:
    """Levels of 1, 2, 4, 8, ... ticks; delays are not rounded.

    Args:
        tick_ms: The lowest level, in ms; the tick of the wheel.

    Raises:
        ConfigError: Not a positive whole number.
    """

    tick_ms: int

    def __post_init__(self) -> None:
        if not _is_span(self.tick_ms):
            rule = f"a whole number of ms from 1 to {LONGEST_LEVEL_MS}"
            raise ConfigError("not a tick", field="tick_ms", value=self.tick_ms, rule=rule)

    def has(self, level_ms: int) -> bool:
        """Whether this is the span of a level."""
        ticks, rest = divmod(level_ms, self.tick_ms)
        return not rest and ticks.bit_count() == 1


Levels = FixedLevels | BinaryLevels
"""A policy."""


def list_rule(list_ms: tuple[int, ...]) -> str | None:
    """The rule that a list of spans (ms) breaks; None if it is valid."""
    if not 1 <= len(list_ms) <= MOST_LEVELS:
        return f"1 to {MOST_LEVELS} levels"
    if not all(_is_span(level_ms) for level_ms in list_ms):
        return f"whole numbers of ms from 1 to {LONGEST_LEVEL_MS}"
    if any(low >= high for low, high in pairwise(list_ms)):
        return "each level longer than the one before"
    return None


def _is_span(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST_LEVEL_MS


def level_name(level_ms: int) -> str:
    """The name of a level by its span: ``30s``, ``90m``, ``1500ms``; the largest unit in which it is a whole number."""
    unit, unit_ms = next((unit, unit_ms) for unit, unit_ms in _UNITS if level_ms % unit_ms == 0)
    return f"{level_ms // unit_ms}{unit}"


def fingerprint(of_wheel: str, *, leveled: bool) -> str:
    """What must not change during the life of a checkpoint: the wheel, and whether there are delay levels
    (tables have their columns).

    The policy and its list may change: waiting entries keep their level.
    """
    return f"{of_wheel},delay_levels=on" if leveled else of_wheel


def refused_beyond_ms(levels: Levels) -> int | None:
    """The longest delay that is not refused; None if no delay is refused."""
    if isinstance(levels, BinaryLevels) or levels.on_beyond != "reject":
        return None
    return levels.list_ms[-1]


def level_beyond(levels: FixedLevels) -> int:
    """Span of the level of delays beyond the last level, in ms."""
    return levels.list_ms[-1] if levels.on_beyond == "top" else NO_LEVEL


def levels_of(levels: Levels, delays_ms: Int64s) -> Int64s:
    """The spans of the delay levels of delays, in ms: int64[n]."""
    if isinstance(levels, BinaryLevels):
        ticks = delays_ms // levels.tick_ms
        highest, left = np.zeros_like(ticks), ticks
        for bits in (32, 16, 8, 4, 2, 1):  # a logarithm in floats is wrong beyond 2**53
            is_longer = left >= 1 << bits
            highest += np.where(is_longer, bits, 0)
            left = np.where(is_longer, left >> bits, left)
        return np.where(ticks < 1, NO_LEVEL, levels.tick_ms << highest)
    spans_ms = np.array([*levels.list_ms, level_beyond(levels)], np.int64)
    return np.where(delays_ms <= 0, NO_LEVEL, spans_ms[np.searchsorted(spans_ms[:-1], delays_ms)])


def errors_of(levels: Levels, delays_ms: Int64s, spans_ms: Int64s) -> Int64s:
    """How much later than requested entries fire because of their delay levels, in ms: int64[n]."""
    if isinstance(levels, BinaryLevels):
        return np.zeros_like(delays_ms)
    # A delay in the lowest half of int64 has no level, and the difference would not fit.
    return np.where(spans_ms == NO_LEVEL, 0, spans_ms - delays_ms)
