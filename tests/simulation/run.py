"""Runs one seed, or one list of steps: returns what went wrong, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.core import Core
from tests.simulation.direct import DirectWorld
from tests.simulation.oracle import Violation
from tests.simulation.seeds import steps_of
from tests.simulation.world import Step


@dataclass(frozen=True)
class Failure:
    """A run that broke a promise.

    Attributes:
        settings: The settings of its first process.
        steps: Its steps.
        what: The broken promise.
    """

    settings: dict[str, Any]
    steps: tuple[Step, ...]
    what: str


def replay(
    settings: dict[str, Any], steps: Sequence[Step], *, core: Core | None = None, fault: str | None = None
) -> Failure | None:
    """Runs a list of steps; call it inside :func:`tests.simulation.disk.installed`."""
    world = DirectWorld(core or Core(), fault=fault, settings=dict(settings))
    try:
        world.run(steps)
    except Violation as violation:
        return Failure(settings, tuple(steps), str(violation))
    return None


def run_seed(seed: int, *, core: Core, fault: str | None = None) -> Failure | None:
    """Runs a seed."""
    settings, steps = steps_of(seed)
    return replay(settings, steps, core=core, fault=fault)
