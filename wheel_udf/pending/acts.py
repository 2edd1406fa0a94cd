"""Cancels, moves, reroutes and skips pending entries, by id or by predicate; from any process, whether the job runs or
rests.

An act adds rows and changes none. Each selected entry gets a row with a higher version, ``(seq, amend)`` with the same
``seq``, and the wheel handles that row like a command of a producer::

    act       rows added                               counted by the wheel       if the entry has fired meanwhile
    cancel    CANCEL (seq, amend), near                cancelled and applied      late
    move      SCHEDULE (seq, amend + 1), new due time  the old entry superseded   the new one superseded
    reroute   SCHEDULE (seq, amend + 1), new           the same                   the same
              destination
    skip      SCHEDULE (seq, amend + 1), the next      skipped                    the same
              occurrence of a series

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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

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
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.pending.operations import operations_pending
from wheel_udf.shard.rows import CANCEL, SCHEDULE
from wheel_udf.spark.failures import first_line

__all__ = ["Picked", "audit", "cancel", "move", "reroute", "skip"]


@dataclass(frozen=True)
class Picked:
    """Selects the pending entries of an act: by ids, by a predicate, or by both (entries that match both).

    Attributes:
        ids: Values of ``schedule_id``; None for any.
        where: SQL over :data:`~wheel_udf.pending.entries.PENDING_COLUMNS`; None for any.

    Raises:
        ActError: Neither is given, or one is not UTF-8. To select all entries, say ``where="true"``.
    """

    ids: Sequence[str] | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        if self.ids is None and self.where is None:
            raise ActError(
                "an act without ids and without a predicate",
                field="where",
                rule="at least one of ids and where",
                hint="where: true selects all pending entries",
            )
        for each in self.ids or ():
            require_utf8("id", each)
        require_utf8("where", self.where)

    def of(self, rows: DataFrame, id_column: str = "schedule_id") -> DataFrame:
        """Returns the selected rows of a table whose ids are in `id_column`.

        Raises:
            ActError: Spark cannot parse the predicate, or it is not a boolean expression over one row.
        """
        if self.ids is not None:
            rows = rows.where(F.col(id_column).isin(list(self.ids)))
        if self.where is None:
            return rows
        try:
            return rows.where(F.expr(self.where))
        except PySparkException as fault:
            raise ActError(
                f"this predicate cannot be used ({first_line(str(fault))})",
                field="where",
                value=self.where,
                rule=f"SQL over {', '.join(rows.columns)}",
            ) from None

    def __str__(self) -> str:
        parts = [] if self.ids is None else [f"schedule_id in {list(self.ids)!r}"]
        return " and ".join([*parts, *([] if self.where is None else [f"({self.where})"])])


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
    return _act(spark, work, picked, _Change("cancel", "", op=CANCEL), dry_run=dry_run)


def move(spark: SparkSession, work: PendingWork, picked: Picked, *, to: str, dry_run: bool = False) -> int:
    """Changes the due time of pending entries; otherwise as :func:`cancel`.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        to: SQL of a timestamp over the same columns, for example ``timestamp'2026-01-01 10:00:00'``, ``deliver_at +
            interval 1 hour``.
        dry_run: Count the entries and change nothing.
    """
    return _act(spark, work, picked, _Change("move", f"to {to}", due=to), dry_run=dry_run)


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
    return _act(spark, work, picked, _Change("reroute", f"to {to}", destination=to), dry_run=dry_run)


def skip(spark: SparkSession, work: PendingWork, picked: Picked, *, dry_run: bool = False) -> int:
    """Leaves out the next occurrence of pending series; otherwise as :func:`cancel`. Other entries are not selected.

    Args:
        spark: A session.
        work: Where the entries are.
        picked: The selection.
        dry_run: Count the series and change nothing.
    """
    return _act(spark, work, picked, _Change("skip", "the next occurrence", skips=True), dry_run=dry_run)


@dataclass(frozen=True)
class _Change:
    act: str
    change: str
    op: int = SCHEDULE
    due: str | None = None
    destination: str | None = None
    skips: bool = False

    def of(self, rows: DataFrame, clock_ms: int | None) -> DataFrame:
        """Turns selected entries into commands of version ``amend``, made at a clock (None: not recorded)."""
        entry = self.op == SCHEDULE
        if self.skips:
            rows = rows.where("repeat IS NOT NULL")
        if entry:
            rows = rows.where("repeat IS NULL OR occurrence IS NOT NULL")
        moved = self.due is not None
        due = F.expr(self.due).cast("timestamp") if self.due is not None else F.col("scheduled_at")
        keeps_level = F.lit(entry and not moved)
        error_ms = F.unix_millis("scheduled_at") - F.unix_millis("deliver_at")
        destination = F.col("destination") if self.destination is None else F.lit(self.destination)
        nothing = F.lit(None)
        payload = ("key", "value", "headers", "max_lateness_ms")
        carried = {name: F.when(F.lit(entry), F.col(name)) for name in payload}
        columns = {
            "schedule_id": F.col("schedule_id"),
            "op": F.lit(self.op).cast("byte"),
            "seq": F.col("seq"),
            "seq_given": F.lit(True),
            "amend": F.coalesce("amend", F.lit(0)) + int(entry),
            "was_due_ms": F.when(F.lit(entry), F.unix_millis("scheduled_at")),
            # The wheel finds the due time of what is skipped.
            "deliver_at_ms": F.unix_millis(due) if entry and not self.skips else nothing.cast("long"),
            "delay_level_ms": F.when(keeps_level, F.col("delay_level_ms")),
            # Null without a level; with a level the error may be 0.
            "level_error_ms": F.when(keeps_level & F.col("delay_level_ms").isNotNull(), error_ms),
            "occurrence": F.when(F.lit(entry), F.col("occurrence")),
            "repeat": F.when(F.lit(entry), F.col("repeat")),
            "destination": destination if entry else nothing.cast("string"),
            "source": F.col("source"),
            **carried,
            **{name: nothing.cast("string") for name in ("error_code", "error_message", "record")},
            "event_time_ms": F.lit(clock_ms).cast("long"),
        }
        return rows.select(*(column.alias(name) for name, column in columns.items()))


def require_utf8(field: str, text: str | None) -> None:
    """Refuses what a shell passes on for bytes that are not UTF-8: it cannot be sent to the JVM."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise ActError("not a text", field=field, value=text, rule="UTF-8") from None


def _act(spark: SparkSession, work: PendingWork, picked: Picked, change: _Change, *, dry_run: bool) -> int:
    require_utf8("to", change.due)
    purgatory = work.store is None and identity_of(work.query).mode == "purgatory"
    if purgatory and change.op != CANCEL:
        rule, hint = "cancel", "cancel it, and send a new one"
        raise ActError("an operation cannot be changed", field="act", value=change.act, rule=rule, hint=hint)

    def chosen() -> DataFrame:
        return _operations(spark, work, picked) if purgatory else _chosen(spark, work, picked, change)

    count = partial(_checked_count, spark, work, change.due)
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


def _chosen(spark: SparkSession, work: PendingWork, picked: Picked, change: _Change) -> DataFrame:
    """The selected entries as changed commands."""
    clock_ms = None if work.store is None else store_clock_ms(spark, work)
    rows = picked.of(pending(spark, work, ids=picked.ids).where("place <> 'sender'"))
    try:
        return change.of(rows, clock_ms)
    except PySparkException as fault:
        what = f"the new due time cannot be used ({first_line(str(fault))})"
        raise ActError(what, field="to", value=change.due, rule="SQL of a timestamp") from None


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
