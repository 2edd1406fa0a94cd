"""``make bench-store``: the slot store at rising numbers of pending entries; ratios in one run.

::

    make bench-store                             100 thousand, a million and 10 million (25 minutes on 2 cores)
    make bench-store ARGS='--pending 100000,100000000 --turns 3'
                                                 batch and lateness alone, of stores that take turns: beside a hundred million (25 minutes)
    make bench-store ARGS='--batches 2000'       files and log entries after so many batches, instead (25 minutes)
    make bench-store ARGS='--quick'              tiny sizes, to see that it works

For each number a store of its own is filled as an intake query would (batches of 250,000, of a million where it is
many; due at random over a year, 96 random bytes each). Then it is as if that had been long ago: the near windows,
where the wheel hears of each far entry, are retired, and small files are joined. What follows has the same arrivals
and the same due rows everywhere, so that only the far pending differs:

===========  ===================================================================================================================
batch        2,000 commands a second for a minute through a tiered run with a Delta sink: median seconds of a batch of either query
late         from the due time to the commit in the table, of the same run
idle         CPU seconds a minute of the same run when nothing comes any more
small        seconds that 1,000 commands take to be taken in (median of 15): what a batch of a quiet stream costs
hand-over    of one window with 20,000 entries: read, versions compared with all of the store, written, dropped; and of one whose entries were all cancelled
cascade      rows a second of a hand-over of 500,000
retire       of the windows of all of this: the CANCELs that far entries still have to meet become marks
stored       the cheap count
exact        the count without what is beaten
cancel       of a million, or of a tenth of what is pending if that is less, by predicate: picked, written, noted; taken by the keeper; and the CPU seconds of both (these up to 10 million)
disk         bytes an entry beyond its value
===========  ===================================================================================================================
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from tests.bench import report, store_traffic
from tests.bench.measure import CpuMeter
from tests.bench.report import Line, Target
from tests.bench.workplace import workplace
from wheel_udf.checkpoint.identity import open_checkpoint
from wheel_udf.commands.parse import Contract, parse_commands
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.pending.acts import Picked, cancel
from wheel_udf.pending.entries import PendingWork, count_far, count_pending
from wheel_udf.store.intake import stored_rows
from wheel_udf.store.layout import MARKS, StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tiered.keeper import Keeper

ROOT = Path(__file__).parents[2]
LAYOUT = StoreLayout(Wheel(1_000, 20, 6), state_levels=3)
QUICK_WINDOWS = StoreLayout(
    Wheel(1_000, 20, 6), state_levels=2
)  # of 400 s, so that many are over within the run
NOW_MS = wall_clock_ms()
T0_MS = NOW_MS // LAYOUT.window_ms * LAYOUT.window_ms - 4 * LAYOUT.window_ms
"""When the store was filled, as far as it knows."""
FAR_FROM_MS = NOW_MS + 86_400_000
YEAR_MS = 365 * 86_400_000
BATCH, LARGE_BATCH, MANY = 250_000, 1_000_000, 10_000_000
SMALL, IN_WINDOW, MANY_IN_WINDOW = 1_000, 20_000, 500_000


class Ground:
    """One store, and what was found of it."""

    def __init__(self, spark: SparkSession, folder: Path, count: int, layout: StoreLayout = LAYOUT) -> None:
        self.spark, self.count, self.batch = spark, count, 0
        self.folder = folder / str(count)
        self.what = store_traffic.wheel(layout, str(self.folder / "store"))
        self.store = SlotStore.open(spark, self.what.store, layout, create=True)
        self.app_id = open_checkpoint(
            str(self.folder / "checkpoint" / "intake"),
            name=store_traffic.NAME,
            wheel_fingerprint=layout.fingerprint(),
            shards=store_traffic.SHARDS,
            clock_kind=self.what.clock.kind,
        ).app_id
        self.work = PendingWork(str(self.folder / "checkpoint"), self.store)
        self.figures: dict[str, float] = {}

    def new_keeper(self) -> Keeper:
        """One that a run on the same checkpoint takes for its own."""
        return Keeper(self.store, app_id=self.app_id, on_change=lambda _: None)

    def commands(self, rows: int, from_ms: int, span_ms: int) -> DataFrame:
        """Rows with ids that no other batch has, due at random in a span."""
        numbers = self.spark.range(self.batch * 10_000_000, self.batch * 10_000_000 + rows, 1, 2)
        due_ms = F.lit(from_ms) + (F.rand(self.batch) * span_ms).cast("long")
        # Three hashes of 32 bytes: store_traffic.VALUE_BYTES, and as random.
        hashes = [F.unhex(F.sha2(F.concat(F.col("id"), F.lit(f"/{part}")), 256)) for part in range(3)]
        return numbers.select(
            F.concat(F.lit("order-"), F.col("id")).alias("schedule_id"),
            F.timestamp_millis(due_ms).alias("deliver_at"),
            F.timestamp_millis(F.lit(T0_MS)).alias("event_time"),
            F.lit("orders").alias("destination"),
            F.concat(*hashes).alias("value"),
        )

    def fill(self) -> None:
        """Appends what is to be pending, and lets it have been long ago."""
        keeper, size = self.new_keeper(), BATCH if self.count <= MANY else LARGE_BATCH
        keeper.start(T0_MS)
        took_s = 0.0
        for at in range(0, self.count, size):
            parsed = parse_commands(
                self.commands(min(size, self.count - at), FAR_FROM_MS, YEAR_MS), Contract()
            )
            rows = stored_rows(parsed, self.store.layout, cursor_ms=keeper.cursor_ms or 0, arrived=self.batch)
            took_s += _seconds(
                lambda rows=rows: self.store.append(rows, app_id=f"{self.app_id}-fill", batch_id=self.batch)
            )
            self.batch += 1
        self.figures["filled"] = self.count / took_s
        self.figures["fill seconds"] = took_s
        self.figures["bytes before"] = self._bytes() / self.count - store_traffic.VALUE_BYTES
        keeper.step(NOW_MS)
        keeper.retire(NOW_MS, memory_ms=0)
        sum(keeper.compact())
        self.figures["disk"] = self._bytes() / self.count - store_traffic.VALUE_BYTES
        self.figures["files"] = sum(partition.files for partition in self.store.partitions())

    def _bytes(self) -> int:
        return sum(partition.bytes for partition in self.store.partitions())

    def measure(self, sizes: store_traffic.Sizes, say: Callable[[str], None]) -> None:
        """Everything that the module names."""
        self.fill()
        say(f"{self.count:,}: {_text(self.figures)}")
        self.figures |= self.run_load(sizes, 0)
        say(f"{self.count:,}: {_text(self.figures)}")
        self._look_and_hand_over()
        say(f"{self.count:,}: {_text(self.figures)}")

    def run_load(self, sizes: store_traffic.Sizes, turn: int) -> dict[str, float]:
        """The figures of the load, which runs over this store for the first time or once more."""
        return store_traffic.measure(self.spark, self.what, self.folder, sizes, turn)

    def _look_and_hand_over(self) -> None:
        keeper, batches = self.new_keeper(), itertools.count(1_000_000)
        at_ms, window_ms = keeper.cursor_ms or 0, self.store.layout.window_ms

        def take_in(rows: int, from_ms: int, span_ms: int) -> float:
            parsed = parse_commands(self.commands(rows, from_ms, span_ms), Contract())
            self.batch += 1
            return _seconds(lambda: keeper.take_in(parsed, next(batches), lambda _: None))

        for number, rows in enumerate((IN_WINDOW, IN_WINDOW, MANY_IN_WINDOW), 1):
            take_in(rows, at_ms + number * window_ms, window_ms)
        self.figures["small"] = median([take_in(SMALL, FAR_FROM_MS, YEAR_MS) for _ in range(18)][3:])
        self.figures["stored"] = _seconds(lambda: count_far(self.store))
        if self.count <= MANY:
            self._count_and_cancel(keeper)
        second = Picked(where=_due_in(at_ms + 2 * window_ms, window_ms))
        cancel(self.spark, self.work, second)
        keeper.take_acts(self.work.query)
        # The first one moves the cursor to the window before; each of the next hands over a window.
        keeper.step(at_ms)
        self.figures["hand-over"] = _seconds(lambda: keeper.step(at_ms + window_ms))
        self.figures["cancelled hand-over"] = _seconds(lambda: keeper.step(at_ms + 2 * window_ms))
        self.figures["cascade"] = MANY_IN_WINDOW / _seconds(lambda: keeper.step(at_ms + 3 * window_ms))
        keeper.step(at_ms + 6 * window_ms)
        self.figures["retire"] = _seconds(lambda: keeper.retire(at_ms + 6 * window_ms, memory_ms=0))
        marks = [partition for partition in self.store.partitions() if partition.level == MARKS]
        self.figures["marks"] = sum(partition.rows for partition in marks)
        if marks:
            self.figures["mark bytes"] = sum(partition.bytes for partition in marks) / self.figures["marks"]

    def _count_and_cancel(self, keeper: Keeper) -> None:
        self.figures["exact"] = _seconds(lambda: count_pending(self.spark, self.work))
        share = min(1_000_000, self.count // 10) / self.count
        part = Picked(where=_due_in(FAR_FROM_MS, int(YEAR_MS * share)))
        self.figures["cancelled"] = share * self.count
        meter = CpuMeter()
        self.figures["cancel"] = _seconds(lambda: cancel(self.spark, self.work, part))
        self.figures["taken"] = _seconds(lambda: keeper.take_acts(self.work.query))
        self.figures["cancel CPU"] = meter.seconds()


def _due_in(from_ms: int, span_ms: int) -> str:
    return f"deliver_at >= timestamp_millis({from_ms}) AND deliver_at < timestamp_millis({from_ms + span_ms})"


def _take_turns(
    grounds: list[Ground], turns: int, sizes: store_traffic.Sizes, say: Callable[[str], None]
) -> None:
    """Fills all stores, and then runs the load over one after the other, so that a drift of the machine meets all:
    medians.
    """
    for ground in grounds:
        ground.fill()
        say(f"{ground.count:,}: {_text(ground.figures)}")
    found: dict[int, list[dict[str, float]]] = {ground.count: [] for ground in grounds}
    for turn in range(turns):
        for ground in grounds:
            found[ground.count].append(ground.run_load(sizes, turn))
            say(f"turn {turn + 1}, {ground.count:,}: {_text(found[ground.count][-1])}")
    for ground in grounds:
        of_ground = found[ground.count]
        ground.figures |= {name: median(each[name] for each in of_ground) for name in of_ground[0]}


def _text(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure:,.2f}" for name, figure in figures.items())


def _count_files(spark: SparkSession, folder: Path, batches: int, say: Callable[[str], None]) -> list[Line]:
    """A stream of 100 commands every 5 s, due within a day, with everything that the keeper does beside it: what stays
    behind?
    """
    ground = Ground(spark, folder, 0, QUICK_WINDOWS)
    keeper = ground.new_keeper()
    counts: dict[str, int] = {}
    for number in range(1, batches + 1):
        now_ms = T0_MS + number * 5_000
        parsed = parse_commands(ground.commands(100, now_ms, 86_400_000), Contract())
        keeper.take_in(parsed, ground.batch, lambda _, now_ms=now_ms: now_ms)
        ground.batch += 1
        keeper.step(now_ms)
        keeper.tidy()
        if number % 10 == 0:
            keeper.retire(now_ms, memory_ms=300_000)
            sum(keeper.compact())
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
    compared = {
        "intake batch": ("a batch of the intake", Target(at_most=1.25)),
        "wheel batch": ("a batch of the wheel", Target(at_most=1.25)),
        "small": ("intake, 1,000 commands", Target(at_most=1.25)),
        "hand-over": ("hand-over of 20,000", None),
        "cancelled hand-over": ("hand-over of 20,000 that were cancelled", None),
    }
    lines = [
        Line(
            case=name,
            what=f"{what}, {ground.count:,} pending",
            figure=ground.figures[name],
            unit="s",
            beside=least.figures[name],
            beside_what=f"at {least.count:,}",
            target=target,
        )
        for name, (what, target) in compared.items()
        for ground in grounds[1:] or grounds
        if name in ground.figures
    ]
    of = f"{most.count:,}"
    single = {
        "late p50": (f"lateness p50, {of} pending", "s", None),
        "late p99": (f"lateness p99, {of} pending", "s", Target(of="figure", at_most=2.5)),
        "late min": (f"lateness min, {of} pending", "s", Target(of="figure", at_least=0)),
        "idle CPU": ("CPU seconds of an idle minute", "s", None),
        "filled": ("intake in large batches", "/s", Target(of="figure", at_least=50_000)),
        "cascade": ("hand-over of 500,000", "/s", None),
        "retire": (f"retirement that leaves {most.figures.get('marks', 0):,.0f} marks", "s", None),
        "mark bytes": ("bytes a mark", "B", None),
        "stored": (f"`stored` of {of}", "s", Target(of="figure", at_most=1)),
        "exact": (f"exact count of {of}", "s", None),
        "cancel": (f"cancel of {most.figures.get('cancelled', 0):,.0f} by predicate", "s", None),
        "taken": ("the same, taken by the keeper", "s", None),
        "cancel CPU": ("CPU seconds of both", "s", None),
        "disk": ("bytes an entry beyond its value", "B", None),
    }
    return lines + [
        Line(case=name, what=what, figure=most.figures[name], unit=unit, target=target)
        for name, (what, unit, target) in single.items()
        if name in most.figures
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.store_run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument(
        "--batches", type=int, metavar="N", help="count files and log entries after N batches, instead"
    )
    parser.add_argument(
        "--pending", default="100000,1000000,10000000", help="numbers of pending entries, rising"
    )
    parser.add_argument(
        "--turns", type=int, metavar="N", help="the load alone, N times over each store in turns"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-store.json", help="the JSON file")
    asked = parser.parse_args(arguments)
    counts = [5_000, 20_000] if asked.quick else [int(each) for each in asked.pending.split(",")]
    with workplace("store", "4g") as (spark, folder, say):
        Ground(spark, folder, 2_000).measure(store_traffic.Sizes(rate=200, seconds=20, idle_s=1), say)
        grounds = [Ground(spark, folder, count) for count in (() if asked.batches else counts)]
        sizes = store_traffic.Sizes(rate=200, seconds=20, idle_s=4) if asked.quick else store_traffic.Sizes()
        if asked.turns:
            _take_turns(grounds, asked.turns, sizes, say)
        else:
            for ground in grounds:
                ground.measure(sizes, say)
                shutil.rmtree(ground.folder)
        lines = _count_files(spark, folder, asked.batches, say) if asked.batches else _lines(grounds)
    figures = {f"{ground.count:,}": ground.figures for ground in grounds}
    report.write_json(asked.out, report.document(lines, {"figures": figures}))
    print(f"\n{report.table(lines)}\n\nall figures: {asked.out}")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
