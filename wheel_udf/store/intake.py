"""Intake: converts commands to rows of the slot store; one commit for each batch.

::

    command                      rows of its commit                                      read by
    SCHEDULE due before cursor   level 0: the entry                                      the wheel (stream of level 0)
    SCHEDULE due later           level k: the entry; level 0: FAR (id and version)       hand-overs; the wheel
    the same, of a small batch   the inbox: the entry; level 0: FAR                      the keeper (placing); the wheel
    CANCEL                       level 0                                                 the wheel; verdicts on versions
    series (``repeat``)          level 0, whatever its due time                          the wheel; verdicts on versions
    act on a series              level 0: ACTED, without payload                         the wheel
    RETRY                        level 0                                                 the wheel
    FIRE_NOW                     level 0; what it is for, too (wheel_udf.tiered.fires)   the wheel
    rejected                     level 0, with its reason                                the wheel (counts, delivers it)

So the wheel reads about every command in the commit of that command. The FAR row gives it the version of an entry in
the store: that version beats an older one that waits in the wheel, and a later CANCEL finds the id. The rows of a
batch and the clock that follows from them are one commit; a batch that Spark repeats is skipped by its transaction.

A series waits in the wheel alone: its occurrences are computed there. Its row here is needed for its version, as long
as any near row.

The inbox: the cost of a commit is mostly that of its files, and a batch of a thousand commands over the whole horizon
touches some fifty slots. So the far entries of small batches go to one file. Many such files are placed together, in
one commit that changes no data (:meth:`wheel_udf.tiered.keeper.Keeper.tidy`), or at the next hand-over if that comes
first.

Cost: one Spark job per batch, whose rows go through one shuffle into files (see :mod:`wheel_udf.store.slot_store`).
The largest event time, from which the event clock follows, is read from the statistics of the files just written.

Caveats: rows are placed by the keeper's cursor, under its lock, so that no row is placed into a slot that is being
handed over.
"""

from __future__ import annotations

from typing import Final

import xxhash
from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.commands.generated_code import of_batch
from wheel_udf.shard.rows import ACTED, COMMAND, FAILURE_COLUMNS, FAR, FIRE_NOW, FIRE_NOW_OP, RETRY, SCHEDULE
from wheel_udf.spark.frames import filled
from wheel_udf.store.layout import INBOX, NEAR, StoreLayout
from wheel_udf.store.table import STORE_SCHEMA

_PAYLOAD = ("key", "value", "headers")
_OF_RETRY = tuple(name for name in FAILURE_COLUMNS if name in STORE_SCHEMA.names)
_REASON = ("error_code", "error_message", "record")


_SEED: Final = 42  # of Spark's function


def id_hash(schedule_id: Column) -> Column:
    """Returns the hash by which versions of an id are looked up, 8 bytes: XXH64 of its UTF-8 octets."""
    return F.xxhash64(schedule_id)


def hash_of(schedule_id: str) -> int:
    """:func:`id_hash` of an id, without Spark."""
    number = xxhash.xxh64_intdigest(schedule_id.encode(), _SEED)
    return number - 2**64 if number >= 2**63 else number


def stored_rows(
    parsed: DataFrame,
    layout: StoreLayout,
    *,
    cursor_ms: int,
    arrived: int,
    inbox: bool = False,
    only_cancels: bool = False,
) -> DataFrame:
    """Converts parsed commands to rows of the store.

    Args:
        parsed: A batch as :func:`wheel_udf.commands.parse_commands` returns it, with or without delay levels. Rows of
            acts have two more columns: ``amend``, and ``was_due_ms``, the due time of the entry that a SCHEDULE
            changes: before the cursor, the wheel has that entry (:mod:`wheel_udf.wheel.late_acts`). It always has a
            series.
        layout: Layout of the store.
        cursor_ms: The cursor by which the rows are placed.
        arrived: Number of the batch.
        inbox: Put far entries into the inbox instead of their slots.
        only_cancels: All commands are CANCELs without an error, so that no row has to be placed or doubled.

    Returns:
        A frame of :data:`~wheel_udf.store.table.STORE_SCHEMA`: one row for each command, two for one that goes to a
        far level.
    """
    good = F.col("error_code").isNull()
    is_series = F.col("repeat").isNotNull() if "repeat" in parsed.columns else F.lit(False)
    has_acts = "act" in parsed.columns
    is_retry = F.coalesce(F.col("act") == RETRY, F.lit(False)) if has_acts else F.lit(False)
    amend = F.coalesce("amend", F.lit(0)) if "amend" in parsed.columns else F.lit(0)
    is_entry = good & (F.col("op") == SCHEDULE) & ~is_series & ~is_retry
    # Rows without a due time go to the newest near window.
    newest = layout.newest_near_slot(cursor_ms)
    if only_cancels:
        placed = parsed.withColumns(
            {"_level": F.lit(NEAR), "_slot": F.lit(newest).cast("long"), "_copy": F.lit(False)}
        )
    else:
        due = F.when(is_entry, F.col("deliver_at_ms")).otherwise(F.lit(cursor_ms - 1))
        placed = _doubled(_placed(parsed, layout, due, cursor_ms=cursor_ms, inbox=inbox))
    # Of producers only a RETRY has an amend.
    is_act = is_series & (amend > 0) & ~is_retry
    is_fire = F.coalesce(F.col("op"), F.lit(SCHEDULE)) == FIRE_NOW_OP
    act = F.when(far_copy := F.col("_copy"), FAR).when(is_act, ACTED).when(is_fire, FIRE_NOW)
    act = act.when(is_retry, RETRY) if has_acts else act
    here = ~far_copy & ~is_act
    columns = {
        "level": F.when(far_copy, NEAR).otherwise(F.col("_level")).cast("int"),
        "slot": F.when(far_copy, newest).otherwise(F.col("_slot")).cast("long"),
        "act": act.otherwise(COMMAND).cast("byte"),
        "id_hash": id_hash(F.col("schedule_id")),
        "amend": amend,
        "op": F.when(is_fire, SCHEDULE).otherwise(F.col("op")).cast("byte"),
        "seq_given": F.coalesce(F.col("was_due_ms") >= cursor_ms, F.col("seq_given"))
        if "was_due_ms" in parsed.columns
        else F.col("seq_given"),
        **{name: F.when(is_retry, F.col(name)) if has_acts else F.lit(None) for name in _OF_RETRY},
        "max_lateness_ms": F.when(here, F.col("max_lateness_ms")),
        **{name: F.when(here, F.col(name)) for name in _PAYLOAD},
        "reject": F.when(~good, F.to_json(F.struct(*_REASON))),
        "event_time_ms": F.when(good & here, F.col("event_time_ms")),
        "arrived": of_batch(F.lit(arrived).cast("long")),
    }
    return filled(placed, STORE_SCHEMA, columns)


def _placed(parsed: DataFrame, layout: StoreLayout, due: Column, *, cursor_ms: int, inbox: bool) -> DataFrame:
    """Adds the level and slot of each command."""
    if inbox:
        placed = parsed.withColumn("_level", F.when(due < cursor_ms, NEAR).otherwise(INBOX))
        slot = F.when(due < cursor_ms, layout.slot_column(NEAR, due, cursor_ms)).otherwise(0)
    else:
        placed = parsed.withColumn("_level", layout.level_column(due, cursor_ms))
        slot = layout.slot_column(F.col("_level"), due, cursor_ms)
    return placed.withColumn("_slot", slot)


def _doubled(placed: DataFrame) -> DataFrame:
    """Adds a second row for each command that goes to a far level: its FAR row."""
    once, twice = F.array(F.lit(False)), F.array(F.lit(False), F.lit(True))
    return placed.withColumn("_copy", F.explode(F.when(F.col("_level") != NEAR, twice).otherwise(once)))
