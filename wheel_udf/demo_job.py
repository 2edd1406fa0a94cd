"""The job as a process beside the demo: started by ``spark-submit``, listened to, stopped in order or killed hard.

::

    demo --> spark-submit (becomes the JVM) --> Python driver --> Python workers, in a group of their own: end with the JVM
             '----------- one process group, one session -----'

The group is not the demo's, so Ctrl-C in the terminal reaches the demo only, which then stops the job in order. The order goes to the Python
driver alone (the lease of its checkpoint says which process that is): a signal to the JVM would end Spark under its hands. If the demo
itself is killed, the group is killed after it.
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

from wheel_udf.errors import SessionError
from wheel_udf.local_kafka import kill_after_us

_LAST_LINES = 12
_LONGEST_STOP_S = 60.0


class SubmittedJob:
    """A run of the job.

    Args:
        command: Of :func:`wheel_udf.demo_parts.submit_command`.
        root: Where it is started.
        environment: Its environment variables.
        log: Gets all of its lines, after those of an earlier run.
        lock: Open lock file of the demo's folder, which the job inherits.
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
            SessionError: It has; with its last lines.
        """
        if self._process.poll() is not None:
            self._listener.join(1)
            said = "\n    ".join(self.lines[-_LAST_LINES:])
            raise SessionError(
                f"the job has ended (exit code {self._process.returncode}); its last lines:\n    {said}\n",
                hint=f"all of them: {self._log}",
            )

    def stop(self, checkpoint: Path) -> int:
        """Lets the running batch finish and ends the job; after a minute it is killed.

        Args:
            checkpoint: Of the job, whose lease names the Python driver.

        Returns:
            Its exit code; 0 if it has ended in order.
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
        """``kill -9`` of the job's process group, JVM and Python driver: no handler, no flush, no goodbye."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def _driver(self, checkpoint: Path) -> int | None:
        """The Python driver's process id; None if the lease is not there, or another process's than this group's."""
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
