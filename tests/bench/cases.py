"""The cases of the bench. Each sets the wheel beside something else, on the same load, in the same session, one after the
other.

====  ==================================================  ==============================================================
case  the wheel                                           beside
====  ==================================================  ==============================================================
a     :func:`wheel_udf.schedule`                          one key per message and a timeout (:mod:`tests.bench.naive`)
b     the same query                                      the same query with the operator taken out
c     more pending, all far; more ids remembered          the least pending; next to none remembered
d     ticks in which nothing is due and nothing is new    the query without the operator, over files of a row per shard
====  ==================================================  ==============================================================

Every query has the project's settings (RocksDB with changelogs), reads Parquet, one file a batch, and writes all
columns of all rows to Spark's ``noop`` sink; the idle minutes of case d run under :func:`wheel_udf.deliver`. A query's
first batches (a small one to warm up, those that fill it) are not measured. How many rows came out is checked: a query
that does nothing is fast.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, functions as F

from tests.bench import measure
from tests.bench.ground import (
    INTERVAL_MS,
    SETTLE,
    STEADY_INTERVAL_MS,
    Bench,
    commands,
    is_fired,
    wheel,
    without_operator,
)
from tests.bench.idle import when_idle
from tests.bench.loads import Load
from tests.bench.measure import Batch
from tests.bench.naive import schedule_naively
from tests.bench.report import Line, Target, slope_per_million
from wheel_udf.stream.sharded_query import DEFAULT_MEMORY_MS

_MEMORY_FILLS = 15


def warm_up(bench: Bench) -> None:
    """Each kind of query once, so that no case pays for the JVM's first time."""
    for name, build, counted in (
        ("without the operator", without_operator, F.lit(True)),
        ("wheel", wheel, is_fired()),
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
            ("wheel", wheel, is_fired(), bench.sizes.batches),
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
        with_wheel += _throughput(bench, f"b, wheel, {name}", rows, wheel, is_fired(), batches)
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
    most = max(seconds)
    in_row = _with_pending(bench, f"c, {most:,} pending, in the row", most, in_files=False)
    bench.lines.append(
        Line(
            case="c",
            what=f"a batch at {most:,} pending, all chunks in the row of the state",
            figure=in_row,
            unit="s",
            beside=seconds[most],
            beside_what="long chunks in files",
        )
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


def _with_pending(
    bench: Bench, name: str, pending: int, remembered: int = 0, *, in_files: bool = True
) -> float:
    sizes = bench.sizes
    far = [min(sizes.fill_rows, pending - at) for at in range(0, pending, sizes.fill_rows)]
    memory_fills = _MEMORY_FILLS if remembered else 0

    def fill(load: Load) -> None:
        for rows in far:
            load.add_far(rows)
        # Ended ids spread over the whole time of remembrance, as a stream of that rate leaves them.
        rows, interval_ms = remembered // _MEMORY_FILLS, DEFAULT_MEMORY_MS // _MEMORY_FILLS
        load.add_near(rows, interval_ms, batches=memory_fills)
        load.add_near(sizes.arrivals, STEADY_INTERVAL_MS, batches=SETTLE + sizes.batches)

    first = len(far) + memory_fills + SETTLE
    return measure.seconds_of(
        bench.measure(
            name,
            fill,
            wheel,
            is_fired(),
            first=first,
            batches=sizes.batches,
            rows_out=sizes.arrivals,
            in_files=in_files,
        )
    )


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
