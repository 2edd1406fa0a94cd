"""Comparison of versions: decides which of the entries that leave a far slot are still valid; the highest version of an id wins.

An entry that leaves the store for the wheel is looked up by its id in the rest of the store: earlier near rows (kept while they can matter, see
:mod:`wheel_udf.tiered.retirement`), CANCELs, and entries in other far slots. The next higher version decides::

    version of the entry   next higher version in the store    verdict
    v                      none                                 MOVED: it goes to the wheel
    v                      a SCHEDULE                           GONE_SUPERSEDED
    v                      a CANCEL                             GONE_CANCELLED, with the version of that CANCEL, which is applied
    v, a second time       (the one that is due first is kept)  GONE_DUPLICATE

The verdicts are rows for the wheel, which counts them; so each SCHEDULE and CANCEL is counted once, in one place.

Few leaving entries have another version. So the first step reads only the id hashes, and finds those of leaving entries that occur again. Usually there are
none, and the comparison ends there. Otherwise the rows of these hashes are read in full; hashes that two ids share are separated then.

Cost: one pass over the 64-bit hashes of the ids of all rows in the store, which are matched with those of the leaving entries (a broadcast, 8 bytes
per entry). If any occur again, a second pass reads the slim columns, and a shuffle sorts the rows found. It happens once per window that is handed
over, not once per batch.
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


def verdicts(leaving: DataFrame, others: DataFrame) -> DataFrame | None:
    """Returns the leaving entries that have ended, each with its verdict.

    Args:
        leaving: Entries (rows of the store) with a column ``uid``, which is unique; cached.
        others: All other rows of the store that have a version (:func:`with_version`).

    Returns:
        One row per entry that has ended: ``uid``, ``schedule_id``, ``id_hash``, ``delay_level_ms``, ``act`` (GONE_...), its own version
        ``own_seq, own_amend``, and ``seq, amend, op`` for the wheel: the CANCEL's for GONE_CANCELLED, otherwise its own. None if no hash of a
        leaving entry occurs again, so that none has ended.
    """
    shared = _occurring_again(leaving, others).localCheckpoint()
    if shared.isEmpty():
        return None
    place = F.when(is_far_column(F.col("level")), _LATER).otherwise(_BEFORE)
    others = _slim(others, place, F.lit(None).cast("long"))
    known = _slim(leaving, F.lit(_LEAVING), F.col("uid")).unionByName(others)
    # The result is cached, because each of the three kinds of verdict would scan the store again (a hand-over of 20,000 entries beside
    # 3 million: 10.6 s; this way 6.0 s).
    return _verdicts_of(known.join(F.broadcast(shared), "id_hash", "left_semi").localCheckpoint())


def no_verdicts(leaving: DataFrame) -> DataFrame:
    """Returns the result of :func:`verdicts` without rows."""
    nothing = leaving.where(F.lit(False))
    return _slim(nothing, F.lit(_LEAVING), F.col("uid")).select(*_verdict(GONE_DUPLICATE, VERSION))


def _verdicts_of(known: DataFrame) -> DataFrame:
    """Returns the verdicts on those of the rows that leave (they have a ``uid``), by all versions of their ids."""
    in_order = Window.partitionBy(*_ID).orderBy(*VERSION, "place", "deliver_at_ms", "arrived", "uid")
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


def _occurring_again(leaving: DataFrame, others: DataFrame) -> DataFrame:
    """Returns the id hashes of leaving entries that another row has, each once."""
    # Computed now: otherwise the broadcast and the search for duplicates would each compute the entries, at the same time.
    ids = leaving.groupBy("id_hash").agg(F.count(F.lit(1)).alias("entries")).localCheckpoint()
    met = others.select("id_hash").join(F.broadcast(ids.select("id_hash")), "id_hash", "left_semi")
    return met.unionByName(ids.where("entries > 1").select("id_hash")).distinct()


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
