r"""Writes rows into data files of a Delta table that no commit contains yet, and describes them as its log does.

Spark's executors write plain Parquet files, in a folder of their own for each write. The statistics are those that
the Parquet files themselves have in their footers::

    <table>/rows-6f1c.../level=0/slot=181/part-00000-....parquet
    {"path": "rows-6f1c.../level=0/slot=181/part-00000-....parquet", "partitionValues": {"level": "0", "slot": "181"},
     "size": 4711, "stats": "{\"numRecords\": 100, \"minValues\": {\"seq\": 1}, ...}", ...}

In an object store Spark's Python workers write them instead (:mod:`wheel_udf.tables.object_files`).

A killed write leaves files that a VACUUM of the table deletes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from wheel_udf.spark.files import local_folder
from wheel_udf.spark.jvm import hadoop_configuration, java_class
from wheel_udf.tables import object_files
from wheel_udf.tables.object_files import WrittenFile
from wheel_udf.tables.table_state import TableState

_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_STATISTICS: Final = "delta.dataSkippingStatsColumns"
_LONGEST_TEXT: Final = 200  # characters; Delta cuts texts in statistics, and may leave them out
_FOOTER: Final = 65_536  # bytes
_CODEC: Final = "spark.sql.parquet.compression.codec"
_NO_MARKER: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def write_files(
    frame: DataFrame, place: str, state: TableState, options: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Writes rows into new files in the folder of a table.

    Args:
        frame: The rows, with the columns of the table.
        place: Path or URI of the table.
        state: Its state.
        options: Of Spark's Parquet writer, ``compression`` for example.

    Returns:
        The fields of an ``add`` action for each file that has rows.
    """
    name = f"rows-{uuid.uuid4().hex}"
    partitioned_by, columns = state.partition_columns(), _with_statistics(state)
    codec = options.get("compression") or str(frame.sparkSession.conf.get(_CODEC))
    if object_files.can_write(frame, place, partitioned_by, codec):
        files: Iterable[WrittenFile] = object_files.write(frame, place, name, partitioned_by, codec)
    else:
        writer = frame.write.options(**_NO_MARKER, **options)
        (writer.partitionBy(*partitioned_by) if partitioned_by else writer).parquet(f"{place}/{name}")
        local = _local_files(place, name)
        found = _hadoop_files(frame.sparkSession, place, name) if local is None else local
        files = (_of_spark(file, partitioned_by) for file in found)
    return [_addition(file, columns) for file in files if file.footer.num_rows]


def path_of(place: str, path: str) -> str:
    """The path or URI of a data file, from its path in the log."""
    return f"{place}/{unquote(path)}"


def _addition(file: WrittenFile, columns: Collection[str]) -> dict[str, Any]:
    """The fields of an addition."""
    return {
        "path": quote(file.path, safe="/="),
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": json.dumps(_statistics(file.footer, columns)),
    }


def _with_statistics(state: TableState) -> frozenset[str]:
    """The columns whose smallest and largest values the log is to have, in lower case."""
    listed = state.properties().get(_STATISTICS)
    if listed is not None:
        return frozenset(name.strip(" `").lower() for name in listed.split(","))
    return frozenset(column["name"].lower() for column in state.columns()[:32])


def _statistics(footer: pq.FileMetaData, columns: Collection[str]) -> dict[str, Any]:
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        if name.lower() not in columns:
            continue
        parts = [found for group in groups if (found := group.column(at).statistics) is not None]
        if len(parts) < len(groups):
            continue
        if all(part.has_null_count for part in parts):
            nulls[name] = sum(part.null_count for part in parts)
        bounded = [part for part in parts if part.num_values]  # without nulls
        if bounded and all(part.has_min_max for part in bounded):
            # Python has no instants beyond the year 9999, and no texts that are no UTF-8: then there are no bounds.
            with suppress(OverflowError, ValueError):
                least, most = min(part.min for part in bounded), max(part.max for part in bounded)
                smallest[name], largest[name] = _as_json(least, up=False), _as_json(most, up=True)
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: value for name, value in smallest.items() if value is not None},
        "maxValues": {name: value for name, value in largest.items() if value is not None},
        "nullCount": nulls,
    }


def _as_json(value: Any, *, up: bool) -> Any:
    """A value as statistics have it; None if they do not."""
    if isinstance(value, datetime):
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        whole = at + timedelta(microseconds=-at.microsecond % 1_000) if up else at
        return whole.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    return value if type(value) is int else None


_File = tuple[str, int, int, pq.FileMetaData]
"""A file of Spark's writer: path below the table, size, time of its last change (epoch ms), footer."""


def _of_spark(file: _File, partitioned_by: Sequence[str]) -> WrittenFile:
    path, size, modified_ms, footer = file
    folders = (folder.partition("=") for folder in path.split("/")[1:-1])
    values = {column: None if value == _NO_VALUE else unquote(value) for column, _, value in folders}
    partition = {column: values[column] for column in partitioned_by}
    return WrittenFile(path, size, modified_ms, partition, footer)


def _local_files(place: str, name: str) -> list[_File] | None:
    """The files of a write; None if they are not on the local file system."""
    root = local_folder(place)
    if root is None:
        return None
    found = sorted((root / name).rglob("*.parquet"))
    return [
        (
            str(file.relative_to(root)),
            (status := file.stat()).st_size,
            status.st_mtime_ns // 1_000_000,
            pq.read_metadata(file),
        )
        for file in found
    ]


def _hadoop_files(spark: SparkSession, place: str, name: str) -> Iterator[_File]:
    path = java_class(spark, "org.apache.hadoop.fs.Path")
    folder, io = path(f"{place}/{name}"), java_class(spark, "org.apache.commons.io.IOUtils")
    system = folder.getFileSystem(hadoop_configuration(spark))
    if not system.exists(folder):
        return
    root, files = system.makeQualified(path(place)).toString(), system.listFiles(folder, True)  # noqa: FBT003
    while files.hasNext():
        file = files.next()
        at, size = file.getPath(), int(file.getLen())
        if not at.getName().endswith(".parquet"):
            continue
        stream = system.open(at)
        try:
            stream.seek(max(0, size - _FOOTER))
            footer = pq.read_metadata(pa.BufferReader(bytes(io.toByteArray(stream))))
        finally:
            stream.close()
        relative = at.toString()[len(root) :].lstrip("/")
        yield relative, size, int(file.getModificationTime()), footer
