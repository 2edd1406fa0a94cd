"""Makes a failing run small: drops steps while it still fails, then prints it as a list and as a literal for a test.

::

    41 steps that fail --drop halves, quarters, ..., single steps; again until nothing can go--> 5 steps that fail in the same way

*In the same way*: the first words of the violation are the same, so one fault does not turn into another on the way.
Each trial is a run of a few ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.simulation.core import Core
from tests.simulation.run import Failure, replay
from tests.simulation.world import Step

_MOST_TRIALS = 3_000


def shrunk(failure: Failure, *, core: Core, fault: str | None = None) -> Failure:
    """The smallest failure of the same kind that dropping steps leads to."""
    kind = _kind(failure)

    def still_fails(steps: Sequence[Step]) -> Failure | None:
        found = replay(failure.mode, failure.settings, steps, core=core, fault=fault)
        return found if found is not None and _kind(found) == kind else None

    return _without(failure, still_fails)


def _without(failure: Failure, still_fails: Callable[[Sequence[Step]], Failure | None]) -> Failure:
    size, trials = max(1, len(failure.steps) // 2), 0
    while size and trials < _MOST_TRIALS:
        dropped, at = False, 0
        while at < len(failure.steps):
            trials += 1
            smaller = still_fails([*failure.steps[:at], *failure.steps[at + size :]])
            if smaller is None:
                at += size
            else:
                failure, dropped = smaller, True
        if not dropped or size > 1:
            size //= 2
    return failure


def _kind(failure: Failure) -> str:
    """What a violation says, without names, numbers and rows."""
    return re.sub(r"[\[({].*?[\])}]|\d+|left|right|topic", "", failure.what)[:40]


def described(failure: Failure, title: str) -> str:
    """A failure as text: what is wrong, its steps one below the other, and the call that replays it."""
    listed = [f"  {number:2}  {_text(step)}" for number, step in enumerate(failure.steps, 1)]
    literal = ",\n    ".join(repr(step) for step in failure.steps)
    call = f"replay({failure.mode!r}, {failure.settings!r}, [\n    {literal},\n])"
    return "\n".join([f"{title}: {failure.what}", "", f"settings: {failure.settings}", *listed, "", call])


def _text(step: Step) -> str:
    name, *values = step
    return f"{name:8} {', '.join(map(str, values))}"
