"""The streaming frame of commands, built from the section ``source`` of the config.

Every format ends in the same shape: the columns of the files as they are, plus ``source_coordinates`` (where the row stands, for
the rejects), with ``event_time`` filled from the source's own timestamp where it is missing::

    format   columns                                   coordinates            event_time if missing
    parquet  of the files; empty folder: the contract  file#row number        modification time of the file
    csv      of the header; empty folder: contract     file                   modification time of the file
    json     of the contract                           file                   modification time of the file
    delta    of the table                              the table              left null: the batch's own timestamp
    its feed of the table and of wheel_udf.changes     orders@v7              time of the commit
    kafka    of the preset (wheel_udf.presets)         topic/partition/offset timestamp of the record

Text formats hold texts: csv and json are read as strings, and :mod:`wheel_udf.commands` reads the times and numbers in them, so that a bad
``seq`` is a reject and not a silent null. A line of csv or json that does not parse keeps its text in ``_corrupt_record`` and loses
its ``schedule_id``: it becomes a reject with its text, whatever could be read of it.

Kafka. A first start reads from the earliest offset unless ``startingOffsets`` says otherwise; after that the checkpoint alone knows where to
go on. The cluster is asked before the query starts whether the topics are there (those of ``subscribePattern`` may come later), because
Spark would wait minutes for the answer. Records have their offset as ``source_seq``, the version of commands that give none.
Options: :mod:`wheel_udf.kafka_options`.

Topics of delay levels (:class:`LevelTopic`). Each is a Kafka source of its own in the one query, so that its intake can pause alone. The list of sources
is the checkpoint's: Spark matches offsets to sources by their order, so these topics are fixed by the first start. A pause leaves the source where it is
and lets it read nothing (``maxOffsetsPerTrigger`` 0): no offset moves, and the start after it goes on from there. To take the topic out of
``subscribe`` instead would lose its offsets: Spark keeps those of the topics it reads alone, stops for data loss (``failOnDataLoss``), and reads
the topic from its earliest record when it comes back.

Changes. With the option ``readChangeFeed`` a Delta table is read as the log of its changes: :mod:`wheel_udf.changes`. That the table keeps them
is asked before anything starts; a start at a version before it kept them (``startingVersion``) fails with Delta's own words.

What cannot be known before the stream runs (a later file with other types) fails the batch with Spark's own error, which
:mod:`wheel_udf.failures` puts into a sentence.

Caveats: Spark fixes the columns when the query starts; new columns in later files are not seen until a restart. Delta streams carry no
file metadata, hence the coarse coordinates of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType, TimestampNTZType, TimestampType

from wheel_udf import kafka_admin, kafka_options, tables
from wheel_udf.changes import COMMITTED_AT, change_commands
from wheel_udf.errors import ConfigError, ConfigErrors, ContractError
from wheel_udf.presets import kafka_commands
from wheel_udf.settings import SourceConfig

COORDINATES = "source_coordinates"
CORRUPT_RECORD = "_corrupt_record"

_PARQUET_DDL = (
    "schedule_id STRING, op STRING, seq BIGINT, deliver_at TIMESTAMP, delay STRING, event_time TIMESTAMP, destination STRING, "
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, max_lateness STRING"
)
_TEXT_COLUMNS = (
    *("schedule_id", "op", "seq", "deliver_at", "delay", "event_time"),
    *("destination", "key", "value", "max_lateness"),
)
_JSON_DDL = ", ".join(f"{name} STRING" for name in _TEXT_COLUMNS) + (
    ", headers ARRAY<STRUCT<key: STRING, value: STRING>>"
)
_CSV_DEFAULTS = {"header": "true", "enforceSchema": "false"}
_MISSING = ("PATH_NOT_FOUND", "DELTA_SCHEMA_NOT_SET", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST")
_KEEPS_CHANGES = "delta.enableChangeDataFeed"
_SAMPLED_LINES = 100
_LAST_OFFSET = 2**63 - 1
_T = TypeVar("_T")


@dataclass(frozen=True)
class LevelTopic:
    """A topic of Kafka whose records have the delay of a level (RocketMQ's ``SCHEDULE_TOPIC_XXXX`` has a queue for each).

    Attributes:
        topic: Its name.
        level_ms: The delay, in ms, of records that name neither ``deliver_at`` nor ``delay``.
        paused: Read nothing of it; its offsets wait.
    """

    topic: str
    level_ms: int
    paused: bool = False


def read_commands(
    spark: SparkSession,
    source: SourceConfig,
    *,
    preset: str = kafka_options.DEFAULT_PRESET,
    level_topics: Sequence[LevelTopic] = (),
) -> DataFrame:
    """Opens the source as a stream of commands.

    Args:
        spark: The session.
        source: The section ``source`` of the config.
        preset: How a Kafka record becomes a command (see :mod:`wheel_udf.presets`); other sources have columns.
        level_topics: Of kafka: topics of delay levels, beside the source's own, always in one order.

    Returns:
        A streaming frame: the source's columns and ``source_coordinates`` (string); of Kafka and of a change feed also ``source_seq`` (long).

    Raises:
        ConfigError: If there is nothing at the path, a topic is missing, a table keeps no changes, or ``schema`` or an option cannot be used.
        ContractError: If what is there has no ``schedule_id``, or a table of changes says ``op`` or ``seq``.
        SinkError: If the Kafka cluster does not answer.
    """
    if source.format == "kafka":
        return _kafka(spark, source, preset, level_topics)
    options = _options(source)
    if source.format == "delta":
        frame = _delta(spark, source, options)
        _require_id(frame.columns, source)
        return _changes(spark, frame, source) if source.reads_changes else _with_coordinates(frame, source)
    schema = _schema(spark, source, options)
    _require_id(schema.names, source)
    return _with_coordinates(_files(spark, source, options, schema), source)


def open_kafka(spark: SparkSession, source: SourceConfig, section: str = "source") -> DataFrame:
    """The records of a Kafka source as Spark's connector has them; its errors name the `section`."""
    _check_kafka(spark, source, section, ())
    return _records(spark, source, kafka_options.reader_options(source.options, source.topics))


def _check_kafka(spark: SparkSession, source: SourceConfig, section: str, more: Sequence[str]) -> None:
    if faults := list(kafka_options.source_faults(source.model_dump(), section)):
        raise ConfigErrors(faults)
    _require_topics(spark, source, section, more)


def open_files(spark: SparkSession, source: SourceConfig, ddl: str | None) -> DataFrame:
    """The rows of a folder of files or of a Delta table, with their coordinates and ``event_time``.

    Args:
        spark: The session.
        source: Where they are; a format other than kafka.
        ddl: Columns of JSON files where the source says none; None: what is found there.
    """
    options = _options(source)
    if source.format == "delta":
        return _with_coordinates(_delta(spark, source, options), source)
    if source.schema_ddl is not None or (source.format == "json" and ddl is not None):
        schema = _parsed(source.schema_ddl or ddl or "")
    else:
        reader = spark.read.options(**options).format(source.format)
        schema = _inferred(source, reader.load) or StructType()
    return _with_coordinates(_files(spark, source, options, _with_corrupt_record(source, schema)), source)


def _delta(spark: SparkSession, source: SourceConfig, options: dict[str, str]) -> DataFrame:
    return _existing(
        source, lambda: spark.readStream.format("delta").options(**options).load(source.location)
    )


def _files(
    spark: SparkSession, source: SourceConfig, options: dict[str, str], schema: StructType
) -> DataFrame:
    reader = spark.readStream.format(source.format).options(**options).schema(schema)
    return _existing(source, lambda: reader.load(source.location))


def _kafka(
    spark: SparkSession, source: SourceConfig, preset: str, level_topics: Sequence[LevelTopic]
) -> DataFrame:
    if not level_topics:
        return kafka_commands(open_kafka(spark, source), preset)
    _check_kafka(spark, source, "source", [each.topic for each in level_topics])
    given = kafka_options.reader_options(source.options, source.topics)
    own = kafka_options.topic_names(source.model_dump())
    commands = kafka_commands(_records(spark, source, kafka_options.for_topics(given, own)), preset)
    frame = (
        commands if "delay" in commands.columns else commands.withColumn("delay", F.lit(None).cast("string"))
    )
    for each in level_topics:
        options = kafka_options.for_level_topic(given, each.topic, paused=each.paused)
        frame = frame.unionByName(
            _delayed(kafka_commands(_records(spark, source, options), preset), each.level_ms)
        )
    return frame


def _records(spark: SparkSession, source: SourceConfig, options: dict[str, str]) -> DataFrame:
    records = spark.readStream.format("kafka").options(**options).load()
    ends = kafka_options.ending_offsets(source.options)
    return records.where(_is_before(ends)) if ends else records


def _delayed(commands: DataFrame, level_ms: int) -> DataFrame:
    """Commands that have the delay of a level, unless they say when they are due."""
    said = F.col("delay") if "delay" in commands.columns else F.lit(None)
    own = F.when(F.col("deliver_at").isNull(), F.lit(f"{level_ms} ms"))
    return commands.withColumn("delay", F.coalesce(said, own))


def _require_topics(spark: SparkSession, source: SourceConfig, section: str, more: Sequence[str]) -> None:
    own = kafka_options.topic_names(source.model_dump())
    if not own and not more:  # a pattern: whether the cluster answers at all
        kafka_admin.topic_names(spark, source.options)
        return
    missing = kafka_admin.missing_topics(spark, source.options, (*own, *more))
    faults = [
        ConfigError(
            "there is nothing to read",
            field=field,
            value=", ".join(gone),
            rule="topics that exist and that this user may read",
            hint="make them, or check the names",
        )
        for field, names in ((f"{section}.topics", own), ("levels.topics", more))
        if (gone := [name for name in missing if name in names])
    ]
    if faults:
        raise faults[0] if len(faults) == 1 else ConfigErrors(faults)


def _is_before(ends: kafka_options.Offsets) -> Column:
    """Whether a record is before the end of its partition. Spark folds the map into a constant."""
    pairs = [
        (F.lit(f"{topic}/{partition}"), F.lit(offset))
        for topic, places in ends.items()
        for partition, offset in places.items()
    ]
    if not pairs:
        return F.lit(True)
    end = F.try_element_at(F.create_map(*chain(*pairs)), F.concat_ws("/", "topic", "partition"))
    return F.col("offset") < F.coalesce(end.cast("long"), F.lit(_LAST_OFFSET))


def _changes(spark: SparkSession, feed: DataFrame, source: SourceConfig) -> DataFrame:
    keeps = tables.snapshot(spark, source.location).metadata().configuration().get(_KEEPS_CHANGES)
    if keeps.isEmpty() or str(keeps.get()).lower() != "true":
        raise ConfigError(
            "the table keeps no changes",
            field="source.path",
            value=source.location,
            rule=f"the table property {_KEEPS_CHANGES} = true",
            hint=f"ALTER TABLE ... SET TBLPROPERTIES ({_KEEPS_CHANGES} = true); changes are kept from then on",
        )
    commands = change_commands(feed, source.location)
    return commands.withColumn("event_time", _event_time(commands, F.col(COMMITTED_AT)))


def _options(source: SourceConfig) -> dict[str, str]:
    options = {**(_CSV_DEFAULTS if source.format == "csv" else {}), **source.options}
    folded = {key.lower(): value for key, value in options.items()}
    if folded.get("mode", "").upper() == "DROPMALFORMED":
        raise ConfigError(
            "lines would be dropped in silence",
            field="source.options.mode",
            value="DROPMALFORMED",
            hint="leave it out: lines that do not parse become rejects",
        )
    if source.format in ("json", "csv"):
        options["columnNameOfCorruptRecord"] = CORRUPT_RECORD
    return options


def _existing(source: SourceConfig, load: Callable[[], _T]) -> _T:
    """Loads, with Spark's ways of saying that nothing is there put into one."""
    try:
        return load()
    except AnalysisException as error:
        if error.getCondition() in _MISSING:
            rule = "a Delta table" if source.format == "delta" else "a folder that exists (it may be empty)"
            raise ConfigError(
                "there is nothing to read", field="source.path", value=source.path, rule=rule
            ) from error
        raise


def _schema(spark: SparkSession, source: SourceConfig, options: dict[str, str]) -> StructType:
    if source.schema_ddl is not None:
        schema = _parsed(source.schema_ddl)
    elif source.format == "parquet":
        schema = _parquet_schema(spark, source, options)
    elif source.format == "csv":
        schema = _csv_schema(spark, source, options)
    else:
        _check_json_keys(spark, source)
        schema = _parsed(_JSON_DDL)
    return _with_corrupt_record(source, schema)


def _with_corrupt_record(source: SourceConfig, schema: StructType) -> StructType:
    if source.format in ("json", "csv") and CORRUPT_RECORD not in schema.names:
        return StructType([*schema.fields]).add(CORRUPT_RECORD, StringType())
    return schema


def _parsed(ddl: str) -> StructType:
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException:
        schema = None
    if not isinstance(schema, StructType):
        rule = "columns as SQL DDL, such as schedule_id STRING, deliver_at TIMESTAMP"
        raise ConfigError("not a schema", field="source.schema", value=ddl, rule=rule)
    return schema


def _parquet_schema(spark: SparkSession, source: SourceConfig, options: dict[str, str]) -> StructType:
    found = _inferred(source, spark.read.options(**options).parquet)
    return _parsed(_PARQUET_DDL) if found is None else found


def _csv_schema(spark: SparkSession, source: SourceConfig, options: dict[str, str]) -> StructType:
    found = None
    if options["header"].lower() == "true":
        header_only = {**options, "inferSchema": "false"}
        found = _inferred(source, spark.read.options(**header_only).csv)
    schema = StructType()
    for name in found.names if found is not None else _TEXT_COLUMNS:
        schema = schema.add(name, StringType())
    return schema


def _inferred(source: SourceConfig, read: Callable[[str], DataFrame]) -> StructType | None:
    """What Spark finds in the files; None if there are none."""
    try:
        return _existing(source, lambda: read(source.location)).schema
    except AnalysisException as error:
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
            return None
        raise


def _check_json_keys(spark: SparkSession, source: SourceConfig) -> None:
    """Looks at the first lines, because a JSON file of other things would read as rows of nulls."""
    if source.options.get("multiLine", "").lower() == "true":
        return
    lines = _existing(source, lambda: spark.read.text(source.location)).limit(_SAMPLED_LINES)
    keys = lines.select(F.explode(F.json_object_keys("value")).alias("key")).distinct()
    names = sorted(row.key for row in keys.collect())
    if names:
        _require_id(names, source)


def _require_id(names: Sequence[str], source: SourceConfig) -> None:
    # Spark finds columns whatever their case, keys of JSON only as they are.
    found = names if source.format == "json" else [name.lower() for name in names]
    if "schedule_id" not in found:
        shown = ", ".join(name for name in names if name != CORRUPT_RECORD) or "no columns"
        raise ContractError(
            "the source has no column schedule_id",
            field="source.path",
            value=source.path,
            rule="the columns of the command contract",
            hint=f"found: {shown}",
        )


def _with_coordinates(frame: DataFrame, source: SourceConfig) -> DataFrame:
    if source.format == "delta":
        return frame.withColumn(COORDINATES, F.lit(source.location))
    modified = F.col("_metadata.file_modification_time")
    columns = {COORDINATES: F.col("_metadata.file_path"), "event_time": _event_time(frame, modified)}
    if source.format == "parquet":
        columns[COORDINATES] = F.concat_ws("#", "_metadata.file_path", "_metadata.row_index")
    if CORRUPT_RECORD in frame.columns and "schedule_id" in frame.columns:
        columns["schedule_id"] = F.when(F.col(CORRUPT_RECORD).isNull(), F.col("schedule_id"))
    return frame.withColumns(columns)


def _event_time(frame: DataFrame, written: Column) -> Column:
    """``event_time``, or where there is none the time when the row was written: the same one in every replay."""
    field = next((field for field in frame.schema if field.name.lower() == "event_time"), None)
    if field is None:
        return written
    given = F.col(field.name)
    if isinstance(field.dataType, TimestampType):
        return F.coalesce(given, written)
    in_utc = F.to_utc_timestamp(written, F.current_timezone())
    if isinstance(field.dataType, StringType):
        return F.coalesce(given, F.date_format(in_utc, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"))
    if isinstance(field.dataType, TimestampNTZType):
        return F.coalesce(given, in_utc.cast("timestamp_ntz"))
    return given
