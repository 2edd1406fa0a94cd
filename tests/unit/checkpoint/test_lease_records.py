"""The lease of records: one holder at a time, whatever stands still, dies or is late; and always a next one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.checkpoint.lease_world import FOLDER, MemoryFolder, Process
from wheel_udf.checkpoint.lease_records import Holder, LeaseRecords
from wheel_udf.common.errors import LeaseError

TIMEOUT_MS = 30_000
"""Renewed every 10 s, valid for 22.5 s, stale after 27.5 s."""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder() -> MemoryFolder:
    return MemoryFolder()


def contender(folder: MemoryFolder, clock: Clock, pid: int = 7, host: str = "a") -> LeaseRecords:
    return LeaseRecords(folder, FOLDER, Holder(pid, host, 1_764_000_000_000, TIMEOUT_MS), clock)


def numbers(folder: MemoryFolder) -> list[int]:
    return sorted(int(name.removeprefix(f"{FOLDER}/")) for name in folder.files)


def test_the_first_start_takes_the_lease_and_each_renewal_is_one_request(
    folder: MemoryFolder, clock: Clock
) -> None:
    lease = contender(folder, clock)
    assert lease.look() is None
    assert folder.requests == ["list", "create", "list", "create"]
    for _ in range(7):
        clock.ms += 10_000
        folder.requests.clear()
        lease.renew()
        lease.check()
        assert folder.requests == ["create"]
    assert numbers(folder) == [0, 1, 2, 3, 4, 5, 6, 7]


class ReplacingFolder(MemoryFolder):
    """A store that ignores the condition of a put, as some S3 servers do."""

    def create(self, name: str, content: bytes, *, flush: bool = True) -> bool:  # noqa: ARG002  # as above
        self.files[name] = content
        return True


def test_a_store_that_creates_a_file_twice_is_refused_at_the_first_start(clock: Clock) -> None:
    folder = ReplacingFolder()
    lease = contender(folder, clock)
    with pytest.raises(LeaseError, match=r"created a second time.*If-None-Match.*use another store"):
        lease.look()
    assert numbers(folder) == []
    with pytest.raises(LeaseError, match="given back"):
        lease.check()


def test_old_records_are_removed_at_every_eighth_renewal(folder: MemoryFolder, clock: Clock) -> None:
    lease = contender(folder, clock)
    lease.look()
    for _ in range(100):
        clock.ms += 10_000
        lease.renew()
    assert numbers(folder) == [*range(89, 101)]
    assert len(folder.requests) == 4 + 100 + 12 + 12


def test_a_second_start_is_refused_when_the_holder_renews_and_is_told_who_it_is_and_since_when(
    folder: MemoryFolder, clock: Clock
) -> None:
    first, second = contender(folder, clock), contender(folder, clock, pid=8, host="b")
    first.look()
    assert second.look() == 500
    clock.ms += 10_000
    first.renew()
    with pytest.raises(LeaseError) as refused:
        second.look()
    assert str(refused.value) == (
        "the checkpoint is in use by process 7 on a since 2025-11-24T16:00:00.000Z: s3a://bucket/job/wheel.lease; "
        "hint: stop that one first, or use another checkpoint"
    )


def test_the_lease_of_a_vanished_holder_is_taken_over_within_the_timeout(
    folder: MemoryFolder, clock: Clock
) -> None:
    contender(folder, clock).look()
    second = contender(folder, clock, pid=8, host="b")
    waited_ms = 0
    while (pause_ms := second.look()) is not None:
        clock.ms += pause_ms
        waited_ms += pause_ms
    assert waited_ms == 27_500
    assert second.number == 1
    second.check()


def test_after_a_clean_stop_the_next_start_has_the_lease_at_once(folder: MemoryFolder, clock: Clock) -> None:
    first, second = contender(folder, clock), contender(folder, clock, pid=8)
    first.look()
    first.release()
    first.release()
    with pytest.raises(LeaseError, match="it was given back"):
        first.check()
    assert second.look() is None
    assert second.number == 2


def test_a_holder_that_stood_still_writes_nothing_more_and_harms_no_successor(
    folder: MemoryFolder, clock: Clock
) -> None:
    first, second = contender(folder, clock), contender(folder, clock, pid=8)
    first.look()
    second.look()
    clock.ms += 27_500
    assert second.look() is None
    content = dict(folder.files)
    with pytest.raises(
        LeaseError, match=r"has lost the lease of the checkpoint: it was not renewed for 28 s"
    ):
        first.check()
    with pytest.raises(LeaseError):
        first.renew()
    first.release()
    assert folder.files == content


def test_a_holder_learns_from_its_renewal_that_another_one_has_taken_over(
    folder: MemoryFolder, clock: Clock
) -> None:
    first = contender(folder, clock)
    first.look()
    slow = Clock()  # its clock stands, which breaks what the lease assumes
    first.clock_ms = slow
    second = contender(folder, clock, pid=8, host="b")
    second.look()
    clock.ms += 27_500
    second.look()
    with pytest.raises(LeaseError, match=r"process 8 on b since .* has taken over"):
        first.renew()
    second.check()


def test_a_renewal_that_was_answered_too_late_does_not_count(folder: MemoryFolder, clock: Clock) -> None:
    lease = contender(folder, clock)
    lease.look()
    clock.ms += 10_000

    def late() -> None:
        clock.ms += 13_000

    folder.point = late
    with pytest.raises(LeaseError, match="it was not renewed for 23 s"):
        lease.renew()


def test_a_put_whose_answer_was_lost_is_recognised_by_its_content(folder: MemoryFolder, clock: Clock) -> None:
    lease = contender(folder, clock)
    lease.look()
    folder.files[f"{FOLDER}/1"] = folder.files[f"{FOLDER}/0"]
    lease.renew()
    assert lease.number == 1
    lease.check()


def test_a_renewal_whose_answer_was_lost_counts_from_its_first_try(
    folder: MemoryFolder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 0 s taken; 10 s record 1 is created, the answer is lost: others see it; 22.4 s the next try finds it
    lease = contender(folder, clock)
    lease.look()
    clock.ms += 10_000
    create = folder.create

    def create_without_an_answer(name: str, content: bytes, **more: Any) -> bool:
        create(name, content, **more)
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "create", create_without_an_answer)
        with pytest.raises(OSError, match="no answer"):
            lease.renew()
    clock.ms += 12_400
    lease.renew()
    clock.ms += 10_000
    lease.check()
    clock.ms += 200
    with pytest.raises(LeaseError, match="it was not renewed for 23 s"):
        lease.check()


def test_a_contender_that_stood_still_between_its_look_and_its_record_takes_nothing(
    folder: MemoryFolder, clock: Clock
) -> None:
    first, second = contender(folder, clock), contender(folder, clock, pid=8)
    first.look()
    second.look()
    clock.ms += 27_500
    # It will find record 0 stale, and create number 1: meanwhile the holder, whose clock stands, goes on and tidies.
    first.clock_ms = Clock()

    def holder_goes_on() -> None:
        if folder.requests[-1] == "create":
            folder.point = lambda: None
            for _ in range(20):
                first.renew()

    folder.point = holder_goes_on
    assert second.look() == 0
    assert second.number is None
    assert max(numbers(folder)) == 20
    assert 1 not in numbers(folder)
    with pytest.raises(LeaseError, match="in use by process 7"):
        second.look()


def test_a_record_that_names_nobody_is_replaced_when_it_has_not_changed(
    folder: MemoryFolder, clock: Clock
) -> None:
    folder.files[f"{FOLDER}/5"] = b"{"
    second = contender(folder, clock)
    assert second.look() == 500
    clock.ms += 27_500
    assert second.look() is None
    assert second.number == 6


def test_what_a_process_has_seen_counts_for_its_later_contenders(folder: MemoryFolder, clock: Clock) -> None:
    contender(folder, clock).look()
    seen: dict[str, tuple[int, bytes, int]] = {}
    early = replace(contender(folder, clock, pid=8), seen=seen)
    assert early.look(take=False) == 500
    clock.ms += 27_500
    later = replace(contender(folder, clock, pid=8), seen=seen)
    assert later.look() is None


def test_a_record_with_the_number_of_one_that_somebody_has_deleted_is_another(
    folder: MemoryFolder, clock: Clock
) -> None:
    second = contender(folder, clock, pid=8)
    first = contender(folder, clock)
    first.look()
    assert second.look(take=False) == 500
    folder.remove(FOLDER)
    clock.ms += 3_600_000
    contender(folder, clock, pid=9).look()
    assert second.look() == 500
    assert numbers(folder) == [0]


def test_a_lease_that_is_only_looked_at_is_not_taken(folder: MemoryFolder, clock: Clock) -> None:
    assert contender(folder, clock).look(take=False) is None
    assert folder.files == {}


# --- on one machine -------------------------------------------------------------------------------


def held_by(process: Holder, clock: Clock) -> LeaseRecords:
    folder = MemoryFolder()
    LeaseRecords(folder, FOLDER, process, clock).look()
    return LeaseRecords(folder, FOLDER, Holder.of_this_process(TIMEOUT_MS), clock)


def of_child(child: subprocess.Popen[bytes]) -> Holder:
    started = subprocess.run(["cat", f"/proc/{child.pid}/stat"], capture_output=True, text=True, check=True)
    return replace(
        Holder.of_this_process(TIMEOUT_MS),
        pid=child.pid,
        started=started.stdout.rpartition(")")[2].split()[19],
    )


@pytest.fixture
def child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_on_one_machine_a_living_holder_is_refused_at_once_and_a_dead_one_replaced_at_once(
    child: subprocess.Popen[bytes], clock: Clock
) -> None:
    with child:
        holder = of_child(child)
        assert holder.state == "alive"
        with pytest.raises(LeaseError, match=f"in use by process {child.pid} on"):
            held_by(holder, clock).look()
        child.kill()
        child.wait()
        assert holder.state == "dead"
        assert held_by(holder, clock).look() is None


def test_a_process_with_the_number_of_a_dead_one_is_another(clock: Clock) -> None:
    me = Holder.of_this_process(TIMEOUT_MS)
    assert me.state == "alive"
    assert replace(me, started="1").state == "dead"
    assert replace(me, machine="another").state == "unknown"


def test_a_holder_in_this_process_may_have_ended_a_moment_before(clock: Clock) -> None:
    second = held_by(Holder.of_this_process(TIMEOUT_MS), clock)
    assert second.look() == 500
    clock.ms += 3_000
    with pytest.raises(LeaseError, match=f"in use by process {os.getpid()} on"):
        second.look()


# --- any order ------------------------------------------------------------------------------------

PROCESSES = 3
STEP = st.sampled_from(
    [
        *(("go", number, times) for number in range(PROCESSES) for times in (1, 1, 2, 4)),
        *(("time", ms, 1) for ms in (100, 5_000, 10_000, 10_000, 12_000, 28_000)),
        ("kill", 0, 1),
        ("kill", 1, 1),
        ("stop", 0, 1),
        ("stop", 1, 1),
    ]
)


class World:
    """Processes that want one lease; one that has ended or was killed is started again when it is to go on."""

    def __init__(self) -> None:
        self.clock, self.folder = Clock(), MemoryFolder(self._point)
        self._by_thread: dict[int, Process] = {}
        self._started = 0
        self.processes = [self._new() for _ in range(PROCESSES)]

    def _new(self) -> Process:
        self._started += 1
        process = Process(self._started, self.folder, self.clock, TIMEOUT_MS)
        process.on_thread = lambda: self._by_thread.update({threading.get_ident(): process})
        return process

    def _point(self) -> None:
        if process := self._by_thread.get(threading.get_ident()):
            process.point()

    def step(self, what: str, value: int) -> None:
        if what == "time":
            self.clock.ms += value
        elif what == "kill":
            self.processes[value].kill()
        elif what == "stop":
            self.processes[value].end = LeaseRecords.release
        else:
            if self.processes[value].ended:
                self.processes[value] = self._new()
            self.processes[value].go_on()

    def writers(self) -> list[int]:
        return [each.number for each in self.processes if may_write(each)]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        self._by_thread.clear()


def may_write(process: Process) -> bool:
    if not process.holds:
        return False
    try:
        replace(process.records).check()  # a copy: the process itself may ask later
    except LeaseError:
        return False
    return True


@given(st.lists(STEP, min_size=30, max_size=200))
@settings(deadline=None)
def test_never_two_may_write_and_always_somebody_can_take_over(steps: list[tuple[str, int, int]]) -> None:
    world = World()
    try:
        for what, value, times in steps:
            for _ in range(times):
                world.step(what, value)
                assert len(world.writers()) <= 1
    finally:
        world.end()
    last = contender(world.folder, world.clock, pid=99)
    waited_ms = 0
    while (pause_ms := last.look()) is not None:
        world.clock.ms += pause_ms
        waited_ms += pause_ms
    assert waited_ms <= TIMEOUT_MS
    last.check()
