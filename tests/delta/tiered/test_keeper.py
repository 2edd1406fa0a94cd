"""The keeper of a slot store on real tables, without queries around it: inbox, hand-over and its crash points,
retirement.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from tests.spark.streams import T0_MS, at_ms
from wheel_udf.common.errors import StoreError
from wheel_udf.common.geometry import Wheel
from wheel_udf.pending.acts_on_store import keep_rows
from wheel_udf.pending.audit import record_act
from wheel_udf.shard.rows import COMMAND, FAR, GONE_CANCELLED, GONE_SUPERSEDED, MOVED
from wheel_udf.store import intake
from wheel_udf.store.layout import INBOX, MARKS, NEAR, StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables.delta_transaction import Transaction
from wheel_udf.tiered import hand_over
from wheel_udf.tiered.keeper import FileBounds, Keeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1)
PARSED = (
    "schedule_id string, op byte, seq long, seq_given boolean, deliver_at_ms long, event_time_ms long, destination string, key binary, "
    "value binary, headers string, max_lateness_ms long, error_code string, error_message string, record string, source string"
)
"""What :func:`wheel_udf.commands.parse.parse` makes of commands."""
PLACE = ("level", "act", "schedule_id", "seq")


class World:
    """A store, its keeper, and commands by the batch. The first cursor is 20 s; times are seconds after the tests'
    beginning.
    """

    def __init__(self, spark: SparkSession, folder: Path, layout: StoreLayout = LAYOUT) -> None:
        self.spark, self.batch, self.checkpoint = spark, 0, str(folder / "checkpoint")
        self.store = SlotStore.open(spark, str(folder / "store"), layout, create=True)
        self.keeper = self.new_keeper()

    def new_keeper(self, **bounds: int) -> Keeper:
        return Keeper(self.store, app_id="us", on_change=lambda _: None, bounds=FileBounds(**bounds))

    def take_in(self, *rows: tuple[str, str, int, int | None]) -> None:
        """A batch of (id, op, seq, due in seconds)."""
        self.keeper.take_in(self.parsed(*rows), self.batch, lambda _: T0_MS)
        self.batch += 1

    @property
    def acts(self) -> str:
        """Checkpoint of the wheel's query, which has the files of acts."""
        return f"{self.checkpoint}/wheel"

    def act(self, *rows: tuple[str, str, int, int | None]) -> None:
        """What a move brings: recorded, and taken by the keeper."""
        chosen = self.parsed(*rows).withColumn("amend", F.lit(1))
        said = {"act": "move", "picked": "(true)", "change": ""}
        record_act(self.acts, lambda: keep_rows(self.acts, chosen, lambda rows: rows.count()), **said)
        assert self.keeper.take_acts(self.acts) == 1

    def parsed(self, *rows: tuple[str, str, int, int | None]) -> DataFrame:
        given = [
            (
                name,
                int(op == "cancel"),
                seq,
                True,
                None if due_s is None else at_ms(due_s),
                T0_MS,
                "out",
                *[None] * 8,
            )
            for name, op, seq, due_s in rows
        ]
        return self.spark.createDataFrame(given, PARSED).coalesce(1)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.store.rows().select(*PLACE).collect())

    def far_files(self) -> set[str]:
        """The files of the far partitions."""
        return set(self.store.rows().where(f"level > {NEAR}").inputFiles())

    def files_on_disk(self) -> list[Path]:
        return [file for file in Path(self.store.path).rglob("*.parquet") if "_delta_log" not in file.parts]

    def near(self) -> list[tuple[Any, ...]]:
        """What the stream of the near rows has brought, from the beginning."""
        query = self.store.near_stream().writeStream.format("memory").queryName("near")
        query.trigger(availableNow=True).start().awaitTermination()
        found = sorted(tuple(row) for row in self.spark.table("near").select(*PLACE[1:]).collect())
        self.spark.catalog.dropTempView("near")
        return found


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def test_small_batches_wait_in_one_file_each_and_are_placed_together_unseen_by_the_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keeper = world.new_keeper(inbox=2, near=2, joined=2)
    world.take_in(("first", "schedule", 1, 100))
    assert world.keeper.tidy() == 0
    for number, due_s in enumerate((30, 500, 9_000)):
        world.take_in((f"a{number}", "schedule", 1, due_s), (f"b{number}", "schedule", 1, due_s))
    inbox = next(p for p in world.store.partitions() if p.level == INBOX)
    assert (inbox.files, inbox.rows) == (3, 6)

    assert world.keeper.tidy() == 3
    levels = {name: level for level, act, name, _ in world.rows() if act == COMMAND}
    assert levels == {"first": 2, "a0": 2, "b0": 2, "a1": 3, "b1": 3, "a2": 4, "b2": 4}
    told = [(FAR, name, 1) for name in sorted(levels)]
    assert world.near() == told
    assert world.keeper.tidy() == 0

    # Each of the four commits has left a small file in the near window, too.
    assert sum(world.keeper.compact()) == 4
    assert [p.files for p in world.store.partitions() if p.level == NEAR] == [1]
    assert world.near() == told
    assert sum(world.keeper.compact()) == 0

    # The next full inbox brings a second file to a far slot, and two commits two more to the near window.
    for number in (3, 4):
        world.take_in((f"a{number}", "schedule", 1, 9_000))
    assert world.keeper.tidy() == 2
    before = world.rows()
    assert list(world.keeper.compact()) == [2, 3]
    assert {p.files for p in world.store.partitions()} == {1}
    assert world.rows() == before


def test_a_near_window_is_joined_at_more_files_while_batches_still_add_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keeper = world.new_keeper(near=4, joined=3)
    for number in range(3):
        world.take_in((f"a{number}", "schedule", 1, number))
    assert sum(world.keeper.compact()) == 0

    # Two windows later the earliest near rows go to the window after this one.
    assert world.keeper.step(at_ms(40)) is not None
    assert list(world.keeper.compact()) == [3]
    for number in range(3, 6):
        world.take_in((f"a{number}", "schedule", 1, number))
    assert sum(world.keeper.compact()) == 0
    world.take_in(("a6", "schedule", 1, 6))
    assert list(world.keeper.compact()) == [4]


def test_a_hand_over_comes_between_two_partitions_whose_files_are_joined(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keeper = world.new_keeper(inbox=2, near=2, joined=2)
    world.take_in(("first", "schedule", 1, 1), ("b", "schedule", 1, 9_000), ("due", "schedule", 1, 30))
    world.keeper.empty_inbox()
    world.take_in(("c", "schedule", 1, 2), ("d", "schedule", 1, 9_000), ("due too", "schedule", 1, 31))
    world.keeper.empty_inbox()
    joins = world.keeper.compact()
    assert next(joins) == 2
    assert world.keeper.step(at_ms(20)) is not None
    assert [row[2] for row in world.rows() if row[1] == MOVED] == ["due", "due too"]
    assert sum(joins) <= 2
    assert sorted({row[2] for row in world.rows()}) == ["b", "c", "d", "due", "due too", "first"]


def test_what_comes_while_the_inbox_is_emptied_stays_in_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keeper = world.new_keeper(inbox=1)
    world.take_in(("first", "schedule", 1, 100))
    world.take_in(("a", "schedule", 1, 30))
    rearrange = world.store.rearrange

    def while_another_comes(*args: Any, **named: Any) -> int:
        world.take_in(("late", "schedule", 1, 40))
        return rearrange(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "rearrange", while_another_comes)
        assert world.keeper.tidy() == 1
    assert (INBOX, COMMAND, "late", 1) in world.rows()
    assert world.keeper.tidy() == 1
    entries = [row for row in world.rows() if row[1] == COMMAND]
    assert entries == [(2, COMMAND, name, 1) for name in ("a", "first", "late")]


def test_a_hand_over_takes_the_inbox_along_and_leaves_each_entry_once(world: World) -> None:
    world.take_in(("first", "schedule", 1, 100))
    world.take_in(("soon", "schedule", 1, 30), ("later", "schedule", 1, 900))
    done = world.keeper.step(at_ms(20))
    assert done is not None
    assert (done.cursor_ms, done.slots, done.rows) == (at_ms(40), 1, 1)
    assert [row for row in world.rows() if row[1] != FAR] == [
        (NEAR, MOVED, "soon", 1),
        (2, COMMAND, "first", 1),
        (3, COMMAND, "later", 1),
    ]


@pytest.mark.parametrize("cut_off", ["before the commit", "before the drop"])
def test_a_hand_over_that_is_cut_off_loses_and_repeats_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, cut_off: str
) -> None:
    world.take_in(
        ("soon", "schedule", 1, 30), ("old", "schedule", 1, 35), ("old", "schedule", 2, 390), ("x", "schedule", 1, 430)
    )  # fmt: skip

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "append" if cut_off == "before the commit" else "drop", dies)
        with pytest.raises(KeyboardInterrupt):
            world.keeper.step(at_ms(20))
    world.keeper = world.new_keeper()
    world.keeper.step(at_ms(20))
    assert [row for row in world.rows() if row[1] != FAR] == [
        (NEAR, MOVED, "soon", 1),
        (NEAR, GONE_SUPERSEDED, "old", 1),
        (2, COMMAND, "old", 2),
        (3, COMMAND, "x", 1),
    ]


def test_optimize_and_vacuum_by_hand_do_no_harm(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTable.forPath(world.spark, world.store.path)
    world.take_in(("soon", "schedule", 1, 30), ("later", "schedule", 1, 430))
    world.take_in(("soon", "schedule", 2, 31))
    table.optimize().executeCompaction()
    drop = world.store.drop

    def joined_before(*partitions: Any, **named: Any) -> None:
        assert {p.files for p in world.store.partitions() if p.level == 2} == {2}
        table.optimize().executeCompaction()
        drop(*partitions, **named)

    monkeypatch.setattr(world.store, "drop", joined_before)
    world.keeper.step(at_ms(20))
    on_disk = len(world.files_on_disk())
    # As bold as can be: Delta itself refuses so short a time unless it is told not to.
    world.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    table.vacuum(0)
    assert len(world.files_on_disk()) == sum(p.files for p in world.store.partitions()) < on_disk
    assert world.near() == [
        (FAR, "later", 1),
        (FAR, "soon", 1),
        (FAR, "soon", 2),
        (MOVED, "soon", 2),
        (GONE_SUPERSEDED, "soon", 1),
    ]
    assert [row for row in world.rows() if row[0] != NEAR] == [(3, COMMAND, "later", 1)]


def test_an_optimize_while_files_are_rearranged_makes_it_try_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keeper = world.new_keeper(inbox=2)
    table, put = DeltaTable.forPath(world.spark, world.store.path), Transaction.commit_rewrite
    for number, due_s in enumerate((100, 30, 500)):
        world.take_in((f"a{number}", "schedule", 1, due_s))
    tries = []

    def joined_meanwhile(*args: Any) -> None:
        if not tries:
            table.optimize().executeCompaction()
        tries.append(1)
        put(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit_rewrite", joined_meanwhile)
        assert world.keeper.tidy() == 1, "the two files of the inbox are one by now"
    assert len(tries) == 2
    assert [row for row in world.rows() if row[1] == COMMAND] == [
        (2, COMMAND, "a0", 1),
        (2, COMMAND, "a1", 1),
        (3, COMMAND, "a2", 1),
    ]


def test_a_full_disk_fails_the_batch_and_harms_nothing(world: World) -> None:
    world.take_in(("first", "schedule", 1, 100))
    before = world.rows()
    # No file may grow beyond some bytes: to whoever writes one it is as if there were no room.
    process = int(world.spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    unlimited = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (1_000, unlimited[1]))
    try:
        with pytest.raises(Exception, match="File too large"):
            world.take_in(("second", "schedule", 1, 200))
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, unlimited)
    assert world.rows() == before
    world.take_in(("second", "schedule", 1, 200))  # as Spark repeats it
    assert [row for row in world.rows() if row[1] == COMMAND] == [
        (INBOX, COMMAND, "second", 1),
        (2, COMMAND, "first", 1),
    ]


@pytest.mark.parametrize("by", ["INSERT INTO {0} SELECT * FROM {0}", "DELETE FROM {0} WHERE level = 2"])
def test_rows_that_someone_else_has_changed_stop_the_keeper_once(world: World, by: str) -> None:
    world.take_in(("soon", "schedule", 1, 30))
    world.spark.sql(by.format(f"delta.`{world.store.path}`"))
    with pytest.raises(StoreError, match=r"someone else has changed rows of the slot store.*version 3"):
        world.keeper.step(at_ms(20))
    world.keeper = world.new_keeper()
    assert world.keeper.step(at_ms(20)) is not None


def test_an_entry_is_beaten_by_a_later_one_that_stays_behind_in_its_slot(world: World) -> None:
    # Both on level 3, [400, 800) s; the cursor reaches that slot and only the older version is near.
    world.take_in(("a", "schedule", 1, 430), ("a", "schedule", 2, 790))
    assert {row[0] for row in world.rows()} == {NEAR, 3}
    world.keeper.step(at_ms(420))
    assert [row for row in world.rows() if row[1] != FAR] == [
        (NEAR, GONE_SUPERSEDED, "a", 1),
        (2, COMMAND, "a", 2),
    ]


def _before_the_look(world: World, patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    act()


def _before_the_commit(world: World, patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    news, acts = hand_over.news_since, [act]

    def meanwhile(*args: Any) -> bool:
        while acts:
            acts.pop()()
        return news(*args)

    patch.setattr(hand_over, "news_since", meanwhile)


@pytest.mark.parametrize("moment", [_before_the_look, _before_the_commit])
def test_a_cancel_in_flight_ends_the_entry_on_its_way_from_the_store_to_the_state(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: Callable[..., None]
) -> None:
    world.take_in(("soon", "schedule", 1, 30), ("other", "schedule", 1, 31))
    moment(world, monkeypatch, lambda: world.take_in(("soon", "cancel", 2, None)))
    world.keeper.step(at_ms(20))
    assert [row for row in world.rows() if row[1] in (MOVED, GONE_CANCELLED)] == [
        (NEAR, MOVED, "other", 1),
        (NEAR, GONE_CANCELLED, "soon", 2),
    ]


def test_of_ids_that_share_a_hash_each_is_compared_with_its_own_versions_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "id_hash", lambda _: F.lit(7).cast("long"))
    world.take_in(("a", "schedule", 1, 25), ("b", "schedule", 5, 26), ("c", "schedule", 9, 9_000))
    world.take_in(("d", "schedule", 3, 27), ("d", "cancel", 3, None), ("e", "cancel", 8, None))
    world.keeper.step(at_ms(16))
    moved = [(act, name, seq) for act, name, seq in world.near() if act in (MOVED, GONE_CANCELLED)]
    assert sorted(moved) == sorted([(MOVED, "a", 1), (MOVED, "b", 5), (GONE_CANCELLED, "d", 3)])


def test_a_cancel_of_its_seq_ends_an_entry_that_someone_has_moved(world: World) -> None:
    world.take_in(("moved", "schedule", 1, 30))
    world.act(("moved", "schedule", 1, 31))
    world.take_in(("moved", "cancel", 1, None))
    world.keeper.step(at_ms(20))
    assert [row for row in world.rows() if row[1] in (MOVED, GONE_CANCELLED, GONE_SUPERSEDED)] == [
        (NEAR, GONE_CANCELLED, "moved", 1),
        (NEAR, GONE_SUPERSEDED, "moved", 1),
    ]


def test_a_cancel_after_the_hand_over_reaches_the_wheel_behind_its_entry(world: World) -> None:
    world.take_in(("soon", "schedule", 1, 30))
    world.keeper.step(at_ms(20))
    moved_in = world.keeper.version
    world.take_in(("soon", "cancel", 2, None))
    assert world.near() == [(COMMAND, "soon", 2), (FAR, "soon", 1), (MOVED, "soon", 1)]
    assert world.keeper.version > moved_in


def test_a_window_is_retired_when_it_is_done_and_leaves_the_versions_that_are_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `a` was replaced by a near one, and so was `b`; the far entry of `a` is still there when its window is retired.
    world.take_in(("a", "schedule", 1, 9_000), ("b", "schedule", 1, 30))
    world.take_in(("a", "schedule", 2, 5), ("b", "schedule", 2, 6), ("c", "schedule", 1, 7))
    world.keeper.step(at_ms(20))
    world.keeper.step(at_ms(60))
    assert world.keeper.retire(at_ms(60), memory_ms=100_000) == 0, (
        "what is remembered may still be compared with"
    )
    assert world.keeper.retire(at_ms(60), memory_ms=0, history_ms=100_000) == 0, "history is kept by due time"
    drop = world.store.drop
    monkeypatch.setattr(world.store, "drop", lambda *_, **__: None)  # cut off between the marks and the drop
    assert world.keeper.retire(at_ms(60), memory_ms=0) > 0
    monkeypatch.setattr(world.store, "drop", drop)
    assert world.keeper.retire(at_ms(60), memory_ms=0) > 0
    assert [row for row in world.rows() if row[0] <= NEAR] == [
        (MARKS, COMMAND, "a", 2),
    ]
    assert [row for row in world.rows() if row[0] > NEAR] == [(4, COMMAND, "a", 1)]
    assert world.keeper.retire(at_ms(60), memory_ms=0) == 0

    world.keeper.step(at_ms(8_995))
    gone = [row for row in world.rows() if row[1] == GONE_SUPERSEDED]
    assert gone == [(NEAR, GONE_SUPERSEDED, "a", 1)]


@pytest.mark.parametrize(
    ("layout", "window_s"),
    [
        (
            StoreLayout(Wheel(tick_ms=1_000, size=7_200, levels=1), state_levels=0, state_horizon_ms=60_000),
            60,
        ),
        (StoreLayout(Wheel(tick_ms=1_000, size=8, levels=5), state_levels=2), 64),
    ],
    ids=["one level, as a slot wheel", "five levels"],
)
def test_whatever_the_wheel_only_what_is_reached_is_loaded_and_each_entry_comes_once(
    spark: SparkSession, tmp_path: Path, layout: StoreLayout, window_s: int
) -> None:
    assert layout.window_ms == window_s * 1_000
    world = World(spark, tmp_path, layout)
    due_s = {"next window": window_s * 2, "soon": window_s * 3 + 1, "far": window_s * 40, "farther": 90_000}
    world.take_in(*((name, "schedule", 1, at) for name, at in due_s.items()))
    there = world.far_files()
    for name in ("next window", "soon"):
        done = world.keeper.step(at_ms(due_s[name]))
        assert done is not None
        moved = sorted(name for act, name, _ in world.near() if act == MOVED)
        assert moved == sorted(name for name, at in due_s.items() if at_ms(at) < done.cursor_ms)
    # One file each for what is far: it was neither read into the near side nor written again.
    left = world.store.rows().where(f"level > {NEAR}")
    assert sorted(row.schedule_id for row in left.collect()) == ["far", "farther"]
    assert world.far_files() < there
