"""The pause of a query: holds the intake's query in a batch while a limit is reached; in turns with it, the wheel's
query (:mod:`wheel_udf.tiered.lead`).

::

    intake's thread      batch 7 written -- no room: hold() ..................... returns -- Spark commits 7 -- batch 8
    supervisor's thread                     .... 0.1 s .... has room again? ... yes: release()

A continuous intake is held at the end of the batch that reaches the limit. That batch is written, so its function
returns normally in every case:

* there is room again: the query goes on with its next batch;
* the query is stopped: it ends with the held batch. The offsets of the next batch wait in the source;
* the process is killed: Spark repeats the held batch, and the store skips it by its transaction.

A bounded intake is held at the start of the next batch, before that is written, because only the call of its function
shows that there is more input. When it is stopped there, the batch is written and exceeds the limit; Spark would count
a batch as done whose function returns without writing it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_POLL_S = 0.1


class IntakePause:
    """Holds the thread of one query, until another thread releases it or the query is stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._ended = False

    @property
    def holds(self) -> bool:
        """Whether the intake is held."""
        return not self._may_go_on.is_set()

    def hold(self, is_active: Callable[[], bool]) -> None:
        """Waits until :meth:`release` or :meth:`end`, or until the query is no longer active; returns at once after
        :meth:`end`.

        Args:
            is_active: Whether the query is active, which it is not as soon as somebody has called its ``stop``.
        """
        with self._lock:
            if self._ended:
                return
            self._may_go_on.clear()
        while not self._may_go_on.wait(_POLL_S):
            if not is_active():
                self._may_go_on.set()

    def release(self) -> None:
        """Lets the intake go on."""
        self._may_go_on.set()

    def end(self) -> None:
        """Lets the intake go on and never holds it again."""
        with self._lock:
            self._ended = True
            self._may_go_on.set()
