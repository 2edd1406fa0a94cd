"""The streaming frames of operations and of events, built from their sections of the config.

A source is opened as that of commands (:mod:`wheel_udf.sources`). What its rows mean is either in its columns' names, or said in SQL::

    operations:
      format: kafka
      topics: [orders]
      columns:                                                      # over key, value, topic, partition, offset, timestamp, headers
        op_id: get_json_object(cast(value AS string), '$.order')
        group: get_json_object(cast(value AS string), '$.customer')
        keys: array('paid')
        deadline: "'30 minutes'"
      where: topic = 'orders'

Without ``columns`` the value of a Kafka record is a JSON object with the names of :mod:`wheel_udf.watch_rows`; one that is none goes to the rejects.
``event_time`` that is not given is the source's own timestamp: of the record, or of the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf.contract import EVENT_COLUMNS, OPERATION_COLUMNS
from wheel_udf.errors import ConfigError
from wheel_udf.sources import COORDINATES, CORRUPT_RECORD, open_files, open_kafka
from wheel_udf.watch_settings import StreamConfig

_TYPES = {"keys": "ARRAY<STRING>", "headers": "ARRAY<STRUCT<key: STRING, value: STRING>>"}
_COLUMNS = {"operations": OPERATION_COLUMNS, "events": EVENT_COLUMNS}


def read_rows(spark: SparkSession, source: StreamConfig, section: str) -> DataFrame:
    """Opens a source as a stream of operations or of events.

    Args:
        spark: The session.
        source: The section of the config.
        section: ``operations`` or ``events``.

    Returns:
        A streaming frame with the columns of :mod:`wheel_udf.watch_rows`, as far as they are there, and ``source_coordinates``.

    Raises:
        ConfigError: There is nothing at the path, a topic is missing, or SQL of a column cannot be used.
        SinkError: The Kafka cluster does not answer.
    """
    names = _COLUMNS[section]
    if source.format == "kafka":
        records = open_kafka(spark, source, section)
        rows = records.withColumn(COORDINATES, F.concat_ws("/", "topic", "partition", "offset"))
        rows = _meant(rows, source, section)
        return _said(rows, source, section, F.col("timestamp")) if source.columns else json_rows(rows, names)
    rows = _meant(open_files(spark, source, None if source.columns else _ddl_of(names)), source, section)
    if not source.columns:
        return rows
    has_time = "event_time" in (
        name.lower() for name in rows.columns
    )  # a table may have none: the time of the batch
    time = F.col("event_time") if has_time else F.lit(None).cast("timestamp")
    return _said(rows, source, section, time)


def _meant(rows: DataFrame, source: StreamConfig, section: str) -> DataFrame:
    if source.where is None:
        return rows
    # A line that cannot be read has no columns to ask, and is a row of the rejects.
    unreadable = F.col(CORRUPT_RECORD).isNotNull() if CORRUPT_RECORD in rows.columns else F.lit(False)
    try:
        return rows.where(F.expr(source.where) | unreadable)
    except PySparkException as fault:
        raise _unusable(fault, f"{section}.where", source.where, rows) from None


def _said(rows: DataFrame, source: StreamConfig, section: str, time: Column) -> DataFrame:
    """The columns that the config says in SQL."""
    said = {"event_time": time.alias("event_time")}
    for name, text in source.columns.items():
        try:
            said[name] = F.expr(text).alias(name)
            rows.select(said[name])
        except PySparkException as fault:
            raise _unusable(fault, f"{section}.columns.{name}", text, rows) from None
    kept = [name for name in (COORDINATES, CORRUPT_RECORD) if name in rows.columns]
    return rows.select(*said.values(), *kept)


def _unusable(fault: Exception, field: str, text: str, rows: DataFrame) -> ConfigError:
    return ConfigError(
        f"this SQL cannot be used ({str(fault).splitlines()[0]})",
        field=field,
        value=text,
        rule=f"SQL over {', '.join(rows.columns)}",
    )


def _ddl_of(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {_TYPES.get(name, 'STRING')}" for name in names)


def json_rows(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Kafka records whose value is a JSON object.

    Args:
        rows: With the columns of a record, and its coordinates.
        names: The names to take from the object.

    Returns:
        Those columns as texts (``keys`` and ``headers`` as arrays), the record's own time where the object has none, the coordinates, and the
        text of a value that is no object.
    """
    text = F.col("value").cast("string")
    said = F.from_json(text, _ddl_of(names))
    is_object = F.coalesce(F.json_object_keys(text).isNotNull(), F.lit(False))
    # As ISO text in UTC, whatever the session's zone is.
    stamp = F.date_format(
        F.to_utc_timestamp("timestamp", F.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
    )
    rows = rows.select(
        said.alias("said"),
        stamp.alias("stamp"),
        F.when(~is_object, F.coalesce(text, F.lit("null"))).alias(CORRUPT_RECORD),
        COORDINATES,
    )
    return rows.select(
        *(F.col(f"said.{name}") for name in names if name != "event_time"),
        F.coalesce("said.event_time", "stamp").alias("event_time"),
        CORRUPT_RECORD,
        COORDINATES,
    )
