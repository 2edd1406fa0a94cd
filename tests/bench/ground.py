"""What every case stands on: the sizes, the queries that are compared, and how one is run over a load and checked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from tests.bench import measure
from tests.bench.loads import SCHEMA_DDL, Load
from tests.bench.measure import Batch
from tests.bench.report import Line
from wheel_udf import Contract, EventClock, Wheel, schedule
from wheel_udf.commands.parse import parse_commands
from wheel_udf.control.clocks import Clock
from wheel_udf.stream.sharded_query import HEADERS_TYPE

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
SHARDS = 4
INTERVAL_MS = 10_000
STEADY_INTERVAL_MS = 1_000
SETTLE = 2
"""Batches between the last that fills and the first that is measured."""


class BenchError(Exception):
    """A query did not do what it was measured for."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the loads are, and what they should come to.

    Attributes:
        naive_rows: Case a: commands a batch, and how many times the naive one's throughput is wanted (``None``: too
            small to tell).
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
        in_files: bool = True,
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
            in_files: See :func:`tests.bench.measure.run`.

        Raises:
            BenchError: Batches are missing, or other numbers of rows came out.
        """
        place = self.folder / name.replace(" ", "_").replace(",", "")
        fill(Load(place / "commands"))
        self.say(name)
        meter = measure.CpuMeter()
        try:
            frame = build(commands(self.spark, place / "commands"))
            done = measure.run(frame, place / "checkpoint", counted=counted, in_files=in_files)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        steady = [batch for batch in done if first <= batch.number < first + batches]
        out = [batch.rows_out for batch in steady]
        if out != [rows_out] * batches:
            raise BenchError(f"{name}: rows out of {batches} batches: {out}; should be {rows_out} in each")
        # Of the whole run, its first batches too: unlike the times it is hardly changed by others on the machine.
        used = {"cpu_seconds_of_run": meter.seconds(), "batches_of_run": len(done)}
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
    parsed = parse_commands(stream, Contract())
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


def is_fired() -> Column:
    """Which rows of the wheel's query count."""
    return F.col("kind") == "fired"
