"""A thread that does something once a second, until it is stopped."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod


class SecondBySecond(ABC):
    """The thread. :meth:`after` says when the next second begins, so whether missed ones are made up for.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._end = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the current second.

        Raises:
            BaseException: What has ended the thread before.
        """
        self._end.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        second, next_s = 0, time.monotonic()
        try:
            while not self._end.wait(max(0.0, next_s - time.monotonic())):
                self.do(second)
                second, next_s = second + 1, self.after(next_s)
        except BaseException as fault:  # noqa: BLE001  # raised by stop()
            self._fault = fault

    @abstractmethod
    def do(self, second: int) -> None:
        """The work of a second, from 0."""

    def after(self, at_s: float) -> float:
        """When the second after the one of this instant begins (monotonic clock)."""
        return at_s + 1
