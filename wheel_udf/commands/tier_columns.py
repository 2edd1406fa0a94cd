"""Tiers as Spark ``Column`` expressions: level and slot of a due time.

The formulas of :mod:`wheel_udf.common.geometry` (``level_of``, ``slot_of``) in JVM expressions alone (no UDF). They
give the same results as the plain int and numpy forms for every int64, and neither overflow nor raise under Spark's
ANSI mode.

Cost: two divisions for each level of the wheel up to the level of the entry.
"""

from __future__ import annotations

from pyspark.sql import Column, functions as F

from wheel_udf.common.geometry import INT64_MAX, Wheel, ticks_of


def level_column(wheel: Wheel, deliver_at_ms: Column | int, clock_ms: Column | int) -> Column:
    """The level of a due time (int); null if either instant is null."""
    due, clock = _long(deliver_at_ms), _long(clock_ms)
    ahead = wheel.size - 1
    chain = F.when(due.isNull() | clock.isNull(), F.lit(None))
    for level, tick_ms in enumerate(ticks_of(wheel)[:-1], start=1):
        last_slot = F.least(_floor_div(clock, _long(tick_ms)), _long(INT64_MAX - ahead)) + _long(ahead)
        chain = chain.when(_floor_div(due, _long(tick_ms)) <= last_slot, F.lit(level))
    return chain.otherwise(F.lit(wheel.levels)).cast("int")


def slot_column(wheel: Wheel, level: Column | int, deliver_at_ms: Column | int) -> Column:
    """The absolute slot of a due time on a level (long); null for null and for a level that the wheel does not have."""
    return _floor_div(_long(deliver_at_ms), _tick_column(wheel, level))


def _tick_column(wheel: Wheel, level: Column | int) -> Column:
    # One literal array: `get` returns null outside it, where `element_at` would raise, and it names `level`
    # only once, so that expressions built on one another stay small.
    ticks_ms = F.array(_long(None), *(_long(u) for u in ticks_of(wheel)))
    return F.get(ticks_ms, F.lit(level))


def _floor_div(value: Column, by: Column) -> Column:
    """Division rounded down; ``by`` is positive. Spark's ``div`` rounds towards 0."""
    return F.call_function("div", value, by) - F.when(value % by < 0, 1).otherwise(0)


def _long(value: Column | int | None) -> Column:
    # Without the cast a small number is an int, and its arithmetic overflows at 2**31.
    return F.lit(value).cast("long")
