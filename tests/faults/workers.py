"""Kills Python workers of a victim at random, while it goes on."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults.trap import members

if TYPE_CHECKING:
    from tests.faults.trap import Trap

WORKERS: Final = "Python workers killed at random"
MOST: Final = 4
"""So many are killed."""

_POLL_S = 0.05


def kill_workers(trap: Trap) -> None:
    """Kills workers at moments and in an order that the seed decides; the mark has a line for each."""
    rng, killed = random.Random(trap.seed), 0
    while killed < MOST:
        if found := _workers():
            time.sleep(rng.uniform(0, 0.5))
            try:
                os.kill(rng.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                continue
            with trap.mark.open("a") as mark:
                mark.write(f"{WORKERS}\n")
            killed += 1
            # Longer than a task takes: the same one is not to be hit at each of its tries.
            time.sleep(rng.uniform(2, 4))
        time.sleep(_POLL_S)


def _workers() -> list[int]:
    """The processes that the daemon of the workers has forked."""
    ours = {process: _parent(process) for process in members(os.getsid(0))}
    daemons = {process for process, parent in ours.items() if _is_daemon(process) and not _is_daemon(parent)}
    return sorted(process for process, parent in ours.items() if parent in daemons)


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_daemon(process: int) -> bool:
    try:
        return b"tests.faults.daemon" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
