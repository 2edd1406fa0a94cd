"""Spark's role: micro-batches that are planned, run and committed through two logs.

::

    offsets/N   written before batch N runs: where each source stands, the batch's time, the watermark
    state       a version of each shard's row for each batch, named by the attempt that wrote it
    commits/N   written last: the attempt whose state counts, and the next watermark

    start:  newest offsets = newest commits      plan the next batch
            newest offsets = newest commits + 1  run that batch again, with the same offsets, time and watermark

A log entry is created whole and never replaced, so of two processes that run one checkpoint the slower one fails
(*concurrent update to the log*). State files are named by the attempt, as with format version 2 of Spark's
checkpoints, so a slower process overwrites none that counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulation.disk import Folder
from wheel_udf.checkpoint.spark_logs import last_committed, last_planned

if TYPE_CHECKING:
    from tests.simulation.world import World

Steps = Generator[str, None, None]


@dataclass(frozen=True)
class Plan:
    """A planned batch.

    Attributes:
        batch_id: Its number.
        at_ms: The batch's time.
        watermark_ms: The watermark that it runs with.
        start: Where the sources stood before it: clock, input.
        end: Where they stand after it.
    """

    batch_id: int
    at_ms: int
    watermark_ms: int
    start: tuple[Any, Any]
    end: tuple[Any, Any]

    @property
    def ticks(self) -> bool:
        """Whether the batch has rows of the clock."""
        return bool(self.start[0] != self.end[0])

    def text(self) -> bytes:
        """As Spark writes it, format v1."""
        times = {"batchWatermarkMs": self.watermark_ms, "batchTimestampMs": self.at_ms, "conf": {}}
        # A source that has handed out nothing yet has no offset.
        offsets = [json.dumps(self.end[0]), json.dumps(self.end[1]) if self.end[1] else "-"]
        return "\n".join(["v1", json.dumps(times), *offsets]).encode()


@dataclass(frozen=True)
class Position:
    """Where a process believes that its query stands. It reads the logs at its start only.

    Attributes:
        next_batch: Number of the next batch.
        ends: Where the sources stand: clock, input.
        watermark_ms: The watermark of the next batch.
    """

    next_batch: int
    ends: tuple[Any, Any]
    watermark_ms: int


class Input(Protocol):
    """A source besides the clock; its offsets are numbers from 0."""

    def latest(self, start: int, *, bounded: bool) -> int:
        """The offset that the next batch ends with."""


class Query:
    """A streaming query of two sources, the clock and an input.

    Args:
        world: The world.
        path: The checkpoint.
        clock: The real reader of the clock source.
        source: The input.
        run_batch: Runs a batch; takes the plan and the name of the attempt, and sets :attr:`latest_event_ms`.
        delay_ms: Distance of the watermark from the largest event time; None without one.

    Attributes:
        before_trigger: Called before each trigger.
    """

    def __init__(
        self,
        world: World,
        path: str,
        clock: Any,
        source: Input,
        run_batch: Callable[[Plan, str], Steps],
        delay_ms: int | None = None,
    ) -> None:
        self.world, self.path, self.folder = world, path, Folder(world, path)
        self.clock, self.source, self.run_batch, self.delay_ms = clock, source, run_batch, delay_ms
        self.latest_event_ms: int | None = None
        self.limit: int | None = None
        self.before_trigger: Callable[[], None] = lambda: None
        self.position = Position(0, (clock.initialOffset(), 0), 0)

    @property
    def query_id(self) -> str:
        """The id of the query, which its checkpoint keeps."""
        return str(json.loads(self.folder.read("metadata") or b"{}").get("id", ""))

    def life(self, *, bounded: bool = False, once: bool = False) -> Steps:
        """Runs until the process dies; a bounded query until its input ends, `once` one batch."""
        if self.folder.read("metadata") is None:
            self.folder.replace("metadata", json.dumps({"id": self.world.new_name("query")}).encode())
        plan = self._unfinished()
        limits = self.source.latest(0, bounded=False) if bounded else None
        if bounded:
            self.clock.prepareForTriggerAvailableNow()
        while True:
            if plan is None:
                plan = yield from self._plan(limits)
            if plan is None:
                if bounded or once:
                    return
                yield "idle"
                continue
            attempt = f"{self.world.new_name('attempt')}"
            self.latest_event_ms = None
            if self.world.fault == "commit before sink":
                self._commit(plan, attempt)
            yield from self.run_batch(plan, attempt)
            if self.world.fault != "commit before sink":
                self._commit(plan, attempt)
            plan = None
            yield "committed"
            if once:
                return

    # ---- planning ------------------------------------------------------------------------------------

    def _unfinished(self) -> Plan | None:
        """The batch that was planned and not committed; otherwise sets the position."""
        planned, committed = last_planned(self.path), last_committed(self.path)
        if planned is None:
            return None
        if planned == committed:
            watermark_ms = int(self.commit_of(planned)["nextBatchWatermarkMs"])
            if self.world.fault == "watermark going back":
                watermark_ms = 0
            self.position = Position(planned + 1, self.ends_of(planned), watermark_ms)
            return None
        plan = self.plan_of(planned)
        if self.world.fault == "plan with the new clock":
            plan = replace(plan, at_ms=self.world.wall_ms)
        if self.world.fault == "replay reads more":
            plan = replace(plan, end=(plan.end[0], self.source.latest(0, bounded=False)))
        return plan

    def _plan(self, limits: int | None) -> Generator[str, None, Plan | None]:
        self.before_trigger()
        at, before = self.position, self.position.ends
        tick = self.clock.latestOffset(before[0])
        yield "clock asked"
        end = self.source.latest(before[1], bounded=limits is not None)
        if limits is not None:
            end = max(before[1], min(end, limits))
        if (tick, end) == before:
            return None
        plan = Plan(at.next_batch, self.world.wall_ms, at.watermark_ms, before, (tick, end))
        yield "planned in memory"
        self.folder.create_log(f"offsets/{plan.batch_id}", plan.text())
        self.world.planned(self, plan)
        yield "planned"
        return plan

    def plan_of(self, batch_id: int) -> Plan:
        """A planned batch, from the log."""
        content = self.folder.read(f"offsets/{batch_id}")
        assert content is not None, "planned"
        times = json.loads(content.decode().split("\n")[1])
        before = self.ends_of(batch_id - 1) if batch_id else (self.clock.initialOffset(), 0)
        return Plan(
            batch_id, times["batchTimestampMs"], times["batchWatermarkMs"], before, self.ends_of(batch_id)
        )

    def ends_of(self, batch_id: int) -> tuple[Any, Any]:
        """Where the sources stand after a planned batch."""
        content = self.folder.read(f"offsets/{batch_id}")
        assert content is not None, "planned"
        clock, source = content.decode().split("\n")[2:]
        return json.loads(clock), 0 if source == "-" else json.loads(source)

    # ---- state and commits ---------------------------------------------------------------------------

    def state_before(self, batch_id: int) -> dict[int, Any]:
        """The shards' rows that a batch begins with."""
        if self.world.fault == "state not tied to a batch" and self.world.states.get(self.path):
            return dict(list(self.world.states[self.path].values())[-1])
        if not batch_id:
            return {}
        attempt = self.commit_of(batch_id - 1)["stateUniqueId"]
        return dict(self.world.states[self.path][attempt])

    def write_state(self, attempt: str, states: dict[int, Any]) -> None:
        """Writes the state of an attempt."""
        self.world.point("state")
        self.world.states.setdefault(self.path, {})[attempt] = dict(states)

    def commit_of(self, batch_id: int) -> dict[str, Any]:
        content = self.folder.read(f"commits/{batch_id}")
        assert content is not None, "committed"
        found: dict[str, Any] = json.loads(content.decode().partition("\n")[2])
        return found

    def _commit(self, plan: Plan, attempt: str) -> None:
        watermark_ms = plan.watermark_ms
        if self.delay_ms is not None and self.latest_event_ms is not None:
            watermark_ms = max(watermark_ms, self.latest_event_ms - self.delay_ms)
        content = json.dumps({"nextBatchWatermarkMs": watermark_ms, "stateUniqueId": attempt})
        self.folder.create_log(f"commits/{plan.batch_id}", b"v1\n" + content.encode())
        self.position = Position(plan.batch_id + 1, plan.end, watermark_ms)
        self.world.committed(self, plan)
