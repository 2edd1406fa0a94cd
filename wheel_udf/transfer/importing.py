"""Begins a new checkpoint from an export: :func:`import_direct`, :func:`import_watch`; the tiered mode:
:mod:`wheel_udf.transfer.into_store`.

::

    mark (not done) --> identity --> logs of sources --> batch 0 by the seed query --> pending and counts compared
                                                                                   --> mark (done)

Each step is idempotent, so an import that was killed is repeated. Until the last step a start is refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.checkpoint.chunk_place import chunks_of_tasks
from wheel_udf.checkpoint.identity import open_checkpoint
from wheel_udf.checkpoint.lease import Lease, holding
from wheel_udf.checkpoint.move_marks import import_mark, mark_import
from wheel_udf.checkpoint.spark_logs import last_planned, source_log, state_format, write_source_log
from wheel_udf.commands.delay_levels import fingerprint
from wheel_udf.common.errors import TransferError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.paths import as_pattern
from wheel_udf.common.progress import Step, no_steps
from wheel_udf.control.clocks import Clock
from wheel_udf.pending.audit import take_over
from wheel_udf.purgatory.state import KINDS, WATCH_STATE_COLUMNS, watch_fingerprint
from wheel_udf.shard.state import STATE_COLUMNS
from wheel_udf.spark.files import open_folder, parsed_json
from wheel_udf.spark.interrupts import at_end
from wheel_udf.spark.queries import ONCE, start_with, state_of_format
from wheel_udf.stream.seed_query import pack_by_shard, seeding, stand_ins
from wheel_udf.stream.seed_worker import watch_state, wheel_state
from wheel_udf.transfer.content import ACTS_FILE, ENTRIES, MEMORY, SCHEMAS
from wheel_udf.transfer.manifest import Manifest, read_manifest
from wheel_udf.transfer.seeds import seeds_of
from wheel_udf.wheel.known import IN_STORE
from wheel_udf.wheel.seed import Seed

FIRST_CLOCK: Final = {"wheel_clock": 0}
"""The position of a clock before its first tick."""


def import_direct(  # noqa: PLR0913  # what a checkpoint is begun with
    spark: SparkSession,
    folder: str,
    *,
    checkpoint: str,
    wheel: Wheel,
    clock: Clock,
    shards: int = 4,
    leveled: bool = False,
    name: str = "wheel",
    positions: Sequence[Any] | None = None,
    on_step: Step = no_steps,
) -> Manifest:
    """Begins a checkpoint of the direct mode.

    Args:
        spark: A session, with the settings that the job will have: the first batch fixes some of them.
        folder: The export, of a direct or a tiered job.
        checkpoint: A new folder, or that of an unfinished import of the same export.
        wheel: As for :func:`~wheel_udf.stream.schedule_operator.schedule`, like `clock` and `shards`.
        clock: Its kind is fixed by the import.
        shards: Number of shards.
        leveled: Whether the contract has delay levels.
        name: As for :func:`~wheel_udf.delivery.query.deliver`.
        positions: Where each source goes on, as in the manifest; None: where the old job stopped.
        on_step: Called when a step begins.

    Returns:
        The manifest of the export.

    Raises:
        TransferError: There is no such export, it is one of a purgatory, or the checkpoint is in use.
        LeaseError: The checkpoint is in use.
        CheckpointError: The checkpoint is damaged or foreign.
        GeometryChangedError: An unfinished import was begun with other settings.
    """
    manifest = read_manifest(folder, positions, purgatory=False)
    wheel_fingerprint = fingerprint(wheel.fingerprint(), leveled=leveled)
    identity = {"wheel_fingerprint": wheel_fingerprint, "shards": shards, "clock_kind": clock.kind}
    with beginning(manifest, folder, [checkpoint]) as is_new:
        if is_new:
            on_step("acts", 1, 2)
            begin_checkpoint(manifest, folder, checkpoint, name, identity)
            on_step("state", 2, 2)
            entries, memory = table_of(spark, folder, ENTRIES), table_of(spark, folder, MEMORY)
            # Here there is no store: an entry that was in one is in the state now.
            memory = memory.where(memory["status"] != IN_STORE)
            seeds = seeds_of(manifest, shards, entries=entries, memory=memory)
            tables = {ENTRIES: entries, MEMORY: memory}
            seed_state(spark, manifest, folder, checkpoint, tables, wheel=wheel, seeds=seeds)
    return manifest


def import_watch(  # noqa: PLR0913  # likewise
    spark: SparkSession,
    folder: str,
    *,
    checkpoint: str,
    wheel: Wheel,
    clock: Clock,
    shards: int = 4,
    name: str = "wheel",
    positions: Sequence[Any] | None = None,
    on_step: Step = no_steps,
) -> Manifest:
    """Begins a checkpoint of a purgatory; arguments, result and errors are those of :func:`import_direct`."""
    manifest = read_manifest(folder, positions, purgatory=True)
    wheel_fingerprint = watch_fingerprint(wheel.fingerprint())
    identity = {"wheel_fingerprint": wheel_fingerprint, "shards": shards, "clock_kind": clock.kind}
    with beginning(manifest, folder, [checkpoint]) as is_new:
        if is_new:
            on_step("acts", 1, 2)
            begin_checkpoint(manifest, folder, checkpoint, name, identity)
            on_step("state", 2, 2)
            tables = {kind: table_of(spark, folder, kind) for kind in KINDS}
            seeds = seeds_of(manifest, shards)
            seed_state(spark, manifest, folder, checkpoint, tables, wheel=wheel, seeds=seeds)
    return manifest


def seed_state(  # noqa: PLR0913  # what a state is made of
    spark: SparkSession,
    manifest: Manifest,
    folder: str,
    checkpoint: str,
    tables: Mapping[str, DataFrame],
    *,
    wheel: Wheel,
    seeds: Sequence[Seed],
    clock_position: Mapping[str, Any] = FIRST_CLOCK,
    positions: Sequence[Any] | None = None,
) -> None:
    """Runs the first batch of a query of ``schedule`` or ``watch``.

    Args:
        spark: A session.
        manifest: Of the export.
        folder: The export.
        checkpoint: Of the query.
        tables: What the state is to hold, by kind.
        wheel: The geometry.
        seeds: Of each shard.
        clock_position: Where the clock begins.
        positions: Where the other sources begin; None: at the positions of the export.
    """
    if positions is None:
        copy_logs(manifest, folder, checkpoint, first=1)
        positions = manifest.positions
    purgatory = manifest.mode == "purgatory"
    worker = watch_state if purgatory else wheel_state
    columns = WATCH_STATE_COLUMNS if purgatory else STATE_COLUMNS
    by = "group" if purgatory else "schedule_id"
    packed = [
        pack_by_shard(rows, kind, SCHEMAS[kind], by=by, shards=len(seeds)) for kind, rows in tables.items()
    ]
    with tempfile.TemporaryDirectory(prefix="wheel-import-") as empty:
        frame = seeding(
            reduce(DataFrame.unionByName, packed),
            worker,
            columns,
            wheel=wheel,
            seeds=seeds,
            clock_position=clock_position,
            others=stand_ins(spark, positions, empty),
        )
        run_first_batch(frame, checkpoint, expecting(manifest.pending))


# ---- steps ---------------------------------------------------------------------------------------


@contextmanager
def beginning(manifest: Manifest, folder: str, parts: Sequence[str]) -> Iterator[bool]:
    """Inside, the checkpoints are being imported: leases taken, marked. Yields False if the import is done already.

    Raises:
        TransferError: One of them holds something else.
    """
    with holding(map(Lease, parts)) as require_leases:
        marks = [import_mark(part) for part in parts]
        for part, mark in zip(parts, marks, strict=True):
            other = mark is not None and mark.export_id != manifest.export_id
            if other or (mark is None and last_planned(part) is not None):
                raise TransferError(
                    "the checkpoint is in use",
                    field=part,
                    value="another import" if other else "a job that has started",
                    rule="a new folder",
                )
        done = all(mark is not None and mark.done for mark in marks)
        if not done:
            for part in parts:
                require_leases()
                mark_import(part, manifest.export_id, folder, done=False)
        yield not done
        for part in parts:
            require_leases()
            mark_import(part, manifest.export_id, folder, done=True)


def table_of(spark: SparkSession, folder: str, name: str) -> DataFrame:
    """A table of an export."""
    return spark.read.schema(from_arrow_schema(SCHEMAS[name])).parquet(as_pattern(f"{folder}/{name}"))


def begin_checkpoint(
    manifest: Manifest, folder: str, checkpoint: str, name: str, identity: Mapping[str, Any]
) -> None:
    """Creates the checkpoint that gets the state, with the records of acts."""
    open_checkpoint(checkpoint, name=name, importing=manifest.export_id, **identity)
    records = parsed_json(open_folder(folder).read(ACTS_FILE) or b"")
    if not isinstance(records, list):
        raise TransferError("the records of acts are missing or damaged", field=f"{folder}/{ACTS_FILE}")
    take_over(checkpoint, records)


def copy_logs(manifest: Manifest, folder: str, checkpoint: str, *, first: int) -> None:
    """Copies the logs of the sources into a checkpoint, where the first of them has the number `first`."""
    for place in range(len(manifest.positions)):
        write_source_log(checkpoint, first + place, dict(source_log(folder, place)))


def run_first_batch(frame: DataFrame, checkpoint: str, check: Callable[[DataFrame, int], None]) -> None:
    """Runs batch 0 of a new checkpoint, or repeats it; does nothing if it is committed.

    Args:
        frame: The streaming frame.
        checkpoint: Its checkpoint.
        check: Called with the batch before it is committed.
    """
    writer = frame.writeStream.option("checkpointLocation", checkpoint)
    spark = frame.sparkSession
    with chunks_of_tasks(spark, checkpoint), state_of_format(spark, state_format(checkpoint)):
        query = start_with(writer.foreachBatch(check), ONCE)
    try:
        query.awaitTermination()
    finally:
        # After Ctrl-C it still runs, and the lease of the checkpoint is given back next.
        at_end(query.stop)


def expecting(pending: int) -> Callable[[DataFrame, int], None]:
    """Returns a check of the first batch: the shards hold that many entries, near and far."""

    def check(batch: DataFrame, _number: int) -> None:
        held = sum(row["pending"] + row["far"] for row in batch.collect())
        if held != pending:
            raise TransferError(
                "the import does not hold what was exported",
                field="pending",
                value=held,
                rule=str(pending),
                hint="the export is damaged: make it again",
            )

    return check
