"""The trap of a victim: it waits for a point, and then kills all processes of the victim at once, or lets its disk be
full.

The trap travels in the environment, so Python workers of Spark know it, too. A victim is a session of its own
(``start_new_session``); what is killed is every process of that session: the JVM first, the one that has sprung the
trap last. Before, the name of the point is written to the file ``mark``, so that a point that is never reached fails
the test.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_VARIABLE = "WHEEL_UDF_TRAP"
KILL, FILL = "kill", "fill"
_POLL_S = 0.001
_WATCHED_S = 300.0


@dataclass(frozen=True)
class Trap:
    """What a victim is to come to.

    Attributes:
        folder: Of the chain; here the mark is left.
        point: The name of the point.
        times: The how many-th pass through it is the last.
        seed: Of the small delays.
        fault: :data:`KILL`, or :data:`FILL`: from here on no process of the victim can write to a file.
    """

    folder: str = ""
    point: str = ""
    times: int = 1
    seed: int = 0
    fault: str = KILL

    @classmethod
    def of_environment(cls) -> Self:
        """The trap of this victim."""
        return cls(**json.loads(os.environ.get(_VARIABLE, "{}")))

    def environment(self) -> dict[str, str]:
        """What a victim needs to have in its environment."""
        return {_VARIABLE: json.dumps(asdict(self))}

    @property
    def mark(self) -> Path:
        """The file with the name of the point that was reached."""
        return Path(self.folder, "mark")

    @property
    def _passes(self) -> Path:
        return Path(self.folder, "passes")

    def arm(self) -> None:
        """Begins to count."""
        self._passes.write_bytes(b"")
        self.mark.unlink(missing_ok=True)

    def passes(self, point: str, key: object = None, within_s: float = 0.0) -> None:
        """Counts a pass through a point, in any process of the victim; strikes at the last one.

        Args:
            point: Where the victim is.
            key: Passes with the same key count once; None: each counts.
            within_s: Every other seed strikes only after a small delay, at most this.
        """
        if point != self.point or self.mark.exists():
            return
        line = f"{time.monotonic_ns() if key is None else key}\n".encode()
        with self._passes.open("ab") as file:
            file.write(line)
        if len(set(self._passes.read_bytes().splitlines())) >= self.times:
            if within_s and self.seed % 2:
                self.strike_soon(within_s)
            else:
                self.strike()

    def strike(self) -> None:
        """Here it ends."""
        handle = os.open(self.mark, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(handle, self.point.encode())
        os.close(handle)
        if self.fault == FILL:
            self._fill()
        else:
            end_session(os.getsid(0))

    def strike_soon(self, within_s: float) -> None:
        """Strikes after a small delay that the seed decides, from another thread."""
        delay_s = random.Random(f"{self.seed} {self.point}").uniform(0, within_s)
        threading.Timer(delay_s, self.strike).start()

    def _fill(self) -> None:
        """From now on files of all processes take a few bytes more, or none: what a full disk does, wherever they are."""
        room = random.Random(self.seed).choice([0, 0, 100, 2_000])
        for process in members(os.getsid(0)):
            _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
            resource.prlimit(process, resource.RLIMIT_FSIZE, (room, hard))

    def watch(self, query: Path, within_s: float = 0.002) -> None:
        """Watches a checkpoint, every millisecond from a thread, for the points that only its files tell."""
        look = _LOOKS.get(self.point)
        if look is not None:
            before = look(query)
            threading.Thread(target=self._watch, args=(query, before, within_s), daemon=True).start()

    def _watch(self, query: Path, before: set[str], within_s: float) -> None:
        look, seen = _LOOKS[self.point], set(before)
        until = time.monotonic() + _WATCHED_S
        while time.monotonic() < until:
            seen |= look(query)
            if len(seen - before) >= self.times:
                if within_s:
                    time.sleep(random.Random(f"{self.seed} {self.point}").uniform(0, within_s))
                self.strike()
                return
            time.sleep(_POLL_S)


def members(session: int) -> list[int]:
    """The processes of a session, JVMs first, this process last."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                name, _, rest = (entry / "stat").read_text().partition(" (")[2].rpartition(")")
            except OSError:
                continue
            if int(rest.split()[3]) == session:
                found.append((int(entry.name) == os.getpid(), name != "java", int(entry.name)))
    return [process for _, _, process in sorted(found)]


def end_session(session: int) -> None:
    """Kills all processes of a session; no handler, no flush."""
    send(members(session), signal.SIGKILL)


def send(processes: Iterable[int], number: signal.Signals) -> None:
    """Sends a signal to each of the processes that have not ended."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def run_victim(module: str, order: object, folder: Path, trap: Trap, longest_s: float) -> tuple[int, str]:
    """Runs a victim in a trap to its end, and ends what is left of its session.

    Args:
        module: The program.
        order: A dataclass, its one argument as JSON.
        folder: Where its standard error goes, in the file ``log``.
        trap: The trap; it is armed here.
        longest_s: How long it may take.

    Returns:
        Its exit code, and its last line, empty if it said nothing.
    """
    trap.arm()
    with (folder / "log").open("ab") as log:
        victim = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asdict(order))],  # type: ignore[call-overload]
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env=os.environ | trap.environment(),
        )
    try:
        said, _ = victim.communicate(timeout=longest_s)
    finally:
        end_session(victim.pid)
        victim.wait()
    return victim.returncode, said.strip().splitlines()[-1] if said.strip() else ""


# ---- what files tell -----------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  # a thousand times a second
    except FileNotFoundError:
        return []


def _planned(query: Path) -> set[str]:
    return {name for name in _names(query / "offsets") if name.isdecimal()}


def _cleaned(query: Path) -> set[str]:
    """Batches that are no longer on record."""
    numbers = [
        int(name) for log in ("offsets", "commits") for name in _names(query / log) if name.isdecimal()
    ]
    here = _planned(query)
    return {str(number) for number in range(max(numbers, default=0)) if str(number) not in here}


def _uploads(query: Path) -> set[str]:
    """Files of the state that are being written."""
    return {
        f"{part}/{name}"
        for part in _parts(query)
        for name in _names(query / "state" / "0" / part)
        if name.startswith(".") and not name.endswith(".crc")
    }


def _parts(query: Path) -> list[str]:
    return [part for part in _names(query / "state" / "0") if part.isdecimal()]


def _versions(query: Path) -> dict[str, set[str]]:
    """The versions of the state that each of its parts has."""
    return {
        part: {
            name.partition("_")[0]
            for name in _names(query / "state" / "0" / part)
            if name.endswith((".changelog", ".zip")) and name[0] != "."
        }
        for part in _parts(query)
    }


def _versions_of_some(query: Path) -> set[str]:
    found = _versions(query)
    return set.union(*found.values()) if found else set()


def _versions_of_all(query: Path) -> set[str]:
    found = _versions(query)
    return set.intersection(*found.values()) if len(found) > 1 else set()


_LOOKS = {
    "after the offset log": _planned,
    "after the offset log of the intake": _planned,
    "at any moment": _planned,
    "in the clean-up of the logs": _cleaned,
    "in an upload of the state": _uploads,
    "between two commits of the state": _versions_of_some,
    "after the commit of the state": _versions_of_all,
}
