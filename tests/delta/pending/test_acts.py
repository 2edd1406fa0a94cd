"""Acts on a slot store: recorded with their rows, pending at once, taken once; the contract of the job."""

from __future__ import annotations

import getpass
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.tiered.test_keeper import LAYOUT, World
from tests.spark.streams import T0_MS, at_ms
from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ActError, CheckpointError
from wheel_udf.pending import acts, audit, in_store
from wheel_udf.pending.acts import Picked
from wheel_udf.pending.entries import PendingWork, count_pending, pending
from wheel_udf.pending.history import history_of
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tiered.keeper import Keeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B, EVERYTHING = Picked(ids=["a"]), Picked(ids=["b"]), Picked(where="true")
CONTRACT = Contract(destinations=("out", "mail_*"), max_delay_ms=1_000_000)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    """Two entries in the store, due after 500 and 9,000 seconds."""
    world = World(spark, tmp_path)
    world.take_in(("a", "schedule", 1, 500), ("b", "schedule", 1, 9_000))
    return world


def work_of(world: World, contract: Contract | None = None) -> PendingWork:
    store = SlotStore.open(world.spark, world.store.path, LAYOUT, create=False)
    Path(world.acts).mkdir(parents=True, exist_ok=True)  # of a wheel without a batch
    return PendingWork(world.checkpoint, store, contract)


def waiting(world: World) -> dict[str, tuple[Any, ...]]:
    rows = pending(world.spark, work_of(world)).selectExpr(
        "schedule_id", "unix_millis(deliver_at)", "destination"
    )
    return {name: tuple(others) for name, *others in rows.collect()}


def recorded(world: World) -> list[tuple[str, str, str, int, int]]:
    rows = acts.audit(world.spark, world.acts).orderBy("batch").collect()
    return [(row.act, row.picked, row.change, row.rows, row.batch) for row in rows]


def act_files_of(world: World) -> list[str]:
    """The files of acts, and how many folders of rows there are."""
    names = [each.name for each in (Path(world.acts) / "acts").glob("*")]
    return sorted("rows" if name.startswith("rows-") else name for name in names)


def test_a_user_without_a_name_moves_an_entry_once_and_is_recorded_by_number(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert acts.move(world.spark, work_of(world), A, to="deliver_at + interval 1 hour", dry_run=True) == 1
    assert recorded(world) == []
    assert acts.move(world.spark, work_of(world), A, to="deliver_at + interval 1 hour") == 1
    moved = {"a": (at_ms(500 + 3_600), "out"), "b": (at_ms(9_000), "out")}
    assert waiting(world) == moved
    monkeypatch.setattr(in_store, "FEW_ROWS", -1)
    assert waiting(world) == moved, "also in a store of many rows"
    assert recorded(world) == [("move", "schedule_id in ['a']", "to deliver_at + interval 1 hour", 1, 0)]
    assert acts.audit(world.spark, world.acts).first()["by"].startswith("uid ")


def test_an_act_is_pending_at_once_and_the_same_when_the_keeper_has_taken_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.take_in(("c", "schedule", 1, 5), ("d", "schedule", 1, 9_500))
    assert acts.cancel(world.spark, work_of(world), A) == 1
    assert acts.move(world.spark, work_of(world), B, to="deliver_at - interval 8990 seconds") == 1
    assert acts.reroute(world.spark, work_of(world), Picked(where="schedule_id > 'a'"), to="mail_b") == 3
    assert acts.cancel(world.spark, work_of(world), A) == 0, "it is cancelled already"
    left = {"b": (at_ms(10), "mail_b"), "c": (at_ms(5), "mail_b"), "d": (at_ms(9_500), "mail_b")}
    version = world.store.head().version
    for taken in (0, 3):
        assert waiting(world) == left
        assert count_pending(world.spark, work_of(world)) == 3
        with monkeypatch.context() as patch:
            patch.setattr(in_store, "FEW_ROWS", -1)
            assert waiting(world) == left, "also in a store of many rows"
            assert count_pending(world.spark, work_of(world)) == 3
        assert (work_of(world).acts_waiting(), world.store.head().version) == (3 - taken, version + taken)
        assert world.keeper.take_acts(world.acts) == 3 - taken
    assert recorded(world) == [
        ("cancel", "schedule_id in ['a']", "", 1, 0),
        ("move", "schedule_id in ['b']", "to deliver_at - interval 8990 seconds", 1, 1),
        ("reroute", "(schedule_id > 'a')", "to mail_b", 3, 2),
    ]
    assert act_files_of(world) == ["0.json", "1.json", "2.json", "rows"], (
        "a reader may still have the last rows"
    )


@pytest.mark.parametrize(
    "killed",
    ["before it noted the commit", pytest.param("with the commit in flight", marks=pytest.mark.sentinel)],
)
def test_an_act_is_taken_once_by_a_job_that_is_killed_at_its_commit_and_started_again(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    assert acts.move(world.spark, work_of(world), A, to="deliver_at + interval 1 hour") == 1
    successor = world.new_keeper()
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "note_commit", dies)
        with pytest.raises(KeyboardInterrupt):
            world.keeper.take_acts(world.acts)
    # The successor has read the log before the commit landed, or after it.
    world.keeper = successor if killed == "with the commit in flight" else world.new_keeper()
    world.keeper.take_acts(world.acts)
    assert acts.cancel(world.spark, work_of(world), A) == 1
    assert world.keeper.take_acts(world.acts) == 1
    rows = (
        world.store.rows().where("arrived < 0 AND act = 0").select("arrived", "op", "seq", "amend").collect()
    )
    assert sorted(tuple(row) for row in rows) == [(-2, 1, 1, 1), (-1, 0, 1, 1)]
    assert waiting(world) == {"b": (at_ms(9_000), "out")}


def test_an_act_that_is_taken_after_the_hand_over_of_its_entry_changes_it_in_the_wheel(world: World) -> None:
    world.take_in(("soon", "schedule", 1, 30))
    assert acts.move(world.spark, work_of(world), EVERYTHING, to="deliver_at + interval 1 hour") == 3
    assert world.keeper.step(at_ms(20)) is not None
    assert world.keeper.take_acts(world.acts) == 1
    rows = world.store.rows().where("amend = 1 and level = 0").select("schedule_id", "seq_given").collect()
    assert sorted(tuple(row) for row in rows) == [("a", True), ("b", True), ("soon", False)]
    assert waiting(world) == {
        "a": (at_ms(4_100), "out"), "b": (at_ms(12_600), "out"), "soon": (at_ms(3_630), "out")
    }  # fmt: skip


def test_an_act_without_its_rows_names_them(world: World) -> None:
    assert acts.cancel(world.spark, work_of(world), A) == 1
    (rows,) = (Path(world.acts) / "acts").glob("rows-*")
    shutil.rmtree(rows)
    with pytest.raises(
        CheckpointError, match=rf"the rows of an act are missing: .*{rows.name}; hint: restore"
    ):
        world.keeper.take_acts(world.acts)


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("deliver_at + interval 1 hour", "too far in the future.*rule: up to 2024.*contract.max_delay"),
        ("timestamp'0001-01-01'", "out of range.*rule: not before 1900"),
        ("CASE WHEN schedule_id = 'a' THEN deliver_at END", "the new due time is NULL"),
        ("nobody", "cannot be used"),
    ],
)
def test_a_move_obeys_the_contract_for_each_entry_or_moves_none(world: World, to: str, said: str) -> None:
    before = waiting(world)
    with pytest.raises(ActError, match=said):
        acts.move(world.spark, work_of(world, Contract(max_delay_ms=9_500_000)), EVERYTHING, to=to)
    assert waiting(world) == before
    assert (recorded(world), act_files_of(world)) == ([], [])


def test_a_reroute_goes_to_an_allowed_destination_only(world: World) -> None:
    with pytest.raises(ActError, match=r"not an allowed destination: to = 'sms'; rule: one of out, mail_\*"):
        acts.reroute(world.spark, work_of(world, CONTRACT), B, to="sms")
    assert acts.reroute(world.spark, work_of(world, CONTRACT), B, to="mail_b") == 1
    assert waiting(world)["b"] == (at_ms(9_000), "mail_b")


def test_a_row_of_an_act_says_whether_its_entry_was_in_the_store(world: World) -> None:
    world.take_in(("c", "schedule", 1, 5))
    assert acts.move(world.spark, work_of(world), EVERYTHING, to="deliver_at + interval 1 hour") == 3
    assert world.keeper.take_acts(world.acts) == 1
    rows = world.store.rows().where("amend = 1 and level = 0").select("schedule_id", "seq_given").collect()
    assert sorted(tuple(row) for row in rows) == [("a", True), ("b", True), ("c", False)]


def test_history_says_who_moved_an_entry_when_and_how_and_the_levels_it_passed_until_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    for clock_s, wall_s, act in ((100, 7, "move"), (200, 8, "reroute"), (4_900, 9, "cancel")):
        monkeypatch.setattr(acts, "store_clock_ms", lambda *_, clock_s=clock_s: at_ms(clock_s))
        monkeypatch.setattr(audit, "wall_clock_ms", lambda wall_s=wall_s: at_ms(wall_s))
        to = {"move": "deliver_at + interval 4500 seconds", "reroute": "mail", "cancel": None}[act]
        more = {} if to is None else {"to": to}
        assert getattr(acts, act)(world.spark, work_of(world), A, **more) == 1
    told = history_of(world.spark, work_of(world), "a", geometry=LAYOUT.wheel)
    second = {event: None if event is None else (event - T0_MS) // 1_000 for event in (e.at_ms for e in told)}
    assert [(second[event.at_ms], event.what, event.amend, event.act, event.by) for event in told] == [
        (0, "SCHEDULE", None, None, None),
        (0, "on a level of the wheel", None, None, None),
        (100, "SCHEDULE", 1, "move to deliver_at + interval 4500 seconds", "ann"),
        (100, "on a level of the wheel", None, None, None),
        (200, "SCHEDULE", 2, "reroute to mail", "ann"),
        (200, "on a level of the wheel", None, None, None),
        (4_800, "on a level of the wheel", None, None, None),
        (4_900, "CANCEL", 2, "cancel", "ann"),
    ]
    assert [event.acted_at_ms for event in told if event.act] == [at_ms(7), at_ms(8), at_ms(9)]
    assert [event.detail for event in told if event.what.startswith("on a level")] == [
        "level 3, slot 4260169", "level 3, slot 4260180", "level 3, slot 4260180", "level 2, slot 85203610",
    ]  # fmt: skip


def test_a_cancel_of_nothing_records_nothing(world: World) -> None:
    assert acts.cancel(world.spark, work_of(world), Picked(where="destination = 'nowhere'")) == 0
    assert (recorded(world), act_files_of(world)) == ([], [])


def test_a_cancel_for_dry_run_counts_and_changes_nothing(world: World) -> None:
    assert acts.cancel(world.spark, work_of(world), EVERYTHING, dry_run=True) == 2
    assert (recorded(world), act_files_of(world)) == ([], [])


def test_of_two_cancels_at_a_time_the_second_selects_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = audit.create_act

    def late(*about: Any) -> bool:
        monkeypatch.setattr(audit, "create_act", create)
        assert acts.cancel(world.spark, work_of(world), A) == 1
        return create(*about)

    monkeypatch.setattr(audit, "create_act", late)
    assert acts.cancel(world.spark, work_of(world), EVERYTHING) == 1, "the other one was first"
    assert waiting(world) == {}
    assert recorded(world) == [
        ("cancel", "schedule_id in ['a']", "", 1, 0),
        ("cancel", "(true)", "", 1, 1),
    ]
    assert act_files_of(world) == ["0.json", "1.json", "rows", "rows"]
