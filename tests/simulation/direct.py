"""The direct mode: one query, from commands to sinks.

::

    start      real: note_settings (what a planned batch ran with), check_checkpoint, open_checkpoint
    plan       real: ClockReader.latestOffset, over the board      model: Spark's logs
    shard      real: WheelWorker.batch (limit, time, step, state row, counts)
    sinks      model: the order of write_batch       real: has_batch (does a table have a batch)
    report     real: report_of, input_moved, ShardStatus.answer

The parts run in the order of :mod:`wheel_udf.delivery.query` and :mod:`wheel_udf.delivery.batch_writer`; between any two is a point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from delta.exceptions import ConcurrentTransactionException

from tests.simulation.core import Command, Group, Result, amend_of
from tests.simulation.disk import Lease, ProcessFailed
from tests.simulation.oracle import AT_LEAST_ONCE, Row, WheelOracle, check, shard_of
from tests.simulation.spark_model import Plan, Query, Steps
from tests.simulation.world import START_MS, World
from wheel_udf.clock import is_clock_offset
from wheel_udf.clock.source import ClockReader
from wheel_udf.delivery.report import report_of
from wheel_udf.job.compose import clock_of, identity_of
from wheel_udf.job.loader import check as checked_config
from wheel_udf.job.replay import note_settings, with_row_settings
from wheel_udf.platform import has_batch, check_checkpoint, input_moved, open_checkpoint
from wheel_udf.stream.frame_facts import FrameFacts, Operator
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.status_row import WheelStatus
from wheel_udf.stream.wheel_worker import WheelWorker

CHECKPOINT = "data/checkpoint"
REJECTS = "rejects"
DEFAULTS: dict[str, Any] = {
    "clock": "processing",
    "shards": 1,
    "size": 3,
    "levels": 2,
    "memory": 20,
    "limit": None,
    "until": None,
    "bounded": False,
    "files": 100,
}
"""Settings: ``until`` is an instant, ``memory`` ms or None, ``files`` the most commands that a batch of a bounded query reads."""


@cache
def config_of(settings: tuple[tuple[str, Any], ...]) -> Any:
    """The config of a job with these settings, checked by the real loader."""
    of = dict(settings)
    memory = "unlimited" if of["memory"] is None else f"{of['memory']} ms"
    return checked_config(
        {
            "name": "simulated",
            "mode": "direct",
            "wheel": {"tick": "1 ms", "size": of["size"], "levels": of["levels"], "shards": of["shards"]},
            "clock": _clock_section(of["clock"]),
            "source": {"format": "json", "path": "data/in"},
            "contract": {"memory": memory},
            "destinations": {"*": {"sink": "delta", "path": "data/tables", "create": True}},
            "rejects": {"sink": "delta", "path": "data/rejects"},
            "limits": {} if of["limit"] is None else {"fired_per_batch": of["limit"]},
            "checkpoint": CHECKPOINT,
        }
    )


def _clock_section(kind: str) -> dict[str, Any]:
    if kind == "simulated":
        return {"kind": kind, "start": "1970-01-01T00:00:01Z", "step": "1 ms"}
    return {"kind": kind} | ({"delay": "2 ms", "max_ahead": "none"} if kind == "event" else {})


@dataclass
class _Log:
    """The input as a source of Spark."""

    world: World
    most: int

    def latest(self, start: int, *, bounded: bool) -> int:
        end = len(self.world.input)
        return min(end, start + self.most) if bounded else end


@dataclass
class DirectWorld(World):
    """A world with one query of the direct mode."""

    oracle: WheelOracle = field(init=False)
    query: Query | None = None

    def __post_init__(self) -> None:
        self.settings = {**DEFAULTS, **self.settings}
        self.oracle = WheelOracle(self.settings["shards"], self.settings["memory"], START_MS)

    # ---- a process -----------------------------------------------------------------------------------------------------

    def life(self) -> Steps:
        """A start of the job and what follows, as :func:`wheel_udf.job.supervise.run`."""
        of = dict(self.settings)
        self.latest_ms = max(self.latest_ms, of["until"] or 0)
        config = config_of(tuple(of.items()))
        check_checkpoint(CHECKPOINT, **identity_of(config))
        yield "checkpoint compared"
        recorded = note_settings(config, of["until"])
        if recorded is not None and self.fault != "replay with the new settings":
            then = with_row_settings(config, recorded)
            yield from self._delivered(then, recorded.until_ms, of, once=True)
        yield from self._delivered(config, of["until"], of, once=False)

    def _delivered(self, config: Any, until_ms: int | None, of: dict[str, Any], *, once: bool) -> Steps:
        lease = Lease(self, CHECKPOINT).acquire()
        identity = open_checkpoint(CHECKPOINT, name="simulated", **identity_of(config))
        yield "checkpoint opened"
        clock = clock_of(config.clock, until_ms)
        reader = ClockReader(clock, config.wheel.shards, self.board)  # type: ignore[arg-type]
        if self.fault == "a lost hint counts as idle":
            reader._unbounded = _without_answers_idle(reader)  # type: ignore[method-assign]
        delivery = Delivery(self, config, clock, identity.app_id, bounded=of["bounded"] and not once)
        source = _Log(self, of["files"])
        self.query = delivery.query = Query(
            self, CHECKPOINT, reader, source, delivery.run, getattr(clock, "delay_ms", None)
        )
        delivery.query.limit = config.limits.fired_per_batch
        yield from delivery.query.life(bounded=of["bounded"] and not once, once=once)
        lease.close()

    # ---- what the oracle sees --------------------------------------------------------------------------------------------

    def planned(self, query: Query, plan: Plan) -> None:
        """See :meth:`World.planned`."""
        first, last = plan.start[1], plan.end[1]
        self.oracle.planned(
            plan.batch_id,
            (first, last),
            self.input[first:last],
            self._clock_of(plan),
            ticks=plan.ticks,
            limit=query.limit,
        )

    def _clock_of(self, plan: Plan) -> int | None:
        kind, instant_ms = self.settings["clock"], plan.end[0].get("instant_ms") if plan.ticks else None
        if kind == "simulated":
            return None if instant_ms is None else int(instant_ms)
        now_ms = plan.watermark_ms if kind == "event" else plan.at_ms
        return now_ms if instant_ms is None else max(now_ms, int(instant_ms))

    def committed(self, query: Query, plan: Plan) -> None:
        """See :meth:`World.committed`."""
        self.oracle.committed(plan.batch_id, self.written(), len(self.table(REJECTS).rows))

    def found_idle(self) -> None:
        """See :meth:`World.found_idle`."""
        kind = self.settings["clock"]
        assert self.query is not None
        if kind == "processing":
            self.oracle.idle(self.wall_ms, self.oracle.read_to, len(self.input))
        elif kind == "event" and self.oracle.batches:
            last = self.query._commit_of(len(self.oracle.batches) - 1)  # noqa: SLF001
            self.oracle.idle(last["nextBatchWatermarkMs"], self.oracle.read_to, len(self.input))

    def finish(self) -> None:
        """See :meth:`World.finish`."""
        self._end()
        self.settings["bounded"] = False
        for ms in (0, 7, 60):
            self.take(("wait", ms))
            self._to_the_end()
        self.oracle.ended(self.written())
        check(self.oracle.read_to == len(self.input), "not all input was read")

    def _to_the_end(self) -> None:
        for _ in range(60):
            if self._run_until({"committed", "idle"}) == "idle":
                return
        check(False, "batch follows batch without an end")  # noqa: FBT003


def _without_answers_idle(reader: ClockReader) -> Any:
    real = ClockReader._unbounded

    def unbounded(start: Any, answers: Any) -> Any:
        return start if len(answers) < reader.shards else real(reader, start, answers)

    return unbounded


@dataclass
class Delivery:
    """Runs the batches of one query, as the worker and :class:`wheel_udf.delivery.query._Delivery`."""

    world: DirectWorld
    config: Any
    clock: Any
    app_id: str
    bounded: bool
    query: Query = field(init=False)
    shards: dict[int, WheelStatus] = field(default_factory=dict)

    @property
    def worker(self) -> WheelWorker:
        """The worker that this query passes to Spark."""
        count = self.config.wheel.shards
        memory_ms = self.config.contract.memory_ms
        return WheelWorker(
            wheel=self.config.wheel.wheel(),
            shards=count,
            keys=shard_keys(count),
            clock_kind=self.clock.kind,
            first_ms=getattr(self.clock, "first_ms", 0),
            delay_ms=getattr(self.clock, "delay_ms", 0),
            memory_ms=0 if self.world.fault == "nothing is remembered" else memory_ms,
            board_folder=None,
            limit=self.config.limits.fired_per_batch,
        )

    def run(self, plan: Plan, attempt: str) -> Steps:
        """Runs a batch up to, not including, Spark's commit."""
        results: dict[int, Result] = {}
        states = self.query.state_before(plan.batch_id)
        commands = tuple(self.world.input[plan.start[1] : plan.end[1]])
        for shard, tick, mine in self._groups(plan, commands):
            yield "task"
            group = self._group(states.get(shard), plan)
            results[shard] = self._call(shard, group, mine, tick)
            states[shard] = results[shard].state
            # Where executors are on the driver's machine, the worker posts its answer itself.
            self._post([results[shard]], plan, held_input=None)
        self.query.write_state(attempt, states)
        said = [each.said_ms for each in commands if not each.bad]
        self.query.latest_event_ms = max(said, default=None)
        yield "state written"
        yield from self._write(results, plan)
        self._report(list(results.values()), plan)

    def _groups(
        self, plan: Plan, commands: tuple[Command, ...]
    ) -> Iterator[tuple[int, Any, tuple[Command, ...]]]:
        ticks = self.query.clock.partitions(plan.start[0], plan.end[0])
        tick = (ticks[0].run, ticks[0].instant_ms) if ticks else None
        count = self.config.wheel.shards
        for shard in range(count):
            mine = tuple(each for each in commands if shard_of(each.id, count) == shard)
            if mine or tick:
                yield shard, tick, mine

    def _group(self, row: Any, plan: Plan) -> Group:
        early_ms = self.world.fault == "fires within the tick"
        if row is not None and self.world.fault == "the clock follows a step back":
            row = (*row[:2], None, *row[3:])
        return Group(row, plan.watermark_ms + early_ms, plan.at_ms + early_ms)

    def _call(self, shard: int, group: Group, mine: tuple[Command, ...], tick: Any) -> Result:
        call = self.world.core.call
        cancels = tuple(each for each in mine if each.op and not each.bad)
        if self.world.fault != "cancels after the clock" or not cancels:
            return call(self.worker, shard, group, mine, tick)
        first = call(self.worker, shard, group, tuple(each for each in mine if each not in cancels), tick)
        again = Group(first.state, group.watermark_ms, group.processing_ms)
        second = call(self.worker, shard, again, cancels, tick)
        return Result(second.state, first.rows + second.rows, second.status)

    # ---- sinks -----------------------------------------------------------------------------------------------------------

    def _write(self, results: dict[int, Result], plan: Plan) -> Steps:
        """The steps of :func:`wheel_udf.delivery.batch_writer.write_batch`."""
        rows = [row for result in results.values() for row in result.rows]
        waiting: dict[str, list[Row]] = {}
        for row in rows:
            if row["kind"] == "fired":
                waiting.setdefault(row["destination"], []).append(_row(row))
        rejected = [(row["kind"], row["schedule_id"]) for row in rows if row["kind"] != "fired"]
        if not waiting and not rejected:
            return
        series, rejects = f"{self.app_id}-rejects", self.world.table(REJECTS)
        if self.world.fault == "rejects before tables" and rejected:
            yield from self._write_table(REJECTS, rejected, series, plan)
        if has_batch(rejects.transactions(), series, plan.batch_id):
            return
        yield from self._write_all(waiting, plan)
        if rejected:
            yield "before rejects"
            yield from self._write_table(REJECTS, rejected, series, plan)

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
        if has_batch(writer.transactions, app_id, plan.batch_id):
            if self.world.fault != "no transaction check":
                return
        yield f"writing {to}"
        try:
            writer.commit(rows, app_id, plan.batch_id, checked=self.world.fault != "zombie commit accepted")
        except ConcurrentTransactionException as fault:
            raise ProcessFailed(f"{to}: {fault}") from fault
        if to != REJECTS:
            self.world.oracle.wrote(to, plan.batch_id, rows, self._shown_ms)

    @property
    def _shown_ms(self) -> int:
        """What may have fired by now: under the clocks of data there is no such bound from outside."""
        return self.world.latest_ms if self.clock.kind == "processing" else 2**62

    # ---- the report --------------------------------------------------------------------------------------------------------

    def _report(self, results: list[Result], plan: Plan) -> None:
        statuses = [result.status for result in results]
        self.shards |= {status.shard: status for status in statuses}
        moved = self.bounded and input_moved(CHECKPOINT, plan.batch_id, is_clock_offset)
        held_input = any(status.received for status in statuses) or moved
        self.world.point("hint")
        self._post(results, plan, held_input=held_input)
        facts = FrameFacts(
            operator=Operator.SCHEDULE, wheel="", shards=self.config.wheel.shards, clock=self.clock.kind, board=""
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
            self.world.oracle.reported(plan.batch_id, report.counts, report.pending)

    def _post(self, results: list[Result], plan: Plan, *, held_input: bool | None) -> None:
        for result in results:
            answer = result.status.answer(held_input=held_input)
            posted = {result.status.shard: _of_batch(answer, plan.batch_id)}
            self.world.board.post(self.query.query_id, result.status.run, posted)


def _of_batch(answer: Any, batch_id: int) -> Any:
    return type(answer)(**{**answer.__dict__, "batch_id": batch_id})


def _row(row: dict[str, Any]) -> Row:
    return row["schedule_id"], row["seq"], amend_of(row), row["deliver_at_ms"], row["fired_at_ms"]
