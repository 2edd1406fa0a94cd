"""A folder in memory and processes that take turns on it: what a lease of records meets in the world, step by step.

Each process runs on a thread of its own and stops before each request to the folder. A test lets one go on at a time,
so it decides in which order requests arrive, and what the clocks say between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from wheel_udf.checkpoint.lease_records import Holder, LeaseRecords
from wheel_udf.common.errors import LeaseError

FOLDER = "wheel.lease"


class Killed(BaseException):  # no error: no handler may catch it
    """The process ends here."""


class MemoryFolder:
    """A folder whose requests wait for their turn."""

    def __init__(self, point: Callable[[], None] = lambda: None) -> None:
        self.files: dict[str, bytes] = {}
        self.point, self.requests = point, list[str]()

    def _request(self, what: str) -> None:
        self.requests.append(what)
        self.point()

    def name(self, name: str = "") -> str:
        return f"s3a://bucket/job/{name}"

    def names(self, folder: str = "") -> list[str]:
        self._request("list")
        top = f"{folder}/" if folder else ""
        return sorted({each[len(top) :].split("/")[0] for each in self.files if each.startswith(top)})

    def read(self, name: str) -> bytes | None:
        self._request("get")
        return self.files.get(name)

    def replace(self, name: str, content: bytes) -> None:
        self._request("put")
        self.files[name] = content

    def create(self, name: str, content: bytes, *, flush: bool = True) -> bool:  # noqa: ARG002  # nothing is on a disk
        self._request("create")
        if name in self.files:
            return False
        self.files[name] = content
        return True

    def remove(self, name: str) -> None:
        self._request("delete")
        for each in [each for each in self.files if each == name or each.startswith(f"{name}/")]:
            del self.files[each]

    def remove_files(self, folder: str, names: Sequence[str]) -> None:
        self._request("delete")
        for name in names:
            self.files.pop(f"{folder}/{name}", None)

    def unwritable_reason(self) -> str | None:
        return None


class Process:
    """A process on a machine of its own: it wants the lease, then renews it and writes, for ever.

    Attributes:
        on_thread: Called first on the thread of the process.
        holds: Whether it has the lease, as far as it knows.
        end: How it gives the lease back instead of the next renewal; None: it goes on.
    """

    def __init__(self, number: int, folder: MemoryFolder, now_ms: Callable[[], int], timeout_ms: int) -> None:
        self.number, self._folder, self._now_ms, self._timeout_ms = number, folder, now_ms, timeout_ms
        self.records = self._new_records()
        self.refused = self.lost = self.holds = False
        self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self.ended = False
        self.end: Callable[[LeaseRecords], None] | None = None
        self.on_thread: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = False

    def _new_records(self) -> LeaseRecords:
        me = Holder(self.number, f"host-{self.number}", 0, self._timeout_ms)
        return LeaseRecords(self._folder, FOLDER, me, self._now_ms)

    def go_on(self) -> None:
        """Lets the process make its next request, and run up to the one after that, or to its next pause."""
        if self.ended:
            return
        if not self._started:
            self._started = True
            self._thread.start()
        else:
            self._turn.release()
        assert self._done.acquire(timeout=10)

    def kill(self) -> None:
        """Ends the process at its next step, without another request."""
        self.ended = True
        if self._started:
            self._turn.release()
            self._thread.join(10)

    def point(self) -> None:
        """The process stands still here until it may go on."""
        self._done.release()
        self._turn.acquire()
        if self.ended:
            raise Killed

    def _run(self) -> None:
        try:
            self.on_thread()
            self._take()
            self.holds = True
            while True:
                self.point()  # a third of the timeout, or as long as the test says
                if self.end is not None:
                    self.holds = False
                    return self.end(self.records)
                self.records.renew()
        except Killed:
            pass
        except LeaseError:
            self.refused, self.lost = not self.holds, self.holds
        finally:
            self.holds, self.ended = False, True
            self._done.release()

    def _take(self) -> None:
        while self.records.look() is not None:
            self.point()
