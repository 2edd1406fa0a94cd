"""The wall clock steps while rows are in flight: the sender holds them after a step back, and sends each once after a
step forward.

All steps are behind the real time. The threads of Kafka's client wait for instants of the wall clock: with one that
only they see as later, the kernel would let them wait for as long as it is ahead.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.faults.job_process import JobProcess
from tests.faults.punctual_world import PunctualWorld
from tests.faults.test_wall_clock import SETTINGS
from tests.faults.wall_clock import WallClock
from wheel_udf.testing.broker import LocalKafka

if TYPE_CHECKING:
    from pathlib import Path

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.mark.usefixtures("_not_in_a_share")
def test_rows_in_flight_wait_for_a_clock_that_was_set_back_and_come_once_when_it_is_set_forward(
    tmp_path: Path,
) -> None:
    with LocalKafka(tmp_path / "broker") as broker, WallClock(tmp_path / "clock") as clock:
        clock.move(-HOUR)
        world = PunctualWorld(
            tmp_path,
            broker.bootstrap,
            settings={"restarts": {"most": 0}},
            delivery={"ahead": "10 minutes"},
            by_broker=False,
        )
        with JobProcess(tmp_path, world.config, environment=clock.environment, settings=SETTINGS) as job:
            world.send("first", [0], clock.now)
            job.wait_for_fired(1)
            # Far enough that a slow machine comes to the step before they are due.
            world.send("near", [300, 301, 302], clock.now)
            world.send("distant", [9_000], clock.now)
            job.wait_until(lambda: job.in_flight == 3, "the near ones are in flight")

            # Back: they are held. The wheel's clock stands, and what is due soon after it is handed over.
            clock.move(-10 * MINUTE)
            job.wait_for_line("the wall clock was set back")
            world.send("later", [600 + 300], clock.now)
            job.wait_until(lambda: job.in_flight == 4, "the later one is in flight, too")
            job.wait_for_batches(3)
            assert world.client.count("out") == 1

            # Forward to where it was, and on: each comes once.
            clock.move(20 * MINUTE)
            job.wait_for_fired(5)
            job.wait_until(lambda: (job.pending, job.in_flight) == (1, 0), "the distant one is left")

            # A clock that stands sends nothing, whatever time has passed.
            world.send("standing", [60, 61], clock.now)
            job.wait_until(lambda: job.in_flight == 2, "they are in flight")
            clock.stand()
            job.run_for(5)
            assert world.client.count("out") == 5
            clock.move(2 * MINUTE)
            job.wait_for_fired(7)
            assert job.end() == 0, job.told()
            assert (job.pending, job.fired) == (1, 7)
            until_ms = int(clock.now.timestamp() * 1_000) - 60_000
        assert world.faults(until_ms) == []
        assert set(world.copies().values()) == {1}
