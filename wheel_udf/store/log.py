"""The log of a slot store: head, partitions and files of a version, without a session and without reading data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
from wheel_udf.store.layout import NEAR, StoreLayout, is_far
from wheel_udf.tables import delta_log as tables
from wheel_udf.tables.delta_files import File, FileList, file_of, is_addition
from wheel_udf.tables.table_state import TableState


class StoreLog:
    """Reads the log of a layout's table.

    Args:
        path: Place of the table, a path or any URI that Spark knows.
        layout: Layout of the table.
    """

    def __init__(self, path: str, layout: StoreLayout) -> None:
        self.path, self.layout = path.rstrip("/") or "/", layout
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

    def files_since(self, version: int) -> dict[str, File]:
        """Returns the files that were added with new data after a version, by their path in the log."""
        return {str(action["path"]): file_of(action) for action in self._additions_since(version)}

    def near_rows_since(self, version: int) -> int:
        """Returns how many near rows were added after a version; from the log, without reading data."""
        added = map(file_of, self._additions_since(version))
        return sum(file.rows for file in added if file.place[0] == NEAR)

    def _additions_since(self, version: int) -> Iterator[Mapping[str, Any]]:
        """Yields the additions of new data after a version, as the log has them."""
        for _, actions in tables.commits_after(self.path, version):
            yield from (action for action in actions if is_addition(action) and action["dataChange"])

    def partitions(self) -> list[Partition]:
        """Returns all partitions that have rows, by level and slot; from the log, without reading data."""
        return partitions_of(self.live_files.current())

    def far_rows(self) -> int:
        """Counts the far rows, without reading data; replaced and cancelled ones, too, until their due time is near."""
        return sum(partition.rows for partition in self.partitions() if is_far(partition.level))

    def contents(self, *, version: int | None = None) -> Contents:
        """Returns the head and the files of one version, by default the current one; from the log, without reading
        data.
        """
        if version is not None:
            return Contents(self.head(version=version), self.live_files.read_all(version).files)
        listing, head = self.live_files.listing(), self.head()
        if head.version != listing.version:
            head = self.head(version=listing.version)
        return Contents(head, listing.files)

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

    def never_had_rows(self) -> bool:
        """Whether no commit has added rows yet."""
        # The first commit creates the table, the second one sets the cursor.
        return self.head().version <= 1 and not self.live_files.current()

    def _snapshot(self) -> TableState:
        return tables.snapshot(self.path)
