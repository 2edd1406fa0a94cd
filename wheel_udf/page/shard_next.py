"""Finds the entries of a shard that are due next. Runs on executors, in the pass that counts (:mod:`.shard_sums`).

The directory of a shard has the earliest due time of each chunk. So chunks are opened in that order, and only until the
entries that were found are due before all others: a few chunks, however many entries wait::

    chunks, by their earliest due time      7:05:01   7:05:09   7:06:30   8:00:00   ...
    the two that are due next               opened: 7:05:01, 7:05:40
                                                      opened: 7:05:09             -> 7:05:01, 7:05:09
                                                                closed, as all others
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.geometry import Wheel
from wheel_udf.page.shard_sums import SUMS_SCHEMA, sums_of_entries, sums_of_operations
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.chunks import IN_FLIGHT_LEVEL, MEMORY_LEVEL
from wheel_udf.shard.rows import PAUSED_MS, outer_id
from wheel_udf.shard.shard_text import chunks_from_text

MOST_NEXT: Final = 10
"""How many entries the page shows as due next."""

NEXT_SCHEMA: Final = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("due_ms", pa.int64()),
        ("destination", pa.string()),
        ("is_series", pa.bool_()),
    ]
)
"""An entry that is due soon: its id (of an operation the ``op_id``), when the wheel releases it, where it goes, and
whether it is a series."""

_ORDER: Final = [("due_ms", "ascending"), ("schedule_id", "ascending")]

SHARD_SCHEMA: Final = pa.unify_schemas([SUMS_SCHEMA, NEXT_SCHEMA])
"""Rows of :data:`.shard_sums.SUMS_SCHEMA`, and, with a ``due_ms``, of :data:`NEXT_SCHEMA`; the other columns are
null."""


def entries_of_shard(
    text: str, *, geometry: Wheel, clock_ms: int, texts: ChunkStore | None = None
) -> pa.Table:
    """The counts of a shard of a wheel, and its next entries.

    Args:
        text: The column ``chunks`` of the shard's state.
        geometry: The wheel.
        clock_ms: The clock of the wheel.
        texts: Has the chunks that are outside the text.

    Returns:
        Rows of :data:`SHARD_SCHEMA`.
    """
    sums = sums_of_entries(text, geometry=geometry, clock_ms=clock_ms, texts=texts)
    return _together(sums, next_entries(text, texts=texts))


def operations_of_shard(
    text: str, *, geometry: Wheel, clock_ms: int, texts: ChunkStore | None = None
) -> pa.Table:
    """As :func:`entries_of_shard`, of a purgatory."""
    sums = sums_of_operations(text, geometry=geometry, clock_ms=clock_ms, texts=texts)
    return _together(sums, next_operations(text, texts=texts))


def next_entries(text: str, most: int = MOST_NEXT, texts: ChunkStore | None = None) -> pa.Table:
    """The entries of a shard that are due next, in order; without paused series.

    Args:
        text: The column ``chunks`` of the shard's state.
        most: How many.
        texts: Has the chunks that are outside the text.

    Returns:
        Rows of :data:`NEXT_SCHEMA`.
    """
    # A column that a chunk may lack is not read alone.
    columns = ("schedule_id", "deliver_at_ms", "destination", "repeat", "max_lateness_ms")
    return _next(text, columns, most, more=(IN_FLIGHT_LEVEL,), texts=texts)


def next_operations(text: str, most: int = MOST_NEXT, texts: ChunkStore | None = None) -> pa.Table:
    """As :func:`next_entries`: the operations of a purgatory shard that are decided next if nothing happens."""
    return _next(text, ("op_id", "look_at_ms", "destination"), most, texts=texts)


def _next(
    text: str,
    columns: tuple[str, ...],
    most: int,
    *,
    more: tuple[int, ...] = (),
    texts: ChunkStore | None,
) -> pa.Table:
    """`more`: levels outside the wheel whose rows are due all the same."""
    chunks = [c for c in chunks_from_text(text, texts) if c.level > MEMORY_LEVEL or c.level in more]
    found = NEXT_SCHEMA.empty_table()
    for chunk in sorted(chunks, key=lambda chunk: chunk.low_ms):
        if chunk.low_ms == PAUSED_MS or (
            found.num_rows == most and found["due_ms"][-1].as_py() <= chunk.low_ms
        ):
            break
        rows = _as_next(chunk.table(*columns), columns)
        found = pa.concat_tables([found, rows]).sort_by(_ORDER).slice(0, most)
    return found


def _as_next(rows: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    name, due, destination = (rows[column] for column in columns[:3])
    repeats = rows["repeat"] if "repeat" in columns else pa.nulls(rows.num_rows)
    named = pa.table([outer_id(name), due, destination, repeats.is_valid()], schema=NEXT_SCHEMA)
    return named.filter(pc.less(named["due_ms"], PAUSED_MS))


def _together(sums: pa.Table, following: pa.Table) -> pa.Table:
    joined = pa.concat_tables([sums, following], promote_options="default")
    return joined.select(SHARD_SCHEMA.names).cast(SHARD_SCHEMA)
