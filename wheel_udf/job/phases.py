"""The phases of a start: on a terminal one line that moves, elsewhere a line for each phase that takes long.

::

    terminal     7 s  starting Spark                      on standard error; removed when the start is over
    elsewhere    starting Spark takes longer than 5 s     a line of the run
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TextIO

from wheel_udf.common.progress import PrintLine, is_terminal
from wheel_udf.control.wall import elapsed_ms

LONG_S: Final = 5
EVERY_S: Final = 1
_CLEAR: Final = "\r\x1b[K"


class Phases:
    """The phases of one start, one after the other. Safe to use from several threads.

    Args:
        print_line: Takes a line for each phase that takes long, on a thread of the timer, if `stream` is no terminal;
            None: there are none.
        stream: Where the moving line is, if this is a terminal.
        timer: As ``threading.Timer``.
        elapsed_ms: A clock that never goes back.
    """

    def __init__(
        self,
        print_line: PrintLine | None,
        stream: TextIO,
        timer: Callable[[float, Callable[[], None]], Any] = threading.Timer,
        elapsed_ms: Callable[[], int] = elapsed_ms,
    ) -> None:
        self._print_line, self._new_timer, self._elapsed_ms = print_line, timer, elapsed_ms
        self._stream, self._moves = stream, is_terminal(stream)
        self._began_ms = elapsed_ms()
        self._lock = threading.RLock()
        self._doing: str | None = None
        self._timer: Any = None
        self._is_over = False

    def begin(self, doing: str) -> None:
        """Ends the phase before, and begins one; no effect after the last one.

        Args:
            doing: What is done, as the subject of a sentence.
        """
        with self._lock:
            self._end()
            if self._is_over:
                return
            self._doing = doing
            if self._moves:
                self._draw()
            elif self._print_line is not None:
                say = self._print_line
                self._after(LONG_S, lambda: say(f"{doing} takes longer than {LONG_S} s"))

    def around(self, print_line: PrintLine) -> PrintLine:
        """Returns `print_line`, with the moving line removed for the time of each line."""

        def print_alone(line: str) -> None:
            with self._lock:
                self._write(_CLEAR)
                print_line(line)
                self._show()

        return print_alone if self._moves else print_line

    def close(self) -> None:
        """Ends the last phase; a second call does nothing."""
        with self._lock:
            self._is_over = True
            self._end()

    def _end(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._doing is not None and self._moves:
            self._write(_CLEAR)
        self._doing = None

    def _draw(self) -> None:
        with self._lock:
            if self._doing is not None:  # it may have ended while the timer's thread waited for the lock
                self._show()
                self._after(EVERY_S, self._draw)

    def _show(self) -> None:
        if self._doing is not None:
            self._write(f"{_CLEAR}{(self._elapsed_ms() - self._began_ms) // 1_000} s  {self._doing}")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone ends no start
            self._stream.write(text)
            self._stream.flush()

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._timer = self._new_timer(seconds, call)
        self._timer.daemon = True
        self._timer.start()
