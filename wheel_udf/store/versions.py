"""Comparison of versions: decides which of the entries that leave a far slot are still valid; the highest version of an id wins.

An entry that leaves the store for the wheel is looked up by its id in the rest of the store: earlier near rows (kept while they can matter, see
:mod:`wheel_udf.tiered.retirement`), CANCELs, and entries in other far slots. The next higher version decides::

    version of the entry   next higher version in the store    verdict
    v                      none                                 MOVED: it goes to the wheel
    v                      a SCHEDULE                           GONE_SUPERSEDED
    v                      a CANCEL                             GONE_CANCELLED, with the version of that CANCEL, which is applied
    v, a second time       (the one that is due first is kept)  GONE_DUPLICATE

The verdicts are rows for the wheel, which counts them; so each SCHEDULE and CANCEL is counted once, in one place.

Cost: one pass over the 64-bit hashes of the ids of all rows in the store, which are matched with those of the leaving entries (a broadcast, 8 bytes
per entry), then a shuffle of the slim columns of the leaving entries and their matches. The pass reads a few columns only, and happens once per window
that is handed over, not once per batch.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, functions as F

from wheel_udf.store.layout import is_far_column
from wheel_udf.wheel import CANCEL, COMMAND, GONE_CANCELLED, GONE_DUPLICATE, GONE_SUPERSEDED, MOVED, SCHEDULE

_ID = ("id_hash", "schedule_id")
VERSION = ("seq", "op", "amend")
"""The columns of a version, the most significant first."""
_HAS_VERSION = (COMMAND, MOVED, GONE_SUPERSEDED, GONE_DUPLICATE)
"""Kinds of rows that have a version of their own. A FAR row repeats that of an entry; a GONE_CANCELLED row has that of a CANCEL."""

_BEFORE, _LEAVING, _LATER = range(3)


def verdicts(leaving: DataFrame, others: DataFrame) -> DataFrame:
    """Returns the leaving entries that have ended, each with its verdict.

    Args:
        leaving: Entries (rows of the store) with a column ``uid``, which is unique.
        others: All other rows of the store.

    Returns:
        One row per entry that has ended: ``uid``, ``schedule_id``, ``id_hash``, ``delay_level_ms``, ``act`` (GONE_...), its own version
        ``own_seq, own_amend``, and ``seq, amend, op`` for the wheel: the CANCEL's for GONE_CANCELLED, otherwise its own.
    """
    known = _slim(leaving, F.lit(_LEAVING), F.col("uid")).unionByName(_matching(leaving, others))
    by_id = Window.partitionBy(*_ID)
    # Few ids have a second version; the others need no sorting. The result is cached, because each of the three kinds of verdict below would
    # scan the store again (a hand-over of 20,000 entries beside 3 million: 10.6 s; this way 6.0 s).
    known = known.withColumn("versions", F.count(F.lit(1)).over(by_id)).where(F.col("versions") > 1)
    known = known.localCheckpoint()
    in_order = by_id.orderBy(*VERSION, "place", "deliver_at_ms", "arrived", "uid")
    same = [F.col(name) == F.lag(name).over(in_order) for name in VERSION]
    known = known.withColumn("again", F.coalesce(same[0] & same[1] & same[2], F.lit(False)))
    ours = F.col("uid").isNotNull()
    again = known.where(ours & F.col("again")).select(*_verdict(GONE_DUPLICATE, VERSION))
    first = known.where(~F.col("again"))
    for name in VERSION:
        first = first.withColumn(f"next_{name}", F.lead(name).over(in_order))
    beaten = first.where(ours & F.col("next_op").isNotNull())
    by_cancel = F.col("next_op") == CANCEL
    cancelled = beaten.where(by_cancel).select(
        *_verdict(GONE_CANCELLED, tuple(f"next_{name}" for name in VERSION))
    )
    superseded = beaten.where(~by_cancel).select(*_verdict(GONE_SUPERSEDED, VERSION))
    return again.unionByName(cancelled).unionByName(superseded)


def with_version(rows: DataFrame) -> DataFrame:
    """Returns the rows of a store that have a version of their own."""
    return rows.where(F.col("act").isin(*_HAS_VERSION) & F.col("reject").isNull())


def _matching(leaving: DataFrame, others: DataFrame) -> DataFrame:
    """Returns the other rows of the leaving ids; rows that match by the hash only are separated by id later."""
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


def _verdict(act: int, version: tuple[str, ...]) -> list[Column]:
    names = [F.col(source).alias(name) for source, name in zip(version, VERSION, strict=True)]
    own = [F.col("seq").alias("own_seq"), F.col("amend").alias("own_amend")]
    return [
        F.col("uid"),
        *map(F.col, (*_ID, "delay_level_ms")),
        F.lit(act).cast("byte").alias("act"),
        *own,
        *names,
    ]
