"""``to_outbox``: a scheduler whose runs the platform starts, over Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connect.client import ToldError
from tests.connect.world import T0_MS, cancel, due

if TYPE_CHECKING:
    from tests.connect.world import World


def report(**figures: object) -> dict[str, object]:
    return {"runs": 1, "pending": 0, "next_due": None, "fired": 0, "missed": 0, "rejected": 0} | figures


def test_a_run_releases_what_is_due_and_the_next_one_the_rest(world: World) -> None:
    """The runs are at 10, 20 and 30 s. b is replaced, c is cancelled, one row has no id."""
    world.give(due("a", 5), due("b", 15), due("c", 15), due(None, 5))
    assert world.to_outbox(10) == report(pending=2, next_due="2024-01-01 00:00:15+00:00", fired=1, rejected=1)
    world.give(due("b", 25, seq=2), cancel("c", seq=2))
    assert world.to_outbox(10, 20) == report(
        pending=1, next_due="2024-01-01 00:00:25+00:00", fired=1, rejected=1
    )
    assert world.to_outbox(10, 20, 30) == report(fired=2, rejected=1)

    fired = world.client.call(
        "read", "fired", "outbox", "schedule_id", "seq", "deliver_at", "fired_at", "lateness_ms"
    )
    assert fired == [
        ["a", 1, "2024-01-01 00:00:05", "2024-01-01 00:00:10", 5_000],
        ["b", 2, "2024-01-01 00:00:25", "2024-01-01 00:00:30", 5_000],
    ]
    assert world.client.call("read", "rejects", "outbox", "schedule_id", "error_code") == [
        [None, "no_schedule_id"]
    ]


def test_a_batch_after_the_first_one_of_a_run_releases_what_is_due_then(world: World) -> None:
    world.give(due("a", 5))
    world.give(due("b", 5))
    world.give(due("c", 25))
    assert world.to_outbox(10, 20, 30)["fired"] == 3


def test_the_event_clock_moves_by_the_commands_of_a_run_and_releases_in_the_same_call(world: World) -> None:
    clock = {"kind": "event", "max_ahead_ms": None}
    world.give(due("a", 5, said_s=0), due("b", 30, said_s=20))

    found = world.to_outbox(clock=clock)
    assert (found["runs"], found["fired"], found["pending"]) == (2, 1, 1)
    world.give(due("c", 100, said_s=31))
    assert world.to_outbox(clock=clock)["fired"] == 2


def test_the_processing_clock_releases_what_the_wall_clock_has_passed(world: World) -> None:
    world.give(due("past", 5), due("in_a_century", 3_155_760_000))
    found = world.to_outbox(clock={"kind": "processing"})
    assert (found["runs"], found["fired"], found["pending"]) == (1, 1, 1)


def test_a_backlog_over_the_limit_is_released_by_further_runs_of_the_same_call(world: World) -> None:
    world.give(*(due(f"id_{number}", 5) for number in range(5)))
    found = world.to_outbox(10, limit=2)
    assert (found["fired"], found["pending"]) == (5, 0)
    assert found["runs"] > 1


def test_limits_of_pending_entries_reject(world: World) -> None:
    world.give(*(due(f"id_{number}", 50) for number in range(20)))
    found = world.to_outbox(10, max_pending=4)
    assert (found["pending"], found["rejected"]) == (4, 16)


def test_other_settings_than_those_it_was_begun_with_are_refused(world: World) -> None:
    world.give(due("a", 5))
    world.to_outbox(10)
    with pytest.raises(ToldError) as raised:
        world.to_outbox(size=10, shards=3, clock={"kind": "processing"})
    assert raised.value.kind == "GeometryChangedError"
    assert (
        "wheel tick_ms=1000,size=20,levels=6 there, tick_ms=1000,size=10,levels=6 here; shards 2 there, 3 here; "
        "clock simulated there, processing here"
    ) in raised.value.message

    with pytest.raises(
        ToldError, match=r"GeometryChangedError: .*checkpoint .*/outbox there, .*/elsewhere here"
    ):
        world.to_outbox(10, checkpoint=f"{world.folder}/elsewhere")


def test_a_lost_outbox_or_a_lost_checkpoint_does_not_begin_anew(world: World) -> None:
    world.give(due("a", 5))
    world.to_outbox(10)
    (world.folder / "outbox").rename(world.folder / "lost")
    with pytest.raises(ToldError, match="CheckpointError: the checkpoint of the table is missing"):
        world.to_outbox(10)
    (world.folder / "lost").rename(world.folder / "outbox")
    world.sql("DROP TABLE outbox")
    with pytest.raises(
        ToldError, match=r"CheckpointError: the checkpoint has run, and the table .* is missing"
    ):
        world.to_outbox(10)


def test_a_table_of_somebody_else_is_no_outbox(world: World) -> None:
    with pytest.raises(ToldError, match="CheckpointError: the table was not made by this function"):
        world.to_outbox(10, table="commands")


def test_what_cannot_work_without_a_jvm_is_refused_with_all_faults_at_once(world: World) -> None:
    with pytest.raises(ToldError) as raised:
        world.to_outbox(clock={"kind": "processing", "until_ms": T0_MS}, punctual=True)
    what = "a setting needs a session with a JVM, and this is Spark Connect"
    assert raised.value.message.splitlines() == [
        "the config has 2 errors",
        f"  - {what}: punctual; rule: without: a row leaves in the run after its due time",
        f"  - {what}: clock.until_ms; rule: without: the end of the input is not known there",
    ]
    with pytest.raises(ToldError) as raised:
        world.to_outbox(10, table="a.b.c.d", checkpoint="")
    assert raised.value.message.count("\n  - ") == 2


NEEDS_JVM = "needs a Spark session with a JVM, and a client of Spark Connect has none"


def test_the_client_has_neither_py4j_nor_delta_and_what_needs_them_says_so(world: World) -> None:
    parts = [
        "deliver",
        "build_session",
        "DeltaSink",
        "JdbcSink",
        "KafkaSink",
        "PendingWork",
        "schedule_tiered",
    ]
    for name in parts:
        with pytest.raises(ToldError, match=f"SessionError: {name} {NEEDS_JVM}"):
            world.client.call("name", name)
    with pytest.raises(ToldError, match=rf"SessionError: watch\(\) {NEEDS_JVM}"):
        world.client.call("watch")
    assert {"py4j", "delta", "deltalake", "pydantic"} & {*world.client.call("modules")} == set()
