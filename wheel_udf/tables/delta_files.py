"""The files of a Delta table with partitions of (level, slot): read once in full, then kept up to date by each commit.

Delta itself computes a table's state anew for each version, as Spark jobs over its whole log, and a slot store has a
version for every batch. Here the state is a dict from path to a few numbers, and a commit changes a copy of it as the
log specifies::

    current()   version 7, in full          {a: level 2 slot 190, b: level 2 slot 191}
    current()   commit 8 adds c             {a, b, c}                                      read: one small JSON file
    current()   commit 9 removes a, b       {c}                                            read: one small JSON file

Cost: the first call reads the last checkpoint of the log and the commits since, O(files). Each further call is
O(actions of the new commits), and a copy of the dict. About 300 bytes for a file. Where the log was cleaned up since
the last call (it is kept for days), the table is read in full again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from wheel_udf.common.errors import StoreError
from wheel_udf.common.paths import as_pattern
from wheel_udf.tables import delta_log
from wheel_udf.tables.data_files import path_of

_PARTITIONED_BY: Final = ("level", "slot")


@dataclass(frozen=True, slots=True)
class File:
    """A data file.

    Attributes:
        place: Its partition, (level, slot).
        rows: How many rows.
        bytes: Its size.
    """

    place: tuple[int, int]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of one version of a table.

    Attributes:
        version: The version.
        files: They, by their path in its log.
    """

    version: int
    files: Mapping[str, File]


class FileList:
    """The files of one table, by their path in its log. Any thread may ask; what it gets does not change any more.

    Args:
        path: Place of the table.

    Attributes:
        unsigned: Versions, seen since the first call, that changed data without a transaction. The store's own commits
            all have one.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: Listing | None = None
        self._turn = threading.Lock()
        self.unsigned: list[int] = []

    def current(self) -> Mapping[str, File]:
        """The files as they are now."""
        return self.listing().files

    def listing(self) -> Listing:
        """The files as they are now, and the version that has them."""
        with self._turn:
            found = None if self._known is None else self._followed(self._known)
            self._known = found or self.read_all()
            return self._known

    def _followed(self, known: Listing) -> Listing | None:
        """A listing after later commits; None if the log no longer has them. Unsigned ones are noted."""
        try:
            commits = delta_log.commits_after(self._path, known.version)
        except StoreError:
            return None
        if not commits:
            return known
        files = dict(known.files)
        for number, actions in commits:
            _apply(files, actions)
            if _changes_data(actions) and not any("appId" in action for action in actions):
                self.unsigned.append(number)
        return Listing(commits[-1][0], files)

    def read_all(self, version: int | None = None) -> Listing:
        """The files of the newest version, or of an earlier one, from the whole log."""
        found, added = delta_log.files_of(self._path, version)
        return Listing(found, {str(file["path"]): file_of(file) for file in added})


def _apply(files: dict[str, File], actions: Iterable[Mapping[str, Any]]) -> None:
    for action in actions:
        if is_removal(action):
            files.pop(str(action["path"]), None)
        elif is_addition(action):
            files[str(action["path"])] = file_of(action)


def rows_of_files(
    spark: SparkSession, path: str, columns: T.StructType, files: Iterable[str], *, named: str | None = None
) -> DataFrame:
    """The rows of some files of a table, with all its columns, in no order.

    A read of a version computes the table's state for it in a Spark job, and each scan filters its files in another
    one. Here neither is needed.

    Args:
        spark: The session.
        path: Place of the table.
        columns: Its columns.
        files: The files, by their path in its log.
        named: A further column, for the name of a row's file.
    """
    places = [as_pattern(path_of(path, name)) for name in files]
    if not places:
        return spark.createDataFrame(
            [], columns if named is None else T.StructType([*columns, T.StructField(named, T.StringType())])
        )
    stored = T.StructType([column for column in columns if column.name not in _PARTITIONED_BY])
    rows = spark.read.schema(stored).option("recursiveFileLookup", "true").parquet(*places)
    found = {name: F.col(name) for name in stored.names}
    for name in _PARTITIONED_BY:
        place = F.regexp_extract("_metadata.file_path", rf".*/{name}=(-?\d+)/", 1)
        found[name] = place.cast(columns[name].dataType).alias(name)
    file = [] if named is None else [F.col("_metadata.file_name").alias(named)]
    return rows.select(*(found[name] for name in columns.names), *file)


def is_addition(action: Mapping[str, Any]) -> bool:
    """Whether an action of the log adds a file."""
    return "path" in action and "modificationTime" in action


def is_removal(action: Mapping[str, Any]) -> bool:
    """Whether an action of the log removes a file."""
    return "path" in action and "deletionTimestamp" in action


def _changes_data(actions: Iterable[Mapping[str, Any]]) -> bool:
    return any(action["dataChange"] for action in actions if is_addition(action) or is_removal(action))


def partition_of(file: Mapping[str, Any]) -> tuple[int, int]:
    """(level, slot) of an action on a file."""
    values = file["partitionValues"]
    return int(values["level"]), int(values["slot"])


def stats_of(file: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of an added file."""
    stats: dict[str, Any] = json.loads(file["stats"])
    return stats


def file_of(action: Mapping[str, Any]) -> File:
    """The file that an action adds."""
    return File(partition_of(action), int(stats_of(action)["numRecords"]), int(action["size"]))
