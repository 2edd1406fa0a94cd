"""Forgets ids: an export of a job at rest without them, and its import in the same place. :func:`forget_ids`.

::

    <checkpoint> --export without the ids--> <checkpoint>-forgetting --import--> <checkpoint> (and store)
                 marked: exported            complete                            emptied; marked: importing; begun;
                                                                                 marked: done; then the folder of the
                                                                                 export is deleted

Contract

1. After it, no file of the checkpoint and of the store holds a row of the ids: no pending entry, no memory of an ended
   one, no row of an act, no older version of the state, no history of the store.
2. All else goes on: other ids, the account, the clock, the places in the sources (rules 2 to 4 of
   :mod:`wheel_udf.transfer`). A forgotten pending entry counts as cancelled by an act. The record of
   acts gets a record ``forget`` with the number of ids, without the ids; records whose texts contain one of them lose
   these texts.
3. A forgotten id is unknown. A command for it that is read later (a repetition, or one that was in the source already)
   is new: it waits and fires. So stop the producer first.
4. Only at rest, and with all batches committed; a job that runs is refused by its lease.
5. Once begun, it is finished: the checkpoint refuses to start until it is. :func:`finish_forgetting` goes on with what
   a killed call has begun.

Lost with it, for all ids: older versions of the state and of the store, so ``pending --as-of`` and the rows
that ``store.history`` keeps begin anew; the transaction id is a new one, as after each move.

Cost: an export and an import, and space for both on the disk. Other places: :mod:`wheel_udf.job.forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession

from wheel_udf.checkpoint.identity import TIERED_PARTS, identity_of
from wheel_udf.checkpoint.lease import Lease, holding
from wheel_udf.checkpoint.move_marks import (
    FORGETTING,
    empty_for_import,
    export_mark,
    import_mark,
    is_emptied,
    require_startable,
)
from wheel_udf.checkpoint.spark_logs import last_committed
from wheel_udf.common.errors import TransferError
from wheel_udf.pending.audit import has_id, records_of
from wheel_udf.pending.entries import PendingWork
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.session import close_states
from wheel_udf.transfer.content import ACTS, parts_of, tables_of
from wheel_udf.transfer.exporting import export_job
from wheel_udf.transfer.id_rows import count_ids, frame_of_ids, rows_of_ids
from wheel_udf.transfer.manifest import MANIFEST_FILE, Manifest, find_manifest

STORED: Final = "stored"
"""In :func:`held_of`: rows of the slot store."""

Import = Callable[[str], Manifest]
"""Imports the export in a folder into the same checkpoint and store: ``import_direct``, ``import_tiered`` or
``import_watch`` with the settings of the job.
"""


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
        counts = count_ids(tables_of(spark, work.query, purgatory=purgatory), frame)
    if work.store is not None:
        rows = work.store.rows(version=work.store.head().version)
        counts[STORED] = rows_of_ids(rows, frame, "schedule_id").count()
    texts = [(act.picked, act.change) for act in records_of(work.query)]
    counts[ACTS] = sum(any(has_id(text, ids) for text in both) for both in texts)
    return counts


def forget_ids(
    spark: SparkSession, checkpoint: str, ids: Sequence[str], begin: Import, *, store: str | None = None
) -> Mapping[str, int]:
    """Forgets ids; see the contract above. First call :func:`finish_forgetting`.

    Args:
        spark: A session, with the settings that the job will have.
        checkpoint: The checkpoint of the job.
        ids: As for :func:`held_of`.
        begin: The import.
        store: The slot store in the tiered mode.

    Returns:
        Number of rows that were removed, as by :func:`held_of`.

    Raises:
        LeaseError: The job runs.
        TransferError: A batch is not finished: run the job once more.
        ActError: An id is empty or not UTF-8.
        CheckpointError, GeometryChangedError, StoreError: The checkpoint or the store are damaged or of another
            format.
    """
    close_states(spark)
    work = PendingWork.of(spark, checkpoint, store)
    rows = held_of(spark, work, ids)
    for part in parts_of(work):
        require_startable(open_folder(part))
    export_job(spark, work, _folder_of(checkpoint), without=ids)
    close_states(spark)  # the export has read them
    finish_forgetting(checkpoint, begin, store=store)
    return rows


def finish_forgetting(checkpoint: str, begin: Import, *, store: str | None = None) -> None:
    """Finishes what a killed call of :func:`forget_ids` has begun, if there is anything; arguments are as there.

    Raises:
        LeaseError: The job runs.
        TransferError: It was begun in another mode.
    """
    folder = _folder_of(checkpoint)
    manifest = find_manifest(folder)
    if manifest is None:
        return
    is_tiered = manifest.mode == "tiered"
    if is_tiered != (store is not None):
        raise TransferError(
            "ids began to be forgotten in another mode",
            field=folder,
            value=manifest.mode,
            hint="run forget with the old settings",
        )
    parts = [f"{checkpoint}/{part}" for part in TIERED_PARTS] if is_tiered else [checkpoint]
    export_id = manifest.export_id
    with holding(map(Lease, parts)) as require_leases:
        marks = [
            mark for part in parts for mark in (export_mark(part), import_mark(part)) if mark is not None
        ]
        is_begun = any(mark.export_id == export_id for mark in marks)
        if is_begun and not all(is_emptied(part, export_id) for part in parts):
            if store is not None:
                # The lease of the store is in its folder; those of the checkpoint exclude the job.
                _remove(store, require_leases)
            for part in parts:
                empty_for_import(part, export_id, folder, require_leases)
    if is_begun:
        begin(folder)
    # Not begun: the job may have gone on since the export.
    _remove(folder)
    open_folder(folder).remove("")


def _folder_of(checkpoint: str) -> str:
    """The folder of the export, beside the checkpoint."""
    return f"{checkpoint.rstrip('/')}{FORGETTING}"


def _remove(folder: str, require_leases: Callable[[], None] = lambda: None) -> None:
    """Deletes the files of a folder; a manifest last, so that what a kill leaves is found by the next call."""
    files = open_folder(folder)
    for name in sorted(files.names(), key=lambda name: name == MANIFEST_FILE):
        require_leases()
        files.remove(name)
