"""Says what a start is doing, if that takes long.

::

    phases.begin("starting Spark")        5 s later, if nothing else has begun: "starting Spark takes longer than 5 s"
    phases.begin("opening the source")    within 5 s: no line
    phases.end()                          the first batch is done

Each phase has one line at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

LONG_S: Final = 5

Say = Callable[[str], None]


class Timer(Protocol):
    """The part of ``threading.Timer`` that is used; tests have their own."""

    daemon: bool

    def start(self) -> None:
        """Begins to wait."""

    def cancel(self) -> None:
        """Ends the wait; nothing is called."""


class Phases:
    """The phases of one start, one after the other.

    Args:
        say: Takes the lines, on a thread of the timer.
        timer: (seconds, function) -> what calls the function after that time.
    """

    def __init__(
        self, say: Say, timer: Callable[[float, Callable[[], None]], Timer] = threading.Timer
    ) -> None:
        self._say, self._new_timer = say, timer
        self._timer: Timer | None = None

    def begin(self, doing: str) -> None:
        """Ends the phase before, and begins one.

        Args:
            doing: What is done, as the subject of a sentence.
        """
        self.end()
        self._timer = self._new_timer(LONG_S, lambda: self._say(f"{doing} takes longer than {LONG_S} s"))
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Ends the last phase; a second call does nothing."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
