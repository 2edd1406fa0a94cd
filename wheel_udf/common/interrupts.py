"""Ctrl-C (SIGINT): its exit code, and a guard for work that must not be interrupted half way."""

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
    """Defers a SIGINT to the end of the block, for work of milliseconds. No effect outside the main thread."""
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
