"""The lease of a checkpoint or a store: one process may run it. A lock of the local kernel on ``wheel.lease``.

The lease belongs to the running query::

    lease = Lease(checkpoint).acquire()      LeaseError: another process or query holds it
    query = writer.start()                   if this fails: lease.close()
    lease.close_after(query)                 given back when the query ends, however it ends

A run takes its leases before Spark starts, which takes seconds, and lends them to its queries, one after the other::

    with Leases([checkpoint]) as leases:     LeaseError at once; nothing is left behind if the start is refused later
        deliver(..., lease_of=leases.of)     the query borrows the lease, and gives it back when it ends

The kernel frees the lock when the process ends, also after a kill -9: the next start takes over at once.

Caveats: on other file systems than the local one (``hdfs:``, ``s3a:``, ...) no lease is taken in this release, and
only Spark's own checks stand between two runs of one checkpoint. When the Python of a driver is killed, its JVM ends
as soon as its standard input is closed: a batch that it had begun may still write for a moment. The transaction ids
and Spark's logs tolerate that.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from wheel_udf.common.errors import LeaseError
from wheel_udf.spark.files import json_bytes, local_folder, parsed_json

LEASE_FILE: Final = "wheel.lease"

# A query of this process has ended a moment before its lease is closed: a new start waits for that, 3 s at most.
TRIES: Final = 60
_PAUSE_S: Final = 0.05


class Running(Protocol):
    """The part of a streaming query that a lease needs."""

    def awaitTermination(self) -> Any:  # noqa: N802  # Spark's name
        """Returns, or raises, when the query has ended."""


class Lease:
    """The right to run a checkpoint, for one process at a time; a context manager.

    Threads of one process exclude each other too. On file systems other than the local one nothing is locked.

    Args:
        path: The checkpoint folder; created if it is missing.
    """

    def __init__(self, path: str) -> None:
        folder = local_folder(path)
        self._file = folder / LEASE_FILE if folder is not None else None
        self._handle: int | None = None
        self._made: list[Path] = []
        self._before: set[str] = set()
        self._closing = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lease. Always False on other file systems than the local one."""
        return self._handle is not None

    def acquire(self) -> Self:
        """Takes the lease.

        Raises:
            LeaseError: Another holds it; its process id and host are named.
        """
        if self._file is None:
            return self
        self._made = [each for each in self._file.parents if not each.exists()]
        self._before = set() if self._made else _names(self._file.parent)
        handle = _locked(self._file)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json_bytes(_this_process()), 0)
        self._handle = handle
        return self

    def require_free(self) -> None:
        """Checks that the lease is free. Takes none and creates nothing.

        Raises:
            LeaseError: As :meth:`acquire`.
        """
        if self._file is None or not self._file.exists():
            return
        handle = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        try:
            lock_file(handle, self._file)
        finally:
            os.close(handle)

    def close(self) -> None:
        """Gives the lease back; a second call does nothing. The file stays."""
        with self._closing:
            handle, self._handle = self._handle, None
        if handle is not None:
            os.ftruncate(handle, 0)
            os.close(handle)

    def withdraw(self) -> None:
        """Gives the lease back. Removes the file and the folders made for it, unless the folder holds more."""
        file = self._file
        if file is None or not self.is_held:
            return
        if LEASE_FILE not in self._before and _names(file.parent) == {*self._before, LEASE_FILE}:
            file.unlink()
        self.close()
        for folder in self._made:
            with suppress(OSError):  # something else is in it
                folder.rmdir()

    def lend(self, free: threading.Semaphore) -> Lease:
        """Returns a lease inside this one, which is held by acquiring `free`."""
        return _Loan(self._file, free)

    def close_after(self, query: Running, first: Callable[[], None] | None = None) -> None:
        """Gives the lease back when a query has ended, from a thread that waits for it. Returns at once.

        Args:
            query: The query.
            first: Called before the lease is given back.
        """

        def wait() -> None:
            with suppress(Exception):  # why the query has failed is for whoever awaits it
                query.awaitTermination()
            try:
                if first is not None:
                    first()
            finally:
                self.close()

        threading.Thread(target=wait, name="wheel-lease", daemon=True).start()

    def __enter__(self) -> Self:
        """See :meth:`acquire`."""
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the lease back."""
        self.close()


class _Loan(Lease):
    """The lease of a run, lent to one query at a time."""

    def __init__(self, file: Path | None, free: threading.Semaphore) -> None:
        super().__init__("")
        self._file, self._free = file, free
        self._has = False

    @property
    def is_held(self) -> bool:
        return self._has

    def acquire(self) -> Self:
        if not self._free.acquire(timeout=TRIES * _PAUSE_S):
            raise _in_use(self._file, _this_process())
        self._has = True
        return self

    def close(self) -> None:
        with self._closing:
            had, self._has = self._has, False
        if had:
            self._free.release()


class Leases:
    """The leases that a run holds from before Spark starts until its end; a context manager.

    Args:
        paths: The folders, as for :class:`Lease`.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._held = {path: (Lease(path), threading.Semaphore()) for path in paths}

    def of(self, path: str) -> Lease:
        """Returns a lease of a folder, to be acquired: lent by this run if it holds the folder, else a new one."""
        lease, free = self._held.get(path, (None, None))
        if lease is None or free is None or not lease.is_held:
            return Lease(path)
        return lease.lend(free)

    def __enter__(self) -> Self:
        """Takes all of them.

        Raises:
            LeaseError: Another process holds one; none is taken.
        """
        try:
            for lease, _ in self._held.values():
                with suppress(OSError):  # no folder: the checks of the checkpoint say what is wrong with it
                    lease.acquire()
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Gives all leases back, except those of a query that could not be stopped."""
        self._give_back()

    def _give_back(self) -> None:
        # In reverse, so that a folder made for the first is empty when its turn comes.
        for lease, free in reversed(self._held.values()):
            # A query that has just ended gives its loan back from a thread.
            if free.acquire(timeout=TRIES * _PAUSE_S):
                lease.withdraw()
                free.release()


def _locked(file: Path) -> int:
    """Opens and locks a file, made if it is missing; again, if the last holder has removed it meanwhile."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # the folder was removed
            continue
        try:
            lock_file(handle, file)
            if _is_at(file, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def _is_at(file: Path, handle: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def lock_file(handle: int, file: Path) -> None:
    """Locks an open file, with a few tries; a holder that lives is an error."""
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if _holder(handle) not in (None, _this_process()):
            break
        threading.Event().wait(_PAUSE_S)
    raise _in_use(file, _holder(handle))


def _in_use(file: Path | None, holder: dict[str, Any] | None) -> LeaseError:
    name = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    hint = "stop that one first, or use another checkpoint"
    return LeaseError(f"the checkpoint is in use by {name}", field=str(file), hint=hint)


def _holder(handle: int) -> dict[str, Any] | None:
    """The holder's note in the file; None between its lock and its note."""
    noted = parsed_json(os.pread(handle, 4096, 0))
    return noted if isinstance(noted, dict) and noted.keys() >= {"pid", "host"} else None


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname()}
