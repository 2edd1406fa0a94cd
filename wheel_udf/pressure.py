"""Back-pressure of the tiered mode: whether the intake has room for a batch, and which of its commands have none.

The limits are those of :mod:`wheel_udf.limits`, of the whole wheel and not of its shards, since one intake sees all that comes. Two ways::

    on_limit   at a limit
    pause      the intake ends before its next batch, which waits in the source; it goes on when entries have fired or ended and the counts
               are below the limits (below the soft zone, if there is one). The batch that reaches a limit is taken in whole
    reject     a batch is taken in but for the new entries that find no room: rejects, row for row as in the direct mode

What counts is what is pending, exactly (:func:`wheel_udf.pending.pending`: what a later version beats is not). That takes a pass over the store, so it is
asked only when it can matter: no count can have risen by more than the rows that came since it was taken, and while that bound leaves room for
all of a batch nothing is counted.

Caveats: near a limit each batch counts; with a million pending that takes seconds, which is back-pressure too. A paused wheel counts again when
something has changed, and waits longer in between the more is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf.geometry import slot_column
from wheel_udf.limits import BOUNDS, Held, Limits, judge, reason
from wheel_udf.pending import Wheel, pending
from wheel_udf.runs import Int64s
from wheel_udf.state import CANCEL

_POLLS = 20
_ROWS_OF_A_POLL = 10_000


class Pressure:
    """Watches the limits of one tiered wheel.

    Args:
        spark: A session.
        wheel: Where the entries are; with a store.
        limits: The bounds, all shards together.
        pauses: Whether the intake pauses at a limit; else it rejects.
    """

    def __init__(self, spark: SparkSession, wheel: Wheel, limits: Limits, *, pauses: bool) -> None:
        assert wheel.store is not None, "of the tiered mode"
        self.limits, self.pauses = limits, pauses
        self._spark, self._wheel, self._geometry = spark, wheel, wheel.store.layout.wheel
        self._most = limits.bounds
        # Every pending entry is a row of the store, so none of the counts is higher.
        rows = sum(partition.rows for partition in wheel.store.partitions())
        self._counts = dict.fromkeys(self._most, rows)
        self._polls, self._seen = 0, object()

    def came(self, rows: int) -> None:
        """So many rows were added to the store."""
        for bound in self._counts:
            self._counts[bound] += rows

    def full(self, at_most: int) -> dict[str, float]:
        """How much of each bound is used, from above; 1 is all.

        Args:
            at_most: No more than so many entries are pending.
        """
        return {bound: min(count, at_most) / self._most[bound] for bound, count in self._counts.items()}

    # ---- pause -------------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether the next batch may come: no bound is reached."""
        if not self._is_below(1.0):
            self._count()
        return self._is_below(1.0)

    def has_room_again(self, look: Callable[[], object]) -> bool:
        """Whether a paused intake may go on: all counts are below the soft zone. Asked again and again.

        Args:
            look: Answers what has changed if anything has that could make room; asked when it is time to count again.
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

    # ---- reject ------------------------------------------------------------------------------------------------------

    def admitted(self, parsed: DataFrame, now_ms: int | None) -> DataFrame:
        """A batch of parsed commands, in which those that find no room are rejected.

        Args:
            parsed: What :func:`wheel_udf.commands.parse` made of it. Kept by the caller: it is looked at more than once.
            now_ms: What is due by now passes.
        """
        good = parsed.where(F.col("error_code").isNull())
        coming = good.where(F.col("op") != CANCEL).count()
        if all(
            count + coming <= self.limits.soft * self._most[bound] for bound, count in self._counts.items()
        ):
            return parsed
        refused = self._refused(good, now_ms)
        return parsed if refused is None else _marked(parsed, refused, self.limits)

    def _refused(self, good: DataFrame, now_ms: int | None) -> DataFrame | None:
        """The ids that find no room: ``schedule_id``, ``bound``, and ``after``, the seq of their last CANCEL in the batch."""
        version = F.struct("seq", "op")
        of_id = good.groupBy("schedule_id").agg(
            F.max_by(F.struct("op", "seq", "destination", "deliver_at_ms"), version).alias("last"),
            F.max(F.when(F.col("op") == CANCEL, F.col("seq"))).alias("after"),
        )
        new = of_id.where(F.col("last.op") != CANCEL).select("schedule_id", "last.*", "after").drop("op")
        if now_ms is not None:
            new = new.where(F.col("deliver_at_ms") > now_ms)
        ended = of_id.where(F.col("last.op") == CANCEL).select(
            "schedule_id", F.col("last.seq").alias("ended")
        )
        with self._entries(ended) as entries:
            waiting = entries.select("schedule_id")
            table = new.join(waiting, "schedule_id", "left_anti").toArrow()
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
            of = {row["name"]: row["count"] for row in rows}
            return np.array([of.get(name, 0) for name in names.to_pylist()], np.int64)

        return counts

    # ---- what is pending ---------------------------------------------------------------------------------------------

    @contextmanager
    def _entries(self, ended: DataFrame | None = None) -> Iterator[DataFrame]:
        """What is pending, kept while it is looked at; without what a batch's CANCELs end (``schedule_id``, ``ended`` by this seq)."""
        due_ms = F.unix_millis("scheduled_at").alias("deliver_at_ms")
        entries = pending(self._spark, self._wheel).select("schedule_id", "seq", "destination", due_ms)
        if ended is not None:
            entries = entries.join(F.broadcast(ended), "schedule_id", "left")
            entries = entries.where("ended IS NULL OR seq > ended").drop("ended")
        entries = entries.persist()
        try:
            yield entries
        finally:
            entries.unpersist()

    def _take(self, entries: DataFrame) -> int:
        """Takes the counts; answers how many entries there are."""
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


def _marked(parsed: DataFrame, refused: DataFrame, limits: Limits) -> DataFrame:
    """The batch with the refused schedules as rejects; their record is made of their columns where all rejects are made."""
    texts = F.create_map(*(F.lit(part) for bound in BOUNDS for part in (bound, reason(limits, bound))))
    why = F.from_json(texts[F.col("bound")], "error_code string, error_message string")
    over = (
        F.col("bound").isNotNull()
        & F.col("error_code").isNull()
        & (F.col("op") != CANCEL)
        & (F.col("after").isNull() | (F.col("seq") > F.col("after")))
    )
    joined = parsed.join(F.broadcast(refused), "schedule_id", "left")
    columns = {
        "error_code": F.when(over, why["error_code"]).otherwise(F.col("error_code")),
        "error_message": F.when(over, why["error_message"]).otherwise(F.col("error_message")),
    }
    return joined.select(*(columns.get(name, F.col(name)).alias(name) for name in parsed.columns))
