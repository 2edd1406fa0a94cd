"""A clock for tests that moves by hand: every function of this package takes the time as an argument."""

from __future__ import annotations


class ManualClock:
    """A clock that stands until the test moves it.

    It can be set back, as a wall clock can; the code under test has to cope with that.

    Args:
        now_ms: First instant, UTC epoch ms.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    @property
    def now_ms(self) -> int:
        """The current instant, UTC epoch ms."""
        return self._now_ms

    def advance(self, ms: int) -> int:
        """Moves the clock by `ms` (negative: back) and returns the new instant."""
        self._now_ms += ms
        return self._now_ms

    def set(self, now_ms: int) -> int:
        """Moves the clock to an instant, later or earlier, and returns it."""
        self._now_ms = now_ms
        return self._now_ms

    def __repr__(self) -> str:
        return f"ManualClock(now_ms={self._now_ms})"
