"""A wall clock that the test moves: all processes of a job see it, driver, JVM and workers.

The JVM has to see it, too: Spark takes a batch's time from it, and waits by it for the next trigger. libfaketime is no
choice here: under it a JVM takes minutes to start. So ``wall_clock.c`` answers the three questions for the time of
day, and nothing else.
"""

from __future__ import annotations

import mmap
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import pytest

_SOURCE = Path(__file__).with_suffix(".c")
_AHEAD, _STANDING = 0, 1


class WallClock:
    """The wall clock of the processes that are started with :attr:`environment`; a context manager.

    Args:
        folder: An empty folder, for the library and the file that it reads.
    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None or not sys.platform.startswith("linux"):
            pytest.skip("moving the wall clock of a process needs Linux and a C compiler (cc)")
        folder.mkdir()
        library, self._file = folder / "wall_clock.so", folder / "wall_clock"
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)], check=True, text=True
        )
        self._file.write_bytes(bytes(mmap.PAGESIZE))
        self.environment = {"LD_PRELOAD": str(library), "WHEEL_UDF_WALL_CLOCK": str(self._file)}

    def __enter__(self) -> Self:
        with self._file.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._told = memoryview(self._page).cast("q")
        return self

    def __exit__(self, *_: object) -> None:
        self._told.release()
        self._page.close()

    @property
    def now(self) -> datetime:
        """What the processes see."""
        told_ns = self._told[_STANDING] or time.time_ns() + self._told[_AHEAD]
        return datetime.fromtimestamp(told_ns // 1_000_000_000, UTC)

    def move(self, step: timedelta) -> None:
        """Steps forward, or back; a clock that stands goes on from there."""
        ahead_ns = self._told[_AHEAD]
        if self._told[_STANDING]:
            ahead_ns = self._told[_STANDING] - time.time_ns()
        self._told[_AHEAD] = ahead_ns + int(step.total_seconds()) * 1_000_000_000
        self._told[_STANDING] = 0

    def stand(self) -> None:
        """Stands still from now on."""
        self._told[_STANDING] = time.time_ns() + self._told[_AHEAD]
