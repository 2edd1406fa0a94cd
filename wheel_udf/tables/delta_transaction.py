"""Commits to Delta tables: appends of the sinks, and the commits of the slot store.

A transaction reads a version and commits the next one, or is told that another commit was first. So nothing that it
has read can have changed, whatever a commit depends on: its own last batch, a cursor, a file to remove::

    transaction = Transaction(place)                    what it reads: transaction.before, version 7
    files = transaction.write_files(frame)              in the table's folder, in no commit yet
    transaction.commit_append(files, ...)               version 8 as a whole, or ConflictError: nothing was added

After a conflict the writer begins again, checks again, and commits the same files. Appends to tables whose features
only Delta's own writer honours (:meth:`~wheel_udf.tables.table_state.TableState.beyond_plain`), or with a log store of
the user's, go through ``DataFrameWriter`` with ``txnAppId`` and ``txnVersion``: also exactly once, by three more Spark
jobs.

Decision: commits are written by the format of the log, not by the library delta-rs. That one reads the list of all
files for each commit, and a table that is written every second has a hundred thousand of them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, types as T

from wheel_udf import __version__
from wheel_udf.common.errors import SinkError
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.spark.object_stores import is_in_object_store
from wheel_udf.tables import delta_log, log_checkpoints
from wheel_udf.tables.data_files import write_files
from wheel_udf.tables.delta_files import File
from wheel_udf.tables.table_state import FORGETS, TableState, has_batch

NewFiles = list[dict[str, Any]]
"""Data files that no commit contains yet: the fields of their ``add`` actions."""

_DEFAULTS: Final = "spark.databricks.delta.properties.defaults."

MOST_TRIES: Final = 20
"""How often a commit is tried that comes second to another one each time."""


class ConflictError(Exception):
    """Another commit was first. Nothing was committed; begin again."""


class Transaction:
    """A transaction on a table: what it has read, and one commit.

    Args:
        place: Path or URI of the table.
        keeps_log: Whether commits that have expired stay in its log (:mod:`wheel_udf.tables.log_checkpoints`).
    """

    def __init__(self, place: str, *, keeps_log: bool = False) -> None:
        self._place, self._keeps_log = place, keeps_log
        self.before: TableState = delta_log.snapshot(place)
        """The version that the transaction reads."""

    def write_files(self, frame: DataFrame, options: Mapping[str, str]) -> NewFiles:
        """Writes rows, with the table's columns, into files of its folder; see :mod:`wheel_udf.tables.data_files`."""
        return write_files(frame, self._place, self.before, options)

    def commit_append(
        self,
        files: NewFiles,
        *,
        app_id: str,
        batch_id: int,
        marks: Mapping[str, int] | None = None,
    ) -> int:
        """Adds files to the table, with a transaction.

        Args:
            files: The files.
            app_id: Id of the transaction.
            batch_id: Its version.
            marks: Further transactions, version by app id.

        Returns:
            The version of the commit.
        """
        actions: list[tuple[str, Mapping[str, Any]]] = [("add", file) for file in files]
        actions += [_mark(name, version) for name, version in {app_id: batch_id, **(marks or {})}.items()]
        described = {"outputMode": "Append", "queryId": app_id, "epochId": str(batch_id)}
        return self._commit(actions, "STREAMING UPDATE", described, is_blind=True)

    def commit_deletion(self, files: Sequence[tuple[str, File]], *, app_id: str) -> None:
        """Removes files, path and description each, with a transaction whose version is that of the commit."""
        actions = [_removal(path, file, changes=True) for path, file in files]
        counts = {"numRemovedFiles": len(files), "numDeletedRows": sum(file.rows for _, file in files)}
        mark = _mark(app_id, self.before.version + 1)
        self._commit([*actions, mark], "DELETE", {"predicate": "[]"}, counts=counts)

    def commit_rewrite(self, removed: Sequence[tuple[str, File]], added: NewFiles) -> None:
        """Replaces files by others with the same rows. The commit changes no data: no stream reads it."""
        new = [("add", {**file, "dataChange": False}) for file in added]
        old = [_removal(path, file, changes=False) for path, file in removed]
        self._commit([*new, *old], "OPTIMIZE", {"predicate": "[]"})

    def commit_creation(
        self, columns: T.StructType, partitioned_by: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        """Creates the table, without rows."""
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": columns.json(),
            "partitionColumns": list(partitioned_by),
            "configuration": dict(properties),
            "createdTime": wall_clock_ms(),
        }
        described = {
            "partitionBy": json.dumps(list(partitioned_by)),
            "properties": json.dumps(dict(properties)),
        }
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        self._commit([("protocol", protocol), ("metaData", metadata)], "CREATE TABLE", described)

    def _commit(
        self,
        actions: Iterable[tuple[str, Mapping[str, Any]]],
        operation: str,
        described: Mapping[str, str],
        *,
        counts: Mapping[str, int] = MappingProxyType({}),
        is_blind: bool = False,
    ) -> int:
        version = self.before.version + 1
        information = {
            "timestamp": wall_clock_ms(),
            "operation": operation,
            "operationParameters": described,
            "isolationLevel": "Serializable",
            "isBlindAppend": is_blind,
            "operationMetrics": {name: str(count) for name, count in counts.items()},
            "engineInfo": f"wheel-udf/{__version__}",
            "txnId": str(uuid.uuid4()),
        }
        if not delta_log.commit(self._place, version, [("commitInfo", information), *actions]):
            raise ConflictError(f"{self._place}: version {version} was committed by another writer")
        log_checkpoints.after_commit(self._place, version, keeps_log=self._keeps_log)
        return version


def _mark(app_id: str, version: int) -> tuple[str, Mapping[str, Any]]:
    # A table that forgets old transactions (FORGETS) forgets those without a time first.
    return "txn", {"appId": app_id, "version": version, "lastUpdated": wall_clock_ms()}


def _removal(path: str, file: File, *, changes: bool) -> tuple[str, Mapping[str, Any]]:
    fields = {
        "path": path,
        "deletionTimestamp": wall_clock_ms(),
        "dataChange": changes,
        "extendedFileMetadata": True,
        "partitionValues": {
            name: str(value) for name, value in zip(("level", "slot"), file.place, strict=True)
        },
        "size": file.bytes,
    }
    return "remove", fields


def append_once(
    frame: DataFrame,
    place: str,
    columns: T.StructType,
    never_null: Collection[str],
    short: Collection[str] = (),
    *,
    app_id: str,
    batch_id: int,
) -> None:
    """Appends rows to a table that exists, unless it has the transaction already. One atomic commit.

    Args:
        frame: Rows of `columns`.
        place: Path or URI of the table.
        columns: Those of the rows.
        never_null: Names of those that always have a value.
        short: Names of those whose text can always be the name of a folder.
        app_id: Id of the transactions.
        batch_id: Version of this one.

    Raises:
        SinkError: The table is missing, or does not fit.
    """
    files: NewFiles | None = None
    written_for: object = None
    for _ in range(MOST_TRIES):
        transaction = Transaction(place)
        state = transaction.before
        if state.version < 0:
            raise SinkError("the table is missing", field=place)
        if has_batch(state.transactions(), app_id, batch_id):
            return
        misfit = state.contradiction(columns, never_null, short)
        if misfit is not None:
            raise SinkError(f"the table does not fit: {misfit}", field=place)
        if state.beyond_plain() is not None or _has_log_store(frame.sparkSession, place):
            _append_by_delta(frame, place, state, app_id=app_id, batch_id=batch_id)
            return
        # Dropped and created again, their folder with it; or overwritten with other columns or partitions.
        if files is None or state.metadata != written_for:
            written_for = state.metadata
            files = transaction.write_files(frame.select(*_as_named(frame, state)), {})
        try:
            transaction.commit_append(files, app_id=app_id, batch_id=batch_id)
        except ConflictError:
            continue
        return
    raise SinkError(f"gave up after {MOST_TRIES} conflicting commits", field=place)


def creates_alone(spark: SparkSession, place: str) -> bool:
    """Whether a table is created by :func:`create_once`, and not by Delta's own writer.

    In an object store that one looks whether there is a first commit and then writes its own, so of two drivers the
    second could replace what the first has written. Properties that the session gives to all new tables are its
    business.
    """
    has_defaults = any(name.startswith(_DEFAULTS) for name in spark.conf.getAll)
    return is_in_object_store(place) and not has_defaults and not _has_log_store(spark, place)


def create_once(place: str, columns: T.StructType, properties: Mapping[str, str]) -> None:
    """Creates a table without rows and partitions, unless another writer does."""
    transaction = Transaction(place)
    if transaction.before.version < 0:
        with suppress(ConflictError):
            transaction.commit_creation(_nullable(columns), (), properties)


def _nullable(columns: T.StructType) -> T.StructType:
    """The columns as Delta makes them of a frame: all may be null."""
    plain = T.StructType.fromJson(columns.jsonValue())
    for column in plain:
        column.nullable, column.metadata = True, {}
    return plain


def _as_named(frame: DataFrame, state: TableState) -> list[Any]:
    """The columns of the rows under the table's own names: capitals make no difference."""
    there = {column["name"].lower(): column["name"] for column in state.columns()}
    return [frame[name].alias(there[name.lower()]) for name in frame.columns]


def _has_log_store(spark: SparkSession, place: str) -> bool:
    """Whether Delta's commits to a place go through a log store that the user has chosen, a DynamoDB for example."""
    scheme = place.partition(":")[0]
    names = ("class", f"{scheme}.impl") if ":" in place else ("class",)
    return any(spark.conf.get(f"spark.delta.logStore.{name}", None) for name in names)


def _append_by_delta(frame: DataFrame, place: str, state: TableState, *, app_id: str, batch_id: int) -> None:
    keeps = state.properties().get(FORGETS)
    if keeps is not None:
        raise SinkError(
            "the table forgets transactions, so a repeated batch could be written twice",
            field=f"{place}: {FORGETS}",
            value=keeps,
            rule=f"not set, where Delta's own writer is needed ({state.beyond_plain() or 'for its log store'})",
            hint=f"ALTER TABLE ... UNSET TBLPROPERTIES ({FORGETS})",
        )
    options = {"txnAppId": app_id, "txnVersion": str(batch_id), "mergeSchema": "false"}
    frame.write.format("delta").mode("append").options(**options).save(place)
