"""Runs the job as a process beside the demo: starts it with ``spark-submit``, reads its output, stops or kills it.

::

    demo --> spark-submit (becomes the JVM) --> Python driver --> Python workers, in a group of their own: end with the JVM
             '----------- one process group, one session -----'

The group is not the demo's, so Ctrl-C in the terminal reaches the demo only, which then stops the job. SIGTERM goes to
the Python driver alone (the lease of the checkpoint names its process); a signal to the JVM would end Spark before the
driver has finished its batch. If the demo itself is killed, the group is killed after it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from wheel_udf.common.errors import SessionError
from wheel_udf.testing.broker import kill_after_us

_LAST_LINES = 12
_LONGEST_STOP_S = 60.0


class SubmittedJob:
    """A run of the job.

    Args:
        command: Command line, from :func:`jobs.demos.workspace.submit_command`.
        root: Working directory.
        environment: Environment variables.
        log: File to which all output lines are appended.
        lock: Open lock file of the demo's folder; the job inherits it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        root: Path,
        environment: Mapping[str, str],
        log: Path,
        lock: IO[str],
    ) -> None:
        self._log = log
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )
        self._guard = kill_after_us(f"-{self._process.pid}")
        self._listener = threading.Thread(target=self._listen, name="job", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None, "it was asked for"
        with self._process.stdout as stream, self._log.open("a", encoding="utf-8") as log:
            for line in stream:
                log.write(line)
                log.flush()
                self.lines.append(line.rstrip())

    def check(self) -> None:
        """Raises if the job has ended.

        Raises:
            SessionError: The job has ended; the message has its last lines.
        """
        if self._process.poll() is not None:
            self._listener.join(1)
            said = "\n    ".join(self.lines[-_LAST_LINES:])
            raise SessionError(
                f"the job has ended (exit code {self._process.returncode}); its last lines:\n    {said}\n",
                hint=f"all of them: {self._log}",
            )

    def stop(self, checkpoint: Path) -> int:
        """Stops the job after its current batch; kills it after a minute.

        Args:
            checkpoint: Checkpoint of the job; its lease names the Python driver.

        Returns:
            The exit code; 0 after a regular stop.
        """
        driver = self._driver(checkpoint)
        if driver is None or self._process.poll() is not None:
            self.kill()
        else:
            with suppress(ProcessLookupError):
                os.kill(driver, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LONGEST_STOP_S)
        return self._end()

    def kill(self) -> None:
        """Kills the job's process group, JVM and Python driver, with ``kill -9``."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def _driver(self, checkpoint: Path) -> int | None:
        """Returns the Python driver's process id; None if there is no lease or it belongs to another process group."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            pid = int(json.loads((checkpoint / "wheel.lease").read_text(encoding="utf-8"))["pid"])
            return pid if os.getpgid(pid) == self._process.pid else None
        return None

    def _end(self) -> int:
        self._guard.kill()
        self._guard.communicate()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._listener.join(5)
        return code
