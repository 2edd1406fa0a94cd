"""What an operator does to pending entries of a slot store: cancel, move, reroute, by id or by predicate; while the job runs, from any process.

An act adds rows and changes none: the entries that it picks get a higher version, ``(seq, amend)`` with the same ``seq``, and the wheel does
with it what it does with a producer's::

    act       rows added                                                     counted by the wheel
    cancel    CANCEL (seq, amend), near                                      cancelled and applied; late, if it has fired meanwhile
    move      SCHEDULE (seq, amend + 1), due at the new time, in its place   the old one superseded
    reroute   SCHEDULE (seq, amend + 1), to the new destination              the old one superseded

Delay levels: a moved entry is due when the act says, to the millisecond and without a level; a rerouted one keeps its level.

A later command of the producer, with a higher ``seq``, still wins over an act. One commit for each act, so it is done whole or not at all; rows are placed by
the cursor, and if a hand-over moves it meanwhile they are placed anew. What was picked is decided once, before the first try.

Each act is a row of the table ``_acts`` inside the store's folder: when, what, by whom, the predicate, how many.

Predicates are SQL over :data:`~wheel_udf.pending.PENDING_COLUMNS`, parsed by Spark as one expression that is true or false for a row.

Caveats: the direct mode has no table to write to; there a CANCEL or a REPLACE is a command like any other.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf.clock import wall_clock_ms
from wheel_udf.errors import ActError, StoreError, StoreMovedError
from wheel_udf.failures import first_line
from wheel_udf.pending import Wheel, pending
from wheel_udf.slot_store import CURSOR, Head, SlotStore
from wheel_udf.state import CANCEL, SCHEDULE
from wheel_udf.store_intake import stored_rows
from wheel_udf.tables import NAME_RULE, is_destination_name

AUDIT_SCHEMA = "at timestamp, act string, by string, picked string, change string, rows long, batch long"
_MOST_TRIES = 20


@dataclass(frozen=True)
class Picked:
    """Which pending entries an act is about: those with one of the ids, those for which the predicate is true, or both.

    Attributes:
        ids: Values of ``schedule_id``; None for any.
        where: SQL over :data:`~wheel_udf.pending.PENDING_COLUMNS`; None for any.

    Raises:
        ActError: Neither is given: all entries are picked by ``where="true"``, never by leaving it out.
    """

    ids: Sequence[str] | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        if self.ids is None and self.where is None:
            raise ActError(
                "an act without ids and without a predicate",
                field="where",
                rule="one of them at least",
                hint="for all that is pending: true",
            )

    def of(self, rows: DataFrame, id_column: str = "schedule_id") -> DataFrame:
        """The rows picked, of a table whose ids are in `id_column`.

        Raises:
            ActError: Spark cannot read the predicate, or it is not true or false of a row.
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


def cancel(spark: SparkSession, wheel: Wheel, picked: Picked, *, dry_run: bool = False) -> int:
    """Cancels pending entries.

    Args:
        spark: A session.
        wheel: Where they are; with a store.
        picked: Which.
        dry_run: Only count them.

    Returns:
        How many were pending and picked.

    Raises:
        ActError: No store, or a predicate that cannot be.
        StoreError: Others commit all the time.
    """
    return _act(spark, wheel, picked, _Change("cancel", "", op=CANCEL), dry_run=dry_run)


def move(spark: SparkSession, wheel: Wheel, picked: Picked, *, to: str, dry_run: bool = False) -> int:
    """Gives pending entries another due time; as :func:`cancel`.

    Args:
        spark: A session.
        wheel: Where they are; with a store.
        picked: Which.
        to: SQL of a timestamp over the same columns: ``timestamp'2026-01-01 10:00:00'``, ``deliver_at + interval 1 hour``.
        dry_run: Only count them.
    """
    return _act(spark, wheel, picked, _Change("move", f"to {to}", due=to), dry_run=dry_run)


def reroute(spark: SparkSession, wheel: Wheel, picked: Picked, *, to: str, dry_run: bool = False) -> int:
    """Gives pending entries another destination; as :func:`cancel`.

    Args:
        spark: A session.
        wheel: Where they are; with a store.
        picked: Which.
        to: The destination's name.
        dry_run: Only count them.
    """
    if not is_destination_name(to):
        raise ActError("not a destination's name", field="to", value=to, rule=NAME_RULE)
    return _act(spark, wheel, picked, _Change("reroute", f"to {to}", destination=to), dry_run=dry_run)


def audit(spark: SparkSession, store: SlotStore) -> DataFrame:
    """All acts on a store, a row each (:data:`AUDIT_SCHEMA`)."""
    try:
        return spark.read.format("delta").load(_audit_path(store))
    except PySparkException:
        return spark.createDataFrame([], AUDIT_SCHEMA)


@dataclass(frozen=True)
class _Change:
    act: str
    said: str
    op: int = SCHEDULE
    due: str | None = None
    destination: str | None = None

    def of(self, rows: DataFrame) -> DataFrame:
        """Picked entries as commands that have been parsed, with their ``amend``."""
        entry = self.op == SCHEDULE
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
            "deliver_at_ms": F.unix_millis(due) if entry else nothing.cast("long"),
            "delay_level_ms": F.when(keeps_level, F.col("delay_level_ms")),
            # Without a level there is no error, and with one it may be 0.
            "level_error_ms": F.when(keeps_level & F.col("delay_level_ms").isNotNull(), error_ms),
            "destination": destination if entry else nothing.cast("string"),
            "source": F.col("source"),
            **carried,
            **{name: nothing.cast("string") for name in ("error_code", "error_message", "record")},
            "event_time_ms": nothing.cast("long"),
        }
        return rows.select(*(column.alias(name) for name, column in columns.items()))


def _act(spark: SparkSession, wheel: Wheel, picked: Picked, change: _Change, *, dry_run: bool) -> int:
    store = wheel.store
    if store is None:
        raise ActError(
            "the direct mode has no table of what is pending to act on",
            field="mode",
            value="direct",
            rule="tiered",
            hint="send a CANCEL, or the id with a higher seq, as a command",
        )
    rows = picked.of(pending(spark, wheel, ids=picked.ids))
    try:
        chosen = change.of(rows).persist()
    except PySparkException as fault:
        what = f"this time cannot be used ({first_line(str(fault))})"
        raise ActError(what, field="to", value=change.due, rule="SQL of a timestamp") from None
    try:
        count = chosen.count()
        if change.op == SCHEDULE and not chosen.where("deliver_at_ms IS NULL").isEmpty():
            raise ActError(
                "a new due time that is none", field="to", value=change.due, rule="a timestamp for each entry"
            )
        if dry_run or not count:
            return count
        batch = _append(store, chosen)
    finally:
        chosen.unpersist()
    _note(spark, store, change, picked, count, batch)
    return count


def _append(store: SlotStore, chosen: DataFrame) -> int:
    for _ in range(_MOST_TRIES):
        head = store.head()
        ((app_id, last),) = head.last_act(_owner(store, head)).items()
        batch = 0 if last is None else last + 1
        assert head.cursor_ms is not None, "something is pending"
        rows = stored_rows(chosen, store.layout, cursor_ms=head.cursor_ms, arrived=0)
        try:
            if store.append(rows, app_id=app_id, batch_id=batch, expect={CURSOR: head.cursor_ms}).written:
                return batch
        except StoreMovedError:
            continue
    raise ActError(
        "hand-overs and other acts come all the time", field="tries", value=_MOST_TRIES, hint="once more"
    )


def _owner(store: SlotStore, head: Head) -> str:
    owners = sorted(head.owners)
    if len(owners) != 1:
        raise StoreError(
            "the slot store has more than one writer",
            field=store.path,
            value=", ".join(owners),
            rule="a store belongs to one checkpoint",
        )
    return owners[0]


def _note(
    spark: SparkSession, store: SlotStore, change: _Change, picked: Picked, count: int, batch: int
) -> None:
    at = datetime.fromtimestamp(wall_clock_ms() / 1_000, UTC)
    row = (at, change.act, getpass.getuser(), str(picked), change.said, count, batch)
    noted = spark.createDataFrame([row], AUDIT_SCHEMA).coalesce(1)
    noted.write.format("delta").mode("append").save(_audit_path(store))


def _audit_path(store: SlotStore) -> str:
    return f"{store.path}/_acts"
