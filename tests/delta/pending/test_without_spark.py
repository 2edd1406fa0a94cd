"""``pending`` of a tiered job that rests: from the slot store alone, if that knows everything; else with Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.command_line import say
from tests.delta.job.test_starters import started
from tests.delta.pending.verbs import ask
from tests.delta.tiered.series_world import World, series
from tests.spark.streams import cancel, due
from wheel_udf.job import loader, verbs, without_spark
from wheel_udf.job.arguments import parse
from wheel_udf.metrics.batch_log import BatchLog
from wheel_udf.pending.acts import Picked, fire_now

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

QUESTIONS = (
    ["--count"],
    [],
    ["--limit", "2"],
    ["--limit", "1"],
    ["--id", "b", "--id", "near", "--id", "nobody"],
    ["--id", "nobody"],
    ["--payload"],
)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    """Near and far entries, one that has two versions and an empty value, one that is cancelled, two that have fired."""
    world = World(spark, tmp_path)
    world.say(
        [due("early", 5, 0), due("near", 70, 0, value=b"v\xff"), due("b", 900, 0), due("c", 800, 0)],
        [due("b", 700, 10, seq=2, value=b""), cancel("c", 10, seq=2), due("d", 90_000, 10)],
        [due("late", 61, 60)],
        [due("tick", 66, 65)],
    )
    return world


def run(world: World, **logged: Any) -> None:
    """Runs the job over all files; `logged` is what its log says that is not so."""
    world.tiered()
    report = world.reports[-1]
    line = {
        "at_ms": report.batch_id,
        "query": "wheel",
        "batch_id": report.batch_id,
        "near": report.waiting["near"],
        "complete": report.complete,
        "clock_ms": report.clock_ms,
    }
    BatchLog(world.checkpoint).append(line | logged)


def answers(world: World, monkeypatch: pytest.MonkeyPatch, *, with_spark: bool) -> list[Any]:
    """The answers to all questions, with Spark alone or without it."""
    with monkeypatch.context() as patch:
        if with_spark:
            patch.setattr(without_spark, "was_answered", lambda *_: False)
        else:
            patch.setattr(verbs, "session", None)
        return [ask(world.folder, "pending", *question) for question in QUESTIONS]


def is_answered_by_spark(world: World, monkeypatch: pytest.MonkeyPatch, *question: str) -> bool:
    asked: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(verbs, "session", asked.append)
        ask(world.folder, "pending", *question)
    return len(asked) == 1


@pytest.mark.sentinel
def test_a_job_that_has_ended_is_asked_without_spark_and_says_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(world)
    found = answers(world, monkeypatch, with_spark=False)
    assert found == answers(world, monkeypatch, with_spark=True)
    assert found[0] == (0, ["pending 4", "stored 4"], [])
    assert found[5] == (0, ["0 pending entries match"], [])
    assert is_answered_by_spark(world, monkeypatch, "--where", "seq > 1")
    assert is_answered_by_spark(world, monkeypatch, "--as-of", "2024-01-01T00:00:30Z")


def test_the_job_that_a_new_user_has_run_is_asked_without_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    started("months", tmp_path, (datetime.now(UTC) + timedelta(seconds=3)).isoformat())
    monkeypatch.setattr(verbs, "session", None)
    code, out, err = say(tmp_path / "months.yml", "pending", "--count")
    pending, stored = (int(line.split()[1]) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert 1_000 >= pending > stored > 900


def test_what_an_act_has_changed_that_no_run_has_taken_is_a_question_for_spark(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(world)
    fire_now(world.spark, world.work, Picked(["d"]))
    assert is_answered_by_spark(world, monkeypatch, "--count")
    run(world)
    assert answers(world, monkeypatch, with_spark=False) == answers(world, monkeypatch, with_spark=True)


def test_a_state_with_more_than_the_store_knows_is_a_question_for_spark(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.say([series("s", "every 100 seconds", 66), due("end", 70_000, 66)])
    run(world)
    assert is_answered_by_spark(world, monkeypatch, "--count"), "a series waits in the state"


@pytest.mark.parametrize(
    "wrong", [{"near": 1}, {"complete": False}, {"batch_id": 99}, {"clock_ms": 5}, {"query": "intake"}]
)
def test_a_log_without_the_last_batch_is_not_relied_on(
    world: World, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    run(world, **wrong)
    assert is_answered_by_spark(world, monkeypatch, "--count")


def test_a_program_gets_the_table_that_spark_would_make(world: World) -> None:
    run(world)
    ask(world.folder, "pending", "--count")  # writes the config
    config = loader.load(world.folder / "job.yml")
    for question in QUESTIONS[1:]:
        asked = parse(["pending", "--config", "job.yml", *question])
        asked.limit = max(asked.limit, 50_000) if asked.id else asked.limit
        expected = verbs.frame_of(world.spark, config, world.work, asked).toArrow()
        found = without_spark.table_without_spark(config, asked, None, "UTC")
        assert found is not None, question
        assert {each.name: each.type for each in found.schema} == {
            each.name: each.type for each in expected.schema
        }
        assert found.to_pylist() == expected.to_pylist()
    for question in (["pending", "--where", "seq > 1"], ["forecast"], ["pending", "--count"]):
        asked = parse([question[0], "--config", "job.yml", *question[1:]])
        assert without_spark.table_without_spark(config, asked, None, "UTC") is None, question
