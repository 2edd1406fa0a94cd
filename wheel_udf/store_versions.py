"""Which of the entries that leave a far slot are still wanted: the highest version of an id wins, wherever in the store the others are.

An entry that leaves the store for the wheel is looked up, by its id, in all the rest of the store: near rows of before (their slots are kept while
they can matter, see :mod:`wheel_udf.store_keeper`), CANCELs, and entries in other far slots. What the next higher version is decides::

    version of the entry   the next higher one in the store     what becomes of the entry
    v                      none                                 MOVED: it goes to the wheel
    v                      a SCHEDULE                           GONE_SUPERSEDED
    v                      a CANCEL                             GONE_CANCELLED; tells the version of that CANCEL, which is applied thereby
    v, for a second time   (the one that is due first is kept)  GONE_DUPLICATE

The verdicts travel to the wheel, which counts them: one place counts, and each schedule and CANCEL once.

Cost: a pass over the 64-bit hashes of the ids of all rows in the store, which are matched with those of the leaving entries (a broadcast, 8 bytes
an entry), then a shuffle of the slim columns of the leaving entries and their matches. The pass reads a few columns only, and happens once for each
window that is handed over, not once a batch.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from wheel_udf.state import (
    CANCEL,
    COMMAND,
    GONE_CANCELLED,
    GONE_DUPLICATE,
    GONE_SUPERSEDED,
    MOVED,
    SCHEDULE,
)
from wheel_udf.store_layout import is_far_column

_ID = ("id_hash", "schedule_id")
VERSION = ("seq", "amend", "op")
"""The columns of a version, the weightiest first."""
_HAS_VERSION = (COMMAND, MOVED, GONE_SUPERSEDED, GONE_DUPLICATE)
"""Rows that bear a version of their own. A FAR row repeats that of an entry; a GONE_CANCELLED bears that of a CANCEL."""

_BEFORE, _LEAVING, _LATER = range(3)


def verdicts(leaving: DataFrame, others: DataFrame) -> DataFrame:
    """What becomes of the entries that do not simply go to the wheel.

    Args:
        leaving: Entries (rows of the store) with a column ``uid``, a number of its own for each.
        others: All other rows of the store.

    Returns:
        One row for each entry that has ended: ``uid``, ``schedule_id``, ``id_hash``, ``delay_level_ms``, ``act`` (GONE_...), its own version
        ``own_seq, own_amend``, and ``seq, amend, op`` to tell the wheel: the CANCEL's for GONE_CANCELLED, else its own.
    """
    known = _slim(leaving, F.lit(_LEAVING), F.col("uid")).unionByName(_matching(leaving, others))
    by_id = Window.partitionBy(*_ID)
    # Few ids have a second version: the others need no order. What is left is kept, or each of the three kinds of verdict below would pass
    # over the store by itself (a hand-over of 20,000 beside 3 million: 10.6 s, 6.0 this way).
    known = known.withColumn("versions", F.count(F.lit(1)).over(by_id)).where(F.col("versions") > 1)
    known = known.localCheckpoint()
    in_order = by_id.orderBy(*VERSION, "place", "deliver_at_ms", "arrived", "uid")
    same = [F.col(name) == F.lag(name).over(in_order) for name in VERSION]
    known = known.withColumn("again", F.coalesce(same[0] & same[1] & same[2], F.lit(False)))
    ours = F.col("uid").isNotNull()
    again = known.where(ours & F.col("again")).select(*_told(GONE_DUPLICATE, VERSION))
    first = known.where(~F.col("again"))
    for name in VERSION:
        first = first.withColumn(f"next_{name}", F.lead(name).over(in_order))
    beaten = first.where(ours & F.col("next_op").isNotNull())
    by_cancel = F.col("next_op") == CANCEL
    cancelled = beaten.where(by_cancel).select(
        *_told(GONE_CANCELLED, tuple(f"next_{name}" for name in VERSION))
    )
    superseded = beaten.where(~by_cancel).select(*_told(GONE_SUPERSEDED, VERSION))
    return again.unionByName(cancelled).unionByName(superseded)


def with_version(rows: DataFrame) -> DataFrame:
    """The rows of a store that bear a version of their own."""
    return rows.where(F.col("act").isin(*_HAS_VERSION) & F.col("reject").isNull())


def _matching(leaving: DataFrame, others: DataFrame) -> DataFrame:
    """The other rows of the ids that leave; a stray match of two hashes is told apart by the id later."""
    ids = F.broadcast(leaving.select("id_hash").distinct())
    place = F.when(is_far_column(F.col("level")), _LATER).otherwise(_BEFORE)
    return _slim(with_version(others).join(ids, "id_hash", "left_semi"), place, F.lit(None).cast("long"))


def _slim(rows: DataFrame, place: Column, uid: Column) -> DataFrame:
    amend, op = (
        F.coalesce("amend", F.lit(0)).alias("amend"),
        F.coalesce("op", F.lit(SCHEDULE)).cast("int").alias("op"),
    )
    return rows.select(
        *_ID,
        "delay_level_ms",
        "seq",
        amend,
        op,
        "deliver_at_ms",
        "arrived",
        place.cast("int").alias("place"),
        uid.alias("uid"),
    )


def _told(act: int, version: tuple[str, ...]) -> list[Column]:
    names = [F.col(source).alias(name) for source, name in zip(version, VERSION, strict=True)]
    own = [F.col("seq").alias("own_seq"), F.col("amend").alias("own_amend")]
    return [
        F.col("uid"),
        *map(F.col, (*_ID, "delay_level_ms")),
        F.lit(act).cast("byte").alias("act"),
        *own,
        *names,
    ]
