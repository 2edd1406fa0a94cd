"""The rows of ids in the tables of a job: which they are, and the account without them.

::

    table                               the id of a row     a row that is removed
    entries, operations, held           its own             a pending entry: counted as one that a cancel has ended
    memory, ended, resting              its own             a command for the id is new from then on
    events, ahead (of a purgatory)      name: the key,      operations that look back no longer find the event
                                        or its group
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.sinks.row_removal import frame_of_ids, rows_of_ids, rows_without_ids
from wheel_udf.transfer.content import ENTRIES, MEMORY
from wheel_udf.transfer.manifest import WAITS

ID_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    ENTRIES: ("schedule_id",),
    MEMORY: ("schedule_id",),
    **dict.fromkeys(("operations", "ended", "resting", "held"), ("op_id",)),
    **dict.fromkeys(("events", "ahead"), ("name", "group")),
}
"""By table: the columns that hold the id; an operation is often in a group of its own name."""


def split(
    spark: SparkSession, tables: Mapping[str, DataFrame], ids: Sequence[str]
) -> tuple[dict[str, DataFrame], int]:
    """Returns the tables without the rows of the ids, and how many of these rows are pending."""
    frame = frame_of_ids(spark, ids)
    left = {name: rows_without_ids(table, frame, *ID_COLUMNS[name]) for name, table in tables.items()}
    return left, sum(
        rows_of_ids(tables[name], frame, *ID_COLUMNS[name]).count() for name in WAITS if name in tables
    )


def ended_by_cancel(counts: Mapping[str, int], ended: int) -> dict[str, int]:
    """Returns the counts with so many more entries that a cancel has ended; of a wheel, with these cancels too."""
    more = {"cancelled": ended, "applied": ended}
    return {name: count + more.get(name, 0) for name, count in counts.items()}
