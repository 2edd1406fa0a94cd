"""The streaming frames of operations and of events, from their sections of the config.

A source is opened like that of commands (:mod:`wheel_udf.job.sources`). Either its columns have the names of the
contract, or SQL makes them::

    operations:
      format: kafka
      topics: [orders]
      columns:                   # over key, value, topic, partition, offset, timestamp, headers
        op_id: get_json_object(cast(value AS string), '$.order')
        group: get_json_object(cast(value AS string), '$.customer')
        keys: array('paid')
        deadline: "'30 minutes'"
      where: topic = 'orders'

Without ``columns`` the value of a Kafka record is a JSON object with the names of
:mod:`wheel_udf.commands.operations`; another value goes to the rejects. The default of ``event_time`` is the source's
own timestamp: of the record, or of the file. If the SQL of ``rule`` or ``amount`` gives null (``try_cast``, a missing
field), the row becomes a reject, whose ``record`` is the source's row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.commands.columns import utc_text
from wheel_udf.commands.contract import EVENT_COLUMNS, OPERATION_COLUMNS
from wheel_udf.commands.json_objects import exact_texts, with_json_object
from wheel_udf.commands.operation_reader import RECORD
from wheel_udf.commands.rules import MISREAD
from wheel_udf.common.errors import ConfigError, ConfigErrors, WheelError
from wheel_udf.job.models.purgatory import EventsConfig, OperationsConfig, StreamConfig
from wheel_udf.job.models.source import DeltaSourceConfig, KafkaSourceConfig
from wheel_udf.job.sources.files import COORDINATES, CORRUPT_RECORD, open_files
from wheel_udf.job.sources.tables import open_table
from wheel_udf.job.sources.topics import open_topics
from wheel_udf.spark.failures import first_line, quiet_sql

_TYPES = {"keys": "ARRAY<STRING>", "headers": "ARRAY<STRUCT<key: STRING, value: STRING>>"}
_NEVER_NULL = {"rule", "amount"}
_COLUMNS = {"operations": OPERATION_COLUMNS, "events": EVENT_COLUMNS}


def read_both(
    spark: SparkSession, operations: OperationsConfig, events: EventsConfig
) -> tuple[DataFrame, DataFrame]:
    """Opens the sources of a purgatory as streams.

    Returns:
        Streaming frames with the columns of :mod:`wheel_udf.commands.operations`, as far as the sources have them, and
        ``source_coordinates``.

    Raises:
        ConfigErrors: All errors of both together: there is nothing at the path, a topic is missing, or SQL cannot be
            used.
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
    """The error of a source, with the name that the source has here."""
    field = None if fault.field is None else re.sub(r"^source(?=\.)", section, fault.field)
    return ConfigError(fault.what, field=field, value=fault.value, rule=fault.rule, hint=fault.hint)


def _read(spark: SparkSession, source: StreamConfig, section: str) -> DataFrame:
    names = _COLUMNS[section]
    rows, time = _open(spark, source, section, names)
    sql = _Sql(rows, section)
    chosen = None if source.where is None else sql.expression("where", source.where, "boolean")
    given = {name: sql.expression(f"columns.{name}", text) for name, text in source.columns.items()}
    if sql.faults:
        raise ConfigErrors(sql.faults)
    if chosen is not None:
        # A line that does not parse has no columns to filter by; it becomes a reject.
        unreadable = F.col(CORRUPT_RECORD).isNotNull() if CORRUPT_RECORD in rows.columns else F.lit(False)
        rows = rows.where(chosen | unreadable)
    if not source.columns:
        return json_rows(rows, names) if source.format == "kafka" else rows
    kept = [name for name in (COORDINATES, CORRUPT_RECORD, MISREAD) if name in rows.columns]
    columns = {"event_time": time, **given, RECORD: F.struct(*(F.col(f"`{name}`") for name in rows.columns))}
    for name in _NEVER_NULL & given.keys():
        # Null would mean the default, but it is also the result of SQL on a bad value. The text null is neither a rule
        # nor a number.
        columns[name] = F.coalesce(given[name].cast("string"), F.lit("null"))
    return rows.select(*(column.alias(name) for name, column in columns.items()), *kept)


def _open(
    spark: SparkSession, source: StreamConfig, section: str, names: Sequence[str]
) -> tuple[DataFrame, Column]:
    """The rows of a source with their coordinates, and the column of the source's own time."""
    if isinstance(source, KafkaSourceConfig):
        records = open_topics(spark, source, section)
        return records.withColumn(COORDINATES, F.concat_ws("/", "topic", "partition", "offset")), F.col(
            "timestamp"
        )
    if isinstance(source, DeltaSourceConfig):
        rows = open_table(spark, source)
    else:
        rows = open_files(spark, source, None if source.columns else _ddl_of(names))
    # A table may have no time: then it is that of the batch.
    has_time = "event_time" in (name.lower() for name in rows.columns)
    return rows, F.col("event_time") if has_time else F.lit(None).cast("timestamp")


class _Sql:
    """The SQL of a section, over the columns of its source; collects its errors."""

    def __init__(self, rows: DataFrame, section: str) -> None:
        self.rows, self.section = rows, section
        self.faults: list[WheelError] = []

    def expression(self, field: str, text: str, kind: str | None = None) -> Column:
        """Returns the column of an SQL text; a null if the text cannot be used."""
        try:
            column = F.expr(text)
            # Selected with the other columns: an aggregate by itself would pass.
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


def _ddl_of(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {_TYPES.get(name, 'STRING')}" for name in names)


def json_rows(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Reads Kafka records whose value is a JSON object.

    Args:
        rows: With the columns of a record, and its coordinates.
        names: The names to take from the object.

    Returns:
        Those columns as :mod:`wheel_udf.commands.json_objects` reads them (``keys`` as array), the record's own time
        where the object has none, the coordinates, and the text of an unreadable value.
    """
    rows = with_json_object(rows, F.col("value"), names)
    columns = {name: F.col(f"_object.{name}") for name in names}
    if "keys" in columns:  # one key may stand alone
        keys = columns["keys"]
        columns["keys"] = F.when(keys.startswith("["), exact_texts(keys)).when(
            keys.isNotNull(), F.array(keys)
        )
    columns["event_time"] = F.coalesce("_object.event_time", utc_text(F.unix_millis("timestamp")))
    return rows.select(*(column.alias(name) for name, column in columns.items()), CORRUPT_RECORD, COORDINATES)
