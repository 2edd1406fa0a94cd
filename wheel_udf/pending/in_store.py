"""Pending rows of a slot store: compares the versions of each id, and asks the wheel's state about near rows that are
due.

Of the rows of one id in the store the highest version decides::

    highest version                pending
    SCHEDULE, far                  yes
    SCHEDULE, near, due later      yes: nothing is released before it is due
    SCHEDULE, near, due by now     if the state still holds it (a backlog), or if the wheel has not read the row yet
    CANCEL                         no

Rows of acts that the keeper has not taken yet count as if they were in the store.

"Now" is the clock of the wheel's last committed batch. The store is read at one version and the state after the last
committed batch, so the answer describes one moment, except for the batch in progress.

Most rows are far and the only ones of their id. They need no comparison and no look at the state, so the rows are
divided::

    far, in slots that the cursor has not reached   only version of its hash     pending; counted from the log
                                                    several versions             ranked together with:
    near rows, marks, the inbox, reached slots                                   those of several versions ranked;
                                                                                 then compared with the state

Whether a hash has several versions is found by one pass over the hashes (:mod:`wheel_udf.store.repeated`). It may be
that of two ids: the ranking is by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window, functions as F

from wheel_udf.checkpoint.spark_logs import committed_offsets
from wheel_udf.pending.acts_on_store import rows_not_taken
from wheel_udf.pending.state import waiting
from wheel_udf.shard.rows import SCHEDULE
from wheel_udf.store.head import Head, Partition
from wheel_udf.store.layout import NEAR, is_far_column
from wheel_udf.store.repeated import repeated_hashes
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.table import STORE_SCHEMA
from wheel_udf.store.versions import VERSION, with_version
from wheel_udf.tables.delta_log import version_at

_IS_ENTRY: Final = f"op = {SCHEDULE} AND deliver_at_ms IS NOT NULL"

FEW_IDS: Final = 2_000_000
"""Up to this many hashes are broadcast to each executor (about 60 MB)."""

FEW_ROWS: Final = 100_000
"""Up to this many rows are ranked in one pass. Finding the ids with several versions first costs another plan."""

_RANKED: Final = ("level", "id_hash", "schedule_id", *VERSION, "deliver_at_ms", "arrived")
"""The columns that a count needs of the rows that are ranked."""


def pending_now(
    spark: SparkSession, store: SlotStore, checkpoint: str, ids: Sequence[str] | None
) -> DataFrame:
    """Returns the rows of the store that are pending, with the store's columns.

    Args:
        spark: A session.
        store: The store.
        checkpoint: Checkpoint of the wheel's query.
        ids: Only the entries with these ids; None for all.
    """
    now = _Now(spark, store, checkpoint, ids)
    if ids is not None or now.rows <= FEW_ROWS:
        return now.unreleased(_entries_of_few(store, now.head, ids, now.acts))
    alone, others = _divided(_Rows.of(store, now.head, now.acts), now.rows)
    return alone.unionByName(now.unreleased(others))


def count_now(spark: SparkSession, store: SlotStore, checkpoint: str) -> int:
    """Counts the rows of :func:`pending_now` for all ids."""
    now = _Now(spark, store, checkpoint, None)
    if now.rows <= FEW_ROWS:
        return now.unreleased(_entries_of_few(store, now.head, None, now.acts)).count()
    rows = _Rows.of(store, now.head, now.acts)
    several, number = _several(rows, now.rows)
    far = sum(partition.rows for partition in now.partitions if _is_plain(store, now.head, partition))
    if not number:
        return far + now.unreleased(rows.others.where(_IS_ENTRY)).count()
    ranked = rows.far.join(several, "id_hash", "left_semi").select(*_RANKED).localCheckpoint()
    others = rows.others.select(*_RANKED)
    best = _best(ranked.unionByName(others.join(several, "id_hash", "left_semi")))
    single = others.join(several, "id_hash", "left_anti")
    near = now.unreleased(single.unionByName(best).where(_IS_ENTRY))
    return far - ranked.count() + near.count()


def pending_then(
    spark: SparkSession, store: SlotStore, as_of_ms: int, ids: Sequence[str] | None
) -> DataFrame:
    """As :func:`pending_now` at an earlier moment, from the store alone: near rows stay in it after they have fired. An
    act counts from the moment when the job took it.
    """
    version = version_at(spark, store.path, as_of_ms)
    if version is None:
        return spark.createDataFrame([], STORE_SCHEMA)
    head = store.head(version=version)
    # With the processing clock the store records none: the clock was the wall clock. The wheel's clock never passes
    # the cursor.
    instants = [
        at for at in (as_of_ms if head.clock_ms is None else head.clock_ms, head.cursor_ms) if at is not None
    ]
    # About as many rows as now: the log of that version need not be read for it.
    about = _rows_of(store.partitions())
    if ids is not None or about <= FEW_ROWS:
        entries = _entries_of_few(store, head, ids, None)
    else:
        alone, others = _divided(_Rows.of(store, head, None), about)
        entries = alone.unionByName(others)
    return entries.where(F.col("deliver_at_ms") > min(instants))


def read_to(checkpoint: str) -> tuple[int, int | None]:
    """Returns the store version that the wheel's last committed batch has read, and its clock (None: no batch)."""
    offsets = committed_offsets(checkpoint)
    if offsets is None:
        return -1, None
    table = next(offset for offset in offsets if isinstance(offset, dict) and "reservoirVersion" in offset)
    # Delta's offset is either the next version with a negative index, or the version being read with the number of
    # files read.
    version = int(table["reservoirVersion"]) - (int(table["index"]) < 0)
    instants = (offset.get("instant_ms") for offset in offsets if isinstance(offset, dict))
    return version, max((at for at in instants if at is not None), default=None)


# ---- now -----------------------------------------------------------------------------------------


class _Now:
    """The state of the wheel after its last committed batch, and the store after that.

    Args:
        spark: A session.
        store: The store that the wheel reads.
        checkpoint: The wheel's checkpoint.
        ids: Only the entries with these ids matter; None for all.

    Attributes:
        head: The head of the store.
        partitions: Its partitions.
        rows: Their number of rows.
        acts: The rows of acts that the store does not have yet; None if there are none.
    """

    def __init__(
        self, spark: SparkSession, store: SlotStore, checkpoint: str, ids: Sequence[str] | None
    ) -> None:
        self._store = store
        # The state is read first: an entry that leaves the store afterwards must not be counted twice.
        self._version, self._clock_ms = read_to(checkpoint)
        self._held = waiting(spark, checkpoint, ids=ids)
        now = store.contents()
        self.head, self.partitions = now.head, now.partitions
        self.rows = _rows_of(self.partitions)
        self.acts = rows_not_taken(store, self.head, checkpoint)

    def unreleased(self, entries: DataFrame) -> DataFrame:
        """Leaves out the near entries that are due, that the wheel has read and holds no more."""
        if self._clock_ms is None:
            return entries
        by_now = ~is_far_column(F.col("level")) & (F.col("deliver_at_ms") <= self._clock_ms)
        version = "schedule_id", "seq", F.coalesce("amend", F.lit(0)).alias("amend")
        unread = _with_acts(self._store.added_since(self._version), self.acts)
        alive = self._held.select(*version).unionByName(unread.select(*version)).distinct()
        joined = entries.join(
            alive.withColumn("_alive", F.lit(True)), ["schedule_id", "seq", "amend"], "left"
        )
        return joined.where(~by_now | F.col("_alive")).select(*entries.columns)


# ---- versions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The rows of a store that have versions, at one version of the table.

    Attributes:
        far: The rows of far slots that the cursor has not reached. They are selected by partition, and all of them are
            entries.
        others: All other rows, and those of acts that the store does not have yet.
    """

    far: DataFrame
    others: DataFrame

    @staticmethod
    def of(store: SlotStore, head: Head, acts: DataFrame | None) -> _Rows:
        rows = store.rows(version=head.version)
        is_plain = (F.col("level") > NEAR) & ~_is_reached(store, head)
        others = with_version(_with_acts(rows.where(~is_plain), acts))
        return _Rows(rows.where(is_plain), _not_handed_over(others, head))


def _with_acts(rows: DataFrame, acts: DataFrame | None) -> DataFrame:
    return rows if acts is None else rows.unionByName(acts)


def _rows_of(partitions: Sequence[Partition]) -> int:
    return sum(partition.rows for partition in partitions)


def _is_plain(store: SlotStore, head: Head, partition: Partition) -> bool:
    """Whether the rows of a partition are among :attr:`_Rows.far`."""
    level, slot, cursor_ms = partition.level, partition.slot, head.cursor_ms
    return level > NEAR and (cursor_ms is None or not store.layout.reached(level, slot, cursor_ms))


def _is_reached(store: SlotStore, head: Head) -> Column:
    if head.cursor_ms is None:
        return F.lit(False)
    return store.layout.reached_column(F.col("level"), F.col("slot"), head.cursor_ms)


def _not_handed_over(rows: DataFrame, head: Head) -> DataFrame:
    """Leaves out far rows that were handed over and are not dropped yet."""
    if head.cursor_ms is None:
        return rows
    return rows.where(~is_far_column(F.col("level")) | (F.col("deliver_at_ms") >= head.cursor_ms))


def _entries_of_few(
    store: SlotStore, head: Head, ids: Sequence[str] | None, acts: DataFrame | None
) -> DataFrame:
    """Returns the entries that no higher version replaces, ranked in one pass."""
    rows = with_version(_with_acts(store.rows(version=head.version), acts))
    if ids is not None:
        rows = rows.where(F.col("schedule_id").isin(*ids))
    return _best(_not_handed_over(rows, head)).where(_IS_ENTRY)


def _divided(rows: _Rows, about: int) -> tuple[DataFrame, DataFrame]:
    """Returns the entries that no higher version replaces: those in far slots that are the only version of their hash,
    and the others.
    """
    several, number = _several(rows, about)
    if not number:
        return rows.far, rows.others.where(_IS_ENTRY)
    alone, single = (
        part.join(several, "id_hash", "left_anti").select(*part.columns) for part in (rows.far, rows.others)
    )
    ranked = rows.far.unionByName(rows.others).join(several, "id_hash", "left_semi")
    return alone, single.unionByName(_best(ranked)).where(_IS_ENTRY)


def _several(rows: _Rows, about: int) -> tuple[DataFrame, int]:
    """Returns the hashes with several versions, and their number."""
    hashes = rows.far.select("id_hash").unionByName(rows.others.select("id_hash"))
    # Computed now, because the plan depends on their number: usually few or none, and a join that is planned for many
    # would sort all rows of the store.
    several = repeated_hashes(hashes, about).localCheckpoint()
    number = several.count()
    return (F.broadcast(several) if number <= FEW_IDS else several), number


def _best(rows: DataFrame) -> DataFrame:
    """Returns the row of the highest version of each id."""
    best_first = (
        Window.partitionBy("id_hash", "schedule_id")
        .orderBy(*(F.desc(name) for name in VERSION), F.asc_nulls_last("deliver_at_ms"), "arrived")
    )  # fmt: skip
    return rows.withColumn("_rank", F.row_number().over(best_first)).where("_rank = 1").drop("_rank")
