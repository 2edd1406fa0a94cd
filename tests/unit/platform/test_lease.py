"""The lease of a checkpoint: one process at a time, given back when its query ends or its process dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wheel_udf.common.errors import LeaseError
from wheel_udf.platform import Lease, lease as module


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that this process holds is refused at once, without the wait for a query that has just ended."""
    monkeypatch.setattr(module, "_TRIES", 2)


HOLD = "import sys; from wheel_udf.platform.lease import Lease; lease = Lease(sys.argv[1]).acquire(); print('held', flush=True); sys.stdin.read()"


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
    assert f"in use by process {holder.pid} on {socket.gethostname()}: {tmp_path}/wheel.lease" in str(
        refused.value
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


def test_no_lease_is_taken_where_the_local_kernel_cannot_lock() -> None:
    with Lease("s3a://bucket/checkpoint") as one, Lease("s3a://bucket/checkpoint") as other:
        assert (one.is_held, other.is_held) == (False, False)


# --- the lease of a query ---------------------------------------------------------------------------------------------


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
