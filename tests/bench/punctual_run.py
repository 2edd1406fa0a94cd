"""``make bench-punctual``: Kafka to Kafka with punctual delivery and, in the same run, the present way; measured from
outside by the consumer.

::

    make bench-punctual                     everything, about an hour on 2 cores, broker and clients included
    make bench-punctual ARGS='--quick'      tiny sizes, to see that it works; its figures mean nothing

The machine, the loads and the way of measuring are those of :mod:`tests.bench.kafka_run`; one query works at a time.
``memory`` is filled before anything is measured.

=========  ===============================================  ================================================================
case       load                                             what is told, of the present way beside it
=========  ===============================================  ================================================================
steady     2,000 a second, delays of 5 to 30 s              lateness p50, p99, max; the earliest arrival (0 early)
sustained  10,000 a second, delays of 5 to 30 s             the same
burst      100,000 entries due at one instant               seconds until the last is out
pending    as steady, beside a million far entries          as steady, beside the same without them
stored     as steady, tiered, ten million in the store      as steady, beside a store without them; they take turns, medians
=========  ===============================================  ================================================================

The exit code is 0 when all targets are met, 1 when one is missed. Figures go to ``build/bench-punctual.json``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from tests.bench import report
from tests.bench.kafka_run import LEAD_MS, ROOT, Ground, Sizes
from tests.bench.kafka_traffic import Arrivals, Flow, Inflow
from tests.bench.report import Line, Target
from wheel_udf.testing.broker import LocalKafka

DELAYS_MS = (5_000, 30_000)
WAYS = ("wheel", "punctual")
"""The present way first: its figures stand beside those of the other."""

BARS_S = {("steady", 50): 0.015, ("steady", 99): 0.150, ("sustained", 50): 0.025, ("sustained", 99): 0.400}
BURST_S = 1.5
BESIDE_PENDING = 1.2
FAR_MS = 86_400_000
FILL_PATIENCE_S = 1_200


@dataclass(frozen=True, kw_only=True)
class Loads:
    """How large the loads are."""

    remembered: int = 600_000
    warm_s: int = 120
    steady: tuple[int, int] = (2_000, 90)
    sustained: tuple[int, int] = (10_000, 60)
    burst: int = 100_000
    pending: int = 1_000_000
    settle_s: int = 60
    stored: int = 10_000_000
    stored_warm_s: int = 240
    stored_turns: int = 3


QUICK = Loads(
    remembered=1_000,
    warm_s=10,
    steady=(100, 10),
    sustained=(500, 10),
    burst=1_000,
    pending=1_000,
    settle_s=10,
    stored=1_000,
    stored_warm_s=10,
    stored_turns=2,
)


def _flow(name: str, way: str, load: tuple[int, int]) -> Flow:
    rate, seconds = load
    return Flow(name=name, rate=rate, count=rate * seconds, delays_ms=DELAYS_MS, destination=f"{way}_{name}")


def _measured(ground: Ground, way: str, loads: Loads, options: list[str]) -> dict[str, Arrivals]:
    """Runs all loads through one query."""
    names = ("fill", "warm", "steady", "sustained", "burst", "settle", "pending")
    ground.topics(f"commands_{way}", *(f"{way}_{name}" for name in names))
    found: dict[str, Arrivals] = {}
    with ground.query(way, *options):
        fill = Flow(name="fill", rate=0, count=loads.remembered, due_ms=10**12, destination=f"{way}_fill")
        ground.flow(way, [fill], name=way)
        # A job that has worked for minutes is measured: Java compiles what it needs meanwhile.
        ground.flow(way, [_flow("warm", way, (loads.steady[0], loads.warm_s))], name=way)
        for name, load in (("steady", loads.steady), ("sustained", loads.sustained)):
            (found[name],) = ground.flow(way, [_flow(name, way, load)], name=way)
        due_ms = int(time.time() * 1000) + 20_000 + LEAD_MS
        burst = Flow(
            name="burst", rate=loads.burst // 8, count=loads.burst, due_ms=due_ms, destination=f"{way}_burst"
        )
        (found["burst"],) = ground.flow(way, [burst], name=way)
        far_ms = int(time.time() * 1000) + FAR_MS
        far = Flow(name="far", rate=0, count=loads.pending, due_ms=far_ms, destination=f"{way}_far")
        Inflow(ground.bootstrap, f"commands_{way}", far).wait(1_200)
        # What is told is the lateness beside a million that waits, not beside a million that arrives.
        ground.flow(way, [_flow("settle", way, (loads.steady[0], loads.settle_s))], name=way)
        (found["pending"],) = ground.flow(way, [_flow("pending", way, loads.steady)], name=way)
    return found


def _beside_stored(ground: Ground, loads: Loads) -> tuple[list[Arrivals], list[Arrivals]]:
    """Runs the steady load through two tiered queries that take turns, so that a drift of the machine meets both; the
    other one idles meanwhile.

    Both have filled a store. One of them then runs beside another store, an empty one.

    Returns:
        The arrivals of each turn, of the one with the full store and of the one with the empty store.
    """
    found: dict[str, list[Arrivals]] = {"tiered_empty": [], "tiered_stored": []}
    with ExitStack() as running:
        for name in found:
            ground.topics(
                f"commands_{name}",
                f"{name}_warm",
                *(f"{name}_steady{turn}" for turn in range(loads.stored_turns)),
            )
            aside = ["--aside"] if name == "tiered_empty" else []
            running.enter_context(ground.query("tiered", "--stored", str(loads.stored), *aside, name=name))
            _wait_for_fill(ground.folder / name)
        # Batches get shorter for many minutes, and the fill of ten million warms a JVM too. So each has such a fill
        # behind it, and then the load itself.
        for name in found:
            ground.flow(name, [_flow("warm", name, (loads.steady[0], loads.stored_warm_s))], name=name)
        for turn in range(loads.stored_turns):
            for name, arrivals in found.items():
                arrivals.extend(ground.flow(name, [_flow(f"steady{turn}", name, loads.steady)], name=name))
    return found["tiered_stored"], found["tiered_empty"]


def _wait_for_fill(folder: Path) -> None:
    until_s = time.monotonic() + FILL_PATIENCE_S
    while not (folder / "filled").exists():
        if time.monotonic() > until_s:
            raise RuntimeError(f"the store is not filled after {FILL_PATIENCE_S} s: see {folder / 'log'}")
        time.sleep(1)


def _lines(found: dict[str, dict[str, Arrivals]], loads: Loads) -> list[Line]:
    present, punctual = (found[way] for way in WAYS)
    lines: list[Line] = []
    for name, (rate, _) in (("steady", loads.steady), ("sustained", loads.sustained)):
        for share in (50, 99, 100):
            here, there = (_seconds(each[name], share) for each in (punctual, present))
            bar = BARS_S.get((name, share))
            target = None if bar is None else Target(of="figure", at_most=bar)
            what = f"{rate:,}/s, delays 5 to 30 s, memory full: lateness {'max' if share == 100 else f'p{share}'}"
            lines.append(
                Line(
                    case=name,
                    what=what,
                    figure=here,
                    unit="s",
                    beside=there,
                    beside_what="present way",
                    target=target,
                )
            )
        early = int((punctual[name].lateness_ms < 0).sum())
        lines.append(
            Line(case=name, what="early", figure=early, unit="rows", target=Target(of="figure", at_most=0))
        )
    last_s, other_s = (_seconds(each["burst"], 100) for each in (punctual, present))
    what = f"{loads.burst:,} due at one instant: seconds until the last is out"
    lines.append(
        Line(
            case="burst",
            what=what,
            figure=last_s,
            unit="s",
            beside=other_s,
            beside_what="present way",
            target=Target(of="figure", at_most=BURST_S),
        )
    )
    lines += _besides(
        "pending", f"{loads.pending:,} pending", [punctual["pending"]], [punctual["steady"]], loads
    )
    return lines


def _besides(
    case: str, what: str, many: Sequence[Arrivals], few: Sequence[Arrivals], loads: Loads
) -> list[Line]:
    """The steady load beside many entries that wait, and beside few: medians of their turns."""
    return [
        Line(
            case=case,
            what=f"{loads.steady[0]:,}/s beside {what}: lateness p{share}",
            figure=median(_seconds(each, share) for each in many),
            unit="s",
            beside=median(_seconds(each, share) for each in few),
            beside_what="none pending",
            target=Target(at_most=BESIDE_PENDING),
        )
        for share in (50, 99)
    ]


def _seconds(arrivals: Arrivals, share: float) -> float:
    return float(np.percentile(arrivals.lateness_ms, share)) / 1000


def main(arguments: list[str] | None = None) -> int:
    """Runs the loads; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.punctual_run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "bench-punctual.json", help="the JSON file"
    )
    parser.add_argument("--keep", type=Path, help="keep logs and batch lines of the queries in this folder")
    parser.add_argument(
        "--ways", nargs="+", choices=(*WAYS, "tiered"), default=[*WAYS, "tiered"], help="some of them alone"
    )
    asked, options = parser.parse_known_args(arguments)
    loads = QUICK if asked.quick else Loads()
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="wheel-bench-punctual-"))
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Arrivals]] = {}
    lines: list[Line] = []
    try:
        with LocalKafka() as kafka:
            ground = Ground(kafka.bootstrap, folder, Sizes(), [])
            for way in (way for way in WAYS if way in asked.ways):
                found[way] = _measured(ground, way, loads, options if way == "punctual" else [])
            if "tiered" in asked.ways:
                many, few = _beside_stored(ground, loads)
                lines = _besides("stored", f"{loads.stored:,} in the store", many, few, loads)
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    lines = [*(_lines(found, loads) if set(WAYS) <= set(found) else []), *lines]
    about = {"cores": os.cpu_count(), "loads": asdict(loads)}
    report.write_json(asked.out, report.document(lines, {"about": about, "details": ground.details}))
    print(f"\n{report.table(lines)}\n\nall figures: {asked.out}")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
