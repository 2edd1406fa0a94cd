"""The geometry of a hierarchical timing wheel: level, slot and bucket of a due time, as integer formulas.

A wheel has ``levels`` levels of ``size`` slots. Level k (from 1) has

* a tick ``u_k = tick_ms * size**(k - 1)``, the width of one of its slots,
* an interval ``u_k * size``, what its ``size`` slots span together: the tick of the level above,
* its own clock, ``c_k = floor(clock / u_k) * u_k``.

An entry due at d sits on the lowest level with ``d < c_k + u_k * size``; the top level takes all the rest, so
nothing is beyond the wheel. Its slot is the absolute number ``floor(d / u_k)``, its place on the ring
``slot mod size``, and its bucket ``[slot * u_k, (slot + 1) * u_k)``. ``Wheel(tick_ms=1, size=20, levels=3)``
with the clock at 0::

    level  tick  interval  takes d in   d = 450: slot  ring  bucket
    1      1     20        [..., 20)
    2      20    400       [20, 400)
    3      400   8000      [400, ...)            1     1     [400, 800)

When the clock reaches 400, the entries of this bucket are placed again by the same rule (the cascade): 450 is
then on level 2 in [440, 460), and from 440 on level 1 in [450, 451). A bucket always empties to lower levels:
its start is a tick of every level below it, and the interval of the level just below is exactly its width.

There are three implementations: plain int (``level_of``) and numpy (``levels_of``) here, and Spark ``Column`` in
:mod:`wheel_udf.commands.tier_columns`. They give the same result for every pair of int64 instants, negative ones
included (floor, never truncation), and none of them overflows or raises:

* The rule is computed as ``floor(d / u_k) <= floor(clock / u_k) + size - 1``: the same rule without a product,
  with the right side held at 2**63 - 1. No slot is above that, so the result stays exact. (numpy has one clock
  for many entries: there the last instant of each level is computed once, in Python ints.)
* Only a bucket's edges can lie outside int64 (the bucket of -2**63 may start before it); they are held at the
  extremes, so the last bucket seems to end at 2**63 - 1 and may still hold an entry due then.

Cost: plain int O(levels); numpy one binary search among ``levels - 1`` numbers for the level of an entry and one
division for its slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from wheel_udf.common.errors import GeometryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_MOST_LEVELS = 62  # with the smallest size, 2, one more level would not fit into int64


@dataclass(frozen=True, slots=True)
class Wheel:
    """The shape of a wheel.

    Args:
        tick_ms: Width of a slot of level 1, in ms; at least 1.
        size: Slots of each level; at least 2.
        levels: Number of levels; at least 1. The top level is open-ended.

    Raises:
        GeometryError: A number is not an int or too small, or ``tick_ms * size**levels`` is not below 2**63.
    """

    tick_ms: int
    size: int
    levels: int

    def __post_init__(self) -> None:
        for name, least in (("tick_ms", 1), ("size", 2), ("levels", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                rule = f"a whole number, at least {least}"
                raise GeometryError("this wheel cannot be built", field=name, value=value, rule=rule)
        # The number of levels is checked first: a power of a huge one would take for ever.
        if self.levels > _MOST_LEVELS or self.tick_ms * self.size**self.levels > INT64_MAX:
            raise GeometryError(
                "this wheel spans more than 64 bits of ms",
                field="tick_ms, size, levels",
                value=(self.tick_ms, self.size, self.levels),
                rule="tick_ms * size**levels below 2**63",
                hint="take fewer levels: the top one is open-ended",
            )

    def tick_of(self, level: int) -> int:
        """Width of a slot of this level, in ms.

        Raises:
            GeometryError: The wheel has no such level.
        """
        if not 1 <= level <= self.levels:
            rule = f"from 1 to {self.levels}"
            raise GeometryError("the wheel has no such level", field="level", value=level, rule=rule)
        tick_ms: int = self.tick_ms * self.size ** (level - 1)
        return tick_ms

    def interval_of(self, level: int) -> int:
        """What all slots of this level span together, in ms."""
        return self.tick_of(level) * self.size

    def fingerprint(self) -> str:
        """The shape as text; stored beside the state to detect another geometry."""
        return f"tick_ms={self.tick_ms},size={self.size},levels={self.levels}"


# ---- plain int -----------------------------------------------------------------------------------


def level_of(wheel: Wheel, deliver_at_ms: int, clock_ms: int) -> int:
    """Lowest level, from 1, whose interval still holds this due time; the top level if none does."""
    for level, tick_ms in enumerate(ticks_of(wheel)[:-1], start=1):
        if deliver_at_ms // tick_ms < clock_ms // tick_ms + wheel.size:
            return level
    return wheel.levels


def slot_of(wheel: Wheel, level: int, deliver_at_ms: int) -> int:
    """Absolute slot number of a due time on a level; negative before 1970."""
    return deliver_at_ms // wheel.tick_of(level)


def bucket_interval(wheel: Wheel, level: int, slot: int) -> tuple[int, int]:
    """The instants ``[start_ms, end_ms)`` of a slot, each held within int64."""
    tick_ms = wheel.tick_of(level)
    return _held(slot * tick_ms), _held((slot + 1) * tick_ms)


def _held(instant_ms: int) -> int:
    return min(max(instant_ms, INT64_MIN), INT64_MAX)


# ---- numpy ---------------------------------------------------------------------------------------


def levels_of(wheel: Wheel, deliver_at_ms: NDArray[np.int64], clock_ms: int) -> NDArray[np.int32]:
    """:func:`level_of` for many due times at one clock.

    Args:
        wheel: The wheel.
        deliver_at_ms: Due times, int64[n].
        clock_ms: The clock, an int64.

    Returns:
        Levels, int32[n].
    """
    found = np.searchsorted(_last_instants(wheel, clock_ms), deliver_at_ms, side="left")
    return (found + 1).astype(np.int32)


def slots_of(wheel: Wheel, levels: NDArray[np.int32], deliver_at_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """:func:`slot_of` for many: levels int32[n] and due times int64[n] to absolute slots int64[n]."""
    return np.floor_divide(deliver_at_ms, _at(levels, ticks_of(wheel)))


def _last_instants(wheel: Wheel, clock_ms: int) -> NDArray[np.int64]:
    """The last due time that each level but the top one takes, int64[levels - 1], rising."""
    clock = int(clock_ms)  # a numpy scalar would overflow below
    last = [_held((clock // u + wheel.size) * u - 1) for u in ticks_of(wheel)[:-1]]
    return np.array(last, dtype=np.int64)


def _at(levels: NDArray[np.int32], of_each_level: Sequence[int]) -> NDArray[np.int64]:
    """The number that belongs to each entry's level, int64[n]."""
    assert levels.size == 0 or (levels.min() >= 1 and levels.max() <= len(of_each_level)), "no such level"
    return np.array(of_each_level, dtype=np.int64)[levels - 1]


@lru_cache(maxsize=128)
def ticks_of(wheel: Wheel) -> tuple[int, ...]:
    """The tick of each level in ms, from level 1."""
    return tuple(wheel.tick_of(level) for level in range(1, wheel.levels + 1))


def path_of(wheel: Wheel, deliver_at_ms: int, clock_ms: int) -> list[tuple[int, int, int]]:
    """The path of an entry down to level 1: (level, slot, clock at which it gets there) for each place."""
    stations, at_ms = [], clock_ms
    while True:
        level = level_of(wheel, deliver_at_ms, at_ms)
        slot = slot_of(wheel, level, deliver_at_ms)
        stations.append((level, slot, at_ms))
        if level == 1:
            return stations
        # It moves down when the clock reaches its slot.
        at_ms = bucket_interval(wheel, level, slot)[0]
