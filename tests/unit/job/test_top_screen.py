"""The screen of ``wheel-udf top``, with keys, over a real server of the job's interface."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tests.unit.api.served import served, stream_of
from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import meter
from wheel_udf.api.answer import Answer
from wheel_udf.api.job import Job
from wheel_udf.common.errors import ConfigError
from wheel_udf.job.arguments import parse
from wheel_udf.job.top import execute
from wheel_udf.job.top_screen import Top


class Questions:
    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def answer(self, verb: str, arguments: Mapping[str, Any]) -> Answer:
        self.asked.append((verb, arguments))
        if verb == "acts":
            return Answer(rows=[{"at": "2026-01-01T00:00:00Z", "act": "cancel", "by": "ada", "rows": 3}])
        if verb == "history":
            return Answer(rows=[{"what": "SCHEDULE", "seq": 1}])
        pending = int(arguments["id"] == ["a"])
        return Answer(counts={"picked" if arguments.get("dry_run") else "changed": pending})

    def arrow(self, verb: str, arguments: Mapping[str, Any]) -> bytes:
        self.asked.append((verb, arguments))
        return stream_of(pa.table({"schedule_id": ["a"], "seq": [1], "source": [None]}))


@pytest.fixture
def questions() -> Questions:
    return Questions()


@pytest.fixture
def top(questions: Questions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Top]:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "state"))
    job = meter()
    job.on_batch(report(3, pending=5))
    verbs = ("acts", "history", "pending", "cancel")
    with served(str(tmp_path / "checkpoint"), verbs, questions, {}, job):
        yield Top(Job.connect("orders"), every_s=3_600)


def text_of(top: Top, name: str) -> str:
    return str(top.query_one(f"#{name}", Static).content)


async def settled(pilot: Pilot[None]) -> None:
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def typed(pilot: Pilot[None], key: str, text: str) -> None:
    await pilot.press(key)
    await answered(pilot, text)


async def answered(pilot: Pilot[None], text: str) -> None:
    await pilot.press(*text, "enter")
    await settled(pilot)


def test_a_job_is_shown_and_an_id_is_found(top: Top, questions: Questions) -> None:
    async def use() -> None:
        async with top.run_test(size=(120, 50)) as pilot:
            await settled(pilot)
            assert text_of(top, "pending").splitlines()[0].split() == ["state", "5"]
            assert text_of(top, "last-acts").endswith("cancel: 3, by ada")
            await typed(pilot, "slash", "a")
            assert text_of(top, "found").splitlines() == [
                "a: 1 pending",
                '{"schedule_id":"a","seq":1}',
                '{"what":"SCHEDULE","seq":1}',
            ]
            await pilot.press("escape")
            assert text_of(top, "found") == ""
            await pilot.press("q")

    asyncio.run(use())
    assert ("history", {"id": "a"}) in questions.asked


def test_a_cancel_says_first_what_it_would_do_and_is_done_after_a_yes(top: Top, questions: Questions) -> None:
    async def use() -> None:
        async with top.run_test(size=(120, 50)) as pilot:
            await settled(pilot)
            await typed(pilot, "c", "b")
            assert text_of(top, "found") == "b is not pending"
            await typed(pilot, "c", "a")
            assert text_of(top, "found") == "would cancel 1 of a: type yes to do it"
            await answered(pilot, "no")
            assert text_of(top, "found") == "nothing was cancelled"
            await typed(pilot, "c", "a")
            await answered(pilot, "yes")
            assert text_of(top, "found") == "cancelled 1 of a"
            assert not top.query_one(Input).has_class("shown")

    asyncio.run(use())
    cancels = [arguments for verb, arguments in questions.asked if verb == "cancel"]
    assert [(each["id"], each["dry_run"]) for each in cancels] == [
        (["b"], True),
        (["a"], True),
        (["a"], True),
        (["a"], False),
    ]


def test_looks_that_are_far_apart_make_a_rate_all_the_same(top: Top, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        async with top.run_test(size=(120, 50)) as pilot:
            await settled(pilot)
            status = Job.connect("orders").status()
            for minutes in range(1, 4):
                later = {**status, "at_ms": status["at_ms"] + minutes * 60_000}
                monkeypatch.setattr(Job, "status", lambda _, found=later: found)
                top.look()
                await settled(pilot)
                assert text_of(top, "rates").split()[:2] == ["in", "0/s"]

    asyncio.run(use())


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf", "0.01"])
def test_a_job_is_not_looked_at_all_the_time_or_never(every: str) -> None:
    asked = parse(["top", "--config", "job.yml", f"--every={every}"])
    with pytest.raises(ConfigError, match=r"^not a time between two looks: --every = "):
        execute(None, asked, print)


def test_a_job_that_does_not_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.job.test_job import checked

    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "state"))
    asked = parse(["top", "--config", "job.yml"])
    with pytest.raises(ConfigError, match=r"^no such job runs here: name or checkpoint = "):
        execute(checked(checkpoint=str(tmp_path / "job")), asked, print)
