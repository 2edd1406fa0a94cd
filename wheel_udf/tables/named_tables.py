"""Delta tables that a catalog knows by name: what a name leads to, creation, appends. Public API of Spark alone.

::

    main.reminders.late --look_up--> None                              no such table
                                     NamedTable(fault="it is a view")  something that cannot be written
                                     NamedTable(location, state)       a Delta table

What a table is like is read from the log at its location, as of a table that is known by its path. Two kinds of
tables are known to the catalog alone (``state.version`` is then -1, and Spark tells the columns): those whose commits
a catalog keeps (:data:`CATALOG_FEATURES`), and those whose location this process may not read.

Rows go to a table by its name (``DataFrameWriterV2``), because catalogs refuse writers that know a path. Delta skips a
transaction that the table has: a repeated batch changes nothing.

Cost of a look-up in a Hive metastore: 40 to 90 ms. An append is made by Delta's own writer, which takes three more
Spark jobs than :func:`~wheel_udf.tables.delta_transaction.append_once`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, types as T

from wheel_udf.common.errors import SinkError
from wheel_udf.common.table_names import PLACEHOLDER, TableName, quoted
from wheel_udf.spark.failures import first_line, is_jvm_end, quiet_sql
from wheel_udf.tables.delta_log import snapshot
from wheel_udf.tables.table_state import FORGETS, TableState

CATALOG_FEATURES: Final = frozenset(
    {
        "catalogManaged",
        "catalogOwned",
        "catalogOwned-preview",
        "coordinatedCommits",
        "coordinatedCommits-preview",
    }
)
"""Features of tables whose newest commits are not in their log."""

_MISSING: Final = {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"}
_NO_SCHEMA: Final = {"SCHEMA_NOT_FOUND", "DATABASE_NOT_FOUND", "NO_SUCH_NAMESPACE"}
_NO_CATALOG: Final = {"REQUIRES_SINGLE_PART_NAMESPACE", "CATALOG_NOT_FOUND", "_LEGACY_ERROR_TEMP_1126"}
_FOLDER_GONE: Final = "DELTA_PATH_DOES_NOT_EXIST"
_CREATED_MEANWHILE: Final = {
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_METADATA_CHANGED",
    "TABLE_OR_VIEW_ALREADY_EXISTS",
}
_REFUSED_NAMES: Final = {"INVALID_SCHEMA_OR_RELATION_NAME", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"}
_IN_MEMORY: Final = "in-memory"
_SESSION_CATALOG: Final = "spark_catalog"
_SESSION_CLASS: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_MOST_TRIES: Final = 5


class NotATableError(SinkError):
    """The catalog refuses a table of this name, whoever asks."""


@dataclass(frozen=True)
class NamedTable:
    """What a name leads to.

    Attributes:
        location: Where its log is; empty of a view.
        state: Its columns and properties. The version is -1 if they are the catalog's and not those of the log.
        fault: Why it is not a Delta table that can be written, as a clause.
    """

    location: str = ""
    state: TableState = field(default_factory=TableState)
    fault: str | None = None

    @property
    def has_log(self) -> bool:
        """Whether the log at the location is that of the table, so that its transactions are known."""
        return self.state.version >= 0

    @property
    def catalog_feature(self) -> str | None:
        """The feature by which a catalog keeps the table's commits; None if none does."""
        return next(iter(sorted(CATALOG_FEATURES & _features(self.state))), None)


def look_up(spark: SparkSession, name: TableName) -> NamedTable | None:
    """Looks a name up in its catalog. None if the catalog, the schema or the table is missing.

    Raises:
        SinkError: The catalog does not answer, or does not allow it.
    """
    try:
        with quiet_sql():
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
    except Exception as fault:
        if _condition(fault) == _FOLDER_GONE:
            return NamedTable(
                fault="the catalog has it, and its folder is gone (DROP TABLE removes the entry)"
            )
        if _condition(fault) in _MISSING or schema_fault(spark, name) is not None:
            return None
        raise _unanswered(name, fault) from fault
    details = _details(rows)
    if details.get("Type") == "VIEW" or "Type" not in details:  # a temporary view has no details
        return NamedTable(fault="it is a view")
    if details.get("Provider", "").lower() != "delta":
        return NamedTable(
            fault=f"it is a table of {details.get('Provider', 'an unknown format')}, not of Delta"
        )
    location = details.get("Location", "").rstrip("/")
    state = _log_at(location)
    return NamedTable(location, _as_told(spark, name, details) if state is None else state)


def schema_fault(spark: SparkSession, name: TableName) -> str | None:
    """Why no table can have this name, as a clause: its catalog or schema is missing, or the name is none. None if one
    can.

    Raises:
        SinkError: The catalog does not answer, or does not allow it.
    """
    if (
        _is_sparks_own(spark, name)
        and re.fullmatch(r"\w+", name.parts[-1].replace(PLACEHOLDER, "x"), re.ASCII) is None
    ):
        # Delta would make a folder of that name before the metastore refuses it.
        return "tables of this catalog have names of A-Z a-z 0-9 _"
    if not name.schema:
        return None
    try:
        with quiet_sql():
            spark.sql(f"DESCRIBE SCHEMA {quoted(name.schema)}").collect()
    except Exception as fault:
        if _condition(fault) in _NO_SCHEMA:
            return f"the schema {'.'.join(name.schema)} is missing"
        if _condition(fault) in _NO_CATALOG and len(name.schema) > 1:
            return f"the catalog {name.schema[0]} is not set up (spark.sql.catalog.{name.schema[0]})"
        raise _unanswered(name, fault) from fault
    return None


def vanishes(spark: SparkSession, name: TableName) -> bool:
    """Whether names of this catalog end with the process: it is Spark's own, without a metastore."""
    kind = spark.conf.get("spark.sql.catalogImplementation", _IN_MEMORY)
    return kind == _IN_MEMORY and _is_sparks_own(spark, name)


def _is_sparks_own(spark: SparkSession, name: TableName) -> bool:
    """Whether the catalog is Spark's own, with or without a metastore."""
    catalog = name.parts[0] if len(name.parts) > 2 else spark.catalog.currentCatalog()
    kind = spark.conf.get(f"spark.sql.catalog.{_SESSION_CATALOG}", _SESSION_CLASS)
    return catalog == _SESSION_CATALOG and kind == _SESSION_CLASS


def tables_in(spark: SparkSession, name: TableName) -> list[str]:
    """The last parts of the names of all tables in the schema of a name; none if there is no such schema."""
    where = f" IN {quoted(name.schema)}" if name.schema else ""
    try:
        with quiet_sql():
            rows = spark.sql(f"SHOW TABLES{where}").collect()
    except AnalysisException:
        return []
    return sorted(row.tableName for row in rows if not row.isTemporary)


def create(
    spark: SparkSession,
    name: TableName,
    columns: T.StructType,
    properties: Mapping[str, str],
    *,
    partitioned_by: Sequence[str] = (),
    location: str | None = None,
) -> None:
    """Creates a table without rows, unless there is one.

    Raises:
        NotATableError: The catalog refuses the name.
        SinkError: It cannot be created.
    """
    ddl = ", ".join(
        f"{quoted((column.name,))} {column.dataType.simpleString()}{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    )
    parts = (
        f" PARTITIONED BY ({', '.join(quoted((each,)) for each in partitioned_by)})" if partitioned_by else ""
    )
    at = f" LOCATION {_text(location)}" if location is not None else ""
    told = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in properties.items())
    statement = f"CREATE TABLE IF NOT EXISTS {name.sql} ({ddl}) USING delta{parts}{at} TBLPROPERTIES ({told})"
    for left in reversed(range(_MOST_TRIES)):
        try:
            with quiet_sql():
                spark.sql(statement)
        except Exception as fault:
            # Delta's errors about concurrent commits have their condition in the text alone.
            if left and any(f"[{each}" in str(fault) for each in _CREATED_MEANWHILE):
                continue
            kind = NotATableError if _condition(fault) in _REFUSED_NAMES else SinkError
            raise kind(f"the table cannot be created ({_why(fault)})", field=str(name)) from fault
        return


def append(frame: DataFrame, name: TableName, *, app_id: str, batch_id: int) -> None:
    """Appends rows to a table that exists, by its name, unless it has the transaction already. One atomic commit."""
    writer = frame.writeTo(name.sql).option("txnAppId", app_id).option("txnVersion", str(batch_id))
    with quiet_sql():
        writer.option("mergeSchema", "false").append()


def is_missing(fault: Exception) -> bool:
    """Whether an append has failed because there is no such table any more."""
    return isinstance(fault, AnalysisException) and fault.getCondition() in _MISSING


def misfit(
    table: NamedTable, columns: T.StructType, never_null: frozenset[str], short: frozenset[str]
) -> str | None:
    """Why no rows can be appended to a table by name, as a clause; see :meth:`TableState.contradiction`."""
    if table.fault is not None:
        return table.fault
    if FORGETS in table.state.properties():
        return f"it forgets transactions ({FORGETS}), so a repeated batch could be written twice"
    return table.state.contradiction(columns, never_null, short)


def _log_at(location: str) -> TableState | None:
    """The state of a table by its log; None if the catalog keeps its commits, or the log cannot be read from here."""
    try:
        state = snapshot(location)
    except Exception:  # noqa: BLE001  # of any file system: no access, no such scheme
        return None
    return None if state.version < 0 or CATALOG_FEATURES & _features(state) else state


def _as_told(spark: SparkSession, name: TableName, details: Mapping[str, str]) -> TableState:
    """The state of a table as its catalog describes it."""
    properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()}
    features = [key.removeprefix("delta.feature.") for key in properties if key.startswith("delta.feature.")]
    metadata = {
        "id": details.get("Location", str(name)),
        "schemaString": spark.table(name.sql).schema.json(),
        "partitionColumns": json.loads(details["partitions"]),
        "configuration": properties,
    }
    return TableState(-1, metadata, {"minWriterVersion": 7, "writerFeatures": features})


def _details(rows: Sequence[T.Row]) -> dict[str, str]:
    """What DESCRIBE TABLE EXTENDED tells beside the columns; ``partitions`` are the partition columns as JSON."""
    texts = [(row[0], row[1]) for row in rows]
    partitions: list[str] = []
    begin = next((at for at, (name, _) in enumerate(texts) if name == "# Partition Information"), None)
    if begin is not None:
        names = (name for name, _ in texts[begin + 1 :])
        for each in names:
            if not each or (each.startswith("#") and each != "# col_name"):
                break
            partitions += [each] if each != "# col_name" else []
    start = next(
        (at for at, (name, _) in enumerate(texts) if name == "# Detailed Table Information"), len(texts)
    )
    return {**dict(texts[start:]), "partitions": json.dumps(partitions)}


def _features(state: TableState) -> set[str]:
    return {*(state.protocol.get("writerFeatures") or ()), *(state.protocol.get("readerFeatures") or ())}


def _condition(fault: Exception) -> str | None:
    """The condition of an error; None of one of Java without a class in pyspark, such as those of file systems."""
    if is_jvm_end(fault):
        raise fault
    return fault.getCondition() if isinstance(fault, PySparkException) else None


def _text(value: str) -> str:
    """A text for Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _why(fault: Exception) -> str:
    lines = (
        line for line in str(fault).splitlines() if not line.startswith("An error occurred while calling")
    )
    return first_line("\n".join(lines)).lstrip(": ").rstrip(".")[:300]


def _unanswered(name: TableName, fault: Exception) -> SinkError:
    return SinkError(
        f"the catalog does not tell what a table is ({_why(fault)})",
        field=str(name),
        hint="check the name, that the catalog is up, and the rights on the schema and the table",
    )
