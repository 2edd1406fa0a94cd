"""The direct mode: one query, from commands to sinks.

::

    start      real: note_settings (what a planned batch ran with), check_checkpoint, open_checkpoint
    plan       real: ClockReader.latestOffset, over the board      model: Spark's logs
    batch      :mod:`tests.simulation.delivery_model`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.simulation.delivery_model import REJECTS, Delivery
from tests.simulation.disk import Lease
from tests.simulation.oracle import WheelOracle, check
from tests.simulation.spark_model import Plan, Query, Steps
from tests.simulation.world import START_MS, World
from wheel_udf.clock.source import ClockReader
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job.compose import clock_of, identity_of
from wheel_udf.job.loader import check as checked_config
from wheel_udf.job.replay import note_settings, with_row_settings
from wheel_udf.platform import check_checkpoint, open_checkpoint
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.wheel_worker import WheelWorker

CHECKPOINT = "data/checkpoint"
_DELAY_MS = 2
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
def config_of(mode: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    """The config of a job with these settings, checked by the real loader."""
    of = dict(settings)
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
            "destinations": {"*": {"sink": "delta", "path": "data/tables", "create": True}},
            "rejects": {"sink": "delta", "path": "data/rejects"},
            "limits": {} if of["limit"] is None else {"fired_per_batch": of["limit"]},
            "checkpoint": CHECKPOINT,
        }
    )


def in_config(settings: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Those of the settings that stand in the config file."""
    names = ("clock", "shards", "size", "levels", "state_levels", "memory", "limit")
    return tuple((name, settings[name]) for name in names if name in settings)


def _clock_section(kind: str) -> dict[str, Any]:
    if kind == "simulated":
        return {"kind": kind, "start": "1970-01-01T00:00:01Z", "step": "1 ms"}
    return {"kind": kind} | ({"delay": f"{_DELAY_MS} ms", "max_ahead": "none"} if kind == "event" else {})


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
        super().__post_init__()
        self.settings = {**DEFAULTS, **self.settings}
        self.oracle = WheelOracle(self.settings["shards"], self.settings["memory"], START_MS)

    def config(self) -> Any:
        """The config of the next process."""
        return config_of("direct", in_config(self.settings))

    # ---- a process -----------------------------------------------------------------------------------------------------

    def life(self) -> Steps:
        """A start of the job and what follows, as :func:`wheel_udf.job.supervise.run`."""
        of = dict(self.settings)
        self.latest_ms = max(self.latest_ms, of["until"] or 0)
        config = self.config()
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
        worker = self._worker(config, clock)
        delivery = Delivery(self, CHECKPOINT, worker, identity.app_id, bounded=of["bounded"] and not once)
        source = _Log(self, of["files"])
        self.query = delivery.query = Query(
            self, CHECKPOINT, reader, source, delivery.run, getattr(clock, "delay_ms", None)
        )
        delivery.query.limit = worker.limit if isinstance(worker, WheelWorker) else None
        yield from delivery.query.life(bounded=of["bounded"] and not once, once=once)
        lease.close()

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
            limit=config.limits.fired_per_batch,
        )

    def rows_of(self, plan: Plan) -> tuple[Any, ...]:
        """The rows of a batch."""
        return tuple(self.input[plan.start[1] : plan.end[1]])

    # ---- what the oracle sees --------------------------------------------------------------------------------------------

    def planned(self, query: Query, plan: Plan) -> None:
        """See :meth:`World.planned`."""
        first, last = plan.start[1], plan.end[1]
        if self.settings["clock"] == "event":
            said = [each.said_ms for each in self.input[:first] if not each.bad]
            must = max([0, *(ms - _DELAY_MS for ms in said)])
            check(plan.watermark_ms == must, f"watermark {plan.watermark_ms} instead of {must}")
        self.oracle.planned(
            plan.batch_id,
            (first, last),
            self.input[first:last],
            self._clock_of(plan),
            ticks=plan.ticks,
            limit=query.limit,
            touched=range(self.oracle.shards) if plan.ticks and "instant_ms" in plan.end[0] else (),
        )

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
        elif kind == "event" and self.oracle.batches:
            last = self.query._commit_of(len(self.oracle.batches) - 1)
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
        check(False, "batch follows batch without an end")


def _without_answers_idle(reader: ClockReader) -> Any:
    real = ClockReader._unbounded

    def unbounded(start: Any, answers: Any) -> Any:
        return start if len(answers) < reader.shards else real(reader, start, answers)

    return unbounded
