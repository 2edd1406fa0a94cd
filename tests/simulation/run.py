"""Runs one seed, or one list of steps: returns what went wrong, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.core import Core
from tests.simulation.direct import DirectWorld
from tests.simulation.oracle import Undefined, Violation
from tests.simulation.policies import PolicyWorld
from tests.simulation.purgatory import PurgatoryWorld
from tests.simulation.seeds import (
    backlog_steps_of,
    policy_steps_of,
    series_steps_of,
    steps_of,
    tiered_steps_of,
    watch_steps_of,
)
from tests.simulation.tiered import TieredWorld
from tests.simulation.world import Step, World


@dataclass(frozen=True)
class Failure:
    """A run that broke a promise.

    Attributes:
        mode: The mode.
        settings: The settings of its first process.
        steps: Its steps.
        what: The broken promise.
    """

    mode: str
    settings: dict[str, Any]
    steps: tuple[Step, ...]
    what: str


@dataclass(frozen=True)
class Mode:
    """A mode: its world, and how a seed becomes steps."""

    world: type[World]
    steps_of: Callable[[int], tuple[dict[str, Any], list[Step]]]


MODES = {
    "direct": Mode(DirectWorld, steps_of),
    "policies": Mode(PolicyWorld, policy_steps_of),
    "tiered": Mode(TieredWorld, tiered_steps_of),
    "series": Mode(TieredWorld, series_steps_of),
    "backlog": Mode(TieredWorld, backlog_steps_of),
    "purgatory": Mode(PurgatoryWorld, watch_steps_of),
}


def replay(
    mode: str,
    settings: dict[str, Any],
    steps: Sequence[Step],
    *,
    core: Core | None = None,
    fault: str | None = None,
) -> Failure | None:
    """Runs a list of steps; call it inside :func:`tests.simulation.disk.installed`."""
    world = MODES[mode].world(core or Core(), fault=fault, settings=dict(settings))
    try:
        world.run(steps)
    except Undefined:
        return None
    except Violation as violation:
        return Failure(mode, settings, tuple(steps), str(violation))
    return None


def run_seed(mode: str, seed: int, *, core: Core, fault: str | None = None) -> Failure | None:
    """Runs a seed."""
    settings, steps = MODES[mode].steps_of(seed)
    return replay(mode, settings, steps, core=core, fault=fault)
