"""The lease of a checkpoint or a store: the right to run it, for one process at a time. It is a lock of the local kernel on ``wheel.lease``.

The lease belongs to the running query::

    lease = Lease(checkpoint).acquire()      LeaseError: another process or query holds it
    query = writer.start()                   if this fails: lease.close()
    lease.close_after(query)                 given back when the query ends, however it ends

The kernel frees the lock when the process ends, also after a kill -9: the next start takes over at once.

Caveats: on other file systems than the local one (``hdfs:``, ``s3a:``, ...) no lease is taken in this release, and only Spark's own checks stand
between two runs of one checkpoint. When the Python of a driver is killed, its JVM ends as soon as its standard input is closed: a batch that it
had begun may still write for a moment. The transaction ids and Spark's logs tolerate that.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from wheel_udf.common import LeaseError
from wheel_udf.platform.files import json_bytes, local_folder, parsed_json

LEASE_FILE: Final = "wheel.lease"

# A query of this process has ended a moment before its lease is closed: a new start waits for that, 3 s at most.
_TRIES: Final = 60
_PAUSE_S: Final = 0.05


class Running(Protocol):
    """A streaming query, as far as a lease needs to know it."""

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
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(handle, self._file)
        except LeaseError:
            os.close(handle)
            raise
        os.ftruncate(handle, 0)
        os.pwrite(handle, json_bytes(_this_process()), 0)
        self._handle = handle
        return self

    def require_free(self) -> None:
        """Checks that nobody holds the lease. Takes none and creates nothing.

        Raises:
            LeaseError: As :meth:`acquire`.
        """
        if self._file is None or not self._file.exists():
            return
        handle = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        try:
            _lock(handle, self._file)
        finally:
            os.close(handle)

    def close(self) -> None:
        """Gives the lease back; a second call does nothing.

        The file stays. If it were deleted, two processes could lock two files of the same name.
        """
        with self._closing:
            handle, self._handle = self._handle, None
        if handle is not None:
            os.ftruncate(handle, 0)
            os.close(handle)

    def close_after(self, query: Running) -> None:
        """Gives the lease back when a query has ended, from a thread that waits for it. Returns at once."""

        def wait() -> None:
            with suppress(Exception):  # why the query has failed is for whoever awaits it
                query.awaitTermination()
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


def _lock(handle: int, file: Path) -> None:
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if _holder(handle) not in (None, _this_process()):
            break
        threading.Event().wait(_PAUSE_S)
    holder = _holder(handle)
    name = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    hint = "stop that one first, or use another checkpoint"
    raise LeaseError(f"the checkpoint is in use by {name}", field=str(file), hint=hint)


def _holder(handle: int) -> dict[str, Any] | None:
    """What the holder wrote into the file; None in the moment between its lock and its note."""
    noted = parsed_json(os.pread(handle, 4096, 0))
    return noted if isinstance(noted, dict) and noted.keys() >= {"pid", "host"} else None


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname()}
