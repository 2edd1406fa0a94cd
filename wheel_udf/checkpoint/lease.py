"""The lease of a checkpoint or a store: one process may run it, and one that has lost it stops before it writes.

The lease belongs to the running query::

    lease = Lease(checkpoint).acquire()      LeaseError: another process or query holds it
    query = writer.start()                   if this fails: lease.close()
    lease.close_after(query)                 given back when the query ends, however it ends

    lease.check()                            before each write: LeaseError if the lease is lost. No request, no file

A run takes its leases before Spark starts, which takes seconds, and lends them to its queries, one after the other::

    with Leases([checkpoint]) as leases:     LeaseError at once; nothing is left behind if the start is refused later
        deliver(..., lease_of=leases.of)     the query borrows the lease, and gives it back when it ends

==================  =============================  =====================================  =======================
the folder is       the lease is                   after a kill -9 it is free             a second start is refused
==================  =============================  =====================================  =======================
on a local disk     a lock of the kernel           at once                                at once
                    (:mod:`.file_lock`)
anywhere else       records that are renewed       at once on the same machine, else      at once on the same
                    (:mod:`.lease_records`)        within the timeout                     machine, else when the
                                                                                          holder renews: within a
                                                                                          third of the timeout
==================  =============================  =====================================  =======================

Caveats: a local folder that several machines share (NFS) has a lock of each machine's kernel. A folder that only Hadoop
can open (HDFS) has no lease before Spark runs. When the Python of a driver is killed, its JVM ends as soon as its
standard input is closed: a batch that it had begun may still write for a moment. The transaction ids and Spark's logs
tolerate that.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

from wheel_udf.checkpoint import file_lock
from wheel_udf.checkpoint.file_lock import FileLock
from wheel_udf.checkpoint.lease_records import (
    DEFAULT_TIMEOUT_MS,
    Holder,
    LeaseRecords,
    in_use,
    renew_every_ms,
)
from wheel_udf.common.errors import LeaseError
from wheel_udf.common.secrets import in_short
from wheel_udf.control.wall import boot_ms
from wheel_udf.spark.files import local_folder, open_folder, waits_for_session

LEASE_FILE: Final = "wheel.lease"
_LEAST_REQUEST_S: Final = 0.5
_seen: dict[str, tuple[int, bytes, int]] = {}
_log = logging.getLogger(__name__)


class Running(Protocol):
    """The part of a streaming query that a lease needs."""

    def awaitTermination(self) -> Any:  # noqa: N802  # Spark's name
        """Returns, or raises, when the query has ended."""

    def stop(self) -> Any:
        """Stops the query."""


class _Lock(Protocol):
    """What excludes other processes; see :class:`FileLock` for the methods."""

    place: str

    @property
    def is_held(self) -> bool: ...
    def take(self) -> None: ...
    def require_free(self, *, waits: bool = True) -> None: ...
    def observe(self) -> None: ...
    def check(self) -> None: ...
    def give_back(self) -> None: ...
    def withdraw(self) -> None: ...


class RenewedLock:
    """A lease of records, renewed by a thread.

    Args:
        path: The folder.
        timeout_ms: See :mod:`wheel_udf.checkpoint.lease_records`.
    """

    def __init__(self, path: str, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self.path, self.timeout_ms, self.place = path, timeout_ms, f"{path}/{LEASE_FILE}"
        self.on_lost: list[Callable[[], Any]] = []
        """Called once, on the thread of the renewals, when the lease is lost."""
        self._records: LeaseRecords | None = None
        self._ends, self._renewing = threading.Event(), threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether the lease was taken and not given back; it may be lost."""
        return self._records is not None

    def take(self) -> None:
        """Takes the lease, and waits until it is known whether its holder lives.

        Raises:
            LeaseError: It does.
            CheckpointError, ConfigError: The folder cannot be opened.
        """
        records = self._contender()
        _until_known(records)
        self._records, self._ends = records, threading.Event()
        threading.Thread(
            target=self._renew, args=(records, self._ends), name="wheel-lease", daemon=True
        ).start()
        atexit.register(self.give_back)

    def require_free(self, *, waits: bool = True) -> None:
        """Checks that nobody holds the lease. Creates nothing.

        Args:
            waits: Until it is known whether the holder lives; else one that may live counts as one that does.

        Raises:
            LeaseError: Somebody holds it.
        """
        records = self._contender()
        if waits:
            _until_known(records, take=False)
        elif records.look(take=False) is not None:
            raise in_use(self.place, None)

    def observe(self) -> None:
        """Looks once, so that a :meth:`take` that comes later has to wait less."""
        with suppress(LeaseError):
            self._contender().look(take=False)

    def check(self) -> None:
        """See :meth:`LeaseRecords.check`."""
        records = self._records
        if records is None:
            raise LeaseError("the lease was given back", field=self.place)
        records.check()

    def give_back(self) -> None:
        """Gives the lease back. A failure is logged: the next start then waits for the timeout."""
        records, self._records = self._records, None
        if records is None:
            return
        self._ends.set()
        atexit.unregister(self.give_back)
        for tries_left in (2, 1, 0):
            try:
                with self._renewing:
                    records.release()
            except Exception as fault:  # noqa: BLE001  # of the file system, of any class
                if not tries_left:
                    _log.warning("the lease %s could not be given back: %s", self.place, in_short(fault))
            else:
                return

    def withdraw(self) -> None:
        """As :meth:`give_back`: the last record has to stay."""
        self.give_back()

    def _contender(self) -> LeaseRecords:
        # A request that hangs must leave time for another one before the lease is lost.
        files = open_folder(self.path, request_s=max(_LEAST_REQUEST_S, self.timeout_ms / 12_000))
        return LeaseRecords(files, LEASE_FILE, Holder.of_this_process(self.timeout_ms), boot_ms, _seen)

    def _renew(self, records: LeaseRecords, ends: threading.Event) -> None:
        every_s, again_s = renew_every_ms(self.timeout_ms) / 1000, self.timeout_ms / 12_000
        wait_s = every_s
        while not ends.wait(wait_s):
            wait_s = every_s
            try:
                with self._renewing:
                    if not ends.is_set():
                        records.renew()
            except LeaseError as lost:
                _log.error("%s", lost)  # it is one sentence
                for call in self.on_lost:
                    with suppress(Exception):
                        call()
                return
            except Exception as fault:  # noqa: BLE001  # of the file system, of any class: it is tried again
                _log.warning("the lease %s could not be renewed: %s", self.place, in_short(fault))
                wait_s = again_s


def _until_known(records: LeaseRecords, *, take: bool = True) -> None:
    pause_ms = records.look(take=take)
    if pause_ms is not None and records.watched is not None:
        _log.warning("the checkpoint was in use by %s: waiting to see whether it still is", records.watched)
    while pause_ms is not None:
        wait_s(pause_ms / 1000)
        pause_ms = records.look(take=take)


def wait_s(pause_s: float) -> None:
    """Waits."""
    threading.Event().wait(pause_s)


class Lease:
    """The right to run a checkpoint, for one process at a time; a context manager.

    Threads of one process exclude each other too.

    Args:
        path: The checkpoint folder; created if it is missing.
        timeout_ms: How long the lease of a holder that has vanished excludes another machine.
    """

    def __init__(self, path: str, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        folder = local_folder(path)
        self._lock: _Lock = (
            RenewedLock(path.rstrip("/"), timeout_ms) if folder is None else FileLock(folder / LEASE_FILE)
        )
        self._closing = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lease."""
        return self._lock.is_held

    def acquire(self) -> Self:
        """Takes the lease.

        Raises:
            LeaseError: Another holds it; its process id and host, and since when, are named.
        """
        self._lock.take()
        return self

    def observe(self) -> None:
        """Looks at the lease, so that an :meth:`acquire` that comes later has to wait less."""
        self._lock.observe()

    def require_free(self, *, waits: bool = True) -> None:
        """Checks that the lease is free. Takes none and creates nothing.

        Args:
            waits: Until it is known whether a holder on another machine lives; else it counts as living.

        Raises:
            LeaseError: As :meth:`acquire`.
        """
        self._lock.require_free(waits=waits)

    def check(self) -> None:
        """Checks that this process may still write. Makes no request; ask before each write.

        Raises:
            LeaseError: The lease is lost, or was given back.
        """
        self._lock.check()

    def close(self) -> None:
        """Gives the lease back; a second call does nothing."""
        with self._closing:
            self._lock.give_back()

    def withdraw(self) -> None:
        """Gives the lease back. Removes a local file that was made for it, unless the folder holds more."""
        with self._closing:
            self._lock.withdraw()

    def lend(self, free: threading.Semaphore) -> Lease:
        """Returns a lease inside this one, which is held by acquiring `free`."""
        return _Loan(self._lock, free)

    def close_after(self, query: Running, first: Callable[[], None] | None = None) -> None:
        """Gives the lease back when a query has ended, from a thread that waits for it; stops the query if the lease is
        lost. Returns at once.

        Args:
            query: The query.
            first: Called before the lease is given back.
        """
        lost = self._lock.on_lost if isinstance(self._lock, RenewedLock) else []
        lost.append(query.stop)

        def wait() -> None:
            with suppress(Exception):  # why the query has failed is for whoever awaits it
                query.awaitTermination()
            try:
                if first is not None:
                    first()
            finally:
                lost.remove(query.stop)
                self.close()

        threading.Thread(target=wait, name="wheel-lease-end", daemon=True).start()

    def __enter__(self) -> Self:
        """See :meth:`acquire`."""
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the lease back."""
        self.close()


@contextmanager
def holding(leases: Iterable[Lease]) -> Iterator[Callable[[], None]]:
    """Inside, all these leases are held, taken in this order. Yields what raises a LeaseError if one is lost: call it
    before each write.

    Raises:
        LeaseError: Another one holds one of them.
    """
    with ExitStack() as stack:
        held = [stack.enter_context(lease) for lease in leases]

        def require_leases() -> None:
            for lease in held:
                lease.check()

        yield require_leases


class _Loan(Lease):
    """The lease of a run, lent to one query at a time."""

    def __init__(self, lock: _Lock, free: threading.Semaphore) -> None:
        self._lock, self._free, self._closing = lock, free, threading.Lock()
        self._has = False

    @property
    def is_held(self) -> bool:
        return self._has

    def acquire(self) -> Self:
        if not self._free.acquire(timeout=file_lock.TRIES * file_lock.PAUSE_S):
            raise in_use(self._lock.place, Holder.of_this_process())
        self._has = True
        try:
            self.check()
        except BaseException:
            self.close()
            raise
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
        timeout_ms: As for :class:`Lease`.
        later: Folders whose leases are only checked to be free, and taken later, one by one, with :meth:`of`.
    """

    def __init__(
        self, paths: Sequence[str], timeout_ms: int = DEFAULT_TIMEOUT_MS, later: Sequence[str] = ()
    ) -> None:
        self._timeout_ms, self._later = timeout_ms, later
        self._held = {path: (Lease(path, timeout_ms), threading.Semaphore()) for path in paths}

    def of(self, path: str) -> Lease:
        """Returns a lease of a folder, to be acquired: lent by this run if it holds the folder, else a new one."""
        lease, free = self._held.get(path, (None, None))
        if lease is None or free is None or not lease.is_held:
            return Lease(path, self._timeout_ms)
        return lease.lend(free)

    def check(self) -> None:
        """Checks that none of the leases that were taken is lost.

        Raises:
            LeaseError: As :meth:`Lease.check`.
        """
        for lease, _ in self._held.values():
            if lease.is_held:
                lease.check()

    def __enter__(self) -> Self:
        """See :meth:`take`."""
        self.take()
        return self

    def take(self) -> None:
        """Takes the leases that it does not hold yet, except those of folders that only a running Spark can open, while
        none runs.

        Raises:
            LeaseError: Another process holds one; none is kept.
        """
        now = [
            lease
            for path, (lease, _) in self._held.items()
            if not lease.is_held and not waits_for_session(path)
        ]
        if not now:
            return
        later = [Lease(path, self._timeout_ms) for path in self._later if not waits_for_session(path)]
        try:
            # A run that was killed has left all its leases: they are watched at the same time.
            for lease in [*later, *now][1:]:
                lease.observe()
            for lease in later:
                lease.require_free()
            for lease in now:
                with suppress(OSError):  # no folder: the checks of the checkpoint say what is wrong with it
                    lease.acquire()
        except BaseException:
            self._give_back()
            raise

    def __exit__(self, *_: object) -> None:
        """Gives all leases back, except those of a query that could not be stopped."""
        self._give_back()

    def _give_back(self) -> None:
        # In reverse, so that a folder made for the first is empty when its turn comes.
        for lease, free in reversed(self._held.values()):
            # A query that has just ended gives its loan back from a thread.
            if free.acquire(timeout=file_lock.TRIES * file_lock.PAUSE_S):
                lease.withdraw()
                free.release()
