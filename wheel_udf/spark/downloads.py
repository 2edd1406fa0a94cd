"""Downloads by parallel programs that end together. Standard library only: runs before packages are installed."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence

from wheel_udf.common.errors import SessionError


class Downloads:
    """The programs that run."""

    def __init__(self) -> None:
        self._lock, self._ended = threading.Lock(), False
        self._running: set[subprocess.Popen[str]] = set()

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Runs a command; returns its exit code and all that it has printed.

        Raises:
            SessionError: The downloads were ended.
        """
        with self._lock:
            if self._ended:
                raise SessionError("the download was interrupted", hint="run it again")
            running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self._running.add(running)
        with running:
            output = running.communicate()[0]
        self._running.discard(running)
        return running.returncode, output

    def end(self) -> None:
        """Ends the running programs, and starts no other."""
        with self._lock:
            self._ended = True
            for each in self._running:
                each.kill()
