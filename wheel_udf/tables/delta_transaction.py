"""Commits to Delta tables through Delta's own transactions: appends of the sinks, and the commits of the slot store.

Decision: an append to a table that exists is a transaction of Delta's own classes and no ``DataFrameWriter``. Both
make the same commit. But the writer looks for the last transaction (options ``txnAppId`` and ``txnVersion``) by
computing the table's whole state, three Spark jobs for each commit, where the checksum beside the last commit already
lists it. The guarantee is the same: the id is part of what the transaction has read, so of two writers of one batch,
one fails. Without a checksum (another writer left none) Delta computes the state here too.

::

    transaction = begin_transaction(spark, place)                   what it reads: transaction.before
    transaction.depend_on([app_id, "cursor"])           a commit of another that sets one of these is a conflict
    files = transaction.write_files(frame)              in the table's folder, in no commit yet
    transaction.commit_append(files, ...)               one atomic commit, or a conflict: nothing was added

Where Delta's classes are missing, :func:`append_once` takes the public writer; :func:`begin_transaction` raises, since
the slot store needs the conflicts.

Caveat: the classes are not public API of Delta; see :mod:`wheel_udf.spark.private_api`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, types as T

from wheel_udf.common.errors import SinkError, UnsupportedVersionError
from wheel_udf.spark.jvm import (
    java_class,
    java_context,
    java_session,
    scala_map,
    scala_none,
    scala_seq,
    scala_some,
)
from wheel_udf.spark.private_api import DELTA_APPEND, DELTA_COMMITS, required
from wheel_udf.tables import delta_public, log_checkpoints
from wheel_udf.tables.delta_files import File
from wheel_udf.tables.delta_log import Snapshot, as_json, delta_class, delta_log
from wheel_udf.tables.table_state import TableState, has_batch

_SQL_METRICS: Final = "org.apache.spark.sql.execution.metric.SQLMetrics"
_OUTPUT_MODE: Final = "org.apache.spark.sql.streaming.OutputMode"


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Data files that no commit contains yet. They are not bound to the transaction that wrote them.

    Attributes:
        actions: Delta's entries for them, a Scala Seq.
        listed: The same entries as JSON has them.
    """

    actions: Any
    listed: list[dict[str, Any]]


class Transaction:
    """A transaction on a table: what it has read, and one commit. Made by :func:`begin_transaction`."""

    def __init__(self, spark: SparkSession, place: str, log: Any, *, keeps_log: bool) -> None:
        self._spark, self._place, self._log, self._keeps_log = spark, place, log, keeps_log
        self._transaction = log.startTransaction()

    @property
    @required(DELTA_APPEND)
    def before(self) -> Snapshot:
        """The version that the transaction reads."""
        return Snapshot(self._spark, self._transaction.snapshot())

    @required(DELTA_APPEND)
    def depend_on(self, app_ids: Iterable[str]) -> None:
        """Adds app ids to what the transaction has read: a commit of another that sets one of them is a conflict."""
        for app_id in app_ids:
            getattr(self._transaction.readTxn(), "$plus$eq")(app_id)

    @required(DELTA_COMMITS)
    def write_files(self, frame: DataFrame, options: Mapping[str, str]) -> NewFiles:
        """Writes rows into files of the table's folder.

        Args:
            frame: The rows, with the columns of the table.
            options: Of Delta's writer, ``compression`` for example.
        """
        settings = java_session(self._spark).sessionState().conf()
        delta_options = delta_class(self._spark, "DeltaOptions")(scala_map(self._spark, options), settings)
        some = scala_some(self._spark, delta_options)
        actions = self._transaction.writeFiles(frame._jdf, some)  # noqa: SLF001
        return NewFiles(actions, as_json(self._spark, actions))

    def no_files(self) -> NewFiles:
        """No files, for a commit that sets transactions alone."""
        return NewFiles(scala_seq(self._spark, []), [])

    @required(DELTA_APPEND)
    def commit_append(
        self,
        files: NewFiles,
        *,
        app_id: str,
        batch_id: int,
        marks: Mapping[str, int] | None = None,
        note: str | None = None,
    ) -> int:
        """Adds files to the table, with a transaction.

        Args:
            files: The files.
            app_id: Id of the transaction.
            batch_id: Its version.
            marks: Further transactions, version by app id.
            note: Text that the table's history shows with the commit (``userMetadata``).

        Returns:
            The version of the commit.
        """
        actions = files.actions
        for name, version in {app_id: batch_id, **(marks or {})}.items():
            actions = actions.appended(self._mark(name, version))
        mode = java_class(self._spark, _OUTPUT_MODE).Append()
        operation = self._delta("DeltaOperations$StreamingUpdate")
        noted = scala_none(self._spark) if note is None else scala_some(self._spark, note)
        described = operation(mode, app_id, batch_id, noted)
        return self._commit(actions, described)

    @required(DELTA_COMMITS)
    def commit_deletion(self, files: Sequence[tuple[str, File]], *, app_id: str) -> None:
        """Removes files, path and description each, with a transaction whose version is about that of the table.

        As a DELETE and with its counts: after an operation of another name Delta writes no checksum, and the next
        reader has to compute the table's state.
        """
        self._count(
            {
                "numRemovedFiles": len(files),
                "numDeletedRows": sum(file.rows for _, file in files),
                "numCopiedRows": 0,
            }
        )
        operation = self._delta("DeltaOperations$Delete")(self._seq([]))
        actions = [self._add(file.as_add(path)).remove() for path, file in files]
        mark = self._mark(app_id, int(self._transaction.readVersion()) + 1)
        self._commit(self._seq([*actions, mark]), operation)

    @required(DELTA_COMMITS)
    def commit_rewrite(self, removed: Sequence[tuple[str, File]], added: NewFiles) -> None:
        """Replaces files by others with the same rows. The commit changes no data: no stream reads it."""
        new = [self._add({**file, "dataChange": False}) for file in added.listed]
        now_ms = int(self._transaction.clock().getTimeMillis())
        old = [
            self._add(file.as_add(path)).removeWithTimestamp(now_ms, False)  # noqa: FBT003  # py4j knows no keywords
            for path, file in removed
        ]
        none, empty = scala_none(self._spark), self._seq([])
        operation = self._delta("DeltaOperations$Optimize")(empty, empty, False, none, False)  # noqa: FBT003
        self._commit(self._seq([*new, *old]), operation)

    @required(DELTA_COMMITS)
    def commit_creation(
        self, columns: T.StructType, partitioned_by: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        """Creates the table, without rows."""
        kind = self._delta("actions.Metadata")
        # By position: id, name, description, format, schema, partition columns, properties, time of creation.
        default = {number: getattr(kind, f"apply$default${number}")() for number in (1, 2, 3, 4, 8)}
        own = (columns.json(), self._seq(partitioned_by), scala_map(self._spark, properties))
        metadata = kind(*(default[number] for number in (1, 2, 3, 4)), *own, default[8])
        # Without the session's defaults for new tables: column mapping, for example, would give columns and folders
        # other names.
        self._transaction.updateMetadata(metadata, True)  # noqa: FBT003  # py4j knows no keywords
        operation = self._delta("DeltaOperations$CreateTable")
        described = operation(metadata, False, False, scala_none(self._spark))  # noqa: FBT003  # as above
        self._commit(self._seq([]), described)

    @required(DELTA_APPEND)
    def append_rows(self, frame: DataFrame, *, app_id: str, batch_id: int) -> None:
        """Writes rows and adds them to the table, with a transaction."""
        files = self._transaction.writeFiles(frame._jdf)  # noqa: SLF001
        self.commit_append(NewFiles(files, []), app_id=app_id, batch_id=batch_id)

    def _commit(self, actions: Any, operation: Any) -> int:
        version = int(self._transaction.commit(actions, operation))
        log_checkpoints.after_commit(self._spark, self._place, self._log, version, keeps_log=self._keeps_log)
        return version

    def _mark(self, app_id: str, version: int) -> Any:
        # Without a time: a table may forget old transactions (delta.setTransactionRetentionDuration), and must not
        # forget these.
        return self._delta("actions.SetTransaction")(app_id, version, scala_none(self._spark))

    def _count(self, counts: Mapping[str, int]) -> None:
        """Sets the counts that Delta's history shows; no job of the transaction has counted them."""
        context = java_context(self._spark).sc()
        metrics = {}
        for name, count in counts.items():
            metrics[name] = java_class(self._spark, _SQL_METRICS).createMetric(context, name)
            metrics[name].set(count)
        self._transaction.registerSQLMetrics(java_session(self._spark), scala_map(self._spark, metrics))

    def _add(self, fields: Mapping[str, Any]) -> Any:
        return self._delta("actions.Action").fromJson(json.dumps({"add": fields}))

    def _delta(self, name: str) -> Any:
        return delta_class(self._spark, name)

    def _seq(self, items: Iterable[Any]) -> Any:
        return scala_seq(self._spark, items)


@required(DELTA_APPEND)
def begin_transaction(spark: SparkSession, place: str, *, keeps_log: bool = False) -> Transaction:
    """Begins a transaction on the table at a place.

    Args:
        spark: The session.
        place: Path or URI of the table.
        keeps_log: Whether commits that have expired stay in its log (:mod:`wheel_udf.tables.log_checkpoints`).

    Raises:
        UnsupportedVersionError: Delta's classes are missing.
    """
    return Transaction(spark, place, delta_log(spark, place), keeps_log=keeps_log)


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
        SinkError: The table does not fit.
    """

    def is_wanted(state: TableState) -> bool:
        if has_batch(state.transactions(), app_id, batch_id):
            return False
        # Delta's writer would check this. A change of the table between here and the commit is a conflict, and fails
        # it.
        misfit = state.contradiction(columns, never_null, short)
        if misfit is not None:
            raise SinkError(f"the table does not fit: {misfit}", field=place)
        return True

    try:
        transaction = begin_transaction(frame.sparkSession, place)
        transaction.depend_on([app_id])
        if is_wanted(transaction.before):
            transaction.append_rows(frame, app_id=app_id, batch_id=batch_id)
    except UnsupportedVersionError as fault:
        # Also safe after a commit: the writer skips a transaction that the table has.
        delta_public.report_fallback(fault)
        if is_wanted(delta_public.PublicState(frame.sparkSession, place)):
            delta_public.append_once(frame, place, app_id=app_id, batch_id=batch_id)
