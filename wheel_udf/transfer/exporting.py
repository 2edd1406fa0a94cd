"""Exports a job at rest: :func:`export_job`.

::

    leases taken, all batches committed --> tables, acts, logs of sources --> account compared --> manifest
                                                                           --> mark in the checkpoint

An export that is killed leaves a folder without a manifest; the same export again overwrites it. Killed after the
manifest, it is complete, and the same export again only marks the checkpoint. Ctrl-C is deferred between manifest and
mark: a job whose export can be imported does not start any more.

An export *without* ids (:mod:`wheel_udf.transfer.forgetting`) leaves out their rows. A pending entry among them is
counted as one that a cancel has ended.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.checkpoint.identity import Identity, identity_of
from wheel_udf.checkpoint.move_marks import mark_exported
from wheel_udf.checkpoint.spark_logs import last_committed, source_log, write_source_log
from wheel_udf.common.errors import TransferError
from wheel_udf.common.interrupts import uninterrupted
from wheel_udf.common.outcomes import WATCH_COUNTS, WHEEL_COUNTS
from wheel_udf.common.paths import as_pattern
from wheel_udf.common.progress import Step, no_steps
from wheel_udf.pending.audit import records_of, records_without
from wheel_udf.pending.entries import PendingWork
from wheel_udf.pending.state import heads_of
from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.spark.files import json_bytes, open_folder
from wheel_udf.transfer.content import (
    ACTS_FILE,
    ENTRIES,
    MEMORY,
    SCHEMAS,
    SOURCES,
    at_rest,
    parts_of,
    positions_of,
    tables_of,
)
from wheel_udf.transfer.id_rows import ID_COLUMNS, count_ids, frame_of_ids, rows_of_ids
from wheel_udf.transfer.manifest import WAITS, Manifest, find_manifest, write_manifest
from wheel_udf.transfer.settled import settle


def export_job(
    spark: SparkSession,
    work: PendingWork,
    folder: str,
    *,
    keep: bool = False,
    without: Sequence[str] = (),
    on_step: Step = no_steps,
) -> Manifest:
    """Writes all that a job at rest holds into a folder.

    Args:
        spark: A session.
        work: Checkpoint and store of the job; of a purgatory the checkpoint.
        folder: A new folder, or that of an unfinished export.
        keep: Leave the old checkpoint as it is. Without it, the checkpoint refuses to start, so that nothing is
            delivered twice.
        without: Ids that are left out; to forget them, use :func:`~wheel_udf.transfer.forgetting.forget_ids`.
        on_step: Called when a step begins.

    Returns:
        The manifest.

    Raises:
        LeaseError: The job runs.
        CheckpointError: There is no checkpoint, or it is damaged.
        GeometryChangedError: It is of another format.
        TransferError: Something is unfinished, or the folder holds another export or something else.
        ActError: One of the ids is empty or not UTF-8.
    """
    require_jvm(spark, "an export")
    with at_rest(work) as (identity, require_leases):
        parts = parts_of(work)
        batch = last_committed(parts[-1])
        assert batch is not None, "something was committed"
        manifest = found_export(folder, identity, batch)
        is_new = manifest is None
        if manifest is None:
            manifest = _write(spark, work, folder, identity, batch, without, on_step)
        with uninterrupted():
            require_leases()
            if is_new:
                write_manifest(folder, manifest)
            for part in () if keep else parts:
                require_leases()
                mark_exported(part, manifest.export_id, folder)
    return manifest


def found_export(folder: str, identity: Identity, batch: int) -> Manifest | None:
    """The manifest of a complete export of just this; None if the folder is new, or holds an unfinished one."""
    manifest = find_manifest(folder)
    if manifest is not None and (manifest.app_id, manifest.batch) != (identity.app_id, batch):
        raise TransferError(
            "the folder holds another export",
            field=folder,
            value=f"of {manifest.app_id}, batch {manifest.batch}",
            rule=f"empty, or of {identity.app_id}, batch {batch}",
            hint="use a new folder",
        )
    return manifest


def _write(
    spark: SparkSession,
    work: PendingWork,
    folder: str,
    identity: Identity,
    batch: int,
    without: Sequence[str],
    on_step: Step,
) -> Manifest:
    """Writes everything but the manifest, and returns that."""
    require_unused(folder)
    purgatory = identity.mode == "purgatory"
    names = WATCH_COUNTS if purgatory else WHEEL_COUNTS
    heads = heads_of(spark, work.query)
    tables = tables_of(spark, work.query, purgatory=purgatory)
    settled, more = None, Counter[str]()
    if work.store is not None:
        on_step("ends in the store", 1, len(tables) + 1)
        settled = settle(work, heads, identity.shards, tables[MEMORY])
        more.update(settled.counts)
        tables[ENTRIES] = tables[ENTRIES].unionByName(settled.entries)
        tables[MEMORY] = tables[MEMORY].unionByName(settled.ended)
    ended, acts = 0, records_of(work.query)
    if without:
        ids = frame_of_ids(spark, without)
        ended = sum(count_ids({name: tables[name] for name in WAITS if name in tables}, ids).values())
        tables = {
            name: rows_of_ids(table, ids, *ID_COLUMNS[name], others=True) for name, table in tables.items()
        }
        acts = records_without(work.query, without, ended)
    open_folder(folder).replace(ACTS_FILE, json_bytes([asdict(act) for act in acts]))
    rows, first = {}, 1 if settled is None else 2
    for number, (name, table) in enumerate(tables.items(), first):
        on_step(name, number, first + len(tables) - 1)
        rows[name] = write_rows(table, f"{folder}/{name}")
    more.update(cancelled=ended, applied=ended)
    begin = parts_of(work)[0]
    positions = positions_of(begin)
    _copy_logs(begin, positions, folder)
    manifest = Manifest(
        export_id=uuid.uuid4().hex,
        mode="tiered" if work.store is not None else identity.mode,
        wheel=identity.wheel,
        shards=identity.shards,
        clock=identity_of(begin).clock,
        app_id=identity.app_id,
        batch=batch,
        clock_ms=_clock_ms(heads, work),
        counts={name: sum(int(head[name]) for head in heads) + more[name] for name in names},
        rows=rows,
        positions=list(positions.values()),
    )
    _require_account(manifest, heads, ended + (0 if settled is None else settled.gone), folder)
    if settled is not None:
        settled.far.unpersist()
    return manifest


def _clock_ms(heads: Sequence[Mapping[str, Any]], work: PendingWork) -> int | None:
    """The latest clock of any shard; with a store, not before the clock that its commands have made."""
    clocks = [head["clock_ms"] for head in heads]
    if work.store is not None:
        clocks.append(work.store.head().clock_ms)
    return max((clock_ms for clock_ms in clocks if clock_ms is not None), default=None)


def write_rows(table: DataFrame, place: str) -> int:
    """Writes a table of an export; returns its number of rows."""
    table.write.mode("overwrite").parquet(place)
    return table.sparkSession.read.schema(table.schema).parquet(as_pattern(place)).count()


def require_unused(folder: str) -> None:
    """Refuses a folder with anything but an unfinished export."""
    names = {name for name in open_folder(folder).names() if not name.startswith(".")}
    if names - {*SCHEMAS, ACTS_FILE, SOURCES}:
        raise TransferError(
            "the folder is not empty", field=folder, value=sorted(names), rule="a new folder for an export"
        )


def _copy_logs(part: str, positions: Mapping[int, Any], folder: str) -> None:
    for place, (number, position) in enumerate(positions.items()):
        if isinstance(position, dict) and "logOffset" in position:
            write_source_log(folder, place, dict(source_log(part, number)))


def _require_account(manifest: Manifest, heads: Sequence[Mapping[str, Any]], ended: int, folder: str) -> None:
    """Refuses an export that would lose an entry: pending and settled entries must equal the counts of the shards."""
    counted = sum(int(head["pending"]) + int(head.get("far") or 0) for head in heads)
    expected = counted - ended
    if manifest.pending != expected:
        raise TransferError(
            "the export does not hold what is pending",
            field=folder,
            value=f"{manifest.pending} pending",
            rule=f"{expected}",
            hint="the checkpoint or the store is damaged",
        )
