"""The rows of ids in the tables of a job. :func:`rows_of_ids`, :func:`count_ids`.

::

    table                               the id of a row     a row that is removed
    entries, operations, held           its own             a pending entry: counted as one that a cancel has ended
    memory, ended, resting              its own             a command for the id is new from then on
    events, ahead (of a purgatory)      name: the key,      operations that look back no longer find the event
                                        or its group

The ids are a frame and are joined: as literals they would be written into the history of a table, Spark's event log
and its page, and an id with quotes would have to be escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import ActError
from wheel_udf.pending.picked import require_utf8
from wheel_udf.shard.rows import ID_JOINT
from wheel_udf.transfer.content import ENTRIES, MEMORY

ID: Final = "forgotten_id"
"""The column of a frame of ids."""

ID_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    ENTRIES: ("schedule_id",),
    MEMORY: ("schedule_id",),
    **dict.fromkeys(("operations", "ended", "resting", "held"), ("op_id",)),
    **dict.fromkeys(("events", "ahead"), ("name", "group")),
}
"""By table: the columns that hold the id; an operation is often in a group of its own name."""


def frame_of_ids(spark: SparkSession, ids: Sequence[str]) -> DataFrame:
    """Returns the ids as a frame, each once.

    Raises:
        ActError: There is none, or one is empty or not UTF-8.
    """
    if not ids:
        raise ActError("no id is given", field="id", rule="at least one")
    for each in ids:
        require_utf8("id", each)
        if not each:
            raise ActError("an empty id", field="id", value=each, rule="at least one character")
    return spark.createDataFrame([(each,) for each in dict.fromkeys(ids)], f"{ID} string")


def rows_of_ids(rows: DataFrame, ids: DataFrame, *columns: str, others: bool = False) -> DataFrame:
    """Returns the rows in which one of the columns holds one of the ids, or an occurrence of a series of one; or the
    others, also those without an id.
    """
    same = reduce(or_, (F.substring_index(rows[name], ID_JOINT, 1) == ids[ID] for name in columns))
    return rows.join(F.broadcast(ids), same, "left_anti" if others else "left_semi")


def count_ids(tables: Mapping[str, DataFrame], ids: DataFrame) -> dict[str, int]:
    """Returns the number of rows of the ids in each table."""
    return {name: rows_of_ids(table, ids, *ID_COLUMNS[name]).count() for name, table in tables.items()}
