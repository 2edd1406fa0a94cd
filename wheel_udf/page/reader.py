"""The reader: makes readings again and again in the background, so that no request waits for one.

::

    reading "wheel"   0.4 s --- rest 5 s --- 0.4 s --- rest 5 s ---
    reading "exact"   21 s ------------ rest 105 s ------------ 21 s ---    rest: five times as long
    request           <- the latest figures, at once, with their age

Each reading has a thread. The same reading is never made twice at once: a second caller waits for the end of the
first. A reading that fails keeps its last value and gets the error's sentence. While the page is not open (no
request for a minute) nothing is read; the next request wakes the threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from wheel_udf.common.secrets import hide
from wheel_udf.control import wall
from wheel_udf.spark.failures import explain

_REST: Final = 5
_IDLE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Figure:
    """The latest result of a reading.

    Attributes:
        value: What was read; None before the first success.
        at_ms: When that reading began (UTC epoch ms); None before.
        took_ms: How long it took.
        error: Why the latest try failed; None if it did not.
    """

    value: dict[str, Any] | None = None
    at_ms: int | None = None
    took_ms: int = 0
    error: str | None = None


class Reader:
    """Makes readings in the background.

    Args:
        readings: By name.
        every_ms: Least distance between the end of a reading and the begin of its next.
        now_ms: The wall clock, for what is shown.
        elapsed_ms: A clock that never goes back, for the waits.
    """

    def __init__(
        self,
        readings: Mapping[str, Callable[[], dict[str, Any]]],
        *,
        every_ms: int = 5_000,
        now_ms: Callable[[], int] = wall.wall_clock_ms,
        elapsed_ms: Callable[[], int] = wall.elapsed_ms,
    ) -> None:
        self._readings, self._every_ms = readings, every_ms
        self._now_ms, self._elapsed_ms = now_ms, elapsed_ms
        self._figures = dict.fromkeys(readings, Figure())
        self._change = threading.Condition()
        self._looked_ms, self._stopped = elapsed_ms(), False
        self._asked: set[str] = set()
        self._one_at_a_time = {name: threading.Lock() for name in readings}
        self._threads = [
            threading.Thread(target=self._go_on, args=(name,), name=f"page-{name}", daemon=True)
            for name in readings
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Lets the threads end after the reading that they make."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    def join(self) -> None:
        """Waits until the threads have ended."""
        for thread in self._threads:
            thread.join()

    def figures(self) -> dict[str, Figure]:
        """Returns the latest figures by name, and notes that somebody looks."""
        with self._change:
            self._looked_ms = self._elapsed_ms()
            self._change.notify_all()
            return dict(self._figures)

    def ask(self, *names: str) -> None:
        """Lets readings be made again at once, whatever they cost: their subject has been changed."""
        with self._change:
            self._asked.update(names)
            self._change.notify_all()

    def read(self, name: str) -> None:
        """Makes one reading now, in the caller's thread; if it is being made, after that one."""
        with self._one_at_a_time[name]:
            self._read(name)

    def _read(self, name: str) -> None:
        at_ms, began_ms = self._now_ms(), self._elapsed_ms()
        try:
            value = self._readings[name]()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is shown, and tried again
            figure = replace(self._figures[name], error=hide(explain(error).sentence))
        else:
            figure = Figure(value, at_ms, self._elapsed_ms() - began_ms)
        with self._change:
            self._figures[name] = figure

    def _go_on(self, name: str) -> None:
        while not self._stopped:
            began_ms = self._elapsed_ms()
            self.read(name)
            rest_ms = max(self._every_ms, _REST * (self._elapsed_ms() - began_ms))
            self._wait(name, rest_ms)

    def _wait(self, name: str, rest_ms: int) -> None:
        until_ms = self._elapsed_ms() + rest_ms
        with self._change:
            while not self._stopped and name not in self._asked:
                now_ms = self._elapsed_ms()
                if now_ms - self._looked_ms >= _IDLE_MS:
                    self._change.wait()
                elif now_ms < until_ms:
                    self._change.wait((until_ms - now_ms) / 1_000)
                else:
                    break
            self._asked.discard(name)
