"""The files of a Delta table with partitions of (level, slot): read once in full, then kept up to date by each commit.

Delta itself computes a table's state anew for each version, as Spark jobs over its whole log, and a slot store has a
version for every batch. Here the state is a dict from path to a few numbers, and a commit changes a copy of it as the
log specifies::

    current()   version 7, in full          {a: level 2 slot 190, b: level 2 slot 191}
    current()   commit 8 adds c             {a, b, c}                                      read: one small JSON file
    current()   commit 9 removes a, b       {c}                                            read: one small JSON file

Cost: the first call takes what Delta lists beside its last commit (up to 50 files), else reads a short log from its
beginning, else runs one job, O(files). Each further call is O(actions of the new commits), and a copy of
the dict. About 300 bytes for a file. Where the log was cleaned up since the last call (it is kept for
days), the table is read in full again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import get_java_class
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from wheel_udf.spark.jvm import java_class, scala_none, scala_seq
from wheel_udf.spark.private_api import DELTA_ROWS, required
from wheel_udf.tables import delta_log

_SHORT_LOG = 200  # commits: reading so many small files takes less than a job over them


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

    def as_add(self, path: str) -> dict[str, Any]:
        """The file as an addition of Delta's log, with the fields that a removal or a scan needs."""
        values = {name: str(value) for name, value in zip(("level", "slot"), self.place, strict=True)}
        return {
            "path": path,
            "partitionValues": values,
            "size": self.bytes,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": self.rows}),
        }


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
        spark: The session.
        path: Place of the table.

    Attributes:
        unsigned: Versions, seen since the first call, that changed data without a transaction. The store's own commits
            all have one.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._path = spark, path
        self._known: Listing | None = None
        self._turn = threading.Lock()
        self.unsigned: list[int] = []

    def current(self) -> Mapping[str, File]:
        """The files as they are now."""
        return self.listing().files

    def listing(self) -> Listing:
        """The files as they are now, and the version that has them."""
        with self._turn:
            found = None if self._known is None else self._followed(self._known, news=True)
            self._known = found or self._read_all()
            return self._known

    def _followed(self, known: Listing, *, news: bool) -> Listing | None:
        """A listing after later commits; None if the log no longer has them. With `news`, unsigned ones are noted."""
        try:
            commits = delta_log.commits_after(self._spark, self._path, known.version)
        except (Py4JJavaError, PySparkException):
            return None
        if not commits:
            return known
        files = dict(known.files)
        for number, actions in commits:
            _apply(files, actions)
            if news and _changes_data(actions) and not any("appId" in action for action in actions):
                self.unsigned.append(number)
        return Listing(commits[-1][0], files)

    def _read_all(self) -> Listing:
        table = delta_log.log_snapshot(self._spark, self._path)
        listed = table.listed_files()
        if listed is None and table.version <= _SHORT_LOG:
            found = self._followed(Listing(-1, {}), news=False)
            if found is not None:
                return found
        if listed is None:
            listed = table.all_files()
        return Listing(table.version, {str(file["path"]): file_of(file) for file in listed})


def _apply(files: dict[str, File], actions: Iterable[Mapping[str, Any]]) -> None:
    for action in actions:
        if is_removal(action):
            files.pop(str(action["path"]), None)
        elif is_addition(action):
            files[str(action["path"])] = file_of(action)


@required(DELTA_ROWS)
def rows_of_files(spark: SparkSession, path: str, files: Mapping[str, File]) -> DataFrame:
    """The rows of some files of a table, with all its columns; made as Delta makes the batches of a stream.

    A read of a version computes the table's state for it in a Spark job, and each scan filters its files in another
    one. Here neither is needed.

    Args:
        spark: The session.
        path: Place of the table.
        files: The files, by their path in its log.
    """
    log, mapper = delta_log.delta_log(spark, path), delta_log.delta_class(spark, "util.JsonUtils").mapper()
    of_list, of_add = map(
        get_java_class,
        (java_class(spark, "java.util.ArrayList"), delta_log.delta_class(spark, "actions.AddFile")),
    )
    kind = mapper.getTypeFactory().constructCollectionType(of_list, of_add)
    listed = mapper.readValue(json.dumps([file.as_add(name) for name, file in files.items()]), kind)
    arguments = (log.unsafeVolatileSnapshot(), scala_seq(spark, listed), False, scala_none(spark))
    return ClassicDataFrame(log.createDataFrame(*arguments), spark)


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
