"""The oracle of the pure step: one shard, one command at a time, in plain Python.

Kafka tests its timing wheel against a mock timer that is only a priority queue. This is the same idea for the whole
step: a dict of what is pending, a dict of what is remembered, a heap of due times. It has no levels, no slots and no
buckets, and it forgets nothing it stores (what is *remembered* is decided by comparing times alone), so none of the
things that make the real step fast can go wrong here. It is slow on purpose.

One batch, in this order::

    commands of the batch --- in version order (seq, SCHEDULE < CANCEL, amend), copies by content ---> one by one
                                                        |
    clock := max(clock, now) --- release what is due, oldest first, at most `limit`

A batch that carries no command and releases nothing changes nothing, not even the clock: the clock held is that of the
last batch that was written.

Two readings of the rules, chosen here: the commands of one batch know of each other even if nothing is remembered
(``memory_ms=0``); of several commands of one version that tie in due time, destination, value and key, the headers
decide, then the lateness bound, then whether the seq was given, and what is null comes last.

Caveats: every batch builds its heap anew, O(pending); the memory grows for ever. Fit for tests only.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import Any

SCHEDULE, CANCEL = 0, 1
SCHEDULE_OUTCOMES = ("fired", "missed", "cancelled", "superseded", "duplicate", "rejected", "ended", "dead")
CANCEL_OUTCOMES = ("applied", "waiting", "late", "cancel_superseded", "cancel_duplicate", "cancel_rejected")
ENTRY_COLUMNS = (
    "schedule_id",
    "seq",
    "amend",
    "deliver_at_ms",
    "max_lateness_ms",
    "destination",
    "key",
    "value",
    "headers",
    "source",
    "delay_level_ms",
    "level_error_ms",
)

Command = dict[str, Any]
Row = dict[str, Any]
Version = tuple[int, int, int]


@dataclass
class Ended:
    """What is remembered of an id that has nothing pending."""

    version: Version
    ended_at_ms: int
    waiting: bool = False
    fired_due_ms: int | None = None


class HeapModel:
    """One shard as a dict and a heap.

    Args:
        memory_ms: How long the end of an id is remembered; None for ever, 0 not at all.
    """

    def __init__(self, memory_ms: int | None) -> None:
        self.memory_ms = memory_ms
        self.clock_ms: int | None = None
        self.changed = False
        self.counts: Counter[str] = Counter(dict.fromkeys((*SCHEDULE_OUTCOMES, *CANCEL_OUTCOMES), 0))
        self.schedules_in = 0
        self.cancels_in = 0
        self.waiting: dict[str, Command] = {}
        self._ended: dict[str, Ended] = {}
        self._ended_in_batch: set[str] = set()
        self._before: dict[str, int] = {}

    @property
    def pending(self) -> int:
        return len(self.waiting)

    @property
    def next_due_ms(self) -> int | None:
        return min((entry["deliver_at_ms"] for entry in self.waiting.values()), default=None)

    def batch(
        self, commands: list[Command], now_ms: int, limit: int | None = None
    ) -> tuple[list[Row], list[Row]]:
        """Apply one batch and return its fired and its missed rows, each oldest first."""
        now = now_ms if self.clock_ms is None else max(self.clock_ms, now_ms)
        self._ended_in_batch = set()
        self._before = {schedule_id: entry["seq"] for schedule_id, entry in self.waiting.items()}
        for command in sorted(
            commands, key=lambda each: (each["schedule_id"], _version(each), _content(each))
        ):
            is_cancel = command["op"] == CANCEL
            self.cancels_in += is_cancel
            self.schedules_in += not is_cancel
            self._apply(command, now)
        fired, missed = self._release(now, limit)
        self.changed = bool(commands or fired or missed)
        if self.changed:
            self.clock_ms = now
        return fired, missed

    def _apply(self, command: Command, now: int) -> None:
        schedule_id, version = command["schedule_id"], _version(command)
        known = self._known_version(schedule_id, now)
        is_cancel = command["op"] == CANCEL
        if known is not None and version == known:
            self._count("cancel_duplicate" if is_cancel else "duplicate")
        elif is_cancel:
            self._cancel(schedule_id, version, known, now)
        else:
            self._schedule(schedule_id, command, known, now)

    def _schedule(self, schedule_id: str, command: Command, known: Version | None, now: int) -> None:
        entry, ended = self.waiting.get(schedule_id), self._remembered(schedule_id, now)
        if known is not None and _version(command) < known:
            if entry is None and ended is not None and ended.waiting:
                ended.waiting = False
                self._count("cancelled", "applied")
                self.counts["waiting"] -= 1
            else:
                self._count("superseded")
            return
        # An act on the state has the payload of the entry that waits there.
        gone = command.get("of_state", False) and self._before.get(schedule_id) != command["seq"]
        if gone or (command["amend"] and _is_late(command, entry, ended)):
            self._count("superseded")
            return
        if entry is not None:
            self._count("superseded")
        elif ended is not None and _is_retry(command, ended):
            self._count("duplicate")
            return
        self.waiting[schedule_id] = command
        self._ended.pop(schedule_id, None)

    def _cancel(self, schedule_id: str, version: Version, known: Version | None, now: int) -> None:
        entry, ended = self.waiting.get(schedule_id), self._remembered(schedule_id, now)
        if known is not None and version < known:
            self._count("cancel_superseded")
        elif entry is not None:
            del self.waiting[schedule_id]
            self._end(schedule_id, Ended(version, now))
            self._count("cancelled", "applied")
        elif ended is None:
            self._end(schedule_id, Ended(version, now, waiting=True))
            self._count("waiting")
        else:
            self._end(schedule_id, Ended(version, now, ended.waiting, ended.fired_due_ms))
            self._count("late")

    def _release(self, now: int, limit: int | None) -> tuple[list[Row], list[Row]]:
        heap = [_release_order(entry) for entry in self.waiting.values()]
        heapq.heapify(heap)
        fired: list[Row] = []
        missed: list[Row] = []
        while heap and heap[0][0] <= now and (limit is None or len(fired) + len(missed) < limit):
            due, raw_id, _ = heapq.heappop(heap)
            schedule_id = raw_id.decode()
            entry = self.waiting.pop(schedule_id)
            is_missed = entry["max_lateness_ms"] is not None and now - due > entry["max_lateness_ms"]
            asked = None if is_missed else _asked(entry)
            self._end(schedule_id, Ended(_version(entry), now, fired_due_ms=asked))
            self._count("missed" if is_missed else "fired")
            (missed if is_missed else fired).append({name: entry.get(name) for name in ENTRY_COLUMNS})
        return fired, missed

    def _known_version(self, schedule_id: str, now: int) -> Version | None:
        if schedule_id in self.waiting:
            return _version(self.waiting[schedule_id])
        ended = self._remembered(schedule_id, now)
        return None if ended is None else ended.version

    def _remembered(self, schedule_id: str, now: int) -> Ended | None:
        ended = self._ended.get(schedule_id)
        if ended is None or self.memory_ms is None or schedule_id in self._ended_in_batch:
            return ended
        return ended if now < ended.ended_at_ms + self.memory_ms else None

    def _end(self, schedule_id: str, ended: Ended) -> None:
        self._ended[schedule_id] = ended
        self._ended_in_batch.add(schedule_id)

    def _count(self, *outcomes: str) -> None:
        self.counts.update(outcomes)


def _version(command: Command) -> Version:
    return command["seq"], command["op"], command["amend"]


def _release_order(entry: Command) -> tuple[int, bytes, int]:
    return entry["deliver_at_ms"], entry["schedule_id"].encode(), entry["seq"]


def _is_retry(command: Command, ended: Ended) -> bool:
    # A producer without versions of its own that sends again what has fired: its seq is new, its due time is not.
    return not command["seq_given"] and not command["amend"] and _asked(command) == ended.fired_due_ms


def _is_late(command: Command, entry: Command | None, ended: Ended | None) -> bool:
    """Whether the entry of an act has fired; of an entry that the wheel has had (`seq_given` False): whether it is not
    pending.
    """
    if not command["seq_given"]:
        return entry is None or entry["seq"] != command["seq"]
    return ended is not None and ended.version[0] == command["seq"] and ended.fired_due_ms is not None


def _asked(command: Command) -> int:
    due: int = command["deliver_at_ms"] - (command.get("level_error_ms") or 0)
    return due


def _content(command: Command) -> tuple[tuple[bool, Any], ...]:
    """Sort key that decides which of several commands of one version is kept; what is null sorts last."""
    names = (
        "deliver_at_ms",
        "level_error_ms",
        "delay_level_ms",
        "destination",
        "value",
        "key",
        "headers",
        "max_lateness_ms",
        "seq_given",
        "source",
    )
    return tuple((command.get(name) is None, command.get(name)) for name in names)
