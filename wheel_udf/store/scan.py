"""Reads rows of the slot store as Arrow tables in this process: some columns of some data files, without a Spark job.

A Spark job costs a quarter of a second even if it reads ten rows. A file is read here in a millisecond, and a column of
ten million hashes in half a second::

    files of a version --columns--> Arrow table: some columns, and each row's file and number
    files and numbers  --fetch----> these rows with all columns of the store

Files are read by their paths, so no deletion vectors may be on them (:mod:`wheel_udf.store.table`). In an object store
only the requested columns are requested, by ranges.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from wheel_udf.common.errors import StoreError
from wheel_udf.shard.rows import filled
from wheel_udf.spark.files import open_folder
from wheel_udf.store.intake import hash_of
from wheel_udf.store.ranking import is_among
from wheel_udf.store.table import PARTITIONED_BY, STORE_SCHEMA
from wheel_udf.tables.delta_files import File

ROW_SCHEMA: Final = pa.schema([each.with_nullable(True) for each in to_arrow_schema(STORE_SCHEMA)])  # noqa: FBT003
"""The columns of the store, in Arrow's types."""

PENDING_SCHEMA: Final = ROW_SCHEMA.append(pa.field("held_ms", pa.int64()))
"""The columns of a store, and of an entry that has come back how long it is held back
(:data:`~wheel_udf.shard.rows.ENTRY_SCHEMA`).
"""

FILE: Final = "file"
ROW: Final = "row"
"""Columns of :meth:`Scan.columns`: the number of a file in the scan, and of a row in its file."""

_SCANNED: Final = pa.schema([*ROW_SCHEMA, (FILE, pa.int32()), (ROW, pa.int64())])
_AT_ONCE: Final = max(4, os.cpu_count() or 1)
ROWS_AT_ONCE: Final = 65_536
"""So many rows of a file are in memory at a time while some are looked for."""


def _of(columns: Iterable[str]) -> pa.Schema:
    return pa.schema([_SCANNED.field(name) for name in (*columns, FILE, ROW)])


class Scan:
    """Reads data files of a store.

    Args:
        path: Place of the table.
        files: The files of one of its versions, by their paths in its log.
    """

    def __init__(self, path: str, files: Mapping[str, File]) -> None:
        self._folder, self.files = open_folder(path), files
        self._names = list(files)
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def hashes(self, names: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """Yields the hashes of the ids of some files, int64[n] for each; 0 of a row without an id.

        Raises:
            StoreError: A file is not there any more.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(self._hashes, names)

    def columns(self, names: Iterable[str], columns: Sequence[str]) -> pa.Table:
        """Returns some columns of some files, with :data:`FILE` and :data:`ROW`.

        Raises:
            StoreError: A file is not there any more.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(lambda name: self._columns(name, columns), names)
            return pa.concat_tables([_of(columns).empty_table(), *found])

    def of_hashes(
        self, names: Iterable[str], hashes: NDArray[np.int64], columns: Sequence[str] = ()
    ) -> pa.Table:
        """Returns some columns of the rows with some hashes, with :data:`FILE` and :data:`ROW`. Of files without such
        rows only the hashes are read.

        Args:
            names: The files.
            hashes: Values of ``id_hash``, in order, int64[m].
            columns: The columns.

        Raises:
            StoreError: A file is not there any more.
        """

        def found_in(name: str) -> pa.Table | None:
            is_asked = is_among(self._hashes(name), hashes)
            return self._columns(name, columns).filter(pa.array(is_asked)) if is_asked.any() else None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = [table for table in pool.map(found_in, names) if table is not None]
        return pa.concat_tables([_of(columns).empty_table(), *found])

    def of_ids(self, ids: Collection[str]) -> pa.Table:
        """Returns all rows of some ids, with all columns (:data:`ROW_SCHEMA`).

        Raises:
            StoreError: A file is not there any more.
        """
        hashes = np.array(sorted({hash_of(each) for each in ids}), np.int64)
        found = self.fetch(self.of_hashes(self.files, hashes))
        return found.filter(pc.is_in(found["schedule_id"], value_set=pa.array(ids, pa.string())))

    def fetch(self, rows: pa.Table) -> pa.Table:
        """Returns the rows with all columns (:data:`ROW_SCHEMA`), in no order.

        Args:
            rows: Their :data:`FILE` and :data:`ROW`.

        Raises:
            StoreError: A file is not there any more.
        """
        files, numbers = rows[FILE].to_numpy(), rows[ROW].to_numpy()
        order = np.lexsort((numbers, files))
        files, numbers = files[order], numbers[order]
        there, first = np.unique(files, return_index=True)
        parts = zip(there.tolist(), np.split(numbers, first[1:]), strict=True) if len(there) else ()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(lambda part: self._rows(self._names[part[0]], part[1]), parts)
            return pa.concat_tables([ROW_SCHEMA.empty_table(), *found])

    def _hashes(self, name: str) -> NDArray[np.int64]:
        with self._open(name) as file:
            found = file.read(columns=["id_hash"], use_threads=False)["id_hash"]
            hashes: NDArray[np.int64] = found.fill_null(0).to_numpy()
            return hashes

    def _columns(self, name: str, columns: Sequence[str]) -> pa.Table:
        stored = [each for each in columns if each not in PARTITIONED_BY]
        with self._open(name) as file:
            table = file.read(columns=stored, use_threads=False)
        rows = table.num_rows
        number = pa.repeat(pa.scalar(self._numbers[name], pa.int32()), rows)
        found = (
            self._placed(name, table)
            .append_column(FILE, number)
            .append_column(ROW, pa.array(np.arange(rows)))
        )
        return filled(found, _of(columns))

    def _rows(self, name: str, numbers: NDArray[np.int64]) -> pa.Table:
        """Rows of a file by their rising numbers."""
        found, first = [], 0
        with self._open(name) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, use_threads=False):
                begin, end = np.searchsorted(numbers, (first, first + batch.num_rows))
                if begin < end:
                    found.append(batch.take(pa.array(numbers[begin:end] - first)))
                first += batch.num_rows
                if end == len(numbers):
                    break
        return filled(self._placed(name, pa.Table.from_batches(found)), ROW_SCHEMA)

    def _placed(self, name: str, table: pa.Table) -> pa.Table:
        """A table of a file with the columns of its partition."""
        for column, value in zip(PARTITIONED_BY, self.files[name].place, strict=True):
            of_type = pa.scalar(value, ROW_SCHEMA.field(column).type)
            table = table.append_column(column, pa.repeat(of_type, table.num_rows))
        return table

    def _open(self, name: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._folder.open(unquote(name)), pre_buffer=True)
        except FileNotFoundError:
            raise StoreError(
                "a file of the slot store is not there any more",
                field=self._folder.name(unquote(name)),
                rule="delta.deletedFileRetentionDuration says how long replaced files are kept",
            ) from None
