"""Limits on what is pending, on real streams: rejects in both modes, and an intake that pauses and goes on by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.streams import add_files, at_ms, cancel, due, read_files
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock, ProcessingClock
from wheel_udf.delivery.progress import progress_line
from wheel_udf.delivery.query import deliver
from wheel_udf.pending.acts import Picked, cancel as cancel_entries
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.policies.limits import Limits
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.delivery.report import BatchReport

GEOMETRY = Wheel(tick_ms=1_000, size=20, levels=4)
LAYOUT = StoreLayout(GEOMETRY, state_levels=1)
EVENTS = EventClock(max_ahead_ms=None)

# limits: 4 in all, 2 for one destination, 2 in one slot of a second
LIMITS = Limits(pending=4, per_destination=3, per_slot=2)
BATCHES: list[list[dict[str, Any]]] = [
    [due("a", 500, 0), due("b", 500, 0), due("slot is full", 500, 0, seq=2)],
    [due("c", 600, 1), due("destination is full", 700, 1, seq=2)],
    [due("d", 800, 2, destination="other"), due("all is full", 900, 2, seq=2, destination="other")],
    # A replacement needs no room, a CANCEL makes some, and what is due by now passes.
    [
        due("a", 650, 3, seq=2),
        cancel("b", 3, seq=2),
        due("e", 900, 3, destination="other"),
        due("late", -1, 3, destination="other"),
    ],
]
REFUSED = [
    ("all is full", "limit_pending"),
    ("destination is full", "limit_per_destination"),
    ("slot is full", "limit_per_slot"),
]


def rejected(spark: SparkSession, folder: Path) -> list[tuple[str, str]]:
    rows = spark.read.format("delta").load(str(folder / "rejects")).collect()
    assert all(json.loads(row.record)["schedule_id"] == row.schedule_id for row in rows)
    assert all("rule: at most" in row.error_message for row in rows)
    return sorted((row.schedule_id, row.error_code) for row in rows)


def left(spark: SparkSession, work: PendingWork) -> list[str]:
    return sorted(row.schedule_id for row in pending(spark, work).collect())


def outlet(folder: Path) -> Outlet:
    destinations = Destinations({"*": DeltaSink(str(folder / "tables"), create=True)})
    return Outlet(destinations, DeltaSink(str(folder / "rejects"), create=True))


def test_the_direct_wheel_rejects_what_finds_no_room(spark: SparkSession, tmp_path: Path) -> None:
    reports: list[BatchReport] = []
    add_files(tmp_path / "in", *BATCHES)
    commands = read_files(spark, tmp_path / "in")
    to = outlet(tmp_path)
    deliver(
        # One shard: several would share the limits, each a part.
        schedule(commands, wheel=GEOMETRY, clock=EVENTS, shards=1, limits=LIMITS),
        destinations=to.destinations,
        rejects=to.rejects,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger="available-now",
        on_batch=reports.append,
    ).awaitTermination()
    assert rejected(spark, tmp_path) == REFUSED
    assert left(spark, PendingWork(str(tmp_path / "checkpoint"))) == ["a", "c", "d", "e"]
    report = reports[-1]
    assert (report.pending, report.counts["rejected"], report.counts["fired"]) == (4, 3, 1)
    assert progress_line(reports[2]).endswith(
        "rejected 1 | refused over the limits 1 | full pending 100% per_destination 33% per_slot 50%"
    )


def start(
    spark: SparkSession,
    folder: Path,
    what: TieredWheel,
    reports: list[BatchReport],
    trigger: str = "available-now",
) -> TieredRun:
    return start_tiered(
        read_files(spark, folder / "in"),
        what,
        outlet=outlet(folder),
        checkpoint=str(folder / "checkpoint"),
        trigger=trigger,
        on_batch=reports.append,
    )


def test_the_tiered_intake_rejects_what_finds_no_room_in_the_whole_wheel(
    spark: SparkSession, tmp_path: Path
) -> None:
    reports: list[BatchReport] = []
    add_files(tmp_path / "in", [row for batch in BATCHES[:3] for row in batch], BATCHES[3])
    what = TieredWheel(layout=LAYOUT, store=str(tmp_path / "store"), clock=EVENTS, shards=2, limits=LIMITS)
    start(spark, tmp_path, what, reports).awaitTermination()
    assert rejected(spark, tmp_path) == REFUSED
    store = SlotStore.open(spark, what.store, LAYOUT, create=False)
    assert left(spark, PendingWork(str(tmp_path / "checkpoint"), store)) == ["a", "c", "d", "e"]
    assert (reports[-1].counts["rejected"], reports[-1].counts["fired"]) == (3, 1)
    assert reports[-1].full.keys() == {"pending", "per_destination", "per_slot"}


FAR_S = 2_500_000_000  # the wall clock is at work here, and never comes to 2103
SOON_S = 0  # long past


def pausing(folder: Path) -> TieredWheel:
    return TieredWheel(
        layout=LAYOUT,
        store=str(folder / "store"),
        clock=ProcessingClock(),
        shards=2,
        limits=Limits(pending=2),
        on_limit="pause",
    )


def held(run: TieredRun) -> None:
    """Waits until the intake is paused."""
    while not run.paused:
        run.awaitTermination(0.1)


@pytest.mark.sentinel
def test_a_paused_intake_leaves_its_batch_in_the_source_and_goes_on_when_there_is_room(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[BatchReport] = []
    add_files(
        tmp_path / "in",
        [due("a", FAR_S, 0), due("b", FAR_S, 0), due("c", FAR_S, 0), due("fires meanwhile", SOON_S, 0)],
        [due("d", FAR_S, 0)],
    )
    what = pausing(tmp_path)
    run = start(spark, tmp_path, what, reports)
    held(run)
    store = SlotStore.open(spark, what.store, LAYOUT, create=False)
    entries = PendingWork(str(tmp_path / "checkpoint"), store)
    while not any(report.fired for report in reports):
        assert not run.awaitTermination(0.1), "firing goes on"
    # A batch is reported before it is committed, and `pending` shows what is committed.
    while "fires meanwhile" in (waiting := left(spark, entries)):
        assert not run.awaitTermination(0.1), "its batch is committed"
    assert waiting == ["a", "b", "c"], "the batch that reaches the limit is taken in whole"
    assert not run.input_has_ended

    assert cancel_entries(spark, entries, Picked(ids=("a", "b"))) == 2
    run.awaitTermination()
    assert left(spark, entries) == ["c", "d"]
    assert reports[-1].counts["rejected"] == 0
    assert run.intake is not None
    assert run.intake.exception() is None
    assert [record for record in caplog.records if record.name.startswith("py4j")] == []


def test_a_paused_run_stops_and_its_next_batch_still_waits_for_room_after_a_restart(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_files(tmp_path / "in", [due("a", FAR_S, 0), due("b", FAR_S, 0)], [due("c", FAR_S, 0)])
    what = pausing(tmp_path)

    def start_again() -> TieredRun:
        return start(spark, tmp_path, what, [], trigger="200 milliseconds")

    run = start_again()
    held(run)
    run.stop()
    assert not run.isActive
    assert run.intake is not None
    assert run.intake.exception() is None

    run = start_again()
    assert run.paused, "the limit is still reached"
    assert run.intake is None, "no batch is read before there is room"
    store = SlotStore.open(spark, what.store, LAYOUT, create=False)
    entries = PendingWork(str(tmp_path / "checkpoint"), store)
    assert left(spark, entries) == ["a", "b"]
    cancel_entries(spark, entries, Picked(ids=("a",)))
    while run.paused:
        run.awaitTermination(0.1)
    held(run)
    run.stop()
    assert left(spark, entries) == ["b", "c"]
    assert [record for record in caplog.records if record.name.startswith("py4j")] == []


def test_an_intake_that_moves_the_clock_cannot_pause(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing would make room again"):
        TieredWheel(layout=LAYOUT, store=str(tmp_path), clock=EVENTS, on_limit="pause")


def test_a_limit_below_the_number_of_shards_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    commands = read_files(spark, tmp_path)
    with pytest.raises(ConfigError, match=r"limits\.pending = 2; rule: at least 4"):
        schedule(
            commands, wheel=GEOMETRY, clock=EventClock(until_ms=at_ms(0)), shards=4, limits=Limits(pending=2)
        )
