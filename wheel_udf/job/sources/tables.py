"""Delta tables and their change feeds as streams. See :mod:`wheel_udf.job.sources`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.commands.change_feed import COMMITTED_AT, change_commands
from wheel_udf.common.errors import ConfigError
from wheel_udf.job.models.source import DeltaSourceConfig
from wheel_udf.job.sources.files import COORDINATES, event_time, existing, reader_options, require_id
from wheel_udf.tables import delta_log

_KEEPS_CHANGES: Final = "delta.enableChangeDataFeed"


def read_table(spark: SparkSession, source: DeltaSourceConfig) -> DataFrame:
    """Opens a Delta table or its change feed as a stream; see :func:`~wheel_udf.job.sources.read_commands`."""
    frame = _stream(spark, source)
    require_id(frame.columns, source)
    return _changes(frame, source) if source.reads_changes else _with_coordinates(frame, source)


def open_table(spark: SparkSession, source: DeltaSourceConfig) -> DataFrame:
    """Opens the rows of a Delta table, with their coordinates."""
    return _with_coordinates(_stream(spark, source), source)


def _stream(spark: SparkSession, source: DeltaSourceConfig) -> DataFrame:
    reader = spark.readStream.format("delta").options(**reader_options(source))
    return existing(source, lambda: reader.load(source.path))


def _with_coordinates(frame: DataFrame, source: DeltaSourceConfig) -> DataFrame:
    return frame.withColumn(COORDINATES, F.lit(source.path))


def _changes(feed: DataFrame, source: DeltaSourceConfig) -> DataFrame:
    properties = delta_log.snapshot(source.path).properties()
    if properties.get(_KEEPS_CHANGES, "").lower() != "true":
        raise ConfigError(
            "the table keeps no changes",
            field="source.path",
            value=source.path,
            rule=f"the table property {_KEEPS_CHANGES} = true",
            hint=f"ALTER TABLE ... SET TBLPROPERTIES ({_KEEPS_CHANGES} = true); changes are kept from then on",
        )
    commands = change_commands(feed, source.path)
    return commands.withColumn("event_time", event_time(commands, F.col(COMMITTED_AT)))
