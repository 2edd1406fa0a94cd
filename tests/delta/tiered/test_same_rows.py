"""Under the event clock, both modes fire the same rows at the same clock and count the same outcomes on the same files,
also over stops in the middle of a backfill, and the tiered mode needs at most twice the batches.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.streams import T0_MS, add_files, at_ms, cancel, due, read_files
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.tables import log_checkpoints
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.delivery.report import BatchReport
    from wheel_udf.tiered.keeper import Keeper

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
LAYOUT = StoreLayout(WHEEL, state_levels=2)  # windows of 400 s
UNTIL_S = 50_000
CLOCK = EventClock(max_ahead_ms=None, until_ms=at_ms(UNTIL_S))
OUTCOMES = (
    "fired",
    "missed",
    "superseded",
    "duplicate",
    "cancelled",
    "applied",
    "waiting",
    "late",
    "cancel_superseded",
    "cancel_duplicate",
)
FILES, FILE_S = 6, 150
MEMORY_MS = 5 * FILE_S * 1_000 // 2
PATIENCE_S = 300

Fired = list[tuple[str, int, int, int]]


def backfill() -> list[list[dict[str, Any]]]:
    """Files in the order of their event times, 150 s of it in each.

    12 ids are armed again and again, before and after they were due, near and far, and now and then cancelled. So are
    12 others, which are mostly cancelled, also several times, within and beyond the memory of their end; some CANCELs
    come a file before their schedule, some are of ids that never come. A last command marks the end of a file.
    """
    chance = random.Random(7)
    files = []
    for number in range(FILES):
        rows = []
        for name in (f"id{number:02}" for number in range(12)):
            said_s = number * FILE_S + chance.randrange(FILE_S - 1)
            if chance.random() < 0.15:
                rows.append(cancel(name, said_s, seq=number))
            elif chance.random() < 0.8:
                due_s = said_s + chance.choice((3, 30, 100, 200, 320, 700, 3_000))
                lateness = chance.choice((None, None, "100 seconds"))
                rows.append(due(name, due_s, said_s, seq=number, max_lateness=lateness))
        rows += _cancels(chance, number, rows_before=files[-1] if files else [])
        end_s = (number + 1) * FILE_S
        # Long due on arrival, by the clock of two files before; one of them is missed by the clock of the file before,
        # not by the earlier one.
        past_s, bound = max(0, end_s - 4 * FILE_S), f"{5 * FILE_S // 2} seconds"
        rows += [
            due(f"late{number}", past_s, end_s - 2),
            due(f"too late{number}", past_s, end_s - 2, max_lateness=bound),
        ]
        files.append([*rows, due(f"end{number}", end_s, end_s - 1)])
    return files


def _cancels(chance: random.Random, number: int, rows_before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for name in (f"once more{number:02}" for number in range(12)):
        said_s, kind = number * FILE_S + chance.randrange(FILE_S - 1), chance.random()
        if kind < 0.6:
            seqs = (2 * number, 2 * number, 2 * number + 1)[: chance.choice((1, 1, 2, 3))]
            rows += [cancel(name, said_s, seq=seq) for seq in seqs]
        elif kind < 0.9:
            rows.append(due(name, said_s + chance.choice((3, 100, 320, 700, 3_000)), said_s, seq=2 * number))
    rows += [cancel(f"never{number}", number * FILE_S, seq=1)] * 2
    if number > 2:  # the first file is read at the clock 0, in a continuous run perhaps the second one, too
        rows_before.append(cancel(f"early{number}", (number - 1) * FILE_S, seq=2))
        rows.append(due(f"early{number}", number * FILE_S + 700 * (number % 2) + 9, number * FILE_S, seq=1))
    return rows


@dataclass
class Backfill:
    """The files through a mode, one file a batch, in a folder."""

    spark: SparkSession
    folder: Path
    report: BatchReport | None = None

    def __post_init__(self) -> None:
        add_files(self.folder / "in", *backfill())

    def outlet(self) -> dict[str, Any]:
        return {
            "destinations": Destinations({"*": DeltaSink(str(self.folder / "tables"), create=True)}),
            "rejects": DeltaSink(str(self.folder / "rejects")),
        }

    def note(self, report: BatchReport) -> None:
        self.report = report

    def direct(self) -> None:
        """Runs the direct mode to the end."""
        frame = schedule(
            read_files(self.spark, self.folder / "in"),
            wheel=WHEEL,
            clock=CLOCK,
            shards=2,
            memory_ms=MEMORY_MS,
        )
        place = str(self.folder / "checkpoint")
        query = deliver(frame, **self.outlet(), checkpoint=place, trigger="available-now", on_batch=self.note)
        query.awaitTermination()

    def tiered(self, trigger: str = "available-now", on_batch: Callable[[], None] | None = None) -> TieredRun:
        """Starts the tiered mode."""

        def note(report: BatchReport) -> None:
            self.report = report
            if on_batch is not None:
                on_batch()

        return start_tiered(
            read_files(self.spark, self.folder / "in"),
            TieredWheel(
                layout=LAYOUT, store=str(self.folder / "store"), clock=CLOCK, shards=2, memory_ms=MEMORY_MS
            ),
            outlet=Outlet(**self.outlet()),
            checkpoint=str(self.folder / "checkpoint"),
            trigger=trigger,
            on_batch=note,
        )

    def tiered_up_to(
        self, clock_s: int, trigger: str = "available-now", on_batch: Callable[[], None] = lambda: None
    ) -> None:
        """Runs the tiered mode until the wheel's clock has reached an instant, and stops it there."""
        reached = threading.Event()

        def look() -> None:
            on_batch()
            assert self.report is not None
            if (self.report.clock_ms or 0) >= at_ms(clock_s):
                reached.set()

        run = self.tiered(trigger, look)
        try:
            assert reached.wait(PATIENCE_S), self.report
        finally:
            run.stop()

    def fired(self) -> Fired:
        """(id, seq, due, fired at), in seconds from the beginning."""
        rows = self.spark.read.format("delta").load(str(self.folder / "tables" / "out")).collect()
        found = [(row.schedule_id, row.seq, in_s(row.deliver_at), in_s(row.fired_at)) for row in rows]
        return sorted(found)

    @property
    def batches(self) -> int:
        assert self.report is not None
        return self.report.batch_id + 1

    def account(self) -> dict[str, int]:
        assert self.report is not None
        return {name: self.report.counts[name] for name in OUTCOMES}


def in_s(at: Any) -> int:
    return int(at.timestamp() - T0_MS / 1_000)


_direct: list[tuple[Fired, dict[str, int]]] = []


@pytest.fixture
def direct(spark: SparkSession, tmp_path: Path) -> tuple[Fired, dict[str, int]]:
    """What the direct mode fires, and its account; computed by the first test that asks."""
    if not _direct:
        world = Backfill(spark, tmp_path / "direct")
        world.direct()
        _direct.append((world.fired(), world.account()))
    return _direct[0]


@pytest.mark.sentinel
def test_a_backfill_fires_the_rows_of_the_direct_mode_at_the_same_clock(
    spark: SparkSession, tmp_path: Path, direct: tuple[Fired, dict[str, int]]
) -> None:
    fired, account = direct
    some = ("fired", "missed", "superseded", "cancelled", "waiting", "late", "cancel_duplicate")
    assert min(account[name] for name in some) > 0
    world = Backfill(spark, tmp_path)
    world.tiered().awaitTermination()
    assert world.fired() == fired
    assert world.account() == account
    # The direct mode: one for each file, one for what is due then, one for `until`.
    assert world.batches <= 2 * (FILES + 2)


def test_a_backfill_that_is_stopped_twice_fires_the_same_rows(
    spark: SparkSession, tmp_path: Path, direct: tuple[Fired, dict[str, int]]
) -> None:
    world = Backfill(spark, tmp_path)
    world.tiered_up_to(2 * FILE_S - 1)
    world.tiered_up_to(4 * FILE_S - 1)
    assert world.fired() != direct[0], "stopped before the end"
    world.tiered().awaitTermination()
    assert world.fired() == direct[0]
    assert world.account() == direct[1]


def test_a_continuous_run_fires_the_same_rows_and_goes_on_to_the_last_clock_when_nothing_more_comes(
    spark: SparkSession, tmp_path: Path, direct: tuple[Fired, dict[str, int]]
) -> None:
    world = Backfill(spark, tmp_path)
    world.tiered_up_to(FILES * FILE_S - 1, "200 milliseconds")
    assert world.fired() == [row for row in direct[0] if row[3] < UNTIL_S]


def test_which_clock_a_file_met_depended_on_what_spark_asked_first(
    spark: SparkSession, tmp_path: Path, direct: tuple[Fired, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A commit could come after Spark had asked for the clock and before it asked for the store's rows. Then a batch
    # had rows and no instant, and what was past due was released by the clock before theirs. Here this happens to
    # every file: its instant is published when the wheel has read it.
    world = Backfill(spark, tmp_path)
    kept, seen = TieredRun.publish, set[int]()
    held, read, begun = threading.Event(), threading.Event(), dict[str, int]()

    def late(run: TieredRun, keeper: Keeper, *, only_news: bool = False) -> None:
        is_file = run.wheel is not None and keeper.taken_in == keeper.version != begun.setdefault(
            "at", keeper.version
        )
        if held.is_set() or (only_news and is_file and keeper.version not in seen):
            return
        if is_file and keeper.version not in seen:
            seen.add(keeper.version)
            read.clear()
            held.set()
            assert read.wait(60)
            held.clear()
        kept(run, keeper, only_news=only_news)

    def look() -> None:
        assert world.report is not None
        if world.report.received:
            read.set()

    monkeypatch.setattr(TieredRun, "publish", late)
    world.tiered_up_to(FILES * FILE_S - 1, "200 milliseconds", look)
    assert len(seen) == FILES
    assert world.fired() == [row for row in direct[0] if row[3] < UNTIL_S]


def test_a_start_after_a_stop_longer_than_the_log_is_kept_could_delete_what_the_wheel_had_not_read(
    spark: SparkSession, tmp_path: Path, direct: tuple[Fired, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first commits had the log cleaned up, and Delta's stream then ended at this start and each further one.
    world = Backfill(spark, tmp_path)
    world.tiered_up_to(2 * FILE_S - 1)
    log = tmp_path / "store" / "_delta_log"
    for file in log.glob("0*"):
        os.utime(file, (1_000_000, 1_000_000))
    left = sorted(log.glob("0*.json"))
    monkeypatch.setattr(log_checkpoints, "EVERY", 1)
    # As a catch-up hand-over, a join or an act does before the wheel has read anything.
    store = SlotStore.at(spark, str(tmp_path / "store"))
    assert store.join_files(next(iter(store.small_files(10**9).values()))) > 0
    log_checkpoints.finish()
    told: list[bool] = []

    def look() -> None:
        told.append(all(file.exists() for file in left))

    world.tiered(on_batch=look).awaitTermination()
    log_checkpoints.finish()
    assert told[0], "the first batch of the wheel still finds everything"
    assert not all(file.exists() for file in left), "what has expired goes, once the wheel has read it"
    assert world.fired() == direct[0]
    assert world.account() == direct[1]
