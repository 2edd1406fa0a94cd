"""The lease of a checkpoint: one process at a time, given back when its query ends or its process dies."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.checkpoint.lease_world import MemoryFolder
from wheel_udf.checkpoint import file_lock as module
from wheel_udf.checkpoint.lease import Lease, Leases
from wheel_udf.common.errors import LeaseError


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that this process holds is refused at once, without the wait for a query that has just ended."""
    monkeypatch.setattr(module, "TRIES", 2)


HOLD = "import sys; from wheel_udf.checkpoint.lease import Lease; lease = Lease(sys.argv[1]).acquire(); print('held', flush=True); sys.stdin.read()"


@contextmanager
def another_process_that_holds(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_second_process_is_refused_and_told_who_holds_the_lease(tmp_path: Path) -> None:
    with another_process_that_holds(tmp_path) as holder, pytest.raises(LeaseError) as refused:
        Lease(str(tmp_path)).acquire()
    assert re.search(
        rf"in use by process {holder.pid} on {socket.gethostname()} since \d{{4}}-[-\d]+T[:\d]+\.\d{{3}}Z: {tmp_path}/wheel\.lease",
        str(refused.value),
    )


def test_the_lease_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    with another_process_that_holds(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with Lease(str(tmp_path)):
            assert json.loads((tmp_path / "wheel.lease").read_text())["pid"] == os.getpid()


@pytest.mark.usefixtures("impatient")
def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    refused: list[str] = []

    def try_it() -> None:
        try:
            Lease(str(tmp_path)).acquire()
        except LeaseError as fault:
            refused.append(str(fault))

    with Lease(str(tmp_path)):
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert f"in use by process {os.getpid()} on" in refused[0]


@pytest.mark.usefixtures("impatient")
def test_a_lease_is_not_taken_twice_and_given_back_once(tmp_path: Path) -> None:
    lease = Lease(str(tmp_path)).acquire()
    with pytest.raises(LeaseError):
        lease.acquire()
    lease.close()
    lease.close()
    assert (tmp_path / "wheel.lease").read_text() == ""
    with Lease(f"file:{tmp_path}") as again:
        assert again.is_held


@pytest.mark.usefixtures("impatient")
def test_a_lease_is_asked_for_without_being_taken(tmp_path: Path) -> None:
    Lease(str(tmp_path / "new")).require_free()
    assert not (tmp_path / "new").exists()
    with Lease(str(tmp_path)), pytest.raises(LeaseError, match=f"in use by process {os.getpid()} on"):
        Lease(str(tmp_path)).require_free()
    Lease(str(tmp_path)).require_free()
    with Lease(str(tmp_path)):
        pass


def test_an_error_inside_gives_the_lease_back(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Lease(str(tmp_path)):
        _ = 1 / 0
    with Lease(str(tmp_path)):
        pass


# --- the lease of a query -------------------------------------------------------------------------


class Query:
    """A query that runs until it is stopped, or fails."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._fault: Exception | None = None

    def stop(self, fault: Exception | None = None) -> None:
        self._fault = fault
        self._ended.set()

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        assert self._ended.wait(60)
        if self._fault is not None:
            raise self._fault


@pytest.mark.parametrize("fault", [None, ValueError("the batch failed")])
def test_the_end_of_a_query_gives_its_lease_back_so_that_the_next_start_has_it(
    tmp_path: Path, fault: Exception | None
) -> None:
    query = Query()
    Lease(str(tmp_path)).acquire().close_after(query)
    query.stop(fault)
    with Lease(str(tmp_path)) as lease:  # at once: it waits for the thread of the ended query
        assert lease.is_held


@pytest.mark.usefixtures("impatient")
def test_a_query_that_runs_keeps_its_lease(tmp_path: Path) -> None:
    query = Query()
    Lease(str(tmp_path)).acquire().close_after(query)
    with pytest.raises(LeaseError, match=f"in use by process {os.getpid()} on"):
        Lease(str(tmp_path)).acquire()
    query.stop()


def test_a_lease_that_is_closed_before_its_query_ends_closes_no_other_file(tmp_path: Path) -> None:
    query = Query()
    lease = Lease(str(tmp_path)).acquire()
    lease.close_after(query)
    lease.close()
    with Lease(str(tmp_path)) as other:
        query.stop()
        assert other.is_held
    assert not other.is_held


# --- the leases of a run --------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_run_lends_its_lease_to_one_query_at_a_time(tmp_path: Path) -> None:
    place = str(tmp_path)
    with Leases([place]) as leases:
        first = leases.of(place).acquire()
        with pytest.raises(LeaseError, match=f"in use by process {os.getpid()} on"):
            leases.of(place).acquire()
        first.close()
        first.close()
        with leases.of(place) as second:
            assert (first.is_held, second.is_held) == (False, True)
        with pytest.raises(LeaseError):  # who borrows nothing is refused as before
            Lease(place).acquire()
    with Lease(place) as free:
        assert free.is_held


def test_a_query_that_ends_gives_its_loan_back_to_the_run(tmp_path: Path) -> None:
    place, query = str(tmp_path), Query()
    with Leases([place]) as leases:
        leases.of(place).acquire().close_after(query)
        query.stop()
        with leases.of(place) as again:  # at once: it waits for the thread of the ended query
            assert again.is_held


@pytest.mark.usefixtures("impatient")
def test_a_loan_that_is_not_given_back_keeps_the_lease_of_the_run(tmp_path: Path) -> None:
    place = str(tmp_path)
    with Leases([place]) as leases:
        loan = leases.of(place).acquire()
    with pytest.raises(LeaseError):
        Lease(place).acquire()
    assert loan.is_held


def test_other_folders_than_those_of_the_run_have_leases_of_their_own(tmp_path: Path) -> None:
    with Leases([str(tmp_path / "a")]) as leases, leases.of(str(tmp_path / "b")):
        assert (tmp_path / "b" / "wheel.lease").exists()


@pytest.mark.usefixtures("impatient")
def test_of_several_leases_none_is_kept_if_one_is_in_use(tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    with Lease(theirs), pytest.raises(LeaseError), Leases([mine, theirs]):
        pass
    assert not Path(mine).exists()
    with Lease(theirs) as free:
        assert free.is_held


def test_a_start_that_makes_nothing_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "notes").touch()
    with Leases([str(tmp_path / "new" / "intake"), str(tmp_path / "old")]):
        assert (tmp_path / "new" / "intake" / "wheel.lease").exists()
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["notes", "old"]


def test_a_start_that_makes_a_checkpoint_leaves_the_lease_file(tmp_path: Path) -> None:
    with Leases([str(tmp_path / "new")]):
        (tmp_path / "new" / "wheel.json").touch()
    assert {each.name for each in (tmp_path / "new").iterdir()} == {"wheel.json", "wheel.lease"}


def test_a_lease_whose_file_was_removed_while_it_waited_is_taken_on_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[Path] = []

    def lock_and_remove(handle: int, file: Path) -> None:
        locked.append(file)
        if len(locked) == 1:
            file.unlink()

    monkeypatch.setattr(module, "lock_file", lock_and_remove)
    with Lease(str(tmp_path)):
        assert len(locked) == 2
        assert json.loads((tmp_path / "wheel.lease").read_text())["pid"] == os.getpid()


def test_a_folder_that_cannot_be_made_is_left_to_the_checks_of_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Leases([str(tmp_path / "file")]) as leases, pytest.raises(NotADirectoryError):
        leases.of(str(tmp_path / "file")).acquire()


# --- on other file systems ------------------------------------------------------------------------

PLACE = "s3a://bucket/job"
SOON_MS = 90
"""A timeout: renewed every 30 ms."""


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryFolder]:
    """The folders of an object store, by their paths."""
    made: dict[str, MemoryFolder] = {}
    monkeypatch.setattr(
        "wheel_udf.checkpoint.lease.open_folder", lambda path, **_: made.setdefault(path, MemoryFolder())
    )
    for name in ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_a_lease_in_an_object_store_is_held_until_it_is_given_back(folders: dict[str, MemoryFolder]) -> None:
    lease = Lease(PLACE)
    with lease:
        lease.check()
        assert lease.is_held
        assert [*folders[PLACE].files] == ["wheel.lease/0"]
    assert not lease.is_held
    assert json.loads(folders[PLACE].files["wheel.lease/1"]) == {"free": True}
    with pytest.raises(LeaseError, match="the lease was given back: s3a://bucket/job"):
        lease.check()
    with Lease(PLACE) as again:
        assert again.is_held


@pytest.mark.parametrize(("failures", "is_free"), [(1, True), (2, True), (9, False)])
def test_a_lease_that_cannot_be_given_back_is_tried_again_and_then_reported(
    folders: dict[str, MemoryFolder], caplog: pytest.LogCaptureFixture, failures: int, *, is_free: bool
) -> None:
    left = failures

    def fail() -> None:
        nonlocal left
        if folders[PLACE].requests[-1] == "create" and left:
            left -= 1
            raise OSError("no answer")

    with Lease(PLACE):
        folders[PLACE].point = fail
    assert ("wheel.lease/1" in folders[PLACE].files) == is_free
    assert ("could not be given back: no answer" in caplog.text) != is_free


def test_a_lease_in_an_object_store_is_asked_for_without_being_taken(
    folders: dict[str, MemoryFolder],
) -> None:
    Lease(PLACE).require_free()
    assert folders[PLACE].files == {}
    with Lease(PLACE), pytest.raises(LeaseError, match="in use by another process"):
        Lease(PLACE).require_free(waits=False)
    Lease(PLACE).require_free(waits=False)


def test_a_query_is_stopped_when_another_process_has_taken_its_lease(
    folders: dict[str, MemoryFolder], caplog: pytest.LogCaptureFixture
) -> None:
    query = Query()
    with Lease(PLACE, 60_000):
        content = folders[PLACE].files["wheel.lease/0"]
    lease = Lease(PLACE, SOON_MS).acquire()
    # Whatever number the holder has reached, the next ones are those of another run.
    for number in range(200):
        folders[PLACE].create(f"wheel.lease/{number}", content)
    lease.close_after(query)
    query.awaitTermination()
    assert "this process has lost the lease of the checkpoint: " in caplog.text


def test_a_renewal_that_fails_is_tried_again_before_the_lease_is_lost(
    folders: dict[str, MemoryFolder],
) -> None:
    renewed, failures = threading.Event(), [OSError("no route"), OSError("no route")]
    with Lease(PLACE, 3_000) as lease:
        folder = folders[PLACE]

        def point() -> None:
            if failures:
                raise failures.pop()
            renewed.set()

        folder.point = point
        assert renewed.wait(20)
        lease.check()
        folder.point = lambda: None


def test_a_run_lends_a_lease_in_an_object_store_and_gives_it_back_at_its_end(
    folders: dict[str, MemoryFolder],
) -> None:
    with Leases([PLACE, f"{PLACE}/wheel"]) as leases:
        leases.check()
        with leases.of(PLACE) as loan:
            loan.check()
            with pytest.raises(LeaseError, match=f"in use by process {os.getpid()} on"):
                Leases([PLACE]).take()
        leases.check()
    for place in (PLACE, f"{PLACE}/wheel"):
        assert json.loads(folders[place].files["wheel.lease/1"]) == {"free": True}


def test_a_folder_of_hdfs_waits_for_spark(
    folders: dict[str, MemoryFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "hdfs://name/job"
    with Leases([place]) as leases:
        assert folders == {}
        leases.check()
        monkeypatch.setattr("wheel_udf.checkpoint.lease.waits_for_session", lambda _path: False)
        leases.take()  # once it runs
        with leases.of(place) as loan:
            loan.check()
        assert [*folders[place].files] == ["wheel.lease/0"]


def test_of_the_leases_of_a_killed_run_all_are_watched_at_the_same_time(
    folders: dict[str, MemoryFolder], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = [f"{PLACE}/intake", f"{PLACE}/wheel", "s3a://bucket/store/_wheel"]
    gone = {"pid": 1, "host": "gone", "since_ms": 0, "timeout_ms": 30_000}
    for place in places:
        folders[place] = MemoryFolder()
        folders[place].files["wheel.lease/4"] = json.dumps(gone).encode()
        folders[place].name = lambda name="", place=place: f"{place}/{name}"  # type: ignore[method-assign]
    waited_s: list[float] = []
    monkeypatch.setattr("wheel_udf.checkpoint.lease.boot_ms", lambda: round(1_000 * sum(waited_s)))
    monkeypatch.setattr("wheel_udf.checkpoint.lease.wait_s", waited_s.append)
    with Leases(places[:2], later=places[2:]) as leases:
        leases.check()
    assert sum(waited_s) == 27.5
    assert caplog.messages == [
        "the checkpoint was in use by process 1 on gone since 1970-01-01T00:00:00.000Z: waiting to see whether it still is"
    ]
