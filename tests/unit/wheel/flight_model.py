"""The oracle of the hand-over: what is promised of a shard with a sender, as a heap and two dicts.

::

    commands one by one --> pending --------------.                                       .--> released, oldest first, at most `limit`
                                                   > what no sender has, oldest first ---<
    handed over, its sender is gone, not noted ---'                                       '--> due by clock + ahead: handed over, under the same limit

    handed over, its sender lives: stays, until the sender has confirmed all that the batch gave this shard; then it has fired

The promises, and nothing of how the step keeps them:

* Released is what is due by the clock, oldest first by (due time, id, seq), whether it waits or an earlier sender had
  it. Missed rows count under the limit, and so does what is handed over after it.
* What was handed over is known as fired while it is in flight, and from its due time on for `memory`: a CANCEL is
  late, a higher version starts the id anew.
* A new sender gets what the one before has not noted. Without a sender all in flight is released when it is due, but
  for what is noted.

Caveats: as :mod:`tests.unit.wheel.heap_model`.
"""

from __future__ import annotations

import heapq
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
from wheel_udf.policies.sender_news import Confirmed


@dataclass(eq=False)
class Flown:
    """An entry in flight, and the batch that has given it to a sender; None: no sender has it."""

    batch: int | None
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
        self._number = 0
        self._standing_ms: int | None = None
        self._mentions: dict[str, list[tuple[int, Ended]]] = {}

    @property
    def pending(self) -> int:
        return len(self.waiting) + len(self.flying)

    @property
    def next_due_ms(self) -> int | None:
        left = [each.entry for each in self.flying if each.batch is None]
        return min((entry["deliver_at_ms"] for entry in [*self.waiting.values(), *left]), default=None)

    def batch_with(
        self, commands: list[Command], now_ms: int, limit: int | None, terms: Terms | None
    ) -> tuple[list[Row], list[Row], list[Row]]:
        """As `batch`; also returns what was handed over, oldest first."""
        self._terms, self._standing_ms = terms, self.clock_ms
        self._number += 1
        fired, missed = self.batch(commands, now_ms, limit)
        return fired, missed, self.handed

    # ---- what is known of an id ----------------------------------------------------------------------

    def _end(self, schedule_id: str, ended: Ended) -> None:
        super()._end(schedule_id, ended)
        self._mentions.setdefault(schedule_id, []).append((self._number, ended))

    def _remembered(self, schedule_id: str, now: int) -> Ended | None:
        """The highest version: of what is in flight, and of what has ended and is still remembered."""
        if schedule_id in self.waiting:
            return None
        known = [
            Ended(_version(each.entry), now, fired_due_ms=_asked(each.entry))
            for each in self.flying
            if each.entry["schedule_id"] == schedule_id
        ]
        for number, ended in self._mentions.get(schedule_id, []):
            is_of_batch = number == self._number
            # An end ahead of the clock is remembered at least until the batch that passes it.
            is_ahead = self._standing_ms is not None and self._standing_ms < ended.ended_at_ms
            if is_of_batch or is_ahead or self.memory_ms is None or now < ended.ended_at_ms + self.memory_ms:
                known.append(ended)
        return max(
            known,
            key=lambda each: (each.version, not each.waiting, each.fired_due_ms is not None),
            default=None,
        )

    # ---- what leaves ---------------------------------------------------------------------------------

    def _release(self, now: int, limit: int | None) -> tuple[list[Row], list[Row]]:
        self._hear()
        heap = [(_release_order(each), number, each) for number, each in enumerate(self._without_sender())]
        heapq.heapify(heap)
        fired: list[Row] = []
        missed: list[Row] = []
        self.handed = []
        free = self._terms.rows if self._terms is not None else 0
        while heap and (limit is None or len(fired) + len(missed) + len(self.handed) < limit):
            _, _, entry = heapq.heappop(heap)
            row = {name: entry.get(name) for name in ENTRY_COLUMNS}
            due_ms, most_ms = entry["deliver_at_ms"], entry["max_lateness_ms"]
            if due_ms <= now:
                is_missed = most_ms is not None and now - due_ms > most_ms
                self._take(entry)
                asked = None if is_missed else _asked(entry)
                self._end(entry["schedule_id"], Ended(_version(entry), now, fired_due_ms=asked))
                self._count("missed" if is_missed else "fired")
                (missed if is_missed else fired).append(row)
            elif self._is_handed_over(entry, now) and len(self.handed) < free:
                assert self._terms is not None
                if self._take(entry):
                    self._end(
                        entry["schedule_id"], Ended(_version(entry), due_ms, fired_due_ms=_asked(entry))
                    )
                self.flying.append(Flown(self._terms.batch, entry))
                self.handed.append(row)
        return fired, missed

    def _without_sender(self) -> list[Command]:
        return [*self.waiting.values(), *(each.entry for each in self.flying if each.batch is None)]

    def _is_handed_over(self, entry: Command, now: int) -> bool:
        terms = self._terms
        return (
            terms is not None
            and entry["deliver_at_ms"] <= now + terms.ahead_ms
            and entry["destination"] != "other"
        )

    def _take(self, entry: Command) -> bool:
        """Takes an entry from where it is; whether that was among those that were never handed over."""
        if self.waiting.get(entry["schedule_id"]) is entry:
            del self.waiting[entry["schedule_id"]]
            return True
        self.flying = [each for each in self.flying if each.entry is not entry]
        return False

    def _hear(self) -> None:
        """What the news of the batch, or that there is no sender any more, say of what is in flight."""
        if self._terms is None:
            for each in self.flying:
                each.batch = None
            return
        if not self._terms.news:
            return
        *earlier, present = self._terms.news
        fired: list[Flown] = []
        for each in [each for each in self.flying if each.batch is not None]:
            assert each.batch is not None
            if each.batch < present.since:
                until_ms = [news.until_ms for news in earlier if news.since <= each.batch <= news.batch]
                of_it = [each]
                each.batch = None
            else:
                until_ms = [present.until_ms] if each.batch <= present.batch else []
                of_it = [other for other in self.flying if other.batch == each.batch]
            if until_ms and max(other.entry["deliver_at_ms"] for other in of_it) <= max(until_ms):
                fired.append(each)
        self._count(*["fired"] * len(fired))
        self.flying = [each for each in self.flying if each not in fired]
