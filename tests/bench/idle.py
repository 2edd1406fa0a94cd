"""Case d: what it costs to wait. Ticks in which nothing is due and nothing is new, and minutes in which not even a
tick is needed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.bench import measure
from tests.bench.ground import (
    SETTLE,
    SHARDS,
    STEADY_INTERVAL_MS,
    Bench,
    BenchError,
    commands,
    is_fired,
    wheel,
    without_operator,
)
from tests.bench.loads import T0_MS, Load
from tests.bench.report import Line, Target
from wheel_udf import BatchReport, Destinations, FileSink, ProcessingClock, SimulatedClock, deliver
from wheel_udf.control.wall import wall_clock_ms

HEARTBEAT_MS = 60_000


def when_idle(bench: Bench) -> None:
    """Case d: what it costs to wait."""
    _idle_ticks(bench)
    _idle_minutes(bench)


def _idle_ticks(bench: Bench) -> None:
    batches = bench.sizes.batches
    instants = tuple(T0_MS + 1 + second * 1_000 for second in range(1 + SETTLE + batches))
    steady = bench.measure(
        f"d, idle tick, {bench.sizes.idle_pending:,} pending",
        lambda load: load.add_far(bench.sizes.idle_pending),
        lambda stream: wheel(stream, SimulatedClock(instants_ms=instants)),
        is_fired(),
        first=1 + SETTLE,
        batches=batches,
        rows_out=0,
    )
    beside = bench.measure(
        f"d, without the operator, {SHARDS} rows a batch",
        lambda load: load.add_near(SHARDS, STEADY_INTERVAL_MS, batches=SETTLE + batches),
        without_operator,
        F.lit(True),
        first=SETTLE,
        batches=batches,
        rows_out=SHARDS,
    )
    written = sum(batch.state_rows_written or 0 for batch in steady)
    nothing = Target(of="figure", at_most=0)
    bench.lines += [
        Line(
            case="d",
            what=f"state rows written in {batches} idle ticks",
            figure=written,
            unit="",
            target=nothing,
        ),
        Line(
            case="d",
            what=f"an idle tick, {bench.sizes.idle_pending:,} pending",
            figure=measure.seconds_of(steady),
            unit="s",
            beside=measure.seconds_of(beside),
            beside_what=f"operator taken out, {SHARDS} rows",
        ),
    ]


def _idle_minutes(bench: Bench) -> None:
    minutes = bench.idle_minutes
    bench.say(f"d, {minutes:g} idle minutes under deliver()")
    used, batches = _idle(bench, minutes, _start_wheel)
    # The query without the operator needs no heartbeat, so a part of the time says it all.
    beside_minutes = max(minutes / 5, 0.1)
    bench.say(f"d, {beside_minutes:g} idle minutes without the operator")
    beside, _ = _idle(bench, beside_minutes, _start_without)
    heartbeats = int(minutes * 60_000 / HEARTBEAT_MS)
    bench.details["d, idle minutes"] = {
        "minutes": minutes,
        "cpu_seconds": used,
        "micro_batches": batches,
        "minutes_without_operator": beside_minutes,
        "cpu_seconds_without_operator": beside,
        "heartbeat_ms": HEARTBEAT_MS,
    }
    bench.lines += [
        Line(
            case="d",
            what=f"micro-batches in {minutes:g} idle minutes",
            figure=batches,
            unit="",
            target=Target(of="figure", at_least=max(heartbeats - 1, 0), at_most=heartbeats + 1),
        ),
        Line(
            case="d",
            what=f"CPU seconds of {minutes:g} idle minutes",
            figure=used,
            unit="CPU s",
            beside=beside * minutes / beside_minutes,
            beside_what=f"operator taken out (measured over {beside_minutes:g} min)",
        ),
    ]


def _idle(
    bench: Bench, minutes: float, start: Callable[[Bench, Path, list[int]], StreamingQuery]
) -> tuple[float, int]:
    """CPU seconds and micro-batches of a query that has taken in its load and then has nothing to do."""
    place = bench.folder / "idle"
    Load(place / "commands", now_ms=wall_clock_ms()).add_far(bench.sizes.idle_pending)
    pending: list[int] = []
    query = start(bench, place, pending)
    try:
        if pending[-1:] != [bench.sizes.idle_pending]:
            raise BenchError(f"pending before the idle minutes: {pending}")
        batches = len(pending)
        used = measure.cpu_seconds_over(minutes * 60)
        if not query.isActive:
            raise BenchError(f"the idle query ended: {query.exception()}")
        return used, len(pending) - batches
    finally:
        query.stop()
        shutil.rmtree(place, ignore_errors=True)


def _start_wheel(bench: Bench, place: Path, pending: list[int]) -> StreamingQuery:
    def on_batch(report: BatchReport) -> None:
        pending.append(report.pending)

    query = deliver(
        wheel(commands(bench.spark, place / "commands"), ProcessingClock(heartbeat_ms=HEARTBEAT_MS)),
        destinations=Destinations({"*": FileSink(str(place / "out"))}),
        rejects=FileSink(str(place / "rejects")),
        checkpoint=str(place / "checkpoint"),
        name="idle",
        on_batch=on_batch,
    )
    _wait_until(lambda: bool(pending) and not query.status["isTriggerActive"], query)
    return query


def _start_without(bench: Bench, place: Path, pending: list[int]) -> StreamingQuery:
    query = (
        without_operator(commands(bench.spark, place / "commands"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    _wait_until(lambda: bool(query.recentProgress) and not query.status["isTriggerActive"], query)
    pending.append(bench.sizes.idle_pending)
    return query


def _wait_until(is_so: Callable[[], bool], query: StreamingQuery, at_most_s: float = 300) -> None:
    for _ in range(int(at_most_s / 0.2)):
        if is_so():
            return
        if not query.isActive:
            raise BenchError(f"the idle query ended: {query.exception()}")
        time.sleep(0.2)
    raise BenchError(f"the idle query was not ready within {at_most_s:g} s")
