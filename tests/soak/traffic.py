"""The input of a soak, from a seed: so many rows each second, of which some take an earlier one back.

::

    second n   new ids ------------------------------------------------> rows of second n
                 |  some have a sequel: a later version, a cancel in     ^
                 |  time or too late, a repetition; an event             |
                 '----> waits here for its second ------------------------'

Rows are dicts with the columns of the contract. Event times are the wall clock's when the file is written.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Row = dict[str, Any]
WHERE = ("left", "right")


class Traffic:
    """What comes in each second.

    Args:
        seed: Of the choices.
        rate: New ids a second.
        delay_s: Shortest and longest delay.
    """

    def __init__(self, seed: int, rate: int, delay_s: tuple[float, float]) -> None:
        self._random, self._rate, self._delay_s = random.Random(seed), rate, delay_s
        self._number, self._order = itertools.count(), itertools.count()
        self._later: list[tuple[float, int, str, Callable[[int], Row]]] = []

    def commands(self, second: int, now_ms: int) -> list[Row]:
        """The commands of a second, for the wheel: new ids and what follows on earlier ones."""
        rows = [self._schedule(second, now_ms) for _ in range(self._rate)]
        return rows + [make(now_ms) for _, make in self._due(second)]

    def operations(self, second: int, now_ms: int) -> tuple[list[Row], list[Row]]:
        """The operations and the events of a second, for the purgatory."""
        rows = [self._operation(second, now_ms) for _ in range(self._rate)]
        return rows, [make(now_ms) for _, make in self._due(second)]

    def _due(self, second: int) -> list[tuple[str, Callable[[int], Row]]]:
        found = []
        while self._later and self._later[0][0] <= second:
            found.append(heapq.heappop(self._later)[2:])
        return found

    def _then(self, second: float, what: str, make: Callable[[int], Row]) -> None:
        heapq.heappush(self._later, (second, next(self._order), what, make))

    # ---- the wheel -----------------------------------------------------------------------------------

    def _schedule(self, second: int, now_ms: int) -> Row:
        number, delay_s, chance = (
            next(self._number),
            self._random.uniform(*self._delay_s),
            self._random.random(),
        )
        name = f"id{number}"
        if chance < 0.01:
            name_or_none, deliver_at = (None, _at(now_ms)) if number % 2 else (name, None)
            return command(name_or_none, 1, now_ms, deliver_at)
        if chance < 0.11:
            self._then(second + self._part(delay_s), "version", lambda ms: self._version(name, ms))
        elif chance < 0.21:
            self._then(second + self._part(delay_s), "cancel", lambda ms: cancel(name, ms))
        elif chance < 0.24:
            self._then(second + delay_s + 2, "late cancel", lambda ms: cancel(name, ms))
        row = command(name, 1, now_ms, _at(now_ms + 1_000 * delay_s))
        if 0.24 <= chance < 0.27:
            self._then(second + 1, "repetition", lambda _: dict(row))
        return row

    def _version(self, name: str, now_ms: int) -> Row:
        return command(name, 2, now_ms, _at(now_ms + 1_000 * self._random.uniform(*self._delay_s)))

    def _part(self, delay_s: float) -> float:
        return delay_s * self._random.uniform(0.1, 0.5)

    # ---- the purgatory -------------------------------------------------------------------------------

    def _operation(self, second: int, now_ms: int) -> Row:
        number, delay_s, chance = (
            next(self._number),
            self._random.uniform(*self._delay_s),
            self._random.random(),
        )
        name, group = f"op{number}", f"g{number % 50}"
        keys = [f"{name}-a", f"{name}-b"] if number % 3 == 0 else [f"{name}-a"]
        row = operation(name, group, keys, now_ms, f"{int(1_000 * delay_s)} ms")
        if chance < 0.01:
            return row | {"op_id": None}
        if chance < 0.50:
            for key in keys:
                self._then(second + self._part(delay_s), "event", lambda ms, key=key: event(group, key, ms))  # type: ignore[misc]
        elif chance < 0.60:
            self._then(
                second + self._part(delay_s), "cancel", lambda ms: event(group, name, ms, "CANCEL_OPERATION")
            )
        elif chance < 0.65:
            self._then(second + delay_s + 2, "late event", lambda ms: event(group, keys[0], ms))
        return row


def command(name: str | None, seq: int, now_ms: int, deliver_at: datetime | None) -> Row:
    """A SCHEDULE."""
    destination = WHERE[seq % 2] if name is None else WHERE[int(name[2:]) % 2]
    value = f"{name}/{seq}".encode()
    row = {"schedule_id": name, "op": None, "seq": seq, "deliver_at": deliver_at, "event_time": _at(now_ms)}
    return row | {"destination": destination, "value": value}


def cancel(name: str, now_ms: int) -> Row:
    """A CANCEL, above both versions of an id."""
    return {"schedule_id": name, "op": "CANCEL", "seq": 3, "event_time": _at(now_ms)}


def operation(name: str, group: str, keys: list[str], now_ms: int, deadline: str) -> Row:
    """An operation that waits for all of its keys."""
    row = {"op_id": name, "group": group, "keys": keys, "rule": "all", "deadline": deadline}
    return row | {"event_time": _at(now_ms), "destination": "ended", "value": name.encode()}


def event(group: str, key: str, now_ms: int, op: str = "EVENT") -> Row:
    """An event on a key, or a cancel."""
    return {"group": group, "key": key, "op": op, "event_time": _at(now_ms)}


def _at(ms: float) -> datetime:
    return datetime.fromtimestamp(int(ms) / 1_000, UTC)
