"""Rows for the purgatory's step, and a shard that is driven through batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.unit.purgatory.watch_model import Event, Outcome, Request
from wheel_udf.common.geometry import Wheel
from wheel_udf.purgatory.state import EVENT_SCHEMA, REQUEST_SCHEMA, WatchState, hashes_of, named
from wheel_udf.purgatory.step import WatchStep, advance

WHEEL = Wheel(tick_ms=1, size=4, levels=3)


def requests_of(rows: list[Request]) -> pa.Table:
    """The operations as ``REQUEST_SCHEMA``; the destination is the id's."""
    columns: dict[str, list[Any]] = {
        "group": [r.group for r in rows],
        "op_id": [r.op_id for r in rows],
        "event_time_ms": [r.time for r in rows],
        "deadline_ms": [r.deadline for r in rows],
        "limit_ms": [r.limit for r in rows],
        "need": [r.need for r in rows],
        "threshold": [r.threshold for r in rows],
        "keys": [list(r.keys) for r in rows],
        "destination": [f"to-{r.op_id}" for r in rows],
        **{name: [None] * len(rows) for name in ("key", "value", "headers", "source")},
    }
    return pa.table(columns, schema=REQUEST_SCHEMA)


def events_of(rows: list[Event]) -> pa.Table:
    """The events as ``EVENT_SCHEMA``."""
    groups, names = (pa.array([getattr(e, name) for e in rows], pa.string()) for name in ("group", "name"))
    columns = {
        "group": groups,
        "name": names,
        "hash": hashes_of(named(groups, names)),
        "event_time_ms": [e.time for e in rows],
        "amount": [e.amount for e in rows],
        "what": [e.what for e in rows],
    }
    return pa.table(columns, schema=EVENT_SCHEMA)


class Shard:
    """A shard that is written and read again after each batch, as Spark does."""

    def __init__(self, *, lookback: int = 0, memory: int | None = None) -> None:
        self.lookback, self.memory = lookback, memory
        self.state = WatchState(WHEEL)
        self.outcomes: list[Outcome] = []

    def batch(self, clock: int, *rows: Request | Event) -> list[Outcome]:
        """What is decided by a batch of these rows."""
        step = self.step(clock, *rows)
        if step.changed:
            self.state = WatchState.from_row(step.state.to_row(2), WHEEL, 2)
        found = [_outcome(row) for row in step.outcomes.to_pylist()]
        self.outcomes += found
        return found

    def step(self, clock: int, *rows: Request | Event) -> WatchStep:
        """The step, without taking it."""
        return advance(
            self.state,
            requests_of([row for row in rows if isinstance(row, Request)]),
            events_of([row for row in rows if isinstance(row, Event)]),
            clock,
            lookback_ms=self.lookback,
            memory_ms=self.memory,
        )


def _outcome(row: dict[str, Any]) -> Outcome:
    present, missing = (tuple(filter(None, row[name].split("\0"))) for name in ("present", "missing"))
    return Outcome(
        row["op_id"], row["generation"], row["outcome"], row["by_key"], row["at_ms"], present, missing
    )
