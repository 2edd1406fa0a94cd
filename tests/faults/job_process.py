"""A job in a process of its own, as an operator has it: a config file, a log, signals, an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from wheel_udf.testing import ledger

ROOT = Path(__file__).parents[2]
PATIENCE_S = 150


class JobProcess:
    """``wheel-udf run``, with its input and tables in one folder.

    Args:
        folder: The folder.
        settings: Of the config; the wheel, the rejects and the checkpoint have defaults.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder, self._job = folder, None
        defaults = {
            "wheel": {"tick": "1 second", "size": 60, "shards": 2},
            "clock": {"kind": "processing"},
            "rejects": {"sink": "delta", "path": str(folder / "rejects")},
            "trigger": "1 second",
            "checkpoint": str(folder / "checkpoint"),
        }
        (folder / "job.yml").write_text(yaml.safe_dump(defaults | dict(settings)))

    _job: subprocess.Popen[bytes] | None

    def start(self, **environment: str) -> None:
        """Starts the job in a session of its own, with more environment variables."""
        command = [sys.executable, "-m", "wheel_udf", "run", "--config", str(self.folder / "job.yml")]
        with (self.folder / "log").open("ab") as log:
            self._job = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal_all(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of the job."""
        if self._job is not None and self._job.poll() is None:
            os.killpg(self._job.pid, number)

    def stop(self) -> int:
        """Ends the job after its batch; returns its exit code."""
        assert self._job is not None, "started"
        self._job.send_signal(signal.SIGTERM)
        return self._job.wait(PATIENCE_S)

    def wait_until(self, condition: Callable[[], bool], what: object) -> None:
        """Waits for something while the job runs.

        Raises:
            AssertionError: The job has ended, or it takes too long.
        """
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._job is not None, "started"
            assert self._job.poll() is None, f"the job has ended: {self.log()}"
            assert time.monotonic() < end_s, f"{what} not seen: {self.log()}"
            time.sleep(0.3)

    def wait_for_batches(self, more: int) -> None:
        """Waits until so many more batches have been reported."""
        seen = self.batches()
        self.wait_until(lambda: self.batches() >= seen + more, f"{more} batches")

    def batches(self) -> int:
        """Number of batches in the log."""
        return self.log().count("\nbatch ")

    def log(self) -> str:
        """What the job has printed so far."""
        return "\n" + (self.folder / "log").read_text()

    def account(self) -> dict[str, int]:
        """The account of the last summary."""
        return ledger.account_of_summary(self.log().splitlines())
