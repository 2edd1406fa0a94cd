"""``make bench-store``: the slot store at rising numbers of pending entries; ratios in one run.

::

    make bench-store                             100 thousand and a million
    make bench-store ARGS='--pending 100000,10000000'
    make bench-store ARGS='--batches 2000'       files and log entries after so many batches, instead (15 minutes)
    make bench-store ARGS='--quick'              tiny sizes, to see that it works

For each number a store of its own is filled by the keeper as an intake query would (batches of 250,000, due at random over a year, 96 random
bytes each), and then, with the same arrivals and the same due rows everywhere, so that only the far pending differ:

===========  ===================================================================================================================
small batch  seconds that 1,000 commands take to be taken in (median of 15): what a batch of a quiet stream costs
hand-over    of one window with 20,000 entries: read, versions compared with all of the store, written, dropped
stored       the cheap count; exact: the count without what is beaten
cancel       of a tenth of what is pending, by predicate: picked, written, noted
disk         bytes an entry beyond its value
===========  ===================================================================================================================
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.bench import report
from tests.bench.report import Line, Target
from wheel_udf.acts import Picked, cancel
from wheel_udf.commands import Contract, parse
from wheel_udf.geometry import Wheel as Geometry
from wheel_udf.pending import Wheel, pending, stored
from wheel_udf.session import build_session, stop_session
from wheel_udf.slot_store import SlotStore
from wheel_udf.store_keeper import Keeper
from wheel_udf.store_layout import StoreLayout

ROOT = Path(__file__).parents[2]
LAYOUT = StoreLayout(Geometry(1_000, 20, 6), state_levels=3)
QUICK_WINDOWS = StoreLayout(
    Geometry(1_000, 20, 6), state_levels=2
)  # of 400 s, so that many are over within the run
T0_MS = 1_760_000_000_000 // LAYOUT.window_ms * LAYOUT.window_ms
VALUE_BYTES = 96  # three hashes: random, so that no compression flatters what an entry takes beside it
YEAR_MS = 365 * 86_400_000
BATCH, SMALL, IN_WINDOW = 250_000, 1_000, 20_000


class Ground:
    """One store, and what was found of it."""

    def __init__(self, spark: SparkSession, folder: Path, count: int, layout: StoreLayout = LAYOUT) -> None:
        self.spark, self.count, self.batch = spark, count, 0
        self.store = SlotStore.open(spark, str(folder / f"store{count}"), layout, create=True)
        self.keeper = Keeper(self.store, app_id="bench", on_change=lambda _: None)
        self.wheel = Wheel(str(folder / f"checkpoint{count}"), self.store)
        self.figures: dict[str, float] = {}

    def commands(self, rows: int, from_ms: int, span_ms: int) -> DataFrame:
        """Rows with ids that no other batch has, due at random in a span."""
        numbers = self.spark.range(self.batch * 1_000_000, self.batch * 1_000_000 + rows, 1, 2)
        due_ms = F.lit(from_ms) + (F.rand(self.batch) * span_ms).cast("long")
        hashes = [F.unhex(F.sha2(F.concat(F.col("id"), F.lit(f"/{part}")), 256)) for part in range(3)]
        return numbers.select(
            F.concat(F.lit("order-"), F.col("id")).alias("schedule_id"),
            F.timestamp_millis(due_ms).alias("deliver_at"),
            F.timestamp_millis(F.lit(T0_MS)).alias("event_time"),
            F.lit("orders").alias("destination"),
            F.concat(*hashes).alias("value"),
        )

    def take_in(self, rows: int, from_ms: int, span_ms: int) -> float:
        """Seconds that a batch takes from parsing to commit."""
        parsed = parse(self.commands(rows, from_ms, span_ms), Contract())
        seconds = _seconds(lambda: self.keeper.take_in(parsed, self.batch, lambda _: T0_MS))
        self.batch += 1
        return seconds

    def measure(self, say: Callable[[str], None]) -> None:
        """Everything that the module names."""
        sizes = [min(BATCH, self.count - at) for at in range(0, self.count, BATCH)]
        took = [self.take_in(size, T0_MS + 86_400_000, YEAR_MS) for size in sizes]
        self.figures["filled"] = sum(sizes) / sum(took)
        said = sum(p.bytes for p in self.store.partitions()) / self.count - VALUE_BYTES
        self.figures["disk"] = said
        say(
            f"{self.count:,} filled at {self.figures['filled']:,.0f}/s, {said:.0f} bytes an entry beyond its value"
        )
        self.take_in(IN_WINDOW, T0_MS + 2 * LAYOUT.window_ms, LAYOUT.window_ms)
        self.figures["small"] = median(
            [self.take_in(SMALL, T0_MS + 86_400_000, YEAR_MS) for _ in range(18)][3:]
        )
        self.figures["stored"] = _seconds(lambda: stored(self.store))
        self.figures["exact"] = _seconds(lambda: pending(self.spark, self.wheel).count())
        tenth = Picked(where=f"deliver_at < timestamp_millis({T0_MS + 86_400_000 + YEAR_MS // 10})")
        self.figures["cancel"] = _seconds(lambda: cancel(self.spark, self.wheel, tenth))
        # The first one moves the cursor to the window before; the next one hands over the window itself.
        self.keeper.step(T0_MS + LAYOUT.window_ms)
        self.figures["hand-over"] = _seconds(lambda: self.keeper.step(T0_MS + 2 * LAYOUT.window_ms))
        say(", ".join(f"{name} {figure:,.2f}" for name, figure in self.figures.items()))


def _count_files(spark: SparkSession, folder: Path, batches: int, say: Callable[[str], None]) -> list[Line]:
    """A stream of 100 commands every 5 s, due within a day, with everything that the keeper does beside it: what stays behind?"""
    ground = Ground(spark, folder, 0, QUICK_WINDOWS)
    counts: dict[str, int] = {}
    for number in range(1, batches + 1):
        now_ms = T0_MS + number * 5_000
        parsed = parse(ground.commands(100, now_ms, 86_400_000), Contract())
        ground.keeper.take_in(parsed, ground.batch, lambda _, now_ms=now_ms: now_ms)
        ground.batch += 1
        ground.keeper.step(now_ms)
        ground.keeper.tidy()
        if number % 10 == 0:
            ground.keeper.retire(now_ms, memory_ms=300_000)
            ground.keeper.compact()
        if number % max(1, batches // 20) == 0:
            partitions = ground.store.partitions()
            log = [file.suffix for file in (Path(ground.store.path) / "_delta_log").iterdir()]
            counts = {
                "partitions": len(partitions),
                "files": sum(p.files for p in partitions),
                "near files": sum(p.files for p in partitions if p.level == 0),
                "rows": sum(p.rows for p in partitions),
                "log entries": log.count(".json"),
                "log checkpoints": log.count(".parquet"),
            }
            say(f"{number:,} batches: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    return [
        Line(case="files", what=f"{name} after {batches:,} batches", figure=count, unit="")
        for name, count in counts.items()
    ]


def _seconds(do: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    do()
    return time.perf_counter() - began_s


def _lines(grounds: list[Ground]) -> list[Line]:
    least, most = grounds[0], grounds[-1]
    lines = []
    targets = {
        "small": ("intake, 1,000 commands", Target(at_most=1.25)),
        "hand-over": ("hand-over of 20,000", None),
    }
    for name, (what, target) in targets.items():
        for ground in grounds[1:]:
            beside = f"at {least.count:,}"
            figure, other = ground.figures[name], least.figures[name]
            lines.append(Line(case=name, what=f"{what}, {ground.count:,} pending", figure=figure, unit="s", beside=other, beside_what=beside, target=target))  # fmt: skip
    of = f"{most.count:,}"
    lines += [
        Line(case="filled", what="intake in batches of 250,000", figure=most.figures["filled"], unit="/s", target=Target(of="figure", at_least=50_000)),
        Line(case="stored", what=f"`stored` of {of}", figure=most.figures["stored"], unit="s", target=Target(of="figure", at_most=1)),
        Line(case="exact", what=f"exact count of {of}", figure=most.figures["exact"], unit="s"),
        Line(case="cancel", what=f"cancel of a tenth of {of} by predicate", figure=most.figures["cancel"], unit="s"),
        Line(case="disk", what="bytes an entry beyond its value", figure=most.figures["disk"], unit="B"),
    ]  # fmt: skip
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.store_run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument(
        "--batches", type=int, metavar="N", help="count files and log entries after N batches, instead"
    )
    parser.add_argument("--pending", default="100000,1000000", help="numbers of pending entries, rising")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-store.json", help="the JSON file")
    asked = parser.parse_args(arguments)
    counts = [5_000, 20_000] if asked.quick else [int(each) for each in asked.pending.split(",")]
    folder, began_s = Path(tempfile.mkdtemp(prefix="wheel-bench-store-")), time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {text}", flush=True)

    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
    }
    spark = build_session("wheel_udf store bench", master="local[2]", conf=settings)
    try:
        warm = Ground(spark, folder, 2_000)
        warm.measure(lambda _: None)
        grounds = [Ground(spark, folder, count) for count in (() if asked.batches else counts)]
        for ground in grounds:
            ground.measure(say)
        lines = _count_files(spark, folder, asked.batches, say) if asked.batches else _lines(grounds)
    finally:
        stop_session(spark)
        shutil.rmtree(folder, ignore_errors=True)
    figures = {f"{ground.count:,}": ground.figures for ground in grounds}
    report.write_json(asked.out, report.document(lines, {"figures": figures}))
    print(f"\n{report.table(lines)}\n\nall figures: {asked.out}")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
