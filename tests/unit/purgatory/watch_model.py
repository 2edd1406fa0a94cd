"""The oracle of the purgatory's step: one operation at a time, one instant after the other, in plain Python.

It is given all rows at once and knows of no batches, chunks or state: what it says is what must come of the rows
wherever batches end, as long as no row is behind the clock when it comes and nothing is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

EVENT, CANCEL, CANCEL_OPERATION = range(3)
SUM, BEAT = 0, -1


class Request(NamedTuple):
    """An operation; times in ms, ``limit`` None for none."""

    op_id: str
    keys: tuple[str, ...]
    need: int
    time: int
    deadline: int
    threshold: float = 0.0
    limit: int | None = None
    group: str = "g"


class Event(NamedTuple):
    """An event or a cancel; ``name`` is a key or the id of an operation."""

    name: str
    time: int
    what: int = EVENT
    amount: float = 0.0
    group: str = "g"


class Outcome(NamedTuple):
    """How an operation, or a generation of it, ended."""

    op_id: str
    generation: int
    outcome: str
    by_key: str | None
    at: int
    present: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass
class _Open:
    """An operation on its way through time."""

    request: Request
    start: int
    deadline: int
    generation: int = 1
    since: int = 0
    done: dict[str, int] = field(default_factory=dict)
    total: float = 0.0


def outcomes_of(
    requests: list[Request],
    events: list[Event],
    clock: int,
    lookback: int = 0,
    memory: float = math.inf,
    tie: Callable[[Request, int], int | None] = lambda _, default: default,
) -> list[Outcome]:
    """What has been decided when the clock has come there. Of an id, the earliest is meant, and then the first that
    begins when the id is free again; `tie` orders those of one time and deadline.
    """
    taken: dict[tuple[str, str], float] = {}
    found: list[Outcome] = []
    for request in sorted(requests, key=lambda r: (r.time, r.deadline, tie(r, 0))):
        name = request.group, request.op_id
        if request.time > taken.get(name, -math.inf):
            lived, taken[name] = _lived(request, events, clock, lookback, memory)
            found += lived
    return sorted(found, key=lambda o: (o.at, o.op_id, o.generation))


def _lived(
    request: Request, events: list[Event], clock: int, lookback: int, memory: float
) -> tuple[list[Outcome], float]:
    """The outcomes of an operation, and the last instant at which it takes its id: it is remembered in [end, end +
    memory).
    """
    memory = max(memory - 1, 0)
    mine = [e for e in events if e.group == request.group and e.time < clock and _concerns(request, e)]
    mine.sort(key=lambda e: (e.time, _position(request, e), e.amount))
    found: list[Outcome] = []
    waiting: _Open | None = _Open(request, request.time, request.deadline, since=request.time - 1)
    rested_at: int | None = None
    generation = 1
    delay = request.deadline - request.time
    seen = {e.time for e in mine} | {request.time}
    for instant in sorted({max(t, request.time) for t in seen if t >= request.time - lookback}):
        while waiting is not None and waiting.deadline < instant:
            waiting, rested_at = _at_deadline(waiting, delay, found)
        first_seen = instant == request.time and generation == 1
        now = [
            e
            for e in mine
            if (request.time - lookback <= e.time <= instant if first_seen else e.time == instant)
        ]
        happened = [e for e in now if e.what == EVENT]
        if waiting is None:
            if rested_at is None or instant > rested_at + memory:
                break
            if not now:
                continue
            if not happened:
                return found, instant + memory  # a cancel of what rests takes it away
            generation += 1
            waiting = _Open(request, instant, instant + delay, generation, since=instant - 1)
        ended, rested_at = _at_instant(waiting, instant, happened, now, found)
        if ended:
            waiting = None
    while waiting is not None and waiting.deadline < clock:
        waiting, rested_at = _at_deadline(waiting, delay, found)
    return found, found[-1].at + memory if waiting is None else math.inf


def _concerns(request: Request, event: Event) -> bool:
    return event.name == request.op_id if event.what == CANCEL_OPERATION else event.name in request.keys


def _position(request: Request, event: Event) -> int:
    return -1 if event.what == CANCEL_OPERATION else request.keys.index(event.name)


def _goes_on(request: Request) -> bool:
    return request.limit is not None or request.need == BEAT


def _at_instant(
    waiting: _Open, instant: int, happened: list[Event], now: list[Event], found: list[Outcome]
) -> tuple[bool, int | None]:
    """Events first, then cancels; whether it ended, and if it rests, since when."""
    request, completed_by = waiting.request, None
    for event in happened:
        if request.need == BEAT:
            waiting.deadline = max(waiting.deadline, event.time + request.deadline - request.time)
            continue
        waiting.done.setdefault(event.name, instant)
        waiting.total += event.amount
        enough = (
            waiting.total >= request.threshold if request.need == SUM else len(waiting.done) >= request.need
        )
        if enough and completed_by is None:
            completed_by = event.name
    if completed_by is not None:
        found.append(_ended(waiting, "completed", completed_by, instant))
        return True, instant if _goes_on(request) else None
    if any(e.what == CANCEL_OPERATION for e in now):
        found.append(_ended(waiting, "cancelled", None, instant))
        return True, None
    keys = [e.name for e in now if e.what == CANCEL and (request.need < 1 or e.name not in waiting.done)]
    if keys:
        found.append(_ended(waiting, "cancelled", min(keys, key=request.keys.index), instant))
        return True, None
    return False, None


def _at_deadline(waiting: _Open, delay: int, found: list[Outcome]) -> tuple[_Open | None, int | None]:
    request, at = waiting.request, waiting.deadline
    if request.limit is not None:
        limit = waiting.start + request.limit - request.time
        if at < limit and any(waiting.since < t <= at for t in waiting.done.values()):
            waiting.since, waiting.deadline = at, min(at + delay, limit)
            return waiting, None
    found.append(_ended(waiting, "expired", None, at))
    return None, at if _goes_on(request) else None


def _ended(waiting: _Open, outcome: str, by_key: str | None, at: int) -> Outcome:
    keys = waiting.request.keys
    present = tuple(key for key in keys if key in waiting.done)
    missing = tuple(key for key in keys if key not in waiting.done)
    return Outcome(waiting.request.op_id, waiting.generation, outcome, by_key, at, present, missing)
