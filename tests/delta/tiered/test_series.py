"""Series in the tiered mode: they wait in the state whatever their due time, and of an id in the state and in the store
the highest version decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.tiered.series_world import World, series
from tests.spark.streams import cancel, due

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def test_a_series_waits_in_the_state_and_goes_on_long_after_its_row_has_left_the_store(world: World) -> None:
    world.say([series("a", "every 100 seconds", 0), series("far", "every 3000 seconds", 0)])
    world.tiered(until_s=450)

    assert world.near_rows() == 0
    assert world.pending() == [("a", 1, 500, 4, "state"), ("far", 1, 3_000, 0, "state")]
    assert world.times("a") == [400]
    world.tiered(until_s=650)

    assert world.times("a") == [400, 600]
    assert world.account() == {"pending": 2, "occurrences_fired": 2, "occurrences_missed": 4}


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
