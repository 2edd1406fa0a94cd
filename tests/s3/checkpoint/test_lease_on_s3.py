"""The lease of a checkpoint on a real S3 server: processes that are refused, killed, stopped and go on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.s3.server import BUCKET, Server
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.common.errors import LeaseError
from wheel_udf.spark.files import open_folder

TIMEOUT_MS = 3_000

# Takes the lease as a process of another machine does, and writes once for each line of its input.
WRITER = """
import socket, sys
socket.gethostname = lambda: sys.argv[2]
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.spark.files import open_folder
from wheel_udf.common.errors import LeaseError
lease = Lease(sys.argv[1], 3_000).acquire()
files = open_folder(sys.argv[1])
print("held", flush=True)
try:
    for _ in sys.stdin:
        lease.check()
        files.replace("written-by", sys.argv[2].encode())
        print("written", flush=True)
except LeaseError as lost:
    print(lost, flush=True)
"""


@pytest.fixture
def place(s3: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    # As in a process without Spark: a session of other tests in this process knows nothing of the server.
    for module in ("files", "object_stores"):
        monkeypatch.setattr(f"wheel_udf.spark.{module}.running_session", lambda: None)
    return f"s3a://{BUCKET}/jobs/{request.node.name}"


@contextmanager
def writer(place: str, host: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", WRITER, place, host]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def asked_to_write(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_a_file_is_created_once(place: str) -> None:
    folder = open_folder(place)
    assert folder.create("acts/0.json", b"one")
    assert not folder.create("acts/0.json", b"two")
    assert folder.read("acts/0.json") == b"one"
    assert folder.names() == ["acts"]
    folder.remove("")
    assert folder.names("acts") == []


def test_a_second_start_on_the_machine_is_refused_at_once(place: str) -> None:
    with writer(place, socket.gethostname()) as holder, pytest.raises(LeaseError) as refused:
        Lease(place).acquire()
    assert f"in use by process {holder.pid} on {socket.gethostname()} since " in str(refused.value)


def test_a_start_on_another_machine_is_refused_when_the_holder_renews(place: str) -> None:
    with (
        writer(place, "elsewhere") as holder,
        pytest.raises(LeaseError, match=f"in use by process {holder.pid} on elsewhere since "),
    ):
        Lease(place).acquire()


def test_another_machine_takes_over_after_a_kill(place: str) -> None:
    with writer(place, "elsewhere") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with Lease(place, TIMEOUT_MS) as lease:
        lease.check()


def test_a_process_that_was_stopped_and_goes_on_writes_nothing_more(place: str) -> None:
    files = open_folder(place)
    with writer(place, "elsewhere") as holder:
        assert asked_to_write(holder) == "written\n"
        assert files.read("written-by") == b"elsewhere"
        holder.send_signal(signal.SIGSTOP)
        with Lease(place, TIMEOUT_MS) as lease:
            files.replace("written-by", b"the successor")
            holder.send_signal(signal.SIGCONT)
            assert "has lost the lease of the checkpoint: " in asked_to_write(holder)
            holder.wait()
            lease.check()
            assert files.read("written-by") == b"the successor"


def test_after_a_clean_stop_the_next_start_has_the_lease_at_once(place: str) -> None:
    files = open_folder(place)
    for _ in range(3):
        with Lease(place) as lease:
            assert lease.is_held
            files.replace("wheel.json", b"{}")
    assert sorted(files.names("wheel.lease")) == ["0", "1", "2", "3", "4", "5"]
