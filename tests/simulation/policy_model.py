"""The heap of a wheel with series, retries and rates.

It is :class:`tests.unit.wheel.series_model.SeriesModel`, and has more::

    what comes back      a command with the next `amend`, due after its wait; without a further attempt a dead letter
    what is held back    for a retry: due when its wait is over, but released with its own due time
                         by a rate: the model does not know when it asks again. It may leave whenever it is due

So the rows of a destination with a rate are not predicted: :meth:`PolicyModel.batch` is given those that left, and lets
these leave if they are due. Of all other rows it says which must leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulation.oracle import Row as SinkRow
from tests.unit.wheel.heap_model import SCHEDULE, Command, Ended, Row, Version
from tests.unit.wheel.series_model import SeriesModel

Key = tuple[Any, ...]

JOINT = "\0"
"""In the id of an occurrence that comes back: behind the id of its series."""


@dataclass(frozen=True)
class Policy:
    """How a destination is tried again.

    Attributes:
        attempts: The most attempts.
        first_ms: The wait after the first one; after the second it is twice as long, and so on.
    """

    attempts: int
    first_ms: int


@dataclass(frozen=True)
class Outcome:
    """What became of a row at its destination.

    Attributes:
        is_taken: It was delivered.
        is_tried: It was asked.
        is_final: It will never be taken.
    """

    is_taken: bool = False
    is_tried: bool = True
    is_final: bool = False


def outer(name: str) -> str:
    """The id that the producer gave."""
    return name.partition(JOINT)[0]


class PolicyModel(SeriesModel):
    """One shard.

    Args:
        memory_ms: As of the heap model.
        policy: How the flaky destination is tried again; None: it is not.
        rated: The destinations that have a rate.

    Attributes:
        dead: The dead letters of the last batch.
    """

    def __init__(self, memory_ms: int | None, policy: Policy | None, rated: Collection[str]) -> None:
        super().__init__(memory_ms, tick_ms=1)
        self.policy, self.rated = policy, rated
        self.dead: list[Row] = []
        self._left: Counter[Key] = Counter()
        self._tried: dict[str, Command] = {}
        self._held: dict[str, tuple[int, int]] = {}

    @property
    def unexplained(self) -> list[Key]:
        """The rows that have left though they were not due, of the last batch."""
        return [*self._left.elements()]

    @property
    def holds(self) -> bool:
        """Whether an entry has found no token yet."""
        return bool(self._held)

    @property
    def next_due_ms(self) -> int | None:
        """When the next entry is due that nothing but time holds back."""
        free = [each for each in self.waiting.values() if each["destination"] not in self.rated]
        return min((entry["deliver_at_ms"] for entry in free), default=None)

    @property
    def held_since(self) -> list[tuple[str, int]]:
        """The entries that a rate holds back, and since when."""
        return [(name, since_ms) for name, (_, since_ms) in self._held.items()]

    def policy_batch(
        self,
        commands: list[Command],
        returned: Iterable[tuple[Row, Outcome]],
        now_ms: int,
        limit: int | None,
        left: Iterable[Key],
    ) -> tuple[list[Row], list[Row]]:
        """One batch.

        Args:
            commands: As of the heap model.
            returned: Rows that earlier batches have fired, which come back with this one.
            now_ms: Likewise.
            limit: Likewise.
            left: The rows of destinations with a rate that have left, as :func:`key_of` has them.
        """
        self._left, self.dead = Counter(left), []
        now = now_ms if self.clock_ms is None else max(self.clock_ms, now_ms)
        backs = [self._back(row, outcome, now) for row, outcome in returned]
        self.counts["retried"] += len(backs)
        found = self.batch([*commands, *backs], now_ms, limit)
        self.counts["rejected"] += len(self.refused)
        self.schedules_in += len(self.refused)
        return found

    def _back(self, row: Row, outcome: Outcome, now: int) -> Command:
        assert self.policy is not None, "its destination is tried again"
        attempt = row["attempt"] - 1 + outcome.is_tried
        wake_ms = now + (self.policy.first_ms * attempt if outcome.is_tried else 0)
        name = row["schedule_id"]
        if row["occurrence"] is not None and JOINT not in name:
            name = f"{name}{JOINT}{row['deliver_at_ms'] - (row['level_error_ms'] or 0)}"
        return {
            **row,
            "schedule_id": name,
            "amend": row["amend"] + 1,
            "op": SCHEDULE,
            "seq_given": True,
            "repeat": None,
            "deliver_at_ms": wake_ms,
            "unheld_ms": row["deliver_at_ms"],
            "failed": attempt,
            "first_amend": row["first_amend"],
            "is_back": True,
            "is_dead": outcome.is_final or (outcome.is_tried and attempt >= self.policy.attempts),
        }

    def _schedule(self, schedule_id: str, command: Command, known: Version | None, now: int) -> None:
        ended = self._ended.get(schedule_id)
        if not command.get("is_back") or ended is None:
            super()._schedule(schedule_id, command, known, now)
            return
        # It is no act, which would come too late for what has fired.
        fired_due_ms, ended.fired_due_ms = ended.fired_due_ms, None
        super()._schedule(schedule_id, command, known, now)
        ended.fired_due_ms = fired_due_ms

    def _release(self, now: int, limit: int | None) -> tuple[list[Row], list[Row]]:
        for name in [name for name, each in self.waiting.items() if each.get("is_dead")]:
            entry = self.waiting.pop(name)
            self._end(name, Ended((entry["seq"], SCHEDULE, entry["amend"]), now))
            self._count("dead")
            self.dead.append({**entry, "deliver_at_ms": entry["unheld_ms"]})
        before = dict(self.waiting)
        self._tried = before
        held = {
            name: {**each, "deliver_at_ms": each["unheld_ms"]}
            for name, each in before.items()
            if "unheld_ms" in each and each["deliver_at_ms"] <= now
        }
        self.waiting |= held
        fired, missed = super()._release(now, limit)
        for name, each in held.items():
            if self.waiting.get(name) is each:
                self.waiting[name] = before[name]
        self._note_held(now)
        return [self._with_attempt(row) for row in fired], [self._with_attempt(row) for row in missed]

    def _note_held(self, now: int) -> None:
        """Notes since when entries have found no token; a series that goes on, or a new version, begins anew."""
        due = {
            name: each["seq"] * 2**32 + (each.get("occurrence") or 0)
            for name, each in self.waiting.items()
            if each["destination"] in self.rated and each["deliver_at_ms"] <= now
        }
        before = self._held
        self._held = {
            name: before[name] if name in before and before[name][0] == version else (version, now)
            for name, version in due.items()
        }

    def _with_attempt(self, row: Row) -> Row:
        entry = self._tried[row["schedule_id"]]
        first_amend = entry.get("first_amend", entry["amend"])
        return {**row, "attempt": entry.get("failed", 0) + 1, "first_amend": first_amend}

    def _leaves(self, row: Row) -> bool:
        if row["destination"] not in self.rated:
            return True
        key = key_of(row)
        if not self._left[key]:
            return False
        self._left[key] -= 1
        return True


def row_of(row: Mapping[str, Any], now_ms: int) -> SinkRow:
    """A row that leaves, as the oracle and the sinks have it."""
    name, seq, due_ms, *series = key_of(row)
    return name, seq, row["first_amend"], due_ms, now_ms, *series, row["attempt"]


def key_of(row: Mapping[str, Any]) -> Key:
    """What tells a row that leaves a shard from the others of its batch."""
    return (
        outer(row["schedule_id"]),
        row["seq"],
        row["deliver_at_ms"],
        row["occurrence"] or 0,
        row["missed_before"] or 0,
    )
