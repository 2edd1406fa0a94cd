"""The way into the slot store: commands as they come, one commit for each batch.

::

    command                      rows of its commit                                             who reads them
    SCHEDULE due before cursor   level 0: the entry                                             the wheel, from the stream of level 0
    SCHEDULE due later           level k: the entry; level 0: FAR (id and version alone)        the cascade; the wheel
    the same, of a small batch   the inbox: the entry; level 0: FAR                             the keeper, which places it; the wheel
    CANCEL                       level 0                                                        the wheel, and the cascade's look at versions
    rejected                     level 0, with its reason                                       the wheel, which counts and delivers it

So whatever comes, the wheel hears of it in the same commit, and an entry in the store is told of by its version: it beats an older one that waits
in the wheel, and a CANCEL that comes later finds that something is known. Rows of one batch and the clock that follows from them are one
commit; a batch that Spark repeats is skipped by its transaction.

The inbox: files are what a commit costs (30 ms of CPU each), and a batch of a thousand commands over the whole horizon touches some fifty slots. So the far
entries of small batches go to one file, and many such files are placed at once, in one commit that changes no data (:meth:`wheel_udf.store_keeper.Keeper.tidy`),
or at the next hand-over if that comes first.

Cost: one Spark job a batch, whose rows go through one shuffle into files (see :mod:`wheel_udf.slot_store`). The largest event time, from which the
event clock is made, is read from the statistics of the files just written.

Caveats: the cursor by which rows are placed is the keeper's, under its lock, so no row is placed behind a hand-over that is under way.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wheel_udf.state import CANCEL, COMMAND, FAR
from wheel_udf.store_layout import INBOX, NEAR, StoreLayout
from wheel_udf.store_table import STORE_SCHEMA

_PAYLOAD = ("key", "value", "headers")
_LEVEL = ("delay_level_ms", "level_error_ms")
_REASON = ("error_code", "error_message", "record")


def id_hash(schedule_id: Column) -> Column:
    """What the versions of an id are first looked up by: 8 bytes instead of a text."""
    return F.xxhash64(schedule_id)


def stored_rows(
    parsed: DataFrame, layout: StoreLayout, *, cursor_ms: int, arrived: int, inbox: bool = False
) -> DataFrame:
    """The rows of the store for parsed commands.

    Args:
        parsed: What :func:`wheel_udf.commands.parse` made of a batch, with or without delay levels; a column ``amend`` may stand beside it.
        layout: Of the store.
        cursor_ms: By which they are placed.
        arrived: Number of the batch.
        inbox: Put far entries into the inbox instead of their slots.

    Returns:
        A frame of :data:`~wheel_udf.store_table.STORE_SCHEMA`: one row for each command, two for one that goes to a far level.
    """
    good = F.col("error_code").isNull()
    is_entry = good & (F.col("op") != CANCEL)
    # What has no due time lies with what is due last on the near side.
    due = F.when(is_entry, F.col("deliver_at_ms")).otherwise(F.lit(cursor_ms - 1))
    if inbox:
        placed = parsed.withColumn("_level", F.when(due < cursor_ms, NEAR).otherwise(INBOX))
        slot = F.when(due < cursor_ms, layout.slot_column(NEAR, due, cursor_ms)).otherwise(0)
    else:
        placed = parsed.withColumn("_level", layout.level_column(due, cursor_ms))
        slot = layout.slot_column(F.col("_level"), due, cursor_ms)
    placed = placed.withColumn("_slot", slot)
    twice = F.when(F.col("_level") != NEAR, F.array(F.lit(False), F.lit(True))).otherwise(
        F.array(F.lit(False))
    )
    placed = placed.withColumn("_told", F.explode(twice))
    told, here = F.col("_told"), ~F.col("_told")
    columns = {
        "level": F.when(told, NEAR).otherwise(F.col("_level")).cast("int"),
        "slot": F.when(told, layout.slot_of(NEAR, cursor_ms - 1, cursor_ms))
        .otherwise(F.col("_slot"))
        .cast("long"),
        "act": F.when(told, FAR).otherwise(COMMAND).cast("byte"),
        "schedule_id": F.col("schedule_id"),
        "id_hash": id_hash(F.col("schedule_id")),
        "seq": F.col("seq"),
        "amend": F.col("amend") if "amend" in parsed.columns else F.lit(0),
        "op": F.col("op"),
        "seq_given": F.col("seq_given"),
        "deliver_at_ms": F.col("deliver_at_ms"),
        # Of what goes to the store the level is told too: the wheel counts it.
        **{name: F.col(name) if name in parsed.columns else F.lit(None).cast("long") for name in _LEVEL},
        "max_lateness_ms": F.when(here, F.col("max_lateness_ms")),
        "destination": F.col("destination"),
        **{name: F.when(here, F.col(name)) for name in _PAYLOAD},
        "source": F.col("source"),
        "reject": F.when(~good, F.to_json(F.struct(*_REASON))),
        "event_time_ms": F.when(good & here, F.col("event_time_ms")),
        "arrived": F.lit(arrived).cast("long"),
    }
    return placed.select(*(columns[name].alias(name) for name in STORE_SCHEMA.names))
