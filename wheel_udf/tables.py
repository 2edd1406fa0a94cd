"""The tables of destinations: what may be a name, where its table is, what is there, and one append.

All of it is asked of Hadoop's file systems and of Delta's log through the session's JVM, in a few milliseconds and without
a Spark job, since every batch asks.

Decision: an append to a table that exists is a transaction of Delta's own classes and no ``DataFrameWriter``. Both make the
same commit; but the writer's options ``txnAppId`` and ``txnVersion`` look for the last transaction by computing the table's whole
state anew, three Spark jobs for each commit, where the checksum beside the last commit already tells it. Measured
warm, 1,000 rows, one snapshot partition: 120 ms of CPU time by the transaction, 665 by the writer (150 without
transaction ids). What Delta guarantees stays: the id is among what the transaction has read, so of two writers of one batch, one
fails. Where there is no checksum (a foreign writer left none) Delta computes the state, as it would have.

Caveats: these classes are not Delta's public API; the pinned release of delta-spark keeps them valid, and the tests of
the sinks notice when another does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf.errors import SinkError, StoreError
from wheel_udf.files import local_folder
from wheel_udf.java import java_class, scala_map, scala_none

NAME_RULE: Final = "1 to 249 of A-Z a-z 0-9 . _ -, not . or .."
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LOG: Final = "_delta_log"
_SQL_METRICS: Final = "org.apache.spark.sql.execution.metric.SQLMetrics"
_LEFTOVERS: Final = re.compile(r"_delta_log|part-.*\.parquet|\..*")


def is_destination_name(name: str) -> bool:
    """Whether a name may be a destination at all, before any pattern is asked."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def place_of(root: str, destination: str | None) -> str:
    """The place of a destination, under the root whatever its name is; the root itself for None.

    Raises:
        SinkError: A name that breaks the name rule or is Delta's own, or a link that leads out of the root.
    """
    if destination is None:
        return root.rstrip("/") or "/"
    if not is_destination_name(destination):
        raise SinkError("not a destination name", field="destination", value=destination, rule=NAME_RULE)
    if (
        destination.lower() == _LOG
    ):  # with that folder there, all its neighbours would look like parts of one table
        raise SinkError("the name is Delta's own", field="destination", value=destination)
    folder = local_folder(root)
    if folder is not None and not (folder / destination).resolve().is_relative_to(folder.resolve()):
        raise SinkError(
            "the destination leads out of its folder",
            field="destination",
            value=destination,
            rule=f"under {root}",
        )
    return f"{root.rstrip('/')}/{destination}"


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or folder."""
    place, system = _hadoop(spark, path)
    return bool(system.exists(place))


def has_log(spark: SparkSession, place: str) -> bool:
    """Whether a Delta log is there, were it an empty one."""
    return exists(spark, f"{place}/{_LOG}")


def is_foreign(spark: SparkSession, place: str, *, or_leftovers: bool) -> bool:
    """Whether something is at a place without a Delta table.

    Args:
        spark: The session.
        place: Path or URI.
        or_leftovers: Whether lone Parquet files count: a first write that was killed before its commit leaves some.
    """
    path, system = _hadoop(spark, place)
    if not system.exists(path):
        return False
    if system.getFileStatus(path).isFile():
        return True
    names = [status.getPath().getName() for status in system.listStatus(path)]
    return bool(names) and (or_leftovers or not all(_LEFTOVERS.fullmatch(name) for name in names))


def snapshot(spark: SparkSession, place: str) -> Any:
    """The table as it stands now (Delta's Snapshot); its version is -1 while the log holds no commit."""
    none = scala_none(spark)
    return delta_log(spark, place).update(False, none, none)  # noqa: FBT003  # not a stale one; py4j knows no keywords


def version_at(spark: SparkSession, place: str, instant_ms: int) -> int | None:
    """The newest version of a table that had been committed by an instant (UTC epoch ms); None before the first one.

    Raises:
        StoreError: The log does not go back so far.
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


def snapshot_at(spark: SparkSession, place: str, version: int) -> Any:
    """The table as it stood at a version (Delta's Snapshot)."""
    log = delta_log(spark, place)
    # Scala's default arguments, by the names that it gives them.
    others = [getattr(log, f"getSnapshotAt$default${number}")() for number in (2, 3, 4)]
    return log.getSnapshotAt(version, *others)


def last_transaction(table: Any, app_id: str) -> int | None:
    """The version of an id's last transaction in a snapshot; None if it has none."""
    return transactions(table).get(app_id)


def transactions(table: Any) -> dict[str, int]:
    """The last transactions of all ids in a snapshot; from the checksum if there is one, else Delta computes the table's state."""
    known = _known_transactions(table)
    if known is not None:
        return known
    entries = table.transactions().iterator()
    found = {}
    while entries.hasNext():
        entry = entries.next()
        found[str(entry.productElement(0))] = int(entry.productElement(1))
    return found


def depend_on(transaction: Any, app_ids: Iterable[str]) -> None:
    """Adds transaction ids to what a transaction has read: a commit of another that carries one of them is a conflict."""
    for app_id in app_ids:
        getattr(transaction.readTxn(), "$plus$eq")(app_id)


def _known_transactions(table: Any) -> dict[str, int] | None:
    """All last transactions by id, if the checksum of the snapshot's version tells them."""
    checksum = table.checksumOpt()
    listed = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if listed.isEmpty():
        return None
    entries = listed.get().iterator()
    found = {}
    while entries.hasNext():
        entry = entries.next()
        found[str(entry.appId())] = int(entry.version())
    return found


def append(
    frame: DataFrame,
    place: str,
    columns: T.StructType,
    never_null: Collection[str],
    *,
    app_id: str,
    batch_id: int,
) -> None:
    """Appends rows to a table that exists, unless it holds the transaction already. One atomic commit.

    Args:
        frame: Rows of `columns`.
        place: Path or URI of the table.
        columns: Those of the rows.
        never_null: Names of those that always have a value.
        app_id: Id of the transactions.
        batch_id: Version of this one.

    Raises:
        SinkError: The table does not fit.
    """
    spark = frame.sparkSession
    transaction = delta_log(spark, place).startTransaction()
    table = transaction.snapshot()
    depend_on(transaction, [app_id])
    last = last_transaction(table, app_id)
    if last is not None and last >= batch_id:
        return
    # What the writer would have checked. A change of the table between here and the commit is a conflict, and fails it.
    misfit = contradiction(table, columns, never_null)
    if misfit is not None:
        raise SinkError(f"the table does not fit: {misfit}", field=place)
    # Without a time: a table may forget old transactions (delta.setTransactionRetentionDuration), and must not forget these.
    mark = delta_class(spark, "actions.SetTransaction")(app_id, batch_id, scala_none(spark))
    files = transaction.writeFiles(frame._jdf)  # noqa: SLF001  # see above
    transaction.commit(files.appended(mark), streaming_update(spark, app_id, batch_id))


def streaming_update(spark: SparkSession, app_id: str, batch_id: int) -> Any:
    """What the history of a table says of an append."""
    mode = java_class(spark, "org.apache.spark.sql.streaming.OutputMode").Append()
    operation = delta_class(spark, "DeltaOperations$StreamingUpdate")
    return operation(mode, app_id, batch_id, scala_none(spark))


def listed_files(table: Any) -> Any:
    """The files of a snapshot (a Scala Seq of AddFile) if its checksum lists them, as Delta has it do up to 50; else None."""
    checksum = table.checksumOpt()
    listed = checksum.get().allFiles() if checksum.isDefined() else checksum
    return listed.get() if listed.isDefined() else None


def commits_after(spark: SparkSession, place: str, version: int) -> list[tuple[int, list[dict[str, Any]]]]:
    """The commits after a version, by rising version: all actions, as JSON has their fields."""
    commits = delta_log(spark, place).getChanges(version + 1, scala_none(spark), True)  # noqa: FBT003  # see snapshot
    found = []
    while commits.hasNext():
        commit = commits.next()
        found.append((int(commit.productElement(0)), as_json(spark, commit.productElement(1))))
    return found


def tell_counts(spark: SparkSession, transaction: Any, counts: Mapping[str, int]) -> None:
    """Gives a transaction the counts that Delta's history shows, where no job of its own has counted."""
    context: Any = spark._jsc  # noqa: SLF001  # see above
    metrics = {}
    for name, count in counts.items():
        metrics[name] = java_class(spark, _SQL_METRICS).createMetric(context.sc(), name)
        metrics[name].set(count)
    session = spark._jsparkSession  # noqa: SLF001  # see above
    transaction.registerSQLMetrics(session, scala_map(spark, metrics))


def as_json(spark: SparkSession, actions: Any) -> list[dict[str, Any]]:
    """A Scala Seq of Delta's actions as JSON has their fields: one call over py4j, where asking each would be several."""
    mapper = delta_class(spark, "util.JsonUtils").mapper()
    parsed: list[dict[str, Any]] = json.loads(mapper.writeValueAsString(actions))
    return parsed


def contradiction(table: Any, columns: T.StructType, never_null: Collection[str]) -> str | None:
    """What keeps rows from being appended to a table, whatever they hold; None if nothing does.

    Refused, too, is what would keep out some rows and not others: one of them would fail its batch again and again.

    Args:
        table: Its snapshot.
        columns: Those of the rows.
        never_null: Names of those that always have a value.
    """
    metadata = table.metadata()
    there = {column["name"].lower(): column for column in json.loads(metadata.schema().json())["fields"]}
    faults = []
    for column in columns:
        found = there.pop(column.name, None)
        if found is None:
            faults.append(f"it has no column {column.name}")
        elif (
            found["type"] != column.dataType.jsonValue() or "__CHAR_VARCHAR_TYPE_STRING" in found["metadata"]
        ):
            faults.append(f"its column {column.name} is not {column.dataType.simpleString()}")
        elif not found["nullable"] and column.name not in never_null:
            faults.append(f"its column {column.name} is NOT NULL")
    faults += [
        f"its further column {name} is NOT NULL" for name, found in there.items() if not found["nullable"]
    ]
    settings = str(metadata.configuration().keySet().mkString("\n")).splitlines()
    faults += [
        f"it has the CHECK {name.removeprefix('delta.constraints.')}"
        for name in settings
        if name.startswith("delta.constraints.")
    ]
    return ", ".join(faults) or None


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark._jsc  # noqa: SLF001  # see above
    place = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return place, place.getFileSystem(context.hadoopConfiguration())


def delta_log(spark: SparkSession, place: str) -> Any:
    """Delta's own log of a table."""
    session = spark._jsparkSession  # noqa: SLF001  # see above
    return delta_class(spark, "DeltaLog").forTable(session, place)


def delta_class(spark: SparkSession, name: str) -> Any:
    """A class of Delta's, by its name in ``org.apache.spark.sql.delta``."""
    return java_class(spark, f"org.apache.spark.sql.delta.{name}")
