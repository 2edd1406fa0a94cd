"""Reads the slot store: its head, its rows, the stream of near rows, the list of its partitions.

::

    head          version, cursor, clock, last batches    from the listing of the log and the checksum of its last commit, no Spark job
    rows          all rows, now or at a version           filters on level and slot read only their partitions
    added_since   rows added after a version              reads only the files that were added
    near_stream   near rows as a stream                   each row once
    partitions    files, rows and bytes per partition     from the log, O(changes since the last call)
    contents      head and partitions of one version      likewise
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from wheel_udf.common import StoreError
from wheel_udf.platform import FileList, Snapshot, delta_log as tables, is_addition, partition_of, stats_of
from wheel_udf.store.head import CLOCK, CLOCK_BEFORE, CURSOR, DROP, Head, Partition
from wheel_udf.store.layout import NEAR, StoreLayout
from wheel_udf.store.table import PARTITIONED_BY, STORE_SCHEMA

_ALL_FILES: Final = "1000000000"  # Delta's default of 1,000 files a batch would split a large hand-over


class StoreReader:
    """Reads the table of a layout.

    Args:
        spark: The session.
        path: Place of the table, a path or any URI that Spark knows.
        layout: Layout of the table.
    """

    def __init__(self, spark: SparkSession, path: str, layout: StoreLayout) -> None:
        self.spark, self.path, self.layout = spark, path.rstrip("/") or "/", layout
        self._files = FileList(spark, self.path)

    @property
    def table_id(self) -> str:
        """Delta's id of the table, which changes when the table is deleted and created again."""
        return self._snapshot().table_id

    def head(self, *, version: int | None = None) -> Head:
        """Returns version, cursor, clock and last batches of the current version, or of an earlier one."""
        table = self._snapshot() if version is None else tables.snapshot_at(self.spark, self.path, version)
        marks = table.transactions()
        cursor_ms, clock_ms, before_ms, _ = (
            marks.pop(name, None) for name in (CURSOR, CLOCK, CLOCK_BEFORE, DROP)
        )
        return Head(table.version, cursor_ms, clock_ms, marks, before_ms)

    def last_acts(self) -> list[int]:
        """Returns the number of the last act of each owner that has any; a sound store has one owner."""
        head = self.head()
        return [
            batch for owner in head.owners for batch in head.last_act(owner).values() if batch is not None
        ]

    def rows(self, *, version: int | None = None) -> DataFrame:
        """Returns the rows of the current version, or of an earlier one; filters on ``level`` and ``slot`` read only their partitions."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def added_since(self, version: int) -> DataFrame:
        """Returns the rows of files that were added with new data after a version, without the partition columns.

        Cost: reads only those files; O(actions of the commits since).
        """
        commits = tables.commits_after(self.spark, self.path, version)
        return self._rows_of(
            [
                str(action["path"])
                for _, actions in commits
                for action in actions
                if is_addition(action) and action["dataChange"]
            ]
        )

    def near_rows_since(self, version: int) -> int:
        """Returns how many near rows were added after a version; from the log, without reading data."""
        return sum(
            int(stats_of(action)["numRecords"])
            for _, actions in tables.commits_after(self.spark, self.path, version)
            for action in actions
            if is_addition(action) and action["dataChange"] and partition_of(action)[0] == NEAR
        )

    def near_stream(self) -> DataFrame:
        """Returns the near rows as a stream, the rows of each append once; drops and compactions do not affect it.

        A commit that both adds and removes files would be skipped whole; therefore a hand-over is two commits.
        """
        reader = self.spark.readStream.format("delta")
        options = {"skipChangeCommits": "true", "maxFilesPerTrigger": _ALL_FILES}
        return reader.options(**options).load(self.path).where(F.col("level") == NEAR)

    def partitions(self) -> list[Partition]:
        """Returns all partitions that have rows, by level and slot; from the log, without reading data."""
        totals: dict[tuple[int, int], list[int]] = {}
        for file in self._files.current().values():
            total = totals.setdefault(file.place, [0, 0, 0])
            for number, more in enumerate((1, file.rows, file.bytes)):
                total[number] += more
        return [Partition(*place, *total) for place, total in sorted(totals.items())]

    def contents(self) -> tuple[Head, list[Partition]]:
        """Returns the head and the partitions of one version, the current one; from the log, without reading data."""
        partitions, head = self.partitions(), self.head()
        if head.version != self._files.version:
            head = self.head(version=self._files.version)
        return head, partitions

    def require_untouched(self, owner: str) -> None:
        """Checks that no other writer has changed rows since this object first read the list of files.

        OPTIMIZE changes no data, and VACUUM makes no commit of data; both are allowed.

        Args:
            owner: The writer whose transactions are allowed (see :attr:`Head.owners`).

        Raises:
            StoreError: Another writer has. A commit without a transaction is reported once, so that a new start accepts the table as it is; a writer
                with transactions of its own (a streaming query) is reported at every start.
        """
        self._files.current()
        unsigned, strangers = list(self._files.unsigned), self.head().owners - {owner}
        if not unsigned and not strangers:
            return
        self._files.unsigned.clear()
        found = [f"version {version}" for version in unsigned] + [f"writer {name}" for name in strangers]
        raise StoreError(
            "someone else has changed rows of the slot store",
            field=self.path,
            value=", ".join(found),
            rule="only the job and its cancel, move and reroute change rows",
            hint="see DESCRIBE HISTORY for the writer; a new start goes on with the table as it is",
        )

    def small_files(self, below_bytes: int) -> dict[tuple[int, int], list[str]]:
        """Returns the files of each partition below a size, by (level, slot); from the log, without reading data."""
        found: dict[tuple[int, int], list[str]] = {}
        for path, file in self._files.current().items():
            if file.bytes < below_bytes:
                found.setdefault(file.place, []).append(path)
        return found

    def _rows_of(self, paths: Sequence[str]) -> DataFrame:
        """Returns the rows of data files, without the partition columns."""
        columns = T.StructType([column for column in STORE_SCHEMA if column.name not in PARTITIONED_BY])
        if not paths:
            return self.spark.createDataFrame([], columns)
        return self.spark.read.schema(columns).parquet(*(f"{self.path}/{path}" for path in paths))

    def _snapshot(self) -> Snapshot:
        return tables.log_snapshot(self.spark, self.path)
