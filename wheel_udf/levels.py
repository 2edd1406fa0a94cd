"""Delay levels, the classic design of message brokers, as a policy: which level a delay belongs to, and what rounding it costs.

A delay is the due time less ``event_time``. Two policies, the same formulas written three times (plain int, numpy, Spark ``Column``):

* :class:`FixedLevels` (RocketMQ's ``messageDelayLevel``): a list of delays; one between two of them is rounded **up**, so what was asked for
  is never early, and the error is bounded by the gap::

      list        5s   10s         30s                1m
      delay            10s  17s --> 30s                          error 0 for 10 s, 13 s for 17 s
      beyond 1m   reject: refused | top: 1m, earlier than asked, the error is negative | exact: as asked, no level

* :class:`BinaryLevels` (the delay infrastructure of NServiceBus on RabbitMQ, a queue for each bit of the delay): levels of 2^k ticks, each
  twice the one below. A delay is a sum of such levels, so it is kept to the millisecond, and the error is 0. The level of an entry is the first
  one that it would wait on: the highest that is not above its delay::

      tick 1 s    13 s = 8 s + 4 s + 1 s    level 8s

A level is named by its span (30 s is ``30s``), in what is stored too: a list that changes between two starts gives entries that wait no
other level. A delay of 0 or less has no level and no error, and so has a binary one of less than a tick.

Cost: plain int and numpy one search among the levels; Column a comparison for each level of a list up to the delay's own, and a branch of code
for each of them all.

This module runs on executors: it imports pyspark only inside the Column functions.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from wheel_udf.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column

DEFAULT_LIST_MS: Final = tuple(
    seconds * 1_000 for seconds in (5, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 2_700, 3_600, 7_200)
)
"""5s 10s 30s 1m 2m 5m 10m 20m 30m 45m 1h 2h."""

MOST_LEVELS: Final = 64
"""Of a list: each is a branch of the code that Spark runs for a row."""

LONGEST_LEVEL_MS: Final = 2**60
"""As long as a duration can be (:mod:`wheel_udf.durations`): added to any instant of Spark it fits into 64 bits."""

ON_BEYOND: Final = ("reject", "top", "exact")
NO_LEVEL: Final = 0
"""The span of no level."""

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


@dataclass(frozen=True, slots=True)
class FixedLevels:
    """A list of levels; a delay is rounded up to the next one.

    Args:
        list_ms: Spans of the levels in ms, positive and rising; at most :data:`MOST_LEVELS`.
        on_beyond: What becomes of a delay beyond the last one: ``reject`` it, give it the ``top`` level (it then fires earlier than asked), or
            keep it ``exact``, without a level.

    Raises:
        ConfigError: Not such a list, or not such a word.
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
    """Levels of 1, 2, 4, 8, ... ticks; delays are kept as they are.

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
        return level_ms >= self.tick_ms and level_of(self, level_ms) == level_ms


Levels = FixedLevels | BinaryLevels
"""A policy."""


def list_rule(list_ms: tuple[int, ...]) -> str | None:
    """The rule that a list of spans (ms) breaks; None if it is a good one."""
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
    """What must not change while a checkpoint lives: the wheel, and whether there are levels (tables have columns of them).

    The policy and its list may change: entries that wait keep what they were given.
    """
    return f"{of_wheel},delay_levels=on" if leveled else of_wheel


# ---- plain int ---------------------------------------------------------------------------------------------


def level_of(levels: Levels, delay_ms: int) -> int:
    """Span of the level that a delay belongs to, in ms; :data:`NO_LEVEL` for none (also for what ``reject`` refuses)."""
    if delay_ms <= 0:
        return NO_LEVEL
    if isinstance(levels, BinaryLevels):
        ticks = delay_ms // levels.tick_ms
        return levels.tick_ms << (ticks.bit_length() - 1) if ticks else NO_LEVEL
    at = bisect_left(levels.list_ms, delay_ms)
    return levels.list_ms[at] if at < len(levels.list_ms) else _level_beyond(levels)


def error_of(levels: Levels, delay_ms: int, level_ms: int) -> int:
    """How much later than asked it fires for the sake of its level, in ms; negative only where ``top`` makes it fire earlier."""
    return 0 if isinstance(levels, BinaryLevels) or level_ms == NO_LEVEL else level_ms - delay_ms


def is_beyond(levels: Levels, delay_ms: int) -> bool:
    """Whether a delay is refused: it lies beyond the last level, and ``on_beyond`` is ``reject``."""
    last_ms = refused_beyond_ms(levels)
    return last_ms is not None and delay_ms > last_ms


def refused_beyond_ms(levels: Levels) -> int | None:
    """The longest delay that is not refused; None if none is."""
    if isinstance(levels, BinaryLevels) or levels.on_beyond != "reject":
        return None
    return levels.list_ms[-1]


def _level_beyond(levels: FixedLevels) -> int:
    return levels.list_ms[-1] if levels.on_beyond == "top" else NO_LEVEL


# ---- numpy -------------------------------------------------------------------------------------------------


def levels_of(levels: Levels, delay_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """:func:`level_of` for many: delays int64[n] to spans int64[n]."""
    if isinstance(levels, BinaryLevels):
        below = np.searchsorted(_powers(levels), delay_ms, side="right")
        powers: NDArray[np.int64] = np.r_[NO_LEVEL, _powers(levels)]
        return powers[below]
    at = np.searchsorted(np.array(levels.list_ms, np.int64), delay_ms, side="left")
    spans = np.array([*levels.list_ms, _level_beyond(levels)], np.int64)[at]
    return np.where(delay_ms > 0, spans, NO_LEVEL)


def errors_of(levels: Levels, delay_ms: NDArray[np.int64], level_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """:func:`error_of` for many: delays and spans, int64[n] each, to errors int64[n]."""
    if isinstance(levels, BinaryLevels):
        return np.zeros(len(delay_ms), np.int64)
    # Where there is a level the delay is positive, so the difference fits.
    return np.where(level_ms == NO_LEVEL, 0, level_ms - np.maximum(delay_ms, 0))


def _powers(levels: BinaryLevels) -> NDArray[np.int64]:
    most = (2**63 - 1) // levels.tick_ms
    return np.array([levels.tick_ms << k for k in range(most.bit_length())], np.int64)


# ---- Spark Column ------------------------------------------------------------------------------------------


def level_column(levels: Levels, delay_ms: Column) -> Column:
    """:func:`level_of` as a Spark expression (long); null for null."""
    from pyspark.sql import functions as F

    none = F.lit(NO_LEVEL).cast("long")
    if isinstance(levels, BinaryLevels):
        tick_ms = F.lit(levels.tick_ms).cast("long")
        # The digits of a number in binary are one more than its logarithm, without a float in between. Spark counts shifts modulo 64.
        highest = F.length(F.bin(F.call_function("div", delay_ms, tick_ms))) - 1
        power = tick_ms * F.call_function("shiftleft", F.lit(1).cast("long"), highest)
        return F.when(delay_ms < tick_ms, none).when(delay_ms >= tick_ms, power)
    chain = F.when(delay_ms <= 0, none)
    for level_ms in levels.list_ms:
        chain = chain.when(delay_ms <= level_ms, F.lit(level_ms).cast("long"))
    beyond = F.lit(_level_beyond(levels)).cast("long")
    return chain.when(delay_ms.isNotNull(), beyond)


def error_column(levels: Levels, delay_ms: Column, level_ms: Column) -> Column:
    """:func:`error_of` as a Spark expression (long); null for null."""
    from pyspark.sql import functions as F

    none = F.lit(0).cast("long")
    if isinstance(levels, BinaryLevels):
        return F.when(level_ms.isNotNull(), none)
    # A delay of int64's lowest half has no level, and would not fit.
    return F.when(level_ms == NO_LEVEL, none).when(level_ms > NO_LEVEL, level_ms - delay_ms)


def is_beyond_column(levels: Levels, delay_ms: Column) -> Column:
    """:func:`is_beyond` as a Spark expression (boolean); null for null where something is refused."""
    from pyspark.sql import functions as F

    last_ms = refused_beyond_ms(levels)
    return F.lit(False) if last_ms is None else delay_ms > last_ms
