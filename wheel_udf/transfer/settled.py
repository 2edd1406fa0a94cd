"""Settles a slot store for an export: which of its far entries are pending, and how the others ended.

While a job runs, a far entry that a higher version has ended stays in its slot, and the wheel counts its end at the
hand-over. An export cannot wait for that: it makes the comparison of the hand-over
(:func:`wheel_udf.store.versions.verdicts`) for all slots at once and counts the ends as the wheel would::

    verdict            count                     and
    none               pending                   an entry of the export
    GONE_SUPERSEDED    superseded
    GONE_DUPLICATE     duplicate
    GONE_CANCELLED     cancelled                 a waiting CANCEL of the shard becomes applied; its id gets a record
    none, known ended  superseded                a late act (wheel_udf.wheel.late_acts), or beaten by what the wheel had
                                                 when it came (wheel_udf.policies.store_reports)

Near rows are in the state already. Rows that the wheel has not read are refused: only it can count them.

Cost: one pass over the id hashes of the store, as a hand-over of everything would take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.checkpoint.spark_logs import read_to
from wheel_udf.common.errors import TransferError
from wheel_udf.pending.entries import PendingWork
from wheel_udf.shard.rows import (
    CANCEL,
    ENTRY_SCHEMA,
    GONE_CANCELLED,
    GONE_DUPLICATE,
    GONE_SUPERSEDED,
    MEMORY_SCHEMA,
)
from wheel_udf.spark.frames import filled
from wheel_udf.store.layout import is_far_column
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.versions import FILE, no_verdicts, verdicts, with_version
from wheel_udf.stream.sharding import shard_keys, shard_of_id
from wheel_udf.transfer.content import FINISH
from wheel_udf.transfer.ranks import amend_of, op_of, rank_of
from wheel_udf.wheel.known import ENDED, FIRED

_OUTCOME_OF = {GONE_CANCELLED: "cancelled", GONE_SUPERSEDED: "superseded", GONE_DUPLICATE: "duplicate"}


@dataclass(frozen=True)
class Settled:
    """The far entries of a store.

    Attributes:
        entries: Those that are pending, with the columns of ``ENTRY_SCHEMA``.
        ended: Memory records of ids whose entry a CANCEL has ended, with the columns of ``MEMORY_SCHEMA``.
        counts: How much each outcome rises.
        far: All far rows, cached; to be released when the others have been read.
    """

    entries: DataFrame
    ended: DataFrame
    counts: Mapping[str, int]
    far: DataFrame

    @property
    def gone(self) -> int:
        """Number of entries that have ended."""
        return sum(self.counts.get(outcome, 0) for outcome in _OUTCOME_OF.values())


def settle(work: PendingWork, heads: Sequence[Mapping[str, Any]], shards: int, memory: DataFrame) -> Settled:
    """Settles the store of a job at rest.

    Args:
        work: The job.
        heads: The scalars of each shard's state.
        shards: Number of shards.
        memory: What the shards remember, ``MEMORY_SCHEMA``.

    Raises:
        TransferError: The wheel has not read all of the store, or its count of far entries is another.
    """
    store = work.store
    assert store is not None, "tiered mode"
    version, clock_ms = read_to(work.query)
    _require_read(store, version)
    far, others = _far_and_others(store)
    _require_told(store, far, heads)
    found = verdicts(far, lambda _: others)
    gone = no_verdicts(far) if found is None else found
    counts = _ends(gone, heads, shards)
    left = far.join(F.broadcast(gone.select("uid")), "uid", "left_anti") if counts else far
    late = _known_ended(left, memory, clock_ms)
    revived = late.count()
    if revived:
        counts["superseded"] += revived
        left = left.join(F.broadcast(late), "uid", "left_anti")
    return Settled(_entries(left), _ended(gone, clock_ms), counts, far)


def _require_read(store: SlotStore, version: int) -> None:
    unread = store.near_rows_since(version)
    if unread:
        raise TransferError(
            "the wheel has not read all rows of the store",
            field=store.path,
            value=f"{unread} rows",
            hint=FINISH,
        )


def _require_told(store: SlotStore, far: DataFrame, heads: Sequence[Mapping[str, Any]]) -> None:
    there, counted = far.count(), sum(head["far"] for head in heads)
    if there != counted:
        raise TransferError(
            "the store lacks far entries that the wheel counts",
            field=store.path,
            value=f"{there} far entries",
            rule=f"{counted}",
            hint="another writer has changed the store: restore it from a copy",
        )


def _ends(gone: DataFrame, heads: Sequence[Mapping[str, Any]], shards: int) -> Counter[str]:
    """Counts the ends as the shards would; empty if nothing has ended."""
    keys = shard_keys(shards)
    waiting = {keys.index(head["key"]): int(head["waiting"]) for head in heads}
    shard = shard_of_id(F.col("schedule_id"), shards).alias("shard")
    counts: Counter[str] = Counter()
    for row in gone.groupBy(shard, "act").count().collect():
        counts[_OUTCOME_OF[row["act"]]] += row["count"]
        if row["act"] == GONE_CANCELLED:
            met = min(row["count"], max(waiting.get(row["shard"], 0), 0))
            counts.update(applied=met, waiting=-met)
    return counts


def _known_ended(far: DataFrame, memory: DataFrame, clock_ms: int | None) -> DataFrame:
    """The far entries of which the wheel remembers the end, at their due time, ahead of the clock."""
    known = memory.where(
        F.col("status").isin(ENDED, FIRED)
        & (op_of(F.col("rank")) == CANCEL)
        & (F.col("ended_at_ms") > F.lit(clock_ms))
    ).select(
        "schedule_id",
        "seq",
        amend_of(F.col("rank")).alias("amend"),
        F.col("ended_at_ms").alias("deliver_at_ms"),
    )
    keys = ["schedule_id", "seq", "amend", "deliver_at_ms"]
    return far.join(F.broadcast(known), keys, "left_semi").select("uid")


def _far_and_others(store: SlotStore) -> tuple[DataFrame, DataFrame]:
    head = store.head()
    rows = store.rows(version=head.version)
    is_far = is_far_column(F.col("level"))
    if head.cursor_ms is not None:
        # Leaves out what was handed over and is not dropped yet.
        is_far &= F.col("deliver_at_ms") >= head.cursor_ms
    far = rows.where(is_far).withColumn("uid", F.monotonically_increasing_id()).persist()
    near = rows.where(~is_far_column(F.col("level"))).withColumn(FILE, F.col("_metadata.file_name"))
    return far, with_version(near)


def _entries(rows: DataFrame) -> DataFrame:
    # A store has no entries that are held back.
    return filled(rows, from_arrow_schema(ENTRY_SCHEMA), {"amend": F.coalesce("amend", F.lit(0))})


def _ended(gone: DataFrame, clock_ms: int | None) -> DataFrame:
    columns = {
        "schedule_id": F.col("schedule_id"),
        "seq": F.col("seq"),
        "rank": rank_of(F.col("amend"), F.col("op")),
        "status": F.lit(ENDED).cast("byte"),
        "deliver_at_ms": F.lit(None).cast("long"),
        "ended_at_ms": F.lit(clock_ms).cast("long"),
    }
    cancelled = gone.where(F.col("act") == GONE_CANCELLED)
    return cancelled.select(*(columns[name].alias(name) for name in MEMORY_SCHEMA.names))
