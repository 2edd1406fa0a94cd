"""The direct mode: one query, from commands to sinks.

::

    acts       real: create_act, ActCourier, as_commands (in the worker)   model: the selection, of another process
    start      real: note_settings (what a planned batch ran with), check_checkpoint, open_checkpoint
    plan       real: ClockReader.latestOffset, over the board      model: Spark's logs
    batch      :mod:`tests.simulation.delivery_model`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import pyarrow as pa

from tests.simulation.core import Command
from tests.simulation.delivery_model import REJECTS, Delivery
from tests.simulation.disk import Lease
from tests.simulation.oracle import WheelOracle, check, shard_of
from tests.simulation.spark_model import Plan, Query, Steps
from tests.simulation.world import START_MS, Step, World
from wheel_udf.checkpoint.act_files import acts_of, acts_taken, create_act
from wheel_udf.checkpoint.identity import check_checkpoint, open_checkpoint
from wheel_udf.checkpoint.spark_logs import last_committed
from wheel_udf.control.pace import ClockPace
from wheel_udf.control.source import ClockReader
from wheel_udf.delivery.act_courier import ActCourier
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job.compose import clock_of, identity_of
from wheel_udf.job.loader import check as checked_config
from wheel_udf.job.replay import note_settings, with_row_settings
from wheel_udf.shard.arrow_text import table_to_text
from wheel_udf.shard.rows import CANCEL, SCHEDULE
from wheel_udf.shard.state import ShardState
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.wheel_worker import WheelWorker
from wheel_udf.wheel.acted import ACT_SCHEMA, acts_of_texts

CHECKPOINT = "data/checkpoint"
DELAY_MS = 2
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
"""Settings: ``until`` is an instant, ``memory`` ms or None, ``files`` the most commands that a batch of a bounded
query reads.
"""


@cache
def config_of(mode: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    """The config of a job with these settings, checked by the real loader."""
    of = dict(settings)
    served = _served(of)
    tiered = {"store": {"path": "data/store"}} if mode == "tiered" else {}
    in_state = {"state_levels": of["state_levels"]} if mode == "tiered" else {}
    memory = "unlimited" if of["memory"] is None else f"{of['memory']} ms"
    return checked_config(
        {
            "name": "simulated",
            "mode": mode,
            "wheel": {
                "tick": "1 ms",
                **{name: of[name] for name in ("size", "levels", "shards")},
                **in_state,
            },
            **tiered,
            "clock": _clock_section(of["clock"]),
            "source": {"format": "json", "path": "data/in"},
            "contract": {"memory": memory},
            "destinations": served | {"*": _TABLES},
            **({"dead_letters": "dead"} if (of.get("retries") or (0,))[-1] else {}),
            "rejects": {"sink": "delta", "path": "data/rejects"},
            "limits": {} if of["limit"] is None else {"fired_per_batch": of["limit"]},
            "checkpoint": CHECKPOINT,
        }
    )


_TABLES: dict[str, Any] = {"sink": "delta", "path": "data/tables", "create": True}


def _served(of: dict[str, Any]) -> dict[str, Any]:
    """The destinations that have a rate, or are tried again."""
    sinks = {"right": _TABLES, "flaky": {"sink": "http", "url": "https://flaky.example.com"}}
    found: dict[str, dict[str, Any]] = {}
    if of.get("retries"):
        attempts, first_ms, _ = of["retries"]
        policy = {"policy": "linear", "first": f"{first_ms} ms", "jitter": "none", "attempts": attempts}
        found["flaky"] = sinks["flaky"] | {"retries": policy, "breaker": {"failures": 0}}
    if of.get("rates"):
        period_ms, burst, names = of["rates"]
        for name in names:
            found[name] = found.get(name, sinks[name]) | {"rate": f"{1000 / period_ms}/s", "burst": burst}
    return found


def in_config(settings: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Those of the settings that stand in the config file."""
    names = ("clock", "shards", "size", "levels", "state_levels", "memory", "limit", "retries", "rates")
    return tuple((name, settings[name]) for name in names if name in settings)


def _clock_section(kind: str) -> dict[str, Any]:
    if kind == "simulated":
        return {"kind": kind, "start": "1970-01-01T00:00:01Z", "step": "1 ms"}
    return {"kind": kind} | ({"delay": f"{DELAY_MS} ms", "max_ahead": "none"} if kind == "event" else {})


@dataclass
class _Log:
    """The input as a source of Spark."""

    world: World
    most: int

    def latest(self, start: int, *, bounded: bool) -> int:
        end = len(self.world.input)
        return min(end, start + self.most) if bounded else end


@dataclass(frozen=True, repr=False)
class Acted(Command):
    """A row of an act, as the heap sees it: with the payload of its entry."""

    amend: int = 0
    of_state: bool = True


@dataclass
class DirectWorld(World):
    """A world with one query of the direct mode."""

    oracle: WheelOracle = field(init=False)
    query: Query | None = None
    acts: list[Acted] = field(default_factory=list)

    MOST_BATCHES: ClassVar = 60
    """So many batches come one after the other at the same instant, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settings = {**DEFAULTS, **self.settings}
        self.oracle = WheelOracle(self.settings["shards"], self.settings["memory"], START_MS)

    def config(self) -> Any:
        """The config of the next process."""
        return config_of("direct", in_config(self.settings))

    # ---- acts ----------------------------------------------------------------------------------------

    def take_more(self, step: Step) -> None:
        """Steps of this mode: acts of another process."""
        match step:
            case ("act", kind, which, due_ms):
                left, self._left = self._left, None
                self._act(kind, which, due_ms)
                self._left = left
            case _:
                super().take_more(step)

    def _act(self, kind: str, which: int, due_ms: int) -> None:
        """An act on one of the entries that :func:`wheel_udf.pending.pending` shows."""
        entries = self._shown()
        if not entries:
            return
        entry = entries[which % len(entries)]
        row = {name: entry[name] for name in ACT_SCHEMA.names if name in entry} | {"op": SCHEDULE}
        match kind:
            case "cancel":
                row = {name: entry[name] for name in ("schedule_id", "seq", "amend")} | {"op": CANCEL}
            case "move":
                row |= {"amend": entry["amend"] + 1, "deliver_at_ms": due_ms}
            case _:
                row |= {"amend": entry["amend"] + 1, "destination": "left"}
        rows = table_to_text(pa.Table.from_pylist([row], schema=ACT_SCHEMA))
        shard = shard_of(entry["schedule_id"], self.oracle.shards)
        assert create_act(CHECKPOINT, len(self.acts), {"act": kind}, {shard: rows})
        is_cancel = row["op"] == CANCEL
        self.acts.append(
            Acted(
                id=entry["schedule_id"],
                op=row["op"],
                seq=entry["seq"],
                due_ms=row.get("deliver_at_ms") or 0,
                to=row.get("destination") or "left",
                lateness_ms=None if is_cancel else entry["max_lateness_ms"],
                seq_given=is_cancel,
                amend=row["amend"],
            )
        )

    def _shown(self) -> list[dict[str, Any]]:
        """The pending entries after the last committed batch, as the acts leave them that it has not taken."""
        committed = last_committed(CHECKPOINT)
        if committed is None or self.query is None:
            return []
        config = self.config()
        shown = {}
        for row in self.query.state_before(committed + 1).values():
            if row is not None:
                state = ShardState.from_row(row, config.wheel.wheel(), config.wheel.shards)
                shown |= {(each["schedule_id"], each["seq"]): each for each in state.entries().to_pylist()}
        for _, rows in acts_of(CHECKPOINT, acts_taken(CHECKPOINT)):
            for act in acts_of_texts(list(rows.values()), ACT_SCHEMA).to_pylist():
                version = act["schedule_id"], act["seq"]
                if act.pop("op") == CANCEL:
                    shown.pop(version, None)
                elif version in shown:
                    shown[version] |= act
        return [shown[version] for version in sorted(shown)]

    # ---- a process -----------------------------------------------------------------------------------

    def life(self) -> Steps:
        """A start of the job and what follows, as :func:`wheel_udf.job.begin.run`."""
        of = dict(self.settings)
        self.latest_ms = max(self.latest_ms, of["until"] or 0)
        config = self.config()
        check_checkpoint(CHECKPOINT, **identity_of(config))
        yield "checkpoint compared"
        recorded = note_settings(config, of["until"])
        if recorded is not None and self.fault != "replay with the new settings":
            then = with_row_settings(config, recorded)
            yield from self._delivered(then, recorded["until_ms"], of, once=True)
        yield from self._delivered(config, of["until"], of, once=False)

    def _delivered(self, config: Any, until_ms: int | None, of: dict[str, Any], *, once: bool) -> Steps:
        lease = Lease(self, CHECKPOINT).acquire()
        identity = open_checkpoint(CHECKPOINT, name="simulated", **identity_of(config))
        yield "checkpoint opened"
        clock, frame = clock_of(config.clock, until_ms), self.new_name("frame")
        courier = ActCourier(CHECKPOINT, self.board, frame)  # type: ignore[arg-type]
        courier.prepare()
        yield "acts posted"
        limit = getattr(getattr(config, "limits", None), "fired_per_batch", None)
        reader = ClockReader(
            clock, config.wheel.shards, self.board, frame, limit=limit, **self._more_of_clock
        )  # type: ignore[arg-type]
        if self.fault == "a lost hint counts as idle":
            reader.pace = _IdleWithoutAnswers(clock, config.wheel.shards)  # type: ignore[arg-type]
        worker = self._worker(config, clock)
        delivery = self._delivery(CHECKPOINT, worker, identity.app_id, bounded=of["bounded"] and not once)
        delivery.prepare(frame)
        source = _Log(self, of["files"])
        self.query = delivery.query = Query(
            self, CHECKPOINT, reader, source, delivery.run, getattr(clock, "delay_ms", None)
        )
        delivery.query.before_trigger = lambda: courier.carry(delivery.query.query_id)
        delivery.query.limit = worker.limit if isinstance(worker, WheelWorker) else None
        yield from delivery.query.life(bounded=of["bounded"] and not once, once=once)
        lease.close()

    _more_of_clock: ClassVar[dict[str, Any]] = {}

    def _delivery(self, *args: Any, **named: Any) -> Delivery:
        return Delivery(self, *args, **named)

    def _worker(self, config: Any, clock: Any) -> WheelWorker:
        """The worker that ``schedule`` passes to Spark."""
        memory_ms = 0 if self.fault == "nothing is remembered" else config.contract.memory_ms
        return WheelWorker(
            wheel=config.wheel.wheel(),
            shards=config.wheel.shards,
            keys=shard_keys(config.wheel.shards),
            clock_kind=clock.kind,
            first_ms=getattr(clock, "first_ms", 0),
            delay_ms=getattr(clock, "delay_ms", 0),
            memory_ms=memory_ms,
            board_folder=None,
            stores=(),
            limit=config.limits.fired_per_batch,
            **self._more_of_worker(config),
        )

    def _more_of_worker(self, config: Any) -> dict[str, Any]:  # noqa: ARG002  # as all modes
        return {}

    def rows_of(self, plan: Plan) -> tuple[Any, ...]:
        """The rows of a batch."""
        return tuple(self.input[plan.start[1] : plan.end[1]])

    # ---- what the oracle sees ------------------------------------------------------------------------

    def planned(self, query: Query, plan: Plan) -> None:
        """See :meth:`World.planned`."""
        first, last = plan.start[1], plan.end[1]
        if self.settings["clock"] == "event":
            said = [each.said_ms for each in self.input[:first] if not each.bad]
            must = max([0, *(ms - DELAY_MS for ms in said)])
            check(plan.watermark_ms == must, f"watermark {plan.watermark_ms} instead of {must}")
        self.oracle.planned(
            plan.batch_id,
            (first, last),
            [*self.input[first:last], *self.acts[plan.start[0].get("acts", 0) : plan.end[0].get("acts", 0)]],
            self._clock_of(plan),
            ticks=plan.ticks,
            limit=query.limit,
            shares=plan.end[0].get("shares") if plan.ticks else None,
            touched=range(self.oracle.shards) if plan.ticks and "instant_ms" in plan.end[0] else (),
            **self._more_of_plan(plan),
        )

    def _more_of_plan(self, plan: Plan) -> dict[str, Any]:  # noqa: ARG002  # as all modes
        return {}

    def _clock_of(self, plan: Plan) -> int | None:
        kind, instant_ms = self.settings["clock"], plan.end[0].get("instant_ms") if plan.ticks else None
        if kind == "simulated":
            return None if instant_ms is None else int(instant_ms)
        now_ms = plan.watermark_ms if kind == "event" else plan.at_ms
        return now_ms if instant_ms is None else max(now_ms, int(instant_ms))

    def reported(self, plan: Plan, report: BatchReport) -> None:
        """The report of a batch, complete."""
        self.oracle.reported(plan.batch_id, report.counts, report.pending)

    def committed(self, query: Query, plan: Plan) -> None:  # noqa: ARG002  # as all modes
        """See :meth:`World.committed`."""
        self.oracle.committed(plan.batch_id, self.written(), len(self.table(REJECTS).rows))

    def found_idle(self) -> None:
        """See :meth:`World.found_idle`."""
        kind = self.settings["clock"]
        assert self.query is not None
        if kind == "processing":
            self.oracle.idle(self.wall_ms, self.oracle.read_to, len(self.input))
        # A zombie may have planned a batch that this query has not seen.
        elif kind == "event" and 0 < self.oracle.planned_batches == self.query.position.next_batch:
            last = self.query.commit_of(self.oracle.planned_batches - 1)
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
        for _ in range(self.MOST_BATCHES):
            if self._run_until({"committed", "idle"}) == "idle":
                return
        check(False, "batch follows batch without an end")


class _IdleWithoutAnswers(ClockPace):
    """The fault: a shard that has not answered counts as one with nothing due."""

    def offer_unbounded(self, start: Any, reports: Any) -> Any:
        return start if len(reports) < self.shards else super().offer_unbounded(start, reports)
