"""Starts a streaming query with a trigger, and stops one between its batches."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from wheel_udf.spark.stream_reader import BOUNDS_SOURCES
from wheel_udf.spark.versions import minor_version

AVAILABLE_NOW: Final = "available-now"
ONCE: Final = "once"

_TRIGGERS: Final[Mapping[str, Any]] = {AVAILABLE_NOW: {"availableNow": True}, ONCE: {"once": True}}
_AT_ONCE: Final = "0 seconds"
_STATE_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_NAMED_BY_WRITER: Final = 2
_PAUSE_S: Final = 1
READS_STATE_OF_FORMAT_2: Final = minor_version() != "4.0"

_starting = threading.RLock()
_log = logging.getLogger(__name__)


def start_with(writer: DataStreamWriter, trigger: str, *, python_source: bool = False) -> StreamingQuery:
    """Starts a query.

    Before Spark 4.2 a query with a Python source takes ``availableNow`` for a single batch. There it runs batch after
    batch, and is stopped when a look at all sources has found nothing new. So it also takes what comes while it runs.

    Args:
        writer: The query.
        trigger: An interval such as ``1 second``, :data:`AVAILABLE_NOW` or :data:`ONCE`.
        python_source: Whether one of its sources is written in Python.
    """
    runs_on = trigger == AVAILABLE_NOW and python_source and not BOUNDS_SOURCES
    options = {"processingTime": _AT_ONCE} if runs_on else _TRIGGERS.get(trigger, {"processingTime": trigger})
    with _starting:  # Spark copies the settings of the session meanwhile
        query = writer.trigger(**options).start()
    if runs_on:
        threading.Thread(target=_stop_at_end, args=(query,), name="wheel-end-of-input", daemon=True).start()
    return query


@contextmanager
def state_of_format(spark: SparkSession, found: int | None) -> Iterator[None]:
    """Queries that start within it write state of a format; others wait until it ends.

    In format 2 a version of the state has the name of the task that wrote it. In format 1 a task that outlives its
    batch may write a version once more; that changes nothing, because a batch is computed from what is in the logs.

    Args:
        spark: The session.
        found: The format of the checkpoint, which the first start has fixed; None of a new one: that of the settings,
            and 1 on Spark 4.0, whose reader of state knows no other.
    """
    with _starting:
        before = str(spark.conf.get(_STATE_FORMAT, "1"))
        spark.conf.set(_STATE_FORMAT, str(found or (before if READS_STATE_OF_FORMAT_2 else 1)))
        try:
            yield
        finally:
            spark.conf.set(_STATE_FORMAT, before)


def use_readable_state(spark: SparkSession, found: int | None) -> bool:
    """Prepares a session for frames of the state of a checkpoint; False if this Spark cannot read state of its format.

    Spark 4.0 reads with the setting of the session, when a frame is computed: there the session writes state of format
    1 from then on, but for queries that start within :func:`state_of_format`.
    """
    if not READS_STATE_OF_FORMAT_2:
        spark.conf.set(_STATE_FORMAT, "1")
    return READS_STATE_OF_FORMAT_2 or found != _NAMED_BY_WRITER


def _stop_at_end(query: StreamingQuery) -> None:
    # The query's own error is for whoever awaits it. After any other the run must still end.
    with suppress(Exception):
        while query.isActive:
            try:
                query.processAllAvailable()
                stop_between_batches(query)
            except Exception as fault:  # noqa: BLE001  # of py4j, or a stop that took too long
                if query.isActive:
                    _log.warning("the end of the input is awaited once more, after: %s", fault)
                    threading.Event().wait(_PAUSE_S)
            else:
                return


def end_offsets(query: StreamingQuery) -> list[Any] | None:
    """The offsets at which the last batch of a query ended, by source, as JSON values; None before its first batch.

    Of the progress as text: before Spark 4.2 its field ``endOffset`` is the text of a Python value.
    """
    progress = query.lastProgress
    return (
        None if progress is None else [source["endOffset"] for source in json.loads(progress.json)["sources"]]
    )


def stop_between_batches(
    query: StreamingQuery,
    is_asked: Callable[[], bool] = lambda: True,
    is_held: Callable[[], bool] = lambda: False,
    *,
    poll_s: float = 0.01,
    longest_wait_s: float = 15,
) -> None:
    """Stops a query that is idle. If somebody waits for the stop: when the batch in progress has ended or is held, or
    after `longest_wait_s`.

    A batch that is cut off stays planned: the job cannot be exported before the next run has finished it. In the
    middle of a batch function Spark searches the error's text for an interruption, with a regular expression that
    recurses for each character, and prints a thousand lines of a StackOverflowError (Spark 4.2,
    ``StreamExecution.PROXY_ERROR``).

    Args:
        query: The query.
        is_asked: Whether somebody waits for the stop; asked again and again.
        is_held: Whether the batch in progress has been written and waits: the stop lets it end.
        poll_s: Shorter than the planning of a batch: a stop that comes later would cut off the next one, if batch
            follows batch.
        longest_wait_s: How long one who waits for the stop is kept waiting.

    Raises:
        Exception: Spark's own, if the query does not end within ``spark.sql.streaming.stopTimeout``.
    """
    before, patience, left = query.lastProgress, threading.Event(), int(longest_wait_s / poll_s)
    while left and not is_held() and query.isActive and query.status["isTriggerActive"]:
        # Nobody who waits is kept waiting for the batch after this one; without anybody there are only some left.
        if (asked := is_asked()) and query.lastProgress != before:
            break
        patience.wait(poll_s)
        left -= asked
    query.stop()
