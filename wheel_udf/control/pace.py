"""Pace: decides whether the clock advances, each time Spark plans a batch, from the shards' reports.

No empty ticks
    A new offset is offered only when the earliest pending entry is due or a heartbeat has passed since the last one.
    This is the streaming form of the delay queue of buckets in Kafka's timer, where a thread sleeps until the earliest
    non-empty bucket expires. A missing report, or one of another query, counts as "due now". So a lost report costs a
    tick and never delays a firing.

Wall clock set back
    A shard writes its clock only when it has received something, so after the wall clock is set back (or after
    ``until``) one shard would stand at the latest instant and another before it, and the due rows would depend on the
    number of shards. So one tick is offered with the latest instant that any shard has reached; each shard keeps that
    instant until the time has passed it again. After a restart the reports on the first tick show it.

Bounded input (``availableNow``)
    A union hands out the clock's next offset together with the first file of the other sources, so the end instant
    must not travel in it. While the last batch contained input, one plain tick per batch is offered. After the first
    batch without input ``until`` is offered, then further ticks while a backlog over the limit is left; then it ends.

Imports the standard library only: it runs in the planning process of the clock source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wheel_udf.control import wall
from wheel_udf.control.board import STORES, ShardBoard, ShardReport, StoreProgress
from wheel_udf.control.clocks import Clock, EventClock, SimulatedClock, StoreClock
from wheel_udf.control.reports import earliest_due_ms, is_due, is_waiting, watermark_ms

Offset = dict[str, Any]
Reports = Mapping[int, ShardReport]

COUNTER: Final = "wheel_clock"
"""Member of the offsets of this source alone: it counts the ticks."""
INSTANT_BEFORE_ALL_MS: Final = -(2**62)
"""The clock of a store before its keeper has published an instant."""
_INSTANT_COMES_MS: Final = 2_000
"""Much longer than the keeper of a store takes to publish the instant of a commit."""


class ClockPace:
    """The pace of a processing, event or simulated clock. :meth:`offer` comes first, for each batch that Spark plans.

    Args:
        clock: The clock.
        shards: Number of shards.
    """

    def __init__(self, clock: Clock, shards: int) -> None:
        self.clock, self.shards = clock, shards
        self.bounded, self.ended_input, self.ticked = False, False, False
        self.offered_at_ms = wall.elapsed_ms()

    def offer(self, start: Offset, reports: Reports) -> Offset:
        """A later offset if the time must advance, else `start`."""
        offer = self._held(start, reports)
        if offer == start:
            offer = self._bounded(start, reports) if self.bounded else self.offer_unbounded(start, reports)
        self.ticked = self.ticked or offer != start
        return offer

    def tick(self, start: Offset) -> Offset:
        """A later offset, for another reason than time."""
        return self._tick_at(start[COUNTER] + 1)

    def now_ms(self, start: Offset) -> int:  # noqa: ARG002  # as of a store
        """The time of a batch that is planned now."""
        return wall.wall_clock_ms()

    def _tick_at(self, counter: int) -> Offset:
        if not isinstance(self.clock, SimulatedClock):
            return {COUNTER: counter}
        return {COUNTER: counter, "instant_ms": self.clock.instant_of(counter)}

    def offer_unbounded(self, start: Offset, reports: Reports) -> Offset:
        """The next offset while the source runs without an end."""
        if len(reports) < self.shards:
            return self.tick(start)
        if isinstance(self.clock, SimulatedClock):
            return self._simulated(start, self.clock, earliest_due_ms(reports))
        if wall.elapsed_ms() - self.offered_at_ms >= self.clock.heartbeat_ms:
            return self.tick(start)
        return self.tick(start) if is_due(reports, self._clock_ms(reports)) else start

    def _simulated(self, start: Offset, clock: SimulatedClock, next_due_ms: int | None) -> Offset:
        """The next instant of a list, or the first step at which something is due; then ``until``."""
        now_ms, until_ms = start.get("instant_ms", clock.first_ms), clock.until_ms
        if start[COUNTER] < len(clock.instants_ms):
            return self.tick(start)
        if next_due_ms is not None and next_due_ms <= now_ms:
            return _again(start) if clock.instants_ms else self.tick(start)
        if (
            not clock.instants_ms
            and next_due_ms is not None
            and (until_ms is None or next_due_ms <= until_ms)
        ):
            return self._tick_at(max(start[COUNTER] + 1, clock.tick_at(next_due_ms)))
        if until_ms is not None and now_ms < until_ms:
            return {COUNTER: start[COUNTER] + 1, "instant_ms": until_ms}
        return start

    def _bounded(self, start: Offset, reports: Reports) -> Offset:
        if not self.ticked:
            return self.tick(start)
        played_out = not isinstance(self.clock, SimulatedClock) or start[COUNTER] >= len(
            self.clock.instants_ms
        )
        if len(reports) < self.shards:
            return start if played_out else self.tick(start)
        last = max(report.batch_id for report in reports.values())
        held_input = any(report.held_input for report in reports.values() if report.batch_id == last)
        if (held_input and not self.ended_input) or not played_out:
            return self.tick(start)
        until_ms = self.clock.until_ms
        if until_ms is not None and not self.ended_input:
            self.ended_input = True
            return {COUNTER: start[COUNTER] + 1, "instant_ms": until_ms}
        self.ended_input = True
        return _again(start) if is_due(reports, watermark_ms(reports)) else start

    def _held(self, start: Offset, reports: Reports) -> Offset:
        """The latest instant that a shard has reached, if the time and the clock of another shard are before it.

        Simulated instants need no such offset: they travel in every offset, and never go back.
        """
        if len(reports) < self.shards or isinstance(self.clock, SimulatedClock):
            return start
        instants, now_ms = {report.clock_ms for report in reports.values()}, self._clock_ms(reports)
        latest_ms = max(instants)
        if len(instants) == 1 or (now_ms is not None and now_ms >= latest_ms):
            return start
        return {COUNTER: start[COUNTER] + 1, "instant_ms": latest_ms}

    def _clock_ms(self, reports: Reports) -> int | None:
        """The time of a batch that is planned now; None if the watermark is not known."""
        return watermark_ms(reports) if isinstance(self.clock, EventClock) else wall.wall_clock_ms()


class StorePace:
    """The pace of a query on a slot store: the instants that the store's keeper publishes.

    Args:
        clock: The clock.
        shards: Number of shards.
        board: Where the keeper publishes.
    """

    def __init__(self, clock: StoreClock, shards: int, board: ShardBoard) -> None:
        self.clock, self.shards, self.board = clock, shards, board
        self.bounded = False
        self.offered_at_ms = wall.elapsed_ms()
        self.covered = -1
        self.waits_since_ms: int | None = None
        self._published: StoreProgress | None = None

    def offer(self, start: Offset, reports: Reports) -> Offset:
        """As :meth:`ClockPace.offer`."""
        # Read once for each batch: version and instant of an offset are those of one publication.
        published = self._published = self.board.get(STORES, self.clock.token)
        if published is None:
            return start
        standing_ms, now_ms = start.get("instant_ms", INSTANT_BEFORE_ALL_MS), self.now_ms(start)
        next_due_ms, until_ms = earliest_due_ms(reports), published.until_ms
        due = next_due_ms is not None and next_due_ms <= now_ms
        if due and self.clock.leads and now_ms == standing_ms and is_waiting(reports):
            due = self._has_waited()
        else:
            self.waits_since_ms = None
        moves = (
            len(reports) < self.shards
            or published.version > self.covered
            or due
            or wall.elapsed_ms() - self.offered_at_ms >= self.clock.heartbeat_ms
            or (until_ms is not None and standing_ms < min(until_ms, now_ms))
        )
        return self.tick(start) if moves else start

    def tick(self, start: Offset) -> Offset:
        """As :meth:`ClockPace.tick`; `start` before the keeper has published.

        A batch with this offset, or a later one, has read the store up to its version.
        """
        published = self._published
        if published is None:
            return start
        self.covered, self.waits_since_ms = published.version, None
        return {COUNTER: start[COUNTER] + 1, "instant_ms": self.now_ms(start), "version": published.version}

    def now_ms(self, start: Offset) -> int:
        """As :meth:`ClockPace.now_ms`: what is published, never before the last instant and never past the cursor."""
        published = self._published
        standing_ms: int = start.get("instant_ms", INSTANT_BEFORE_ALL_MS)
        if published is None:
            return standing_ms
        stated_ms = wall.wall_clock_ms() if published.clock_ms is None else published.clock_ms
        return max(standing_ms, min(stated_ms, published.cursor_ms - 1))

    def _has_waited(self) -> bool:
        """Whether due rows have waited long enough for their instant; the rows of an act never get one."""
        if self.waits_since_ms is None:
            self.waits_since_ms = wall.elapsed_ms()
        return wall.elapsed_ms() - self.waits_since_ms >= _INSTANT_COMES_MS


def _again(start: Offset) -> Offset:
    """A later offset at the same time."""
    return {**start, COUNTER: start[COUNTER] + 1}
