"""The cases of the bench. Each sets the wheel beside something else, on the same load, in the same session, one after the other.

====  ==================================================  ==============================================================
case  the wheel                                           beside
====  ==================================================  ==============================================================
a     :func:`wheel_udf.schedule`                          one key per message and a timeout (:mod:`tests.bench.naive`)
b     the same query                                      the same query with the operator taken out
c     more pending, all far; more ids remembered          the least pending; next to none remembered
d     ticks in which nothing is due and nothing is new    the query without the operator, over files of a row per shard
====  ==================================================  ==============================================================

Every query has the project's settings (RocksDB with changelogs), reads Parquet, one file a batch, and writes all columns of all rows to
Spark's ``noop`` sink; the idle minutes of case d run under :func:`wheel_udf.deliver`. A query's first batches (a small one to warm up, those that
fill it) are not measured. How many rows came out is checked: a query that does nothing is fast.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.bench import measure
from tests.bench.loads import SCHEMA_DDL, T0_MS, Load
from tests.bench.measure import Batch
from tests.bench.naive import schedule_naively
from tests.bench.report import Line, Target, slope_per_million
from wheel_udf import EventClock, ProcessingClock, SimulatedClock, Wheel, deliver, schedule
from wheel_udf.clock import Clock, wall_clock_ms
from wheel_udf.commands import Contract, parse
from wheel_udf.metrics import BatchReport
from wheel_udf.operator import DEFAULT_MEMORY_MS, HEADERS_TYPE
from wheel_udf.sinks import Destinations, FileSink

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
SHARDS = 4
INTERVAL_MS = 10_000
STEADY_INTERVAL_MS = 1_000
HEARTBEAT_MS = 60_000
_SETTLE = 2
_MEMORY_FILLS = 15


class BenchError(Exception):
    """A query did not do what it was measured for."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the loads are, and what they should come to.

    Attributes:
        naive_rows: Case a: commands a batch, and how many times the naive one's throughput is wanted (``None``: too small to tell).
        naive_batches: Case a: measured batches of the naive one; the wheel has `batches`.
        rows: Case b: commands a batch.
        warm_up_rows: Commands in the first batch of a and b.
        batches: Measured batches of each query.
        rounds: Case b: how many times the two take turns.
        pending: Case c: how many are pending, all far.
        arrivals: Case c: commands in a steady batch.
        fill_rows: Case c: most commands in a batch that fills.
        remembered: Case c: how many ids are remembered when memory is full.
        idle_pending: Case d: how many are pending, all far.
    """

    naive_rows: tuple[tuple[int, float | None], ...]
    naive_batches: int
    rows: int
    warm_up_rows: int
    batches: int
    rounds: int
    pending: tuple[int, ...]
    arrivals: int
    fill_rows: int
    remembered: int
    idle_pending: int


FULL = Sizes(
    naive_rows=((20_000, 20.0), (100_000, 50.0)),
    naive_batches=1,
    rows=100_000,
    warm_up_rows=2_000,
    batches=7,
    rounds=2,
    pending=(10_000, 100_000, 1_000_000),
    arrivals=2_000,
    fill_rows=250_000,
    remembered=600_000,
    idle_pending=100_000,
)
QUICK = Sizes(
    naive_rows=((500, None), (1_000, None)),
    naive_batches=1,
    rows=5_000,
    warm_up_rows=200,
    batches=3,
    rounds=1,
    pending=(1_000, 2_000, 5_000),
    arrivals=200,
    fill_rows=2_500,
    remembered=6_000,
    idle_pending=1_000,
)


@dataclass
class Bench:
    """One run: where it works, and what it has found so far.

    Attributes:
        spark: The session.
        folder: Scratch folder; each query's files are removed when it has been measured.
        sizes: How large the loads are.
        idle_minutes: How long the idle query of case d runs.
        say: Told what is being done.
        lines: The comparisons.
        details: What they were made from, by case and query.
    """

    spark: SparkSession
    folder: Path
    sizes: Sizes
    idle_minutes: float
    say: Callable[[str], None]
    lines: list[Line] = field(default_factory=list)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)

    def measure(
        self,
        name: str,
        fill: Callable[[Load], object],
        build: Callable[[DataFrame], DataFrame],
        counted: Column,
        *,
        first: int,
        batches: int,
        rows_out: int,
    ) -> list[Batch]:
        """Runs a query over a load and answers its steady batches.

        Args:
            name: Names the query in messages and details, its case first.
            fill: Makes the load.
            build: Makes the query's frame from the commands.
            counted: Which of its rows to count.
            first: Number of the first batch to measure.
            batches: How many.
            rows_out: How many rows each of them must bring out.

        Raises:
            BenchError: Batches are missing, or other numbers of rows came out.
        """
        place = self.folder / name.replace(" ", "_").replace(",", "")
        fill(Load(place / "commands"))
        self.say(name)
        before = measure.cpu_seconds()
        try:
            done = measure.run(
                build(commands(self.spark, place / "commands")), place / "checkpoint", counted=counted
            )
        finally:
            shutil.rmtree(place, ignore_errors=True)
        steady = [batch for batch in done if first <= batch.number < first + batches]
        out = [batch.rows_out for batch in steady]
        if out != [rows_out] * batches:
            raise BenchError(f"{name}: rows out of {batches} batches: {out}; should be {rows_out} in each")
        # Of the whole run, its first batches too: unlike the times it is hardly changed by others on the machine.
        used = {"cpu_seconds_of_run": measure.cpu_seconds() - before, "batches_of_run": len(done)}
        self.details[name] = measure.record_of(steady) | used
        self.say(f"{name}: {measure.seconds_of(steady):.2f} s a batch")
        return steady


def commands(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of a load's files, one a batch."""
    return spark.readStream.schema(SCHEMA_DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))


def wheel(stream: DataFrame, clock: Clock | None = None) -> DataFrame:
    """The query that is measured: by default under the event clock, which holds for data of any year."""
    return schedule(stream, wheel=WHEEL, clock=clock or EventClock(max_ahead_ms=None), shards=SHARDS)


def without_operator(stream: DataFrame) -> DataFrame:
    """The wheel's query with the wheel taken out: commands are parsed, and go on with the columns of a delivery."""
    parsed = parse(stream, Contract())
    identity = F.concat_ws("\x1f", "schedule_id", "seq", F.lit(0), "deliver_at_ms")
    return parsed.select(
        "schedule_id",
        "seq",
        F.md5(identity.cast("binary")).alias("fire_id"),
        "destination",
        "key",
        "value",
        F.from_json("headers", HEADERS_TYPE).alias("headers"),
        F.timestamp_millis("deliver_at_ms").alias("deliver_at"),
        F.timestamp_millis("event_time_ms").alias("fired_at"),
        (F.col("event_time_ms") - F.col("deliver_at_ms")).alias("lateness_ms"),
        "error_code",
        "error_message",
        "record",
        "source",
    )


def _is_fired() -> Column:
    return F.col("kind") == "fired"


def warm_up(bench: Bench) -> None:
    """Each kind of query once, so that no case pays for the JVM's first time."""
    for name, build, counted in (
        ("without the operator", without_operator, F.lit(True)),
        ("wheel", wheel, _is_fired()),
        ("naive", schedule_naively, F.lit(True)),
    ):
        place = bench.folder / "warm_up"
        Load(place / "commands").add_near(100, INTERVAL_MS, batches=2)
        bench.say(f"warm-up, {name}")
        measure.run(build(commands(bench.spark, place / "commands")), place / "checkpoint", counted=counted)
        shutil.rmtree(place)


def against_naive(bench: Bench) -> None:
    """Case a: rows per second of the wheel and of one key per message. Each measured batch takes n in and fires n."""
    for rows, wanted in bench.sizes.naive_rows:
        seconds = []
        for name, build, counted, batches in (
            ("wheel", wheel, _is_fired(), bench.sizes.batches),
            ("naive", schedule_naively, F.lit(True), bench.sizes.naive_batches),
        ):
            steady = _throughput(bench, f"a, {name}, {rows:,} a batch", rows, build, counted, batches)
            seconds.append(measure.seconds_of(steady))
        rates = [rows / each for each in seconds]
        target = None if wanted is None else Target(at_least=wanted)
        what = f"{rows:,} in and {rows:,} fired a batch"
        bench.lines.append(
            Line(
                case="a",
                what=what,
                figure=rates[0],
                unit="rows/s",
                beside=rates[1],
                beside_what="one key per message",
                target=target,
            )
        )


def against_pass_through(bench: Bench) -> None:
    """Case b: the share of throughput that is kept, by turns so that a drift of the machine meets both."""
    rows, batches = bench.sizes.rows, bench.sizes.batches
    with_wheel: list[Batch] = []
    without: list[Batch] = []
    for turn in range(1, bench.sizes.rounds + 1):
        name = f"{rows:,} a batch, turn {turn}"
        without += _throughput(
            bench, f"b, without the operator, {name}", rows, without_operator, F.lit(True), batches
        )
        with_wheel += _throughput(bench, f"b, wheel, {name}", rows, wheel, _is_fired(), batches)
    bench.lines.append(
        Line(
            case="b",
            what=f"share of throughput kept, {rows:,} a batch",
            figure=rows / measure.seconds_of(with_wheel),
            unit="rows/s",
            beside=rows / measure.seconds_of(without),
            beside_what="operator taken out",
        )
    )


def _throughput(
    bench: Bench,
    name: str,
    rows: int,
    build: Callable[[DataFrame], DataFrame],
    counted: Column,
    batches: int,
) -> list[Batch]:
    # Batch 0 warms up, batch 1 fills, and from batch 2 on as much comes out as goes in.
    def fill(load: Load) -> None:
        load.add_near(bench.sizes.warm_up_rows, INTERVAL_MS)
        load.add_near(rows, INTERVAL_MS, batches=1 + batches)

    return bench.measure(name, fill, build, counted, first=2, batches=batches, rows_out=rows)


def by_pending(bench: Bench) -> None:
    """Case c: batch time by how much is pending or remembered, with the same arrivals and the same firings."""
    sizes = bench.sizes
    seconds = {pending: _with_pending(bench, f"c, {pending:,} pending", pending) for pending in sizes.pending}
    least = min(seconds)
    about = f"{sizes.arrivals:,} in and fired"
    bench.lines += [
        Line(
            case="c",
            what=f"a batch at {pending:,} pending, {about}",
            figure=each,
            unit="s",
            beside=seconds[least],
            beside_what=f"{least:,} pending",
        )
        for pending, each in seconds.items()
        if pending != least
    ]
    bench.lines.append(
        Line(case="c", what="each million pending more", figure=slope_per_million(seconds), unit="s a batch")
    )
    full = _with_pending(
        bench, f"c, {least:,} pending, {sizes.remembered:,} remembered", least, sizes.remembered
    )
    bench.lines.append(
        Line(
            case="c",
            what=f"a batch at {sizes.remembered:,} ids remembered, {about}",
            figure=full,
            unit="s",
            beside=seconds[least],
            beside_what="memory next to empty",
        )
    )


def _with_pending(bench: Bench, name: str, pending: int, remembered: int = 0) -> float:
    sizes = bench.sizes
    far = [min(sizes.fill_rows, pending - at) for at in range(0, pending, sizes.fill_rows)]
    memory_fills = _MEMORY_FILLS if remembered else 0

    def fill(load: Load) -> None:
        for rows in far:
            load.add_far(rows)
        # Ended ids spread over the whole time of remembrance, as a stream of that rate leaves them.
        rows, interval_ms = remembered // _MEMORY_FILLS, DEFAULT_MEMORY_MS // _MEMORY_FILLS
        load.add_near(rows, interval_ms, batches=memory_fills)
        load.add_near(sizes.arrivals, STEADY_INTERVAL_MS, batches=_SETTLE + sizes.batches)

    first = len(far) + memory_fills + _SETTLE
    return measure.seconds_of(
        bench.measure(
            name, fill, wheel, _is_fired(), first=first, batches=sizes.batches, rows_out=sizes.arrivals
        )
    )


def when_idle(bench: Bench) -> None:
    """Case d: what it costs to wait."""
    _idle_ticks(bench)
    _idle_minutes(bench)


def _idle_ticks(bench: Bench) -> None:
    batches = bench.sizes.batches
    instants = tuple(T0_MS + 1 + second * 1_000 for second in range(1 + _SETTLE + batches))
    steady = bench.measure(
        f"d, idle tick, {bench.sizes.idle_pending:,} pending",
        lambda load: load.add_far(bench.sizes.idle_pending),
        lambda stream: wheel(stream, SimulatedClock(instants_ms=instants)),
        _is_fired(),
        first=1 + _SETTLE,
        batches=batches,
        rows_out=0,
    )
    beside = bench.measure(
        f"d, without the operator, {SHARDS} rows a batch",
        lambda load: load.add_near(SHARDS, STEADY_INTERVAL_MS, batches=_SETTLE + batches),
        without_operator,
        F.lit(True),
        first=_SETTLE,
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
        before, batches = measure.cpu_seconds(), len(pending)
        time.sleep(minutes * 60)
        used = measure.cpu_seconds() - before
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


CASES: dict[str, Callable[[Bench], None]] = {
    "a": against_naive,
    "b": against_pass_through,
    "c": by_pending,
    "d": when_idle,
}


def phases(bench: Bench) -> dict[str, dict[str, float]]:
    """The phases of every query measured, by its name."""
    return {name: record["phases_ms"] for name, record in bench.details.items() if "phases_ms" in record}


def sequence(letters: Sequence[str]) -> list[Callable[[Bench], None]]:
    """The cases with these letters, in their own order."""
    return [case for letter, case in CASES.items() if letter in letters]
