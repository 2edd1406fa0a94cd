"""The world of a seed: what is durable, what time it is, which processes live. It takes one step after the other.

=======================  ===============================================================================================
step                     what happens
=======================  ===============================================================================================
``("send", Command)``    a producer appends a command to the input
``("wait", ms)``         time passes
``("jump", ms)``         the wall clock is set, forward or back; no time passes
``("batch",)``           the process runs to its next commit or until it finds nothing to do; started if none lives
``("run", n)``           the process runs `n` points further
``("crash", n)``         the process dies `n` points further (kill -9)
``("zombie", n)``        as `crash`, but its threads go on writing when they are told to; its leases are free
``("haunt", n)``         a zombie runs `n` points further
``("set", {...})``       settings of the next process
``("stop",)``            the process ends after its batch
``("wipe",)``            the board is lost
=======================  ===============================================================================================

A *point* is a place where a process can die: before each durable effect, and between any two parts of a batch. A list
of steps is the whole of a run: the same list gives the same run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.board import Board
from tests.simulation.core import Command, Core
from tests.simulation.delta_model import Table
from tests.simulation.disk import Crash, ProcessFailed, inside
from tests.simulation.oracle import AT_LEAST_ONCE, Row, Violation, check
from tests.simulation.spark_model import Steps

Step = tuple[Any, ...]
START_MS = 1_000
_MOST_POINTS = 400
"""A batch takes some thirty points: a process that takes more than this goes round in circles."""


@dataclass
class Process:
    """A running process.

    Attributes:
        number: Its number, from 1.
        steps: What is left of its life.
    """

    number: int
    steps: Steps


@dataclass
class World(ABC):
    """The world of a seed, without what a mode adds.

    Attributes:
        fault: The planted fault; None for none.
        core: The real core.
        wall_ms: The wall clock.
        elapsed_ms: The monotonic clock.
        latest_ms: The largest instant that the wall clock or an ``until`` has shown.
        files: What is on the disk, by folder and name.
        states: State versions, by checkpoint and attempt.
        input: The commands that were sent.
        topic: The Kafka topic.
        settings: The settings of the next process.
    """

    core: Core
    fault: str | None = None
    wall_ms: int = START_MS
    elapsed_ms: int = 0
    latest_ms: int = START_MS
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    states: dict[str, dict[str, dict[int, Any]]] = field(default_factory=dict)
    input: list[Command] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    topic: list[Row] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    board: Board = field(init=False)
    process: int = 0
    points: int = 0
    live: Process | None = None
    zombies: list[Process] = field(default_factory=list)
    faults_of_processes: list[str] = field(default_factory=list)
    _left: int | None = None
    _names: int = 0
    _processes: int = 0

    def __post_init__(self) -> None:
        self.board = Board(self.fault)

    # ---- to be filled by a mode ----------------------------------------------------------------------

    @abstractmethod
    def life(self) -> Steps:
        """The life of a new process."""

    @abstractmethod
    def planned(self, query: Any, plan: Any) -> None:
        """A plan is durable."""

    @abstractmethod
    def committed(self, query: Any, plan: Any) -> None:
        """A commit is durable."""

    def found_idle(self) -> None:  # noqa: B027  # a mode may leave it out
        """The process finds nothing to do."""

    @abstractmethod
    def finish(self) -> None:
        """Lets everything come to its end, and checks it."""

    # ---- for processes -------------------------------------------------------------------------------

    def point(self, _name: str) -> None:
        """A place where the running process can die."""
        self.points += 1
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Crash

    def new_name(self, kind: str) -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{kind}-{self._names}"

    def table(self, name: str) -> Table:
        """A table; made on first use."""
        return self.tables.setdefault(name, Table(name))

    def written(self) -> dict[str, list[Row]]:
        """All rows of tables and of the topic."""
        rows = {name: table.rows for name, table in self.tables.items() if name != "rejects"}
        return {**rows, AT_LEAST_ONCE: self.topic}

    # ---- steps ---------------------------------------------------------------------------------------

    def run(self, steps: Sequence[Step]) -> None:
        """Takes all steps and comes to the end.

        Raises:
            Violation: A promise was broken.
        """
        with inside(self):
            for step in steps:
                self.take(step)
            self.finish()

    def take(self, step: Step) -> None:
        """Takes a step."""
        match step:
            case ("send", command):
                self.input.append(command)
            case ("wait", ms):
                self.elapsed_ms += ms
                self._set_clock(self.wall_ms + ms)
            case ("jump", ms):
                self._set_clock(self.wall_ms + ms)
            case ("set", settings):
                self.settings = {**self.settings, **settings}
            case ("wipe",):
                self.board.wipe()
            case _:
                self.take_more(step)

    def take_more(self, step: Step) -> None:
        """Takes a step of processes; a mode may know more of them."""
        match step:
            case ("batch",):
                self._run_until({"committed", "idle"})
            case ("run", points):
                self._run_until({"idle"}, points)
            case ("stop",):
                self._run_until({"committed", "idle"})
                self._end()
            case ("crash", points):
                self._crash(points)
            case ("zombie", points):
                self._run_until({"idle"}, points)
                if self.live is not None:
                    self.zombies.append(self.live)
                self._end()
            case ("haunt", points):
                self._haunt(points)
            case _:
                raise AssertionError(f"no such step: {step}")

    def _set_clock(self, ms: int) -> None:
        self.wall_ms = ms
        self.latest_ms = max(self.latest_ms, ms)

    def _crash(self, points: int) -> None:
        self._left = points
        try:
            self._run_until({"idle"})
        finally:
            self._left = None
        self._end()

    def _end(self) -> None:
        """The process is gone; the kernel frees its leases."""
        if self.live is not None:
            for path in [path for path, number in self.leases.items() if number == self.live.number]:
                del self.leases[path]
        self.live = None

    def _run_until(self, ends: set[str], points: int = _MOST_POINTS) -> str:
        """Runs the process to one of these points, or so many points far, or to its end."""
        if self.live is None:
            self._processes += 1
            self.live = Process(self._processes, self.life())
        for _ in range(points):
            at = self._advance(self.live)
            if at == "idle":
                self.found_idle()
            if at == "ended":
                self._end()
            if at in ends or at == "ended":
                return at
        check(points < _MOST_POINTS, "the process does not come to an end")
        return "running"

    def _advance(self, process: Process) -> str:
        """Runs a process to its next point."""
        self.process = process.number
        try:
            self.point("")
            return next(process.steps)
        except (StopIteration, Crash):
            return "ended"
        except ProcessFailed as fault:
            self.faults_of_processes.append(str(fault))
            return "ended"
        except Violation:
            raise
        except Exception as fault:
            raise Violation(f"a process failed: {type(fault).__name__}: {fault}") from fault

    def _haunt(self, points: int) -> None:
        for _ in range(points if self.zombies else 0):
            if self._advance(self.zombies[-1]) == "ended":
                self.zombies.pop()
                return
