"""The classic purgatory, in memory: operations that wait under watch keys until an event completes them or their time is over.

After ``DelayedOperationPurgatory`` of Apache Kafka, which holds fetches that lack bytes and produces that lack acknowledgements::

    try_complete_else_watch(op, keys)        complete at once ------------------------------------------> on_complete
                 |                                                                                            ^
                 v  not yet                                                                                   |
    watch lists  "t0": op, other             check_and_complete("t0"): tries op, other  --- now it does ------'
                 "t1": op                    cancel_for_key("t1"): both lists forget op --> on_cancel
    timing wheel op at its deadline          advance(now): over ---> on_complete, on_expiration

Invariants

* Each operation has one outcome, however many threads race for it: completed, expired or cancelled. Who gives it its outcome runs its callbacks,
  on his own thread, and no lock is held meanwhile; so a callback may use the purgatory.
* On any outcome an operation leaves the wheel and *all* its watch lists at once (Kafka's leave the others to a reaper, and a list of an idle key
  keeps what has long ended).
* No event is lost between a failed attempt and the watch: the operation is tried once more when it is on its lists. What makes it
  completable has to be visible before :meth:`Purgatory.check_and_complete` is called.

Cost: adding and ending O(keys) and O(1) in the wheel (see :mod:`wheel_udf.timing_wheel`); an event O(operations that watch its key); nothing depends
on how many wait.

Caveats: time is an argument, as in the wheel. A callback that raises does so in the call that ran it; the outcome stands, and the other operations of
that call are left to the next one (they wait on, or are expired by the next :meth:`Purgatory.advance`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable
from enum import StrEnum

from wheel_udf.errors import ConfigError
from wheel_udf.timing_wheel import TimingWheel


class Outcome(StrEnum):
    """How an operation ended."""

    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class DelayedOperation(ABC):
    """Something that waits; a subclass says when it is complete and what then happens.

    Compared by identity: a subclass that is a dataclass says ``eq=False``.

    Args:
        deadline_ms: When it expires, in ms on the purgatory's clock.
    """

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self._outcome: Outcome | None = None
        self._lock = threading.Lock()
        self._home: Purgatory | None = None

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it waits."""
        return self._outcome

    @abstractmethod
    def try_complete(self) -> bool:
        """Calls :meth:`force_complete` if all is there, and says what that said; else False. Several threads may be in it at once."""

    def on_complete(self) -> None:  # noqa: B027  # to be overridden where it matters
        """Runs once, when it is completed or expired."""

    def on_expiration(self) -> None:  # noqa: B027  # to be overridden where it matters
        """Runs after :meth:`on_complete` if it expired."""

    def on_cancel(self) -> None:  # noqa: B027  # to be overridden where it matters
        """Runs once, when it is cancelled; the others do not run then."""

    def force_complete(self) -> bool:
        """Completes it, if nothing has ended it yet; True for the one call that did."""
        if not self._end(Outcome.COMPLETED):
            return False
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """Cancels it, if nothing has ended it yet; True for the one call that did."""
        if not self._end(Outcome.CANCELLED):
            return False
        self.on_cancel()
        return True

    def _expire(self) -> bool:
        if not self._end(Outcome.EXPIRED):
            return False
        self.on_complete()
        self.on_expiration()
        return True

    def _end(self, outcome: Outcome) -> bool:
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome, home = outcome, self._home
        if home is not None:
            home._forget(self)  # noqa: SLF001  # the two are one thing
        return True

    def _settle(self, home: Purgatory) -> bool:
        """Takes the purgatory that has it; False if it has ended already."""
        with self._lock:
            if self._home is not None:
                raise ConfigError(
                    "an operation waits in one purgatory, once",
                    field="operation",
                    value=self,
                    hint="make a new one",
                )
            if self._outcome is None:
                self._home = home
            return self._outcome is None


class Purgatory:
    """Where operations wait. Thread-safe.

    Args:
        tick_ms: Of the wheel that expires them.
        size: Slots of a level of it.
        start_ms: Where its clock stands at first.
    """

    def __init__(self, tick_ms: int = 1, size: int = 20, *, start_ms: int = 0) -> None:
        self._wheel = TimingWheel(tick_ms, size, start_ms=start_ms)
        # Lists keep the order of arrival: a dict of operations by identity.
        self._lists: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._keys: dict[DelayedOperation, tuple[Hashable, ...]] = {}
        self._watched = 0
        self._over: deque[DelayedOperation] = deque()
        self._lock = threading.Lock()

    @property
    def watched(self) -> int:
        """How many places on watch lists are taken: an operation under three keys counts three times."""
        with self._lock:
            return self._watched

    @property
    def delayed(self) -> int:
        """How many operations wait."""
        with self._lock:
            return len(self._keys)

    @property
    def next_wakeup_ms(self) -> int | None:
        """When :meth:`advance` next has something to do; None if nothing waits."""
        with self._lock:
            # What a callback that raised has left over is due already.
            return self._wheel.clock_ms if self._over else self._wheel.next_wakeup_ms()

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Completes an operation that can be completed, and lets any other wait under each of its keys.

        Args:
            operation: A new operation.
            keys: Its watch keys; one that comes twice counts once.

        Returns:
            Whether this call has completed it.

        Raises:
            ConfigError: There is no key, or the operation waits, or has waited, already.
        """
        watched = tuple(dict.fromkeys(keys))
        if not watched:
            raise ConfigError(
                "an operation without keys would only ever expire",
                field="keys",
                value=[],
                rule="at least one",
            )
        if operation.try_complete():
            return True
        if not operation._settle(self):  # noqa: SLF001  # the two are one thing
            return False
        with self._lock:
            # What ended since it settled has asked to be forgotten before it was known.
            if operation.outcome is None:
                self._keys[operation] = watched
                self._watched += len(watched)
                for key in watched:
                    self._lists.setdefault(key, {})[operation] = None
                self._wheel.add(operation, operation.deadline_ms)
        # An event that came before it was on its lists found nothing there.
        return operation.try_complete()

    def check_and_complete(self, key: Hashable) -> int:
        """Tries all operations that watch a key, the oldest first.

        Returns:
            How many this call has completed.
        """
        return sum(operation.try_complete() for operation in self._watching(key))

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Cancels all operations that watch a key.

        Returns:
            Those that this call has cancelled.
        """
        return [operation for operation in self._watching(key) if operation.cancel()]

    def advance(self, now_ms: int) -> int:
        """Moves the clock on and expires what is over, by deadline.

        Returns:
            How many this call has expired.
        """
        with self._lock:
            self._over.extend(entry.entry_id for entry in self._wheel.advance(now_ms))  # type: ignore[misc]  # operations are all it holds
        expired = 0
        while self._over:
            try:
                operation = self._over.popleft()
            except IndexError:  # another thread took the last
                break
            expired += operation._expire()  # noqa: SLF001  # the two are one thing
        return expired

    def _watching(self, key: Hashable) -> list[DelayedOperation]:
        with self._lock:
            return list(self._lists.get(key, ()))

    def _forget(self, operation: DelayedOperation) -> None:
        with self._lock:
            keys = self._keys.pop(operation, ())
            self._watched -= len(keys)
            for key in keys:
                others = self._lists[key]
                del others[operation]
                if not others:
                    del self._lists[key]
            self._wheel.cancel(operation)
