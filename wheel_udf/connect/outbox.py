"""``to_outbox``: one run of a frame of ``schedule``, into one Delta table.

::

    run: takes the commands that are there; its first batch has a clock row for every shard
         then, while something is due that it has not released: another one          to_outbox
    outbox: kind = fired | missed | rejected | status, as in the frame itself

A client of Spark Connect cannot post what the shards report, so the clock source ticks once in a run, in its first
batch. What falls due later in the run is for the next run. Two cases need a second run at once: with the event clock,
the commands of a run move the clock only after it; with a `limit` or a rate, a batch leaves a backlog. The status rows
of the outbox say so.

The outbox keeps the facts about the frame (metadata of its column ``kind``), so ``fired(spark.table(outbox))``,
``rejects`` and ``status`` work on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import CheckpointError, ConfigError, ConfigErrors, WheelError
from wheel_udf.connect.tables import (
    TableName,
    checkpoint_fault,
    name_fault,
    open_written,
    table_name,
)
from wheel_udf.control.reports import earliest_due_ms, is_due, watermark_ms
from wheel_udf.shard.formats import FORMAT_VERSION
from wheel_udf.stream.frame_facts import FrameFacts, facts_of
from wheel_udf.stream.status_row import WheelStatus

STATISTICS: Final = "delta.dataSkippingStatsColumns"
_LOOKED_UP_BY: Final = {STATISTICS: "kind,schedule_id,destination,fired_at"}


@dataclass(frozen=True, kw_only=True)
class OutboxReport:
    """The state of the scheduler after a run.

    Attributes:
        runs: How often the query was started; more than once if a run left something due.
        pending: Entries that wait.
        next_due: When the first of them is due, UTC; None if nothing waits.
        fired: Rows that were released since the checkpoint began.
        missed: Likewise, rows later than their ``max_lateness``.
        rejected: Likewise, commands that cannot be used.
    """

    runs: int
    pending: int
    next_due: datetime | None
    fired: int
    missed: int
    rejected: int


def to_outbox(scheduled: DataFrame, *, table: str, checkpoint: str, name: str = "wheel") -> OutboxReport:
    """Runs a frame of ``schedule`` over what is there, into the outbox, and returns when it is done.

    The platform's own schedule starts the next run. So an entry leaves in the first run after its due time: its
    lateness is at most the period of the runs, plus the time that a run takes. One run at a time.

    Args:
        scheduled: The frame of :func:`~wheel_udf.schedule`.
        table: The outbox, made at the first run: ``table``, ``schema.table`` or ``catalog.schema.table``.
        checkpoint: Folder of the query's progress and state, on the server's side; it belongs to this outbox.
        name: Name of the query.

    Returns:
        What waits, and what was done.

    Raises:
        ConfigErrors: Settings are wrong; all are reported.
        ContractError: `scheduled` was not made by ``schedule()``.
        GeometryChangedError: The outbox was begun with another geometry, shard count, clock or checkpoint.
        CheckpointError: The outbox or its checkpoint is missing, or belongs to something else.
    """
    facts = facts_of(scheduled)
    faults: list[WheelError | None] = [name_fault("table", table), checkpoint_fault(checkpoint)]
    faults += _faults_of(facts)
    if found := [each for each in faults if each is not None]:
        raise ConfigErrors(found)
    spark, folder = scheduled.sparkSession, checkpoint.rstrip("/")
    outbox = table_name(spark, table)
    identity = {
        "state": str(FORMAT_VERSION),
        "wheel": facts.wheel,
        "shards": str(facts.shards),
        "clock": facts.clock,
        "repeats": "yes" if facts.repeats else "no",
    }
    query_id = open_written(spark, outbox, scheduled.schema, folder, identity, _LOOKED_UP_BY)
    last = {} if query_id is None else _last_of_shards(spark, outbox)
    _require_own(outbox, folder, query_id, last)
    runs = 0
    while True:
        before = last
        query = (
            scheduled.writeStream.format("delta")
            .queryName(name)
            .outputMode("append")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .toTable(outbox.quoted)
        )
        query.awaitTermination()
        runs += 1
        last = _last_of_shards(spark, outbox)
        if not _needs_another(before, last):
            return _report(runs, last)


def _faults_of(facts: FrameFacts) -> list[WheelError | None]:
    asked = {
        "scheduled": facts.is_purgatory,
        "punctual": facts.punctual is not None,
        "retries": bool(facts.retries),
        "mode": facts.stored,
    }
    what = {
        "scheduled": "an outbox takes firings, not the outcomes of watch()",
        "punctual": "an outbox has no sender",
        "retries": "from an outbox nothing comes back to the wheel",
        "mode": "an outbox has no slot store",
    }
    return [
        ConfigError(what[field], field=field, rule="a frame of schedule() without it") if is_asked else None
        for field, is_asked in asked.items()
    ]


def _last_of_shards(spark: SparkSession, outbox: TableName) -> dict[int, WheelStatus]:
    """The last status of each shard."""
    rows = spark.table(outbox.quoted).where("kind = 'status'").select("status")
    of = {name: F.get_json_object("status", f"$.{name}").cast("bigint") for name in ("shard", "batch_id")}
    last = rows.groupBy(of["shard"].alias("shard")).agg(F.max_by("status", of["batch_id"]).alias("status"))
    return {row.shard: WheelStatus.from_json(row.status) for row in last.collect()}


def _require_own(
    outbox: TableName, checkpoint: str, query_id: str | None, last: dict[int, WheelStatus]
) -> None:
    """Refuses a checkpoint that was put in place of the one that has written the outbox."""
    found = {each.query_id for each in last.values()}
    if found - {query_id}:
        raise CheckpointError(
            "the outbox has rows of another query than that of its checkpoint",
            field=checkpoint,
            value=query_id,
            rule=f"the checkpoint of {outbox.plain}: {', '.join(sorted(found))}",
            hint="restore the folder from a copy",
        )


def _needs_another(before: dict[int, WheelStatus], last: dict[int, WheelStatus]) -> bool:
    """Whether a run has left something due, and got on."""
    done, released = (sum(_released(each) for each in some.values()) for some in (before, last))
    reports = {shard: each.report() for shard, each in last.items()}
    moved = watermark_ms(reports) != watermark_ms({shard: each.report() for shard, each in before.items()})
    return is_due(reports, watermark_ms(reports)) and (released > done or moved)


def _released(status: WheelStatus) -> int:
    return sum(status.counts[name] for name in ("fired", "missed", "occurrences_fired", "occurrences_missed"))


def _report(runs: int, last: dict[int, WheelStatus]) -> OutboxReport:
    due_ms = earliest_due_ms({shard: each.report() for shard, each in last.items()})
    counts = {
        name: sum(each.counts[name] for each in last.values()) for name in ("fired", "missed", "rejected")
    }
    return OutboxReport(
        runs=runs,
        pending=sum(each.pending for each in last.values()),
        next_due=None if due_ms is None else datetime.fromtimestamp(due_ms / 1_000, UTC),
        **counts,
    )
