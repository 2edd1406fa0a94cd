"""``make bench-kafka``: Kafka to Kafka, measured from outside by the consumer, with the query that has no wheel beside it
in the same run.

::

    make bench-kafka                        everything, about 10 minutes on 2 cores, broker and clients included
    make bench-kafka ARGS='--quick'         tiny sizes, to see that it works; its figures mean nothing
    make bench-kafka ARGS='--sustained 30000 --seconds 120'    another rate of the sustained load, and for how long

All on one machine: a broker, a producer, a consumer, and one query at a time. Lateness is the instant at which the
consumer has the record, less the due time (without the wheel: less the instant at which it was produced). ``memory``
is filled before anything is measured.

=========  ====================================================  ===================================================================
case       load                                                  what is told
=========  ====================================================  ===================================================================
pass       steady rate, no wheel                                 lateness p50, p99
steady     the same rate, delays of 2 to 30 s                    lateness p50, p99, min; p99 less that of pass (the bar: 1.5 s)
sustained  five times the rate                                   lateness of the last third of it beside the first (the lag does not grow)
burst      entries due in one second, others keep on firing      seconds until the last is out; p99 of the others
=========  ====================================================  ===================================================================

The exit code is 0 when all targets are met, 1 when one is missed. Figures go to ``build/bench-kafka.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import report
from tests.bench.kafka_traffic import Arrivals, Flow, Inflow, Outflow
from tests.bench.report import Line, Target
from wheel_udf.testing.broker import LocalKafka
from wheel_udf.testing.topics import create_topics

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90
LEAD_MS = 3_000
"""How long after its last command a burst falls due."""
_SLICE_MS = 10_000


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the loads are.

    Attributes:
        remembered: Commands that fire and are remembered before anything is measured.
        rate: Commands a second of the steady load.
        pass_s: How long the query without the wheel is measured, in seconds.
        steady_s: How long the wheel is.
        sustained_rate: Commands a second of the sustained load.
        sustained_s: How long it lasts.
        burst: Entries due in one second.
        others_rate: Commands a second that keep coming around the burst.
        partitions: Of each topic.
    """

    remembered: int = 600_000
    rate: int = 2_000
    pass_s: int = 60
    steady_s: int = 120
    sustained_rate: int = 10_000
    sustained_s: int = 60
    burst: int = 100_000
    others_rate: int = 1_000
    partitions: int = 2


QUICK = Sizes(
    remembered=1_000,
    rate=100,
    pass_s=5,
    steady_s=5,
    sustained_rate=500,
    sustained_s=5,
    burst=1_000,
    others_rate=50,
)


class Ground:
    """A broker, a scratch folder, and what has been found."""

    def __init__(self, bootstrap: str, folder: Path, sizes: Sizes, wheel_options: list[str]) -> None:
        self.bootstrap, self.folder, self.sizes, self.wheel_options = bootstrap, folder, sizes, wheel_options
        self.lines: list[Line] = []
        self.details: dict[str, Any] = {}
        self._began_s = time.monotonic()

    def say(self, text: str) -> None:
        """A line with the seconds since the beginning."""
        print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", flush=True)

    def topics(self, *names: str) -> None:
        """Makes topics."""
        create_topics(self.bootstrap, list(names), partitions=self.sizes.partitions)

    @contextmanager
    def query(self, kind: str, *options: str, name: str | None = None) -> Iterator[int]:
        """Runs a query (see :mod:`tests.bench.kafka_query`) while inside; reads `commands_<name>`, by default its
        kind; yields its process id.
        """
        name = name or kind
        folder = self.folder / name
        folder.mkdir()
        arguments = ["--bootstrap", self.bootstrap, "--commands", f"commands_{name}", "--folder", str(folder)]
        command = [sys.executable, "-m", "tests.bench.kafka_query", kind, *arguments, *options]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT)
            try:
                yield process.pid
            finally:
                process.communicate(timeout=60)
        self.details[f"{name}, phases in ms, median of batches with rows"] = phases(self.batches(name))

    def batches(self, name: str) -> list[dict[str, Any]]:
        """The batches of a query that has ended."""
        lines = (self.folder / name / "batches.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def produce(self, kind: str, flow: Flow) -> None:
        """Sends a flow to a query whose output is no topic, and returns when all of it is sent."""
        Inflow(self.bootstrap, f"commands_{kind}", flow).wait(1_200)

    def flow(self, kind: str, expected_of: list[Flow], *, name: str) -> list[Arrivals]:
        """Sends flows to a query, each to a topic of its own, and answers what came out of each."""
        outs = [Outflow(self.bootstrap, flow.destination, flow.count, PATIENCE_S) for flow in expected_of]
        ins = [Inflow(self.bootstrap, f"commands_{kind}", flow) for flow in expected_of]
        for inflow in ins:
            inflow.wait(1_200)
        found = [out.arrivals(600) for out in outs]
        for flow, arrivals in zip(expected_of, found, strict=True):
            late = _figures(arrivals) if len(arrivals.due_ms) else {}
            missing, again = flow.count - arrivals.distinct, len(arrivals.due_ms) - arrivals.distinct
            told = {"flow": asdict(flow), "missing": missing, "duplicates": again, **late}
            self.details[f"{name}, {flow.name}"] = told
            self.say(f"{name}, {flow.name}: {json.dumps(told | {'flow': flow.count})}")
            if missing:
                raise RuntimeError(f"{name}: {missing} of {flow.count} records are missing")
        return found


def phases(batches: list[dict[str, Any]]) -> dict[str, float]:
    """The phases of batches, each in ms: the median of those with rows."""
    busy = [batch["ms"] for batch in batches if batch["rows"]][3:]
    names = sorted({name for phases in busy for name in phases})
    return {name: float(np.median([phases.get(name, 0) for phases in busy])) for name in names}


def _figures(arrivals: Arrivals) -> dict[str, float | list[int]]:
    late = arrivals.lateness_ms
    shares = {f"p{share}": round(float(np.percentile(late, share)), 1) for share in (1, 50, 90, 99)}
    slices = (arrivals.due_ms - arrivals.due_ms.min()) // _SLICE_MS
    over_time = [int(np.percentile(late[slices == number], 99)) for number in np.unique(slices)]
    return {"min": int(late.min()), **shares, "max": int(late.max()), "p99 of each ten seconds": over_time}


def _seconds(arrivals: Arrivals, share: float) -> float:
    return float(np.percentile(arrivals.lateness_ms, share)) / 1000


def _pass(ground: Ground) -> float:
    """The query without the wheel; its p99 in seconds."""
    sizes = ground.sizes
    ground.topics("commands_pass", "pass_warm", "pass_out")
    with ground.query("pass"):
        ground.flow("pass", [_steady(sizes, "warm", "pass_warm", 20, None)], name="pass")
        (found,) = ground.flow("pass", [_steady(sizes, "pass", "pass_out", sizes.pass_s, None)], name="pass")
    ground.details["pass seconds"] = {"p50": _seconds(found, 50), "p99": _seconds(found, 99)}
    return _seconds(found, 99)


def _steady(sizes: Sizes, name: str, out: str, seconds: int, delays_ms: tuple[int, int] | None) -> Flow:
    return Flow(name=name, rate=sizes.rate, count=sizes.rate * seconds, delays_ms=delays_ms, destination=out)


def _wheel(ground: Ground, pass_p99_s: float) -> None:
    sizes = ground.sizes
    ground.topics("commands_wheel", "wheel_fill", "wheel_warm", "steady", "sustained", "burst", "others")
    with ground.query("wheel", *ground.wheel_options):
        ground.say("the wheel: filling its memory")
        fill = Flow(
            name="fill", rate=0, count=sizes.remembered, due_ms=1_000_000_000_000, destination="wheel_fill"
        )
        ground.flow("wheel", [fill], name="wheel")
        ground.flow("wheel", [_steady(sizes, "warm", "wheel_warm", 10, (100, 2_000))], name="wheel")
        (found,) = ground.flow(
            "wheel", [_steady(sizes, "steady", "steady", sizes.steady_s, (2_000, 30_000))], name="wheel"
        )
        _steady_lines(ground, found, pass_p99_s)
        _sustained(ground)
        _burst(ground)


def _steady_lines(ground: Ground, found: Arrivals, pass_p99_s: float) -> None:
    what = f"{ground.sizes.rate:,}/s, delays 2 to 30 s, memory full: lateness"
    least_s = float(found.lateness_ms.min()) / 1000
    beside = ground.details["pass seconds"]
    goal = {50: Target(of="figure", at_most=1.2), 99: Target(of="figure", at_most=2.5)}
    for share, target in goal.items():
        figure = _seconds(found, share)
        other = beside[f"p{share}"]
        ground.lines.append(
            Line(case="steady", what=f"{what} p{share}", figure=figure, unit="s", beside=other, beside_what="no wheel", target=target)
        )  # fmt: skip
    never_early = Target(of="figure", at_least=0)
    over = _seconds(found, 99) - pass_p99_s
    ground.lines += [
        Line(case="steady", what=f"{what} min", figure=least_s, unit="s", target=never_early),
        Line(case="steady", what="p99 less that of no wheel", figure=over, unit="s", target=Target(of="figure", at_most=1.5)),
    ]  # fmt: skip


def _sustained(ground: Ground) -> None:
    sizes = ground.sizes
    count = sizes.sustained_rate * sizes.sustained_s
    flow = Flow(
        name="sustained",
        rate=sizes.sustained_rate,
        count=count,
        delays_ms=(2_000, 30_000),
        destination="sustained",
    )
    (found,) = ground.flow("wheel", [flow], name="wheel")
    thirds = np.array_split(found.lateness_ms[np.argsort(found.due_ms, kind="stable")], 3)
    first, last = (float(np.percentile(third, 50)) / 1000 for third in (thirds[0], thirds[-1]))
    what = f"{sizes.sustained_rate:,}/s for {sizes.sustained_s} s: lateness p50 of the last third"
    ground.lines += [
        Line(case="sustained", what=what, figure=last, unit="s", beside=first, beside_what="first third", target=Target(at_most=2.0)),
        Line(case="sustained", what="the same, p99 of all", figure=_seconds(found, 99), unit="s"),
    ]  # fmt: skip


def _burst(ground: Ground) -> None:
    sizes = ground.sizes
    others_s = 30
    others = Flow(
        name="others", rate=sizes.others_rate, count=sizes.others_rate * others_s, delays_ms=(500, 5_000), destination="others"
    )  # fmt: skip
    due_ms = int(time.time() * 1000) + others_s * 500 + LEAD_MS
    burst = Flow(name="burst", rate=sizes.burst // 8, count=sizes.burst, due_ms=due_ms, destination="burst")
    came, beside = ground.flow("wheel", [burst, others], name="wheel")
    last_s = float(came.lateness_ms.max()) / 1000
    what = f"{sizes.burst:,} due at one instant: seconds until the last is out"
    ground.lines += [
        Line(case="burst", what=what, figure=last_s, unit="s", target=Target(of="figure", at_most=5.0)),
        Line(case="burst", what="the others meanwhile: lateness p99", figure=_seconds(beside, 99), unit="s"),
    ]


def _sizes(asked: argparse.Namespace) -> Sizes:
    sizes = QUICK if asked.quick else Sizes()
    given = {"sustained_rate": asked.sustained, "sustained_s": asked.seconds}
    return replace(sizes, **{name: value for name, value in given.items() if value is not None})


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kafka_run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-kafka.json", help="the JSON file")
    parser.add_argument(
        "--sustained", type=int, metavar="RATE", help="commands a second of the sustained load"
    )
    parser.add_argument("--seconds", type=int, help="how long the sustained load lasts")
    parser.add_argument("--keep", type=Path, help="keep logs and batch lines of the queries in this folder")
    asked, wheel_options = parser.parse_known_args(arguments)
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="wheel-bench-kafka-"))
    folder.mkdir(parents=True, exist_ok=True)
    failure = None
    try:
        with LocalKafka() as kafka:
            ground = Ground(kafka.bootstrap, folder, _sizes(asked), wheel_options)
            try:
                _wheel(ground, _pass(ground))
            except Exception as fault:  # noqa: BLE001  # the figures so far are worth keeping
                failure = f"{type(fault).__name__}: {fault}"
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    about = {"cores": os.cpu_count(), "sizes": asdict(ground.sizes), "failure": failure}
    report.write_json(asked.out, report.document(ground.lines, {"about": about, "details": ground.details}))
    found = {name: figures for name, figures in ground.details.items() if "phases" in name}
    print(f"\n{report.table(ground.lines)}\n\n{report.phases_table(found)}\n\nall figures: {asked.out}")
    if failure:
        print(f"FAILED: {failure}")
        return 2
    return 1 if any(line.met is False for line in ground.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
