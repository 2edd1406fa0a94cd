"""The kinds of clock: what the wheel's *now* is in a batch.

=============  ======================================================  =========================================
clock          the wheel's ``now`` in a batch                          moves when
=============  ======================================================  =========================================
`processing`   the batch's own timestamp                               the wall clock moves
`event`        the watermark (largest event time seen, less a delay)   commands with later times arrive
`simulated`    the instant in the clock's offset                       an offset is taken: start + n steps
`store`        the instant in the clock's offset                       the keeper of a slot store publishes one
=============  ======================================================  =========================================

A clock is a frozen dataclass of settings. It holds no time: :mod:`wheel_udf.control.source` turns it into rows.

Imports the standard library only: Spark starts a Python process per query to plan the clock's batches, and
most of its start is imports.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import MAX_INSTANT_MS, require_ms


@dataclass(frozen=True, kw_only=True)
class EventClock:
    """Event time: the clock is the watermark.

    Attributes:
        delay_ms: How far the clock stays behind the largest event time.
        max_ahead_ms: Largest distance of a command's event time ahead of the wall clock. A command beyond it
            is rejected and does not move the clock. ``None``: no bound (data of the future).
        heartbeat_ms: Longest time without a batch.
        until_ms: Instant to which the clock is advanced at the end of bounded input; ``None``: it stays at
            the watermark.
    """

    delay_ms: int = 0
    max_ahead_ms: int | None = 60_000
    heartbeat_ms: int = 60_000
    until_ms: int | None = None
    kind = "event"

    def __post_init__(self) -> None:
        require_ms("clock.delay_ms", self.delay_ms, 0)
        require_ms("clock.heartbeat_ms", self.heartbeat_ms, 1)
        require_ms("clock.max_ahead_ms", self.max_ahead_ms, 0)
        require_ms("clock.until_ms", self.until_ms)


@dataclass(frozen=True, kw_only=True)
class ProcessingClock:
    """Processing time: the clock is each batch's own journaled timestamp.

    Attributes:
        heartbeat_ms: Longest time without a batch.
        until_ms: Instant to which the clock is advanced at the end of bounded input, without waiting for it.
    """

    heartbeat_ms: int = 60_000
    until_ms: int | None = None
    kind = "processing"

    def __post_init__(self) -> None:
        require_ms("clock.heartbeat_ms", self.heartbeat_ms, 1)
        require_ms("clock.until_ms", self.until_ms)


@dataclass(frozen=True, kw_only=True)
class SimulatedClock:
    """Simulated time: the batches move the clock, to ``start_ms + n * step_ms`` or along a list of instants, one per
    batch.

    A list can contain steps back and jumps (on a step back the clock stays where it is). With a step, an
    unbounded query skips the steps at which nothing is due.

    Attributes:
        start_ms: First instant.
        step_ms: Distance of the instants, at least 1.
        instants_ms: The instants themselves, instead of start and step.
        until_ms: Last instant; at the end of bounded input the clock is advanced to it.
        heartbeat_ms: Not used: simulated time stands still while nothing happens.
    """

    start_ms: int | None = None
    step_ms: int | None = None
    instants_ms: tuple[int, ...] = ()
    until_ms: int | None = None
    heartbeat_ms: int = 60_000
    kind = "simulated"

    def __post_init__(self) -> None:
        object.__setattr__(self, "instants_ms", tuple(self.instants_ms))
        stepped = self.start_ms is not None and self.step_ms is not None
        if stepped == bool(self.instants_ms) or (
            not stepped and (self.start_ms, self.step_ms) != (None, None)
        ):
            raise ConfigError(
                "a simulated clock needs either a start and a step, or a list of instants",
                field="clock",
                value={"start_ms": self.start_ms, "step_ms": self.step_ms, "instants_ms": self.instants_ms},
            )
        require_ms("clock.step_ms", self.step_ms, 1)
        require_ms("clock.until_ms", self.until_ms)
        for instant_ms in (self.start_ms, *self.instants_ms):
            require_ms("clock.instants_ms" if self.instants_ms else "clock.start_ms", instant_ms)

    @property
    def first_ms(self) -> int:
        """The clock before the first tick."""
        return self.instant_of(1)

    def instant_of(self, counter: int) -> int:
        """The instant of a tick, counted from 1: of a list, the latest instant so far."""
        if self.instants_ms:
            return max(self.instants_ms[: max(counter, 1)])
        start_ms, step_ms = self._grid
        last_ms = MAX_INSTANT_MS if self.until_ms is None else self.until_ms
        return min(start_ms + (counter - 1) * step_ms, last_ms)

    def tick_at(self, due_ms: int) -> int:
        """The first tick, counted from 1, whose instant is at or after ``due_ms``. For clocks with a step."""
        start_ms, step_ms = self._grid
        return max(1, 1 - (start_ms - due_ms) // step_ms)

    @property
    def _grid(self) -> tuple[int, int]:
        assert self.start_ms is not None, "a clock without a list has a start and a step"
        assert self.step_ms is not None, "a clock without a list has a start and a step"
        return self.start_ms, self.step_ms


@dataclass(frozen=True, kw_only=True)
class StoreClock:
    """The clock of a query on the near partitions of a slot store: what the store's keeper publishes, never past its
    cursor.

    Each instant travels in the clock's offset, so a replay sees the same. After every commit of the store the clock
    offers a batch, which has read that commit. An earlier batch may have read the commit, too, without its instant:
    Spark plans the clock first, and the commit may come between the planning of the two sources.

    Attributes:
        token: Name under which the keeper publishes (topic ``stores`` of :mod:`wheel_udf.control.board`).
        heartbeat_ms: Longest time without a batch.
        leads: Whether the instants belong to the commits (the event clock), so that rows read without one have to wait
            for it.
    """

    token: str
    heartbeat_ms: int = 60_000
    leads: bool = False
    kind = "store"


Clock = EventClock | ProcessingClock | SimulatedClock


def clock_options(
    clock: Clock | StoreClock,
    shards: int,
    folder: Path,
    frame: str = "",
    *,
    has_sender: bool = False,
    limit: int | None = None,
    returns: bool = False,
) -> dict[str, str]:
    """The options of the clock source.

    Args:
        clock: The clock.
        shards: Number of shards.
        folder: Of the board.
        frame: Name of the operator's frame on the board.
        has_sender: Whether the query has a sender, whose news go to the shards.
        limit: Most rows of a batch over all shards; None for no limit.
        returns: Whether entries that cannot be delivered come back.
    """
    settings = {
        "shards": shards,
        "folder": str(folder),
        "frame": frame,
        "has_sender": has_sender,
        "limit": limit,
        "returns": returns,
    }
    return {"settings": json.dumps({"clock": asdict(clock) | {"kind": clock.kind}, **settings})}


def clock_of(fields: dict[str, Any]) -> Clock | StoreClock:
    """The clock that :func:`clock_options` has written."""
    kinds: dict[str, type[Clock | StoreClock]] = {
        kind.kind: kind for kind in (EventClock, ProcessingClock, SimulatedClock, StoreClock)
    }
    return kinds[fields.pop("kind")](**fields)
