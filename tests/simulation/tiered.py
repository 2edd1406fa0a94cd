"""The tiered mode: intake, keeper and wheel of one process over one slot store; acts, which other processes record.

::

    intake    Spark's model, real Keeper.take_in                   |
    keeper    real TieredRun (what time it is, what is published), | over the real SlotStore, over the model of Delta's log
              Keeper (hand-over, inbox, drops), Retirements        |
    wheel     Spark's model, real ClockReader of the store's clock, the batches of delivery_model
    acts      real act_files (a file and its rows) and rows_of_act, Keeper.take_acts over the same store

Under the event clock the intake waits for the wheel after each batch (:mod:`wheel_udf.tiered.lead`, real): see
:meth:`TieredWorld._check_lead`.

Intake, keeper and wheel take turns in any order. While one of them is inside the real code, at any commit of the
store, the others may take turns too and acts may come (:meth:`TieredWorld.point`), as far as the keeper's lock lets
them. A commit that a dying process has begun may land later. Each act must come to the wheel once, and in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.delivery_model import REJECTS, Delivery
from tests.simulation.direct import DEFAULTS, DELAY_MS, config_of, in_config
from tests.simulation.disk import Lease, ProcessFailed
from tests.simulation.frames import Rows
from tests.simulation.oracle import Undefined, WheelOracle, check, shard_of
from tests.simulation.spark_model import Plan, Query, Steps
from tests.simulation.store_model import SimulatedStore, StoreTable
from tests.simulation.tier_rows import StoredRow
from tests.simulation.tiered_parts import (
    Blocked,
    Change,
    CommandsInput,
    FreeIntake,
    KeeperLock,
    NearRows,
    Parts,
    pending_now,
)
from tests.simulation.world import Step, World
from wheel_udf.checkpoint.act_files import acts_made, acts_of, create_act, new_rows
from wheel_udf.checkpoint.identity import open_checkpoint
from wheel_udf.common.errors import ConfigError, StoreMovedError
from wheel_udf.control.clocks import StoreClock
from wheel_udf.control.source import ClockReader
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job.compose import tiered_wheel_of
from wheel_udf.job.replay import note_settings
from wheel_udf.pending.acts_on_store import rows_of_act
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.wheel_worker import WheelWorker
from wheel_udf.tiered.checks import open_identity, require_one_another
from wheel_udf.tiered.run import TieredRun

CHECKPOINT = "data/checkpoint"
INTAKE, WHEEL = f"{CHECKPOINT}/intake", f"{CHECKPOINT}/wheel"


@dataclass
class TieredWorld(World):
    """A world with a run of the tiered mode."""

    store: StoreTable = field(init=False)
    oracle: WheelOracle = field(init=False)
    in_flight: list[Callable[[], Any]] = field(default_factory=list)
    turns: deque[str] = field(default_factory=deque)
    parts: Parts | None = None
    actor: str = ""
    acts_of: dict[int, Change] = field(default_factory=dict)
    acts_read: int = 0
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    _nested: tuple[int, tuple[Any, ...]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settings = {**DEFAULTS, "levels": 3, "state_levels": 1, **self.settings}
        self.store = StoreTable(self)
        has_series = self.settings.get("series", False)
        self.oracle = WheelOracle(self.settings["shards"], self.settings["memory"], 0, has_series=has_series)

    # ---- steps ---------------------------------------------------------------------------------------

    def take_more(self, step: Step) -> None:
        """Steps of this mode: turns, what happens at a commit of the store, acts, commits of the dead that land."""
        match step:
            case ("turns", order):
                self.turns.extend(order)
                self._run_until({"idle"}, len(order))
                self.turns.clear()
            case ("nest", number, what):
                self._nested = number, what
            case ("act", kind, which, due_ms):
                self._act(kind, which, due_ms)
            case ("land",):
                self._land()
            case _:
                super().take_more(step)

    def point(self, name: str) -> None:
        """See :meth:`World.point`; at a point of the store others may take their turns first."""
        if self._nested is not None and name.startswith("store"):
            number, what = self._nested
            self._nested = (number - 1, what) if number else None
            if not number:
                self._others(what)
        super().point(name)

    def _others(self, what: tuple[Any, ...]) -> None:
        actor = self.actor
        for each in what:
            if isinstance(each, tuple):
                self.take(each)
            elif each != actor and self.parts is not None:
                self.parts.turn(each)
            self.actor = actor

    def _land(self) -> None:
        for commit in self.in_flight:
            try:
                commit()
            except Exception:  # noqa: BLE001  # a conflict; nobody is left to hear of it
                continue
        self.in_flight.clear()

    def _act(self, kind: str, which: int, due_ms: int) -> None:
        """An act on one pending entry, recorded by another process."""
        entries = pending_now(self.store, self.wheel_clock_ms, self._acts_not_taken())
        if not entries:
            return
        change = Change.of(kind, entries[which % len(entries)], due_ms)
        if self.fault == "an act does not say what the wheel has":
            change = replace(change, was_due_ms=None)
        left, self._left, actor, self.actor = self._left, None, self.actor, ""
        number = acts_made(WHEEL)
        rows = new_rows() | {"number": str(number)}
        self.files[f"{WHEEL}/acts/{rows['folder']}"] = {"part": b""}
        assert create_act(WHEEL, number, {"act": kind}, rows), "nobody else has this number"
        self.acts_of[number] = change
        self._left, self.actor = left, actor

    def _acts_not_taken(self) -> list[StoredRow]:
        """The rows of acts that the store does not have, as :func:`wheel_udf.pending.acts_on_store.rows_not_taken`."""
        store: Any = SimulatedStore(self.store, self.layout)
        head = store.head()
        if head.cursor_ms is None:
            return []
        waiting = enumerate(acts_of(WHEEL, head.acts_taken), head.acts_taken)
        found: list[Any] = [rows_of_act(store, WHEEL, number, act, head.cursor_ms) for number, act in waiting]
        return [row for frame in found for row in frame.rows]

    def commands_of_act(self, rows: Mapping[str, str]) -> Rows:
        """As :func:`wheel_udf.pending.acts_on_store.commands_of`."""
        check(
            f"{WHEEL}/acts/{rows['folder']}" in self.files,
            "the rows of an act are removed before it is taken",
        )
        return Rows([self.acts_of[int(rows["number"])]])

    @property
    def layout(self) -> Any:
        """The store's layout."""
        return config_of("tiered", in_config(self.settings)).wheel.layout()

    @property
    def wheel_clock_ms(self) -> int:
        """The clock of the wheel's last planned batch."""
        return max((heap.clock_ms for heap in self.oracle.heaps if heap.clock_ms is not None), default=0)

    # ---- a process -----------------------------------------------------------------------------------

    def life(self) -> Steps:
        """The start of :func:`wheel_udf.tiered.start_tiered`, and the turns of its parts."""
        self.parts = None
        config = config_of("tiered", in_config(self.settings))
        try:
            note_settings(config, None)
        except ConfigError:
            # The last run left a planned batch under other settings: start with those, as the error says.
            self.settings["limit"] = self.settings["limit_before"]
            config = config_of("tiered", in_config(self.settings))
            note_settings(config, None)
        self.settings["limit_before"] = self.settings["limit"]
        yield "settings noted"
        what = tiered_wheel_of(config, None)
        store = SimulatedStore(self.store, what.layout)
        leases: Any = [Lease(self, "data/store/_wheel").acquire(), Lease(self, INTAKE).acquire()]
        identity = open_identity(CHECKPOINT, "simulated", what)
        require_one_another(store, "data/store", CHECKPOINT, identity)
        yield "opened"
        try:
            run = TieredRun(store, what, identity, leases, None, checkpoint=WHEEL, bounded=False)
        except StoreMovedError as fault:
            raise ProcessFailed(str(fault)) from fault
        # Real for bounded input alone; here an intake that is idle counts as one that has ended.
        run.takes_turns = self.settings.get("turns", False)
        run.keeper.lock = KeeperLock(self)  # type: ignore[assignment]
        yield "run made"
        parts = Parts(self, run, self._intake(run), *self._wheel(what, run))
        yield "queries made"
        self.parts = parts
        yield from self._in_turns(parts)

    def _in_turns(self, parts: Parts) -> Steps:
        """Turns as the steps have ordered them; without an order, each in turn until none has anything to do."""
        while True:
            if self.turns:
                parts.turn(self.turns.popleft())
                yield "turn"
                continue
            found, sent = [], len(self.input)
            for actor in "kiw":
                while (at := parts.turn(actor)) == "clock asked":
                    yield "turn"
                found.append(at)
                yield "turn"
            # A step may send something in the middle of a round; that the intake is idle is told to the wheel by the
            # keeper's next look.
            told = parts.run.last_published
            parts.turn("k")
            is_quiet = sent == len(self.input) and told == parts.run.last_published
            yield "idle" if set(found) == {"idle"} and is_quiet else "turn"

    def _intake(self, run: TieredRun) -> Query:
        def take_in(plan: Plan, _attempt: str) -> Steps:
            commands = Rows(self.input[plan.start[1] : plan.end[1]])
            for _ in range(1_000):
                yield "before the intake's commit"
                try:
                    run.keeper.take_in(commands, plan.batch_id, run.clock_of)  # type: ignore[arg-type]
                    break
                except Blocked:
                    continue
                except StoreMovedError as fault:
                    raise ProcessFailed(str(fault)) from fault
            # Held at the end of the batch that reaches the limit, as by tiered.pause: a process that dies here repeats
            # it.
            while self.is_full:
                yield "idle"
            if run.lead is not None and self.fault != "the intake does not wait for the wheel":
                run.wait_for_room()
                while run.pause.holds:
                    yield "held"
            yield "taken in"

        return Query(self, INTAKE, FreeIntake(), CommandsInput(self, self.settings["files"]), take_in)

    def _wheel(self, what: Any, run: TieredRun) -> tuple[Query, Delivery]:
        lease = Lease(self, WHEEL).acquire()
        run.leases.append(lease)  # type: ignore[arg-type]
        of_wheel = {"wheel_fingerprint": what.wheel.fingerprint(), "shards": what.shards}
        identity = open_checkpoint(WHEEL, name="simulated", clock_kind=StoreClock.kind, **of_wheel)
        leads = self.settings["clock"] == "event"
        worker = WheelWorker(
            wheel=what.wheel,
            shards=what.shards,
            keys=shard_keys(what.shards),
            clock_kind=StoreClock.kind,
            first_ms=0,
            delay_ms=0,
            memory_ms=what.memory_ms,
            board_folder=None,
            stores=(),
            limit=what.limit,
            stored=True,
            waits_for_clock=leads and self.fault != "rows are released by the clock before theirs",
        )
        delivery = Delivery(
            self, WHEEL, worker, identity.app_id, on_report=lambda report: run.note(report, None)
        )
        clock = StoreClock(token=run.token, leads=leads)
        reader = ClockReader(clock, what.shards, self.board, limit=what.limit)  # type: ignore[arg-type]

        def batch(plan: Plan, attempt: str) -> Steps:
            yield from delivery.run(plan, attempt)
            while run.turn.holds:
                yield "held"

        query = delivery.query = Query(self, WHEEL, reader, NearRows(self), batch)
        query.limit = what.limit
        return query, delivery

    def rows_of(self, plan: Plan) -> tuple[StoredRow, ...]:
        """The near rows of a batch of the wheel."""
        return tuple(row.as_seen() for row in self.store.near_rows(plan.start[1] - 1, plan.end[1] - 1))

    # ---- what the oracle sees ------------------------------------------------------------------------

    def planned(self, query: Query, plan: Plan) -> None:
        """See :meth:`World.planned`. Commands come to the wheel in the batch that reads their commit."""
        if query.path == INTAKE:
            self.spans[plan.batch_id] = plan.start[1], plan.end[1]
            return
        commands: list[Any] = []
        batches: list[int] = []
        last = self.oracle.read_to
        for actions in self.store.commits[plan.start[1] : plan.end[1]]:
            for action in actions:
                app_id = action.get("appId", "")
                if app_id.endswith("-intake"):
                    first, last = self.spans[action["version"]]
                    check(
                        first == self.oracle.read_to + len(commands), "a batch of the intake is lost or twice"
                    )
                    commands += self.input[first:last]
                    batches.append(action["version"])
        read = len(commands)
        commands += self._acts_in(plan)
        span = self.oracle.read_to, self.oracle.read_to + read
        instant_ms = plan.end[0].get("instant_ms") if plan.ticks else None
        if self.settings["clock"] == "event":
            self._check_lead(plan, batches)
        touched = {shard_of(row.id, self.oracle.shards) for row in self.rows_of(plan)}
        self.oracle.planned(
            plan.batch_id,
            span,
            commands,
            instant_ms,
            ticks=plan.ticks,
            limit=query.limit,
            shares=plan.end[0].get("shares") if plan.ticks else None,
            touched=touched,
            waits=self.settings["clock"] == "event" and not plan.ticks,
        )

    def _check_lead(self, plan: Plan, batches: list[int]) -> None:
        """Under the event clock, the wheel reads a batch of the intake when its clock is that of the direct mode, or one
        batch behind: what both modes release of the same batches is then the same.
        """
        with_clock = [number for number in batches if self._clock_after(number) >= 0]
        check(len(with_clock) <= 1, f"the wheel reads batches {batches} of the intake together")
        for number in batches:
            standing_ms, now_ms = (offset.get("instant_ms", -1) for offset in (plan.start[0], plan.end[0]))
            least, most = self._clock_after(number - 2), max(0, self._clock_after(number - 1))
            check(
                standing_ms >= least,
                f"batch {number} comes to the wheel at {standing_ms}, before clock {least}",
            )
            check(now_ms <= most, f"batch {number} comes to the wheel at {now_ms}, after clock {most}")

    def _clock_after(self, batch: int) -> int:
        """The event clock after a batch of the intake; -1 before there is one."""
        last = self.spans[batch][1] if batch in self.spans else 0
        return max((each.said_ms - DELAY_MS for each in self.input[:last] if not each.bad), default=-1)

    def _acts_in(self, plan: Plan) -> list[Change]:
        found = []
        for version, actions in enumerate(self.store.commits[plan.start[1] : plan.end[1]], plan.start[1]):
            for number in [each["version"] for each in actions if each.get("appId", "").endswith("-acts")]:
                check(number == self.acts_read, f"the wheel reads act {number} and not {self.acts_read}")
                self.acts_read += 1
                self._require_defined(self.acts_of[number], version)
                rows = self.store.rows(each["path"] for each in actions if "modificationTime" in each)
                found.append(replace(self.acts_of[number], seq_given=rows[0].seq_given))
        return found

    def _require_defined(self, change: Change, version: int) -> None:
        """Ends the run if a newer version of its id was committed between an act and its commit, and may be forgotten
        when the act comes: then the act is a command that comes later than the memory reaches.
        """
        if self.settings["memory"] is None:
            return
        for actions in self.store.commits[:version]:
            for number in [each["version"] for each in actions if each.get("appId", "").endswith("-intake")]:
                first, last = self.spans[number]
                if any(each.id == change.id and each.seq > change.seq for each in self.input[first:last]):
                    raise Undefined("an act comes after a newer version that may be forgotten")

    def committed(self, query: Query, plan: Plan) -> None:
        """See :meth:`World.committed`."""
        if query.path == WHEEL:
            self.oracle.committed(plan.batch_id, self.written(), len(self.table(REJECTS).rows))

    def reported(self, plan: Plan, report: BatchReport) -> None:
        """The report of a batch, complete: of what the store has still to compare, only the sums are known."""
        self.oracle.reported_sums(plan.batch_id, report.counts, report.pending)

    def found_idle(self) -> None:
        """See :meth:`World.found_idle`. A paused intake leaves its input unread."""
        read_to = self.oracle.read_to
        is_event = self.settings["clock"] == "event"
        now_ms = self._clock_after(max(self.spans, default=-1)) if is_event else self.wall_ms
        self.oracle.idle(now_ms, read_to, read_to if self.is_full else len(self.input))

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached at which the intake pauses."""
        most = self.settings.get("pause_at")
        taken_in = max((last for _, last in self.spans.values()), default=0)
        return most is not None and self.oracle.pending + taken_in - self.oracle.read_to >= most

    def _end(self) -> None:
        super()._end()
        self.parts = None

    def finish(self) -> None:
        """See :meth:`World.finish`."""
        self._end()
        self._land()
        self._nested = None
        for ms in (0, 7, 400):
            self.take(("wait", ms))
            check(self._run_until({"idle"}, 5_000) == "idle", "the run does not come to rest")
        check(self.acts_read == len(self.acts_of), f"acts from {self.acts_read} on are not taken")
        self.oracle.ended(self.written())
