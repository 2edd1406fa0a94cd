"""A client or the server is killed in the middle of a run; nothing is lost, and nothing is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connect.world import due

if TYPE_CHECKING:
    from tests.connect.world import World

# Spark has planned the first batch of a stream, and has not committed it.
PLANNED = {
    "to_outbox": "outbox/offsets/0",
    "router": "delivery/router/offsets/0",
    "table": "delivery/tables/*/*/out_a/offsets/0",
    "rejects": "delivery/rejects/offsets/0",
}
ROWS = {"out_a": ["a_0", "a_1", "a_2"], "out_b": ["b_0", "b_1", "b_2"], "rejects": ["c_0", "c_1", "c_2"]}


def give_three_files(world: World) -> None:
    for number in range(3):
        world.give(
            due(f"a_{number}", 5), due(f"b_{number}", 5, to="out_b"), due(f"c_{number}", 5, to="other")
        )


def run_to_end(world: World) -> dict[str, list[str]]:
    """Both calls, and once more; the ids in the tables."""
    for _ in range(2):
        world.to_outbox(10)
        world.deliver()
    return {name: world.ids(name) for name in ROWS}


def begin(world: World, point: str) -> None:
    if point == "to_outbox":
        world.client.begin("to_outbox", **world.outbox_call(10))
    else:
        world.to_outbox(10)
        world.client.begin("deliver_outbox", "outbox", **world.delivery_call())
    world.wait_for(PLANNED[point])


@pytest.mark.parametrize("point", PLANNED)
def test_the_server_is_killed_in_the_middle_of_a_batch(world: World, point: str) -> None:
    give_three_files(world)
    begin(world, point)
    world.server.kill()
    assert not any(world.folder.glob(PLANNED[point].replace("offsets", "commits"))), "killed too late"
    world.restart()

    assert run_to_end(world) == ROWS


@pytest.mark.parametrize("point", ["to_outbox", "router"])
def test_the_client_is_killed_in_the_middle_of_a_run(world: World, point: str) -> None:
    give_three_files(world)
    begin(world, point)
    world.client.kill()
    world.client = world.new_client()

    assert run_to_end(world) == ROWS


def test_the_client_is_killed_between_the_two_calls(world: World) -> None:
    give_three_files(world)
    world.to_outbox(10)
    world.client.kill()
    world.client = world.new_client()

    assert run_to_end(world) == ROWS
