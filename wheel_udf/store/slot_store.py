"""Writes the slot store, one Delta table for entries that are not due for a long time: :class:`SlotStore`.
Reading is in :mod:`wheel_udf.store.reader`.

The table is partitioned by ``(level, slot)`` as described in :mod:`wheel_udf.store.layout`. There are three kinds of
commits, each of them atomic::

    version  commit                       files                                     SetTransactions in the same commit
    7        append (intake, batch 41)    + level=0/slot=181, + level=2/slot=190    intake: 41, clock: 3_611_000
    8        append (cascade, batch 12)   + level=0/slot=200, + level=2/slot=215    cascade: 12, cursor: 4_020_000
    9        drop                         - level=2/slot=190, - level=3/slot=10     drop: 9

    head()   Head(version=9, cursor_ms=4_020_000, clock_ms=3_611_000, batches={"intake": 41, "cascade": 12})

* **Exactly once**: a commit carries ``(app_id, batch_id)``; a batch that the table has is not written again.
* **Cursor and clock are part of the log** (transactions named ``cursor``, ``clock`` and ``clock-before``), so they
  belong to exactly the rows of that version. Both only rise: of two concurrent writers one gets a conflict, reads
  again and takes the larger value.
* **Expectations** (``expect``): a writer whose rows depend on something in the log names it. If that has changed,
  nothing is written and :class:`~wheel_udf.common.errors.StoreMovedError` is raised, so that the rows are computed
  again. Rows that are placed expect their cursor, so no row is added to a partition that has been handed over, not even
  by a commit that a killed process has begun.
* **A hand-over is two commits**, first the rows and then the drop, because a stream of the near rows skips commits
  that remove anything. A crash between the two leaves rows twice, and the repetition is harmless: the append is
  skipped, the drop is done.
* **Late files stay**: a hand-over names the version that it has read (``drop(read_version=...)``), and files added
  after that version are not dropped; their partition is reached again the next time.

How files are written. Each (level, slot) should have one file, and Spark writes one for each *task* that has rows of
it. So the frame is rebalanced by (level, slot) first (Spark's REBALANCE hint): one shuffle, after which adaptive
execution joins small parts into one task and splits only what is larger than a file should be (64 MB). A batch of a
stream has no adaptive execution before Spark 4.2: there a shuffle by (level, slot) has to do. The cost of an append is
mostly its files. ``coalesce(1)`` costs as little, but the frame would also be computed in that one task.

Cost: an append is one write job and one commit. drop() knows the files from :mod:`wheel_udf.tables.delta_files`:
O(changes since the last call), without a Spark job except for the first call.

Caveat: files of an append that was refused late stay in the folder until a VACUUM.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import StoreError, StoreMovedError
from wheel_udf.store.head import (
    CLOCK,
    CLOCK_BEFORE,
    CURSOR,
    DROP,
    Appended,
    ClockOf,
    appended,
    largest_event_ms,
    moved_marks,
)
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.reader import StoreReader
from wheel_udf.store.table import (
    DEFAULT_KEEP_MS,
    PARTITIONED_BY,
    STORE_DDL,
    STORE_SCHEMA,
    is_made,
    layout_of,
    open_table,
)
from wheel_udf.tables import delta_log as tables
from wheel_udf.tables.delta_files import File, is_addition, partition_of
from wheel_udf.tables.delta_transaction import (
    MOST_TRIES,
    ConflictError,
    NewFiles,
    Transaction,
)
from wheel_udf.tables.table_state import has_batch

Files = Sequence[tuple[str, File]]
"""Files of the table, each with its path in the log."""


class SlotStore(StoreReader):
    """Reads and writes the table of a layout. Create one with :meth:`open`, which checks the table.

    Attributes:
        log_is_read: Set once the wheel has read all commits that clean-up may delete. Until then the log keeps
            everything, since a wheel that stood still for longer than the log is kept could never go on.
        require_lease: Asked before each commit; raises a LeaseError if another process may have taken over.
    """

    log_is_read = False

    def __init__(self, spark: SparkSession, path: str, layout: StoreLayout) -> None:
        super().__init__(spark, path, layout)
        self.require_lease: Callable[[], None] = lambda: None
        self._written_id: str | None = None

    @staticmethod
    def open(
        spark: SparkSession,
        path: str,
        layout: StoreLayout,
        *,
        create: bool,
        keep_ms: int = DEFAULT_KEEP_MS,
    ) -> SlotStore:
        """Opens a store, or creates it; arguments and errors are those of :func:`wheel_udf.store.table.open_table`."""
        store = SlotStore(spark, path, layout)
        open_table(spark, store.path, layout, create=create, keep_ms=keep_ms)
        return store

    @staticmethod
    def at(spark: SparkSession, path: str) -> SlotStore:
        """Opens an existing store with its own layout; errors are those of :func:`wheel_udf.store.table.layout_of`."""
        return SlotStore.open(spark, path, layout_of(path), create=False)

    @staticmethod
    def find(spark: SparkSession, path: str, layout: StoreLayout) -> SlotStore | None:
        """Returns the store at a place, None if there is none; errors as :func:`wheel_udf.store.table.is_made`."""
        store = SlotStore(spark, path, layout)
        return store if is_made(spark, store.path, layout) else None

    def append(
        self,
        frame: DataFrame | None,
        *,
        app_id: str,
        batch_id: int,
        cursor_ms: int | None = None,
        clock_ms: int | ClockOf | None = None,
        expect: Mapping[str, int | None] = MappingProxyType({}),
        in_one_place: bool = False,
        check: Callable[[NewFiles], DataFrame | None] = lambda _: None,
    ) -> Appended:
        """Adds rows and moves the cursor and the clock, in one commit; does nothing if the table has the batch already.

        Args:
            frame: Rows of :data:`STORE_SCHEMA`, in any order of columns; None for no rows.
            app_id: The writer; not ``cursor``, ``clock``, ``clock-before`` or ``drop``.
            batch_id: The writer's number of the commit, increasing.
            cursor_ms: The new cursor; ignored if it is behind the table's.
            clock_ms: The new clock, likewise; or a function of the rows' largest event time. The commit also notes the
                clock before it.
            expect: The state of the log that the rows depend on: the cursor (:data:`CURSOR`) by which they were
                placed, the last batch of another app id; None for no batch yet.
            in_one_place: Whether all rows are for one partition, so that none has to be moved to another task before
                it is written.
            check: Called with the files of the rows; returns the rows to write in place of them, None to keep them.

        Returns:
            The result.

        Raises:
            StoreMovedError: The log is not as expected, before the write or at the commit. Nothing was added.
            StoreError: The frame has other columns, the app id is reserved, or there were too many conflicting
                commits.
        """
        if app_id in {CURSOR, CLOCK, CLOCK_BEFORE, DROP}:
            raise StoreError("the app id is reserved", field="app_id", value=app_id)
        written: NewFiles | None = None
        for _ in range(MOST_TRIES):
            transaction = self._begin()
            before = transaction.before
            marks = before.transactions()
            if has_batch(marks, app_id, batch_id):
                return appended([], before.version, marks, written=False)
            self.require_marks(marks, expect)
            if written is None:
                written = self.write_frame(transaction, frame, in_one_place=in_one_place)
                if (checked := check(written)) is not None:
                    written = self.write_frame(transaction, checked)
            clock = clock_ms(largest_event_ms(written)) if callable(clock_ms) else clock_ms
            clock_before = marks.get(CLOCK) if clock_ms is not None else None
            news = moved_marks(marks, {CURSOR: cursor_ms, CLOCK: clock, CLOCK_BEFORE: clock_before})
            # Files are not bound to the transaction that wrote them: another try does not write them again.
            self.require_lease()
            with suppress(ConflictError):
                version = transaction.commit_append(written, app_id=app_id, batch_id=batch_id, marks=news)
                return appended(written, version, {**marks, **news})
        raise StoreError(
            f"gave up after {MOST_TRIES} conflicting commits that moved the cursor or the clock",
            field=self.path,
        )

    def _begin(self) -> Transaction:
        transaction = Transaction(self.path, keeps_log=not self.log_is_read)
        before = transaction.before
        if before.version < 0 or self._written_id not in (None, before.table_id):
            raise StoreError(
                "the slot store was dropped, or created anew, while it is in use",
                field=self.path,
                rule="the table that holds what is pending",
                hint="restore it from a copy, or the catalog's dropped tables",
            )
        self._written_id = before.table_id
        return transaction

    def require_marks(self, marks: Mapping[str, int], expected: Mapping[str, int | None]) -> None:
        """Checks that the transactions of others are as expected."""
        for name, value in expected.items():
            if marks.get(name) != value:
                raise StoreMovedError(
                    "the slot store has moved on",
                    field=name,
                    value=marks.get(name, "not set"),
                    rule=f"{'not set' if value is None else value}, as expected",
                    hint="compute the rows again from the current version and append them",
                )

    def write_frame(
        self, transaction: Transaction, frame: DataFrame | None, *, in_one_place: bool = False
    ) -> NewFiles:
        """Writes the files of rows, for a transaction to commit."""
        if frame is None:
            return []
        # Spark's writer of files takes any columns.
        there = {column.name: column.dataType for column in frame.schema}
        if there != {column.name: column.dataType for column in STORE_SCHEMA}:
            raise StoreError(
                "not rows of the slot store", field="frame", value=frame.schema.simpleString(), rule=STORE_DDL
            )
        rows = frame.select(*STORE_SCHEMA.names)
        if in_one_place:
            sized = rows.coalesce(self.spark.sparkContext.defaultParallelism)
        elif frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true":
            sized = rows.hint("rebalance", *(F.col(name) for name in PARTITIONED_BY))
        else:
            sized = rows.repartition(*PARTITIONED_BY)
        return transaction.write_files(sized, {"compression": "zstd"})

    def drop(self, partitions: Iterable[tuple[int, int]], *, read_version: int | None = None) -> None:
        """Removes whole partitions in one commit of metadata; partitions that are already removed are ignored.

        Args:
            partitions: Levels and slots.
            read_version: The version in which their rows were read. Files added after it stay. Without it, all files
                are removed.

        Raises:
            StoreError: A compaction has put rows that came after `read_version` into a file with earlier ones, or
                there were too many conflicting commits.
        """
        wanted = frozenset(partitions)
        self._remove(
            lambda: self._removable(wanted, read_version),
            # The check for changes by other writers takes a commit with a transaction as the store's own.
            lambda transaction, gone: transaction.commit_deletion(gone, app_id=DROP),
        )

    def rearrange(self, frame: DataFrame, partitions: Iterable[tuple[int, int]], *, read_version: int) -> int:
        """Moves the rows of partitions to other places, in one commit that streams ignore (it changes no data).

        Args:
            frame: The rows with their new places.
            partitions: Levels and slots of their present places.
            read_version: The version in which they were read. Files added after it stay where they are.

        Returns:
            The number of files emptied.

        Raises:
            StoreError: As :meth:`drop`.
        """
        wanted = frozenset(partitions)
        return self._rewrite(lambda: self._removable(wanted, read_version), lambda _: frame)

    def join_files(self, paths: Sequence[str]) -> int:
        """Joins files of a partition into as few as possible, in one commit that streams ignore (it changes no data).

        Args:
            paths: Files of a partition, from :meth:`small_files`.

        Returns:
            The number of files emptied; 0 if one of them was joined or dropped by another commit meanwhile.

        Raises:
            StoreError: There were too many conflicting commits.
        """

        def there() -> Files:
            files = self.live_files.current()
            return [(path, files[path]) for path in paths] if files.keys() >= set(paths) else []

        return self._rewrite(there, lambda gone: self.rows_of_files(dict(gone)))

    def _rewrite(self, choose: Callable[[], Files], rows_of: Callable[[Files], DataFrame]) -> int:
        """Replaces files by others with these rows; as :meth:`_remove`."""
        written: NewFiles | None = None

        def commit(transaction: Transaction, gone: Files) -> None:
            nonlocal written
            if written is None:
                written = self.write_frame(transaction, rows_of(gone))
            self.require_lease()
            transaction.commit_rewrite(gone, written)

        return self._remove(choose, commit)

    def _remove(self, choose: Callable[[], Files], commit: Callable[[Transaction, Files], None]) -> int:
        """Commits a removal of files, again after a conflict; returns the number of files removed."""
        for _ in range(MOST_TRIES):
            transaction = self._begin()
            # Chosen after the transaction began: what a later commit removes, or adds, is a conflict.
            gone = choose()
            if not gone:
                return 0
            self.require_lease()
            # After a compaction the rows are in another file, which the next try removes.
            with suppress(ConflictError):
                commit(transaction, gone)
                return len(gone)
        raise StoreError(f"gave up after {MOST_TRIES} conflicting changes of the same files", field=self.path)

    def vacuum(self) -> None:
        """Deletes files that were dropped longer ago than the table keeps them. Lists all files, so it is slow."""
        self.require_lease()
        DeltaTable.forPath(self.spark, self.path).vacuum()

    def _removable(self, wanted: frozenset[tuple[int, int]], read_version: int | None) -> Files:
        """Returns the files of partitions, except those added after a version, by path."""
        there = {path: file for path, file in self.live_files.current().items() if file.place in wanted}
        gone = there.keys() - self.late_files(wanted, read_version, there)
        return [(path, there[path]) for path in sorted(gone)]

    def late_files(
        self, wanted: frozenset[tuple[int, int]], version: int | None, there: Collection[str]
    ) -> set[str]:
        """Returns the paths of files that were added to partitions after a version."""
        if version is None:
            return set()
        added = [
            action
            for _, actions in tables.commits_after(self.path, version)
            for action in actions
            if is_addition(action) and partition_of(action) in wanted
        ]
        late = {str(action["path"]) for action in added if action["dataChange"]}
        if late.difference(there) and any(not action["dataChange"] for action in added):
            raise StoreError(
                "a compaction mixed rows that were read with rows that were not",
                field=self.path,
                rule="no OPTIMIZE of a partition while it is handed over",
                hint="read the rows again; those that were read before are delivered a second time",
            )
        return late
