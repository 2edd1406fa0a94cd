"""Reads and appends to Delta tables through public API alone, for versions of Delta without the internal classes.

:mod:`wheel_udf.tables.delta_log` and :mod:`wheel_udf.tables.delta_transaction` are faster; the guarantee is the
same: the writer stores its transaction id in the same commit as the data, and skips a transaction that the table has.
::

    version        DeltaTable.history
    transactions   txn actions of the files in _delta_log, whose format is public (PROTOCOL.md of Delta)
    columns        the last metaData action, likewise: Spark's schema of a table leaves out what is generated
    properties     likewise, as the partition columns
    append         DataFrameWriter with the options txnAppId and txnVersion

Cost: one to three Spark jobs for each answer, and three more for each append.

The slot store cannot use this module. Its commits depend on what they have read (cursor, clock, last act of another
writer), and the public writer has no option for that.
"""

from __future__ import annotations

import json
import logging
from functools import cache, cached_property
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from wheel_udf.common.errors import SinkError, UnsupportedVersionError
from wheel_udf.common.paths import as_pattern
from wheel_udf.tables.table_state import TableState

FORGETS: Final = "delta.setTransactionRetentionDuration"
"""The property of a table that forgets transactions after a time."""
_log: Final = logging.getLogger(__name__)


class PublicState(TableState):
    """The newest version of a table, read through public API.

    Args:
        spark: The session.
        place: Path or URI of the table.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._spark, self._place = spark, place

    @property
    def version(self) -> int:
        """Its number; -1 while the log holds no commit."""
        try:
            row = DeltaTable.forPath(self._spark, self._place).history(1).select("version").first()
        except AnalysisException as fault:
            if (fault.getCondition() or "").startswith(
                ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND")
            ):
                return -1
            raise
        return int(row["version"]) if row is not None else -1

    def transactions(self) -> dict[str, int]:
        """The version of the last transaction of each app id. Versions only rise, so the last one is the largest."""
        found = self._actions("txn struct<appId: string, version: bigint>")
        newest = found.where("txn is not null").groupBy("txn.appId").agg(F.max("txn.version"))
        return {row[0]: row[1] for row in newest.collect()}

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._metadata.configuration)

    def columns(self) -> list[dict[str, Any]]:
        """The columns as the JSON of Spark's schemas has them, with Delta's metadata."""
        columns: list[dict[str, Any]] = json.loads(self._metadata.schemaString)["fields"]
        return columns

    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns, in order."""
        return tuple(self._metadata.partitionColumns)

    @cached_property
    def _metadata(self) -> Row:
        found = self._actions(
            "metaData struct<schemaString: string, partitionColumns: array<string>, configuration: map<string, string>>"
        )
        # Names of files begin with the version.
        newest = found.where("metaData is not null").agg(F.max_by("metaData", "file_name"))
        metadata: Row = newest.collect()[0][0]
        return metadata

    def _actions(self, schema: str) -> DataFrame:
        """The actions of a kind in the table's log, with the name of their file."""
        reader, log = self._spark.read.schema(schema), as_pattern(f"{self._place}/_delta_log")
        commits = reader.option("pathGlobFilter", "*.json").json(log)
        checkpoints = reader.option("pathGlobFilter", "*.checkpoint*.parquet").parquet(log)
        return commits.select("*", "_metadata.file_name").unionByName(
            checkpoints.select("*", "_metadata.file_name")
        )


def append_once(frame: DataFrame, place: str, *, app_id: str, batch_id: int) -> None:
    """Appends rows to a table that exists, unless it has the transaction already. One atomic commit.

    Args:
        frame: The rows; they fit the table.
        place: Path or URI of the table.
        app_id: Id of the transactions.
        batch_id: Version of this one.

    Raises:
        SinkError: The table does not keep transactions for ever.
    """
    keeps = PublicState(frame.sparkSession, place).properties().get(FORGETS)
    if keeps is not None:
        raise SinkError(
            "the table forgets transactions, so a repeated batch could be written twice",
            field=f"{place}: {FORGETS}",
            value=keeps,
            rule="not set, where the table is written through Delta's public writer",
            hint=f"ALTER TABLE ... UNSET TBLPROPERTIES ({FORGETS})",
        )
    options = {"txnAppId": app_id, "txnVersion": str(batch_id), "mergeSchema": "false"}
    frame.write.format("delta").mode("append").options(**options).save(place)


def report_fallback(fault: UnsupportedVersionError) -> None:
    """Logs, once for each API, that the public replacement is used."""
    _report(str(fault))


@cache
def _report(what: str) -> None:
    _log.warning("%s; Delta's public API is used instead, which is slower", what)
