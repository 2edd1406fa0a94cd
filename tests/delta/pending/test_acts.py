"""Acts on pending entries: one commit for rows and record, the contract of the job, and answers that say what was
done.
"""

from __future__ import annotations

import getpass
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.tiered.test_keeper import LAYOUT, World
from tests.spark.streams import T0_MS, at_ms
from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ActError
from wheel_udf.pending import acts, acts_on_store, in_store
from wheel_udf.pending.acts import Picked
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.pending.history import history_of
from wheel_udf.store.layout import NEAR
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables.delta_transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

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
    checkpoint = Path(world.store.path).parent / "checkpoint"
    (checkpoint / "wheel").mkdir(parents=True, exist_ok=True)  # of a wheel without a batch
    return PendingWork(str(checkpoint), store, contract)


def waiting(world: World) -> dict[str, tuple[Any, ...]]:
    rows = pending(world.spark, work_of(world)).selectExpr(
        "schedule_id", "unix_millis(deliver_at)", "destination"
    )
    return {name: tuple(others) for name, *others in rows.collect()}


def recorded(world: World) -> list[tuple[str, str, str, int, int]]:
    rows = acts.audit(world.spark, world.store).orderBy("batch").collect()
    return [(row.act, row.picked, row.change, row.rows, row.batch) for row in rows]


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
    monkeypatch.setattr(in_store, "_FEW_ROWS", -1)
    assert waiting(world) == moved, "also in a store of many rows"
    assert recorded(world) == [("move", "schedule_id in ['a']", "to deliver_at + interval 1 hour", 1, 0)]
    assert acts.audit(world.spark, world.store).first()["by"].startswith("uid ")


def test_a_record_that_cannot_be_copied_is_in_the_commit_and_the_next_act_copies_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    place = Path(world.store.path) / "_acts"
    place.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert acts.cancel(world.spark, work_of(world), A) == 1
    assert "the act is done, but its record is in the history" in caplog.text
    assert waiting(world) == {"b": (at_ms(9_000), "out")}

    place.unlink()
    cancelled = ("cancel", "schedule_id in ['a']", "", 1, 0)
    rerouted = ("reroute", "(true)", "to mail_b", 1, 1)
    assert recorded(world) == [cancelled]
    assert acts.reroute(world.spark, work_of(world), EVERYTHING, to="mail_b") == 1
    assert recorded(world) == [cancelled, rerouted]
    copied = world.spark.read.format("delta").load(str(place))
    assert sorted(row.batch for row in copied.collect()) == [0, 1]
    copied.where("batch = 0").write.format("delta").mode("append").save(
        str(place)
    )  # as two acts at once may do
    assert recorded(world) == [cancelled, rerouted]


def test_records_that_cannot_be_read_are_an_error_and_not_an_empty_list(world: World) -> None:
    acts.cancel(world.spark, work_of(world), A)
    for file in (Path(world.store.path) / "_acts" / "_delta_log").glob("*.json"):
        file.write_text("no log\n")
    with pytest.raises(ActError, match=r"the record of acts cannot be read.*_acts"):
        acts.audit(world.spark, world.store)
    shutil.rmtree(Path(world.store.path) / "_acts")
    assert recorded(world) == [("cancel", "schedule_id in ['a']", "", 1, 0)]


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
    assert recorded(world) == []


def test_a_reroute_goes_to_an_allowed_destination_only(world: World) -> None:
    with pytest.raises(ActError, match=r"not an allowed destination: to = 'sms'; rule: one of out, mail_\*"):
        acts.reroute(world.spark, work_of(world, CONTRACT), B, to="sms")
    assert acts.reroute(world.spark, work_of(world, CONTRACT), B, to="mail_b") == 1
    assert waiting(world)["b"] == (at_ms(9_000), "mail_b")


def test_a_row_of_an_act_says_whether_its_entry_was_in_the_store(world: World) -> None:
    world.take_in(("c", "schedule", 1, 5))
    assert acts.move(world.spark, work_of(world), EVERYTHING, to="deliver_at + interval 1 hour") == 3
    rows = world.store.rows().where("amend = 1 and level = 0").select("schedule_id", "seq_given").collect()
    assert sorted(tuple(row) for row in rows) == [("a", True), ("b", True), ("c", False)]


def test_history_says_who_moved_an_entry_when_and_how_and_the_levels_it_passed_until_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    for clock_s, wall_s, act in ((100, 7, "move"), (200, 8, "reroute"), (4_900, 9, "cancel")):
        monkeypatch.setattr(acts, "_clock_ms", lambda *_, clock_s=clock_s: at_ms(clock_s))
        monkeypatch.setattr(acts_on_store, "wall_clock_ms", lambda wall_s=wall_s: at_ms(wall_s))
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


def test_a_cancel_of_nothing_commits_nothing(world: World) -> None:
    version = world.store.head().version
    assert acts.cancel(world.spark, work_of(world), Picked(where="destination = 'nowhere'")) == 0
    assert world.store.head().version == version
    assert recorded(world) == []


def test_a_cancel_for_dry_run_counts_and_changes_nothing(world: World) -> None:
    version = world.store.head().version
    assert acts.cancel(world.spark, work_of(world), EVERYTHING, dry_run=True) == 2
    assert world.store.head().version == version


def between(monkeypatch: pytest.MonkeyPatch, comes: Callable[[], bool]) -> list[str]:
    """Lets something come between the files of the first act and its commit, and be true; the app ids of all commits
    of acts.
    """
    commit, tries = Transaction.commit_append, []

    def late(transaction: Transaction, *files: Any, app_id: str, **more: Any) -> int:
        if app_id.endswith("-acts"):
            tries.append(app_id)
            if len(tries) == 1:
                assert comes()
        return commit(transaction, *files, app_id=app_id, **more)

    monkeypatch.setattr(Transaction, "commit_append", late)
    return tries


def test_a_cancel_is_placed_again_if_the_cursor_moves_before_its_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = between(monkeypatch, lambda: world.keeper.step(at_ms(490)) is not None)
    assert acts.cancel(world.spark, work_of(world), EVERYTHING) == 2
    assert len(tries) == 2
    cancels = world.store.rows().where("op = 1").select("schedule_id", "level", "slot").collect()
    newest = world.store.layout.slot_of(NEAR, world.keeper.cursor_ms - 1, world.keeper.cursor_ms)
    assert sorted(tuple(row) for row in cancels) == [("a", NEAR, newest), ("b", NEAR, newest)]
    assert waiting(world) == {}
    assert recorded(world) == [("cancel", "(true)", "", 2, 0)]


def test_two_cancels_at_a_time_have_a_number_and_a_record_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(monkeypatch, lambda: acts.cancel(world.spark, work_of(world), A) == 1)
    assert acts.cancel(world.spark, work_of(world), EVERYTHING) == 1, "the other one was first"
    assert waiting(world) == {}
    assert recorded(world) == [
        ("cancel", "schedule_id in ['a']", "", 1, 0),
        ("cancel", "(true)", "", 1, 1),
    ]
