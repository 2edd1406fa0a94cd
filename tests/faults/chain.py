"""Runs a chain: starts victims one after the other, says of each what became of it, and checks the sinks at the end."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.faults import inputs
from tests.faults.checker import faults_of, watch_faults_of
from tests.faults.points import ACTS, DIRECT, EXPORTS, PURGATORY, Chain, Kill, Order
from tests.faults.trap import KILL, Trap, run_victim
from tests.spark.streams import add_files
from tests.spark.watches import add_rows

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_S = 600
_AFTER_MOVE = 2
_AT_LEAST = {
    "in the clean-up of the logs": 4,
    "at any moment": 4,
    # Two files of a purgatory need not have an outcome that is delivered.
    "before the Delta commits": 4,
    "in a Delta commit, its files written": 4,
    "between two Delta commits": 4,
    "after the Delta commits, before the rejects": 4,
    "in a retirement, between append and drop": 4,
}


def files_for(kill: Kill) -> int:
    """How many files of input a start needs to come to its point."""
    if kill.point in (*ACTS, *EXPORTS):
        return 0
    return max(kill.times + 1, _AT_LEAST.get(kill.point, 0))


@dataclass(frozen=True)
class End:
    """How a process ended: its exit code, the point that it had come to, and the sentence that it left."""

    code: int
    mark: str | None
    sentence: str
    transient: bool


@dataclass
class Running:
    """A chain on its way.

    Attributes:
        folder: An empty folder.
        chain: Mode, seed and kills.
        files: How many files of input there are in the end.
        where: The two destinations.
        kafka: Bootstrap servers, if the second one is a topic.
        done: The commands that acts came to.
    """

    folder: Path
    chain: Chain
    files: int = 0
    where: tuple[str, str] = ("left", "right")
    kafka: str | None = None
    done: list[dict[str, Any]] = field(default_factory=list)
    _given: int = 0
    _acts: int = 0
    _moving: bool = False

    def __post_init__(self) -> None:
        kills = self.chain.kills
        self.files = self.files or sum(files_for(kill) for kill in kills) + 2 + _AFTER_MOVE
        self.watched = inputs.watched(self.chain.seed, self.files, self.where)
        self.commands = inputs.files(self.chain.seed, self.files, self.where)

    def give(self, count: int | None = None) -> None:
        """Adds the next files of the input; None: all that are left."""
        until = self.files if count is None else min(self._given + count, self.files)
        if self.chain.mode == PURGATORY:
            add_rows(self.folder, *self.watched.pairs[self._given : until])
        else:
            add_files(self.folder / "in", *self.commands[self._given : until])
        self._given = until

    def start(self, *todo: str, point: str = "", times: int = 1, fault: str = KILL) -> End:
        """Runs a victim to its end."""
        trap = Trap(str(self.folder), point, times, self.chain.seed, fault)
        order = Order(str(self.folder), self.chain.mode, self.files, self.kafka, todo=list(todo))
        code, said = run_victim("tests.faults.victim", order, self.folder, trap, _PATIENCE_S)
        told = json.loads(said) if code > 0 and said else {}
        mark = trap.mark.read_text() if trap.mark.exists() else None
        return End(code, mark, told.get("sentence", ""), bool(told.get("transient")))

    def kill(self, kill: Kill) -> None:
        """Starts a victim that has to die at its point."""
        self.give(files_for(kill) or int(not self._given))
        todo = self._todo(kill.point)
        end = self.start(*todo, point=kill.point, times=kill.times)
        assert (end.code, end.mark) == (-signal.SIGKILL, kill.point), f"{kill}: {end}\n{self.log()}"
        if kill.point == ACTS[1]:
            self._note_act()

    def _todo(self, point: str) -> list[str]:
        if point in ACTS:
            self._acts += 1
            return ["run"] * (not self._is_fed()) + [f"act {self._acts}"]
        if point in EXPORTS:
            first, self._moving = not self._moving, True
            return ["run", "move"] if first else ["move"]
        return ["run"]

    def _is_fed(self) -> bool:
        """Whether a batch with the first file is committed, which brings the rows for acts: in the direct mode by the
        query, else by the intake.
        """
        if self.chain.mode == DIRECT:
            return (self.folder / "checkpoint0" / "commits" / "0").exists()
        log = (self.folder / "store0" / "_delta_log").glob("*.json")
        return any('-intake"' in commit.read_text(encoding="utf-8") for commit in log)

    def _note_act(self) -> None:
        rows = [row for rows in self.commands for row in rows]
        self.done += inputs.commands_of_act(self._acts, self.files, rows)

    def finish(self) -> list[str]:
        """The last start, to the end; what is wrong with the sinks."""
        self.end()
        return self.faults()

    def end(self) -> None:
        """The last start: the move, if the job is to move, the rest of the input, and on to the end of time."""
        self.give()
        end = self.start(*["move"] * self._moving, "finish")
        assert end.code == 0, f"{end}\n{self.log()}"

    def faults(self) -> list[str]:
        """What is wrong with the sinks; empty when nothing is."""
        if self.chain.mode == PURGATORY:
            return watch_faults_of(self.folder, self.watched)
        commands = [row for rows in self.commands for row in rows]
        return faults_of(self.folder, [*commands, *self.done], self.files)

    def log(self) -> str:
        """The end of what the victims have logged."""
        return (self.folder / "log").read_text(errors="replace")[-6_000:]
