"""Reads the slot store: its head, its rows, the stream of near rows, the list of its partitions and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import StoreError
from wheel_udf.store.head import (
    CLOCK,
    CLOCK_BEFORE,
    CURSOR,
    DROP,
    Contents,
    Head,
    Partition,
    partitions_of,
)
from wheel_udf.store.layout import NEAR, StoreLayout
from wheel_udf.store.table import STORE_SCHEMA
from wheel_udf.tables import delta_log as tables
from wheel_udf.tables.delta_files import File, FileList, file_of, is_addition, rows_of_files
from wheel_udf.tables.table_state import TableState

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
        self.live_files = FileList(self.path)

    @property
    def table_id(self) -> str:
        """Delta's id of the table, which changes when the table is deleted and created again."""
        return self._snapshot().table_id

    def head(self, *, version: int | None = None) -> Head:
        """Returns version, cursor, clock and last batches of the current version, or of an earlier one."""
        table = self._snapshot() if version is None else tables.snapshot_at(self.path, version)
        marks = table.transactions()
        cursor_ms, clock_ms, before_ms, _ = (
            marks.pop(name, None) for name in (CURSOR, CLOCK, CLOCK_BEFORE, DROP)
        )
        return Head(table.version, cursor_ms, clock_ms, marks, before_ms)

    def rows(self, *, version: int | None = None) -> DataFrame:
        """Returns the rows of a version; filters on ``level`` and ``slot`` read only their partitions."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def added_since(self, version: int) -> DataFrame:
        """Returns the rows of files that were added with new data after a version.

        Cost: reads only those files; O(actions of the commits since).
        """
        return self.rows_of_files(
            {str(action["path"]): file_of(action) for action in self._additions_since(version)}
        )

    def near_rows_since(self, version: int) -> int:
        """Returns how many near rows were added after a version; from the log, without reading data."""
        added = map(file_of, self._additions_since(version))
        return sum(file.rows for file in added if file.place[0] == NEAR)

    def _additions_since(self, version: int) -> Iterator[Mapping[str, Any]]:
        """Yields the additions of new data after a version, as the log has them."""
        for _, actions in tables.commits_after(self.path, version):
            yield from (action for action in actions if is_addition(action) and action["dataChange"])

    def near_stream(self) -> DataFrame:
        """Returns the near rows as a stream, the rows of each append once; drops and compactions do not affect it.

        A commit that both adds and removes files would be skipped whole; therefore a hand-over is two commits.

        A store that never had rows is read by its log from the beginning. Otherwise Delta would compute the table's
        state for the first batches, a tenth of the CPU time of a start. If a later start, without this option, repeats
        the first batch, Delta reads the state of the version before the batch's end: the same rows, since near rows
        are dropped only after a batch of the wheel.
        """
        reader = self.spark.readStream.format("delta")
        options = {"skipChangeCommits": "true", "maxFilesPerTrigger": _ALL_FILES}
        if self._never_had_rows():
            options["startingVersion"] = "0"
        return reader.options(**options).load(self.path).where(F.col("level") == NEAR)

    def _never_had_rows(self) -> bool:
        # The first commit creates the table, the second one sets the cursor.
        return self.head().version <= 1 and not self.live_files.current()

    def partitions(self) -> list[Partition]:
        """Returns all partitions that have rows, by level and slot; from the log, without reading data."""
        return partitions_of(self.live_files.current())

    def contents(self) -> Contents:
        """Returns the head and the files of one version, the current one; from the log, without reading data."""
        listing, head = self.live_files.listing(), self.head()
        if head.version != listing.version:
            head = self.head(version=listing.version)
        return Contents(head, listing.files)

    def rows_of_files(self, files: Mapping[str, File], *, named: str | None = None) -> DataFrame:
        """Returns the rows of data files (:class:`Contents`); planned without a Spark job, unlike :meth:`rows`.

        Args:
            files: The files.
            named: A further column, for the name of a row's file.
        """
        return rows_of_files(self.spark, self.path, STORE_SCHEMA, files, named=named)

    def require_untouched(self, owner: str) -> None:
        """Checks that no other writer has changed rows since this object first read the list of files.

        OPTIMIZE changes no data, and VACUUM makes no commit of data; both are allowed.

        Args:
            owner: The writer whose transactions are allowed (see :attr:`Head.owners`).

        Raises:
            StoreError: Another writer has. A commit without a transaction is reported once, so that a new start
                accepts the table as it is; a writer with transactions of its own (a streaming query) is reported at
                every start.
        """
        self.live_files.current()
        unsigned, strangers = list(self.live_files.unsigned), self.head().owners - {owner}
        if not unsigned and not strangers:
            return
        self.live_files.unsigned.clear()
        found = [f"version {version}" for version in unsigned] + [f"writer {name}" for name in strangers]
        raise StoreError(
            "someone else has changed rows of the slot store",
            field=self.path,
            value=", ".join(found),
            rule="only the job changes rows",
            hint="see DESCRIBE HISTORY for the writer; a new start goes on with the table as it is",
        )

    def small_files(self, below_bytes: int) -> dict[tuple[int, int], list[str]]:
        """Returns the files of each partition below a size, by (level, slot); from the log, without reading data."""
        found: dict[tuple[int, int], list[str]] = {}
        for path, file in self.live_files.current().items():
            if file.bytes < below_bytes:
                found.setdefault(file.place, []).append(path)
        return found

    def _snapshot(self) -> TableState:
        return tables.snapshot(self.path)
