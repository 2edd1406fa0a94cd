"""Files and Delta tables as streams: schema, coordinates and event time. See :mod:`wheel_udf.job.sources`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import (
    AtomicType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from wheel_udf.commands.columns import LONG_JSON
from wheel_udf.commands.inputs import meant
from wheel_udf.commands.json_objects import COMMAND_FIELDS, with_json_object
from wheel_udf.commands.parse import require_due_column
from wheel_udf.commands.rules import MISREAD
from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.common.paths import as_pattern
from wheel_udf.job.models.source import DeltaSourceConfig, FileSourceConfig
from wheel_udf.spark.hadoop_files import depth_of, reader_defaults
from wheel_udf.tables import delta_log

COORDINATES: Final = "source_coordinates"
CORRUPT_RECORD: Final = "_corrupt_record"
_ASSUMED: Final = "wheel_udf.assumed"
"""Key in the metadata of a column that the source was not seen to have."""
Source = FileSourceConfig | DeltaSourceConfig

_PARQUET_DDL = (
    "schedule_id STRING, op STRING, seq BIGINT, deliver_at TIMESTAMP, delay STRING, event_time TIMESTAMP, "
    "destination STRING, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, max_lateness STRING, spread STRING, repeat STRING, "
    "time_zone STRING, starts_at TIMESTAMP, until TIMESTAMP, count BIGINT, on_missed STRING, on_gap STRING, "
    "on_fold STRING"
)
_TEXT_COLUMNS = tuple(name for name in COMMAND_FIELDS if name != "headers")
_JSON_DDL = ", ".join(f"{name} STRING" for name in _TEXT_COLUMNS) + (
    ", headers ARRAY<STRUCT<key: STRING, value: STRING>>"
)
_CSV_DEFAULTS = {"header": "true", "enforceSchema": "false"}
_PATTERN_IN_URI = "[*]|%(3F|5B|5C|5D|7B|7D)"  # * ? [ \ ] { }
_COLUMNS_OF_BINARY_FILES = 4
_LINE = "_line"
_MISSING = ("PATH_NOT_FOUND", "DELTA_SCHEMA_NOT_SET", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST")
_PARSING = ("multiline", "encoding", "charset", "mode")
_SAMPLED_LINES = 100
_LONGEST_VALUE = 60
_T = TypeVar("_T")


def read_files(spark: SparkSession, source: FileSourceConfig) -> DataFrame:
    """Opens a folder of files as a stream of commands; see :func:`~wheel_udf.job.sources.read_commands`."""
    options = reader_options(source)
    if source.format == "json" and source.schema_ddl is None and not _parsed_by_spark(source):
        return _json_lines(spark, source, options)
    schema = _schema(spark, source, options)
    require_id(schema.names, source)
    return _with_coordinates(_files(spark, source, options, schema), source, options)


def _parsed_by_spark(source: FileSourceConfig) -> bool:
    """Whether an option controls how JSON is parsed; others select the files and lines that are read."""
    names = {name.lower() for name in source.options}
    return any(name in _PARSING or name.startswith("allow") for name in names)


def _json_lines(spark: SparkSession, source: FileSourceConfig, options: dict[str, str]) -> DataFrame:
    _check_json_keys(spark, source)
    files = _files(spark, source, options, None)
    partitions = [name for name in files.columns if name != _LINE]
    lines = files.select(
        F.expr(f"trim(LEADING '\ufeff' FROM {_LINE})").alias(_LINE),  # a byte order mark begins some files
        F.col("_metadata.file_path").alias(COORDINATES),
        F.col("_metadata.file_modification_time").alias("_modified"),
        *(F.col(f"`{name}`") for name in partitions),
    )
    lines = lines.where(~F.col(_LINE).rlike(r"\A[ \t\r\n]*+\z"))
    others = [name for name in COMMAND_FIELDS if name not in map(str.lower, partitions)]
    rows = with_json_object(lines, F.col(_LINE)).select(
        *(F.col(f"_object.{name}") for name in others),
        *(F.col(f"`{name}`") for name in partitions),
        *(CORRUPT_RECORD, COORDINATES, "_modified"),
    )
    return rows.withColumn("event_time", event_time(rows, F.col("_modified"))).drop("_modified")


def open_files(spark: SparkSession, source: FileSourceConfig, ddl: str | None) -> DataFrame:
    """Opens the rows of a folder of files, with their coordinates and ``event_time``.

    Args:
        spark: The session.
        source: The section of the config.
        ddl: Columns of JSON files where the source has no ``schema``; None: those that are found in the files.
    """
    options = reader_options(source)
    if source.schema_ddl is not None or (source.format == "json" and ddl is not None):
        schema = _parsed(source.schema_ddl or ddl or "")
    else:
        reader = spark.read.options(**options).format(source.format)
        schema = _inferred(spark, source, reader.load) or StructType()
    return _with_coordinates(
        _files(spark, source, options, _with_corrupt_record(source, schema)), source, options
    )


def _files(
    spark: SparkSession, source: FileSourceConfig, options: dict[str, str], schema: StructType | None
) -> DataFrame:
    """Opens the files with a schema; None: their lines, and the names of partitions as texts."""
    path = _path_of(spark, source)
    if path != source.path:  # of a pattern, Spark takes no names of partitions
        options = {"basePath": source.path, **options}
    listed = spark.read.format("binaryFile").options(**options)
    partitions = existing(source, lambda: listed.load(path)).columns[_COLUMNS_OF_BINARY_FILES:]
    if schema is None:
        names, format_ = (_LINE, *partitions), "text"
        schema = StructType([StructField(name, StringType()) for name in names])
    else:
        format_ = source.format
    reader = spark.readStream.format(format_).options(**options).schema(schema)
    if partitions:  # then Spark reads each file once
        return existing(source, lambda: reader.load(path))
    return existing(source, lambda: _each_once(reader, path, options, depth_of(spark, source.path)))


def _path_of(spark: SparkSession, source: FileSourceConfig) -> str:
    """Returns the path for Spark's readers, as a pattern that matches just the folder, if that exists."""
    pattern = as_pattern(source.path)
    return pattern if pattern != source.path and delta_log.exists(spark, source.path) else source.path


def _each_once(reader: DataStreamReader, path: str, options: dict[str, str], depth: int) -> DataFrame:
    """Returns the stream of a folder without partitions in which each file is read once, whatever its name.

    Spark's source of files counts a new file whose name has one of ``* ? [ ] { }`` or a backslash as all files of its
    batch (``DataSource.checkAndGlobPathIfNecessary``). It reads each file once where it looks them up recursively or
    by partitions.
    """
    folded = {key.lower(): value.lower() for key, value in options.items()}
    if folded.get("recursivefilelookup") == "true":
        return reader.load(path)
    file = F.col("_metadata.file_path")
    if folded.keys() & {"cleansource", "filenameonly"}:  # they would apply to the files in subfolders, too
        hint = "these names make Spark read other files twice, except without cleanSource and fileNameOnly"
        refused = F.raise_error(F.concat(F.lit("rename this file: "), file, F.lit(f"; {hint}")))
        return reader.load(path).where(F.when(file.rlike(_PATTERN_IN_URI), refused).otherwise(F.lit(True)))
    inside, with_host = (F.substring_index(file, "/", depth + more) == file for more in (2, 4))
    is_inside = F.when(file.contains("://"), with_host).otherwise(inside)
    partition = F.raise_error(F.concat(F.lit("start again to read the new partition of "), file))
    is_read = F.when(is_inside, F.lit(True)).when(file.rlike("/[^/]+=[^/]*/[^/]*$"), partition)
    return reader.option("recursiveFileLookup", "true").load(path).where(is_read)


def reader_options(source: Source) -> dict[str, str]:
    """Returns the options for Spark's reader."""
    defaults = {} if source.format == "delta" else reader_defaults(source.place)
    options = {**defaults, **(_CSV_DEFAULTS if source.format == "csv" else {}), **source.options}
    folded = {key.lower(): value for key, value in options.items()}
    if folded.get("mode", "").upper() == "DROPMALFORMED":
        raise ConfigError(
            "lines would be dropped silently",
            field="source.options.mode",
            value="DROPMALFORMED",
            hint="leave it out: lines that do not parse become rejects",
        )
    if source.format in ("json", "csv"):
        options["columnNameOfCorruptRecord"] = CORRUPT_RECORD
    if source.format == "json" and "maxstringlen" not in folded:
        options |= LONG_JSON
    return options


def existing(source: Source, load: Callable[[], _T]) -> _T:
    """Loads; turns Spark's several errors for a missing source into one of ours."""
    try:
        return load()
    except AnalysisException as error:
        if error.getCondition() in _MISSING:
            rule = "a Delta table" if source.format == "delta" else "a folder that exists (it may be empty)"
            raise ConfigError(
                "there is nothing to read", field=source.place_field, value=source.place, rule=rule
            ) from error
        raise


def _schema(spark: SparkSession, source: FileSourceConfig, options: dict[str, str]) -> StructType:
    if source.schema_ddl is not None:
        schema = _parsed(source.schema_ddl)
    elif source.format == "parquet":
        found = _inferred(spark, source, spark.read.options(**options).parquet)
        schema = _assumed(_PARQUET_DDL) if found is None else found
    elif source.format == "csv":
        schema = _csv_schema(spark, source, options)
    else:
        _check_json_keys(spark, source)
        schema = _parsed(_JSON_DDL)
    return _with_corrupt_record(source, schema)


def _with_corrupt_record(source: FileSourceConfig, schema: StructType) -> StructType:
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


def _assumed(ddl: str) -> StructType:
    return StructType(
        [StructField(each.name, each.dataType, metadata={_ASSUMED: True}) for each in _parsed(ddl)]
    )


def known_columns(frame: DataFrame) -> list[str]:
    """Returns the columns that a source was seen to have, without ``schedule_id``; none if it has no files yet."""
    # The id is always there, and loses its metadata.
    seen = [each.name.lower() for each in frame.schema if _ASSUMED not in each.metadata]
    return sorted(name for name in seen if name != "schedule_id" and not name.startswith(("_", "source_")))


def _csv_schema(spark: SparkSession, source: FileSourceConfig, options: dict[str, str]) -> StructType:
    found = None
    if options["header"].lower() == "true":
        header_only = {**options, "inferSchema": "false"}
        found = _inferred(spark, source, spark.read.options(**header_only).csv)
    if found is None:
        return _assumed(", ".join(f"{name} STRING" for name in _TEXT_COLUMNS))
    return StructType([StructField(name, StringType()) for name in found.names])


def _inferred(
    spark: SparkSession, source: FileSourceConfig, read: Callable[[str], DataFrame]
) -> StructType | None:
    """Returns the schema that Spark finds in the files; None if there are no files."""
    try:
        return existing(source, lambda: read(_path_of(spark, source))).schema
    except AnalysisException as error:
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
            return None
        raise


def _check_json_keys(spark: SparkSession, source: FileSourceConfig) -> None:
    """Checks the keys of the first lines: a JSON file of something else would be read as rows of nulls."""
    if source.options.get("multiLine", "").lower() == "true":
        return
    reader = spark.read.options(**reader_defaults(source.path))
    lines = existing(source, lambda: reader.text(_path_of(spark, source))).limit(_SAMPLED_LINES)
    is_cancel = F.lower(F.btrim(F.get_json_object("value", "$.op"))) == "cancel"
    keys = lines.select(F.explode(F.json_object_keys("value")).alias("key"), is_cancel.alias("is_cancel"))
    found = keys.groupBy("key").agg(F.min(F.coalesce("is_cancel", F.lit(False))).alias("is_cancel")).collect()
    names = sorted(row.key for row in found)
    if names:
        require_id(names, source)
    of_schedules = sorted(row.key for row in found if not row.is_cancel)
    if of_schedules:
        require_due_column(of_schedules, exact=True)


def require_id(names: Sequence[str], source: Source) -> None:
    """Checks that the source has ids."""
    # Spark ignores the case of columns, but not the case of keys of JSON.
    found = names if source.format == "json" else [name.lower() for name in names]
    if "schedule_id" not in found:
        shown = ", ".join(name for name in names if name != CORRUPT_RECORD) or "no columns"
        raise ContractError(
            "the source has no column schedule_id",
            field=source.place_field,
            value=source.place,
            rule="the columns of the command contract",
            hint=f"found: {shown}"
            + (f"; {renamed}" if (renamed := meant(names, ["schedule_id"], ())) else ""),
        )


def _with_coordinates(frame: DataFrame, source: FileSourceConfig, options: dict[str, str]) -> DataFrame:
    modified = F.col("_metadata.file_modification_time")
    columns = {COORDINATES: F.col("_metadata.file_path"), "event_time": event_time(frame, modified)}
    if source.format == "parquet":
        columns[COORDINATES] = F.concat_ws("#", "_metadata.file_path", "_metadata.row_index")
    if CORRUPT_RECORD not in frame.columns:
        return frame.withColumns(columns)
    misread = _misread(frame, source, options)
    if "schedule_id" in frame.columns:
        # Of a line that is torn, a column that was read may be a part of another one.
        sound = F.col(CORRUPT_RECORD).isNull() | misread.isNotNull()
        columns["schedule_id"] = F.when(sound, F.col("schedule_id"))
    return frame.withColumns(columns | {MISREAD: misread})


def _misread(frame: DataFrame, source: FileSourceConfig, options: dict[str, str]) -> Column:
    """The columns of a line whose value is not of their type, with the value; null if the line is torn or good."""
    typed = [
        field
        for field in frame.schema
        if not isinstance(field.dataType, StringType)
        and (source.format == "json" or isinstance(field.dataType, AtomicType))  # of CSV there are no others
    ]
    if not typed:
        return F.lit(None).cast("string")
    as_texts = StructType([StructField(field.name, StringType()) for field in frame.schema])
    line, ddl = F.col(CORRUPT_RECORD), as_texts.toDDL()
    texts = F.from_json(line, ddl, options) if source.format == "json" else F.from_csv(line, ddl, options)
    words = [
        F.when(
            F.col(f"`{field.name}`").isNull(),
            F.concat(
                F.lit(f"{field.name} = "),
                F.substring(texts.getField(field.name), 1, _LONGEST_VALUE),
                F.lit(f", not {field.dataType.simpleString()}"),
            ),
        )
        for field in typed
    ]
    return F.when(line.isNotNull(), F.nullif(F.concat_ws("; ", *words), F.lit("")))


def event_time(frame: DataFrame, written: Column) -> Column:
    """Returns ``event_time``, by default the time when the row was written: the same one in every replay."""
    field = next((field for field in frame.schema if field.name.lower() == "event_time"), None)
    metadata = {_ASSUMED: True} if field is None else field.metadata
    return _event_time(field, written).alias("event_time", metadata=metadata)


def _event_time(field: StructField | None, written: Column) -> Column:
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
