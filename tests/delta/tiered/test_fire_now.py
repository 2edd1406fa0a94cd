"""FIRE_NOW and RETRY in the tiered mode: what waits in the store fires now, what a consumer gives back waits in the
state, and both modes deliver the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.tiered.series_world import World, in_s, series
from tests.spark.streams import at, cancel, due
from wheel_udf.delivery.summary import Summary
from wheel_udf.pending.entries import PendingWork, count_pending, pending
from wheel_udf.policies.limits import Limits
from wheel_udf.policies.retries import Retries, Retry

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TWICE = Retries({"*": Retry(first_ms=10_000, factor=1, jitter="none", attempts=2)}, ("*",))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def fire_now(schedule_id: str, said_s: float, seq: int = 9) -> dict[str, Any]:
    return {"schedule_id": schedule_id, "op": "FIRE_NOW", "seq": seq, "event_time": at(said_s)}


def given_back(row: dict[str, Any], said_s: float, **columns: Any) -> dict[str, Any]:
    return row | {"op": "RETRY", "event_time": at(said_s), "error": "out of stock"} | columns


def fire_ids(world: World) -> list[tuple[str, str]]:
    return sorted((row.schedule_id, row.fire_id) for row in world.table().collect())


def closes(world: World) -> bool:
    summary = Summary()
    for report in world.reports:
        summary.add(report)
    return summary.commands_close and summary.cancels_close


def told() -> list[list[dict[str, Any]]]:
    """Files of commands.

    ::

        in the store   far, of ids that are due from 500 s on; each FIRE_NOW comes at 60 s
        near           due at 45 s, in a window that the wheel has, and at 75 s, in one that it has not
        in one file    scheduled and fired in the same file, due far and soon
    """
    store = ("far", "moved", "newer", "cancelled", "later-cancelled", "replaced", "twice")
    return [
        [
            *(due(name, 500 + 100 * number, 0) for number, name in enumerate(store)),
            due("near", 45, 0),
            due("next", 75, 0),
            series("series", "every 1000 seconds", 0),
            due("stays", 1_500, 0),
        ],
        [due("newer", 1_600, 30, seq=10), cancel("cancelled", 30), due("moved", 1_700, 30, seq=2)],
        [
            *(
                fire_now(name, 60)
                for name in ("far", "moved", "near", "next", "newer", "cancelled", "series", "unknown")
            ),
            fire_now("twice", 60, seq=1),
            fire_now("twice", 60, seq=5),
            due("one-file", 1_800, 60),
            fire_now("one-file", 60),
            due("soon", 75, 60),
            fire_now("soon", 60),
            due("replaced", 1_900, 60, seq=2),
            fire_now("replaced", 60, seq=2),
            due("above", 1_950, 60, seq=20),
            fire_now("above", 60, seq=2),
            fire_now("later-cancelled", 60),
        ],
        [cancel("later-cancelled", 120), cancel("far", 120), due("tick", 121, 120)],
        [due("end", 601, 600)],
    ]


FIRED_NOW = (
    "far",
    "later-cancelled",
    "moved",
    "near",
    "next",
    "one-file",
    "replaced",
    "series",
    "soon",
    "twice",
)


def test_both_modes_fire_the_same_entries_now(spark: SparkSession, tmp_path: Path) -> None:
    direct, tiered = World(spark, tmp_path / "direct"), World(spark, tmp_path / "tiered")
    for world in (direct, tiered):
        world.say(*told())
    direct.direct(until_s=2_100)
    tiered.tiered(until_s=2_100)

    assert tuple(row[0] for row in tiered.fired() if row[3] == 30) == FIRED_NOW
    assert tiered.fired() == direct.fired()
    assert fire_ids(tiered) == fire_ids(direct)
    assert (tiered.rejects(), direct.rejects()) == ([], [])
    # Like an act, it replaces the entry in the store.
    replaced = {"superseded": direct.account()["superseded"] + 5}
    assert tiered.account() == direct.account() | replaced
    assert closes(tiered)


def test_what_has_fired_now_is_not_pending_any_more_and_does_not_come_again(world: World) -> None:
    world.say(*told()[:3])
    world.tiered()
    world.say([due("tick", 66, 65)])
    world.tiered()

    assert tuple(row[0] for row in world.fired()) == FIRED_NOW
    waiting = [(row[0], row[2]) for row in world.pending()]
    assert waiting == [("above", 1_950), ("newer", 1_600), ("series", 2_000), ("stays", 1_500), ("tick", 66)]
    world.tiered(until_s=2_100)
    names = [row[0] for row in world.fired() if row[0] != "series"]
    assert sorted(names) == sorted({*FIRED_NOW, "above", "newer", "stays", "tick"} - {"series"})


def test_a_store_that_was_stopped_after_each_file_fires_the_same(spark: SparkSession, tmp_path: Path) -> None:
    direct, tiered = World(spark, tmp_path / "direct"), World(spark, tmp_path / "tiered")
    for batch in told():
        for world, run in ((direct, direct.direct), (tiered, tiered.tiered)):
            world.say(batch)
            run(2_100 if batch is told()[-1] else None)
    assert fire_ids(tiered) == fire_ids(direct)


def test_a_retry_waits_in_the_state_and_ends_as_in_the_direct_mode(
    spark: SparkSession, tmp_path: Path
) -> None:
    direct, tiered = World(spark, tmp_path / "direct"), World(spark, tmp_path / "tiered")
    one, two, three = (due(name, 50, 0) for name in ("one", "two", "three"))
    for world in (direct, tiered):
        world.say(
            [one, two, three],
            [due("tick", 61, 60)],
            [due("tick", 62, 61, seq=2)],
            [
                given_back(one, 70, attempt=1),
                given_back(two, 70, attempt=2),
                given_back(three, 70, attempt=1),
                given_back(due("beaten", 50, 0), 70, attempt=1),
                due("beaten", 2_000, 70, seq=2),
                given_back(one, 70, attempt=0),
            ],
        )
    direct.direct(retries=TWICE)
    tiered.tiered(retries=TWICE)
    waits = [("beaten", None, 2_000), ("one", 1, 50), ("three", 1, 50)]
    assert what_waits(spark, PendingWork(direct.checkpoint)) == waits
    assert what_waits(spark, tiered.work) == waits
    assert count_pending(spark, tiered.work) == len(waits)

    for world in (direct, tiered):
        world.say([cancel("three", 71)], [due("end", 101, 100)])
    direct.direct(until_s=1_000, retries=TWICE)
    tiered.tiered(until_s=1_000, retries=TWICE)

    def attempts(world: World) -> list[tuple[str, int, int]]:
        rows = world.table().collect()
        return sorted((row.schedule_id, row.attempt, row.fired_at.second) for row in rows)

    assert attempts(tiered) == attempts(direct)
    assert [each for each in attempts(tiered) if each[1] > 1] == [("one", 2, 11)]
    assert fire_ids(tiered) == fire_ids(direct)
    assert tiered.rejected() == direct.rejected() == [("one", "bad_attempt"), ("two", "dead_letter")]
    assert tiered.account() == direct.account()
    assert closes(tiered), "what a consumer gives back is a command that was received"
    assert closes(direct)


def what_waits(spark: SparkSession, work: PendingWork) -> list[tuple[str, int | None, float]]:
    rows = pending(spark, work).collect()
    return sorted((row.schedule_id, row.attempt, in_s(row.deliver_at)) for row in rows)


def test_a_full_store_rejects_new_entries_and_neither_a_fire_now_nor_a_retry(world: World) -> None:
    world.say(
        [due("far", 500, 0), due("stays", 600, 0)],
        [fire_now("far", 60), given_back(due("given", 0, 0), 60, attempt=1), due("refused", 700, 60)],
        [due("end", -1, 120)],
    )
    world.tiered(until_s=300, retries=TWICE, limits=Limits(pending=2))

    assert world.rejected() == [("refused", "limit_pending")]
    assert sorted(row[0] for row in world.fired()) == ["end", "far", "given"]
    assert [row[0] for row in world.pending()] == ["stays"]
    assert closes(world)
