"""``deliver_outbox``: from the outbox to the tables of the destinations, each row once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connect.client import ToldError
from tests.connect.world import due
from tests.documents import blocks
from wheel_udf.common.package_data import toml_of

if TYPE_CHECKING:
    from tests.connect.world import World

NO_MATCH = "no destination of the allow-list matches"


def test_each_destination_has_a_table_and_the_rest_is_in_the_rejects(world: World) -> None:
    world.give(due("a", 5), due("b", 5, to="out_b"), due("c", 5, to="other"), due("d", 50), due(None, 5))
    world.to_outbox(10)
    assert world.deliver() == ["out_a", "out_b"]
    assert (world.ids("out_a"), world.ids("out_b")) == (["a"], ["b"])
    assert [row[:2] for row in world.rejected()] == [[None, "no_schedule_id"], ["c", "undeliverable"]]
    assert world.rejected()[1][2] == NO_MATCH

    # Again, without anything new.
    assert world.deliver() == ["out_a", "out_b"]
    assert (world.ids("out_a"), world.ids("out_b"), len(world.rejected())) == (["a"], ["b"], 2)

    world.give(due("e", 5, to="out_b"))
    world.to_outbox(10, 60)
    assert world.deliver() == ["out_a", "out_b"]
    assert (world.ids("out_a"), world.ids("out_b"), len(world.rejected())) == (["a", "d"], ["b", "e"], 2)


def test_the_tables_have_the_columns_of_an_ordinary_delta_destination(world: World) -> None:
    world.give(due("a", 5))
    world.to_outbox(10)
    world.deliver()
    shapes = toml_of("wheel_udf.stream.outputs", "shapes.toml")
    columns = {name: [row[0] for row in world.sql(f"DESCRIBE {name}")] for name in ("out_a", "rejects")}
    assert columns == {"out_a": [*shapes["fired"]["columns"]], "rejects": [*shapes["reject"]["columns"]]}
    (row,) = world.sql(
        "SELECT schedule_id, seq, destination, CAST(value AS STRING), lateness_ms, length(fire_id) FROM out_a"
    )
    assert row == ["a", 1, "out_a", "a", 5_000, 32]


def test_what_is_undeliverable_stays_a_reject_when_its_table_appears_later(world: World) -> None:
    world.give(due("early", 5))
    world.to_outbox(10)
    assert world.deliver(create=False) == []
    assert world.rejected() == [["early", "undeliverable", "the table out_a is missing"]]

    world.deliver(create=True)
    world.give(due("late", 5))
    world.to_outbox(10, 20)
    assert world.deliver(create=True) == ["out_a"]
    assert (world.ids("out_a"), world.ids("rejects")) == (["late"], ["early"])


def test_a_table_that_does_not_fit_gets_nothing_and_its_rows_are_rejects(world: World) -> None:
    world.sql("CREATE TABLE out_a (schedule_id string, seq string, further int NOT NULL) USING delta")
    world.give(due("a", 5), due("b", 5, to="out_b"))
    world.to_outbox(10)
    assert world.deliver() == ["out_b"]
    ((_, _, why),) = world.rejected()
    assert why.startswith("the table out_a does not fit: it has no column fire_id, ")
    assert "its column seq is string, not bigint" in why
    assert "its column further is NOT NULL" in why


def test_a_destination_cannot_have_the_name_of_a_table_of_the_scheduler(world: World) -> None:
    world.give(due("a", 5, to="outbox"), due("b", 5, to="OUTBOX_routed"), due("c", 5, to="with.dot"))
    world.to_outbox(10)
    assert world.deliver(destinations={"*": "{destination}"}) == []
    assert world.rejected() == [
        ["a", "undeliverable", "the table outbox is one of the scheduler itself"],
        ["b", "undeliverable", "the table OUTBOX_routed is one of the scheduler itself"],
        ["c", "undeliverable", "no table can be named with.dot"],
    ]


def test_a_table_that_is_lost_later_is_named_and_the_others_are_written(world: World) -> None:
    world.give(due("a", 5), due("b", 5, to="out_b"))
    world.to_outbox(10)
    world.deliver()
    world.sql("DROP TABLE out_a")
    world.give(due("c", 5), due("d", 5, to="out_b"))
    world.to_outbox(10, 20)
    with pytest.raises(ToldError, match=r"SinkError: 1 of 3 tables could not be written .*out_a is missing"):
        world.deliver(create=False)
    assert (world.ids("out_b"), world.ids("rejects")) == (["b", "d"], ["c"])

    world.sql("DELETE FROM outbox_routed WHERE route LIKE '%out_a'")
    assert world.deliver(create=False) == ["out_b"]
    assert (world.ids("out_b"), world.ids("rejects")) == (["b", "d"], ["c"])


def test_several_destinations_may_share_a_table_and_old_rows_of_the_outbox_may_be_removed(
    world: World,
) -> None:
    lists = {"out_a": "both", "out_*": "both"}
    world.give(due("a", 5), due("b", 5, to="out_b"))
    world.to_outbox(10)
    world.deliver(destinations=lists)
    world.sql("DELETE FROM outbox WHERE kind = 'fired'")
    world.sql("DELETE FROM outbox_routed")
    world.give(due("c", 5))
    world.to_outbox(10, 20)
    assert world.deliver(destinations=lists) == ["both"]
    assert world.ids("both") == ["a", "b", "c"]


def test_other_places_than_those_it_was_begun_with_are_refused(world: World) -> None:
    world.give(due("a", 5))
    world.to_outbox(10)
    world.deliver()
    with pytest.raises(ToldError, match=r"GeometryChangedError: .*rejects .*rejects there, .*others here"):
        world.deliver(rejects="others")
    with pytest.raises(ToldError, match=r"GeometryChangedError: .*checkpoint .* there, .*/new/router here"):
        world.deliver(checkpoint=f"{world.folder}/new")
    (world.folder / "delivery").rename(world.folder / "lost")
    with pytest.raises(ToldError, match="CheckpointError: the checkpoint of the table is missing"):
        world.deliver()


def test_wrong_settings_are_reported_together_before_anything_runs(world: World) -> None:
    with pytest.raises(ToldError) as raised:
        world.deliver(destinations={"a b": "x.{destination}.y"}, rejects="", checkpoint=" ")
    assert raised.value.kind == "ConfigErrors"
    assert raised.value.message.count("\n  - ") == 4
    with pytest.raises(ToldError, match=r"CheckpointError: there is no such outbox: outbox = .*outbox"):
        world.deliver()
    with pytest.raises(
        ToldError, match=r"(?s)ConfigErrors: .*a destination has a table of the scheduler itself"
    ):
        world.deliver(destinations={"out": "outbox"})


def test_the_example_of_the_guide_delivers(world: World) -> None:
    (program,) = blocks("docs/connect.md", "python")
    world.sql("CREATE SCHEMA IF NOT EXISTS shop")
    world.sql(
        "CREATE TABLE shop.commands USING delta AS SELECT 'order-7' AS schedule_id, timestamp'2024-01-01 00:00:00Z' AS deliver_at, 'orders_to_close' AS destination"
    )
    world.client.call("run", program.replace("/Volumes/", f"{world.folder}/"))
    assert world.ids("shop.due_orders_to_close") == ["order-7"]
