"""Back-pressure of the tiered mode: limits on pending entries, by which the intake rejects new entries or pauses.

The limits are those of :mod:`wheel_udf.policies.limits`. They hold for the whole wheel and not for each shard, because
one intake sees all commands. What happens at a limit (``on_limit``)::

    pause    the batch that reaches the limit is written whole. Then the intake waits (:mod:`wheel_udf.tiered.pause`);
             its next batch stays in the source. It goes on when all counts are below the limits again (below the
             soft zone, if there is one)
    reject   a batch is written without the new entries that find no room; these become rejects, with the same rules
             as in the direct mode

The counts are exact (:func:`wheel_udf.pending.pending`: an entry that a later version replaces is not counted).
Counting takes a pass over the store, so it happens only when it can matter: no count can have risen by more than the
rows that came since the last count, and while that bound leaves room for the whole batch, nothing is counted. Series
count by the occurrence for which they wait; a new one by the one that it would have if its id was new.

Caveats: near a limit every batch is counted; with a million pending entries that takes seconds, which also slows the
intake down. A paused intake counts again when something has changed, at longer intervals the more is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.commands.series_columns import OUTPUT
from wheel_udf.commands.tier_columns import slot_column
from wheel_udf.common.arrays import Int64s
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.pending.state import heads_of
from wheel_udf.policies.limits import BOUNDS, Held, Limits, judge, reason
from wheel_udf.policies.series import first_occurrences
from wheel_udf.shard.rows import CANCEL, COMMAND, COMMAND_SCHEMA, RETRY, SCHEDULE, with_columns

_POLLS = 20
_ROWS_OF_A_POLL = 10_000


class Pressure:
    """Tracks the limits of one tiered wheel.

    Args:
        spark: A session.
        work: Where the entries are; must have a store.
        limits: The bounds, for all shards together.
        pauses: Whether the intake pauses at a limit; otherwise it rejects.
    """

    def __init__(self, spark: SparkSession, work: PendingWork, limits: Limits, *, pauses: bool) -> None:
        assert work.store is not None, "tiered mode"
        self.limits, self.pauses = limits, pauses
        self._spark, self._work, self._geometry = spark, work, work.store.layout.wheel
        self._most = limits.bounds
        # Every pending entry is a row of the store or in the state, so none of the counts is higher.
        rows = sum(partition.rows for partition in work.store.partitions())
        if rows:
            rows += sum(head["pending"] for head in heads_of(spark, work.query))
        self._counts = dict.fromkeys(self._most, rows)
        self._polls, self._seen = 0, object()

    def came(self, rows: int) -> None:
        """Records that rows were added to the store."""
        for bound in self._counts:
            self._counts[bound] += rows

    def full(self, at_most: int) -> dict[str, float]:
        """Returns an upper estimate of the used part of each bound; 1 is full.

        Args:
            at_most: Upper bound on the number of pending entries.
        """
        return {bound: min(count, at_most) / self._most[bound] for bound, count in self._counts.items()}

    # ---- pause ---------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether the intake may take its next batch: no bound is reached."""
        if not self._is_below(1.0):
            self._count()
        return self._is_below(1.0)

    def has_room_again(self, look: Callable[[], object]) -> bool:
        """Whether a paused intake may go on: all counts are below the soft zone. To be called repeatedly.

        Args:
            look: Returns a value that changes when entries may have ended; called when it is time to count again.
        """
        self._polls += 1
        waiting = max(self._counts.values(), default=0)
        if self._polls % _POLLS or self._polls < _POLLS + waiting // _ROWS_OF_A_POLL:
            return False
        seen = look()
        if seen == self._seen:
            return False
        self._polls, self._seen = 0, seen
        self._count()
        return self._is_below(self.limits.soft)

    def _is_below(self, part: float) -> bool:
        return all(count < part * self._most[bound] for bound, count in self._counts.items())

    def _count(self) -> None:
        with self._entries() as entries:
            self._take(entries)

    # ---- reject --------------------------------------------------------------------------------------

    def admitted(self, parsed: DataFrame, now_ms: int | None) -> DataFrame:
        """Returns a batch of parsed commands in which the entries that find no room are marked as rejects.

        Args:
            parsed: The batch, as :func:`wheel_udf.commands.parse_commands` returns it; cached by the caller, since it
                is read more than once.
            now_ms: Entries that are due by this instant are not limited.
        """
        good = parsed.where(F.col("error_code").isNull())
        coming = good.where(_needs_room(parsed)).count()
        if all(
            count + coming <= self.limits.soft * self._most[bound] for bound, count in self._counts.items()
        ):
            return parsed
        refused = self._refused(good.where(_needs_room(parsed) | (F.col("op") == CANCEL)), now_ms)
        return parsed if refused is None else _marked(parsed, refused, self.limits)

    def _refused(self, good: DataFrame, now_ms: int | None) -> DataFrame | None:
        """Returns the ids that find no room: ``schedule_id``, ``bound``, and ``after``, the seq of their last CANCEL
        in the batch.
        """
        version = F.struct("seq", "op")
        of_series = [name for name in OUTPUT if name in good.columns]
        of_id = good.groupBy("schedule_id").agg(
            F.max_by(F.struct("op", "seq", "destination", "deliver_at_ms", *of_series), version).alias(
                "last"
            ),
            F.max(F.when(F.col("op") == CANCEL, F.col("seq"))).alias("after"),
        )
        new = of_id.where(F.col("last.op") != CANCEL).select("schedule_id", "last.*", "after").drop("op")
        if now_ms is not None:
            new = new.where((F.col("deliver_at_ms") > now_ms) | F.col("deliver_at_ms").isNull())
        ended = of_id.where(F.col("last.op") == CANCEL).select(
            "schedule_id", F.col("last.seq").alias("ended")
        )
        with self._entries(ended) as entries:
            waiting = entries.select("schedule_id")
            table = _with_first_due(new.join(waiting, "schedule_id", "left_anti").toArrow())
            total = self._take(entries)
            verdict = judge(self.limits, Held(total, self._counts_in(entries)), table, self._geometry.tick_ms)
        over = np.flatnonzero(verdict.refused_by >= 0)
        if not len(over):
            return None
        bounds = pa.array(BOUNDS).take(pa.array(verdict.refused_by[over]))
        found = table.take(pa.array(over)).select(["schedule_id", "after"]).append_column("bound", bounds)
        return self._spark.createDataFrame(found)

    def _counts_in(self, entries: DataFrame) -> Callable[[str, pa.Array], Int64s]:
        def counts(bound: str, names: pa.Array) -> Int64s:
            wanted = self._spark.createDataFrame(pa.table({"name": names}))
            groups = entries.groupBy(self._group(bound).alias("name")).count()
            rows = groups.join(F.broadcast(wanted), "name").collect()
            count_of = {row["name"]: row["count"] for row in rows}
            return np.array([count_of.get(name, 0) for name in names.to_pylist()], np.int64)

        return counts

    # ---- what is pending -----------------------------------------------------------------------------

    @contextmanager
    def _entries(self, ended: DataFrame | None = None) -> Iterator[DataFrame]:
        """Yields the pending entries, cached; without those that a batch's CANCELs end (``schedule_id``, ``ended``:
        the seq of the CANCEL).
        """
        due_ms = F.unix_millis("scheduled_at").alias("deliver_at_ms")
        entries = pending(self._spark, self._work).select("schedule_id", "seq", "destination", due_ms)
        if ended is not None:
            entries = entries.join(F.broadcast(ended), "schedule_id", "left")
            entries = entries.where("ended IS NULL OR seq > ended").drop("ended")
        entries = entries.persist()
        try:
            yield entries
        finally:
            entries.unpersist()

    def _take(self, entries: DataFrame) -> int:
        """Updates the counts; returns the number of entries."""
        total = entries.count()
        for bound in self._most:
            if bound == "pending":
                self._counts[bound] = total
            else:
                largest = entries.groupBy(self._group(bound)).count().agg(F.max("count")).collect()[0][0]
                self._counts[bound] = largest or 0
        return total

    def _group(self, bound: str) -> Column:
        if bound == "per_destination":
            return F.col("destination")
        return slot_column(self._geometry, 1, F.col("deliver_at_ms"))


def _with_first_due(new: pa.Table) -> pa.Table:
    """New entries, series with the due time of their first occurrence and without those that have none."""
    if not new["deliver_at_ms"].null_count:
        return new
    series = new.filter(new["deliver_at_ms"].is_null())
    columns = {"op": SCHEDULE, "amend": 0, "act": COMMAND, "seq_given": True}
    begun = first_occurrences(
        pa.table(
            [
                series[each.name].cast(each.type)
                if each.name in series.column_names and each.name not in columns
                else pa.repeat(pa.scalar(columns.get(each.name), each.type), series.num_rows)
                for each in COMMAND_SCHEMA
            ],
            schema=COMMAND_SCHEMA,
        )
    )
    place = pc.index_in(new["schedule_id"], value_set=begun["schedule_id"].combine_chunks())
    first_ms = begun["deliver_at_ms"].combine_chunks().take(place.combine_chunks())
    due_ms = pc.coalesce(new["deliver_at_ms"].combine_chunks(), first_ms)
    return with_columns(new, deliver_at_ms=due_ms).filter(due_ms.is_valid())


def _needs_room(parsed: DataFrame) -> Column:
    """Schedules: a FIRE_NOW makes room, and what a RETRY gives back was admitted once."""
    is_schedule = F.col("op") == SCHEDULE
    return is_schedule & ~F.col("act").eqNullSafe(RETRY) if "act" in parsed.columns else is_schedule


def _marked(parsed: DataFrame, refused: DataFrame, limits: Limits) -> DataFrame:
    """Marks the refused schedules of a batch as rejects; their records are made later, as for all rejects."""
    texts = F.create_map(*(F.lit(part) for bound in BOUNDS for part in (bound, reason(limits, bound))))
    why = F.from_json(texts[F.col("bound")], "error_code string, error_message string")
    over = (
        F.col("bound").isNotNull()
        & F.col("error_code").isNull()
        & _needs_room(parsed)
        & (F.col("after").isNull() | (F.col("seq") > F.col("after")))
    )
    joined = parsed.join(F.broadcast(refused), "schedule_id", "left")
    columns = {
        "error_code": F.when(over, why["error_code"]).otherwise(F.col("error_code")),
        "error_message": F.when(over, why["error_message"]).otherwise(F.col("error_message")),
    }
    return joined.select(*(columns.get(name, F.col(name)).alias(name) for name in parsed.columns))
