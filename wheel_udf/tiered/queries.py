"""Questions to the streaming queries of a run: its position, and whether it has read all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.checkpoint.spark_logs import planned_offsets
from wheel_udf.spark.queries import end_offsets

WAITING = "Waiting for data to arrive"


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
    ends = None if query is None else end_offsets(query)
    return None if ends is None else _position_in(ends)


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
