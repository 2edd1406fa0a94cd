"""Counts what a shard holds, by level, slot, destination and step of the forecast. Runs on executors, beside the state.

One pass answers three questions: the heat map (level and slot), pending by destination, and the forecast. Only the
counts leave the executor, so ten million entries become some thousand rows. Of each chunk, only two columns are
decompressed.

::

    clock 07:05:00, level 2 with slots of 20 s              level  slot      destination  step             rows
    three entries, due 07:05:25, 07:05:31, 07:05:38    ->   2      07:05:20  sms          10 s to 30 s     1
                                                            2      07:05:20  sms          30 s to 1 min    2
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wheel_udf.common import geometry as geometry_of
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.chunks import IN_FLIGHT_LEVEL, MEMORY_LEVEL
from wheel_udf.shard.rows import PAUSED_MS
from wheel_udf.shard.shard_text import chunks_from_text

RESTING, HELD, PAUSED = -3, -4, -5
"""Levels of what is outside the wheel: operations between two generations, or held until their id is known to be free;
paused series."""

_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000

EDGES_MS: Final = (
    0, _S, 3 * _S, 10 * _S, 30 * _S, _MIN, 3 * _MIN, 10 * _MIN, 30 * _MIN, _H, 3 * _H, 6 * _H, 12 * _H,
    _DAY, 3 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY, 90 * _DAY, 180 * _DAY, 365 * _DAY, 730 * _DAY, 3_650 * _DAY,
)  # fmt: skip
"""Bounds of the steps of the forecast, as distances from the clock. Step 0 is due already, step i is after
``EDGES_MS[i - 1]`` and up to ``EDGES_MS[i]``, the last one is open."""

SUMS_SCHEMA: Final = pa.schema(
    [
        ("level", pa.int32()),
        ("slot", pa.int64()),
        ("destination", pa.string()),
        ("step", pa.int32()),
        ("rows", pa.int64()),
    ]
)
"""Entries by place: ``level`` from 1 (or :data:`RESTING`, :data:`HELD`, :data:`PAUSED`, whose ``slot`` is 0 and
``step`` -1), absolute ``slot`` on that level, ``step`` of :data:`EDGES_MS`.
"""

_KEYS: Final = ["level", "slot", "destination", "step"]


def sums_of_entries(
    text: str, *, geometry: Wheel, clock_ms: int, texts: ChunkStore | None = None
) -> pa.Table:
    """Counts the entries of a shard of a wheel.

    Levels and slots are those of the wheel's rule at the clock. A shard opens a bucket only when something in it is
    due, so the bucket in which it keeps an entry may be that of an earlier clock, and differs from shard to shard.

    Args:
        text: The column ``chunks`` of the shard's state.
        geometry: The wheel.
        clock_ms: The clock of the wheel, from which levels and steps count.
        texts: Has the chunks that are outside the text.

    Returns:
        Rows of :data:`SUMS_SCHEMA`.
    """
    return _sums(text, "deliver_at_ms", geometry, clock_ms, outside=(), more=(IN_FLIGHT_LEVEL,), texts=texts)


def sums_of_operations(
    text: str, *, geometry: Wheel, clock_ms: int, texts: ChunkStore | None = None
) -> pa.Table:
    """Counts a purgatory shard's operations by their deadlines; otherwise as :func:`sums_of_entries`."""
    return _sums(text, "look_at_ms", geometry, clock_ms, texts=texts)


def _sums(
    text: str,
    due_column: str,
    wheel: Wheel,
    clock_ms: int,
    *,
    outside: tuple[int, ...] = (RESTING, HELD),
    more: tuple[int, ...] = (),
    texts: ChunkStore | None,
) -> pa.Table:
    """`outside`: levels without a place in the wheel; `more`: those of them that are counted at their due time."""
    parts = [SUMS_SCHEMA.empty_table()]
    for chunk in chunks_from_text(text, texts):
        if chunk.level > MEMORY_LEVEL or chunk.level in more:
            parts.append(_in_wheel(chunk.table("destination", due_column), due_column, wheel, clock_ms))
        elif chunk.level in outside:
            rows = chunk.table("destination")
            parts.append(_grouped(rows, np.full(rows.num_rows, chunk.level, np.int32), 0, -1))
    grouped = pa.concat_tables(parts).group_by(_KEYS).aggregate([("rows", "sum")])
    return grouped.rename_columns([*_KEYS, "rows"]).select(SUMS_SCHEMA.names).cast(SUMS_SCHEMA)


def _in_wheel(rows: pa.Table, due_column: str, wheel: Wheel, clock_ms: int) -> pa.Table:
    due_ms = rows[due_column].to_numpy()
    steps = np.searchsorted(np.array(EDGES_MS), due_ms - np.int64(clock_ms), side="left")
    levels = geometry_of.levels_of(wheel, due_ms, clock_ms)
    slots = geometry_of.slots_of(wheel, levels, due_ms)
    is_paused = due_ms == PAUSED_MS
    levels, slots, steps = (
        np.where(is_paused, outside, inside)
        for outside, inside in ((PAUSED, levels), (0, slots), (-1, steps))
    )
    return _grouped(rows, levels.astype(np.int32), slots, steps)


def _grouped(rows: pa.Table, levels: npt.NDArray[np.int32], slots: object, steps: object) -> pa.Table:
    count = rows.num_rows
    columns = {
        "level": pa.array(levels),
        "slot": pa.array(np.broadcast_to(np.asarray(slots, np.int64), count)),
        "destination": rows["destination"],
        "step": pa.array(np.broadcast_to(np.asarray(steps, np.int32), count)),
    }
    found = pa.table(columns).group_by(_KEYS).aggregate([([], "count_all")])
    return found.rename_columns([*_KEYS, "rows"]).select(SUMS_SCHEMA.names).cast(SUMS_SCHEMA)
