"""The reader and the tasks: what a request gets while a reading or a task takes long, or fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.unit.page.figures import subject_of
from wheel_udf.common.errors import ActError, CheckpointError
from wheel_udf.page.reader import Figure, Reader
from wheel_udf.page.readings import unless_unchanged
from wheel_udf.page.subject import Subject
from wheel_udf.page.tasks import Tasks


class Hand:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at_ms = 1_000

    def __call__(self) -> int:
        return self.at_ms


def test_a_request_never_waits_for_a_reading() -> None:
    began, may_end, clock = threading.Event(), threading.Event(), Hand()

    def slow() -> dict[str, Any]:
        began.set()
        may_end.wait()
        return {"rows": 1}

    reader = Reader({"slow": slow}, now_ms=clock, elapsed_ms=clock)
    reader.start()
    began.wait()
    assert reader.figures() == {"slow": Figure()}, "at once, while it is being read"
    clock.at_ms += 40_000
    reader.stop()
    may_end.set()
    reader.join()
    assert reader.figures() == {"slow": Figure({"rows": 1}, 1_000, 40_000)}


def test_a_reading_that_fails_keeps_its_last_value_and_gets_the_sentence() -> None:
    answers: list[Any] = [{"rows": 1}, CheckpointError("the plan of a batch is damaged", field="offsets/3"), {"rows": 2}]  # fmt: skip

    def read() -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    reader = Reader({"wheel": read}, now_ms=Hand(), elapsed_ms=Hand())
    reader.read("wheel")
    reader.read("wheel")
    assert reader.figures()["wheel"] == Figure(
        {"rows": 1}, 1_000, 0, "the plan of a batch is damaged: offsets/3"
    )
    reader.read("wheel")
    assert reader.figures()["wheel"] == Figure({"rows": 2}, 1_000, 0, None)


def test_nothing_is_read_while_nobody_looks_and_a_look_wakes_the_reader() -> None:
    reads, again, clock = [], threading.Semaphore(0), Hand()

    def read() -> dict[str, Any]:
        reads.append(clock())
        clock.at_ms += 120_000  # longer than anybody has looked
        again.release()
        return {}

    reader = Reader({"wheel": read}, every_ms=0, now_ms=clock, elapsed_ms=clock)
    reader.start()
    again.acquire()
    assert not again.acquire(timeout=0.05), "it rests, although its time has come"
    clock.at_ms += 600_000  # more than five times what it took
    reader.figures()
    again.acquire()
    reader.stop()
    reader.join()
    assert reads == [1_000, 721_000]


def test_what_an_act_has_changed_is_read_again_at_once() -> None:
    again, clock = threading.Semaphore(0), Hand()

    def read() -> dict[str, Any]:
        again.release()
        return {}

    reader = Reader({"exact": read}, every_ms=10_000_000, now_ms=clock, elapsed_ms=clock)
    reader.start()
    again.acquire()
    reader.ask("exact")
    again.acquire()
    reader.stop()
    reader.join()


def test_the_same_reading_is_not_made_twice_at_once() -> None:
    began, may_end, running, most = threading.Semaphore(0), threading.Event(), [], []

    def read() -> dict[str, Any]:
        running.append(1)
        most.append(len(running))
        began.release()
        may_end.wait()
        running.pop()
        return {}

    reader = Reader({"acts": read}, every_ms=10_000_000, now_ms=Hand(), elapsed_ms=Hand())
    reader.start()
    began.acquire()
    second = threading.Thread(target=reader.read, args=("acts",))
    second.start()
    may_end.set()
    second.join()
    reader.stop()
    reader.join()
    assert most == [1, 1], "one after the other"


def test_a_reading_is_made_again_only_if_what_it_reads_has_changed() -> None:
    versions, reads = iter([7, 7, 8, 8]), []

    def read(_subject: Subject) -> dict[str, Any]:
        reads.append(len(reads))
        return {"pending": len(reads)}

    reading = unless_unchanged(read, lambda _subject: next(versions))
    found = [reading(subject_of())["pending"] for _ in range(4)]
    assert (found, reads) == ([1, 1, 2, 2], [0, 1])


def test_a_reading_that_failed_is_made_again_although_nothing_has_changed() -> None:
    answers: list[Any] = [CheckpointError("the plan of a batch is damaged"), {"pending": 3}]

    def read(_subject: Subject) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    reading = unless_unchanged(read, lambda _subject: 7)
    with pytest.raises(CheckpointError):
        reading(subject_of())
    assert reading(subject_of()) == {"pending": 3}


def test_the_same_question_is_one_task_until_it_is_answered() -> None:
    may_end, clock = threading.Event(), Hand()
    tasks = Tasks(clock)
    first = tasks.add("search", {"id": "a"}, may_end.wait)
    clock.at_ms += 600_000
    assert tasks.add("search", {"id": "a"}, lambda: 2) is first
    may_end.set()
    tasks.stop()


def test_the_same_question_within_seconds_is_one_task() -> None:
    clock = Hand()
    tasks = Tasks(clock)
    first = tasks.add("search", {"id": "a"}, lambda: 1)
    assert tasks.add("search", {"id": "a"}, lambda: 2) is first
    assert tasks.add("search", {"id": "b"}, lambda: 3) is not first
    answered = threading.Event()
    tasks.add("search", {"id": "the next one"}, answered.set)
    answered.wait()
    clock.at_ms += 5_000
    assert tasks.add("search", {"id": "a"}, lambda: 4) is not first
    assert tasks.add("act", {"id": "a"}, lambda: 5) is not tasks.add("act", {"id": "a"}, lambda: 6)
    tasks.stop()
    assert first.result == 1


def test_a_task_that_fails_has_the_sentence_and_cannot_be_confirmed() -> None:
    def fail() -> int:
        raise ActError("the new due time is NULL", field="to")

    tasks = Tasks(Hand())
    task = tasks.add("check", {}, fail)
    tasks.stop()
    assert (task.is_done, task.error, tasks.use(task)) == (True, "the new due time is NULL: to", False)


def test_a_dry_run_is_confirmed_once() -> None:
    tasks = Tasks(Hand())
    task = tasks.add("check", {}, lambda: 3)
    tasks.stop()
    assert [tasks.use(task), tasks.use(task)] == [True, False]
    assert tasks.find(task.number, "check") is task
    assert tasks.find(task.number, "act") is None
    assert tasks.find("x", "check") is None


def test_clicks_cannot_pile_up() -> None:
    may_end, tasks = threading.Event(), Tasks(Hand())
    for number in range(20):
        tasks.add("search", {"id": number}, may_end.wait)
    with pytest.raises(ActError, match="too many questions wait for an answer"):
        tasks.add("search", {"id": "one more"}, may_end.wait)
    may_end.set()
    tasks.stop()
