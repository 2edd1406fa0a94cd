"""What is closed after Ctrl-C is closed over a connection of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from wheel_udf.spark.interrupts import at_end


@contextmanager
def _ending(used: list[str], fault: OSError | None = None) -> Iterator[None]:
    """Notes the thread of each call at the end; the first one raises the fault."""

    def end() -> None:
        used.append(threading.current_thread().name)
        if fault is not None and len(used) == 1:
            raise fault

    try:
        yield
    finally:
        at_end(end)


def test_after_the_end_or_a_failure_the_work_is_done_in_the_same_thread() -> None:
    used: list[str] = []

    with _ending(used):
        pass
    with pytest.raises(ValueError, match="a fault"), _ending(used):
        raise ValueError("a fault")

    assert used == [threading.current_thread().name] * 2


def test_after_an_interrupt_it_is_done_in_another_thread() -> None:
    used: list[str] = []

    with pytest.raises(KeyboardInterrupt), _ending(used):
        raise KeyboardInterrupt

    assert used == ["after-interrupt"]


def _interrupted_call() -> None:
    """As py4j, when the interrupt comes while it waits for an answer."""
    try:
        signal.default_int_handler(signal.SIGINT, None)
    except KeyboardInterrupt:
        raise OSError(107, "Transport endpoint is not connected")  # noqa: B904


def test_an_error_of_a_socket_in_place_of_an_interrupt_kept_spark_from_being_stopped() -> None:
    used: list[str] = []

    with pytest.raises(OSError, match="not connected"), _ending(used):
        _interrupted_call()

    assert used == ["after-interrupt"]


def test_the_socket_of_a_thread_that_had_ended_kept_spark_from_being_stopped() -> None:
    used: list[str] = []

    with pytest.raises(KeyboardInterrupt), _ending(used, OSError(107, "Transport endpoint is not connected")):
        raise KeyboardInterrupt

    assert used == ["after-interrupt"] * 2
