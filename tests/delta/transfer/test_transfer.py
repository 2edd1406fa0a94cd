"""Moves of a job between runs: shards, wheel, mode, clock and path change; nothing fires early, twice or not at all, and the account goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.streams import add_files, at_ms, cancel, due, read_files, waiting
from wheel_udf.clock import EventClock
from wheel_udf.common import CheckpointError, LeaseError, TransferError
from wheel_udf.delivery import DeltaSink, Destinations, deliver
from wheel_udf.pending import PendingWork, acts
from wheel_udf.platform import Lease
from wheel_udf.store import SlotStore, StoreLayout
from wheel_udf.stream import schedule
from wheel_udf.tiered import Outlet, TieredWheel, start_tiered
from wheel_udf.transfer import export_job, import_direct, import_tiered
from wheel_udf.wheel import Wheel

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.delivery import BatchReport

SMALL = Wheel(tick_ms=1_000, size=20, levels=4)
WIDE = Wheel(tick_ms=500, size=8, levels=6)


class Job:
    """A job that moves: its input and tables stay, each home is a folder with its checkpoint and store."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.last: BatchReport | None = None

    def place(self, name: str) -> str:
        return str(self.folder / name)

    def clock(self, until_s: int | None = None) -> EventClock:
        return EventClock(max_ahead_ms=None, until_ms=None if until_s is None else at_ms(until_s))

    def run_direct(self, home: str, wheel: Wheel, shards: int, until_s: int | None = None) -> None:
        outlet = self._outlet()
        frame = schedule(
            read_files(self.spark, self.folder / "in"), wheel=wheel, clock=self.clock(until_s), shards=shards
        )
        deliver(
            frame,
            destinations=outlet.destinations,
            rejects=outlet.rejects,
            checkpoint=self.place(home),
            trigger="available-now",
            on_batch=self.note,
        ).awaitTermination()

    def tiered(self, home: str, wheel: Wheel, shards: int, until_s: int | None = None) -> TieredWheel:
        layout = StoreLayout(wheel, state_levels=1)
        store = self.place(f"{home}-store")
        return TieredWheel(layout=layout, store=store, clock=self.clock(until_s), shards=shards)

    def run_tiered(self, home: str, wheel: Wheel, shards: int, until_s: int | None = None) -> None:
        what = self.tiered(home, wheel, shards, until_s)
        commands = read_files(self.spark, self.folder / "in")
        start_tiered(
            commands,
            what,
            outlet=self._outlet(),
            checkpoint=self.place(home),
            trigger="available-now",
            on_batch=self.note,
        ).awaitTermination()

    def work(self, home: str, wheel: Wheel | None = None) -> PendingWork:
        if wheel is None:
            return PendingWork(self.place(home))
        layout = StoreLayout(wheel, state_levels=1)
        store = SlotStore.open(self.spark, self.place(f"{home}-store"), layout, create=False)
        return PendingWork(self.place(home), store)

    def note(self, report: BatchReport) -> None:
        self.last = report

    def _outlet(self) -> Outlet:
        tables = DeltaSink(self.place("tables"), create=True)
        return Outlet(Destinations({"*": tables}), DeltaSink(self.place("rejects")))

    @property
    def account(self) -> dict[str, int]:
        assert self.last is not None
        counts = {name: count for name, count in self.last.counts.items() if count}
        return {"pending": self.last.pending, **counts}

    def fired(self) -> list[tuple[str, int, int]]:
        rows = self.spark.read.format("delta").load(self.place("tables/out"))
        assert rows.where("fired_at < deliver_at").isEmpty()
        assert rows.count() == rows.select("fire_id").distinct().count()
        found = [(row.schedule_id, row.seq, row.deliver_at.timestamp()) for row in rows.collect()]
        return sorted((name, seq, int(seconds - at_ms(0) / 1_000)) for name, seq, seconds in found)


# Files of the input, one a batch. What they say, in the order of time; * marks what a move lies between.
BEFORE: list[list[dict[str, Any]]] = [
    [due("start", 1, 0)],
    [
        due("a", 30, 20),  # fires at home, is said again *: a duplicate
        due("b", 500, 20),  # replaced *
        due("c", 900, 20),  # cancelled *
        due("d", 3_000, 20),
        due("e", 700, 20, max_lateness="1 hour"),
        due("f", 100, 20),
        cancel("w", 20, seq=2),  # its schedule comes *
        due("gone", 600, 20),
    ],
    [cancel("gone", 40, seq=2), due("f", 2_000, 40, seq=2), due("clock", 45, 50)],
]
AFTER: list[list[dict[str, Any]]] = [
    [
        due("a", 30, 60),
        due("b", 800, 60, seq=2),
        due("b", 450, 60, seq=0),
        cancel("c", 60, seq=2),
        due("w", 850, 60),
    ],
    [due("late", 70, 1_000)],
]
FIRED = [
    ("a", 1, 30),
    ("b", 2, 800),
    ("clock", 1, 45),
    ("d", 1, 3_000),
    ("e", 1, 700),
    ("f", 2, 2_000),
    ("late", 1, 70),
    ("start", 1, 1),
]
ACCOUNT = {
    "pending": 0,
    "fired": 8,
    "cancelled": 3,
    "superseded": 3,
    "duplicate": 1,
    "applied": 3,
}

Move = Callable[[Job], None]


def _direct_to_direct(job: Job) -> None:
    job.run_direct("old", SMALL, 2)
    export_job(job.spark, job.work("old"), job.place("export"))
    _import_direct(job, shards=3)


def _import_direct(job: Job, shards: int) -> None:
    import_direct(
        job.spark,
        job.place("export"),
        checkpoint=job.place("new"),
        wheel=WIDE,
        clock=job.clock(),
        shards=shards,
    )
    add_files(job.folder / "in", *AFTER)
    job.run_direct("new", WIDE, shards, until_s=4_000)


def _direct_to_tiered(job: Job) -> None:
    job.run_direct("old", SMALL, 2)
    export_job(job.spark, job.work("old"), job.place("export"))
    _import_tiered(job)


def _import_tiered(job: Job) -> None:
    import_tiered(job.spark, job.place("export"), job.tiered("new", WIDE, 3), checkpoint=job.place("new"))
    add_files(job.folder / "in", *AFTER)
    job.run_tiered("new", WIDE, 3, until_s=4_000)


def _tiered_to_direct(job: Job) -> None:
    job.run_tiered("old", SMALL, 2)
    export_job(job.spark, job.work("old", SMALL), job.place("export"))
    _import_direct(job, shards=1)


def _tiered_to_tiered(job: Job) -> None:
    job.run_tiered("old", SMALL, 2)
    export_job(job.spark, job.work("old", SMALL), job.place("export"))
    _import_tiered(job)


@pytest.mark.parametrize(
    "move", [_direct_to_direct, _direct_to_tiered, _tiered_to_direct, _tiered_to_tiered]
)
def test_a_job_that_moves_fires_and_counts_as_one_that_stays(
    spark: SparkSession, tmp_path: Path, move: Move
) -> None:
    add_files(tmp_path / "in", *BEFORE)
    job = Job(spark, tmp_path)

    move(job)

    assert job.fired() == FIRED
    assert job.account == ACCOUNT
