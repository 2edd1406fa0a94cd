"""A job as its users run it: ``python -m wheel_udf run`` in a process of its own, watched by the lines that it prints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from tests.cluster.standalone import on_own_machine
from tests.faults.trap import end_session, members, send
from tests.settings import INTERPRETED, SMALL
from wheel_udf.testing.broker import kill_after_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime, timedelta

PATIENCE_S = 180
_POLL_S = 0.2
_COUNT = r"([\d,]+)"
_BATCH = re.compile(rf"batch +{_COUNT} \| in +{_COUNT} \| fired +{_COUNT} \| ")
_PENDING = re.compile(rf"(?:pending|near|far) +{_COUNT}")
_IN_FLIGHT = re.compile(rf" in flight {_COUNT}")

COLUMNS = "schedule_id STRING, seq LONG, deliver_at TIMESTAMP, event_time TIMESTAMP, destination STRING"
"""Of :func:`rows_due`, as JSON files have them."""


def rows_due(name: str, now: datetime, waits: Iterable[timedelta], destination: str) -> list[dict[str, Any]]:
    """Commands that are said now, each due so long after; their ids are ``name-0`` and so on."""
    return [
        {
            "schedule_id": f"{name}-{number}",
            "seq": 1,
            "deliver_at": (now + wait).isoformat(),
            "event_time": now.isoformat(),
            "destination": destination,
        }
        for number, wait in enumerate(waits)
    ]


def add_json(folder: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds a file of commands to the folder ``in``, whole from the first moment."""
    made = folder / f"{name}.json"
    made.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    made.rename(folder / "in" / made.name)


class JobProcess:
    """A running job; a context manager that kills all of its processes at the end.

    Args:
        folder: Its config, Spark's settings and its log of errors are kept here.
        config: The job, as the YAML file would have it.
        environment: What is added to that of this process.
        settings: What is added to Spark's settings.
        own_machine: It has process ids of its own, as on another machine.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        own_machine: bool = False,
    ) -> None:
        self._folder, self._lines, self._own_machine = folder, list[str](), own_machine
        self._news = threading.Condition()
        (folder / "job.yml").write_text(yaml.safe_dump(dict(config)))
        conf = folder / "conf"
        conf.mkdir(exist_ok=True)
        told = "".join(
            f"{key} {value}\n" for key, value in (SMALL | INTERPRETED | dict(settings or {})).items()
        )
        (conf / "spark-defaults.conf").write_text(told)
        self._environment = os.environ | {"SPARK_CONF_DIR": str(conf), "PYTHONUNBUFFERED": "1"}
        self._environment |= dict(environment or {})

    def __enter__(self) -> Self:
        with (self._folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "wheel_udf", "run", "--config", str(self._folder / "job.yml")]
            self._process = subprocess.Popen(
                on_own_machine(command, [], own_processes=True) if self._own_machine else command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=self._environment,
            )
        # If this process is killed, the job must not stay.
        self._guard = kill_after_us(f"-{self._process.pid}")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        end_session(self._process.pid)
        self._process.wait()
        self._guard.kill()
        self._guard.communicate()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None, "a pipe"
        with self._process.stdout as said:
            for line in said:
                with self._news:
                    self._lines.append(line.rstrip())
                    self._news.notify_all()

    # ---- what it has said ----------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """All lines so far."""
        with self._news:
            return list(self._lines)

    @property
    def batches(self) -> int:
        """How many batches have been reported."""
        return len(self._counts())

    @property
    def fired(self) -> int:
        """How many rows have fired."""
        return sum(fired for _, fired, _ in self._counts())

    @property
    def pending(self) -> int:
        """How many entries are pending, as the last batch says."""
        return self._counts()[-1][2] if self._counts() else 0

    @property
    def in_flight(self) -> int:
        """How many of them the sender has, as the last batch says; 0 without punctual delivery."""
        batches = [line for line in self.lines if _BATCH.match(line.strip())]
        found = _IN_FLIGHT.search(batches[-1]) if batches else None
        return _number(found[1]) if found else 0

    def _counts(self) -> list[tuple[int, int, int]]:
        """Of each batch: commands, fired rows, pending entries."""
        found = []
        for line in self.lines:
            if batch := _BATCH.match(line.strip()):
                pending = sum(_number(count) for count in _PENDING.findall(line))
                found.append((_number(batch[2]), _number(batch[3]), pending))
        return found

    # ---- waiting -------------------------------------------------------------------------------------

    def wait_until(self, what: Callable[[], bool], name: str, *, patience_s: float = PATIENCE_S) -> None:
        """Waits until something holds, while the job runs.

        Args:
            what: Whether it holds.
            name: How a failure calls it.
            patience_s: For how long.
        """
        until = time.monotonic() + patience_s
        while not what():
            assert self._process.poll() is None, f"the job ended before: {name}\n{self.told()}"
            assert time.monotonic() < until, f"not within {patience_s} s: {name}\n{self.told()}"
            with self._news:
                self._news.wait(_POLL_S)

    def wait_for_pending(self, count: int) -> None:
        """Waits until so many entries are pending."""
        self.wait_until(lambda: self.pending == count, f"{count} pending")

    def wait_for_fired(self, count: int) -> None:
        """Waits until so many rows have fired since the start."""
        self.wait_until(lambda: self.fired >= count, f"{count} fired")

    def wait_for_batches(self, count: int) -> None:
        """Waits for so many more batches."""
        until = self.batches + count
        self.wait_until(lambda: self.batches >= until, f"{count} more batches")

    def wait_for_line(self, text: str) -> None:
        """Waits for a line that holds a text."""
        self.wait_until(lambda: any(text in line for line in self.lines), text)

    def run_for(self, span_s: float) -> None:
        """Lets time pass, while the job runs."""
        until = time.monotonic() + span_s
        self.wait_until(lambda: time.monotonic() >= until, f"{span_s} s", patience_s=2 * span_s + 60)

    def told(self) -> str:
        """The end of what the job has said and logged."""
        log = (self._folder / "log").read_text(errors="replace")
        return "\n".join([*self.lines[-40:], "---- log", log[-6_000:]])

    # ---- what is done to it --------------------------------------------------------------------------

    def kill(self) -> None:
        """Kills all of its processes at once (``kill -9``)."""
        end_session(self._process.pid)
        self._process.wait()

    def wait_for_end(self) -> int:
        """Waits until it ends by itself; returns its exit code."""
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end\n{self.told()}") from None
        self._reader.join(PATIENCE_S)
        return code

    def freeze(self) -> None:
        """Stops all of its processes, as a machine that goes to sleep; returns when they stand."""
        self.wait_until(self._freeze, "all processes are stopped")

    def _freeze(self) -> bool:
        """Stops what runs (a process may have been started meanwhile); returns whether nothing did."""
        running = [process for process in members(self._process.pid) if _state(process) not in "TZX"]
        send(running, signal.SIGSTOP)
        return not running

    def thaw(self) -> None:
        """Lets all of its processes go on."""
        send(members(self._process.pid), signal.SIGCONT)

    def end(self) -> int:
        """Asks it to end, with SIGTERM; returns its exit code."""
        asked = self._process.pid
        if self._own_machine:  # `unshare` hands no signals on
            asked = int(Path(f"/proc/{asked}/task/{asked}/children").read_text())
        os.kill(asked, signal.SIGTERM)
        return self.wait_for_end()


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _state(process: int) -> str:
    """The state of a process, a letter; X once it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
