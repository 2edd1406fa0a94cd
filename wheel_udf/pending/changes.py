"""What an act makes of the entries that it selects: a row with a higher version for each.

The due time of a row, by act::

    cancel               none
    reroute              as it is; a paused series stays paused
    move, fire-now       the given time; the nominal time of a series' occurrence stays
    skip                 none: the wheel finds the next occurrence
    pause                PAUSED_MS, which the clock never reaches; the nominal time stays
    resume               the nominal time and the spread

A row also says which occurrence was selected: once a series has gone on, an act on the occurrence before comes too
late. A pause is of the series, whichever occurrence it waits for by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import DateType, NullType, StringType, TimestampNTZType, TimestampType

from wheel_udf.common.errors import ActError
from wheel_udf.pending.entries import ENTRY_ID
from wheel_udf.shard.rows import CANCEL, PAUSED_MS, SCHEDULE

SERIES: str = "repeat IS NOT NULL AND NOT paused"
"""Selects series that are not paused."""

_TIMES = (TimestampType, TimestampNTZType, DateType, StringType, NullType)
"""What is read as a due time; a null is refused by its entry."""

Due = Literal["none", "kept", "given", "skips", "pauses", "resumes"]


@dataclass(frozen=True)
class Change:
    """The change of an act.

    Attributes:
        act: Its name.
        change: What is changed, for the record.
        of: SQL of the entries that it can change.
        due: What becomes of the due time.
        to: SQL of the given due time.
        destination: The new destination; None for the old one.
    """

    act: str
    change: str
    of: str = "true"
    due: Due = "kept"
    to: str | None = None
    destination: str | None = None

    @property
    def op(self) -> int:
        """SCHEDULE or CANCEL."""
        return CANCEL if self.due == "none" else SCHEDULE

    def commands(self, rows: DataFrame, clock_ms: int | None) -> DataFrame:
        """Turns selected entries into commands of version ``amend``, made at a clock (None: not recorded).

        Raises:
            ActError: The given due time is of a type that has no time in it.
            PySparkException: It is no SQL over the entries.
        """
        if self.to is not None:
            self._require_time(rows, self.to)
        entry = self.op == SCHEDULE
        keeps_level = F.lit(self.due == "kept")
        error_ms = F.unix_millis("scheduled_at") - F.unix_millis("deliver_at")
        destination = F.col("destination") if self.destination is None else F.lit(self.destination)
        nothing = F.lit(None)
        payload = ("key", "value", "headers", "max_lateness_ms")
        carried = {name: F.when(F.lit(entry), F.col(name)) for name in payload}
        columns = {
            "schedule_id": F.col(ENTRY_ID),
            "op": F.lit(self.op).cast("byte"),
            "seq": F.col("seq"),
            "seq_given": F.lit(True),
            "amend": F.coalesce("amend", F.lit(0)) + int(entry),
            "was_due_ms": F.when(F.lit(entry), F.unix_millis("scheduled_at")),
            "deliver_at_ms": self._due_ms().cast("long"),
            "delay_level_ms": F.when(keeps_level, F.col("delay_level_ms")),
            # Null without a level; with a level the error may be 0.
            "level_error_ms": F.when(keeps_level & F.col("delay_level_ms").isNotNull(), error_ms),
            "occurrence": F.when(F.lit(entry and self.due != "pauses"), F.col("occurrence")),
            "repeat": F.when(F.lit(entry), F.col("repeat")),
            "destination": destination if entry else nothing.cast("string"),
            "source": F.col("source"),
            **carried,
            **{name: nothing.cast("string") for name in ("error_code", "error_message", "record")},
            "event_time_ms": F.lit(clock_ms).cast("long"),
        }
        if entry:
            # Of a series that the wheel has not read yet, nobody knows the occurrence.
            rows = rows.where("repeat IS NULL OR occurrence IS NOT NULL")
        return rows.where(self.of).select(*(column.alias(name) for name, column in columns.items()))

    def _require_time(self, rows: DataFrame, to: str) -> None:
        """Refuses numbers: Spark reads 2026-12-01 without quotes as 2013 seconds after 1970."""
        kind = rows.select(F.expr(to)).schema[0].dataType
        if not isinstance(kind, _TIMES):
            raise ActError(
                f"the new due time is no time but of the type {kind.simpleString()}",
                field="to",
                value=to,
                rule="SQL of a timestamp",
                hint="a time stands in quotes: '2026-12-01 10:00:00'; UTC epoch ms are timestamp_millis(...)",
            )

    def _due_ms(self) -> Column:
        match self.due:
            case "given":
                return F.unix_millis(F.expr(self.to or "").cast("timestamp"))
            case "kept":
                return F.when(F.col("paused"), F.lit(PAUSED_MS)).otherwise(F.unix_millis("scheduled_at"))
            case "pauses":
                return F.lit(PAUSED_MS)
            case "resumes":
                return F.unix_millis("deliver_at") + F.coalesce("spread_ms", F.lit(0))
            case _:
                return F.lit(None)


def as_stored(added: DataFrame, clock_ms: int) -> DataFrame:
    """Turns rows that add entries, with their payload, into commands for a slot store, made at a clock."""
    nothing = {"was_due_ms": "long", "repeat": "string", "error_code": "string", "error_message": "string"}
    more = {name: F.lit(None).cast(kind) for name, kind in (nothing | {"record": "string"}).items()}
    more |= {
        "op": F.lit(SCHEDULE).cast("byte"),
        "seq_given": F.lit(True),
        "event_time_ms": F.lit(clock_ms).cast("long"),
    }
    return added.withColumns(more)
