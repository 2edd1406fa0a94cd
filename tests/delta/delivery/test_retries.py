"""What a real webhook does not take comes back to the wheel: when, how often, and where it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.receiver import Receiver, Says, receiver
from tests.spark.streams import add_files, at_ms, cancel, due, read_files
from wheel_udf import Destinations, HttpSink
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import SimulatedClock
from wheel_udf.delivery import query
from wheel_udf.delivery.query import deliver
from wheel_udf.policies.rates import NO_RATES, Rate, Rates
from wheel_udf.policies.retries import Retries, Retry
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.stream.schedule_operator import schedule

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.delivery.report import BatchReport

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
EVERY_10_S = Retry(first_ms=10_000, factor=1, jitter="none", attempts=3, dead_letters="dead")
FIRST_FAILS = (Says(503), Says())


class World:
    """Input, a webhook for ``hook*``, tables for the others."""

    def __init__(self, spark: SparkSession, folder: Path, server: Receiver) -> None:
        self.spark, self.folder, self.server = spark, folder, server
        self.reports: list[BatchReport] = []
        self.hooks = HttpSink(f"{server.url}/{{destination}}", retries=0, waits=False, cooldown_ms=0)

    def give(self, *batches: list[dict[str, Any]]) -> None:
        add_files(self.folder / "in", *batches)

    def run(
        self, *instants_s: int, retry: Retry = EVERY_10_S, rates: Rates = NO_RATES, **settings: Any
    ) -> None:
        clock = SimulatedClock(instants_ms=tuple(map(at_ms, instants_s)))
        frame = schedule(
            read_files(self.spark, self.folder / "in"),
            wheel=WHEEL,
            clock=clock,
            shards=2,
            retries=Retries({"hook*": retry}, ("hook*", "*")),
            rates=rates,
            **settings,
        )
        deliver(
            frame,
            destinations=Destinations(
                {"hook*": self.hooks, "*": DeltaSink(str(self.folder / "tables"), create=True)}
            ),
            rejects=DeltaSink(str(self.folder / "rejects"), create=True),
            checkpoint=str(self.folder / "checkpoint"),
            trigger="available-now",
            on_batch=self.reports.append,
        ).awaitTermination()

    def came(self, name: str) -> list[tuple[str, int, int]]:
        """(id, attempt, clock in s) of each request of a hook."""
        bodies = [json.loads(each.body) for each in self.server.came if each.path == f"/{name}"]
        seconds = at_ms(0) // 1000
        return [
            (body["schedule_id"], body["attempt"], _epoch_s(body["fired_at"]) - seconds) for body in bodies
        ]

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        folder = self.folder / ("rejects" if name == "rejects" else f"tables/{name}")
        if not folder.exists():
            return []
        rows = self.spark.read.format("delta").load(str(folder))
        return sorted(tuple(row) for row in rows.select(*columns).collect())

    def count(self, name: str) -> int:
        return self.reports[-1].counts[name]


def _epoch_s(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp())


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with receiver() as server:
        yield World(spark, tmp_path, server)


@pytest.mark.sentinel
def test_a_row_that_fails_is_tried_again_after_its_wait_with_the_same_fire_id(world: World) -> None:
    world.server.at("/hook", *FIRST_FAILS)
    world.give([due("a", 5, 0, destination="hook"), due("b", 5, 0)])
    world.run(0, 5, 6, 15, 16, 30)

    assert world.came("hook") == [("a", 1, 5), ("a", 2, 16)]
    assert len({each.key for each in world.server.came}) == 1
    second = json.loads(world.server.came[1].body)
    assert (second["first_error"], second["lateness_ms"]) == ("HTTP 503 (1 try)", 11_000)
    assert world.table("out", "schedule_id") == [("b",)]
    assert world.table("rejects", "schedule_id") == []
    assert (world.count("fired"), world.count("retried"), world.reports[-1].pending) == (3, 1, 0)


def test_after_its_last_attempt_a_row_is_one_dead_letter_with_its_history(world: World) -> None:
    world.server.at("/hook", Says(503), Says(500), Says(502, {}, "out of order"))
    world.give([due("a", 5, 0, destination="hook", value=b"v")])
    world.run(0, 5, 6, 16, 17, 27, 28, 40)

    assert [attempt for _, attempt, _ in world.came("hook")] == [1, 2, 3]
    columns = ("schedule_id", "origin", "attempts", "reason", "first_error", "last_error", "value")
    assert world.table("dead", *columns) == [
        ("a", "hook", 3, "after 3 attempts", "HTTP 503 (1 try)", "HTTP 502: out of order (1 try)", b"v")
    ]
    assert (world.count("dead"), world.reports[-1].pending, world.table("rejects", "error_code")) == (
        1,
        0,
        [],
    )


def test_a_refusal_for_good_is_a_dead_letter_at_once_and_others_go_on(world: World) -> None:
    world.server.at("/hook_1", Says(400, {}, "no such user"))
    world.give([due("a", 5, 0, destination="hook_1"), due("b", 5, 0, destination="hook_2")])
    world.run(0, 5, 6)
    assert world.table("dead", "schedule_id", "reason", "last_error") == [
        ("a", "no attempt can succeed", "HTTP 400: no such user")
    ]
    assert world.came("hook_2") == [("b", 1, 5)]


def test_without_a_destination_for_them_dead_letters_go_to_the_rejects(world: World) -> None:
    world.server.at("/hook", Says(410))
    world.give([due("a", 5, 0, destination="hook")])
    world.run(0, 5, 6, retry=Retry())
    assert world.table("rejects", "schedule_id", "error_code") == [("a", "dead_letter")]


def test_a_cancel_ends_what_waits_to_be_tried_again(world: World) -> None:
    world.server.at("/hook", Says(503))
    world.give([due("a", 5, 0, destination="hook")], [], [], [cancel("a", 6, seq=1)])
    world.run(0, 5, 6, 7, 40)
    assert world.came("hook") == [("a", 1, 5)]
    assert (world.count("cancelled"), world.reports[-1].pending) == (1, 0)


def test_a_run_that_ends_before_the_next_attempt_goes_on_with_it(world: World) -> None:
    world.server.at("/hook", *FIRST_FAILS)
    world.give([due("a", 5, 0, destination="hook")])
    world.run(0, 5)
    assert world.reports[-1].pending == 1
    world.run(0, 5, 14, 15, 16)
    assert world.came("hook")[0] == ("a", 1, 5)
    assert [attempt for _, attempt, _ in world.came("hook")] == [1, 2]


def run_until_the_first_request_and_die_before_the_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_rows: Any, **_about: Any) -> None:
        if any(each.path == "/hook" for each in world.server.came):
            raise RuntimeError("killed before the commit")

    with monkeypatch.context() as patch:
        patch.setattr(query, "post_reports", fails)
        with pytest.raises(StreamingQueryException):
            world.run(0, 5, 6, 20)


def test_a_batch_that_is_repeated_reports_anew_what_it_could_not_deliver(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server.at("/hook", Says(503), Says(503), Says())
    world.give([due("a", 5, 0, destination="hook")])
    run_until_the_first_request_and_die_before_the_commit(world, monkeypatch)
    world.run(0, 5, 6, 15, 16, 20)
    assert [attempt for _, attempt, _ in world.came("hook")] == [1, 1, 2]
    assert (world.count("retried"), world.reports[-1].pending) == (1, 0)


def test_the_repetition_that_delivers_leaves_nothing_to_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server.at("/hook", *FIRST_FAILS)
    world.give([due("a", 5, 0, destination="hook")])
    run_until_the_first_request_and_die_before_the_commit(world, monkeypatch)
    world.run(0, 5, 6, 15, 16, 20)
    assert [attempt for _, attempt, _ in world.came("hook")] == [1, 1]
    assert (world.count("retried"), world.reports[-1].pending) == (0, 0)


def test_rows_of_a_destination_that_fails_wait_in_the_wheel_and_one_tries_it(world: World) -> None:
    down = [Says(503)] * 3
    world.server.at("/hook", *down, Says())
    world.give(
        [due(f"a{n}", 5, 0, destination="hook") for n in range(2)], [due("b", 8, 0, destination="hook")]
    )
    retry = Retry(first_ms=1_000, factor=1, jitter="none", breaker_failures=2, breaker_cooldown_ms=60_000)
    world.hooks = HttpSink(
        f"{world.server.url}/{{destination}}", retries=0, waits=False, cooldown_ms=0, concurrency=1
    )
    world.run(0, 5, 6, 8, 20, 64, 66, 68, 125, 128, 130, 140, retry=retry)

    before = [each for each in world.came("hook") if each[2] < 64]
    assert [name for name, _, _ in before] == ["a0", "a1"]
    states = [report.breakers.get("hook") for report in world.reports]
    assert "open" in states
    assert world.reports[-1].pending == 0
    assert {name for name, _, _ in world.came("hook")} == {"a0", "a1", "b"}


def test_a_rate_holds_across_a_restart(world: World) -> None:
    world.give([due(f"a{n}", 5, 0) for n in range(10)])
    rates = Rates({"*": Rate(2, 2)}, ("hook*", "*"))
    world.run(0, 5, rates=rates)
    assert len(world.table("out", "schedule_id")) == 2
    world.run(0, 5, 6, 7, rates=rates)
    assert len(world.table("out", "schedule_id")) == 6
    world.run(0, 5, 6, 7, 30, rates=rates)
    fired = world.table("out", "fired_at", "lateness_ms")
    assert [late for _, late in fired][:6] == [0, 0, 1_000, 1_000, 2_000, 2_000]
