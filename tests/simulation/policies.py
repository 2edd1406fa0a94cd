"""The direct mode with policies: series, a destination that is tried again, destinations with a rate.

::

    flaky sink   model: by a hash of row and batch, a row is taken, fails, is not tried, or is refused for good
    returns      real: ReturnedRows (the files, the board, look at the start), Returns of the clock   model: which rows failed
    rates        real: Turnstile, in the worker; rate and retries come from the config

A repeated batch finds the same failures, or, where the destination is moody, others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from zlib import crc32

import pyarrow as pa

from tests.simulation.core import Group, Result
from tests.simulation.delivery_model import Delivery
from tests.simulation.direct import CHECKPOINT, DirectWorld
from tests.simulation.disk import ProcessFailed
from tests.simulation.oracle import FLAKY, Row, check, shard_of
from tests.simulation.policy_model import Outcome, Policy, key_of
from tests.simulation.policy_oracle import DEAD, PolicyOracle, Rated
from tests.simulation.spark_model import Plan, Steps
from tests.simulation.world import START_MS
from wheel_udf.checkpoint.returned_files import Returned
from wheel_udf.delivery.returns import ReturnedRows
from wheel_udf.job.models.service import rates_of, retries_of
from wheel_udf.policies.retries import RETURNED_SCHEMA
from wheel_udf.stream.worker import DETAIL, NO_LONG

_COLLECTED = pa.schema([("part", pa.int32()), ("shard", pa.int32()), *RETURNED_SCHEMA])
_TOKENS_MORE = 10
_CLOCK, _TOKENS = 2, -2
"""Places in a state row."""


def outcome_of(row: Row, batch_id: int, mood: int) -> Outcome:
    """What becomes of a row at the flaky destination."""
    of = (row[0], row[1], row[3], row[7], batch_id, *([mood] if mood else []))
    luck = crc32(repr(of).encode()) % 100
    if luck < 40:
        return Outcome(is_taken=True)
    if luck < 82:
        return Outcome()
    return Outcome(is_tried=False) if luck < 94 else Outcome(is_final=True)


class SimulatedReturns(ReturnedRows):
    """The real one, without frames."""

    rows: Sequence[dict[str, Any]] = ()

    def _collected(self, left_out: Any, names: list[str]) -> pa.Table:  # noqa: ARG002  # as the real one
        mine = [row for row in self.rows if row["destination"] in names]
        return pa.Table.from_pylist(mine, schema=_COLLECTED)

    def take_the_file_of_a_repeated_batch(self) -> None:
        """The fault: what a batch reports that is repeated counts as that of a committed one."""
        if (file := self._files.repeated) is not None:
            self._post(self._files.keep(file), file)

    def keep_nothing(self) -> None:
        """The fault: what comes back is only posted."""
        files = self._files

        def keep(_returned: Returned) -> int:
            files.next += 1
            return files.next - 1

        files.keep = keep  # type: ignore[method-assign]


@dataclass
class PolicyDelivery(Delivery):
    """The delivery of a query with retries and rates."""

    returns: SimulatedReturns | None = None
    _fresh: set[int] = field(default_factory=set)

    def prepare(self, frame: str) -> None:
        """See :meth:`Delivery.prepare`."""
        self._fresh = set(range(self.worker.shards))
        if not self.worker.retries:  # type: ignore[attr-defined]
            return
        self.returns = SimulatedReturns(
            CHECKPOINT,
            self.world.board,
            frame,
            self.worker.shards,
            self.worker.retries,  # type: ignore[attr-defined]
        )
        self.returns.prepare()
        if self.world.fault == "an attempt counts twice":
            self.returns.take_the_file_of_a_repeated_batch()
        if self.world.fault == "what comes back is lost at a restart":
            self.returns.keep_nothing()

    def _group(self, shard: int, row: Any, plan: Plan) -> Group:
        group = super()._group(shard, row, plan)
        is_fault = self.world.fault == "the tokens are full again after a restart"
        if is_fault and shard in self._fresh and group.row is not None:
            group.row = (*group.row[:_TOKENS], "", *group.row[_TOKENS + 1 :])
        self._fresh.discard(shard)
        return group

    def _call(self, shard: int, group: Group, mine: tuple[Any, ...], tick: Any) -> Result:
        edits = tuple(each for each in mine if each.repeat is not None and not each.bad)
        if self.world.fault != "an edit doubles the occurrence at its boundary" or not edits:
            return super()._call(shard, group, mine, tick)
        call, before = self.world.core.call, group.row
        first = call(self.worker, shard, group, tuple(each for each in mine if each not in edits), tick)
        again = Group(before, group.watermark_ms, group.processing_ms)
        second = call(self.worker, shard, again, mine, tick)
        fired = {tuple(sorted(map(repr, row.items()))) for row in second.rows}
        extra = tuple(row for row in first.rows if tuple(sorted(map(repr, row.items()))) not in fired)
        return Result(second.state, second.rows + extra, second.status)

    def _computed(self, results: dict[int, Result], plan: Plan) -> None:
        rows = {shard: [shown(row) for row in result.rows] for shard, result in results.items()}
        clocks_ms = {shard: each.state[_CLOCK] for shard, each in results.items() if each.state is not None}
        self.world.oracle.ran(plan.batch_id, rows, clocks_ms)

    def _post(self, results: list[Result], plan: Plan, *, held_input: bool | None) -> None:
        # A zombie has a board of its own: the folder of its driver.
        if self.world.live is not None and self.world.live.number == self.world.process:
            super()._post(results, plan, held_input=held_input)

    # ---- sinks ---------------------------------------------------------------------------------------

    def _row(self, row: dict[str, Any]) -> Row:
        row = shown(row)
        name, seq, due_ms, *series = key_of(row)
        return name, seq, int(row[DETAIL] or 0), due_ms, row["fired_at_ms"], *series, row.get("attempt") or 1

    def _write(self, results: dict[int, Result], plan: Plan) -> Steps:
        if self.returns is not None:
            clock_ms = max(each.status.clock_ms for each in results.values())
            self.returns.begin(self.query.query_id, clock_ms)
        yield from super()._write(results, plan)
        dead = [self._row(row) for each in results.values() for row in each.rows if row["kind"] == DEAD]
        if dead:
            yield "before dead letters"
            yield from self._write_table(DEAD, dead, f"{self.app_id}-dead", plan)

    def _write_one(self, to: str, rows: list[Row], plan: Plan) -> Steps:
        if to != FLAKY:
            yield from super()._write_one(to, rows, plan)
            return
        yield f"before {to}"
        self.world.oracle.wrote(to, plan.batch_id, rows, self._shown_ms)
        self.world.asked += rows

    def _keep(self, rows: list[dict[str, Any]], plan: Plan) -> Steps:
        if self.returns is None:
            return
        yield "before what comes back"
        if self.world.is_moody:
            if self.world.live is None or self.world.live.number != self.world.process:
                raise ProcessFailed("it has lost its lease")
            self.world.moods[plan.batch_id] = self.world.process
        asked = [row for row in rows if row["kind"] == "fired" and row["destination"] == FLAKY]
        outcomes = [(row, self.world.outcome_of(self._row(row), plan.batch_id)) for row in asked]
        self.returns.rows = [
            _returned(shown(row), outcome, shard_of(row["schedule_id"], self.worker.shards))
            for row, outcome in outcomes
            if not outcome.is_taken
        ]
        self.returns.keep([], {FLAKY: len(asked)} if asked else {}, plan.batch_id)

    def _keep_again(self, plan: Plan) -> None:
        if self.returns is not None:
            self.returns.keep_again(plan.batch_id)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row that leaves the worker, with null where it has none."""
    return {name: None if value == NO_LONG else value for name, value in row.items()}


def _returned(row: dict[str, Any], outcome: Outcome, shard: int) -> dict[str, Any]:
    """As the columns ``returning`` of a firing, and ``wheel_udf.delivery.returns``."""
    same = (
        *("schedule_id", "seq", "destination", "key", "value", "headers", "source", "amend"),
        *("deliver_at_ms", "level_error_ms", "max_lateness_ms", "failed_at_ms"),
        *("first_error", "last_error", "occurrence"),
    )
    return {name: row[name] for name in same} | {
        "part": 0,
        "shard": shard,
        "first_amend": int(row[DETAIL] or 0),
        "attempt": row["attempt"] - 1,
        "error": "HTTP 503",
        "is_final": outcome.is_final,
        "is_tried": outcome.is_tried,
    }


@dataclass
class PolicyWorld(DirectWorld):
    """A world with one query of the direct mode, with policies."""

    asked: list[Row] = field(default_factory=list)
    moods: dict[int, int] = field(default_factory=dict)
    MOST_BATCHES: ClassVar = 200
    _more_of_clock: ClassVar[dict[str, Any]] = {"returns": True}

    def __post_init__(self) -> None:
        super().__post_init__()
        retries, rates = self.settings.get("retries"), self.settings.get("rates")
        self.oracle = PolicyOracle(
            self.settings["shards"],
            self.settings["memory"],
            START_MS,
            policy=Policy(*retries[:2]) if retries else None,
            rated=Rated(*rates) if rates else None,
            outcome_of=self.outcome_of,
            keeps_dead=bool(retries and retries[2]),
        )

    @property
    def is_moody(self) -> bool:
        """Whether other rows fail when a batch is repeated."""
        return bool(self.settings.get("moody"))

    def outcome_of(self, row: Row, batch_id: int) -> Outcome:
        """What has become of a row in the last run of a batch."""
        return outcome_of(row, batch_id, self.moods.get(batch_id, 0))

    def _delivery(self, *args: Any, **named: Any) -> Delivery:
        return PolicyDelivery(self, *args, **named)

    def _more_of_worker(self, config: Any) -> dict[str, Any]:
        return {
            "retries": retries_of(config.destinations, config.dead_letters),
            "rates": rates_of(config.destinations, config.wheel.shards),
        }

    def _more_of_plan(self, plan: Plan) -> dict[str, Any]:
        start, end = (offset[0].get("returned", 0) for offset in (plan.start, plan.end))
        return {"returned": (start, end)}

    def written(self) -> dict[str, list[Row]]:
        """See :meth:`World.written`; of the flaky destination what it was asked."""
        return {**super().written(), FLAKY: self.asked}

    def finish(self) -> None:
        """See :meth:`DirectWorld.finish`; then as many tokens more as a few rows need that wait for one."""
        super().finish()
        if not self.settings.get("rates"):
            return
        period_ms, *_ = self.settings["rates"]
        held = self.oracle.held()
        for _ in range(_TOKENS_MORE):
            self.take(("wait", period_ms * self.settings["shards"]))
            self._to_the_end()
        starved = held & self.oracle.held()
        is_few = len(held) <= _TOKENS_MORE // 2 and self.settings["clock"] == "processing"
        check(not (starved and is_few), f"held back though there were tokens: {starved}, since")
        self.oracle.ended(self.written())
