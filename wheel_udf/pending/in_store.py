"""Pending rows of a slot store: compares the versions of each id, and asks the wheel's state about near rows that are
due.

Of the rows of one id in the store the highest version decides::

    highest version                pending
    SCHEDULE, far                  yes
    SCHEDULE, near, due later      yes: nothing is released before it is due, but see the next line
    SCHEDULE, near, due by now,    if the state still holds it (a backlog), or if the wheel has not read the row yet
    or of an id with a FIRE_NOW
    series                         if it is in the state, or if the wheel has not read its row yet
    CANCEL                         no

A series (:func:`_series_of`) waits in the state, and its row is dropped from the store long before it ends. So the
series of the state are compared as if they were rows of the store: those whose hash a row of the store has. One that
the wheel has not read is shown with the occurrence that it would have if its id was new, and without ``occurrence``.

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

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.checkpoint.spark_logs import committed_offsets
from wheel_udf.common.errors import CheckpointError
from wheel_udf.pending.acts_on_state import changed_by
from wheel_udf.pending.acts_on_store import rows_not_taken
from wheel_udf.pending.state import held
from wheel_udf.policies.series import first_occurrences
from wheel_udf.shard.rows import (
    ACTED,
    COMMAND,
    COMMAND_SCHEMA,
    ENTRY_SCHEMA,
    SCHEDULE,
    with_columns,
)
from wheel_udf.spark.frames import filled
from wheel_udf.store.head import Head, Partition
from wheel_udf.store.intake import id_hash
from wheel_udf.store.layout import NEAR, is_far_column, is_handed_over_column
from wheel_udf.store.repeated import repeated_hashes
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.table import STORE_SCHEMA
from wheel_udf.store.versions import VERSION, fires_of, highest, with_version
from wheel_udf.tables.delta_log import version_at

_log = logging.getLogger(__name__)

_IS_ENTRY: Final = f"op = {SCHEDULE} AND deliver_at_ms IS NOT NULL"

FEW_IDS: Final = 2_000_000
"""Up to this many hashes are broadcast to each executor (about 60 MB)."""

FEW_ROWS: Final = 100_000
"""Up to this many rows are ranked in one pass. Finding the ids with several versions first costs another plan."""

_RANKED: Final = (
    *("level", "id_hash", "schedule_id", *VERSION),
    *("repeat", "occurrence", "deliver_at_ms", "arrived"),
)
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
    rows = _Rows.of(store, now.head, now.acts, now.series, ids)
    is_few = ids is not None or now.rows <= FEW_ROWS
    alone, others = _of_few(rows) if is_few else _divided(rows, now.rows)
    return alone.unionByName(now.unreleased(others))


def count_now(spark: SparkSession, store: SlotStore, checkpoint: str) -> int:
    """Counts the rows of :func:`pending_now` for all ids."""
    now = _Now(spark, store, checkpoint, None)
    rows = _Rows.of(store, now.head, now.acts, now.series)
    if now.rows <= FEW_ROWS:
        alone, others = _of_few(rows)
        return alone.count() + now.unreleased(others).count()
    several, number = _several(rows, now.rows)
    far = sum(partition.rows for partition in now.partitions if _is_plain(store, now.head, partition))
    if not number:
        return far + rows.series.count() + now.unreleased(rows.others.where(_IS_ENTRY)).count()
    ranked = rows.far.join(several, "id_hash", "left_semi").select(*_RANKED).localCheckpoint()
    others, series = rows.others.select(*_RANKED), rows.series.select(*_RANKED)
    met = others.unionByName(series).join(several, "id_hash", "left_semi")
    single = others.join(several, "id_hash", "left_anti")
    near = now.unreleased(single.unionByName(highest(ranked.unionByName(met))).where(_IS_ENTRY))
    alone = series.join(several, "id_hash", "left_anti")
    return far - ranked.count() + alone.count() + near.count()


def pending_then(
    spark: SparkSession, store: SlotStore, checkpoint: str, as_of_ms: int, ids: Sequence[str] | None
) -> DataFrame:
    """As :func:`pending_now` at an earlier moment, from the store: near rows stay in it after they have fired. An act
    counts from the moment when the job took it. The series are those of the state after the last batch planned by then,
    without them if Spark no longer keeps that batch.
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
    rows = _Rows.of(store, head, None, _series_then(spark, checkpoint, as_of_ms, ids), ids)
    # About as many rows as now: the log of that version need not be read for it.
    about = _rows_of(store.partitions())
    alone, others = _of_few(rows) if ids is not None or about <= FEW_ROWS else _divided(rows, about)
    entries = alone.unionByName(others)
    later = entries.where(F.col("deliver_at_ms") > min(instants))
    joined = later.join(F.broadcast(_fires(store, head)), "schedule_id", "left")
    is_fired = ~is_far_column(F.col("level")) & (F.col("seq") <= F.col("fire_seq"))
    return joined.where(~F.coalesce(is_fired, F.lit(False))).select(*later.columns)


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
        series: The series of the state, and those that the wheel has not read, as rows of the store.
    """

    def __init__(
        self, spark: SparkSession, store: SlotStore, checkpoint: str, ids: Sequence[str] | None
    ) -> None:
        # The state is read first: an entry that leaves the store afterwards must not be counted twice.
        self._version, self._clock_ms = read_to(checkpoint)
        self._held = held(spark, checkpoint, ids=ids).localCheckpoint()
        now = store.contents()
        self.head, self.partitions = now.head, now.partitions
        self.rows = _rows_of(self.partitions)
        self.acts = rows_not_taken(store, self.head, checkpoint)
        self._unread = _with(store.added_since(self._version), self.acts)
        self.series = _series_of(self._held, self._unread)
        self._fires = _fires(store, self.head)

    def unreleased(self, entries: DataFrame) -> DataFrame:
        """Leaves out the near entries, due or fired now, that the wheel has read and holds no more; no series."""
        if self._clock_ms is None:
            return entries
        due = (F.col("deliver_at_ms") <= self._clock_ms) | F.col("fire_seq").isNotNull()
        by_now = ~is_far_column(F.col("level")) & due & F.col("repeat").isNull()
        version = "schedule_id", "seq", F.coalesce("amend", F.lit(0)).alias("amend")
        here = self._held.where("repeat IS NULL AND attempt IS NULL").select(*version)
        alive = here.unionByName(self._unread.select(*version)).distinct()
        joined = entries.join(F.broadcast(self._fires), "schedule_id", "left").join(
            alive.withColumn("_alive", F.lit(True)), ["schedule_id", "seq", "amend"], "left"
        )
        near = joined.where(~by_now | F.col("_alive")).select(*entries.columns)
        return near.unionByName(self._come_back(entries))

    def _come_back(self, entries: DataFrame) -> DataFrame:
        """The entries of the state that were released and could not be delivered, with the columns of some rows."""
        back = self._held.where("attempt IS NOT NULL AND repeat IS NULL")
        return filled(back, entries.schema, {"level": F.lit(NEAR)})


def _fires(store: SlotStore, head: Head) -> DataFrame:
    """The ids of FIRE_NOWs on the near side, with the highest ``fire_seq`` of each."""
    near = store.rows(version=head.version).where(F.col("level") == NEAR)
    return fires_of(near).select("schedule_id", "fire_seq")


# ---- series --------------------------------------------------------------------------------------


def _series_of(there: DataFrame, unread: DataFrame) -> DataFrame:
    """The pending series as rows of the store.

    Args:
        there: Entries of the state.
        unread: Rows of the store that the wheel has not read.
    """
    some = (rows.where("repeat IS NOT NULL").select("repeat") for rows in (there, unread))
    if reduce(DataFrame.unionByName, some).isEmpty():
        return there.sparkSession.createDataFrame([], STORE_SCHEMA)
    known = changed_by(there.where("repeat IS NOT NULL"), unread.where(F.col("act") == ACTED))
    is_new = (F.col("act") == COMMAND) & F.col("repeat").isNotNull() & F.col("reject").isNull()
    # The store lacks some columns of entries that are held back.
    new = filled(unread.where(is_new), from_arrow_schema(COMMAND_SCHEMA))
    begun = new.mapInArrow(_begun, from_arrow_schema(ENTRY_SCHEMA))
    return _as_stored(known.unionByName(begun))


def _begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        begun = first_occurrences(pa.Table.from_batches([batch]).cast(COMMAND_SCHEMA))
        unknown = pa.nulls(begun.num_rows, pa.int64())
        yield from with_columns(begun.select(ENTRY_SCHEMA.names), occurrence=unknown).to_batches()


def _series_then(spark: SparkSession, checkpoint: str, as_of_ms: int, ids: Sequence[str] | None) -> DataFrame:
    """The series that were in the state, as rows of the store; none if that is not known any more."""
    try:
        there = held(spark, checkpoint, ids=ids, as_of_ms=as_of_ms)
    except CheckpointError as fault:
        _log.warning("series are left out: %s", fault)
        return spark.createDataFrame([], STORE_SCHEMA)
    return _as_stored(there.where("repeat IS NOT NULL"))


def _as_stored(series: DataFrame) -> DataFrame:
    given = {
        "level": F.lit(NEAR),
        "slot": F.lit(0),
        "act": F.lit(COMMAND),
        "id_hash": id_hash(F.col("schedule_id")),
        "op": F.lit(SCHEDULE),
        "seq_given": F.lit(True),
        "arrived": F.lit(0),
    }
    return filled(series, STORE_SCHEMA, given)


# ---- versions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The rows of a store that have versions, at one version of the table.

    Attributes:
        far: The rows of far slots that the cursor has not reached. They are selected by partition, and all of them are
            entries.
        others: All other rows, and those of acts that the store does not have yet.
        series: Series of the state.
    """

    far: DataFrame
    others: DataFrame
    series: DataFrame

    @staticmethod
    def of(
        store: SlotStore,
        head: Head,
        acts: DataFrame | None,
        series: DataFrame,
        ids: Sequence[str] | None = None,
    ) -> _Rows:
        rows = store.rows(version=head.version)
        is_plain = (F.col("level") > NEAR) & ~_is_reached(store, head)
        others = with_version(_with(rows.where(~is_plain), acts))
        found = [rows.where(is_plain), _not_handed_over(others, head), series]
        if ids is not None:
            found = [each.where(F.col("schedule_id").isin(*ids)) for each in found]
        return _Rows(*found)


def _with(rows: DataFrame, more: DataFrame | None) -> DataFrame:
    return rows if more is None else rows.unionByName(more)


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
    return rows.where(~is_handed_over_column(head.cursor_ms))


def _of_few(rows: _Rows) -> tuple[DataFrame, DataFrame]:
    """As :func:`_divided`, with all rows of the store ranked in one pass, and all their hashes broadcast."""
    stored = rows.far.unionByName(rows.others)
    hashes = F.broadcast(stored.select("id_hash").distinct())
    alone, met = (rows.series.join(hashes, "id_hash", kind) for kind in ("left_anti", "left_semi"))
    ranked = highest(stored.unionByName(met.select(*STORE_SCHEMA.names))).where(_IS_ENTRY)
    return alone.select(*STORE_SCHEMA.names), ranked


def _divided(rows: _Rows, about: int) -> tuple[DataFrame, DataFrame]:
    """Returns the entries that no higher version replaces: those in far slots and the series that are the only version
    of their hash, and the others.
    """
    several, number = _several(rows, about)
    if not number:
        return rows.far.unionByName(rows.series), rows.others.where(_IS_ENTRY)
    far, single, series = (
        part.join(several, "id_hash", "left_anti").select(*part.columns)
        for part in (rows.far, rows.others, rows.series)
    )
    ranked = rows.far.unionByName(rows.others).unionByName(rows.series).join(several, "id_hash", "left_semi")
    return far.unionByName(series), single.unionByName(highest(ranked)).where(_IS_ENTRY)


def _several(rows: _Rows, about: int) -> tuple[DataFrame, int]:
    """Returns the hashes with several versions, and their number."""
    far, others, series = (each.select("id_hash") for each in (rows.far, rows.others, rows.series))
    hashes = far.unionByName(others).unionByName(series)
    # Computed now, because the plan depends on their number: usually few or none, and a join that is planned for many
    # would sort all rows of the store.
    several = repeated_hashes(hashes, about).localCheckpoint()
    number = several.count()
    return (F.broadcast(several) if number <= FEW_IDS else several), number
