"""The lease of a folder on any file system that creates a file only if there is none: numbered records.

::

    wheel.lease/56      {"run": "3f...", "pid": 7, "host": "a", "since_ms": ..., "timeout_ms": 30000, ...}
    wheel.lease/57      the same run, 10 s later          the newest: this run holds the lease
    wheel.lease/58      another run: it has taken over; or {"free": true}, after a clean stop

Each change creates the next number, so whoever comes second is told so by the file system, and a renewal is one
request. The number only grows, and the newest record is never removed: a process that stood still between its look and
its record finds that there is a newer one. Every eighth renewal also lists the folder and removes old records.

With a timeout of 30 s, and each process by its own clock, which counts suspended time::

    holder      renews every 10 s; may write until 22.5 s after it first tried the last renewal that has succeeded
    contender   sees record 57, and takes number 58 when it is still the newest 27.5 s later

Nobody compares clocks of two machines. A contender that sees another record within that time is refused: the holder
lives. On the machine of the holder it asks the kernel instead, and is refused, or takes over, at once.

A store that ignores the condition would let two drivers run one checkpoint. So whoever takes a lease creates its record
a second time, and gives up if that succeeds.

What is assumed: the clocks run equally fast (5 s in 27.5 s), a listing shows what was created before it, and a write
that is begun while the lease is valid is done within the remaining 5 s or is harmless. The last holds for commits that
carry a transaction id, and for Spark's logs, which are created only if they are missing.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from wheel_udf.common.errors import LeaseError
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.control.wall import boot_ms, wall_clock_ms
from wheel_udf.spark.files import json_bytes, parsed_json
from wheel_udf.spark.folder import Folder

DEFAULT_TIMEOUT_MS: Final = 30_000
_FREE: Final[dict[str, Any]] = {"free": True}
"""The record of a clean stop."""
_KEPT: Final = 8
"""How many records stay: a former holder that is this far behind still finds its next number taken."""
_OWN_PROCESS_MS: Final = 3_000
"""A query of this process has ended a moment before its lease is given back: a new start waits for that."""

State = Literal["alive", "dead", "unknown"]


def renew_every_ms(timeout_ms: int) -> int:
    """The time between two renewals."""
    return timeout_ms // 3


def _valid_ms(timeout_ms: int) -> int:
    return timeout_ms * 3 // 4


def _stale_ms(timeout_ms: int) -> int:
    return timeout_ms * 11 // 12


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease.

    Attributes:
        pid: Its process id.
        host: The name of its machine.
        since_ms: When it took the lease, by its wall clock; for people.
        timeout_ms: The timeout of the lease.
        machine: The boot of the machine and its namespace of process ids; empty if these are not known.
        started: When the process was started, in the kernel's ticks.
        run: The id of this holder.
    """

    pid: int
    host: str
    since_ms: int
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    machine: str = ""
    started: str = ""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of_this_process(cls, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Holder:
        """This process, from now on."""
        pid = os.getpid()
        started = (_stat(pid) or ("", ""))[1]
        return cls(pid, socket.gethostname(), wall_clock_ms(), timeout_ms, _machine(), started)

    @classmethod
    def parsed(cls, content: bytes) -> Holder | None:
        """The holder that a record names; None if it names none."""
        found = parsed_json(content)
        kinds = {"pid": int, "host": str, "since_ms": int}
        if not isinstance(found, dict) or any(
            type(found.get(name)) is not kind for name, kind in kinds.items()
        ):
            return None
        known = {name: value for name, value in found.items() if name in cls.__dataclass_fields__}
        return cls(**known)

    @property
    def state(self) -> State:
        """Whether the process lives, if it was started on this machine. One that is stopped may be so for ever."""
        if not self.machine or self.machine != _machine():
            return "unknown"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "dead"
        except PermissionError:
            pass
        letter, started = _stat(self.pid) or ("", "")
        if (started and self.started and started != self.started) or letter in ("Z", "X"):
            return "dead"
        return "unknown" if letter in ("", "T", "t") else "alive"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {instant_text_ms(self.since_ms)}"


def _stat(pid: int) -> tuple[str, str] | None:
    """The state of a process of Linux, and when it was started."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return fields[0], fields[19]


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()} {socket.gethostname()}"
    except OSError:
        return ""


def in_use(place: str, holder: object | None) -> LeaseError:
    """The error for a lease that another one holds."""
    name = str(holder) if holder else "another process"
    hint = "stop that one first, or use another checkpoint"
    return LeaseError(f"the checkpoint is in use by {name}", field=place, hint=hint)


@dataclass
class LeaseRecords:
    """One contender for a lease, and then its holder.

    Attributes:
        files: The folder of the lease's own folder.
        folder: The name of that.
        me: This process.
        clock_ms: The clock of this process; it counts suspended time.
        seen: The newest record of each lease and when this process has first seen it; shared by its contenders.
    """

    files: Folder
    folder: str
    me: Holder
    clock_ms: Callable[[], int] = boot_ms
    seen: dict[str, tuple[int, bytes, int]] = field(default_factory=dict)
    number: int | None = None
    """The number of the newest own record; None while the lease is not held."""
    watched: Holder | None = None
    """The holder that the last look has found, if it is not known whether it lives."""
    _renewed_ms: int = 0
    _lost: str | None = None
    _tried: tuple[int, int] = (-1, 0)
    """The number of the last renewal, and when it was tried first."""
    _began: tuple[int, int] | None = None
    """The newest record at this contender's first look, and when that was."""

    @property
    def place(self) -> str:
        """The path of the records, for messages."""
        return self.files.name(self.folder)

    # ---- contender -----------------------------------------------------------------------------------

    def look(self, *, take: bool = True) -> int | None:
        """Looks at the records once, and takes the lease if it is free.

        Args:
            take: Whether it is taken.

        Returns:
            None if the lease is taken, or would have been; else the time until the next look, in ms.

        Raises:
            LeaseError: Another one holds it, and lives.
        """
        now_ms, pause_ms = self.clock_ms(), max(50, self.me.timeout_ms // 60)
        newest = self._newest()
        if newest is None:
            return self._take(0) if take else None
        content = self.files.read(self._name(newest))
        if content is None:  # removed since the listing
            return pause_ms
        if self._is_free(newest, content, now_ms):
            return self._take(newest + 1) if take else None
        return pause_ms

    def _is_free(self, newest: int, content: bytes, now_ms: int) -> bool:
        if parsed_json(content) == _FREE:
            return True
        holder = Holder.parsed(content)
        state = "unknown" if holder is None else holder.state
        *record, first_ms = self.seen.get(self.place, (None, b"", 0))
        if record != [newest, content]:  # numbers begin anew if somebody has deleted the folder
            first_ms = self.clock_ms()
            self.seen[self.place] = newest, content, first_ms
        timeout_ms = DEFAULT_TIMEOUT_MS if holder is None else holder.timeout_ms
        if state == "dead" or now_ms - first_ms >= _stale_ms(timeout_ms):
            return True
        began, began_ms = self._began = self._began or (newest, now_ms)
        is_own = holder is not None and (holder.pid, holder.machine) == (self.me.pid, self.me.machine)
        if is_own and state == "alive" and now_ms - began_ms < _OWN_PROCESS_MS:
            return False
        if state == "alive" or newest != began:
            raise in_use(self.place, holder)
        self.watched = holder
        return False

    def _take(self, number: int) -> int | None:
        """Creates a record. Returns None if it is the newest one, else the time until the next look."""
        began_ms = self.clock_ms()
        if not self._create(number):
            return 0
        if self._newest() != number:
            # A holder has gone on meanwhile, and has removed its own record of this number.
            self.files.remove_files(self.folder, [str(number)])
            return 0
        self._require_create_once(number)
        self.number, self._renewed_ms, self._lost = number, began_ms, None
        return None

    def _require_create_once(self, number: int) -> None:
        """Creates the same record once more, which has to fail: else nobody would notice a second holder.

        Raises:
            LeaseError: The store replaces what is there.
        """
        if self.files.create(self._name(number), json_bytes(asdict(self.me))):
            self.files.remove_files(self.folder, [str(number)])
            raise LeaseError(
                "a file that is there was created a second time",
                field=self.place,
                rule="the store refuses it (S3: a put with If-None-Match: * is answered 412)",
                hint="without that two drivers may run one checkpoint: use another store, or a newer version of it",
            )

    # ---- holder --------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Creates the next record.

        Raises:
            LeaseError: The lease is lost.
            Exception: Of the file system: the renewal can be tried again.
        """
        self.check()
        assert self.number is not None, "a lease that is held"
        number = self.number + 1
        # From its first try on: others may have seen the record of a put whose answer was lost.
        tried, began_ms = self._tried
        if tried != number:
            began_ms = self.clock_ms()
            self._tried = number, began_ms
        if not self._create(number):
            self._lose(number)
        self.check()  # one that took longer may have come after a takeover, whose first records are removed
        self.number, self._renewed_ms = number, began_ms
        if number % _KEPT == 0:
            self._tidy(number)

    def check(self) -> None:
        """Checks that this process may write now. Makes no request.

        Raises:
            LeaseError: The lease is lost, or was given back.
        """
        if self._lost is None:
            age_ms = self.clock_ms() - self._renewed_ms
            if self.number is None:
                self._lost = "it was given back"
            elif age_ms > _valid_ms(self.me.timeout_ms):
                self._lost = f"it was not renewed for {age_ms / 1000:.0f} s"
        if self._lost is not None:
            raise LeaseError(
                f"this process has lost the lease of the checkpoint: {self._lost}",
                field=self.place,
                rule=f"renewed within {_valid_ms(self.me.timeout_ms) / 1000:g} s",
                hint="another driver may have taken over; this one has stopped before its next write",
            )

    def release(self) -> None:
        """Gives the lease back: the next start takes it at once. Does nothing if it is lost, or not held.

        Raises:
            Exception: Of the file system; it can be tried again.
        """
        try:
            self.check()
        except LeaseError:
            return
        assert self.number is not None, "checked"
        number = self.number + 1
        self.files.create(self._name(number), json_bytes(_FREE))
        self.number = None
        self._remove_before(number)

    def _tidy(self, number: int) -> None:
        newest = self._remove_before(number)
        if newest is not None and newest > number:
            self._lose(newest)

    def _lose(self, number: int) -> None:
        content = self.files.read(self._name(number))
        other = None if content is None else Holder.parsed(content)
        self._lost = f"{other or 'another process'} has taken over"
        self.check()

    # ---- records -------------------------------------------------------------------------------------

    def _name(self, number: int) -> str:
        return f"{self.folder}/{number}"

    def _numbers(self) -> list[int]:
        return [int(name) for name in self.files.names(self.folder) if name.isdecimal()]

    def _newest(self) -> int | None:
        return max(self._numbers(), default=None)

    def _remove_before(self, number: int) -> int | None:
        """Removes records that nobody needs; returns the newest one."""
        numbers = self._numbers()
        if old := [str(each) for each in numbers if each <= number - _KEPT]:
            self.files.remove_files(self.folder, old)
        return max(numbers, default=None)

    def _create(self, number: int) -> bool:
        content = json_bytes(asdict(self.me))
        if self.files.create(self._name(number), content):
            return True
        # A put whose answer was lost finds its own record.
        return self.files.read(self._name(number)) == content
