"""The lease of a local folder: a lock of the kernel on a file, with the holder's note in it.

The kernel frees the lock when the process ends, also after a kill -9: the next start takes over at once. A process that
stands still keeps it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from wheel_udf.checkpoint.lease_records import Holder, in_use
from wheel_udf.spark.files import json_bytes

# A query of this process has ended a moment before its lease is closed: a new start waits for that, 3 s at most.
TRIES: Final = 60
PAUSE_S: Final = 0.05


class FileLock:
    """A lock on a file, for one process at a time; threads of one process exclude each other too.

    Args:
        file: The file; made when it is locked.
    """

    def __init__(self, file: Path) -> None:
        self.place = str(file)
        self._file = file
        self._handle: int | None = None
        self._made: list[Path] = []
        self._before: set[str] = set()

    @property
    def is_held(self) -> bool:
        """Whether this object has the lock."""
        return self._handle is not None

    def take(self) -> None:
        """Takes the lock.

        Raises:
            LeaseError: Another one has it.
        """
        self._made = [each for each in self._file.parents if not each.exists()]
        self._before = set() if self._made else _names(self._file.parent)
        handle = _locked(self._file)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json_bytes(asdict(Holder.of_this_process())), 0)
        self._handle = handle

    def require_free(self, *, waits: bool = True) -> None:  # noqa: ARG002  # the kernel knows at once
        """Checks that nobody has the lock. Creates nothing.

        Raises:
            LeaseError: As :meth:`take`.
        """
        if not self._file.exists():
            return
        handle = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        try:
            lock_file(handle, self._file)
        finally:
            os.close(handle)

    def observe(self) -> None:
        """Nothing: the kernel is asked when the lock is taken."""

    def check(self) -> None:
        """Nothing: nobody else gets the lock while this process lives."""

    def give_back(self) -> None:
        """Frees the lock. The file stays."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.ftruncate(handle, 0)
            os.close(handle)

    def withdraw(self) -> None:
        """Frees the lock. Removes the file and the folders made for it, unless the folder holds more."""
        if not self.is_held:
            return
        name = self._file.name
        if name not in self._before and _names(self._file.parent) == {*self._before, name}:
            self._file.unlink()
        self.give_back()
        for folder in self._made:
            with suppress(OSError):  # something else is in it
                folder.rmdir()


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
        holder = _holder(handle)
        if holder is not None and holder.pid != os.getpid():
            break
        threading.Event().wait(PAUSE_S)
    raise in_use(str(file), _holder(handle))


def _holder(handle: int) -> Holder | None:
    """The holder's note in the file; None between its lock and its note."""
    return Holder.parsed(os.pread(handle, 4096, 0))
