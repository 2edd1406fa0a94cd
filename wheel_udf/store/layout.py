"""Layout of the slot store: which entries are near, which are far, and in which partition a far entry lies.

The lowest ``state_levels`` levels of the wheel are *near*: they are in Spark's state. The other levels are *far*: they
are in one Delta table, in partitions of ``(level, slot)``. The *cursor* divides the two: an instant that only moves
forward; entries due before it are near.

A partition groups ``g`` neighbouring slots of its level, so a far level k has partitions of width ``W_k = g * u_k``
(u_k is its tick, ``size`` times that of the level below). The partitions are therefore the slots of a wheel
themselves, ``Wheel(W_lowest, size, far levels)``, and the rule is that of :mod:`wheel_udf.common.geometry` with the
cursor as its clock: an entry due at d lies on the lowest far level with ``d < floor(cursor / W_k) * W_k + W_k *
size``; the top level takes all the rest. Example: ``StoreLayout(Wheel(1_000, 20, 4), state_levels=1)``, cursor at
1:00:00 (times h:mm:ss, * marks the cursor)::

    level 0   [..., 1:00:00)                                    near: what the cursor has passed
    level 2   *[1:00:00-1:00:20) ... [1:06:20-1:06:40)          20 windows of 20 s
    level 3   [1:06:40-1:13:20) ... [3:06:40-3:13:20)           19 here, 20 at most, of 400 s
    level 4   [2:13:20-4:26:40) [4:26:40-6:40:00) ...           of 8,000 s, open-ended

    cursor to 1:06:40:  reaches the windows [1:00:00-1:06:40)     -> level 0
    cursor to 1:07:00:  reaches [1:06:40-1:13:20) of level 3      -> level 0 if due before 1:07:00, else level 2

Invariants, for cursors that are multiples of the window (:meth:`StoreLayout.cursor_of` returns no others). W_k divides
W_(k+1), because their ratio is ``size``; so bounds of a level's partitions are bounds of all lower ones. A partition
is *reached* by a cursor c that is past its start.

1. *An entry that is placed far at cursor c is in no partition that c reaches*, so the intake writes into no partition
   that is being handed over. On the lowest level: c is a bound, and d >= c. Above: d is not on level k - 1, so ``d >=
   floor(c / W_(k-1)) * W_(k-1) + W_k``, and that is at least ``ceil(c / W_k) * W_k``, the first bound of level k from
   c on. Proof: let ``c = q * W_k + r``; for r = 0 both sums contain at least q, and for r > 0 the first is at least
   ``(q + 1) * W_k``.
2. *An entry due before c lies in a reached partition*, because its partition starts no later than the entry is due. So
   no entry is missed.
3. *The entries of a partition that c reaches go to lower levels*: it ends at ``ceil(c / W_k) * W_k`` at the latest,
   which level k - 1 covers at c by the same sum; and a reached partition of the lowest far level ends at or before c
   itself. So an entry moves at most once per level, however far the cursor jumps.

The grouping is the same for all far levels. With a separate one for a higher level, 1 or 3 would fail (an entry beyond
the interval of the level below could share a partition with the cursor). Hence the rule is applied to partitions and
not to slots; for g = 1 (a size up to 32) they are the same.

Cost: as the geometry: numpy one search and one division, Column two divisions per level. This module
runs on executors.

Caveats: with a large ``size``, a level has up to ``size`` partitions; grouping makes them longer, not fewer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from wheel_udf.common import geometry
from wheel_udf.common.errors import ConfigError, GeometryError
from wheel_udf.common.geometry import INT64_MAX, INT64_MIN, Wheel

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column

NEAR: Final = 0
"""Level of rows that belong to Spark's state."""

MARKS: Final = -1
"""Level of versions that outlive their rows (:mod:`wheel_udf.tiered.retirement`)."""

INBOX: Final = -2
"""Level of far entries that have no slot yet (:mod:`wheel_udf.store.intake`)."""


def is_far(level: int) -> bool:
    """Whether the rows of a level are entries that wait in the store."""
    return level > NEAR or level == INBOX


def is_far_column(level: Column) -> Column:
    """:func:`is_far` as a Spark expression."""
    return (level > NEAR) | (level == INBOX)


def is_handed_over_column(cursor_ms: int) -> Column:
    """Whether a far row is near already, in a slot that is not dropped yet."""
    from pyspark.sql import functions as F

    return is_far_column(F.col("level")) & (F.col("deliver_at_ms") < cursor_ms)


_WINDOWS_PER_INTERVAL: Final = 32
_LONGEST_LEAD_MS: Final = 60_000


@dataclass(frozen=True)
class StoreLayout:
    """Which levels of a wheel are in the slot store, and in which partitions.

    Args:
        wheel: The whole wheel.
        state_levels: Number of lowest levels in Spark's state, from 0 to one less than the wheel has. With 0 even the
            first level is far.
        state_horizon_ms: With ``state_levels=0``, and only then: the width of a window, in ms, rounded down to whole
            ticks.

    Raises:
        ConfigError: A number is out of range, the horizon is missing or not allowed, or the partitions would span more
            than 64 bits of ms.
    """

    wheel: Wheel
    state_levels: int
    state_horizon_ms: int | None = None

    def __post_init__(self) -> None:
        if not (_is_whole(self.state_levels) and 0 <= self.state_levels < self.wheel.levels):
            raise ConfigError(
                "this number of levels cannot be in the state",
                field="state_levels",
                value=self.state_levels,
                rule=f"a whole number from 0 to {self.wheel.levels - 1}: one less than the wheel has",
                hint="without a slot store the state holds all levels",
            )
        horizon_ms, tick_ms = self.state_horizon_ms, self.wheel.tick_ms
        fine, rule = horizon_ms is None, "only with state_levels = 0"
        hint = "leave it out: the levels in the state determine the horizon"
        if self.state_levels == 0:
            fine = horizon_ms is not None and _is_whole(horizon_ms) and horizon_ms >= tick_ms
            rule = f"with state_levels = 0 a whole number of ms, at least the tick, {tick_ms}"
            hint = "for example 10 minutes"
        if not fine:
            # The message leaves a value of None out.
            value = "not given" if horizon_ms is None else horizon_ms
            what = "the state's horizon is not valid"
            raise ConfigError(what, field="state_horizon_ms", value=value, rule=rule, hint=hint)
        try:
            _ = self._partitions
        except GeometryError as fault:
            raise ConfigError(
                "the partitions of the slot store span more than 64 bits of ms",
                field="wheel",
                value=self.wheel.fingerprint(),
                rule=str(fault.rule),
                hint="use fewer levels or a shorter horizon: the top level is open-ended",
            ) from None

    @cached_property
    def _partitions(self) -> Wheel:
        """The wheel whose slots are the partitions; its level 1 is the lowest far level."""
        slots = -(-self.wheel.size // _WINDOWS_PER_INTERVAL)
        if self.state_horizon_ms is not None:
            slots = self.state_horizon_ms // self.wheel.tick_ms
        width_ms = slots * self.wheel.tick_of(self.state_levels + 1)
        return Wheel(width_ms, self.wheel.size, self.wheel.levels - self.state_levels)

    @property
    def far_levels(self) -> range:
        """The levels in the store, lowest first."""
        return range(self.state_levels + 1, self.wheel.levels + 1)

    @property
    def window_ms(self) -> int:
        """Width of a partition of the lowest far level, which becomes near as a whole; a divisor of every cursor."""
        return self._partitions.tick_ms

    @property
    def lead_ms(self) -> int:
        """The least distance of a new cursor ahead of the clock; the cursor moves when half of it is left."""
        return min(self.window_ms // 2, _LONGEST_LEAD_MS)

    def width_ms(self, level: int) -> int:
        """Returns the width of a partition of a far level, in ms.

        Raises:
            GeometryError: The level is not a far one.
        """
        return self._partitions.tick_of(level - self.state_levels)

    def fingerprint(self) -> str:
        """Returns the layout as text, which is kept with the table to detect a change."""
        horizon = "" if self.state_horizon_ms is None else f",state_horizon_ms={self.state_horizon_ms}"
        return f"{self.wheel.fingerprint()},state_levels={self.state_levels}{horizon}"

    @classmethod
    def parse(cls, fingerprint: str) -> Self:
        """The inverse of :meth:`fingerprint`.

        Raises:
            ConfigError: It is not the fingerprint of a layout.
        """
        given = {name: int(digits) for name, digits in re.findall(r"(\w+)=(\d{1,18})", fingerprint)}
        try:
            wheel = Wheel(**{name: given[name] for name in ("tick_ms", "size", "levels")})
            layout = cls(wheel, given["state_levels"], given.get("state_horizon_ms"))
        except (KeyError, GeometryError, ConfigError):
            layout = None
        if layout is None or layout.fingerprint() != fingerprint:
            raise ConfigError("not the layout of a slot store", field="layout", value=fingerprint)
        return layout

    # ---- the cursor ----------------------------------------------------------------------------------

    def cursor_of(self, clock_ms: int) -> int:
        """Returns the cursor for a clock: the first multiple of the window beyond ``clock + lead``, within int64."""
        clock = int(clock_ms)  # a numpy scalar would overflow below
        ahead_ms = ((clock + self.lead_ms) // self.window_ms + 1) * self.window_ms
        return min(ahead_ms, INT64_MAX // self.window_ms * self.window_ms)

    def is_due(self, clock_ms: int, cursor_ms: int) -> bool:
        """Whether the clock is close to the cursor, so that :meth:`cursor_of` returns a later one."""
        clock = int(clock_ms)
        return clock + self.lead_ms // 2 >= cursor_ms and self.cursor_of(clock) > cursor_ms

    def reached(self, level: int, slot: int, cursor_ms: int) -> bool:
        """Whether the cursor is past the start of a far partition, so that its entries have to be placed again.

        False for near rows, for marks, which are not moved, and for the inbox, which is emptied before.

        Raises:
            GeometryError: The store has no such level.
        """
        return level > NEAR and slot * self.width_ms(level) < cursor_ms

    def reached_column(self, level: Column, slot: Column, cursor_ms: int) -> Column:
        """:meth:`reached` as a Spark expression; compares slots only, so a filter by it selects whole partitions."""
        from pyspark.sql import Column, functions as F

        bounds = [(far, -(-int(cursor_ms) // self.width_ms(far))) for far in self.far_levels]
        found = [(level == far) & (slot < F.lit(bound).cast("long")) for far, bound in bounds]
        return reduce(Column.__or__, found)

    # ---- near slots ----------------------------------------------------------------------------------

    def newest_near_slot(self, cursor_ms: int) -> int:
        """Returns the last near window before a cursor."""
        return cursor_ms // self.window_ms - 1

    def first_near_slot(self, cursor_ms: int) -> int:
        """Returns the earliest near window at a cursor: past due times create no partitions of their own."""
        # Two windows back: the clock stands in one of the two before the cursor.
        return max(int(cursor_ms) - 2 * self.window_ms, INT64_MIN) // self.window_ms

    # ---- places: numpy -------------------------------------------------------------------------------

    def place(self, due_ms: NDArray[np.int64], cursor_ms: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The partitions of many due times at one cursor: level 0 if due before it, otherwise the far level.

        Args:
            due_ms: Due times, int64[n].
            cursor_ms: The cursor, a multiple of the window.

        Returns:
            Levels, int32[n], and slots, int64[n].
        """
        assert cursor_ms % self.window_ms == 0, f"{cursor_ms} is no multiple of the window, {self.window_ms}"
        of_partitions = geometry.levels_of(self._partitions, due_ms, cursor_ms)
        near = due_ms < cursor_ms
        slots = geometry.slots_of(self._partitions, np.where(near, np.int32(1), of_partitions), due_ms)
        slots[near] = np.maximum(slots[near], self.first_near_slot(cursor_ms))
        levels = np.where(near, np.int32(NEAR), of_partitions + np.int32(self.state_levels))
        return levels.astype(np.int32), slots

    # ---- places: Spark Column ------------------------------------------------------------------------

    def level_column(self, due_ms: Column | int, cursor_ms: Column | int) -> Column:
        """The level of :meth:`place` as a Spark expression (int); null if either instant is null."""
        from pyspark.sql import functions as F

        from wheel_udf.commands.tier_columns import level_column

        due, cursor = _long(due_ms), _long(cursor_ms)
        far = level_column(self._partitions, due, cursor) + self.state_levels
        return F.when(due < cursor, F.lit(NEAR)).otherwise(far).cast("int")

    def slot_column(self, level: Column | int, due_ms: Column | int, cursor_ms: Column | int) -> Column:
        """The slot of :meth:`place` as a Spark expression (long); null for null, and for a level that is neither 0 nor
        far.
        """
        from pyspark.sql import functions as F

        from wheel_udf.commands.tier_columns import slot_column

        number, due, cursor = F.lit(level), _long(due_ms), _long(cursor_ms)
        back_ms = 2 * self.window_ms  # within int64: a size is at least 2
        earliest = F.greatest(cursor, _long(INT64_MIN + back_ms)) - _long(back_ms)
        near_due = F.when(due.isNotNull() & cursor.isNotNull(), F.greatest(due, earliest))
        near = slot_column(self._partitions, 1, near_due)
        far = slot_column(self._partitions, number - self.state_levels, due)
        if isinstance(level, int):  # Spark warns of conditions between two literals
            return near if level == NEAR else far
        return F.when(number == NEAR, near).otherwise(far)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _long(value: Column | int) -> Column:
    from pyspark.sql import functions as F

    # Without the cast a small number is an int, and its arithmetic overflows at 2**31.
    return F.lit(value).cast("long")
