"""The disk is full from a point on: the job ends with an error; when there is room again, it goes on from its
checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.chain import Running, files_for
from tests.faults.points import DIRECT, MODES, Chain, Kill
from tests.faults.trap import FILL

if TYPE_CHECKING:
    from pathlib import Path

PHASES = (
    "between two Delta commits",
    "after the offset log",
    "in an upload of the state",
    "before the commit log",
    "in the function, before its step",
    "after the commit of the state",
    "before the Delta commits",
    "after the Delta commits, before the rejects",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All modes and phases, or two phases of one."""
    if "mode" in metafunc.fixturenames:
        few = metafunc.config.getoption("--share") < 1
        cases = [(DIRECT, PHASES[:2])] if few else [(mode, PHASES) for mode in MODES]
        metafunc.parametrize(("mode", "phases"), cases, ids=[mode for mode, _ in cases])


def test_a_disk_that_is_full_in_one_phase_after_the_other_ends_the_job_and_costs_no_row(
    mode: str, phases: tuple[str, ...], tmp_path: Path
) -> None:
    kills = tuple(Kill(phase, 1) for phase in phases)
    # For each phase new rows, and some for the last start: a run without new rows may not come to its phase.
    files = [files_for(kill) + 1 for kill in kills]
    running = Running(tmp_path, Chain(mode, len(phases), kills), files=sum(files) + 2)
    for kill, count in zip(kills, files, strict=True):
        running.give(count)
        end = running.start("run", point=kill.point, fault=FILL)
        assert end.mark == kill.point, f"{end}\n{running.log()}"
        assert (end.code > 0, bool(end.sentence)) == (True, True), f"{kill}: {end}\n{running.log()}"
    assert running.finish() == []
