"""The wall clock and the clocks of intervals. No other module of the package reads one."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """The wall clock, UTC epoch ms."""
    return time.time_ns() // 1_000_000


def wall_clock_ahead_ms() -> int:
    """How far the wall clock is ahead of the monotonic clock. Less than before means that it was set back."""
    return wall_clock_ms() - elapsed_ms()


def elapsed_ms() -> int:
    """A clock that never goes back, in ms, for intervals."""
    return time.monotonic_ns() // 1_000_000


def boot_ms() -> int:
    """A clock that never goes back and counts the time that the machine was suspended, in ms, for leases."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000
