"""``make bench-floor``: what a batch costs beside Spark's own, Kafka to Kafka, when every row is due at once.

::

    make bench-floor                        three rates, about 22 minutes on 2 cores, broker and clients included
    make bench-floor ARGS='--rates 2000'    one rate
    make bench-floor ARGS='--quick'         tiny sizes, to see that it works; its figures mean nothing

The machine and the way of measuring are those of :mod:`tests.bench.kafka_run`: one query works at a time, with batches
one right after the other.

=======  =================================================================================================
query    what it does with a record
=======  =================================================================================================
floor    Spark's own query with ``foreachBatch`` writes it to its topic as it is
bare     the same, behind a stateful Python operator of Spark that returns each row as it is, and a count of the rows:
         what any scheduler that holds its entries in such an operator pays
wheel    the scheduler: parse, account, exactly one firing for each id and seq, delivery headers, its topic
tables   the same, into a Delta table
=======  =================================================================================================

Told for each rate: the median batch, CPU seconds of a batch (of all processes of the query), lateness at the consumer;
and for each query the number of Spark's jobs of a batch, the lines of its plan, and its phases. Figures go to
``build/bench-floor.json``. The exit code is 0 when all targets are met, 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.bench import report
from tests.bench.kafka_run import PATIENCE_S, ROOT, Ground, Sizes, phases
from tests.bench.kafka_traffic import Flow
from tests.bench.measure import CpuMeter
from tests.bench.report import Line, Target
from wheel_udf.testing.broker import LocalKafka

QUERIES = ("floor", "bare", "wheel", "tables")
RATES = (100, 2_000, 10_000)
TIMES = 1.3
LATENESS_S = 0.5
_WARM_RATE, _WARM_S = 2_000, 120
"""Java compiles for minutes what a batch needs."""
_LOOK_S = 0.2
_SETTLE_S = 5
"""The first batches after a change of the rate are not those of the rate."""


@dataclass(frozen=True)
class Found:
    """What was found of one query at one rate.

    Attributes:
        batch_ms: The median batch.
        cpu_ms: CPU time of a batch, all processes of the query.
        lateness_s: 50th and 99th percentile at the consumer; None: it has no topic.
        phases: Of its batches, in ms.
    """

    batch_ms: float
    cpu_ms: float
    lateness_s: tuple[float, float] | None
    phases: dict[str, float]


def measure(ground: Ground, query: str, rates: Sequence[int], seconds: int, warm_s: int) -> dict[int, Found]:
    """Runs a query at each of the rates."""
    ground.topics(f"commands_{query}", *(f"{query}_{rate}" for rate in (*rates, "warm")))
    windows: dict[int, tuple[float, float, float]] = {}
    lateness: dict[int, tuple[float, float] | None] = {}
    with ground.query(query) as process_id:
        _send(ground, query, _WARM_RATE, warm_s, "warm")
        for rate in rates:
            began_s, meter = time.time(), CpuMeter(process_id)
            lateness[rate] = _send(ground, query, rate, seconds, str(rate))
            windows[rate] = (began_s + _SETTLE_S, time.time(), meter.seconds())
    batches = ground.batches(query)
    return {rate: _found(batches, window, lateness[rate]) for rate, window in windows.items()}


def _send(ground: Ground, query: str, rate: int, seconds: int, name: str) -> tuple[float, float] | None:
    flow = Flow(name=f"{query}-{name}", rate=rate, count=rate * seconds, destination=f"{query}_{name}")
    if query == "tables":
        before = _fired(ground, query)
        ground.produce(query, flow)
        until_s = time.monotonic() + PATIENCE_S
        while _fired(ground, query) < before + flow.count:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{query} has not written {flow.count:,} rows within {PATIENCE_S} s")
            time.sleep(_LOOK_S)
        return None
    (came,) = ground.flow(query, [flow], name=query)
    late = np.percentile(came.lateness_ms, (50, 99)) / 1_000
    return float(late[0]), float(late[1])


def _fired(ground: Ground, query: str) -> int:
    """Rows that the batches of a query say they have fired, by its log."""
    log = (ground.folder / query / "log").read_text(errors="replace")
    return sum(map(int, re.findall(r"^\d+ in \d+ fired (\d+)", log, re.MULTILINE)))


def _found(
    batches: list[dict[str, Any]], window: tuple[float, float, float], late: tuple[float, float] | None
) -> Found:
    began_s, end_s, cpu_s = window
    inside = [each for each in batches if began_s <= _second(each) < end_s and each["rows"]]
    if not inside:
        raise RuntimeError("no batch had rows")
    share = (end_s - began_s) / (end_s - began_s + _SETTLE_S)
    return Found(
        batch_ms=median(each["ms"]["triggerExecution"] for each in inside),
        cpu_ms=cpu_s * share * 1_000 / len(inside),
        lateness_s=late,
        phases=phases(inside),
    )


def _second(batch: dict[str, Any]) -> float:
    return datetime.fromisoformat(batch["began"]).timestamp()


def lines_of(found: dict[str, dict[int, Found]]) -> list[Line]:
    """The comparisons with the floor."""
    lines = []
    for query, of_rates in found.items():
        for rate, each in of_rates.items():
            floor = None if query == "floor" else found["floor"][rate]
            target = Target(at_most=TIMES) if query == "wheel" else None
            for what, figure, beside in (
                ("batch", each.batch_ms, floor and floor.batch_ms),
                ("CPU of a batch", each.cpu_ms, floor and floor.cpu_ms),
            ):
                lines.append(
                    Line(case=query, what=f"{rate:,}/s: {what}", figure=figure, unit="ms", beside=beside, beside_what="Spark alone", target=target)
                )  # fmt: skip
            if each.lateness_s is not None:
                bar = Target(of="figure", at_most=LATENESS_S) if (query, rate) == ("wheel", 2_000) else None
                beside = floor.lateness_s[0] if floor and floor.lateness_s else None
                lines.append(
                    Line(case=query, what=f"{rate:,}/s: lateness p50", figure=each.lateness_s[0], unit="s", beside=beside, beside_what="Spark alone", target=bar)
                )  # fmt: skip
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Runs the queries; see the module."""
    parser = argparse.ArgumentParser(prog="make bench-floor")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--rates", type=int, nargs="+", help="rows a second (default 100, 2,000, 10,000)")
    parser.add_argument("--seconds", type=int, help="how long each rate is measured (default 60)")
    asked = parser.parse_args(arguments)
    rates = asked.rates or ((50, 200) if asked.quick else RATES)
    seconds = asked.seconds or (15 if asked.quick else 60)
    found: dict[str, dict[int, Found]] = {}
    with tempfile.TemporaryDirectory(prefix="wheel-bench-floor-") as name, LocalKafka() as kafka:
        ground = Ground(kafka.bootstrap, Path(name), Sizes(), [])
        for query in QUERIES:
            found[query] = measure(ground, query, rates, seconds, 20 if asked.quick else _WARM_S)
            about = json.loads((Path(name) / query / "about.json").read_text())
            jobs = about["jobs"] / max(about["batches"], 1)
            ground.say(f"{query}: {jobs:.1f} jobs a batch, {about['plan_lines']} lines of plan")
            ground.details[query] = about
    lines = lines_of(found)
    of_phases = {
        f"{query}, {rate:,}/s, ms": each.phases for query, of in found.items() for rate, each in of.items()
    }
    file = ROOT / "build" / "bench-floor.json"
    more = {"about": {"cores": os.cpu_count()}, "details": ground.details, "phases": of_phases}
    report.write_json(file, report.document(lines, more))
    print(f"\n{report.table(lines)}\n\n{report.phases_table(of_phases)}\n\nall figures: {file}")
    return 0 if all(line.met is not False for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
