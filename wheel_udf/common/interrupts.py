"""Ctrl-C (SIGINT): work that has to be done together is not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as a shell has it: 128 + the number of SIGINT."""


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or was raised by what had to be closed after it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, a SIGINT waits for the end. For work of milliseconds; outside the main thread, where no signal arrives,
    it changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
