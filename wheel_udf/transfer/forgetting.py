"""Forgets ids: removes all that the checkpoint and the slot store of a job at rest hold about them, also in older
versions. :func:`forget_ids`.

Contract

1. After it, no file of the checkpoint and of the store holds a row of the ids: no pending entry, no memory of an ended
   one, no row of an act, no older version of the state, no history of the store. They are written anew, in their own
   places, and what was there is deleted.
2. All else goes on: other ids, the account, the clock, the places in the sources (rules 2 to 4 of
   :mod:`wheel_udf.transfer`). A forgotten pending entry counts as cancelled by an act. The record of
   acts gets a record ``forget`` with the number of ids, without the ids; records whose texts contain one of them lose
   these texts.
3. A forgotten id is unknown. A command for it that is read later (a repetition, or one that was in the source already)
   is new: it waits and fires. So stop the producer first.
4. Only at rest, and with all batches committed; a job that runs is refused by its lease.
5. Once begun, it is finished: the checkpoint refuses to start until it is. Killed, it goes on with the next call.

::

    <checkpoint> --export without the ids--> <checkpoint>-forgetting --import--> <checkpoint> (and store)
                 marked: exported            complete                            emptied; marked: importing; begun;
                                                                                 marked: done; then the folder of the
                                                                                 export is deleted

An act of the running job could remove an id from its shard too, but not from the older versions of the state, from the
files in which RocksDB keeps overwritten values, from the files of acts and from the history of the store: a new
checkpoint has none of these.

Lost with it, for all ids: older versions of the state and of the store, so ``pending --as-of`` and the rows
that ``store.history`` keeps begin anew; the transaction id is a new one, as after each move.

Cost: an export and an import (the state and the store are read once and written once), and space for both on the disk.

Other places are not touched here: :mod:`wheel_udf.sinks.row_removal`, and the verb
(:mod:`wheel_udf.job.forget`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.checkpoint.identity import TIERED_PARTS, identity_of
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.move_marks import (
    FORGETTING,
    empty_for_import,
    export_mark,
    import_mark,
    require_startable,
)
from wheel_udf.checkpoint.spark_logs import last_committed
from wheel_udf.pending import acts
from wheel_udf.pending.audit import has_id
from wheel_udf.pending.entries import PendingWork
from wheel_udf.sinks.row_removal import frame_of_ids, rows_of_ids
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.session import close_states
from wheel_udf.transfer.content import ACTS, parts_of, tables_of
from wheel_udf.transfer.exporting import export_job
from wheel_udf.transfer.id_rows import ID_COLUMNS
from wheel_udf.transfer.manifest import MANIFEST_FILE, Manifest, find_manifest

STORED: Final = "stored"
"""In :func:`held_of`: rows of the slot store."""


@dataclass(frozen=True)
class Forgotten:
    """What :func:`forget_ids` has done.

    Attributes:
        manifest: What the job holds after it.
        rows: Number of rows that were removed, as by :func:`held_of`.
        resumed: Whether a call that was killed has been finished first; its rows are not in `rows`.
    """

    manifest: Manifest
    rows: Mapping[str, int]
    resumed: bool


def held_of(spark: SparkSession, work: PendingWork, ids: Sequence[str]) -> dict[str, int]:
    """Counts what a job holds about ids; also while it runs.

    Args:
        spark: A session.
        work: The job; it has a checkpoint.
        ids: Values of ``schedule_id``; of a purgatory of ``op_id``, and names and groups of events.

    Returns:
        Number of rows by table of the state (``entries``, ``memory``; of a purgatory ``operations``, ``ended``, ...),
        ``stored`` (rows of the slot store), and ``acts`` (records that contain one of the ids).

    Raises:
        ActError: An id is empty or not UTF-8.
        CheckpointError: The checkpoint is damaged.
    """
    frame = frame_of_ids(spark, ids)
    purgatory = identity_of(work.query).mode == "purgatory"
    counts = {}
    if last_committed(work.query) is not None:
        tables = tables_of(spark, work.query, purgatory=purgatory)
        counts = {name: _count(table, frame, *ID_COLUMNS[name]) for name, table in tables.items()}
    if work.store is not None:
        rows = work.store.rows(version=work.store.head().version)
        counts[STORED] = _count(rows, frame, "schedule_id")
    counts[ACTS] = _records(spark, work, ids)
    return counts


def _count(rows: DataFrame, ids: DataFrame, *columns: str) -> int:
    return rows_of_ids(rows, ids, *columns).count()


def _records(spark: SparkSession, work: PendingWork, ids: Sequence[str]) -> int:
    texts = acts.audit(spark, work.query).select("picked", "change").collect()
    return sum(any(has_id(text, ids) for text in row) for row in texts)


def forget_ids(
    spark: SparkSession,
    checkpoint: str,
    ids: Sequence[str],
    begin: Callable[[str], Manifest],
    *,
    store: str | None = None,
) -> Forgotten:
    """Forgets ids; see the contract above.

    Args:
        spark: A session, with the settings that the job will have.
        checkpoint: The checkpoint of the job.
        ids: Values of ``schedule_id``; of a purgatory of ``op_id``, and names and groups of events.
        begin: Imports the export in the given folder into the same checkpoint and store: a call of ``import_direct``,
            ``import_tiered`` or ``import_watch`` with the settings that the job has.
        store: The slot store in the tiered mode.

    Returns:
        What was removed.

    Raises:
        LeaseError: The job runs.
        TransferError: A batch is not finished: run the job once more.
        ActError: An id is empty or not UTF-8.
        CheckpointError, GeometryChangedError, StoreError: The checkpoint or the store are damaged or of another
            format.
    """
    frame_of_ids(spark, ids)
    close_states(spark)
    begun = _finish(checkpoint, begin, store)
    work = PendingWork.of(spark, checkpoint, store)
    rows = held_of(spark, work, ids)
    # A checkpoint that has just begun has no older versions.
    if begun is not None and last_committed(work.query) == 0 and not any(rows.values()):
        return Forgotten(begun, rows, resumed=True)
    for part in parts_of(work):
        require_startable(open_folder(part))
    manifest = export_job(spark, work, folder_of(checkpoint), without=ids)
    close_states(spark)  # the export has read them
    _begin_anew(checkpoint, store, manifest, begin)
    return Forgotten(manifest, rows, resumed=begun is not None)


def is_begun(checkpoint: str, *, store: str | None = None) -> bool:
    """Whether a call of :func:`forget_ids` was killed after it had begun to change the job."""
    manifest = find_manifest(folder_of(checkpoint))
    if manifest is None:
        return False
    return any(_is_marked(part, manifest.export_id) for part in _parts(checkpoint, store))


def _finish(checkpoint: str, begin: Callable[[str], Manifest], store: str | None) -> Manifest | None:
    """Finishes what a killed call has begun; None if there is nothing to finish."""
    folder = folder_of(checkpoint)
    manifest = find_manifest(folder)
    if manifest is None:
        return None
    if not is_begun(checkpoint, store=store):
        _remove(folder)  # The job may have gone on since.
        return None
    _begin_anew(checkpoint, store, manifest, begin)
    return manifest


def _is_marked(part: str, export_id: str) -> bool:
    marks = (export_mark(part), import_mark(part))
    return any(mark is not None and mark.export_id == export_id for mark in marks)


def _remove(folder: str) -> None:
    """Deletes an export; its manifest last, so that what a kill leaves is found by the next call."""
    files = open_folder(folder)
    for name in sorted(files.names(), key=lambda name: name == MANIFEST_FILE):
        files.remove(name)
    files.remove("")


def _parts(checkpoint: str, store: str | None) -> list[str]:
    return [checkpoint] if store is None else [f"{checkpoint}/{part}" for part in TIERED_PARTS]


def folder_of(checkpoint: str) -> str:
    """The folder of the export, beside the checkpoint."""
    return f"{checkpoint.rstrip('/')}{FORGETTING}"


def _begin_anew(
    checkpoint: str, store: str | None, manifest: Manifest, begin: Callable[[str], Manifest]
) -> None:
    folder = folder_of(checkpoint)
    parts = _parts(checkpoint, store)
    marks = [import_mark(part) for part in parts]
    if any(mark is None or mark.export_id != manifest.export_id for mark in marks):
        _empty(parts, store, manifest.export_id, folder)
    begin(folder)
    _remove(folder)


def _empty(parts: Sequence[str], store: str | None, export_id: str, folder: str) -> None:
    """Deletes the old content; repeated until all parts have the mark of the import, since it has not begun before."""
    with ExitStack() as leases:
        for part in parts:
            leases.enter_context(Lease(part))
        if store is not None:
            # The lease of the store is in its folder; those of the checkpoint exclude the job.
            files = open_folder(store)
            for name in files.names():
                files.remove(name)
        for part in parts:
            empty_for_import(part, export_id, folder)
