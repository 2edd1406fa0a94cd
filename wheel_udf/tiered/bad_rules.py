"""Finds series whose rules cannot be read, in the files of a batch of the intake that no commit contains yet.

A rejected command does not use up its version. The wheel finds out what a rule means
(:mod:`wheel_udf.policies.series`), but in the store the row of a series is a version that beats older far entries. So
the rows of a batch are checked before they are committed::

    rows written --statistics: has it series?--> no: commit
                                                 yes: rules read, on executors --> all are rules: commit
                                                                                   else: written again, with rejects

Cost: of a batch without series, a look at the statistics of its files; of one with series, a read of one column.

Caveat: whether a series has an occurrence depends on what the wheel knows of its id. One that the wheel refuses for
having none (``no_occurrence``) is still a version in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from wheel_udf.policies.series import faults_of
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables.delta_files import File, file_of, stats_of
from wheel_udf.tables.delta_transaction import NewFiles


def with_rejects(store: SlotStore, files: NewFiles) -> DataFrame | None:
    """Returns the rows of new files, those of series without a rule as rejects; None if there are no such series."""
    of_series = [file for file in files if _has_series(file)]
    if not of_series:
        return None
    some = store.rows_of_files(paths_of(of_series))
    repeats = some.where("repeat IS NOT NULL AND reject IS NULL").select("repeat")
    wrong = repeats.mapInArrow(_faults, "repeat string, reason string").distinct().localCheckpoint()
    if wrong.isEmpty():
        return None
    rows = store.rows_of_files(paths_of(files))
    reject = F.coalesce("reject", "reason").alias("reject")
    columns = [reject if name == "reject" else F.col(name) for name in rows.columns]
    return rows.join(F.broadcast(wrong), "repeat", "left").select(*columns)


def paths_of(files: NewFiles) -> dict[str, File]:
    """New files by their paths, as :meth:`wheel_udf.store.reader.StoreReader.rows_of_files` takes them."""
    return {str(file["path"]): file_of(file) for file in files}


def _has_series(file: Mapping[str, Any]) -> bool:
    stats = stats_of(file)
    return int(stats["nullCount"].get("anchor_ms", 0)) < int(stats["numRecords"])


def _faults(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from faults_of(batch.column(0)).to_batches()
