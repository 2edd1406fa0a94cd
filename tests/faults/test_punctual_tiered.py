"""Punctual delivery over a slot store, killed with rows in flight, rows near, and rows in the store: nothing missing,
none early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.job_process import JobProcess
from tests.faults.punctual_world import PunctualWorld
from wheel_udf.testing.broker import LocalKafka

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 150
"""One falls due each second, the last ones some windows of a minute after the first."""


def test_a_tiered_job_that_is_killed_with_rows_in_flight_near_and_far_delivers_each_and_none_early(
    tmp_path: Path,
) -> None:
    with LocalKafka(tmp_path / "broker") as broker:
        world = PunctualWorld(
            tmp_path,
            broker.bootstrap,
            settings={
                "mode": "tiered",
                "wheel": {"shards": 2, "tick": "1 second", "size": 60, "levels": 3, "state_levels": 1},
                "store": {"path": str(tmp_path / "store")},
            },
            delivery={"ahead": "30 seconds"},
        )
        with JobProcess(tmp_path, world.config) as job:
            world.send("spread", (30 + number for number in range(ROWS)))
            job.wait_until(lambda: world.client.count("out") > 5, "some are sent")
            job.wait_until(lambda: 0 < job.in_flight < job.pending, "some are in flight, some are not")
            job.kill()
        with JobProcess(tmp_path, world.config) as job:
            world.send("second", [20, 40, 80])
            job.wait_until(lambda: world.client.count("out") > 50, "a window later")
            job.wait_until(lambda: 0 < job.in_flight < job.pending, "some are in flight, some are not")
            job.kill()
        with JobProcess(tmp_path, world.config) as job:
            world.send("last", [0])
            job.wait_until(
                lambda: job.batches > 0 and (job.pending, job.in_flight) == (0, 0) and job.fired > 0,
                "nothing is pending",
                patience_s=400,
            )
            job.wait_until(lambda: world.copies().keys() == world.ids, "all are out", patience_s=120)
            assert job.end() == 0, job.told()
        assert world.faults() == []
        copies = world.copies()
    assert max(copies.values()) <= 3, "a row comes again after a kill, and only then"
