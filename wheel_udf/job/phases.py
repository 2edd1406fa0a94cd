"""The phases of a start; one that takes long is named in a line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from wheel_udf.common.progress import PrintLine

LONG_S: Final = 5


class Phases:
    """The phases of one start, one after the other; each has one line at most.

    Args:
        print_line: Takes the lines, on a thread of the timer.
        timer: As ``threading.Timer``.
    """

    def __init__(
        self, print_line: PrintLine, timer: Callable[[float, Callable[[], None]], Any] = threading.Timer
    ) -> None:
        self._print_line, self._new_timer = print_line, timer
        self._timer: Any = None
        self._is_over = False

    def begin(self, doing: str) -> None:
        """Ends the phase before, and begins one; no effect after the last one.

        Args:
            doing: What is done, as the subject of a sentence.
        """
        self._end()
        if self._is_over:
            return
        self._timer = self._new_timer(
            LONG_S, lambda: self._print_line(f"{doing} takes longer than {LONG_S} s")
        )
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Ends the last phase; a second call does nothing."""
        self._is_over = True
        self._end()

    def _end(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
