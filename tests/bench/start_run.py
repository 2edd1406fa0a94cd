"""``make bench-start``: how long a job takes from its start to its first delivery, and from a kill -9 to its next one.

::

    make bench-start                                    both modes, 3 rounds, about 9 minutes on 2 cores
    make bench-start ARGS='--beside ../other --rounds 5'    this tree and another one in turn, with ratios
    make bench-start ARGS='--quick'                     one round of the direct mode: does it work?

Each round starts the command ``run`` on a new folder, as a user does. Commands fall due twice a second the whole
time::

    start ------------> first delivery ---> more of them --> kill -9, start at once --------> delivery
      `-- first delivery --'                                   `-- kill to delivery (a supervisor's own time aside) --'

The batch of the first delivery is the first one with input; in the tiered mode an empty one comes before it.

Beside it stands the first batch of a *plain* query, the same commands through a stateful Python operator into a Delta
table, without the wheel and without what shortens a start, and of a *tuned* one, which has this project's session
(:mod:`tests.bench.plain_start`); both are killed and started again from their checkpoints, too. Seconds depend on the
machine, and most of a start is Spark's own; the ratio to the plain query does not.

An instant is that of the progress line, which the job prints when the rows are in the sink. A *second start*, while
the job runs, is measured too: until it is refused. On a machine that does other work as well, compare the CPU seconds:
those of all processes of the job up to the same instant, user and system (Linux only). Figures are medians; those of
two trees are taken in turn, so that they see the same machine. They go to ``build/bench-start.json``. The exit code is
0 when all targets are met, 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import yaml

from tests.bench import plain_start, report
from tests.bench.report import Line, Target
from tests.faults.trap import end_session

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600
MODES = ("direct", "tiered")
COMMANDS = 2_400
EVERY = timedelta(milliseconds=500)
DELIVERIES = 20
"""How many rows have fired when the job is killed."""
BARS = {"first delivery": 12.0, "kill to delivery": 15.0, "second start": 1.5}
"""Seconds on an idle machine of 2 cores."""
BESIDE_PLAIN = 1.0
"""A start of the direct mode, and one after a kill, takes at most as long as that of a plain query."""
SPARK_ALONE = "Spark alone"
_BATCH = re.compile(r"batch +[\d,]+ \| in +[\d,]+ \| fired +([\d,]+) ")

Figures = dict[tuple[str, str], list[float]]
"""(mode or kind of query, what) -> seconds of each round."""


class Job:
    """A command, by default ``run`` of a tree, in a process of its own; a context manager that kills all of its
    processes at the end.
    """

    def __init__(self, tree: Path, folder: Path, command: Sequence[str] | None = None) -> None:
        self._lines: queue.Queue[tuple[float, str]] = queue.Queue()
        self._began_s = time.monotonic()
        self._log = folder / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command or _command(folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=tree,
                env=_environment(tree),
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "a pipe"
        for line in self._process.stdout:
            self._lines.put((time.monotonic(), line))
        self._lines.put((time.monotonic(), ""))

    def seconds_to(self, holds: Callable[[int, int], bool]) -> float:
        """Waits until (batches, fired rows) so far fulfil a condition; returns the seconds since the start."""
        batches = fired = 0
        for at_s, line in self._told():
            if found := _BATCH.match(line):
                batches, fired = batches + 1, fired + int(found[1].replace(",", ""))
                if holds(batches, fired):
                    return at_s
        raise AssertionError("unreachable: the lines end with an error")

    def seconds_to_line(self, text: str) -> float:
        """Waits for a line; returns the seconds since the start."""
        return next(at_s for at_s, line in self._told() if line.strip() == text)

    def _told(self) -> Iterator[tuple[float, str]]:
        """The lines, each with the seconds from the start to it; at their end a RuntimeError."""
        until_s = self._began_s + PATIENCE_S
        while True:
            at_s, line = self._lines.get(timeout=max(until_s - time.monotonic(), 0.1))
            if not line:
                raise RuntimeError(f"the job has ended: {self._log.read_text()[-2_000:]}")
            yield at_s - self._began_s, line

    def cpu_seconds(self) -> float:
        """The CPU time so far of all processes of the job; 0 where there is no ``/proc``."""
        of_all = (_stat_of(entry) for entry in Path("/proc").glob("[0-9]*"))
        session = str(self._process.pid)
        # Fields of proc(5): 6 the session; 14 to 17 the ticks of the process and of its children that have ended.
        ticks = sum(sum(map(int, stat[11:15])) for stat in of_all if stat and stat[3] == session)
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """As ``kill -9`` of the job's process; its JVM notices, and ends by itself."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends what is left."""
        end_session(self._process.pid)
        self._process.wait()


def _stat_of(process: Path) -> list[str]:
    """The fields of a process from the third one on; none if it has ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "wheel_udf", "run", "--config", str(folder / "job.yml")]


def _environment(tree: Path) -> dict[str, str]:
    # Without a SPARK_CONF_DIR: with one there is no class archive.
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    return kept | {"PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1"}


@contextmanager
def ground(mode: str) -> Iterator[Path]:
    """A folder with a config and its commands, which fall due from now on."""
    folder = Path(tempfile.mkdtemp(prefix="wheel-bench-start-"))
    try:
        (folder / "in").mkdir()
        (folder / "in" / "commands.json").write_text("".join(_commands(datetime.now(UTC))))
        (folder / "job.yml").write_text(yaml.safe_dump(_config(folder, mode)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _commands(now: datetime, many: int = COMMANDS) -> Iterator[str]:
    for number in range(many):
        row = {
            "schedule_id": f"c{number}",
            "deliver_at": (now + number * EVERY).isoformat(),
            "destination": "out",
        }
        yield json.dumps(row | {"seq": 1, "event_time": now.isoformat()}) + "\n"


def _config(folder: Path, mode: str) -> dict[str, Any]:
    config = {
        "mode": mode,
        "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2},
        "clock": {"kind": "processing"},
        "source": {"format": "json", "path": f"{folder}/in", "schema": plain_start.SCHEMA},
        "destinations": {"out": {"sink": "delta", "path": f"{folder}/out", "create": True}},
        "rejects": {"sink": "delta", "path": f"{folder}/rejects", "create": True},
        "checkpoint": f"{folder}/checkpoint",
        "trigger": "1 second",
    }
    return config if mode == "direct" else config | {"store": {"path": f"{folder}/store"}}


def one_round(tree: Path, mode: str) -> dict[str, float]:
    """Starts, refuses, kills and starts again; returns the seconds of each."""
    with ground(mode) as folder, Job(tree, folder) as job:
        first_s = job.seconds_to(lambda _, fired: fired > 0)
        first_cpu_s = job.cpu_seconds()
        second_s = _refusal_s(tree, folder)
        job.seconds_to(lambda _, fired: fired >= DELIVERIES)
        job.kill()
        with Job(tree, folder) as again:
            delivery_s = again.seconds_to(lambda _, fired: fired > 0)
            delivery_cpu_s = again.cpu_seconds()
    return {
        "first delivery": first_s,
        "first delivery, CPU": first_cpu_s,
        "kill to delivery": delivery_s,
        "kill to delivery, CPU": delivery_cpu_s,
        "second start": second_s,
    }


def plain_round(kind: str) -> dict[str, float]:
    """Starts a query without the wheel, kills it and starts it again; returns the seconds of each to its next batch."""
    with ground("direct") as folder:
        command = [sys.executable, "-m", plain_start.__name__, kind, str(folder)]
        with Job(ROOT, folder, command) as query:
            first_s = query.seconds_to_line(plain_start.DONE)
            query.kill()
            (folder / "in" / "more.json").write_text("".join(_commands(datetime.now(UTC), DELIVERIES)))
            with Job(ROOT, folder, command) as again:
                again_s = again.seconds_to_line(plain_start.DONE)
    return {"first delivery": first_s, "kill to delivery": again_s}


def _refusal_s(tree: Path, folder: Path) -> float:
    began_s = time.monotonic()
    ended = subprocess.run(
        _command(folder), cwd=tree, env=_environment(tree), capture_output=True, text=True, check=False
    )
    if ended.returncode != 1 or "in use" not in ended.stderr:
        raise RuntimeError(f"a second start ended with {ended.returncode}: {ended.stderr}")
    return time.monotonic() - began_s


def lines_of(here: Figures, there: Figures) -> list[Line]:
    """The comparisons: this tree's medians, with the other tree's beside them if there is one."""
    return [
        Line(
            case=mode,
            what=f"{what}, median of {len(seconds)}",
            figure=report.median(seconds),
            unit="s",
            beside=report.median(there[mode, what]) if there else None,
            beside_what="the other tree",
            target=Target(of="figure", at_most=BARS[what]) if what in BARS else None,
        )
        for (mode, what), seconds in here.items()
    ]


def lines_of_plain(here: Figures, plain: Figures) -> list[Line]:
    """The comparisons with Spark alone, whose figures are by the kind of its query."""
    return [
        Line(
            case=mode,
            what=f"{what} beside a {kind} query",
            figure=report.median(here[mode, what]),
            unit="s",
            beside=report.median(seconds),
            beside_what=SPARK_ALONE,
            target=Target(at_most=BESIDE_PLAIN) if (mode, kind) == ("direct", "plain") else None,
        )
        for mode in MODES
        for (kind, what), seconds in plain.items()
        if (mode, what) in here
    ]


def _note(figures: Figures, whose: str, found: Mapping[str, float], title: str) -> None:
    """Adds what a round has found to the figures, and prints it."""
    for what, seconds in found.items():
        figures.setdefault((whose, what), []).append(seconds)
    told = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found.items())
    print(f"{title}: {told}", flush=True)


def _by_name(figures: Figures) -> dict[str, list[float]]:
    return {f"{whose}, {what}": seconds for (whose, what), seconds in figures.items()}


def main(arguments: list[str] | None = None) -> int:
    """Runs the rounds; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.start_run")
    parser.add_argument(
        "--beside", type=Path, metavar="TREE", help="another tree of this project to take turns with"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of each mode (default 3)")
    parser.add_argument("--mode", choices=MODES, help="this mode only")
    parser.add_argument("--quick", action="store_true", help="one round of the direct mode: does it work?")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-start.json", help="the JSON file")
    asked = parser.parse_args(arguments)
    modes = ("direct",) if asked.quick else (asked.mode,) if asked.mode else MODES
    trees: dict[Path, Figures] = {ROOT: {}} | ({asked.beside.resolve(): {}} if asked.beside else {})
    plain: Figures = {}
    for number in range(1 if asked.quick else asked.rounds):
        begin = f"round {number + 1}"
        for kind in plain_start.KINDS:
            _note(plain, kind, plain_round(kind), f"{begin}, {SPARK_ALONE}, {kind}")
        for mode in modes:
            for tree, figures in trees.items():
                whose = "this tree" if tree == ROOT else "beside"
                _note(figures, mode, one_round(tree, mode), f"{begin}, {mode}, {whose}")
    here, *others = trees.values()
    lines = lines_of(here, others[0] if others else {}) + lines_of_plain(here, plain)
    rounds, alone = [_by_name(each) for each in trees.values()], _by_name(plain)
    report.write_json(
        asked.out,
        report.document(lines, {"about": {"cores": os.cpu_count()}, "rounds": rounds, SPARK_ALONE: alone}),
    )
    print(f"\n{report.table(lines)}\n\nall figures: {asked.out}")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
