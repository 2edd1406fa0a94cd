"""Cancels, moves, reroutes, fires and skips pending entries, pauses and resumes series, by id or by predicate; from any
process, whether the job runs or rests.

An act adds rows and changes none. Each selected entry gets a row with a higher version, ``(seq, amend)`` with the same
``seq``, and the wheel handles that row like a command of a producer::

    act       rows added                               counted by the wheel       if the entry has fired meanwhile
    cancel    CANCEL (seq, amend), near                cancelled and applied      late
    move      SCHEDULE (seq, amend + 1), new due time  the old entry superseded   the new one superseded
    reroute   SCHEDULE (seq, amend + 1), new           the same                   the same
              destination
    fire-now  SCHEDULE (seq, amend + 1), due at the    the same                   the same
              clock
    skip      SCHEDULE (seq, amend + 1), the next      skipped                    the same
              occurrence of a series
    pause     SCHEDULE (seq, amend + 1), due never     the old entry superseded   the same, if the series has ended
    resume    SCHEDULE (seq, amend + 1), due at the    the same                   the same
              nominal time again
    backfill  SCHEDULE of other ids, see               pending
              :mod:`~wheel_udf.pending.backfill`

A paused series keeps its nominal time, from which it goes on: the occurrences of a pause are missed ones, as after an
outage (:mod:`wheel_udf.policies.series`).

In the tiered mode a series that the wheel has not read yet (``occurrence`` is null) can be cancelled and not changed.

Delay levels: a moved entry is due at the given time, to the millisecond and without a level; a rerouted entry keeps
its level.

A later command of the producer with a higher ``seq`` still wins over an act.

An act is a file of the checkpoint (:mod:`wheel_udf.pending.audit`), whose rows a running job takes within a second or
two, a job at rest with its next start, before anything fires (:mod:`wheel_udf.pending.acts_on_state`,
:mod:`wheel_udf.pending.acts_on_store`); what is pending shows it at once.

An act obeys the contract of the job if :class:`PendingWork` has it: a reroute goes to an allowed destination only, and
a move to at most ``max_delay`` after the clock (of the store or the state; after the wall clock if there is none).

Predicates are SQL over :data:`~wheel_udf.pending.entries.PENDING_COLUMNS`; Spark parses them as one boolean expression
per row.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.checkpoint.identity import identity_of
from wheel_udf.commands.contract import shortened
from wheel_udf.common.command_facts import FIRST_DUE, FIRST_DUE_MS
from wheel_udf.common.errors import ActError
from wheel_udf.common.instants import MAX_INSTANT_MS, instant_text_ms
from wheel_udf.common.names import NAME_RULE, AllowList, is_destination_name
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.pending.acts_on_state import keep_by_shard, state_clock_ms
from wheel_udf.pending.acts_on_store import keep_rows
from wheel_udf.pending.audit import audit, record_act
from wheel_udf.pending.backfill import backfill
from wheel_udf.pending.changes import SERIES, Change
from wheel_udf.pending.entries import PendingWork, entries
from wheel_udf.pending.operations import operations_pending
from wheel_udf.pending.picked import Picked, require_utf8
from wheel_udf.shard.rows import CANCEL
from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.spark.failures import first_line

__all__ = [
    "DONE",
    "PLAIN",
    "Picked",
    "audit",
    "backfill",
    "cancel",
    "fire_now",
    "move",
    "pause",
    "reroute",
    "resume",
    "skip",
]


def cancel(spark: SparkSession, work: PendingWork, picked: Picked, *, dry_run: bool = False) -> int:
    """Cancels pending entries.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        dry_run: Count the entries and change nothing.

    Returns:
        The number of selected pending entries.

    Raises:
        ActError: The predicate cannot be used, the change is out of bounds, or too many conflicting acts.
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    return _act(spark, work, picked, Change("cancel", "", due="none"), dry_run=dry_run)


def move(spark: SparkSession, work: PendingWork, picked: Picked, *, to: str, dry_run: bool = False) -> int:
    """Changes the due time of pending entries; otherwise as :func:`cancel`. Paused series are not selected.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        to: SQL of a timestamp over the same columns, for example ``timestamp'2026-01-01 10:00:00'``, ``deliver_at +
            interval 1 hour``.
        dry_run: Count the entries and change nothing.
    """
    return _act(
        spark, work, picked, Change("move", f"to {to}", of="NOT paused", due="given", to=to), dry_run=dry_run
    )


def reroute(spark: SparkSession, work: PendingWork, picked: Picked, *, to: str, dry_run: bool = False) -> int:
    """Changes the destination of pending entries; otherwise as :func:`cancel`.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        to: Name of the new destination.
        dry_run: Count the entries and change nothing.
    """
    if not is_destination_name(to):
        raise ActError("not a destination's name", field="to", value=to, rule=NAME_RULE)
    allowed = None if work.contract is None else work.contract.destinations
    if allowed is not None and AllowList(allowed).first(to) is None:
        rule = f"one of {shortened(allowed)}"
        raise ActError("not an allowed destination", field="to", value=to, rule=rule)
    return _act(spark, work, picked, Change("reroute", f"to {to}", destination=to), dry_run=dry_run)


def skip(spark: SparkSession, work: PendingWork, picked: Picked, *, dry_run: bool = False) -> int:
    """Leaves out the next occurrence of pending series; otherwise as :func:`cancel`. Other entries, and paused series,
    are not selected.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        dry_run: Count the series and change nothing.
    """
    change = Change("skip", "the next occurrence", of=SERIES, due="skips")
    return _act(spark, work, picked, change, dry_run=dry_run)


def pause(spark: SparkSession, work: PendingWork, picked: Picked, *, dry_run: bool = False) -> int:
    """Pauses pending series: no occurrence is released until :func:`resume`; otherwise as :func:`skip`.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        dry_run: Count the series and change nothing.
    """
    return _act(spark, work, picked, Change("pause", "", of=SERIES, due="pauses"), dry_run=dry_run)


def resume(spark: SparkSession, work: PendingWork, picked: Picked, *, dry_run: bool = False) -> int:
    """Lets paused series go on; otherwise as :func:`skip`. What came meanwhile is missed (``on_missed``), up to
    ``until``.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection; series that are not paused are not selected.
        dry_run: Count the series and change nothing.
    """
    change = Change("resume", "", of="paused", due="resumes")
    return _act(spark, work, picked, change, dry_run=dry_run)


def fire_now(spark: SparkSession, work: PendingWork, picked: Picked, *, dry_run: bool = False) -> int:
    """Releases pending entries with the next batch: moves them to the clock; otherwise as :func:`cancel`. Of a series
    that is the next occurrence, and it goes on with the one after it. Paused series are not selected.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        dry_run: Count the entries and change nothing.
    """
    clock = f"timestamp_millis({store_clock_ms(spark, work)})"
    change = Change("fire-now", "", of="NOT paused", due="given", to=clock)
    return _act(spark, work, picked, change, dry_run=dry_run)


PLAIN: Final = MappingProxyType(
    {"cancel": cancel, "fire-now": fire_now, "skip": skip, "pause": pause, "resume": resume}
)
"""Acts that need a selection and nothing else."""

DONE: Final = MappingProxyType(
    {
        "cancel": "cancelled",
        "move": "moved",
        "reroute": "rerouted",
        "fire-now": "fired",
        "skip": "skipped an occurrence of",
        "pause": "paused",
        "resume": "resumed",
        "backfill": "added",
        "redrive": "sent again",
    }
)
"""The words for each act when it is done."""


def _act(spark: SparkSession, work: PendingWork, picked: Picked, change: Change, *, dry_run: bool) -> int:
    require_jvm(spark, "an act on pending entries")
    require_utf8("to", change.to)
    purgatory = work.store is None and identity_of(work.query).mode == "purgatory"
    if purgatory and change.op != CANCEL:
        rule, hint = "cancel", "cancel it, and send a new one"
        raise ActError("an operation cannot be changed", field="act", value=change.act, rule=rule, hint=hint)

    def chosen() -> DataFrame:
        return _operations(spark, work, picked) if purgatory else _chosen(spark, work, picked, change)

    count = partial(_checked_count, spark, work, change.to)
    if dry_run:
        return count(chosen())
    keep = keep_by_shard if work.store is None else keep_rows
    about = {"act": change.act, "picked": str(picked), "change": change.change}
    return record_act(work.query, lambda: keep(work.query, chosen(), count), **about)


def _operations(spark: SparkSession, work: PendingWork, picked: Picked) -> DataFrame:
    """The selected operations of a purgatory, to be cancelled as by an event CANCEL_OPERATION."""
    # Of an operation at rest there is no time: it is cancelled as of the clock.
    event_time_ms = F.coalesce(F.unix_millis("event_time"), F.lit(FIRST_DUE_MS))
    rows = picked.of(operations_pending(spark, work.query), "op_id")
    return rows.select("group", "op_id", event_time_ms.alias("event_time_ms"))


def _chosen(spark: SparkSession, work: PendingWork, picked: Picked, change: Change) -> DataFrame:
    """The selected entries as changed commands."""
    clock_ms = None if work.store is None else store_clock_ms(spark, work)
    rows = picked.of(entries(spark, work, ids=picked.ids).where("place <> 'sender'"))
    try:
        return change.commands(rows, clock_ms)
    except PySparkException as fault:
        what = f"the new due time cannot be used ({first_line(str(fault))})"
        raise ActError(what, field="to", value=change.to, rule="SQL of a timestamp") from None


def store_clock_ms(spark: SparkSession, work: PendingWork) -> int:
    """The clock of a store or a state; the wall clock if it has none."""
    if work.store is None:
        return state_clock_ms(spark, work.query)
    clock_ms = work.store.head().clock_ms
    return wall_clock_ms() if clock_ms is None else clock_ms


def _checked_count(spark: SparkSession, work: PendingWork, due: str | None, chosen: DataFrame) -> int:
    """Counts the selected entries. Refuses new due times that are out of range, if the act changes any."""
    if due is None:
        return chosen.count()
    ms = F.col("deliver_at_ms")
    count, without, first_ms, last_ms = chosen.agg(
        F.count(F.lit(1)), F.count_if(ms.isNull()), F.min(ms), F.max(ms)
    ).collect()[0]
    if without:
        raise ActError("the new due time is NULL", field="to", value=due, rule="a timestamp for each entry")
    if first_ms is not None and not FIRST_DUE_MS <= first_ms <= last_ms <= MAX_INSTANT_MS:
        raise ActError(
            "the new due time is out of range", field="to", value=due, rule=f"not before {FIRST_DUE}"
        )
    most_ms = None if work.contract is None else work.contract.max_delay_ms
    if most_ms is None or last_ms is None:
        return int(count)
    latest_ms = store_clock_ms(spark, work) + most_ms
    if last_ms > latest_ms:
        raise ActError(
            "the new due time is too far in the future",
            field="to",
            value=f"{due}: up to {instant_text_ms(last_ms)}",
            rule=f"up to {instant_text_ms(latest_ms)} (contract.max_delay from now on)",
        )
    return int(count)
