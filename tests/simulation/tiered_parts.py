"""The parts of a tiered process in turns: its intake, its keeper, its wheel; the keeper's lock; acts.

::

    turn "i"   the intake goes on to its next point       turn "w"   the wheel does
    turn "k"   one look of the supervisor's thread, as TieredRun._keep: publish the clock, let a held intake go on, hand over what is near,
               take acts, retire, join files
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import ProcessFailed
from tests.simulation.spark_model import Query
from tests.simulation.store_model import StoreTable
from tests.simulation.tier_rows import StoredRow, winners
from wheel_udf.common.errors import StoreMovedError
from wheel_udf.shard.rows import CANCEL, SCHEDULE
from wheel_udf.store.head import CURSOR
from wheel_udf.tiered.queries import WAITING
from wheel_udf.tiered.run import TieredRun

if TYPE_CHECKING:
    from tests.simulation.delivery_model import Delivery
    from tests.simulation.tiered import TieredWorld

_TEND_EVERY_POLLS = 3


class Blocked(Exception):  # noqa: N818  # no error: the thread waits
    """Another thread holds the keeper's lock."""


class KeeperLock:
    """The keeper's lock between turns: who would have to wait gets :class:`Blocked` before it has done anything."""

    def __init__(self, world: TieredWorld) -> None:
        self.world, self.holder, self.depth = world, "", 0

    def __enter__(self) -> None:
        if self.depth and self.holder != self.world.actor:
            raise Blocked
        self.holder, self.depth = self.world.actor, self.depth + 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


class HeldIntake:
    """In place of :class:`wheel_udf.tiered.pause.IntakePause`: the thread that would wait goes on to its next turn."""

    def __init__(self) -> None:
        self.holds = False

    def hold(self, _is_active: object) -> None:
        self.holds = True

    def release(self) -> None:
        self.holds = False


class _NoThread:
    """In place of the supervisor's thread: its looks are turns."""

    def start(self) -> None:
        """Turns begin with the first step."""


class FreeIntake:
    """The intake has no clock."""

    def initialOffset(self) -> dict[str, int]:  # Spark's name
        return {}

    def latestOffset(self, start: Any) -> Any:  # Spark's name
        return start


class Parts:
    """The parts of one process."""

    def __init__(
        self, world: TieredWorld, run: TieredRun, intake: Query, wheel: Query, delivery: Delivery
    ) -> None:
        self.world, self.run, self.delivery, self.wheel = world, run, delivery, wheel
        self._lives = {"i": intake.life(), "w": wheel.life()}
        self._intake = _Intake()
        run.supervisor = _NoThread()  # type: ignore[assignment]
        run.turn = HeldIntake()  # type: ignore[assignment]
        if run.lead is not None:
            run.pause = HeldIntake()  # type: ignore[assignment]
        run.begin(_Progress(wheel), lambda: self._intake)  # type: ignore[arg-type, return-value]
        self._polls = 0
        self._active: set[str] = set()

    def turn(self, actor: str) -> str:
        """One turn; the name of the point that the part has come to, "idle" if it has nothing to do."""
        if actor in self._active:
            return "busy"
        before, self.world.actor = self.world.actor, actor
        self._active.add(actor)
        try:
            if actor == "i":
                return self._take_in()
            return self._poll() if actor == "k" else next(self._lives[actor])
        finally:
            self._active.discard(actor)
            self.world.actor = before

    def _take_in(self) -> str:
        if self.run.intake is None:
            return "idle"  # begun by the supervisor's thread
        self._intake.at = ""
        self._intake.at = at = next(self._lives["i"])
        # A held batch is in progress.
        return "idle" if at == "held" else at

    def _poll(self) -> str:
        """One look of the supervisor's thread."""
        try:
            self.run.publish(self.run.keeper, only_news=True)
            self.run.go_on_if_possible()
            now_ms = self.run.now_ms()
            keeper = self.run.keeper
            before = keeper.store.spark.version  # type: ignore[attr-defined]
            if now_ms is not None:
                self.run.step(now_ms)
            self._polls += 1
            keeper.take_acts(self.wheel.path)
            tends = self._polls % _TEND_EVERY_POLLS == 0
            self.run.tend(begin=tends)
            done = keeper.store.spark.version != before  # type: ignore[attr-defined]
        except Blocked:
            return "blocked"
        except StoreMovedError as fault:
            raise ProcessFailed(str(fault)) from fault
        return "kept" if done or not tends else "idle"


class _Progress:
    """The wheel's query, as far as the run asks for its progress."""

    isActive = True  # noqa: N815  # Spark's name

    def __init__(self, query: Query) -> None:
        self._query = query

    @property
    def lastProgress(self) -> Any:  # noqa: N802  # Spark's name
        if not self._query.position.next_batch:
            return None
        offsets = (json.dumps(end) for end in self._query.position.ends)
        return SimpleNamespace(json=json.dumps({"sources": [{"endOffset": offset} for offset in offsets]}))


class _Intake:
    """The intake's query, as far as the run asks for its status.

    Attributes:
        at: The point at which it stands.
    """

    isActive = True  # noqa: N815  # Spark's name

    def __init__(self) -> None:
        self.at = ""

    @property
    def status(self) -> dict[str, Any]:
        is_idle = self.at == "idle"
        message = WAITING if is_idle else "Processing new data"
        return {"message": message, "isDataAvailable": not is_idle, "isTriggerActive": not is_idle}


@dataclass(frozen=True)
class Change:
    """A command that an act makes of a pending entry, as it comes to the intake's rows and to the oracle."""

    id: str
    op: int
    seq: int
    amend: int
    due_ms: int
    to: str
    lateness_ms: int | None
    was_due_ms: int | None = None
    said_ms: int | None = None
    bad: bool = False
    seq_given: bool = True

    @staticmethod
    def of(kind: str, row: StoredRow, due_ms: int) -> Change:
        """An act on an entry: ``cancel``, ``move``, ``reroute``."""
        assert row.due_ms is not None, "an entry"
        assert row.to is not None, "an entry"
        entry = kind != "cancel"
        return Change(
            id=row.id,
            op=SCHEDULE if entry else CANCEL,
            seq=row.seq,
            amend=row.amend + entry,
            due_ms=due_ms if kind == "move" else row.due_ms,
            to="right" if kind == "reroute" else row.to,
            lateness_ms=row.lateness_ms,
            was_due_ms=row.due_ms if entry else None,
        )


def pending_now(table: StoreTable, clock_ms: int, acts: Sequence[StoredRow]) -> list[StoredRow]:
    """The entries that an act can pick: not yet due by the wheel's clock, as other acts have left them."""
    cursor_ms = table.transactions(table.version).get(CURSOR)
    found = winners([*table.rows(table.paths(table.version)), *acts], cursor_ms)
    return [row for _, row in sorted(found.items()) if row.due_ms is not None and row.due_ms > clock_ms]


@dataclass
class CommandsInput:
    """The input as a source of Spark."""

    world: TieredWorld
    most: int

    def latest(self, start: int, *, bounded: bool) -> int:  # noqa: ARG002  # as all inputs
        return min(len(self.world.input), start + self.most)


@dataclass
class NearRows:
    """The stream of the store's near rows: its offset is the number of versions that are read."""

    world: TieredWorld

    def latest(self, start: int, *, bounded: bool) -> int:  # noqa: ARG002  # as all inputs
        return self.world.store.version + 1
