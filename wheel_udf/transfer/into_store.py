"""Begins a new checkpoint of the tiered mode, with its slot store, from an export: :func:`import_tiered`.

::

    cursor = that of the new layout for the export's clock

    entry due before the cursor    near row of the store, and the state of its shard
    entry due later                its slot of the store; the state counts it as far
    series                         the state of its shard
    memory                         the state of its shard, and a mark in the store: an older far version that comes
                                   later loses against it
    acts                           the record of acts of the checkpoint

    store    one commit: all rows, cursor, clock; the stream of near rows begins after it
    wheel    batch 0: the states; its clock stands where the export's did
    intake   batch 0: the positions of the sources

A far entry from the direct mode gets a memory record of an entry in the store, as if it had just come.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.checkpoint.identity import TIERED_PARTS
from wheel_udf.common.progress import Step, no_steps
from wheel_udf.control.clocks import EventClock
from wheel_udf.shard.rows import COMMAND, FAR, SCHEDULE
from wheel_udf.store.intake import id_hash, stored_rows
from wheel_udf.store.layout import MARKS
from wheel_udf.store.lease import store_lease
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.seed_query import stand_ins
from wheel_udf.tables import delta_log
from wheel_udf.tiered.checks import open_identity, require_one_another, wheel_settings
from wheel_udf.tiered.rows import version_rows
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.transfer.content import ENTRIES, MEMORY
from wheel_udf.transfer.importing import (
    begin_checkpoint,
    beginning,
    copy_logs,
    run_first_batch,
    seed_state,
    table_of,
)
from wheel_udf.transfer.manifest import Manifest, read_manifest
from wheel_udf.transfer.ranks import amend_of, op_of, rank_of
from wheel_udf.transfer.seeds import seeds_of
from wheel_udf.wheel.known import IN_STORE

_MAY_BE_STORED: Final = "repeat IS NULL AND held_ms IS NULL AND attempt IS NULL"
"""SQL of the entries that can wait in a store: no series, and none that is held back."""


def import_tiered(
    spark: SparkSession,
    folder: str,
    what: TieredWheel,
    *,
    checkpoint: str,
    name: str = "wheel",
    positions: Sequence[Any] | None = None,
    on_step: Step = no_steps,
) -> Manifest:
    """Begins a checkpoint and a store of the tiered mode.

    Args:
        spark: A session, with the settings that the job will have.
        folder: The export, of a direct or a tiered job.
        what: Layout, store, clock and shards, as for :func:`~wheel_udf.tiered.start.start_tiered`; the store must be
            new.
        checkpoint: A new folder, or that of an unfinished import of the same export.
        name: As for ``start_tiered``.
        positions: As for :func:`~wheel_udf.transfer.importing.import_direct`.
        on_step: Called when a step begins.

    Returns:
        The manifest of the export.

    Raises:
        TransferError, LeaseError, CheckpointError, GeometryChangedError: As
            :func:`~wheel_udf.transfer.importing.import_direct`.
        StoreError: The store belongs to another job, or cannot be used.
    """
    manifest = read_manifest(folder, positions, purgatory=False)
    parts = [f"{checkpoint}/{part}" for part in TIERED_PARTS]
    store_lease(what.store).require_free()
    # Before the lease, which leaves a file: a store is created in an empty place only.
    SlotStore.open(spark, what.store, what.layout, create=True, keep_ms=what.keep_ms)
    with store_lease(what.store), beginning(manifest, folder, parts) as is_new:
        if is_new:
            _begin(spark, manifest, folder, what, checkpoint, name=name, on_step=on_step)
    return manifest


def _begin(
    spark: SparkSession,
    manifest: Manifest,
    folder: str,
    what: TieredWheel,
    checkpoint: str,
    *,
    name: str,
    on_step: Step,
) -> None:
    intake = open_identity(checkpoint, name, what, manifest.export_id)
    store = SlotStore.open(spark, what.store, what.layout, create=False)
    require_one_another(store, what.store, checkpoint, intake)
    entries, memory = table_of(spark, folder, ENTRIES), table_of(spark, folder, MEMORY)
    cursor_ms = None if manifest.clock_ms is None else what.layout.cursor_of(manifest.clock_ms)
    on_step("store", 1, 4)
    done = store.append(
        None if cursor_ms is None else _rows(store, entries, memory, cursor_ms),
        app_id=f"{intake.app_id}-import",
        batch_id=0,
        cursor_ms=cursor_ms,
        clock_ms=manifest.clock_ms if isinstance(what.clock, EventClock) else None,
    )
    on_step("acts", 2, 4)
    begin_checkpoint(manifest, folder, f"{checkpoint}/wheel", name, wheel_settings(what))
    on_step("state", 3, 4)
    is_far = (F.col("deliver_at_ms") >= F.lit(cursor_ms).cast("long")) & F.expr(_MAY_BE_STORED)
    far = entries.where(is_far)
    # Also of a tiered job: what was near there may be far here.
    memory = memory.unionByName(_known(far, manifest.clock_ms))
    seed_state(
        spark,
        manifest,
        folder,
        f"{checkpoint}/wheel",
        {ENTRIES: entries.where(~is_far), MEMORY: memory},
        wheel=what.wheel,
        seeds=seeds_of(manifest, what.shards, entries=entries, memory=memory, far=far),
        clock_position=_clock_position(manifest.clock_ms, done.version),
        positions=[delta_log.position_after(store.table_id, done.version)],
    )
    on_step("intake", 4, 4)
    copy_logs(manifest, folder, f"{checkpoint}/intake", first=0)
    with tempfile.TemporaryDirectory(prefix="wheel-import-") as empty:
        frames = stand_ins(spark, manifest.positions, empty)
        run_first_batch(reduce(DataFrame.unionByName, frames), f"{checkpoint}/intake", lambda *_: None)


def _clock_position(clock_ms: int | None, version: int) -> dict[str, Any]:
    instant = {} if clock_ms is None else {"instant_ms": clock_ms}
    return {"wheel_clock": 1, **instant, "version": version}


def _rows(store: SlotStore, entries: DataFrame, memory: DataFrame, cursor_ms: int) -> DataFrame:
    """The rows of the store: entries in their places, and marks of what is remembered."""
    nothing = F.lit(None)
    texts = {name: nothing.cast("string") for name in ("error_code", "error_message", "record")}
    commands = entries.where(_MAY_BE_STORED).withColumns(
        {
            "op": F.lit(SCHEDULE).cast("byte"),
            "seq_given": F.lit(True),
            "event_time_ms": nothing.cast("long"),
            **texts,
        }
    )
    placed = stored_rows(commands, store.layout, cursor_ms=cursor_ms, arrived=0)
    # The wheel has them in its state.
    placed = placed.where(F.col("act") != FAR)
    versions = memory.where(F.col("status") != IN_STORE).select(
        "schedule_id",
        id_hash(F.col("schedule_id")).alias("id_hash"),
        "seq",
        amend_of(F.col("rank")).alias("amend"),
        op_of(F.col("rank")).alias("op"),
    )
    marks = version_rows(
        versions.distinct(),
        level=MARKS,
        slot=store.layout.newest_near_slot(cursor_ms),
        act=F.lit(COMMAND),
    )
    return placed.unionByName(marks)


def _known(far: DataFrame, clock_ms: int | None) -> DataFrame:
    """Memory records of entries in the store."""
    return far.select(
        "schedule_id",
        "seq",
        rank_of(F.col("amend"), SCHEDULE).alias("rank"),
        F.lit(IN_STORE).cast("byte").alias("status"),
        F.lit(None).cast("long").alias("deliver_at_ms"),
        F.lit(clock_ms).cast("long").alias("ended_at_ms"),
    )
