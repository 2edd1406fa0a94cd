"""The run that is killed and taken up again: input, wheel and sinks, the same in the victim's process and in the test's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.streams import at_ms, cancel, due, read_files
from tests.spark.watches import event, operation, read_rows
from wheel_udf.clock import EventClock
from wheel_udf.delivery.delta_sink import DeltaSink
from wheel_udf.delivery.destinations import Destinations, Sink
from wheel_udf.delivery.query import deliver
from wheel_udf.store.layout import StoreLayout
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.stream.watch_operator import watch
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered
from wheel_udf.wheel.geometry import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from wheel_udf.delivery.report import BatchReport

END_S = 9_000
WHERE = ("left", "right")


def files() -> list[list[dict[str, Any]]]:
    """Four files: schedules, later versions, cancels, past due rows; two destinations; one bad row in each.

    The clock of the third batch is the latest time said in the second file, 1000: there all of `near` fire, into both tables.
    """
    near = [due(f"near{n:02}", 500 + 10 * n, 0, destination=WHERE[n % 2]) for n in range(40)]
    far = [due(f"far{n:02}", 2_500 + 10 * n, 0, destination=WHERE[n % 2]) for n in range(20)]
    moved = [due(f"far{n:02}", 4_000 + n, 1_000, seq=2, destination=WHERE[n % 2]) for n in range(0, 20, 4)]
    called_off = [cancel(f"far{n:02}", 2_000, seq=3) for n in range(1, 20, 4)]
    past_due = [due(f"late{n}", 10, 3_000, destination=WHERE[n % 2]) for n in range(6)]
    batches = ((0, [*near, *far]), (1_000, moved), (2_000, called_off), (3_000, past_due))
    return [[*rows, due(None, 1, said_s)] for said_s, rows in batches]


def scheduled(spark: SparkSession, folder: Path) -> DataFrame:
    """The wheel over all of :func:`files`."""
    return schedule(
        read_files(spark, folder / "in"),
        wheel=Wheel(tick_ms=1_000, size=20, levels=6),
        clock=EventClock(until_ms=at_ms(END_S)),
        shards=2,
    )


def watched_files() -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Four pairs of files: 60 operations of ten minutes in two destinations, of which some have their event, some are cancelled; one bad row in each.

    The clock of the third batch is 1000: there all of the first 40 have ended, into both tables.
    """
    early = [
        operation(f"op{n:02}", n, f"k{n:02}", destination=WHERE[n % 2], deadline="10 m") for n in range(40)
    ]
    late = [
        operation(f"op{n:02}", 900, f"k{n:02}", destination=WHERE[n % 2], deadline="10 m")
        for n in range(40, 60)
    ]
    paid = [event(f"k{n:02}", 100 + n) for n in range(0, 60, 3)]
    called_off = [event(f"op{n:02}", 200 + n, op="CANCEL_OPERATION") for n in range(1, 40, 3)]
    bad = [operation(None, 0, "k")]
    return [
        (early + bad, []),
        (bad, paid),
        (late + bad, [*called_off, event("nobody", 1_000)]),
        (bad, [event("k59", 1_100)]),
    ]


def watched(spark: SparkSession, folder: Path) -> DataFrame:
    """The purgatory over all of :func:`watched_files`."""
    return watch(
        *read_rows(spark, folder),
        wheel=Wheel(tick_ms=1_000, size=20, levels=4),
        clock=EventClock(until_ms=at_ms(END_S)),
        shards=2,
    )


FRAMES = {"wheel": scheduled, "purgatory": watched}


def start(
    spark: SparkSession,
    folder: Path,
    run: str = "wheel",
    *,
    sink: Callable[[str], Sink] = lambda path: DeltaSink(path, create=True),
    on_batch: Callable[[BatchReport], None] | None = None,
) -> StreamingQuery:
    """Starts one of :data:`FRAMES` over all its input."""
    return deliver(
        FRAMES[run](spark, folder),
        destinations=Destinations({"*": sink(str(folder / "tables"))}),
        rejects=sink(str(folder / "rejects")),
        checkpoint=str(folder / "checkpoint"),
        trigger="available-now",
        on_batch=on_batch,
    )


def start_tiered_run(spark: SparkSession, folder: Path) -> TieredRun:
    """Starts the same over a slot store: windows of 20 s."""
    return start_tiered(
        read_files(spark, folder / "in"),
        TieredWheel(
            layout=StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1),
            store=str(folder / "store"),
            clock=EventClock(until_ms=at_ms(END_S)),
            shards=2,
        ),
        outlet=Outlet(
            Destinations({"*": DeltaSink(str(folder / "tables"), create=True)}),
            DeltaSink(str(folder / "rejects"), create=True),
        ),
        checkpoint=str(folder / "checkpoint"),
        trigger="available-now",
    )
