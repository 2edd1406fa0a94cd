"""Pending entries as a table: :func:`pending` reads them from a running or stopped wheel, direct or tiered, and changes
nothing.

Direct mode: the entries are in Spark's state (:mod:`wheel_udf.pending.state`). Tiered mode: far entries are in the slot
store, near ones and series in the state, and of both the highest version decides (:mod:`wheel_udf.pending.in_store`).
Entries are shown as acts have left them, also acts that the job has not taken yet.

Cost: direct, O(pending); of some ids, the shards that they belong to. Tiered, one pass over the id hashes in the
store, made when the table is requested, and then a read of the requested columns; only ids with several versions
(usually few) are sorted. :func:`count_pending` needs the first pass and little more, :func:`count_far` reads the log
and no data.

Caveats: the wheel drops near rows when it has forgotten their ids (``memory``). A command that arrives after that
counts as new, here as in the wheel.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.checkpoint.act_files import acts_made, acts_taken
from wheel_udf.checkpoint.identity import require_checkpoint
from wheel_udf.commands.contract import Contract
from wheel_udf.common.durations import DURATION_RULE, parse_duration_ms
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import MAX_INSTANT_MS
from wheel_udf.pending import in_store
from wheel_udf.pending.acts_on_state import changed
from wheel_udf.pending.state import waiting
from wheel_udf.store.layout import is_far, is_far_column
from wheel_udf.store.slot_store import SlotStore

PENDING_COLUMNS: Final = (
    "schedule_id", "seq", "amend", "deliver_at", "scheduled_at", "delay_level_ms", "destination", "key", "value",
    "headers", "max_lateness_ms", "source", "repeat", "occurrence", "place",
)  # fmt: skip
"""``deliver_at`` is the requested due time; ``scheduled_at`` is when the wheel releases the entry, which is later if a
delay level has rounded it up, or ``spread`` or an act has moved it. ``delay_level_ms`` is the span of that level, null
without one; ``headers`` is JSON text. ``repeat`` is the rule of a series (JSON), which waits for its next occurrence,
and ``occurrence`` how many it has had; both are null of other entries. ``place`` is where the entry waits: ``state``,
``store``, or (direct mode, punctual delivery) ``sender``: an act comes too late for it.

Tiered mode: of a series that the wheel has not read yet ``occurrence`` is null, and ``deliver_at`` is what it would be
if the id was new."""


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
        """Checkpoint of the query that holds the wheel's state, and of the acts on it."""
        return self.checkpoint if self.store is None else f"{self.checkpoint}/wheel"

    def acts_waiting(self) -> int:
        """Returns the number of acts that the job has not taken yet."""
        taken = acts_taken(self.query) if self.store is None else self.store.head().acts_taken
        return acts_made(self.query) - taken


def pending(
    spark: SparkSession, work: PendingWork, *, ids: Sequence[str] | None = None, as_of_ms: int | None = None
) -> DataFrame:
    """Returns the entries that wait for their due time.

    Args:
        spark: A session.
        work: Where the entries are.
        ids: Only the entries with these ids, which costs less than filtering the whole table; None for all.
        as_of_ms: Read the entries that were pending at this earlier moment (UTC epoch ms). Direct: after the last
            batch planned by then, as far back as Spark keeps batches (``spark.sql.streaming.minBatchesToRetain``).
            Tiered: from the store's version at that moment, as far back as its log and files are kept; entries due by
            that moment are left out, even if they had not been released yet; and series as in the direct mode, without
            them if Spark no longer keeps the batch.

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
        return _to_output_columns(rows, F.when(F.col("in_flight"), "sender").otherwise("state"))
    if as_of_ms is None:
        rows = in_store.pending_now(spark, work.store, work.query, ids)
    else:
        rows = in_store.pending_then(spark, work.store, work.query, as_of_ms, ids)
    return _to_output_columns(rows, F.when(is_far_column(F.col("level")), "store").otherwise("state"))


def count_pending(spark: SparkSession, work: PendingWork) -> int:
    """Counts the entries that wait for their due time: ``pending(spark, work).count()`` in less time.

    Tiered mode: far entries are counted from the store's log; only ids with several versions, and the near rows, are
    read in full.

    Raises:
        CheckpointError, StoreError: As :func:`pending`.
    """
    if work.store is None:
        return pending(spark, work).count()
    require_checkpoint(work.checkpoint)
    return in_store.count_now(spark, work.store, work.query)


def count_far(store: SlotStore) -> int:
    """Counts the far rows of a store from its log, without reading data. Replaced and cancelled entries count until
    their due time comes near.
    """
    return sum(partition.rows for partition in store.partitions() if is_far(partition.level))


def _to_output_columns(rows: DataFrame, place: Column) -> DataFrame:
    due_ms, error_ms = F.col("deliver_at_ms"), F.coalesce("level_error_ms", F.lit(0))
    named = {
        "deliver_at": F.timestamp_millis(due_ms - error_ms).alias("deliver_at"),
        "scheduled_at": F.timestamp_millis(due_ms).alias("scheduled_at"),
        "place": place.alias("place"),
    }
    return rows.select(*(named.get(name, F.col(name)) for name in PENDING_COLUMNS))


# ---- forecast ------------------------------------------------------------------------------------


def forecast(rows: DataFrame, every: str = "1 minute") -> DataFrame:
    """Aggregates pending entries into future load: how many rows and bytes fall due in each step, by destination.

    Args:
        rows: The table of :func:`pending`.
        every: Width of a step, such as ``"1 minute"`` or ``PT1H``. Steps are counted from 1970-01-01T00:00Z.

    Returns:
        ``due_from`` timestamp, ``destination`` string, ``rows`` long, ``bytes`` long (keys and values), ordered; steps
        without rows are left out.

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
