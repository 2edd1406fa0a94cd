"""What is pending, as a table: :func:`pending` of a running or stopped wheel, direct or tiered, without touching it.

Direct: the entries are in Spark's state. Its reader (the source ``statestore``) gives the state after the last committed batch, a row for each
shard; the chunks are opened in Python workers, shard by shard, as Arrow.

Tiered: far entries are in the store, near ones in the state, and both bear versions. Of the rows of an id in the store the highest version counts::

    the highest version is         pending
    SCHEDULE, far                  yes
    SCHEDULE, near, due later      yes: nothing is released before it is due
    SCHEDULE, near, due by now     if the state still holds it (a backlog), or the wheel has not read it yet
    CANCEL                         no

"Now" is the clock of the wheel's last committed batch. The table is read at one version and the state after the last committed batch, so the answer is that of a moment,
give or take the batch under way.

Cost: direct, O(pending). Tiered, a pass over the hashes of the ids in the store, made when the table is asked for, then what is asked for of the rows; few ids
have several versions, and those alone are put in order. :func:`stored` reads the log and no data.

Caveats: the wheel drops near rows when it has forgotten their ids (``memory``); a command so late that it would beat none of them any more counts as new, here as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.checkpoint import batch_at, committed_offsets
from wheel_udf.slot_store import Head, SlotStore
from wheel_udf.state import ENTRY_SCHEMA, MEMORY_SCHEMA, SCHEDULE, entries_of_text, memory_of_text
from wheel_udf.store_layout import is_far, is_far_column
from wheel_udf.store_table import STORE_SCHEMA
from wheel_udf.store_versions import VERSION, with_version
from wheel_udf.tables import version_at

PENDING_COLUMNS: Final = (
    "schedule_id", "seq", "amend", "deliver_at", "scheduled_at", "delay_level_ms", "destination", "key", "value", "headers", "max_lateness_ms", "source", "place",
)  # fmt: skip
"""``deliver_at`` is what was asked for, ``scheduled_at`` when the wheel is to release it: later, if a delay level has rounded it up.
``delay_level_ms`` is the level's span, null without one; ``headers`` is JSON text; ``place`` is where the entry waits: ``state``, or ``store``."""

_FEW_IDS: Final = 2_000_000
"""Of so many hashes a copy (some 60 MB) goes to each executor."""


@dataclass(frozen=True)
class Wheel:
    """Where a wheel keeps what it holds.

    Attributes:
        checkpoint: Of the run.
        store: In the tiered mode, its slot store.
    """

    checkpoint: str
    store: SlotStore | None = None

    @property
    def query(self) -> str:
        """The checkpoint of the query with the wheel's state."""
        return self.checkpoint if self.store is None else f"{self.checkpoint}/wheel"


def pending(
    spark: SparkSession, wheel: Wheel, *, ids: Sequence[str] | None = None, as_of_ms: int | None = None
) -> DataFrame:
    """The entries that wait for their due time.

    Args:
        spark: A session.
        wheel: Where they are.
        ids: Those of these ids alone, which costs less than picking them from all; None for all.
        as_of_ms: Those that waited at an earlier moment (UTC epoch ms) instead. Direct: after the last batch planned by then, as far back as
            Spark keeps batches (``spark.sql.streaming.minBatchesToRetain``). Tiered: by the store's version of then, as far back as its log and
            files are kept; what was due by then is left out, also where it had not been released yet.

    Returns:
        A row for each, with :data:`PENDING_COLUMNS`, in no order.

    Raises:
        CheckpointError: The checkpoint is damaged, or does not go back so far.
        StoreError: The store does not go back so far.
    """
    if wheel.store is None:
        rows = in_state(spark, wheel.query, as_of_ms=as_of_ms)
        return _public(rows if ids is None else rows.where(F.col("schedule_id").isin(*ids)), F.lit("state"))
    if as_of_ms is None:
        rows = _pending_in_store(spark, wheel.store, wheel.query, ids)
    else:
        rows = _pending_then(spark, wheel.store, as_of_ms, ids)
    return _public(rows, F.when(is_far_column(F.col("level")), "store").otherwise("state"))


def create_view(
    spark: SparkSession, wheel: Wheel, name: str = "pending", *, as_of_ms: int | None = None
) -> None:
    """Gives :func:`pending` a name in the session's SQL: a temporary view of what is pending now. For a later look, make it again.

    Raises:
        CheckpointError, StoreError: As :func:`pending`.
    """
    pending(spark, wheel, as_of_ms=as_of_ms).createOrReplaceTempView(name)


def stored(store: SlotStore) -> int:
    """How many far rows are in a store: from its log, no data is read. Replaced and cancelled ones count until their time comes near."""
    return sum(partition.rows for partition in store.partitions() if is_far(partition.level))


def _public(rows: DataFrame, place: Column) -> DataFrame:
    due_ms, error_ms = F.col("deliver_at_ms"), F.coalesce("level_error_ms", F.lit(0))
    named = {
        "deliver_at": F.timestamp_millis(due_ms - error_ms).alias("deliver_at"),
        "scheduled_at": F.timestamp_millis(due_ms).alias("scheduled_at"),
        "place": place.alias("place"),
    }
    return rows.select(*(named.get(name, F.col(name)) for name in PENDING_COLUMNS))


# ---- the state -------------------------------------------------------------------------------------------------------


def in_state(spark: SparkSession, checkpoint: str, *, as_of_ms: int | None = None) -> DataFrame:
    """The entries in the state of a query, after its last committed batch (by an instant); the columns of ``ENTRY_SCHEMA``."""
    return from_state(spark, checkpoint, entries_of_text, ENTRY_SCHEMA, as_of_ms=as_of_ms)


def remembered(spark: SparkSession, checkpoint: str) -> DataFrame:
    """What the state of a query remembers of ended ids; the columns of ``MEMORY_SCHEMA``."""
    return from_state(spark, checkpoint, memory_of_text, MEMORY_SCHEMA)


def from_state(
    spark: SparkSession,
    checkpoint: str,
    of_text: Callable[[str], pa.Table],
    schema: pa.Schema,
    *,
    as_of_ms: int | None = None,
) -> DataFrame:
    """What is in the chunks of all shards of a query, opened where they are.

    Args:
        spark: A session.
        checkpoint: Of the query.
        of_text: Takes the rows from the column ``chunks`` of a shard's state; runs on executors.
        schema: Their columns.
        as_of_ms: After the last batch planned by then; None: after the last committed one.

    Raises:
        CheckpointError: The checkpoint is damaged, or does not go back so far.
    """

    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from of_text(text).to_batches()

    columns, states = from_arrow_schema(schema), _states(spark, checkpoint, as_of_ms)
    if states is None:
        return spark.createDataFrame([], columns)
    return states.select("value.groupState.chunks").mapInArrow(opened, columns)


def _states(spark: SparkSession, checkpoint: str, as_of_ms: int | None = None) -> DataFrame | None:
    """A row for each shard, after the last committed batch (by an instant); None before the first one."""
    # Spark makes the coordinator of state stores with its manager of streams, when that is first asked for; a reader of state only looks it
    # up, and fails where no stream has run (SPARK 4.2: "Cannot find endpoint: StateStoreCoordinator").
    _ = spark.streams
    reader = spark.read.format("statestore")
    if as_of_ms is not None:
        batch = batch_at(checkpoint, as_of_ms)
        return None if batch is None else reader.option("batchId", batch).load(checkpoint)
    return None if committed_offsets(checkpoint) is None else reader.load(checkpoint)


def clock_of(spark: SparkSession, checkpoint: str) -> int | None:
    """The latest clock in the state of a query (UTC epoch ms); None before the first batch."""
    states = _states(spark, checkpoint)
    if states is None:
        return None
    clock_ms: int | None = states.agg(F.max("value.groupState.clock_ms")).collect()[0][0]
    return clock_ms


# ---- the store -------------------------------------------------------------------------------------------------------


def _pending_in_store(
    spark: SparkSession, store: SlotStore, checkpoint: str, ids: Sequence[str] | None
) -> DataFrame:
    """Rows of the store that are pending, with its columns."""
    # The state first: what has left the store since then is then looked for in neither.
    read_to, clock_ms = _position(checkpoint)
    head = store.head()
    entries = _entries_at(store, head, ids)
    if clock_ms is None:
        return entries
    by_now = ~is_far_column(F.col("level")) & (F.col("deliver_at_ms") <= clock_ms)
    alive = in_state(spark, checkpoint).select("schedule_id", "seq", "amend")
    unread = store.added_since(read_to).select(
        "schedule_id", "seq", F.coalesce("amend", F.lit(0)).alias("amend")
    )
    waiting = entries.where(by_now).join(
        alive.unionByName(unread).distinct(), ["schedule_id", "seq", "amend"], "left_semi"
    )
    return entries.where(~by_now).unionByName(waiting)


def _pending_then(
    spark: SparkSession, store: SlotStore, as_of_ms: int, ids: Sequence[str] | None
) -> DataFrame:
    """As :func:`_pending_in_store`, by the store alone: near rows stay in it beyond their firing."""
    version = version_at(spark, store.path, as_of_ms)
    if version is None:
        return spark.createDataFrame([], STORE_SCHEMA)
    head = store.head(version=version)
    # Under the processing clock none is noted: it was the time itself. The wheel's clock never passes the cursor.
    instants = [
        at for at in (as_of_ms if head.clock_ms is None else head.clock_ms, head.cursor_ms) if at is not None
    ]
    return _entries_at(store, head, ids).where(F.col("deliver_at_ms") > min(instants))


def _entries_at(store: SlotStore, head: Head, ids: Sequence[str] | None) -> DataFrame:
    """The entries that no later version beats, at a version of the store."""
    rows = with_version(store.rows(version=head.version))
    if ids is not None:
        rows = rows.where(F.col("schedule_id").isin(*ids))
    if head.cursor_ms is not None:
        # Not what has been handed over and is not dropped yet.
        rows = rows.where(~is_far_column(F.col("level")) | (F.col("deliver_at_ms") >= head.cursor_ms))
    return _winners(rows)


def _winners(rows: DataFrame) -> DataFrame:
    """Of the rows that bear versions, the entries that no other row of their id beats."""
    is_entry = (F.col("op") == SCHEDULE) & F.col("deliver_at_ms").isNotNull()
    several = rows.groupBy("id_hash").agg(F.count(F.lit(1)).alias("rows")).where("rows > 1").select("id_hash")
    # Found at once, for what follows depends on how many they are: mostly none or few, and a join that is planned for many would sort
    # all rows of the store (3 million entries: 10.3 s for the count, 6.7 this way).
    several = several.localCheckpoint()
    number = several.count()
    if number == 0:
        return rows.where(is_entry)
    if number <= _FEW_IDS:
        several = F.broadcast(several)
    alone = rows.where(is_entry).join(several, "id_hash", "left_anti")
    together = rows.join(several, "id_hash", "left_semi")
    best_first = (
        Window.partitionBy("id_hash", "schedule_id")
        .orderBy(*(F.desc(name) for name in VERSION), F.asc_nulls_last("deliver_at_ms"), "arrived")
    )  # fmt: skip
    best = together.withColumn("_rank", F.row_number().over(best_first)).where("_rank = 1").drop("_rank")
    return alone.unionByName(best.where(is_entry).select(alone.columns))


def _position(checkpoint: str) -> tuple[int, int | None]:
    """Of the wheel's last committed batch: the version of the store up to which it has read, and its clock; None before the first."""
    offsets = committed_offsets(checkpoint)
    if offsets is None:
        return -1, None
    table = next(offset for offset in offsets if isinstance(offset, dict) and "reservoirVersion" in offset)
    # Delta notes the next version with an index below 0, or the files read of the version itself.
    read_to = int(table["reservoirVersion"]) - (int(table["index"]) < 0)
    instants = (offset.get("instant_ms") for offset in offsets if isinstance(offset, dict))
    return read_to, max((at for at in instants if at is not None), default=None)


# ---- what is coming --------------------------------------------------------------------------------------------------


def forecast(rows: DataFrame, every: str = "1 minute") -> DataFrame:
    """The load to come: how much falls due when, by destination.

    Args:
        rows: Of :func:`pending`.
        every: Width of a step, as Spark's ``window`` takes it.

    Returns:
        ``due_from`` timestamp, ``destination`` string, ``rows`` long, ``bytes`` long (keys and values), in order; steps without rows are left out.
    """
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    steps = rows.groupBy(F.window("scheduled_at", every).alias("step"), "destination")
    found = steps.agg(F.count(F.lit(1)).alias("rows"), F.sum(size.cast("long")).alias("bytes"))
    return found.select(F.col("step.start").alias("due_from"), "destination", "rows", "bytes").orderBy(
        "due_from", "destination"
    )
