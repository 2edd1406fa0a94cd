"""From the rows of a batch to its report: what :class:`wheel_udf.delivery.query._Delivery` does with each batch of the
wheel.

::

    shard      real: WheelWorker.batch (limit, time, step, state row, counts)
    sinks      model: the order of write_batch       real: has_batch (does a table have a batch)
    report     real: report_of, input_moved, ShardStatus.answer

The parts run in the order of :mod:`wheel_udf.delivery.query` and :mod:`wheel_udf.sinks.batch_writer`; between any
two is a point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from delta.exceptions import ConcurrentTransactionException

from tests.simulation.core import Group, Result, amend_of
from tests.simulation.disk import ProcessFailed
from tests.simulation.oracle import AT_LEAST_ONCE, Row, shard_of
from tests.simulation.spark_model import Plan, Query, Steps
from wheel_udf.checkpoint.spark_logs import input_moved
from wheel_udf.control.board import ACTS
from wheel_udf.control.reports import post_reports, reports_of
from wheel_udf.control.shares import shares_of
from wheel_udf.control.source import is_clock_offset
from wheel_udf.control.tick import Tick
from wheel_udf.delivery.report import BatchReport, report_of
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.status_row import ShardStatus
from wheel_udf.stream.worker import NO_LONG, ShardWorker
from wheel_udf.tables.table_state import has_batch

REJECTS = "rejects"
_LEAVES = ("fired", "outcome")
_APART = (*_LEAVES, "dead")
"""Rows that are no rejects."""


@dataclass
class Delivery:
    """Runs the batches of one query, as the worker and :class:`wheel_udf.delivery.query._Delivery`."""

    world: Any
    checkpoint: str
    worker: ShardWorker
    app_id: str
    bounded: bool = False
    on_report: Callable[[BatchReport], None] | None = None
    query: Query = field(init=False)
    shards: dict[int, ShardStatus] = field(default_factory=dict)

    def prepare(self, frame: str) -> None:
        """Called before the query starts; `frame` is its name on the board."""

    def run(self, plan: Plan, attempt: str) -> Steps:
        """Runs a batch up to, not including, Spark's commit."""
        results: dict[int, Result] = {}
        states = self.query.state_before(plan.batch_id)
        commands = self.world.rows_of(plan)
        for shard, tick, mine in self._groups(plan, commands):
            yield "task"
            group = self._group(shard, states.get(shard), plan)
            results[shard] = self._call(shard, group, mine, tick)
            states[shard] = results[shard].state
            # Where executors are on the driver's machine, the worker posts its answer itself.
            self._post([results[shard]], plan, held_input=None)
        self._computed(results, plan)
        self.query.write_state(attempt, states)
        said = [each.said_ms for each in commands if not each.bad and each.said_ms is not None]
        self.query.latest_event_ms = max(said, default=None)
        yield "state written"
        yield from self._write(results, plan)
        self._report(list(results.values()), plan)

    def _computed(self, results: dict[int, Result], plan: Plan) -> None:
        """The shards have run."""

    def _groups(self, plan: Plan, commands: tuple[Any, ...]) -> Iterator[tuple[int, Any, tuple[Any, ...]]]:
        start, end = plan.start[0], plan.end[0]
        if self.world.fault == "acts are taken again after a restart":
            start = {**start, "acts": 0}
        if self.world.fault == "a replay takes acts that came later" and "query" in end:
            posted = len(self.world.board.keys(ACTS, end["query"]))
            end = {**end, "acts": max(end["acts"], posted)}
        parts = self.query.clock.partitions(start, end)
        count = self.worker.shards
        for shard in range(count):
            told = Tick.from_text(parts[0].ticks[shard]) if parts else None
            if told and self.world.fault == "a replay divides the limit anew" and (limit := self.query.limit):
                divided = shares_of(limit, reports_of(self.world.board, self.query.clock.run), count)
                told = replace(told, share=divided[shard] if divided else None)
            mine = tuple(each for each in commands if shard_of(each.id, count) == shard)
            if mine or told:
                yield shard, told, mine

    def _group(self, shard: int, row: Any, plan: Plan) -> Group:  # noqa: ARG002  # as all modes
        early_ms = self.world.fault == "fires within the tick"
        if row is not None and self.world.fault == "the clock follows a step back":
            row = (*row[:2], None, *row[3:])
        return Group(row, plan.watermark_ms + early_ms, plan.at_ms + early_ms)

    def _call(self, shard: int, group: Group, mine: tuple[Any, ...], tick: Any) -> Result:
        call = self.world.core.call
        cancels = tuple(each for each in mine if each.op and not each.bad)
        if self.world.fault != "cancels after the clock" or not cancels:
            return call(self.worker, shard, group, mine, tick)
        first = call(self.worker, shard, group, tuple(each for each in mine if each not in cancels), tick)
        again = Group(first.state, group.watermark_ms, group.processing_ms)
        second = call(self.worker, shard, again, cancels, tick)
        return Result(second.state, first.rows + second.rows, second.status)

    # ---- sinks ---------------------------------------------------------------------------------------

    def _write(self, results: dict[int, Result], plan: Plan) -> Steps:
        """The steps of :func:`wheel_udf.sinks.batch_writer.write_batch`."""
        rows = [row for result in results.values() for row in result.rows]
        waiting: dict[str, list[Row]] = {}
        for row in rows:
            if row["kind"] in _LEAVES:
                waiting.setdefault(row["destination"], []).append(self._row(row))
        rejected = [(row["kind"], row.get("schedule_id")) for row in rows if row["kind"] not in _APART]
        if not waiting and not rejected:
            return
        series, rejects = f"{self.app_id}-rejects", self.world.table(REJECTS)
        if self.world.fault == "rejects before tables" and rejected:
            yield from self._write_table(REJECTS, rejected, series, plan)
        if has_batch(rejects.transactions(), series, plan.batch_id):
            self._keep_again(plan)
            return
        yield from self._write_all(waiting, plan)
        yield from self._keep(rows, plan)
        if rejected:
            yield "before rejects"
            yield from self._write_table(REJECTS, rejected, series, plan)

    def _keep(self, rows: list[dict[str, Any]], plan: Plan) -> Steps:  # noqa: ARG002  # as all modes
        """Keeps what comes back; nothing does."""
        yield from ()

    def _keep_again(self, plan: Plan) -> None:
        """What comes back of a batch that is complete is kept already."""

    def _write_all(self, waiting: dict[str, list[Row]], plan: Plan) -> Steps:
        """Several tables at the same time: a part of each in turn; which one is first differs from batch to batch."""
        names = sorted(waiting, reverse=plan.batch_id % 2 == 1)
        writes = [self._write_one(name, waiting[name], plan) for name in names]
        while writes:
            for write in list(writes):
                at = next(write, None)
                if at is None:
                    writes.remove(write)
                else:
                    yield at

    def _write_one(self, to: str, rows: list[Row], plan: Plan) -> Steps:
        if to == AT_LEAST_ONCE:
            yield f"before {to}"
            self.world.oracle.wrote(to, plan.batch_id, rows, self._shown_ms)
            self.world.topic += rows
        else:
            yield from self._write_table(to, rows, self.app_id, plan)

    def _write_table(self, to: str, rows: list[Any], app_id: str, plan: Plan) -> Steps:
        writer = self.world.table(to).begin()
        has = has_batch(writer.transactions, app_id, plan.batch_id)
        if has and self.world.fault != "no transaction check":
            return
        yield f"writing {to}"
        try:
            writer.commit(rows, app_id, plan.batch_id, checked=self.world.fault != "zombie commit accepted")
        except ConcurrentTransactionException as fault:
            raise ProcessFailed(f"{to}: {fault}") from fault
        if to != REJECTS:
            self.world.oracle.wrote(to, plan.batch_id, rows, self._shown_ms)

    def _row(self, row: dict[str, Any]) -> Row:
        """A row as a sink has it."""
        return _row(row)

    @property
    def _shown_ms(self) -> int:
        """What may have fired by now: under the clocks of data there is no such bound from outside."""
        return self.world.latest_ms if self.world.settings["clock"] == "processing" else 2**62

    # ---- the report ----------------------------------------------------------------------------------

    def _report(self, results: list[Result], plan: Plan) -> None:
        statuses = [result.status for result in results]
        self.shards |= {status.shard: status for status in statuses}
        moved = self.bounded and input_moved(self.checkpoint, plan.batch_id, is_clock_offset)
        held_input = any(status.received for status in statuses) or moved
        self.world.point("hint")
        self._post(results, plan, held_input=held_input)
        facts = FrameFacts(
            wheel="",
            shards=self.worker.shards,
            clock=self.worker.clock_kind,
            board="",
        )
        report = report_of(
            statuses,
            self.shards.values(),
            batch_id=plan.batch_id,
            undeliverable=0,
            held_input=held_input,
            facts=facts,
        )
        if report.complete:
            self.world.reported(plan, report)
        if self.on_report is not None:
            self.on_report(report)

    def _post(self, results: list[Result], plan: Plan, *, held_input: bool | None) -> None:
        for result in results:
            answer = result.status.report(held_input=held_input)
            posted = {result.status.shard: _of_batch(answer, plan.batch_id)}
            post_reports(self.world.board, self.query.query_id, result.status.run, posted)


def _of_batch(answer: Any, batch_id: int) -> Any:
    return type(answer)(**{**answer.__dict__, "batch_id": batch_id})


def _row(row: dict[str, Any]) -> Row:
    if row["kind"] == "outcome":
        names = ("group", "op_id", "generation", "outcome", "at_ms", "decided_at_ms")
        return tuple(row[name] for name in names)
    once = row["schedule_id"], row["seq"], amend_of(row), row["deliver_at_ms"], row["fired_at_ms"]
    return once if row["occurrence"] == NO_LONG else (*once, row["occurrence"], row["missed_before"])
