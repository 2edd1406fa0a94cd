"""The oracle of the hand-over: the heap model, and a list of what is in flight.

::

    commands one by one --- release what is due --- hand over what is due by `clock + ahead`, oldest first --> in flight, with the batch
                                                                                      news of the sender ----> fired, or split once more

Caveats: as :mod:`tests.unit.wheel.heap_model`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.unit.wheel.heap_model import (
    ENTRY_COLUMNS,
    Command,
    Ended,
    HeapModel,
    Row,
    _asked,
    _release_order,
    _version,
)
from wheel_udf.wheel.sender_news import Confirmed

LOOSE = -1


@dataclass
class Flown:
    """An entry in flight, and the batch that has handed it over; LOOSE: the present sender has not got it."""

    batch: int
    entry: Command


@dataclass(frozen=True)
class Terms:
    """How a batch hands over: the arguments of HandOver."""

    batch: int
    ahead_ms: int
    rows: int
    news: tuple[Confirmed, ...]


class FlightModel(HeapModel):
    """One shard with a sender; destinations named ``other`` are not punctual."""

    def __init__(self, memory_ms: int | None) -> None:
        super().__init__(memory_ms)
        self.flying: list[Flown] = []
        self.handed: list[Row] = []
        self._terms: Terms | None = None
        self._standing_ms: int | None = None
        self._number = 0
        self._all: dict[str, list[tuple[int, Ended]]] = {}

    @property
    def pending(self) -> int:
        return len(self._pending) + len(self.flying)

    @property
    def levels(self) -> dict[int, int]:
        entries = [*self._pending.values(), *(each.entry for each in self.flying)]
        levels = (entry.get("delay_level_ms") for entry in entries)
        return dict(Counter(level for level in levels if level is not None))

    @property
    def next_due_ms(self) -> int | None:
        loose = [each.entry for each in self.flying if each.batch == LOOSE]
        return min((entry["deliver_at_ms"] for entry in [*self._pending.values(), *loose]), default=None)

    def batch_with(
        self, commands: list[Command], now_ms: int, limit: int | None, terms: Terms | None
    ) -> tuple[list[Row], list[Row], list[Row]]:
        """As `batch`; also returns what was handed over, oldest first."""
        self._terms, self._standing_ms, self.handed = terms, self.clock_ms, []
        self._number += 1
        fired, missed = self.batch(commands, now_ms, limit)
        return fired, missed, self.handed

    def _end(self, schedule_id: str, ended: Ended) -> None:
        super()._end(schedule_id, ended)
        self._all.setdefault(schedule_id, []).append((self._number, ended))

    def _remembered(self, schedule_id: str, now: int) -> Ended | None:
        """The highest version that is still remembered: one that was handed over ends at its due time, perhaps after a later version."""
        if schedule_id in self._pending:
            return None
        fresh = [
            ended
            for number, ended in self._all.get(schedule_id, [])
            if number == self._number or self._is_fresh(ended, now)
        ]
        return max(
            fresh,
            key=lambda each: (each.version, not each.waiting, each.fired_due_ms is not None),
            default=None,
        )

    def _is_fresh(self, ended: Ended, now: int) -> bool:
        # What was handed over is remembered at least until the batch that passes its due time.
        passes = self._standing_ms is not None and self._standing_ms < ended.ended_at_ms
        return passes or self.memory_ms is None or now < ended.ended_at_ms + self.memory_ms

    def _release(self, now: int, limit: int | None) -> tuple[list[Row], list[Row]]:
        again = self._take_news()
        first, fired, missed = [each for each in again if each["deliver_at_ms"] <= now], [], []
        first.sort(key=_release_order)
        released = first if limit is None else first[:limit]
        for entry in released:
            is_missed = (
                entry["max_lateness_ms"] is not None
                and now - entry["deliver_at_ms"] > entry["max_lateness_ms"]
            )
            self._count("missed" if is_missed else "fired")
            (missed if is_missed else fired).append({name: entry.get(name) for name in ENTRY_COLUMNS})
            self._end_again(entry, now, is_missed=is_missed)
        loose = [each for each in again if each not in released]
        left = None if limit is None else limit - len(released)
        more_fired, more_missed = super()._release(now, left)
        left = None if left is None else left - len(more_fired) - len(more_missed)
        self._hand_over(loose, now, left)
        return sorted(fired + more_fired, key=_release_order), sorted(
            missed + more_missed, key=_release_order
        )

    def _end_again(self, entry: Command, now: int, *, is_missed: bool) -> None:
        ended = Ended(_version(entry), now, fired_due_ms=None if is_missed else _asked(entry))
        self._all.setdefault(entry["schedule_id"], []).append((self._number, ended))

    def _take_news(self) -> list[Command]:
        stay: list[Flown] = []
        again: list[Command] = []
        for each in self.flying:
            whole = max(other.entry["deliver_at_ms"] for other in self.flying if other.batch == each.batch)
            news = self._terms.news if self._terms is not None else ()
            if each.batch == LOOSE or self._terms is None:
                again.append(each.entry)
            elif not news or (
                each.batch >= news[-1].since
                and not (news[-1].covers(each.batch) and whole <= news[-1].until_ms)
            ):
                stay.append(each)
            elif any(n.covers(each.batch) and each.entry["deliver_at_ms"] <= n.until_ms for n in news):
                self._count("fired")
            else:
                again.append(each.entry)
        self.flying = stay
        return again

    def _hand_over(self, loose: list[Command], now: int, left: int | None) -> None:
        terms = self._terms
        if terms is None:
            self.flying += [Flown(LOOSE, entry) for entry in loose]
            return
        horizon, rows = now + terms.ahead_ms, terms.rows if left is None else min(terms.rows, left)
        able = [
            each
            for each in [*loose, *self._pending.values()]
            if now < each["deliver_at_ms"] <= horizon and each["destination"] != "other"
        ]
        chosen = sorted(able, key=_release_order)[:rows]
        for entry in chosen:
            if not any(entry is each for each in loose):
                del self._pending[entry["schedule_id"]]
                ended = Ended(_version(entry), entry["deliver_at_ms"], fired_due_ms=_asked(entry))
                self._end(entry["schedule_id"], ended)
        self.flying += [Flown(terms.batch, entry) for entry in chosen]
        self.flying += [Flown(LOOSE, each) for each in loose if not any(each is one for one in chosen)]
        self.handed = [{name: entry.get(name) for name in ENTRY_COLUMNS} for entry in chosen]
