"""Iceberg sink: deliveries in tables of an Iceberg catalog, exactly once, by Iceberg's public writer.

::

    a batch --append--> snapshot {wheel-udf.series: app id/destination, wheel-udf.batch: 17}    rows and number at once
    a repeated batch --looks for its number in the table's snapshots--> there: nothing is written

The lease of the checkpoint lets one process at a time write a series, so a look before the append is enough. It is made
for the first batch after a start and for a batch that was tried before: no other one can be there.

Spark needs Iceberg's runtime for its version (``org.apache.iceberg:iceberg-spark-runtime-4.1_2.13``; none for Spark 4.2
was published when this was written), and the catalog in its settings::

    spark.sql.catalog.lake            org.apache.iceberg.spark.SparkCatalog
    spark.sql.catalog.lake.type       rest
    spark.sql.catalog.lake.uri        https://...

Caveats: a batch that is repeated after its snapshot has expired is written twice. Expire snapshots after a day and not
after a minute. A batch writes one file into each of its tables, so a table that is written every second needs
``rewrite_data_files`` now and then. Columns that the table partitions by name folders: on a local disk a text beyond
255 bytes is no name of a folder, and fails its batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from wheel_udf.common.errors import SinkError
from wheel_udf.common.names import NAME_RULE, is_destination_name
from wheel_udf.common.table_names import TableName
from wheel_udf.sinks.destinations import FIRED, REJECT_SCHEMA, Shape, TablesByName, fields, series_of
from wheel_udf.spark.jvm import has_class
from wheel_udf.tables import named_tables

TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    # A commit per second would leave 86,400 files of metadata a day.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""Properties of new tables; existing tables are not changed."""

SERIES: Final = "wheel-udf.series"
BATCH: Final = "wheel-udf.batch"
"""Properties of a snapshot: whose batch it is, and which one."""

_MISSING: Final = frozenset(
    # The last one: there is no such catalog, and Spark takes it for a schema of its own.
    {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE"}
)
_BUILT_IN: Final = "spark_catalog"


@dataclass(frozen=True)
class IcebergSink(TablesByName):
    """An Iceberg table for each destination. Exactly once; new tables have :data:`TABLE_PROPERTIES`."""

    _tried: dict[tuple[TableName, str], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The last batch that this process has tried to write, by table and series."""
    _sound: dict[TableName, tuple[Shape, T.StructType]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Tables that fit rows of a shape, as long as they have these columns."""

    def missing_reason(
        self, spark: SparkSession, destination: str | None, shape: Shape = FIRED
    ) -> str | None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.missing_reason`: wrong name, table, format or columns.

        Raises:
            SinkError: The catalog does not answer, or its class is missing.
        """
        if destination is not None and not is_destination_name(destination):
            return f"not a destination name: {destination!r}; rule: {NAME_RULE}"
        self._require_catalog(spark)
        name = self.name.of(destination)
        found = _columns_of(spark, name)
        if found is None:
            return self._why_not_made(spark, name, destination)
        if self._sound.get(name) == (shape, found):
            return None
        if (provider := _provider(spark, name)) != "iceberg":
            return f"the table {name} is not an Iceberg table but {provider}"
        columns, may_be_null = _columns(destination, shape, found)
        if (misfit := _misfit(columns, may_be_null, found)) is not None:
            return f"the table {name} does not fit: {misfit}"
        self._sound[name] = shape, found
        return None

    def write(
        self,
        frame: DataFrame,
        destination: str | None,
        *,
        app_id: str,
        batch_id: int,
        shape: Shape = FIRED,
    ) -> None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.write`."""
        spark, name = frame.sparkSession, self.name.of(destination)
        found = _columns_of(spark, name)
        if found is None:
            if not self.create and destination is not None:
                raise SinkError(
                    "the table is missing", field=str(name), hint="create it, or set create: true"
                )
            found = _create(frame, name)
        if self.holds(spark, destination, app_id=app_id, batch_id=batch_id):
            return
        series = series_of(app_id, destination)
        self._tried[name, series] = batch_id
        columns, _ = _columns(destination, shape, found)
        further = [
            F.lit(None).cast(column.dataType).alias(column.name)
            for column in found
            if column.name not in columns.names
        ]
        writer = frame.select(*columns.names, *further).writeTo(name.sql)
        try:
            writer.options(
                **{f"snapshot-property.{SERIES}": series, f"snapshot-property.{BATCH}": str(batch_id)}
            ).append()
        except Exception:
            # The catalog of a session keeps tables for half a minute: this one may be another one by now.
            self._sound.pop(name, None)
            spark.catalog.refreshTable(name.sql)
            raise

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.holds`; from the table's snapshots."""
        name, series = self.name.of(destination), series_of(app_id, destination)
        if self._tried.get((name, series), batch_id) < batch_id:
            return False  # nobody has tried to write it
        if _columns_of(spark, name) is None:
            return False
        of_batch = (F.element_at("summary", SERIES) == series) & (
            F.element_at("summary", BATCH).cast("long") >= batch_id
        )
        return not spark.table(f"{name.sql}.snapshots").where(of_batch).limit(1).isEmpty()

    def _require_catalog(self, spark: SparkSession) -> None:
        catalog = self.name.schema[0] if len(self.name.schema) > 1 else _BUILT_IN
        made_of = spark.conf.get(f"spark.sql.catalog.{catalog}", None)
        if catalog != _BUILT_IN and made_of is not None and not has_class(spark, made_of):
            hint = "add the jar of Iceberg's runtime for this Spark (spark.jars.packages)"
            raise SinkError("the class of the catalog is missing", field=catalog, value=made_of, hint=hint)

    def _why_not_made(self, spark: SparkSession, name: TableName, destination: str | None) -> str | None:
        if (fault := named_tables.schema_fault(spark, name)) is not None:
            return f"there is no table {name}: {fault}"
        return None if self.create or destination is None else f"the table {name} is missing"


def _columns(
    destination: str | None, shape: Shape, found: T.StructType
) -> tuple[T.StructType, frozenset[str]]:
    """The columns that a table gets of a destination's rows (None: of the rejects), and those that may be null."""
    if destination is None:
        columns = fields(REJECT_SCHEMA)
        return columns, frozenset(columns.names)
    lacking = shape.optional - set(found.names)
    taken = [column for column in fields(shape.columns) if column.name not in lacking]
    return T.StructType(taken), shape.may_be_null


def _columns_of(spark: SparkSession, name: TableName) -> T.StructType | None:
    """The columns of a table; None if there is none of this name."""
    try:
        return spark.table(name.sql).schema
    except AnalysisException as fault:
        if fault.getCondition() not in _MISSING:
            raise
        return None


def _provider(spark: SparkSession, name: TableName) -> str:
    rows = (
        spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").where("col_name IN ('Provider', 'Type')").collect()
    )
    said = {row.col_name: row.data_type for row in rows}
    return str(said.get("Provider") or said.get("Type") or "a view").lower()


def _create(frame: DataFrame, name: TableName) -> T.StructType:
    """Creates the table without a row, unless another query has been faster; returns its columns."""
    writer = frame.limit(0).writeTo(name.sql).using("iceberg")
    for key, value in TABLE_PROPERTIES.items():
        writer = writer.tableProperty(key, value)
    try:
        writer.create()
    except Exception:
        if (found := _columns_of(frame.sparkSession, name)) is None:
            raise
        return found
    return frame.sparkSession.table(name.sql).schema


def _misfit(columns: T.StructType, may_be_null: Collection[str], found: T.StructType) -> str | None:
    """The reason why no row, or not every row, can be appended; None if there is none."""
    there = {column.name: column for column in found}
    faults = []
    for column in columns:
        own = there.get(column.name)
        if own is None:
            faults.append(f"it has no column {column.name}")
        elif own.dataType.simpleString() != column.dataType.simpleString():
            faults.append(
                f"its column {column.name} is {own.dataType.simpleString()}, not {column.dataType.simpleString()}"
            )
        elif not own.nullable and column.name in may_be_null:
            faults.append(f"its column {column.name} is NOT NULL")
    faults += [
        f"its further column {column.name} is NOT NULL"
        for column in found
        if column.name not in columns.names and not column.nullable
    ]
    return ", ".join(faults) or None
