"""Operations on the streaming queries of a run: stop one between its batches, read its position, ask whether it has
read all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.checkpoint.spark_logs import planned_offsets

WAITING = "Waiting for data to arrive"


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


def has_read_all(query: StreamingQuery) -> bool:
    """Whether the last trigger of a query has ended and has found no input.

    Before its first trigger a query also has no data available, but another message (Spark 4.2,
    ``MicroBatchExecution``).
    """
    status = query.status
    return status["message"] == WAITING and not status["isDataAvailable"] and not status["isTriggerActive"]


@dataclass(frozen=True)
class Position:
    """How far the wheel's query has come with a batch.

    Attributes:
        version: The version of the store that it has read.
        clock_ms: Its clock (UTC epoch ms).
    """

    version: int
    clock_ms: int


def position_of(query: StreamingQuery | None) -> Position | None:
    """Returns the position of the wheel's query; None before its first committed batch."""
    progress = None if query is None else query.lastProgress
    return None if progress is None else _position_in(source["endOffset"] for source in progress["sources"])


def planned_position(checkpoint: str) -> Position | None:
    """Returns the position that the wheel's query has after its newest planned batch, which may be in progress; None
    before its first one.

    A planned batch is repeated with the same offsets, so what it has not read it will never read.

    Args:
        checkpoint: The folder of the wheel's query.
    """
    return _position_in(planned_offsets(checkpoint) or ())


def _position_in(offsets: Iterable[Any]) -> Position | None:
    for reported in offsets:
        offset = _offset(reported)
        if isinstance(offset, Mapping) and "version" in offset and "instant_ms" in offset:
            return Position(int(offset["version"]), int(offset["instant_ms"]))
    return None


def _offset(reported: Any) -> Any:
    """Returns an offset of a progress report as a value; Spark reports it as JSON text or as a value."""
    try:
        return json.loads(reported) if isinstance(reported, str) else reported
    except ValueError:
        return None
