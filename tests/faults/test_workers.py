"""Python workers of a running job are killed at random: the job goes on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.chain import Running
from tests.faults.points import MODES, Chain
from tests.faults.workers import WORKERS

if TYPE_CHECKING:
    from pathlib import Path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All modes and several seeds, or one of each."""
    if "mode" in metafunc.fixturenames:
        few = metafunc.config.getoption("--share") < 1
        cases = [(mode, seed) for mode in MODES[: 1 if few else 3] for seed in range(1 if few else 2)]
        metafunc.parametrize(("mode", "seed"), cases)


def test_a_job_whose_workers_are_killed_goes_on_and_loses_and_repeats_nothing(
    mode: str, seed: int, tmp_path: Path
) -> None:
    running = Running(tmp_path, Chain(mode, seed, ()), files=12)
    running.give()
    end = running.start("finish", point=WORKERS)
    assert (end.code, (end.mark or "").count(WORKERS)) == (0, pytest.approx(3, abs=1)), running.log()
    assert running.faults() == []
