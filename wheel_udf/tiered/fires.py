"""Brings near what a FIRE_NOW is for, in the files of a batch of the intake that no commit contains yet.

The wheel releases what a FIRE_NOW is for (:mod:`wheel_udf.wheel.fire_now`), if it has it. An entry in the store has to
come to the wheel first, in the commit of the FIRE_NOW. Of the versions of an id, with those of the batch, the highest
decides; if it is an entry in a far slot, up to the ``seq`` of the FIRE_NOW::

    it is            rows of the commit                                  then
    in the store     SCHEDULE (seq, amend + 1), near                     the one in the store is superseded, as after
                                                                         an act (wheel_udf.pending.acts)
    of this batch    near instead of its slot                            as if it was due by now
    anything else    as they are                                         the wheel has the entry, or nothing waits

An entry that comes near has the fire id that it had, so its ``first_amend`` is its amend before.

A row of the near side is not released before it is due, but for these: what is pending asks the wheel about the near
rows of ids with a FIRE_NOW (:mod:`wheel_udf.pending.in_store`).

Cost: of a batch without FIRE_NOW and RETRY, a look at the statistics of its files; of one with some FIRE_NOW, a pass
over the id hashes of the store, and a read of the files that have theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, functions as F

from wheel_udf.shard.rows import COMMAND, FAR, FIRE_NOW, SCHEDULE
from wheel_udf.store.layout import NEAR, is_far_column, is_handed_over_column
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.table import STORE_SCHEMA
from wheel_udf.store.versions import FILE, VERSION, fires_of, highest, with_version
from wheel_udf.tables.delta_files import stats_of
from wheel_udf.tables.delta_transaction import NewFiles
from wheel_udf.tiered.bad_rules import paths_of
from wheel_udf.tiered.rows import named

_ID: Final = ("id_hash", "schedule_id")


def with_fired(
    store: SlotStore, files: NewFiles, checked: DataFrame | None, *, cursor_ms: int, placing_ms: int
) -> DataFrame | None:
    """Returns the rows of a batch with what its FIRE_NOWs are for on the near side.

    Args:
        store: The store, without the batch.
        files: The new files with the batch.
        checked: The rows of the batch, if they are others than those of the files; None if they are not.
        cursor_ms: The cursor of the store.
        placing_ms: The cursor by which the rows are placed: a later one if a hand-over is being prepared.

    Returns:
        The rows; `checked` if there is nothing to bring near.
    """
    if not any(_may_have_fires(file) for file in files):
        return checked
    batch = store.rows_of_files(paths_of(files)) if checked is None else checked
    fires = fires_of(batch).localCheckpoint()
    if fires.isEmpty():
        return checked
    best = _best(store, batch, fires, cursor_ms).localCheckpoint()
    newest = store.layout.newest_near_slot(placing_ms)
    here = best.where("in_batch").select(*_ID, *VERSION).distinct().withColumn("is_near", F.lit(True))
    # The FAR row of an entry repeats its version.
    joined = batch.join(F.broadcast(here), [*_ID, *VERSION], "left").where(
        ~(F.col("is_near").isNotNull() & (F.col("act") == FAR))
    )
    placed = {"level": F.lit(NEAR).cast("int"), "slot": F.lit(newest).cast("long")}
    rows = joined.withColumns(
        {name: F.when(F.col("is_near"), value).otherwise(F.col(name)) for name, value in placed.items()}
    )
    brought = best.where("NOT in_batch").withColumns(
        {
            **placed,
            "act": F.lit(COMMAND).cast("byte"),
            "first_amend": F.col("amend"),
            "amend": F.col("amend") + 1,
            # It was in the store, so it cannot have fired (wheel_udf.wheel.late_acts).
            "seq_given": F.lit(True),
            # The clock has had its event time, with the batch that it came in.
            "event_time_ms": F.lit(None).cast("long"),
        }
    )
    names = STORE_SCHEMA.names
    return rows.select(*names).unionByName(brought.select(*names))


def _may_have_fires(file: Mapping[str, Any]) -> bool:
    # Without a figure it may.
    return int(stats_of(file).get("maxValues", {}).get("act", FIRE_NOW)) >= FIRE_NOW


def _best(store: SlotStore, batch: DataFrame, fires: DataFrame, cursor_ms: int) -> DataFrame:
    """Returns the entries in far slots that the FIRE_NOWs are for: rows with ``in_batch``."""
    ours, hashes = F.broadcast(fires), F.broadcast(fires.select("id_hash").distinct())
    files = store.contents().files
    # First the hashes alone: payloads are read from files with these ids only.
    met = named(store, files, None).select("id_hash", FILE).join(hashes, "id_hash", "left_semi")
    names = {row[0] for row in met.select(FILE).distinct().collect()}
    stored = named(store, files, names).where(~is_handed_over_column(cursor_ms))
    rows = _marked(stored, in_batch=False).unionByName(_marked(batch, in_batch=True))
    best = highest(with_version(rows).join(ours, list(_ID)))
    is_entry = (F.col("op") == SCHEDULE) & F.col("repeat").isNull() & is_far_column(F.col("level"))
    return best.where(is_entry & (F.col("seq") <= F.col("fire_seq"))).drop("fire_seq")


def _marked(rows: DataFrame, *, in_batch: bool) -> DataFrame:
    amend = F.coalesce("amend", F.lit(0))
    return rows.select(*STORE_SCHEMA.names).withColumns({"amend": amend, "in_batch": F.lit(in_batch)})
