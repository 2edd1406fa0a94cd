"""Delay levels in plain int: what the columns of :mod:`wheel_udf.commands.tier_columns` are compared with."""

from __future__ import annotations

from bisect import bisect_left

from wheel_udf.commands.delay_levels import (
    NO_LEVEL,
    BinaryLevels,
    Levels,
    level_beyond,
)


def level_of(levels: Levels, delay_ms: int) -> int:
    """Span of a delay's level, in ms; none also for a delay that ``reject`` refuses."""
    if delay_ms <= 0:
        return NO_LEVEL
    if isinstance(levels, BinaryLevels):
        ticks = delay_ms // levels.tick_ms
        return levels.tick_ms << (ticks.bit_length() - 1) if ticks else NO_LEVEL
    at = bisect_left(levels.list_ms, delay_ms)
    return levels.list_ms[at] if at < len(levels.list_ms) else level_beyond(levels)


def error_of(levels: Levels, delay_ms: int, level_ms: int) -> int:
    """How much later than requested an entry fires by its level, in ms."""
    return 0 if isinstance(levels, BinaryLevels) or level_ms == NO_LEVEL else level_ms - delay_ms
