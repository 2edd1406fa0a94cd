"""The wall clock of a running job steps forward and back, stands still, and goes on while the machine sleeps.

All of it happens to one job, one after the other, so each step also begins with what the step before has left. The
clock that the job sees is the test's own (:mod:`tests.faults.wall_clock`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.checker import texts_of
from tests.faults.job_process import COLUMNS, JobProcess, add_json, rows_due
from tests.faults.points import DIRECT, TIERED
from tests.faults.wall_clock import WallClock
from wheel_udf.testing import ledger

if TYPE_CHECKING:
    from pathlib import Path

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STANDS_S = 5.0
"""How long the clock stands still: longer than a few triggers."""

SETTINGS = {
    # Spark looks every second, not every minute, which executor has not been heard of: it has to see each step before
    # the next heartbeat. One heartbeat that fails ends the JVM, not the 60th.
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeat.maxFailures": "1",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both modes, or one."""
    if "mode" in metafunc.fixturenames:
        few = metafunc.config.getoption("--share") < 1
        metafunc.parametrize("mode", [DIRECT] if few else [DIRECT, TIERED])


def config(folder: Path, mode: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "mode": mode,
        "wheel": {"shards": 2},
        "clock": {"kind": "processing", "heartbeat": "2 seconds"},
        "source": {
            "format": "json",
            "path": str(folder / "in"),
            "schema": COLUMNS,
        },
        "destinations": {"out": {"sink": "delta", "path": str(folder / "tables"), "create": True}},
        "rejects": {"sink": "delta", "path": str(folder / "rejects"), "create": True},
        "trigger": "1 second",
        "checkpoint": str(folder / "checkpoint"),
        "restarts": {"most": 0},
    }
    return settings | ({"store": {"path": str(folder / "store")}} if mode == TIERED else {})


@dataclass
class World:
    """A job, its clock, its input and its table."""

    folder: Path
    clock: WallClock
    job: JobProcess
    commands: list[dict[str, Any]] = field(default_factory=list)

    def send(self, name: str, *waits: timedelta) -> list[str]:
        """Adds a file of commands, each due so long after now; returns their ids, ``name-0`` and so on."""
        rows = rows_due(name, self.clock.now, waits, "out")
        add_json(self.folder, name, rows)
        self.commands += rows
        return [row["schedule_id"] for row in rows]

    def send_a_bad_one(self) -> None:
        """Adds a file with a command that goes to the rejects."""
        bad = {"schedule_id": None}
        add_json(self.folder, "bad", [bad])
        self.commands.append(bad)

    def fired(self) -> list[str]:
        """The ids of all rows in the table."""
        return sorted(ledger.read_delta(self.folder / "tables").column("schedule_id").to_pylist())

    def faults(self) -> list[str]:
        """What the ledger checker finds in the sinks of the ended job."""
        rules = ledger.Rules(until_ms=int(self.clock.now.timestamp() * 1_000) - 60_000)
        fired, rejects = (ledger.read_delta(self.folder / name) for name in ("tables", "rejects"))
        return texts_of(ledger.check(self.commands, fired, rejects, rules=rules))


@pytest.fixture
def world(mode: str, tmp_path: Path) -> Iterator[World]:
    (tmp_path / "in").mkdir()
    with (
        WallClock(tmp_path / "clock") as clock,
        JobProcess(tmp_path, config(tmp_path, mode), environment=clock.environment, settings=SETTINGS) as job,
    ):
        yield World(tmp_path, clock, job)


def every(first: timedelta, step: timedelta, count: int) -> list[timedelta]:
    return [first + number * step for number in range(count)]


def test_the_wall_clock_steps_and_stands_and_the_machine_sleeps_and_each_row_fires_once_and_not_early(
    world: World,
) -> None:
    job, clock = world.job, world.clock

    # An hour forward: what is due by then fires.
    world.send_a_bad_one()
    world.send("distant", 300 * DAY)
    within_an_hour = world.send("hour", *every(30 * MINUTE, 4 * MINUTE, 6))
    within_a_day = world.send("day", *every(20 * HOUR, 20 * MINUTE, 6))
    job.wait_for_pending(13)
    clock.move(HOUR)
    job.wait_for_fired(6)
    expected = within_an_hour
    assert world.fired() == sorted(expected)

    # A day back: the wheel's clock stands. What is due before its instant fires at once, the rest waits for that
    # instant.
    clock.move(-DAY)
    at_once = world.send("back", 10 * MINUTE, 20 * MINUTE)
    later = world.send("later", DAY + 30 * MINUTE)
    job.wait_for_line("the wall clock was set back")
    job.wait_for_fired(8)
    job.wait_for_pending(8)
    job.wait_for_batches(3)
    expected += at_once
    assert world.fired() == sorted(expected)

    # Forward over all of it: the rest fires.
    clock.move(2 * DAY)
    job.wait_for_fired(15)
    expected += within_a_day + later
    assert world.fired() == sorted(expected)

    # Ten minutes without a move, and all ten at once.
    standing = world.send("standing", *every(2 * MINUTE, MINUTE, 7))
    beyond = world.send("beyond", 30 * MINUTE)
    job.wait_for_pending(9)
    clock.stand()
    time.sleep(STANDS_S)
    assert world.fired() == sorted(expected)
    clock.move(10 * MINUTE)
    job.wait_for_fired(22)
    expected += standing
    assert world.fired() == sorted(expected)

    # The machine sleeps for two hours.
    asleep = world.send("asleep", *every(30 * MINUTE, 10 * MINUTE, 8))
    job.wait_for_pending(10)
    job.freeze()
    clock.move(2 * HOUR)
    job.thaw()
    job.wait_for_fired(31)
    expected += beyond + asleep
    assert world.fired() == sorted(expected)

    # The job goes on: what comes now fires.
    expected += world.send("after", timedelta(seconds=1))
    job.wait_for_fired(32)
    job.wait_for_batches(3)
    assert world.fired() == sorted(expected)
    assert job.end() == 0, job.told()
    assert job.pending == 1
    assert world.faults() == []
