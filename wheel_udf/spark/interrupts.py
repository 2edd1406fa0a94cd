"""Ctrl-C while Spark works: its jobs are cancelled, and the session can be stopped.

pyspark has a handler of SIGINT of its own, which calls the JVM from the main thread. That thread is usually waiting
for an answer of the JVM already, and has one connection: the call is sent into it, and both get the answer of the
other (pyspark 4.2: ``Py4JError: An error occurred while calling o62.sc``, the jobs go on). A new thread has a
connection of its own, so calls after an interrupt are made in one.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

from wheel_udf.common.interrupts import is_interrupt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST_S: Final = 10.0
"""How long a JVM may take to cancel its jobs; one that hangs must not keep the process."""


_TRIES: Final = 2


@contextmanager
def ending_on_interrupt(spark: SparkSession) -> Iterator[None]:
    """Inside, SIGINT cancels all jobs of Spark and raises KeyboardInterrupt; a second one ends the process at once.

    For the owner of a session that ends with the block: Spark's and py4j's reports of what is cancelled, pages of
    them, are turned off. Outside the main thread, where no signal arrives, nothing changes.

    Args:
        spark: The session.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        logging.disable()
        in_new_thread(lambda: _cancel(spark), longest_s=_LONGEST_S)
        raise KeyboardInterrupt

    before, quiet = signal.signal(signal.SIGINT, interrupt), logging.root.manager.disable
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        logging.disable(quiet)


def _cancel(spark: SparkSession) -> None:
    spark.sparkContext.setLogLevel("OFF")
    spark.sparkContext.cancelAllJobs()
    tracker, tick = spark.sparkContext.statusTracker(), threading.Event()
    while tracker.getActiveJobsIds():  # they end soon after the call
        tick.wait(0.05)


def at_end(work: Callable[[], None]) -> None:
    """Does the work of a ``finally``: directly, or after Ctrl-C in a new thread, because the connection of this one may
    have an unread answer.

    py4j shuts that connection down, and in doing so may raise an ``OSError`` in place of the interrupt, if it meets
    the socket of a thread that has ended.
    """
    if is_interrupt(sys.exception()):
        in_new_thread(work)
    else:
        work()


def in_new_thread(work: Callable[[], None], *, longest_s: float | None = None) -> None:
    """Does some work in a thread with its own connection to the JVM, and waits for it. Exceptions are dropped.

    The first call may meet the socket of a thread that has ended, and py4j then drops that socket; so what fails is
    tried once more.

    Args:
        work: The work; can be done twice.
        longest_s: Waits no longer than this; None: until the end.
    """

    def do() -> None:
        # The process ends because of the interrupt, and says so.
        for _ in range(_TRIES):
            with suppress(Exception):
                work()
                return

    thread = threading.Thread(target=do, name="after-interrupt", daemon=True)
    thread.start()
    thread.join(longest_s)
