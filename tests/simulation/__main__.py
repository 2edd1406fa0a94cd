"""Runs seeds of the simulator: ``python -m tests.simulation --seeds 20000``.

::

    --seeds N            so many seeds, distributed over the modes; on two processes
    --seed N --mode M    one seed
    --fault NAME         with a planted fault, until it is caught
    --faults             all planted faults, and how many seeds each took; with --seeds, after these

A seed that fails is made small and printed as a list of steps and as a call of ``replay`` that a test can contain.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.core import Core
from tests.simulation.disk import installed
from tests.simulation.faults import FAULTS
from tests.simulation.run import MODES, run_seed
from tests.simulation.seeds import SCHEDULES
from tests.simulation.shrink import described, shrunk

_SHARES = {"direct": 7, "policies": 2, "tiered": 4, "series": 1, "backlog": 3, "purgatory": 3}
"""Twentieths of the seeds for each mode: policies are series, retries and rates in the direct mode; series are those of
the tiered mode; a backlog is the tiered mode under the event clock.
"""

_BLOCK = 10 * SCHEDULES
_MOST_SEEDS = 20_000
_MOST_SEEDS_OF_A_FAULT = 6_000
_PROCESSES = 2


def failed(mode: str, seeds: Sequence[int], fault: str | None = None) -> tuple[int, str] | None:
    """The first of these seeds that fails, and its smallest run as text."""
    core = Core()
    with installed():
        for seed in seeds:
            failure = run_seed(mode, seed, core=core, fault=fault)
            if failure is not None:
                small = shrunk(failure, core=core, fault=fault)
                return seed, described(small, f"{mode}, seed {seed}")
    return None


def _blocks(count: int) -> list[tuple[str, range]]:
    total = sum(_SHARES.values())
    spans = [(mode, count * share // total) for mode, share in _SHARES.items()]
    return [
        (mode, range(first, min(first + _BLOCK, seeds)))
        for mode, seeds in spans
        for first in range(0, seeds, _BLOCK)
    ]


def _block(block: tuple[str, range]) -> tuple[int, str] | None:
    return failed(*block)


def run_seeds(count: int) -> int:
    """Runs so many seeds; returns an exit code."""
    began = time.monotonic()
    blocks = _blocks(count)
    with ProcessPoolExecutor(_PROCESSES) as pool:
        for found in pool.map(_block, blocks):
            if found is not None:
                print(found[1])
                pool.shutdown(wait=False, cancel_futures=True)
                return 1
    seeds = {mode: sum(len(span) for name, span in blocks if name == mode) for mode in _SHARES}
    parts = ", ".join(f"{number:,} {mode}" for mode, number in seeds.items())
    print(f"{sum(seeds.values()):,} seeds ({parts}) in {time.monotonic() - began:.0f} s: no promise broken")
    return 0


def _until_caught(mode: str, fault: str) -> tuple[int, str] | None:
    return failed(mode, range(_MOST_SEEDS_OF_A_FAULT), fault)


def run_faults() -> int:
    """Runs all planted faults; returns an exit code."""
    missed = 0
    for mode, faults in FAULTS.items():
        with ProcessPoolExecutor(_PROCESSES) as pool:
            for (name, what), found in zip(
                faults.items(), pool.map(partial(_until_caught, mode), faults), strict=True
            ):
                taken = "NOT CAUGHT" if found is None else f"{found[0] + 1:5} seeds"
                print(f"{mode:9}  {taken}  {name}: {what}", flush=True)
                missed += found is None
    return min(missed, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the docstring of the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mode", choices=sorted(MODES))
    parser.add_argument("--fault", choices=sorted(name for faults in FAULTS.values() for name in faults))
    parser.add_argument("--faults", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.seed is None and asked.fault is None:
        code = run_seeds(asked.seeds or _MOST_SEEDS) if asked.seeds or not asked.faults else 0
        return code or (run_faults() if asked.faults else 0)
    seeds = [asked.seed] if asked.seed is not None else range(asked.seeds or _MOST_SEEDS)
    of_fault = next((mode for mode, faults in FAULTS.items() if asked.fault in faults), "direct")
    mode = asked.mode or of_fault
    found = failed(mode, seeds, asked.fault)
    print("no promise broken" if found is None else found[1])
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
