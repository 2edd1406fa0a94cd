"""Writes data files of a Delta table into an object store, from Spark's Python workers: one request a file.

::

    frame --mapInArrow--> a Parquet file in memory --put--> <table>/rows-6f1c.../level=0/slot=181/<task>-0.parquet
                                                  `-------> its name, size, partition and footer, to the driver

Spark's own writer puts a draft, copies it twice, deletes it twice, and asks for each folder whether it exists; the
driver then lists the folder and reads each footer: some forty requests for a file. That is for file systems on which a
rename is cheap, so that a folder has the files of successful tasks alone. Here only those files are in the table whose
names came back.

Caveats: a task holds up to 32 MB of its rows, and needs five times as much. A task that fails leaves files that a
VACUUM of the table deletes.

Executors load it: standard library, pyarrow and obstore, besides pure modules.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.spark.object_stores import is_in_object_store, object_folder, options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, types as T

_MOST_BYTES: Final = 32 << 20
_LONGEST_S: Final = 600.0
"""How long a file may take, over a slow link."""
_CODECS: Final = {"none": "none", "uncompressed": "none", "lz4_raw": "lz4"} | {
    name: name for name in ("snappy", "zstd", "gzip", "brotli")
}
_PLAIN_PLACE: Final = re.compile(r"[\w:/.=@+-]*")
"""Where Hadoop and obstore give a file the same name."""
_PLAIN_VALUE: Final = re.compile(r"[\w-]+", re.ASCII)
_PLAIN_TYPES: Final = frozenset(
    {
        "string",
        "binary",
        "boolean",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "date",
        "timestamp",
    }
)
_PARTITION_TYPES: Final = frozenset({"string", "byte", "short", "integer", "long", "date"})
"""Whose values are the same texts in Python and in Delta's log."""

_ROW: Final = "_row"
_ROWS: Final = "name string, bytes long, modified_ms long, partition string, footer binary"


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written.

    Attributes:
        path: Below the table.
        size: In bytes.
        modified_ms: When it was written (epoch ms).
        partition: Its values of the partition columns, as texts; None for null.
        footer: Of the Parquet file.
    """

    path: str
    size: int
    modified_ms: int
    partition: Mapping[str, str | None]
    footer: pq.FileMetaData


def can_write(frame: DataFrame, place: str, partitioned_by: Sequence[str], codec: str) -> bool:
    """Whether the rows of a frame can be written so, into a table at a place."""
    return (
        is_in_object_store(place)
        and _PLAIN_PLACE.fullmatch(place) is not None
        and codec in _CODECS
        and all(_is_plain(column.dataType) for column in frame.schema)
        and all(frame.schema[name].dataType.typeName() in _PARTITION_TYPES for name in partitioned_by)
    )


def _is_plain(kind: T.DataType) -> bool:
    from pyspark.sql import types as T  # executors do not need it

    if isinstance(kind, T.ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, T.MapType):
        return _is_plain(kind.keyType) and _is_plain(kind.valueType)
    if isinstance(kind, T.StructType):
        return all(_is_plain(column.dataType) for column in kind)
    return kind.typeName() in _PLAIN_TYPES


def write(
    frame: DataFrame, place: str, folder: str, partitioned_by: Sequence[str], codec: str
) -> list[WrittenFile]:
    """Writes rows for which :func:`can_write` holds.

    Args:
        frame: The rows.
        place: URI of the table.
        folder: A new folder of it.
        partitioned_by: Its partition columns.
        codec: Of Spark's option ``compression``.
    """
    writer = _writer(f"{place}/{folder}", options_of(place), tuple(partitioned_by), _CODECS[codec])
    return [
        WrittenFile(
            f"{folder}/{row.name}",
            row.bytes,
            row.modified_ms,
            json.loads(row.partition),
            pq.read_metadata(pa.BufferReader(row.footer)),
        )
        for row in frame.mapInArrow(writer, _ROWS).collect()
    ]


def _writer(
    folder: str, options: Mapping[str, str], partitioned_by: Sequence[str], codec: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its rows."""

    def write_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = object_folder(folder, options, request_s=_LONGEST_S)
        task, number = uuid.uuid4().hex, 0
        for table in tables_of(batches, _MOST_BYTES):
            for partition, rows in by_partition(table, partitioned_by):
                content, footer = parquet_of(rows, codec)
                name = f"{folders_of(partition)}{task}-{number}.parquet"
                number += 1
                files.replace(name, content)
                yield _described(name, content, partition, footer)

    return write_files


def tables_of(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Joins batches to tables of about so many bytes, and cuts larger ones; none without rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            rows = -(-batch.num_rows // max(1, -(-batch.nbytes // most_bytes)))
            for at in range(0, batch.num_rows, rows):
                waiting.append(batch.slice(at, rows))
                if sum(each.nbytes for each in waiting) >= most_bytes:
                    yield pa.Table.from_batches(waiting)
                    waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def by_partition(
    table: pa.Table, partitioned_by: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each partition, without its columns."""
    if not partitioned_by:
        yield {}, table
        return
    names = list(partitioned_by)
    ordered = table.sort_by([(name, "ascending") for name in names])
    numbered = ordered.select(names).append_column(_ROW, pa.array(range(len(ordered))))
    parts = numbered.group_by(names).aggregate([(_ROW, "min"), (_ROW, "count")])
    rows = ordered.drop_columns(names)
    for part in parts.sort_by(f"{_ROW}_min").to_pylist():
        values = {name: None if part[name] is None else str(part[name]) for name in names}
        yield values, rows.slice(part[f"{_ROW}_min"], part[f"{_ROW}_count"])


def folders_of(partition: Mapping[str, str | None]) -> str:
    """The folders of a partition, with a slash at the end, as Spark names them: the slot store reads them in paths.

    A value that cannot be the name of a folder as it stands is in the log alone.
    """
    values = partition.items()
    if not all(value is not None and _PLAIN_VALUE.fullmatch(value) for _, value in values):
        return ""
    return "".join(f"{name}={value}/" for name, value in values)


def parquet_of(rows: pa.Table, codec: str) -> tuple[bytes, bytes]:
    """A Parquet file of rows, and its footer in a file without rows."""
    file, footer = pa.BufferOutputStream(), pa.BufferOutputStream()
    collected: list[pq.FileMetaData] = []
    pq.write_table(rows, file, compression=codec, metadata_collector=collected)
    collected[0].write_metadata_file(footer)
    return file.getvalue().to_pybytes(), footer.getvalue().to_pybytes()


def _described(name: str, content: bytes, partition: Mapping[str, Any], footer: bytes) -> pa.RecordBatch:
    columns = {
        "name": [name],
        "bytes": [len(content)],
        "modified_ms": [wall_clock_ms()],
        "partition": [json.dumps(partition)],
        "footer": [footer],
    }
    return pa.RecordBatch.from_pydict(columns)
