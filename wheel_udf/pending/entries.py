"""Pending entries as a table: :func:`pending` reads them from a running or stopped wheel, direct or tiered, and changes nothing.

Direct mode: the entries are in Spark's state (:mod:`wheel_udf.pending.state`). They are shown as acts have left them, also acts that no batch has
taken yet.

Tiered mode: far entries are in the slot store, near entries in the state; both have versions. Of the rows of one id in the store the highest
version decides::

    highest version                pending
    SCHEDULE, far                  yes
    SCHEDULE, near, due later      yes: nothing is released before it is due
    SCHEDULE, near, due by now     if the state still holds it (a backlog), or if the wheel has not read the row yet
    CANCEL                         no

"Now" is the clock of the wheel's last committed batch. The store is read at one version and the state after the last committed batch, so the
answer describes one moment, except for the batch in progress.

Cost: direct, O(pending); of some ids, the shards that they belong to. Tiered, one pass over the id hashes in the store, made when the table is requested, and then a read of the requested
columns; only ids with several versions (usually few) are sorted. :func:`stored` reads the log and no data.

Caveats: the wheel drops near rows when it has forgotten their ids (``memory``). A command that arrives after that counts as new, here as in the wheel.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window, functions as F

from wheel_udf.commands import MAX_INSTANT_MS, Contract
from wheel_udf.common import DURATION_RULE, ConfigError, parse_duration_ms
from wheel_udf.pending.acts_on_state import changed
from wheel_udf.pending.state import in_state, waiting
from wheel_udf.platform import committed_offsets, require_checkpoint, version_at
from wheel_udf.store import STORE_SCHEMA, VERSION, Head, SlotStore, is_far, is_far_column, with_version
from wheel_udf.wheel import SCHEDULE

PENDING_COLUMNS: Final = (
    "schedule_id", "seq", "amend", "deliver_at", "scheduled_at", "delay_level_ms", "destination", "key", "value", "headers", "max_lateness_ms", "source", "place",
)  # fmt: skip
"""``deliver_at`` is the requested due time; ``scheduled_at`` is when the wheel releases the entry, which is later if a delay level has rounded it up.
``delay_level_ms`` is the span of that level, null without one; ``headers`` is JSON text; ``place`` is where the entry waits: ``state``,
``store``, or (direct mode, punctual delivery) ``sender``: an act comes too late for it."""

_IS_ENTRY: Final = f"op = {SCHEDULE} AND deliver_at_ms IS NOT NULL"

_FEW_IDS: Final = 2_000_000
"""Up to this many hashes are broadcast to each executor (about 60 MB)."""

_FEW_ROWS: Final = 100_000
"""Up to this many rows of a store are ranked in one pass, without looking first which ids have several: a look is a second of Spark's planning."""


@dataclass(frozen=True)
class PendingWork:
    """The places where the pending work of one wheel is kept.

    Attributes:
        checkpoint: Checkpoint folder of the run.
        store: Slot store of the run in the tiered mode; None in the direct mode.
        contract: The contract of the run, which acts obey; None if they need not.

    Raises:
        ConfigError: One of them is of another type.
    """

    checkpoint: str
    store: SlotStore | None = None
    contract: Contract | None = None

    def __post_init__(self) -> None:
        kinds = {"checkpoint": str, "store": SlotStore | None, "contract": Contract | None}
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigError(
                    "a value of another type",
                    field=name,
                    value=value,
                    rule="a path" if kind is str else f"a {name} object, or None",
                    hint="PendingWork.of(spark, checkpoint, store) takes paths",
                )

    @staticmethod
    def of(
        spark: SparkSession,
        checkpoint: str | PathLike[str],
        store: str | PathLike[str] | None = None,
        *,
        contract: Contract | None = None,
    ) -> PendingWork:
        """The work of a run, by its paths.

        Args:
            spark: A session.
            checkpoint: Checkpoint folder of the run.
            store: Slot store of the run in the tiered mode.
            contract: The contract of the run, which acts obey.

        Raises:
            StoreError: There is no slot store at the place.
            GeometryChangedError: It was made in another format.
        """
        opened = None if store is None else SlotStore.at(spark, fspath(store))
        return PendingWork(fspath(checkpoint), opened, contract)

    @property
    def query(self) -> str:
        """Checkpoint of the query that holds the wheel's state."""
        return self.checkpoint if self.store is None else f"{self.checkpoint}/wheel"


def pending(
    spark: SparkSession, work: PendingWork, *, ids: Sequence[str] | None = None, as_of_ms: int | None = None
) -> DataFrame:
    """Returns the entries that wait for their due time.

    Args:
        spark: A session.
        work: Where the entries are.
        ids: Only the entries with these ids, which costs less than filtering the whole table; None for all.
        as_of_ms: Read the entries that were pending at this earlier moment (UTC epoch ms). Direct: after the last batch planned by then, as far
            back as Spark keeps batches (``spark.sql.streaming.minBatchesToRetain``). Tiered: from the store's version at that moment, as far back
            as its log and files are kept; entries due by that moment are left out, even if they had not been released yet.

    Returns:
        One row per entry with :data:`PENDING_COLUMNS`, in no order.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged, or does not go back so far.
        StoreError: The store does not go back so far.
    """
    require_checkpoint(work.checkpoint)
    if work.store is None:
        rows = waiting(spark, work.query, ids=ids, as_of_ms=as_of_ms)
        if as_of_ms is None:
            rows = changed(rows, work.query)
        return _public(rows, F.when(F.col("in_flight"), "sender").otherwise("state"))
    if as_of_ms is None:
        rows = _pending_in_store(spark, work.store, work.query, ids)
    else:
        rows = _pending_then(spark, work.store, as_of_ms, ids)
    return _public(rows, F.when(is_far_column(F.col("level")), "store").otherwise("state"))


def create_view(
    spark: SparkSession, work: PendingWork, name: str = "pending", *, as_of_ms: int | None = None
) -> None:
    """Creates a temporary view of what is pending now. Create it again to see a later state.

    Raises:
        CheckpointError, StoreError: As :func:`pending`.
    """
    pending(spark, work, as_of_ms=as_of_ms).createOrReplaceTempView(name)


def stored(store: SlotStore) -> int:
    """Counts the far rows of a store from its log, without reading data. Replaced and cancelled entries count until their due time comes near."""
    return sum(partition.rows for partition in store.partitions() if is_far(partition.level))


def _public(rows: DataFrame, place: Column) -> DataFrame:
    due_ms, error_ms = F.col("deliver_at_ms"), F.coalesce("level_error_ms", F.lit(0))
    named = {
        "deliver_at": F.timestamp_millis(due_ms - error_ms).alias("deliver_at"),
        "scheduled_at": F.timestamp_millis(due_ms).alias("scheduled_at"),
        "place": place.alias("place"),
    }
    return rows.select(*(named.get(name, F.col(name)) for name in PENDING_COLUMNS))


# ---- the store -------------------------------------------------------------------------------------------------------


def _pending_in_store(
    spark: SparkSession, store: SlotStore, checkpoint: str, ids: Sequence[str] | None
) -> DataFrame:
    """Returns the rows of the store that are pending, with the store's columns."""
    # The state is read first: an entry that leaves the store afterwards must not be counted twice.
    version, clock_ms = read_to(checkpoint)
    head = store.head()
    entries = _entries_at(store, head, ids)
    if clock_ms is None:
        return entries
    by_now = ~is_far_column(F.col("level")) & (F.col("deliver_at_ms") <= clock_ms)
    alive = in_state(spark, checkpoint, ids=ids).select("schedule_id", "seq", "amend")
    unread = store.added_since(version).select(
        "schedule_id", "seq", F.coalesce("amend", F.lit(0)).alias("amend")
    )
    waiting = entries.where(by_now).join(
        alive.unionByName(unread).distinct(), ["schedule_id", "seq", "amend"], "left_semi"
    )
    return entries.where(~by_now).unionByName(waiting)


def _pending_then(
    spark: SparkSession, store: SlotStore, as_of_ms: int, ids: Sequence[str] | None
) -> DataFrame:
    """As :func:`_pending_in_store` at an earlier moment, from the store alone: near rows stay in it after they have fired."""
    version = version_at(spark, store.path, as_of_ms)
    if version is None:
        return spark.createDataFrame([], STORE_SCHEMA)
    head = store.head(version=version)
    # With the processing clock the store records none: the clock was the wall clock. The wheel's clock never passes the cursor.
    instants = [
        at for at in (as_of_ms if head.clock_ms is None else head.clock_ms, head.cursor_ms) if at is not None
    ]
    return _entries_at(store, head, ids).where(F.col("deliver_at_ms") > min(instants))


def _entries_at(store: SlotStore, head: Head, ids: Sequence[str] | None) -> DataFrame:
    """Returns the entries that no higher version replaces, at a version of the store."""
    rows = with_version(store.rows(version=head.version))
    if ids is not None:
        rows = rows.where(F.col("schedule_id").isin(*ids))
    if head.cursor_ms is not None:
        # Leaves out far rows that were handed over and are not dropped yet.
        rows = rows.where(~is_far_column(F.col("level")) | (F.col("deliver_at_ms") >= head.cursor_ms))
    few = ids is not None or sum(partition.rows for partition in store.partitions()) <= _FEW_ROWS
    return _best(rows).where(_IS_ENTRY) if few else _winners(rows)


def _winners(rows: DataFrame) -> DataFrame:
    """Returns the entries that no other row of the same id replaces; `rows` have versions."""
    several = rows.groupBy("id_hash").agg(F.count(F.lit(1)).alias("rows")).where("rows > 1").select("id_hash")
    # Computed now, because the plan depends on their number: usually few or none, and a join that is planned for many would sort
    # all rows of the store (count of 3 million entries: 10.3 s; this way 6.7 s).
    several = several.localCheckpoint()
    number = several.count()
    if number == 0:
        return rows.where(_IS_ENTRY)
    if number <= _FEW_IDS:
        several = F.broadcast(several)
    alone = rows.where(_IS_ENTRY).join(several, "id_hash", "left_anti")
    best = _best(rows.join(several, "id_hash", "left_semi")).where(_IS_ENTRY)
    return alone.unionByName(best.select(alone.columns))


def _best(rows: DataFrame) -> DataFrame:
    """Returns the row of the highest version of each id."""
    best_first = (
        Window.partitionBy("id_hash", "schedule_id")
        .orderBy(*(F.desc(name) for name in VERSION), F.asc_nulls_last("deliver_at_ms"), "arrived")
    )  # fmt: skip
    return rows.withColumn("_rank", F.row_number().over(best_first)).where("_rank = 1").drop("_rank")


def read_to(checkpoint: str) -> tuple[int, int | None]:
    """Returns the version of the store that the wheel's last committed batch has read, and that batch's clock (None before the first batch)."""
    offsets = committed_offsets(checkpoint)
    if offsets is None:
        return -1, None
    table = next(offset for offset in offsets if isinstance(offset, dict) and "reservoirVersion" in offset)
    # Delta's offset is either the next version with a negative index, or the version being read with the number of files read.
    version = int(table["reservoirVersion"]) - (int(table["index"]) < 0)
    instants = (offset.get("instant_ms") for offset in offsets if isinstance(offset, dict))
    return version, max((at for at in instants if at is not None), default=None)


# ---- forecast --------------------------------------------------------------------------------------------------------


def forecast(rows: DataFrame, every: str = "1 minute") -> DataFrame:
    """Aggregates pending entries into future load: how many rows and bytes fall due in each step, by destination.

    Args:
        rows: The table of :func:`pending`.
        every: Width of a step, such as ``"1 minute"`` or ``PT1H``. Steps are counted from 1970-01-01T00:00Z.

    Returns:
        ``due_from`` timestamp, ``destination`` string, ``rows`` long, ``bytes`` long (keys and values), ordered; steps without rows are left out.

    Raises:
        ConfigError: `every` is not a duration above 0.
    """
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    # Not Spark's window(): it overflows for the last due times that a timestamp can hold.
    due_ms, every_ms = F.unix_millis("scheduled_at"), F.lit(step_ms(every)).cast("long")
    steps = rows.groupBy((due_ms - F.pmod(due_ms, every_ms)).alias("from_ms"), "destination")
    found = steps.agg(F.count(F.lit(1)).alias("rows"), F.sum(size.cast("long")).alias("bytes"))
    return found.select(
        F.timestamp_millis("from_ms").alias("due_from"), "destination", "rows", "bytes"
    ).orderBy("due_from", "destination")


def step_ms(every: str) -> int:
    """The width of a step of the forecast in ms.

    Raises:
        ConfigError: It is not a duration above 0.
    """
    with suppress(ConfigError):
        if 0 < (width_ms := parse_duration_ms(every)) <= MAX_INSTANT_MS:
            return width_ms
    raise ConfigError("not the width of a step", field="every", value=every, rule=f"above 0; {DURATION_RULE}")
