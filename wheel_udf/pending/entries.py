"""Pending entries as a table: :func:`pending` reads them from a running or stopped wheel, direct or tiered, and changes
nothing.

Direct mode: the entries are in Spark's state (:mod:`wheel_udf.pending.state`). Tiered mode: far entries are in the slot
store, near ones and series in the state, and of both the highest version decides (:mod:`wheel_udf.pending.in_store`).
Entries are shown as acts have left them, also acts that the job has not taken yet.

Cost: direct, O(pending); of some ids, the shards that they belong to. Tiered, one pass over the id hashes in the
store, made when the table is requested, and then a read of the requested columns; only ids with several versions
(usually few) are ranked. :func:`count_pending` needs the first pass and little more, :func:`count_far` reads the log
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
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.pending import in_store
from wheel_udf.pending.acts_on_state import changed
from wheel_udf.pending.load import later_load
from wheel_udf.pending.state import heads_of, waiting
from wheel_udf.policies.series_load import MOST_STEPS, Steps
from wheel_udf.shard.rows import ID_JOINT, PAUSED_MS
from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.store.layout import is_far_column
from wheel_udf.store.log import StoreLog
from wheel_udf.store.slot_store import SlotStore

PENDING_COLUMNS: Final = (
    "schedule_id", "seq", "amend", "deliver_at", "scheduled_at", "delay_level_ms", "destination", "key", "value",
    "headers", "max_lateness_ms", "source", "repeat", "occurrence", "anchor_ms", "spread_ms", "paused", "attempt",
    "last_error", "place",
)  # fmt: skip
"""``deliver_at`` is the requested due time; ``scheduled_at`` is when the wheel releases the entry, which is later if a
delay level has rounded it up, or ``spread`` or an act has moved it. ``delay_level_ms`` is the span of that level, null
without one; ``headers`` is JSON text. ``repeat`` is the rule of a series (JSON), which waits for its next occurrence,
``occurrence`` how many it has had, ``anchor_ms`` the instant from which the rule counts, and ``spread_ms`` how much
later than its nominal time each one is released; they are null of other entries. ``paused`` is whether an act has
paused the series, which then has no ``scheduled_at``. ``attempt`` is how many attempts to deliver the entry have
failed, ``last_error`` why the last one did; null if there was none. ``place`` is where the entry waits: ``state``,
``store``, or (direct mode, punctual delivery) ``sender``: an act comes too late for it.

Tiered mode: of a series that the wheel has not read yet ``occurrence`` is null, and ``deliver_at`` is what it would be
if the id was new."""

DEFAULT_STEPS: Final = 1_440
"""In how many steps a forecast counts later occurrences of series: of minutes, a day."""


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


ENTRY_ID: Final = "entry_id"
"""Column of :func:`entries`: the id under which the wheel has the entry."""


def pending(
    spark: SparkSession,
    work: PendingWork,
    *,
    ids: Sequence[str] | None = None,
    as_of_ms: int | None = None,
    first: int | None = None,
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
        first: Only so many entries need be there, those with the earliest ``scheduled_at``, which costs less than all
            of them; there may be more. None for all.

    Returns:
        One row per entry with :data:`PENDING_COLUMNS`, in no order.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged, or does not go back so far.
        StoreError: The store does not go back so far.
    """
    return entries(spark, work, ids=ids, as_of_ms=as_of_ms, first=first).select(*PENDING_COLUMNS)


def entries(
    spark: SparkSession,
    work: PendingWork,
    *,
    ids: Sequence[str] | None = None,
    as_of_ms: int | None = None,
    first: int | None = None,
) -> DataFrame:
    """As :func:`pending`, with :data:`ENTRY_ID`: an occurrence of a series that is tried again has an id of its own,
    and as its ``schedule_id`` that of the series.
    """
    require_jvm(spark, "pending()")
    require_checkpoint(work.checkpoint)
    if work.store is None:
        if as_of_ms is None and work.acts_waiting():
            first = None  # an act may have made other entries the first ones
        rows = waiting(spark, work.query, ids=ids, as_of_ms=as_of_ms, first=first)
        if as_of_ms is None:
            rows = changed(rows, work.query, ids)
        return _to_output_columns(rows, F.when(F.col("in_flight"), "sender").otherwise("state"))
    if as_of_ms is None:
        rows = in_store.pending_now(spark, work.store, work.query, ids, first)
    else:
        rows = in_store.pending_then(spark, work.store, work.query, as_of_ms, ids)
    return _to_output_columns(rows, F.when(is_far_column(F.col("level")), "store").otherwise("state"))


def count_pending(spark: SparkSession, work: PendingWork) -> int:
    """Counts the entries that wait for their due time: ``pending(spark, work).count()`` in less time.

    Direct mode: the shards have their counts. They are not used while an act waits that the job has not taken. Tiered
    mode: far entries are counted from the store's log; only ids with several versions, and the near rows, are
    read in full.

    Raises:
        CheckpointError, StoreError: As :func:`pending`.
    """
    require_jvm(spark, "count_pending()")
    if work.store is None and not work.acts_waiting():
        require_checkpoint(work.checkpoint)
        return sum(head["pending"] for head in heads_of(spark, work.query))
    if work.store is None:
        return pending(spark, work).count()
    require_checkpoint(work.checkpoint)
    return in_store.count_now(spark, work.store, work.query)


def count_far(store: StoreLog) -> int:
    """Counts the far rows of a store from its log, without reading data. Replaced and cancelled entries count until
    their due time comes near.
    """
    return store.far_rows()


def _to_output_columns(rows: DataFrame, place: Column) -> DataFrame:
    due_ms = F.col("deliver_at_ms")
    error_ms = F.coalesce("level_error_ms", F.lit(0)) + F.coalesce("held_ms", F.lit(0))
    paused = F.col("repeat").isNotNull() & (due_ms == PAUSED_MS)
    named = {
        "deliver_at": F.timestamp_millis(due_ms - error_ms),
        "scheduled_at": F.when(~paused, F.timestamp_millis(due_ms)),
        "paused": paused,
        "place": place,
        "schedule_id": F.substring_index("schedule_id", ID_JOINT, 1),
        ENTRY_ID: F.col("schedule_id"),
    }
    columns = (*PENDING_COLUMNS, ENTRY_ID)
    return rows.select(*(named.get(name, F.col(name)).alias(name) for name in columns))


# ---- forecast ------------------------------------------------------------------------------------


def forecast(
    rows: DataFrame, every: str = "1 minute", *, horizon: str | None = None, clock_ms: int | None = None
) -> DataFrame:
    """Aggregates pending entries into future load: how many rows and bytes fall due in each step, by destination.

    Each entry is counted where it is due, however far that is. Of a series, so are its later occurrences up to the
    horizon (:mod:`wheel_udf.policies.series_load`); they are an estimate, because the series may change until then.
    Paused series are left out.

    Args:
        rows: The table of :func:`pending`.
        every: Width of a step, such as ``"1 minute"`` or ``PT1H``. Steps are counted from 1970-01-01T00:00Z.
        horizon: Up to this long after the clock, to the end of a step, later occurrences are counted; at most
            :data:`~wheel_udf.policies.series_load.MOST_STEPS` steps. None: 1,440 steps.
        clock_ms: The clock of the wheel; None for the wall clock.

    Returns:
        ``due_from`` timestamp, ``destination`` string, ``rows`` long, ``bytes`` long (keys and values), ``estimated``
        long (how many of the rows are later occurrences), ordered; steps without rows are left out.

    Raises:
        ConfigError: `every` or `horizon` is not a duration above 0, or the steps are too many.
    """
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    rows = rows.withColumn("_bytes", size.cast("long"))
    # Not Spark's window(): it overflows for the last due times that a timestamp can hold.
    due_ms, every_ms = F.unix_millis("scheduled_at"), F.lit(step_ms(every)).cast("long")
    steps = rows.where("scheduled_at IS NOT NULL").groupBy(
        (due_ms - F.pmod(due_ms, every_ms)).alias("from_ms"), "destination"
    )
    found = steps.agg(F.count(F.lit(1)).alias("rows"), F.sum("_bytes").alias("bytes"))
    found = found.withColumn("estimated", F.lit(0).cast("long"))
    if "repeat" in rows.columns:
        at_ms = wall_clock_ms() if clock_ms is None else clock_ms
        found = found.unionByName(later_load(rows, steps_of(every, horizon, at_ms)))
        sums = ("rows", "bytes", "estimated")
        found = found.groupBy("from_ms", "destination").agg(*(F.sum(name).alias(name) for name in sums))
    return found.select(
        F.timestamp_millis("from_ms").alias("due_from"), "destination", "rows", "bytes", "estimated"
    ).orderBy("due_from", "destination")


def steps_of(every: str, horizon: str | None, clock_ms: int) -> Steps:
    """The steps in which a forecast counts later occurrences.

    Raises:
        ConfigError: As :func:`forecast`.
    """
    width_ms = step_ms(every)
    first_ms = clock_ms // width_ms * width_ms
    number = DEFAULT_STEPS
    if horizon is not None:
        number = -(-(clock_ms + step_ms(horizon, "horizon") - first_ms) // width_ms)
    if number > MOST_STEPS:
        raise ConfigError(
            "a forecast of too many steps",
            field="horizon",
            value=horizon,
            rule=f"up to {MOST_STEPS:,} steps of {every}",
            hint="wider steps, or a shorter horizon",
        )
    return Steps(clock_ms, first_ms, width_ms, max(1, min(number, (MAX_INSTANT_MS - first_ms) // width_ms)))


def step_ms(every: str, field: str = "every") -> int:
    """The width of a step of the forecast in ms, or its horizon.

    Raises:
        ConfigError: It is not a duration above 0.
    """
    with suppress(ConfigError):
        if 0 < (width_ms := parse_duration_ms(every)) <= MAX_INSTANT_MS:
            return width_ms
    what = "the width of a step" if field == "every" else "a horizon"
    raise ConfigError(f"not {what}", field=field, value=every, rule=f"above 0; {DURATION_RULE}")
