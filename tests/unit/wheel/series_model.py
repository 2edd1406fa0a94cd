"""The oracle of recurring schedules: the heap model, one occurrence at a time, in plain Python.

What is new to it is what happens to a series when the clock has passed its next occurrence. It walks from one
occurrence to the next, each with its number, puts what is due on a heap, takes at most `limit` of it, and moves each
series behind what has passed::

    P ---after---> P' ---after---> P'' | clock      fires, drops:  by `on_missed` and `most`
    number n       n + 1           n + 2            goes on with:  the one after P'', if `count` and `until` have it

Rules are three small classes that know nothing of the product's: a period from an anchor, the minutes of a cron in
UTC, a time of day in Paris with the two changes of clocks of 2026 written down.

Readings of the rules, chosen here:

- Where a new series begins is decided by what waits when its turn comes, the other commands of its batch included.
- A new version that has no occurrence any more ends the series. A series of an unknown id, alone in its batch, that has
  none is refused.
- A row that stands for dropped occurrences takes room of the limit like any other.
- Under a limit a series has the place of the occurrence for which it waits.
- A new version of a series counts its occurrences from 1 again.
- A schedule that is a series is never a retry of a one-shot that has fired.
- A FIRE_NOW takes effect after the other commands of its batch; of several of an id the highest counts.

Caveats: those of the heap model; a walk costs as many steps as occurrences have passed.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from tests.unit.wheel.heap_model import (
    ENTRY_COLUMNS,
    SCHEDULE,
    Command,
    Ended,
    HeapModel,
    Row,
    Version,
)

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SERIES_COLUMNS = ("repeat", "anchor_ms", "spread_ms", "last_ms", "occurrence")
PENDING_COLUMNS = (*ENTRY_COLUMNS, *SERIES_COLUMNS)
RELEASE_COLUMNS = (*(name for name in PENDING_COLUMNS if name != "last_ms"), "missed_before")
"""Of a released row `last_ms` means nothing."""

FIRES = ("fire_applied", "fire_late")
PAUSED_MS = (2**63 - 1) // 1_000
"""The due time of a paused series."""

PARIS_SPRING_MS, PARIS_AUTUMN_MS = 1_774_746_000_000, 1_792_890_000_000
"""2026-03-29T01:00Z, when 2:00 becomes 3:00, and 2026-10-25T01:00Z, when 3:00 becomes 2:00."""


def is_paused(entry: Mapping[str, Any]) -> bool:
    return entry.get("repeat") is not None and entry["deliver_at_ms"] == PAUSED_MS


class Rule(Protocol):
    """What the model asks of a rule."""

    def after(self, at_ms: int, anchor_ms: int) -> int:
        """The first occurrence strictly after an instant."""


@dataclass(frozen=True)
class Every:
    """``every ... minutes``: the anchor, and so on from it."""

    period_ms: int

    def after(self, at_ms: int, anchor_ms: int) -> int:
        if at_ms < anchor_ms:
            return anchor_ms
        return anchor_ms + ((at_ms - anchor_ms) // self.period_ms + 1) * self.period_ms


@dataclass(frozen=True)
class EachMinutes:
    """``*/n * * * *`` in UTC: the minutes of an hour that n divides."""

    minutes: int

    def after(self, at_ms: int, anchor_ms: int) -> int:  # noqa: ARG002
        found = (at_ms // MINUTE_MS + 1) * MINUTE_MS
        while found // MINUTE_MS % 60 % self.minutes:
            found += MINUTE_MS
        return found


@dataclass(frozen=True)
class DailyInParis:
    """``m h * * *`` in Europe/Paris, in 2026."""

    hour: int
    minute: int
    on_gap: str
    on_fold: str

    def after(self, at_ms: int, anchor_ms: int) -> int:  # noqa: ARG002
        day = at_ms // DAY_MS - 1
        while True:
            for found in self._of_day(day):
                if found > at_ms:
                    return found
            day += 1

    def _of_day(self, day: int) -> list[int]:
        local = day * DAY_MS + self.hour * HOUR_MS + self.minute * MINUTE_MS
        found = [at for offset in (2, 1) if _paris_hours(at := local - offset * HOUR_MS) == offset]
        if not found:
            return [PARIS_SPRING_MS] if self.on_gap == "shift" else []
        return {"first": found[:1], "last": found[-1:], "both": found}[self.on_fold]


def _paris_hours(at_ms: int) -> int:
    return 2 if PARIS_SPRING_MS <= at_ms < PARIS_AUTUMN_MS else 1


@dataclass(frozen=True)
class Told:
    """The column ``repeat`` of an entry, read."""

    rule: Rule
    until_ms: int | None
    count: int | None
    on_missed: str
    most: int | None

    def next_of(self, at_ms: int, anchor_ms: int, number: int) -> int | None:
        """The nominal time of the occurrence of this number, the first after an instant; None if there is none."""
        found = self.rule.after(at_ms, anchor_ms)
        if self.count is not None and number > self.count:
            return None
        return None if self.until_ms is not None and found > self.until_ms else found


@cache
def told_of(text: str) -> Told | str:
    """Reads the column ``repeat``; an error code for a bad one."""
    told = json.loads(text)
    words = told["repeat"].split()
    rule: Rule
    if told["time_zone"] not in ("UTC", "Europe/Paris"):
        return "bad_time_zone"
    if words[0] == "61":
        return "bad_repeat"
    if words[0] == "every":
        rule = Every(int(words[1]) * {"minutes": MINUTE_MS, "seconds": 1_000, "ms": 1}[words[2]])
    elif words[0].startswith("*/"):
        rule = EachMinutes(int(words[0].removeprefix("*/")))
    else:
        rule = DailyInParis(
            int(words[1]), int(words[0]), told.get("on_gap", "shift"), told.get("on_fold", "first")
        )
    return Told(
        rule, told.get("until_ms"), told.get("count"), told.get("on_missed", "latest"), told.get("most")
    )


@dataclass(frozen=True)
class Due:
    """What is planned of one due series: firings as (nominal time, number, dropped before), the rest dropped."""

    firings: list[tuple[int, int, int]]
    dropped: list[tuple[int, int]]


def _has_none(command: Command) -> bool:
    """Whether it is a series that cannot be read, or has no occurrence."""
    if command["op"] != SCHEDULE or command.get("repeat") is None or command.get("deliver_at_ms") is not None:
        return False
    told = told_of(command["repeat"])
    return isinstance(told, str) or told.next_of(command["last_ms"], command["anchor_ms"], 1) is None


class SeriesModel(HeapModel):
    """One shard with series, as a dict and a heap.

    Args:
        memory_ms: As of the heap model.
        tick_ms: The tick of the wheel.

    Attributes:
        refused: Commands that are no series, of the last batch: id, seq and code.
        dropped: The last rows of its missed ones: those that stand for dropped occurrences, by id.
    """

    def __init__(self, memory_ms: int | None, tick_ms: int) -> None:
        super().__init__(memory_ms)
        self.tick_ms = tick_ms
        self.counts.update(dict.fromkeys(("occurrences_fired", "occurrences_missed", *FIRES), 0))
        self._fires: list[tuple[str, int]] = []
        self.refused: list[tuple[str, int, str]] = []
        self.dropped: list[Row] = []
        self._now = 0

    @property
    def next_due_ms(self) -> int | None:
        dues = (entry["deliver_at_ms"] for entry in self.waiting.values() if not is_paused(entry))
        return min(dues, default=None)

    def batch(
        self,
        commands: list[Command],
        now_ms: int,
        limit: int | None = None,
        fires: list[tuple[str, int]] = [],  # noqa: B006  # not changed
    ) -> tuple[list[Row], list[Row]]:
        """As of the heap model; `fires` are FIRE_NOW commands: id and seq."""
        self.refused, self._fires, self._ended_in_batch = [], fires, set()
        self._now = now_ms if self.clock_ms is None else max(self.clock_ms, now_ms)
        good = [dict(command) for command in commands if not self._is_refused(command, commands)]
        found = super().batch(good, now_ms, limit)
        if fires:
            self.changed, self.clock_ms = True, self._now
        return found

    def _fire_now(self, now: int) -> None:
        for name in {name for name, _ in self._fires}:
            seqs = [seq for each, seq in self._fires if each == name]
            entry = self.waiting.get(name)
            if entry is None or is_paused(entry) or _is_over(entry) or entry["seq"] > max(seqs):
                self.counts["fire_late"] += len(seqs)
                continue
            self.counts.update(fire_applied=1, fire_late=len(seqs) - 1)
            if entry["deliver_at_ms"] > now:
                moved_ms = None if entry.get("repeat") is None else now - _nominal(entry)
                levels = {"level_error_ms": moved_ms, "delay_level_ms": None}
                self.waiting[name] = {**entry, "deliver_at_ms": now, **levels}

    def _is_refused(self, command: Command, batch: list[Command]) -> bool:
        if command["op"] != SCHEDULE or command.get("repeat") is None:
            return False
        told, name = told_of(command["repeat"]), command["schedule_id"]
        code: str | None = told if isinstance(told, str) else None
        if isinstance(told, Told):
            same = [each for each in batch if each["schedule_id"] == name]
            unknown = self._known_version(name, self._now) is None
            if unknown and _has_none(command) and all(_has_none(each) for each in same):
                code = "no_occurrence"
        if code is not None:
            self.refused.append((name, command["seq"], code))
        return code is not None

    def _begun(self, command: Command) -> Command:
        """The command with its first occurrence; without any it is due at once, and over."""
        told = told_of(command["repeat"])
        assert isinstance(told, Told)
        begin_ms, anchor_ms = self._begins_after(command)
        command |= {"last_ms": begin_ms, "anchor_ms": anchor_ms, "occurrence": 0}
        first = told.next_of(begin_ms, anchor_ms, 1)
        if first is not None:
            return _placed(command, first)
        at_ms = min(begin_ms, self._now)
        return {**command, "last_ms": at_ms, "deliver_at_ms": at_ms, "level_error_ms": None}

    def _begins_after(self, command: Command) -> tuple[int, int]:
        """After which instant a new series begins, and its anchor."""
        event, anchor = command["last_ms"], command["anchor_ms"]
        old = self.waiting.get(command["schedule_id"])
        if old is None or old.get("repeat") is None or _is_over(old):
            return event, anchor
        due, last = _nominal(old), old["last_ms"]
        has_own_beginning = event != anchor
        told, before = told_of(command["repeat"]), told_of(old["repeat"])
        assert isinstance(told, Told)
        assert isinstance(before, Told)
        is_same = told.rule == before.rule
        if is_same and not has_own_beginning:
            anchor = old["anchor_ms"]
        takes_over = due <= event and not has_own_beginning and (is_same or not isinstance(told.rule, Every))
        return due - 1 if takes_over else max(event, last), anchor

    def _schedule(self, schedule_id: str, command: Command, known: Version | None, now: int) -> None:
        if command.get("repeat") is not None and command.get("deliver_at_ms") is None:
            is_newer = known is None or _version(command) > known
            command = self._begun(command) if is_newer else {**command, "deliver_at_ms": now}
        ended = self._ended.get(schedule_id)
        if command.get("repeat") is None or ended is None:
            super()._schedule(schedule_id, command, known, now)
            return
        fired_due_ms, ended.fired_due_ms = ended.fired_due_ms, None
        super()._schedule(schedule_id, command, known, now)
        ended.fired_due_ms = fired_due_ms

    def _release(self, now: int, limit: int | None) -> tuple[list[Row], list[Row]]:
        self.dropped = []
        self._fire_now(now)
        if limit != 0:
            for name in [
                name for name, each in self.waiting.items() if _is_over(each) and _is_due(each, now)
            ]:
                self._end(name, Ended(_version(self.waiting.pop(name)), now))
                self._count("ended")
        due = {name: self._planned(each, now) for name, each in self.waiting.items() if _is_due(each, now)}
        heap = [
            (
                max(self.waiting[name]["deliver_at_ms"], row["deliver_at_ms"] if place else 0),
                name.encode(),
                row["seq"],
                place,
                name,
                row,
            )
            for name, plan in due.items()
            for place, row in enumerate(_rows_of(self.waiting[name], plan))
        ]
        heapq.heapify(heap)
        fired: list[Row] = []
        missed: list[Row] = []
        released = dict.fromkeys(due, 0)
        while heap and (limit is None or len(fired) + len(missed) < limit):
            *_, name, row = heapq.heappop(heap)
            if not self._leaves(row):
                continue
            released[name] += 1
            plan = due[name]
            if plan is not None and released[name] > len(plan.firings):
                self.dropped.append(row)
                missed.append(row)
                self.counts["occurrences_missed"] += row["missed_before"] + 1
                continue
            bound = row["max_lateness_ms"]
            is_missed = bound is not None and now - row["deliver_at_ms"] > bound
            (missed if is_missed else fired).append(row)
            if row["repeat"] is None:
                del self.waiting[name]
                self._end(name, Ended(_version(row), now, fired_due_ms=None if is_missed else _nominal(row)))
                self._count("missed" if is_missed else "fired")
                continue
            self._count("occurrences_missed" if is_missed else "occurrences_fired")
            self.counts["occurrences_missed"] += row["missed_before"]
        for name, plan in due.items():
            if plan is not None:
                self._move_on(name, plan, released[name], now)
        late = [row for row in missed if row not in self.dropped]
        self.dropped.sort(key=lambda row: row["schedule_id"].encode())
        fired.sort(key=_oldest_first)
        late.sort(key=_oldest_first)
        return fired, [*late, *self.dropped]

    def _leaves(self, row: Row) -> bool:  # noqa: ARG002  # of the protocol
        """Whether a due row is let through; of the rows of a series, none behind one that is not."""
        return True

    def _planned(self, entry: Command, now: int) -> Due | None:
        """What of a series is due; None for an entry that is none."""
        if entry.get("repeat") is None:
            return None
        told = told_of(entry["repeat"])
        assert isinstance(told, Told)
        due = list(_due_of(entry, told, now))
        number, newest = len(due), due[-1]
        if told.on_missed == "all":
            most = number if told.most is None else told.most
            return Due([(at, n, 0) for at, n in due[:most]], due[most:])
        late_ms = now - (newest[0] + entry["spread_ms"])
        bound = self.tick_ms if entry["max_lateness_ms"] is None else entry["max_lateness_ms"]
        if told.on_missed == "none" and number > 1 and late_ms > bound:
            return Due([], due)
        return Due([(*newest, number - 1)], [])

    def _move_on(self, name: str, plan: Due, released: int, now: int) -> None:
        """Moves a series behind what has passed."""
        entry = self.waiting[name]
        passed = [(at, number) for at, number, _ in plan.firings[:released]]
        if released > len(plan.firings):
            passed += plan.dropped
        if not passed:
            return
        last, number = passed[-1]
        told = told_of(entry["repeat"])
        assert isinstance(told, Told)
        following = told.next_of(last, entry["anchor_ms"], number + 1)
        if following is None:
            del self.waiting[name]
            self._end(name, Ended(_version(entry), now))
            self._count("ended")
            return
        self.waiting[name] = _placed(entry, following) | {"last_ms": last, "occurrence": number}


def _due_of(entry: Command, told: Told, now: int) -> Iterator[tuple[int, int]]:
    """The occurrences of a series that are due, with their numbers."""
    at: int | None = _nominal(entry)
    number = entry["occurrence"] + 1
    # An act may have moved the first one, which is due now; those after it come at their nominal times.
    while at is not None and (number == entry["occurrence"] + 1 or at + entry["spread_ms"] <= now):
        yield at, number
        number += 1
        at = told.next_of(at, entry["anchor_ms"], number)


def _rows_of(entry: Command, plan: Due | None) -> list[Row]:
    if plan is None:
        return [_row(entry, entry.get("occurrence"), None)]
    rows = [_row(_at(entry, at), number, before) for at, number, before in plan.firings]
    if plan.dropped:
        last, number = plan.dropped[-1]
        rows.append(_row(_at(entry, last), number, len(plan.dropped) - 1))
    return rows


def _at(entry: Command, nominal_ms: int) -> Command:
    """The entry at one of its occurrences."""
    if nominal_ms != _nominal(entry):
        return _placed(entry, nominal_ms)
    return {**entry, "level_error_ms": entry["level_error_ms"] or None}


def _row(entry: Mapping[str, Any], occurrence: int | None, missed_before: int | None) -> Row:
    told = {**entry, "occurrence": occurrence, "missed_before": missed_before}
    return {name: told.get(name) for name in RELEASE_COLUMNS}


def _placed(entry: Command, nominal_ms: int) -> Command:
    spread_ms = entry["spread_ms"]
    return {**entry, "deliver_at_ms": nominal_ms + spread_ms, "level_error_ms": spread_ms or None}


def _nominal(entry: Mapping[str, Any]) -> int:
    due: int = entry["deliver_at_ms"] - (entry.get("level_error_ms") or 0)
    return due


def _oldest_first(row: Row) -> tuple[int, bytes, int]:
    return row["deliver_at_ms"], row["schedule_id"].encode(), row["seq"]


def _is_over(entry: Command) -> bool:
    """Whether an entry is a series that was begun without any occurrence."""
    return entry.get("repeat") is not None and _nominal(entry) <= entry["last_ms"]


def _is_due(entry: Command, now: int) -> bool:
    return bool(entry["deliver_at_ms"] <= now)


def _version(entry: Mapping[str, Any]) -> Version:
    return entry["seq"], SCHEDULE, entry["amend"]
