"""Punctual delivery while its broker is down for a minute, down for longer than the producer tries, and slow: nothing
missing, none early.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.faults.job_process import JobProcess
from tests.faults.punctual_world import PunctualWorld
from wheel_udf.testing.broker import LocalKafka

if TYPE_CHECKING:
    from pathlib import Path


def every(first_s: float, step_s: float, count: int) -> list[float]:
    return [first_s + number * step_s for number in range(count)]


def test_a_broker_that_is_down_for_a_minute_gets_every_row_in_flight_and_every_row_not_yet_handed_over(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    down_s = 20 if request.config.getoption("--share") < 1 else 60
    with LocalKafka(tmp_path / "broker") as broker:
        world = PunctualWorld(tmp_path, broker.bootstrap, delivery={"ahead": "30 seconds"})
        with JobProcess(tmp_path, world.config) as job:
            world.send("first", [0])
            job.wait_for_fired(1)
            # From 15 s on, until after the outage: of the last ones none is within reach when the broker is killed.
            world.send("spread", every(15, 0.2, 5 * (down_s + 40)))
            job.wait_until(lambda: job.in_flight > 0, "some are in flight")
            job.wait_until(lambda: world.client.count("out") > 40, "some are sent")
            assert 0 < job.in_flight < job.pending, "some are in flight, and some are not handed over yet"
            broker.kill()
            job.run_for(down_s)
            broker.start()
            world.send("after", [0, 5, 10])
            job.wait_for_fired(1 + 5 * (down_s + 40) + 3)
            job.wait_until(lambda: (job.pending, job.in_flight) == (0, 0), "nothing is pending")
            assert job.fired == len(world.commands), "each is counted once"
            assert job.end() == 0, job.told()
        assert world.faults() == []
        assert world.copies().keys() == world.ids


def test_a_broker_that_is_down_for_longer_than_the_producer_tries_fails_the_query_with_a_clear_error_and_the_next_start_delivers_everything(
    tmp_path: Path,
) -> None:
    with LocalKafka(tmp_path / "broker") as broker:
        world = PunctualWorld(
            tmp_path,
            broker.bootstrap,
            settings={"restarts": {"most": 0}},
            producer={"kafka.delivery.timeout.ms": "4000", "kafka.request.timeout.ms": "2000"},
        )
        with JobProcess(tmp_path, world.config) as job:
            world.send("first", [0])
            job.wait_for_fired(1)
            world.send("spread", every(15, 0.2, 100))
            job.wait_until(lambda: job.in_flight == 100, "all are in flight")
            job.wait_until(lambda: world.client.count("out") > 20, "some are sent")
            broker.kill()
            assert job.wait_for_end() == 1, job.told()
            assert "punctual delivery has failed: the topic out does not take a record" in job.told()
            assert "repair it and restart: what was not acknowledged is delivered then" in job.told()
        broker.start()
        with JobProcess(tmp_path, world.config) as job:
            job.wait_until(lambda: job.batches > 0 and job.pending == 0, "nothing is pending")
            assert job.in_flight == 0
            assert job.end() == 0, job.told()
        assert world.faults() == []
        copies = world.copies()
    assert copies.keys() == world.ids
    assert max(copies.values()) <= 2


@pytest.mark.usefixtures("_not_in_a_share")
def test_a_query_whose_sender_has_failed_starts_again_by_itself_and_delivers_everything_once_the_broker_is_back(
    tmp_path: Path,
) -> None:
    with LocalKafka(tmp_path / "broker") as broker:
        world = PunctualWorld(
            tmp_path,
            broker.bootstrap,
            producer={"kafka.delivery.timeout.ms": "4000", "kafka.request.timeout.ms": "2000"},
        )
        with JobProcess(tmp_path, world.config) as job:
            world.send("first", [0])
            job.wait_for_fired(1)
            world.send("spread", every(15, 0.2, 150))
            job.wait_until(lambda: job.in_flight == 150, "all are in flight")
            job.wait_until(lambda: world.client.count("out") > 20, "some are sent")
            broker.kill()
            job.wait_for_line("punctual delivery has failed: the topic out does not take a record")
            job.wait_for_line("it starts again from its checkpoint")
            broker.start()
            job.wait_until(lambda: (job.pending, job.in_flight) == (0, 0), "nothing is pending")
            world.send("last", [0])
            job.wait_for_fired(152)
            assert job.fired == 152
            assert job.end() == 0, job.told()
        assert world.faults() == []
        assert world.copies().keys() == world.ids


@pytest.mark.usefixtures("_not_in_a_share")
def test_a_broker_that_stands_still_by_turns_delays_rows_and_loses_and_repeats_none(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "broker") as broker:
        world = PunctualWorld(tmp_path, broker.bootstrap)
        with JobProcess(tmp_path, world.config) as job:
            world.send("first", [0])
            job.wait_for_fired(1)
            world.send("spread", every(15, 0.1, 300))
            job.wait_until(lambda: job.in_flight == 300, "all are in flight")
            job.wait_until(lambda: world.client.count("out") > 5, "the first are sent")
            for turn in range(8):
                with standing(broker):
                    job.run_for(3)
                world.send(f"turn-{turn}", [0, 3, 6])
                job.run_for(1)
            job.wait_for_fired(1 + 300 + 24)
            job.wait_until(lambda: (job.pending, job.in_flight) == (0, 0), "nothing is pending")
            assert job.fired == len(world.commands)
            assert not any("it starts again" in line for line in job.lines), "nothing has failed"
            assert job.end() == 0, job.told()
        assert world.faults() == []
        copies = world.copies()
    assert copies.keys() == world.ids
    assert set(copies.values()) == {1}


@contextmanager
def standing(broker: LocalKafka) -> Iterator[None]:
    """The broker answers nothing, and keeps its connections."""
    assert broker.pid is not None, "it is ours, and runs"
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)
