"""Delta tables and their change feeds as streams. See :mod:`wheel_udf.job.sources`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.commands.change_feed import COMMITTED_AT, change_commands
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.table_names import TableName, table_name
from wheel_udf.job.models.source import DeltaSourceConfig
from wheel_udf.job.sources.files import COORDINATES, event_time, existing, reader_options, require_id
from wheel_udf.tables import delta_log
from wheel_udf.tables.named_tables import look_up, schema_fault

_KEEPS_CHANGES: Final = "delta.enableChangeDataFeed"


def read_table(spark: SparkSession, source: DeltaSourceConfig) -> DataFrame:
    """Opens a Delta table or its change feed as a stream; see :func:`~wheel_udf.job.sources.read_commands`."""
    frame = _stream(spark, source)
    require_id(frame.columns, source)
    return _changes(spark, frame, source) if source.reads_changes else _with_coordinates(frame, source)


def open_table(spark: SparkSession, source: DeltaSourceConfig) -> DataFrame:
    """Opens the rows of a Delta table, with their coordinates."""
    return _with_coordinates(_stream(spark, source), source)


def _stream(spark: SparkSession, source: DeltaSourceConfig) -> DataFrame:
    reader = spark.readStream.format("delta").options(**reader_options(source))
    if source.table is None:
        return existing(source, lambda: reader.load(source.place))
    name = table_name(source.table)
    require_delta(spark, name)
    return existing(source, lambda: reader.table(name.sql))


def require_delta(spark: SparkSession, name: TableName) -> None:
    """Checks that a name leads to a Delta table.

    Raises:
        ConfigError: It does not.
        SinkError: The catalog does not answer.
    """
    found = look_up(spark, name)
    if found is not None and found.fault is None:
        return
    why = found.fault if found is not None else schema_fault(spark, name)
    what = "there is nothing to read" + (f" ({why})" if why else "")
    raise ConfigError(what, field="source.table", value=str(name), rule="a Delta table of a catalog")


def _with_coordinates(frame: DataFrame, source: DeltaSourceConfig) -> DataFrame:
    return frame.withColumn(COORDINATES, F.lit(source.place))


def _properties(spark: SparkSession, source: DeltaSourceConfig) -> dict[str, str]:
    if source.table is None:
        return delta_log.snapshot(source.place).properties()
    rows = spark.sql(f"SHOW TBLPROPERTIES {table_name(source.table).sql}").collect()
    return {row.key: row.value for row in rows}


def _changes(spark: SparkSession, feed: DataFrame, source: DeltaSourceConfig) -> DataFrame:
    properties = _properties(spark, source)
    if properties.get(_KEEPS_CHANGES, "").lower() != "true":
        raise ConfigError(
            "the table keeps no changes",
            field=source.place_field,
            value=source.place,
            rule=f"the table property {_KEEPS_CHANGES} = true",
            hint=f"ALTER TABLE ... SET TBLPROPERTIES ({_KEEPS_CHANGES} = true); changes are kept from then on",
        )
    commands = change_commands(feed, source.place)
    return commands.withColumn("event_time", event_time(commands, F.col(COMMITTED_AT)))
