"""Progress of long work on standard error: a bar on a terminal, a line now and then elsewhere, nothing for short work.

::

    terminal     export 2/3 entries:  38%|######          | 3/8 tasks [00:12<00:20, 0.25 tasks/s]
    elsewhere    export 2/3 entries: 3 of 8 tasks; 00:20 left                   every 10 s, the first one after 10 s

Standard output is never written to: other programs read it. A bar is removed when the work ends; a line that is
printed meanwhile (:meth:`Progress.around`) stands above it.

The bar is tqdm's, which is imported when something is shown: what executors load does not need it. The rate and the
time left are those of the step, because steps differ in kind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TextIO

from wheel_udf.common.secrets import hide

PrintLine = Callable[[str], None]
"""Takes a line of output."""

Step = Callable[[str, int, int], None]
"""(name, number from 1, number of steps): called when a step of some work begins."""

SHORT_MS: Final = 2_000
"""Shorter work shows nothing."""
EVERY_MS: Final = 10_000
"""Distance of the lines where there is no terminal."""


def no_steps(_name: str, _number: int, _of: int) -> None:
    """A :data:`Step` for work without a progress display."""


class Progress:
    """Shows the progress of some work; a context manager. Safe to use from several threads.

    Args:
        what: The work, such as ``export``.
        stream: Where to show it.
        elapsed_ms: A clock that never goes back.
        unit: What is counted.
    """

    def __init__(
        self, what: str, stream: TextIO, elapsed_ms: Callable[[], int], *, unit: str = "tasks"
    ) -> None:
        self._what, self._title, self._unit = what, what, unit
        self._stream, self._elapsed_ms = stream, elapsed_ms
        self._is_terminal = is_terminal(stream)
        self._lock = threading.RLock()
        self._bar: Any = None
        self._began_ms = self._step_ms = self._shown_ms = elapsed_ms()
        self.steps = 0
        """Number of steps that have begun."""

    def step(self, name: str, number: int, of: int) -> None:
        """Begins a step: a :data:`Step`."""
        with self._lock:
            self._close_bar()
            self._title, self._step_ms = hide(f"{self._what} {number}/{of} {name}"), self._elapsed_ms()
            self.steps += 1

    def show(self, done: int, total: int) -> None:
        """Shows that `done` of `total` units are done; `total` may have grown."""
        now_ms = self._elapsed_ms()
        with self._lock:
            if total <= 0 or now_ms - self._began_ms < SHORT_MS:
                return
            if self._is_terminal:
                self._draw(done, total)
            elif now_ms - self._shown_ms >= EVERY_MS:
                self._shown_ms = now_ms
                self._print(done, total)

    def around(self, print_line: Callable[[str], None]) -> Callable[[str], None]:
        """Returns `print_line`, with the bar removed for the time of each line."""

        def print_without_bar(line: str) -> None:
            with self._lock:
                if self._bar is not None:
                    self._bar.clear()
                print_line(line)

        return print_without_bar

    def __enter__(self) -> Self:
        """Begins."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the bar."""
        with self._lock:
            self._close_bar()

    def _draw(self, done: int, total: int) -> None:
        if self._bar is None:
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # no thread: show() is called often enough
            self._bar = tqdm(
                desc=self._title, unit=f" {self._unit}", leave=False, file=self._stream, total=total
            )
            # The rate of the step, and not of the time since the bar appeared.
            self._bar.start_t -= (self._elapsed_ms() - self._step_ms) / 1_000
        self._bar.total, self._bar.n = total, done
        self._bar.refresh()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _print(self, done: int, total: int) -> None:
        from tqdm import tqdm

        line = f"{self._title}: {done:,} of {total:,} {self._unit}"
        if done:
            left_ms = (self._elapsed_ms() - self._step_ms) * max(total - done, 0) // done
            line += f"; {tqdm.format_interval(left_ms // 1_000)} left"
        with suppress(OSError, ValueError):  # a closed stream ends no work
            print(line, file=self._stream, flush=True)


def is_terminal(stream: TextIO) -> bool:
    """Whether what is written there can be removed again."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False
