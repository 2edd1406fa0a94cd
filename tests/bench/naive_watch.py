"""What a purgatory replaces: one group for each operation, with a timer of Spark's. Runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

OUTPUT = "op_id string, outcome string, at_ms long"
STATE = "deadline_ms long"


def one_operation(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """An operation that waits for one event: complete at the event, expired by its timer."""
    (op_id,) = key
    if state.hasTimedOut:
        (deadline_ms,) = state.get
        state.remove()
        yield pd.DataFrame({"op_id": [op_id], "outcome": ["expired"], "at_ms": [deadline_ms]})
        return
    deadline_ms, event_ms = (state.get[0] if state.exists else None), None
    for frame in frames:
        is_event = frame["is_event"].to_numpy()
        if is_event.any():
            event_ms = int(frame["time_ms"].to_numpy()[is_event].min())
        if not is_event.all():
            deadline_ms = int(frame["deadline_ms"].to_numpy()[~is_event].min())
    if deadline_ms is not None and event_ms is not None and event_ms <= deadline_ms:
        if state.exists:
            state.remove()
        yield pd.DataFrame({"op_id": [op_id], "outcome": ["completed"], "at_ms": [event_ms]})
    elif deadline_ms is not None:
        state.update((deadline_ms,))
        state.setTimeoutTimestamp(max(deadline_ms, state.getCurrentWatermarkMs() + 1))
