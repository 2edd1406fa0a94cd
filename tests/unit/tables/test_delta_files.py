"""The list of a table's files, with a log made by hand: several threads ask for it. No JVM."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from wheel_udf.tables import delta_files
from wheel_udf.tables.delta_files import File, FileList

EVENTS_S = 20.0


def added(path: str) -> dict[str, Any]:
    return {
        "path": path,
        "partitionValues": {"level": "0", "slot": "7"},
        "size": 100,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 3}),
    }


def removed(path: str) -> dict[str, Any]:
    return {"path": path, "deletionTimestamp": 0, "dataChange": True}


SIGNED = {"appId": "job", "version": 1}


class Log:
    """A log of commits, read as the real one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.commits: list[list[dict[str, Any]]] = [[]]
        patch.setattr(delta_files.delta_log, "files_of", self.files_of)
        patch.setattr(delta_files.delta_log, "commits_after", self.commits_after)

    def files_of(self, *_: object) -> tuple[int, list[dict[str, Any]]]:
        there: dict[str, dict[str, Any]] = {}
        for action in (action for commit in self.commits for action in commit if "path" in action):
            if "size" in action:
                there[action["path"]] = action
            else:
                del there[action["path"]]
        return len(self.commits) - 1, list(there.values())

    def commits_after(self, _place: str, version: int) -> list[Any]:
        return list(enumerate(self.commits))[version + 1 :]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def file_list() -> FileList:
    return FileList("table")


def test_the_files_follow_the_commits(log: Log) -> None:
    files = file_list()
    log.commits.append([added("a"), added("b"), SIGNED])
    assert files.current() == {"a": File((0, 7), 3, 100), "b": File((0, 7), 3, 100)}
    log.commits.append([removed("a"), added("c"), SIGNED])
    found = files.listing()
    assert (found.version, sorted(found.files)) == (2, ["b", "c"])
    assert files.listing() is found, "no commit since"


def test_what_was_asked_for_changed_while_it_was_looped_over(log: Log) -> None:
    # Of two threads, one looped over the files and the other applied a commit to the same dict: "dictionary changed
    # size during iteration".
    files = file_list()
    log.commits.append([added("a"), added("b"), SIGNED])
    seen = []
    for path in files.current():
        log.commits.append([added(f"of {path}"), SIGNED])
        files.current()
        seen.append(path)
    assert seen == ["a", "b"]


def test_a_slow_reader_of_the_log_brought_back_a_file_that_was_removed_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = file_list()
    files.current()
    log.commits.append([added("a"), SIGNED])
    has_read, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> list[Any]:
        found = log.commits_after(*arguments)
        if threading.current_thread() is reader:
            has_read.set()
            go_on.wait(EVENTS_S)
        return found

    monkeypatch.setattr(delta_files.delta_log, "commits_after", slow)
    reader = threading.Thread(target=files.current)
    reader.start()
    assert has_read.wait(EVENTS_S)
    log.commits.append([removed("a"), SIGNED])
    other = threading.Thread(target=files.current)
    other.start()
    other.join(0.2)  # it waits for the reader; before the mend it was done by now
    go_on.set()
    reader.join(EVENTS_S)
    other.join(EVENTS_S)
    found = files.listing()
    assert (found.version, dict(found.files)) == (2, {})


def test_a_commit_of_data_without_a_transaction_is_noted_once_the_files_are_known(log: Log) -> None:
    files = file_list()
    log.commits.append([added("a")])
    files.current()
    assert files.unsigned == []
    log.commits.append([added("b")])
    log.commits.append([added("c"), SIGNED])
    files.current()
    assert files.unsigned == [2]
