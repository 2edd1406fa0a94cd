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

A series (:mod:`wheel_udf.pending.stored_series`) waits in the state, and its row is dropped from the store long before
it ends. So the series of the state are compared as if they were rows of the store. One that the wheel has not read is
shown with the occurrence that it would have if its id was new, and without ``occurrence``.

Rows of acts that the keeper has not taken yet count as if they were in the store.

"Now" is the clock of the wheel's last committed batch. The store is read at one version and the state after the last
committed batch, so the answer describes one moment, except for the batch in progress.

The comparison is made here, in Arrow tables, and not by Spark, of which a single job costs more than most answers. Of a
large store few rows are compared, because most are far and the only ones of their hash::

    far, in slots that the cursor has not reached   only version of its hash     pending; counted from the log
                                                    several versions             compared, together with:
    near rows, marks, the inbox, reached slots, series, acts                     those

    question            what is read of the store
    some ids            the hashes of all rows, and the rows with these hashes
    how many            the hashes of far rows, slim columns of the others
    the first ones      the same, and the due times of the partitions that begin before the last of them
    all rows            the same; the far rows themselves by Spark, without those that were compared

Cost: 8 bytes per row of the store and what a sort of them takes (10 million: half a second). A small store is read
whole. A hash may be that of two ids: the ranking is by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.checkpoint.spark_logs import read_to
from wheel_udf.pending.acts_on_store import rows_not_taken
from wheel_udf.pending.comparison import (
    FEW_ROWS,
    IN_MEMORY,
    Divided,
    Moment,
    left_after,
    of_ids,
    still_left,
    unread_rows,
    versions_of,
)
from wheel_udf.pending.stored_series import as_stored, held_now, series_now, series_then
from wheel_udf.shard.rows import filled
from wheel_udf.store.layout import NEAR, is_handed_over_column
from wheel_udf.store.ranking import is_among
from wheel_udf.store.scan import FILE, PENDING_SCHEMA, ROW_SCHEMA, Scan
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.versions import with_version as with_version_column
from wheel_udf.tables.delta_log import version_at

FEW_HASHES: Final = 2_000_000
"""Up to this many hashes are broadcast to each executor (about 60 MB)."""


def pending_now(
    spark: SparkSession,
    store: SlotStore,
    checkpoint: str,
    ids: Sequence[str] | None = None,
    first: int | None = None,
) -> DataFrame:
    """Returns the rows of the store that are pending (:data:`PENDING_SCHEMA`).

    Args:
        spark: A session.
        store: The store.
        checkpoint: Checkpoint of the wheel's query.
        ids: Only the entries with these ids; None for all.
        first: Only so many, which are due first; None for all.
    """
    return _frame(spark, store, _now(spark, store, checkpoint, ids), ids, first)


def count_now(spark: SparkSession, store: SlotStore, checkpoint: str) -> int:
    """Counts the rows of :func:`pending_now` for all ids."""
    now = _now(spark, store, checkpoint, None)
    return int(now.whole(None).num_rows) if now.is_small else now.divided.count()


def pending_then(
    spark: SparkSession, store: SlotStore, checkpoint: str, as_of_ms: int, ids: Sequence[str] | None
) -> DataFrame:
    """As :func:`pending_now` at an earlier moment, from the store: near rows stay in it after they have fired. An act
    counts from the moment when the job took it. The series are those of the state after the last batch planned by then,
    without them if Spark no longer keeps that batch.
    """
    version = version_at(spark, store.path, as_of_ms)
    if version is None:
        return spark.createDataFrame([], from_arrow_schema(PENDING_SCHEMA))
    contents = store.contents(version=version)
    # With the processing clock the store records none: the clock was the wall clock. The wheel's clock never passes
    # the cursor.
    head = contents.head
    instants = [
        at for at in (as_of_ms if head.clock_ms is None else head.clock_ms, head.cursor_ms) if at is not None
    ]
    series = as_stored(series_then(spark, checkpoint, as_of_ms, ids))
    nothing = PENDING_SCHEMA.empty_table()
    then = Moment(store, contents, series, left_after(min(instants)), nothing, min(instants))
    return _frame(spark, store, then, ids, None)


def _now(spark: SparkSession, store: SlotStore, checkpoint: str, ids: Sequence[str] | None) -> Moment:
    # The state is read first: an entry that leaves the store afterwards must not be counted twice.
    version, clock_ms = read_to(checkpoint)
    there = held_now(spark, checkpoint, ids)
    contents = store.contents()
    waiting = rows_not_taken(store, contents.head, checkpoint)
    acts = of_ids(ROW_SCHEMA.empty_table() if waiting is None else filled(waiting.toArrow(), ROW_SCHEMA), ids)
    unread = unread_rows(Scan(store.path, store.files_since(version)), acts, ids)
    memory = pa.concat_tables([as_stored(series_now(spark, there, unread)), filled(acts, PENDING_SCHEMA)])
    back = there.filter(pc.and_(pc.is_valid(there["attempt"]), pc.is_null(there["repeat"])))
    plain = there.filter(pc.and_(pc.is_null(there["attempt"]), pc.is_null(there["repeat"])))
    alive = pa.concat_tables([versions_of(plain), versions_of(unread)])
    left = still_left(clock_ms, alive)
    return Moment(store, contents, memory, left, as_stored(back))


# ---- frames --------------------------------------------------------------------------------------


def _frame(
    spark: SparkSession, store: SlotStore, moment: Moment, ids: Sequence[str] | None, first: int | None
) -> DataFrame:
    if ids is not None or moment.is_small:
        return _frame_of(spark, moment.whole(ids))
    if first is not None:
        return _frame_of(spark, moment.divided.first(first))
    return _frame_of_divided(spark, store, moment.divided)


def _frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows, from_arrow_schema(PENDING_SCHEMA))


def _hashes(spark: SparkSession, hashes: NDArray[np.int64]) -> DataFrame:
    found = spark.createDataFrame(pa.table({"id_hash": hashes}))
    return F.broadcast(found) if len(hashes) <= FEW_HASHES else found


def _frame_of_divided(spark: SparkSession, store: SlotStore, divided: Divided) -> DataFrame:
    """All entries that wait. Spark reads those that are not compared, and if the others are many, those of them that
    are the only ones of their hash.
    """
    head, compared, after_ms = divided.moment.contents.head, divided.rows, divided.moment.due_after_ms
    rows = store.rows(version=head.version)
    is_plain = F.col("level") > NEAR
    if head.cursor_ms is not None:
        is_plain &= ~store.layout.reached_column(F.col("level"), F.col("slot"), head.cursor_ms)
    far = rows.where(is_plain)
    if after_ms is not None:
        far = far.where(F.col("deliver_at_ms") > after_ms)
    if len(divided.several):
        far = far.join(_hashes(spark, divided.several), "id_hash", "left_anti")
    if compared.num_rows > FEW_ROWS:
        is_single = pa.array(~is_among(compared["id_hash"].to_numpy(), divided.several))
        is_read = pc.and_(is_single, pc.not_equal(compared[FILE], IN_MEMORY))
        others = with_version_column(rows.where(~is_plain))
        if head.cursor_ms is not None:
            others = others.where(~is_handed_over_column(head.cursor_ms))
        asked = _hashes(spark, compared["id_hash"].filter(is_read).to_numpy())
        far = far.unionByName(others.join(asked, "id_hash", "left_semi"))
        compared = compared.filter(pc.invert(is_read))
    here = pa.concat_tables([divided.fetch(compared), divided.moment.came_back])
    return far.withColumn("held_ms", F.lit(None).cast("long")).unionByName(_frame_of(spark, here))
