"""Runs the checks of each version of Spark: ``python -m tests.versions``; see the package.

::

    make test-versions                                   everything, about an hour
    make test-versions ARGS='4.0 --checks month'         a month of departures on Spark 4.0
    make test-versions ARGS='4.1 --checks jobs moves'
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.nightly import table
from tests.versions.environments import FOLDER, NEWEST, PYSPARK, ROOT, environment, python_of
from tests.versions.moves import change

_PYTEST: Final = "-m pytest --quiet --no-header -p no:unraisableexception -W default --interpreted"
_COMMANDS: Final = {
    "month": "-m jobs.demos.departures --months 1",
    "departures": "-m jobs.demos.departures",
    "tiered": "-m jobs.demos.departures --tiered",
    "orders": "-m jobs.demos.orders",
    "kafka": "-m jobs.demos.kafka --kill",
    "jobs": f"{_PYTEST} -m sentinel tests/delta tests/kafka tests/faults tests/cluster",
    "acts": f"{_PYTEST} tests/delta/pending",
    "iceberg": f"{_PYTEST} tests/iceberg",
    "upgrade": f"{_PYTEST} tests/upgrade",
}
_MOVES: Final = "moves"
_ALONE: Final = frozenset(_COMMANDS) - {"month"}


def main(arguments: Sequence[str] | None = None) -> int:
    """See the docstring of the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__.split("\n")[0])
    old = [minor for minor in PYSPARK if minor != NEWEST]
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"some of {', '.join(old)}")
    parser.add_argument(
        "--checks", nargs="+", choices=[*_COMMANDS, _MOVES], default=[*sorted(_ALONE), _MOVES]
    )
    asked = parser.parse_args(arguments)
    versions = asked.versions or old
    if unknown := set(versions) - set(old):
        parser.error(f"no such version: {', '.join(sorted(unknown))}; there are {', '.join(old)}")
    rows: list[tuple[str, str, float]] = []
    for minor in versions:
        python_of(minor)
        for check in asked.checks:
            rows += (
                _moves(minor)
                if check == _MOVES
                else [_timed(f"{minor} {check}", lambda m=minor, c=check: _command(m, c))]
            )
    failed = sum("FAILED" in result for _, result, _ in rows)
    print(f"{table(rows)}\n{len(rows)} checks, {failed} failed", flush=True)
    return 1 if failed else 0


def _command(minor: str, check: str) -> str:
    log = FOLDER / f"{minor}-{check}.log"
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [str(python_of(minor)), *_COMMANDS[check].split()],
            cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return ("" if done.returncode == 0 else f"FAILED (exit {done.returncode}) ") + "".join(last).strip("= ")


def _moves(minor: str) -> list[tuple[str, str, float]]:
    """The job goes on under the newest version and back, with its checkpoint and by an export."""
    rows = []
    for first, second in ((minor, NEWEST), (NEWEST, minor)):
        for mode in ("direct", "tiered"):
            for by_export in (False, True):
                name = f"{first} -> {second}, {mode}{', exported' if by_export else ''}"
                folder = FOLDER / "moves"
                rows.append(
                    _timed(
                        name,
                        lambda f=folder, a=first, b=second, m=mode, e=by_export: change(
                            f, a, b, mode=m, by_export=e
                        ),
                    )
                )
    return rows


def _timed(name: str, work: Callable[[], str]) -> tuple[str, str, float]:
    began_s = time.monotonic()
    try:
        result = work()
    except AssertionError as fault:
        result = f"FAILED {fault}"
    minutes = (time.monotonic() - began_s) / 60
    print(f"{name}: {result} ({minutes:.1f} min)", flush=True)
    return name, result, minutes


if __name__ == "__main__":
    sys.exit(main())
