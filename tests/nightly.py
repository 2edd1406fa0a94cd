"""Runs every check that ``.ci/run`` leaves out, one after the other, and prints a table: ``python -m tests.nightly``
(``make nightly``).

::

    stage         result              minutes
    units         4,487 passed            2.1
    jobs          FAILED (exit 1)        12.4
    ...

A stage that fails does not stop the others; the exit code is 1 then. What a stage prints goes to
``build/nightly/STAGE.log``; the table to ``build/nightly/table.txt``, too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
OUT: Final = ROOT / "build" / "nightly"

STAGES: Final[Mapping[str, str]] = {
    "units": "test ARGS='tests/unit --hypothesis-profile=thorough'",
    "jobs": "test-jobs",
    "upgrade": "test-upgrade",
    "connect": "test-connect",
    "notebooks": "notebooks",
    "page": "test-page",
    "simulate": "simulate",
    "soak": "soak ARGS='--total-minutes 10'",
    "versions": "test-versions",
    "faults": "faults ARGS=--share=0.1",
}
"""What ``make`` is given for each stage, in order."""

_LAST_LINES: Final = re.compile(
    r"\d+ (?:passed|failed)[^=\n]*|[\d,]+ seeds \(.*|\d+ notebooks, .*|nothing grows.*|\d+ checks, .*"
)


def summary(log: str) -> str:
    """What a stage says of itself at its end: pytest's counts, the simulator's seeds; empty if it says neither."""
    found = _LAST_LINES.findall(log)
    return found[-1].strip() if found else ""


def run_stage(name: str, call: str) -> tuple[str, float]:
    """Runs a stage; returns its result in a few words, and its minutes."""
    # ARGS of `make nightly` are not for the stages: make hands its variables on, in MAKEFLAGS and by their names.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "ARGS")}
    log, began_s = OUT / f"{name}.log", time.monotonic()
    with log.open("w", encoding="utf-8") as out:
        # The shell splits the quoted ARGS, as it does for a person; the calls are those above and nothing else.
        done = subprocess.run(
            f"make {call}", shell=True, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False,
            stdin=subprocess.DEVNULL, env={**environment, "CI": "true"},
        )  # fmt: skip
    said = summary(log.read_text(encoding="utf-8", errors="replace"))
    minutes = (time.monotonic() - began_s) / 60
    return (said or "ok" if done.returncode == 0 else f"FAILED (exit {done.returncode}) {said}"), minutes


def table(rows: Sequence[tuple[str, str, float]]) -> str:
    """The stages with their results and minutes, aligned."""
    width = max(len(result) for _, result, _ in rows)
    lines = [f"{'stage':<10}  {'result':<{width}}  minutes"]
    lines += [f"{name:<10}  {result:<{width}}  {minutes:7.1f}" for name, result, minutes in rows]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the docstring of the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__.split("\n")[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"some of {', '.join(STAGES)}")
    asked = parser.parse_args(arguments).stages or list(STAGES)
    if unknown := set(asked) - set(STAGES):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    OUT.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in asked:
        print(f"{time.strftime('%H:%M')}  {name}: make {STAGES[name]}", flush=True)
        rows.append((name, *run_stage(name, STAGES[name])))
        print(f"       {rows[-1][1]}", flush=True)
    rows.append(("all", "", sum(minutes for _, _, minutes in rows)))
    (OUT / "table.txt").write_text(table(rows) + "\n", encoding="utf-8")
    print(table(rows))
    return int(any(result.startswith("FAILED") for _, result, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
