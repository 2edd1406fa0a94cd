"""``make bench-watch``: the purgatory on Spark at rising numbers of pending operations, beside one group per operation;
and the reference in memory.

::

    make bench-watch                       10 thousand, 100 thousand and a million (the naive operator up to 100 thousand; 10 minutes on 2 cores)
    make bench-watch ARGS='--quick'        tiny sizes, to see that it works

Both queries read the same files, one a batch, on the event clock, and their outcomes go nowhere. The first file holds
the operations that wait (each for one event, until tomorrow); each further one as many new operations as it has events
that complete older ones, so that as many wait after it as before. What is told is the median of the batches after the
second: operations that came and as many that completed, a second. Batches are large (30,000 of each), since half a
second of each is Spark's own, whatever is in it: 10,000 of each make 13 times as many as a group for each, these more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import report
from tests.bench.report import Line, Target
from tests.bench.workplace import workplace

ROOT = Path(__file__).parents[2]
START_MS = 1_700_000_000_000
TOMORROW_MS = START_MS + 86_400_000
BATCHES = 5


def _write(folder: Path, pending: int, batch: int) -> None:
    """Files of operations and events, one of each for a batch."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("operations", "events"):
        (folder / name).mkdir(parents=True)
    first, done = 0, 0
    for number in range(BATCHES):
        size, ended = (pending, 0) if number == 0 else (batch, batch)
        ids = np.arange(first, first + size)
        first += size
        over = np.arange(done, done + ended)
        done += ended
        time_ms = START_MS + number * 1_000
        tables = {
            "operations": {"op_id": ids, "deadline_ms": np.full(size, TOMORROW_MS)},
            "events": {"op_id": over},
        }
        for name, columns in tables.items():
            ids = columns["op_id"]
            table = pa.table(
                {
                    **columns,
                    "op_id": pa.array(ids).cast(pa.string()),
                    "time_ms": pa.array(np.full(len(ids), time_ms)),
                }
            )
            file = folder / name / f"{number:04}.parquet"
            pq.write_table(table, file)
            os.utime(file, (1_000_000 + number, 1_000_000 + number))


class Ground:
    """Both queries over the same files."""

    def __init__(self, spark: Any, folder: Path, pending: int, batch: int) -> None:
        self.spark, self.folder, self.pending, self.batch = spark, folder / f"{pending}", pending, batch
        _write(self.folder, pending, batch)

    def read(self, name: str) -> Any:
        more = ", deadline_ms long" if name == "operations" else ""
        reader = self.spark.readStream.schema(f"op_id string, time_ms long{more}").option(
            "maxFilesPerTrigger", 1
        )
        return reader.parquet(str(self.folder / name))

    def purgatory(self) -> float:
        """Seconds of a batch of ``watch()``."""
        from wheel_udf.common.geometry import Wheel
        from wheel_udf.control.clocks import EventClock
        from wheel_udf.stream.watch_operator import watch

        operations = self.read("operations").selectExpr(
            "op_id", "op_id AS `group`", "array('done') AS keys", "timestamp_millis(deadline_ms) AS deadline",
            "timestamp_millis(time_ms) AS event_time",
        )  # fmt: skip
        events = self.read("events").selectExpr(
            "op_id AS `group`", "'done' AS key", "timestamp_millis(time_ms) AS event_time"
        )
        clock = EventClock(max_ahead_ms=None)
        wheel = Wheel(tick_ms=1_000, size=20, levels=5)
        return self._seconds(
            "purgatory", watch(operations, events, wheel=wheel, clock=clock, shards=2, memory_ms=60_000)
        )

    def naive(self) -> float:
        """Seconds of a batch with a group for each operation."""
        from pyspark.sql.streaming.state import GroupStateTimeout

        from tests.bench.naive_watch import OUTPUT, STATE, one_operation

        operations = self.read("operations").selectExpr(
            "op_id", "time_ms", "deadline_ms", "false AS is_event"
        )
        events = self.read("events").selectExpr("op_id", "time_ms", "0L AS deadline_ms", "true AS is_event")
        rows = operations.unionByName(events).selectExpr("*", "timestamp_millis(time_ms) AS at")
        frame = (
            rows.withWatermark("at", "0 seconds")
            .groupBy("op_id")
            .applyInPandasWithState(
                one_operation, OUTPUT, STATE, "append", GroupStateTimeout.EventTimeTimeout
            )
        )
        return self._seconds("naive", frame)

    def _seconds(self, name: str, frame: Any) -> float:
        checkpoint = str(self.folder / f"checkpoint-{name}")
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        moved = [p for p in query.recentProgress if p["numInputRows"] >= 2 * self.batch][1:]
        return median(p["durationMs"]["triggerExecution"] for p in moved[-(BATCHES - 2) :]) / 1_000


def reference_seconds(pending: int, count: int) -> tuple[float, float]:
    """Microseconds that the reference takes for an add and for a completion, beside so many that wait."""
    from wheel_udf.purgatory.reference import DelayedOperation, Purgatory

    class Waits(DelayedOperation):
        done = False

        def try_complete(self) -> bool:
            return self.done and self.force_complete()

    purgatory = Purgatory(tick_ms=1, size=20)
    waiting = [Waits(86_400_000) for _ in range(pending)]
    for number, operation in enumerate(waiting):
        purgatory.try_complete_else_watch(operation, [number])
    more = [Waits(86_400_000) for _ in range(count)]
    began = time.perf_counter()
    for number, operation in enumerate(more):
        purgatory.try_complete_else_watch(operation, [("more", number)])
    added = time.perf_counter()
    for number, operation in enumerate(more):
        operation.done = True
        purgatory.check_and_complete(("more", number))
    ended = time.perf_counter()
    return 1e6 * (added - began) / count, 1e6 * (ended - added) / count


def _lines(asked: argparse.Namespace, spark: Any, folder: Path, say: Any) -> list[Line]:
    counts = [1_000, 3_000] if asked.quick else [10_000, 100_000, 1_000_000]
    naive_up_to, batch = (3_000, 500) if asked.quick else (100_000, 30_000)
    lines = []
    Ground(spark, folder / "warm", 1_000, 500).purgatory()
    first_s = None
    for count in counts:
        ground = Ground(spark, folder, count, batch)
        seconds = ground.purgatory()
        say(f"{count:,} pending: a batch of the purgatory {seconds:.2f} s")
        first_s = first_s or seconds
        naive_s = None
        if count <= naive_up_to:
            naive_s = ground.naive()
            say(f"{count:,} pending: the same by a group for each {naive_s:.1f} s")
        target = Target(at_least=20) if count == 100_000 else None
        beside = 2 * batch / naive_s if naive_s else 2 * batch / first_s
        beside_what = "a group for each" if naive_s else f"at {counts[0]:,}"
        lines.append(
            Line(
                case="watch",
                what=f"came and completed, {count:,} pending",
                figure=2 * batch / seconds,
                unit="/s",
                beside=beside,
                beside_what=beside_what,
                target=target,
            )
        )
    base = None
    for count in counts:
        add_us, end_us = reference_seconds(count, 20_000)
        base = base or (add_us, end_us)
        for name, figure, first in (("add", add_us, base[0]), ("completion", end_us, base[1])):
            what = (
                f"reference, an {name}, {count:,} pending"
                if name == "add"
                else f"reference, a {name}, {count:,} pending"
            )
            lines.append(
                Line(
                    case=name,
                    what=what,
                    figure=figure,
                    unit="us",
                    beside=first,
                    beside_what=f"at {counts[0]:,}",
                )
            )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.watch_run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-watch.json", help="the JSON file")
    asked = parser.parse_args(arguments)
    # Spark's workers find the naive operator by the name of its module.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with workplace("watch", "6g") as (spark, folder, say):
        lines = _lines(asked, spark, folder, say)
    report.write_json(asked.out, report.document(lines, {}))
    print(f"\n{report.table(lines)}\n\nall figures: {asked.out}")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
