"""Comparison of versions: decides which of the entries that leave a far slot are still valid; the highest version of an
id wins.

An entry that leaves the store for the wheel is looked up by its id in the rest of the store: earlier near rows (kept
while they can matter, see :mod:`wheel_udf.tiered.retirement`), CANCELs, and entries in other far slots. The next
higher version decides::

    version of the entry   next higher version in the store    verdict
    v                      none                                 MOVED: it goes to the wheel
    v                      a SCHEDULE                           GONE_SUPERSEDED
    v                      a CANCEL                             GONE_CANCELLED, with the version of that CANCEL
    v, a second time       (the one that is due first is kept)  GONE_DUPLICATE

The verdicts are rows for the wheel, which counts them; so each SCHEDULE and CANCEL is counted once, in one place.

Few leaving entries have another version. So the first step reads only the id hashes, and finds the data files with
hashes of leaving entries. Usually there are none, and the comparison ends there. Otherwise the rows of these hashes
are read from these files; hashes that two ids share are separated then.

Cost: one pass over the 64-bit hashes of the ids of all rows in the store, which are matched with those of the leaving
entries (a broadcast, 8 bytes per entry). If any occur again, a second pass reads the slim columns of the files found,
and a shuffle sorts the rows found. It happens once per window that is handed over, not once per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Set as AbstractSet
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as F

from wheel_udf.shard.rows import (
    CANCEL,
    COMMAND,
    FIRE_NOW,
    GONE_CANCELLED,
    GONE_DUPLICATE,
    GONE_SUPERSEDED,
    MOVED,
    SCHEDULE,
)
from wheel_udf.store.layout import is_far_column

_ID = ("id_hash", "schedule_id")
VERSION = ("seq", "op", "amend")
"""The columns of a version, the most significant first."""
HAS_VERSION = (COMMAND, MOVED, GONE_SUPERSEDED, GONE_DUPLICATE)
"""Kinds of rows with a version of their own (a FAR row repeats an entry's, a GONE_CANCELLED row a CANCEL's)."""

_BEFORE, _LEAVING, _LATER = range(3)

FILE: Final = "file"
"""Column of a row's data file, by its name."""

OtherRows = Callable[[AbstractSet[str] | None], DataFrame]
"""Returns the rows of the store that stay and have a version (:func:`with_version`), with the column :data:`FILE`.
If names of data files are passed, rows of other files may be missing."""


def verdicts(leaving: DataFrame, others: OtherRows) -> DataFrame | None:
    """Returns the leaving entries that have ended, each with its verdict.

    Args:
        leaving: Entries (rows of the store) with a column ``uid``, which is unique; cached.
        others: All other rows.

    Returns:
        One row per entry that has ended, computed: ``uid``, ``schedule_id``, ``id_hash``, ``act`` (GONE_...),
        its own version ``own_seq, own_amend``, and ``seq, amend, op`` for the wheel: the CANCEL's for
        GONE_CANCELLED, otherwise its own. None if no hash of a leaving entry occurs again, so that none has ended.
    """
    # Computed now: otherwise the broadcast and the search for duplicates would each compute the entries.
    ids = leaving.groupBy("id_hash").agg(F.count(F.lit(1)).alias("entries")).localCheckpoint()
    twice = ids.where("entries > 1").select("id_hash")
    ours = F.broadcast(ids.select("id_hash"))
    met = others(None).select("id_hash", FILE).join(ours, "id_hash", "left_semi").select(FILE)
    # The file names do not show whether two leaving entries share a hash.
    names = {row[0] for row in met.unionByName(twice.select(F.lit("").alias(FILE))).distinct().collect()}
    if not names:
        return None
    place = F.when(is_far_column(F.col("level")), _LATER).otherwise(_BEFORE)
    again = (
        _slim(others(names - {""}), place, F.lit(None).cast("long"))
        .join(ours, "id_hash", "left_semi")
        .localCheckpoint()
    )
    shared = again.select("id_hash").unionByName(twice).distinct()
    known = _slim(leaving, F.lit(_LEAVING), F.col("uid")).join(F.broadcast(shared), "id_hash", "left_semi")
    # Used in several places, each of which would compute it.
    return _verdicts_of(known.unionByName(again)).localCheckpoint()


def no_verdicts(leaving: DataFrame) -> DataFrame:
    """Returns the result of :func:`verdicts` without rows."""
    return _verdicts_of(_slim(leaving.where(F.lit(False)), F.lit(_LEAVING), F.col("uid")))


def _verdicts_of(known: DataFrame) -> DataFrame:
    """Returns the verdicts on those of the rows that leave (they have a ``uid``), by all versions of their ids."""
    columns = (*VERSION, "place", "deliver_at_ms", "arrived", "uid")
    newest_first = Window.partitionBy(*_ID).orderBy(*map(F.desc, columns))
    newer = newest_first.rowsBetween(Window.unboundedPreceding, -1)
    version = F.struct(*VERSION)
    again = F.coalesce(version == F.lead(version).over(newest_first), F.lit(False))
    known = known.withColumn("again", again)
    known = known.withColumn("next", F.last(F.when(~F.col("again"), version), ignorenulls=True).over(newer))
    act = (
        F.when(F.col("again"), GONE_DUPLICATE)
        .when(F.col("next.op") == CANCEL, GONE_CANCELLED)
        .when(F.col("next").isNotNull(), GONE_SUPERSEDED)
    )
    ended = known.where(F.col("uid").isNotNull()).withColumn("act", act.cast("byte")).where("act IS NOT NULL")
    of_wheel = [
        F.when(F.col("act") == GONE_CANCELLED, F.col(f"next.{name}")).otherwise(F.col(name))
        for name in VERSION
    ]
    return ended.select(
        "uid",
        *_ID,
        "act",
        F.col("seq").alias("own_seq"),
        F.col("amend").alias("own_amend"),
        *(column.alias(name) for column, name in zip(of_wheel, VERSION, strict=True)),
    )


def highest(rows: DataFrame) -> DataFrame:
    """Returns the row of the highest version of each id; of copies the one that is due first. Of a series, that of the
    state comes before others.
    """
    best_first = Window.partitionBy(*_ID).orderBy(
        *map(F.desc, VERSION),
        *(F.asc_nulls_last(name) for name in ("occurrence", "deliver_at_ms")),
        "arrived",
    )
    return rows.withColumn("_rank", F.row_number().over(best_first)).where("_rank = 1").drop("_rank")


def fires_of(rows: DataFrame) -> DataFrame:
    """Returns the ids (``id_hash``, ``schedule_id``) of FIRE_NOWs, with the highest ``fire_seq`` of each."""
    is_fire = (F.col("act") == FIRE_NOW) & F.col("reject").isNull()
    return rows.where(is_fire).groupBy(*_ID).agg(F.max("seq").alias("fire_seq"))


def with_version(rows: DataFrame) -> DataFrame:
    """Returns the rows of a store that have a version of their own."""
    return rows.where(F.col("act").isin(*HAS_VERSION) & F.col("reject").isNull())


def _slim(rows: DataFrame, place: Column, uid: Column) -> DataFrame:
    amend, op = (
        F.coalesce("amend", F.lit(0)).alias("amend"),
        F.coalesce("op", F.lit(SCHEDULE)).cast("int").alias("op"),
    )
    return rows.select(
        *_ID,
        "seq",
        amend,
        op,
        "deliver_at_ms",
        "arrived",
        place.cast("int").alias("place"),
        uid.alias("uid"),
    )
