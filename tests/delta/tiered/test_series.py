"""Series in the tiered mode: they wait in the state whatever their due time, and of an id in the state and in the store
the highest version decides.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from pyspark.errors import StreamingQueryException

from tests.delta.tiered.series_world import LAYOUT, MEMORY_MS, WHEEL, World, series
from tests.spark.streams import cancel, due
from wheel_udf.commands.parse import Contract, parse_commands
from wheel_udf.control.clocks import EventClock
from wheel_udf.pending import acts
from wheel_udf.pending.acts import Picked
from wheel_udf.pending.entries import PendingWork, count_pending
from wheel_udf.policies.limits import Limits
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tiered.keeper import Keeper
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.transfer.exporting import export_job
from wheel_udf.transfer.importing import import_direct
from wheel_udf.transfer.into_store import import_tiered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EVENT = EventClock(max_ahead_ms=None)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


@pytest.mark.sentinel
def test_a_series_waits_in_the_state_and_goes_on_long_after_its_row_has_left_the_store(world: World) -> None:
    world.say([series("a", "every 100 seconds", 0), series("far", "every 3000 seconds", 0)])
    world.tiered(until_s=450)

    assert world.near_rows() == 0
    assert world.pending() == [("a", 1, 500, 4, "state"), ("far", 1, 3_000, 0, "state")]
    assert world.times("a") == [400]
    world.tiered(until_s=650)

    assert world.times("a") == [400, 600]
    assert world.account() == {"pending": 2, "occurrences_fired": 2, "occurrences_missed": 4}


def take_in(world: World, rows: list[dict[str, Any]]) -> None:
    """Writes commands to the store as the intake of a job that is killed right after."""
    other = World(world.spark, world.folder / "other")
    other.say(rows)
    rows_of = world.spark.read.schema(other.commands().schema).parquet(str(other.folder / "in"))
    keeper = Keeper(world.store, app_id="unread", on_change=lambda _: None)
    keeper.take_in(parse_commands(rows_of, Contract()), 0, lambda _: None)


def told() -> list[list[dict[str, Any]]]:
    """Five files, a minute of event time apart, and one much later.

    ::

        goes on     a: a series; then repeated, older and far, older
        and far     b: far, then a series      c: far, then a rule that is none
        and back    d: a series, then far, then a series again
        too late    x: a series of six, then an older far version, which is due long after the series is forgotten
                    y: the same, but the series goes on
        cancelled   e: a CANCEL, then an older series      f: a series and its CANCEL in one file
                    ends: a series, and its CANCEL when the store has forgotten it
    """
    return [
        [
            series("a", "every 25 seconds", 0),
            due("b", 3_000, 0),
            due("c", 700, 0),
            series("d", "every 40 seconds", 0, on_missed="all"),
            series("x", "every 50 seconds", 0, seq=2, count=6, on_missed="all"),
            series("y", "every 170 seconds", 0, seq=2),
            series("none", "every 35 seconds", 0, on_missed="none", until=200),
            series("spread", "every 50 seconds", 0, spread="30 seconds"),
            series("over", "every 1 second", 0, until=-10),
            series("ends", "every 130 seconds", 0),
            cancel("e", 0, seq=5),
            series("f", "every 1 second", 0),
            cancel("f", 0),
        ],
        [
            series("b", "every 500 seconds", 60, seq=2),
            series("c", "61 * * * *", 60, seq=2),
            due("d", 1_500, 60, seq=2),
            series("a", "every 25 seconds", 0),
            series("e", "every 25 seconds", 60, seq=3),
        ],
        [due("a", 2_000, 120, seq=0), series("a", "every 3 seconds", 60, seq=-1), due("plain", 125, 120)],
        [series("d", "every 45 seconds", 180, seq=3, starts_at=200), due("x", 1_200, 181, seq=1)],
        [due("y", 1_300, 240, seq=1), series("y", "every 100 seconds", 240, seq=3)],
        [cancel("ends", 600), cancel("y", 600, seq=3), due("end", 601, 600)],
    ]


def test_the_same_commands_deliver_the_same_rows_in_both_modes(spark: SparkSession, tmp_path: Path) -> None:
    direct, tiered = World(spark, tmp_path / "direct"), World(spark, tmp_path / "tiered")
    for world in (direct, tiered):
        world.say(*told())
    direct.direct(until_s=4_000)
    tiered.tiered(until_s=4_000)

    assert tiered.fired() == direct.fired()
    assert tiered.rejected() == direct.rejected()
    assert tiered.account() == direct.account()
    assert tiered.times("x") == [50, 100, 150, 200, 250, 300]
    assert tiered.times("c") == [700], "a rule that cannot be read replaces nothing"


def test_a_job_that_is_stopped_between_the_files_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    direct, tiered = World(spark, tmp_path / "direct"), World(spark, tmp_path / "tiered")
    said = 0
    for number, batch in enumerate(told()):
        said += sum(row.get("op") is None for row in batch)
        until_s = 4_000 if number == len(told()) - 1 else None
        for world, run in ((direct, direct.direct), (tiered, tiered.tiered)):
            world.say(batch)
            run(until_s)
        assert (tiered.schedules, direct.schedules) == (said, said)
    assert tiered.account() == direct.account()
    assert tiered.fired() == direct.fired()
    assert tiered.rejected() == direct.rejected()


@pytest.fixture
def acted(world: World) -> World:
    """Five series that the store has forgotten, and one entry in the store; the job is at rest at 330."""
    names = ("cancelled", "moved", "rerouted", "skipped", "stays")
    world.say([*(series(name, "every 100 seconds", 0) for name in names), due("far", 2_000, 0)])
    world.tiered(until_s=330)
    assert world.near_rows() == 0
    return world


def test_acts_change_series_and_entries_of_the_store_as_one_act_and_are_seen_at_once(acted: World) -> None:
    spark, work = acted.spark, acted.work
    later = "scheduled_at + interval 20 seconds"
    assert acts.cancel(spark, work, Picked(where="schedule_id = 'cancelled'"), dry_run=True) == 1
    assert acts.cancel(spark, work, Picked(ids=["cancelled"])) == 1
    assert acts.move(spark, work, Picked(ids=["moved", "far"]), to=later) == 2
    assert acts.reroute(spark, work, Picked(ids=["rerouted"]), to="elsewhere") == 1
    assert acts.skip(spark, work, Picked(where="schedule_id LIKE 'skip%' OR schedule_id = 'far'")) == 1
    left = [
        ("far", 1, 2_020, None, "store"),
        ("moved", 1, 400, 3, "state"),
        ("rerouted", 1, 400, 3, "state"),
        ("skipped", 1, 400, 3, "state"),
        ("stays", 1, 400, 3, "state"),
    ]
    assert acted.pending() == left
    assert acts.move(spark, work, Picked(ids=["moved"]), to=later) == 1, (
        "from where the first one has left it"
    )

    acted.tiered(until_s=430)
    assert acted.times("stays")[-1] == 400
    assert [row[2:4] for row in acted.fired("elsewhere")] == [(400, 430)]
    assert acted.times("skipped") == acted.times("moved") == [300]
    assert acted.pending()[1:] == [
        ("moved", 1, 400, 3, "state"),
        ("rerouted", 1, 500, 4, "state"),
        ("skipped", 1, 500, 4, "state"),
        ("stays", 1, 500, 4, "state"),
    ]
    acted.tiered(until_s=550)
    assert acted.fired()[1:3] == [("moved", 1, 300, 330, 3, 2), ("moved", 1, 500, 550, 5, 1)]
    assert [row.act for row in acts.audit(spark, work.query).orderBy("batch").collect()] == [
        "cancel",
        "move",
        "reroute",
        "skip",
        "move",
    ]
    assert acted.account() == {
        "pending": 6,  # of these, `far` twice: the store tells when its time comes
        "superseded": 4,
        "cancelled": 1,
        "applied": 1,
        "occurrences_fired": 11,
        "occurrences_missed": 11,
        "occurrences_skipped": 1,
    }


def test_a_later_command_of_the_producer_wins_over_an_act_on_a_series(acted: World) -> None:
    assert acts.reroute(acted.spark, acted.work, Picked(ids=["moved", "stays"]), to="elsewhere") == 2
    acted.say([series("moved", "every 70 seconds", 340, seq=2)])
    acted.tiered(until_s=500)
    assert acted.times("moved") == [300, 480]
    assert acted.times("stays", "elsewhere") == [500]
    assert acted.pending(ids=["moved"]) == [("moved", 2, 550, 2, "state")]


def test_a_series_that_the_wheel_has_not_read_is_pending_and_can_be_cancelled_and_not_changed(
    world: World,
) -> None:
    world.say([series("a", "every 100 seconds", 0), series("b", "every 100 seconds", 0), due("c", 900, 0)])
    world.tiered(until_s=230)
    # Commands that an intake has written and no batch of the wheel has read.
    unread = [
        series("new", "every 1000 seconds", 230),
        series("a", "every 50 seconds", 240, seq=2),
        cancel("b", 240),
        series("c", "every 100 seconds", 240, seq=2),
        series("over", "every 100 seconds", 240, until=250),
    ]
    take_in(world, unread)
    new = [("a", 2, 290, None, "state"), ("c", 2, 340, None, "state"), ("new", 1, 1_230, None, "state")]
    assert world.pending() == new
    assert count_pending(world.spark, world.work) == 3
    everything = Picked(where="true")
    assert acts.reroute(world.spark, world.work, everything, to="elsewhere") == 0
    assert acts.cancel(world.spark, world.work, Picked(ids=["new"])) == 1
    assert world.pending() == new[:2]


def test_limits_count_series_read_or_not_and_refuse_those_that_find_no_room(world: World) -> None:
    limits = Limits(pending=5, per_slot=2)
    world.say(
        [series("a", "every 100 seconds", 0), series("b", "every 50 seconds", 0)],
        [series("slot is full", "every 100 seconds", 0), due("slot", 100, 0), due("c", 300, 0)],
        [series("bad", "61 * * * *", 1), series("d", "every 30 seconds", 1)],
        [series("all is full", "every 3 seconds", 2), series("a", "every 170 seconds", 2, seq=2)],
    )
    world.tiered(until_s=95, limits=limits)
    refused = [("all is full", "limit_pending"), ("bad", "bad_repeat"), ("slot is full", "limit_per_slot")]
    assert world.rejected() == refused
    assert [row[0] for row in world.pending()] == ["a", "b", "c", "d", "slot"]
    # The store has forgotten the series.
    world.say([series("no room", "every 10 seconds", 96)])
    world.tiered(limits=limits)
    assert world.rejected() == sorted([*refused, ("no room", "limit_pending")])


def test_series_move_to_a_tiered_job_and_from_it(spark: SparkSession, tmp_path: Path) -> None:
    direct, tiered, back = (World(spark, tmp_path, home) for home in ("direct", "tiered", "back"))
    direct.say([series("a", "every 100 seconds", 0), series("y", "every 1000 seconds", 0), due("b", 900, 0)])
    direct.direct(until_s=230)
    exported = str(tmp_path / "export")
    export_job(spark, PendingWork(direct.checkpoint), exported)
    what = TieredWheel(layout=LAYOUT, store=tiered.store_path, clock=EVENT, shards=2, memory_ms=MEMORY_MS)
    import_tiered(spark, exported, what, checkpoint=tiered.checkpoint)
    assert tiered.pending() == [
        ("a", 1, 300, 2, "state"),
        ("b", 1, 900, None, "store"),
        ("y", 1, 1_000, 0, "state"),
    ]
    # An older version that comes late is beaten by the series, here and after the next move.
    direct.say([due("y", 1_500, 240, seq=0)])
    tiered.tiered(until_s=320)
    assert tiered.times("a") == [200, 300]
    assert len(tiered.pending()) == 3

    exported = str(tmp_path / "export-back")
    manifest = export_job(spark, tiered.work, exported)
    assert (manifest.pending, manifest.counts["superseded"]) == (3, 1)
    import_direct(spark, exported, checkpoint=back.checkpoint, wheel=WHEEL, clock=EVENT, shards=2)
    back.direct(until_s=1_600)
    assert back.times("a") == [200, 300, 1_600]
    assert (back.times("b"), back.times("y")) == ([900], [1_000])


class Falters(DeltaSink):
    """A sink that fails after some of its writes, as a driver does that is killed then."""

    kills: ClassVar[list[int]] = []
    writes: ClassVar[int] = 0

    def write(self, *given: Any, **named: Any) -> Any:
        """Writes, and then fails."""
        done = super().write(*given, **named)
        Falters.writes += 1
        if Falters.writes in Falters.kills:
            raise OSError(28, "killed")
        return done


def test_a_job_that_dies_after_commits_of_the_store_and_of_a_table_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct, tiered = World(spark, tmp_path / "direct"), World(spark, tmp_path / "tiered", sink=Falters)
    for world in (direct, tiered):
        world.say(*told())
    direct.direct(until_s=4_000)
    monkeypatch.setattr(Falters, "kills", [2, 5])
    append, committed = SlotStore.append, []

    def dies(store: SlotStore, *given: Any, **named: Any) -> Any:
        done = append(store, *given, **named)
        committed.append(named["app_id"])
        if len(committed) in (3, 9):
            raise OSError(28, "killed")
        return done

    monkeypatch.setattr(SlotStore, "append", dies)
    for _life in range(6):
        with suppress(OSError, StreamingQueryException):
            tiered.tiered(until_s=4_000)
            break
    assert Falters.writes > max(Falters.kills)
    assert len(committed) > 9
    assert tiered.fired() == direct.fired()
    assert tiered.account() == direct.account()
