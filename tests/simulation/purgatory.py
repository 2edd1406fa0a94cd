"""The purgatory: one query, from operations and events to outcomes. The direct mode with the worker of ``watch``.

::

    input      operations and events in one log, each at most the watermark's delay behind the latest before it: none is late
    shard      real: WatchWorker.batch, and with it the purgatory's step
    oracle     :mod:`tests.unit.purgatory.watch_model`, which is given all rows at once and knows of no batches

So whatever processes die and wherever batches end, the outcomes must be those of the model, each in its table once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.simulation.delivery_model import REJECTS
from tests.simulation.direct import CHECKPOINT, DEFAULTS, DirectWorld
from tests.simulation.oracle import Row, check
from tests.simulation.spark_model import Plan, Query
from tests.simulation.world import START_MS, World
from tests.unit.purgatory.watch_model import Event, Request, outcomes_of
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job.loader import check as checked_config
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.watch_worker import WatchWorker

DELAY_MS = 4
"""Distance of the watermark from the largest event time."""


@dataclass(frozen=True)
class Ask:
    """An operation or an event as it comes.

    Attributes:
        of: The row, of the oracle's kind.
        to: Where an operation's outcome goes.
        bad: Whether it cannot be used.
    """

    of: Request | Event
    to: str | None = None
    bad: bool = False

    @property
    def id(self) -> str:
        """By which the shard is chosen: the group."""
        return self.of.group

    @property
    def op(self) -> int:
        """Not a cancel of the wheel."""
        return 0

    @property
    def said_ms(self) -> int:
        """Its time."""
        return self.of.time

    def row(self) -> dict[str, Any]:
        """The row of the worker's input."""
        of = self.of
        common = {"group": of.group, "event_time_ms": of.time, "reject": "{}" if self.bad else None}
        if isinstance(of, Event):
            own = {"what": of.what, "name": of.name, "amount": of.amount}
        else:
            own = {
                "what": -1,
                "name": of.op_id,
                "keys": "\0".join(of.keys),
                "need": of.need,
                "amount": of.threshold,
                "deadline_ms": of.deadline,
                "limit_ms": of.limit,
                "destination": self.to,
            }
        return {**dict.fromkeys(WatchWorker.INPUT.names), **common, **own}


@cache
def _config(shards: int, lookback_ms: int) -> Any:
    files = {"format": "json"}
    return checked_config(
        {
            "wheel": {"tick": "1 ms", "size": 3, "levels": 2, "shards": shards},
            "clock": {"kind": "event", "delay": f"{DELAY_MS} ms"},
            "operations": {**files, "path": "data/operations"},
            "events": {**files, "path": "data/events"},
            "watch": {"lookback": f"{lookback_ms} ms"},
            "contract": {"memory": "unlimited", "default_destination": "left"},
            "destinations": {"*": {"sink": "delta", "path": "data/tables", "create": True}},
            "rejects": {"sink": "delta", "path": "data/rejects"},
            "checkpoint": CHECKPOINT,
        }
    )


class WatchOracle:
    """What the sinks of a purgatory must hold at the end, and may hold before."""

    def __init__(self, lookback_ms: int) -> None:
        self.lookback_ms, self.read_to = lookback_ms, 0
        self.came: list[tuple[int, int]] = []
        self.batches: list[Plan] = []
        self.decided: dict[tuple[Any, ...], int] = {}

    def planned(self, plan: Plan, rows: Sequence[Ask]) -> None:
        """A batch is in the journal."""
        check(
            plan.batch_id == len(self.batches), f"batch {plan.batch_id} planned after {len(self.batches) - 1}"
        )
        check(plan.start[1] == self.read_to, f"batch {plan.batch_id} does not begin where the last one ended")
        self.read_to = plan.end[1]
        self.batches.append(plan)
        events, bad = self.came[-1] if self.came else (0, 0)
        events += sum(isinstance(row.of, Event) and not row.bad for row in rows)
        self.came.append((events, bad + sum(row.bad for row in rows)))

    def wrote(self, to: str, batch_id: int, rows: Iterable[Row], _clock_ms: int) -> None:
        """A sink has got outcomes: none before its instant has passed, none of an operation's generation that had one."""
        rows = list(rows)
        early = [row for row in rows if row[4] >= row[5]]
        check(not early, f"{to} got {early} in batch {batch_id} before their instant had passed")
        twice = [row for row in rows if self.decided.setdefault(row[:3], batch_id) != batch_id]
        check(not twice, f"{to} got {twice} in batch {batch_id}, decided before")

    def ended(self, inputs: Sequence[Ask], clock_ms: int, written: Mapping[str, Sequence[Row]]) -> None:
        """All is over."""
        good = [row for row in inputs if not row.bad]
        asked = {(row.of.group, row.of.op_id): row.to for row in good if isinstance(row.of, Request)}
        groups = {row.of.group for row in good}
        must: Counter[tuple[Any, ...]] = Counter()
        for group in groups:
            mine = [row.of for row in good if row.of.group == group]
            requests = [row for row in mine if isinstance(row, Request)]
            events = [row for row in mine if isinstance(row, Event)]
            for each in outcomes_of(requests, events, clock_ms, self.lookback_ms):
                must[asked[group, each.op_id], group, each.op_id, each.generation, each.outcome, each.at] += 1
        found = Counter((to, *row[:5]) for to, rows in written.items() for row in _once(to, rows))
        check(not must - found, f"lost: {sorted(must - found)}")
        check(not found - must, f"once too often: {sorted(found - must)}")


def _once(to: str, rows: Sequence[Row]) -> Iterable[Row]:
    return set(rows) if to == "topic" else rows


@dataclass
class PurgatoryWorld(DirectWorld):
    """A world with one query of a purgatory."""

    watched: WatchOracle = field(init=False)

    def __post_init__(self) -> None:
        World.__post_init__(self)
        self.settings = {**DEFAULTS, "lookback": 0, **self.settings, "clock": "event"}
        self.oracle = self.watched = WatchOracle(self.settings["lookback"])  # type: ignore[assignment]

    def config(self) -> Any:
        """The config of the next process."""
        return _config(self.settings["shards"], self.settings["lookback"])

    def _worker(self, config: Any, clock: Any) -> Any:
        return WatchWorker(
            wheel=config.wheel.wheel(),
            shards=config.wheel.shards,
            keys=shard_keys(config.wheel.shards),
            clock_kind=clock.kind,
            first_ms=0,
            delay_ms=clock.delay_ms,
            memory_ms=None,
            board_folder=None,
            stores=(),
            lookback_ms=config.watch.lookback_ms,
            delivered=config.watch.deliver,
        )

    def planned(self, query: Query, plan: Plan) -> None:  # noqa: ARG002  # as all modes
        """See :meth:`World.planned`."""
        self.watched.planned(plan, self.rows_of(plan))

    def committed(self, query: Query, plan: Plan) -> None:  # noqa: ARG002  # as all modes
        """See :meth:`World.committed`."""
        rejects = len(self.table(REJECTS).rows)
        bad = self.watched.came[plan.batch_id][1]
        check(rejects >= bad, f"batch {plan.batch_id} is committed with {rejects} rejects of {bad}")

    def reported(self, plan: Plan, report: BatchReport) -> None:
        """The report of a batch, complete."""
        events, _ = self.watched.came[plan.batch_id]
        found = report.counts["events"]
        check(found == events, f"batch {plan.batch_id} reports {found} events of {events}")

    def found_idle(self) -> None:
        """See :meth:`World.found_idle`."""
        check(self.watched.read_to == len(self.input), "idle, though input is unread")

    def finish(self) -> None:
        """Events far ahead, one for each group, let the clock pass all deadlines."""
        self._end()
        self.settings["bounded"] = False
        end_ms = START_MS + 1_000
        inputs: list[Any] = list(self.input)
        self.input += [Ask(Event("the end", end_ms, group=group)) for group in "gh"]  # type: ignore[misc]
        self._to_the_end()
        self.watched.ended(inputs, end_ms - DELAY_MS, self.written())
