"""Reads Delta tables through Delta's own log: what is at a path, what a version of a table holds, which commits came
later.

Every batch calls these functions, so they take a few milliseconds and, where the last commit has a checksum beside it,
no Spark job::

    0007.json   the actions of version 7
    0007.crc    its checksum: all transactions, and the files if few    Snapshot.transactions(), .listed_files()
    snapshot    the whole state as Delta computes it, three Spark jobs      used if there is no checksum

Two functions return a state. :func:`snapshot` is for sinks and sources: where Delta's classes are missing, it returns
a state that is read through public API (:mod:`wheel_udf.tables.delta_public`). :func:`log_snapshot` is for the slot
store, which needs them.

Caveat: the classes are not public API of Delta; see :mod:`wheel_udf.spark.private_api`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession, functions as F

from wheel_udf.common.errors import StoreError, UnsupportedVersionError
from wheel_udf.spark.jvm import hadoop_configuration, java_class, java_session, scala_none, scala_seq
from wheel_udf.spark.private_api import DELTA_CHANGES, DELTA_CHECKSUM, DELTA_SNAPSHOT, required
from wheel_udf.tables.delta_public import PublicState, report_fallback
from wheel_udf.tables.table_state import TableState

_LOG: Final = "_delta_log"
_LEFTOVERS: Final = re.compile(r"_delta_log|(?:\w\w/)?(?:part-.*\.parquet|\..*)")
_DELTA: Final = "org.apache.spark.sql.delta"


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or folder."""
    place, system = _hadoop(spark, path)
    return bool(system.exists(place))


def has_log(spark: SparkSession, place: str) -> bool:
    """Whether there is a Delta log, even if it is an empty one."""
    return exists(spark, f"{place}/{_LOG}")


def is_foreign(spark: SparkSession, place: str, *, or_leftovers: bool) -> bool:
    """Whether something other than a Delta table is at a place.

    Args:
        spark: The session.
        place: Path or URI.
        or_leftovers: Whether Parquet files alone count: a first write that was killed before its commit leaves some.
    """
    path, system = _hadoop(spark, place)
    if not system.exists(path):
        return False
    if system.getFileStatus(path).isFile():
        return True
    names = list(_names(system, path))
    return bool(names) and (or_leftovers or not all(_LEFTOVERS.fullmatch(name) for name in names))


def _names(system: Any, folder: Any) -> Iterator[str]:
    """The names in a folder, and in its folders of two characters, which column mapping may have made."""
    for status in system.listStatus(folder):
        name = status.getPath().getName()
        if status.isDirectory() and len(name) == 2:
            yield from (f"{name}/{inner}" for inner in _names(system, status.getPath()))
        else:
            yield name


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    place = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return place, place.getFileSystem(hadoop_configuration(spark))


class Snapshot(TableState):
    """A version of a table in Delta's log.

    Args:
        spark: The session.
        table: Delta's object.
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self._spark, self._table = spark, table

    @property
    @required(DELTA_SNAPSHOT)
    def version(self) -> int:
        """Its number; -1 while the log holds no commit."""
        return int(self._table.version())

    @property
    @required(DELTA_SNAPSHOT)
    def table_id(self) -> str:
        """Delta's id of the table: another one after the table was deleted and created again."""
        return str(self._table.metadata().id())

    def transactions(self) -> dict[str, int]:
        """The version of the last transaction of each app id; computed by Spark jobs if there is no checksum."""
        known = self.known_transactions()
        return known if known is not None else self._computed_transactions()

    @required(DELTA_SNAPSHOT)
    def _computed_transactions(self) -> dict[str, int]:
        computed: dict[str, int] = as_json(self._spark, self._table.transactions())
        return computed

    @required(DELTA_CHECKSUM)
    def known_transactions(self) -> dict[str, int] | None:
        """All last transactions by app id, if the checksum of this version lists them."""
        checksum = self._table.checksumOpt()
        listed = checksum.get().setTransactions() if checksum.isDefined() else checksum
        if listed.isEmpty():
            return None
        return {entry["appId"]: entry["version"] for entry in as_json(self._spark, listed.get())}

    @required(DELTA_SNAPSHOT)
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        properties: dict[str, str] = as_json(self._spark, self._table.metadata().configuration())
        return properties

    @required(DELTA_SNAPSHOT)
    def columns(self) -> list[dict[str, Any]]:
        """The columns as the JSON of Spark's schemas has them."""
        columns: list[dict[str, Any]] = json.loads(self._table.metadata().schemaString())["fields"]
        return columns

    @required(DELTA_SNAPSHOT)
    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns, in order."""
        return tuple(as_json(self._spark, self._table.metadata().partitionColumns()))

    @required(DELTA_CHECKSUM)
    def listed_files(self) -> list[dict[str, Any]] | None:
        """The files, if the checksum lists them (Delta lists up to 50); else None."""
        checksum = self._table.checksumOpt()
        listed = checksum.get().allFiles() if checksum.isDefined() else checksum
        if listed.isEmpty():
            return None
        files: list[dict[str, Any]] = as_json(self._spark, listed.get())
        return files

    @required(DELTA_SNAPSHOT)
    def all_files(self) -> list[dict[str, Any]]:
        """The files, listed by a Spark job."""
        listed = scala_seq(self._spark, self._table.allFiles().collectAsList())
        files: list[dict[str, Any]] = as_json(self._spark, listed)
        return files


def snapshot(spark: SparkSession, place: str) -> TableState:
    """The newest version of a table, through public API where Delta's classes are missing."""
    try:
        return log_snapshot(spark, place)
    except UnsupportedVersionError as fault:
        report_fallback(fault)
        return PublicState(spark, place)


@required(DELTA_SNAPSHOT)
def log_snapshot(spark: SparkSession, place: str) -> Snapshot:
    """The newest version of a table.

    Raises:
        UnsupportedVersionError: Delta's classes are missing.
    """
    none = scala_none(spark)
    # The first argument allows a stale state.
    return Snapshot(spark, delta_log(spark, place).update(False, none, none))  # noqa: FBT003  # py4j knows no keywords


@required(DELTA_SNAPSHOT)
def snapshot_at(spark: SparkSession, place: str, version: int) -> Snapshot:
    """A table as it was at a version.

    Raises:
        UnsupportedVersionError: Delta's classes are missing.
    """
    log = delta_log(spark, place)
    # Scala's default arguments, by the names that Scala gives them.
    others = [getattr(log, f"getSnapshotAt$default${number}")() for number in (2, 3, 4)]
    return Snapshot(spark, log.getSnapshotAt(version, *others))


def version_at(spark: SparkSession, place: str, instant_ms: int) -> int | None:
    """The newest version of a table that had been committed by an instant (UTC epoch ms); None before the first one.

    Raises:
        StoreError: The log does not go back that far.
    """
    commits = (
        DeltaTable.forPath(spark, place).history().select("version", F.unix_millis("timestamp").alias("at"))
    )
    found = commits.agg(
        F.max(F.when(F.col("at") <= instant_ms, F.col("version"))), F.min("version")
    ).collect()[0]
    if found[0] is None and found[1]:
        raise StoreError(
            "the table's log does not go back so far",
            field=place,
            value=f"version {found[1]} is the oldest on record",
            rule="delta.logRetentionDuration says how long commits are kept",
        )
    version: int | None = found[0]
    return version


def tables_read(offsets: Iterable[Any]) -> set[str]:
    """Ids of the Delta tables that a query reads, from the offsets of its sources in its checkpoint."""
    return {
        str(offset["reservoirId"])
        for offset in offsets
        if isinstance(offset, Mapping) and "reservoirId" in offset
    }


def position_after(table_id: str, version: int) -> dict[str, Any]:
    """The offset of a stream that has read a table up to this version, as Delta writes it into a checkpoint."""
    return {
        "sourceVersion": 1,
        "reservoirId": table_id,
        "reservoirVersion": version + 1,
        "index": -1,
        "isStartingVersion": False,
    }


@required(DELTA_CHANGES)
def commits_after(spark: SparkSession, place: str, version: int) -> list[tuple[int, list[dict[str, Any]]]]:
    """The commits after a version, by rising version: all their actions, as JSON has their fields."""
    # The last argument fails on a gap in the log.
    commits = delta_log(spark, place).getChanges(version + 1, scala_none(spark), True)  # noqa: FBT003  # as above
    found = []
    while commits.hasNext():
        commit = commits.next()
        found.append((int(commit.productElement(0)), as_json(spark, commit.productElement(1))))
    return found


@required(DELTA_CHANGES)
def as_json(spark: SparkSession, values: Any) -> Any:
    """Scala values (a Seq of Delta's actions, a Map) as JSON has them, by one call over py4j."""
    return json.loads(delta_class(spark, "util.JsonUtils").mapper().writeValueAsString(values))


@required(DELTA_SNAPSHOT)
def delta_log(spark: SparkSession, place: str) -> Any:
    """Delta's object for the log of a table."""
    return delta_class(spark, "DeltaLog").forTable(java_session(spark), place)


def delta_class(spark: SparkSession, name: str) -> Any:
    """A class of Delta, by its name in Delta's package."""
    return java_class(spark, f"{_DELTA}.{name}")
