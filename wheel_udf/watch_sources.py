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
``event_time`` that is not given is the source's own timestamp: of the record, or of the file. SQL that makes nothing of a row's rule or amount (``try_cast``, a missing
field) makes it a reject, whose ``record`` is the source's row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf.contract import EVENT_COLUMNS, OPERATION_COLUMNS
from wheel_udf.errors import ConfigError, ConfigErrors, WheelError
from wheel_udf.failures import first_line, quiet_sql
from wheel_udf.sources import COORDINATES, CORRUPT_RECORD, open_files, open_kafka
from wheel_udf.watch_rows import RECORD
from wheel_udf.watch_settings import StreamConfig

_TYPES = {"keys": "ARRAY<STRING>", "headers": "ARRAY<STRUCT<key: STRING, value: STRING>>"}
_NEVER_NULL = {"rule", "amount"}
_COLUMNS = {"operations": OPERATION_COLUMNS, "events": EVENT_COLUMNS}


def read_both(
    spark: SparkSession, operations: StreamConfig, events: StreamConfig
) -> tuple[DataFrame, DataFrame]:
    """Opens the sources of a purgatory as streams.

    Args:
        spark: The session.
        operations: The section of the config.
        events: Likewise.

    Returns:
        Streaming frames with the columns of :mod:`wheel_udf.watch_rows`, as far as they are there, and ``source_coordinates``.

    Raises:
        ConfigErrors: Of both at once: there is nothing at the path, a topic is missing, or SQL cannot be used.
        SinkError: The Kafka cluster does not answer.
    """
    frames: list[DataFrame] = []
    faults: list[WheelError] = []
    for section, source in (("operations", operations), ("events", events)):
        try:
            frames.append(_read(spark, source, section))
        except ConfigErrors as several:
            faults += several.faults
        except ConfigError as fault:
            faults.append(_of_section(fault, section))
    if faults:
        raise ConfigErrors(faults)
    return frames[0], frames[1]


def _of_section(fault: ConfigError, section: str) -> ConfigError:
    """A fault of a source, with the name that the source has here."""
    field = None if fault.field is None else re.sub(r"^source(?=\.)", section, fault.field)
    return ConfigError(fault.what, field=field, value=fault.value, rule=fault.rule, hint=fault.hint)


def _read(spark: SparkSession, source: StreamConfig, section: str) -> DataFrame:
    names = _COLUMNS[section]
    if source.format == "kafka":
        records = open_kafka(spark, source, section)
        rows = records.withColumn(COORDINATES, F.concat_ws("/", "topic", "partition", "offset"))
        time = F.col("timestamp")
    else:
        rows = open_files(spark, source, None if source.columns else _ddl_of(names))
        # A table may have no time: that of the batch.
        has_time = "event_time" in (name.lower() for name in rows.columns)
        time = F.col("event_time") if has_time else F.lit(None).cast("timestamp")
    meant = _Meaning(rows, section)
    chosen = None if source.where is None else meant.expression("where", source.where, "boolean")
    said = {name: meant.expression(f"columns.{name}", text) for name, text in source.columns.items()}
    if meant.faults:
        raise ConfigErrors(meant.faults)
    if chosen is not None:
        # A line that cannot be read has no columns to ask, and is a row of the rejects.
        unreadable = F.col(CORRUPT_RECORD).isNotNull() if CORRUPT_RECORD in rows.columns else F.lit(False)
        rows = rows.where(chosen | unreadable)
    if not source.columns:
        return json_rows(rows, names) if source.format == "kafka" else rows
    kept = [name for name in (COORDINATES, CORRUPT_RECORD) if name in rows.columns]
    columns = {"event_time": time, **said, RECORD: F.struct(*(F.col(f"`{name}`") for name in rows.columns))}
    for name in _NEVER_NULL & said.keys():
        # Null would mean the default, and is what SQL makes of a value that it cannot use: this is no rule, and no number.
        columns[name] = F.coalesce(said[name].cast("string"), F.lit("null"))
    return rows.select(*(column.alias(name) for name, column in columns.items()), *kept)


class _Meaning:
    """The SQL of a section, over the columns of its source; gathers what is wrong with it."""

    def __init__(self, rows: DataFrame, section: str) -> None:
        self.rows, self.section = rows, section
        self.faults: list[WheelError] = []

    def expression(self, field: str, text: str, kind: str | None = None) -> Column:
        """The column that a text means; a null if that cannot be used."""
        try:
            column = F.expr(text)
            # With the others, for an aggregate would be good by itself.
            with quiet_sql():
                found = self.rows.select("*", column).schema.fields[-1].dataType.simpleString()
            if kind in (None, found):
                return column
            reason = f"it is of type {found}, not {kind}"
        except PySparkException as error:
            reason = first_line(str(error))
        self.faults.append(
            ConfigError(
                f"this SQL cannot be used ({reason})",
                field=f"{self.section}.{field}",
                value=text,
                rule=f"SQL over {', '.join(self.rows.columns)}",
            )
        )
        return F.lit(None)


def _ddl_of(names: Sequence[str], **others: str) -> str:
    types = _TYPES | others
    return ", ".join(f"`{name}` {types.get(name, 'STRING')}" for name in names)


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
    said = F.from_json(text, _ddl_of(names, keys="STRING"))
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
    columns = {name: F.col(f"said.{name}") for name in names if name != "event_time"}
    if "keys" in columns:  # one key may stand alone
        keys = columns["keys"]
        columns["keys"] = F.when(keys.startswith("["), F.from_json(keys, "array<string>")).when(
            keys.isNotNull(), F.array(keys)
        )
    return rows.select(
        *(column.alias(name) for name, column in columns.items()),
        F.coalesce("said.event_time", "stamp").alias("event_time"),
        CORRUPT_RECORD,
        COORDINATES,
    )
