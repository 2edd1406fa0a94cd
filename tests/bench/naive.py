"""What a Spark user writes without the wheel: the id is the key, the due time is an event-time timeout.

It is the textbook use of ``applyInPandasWithState``, and correct as far as it goes: the highest ``seq`` of an id wins,
an entry fires in the first batch whose watermark has passed its due time. It has no cancels, no memory of ended ids
and no rejects, so it does less than the operator it is measured against.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

_OUTPUT = (
    "schedule_id string, seq long, destination string, value binary, deliver_at_ms long, fired_at_ms long"
)
_STATE = "seq long, destination string, value binary, deliver_at_ms long"
_OUTPUT_COLUMNS = [part.split()[0] for part in _OUTPUT.split(", ")]


def schedule_naively(commands: DataFrame) -> DataFrame:
    """Holds each command until the watermark has passed its due time."""
    return (
        commands.withWatermark("event_time", "0 seconds")
        .select(
            "schedule_id",
            "seq",
            "destination",
            "value",
            F.unix_millis("deliver_at").alias("deliver_at_ms"),
            "event_time",
        )
        .groupBy("schedule_id")
        .applyInPandasWithState(_hold, _OUTPUT, _STATE, "append", GroupStateTimeout.EventTimeTimeout)
    )


def _hold(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        yield _fired(key[0], state.get, state.getCurrentWatermarkMs())
        state.remove()
        return
    latest = state.get if state.exists else None
    for frame in frames:
        for row in frame.itertuples(index=False):
            if latest is None or row.seq > latest[0]:
                latest = (row.seq, row.destination, row.value, row.deliver_at_ms)
    assert latest is not None, "a key that has not timed out has a row"
    due_ms, now_ms = latest[3], state.getCurrentWatermarkMs()
    if due_ms <= now_ms:  # Spark takes no timeout behind the watermark
        yield _fired(key[0], latest, now_ms)
        state.remove()
    else:
        state.update(latest)
        state.setTimeoutTimestamp(due_ms)


def _fired(schedule_id: str, entry: tuple[Any, ...], now_ms: int) -> pd.DataFrame:
    seq, destination, value, due_ms = entry
    return pd.DataFrame([(schedule_id, seq, destination, value, due_ms, now_ms)], columns=_OUTPUT_COLUMNS)
