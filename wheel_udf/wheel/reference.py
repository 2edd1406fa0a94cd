"""The classic hierarchical timing wheel, in memory: reference for the traces, and a timer for one process.

The solution of Varghese and Lauck (SOSP 1987), in the form of Apache Kafka (``TimingWheel`` and ``SystemTimer``): an
entry goes into a bucket by arithmetic on its due time, without a comparison with other entries. Buckets near the clock
are narrow, those further away are wider, level by level; when the clock reaches a wide bucket, the bucket is emptied
into narrower ones (the cascade). Only the starts of non-empty *buckets* are ordered, in a priority queue, so no empty
tick is visited.

An entry due at d (formulas in :mod:`wheel_udf.common.geometry`)::

    d < c_1 + tick         the current tick   a heap of the few entries of this tick
    d < c_1 + tick * size  level 1            its own bucket
    else                   overflow           the same rule one level up; a level is made when first used

With a tick of 10 s, 8 slots, and the clock at 0 s, entries due at 12, 18, 100 and 700 s::

    level 1, tick 10 s    |  0 | 10 | 20 | 30 | 40 | 50 | 60 | 70 |        12, 18  ->  [10, 20)
    level 2, tick 80 s    |  0 |  80 | 160 | ... | 560 |                   100     ->  [80, 160)
    level 3, tick 640 s   |  0 | 640 | 1280 | ... | 4480 |                 700     ->  [640, 1280)

    clock at  80: [80, 160)   is emptied: 100 -> level 1 [100, 110)
    clock at 640: [640, 1280) is emptied: 700 -> level 1 [700, 710)

When a bucket of level 1 starts, its entries become those of the current tick. The rule ``exact`` (default) fires an
entry when ``deliver_at <= now``, to the ms; the rule ``kafka`` fires it with its tick, ``deliver_at < c_1 + tick``, up
to tick - 1 early.

Invariants

* Every bucket starts after the position of the wheel. The position is the clock, except while a limit holds
  entries back: then it is the instant at which the limit stopped the wheel.
* The bucket of the current slot is empty on every level: its entries are on lower levels or in the current tick.
* One long ``advance`` and many short ones leave the same trace.

Cost, for m levels, B non-empty buckets, c entries in the current tick: ``add`` O(m), plus O(log B) if its bucket was
empty, or O(log c) in the current tick; ``cancel`` O(1), amortised; firing O(m * m + log c) for an entry over its whole
life, and O(log B) for each bucket.

Caveats

* A driver sleeps until :meth:`TimingWheel.next_wakeup_ms` and then calls :meth:`TimingWheel.advance`. Not every wake-up
  fires: some only cascade, or begin a tick.
* Not thread-safe: callers lock around each call. An observer must not call the wheel.
* An entry added when it is already due fires at the next ``advance``, not inside ``add``.
* Kafka's clock stays at the last bucket that expired; this clock goes to ``now`` each time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeAlias

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel, level_of, slot_of
from wheel_udf.wheel.buckets import Buckets

Rule: TypeAlias = Literal["exact", "kafka"]
_RULES = ("exact", "kafka")
_FEW = 64  # fewer leftovers than this are not cleaned up


@dataclass(frozen=True, slots=True)
class Entry:
    """A pending timer.

    Args:
        entry_id: Its identity: at most one entry of an id is pending.
        deliver_at_ms: When it is due, in ms.
        payload: Returned when it fires.
    """

    entry_id: Hashable
    deliver_at_ms: int
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Woke:
    """Trace: the wheel stopped here, where a bucket starts or an entry of the current tick is due."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Trace: an entry was put into a bucket, when it was added or from a higher level."""

    at_ms: int
    entry_id: Hashable
    level: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Fired:
    """Trace: an entry was released, at the instant where the wheel stopped for it (not the ``now`` of the caller)."""

    at_ms: int
    entry_id: Hashable


Observer: TypeAlias = Callable[[Woke | Moved | Fired], None]


@dataclass(slots=True, eq=False)
class _Bucket:
    start_ms: int
    end_ms: int
    entries: dict[int, Entry] = field(default_factory=dict)  # by order of adding


class TimingWheel:
    """A hierarchical timing wheel of cancellable entries; see the module for the design.

    Args:
        tick_ms: Width of a slot of level 1, in ms.
        size: Slots of each level.
        levels: Number of levels, of which the top one is open-ended; None makes overflow levels on demand.
        start_ms: The first instant of the clock.
        rule: ``"exact"`` never fires early; ``"kafka"`` fires a tick's entries when the tick begins.
        observer: Called with each wake-up, bucket move and firing as it happens; ``list.append`` will do.

    Raises:
        GeometryError: The wheel cannot be built from these numbers.
        ConfigError: The firing rule is unknown.
    """

    def __init__(
        self,
        tick_ms: int = 1,
        size: int = 20,
        levels: int | None = None,
        *,
        start_ms: int = 0,
        rule: Rule = "exact",
        observer: Observer | None = None,
    ) -> None:
        if rule not in _RULES:
            raise ConfigError(
                "there is no such firing rule", field="rule", value=rule, rule=" or ".join(_RULES)
            )
        geometry = Wheel(tick_ms, size, 1 if levels is None else levels)
        self._wheel = Buckets(geometry).deep if levels is None else geometry
        self._levels_made = 1 if levels is None else levels
        self._exact = rule == "exact"
        self._observe: Observer = observer or _ignore
        # The position of the wheel: before _now_ms only while a limit holds entries back.
        self._clock_ms = start_ms
        self._now_ms = start_ms
        self._order = count()
        # An entry is found by its id in the place that holds it: a bucket, or (None) the current tick.
        self._places: dict[Hashable, tuple[int, _Bucket | None]] = {}
        self.buckets: dict[tuple[int, int], _Bucket] = {}
        self.queue: list[tuple[int, int, int]] = []  # heap of (start_ms, level, slot), one for each bucket
        self.current: list[tuple[int, int, Entry]] = []  # heap of (deliver_at_ms, order, entry)
        self._empty_buckets = self._cancelled_in_current = 0

    @property
    def clock_ms(self) -> int:
        """The latest instant the wheel was advanced to."""
        return self._now_ms

    @property
    def levels(self) -> int:
        """Number of levels; of a wheel that makes them on demand, the number made so far."""
        return self._levels_made

    def __len__(self) -> int:
        """Number of pending entries."""
        return len(self._places)

    def __contains__(self, entry_id: Hashable) -> bool:
        """Whether an entry of this id is pending."""
        return entry_id in self._places

    def add(self, entry_id: Hashable, deliver_at_ms: int, payload: object = None) -> None:
        """Add an entry; a pending one of the same id is replaced.

        Args:
            entry_id: Identity of the entry.
            deliver_at_ms: When it is due, in ms; in the past it fires at the next :meth:`advance`.
            payload: Returned when it fires.
        """
        self.cancel(entry_id)
        self._place(next(self._order), Entry(entry_id, deliver_at_ms, payload))

    def cancel(self, entry_id: Hashable) -> bool:
        """Remove an entry; False if no entry of this id is pending (never added, fired, or cancelled before)."""
        place = self._places.pop(entry_id, None)
        if place is None:
            return False
        order, bucket = place
        if bucket is None:
            self._cancelled_in_current += 1
        else:
            del bucket.entries[order]
            self._empty_buckets += not bucket.entries
        self._tidy()
        return True

    def next_wakeup_ms(self) -> int | None:
        """The next instant at which :meth:`advance` fires, cascades or begins a tick; None if nothing waits.

        Never before the clock; equal to it if an entry is due already.
        """
        stop_ms = self._next_stop_ms()
        return None if stop_ms is None else max(self._now_ms, stop_ms)

    def advance(self, now_ms: int, limit: int | None = None) -> list[Entry]:
        """Move the clock forward and release what is due.

        Args:
            now_ms: The new instant, in ms. An earlier one leaves the clock where it is.
            limit: Most entries to release; the rest stays due, for the next call. None: no limit.

        Returns:
            The released entries, by (due time, order of adding).

        Raises:
            ConfigError: The limit is negative.
        """
        if limit is not None and limit < 0:
            raise ConfigError("the limit is too small", field="limit", value=limit, rule="at least 0")
        self._now_ms = max(self._now_ms, now_ms)
        fired: list[Entry] = []
        while (stop_ms := self._next_stop_ms()) is not None and stop_ms <= self._now_ms:
            if limit is not None and len(fired) >= limit:
                return fired
            self._clock_ms = stop_ms
            self._observe(Woke(stop_ms))
            self._cascade()
            self._fire(fired, limit)
        self._clock_ms = self._now_ms
        return fired

    def _next_stop_ms(self) -> int | None:
        """The next position of the wheel: before the clock only while a limit holds entries back."""
        while self.queue and not self.buckets[self.queue[0][1:]].entries:
            del self.buckets[heapq.heappop(self.queue)[1:]]
            self._empty_buckets -= 1
        while self.current and not self._is_pending(self.current[0]):
            heapq.heappop(self.current)
            self._cancelled_in_current -= 1
        instants = [self.queue[0][0]] if self.queue else []
        if self.current:
            instants.append(self.current[0][0] if self._exact else self._clock_ms)
        return max(self._clock_ms, min(instants)) if instants else None

    def _place(self, order: int, entry: Entry) -> None:
        due_ms, tick_ms = entry.deliver_at_ms, self._wheel.tick_ms
        if due_ms // tick_ms <= self._clock_ms // tick_ms:
            heapq.heappush(self.current, (due_ms, order, entry))
            self._places[entry.entry_id] = order, None
            return
        level = level_of(self._wheel, due_ms, self._clock_ms)
        bucket = self._bucket(level, slot_of(self._wheel, level, due_ms))
        bucket.entries[order] = entry
        self._places[entry.entry_id] = order, bucket
        self._observe(Moved(self._clock_ms, entry.entry_id, level, bucket.start_ms, bucket.end_ms))

    def _bucket(self, level: int, slot: int) -> _Bucket:
        """The bucket of this slot, about to take an entry."""
        bucket = self.buckets.get((level, slot))
        if bucket is None:
            self._levels_made = max(self._levels_made, level)
            tick_ms = self._wheel.tick_of(level)
            bucket = _Bucket(slot * tick_ms, (slot + 1) * tick_ms)
            self.buckets[level, slot] = bucket
            heapq.heappush(self.queue, (bucket.start_ms, level, slot))
        elif not bucket.entries:
            self._empty_buckets -= 1
        return bucket

    def _cascade(self) -> None:
        """Empty every bucket that has started into lower levels or the current tick."""
        while self.queue and self.queue[0][0] <= self._clock_ms:
            bucket = self.buckets.pop(heapq.heappop(self.queue)[1:])
            self._empty_buckets -= not bucket.entries
            for order, entry in bucket.entries.items():
                self._place(order, entry)

    def _fire(self, fired: list[Entry], limit: int | None) -> None:
        """Release entries of the current tick: the due ones (exact), or all of them (kafka)."""
        while self.current and (limit is None or len(fired) < limit):
            if self._exact and self.current[0][0] > self._clock_ms:
                return
            head = heapq.heappop(self.current)
            if not self._is_pending(head):
                self._cancelled_in_current -= 1
                continue
            entry = head[2]
            del self._places[entry.entry_id]
            self._observe(Fired(self._clock_ms, entry.entry_id))
            fired.append(entry)

    def _is_pending(self, item: tuple[int, int, Entry]) -> bool:
        """Whether an item of the current tick is neither cancelled nor replaced."""
        _, order, entry = item
        return self._places.get(entry.entry_id) == (order, None)

    def _tidy(self) -> None:
        """Remove the leftovers of cancels once they are the greater part: O(1) for each cancel, amortised."""
        if self._empty_buckets > max(_FEW, len(self.buckets) // 2):
            self.buckets = {key: bucket for key, bucket in self.buckets.items() if bucket.entries}
            self.queue = [(bucket.start_ms, *key) for key, bucket in self.buckets.items()]
            heapq.heapify(self.queue)
            self._empty_buckets = 0
        if self._cancelled_in_current > max(_FEW, len(self.current) // 2):
            self.current = [item for item in self.current if self._is_pending(item)]
            heapq.heapify(self.current)
            self._cancelled_in_current = 0


def _ignore(_: Woke | Moved | Fired) -> None:
    """The observer if none is given."""
