"""Tables of a catalog, by SQL and public frames alone: their names, their identities, whether rows fit.

::

    identity      properties ``wheel_udf.*`` of a table that a stream writes: what its checkpoint was begun with
    checkpoint    the file ``metadata`` of Spark in it, read as text: the id of its query, or none before the first run

                              no table                     a table
    checkpoint has not run    made, with the identity      must be empty and have the identity
    checkpoint has run        refused: it was dropped      must have the identity

So neither a lost table nor a lost checkpoint begins anew without being asked: all commands would be read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, types as T

from wheel_udf.common.errors import CheckpointError, ConfigError, GeometryChangedError
from wheel_udf.sinks.destinations import Shape, fields

IDENTITY: Final = "wheel_udf."
"""Begin of the properties that are the identity of a table."""
CHECKPOINT: Final = f"{IDENTITY}checkpoint"

NAME_RULE: Final = "table, schema.table or catalog.schema.table, each part of A-Z a-z 0-9 _ -"

_PART: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_NOT_FOUND: Final = frozenset({"TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"})
_CHECK: Final = "delta.constraints."


@dataclass(frozen=True)
class TableName:
    """The full name of a table."""

    catalog: str
    schema: str
    table: str

    @property
    def plain(self) -> str:
        """As a person writes it."""
        return f"{self.catalog}.{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """As SQL and readers take it."""
        return f"`{self.catalog}`.`{self.schema}`.`{self.table}`"

    def with_suffix(self, suffix: str) -> TableName:
        """The name of a table beside it."""
        return TableName(self.catalog, self.schema, f"{self.table}{suffix}")


def is_table_name(text: object) -> bool:
    """Whether a text is the name of a table (:data:`NAME_RULE`)."""
    parts = text.split(".") if isinstance(text, str) else []
    return 1 <= len(parts) <= 3 and all(_PART.fullmatch(part) for part in parts)


def table_name(spark: SparkSession, text: str) -> TableName:
    """A name with the session's catalog and schema in place of parts that are missing."""
    *before, table = text.split(".")
    schema = before.pop() if before else spark.catalog.currentDatabase()
    return TableName(before.pop() if before else spark.catalog.currentCatalog(), schema, table)


def name_fault(field: str, text: object) -> ConfigError | None:
    """The fault of a text that is to name a table."""
    if is_table_name(text):
        return None
    return ConfigError("not the name of a table", field=field, value=text, rule=NAME_RULE)


def checkpoint_fault(text: object) -> ConfigError | None:
    """The fault of a text that is to be the folder of checkpoints."""
    if isinstance(text, str) and text.strip("/ "):
        return None
    return ConfigError(
        "not a folder", field="checkpoint", value=text, rule="a path or URI that the server knows"
    )


def query_of_checkpoint(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of the query of a checkpoint; None if it has not run.

    Raises:
        CheckpointError: The file that holds it is damaged.
    """
    file = f"{checkpoint}/metadata"
    try:
        text = "".join(row.value for row in spark.read.text(file).collect())
    except AnalysisException as fault:
        if is_missing(fault):
            return None
        raise
    try:
        found = json.loads(text)["id"]
    except (ValueError, TypeError, KeyError) as fault:
        raise CheckpointError("the checkpoint is damaged", field=file, value=text) from fault
    return str(found)


def is_missing(fault: AnalysisException) -> bool:
    """Whether an error says that a table or a path is not there."""
    return fault.getCondition() in _NOT_FOUND


def schema_of(spark: SparkSession, name: TableName) -> T.StructType | None:
    """The columns of a table; None if there is none."""
    try:
        return spark.table(name.quoted).schema
    except AnalysisException as fault:
        if is_missing(fault):
            return None
        raise


def properties_of(spark: SparkSession, name: TableName) -> dict[str, str]:
    """The properties of a table."""
    rows = spark.sql(f"SHOW TBLPROPERTIES {name.quoted}").collect()
    return {row["key"]: row["value"] for row in rows}


def create(spark: SparkSession, name: TableName, schema: T.StructType, properties: Mapping[str, str]) -> None:
    """Creates an empty Delta table."""
    writer = spark.createDataFrame([], schema).writeTo(name.quoted).using("delta")
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    writer.create()


def open_written(
    spark: SparkSession,
    name: TableName,
    schema: T.StructType,
    checkpoint: str,
    identity: Mapping[str, str],
    properties: Mapping[str, str],
) -> str | None:
    """Makes the table of a stream at its first run, and compares it at every later one.

    Args:
        spark: The session.
        name: The table.
        schema: Its columns.
        checkpoint: The folder of the stream's checkpoint.
        identity: What must not change, by a word for people.
        properties: Further properties of a new table.

    Returns:
        The id of the query of the checkpoint; None before its first run.

    Raises:
        GeometryChangedError: The table was begun with another identity; all differences are named.
        CheckpointError: See the table above; or the table is not one of this package.
    """
    asked = {f"{IDENTITY}{word}": value for word, value in identity.items()} | {CHECKPOINT: checkpoint}
    query_id = query_of_checkpoint(spark, checkpoint)
    if schema_of(spark, name) is None:
        if query_id is not None:
            raise CheckpointError(
                "the checkpoint has run, and the table that it writes is missing",
                field=name.plain,
                value=checkpoint,
                hint="restore the table, or give the right name; a new checkpoint reads all commands again",
            )
        create(spark, name, schema, {**properties, **asked})
        return None
    found = properties_of(spark, name)
    if not asked.keys() <= found.keys():
        raise CheckpointError(
            "the table was not made by this function",
            field=name.plain,
            rule="a name that is free at the first run",
            hint="give another name; the table is made at the first run",
        )
    differences = [
        f"{key.removeprefix(IDENTITY)} {found[key]} there, {value} here"
        for key, value in asked.items()
        if found[key] != value
    ]
    if differences:
        raise GeometryChangedError(
            f"the table was begun with other settings ({'; '.join(differences)})",
            field=name.plain,
            hint="use the settings it was begun with; or a new table and a new checkpoint, which begin anew",
        )
    if query_id is None and not is_empty(spark.table(name.quoted)):
        raise CheckpointError(
            "the checkpoint of the table is missing, and the table has rows",
            field=checkpoint,
            value=name.plain,
            hint="restore the folder from a copy; a new table and a new checkpoint read all commands again",
        )
    return query_id


def is_empty(frame: DataFrame) -> bool:
    """Whether a frame has no row."""
    return not frame.limit(1).collect()


def misfit(spark: SparkSession, name: TableName, columns: str, shape: Shape | None = None) -> str | None:
    """The reason why rows cannot be appended to a table, as a clause; None if they can.

    Also what would refuse some rows and take others, because one such row would fail its stream again and again.

    Args:
        spark: The session.
        name: The table, which is there.
        columns: Columns of the rows, as DDL.
        shape: Their shape, for the columns that may be missing and those that are never null; None of rejects.
    """
    try:
        found = schema_of(spark, name)
        detail = spark.sql(f"DESCRIBE DETAIL {name.quoted}").first()
    except AnalysisException as fault:
        return f"{name.plain} cannot be read ({fault.getCondition() or 'no table'})"
    if found is None or detail is None or detail["format"] != "delta":
        return f"{name.plain} is not a Delta table"
    wanted = {each.name: each for each in fields(columns)}
    there = {each.name.lower(): each for each in found}
    optional = shape.optional if shape else frozenset()
    never_null = frozenset(wanted) - shape.may_be_null if shape else frozenset()
    faults = [
        f"it has no column {column}" for column in wanted if column not in there and column not in optional
    ]
    for column, field in there.items():
        own = wanted.get(column)
        if own is not None and _bare(field.dataType) != _bare(own.dataType):
            faults.append(
                f"its column {column} is {field.dataType.simpleString()}, not {own.dataType.simpleString()}"
            )
        elif not field.nullable and column not in never_null:
            faults.append(f"its column {column} is NOT NULL")
    faults += [
        f"it has the CHECK {key.removeprefix(_CHECK)}"
        for key in detail["properties"]
        if key.startswith(_CHECK)
    ]
    return f"the table {name.plain} does not fit: {', '.join(faults)}" if faults else None


def lacking(spark: SparkSession, name: TableName, shape: Shape) -> frozenset[str]:
    """The columns of a shape that a table may lack, and does."""
    found = schema_of(spark, name) or T.StructType([])
    return shape.optional.difference(column.lower() for column in found.names)


def _bare(kind: T.DataType) -> str:
    return kind.simpleString().lower()
