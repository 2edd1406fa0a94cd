"""Ctrl-C does not come between what belongs together."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from wheel_udf.common.interrupts import INTERRUPTED, uninterrupted


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """Python's own handler. What is started in the background of a shell ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            for part in ("one", "other"):
                signal.raise_signal(signal.SIGINT)
                done.append(part)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["one", "other"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_is_raised_and_the_handler_is_as_before() -> None:
    with uninterrupted():
        pass

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_it_changes_nothing() -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert seen == [signal.default_int_handler]


def test_the_exit_code_is_that_of_a_shell() -> None:
    assert INTERRUPTED == 128 + signal.SIGINT
