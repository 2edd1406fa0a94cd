"""The crash matrix: kill -9 at each named point of a job, a restart from the checkpoint each time, and a check of
input against sinks at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.chain import Running
from tests.faults.points import MODES, SEEDS, Chain, chains, points_of, sentinel

if TYPE_CHECKING:
    from pathlib import Path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All of the matrix, or the tenth that has each point once (``--share=0.1``)."""
    if "chain" in metafunc.fixturenames:
        metafunc.parametrize("chain", chains(metafunc.config.getoption("--share")), ids=str)


def test_a_job_killed_at_one_point_after_the_other_loses_and_repeats_nothing(
    chain: Chain, tmp_path: Path
) -> None:
    running = Running(tmp_path, chain)
    for kill in chain.kills:
        running.kill(kill)
    assert running.finish() == []


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[pytest.mark.sentinel] * (mode == "tiered")) for mode in MODES]
)
def test_a_job_killed_in_a_batch_in_an_act_and_in_a_move_loses_and_repeats_nothing(
    mode: str, tmp_path: Path
) -> None:
    running = Running(tmp_path, sentinel(mode))
    for kill in running.chain.kills:
        running.kill(kill)
    assert running.finish() == []


def test_the_matrix_has_200_kills_and_its_tenth_has_each_point() -> None:
    tenth = [kill.point for chain in chains(0.1) for kill in chain.kills]
    assert set(tenth) == {point for mode in MODES for point in points_of(mode)}
    drawn = chains(1.0)[len(chains(0.1)) :]
    for mode in MODES:
        kills = [kill.point for chain in drawn if chain.mode == mode for kill in chain.kills]
        assert sorted(kills) == sorted(points_of(mode) * (SEEDS - 1))
    assert len(tenth) + sum(len(chain.kills) for chain in drawn) >= 200
