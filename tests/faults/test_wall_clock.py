"""A machine whose wall clock is set by an hour and by a day, forwards and backwards, while a job runs; it sleeps, too, and lives in New York.

``libfaketime`` is loaded into all Python processes and adds what is in a file to the real time. The wheel's clock is theirs: the source of the
ticks is Python. The JVM keeps the real time, because it takes minutes to start under the library; it reads no wall clock for the wheel.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import libfaketime
import pytest

from tests.faults.job_process import JobProcess
from wheel_udf.testing import ledger

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


class Machine:
    """A machine with a job, and with a wall clock that can be set.

    Args:
        folder: For input, tables and checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.began_s = folder, int(time.time())
        self.sent: list[dict[str, Any]] = []
        (folder / "in").mkdir()
        settings = {
            "source": {"format": "json", "path": str(folder / "in")},
            "contract": {"default_destination": "out"},
            "destinations": {"out": {"sink": "delta", "path": str(folder / "tables"), "create": True}},
        }
        self.job = JobProcess(folder, settings)
        self.set_clock(0)

    def set_clock(self, ahead_s: int) -> None:
        """Sets the wall clock to so many seconds after the real time."""
        fresh = self.folder / "ahead.new"
        fresh.write_text(f"{ahead_s:+}")
        fresh.rename(self.folder / "ahead")

    def sleep(self, until_ahead_s: int) -> None:
        """Lets the machine sleep: no process runs, and when they go on the wall clock is so far ahead."""
        self.job.signal_all(signal.SIGSTOP)
        self.set_clock(until_ahead_s)
        self.job.signal_all(signal.SIGCONT)

    def send(self, due_after_s: dict[str, int]) -> None:
        """Sends entries that are due so many seconds after the test began."""
        rows = [
            {"schedule_id": name, "deliver_at": self._instant(due_s), "event_time": self._instant(0)}
            for name, due_s in due_after_s.items()
        ]
        fresh = self.folder / f"{len(self.sent)}.json"
        fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fresh.rename(self.folder / "in" / fresh.name)
        self.sent += rows

    def _instant(self, after_s: int) -> str:
        return f"{datetime.fromtimestamp(self.began_s + after_s, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def start(self) -> None:
        """Starts the job."""
        vendored = Path(libfaketime.__file__).parent.rglob("libfaketime.so*")
        self.job.start(
            LD_PRELOAD=str(next(vendored)),
            FAKETIME_TIMESTAMP_FILE=str(self.folder / "ahead"),
            FAKETIME_CACHE_DURATION="1",
            FAKETIME_SKIP_CMDS="java",
            # Threads wait by the monotonic clock, which nobody can set.
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            TZ="America/New_York",
        )

    def wait_for(self, *names: str) -> None:
        """Waits until these have fired, and for three batches more; nothing else fires."""
        self.job.wait_until(lambda: set(names) <= set(self.fired()), names)
        self.job.wait_for_batches(3)
        assert self.fired() == sorted(names)

    def fired(self) -> list[str]:
        """The ids of the rows in the table."""
        return sorted(row["schedule_id"] for row in self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        if not list((self.folder / "tables" / "out" / "_delta_log").glob("*.json")):
            return []
        found: list[dict[str, Any]] = ledger.read_delta(str(self.folder / "tables")).to_pylist()
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.job.signal_all(signal.SIGKILL)


def test_a_wall_clock_that_is_set_both_ways_and_a_machine_that_sleeps_fire_each_entry_once_and_none_early(
    machine: Machine,
) -> None:
    machine.send({"now": 1, "half an hour": 30 * MINUTE_S, "20 hours": 20 * HOUR_S, "2 days": 2 * DAY_S})
    machine.start()
    machine.wait_for("now")
    machine.set_clock(HOUR_S)
    machine.wait_for("now", "half an hour")
    machine.send({"70 minutes": 70 * MINUTE_S})
    machine.wait_for("now", "half an hour")
    machine.sleep(HOUR_S + 15 * MINUTE_S)
    so_far = ("now", "half an hour", "70 minutes")
    machine.wait_for(*so_far)

    # The wheel's clock stands until the wall clock has passed it again: `two hours` is not due in between.
    machine.set_clock(0)
    machine.send({"two hours": 2 * HOUR_S, "past": -5})
    machine.wait_for(*so_far, "past")
    machine.set_clock(DAY_S)
    so_far = (*so_far, "past", "two hours", "20 hours")
    machine.wait_for(*so_far)
    machine.set_clock(0)
    machine.send({"past, sent late": -5})
    machine.wait_for(*so_far, "past, sent late")
    assert machine.job.stop() == 0, machine.job.log()

    machine.set_clock(2 * DAY_S)
    machine.start()
    machine.wait_for(*so_far, "past, sent late", "2 days")
    assert machine.job.stop() == 0, machine.job.log()

    rules = ledger.Rules(until_ms=(machine.began_s + 2 * DAY_S) * 1_000, default_destination="out")
    account = machine.job.account()
    ledger.check(machine.sent, machine.rows(), rejects=[], account=account, rules=rules).require()
    assert "Traceback" not in machine.job.log()
