"""The classic purgatory, in memory: operations wait under watch keys until an event completes them or their deadline
passes.

Modelled on ``DelayedOperationPurgatory`` of Apache Kafka, which holds fetches that lack bytes and produce
requests that lack acknowledgements::

    try_complete_else_watch(op, keys)        complete at once ------------------------------------------> on_complete
                 |                                                                                            ^
                 v  not yet                                                                                   |
    watch lists  "t0": op, other             check_and_complete("t0"): tries op, other  --- complete ---------'
                 "t1": op                    cancel_for_key("t1"): op leaves both lists --> on_cancel
    timing wheel op at its deadline          advance(now): expired ---> on_complete, on_expiration

Invariants

* Each operation has one outcome, however many threads race for it: completed, expired or cancelled. The
  thread that decides the outcome runs the callbacks and holds no lock meanwhile, so a callback may use the
  purgatory.
* On any outcome an operation leaves the wheel and *all* its watch lists at once. (Kafka removes it from its
  other lists later, by a reaper; the list of an idle key keeps ended operations.)
* No event is lost between a failed attempt and the watch: the operation is tried once more when it is on its
  lists. The condition that completes it must be visible before :meth:`Purgatory.check_and_complete` is
  called.

Cost: adding and ending O(keys), plus O(1) in the wheel (:class:`wheel_udf.wheel.TimingWheel`); an event
O(operations that watch its key). Nothing depends on the number of waiting operations.

Caveats: time is an argument, as in the wheel. An exception of a callback is raised by the call that ran it;
the outcome stands, and the remaining operations of that call are left to the next one (they keep waiting, or
the next :meth:`Purgatory.advance` expires them).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable
from enum import StrEnum

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.outcomes import CANCELLED, COMPLETED, EXPIRED
from wheel_udf.wheel.reference import TimingWheel


class Outcome(StrEnum):
    """How an operation ended."""

    COMPLETED = COMPLETED
    EXPIRED = EXPIRED
    CANCELLED = CANCELLED


class DelayedOperation(ABC):
    """An operation that waits. A subclass defines when it is complete and what happens then.

    Operations are compared by identity: declare a subclass that is a dataclass with ``eq=False``.

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
        """Returns :meth:`force_complete` if the operation can be completed, else False. Thread-safe."""

    def on_complete(self) -> None:  # noqa: B027  # to be overridden where it matters
        """Called once, when the operation has completed or expired."""

    def on_expiration(self) -> None:  # noqa: B027  # to be overridden where it matters
        """Called after :meth:`on_complete` if the operation expired."""

    def on_cancel(self) -> None:  # noqa: B027  # to be overridden where it matters
        """Called once, when the operation is cancelled; the other callbacks are not called then."""

    def force_complete(self) -> bool:
        """Completes the operation unless it has ended; True for the one call that completed it."""
        if not self._end(Outcome.COMPLETED):
            return False
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """Cancels the operation unless it has ended; True for the one call that cancelled it."""
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
        """Records the purgatory in which the operation waits; False if it has ended already."""
        with self._lock:
            if self._home is not None:
                raise ConfigError(
                    "the operation waits, or has waited, in a purgatory already",
                    field="operation",
                    value=self,
                    hint="create a new operation",
                )
            if self._outcome is None:
                self._home = home
            return self._outcome is None


class Purgatory:
    """Holds waiting operations. Thread-safe.

    Args:
        tick_ms: Tick of the wheel that expires operations.
        size: Slots per level of that wheel.
        start_ms: Its clock at the start.
    """

    def __init__(self, tick_ms: int = 1, size: int = 20, *, start_ms: int = 0) -> None:
        self._wheel = TimingWheel(tick_ms, size, start_ms=start_ms)
        # A list keeps the order of arrival: a dict whose keys are the operations.
        self._lists: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._keys: dict[DelayedOperation, tuple[Hashable, ...]] = {}
        self._watched = 0
        self._over: deque[DelayedOperation] = deque()
        self._lock = threading.Lock()

    @property
    def watched(self) -> int:
        """Number of entries on all watch lists: an operation under three keys counts three times."""
        with self._lock:
            return self._watched

    @property
    def delayed(self) -> int:
        """Number of waiting operations."""
        with self._lock:
            return len(self._keys)

    @property
    def next_wakeup_ms(self) -> int | None:
        """The next instant at which :meth:`advance` has something to do; None if nothing waits."""
        with self._lock:
            # Operations left over by a callback that raised are due already.
            return self._wheel.clock_ms if self._over else self._wheel.next_wakeup_ms()

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Completes the operation if possible; otherwise lets it wait under each of its keys.

        Args:
            operation: A new operation.
            keys: Its watch keys; duplicates count once.

        Returns:
            Whether this call completed it.

        Raises:
            ConfigError: No key was given, or the operation waits, or has waited, already.
        """
        watched = tuple(dict.fromkeys(keys))
        if not watched:
            raise ConfigError(
                "an operation without keys could only expire",
                field="keys",
                value=[],
                rule="at least one",
            )
        if operation.try_complete():
            return True
        if not operation._settle(self):  # noqa: SLF001  # the two are one thing
            return False
        with self._lock:
            # An operation that ended since _settle was forgotten before it was added: do not add it.
            if operation.outcome is None:
                self._keys[operation] = watched
                self._watched += len(watched)
                for key in watched:
                    self._lists.setdefault(key, {})[operation] = None
                self._wheel.add(operation, operation.deadline_ms)
        # An event that came before the operation was on its lists did not find it.
        return operation.try_complete()

    def check_and_complete(self, key: Hashable) -> int:
        """Tries all operations that watch a key, the oldest first.

        Returns:
            Number of operations that this call completed.
        """
        return sum(operation.try_complete() for operation in self._watching(key))

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Cancels all operations that watch a key.

        Returns:
            The operations that this call cancelled.
        """
        return [operation for operation in self._watching(key) if operation.cancel()]

    def advance(self, now_ms: int) -> int:
        """Advances the clock and expires the operations whose deadline has passed, in the order of deadlines.

        Returns:
            Number of operations that this call expired.
        """
        with self._lock:
            due = self._wheel.advance(now_ms)
            self._over.extend(entry.entry_id for entry in due)  # type: ignore[misc]  # it holds operations only
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
