"""The slot store: one Delta table for everything that is not due for long, and the intake's and the cascade's way in and out.

The table is partitioned by ``(level, slot)`` as :mod:`wheel_udf.store_layout` says. Three kinds of commit are made, and each is atomic::

    version  commit                       files                                     SetTransactions in the same commit
    7        append (intake, batch 41)    + level=0/slot=181, + level=2/slot=190    intake: 41, clock: 3_611_000
    8        append (cascade, batch 12)   + level=0/slot=200, + level=2/slot=215    cascade: 12, cursor: 4_020_000
    9        drop                         - level=2/slot=190, - level=3/slot=10     drop: 9

    head()   Head(version=9, cursor_ms=4_020_000, clock_ms=3_611_000, batches={"intake": 41, "cascade": 12})

* **Exactly once**: a commit carries ``(app_id, batch_id)``; what a table has already is not written again.
* **The cursor and the clock are part of the log** (transactions named ``cursor`` and ``clock``), so they are true for just the rows of that version.
  Both only rise: who writes one has read it in the same transaction, so of two writers at once one is told, looks again and takes the larger.
* **Who made rows by something in the log says so** (``expect``): if it has moved, nothing is written and
  :class:`~wheel_udf.errors.StoreMovedError` tells to make them anew. Rows that are placed expect their cursor, so none is ever added to a partition
  that has been handed over; a hand-over expects the last act, so none comes between its look and its commit.
* **A cascade is two commits**, its rows first and the drop after, since a stream of the near rows skips commits that remove anything.
  A crash between the two leaves rows twice, and its repetition is harmless: the append is skipped, the drop is done.
* **What came too late to be read stays**: a cascade names the version that it has read (``drop(read_version=...)``), and files added after that
  are not dropped with the others; their partition is reached again the next time.

How files are written. Each (level, slot) wants one file of its own, and Spark writes one for each *task* that holds rows of it. So the frame is
rebalanced by (level, slot) first (Spark's REBALANCE hint): one shuffle, after which adaptive execution joins small parts into one task and
splits only what is larger than a file should be (64 MB). Files are what an append costs. Measured on 2 busy cores, 49 partitions, CPU seconds
of an append from a frame of 2 to 4 tasks::

    rows       as it is            coalesce(1)         repartition by hash    rebalance
    1,000      3.2  (98 files)     1.7  (49 files)     1.9  (49 files)        1.8  (49 files)
    50,000     3.2                 1.9                 2.9                    2.3, and the shortest: 2.8 s to 3.8 of coalesce(1)

``coalesce(1)`` costs as little, but what makes the frame would run in its one task, too.

Cost: head() is the listing of a log and the checksum beside its last commit, no Spark job. An append is one write job and one commit. partitions()
and drop() know the files from :mod:`wheel_udf.delta_files`: O(what changed since the last call), without a job but for the first call.

Caveats: see :mod:`wheel_udf.tables` for Delta's classes behind this. The statistics of a commit's files are what ``largest_event_ms`` is
read from, so ``spark.databricks.delta.stats.collect`` has to stay on. Files of an append that was refused late stay in the folder until a VACUUM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
)
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf import tables
from wheel_udf.delta_files import File, FileList, is_addition, place_of, stats_of
from wheel_udf.errors import StoreError, StoreMovedError
from wheel_udf.java import scala_map, scala_none, scala_seq, scala_some
from wheel_udf.store_layout import NEAR, StoreLayout
from wheel_udf.store_table import DEFAULT_KEEP_MS, PARTITIONED_BY, STORE_DDL, STORE_SCHEMA, open_table

CURSOR: Final = "cursor"
CLOCK: Final = "clock"
_DROP: Final = "drop"
_MOST_TRIES: Final = 20
# Which conflicts mean that another was there first. In Python these classes have no common one that would catch them.
_OTHER_REMOVAL: Final = (
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentAppendException,
    ConcurrentWriteException,
)
_ALL_FILES: Final = "1000000000"  # Delta's default of 1,000 files a batch would split a large handover


@dataclass(frozen=True, slots=True)
class Head:
    """What the log says of a version.

    Attributes:
        version: Of the table, from 0.
        cursor_ms: What is due before it is near; None until it was set.
        clock_ms: The largest clock written with rows; None until there was one.
        batches: The last batch of each app id.
    """

    version: int
    cursor_ms: int | None
    clock_ms: int | None
    batches: Mapping[str, int]

    def last_act(self, owner: str) -> dict[str, int | None]:
        """The app id of acts on an owner's entries, with the last of them; for ``expect``."""
        app_id = f"{owner}-acts"
        return {app_id: self.batches.get(app_id)}

    @property
    def owners(self) -> frozenset[str]:
        """Who has written: the app ids without what stands behind their last dash (``intake``, ``cascade``, ``acts``)."""
        return frozenset(app_id.rpartition("-")[0] for app_id in self.batches)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the log lists it.

    Attributes:
        level: 0 for near, else a far level.
        slot: Its number on the level.
        files: How many files.
        rows: How many rows.
        bytes: Size of the files.
    """

    level: int
    slot: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did.

    Attributes:
        written: False if the table had this batch already; then nothing was written and the numbers are 0.
        version: Of the table: the append's own, or the one that was found to have it.
        rows: How many rows.
        files: How many files.
        bytes: Their size.
        largest_event_ms: Largest ``event_time_ms`` of the rows; None if none has one.
        clock_ms: The store's clock after the append; None if there never was one.
    """

    written: bool
    version: int
    rows: int
    files: int
    bytes: int
    largest_event_ms: int | None
    clock_ms: int | None


ClockOf = Callable[[int | None], int | None]
"""From the largest event time of the rows just written to the clock to record, or None for no new one."""


class SlotStore:
    """The table of a layout. Make one with :meth:`open`, which looks whether it fits.

    Args:
        spark: The session.
        path: Place of the table, a path or any URI that Spark knows.
        layout: Its layout.
    """

    def __init__(self, spark: SparkSession, path: str, layout: StoreLayout) -> None:
        self.spark, self.path, self.layout = spark, path.rstrip("/") or "/", layout
        self._files = FileList(spark, self.path)

    @staticmethod
    def open(
        spark: SparkSession,
        path: str,
        layout: StoreLayout,
        *,
        create: bool,
        keep_ms: int = DEFAULT_KEEP_MS,
    ) -> SlotStore:
        """Opens a store, or makes it; arguments and errors are those of :func:`wheel_udf.store_table.open_table`."""
        store = SlotStore(spark, path, layout)
        open_table(spark, store.path, layout, create=create, keep_ms=keep_ms)
        return store

    # ---- reading -----------------------------------------------------------------------------------------------------

    def head(self, *, version: int | None = None) -> Head:
        """Version, cursor, clock and batches as they stand now, or stood at a version; of one version, without a Spark job."""
        table = self._snapshot() if version is None else tables.snapshot_at(self.spark, self.path, version)
        marks = tables.transactions(table)
        cursor_ms, clock_ms = marks.pop(CURSOR, None), marks.pop(CLOCK, None)
        marks.pop(_DROP, None)
        return Head(int(table.version()), cursor_ms, clock_ms, marks)

    def rows(self, *, version: int | None = None) -> DataFrame:
        """The rows as they stand now, or at a version; filters on ``level`` and ``slot`` read only their partitions."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def added_since(self, version: int) -> DataFrame:
        """The rows of the files that were added with new data after a version; without the partitions' columns.

        Reads those files and no others. O(actions of the commits since).
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

    def near_stream(self) -> DataFrame:
        """The near rows as a stream, each append's rows once; drops and compactions are no change to it.

        A commit that both adds and removes would be skipped whole: hence a cascade's two commits.
        """
        reader = self.spark.readStream.format("delta")
        options = {"skipChangeCommits": "true", "maxFilesPerTrigger": _ALL_FILES}
        return reader.options(**options).load(self.path).where(F.col("level") == NEAR)

    def partitions(self) -> list[Partition]:
        """All partitions that hold rows, by level and slot; from the log, no data is read."""
        totals: dict[tuple[int, int], list[int]] = {}
        for file in self._files.current().values():
            total = totals.setdefault(file.place, [0, 0, 0])
            for number, more in enumerate((1, file.rows, file.bytes)):
                total[number] += more
        return [Partition(*place, *total) for place, total in sorted(totals.items())]

    def require_untouched(self, owner: str) -> None:
        """Sees to it that nobody else has changed rows since this object first looked at the files.

        Commits that change no data (OPTIMIZE) are nobody's fault, and VACUUM is no commit of data at all.

        Args:
            owner: Whose transactions are all right (see :attr:`Head.owners`).

        Raises:
            StoreError: Somebody has. A commit without a transaction is told once, so that a new start takes the table as it stands; a writer with
                transactions of its own (a streaming query) makes the store another's, for good.
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
            rule="rows come and go by the job and by cancel, move and reroute",
            hint="DESCRIBE HISTORY says who it was; a new start goes on with the table as it is",
        )

    # ---- writing -----------------------------------------------------------------------------------------------------

    def append(
        self,
        frame: DataFrame | None,
        *,
        app_id: str,
        batch_id: int,
        cursor_ms: int | None = None,
        clock_ms: int | ClockOf | None = None,
        expect: Mapping[str, int | None] = MappingProxyType({}),
    ) -> Appended:
        """Adds rows, and moves the cursor and the clock with them, in one commit; unless the table has the batch already.

        Args:
            frame: Rows of :data:`STORE_SCHEMA`, in any order of columns; None for no rows.
            app_id: Who writes; not ``cursor``, ``clock`` or ``drop``.
            batch_id: The writer's number for this, rising.
            cursor_ms: The cursor from now on; one that is behind the table's changes nothing.
            clock_ms: The clock from now on, likewise; or what makes it of the rows' largest event time.
            expect: What the rows were made by: the cursor (:data:`CURSOR`) by which they were placed, the last batch of another app id; None for not one yet.

        Returns:
            What was done.

        Raises:
            StoreMovedError: Something is not as expected, before the write or at the commit. Nothing was added.
            StoreError: The frame has other columns, the app id is one of the store's own, or others commit all the time.
        """
        if app_id in {CURSOR, CLOCK, _DROP}:
            raise StoreError("the app id is the store's own", field="app_id", value=app_id)
        asked = {*expect, *[CURSOR] * (cursor_ms is not None), *[CLOCK] * (clock_ms is not None)}
        written: _Written | None = None
        for _ in range(_MOST_TRIES):
            transaction = self._log().startTransaction()
            before = transaction.snapshot()
            marks = tables.transactions(before)
            if marks.get(app_id, batch_id - 1) >= batch_id:
                return _Written(None, []).told(int(before.version()), marks.get(CLOCK), written=False)
            self._require(marks, expect)
            tables.depend_on(transaction, [app_id, *asked])
            written = written or self._write(transaction, frame)
            clock = clock_ms(written.largest_event_ms) if callable(clock_ms) else clock_ms
            news = _moves(marks, {CURSOR: cursor_ms, CLOCK: clock})
            # Files are not bound to the transaction that wrote them: another try does not write them again.
            with suppress(ConcurrentTransactionException):
                version = self._commit(transaction, written, app_id, batch_id, news)
                return written.told(version, {**marks, **news}.get(CLOCK))
        raise StoreError(
            "others move the cursor or the clock all the time", field=self.path, value=_MOST_TRIES
        )

    def _require(self, marks: Mapping[str, int], expected: Mapping[str, int | None]) -> None:
        for name, value in expected.items():
            if marks.get(name) != value:
                raise StoreMovedError(
                    "the slot store has moved on",
                    field=name,
                    value=marks.get(name, "not set"),
                    rule=f"{'not set' if value is None else value}, as expected",
                    hint="make the rows by the store as it is and append them again",
                )

    def _write(self, transaction: Any, frame: DataFrame | None) -> _Written:
        if frame is None:
            return _Written(self._seq([]), [])
        # Delta's writer checks this; its transaction takes what it gets.
        there = {column.name: column.dataType for column in frame.schema}
        if there != {column.name: column.dataType for column in STORE_SCHEMA}:
            raise StoreError(
                "not rows of the slot store", field="frame", value=frame.schema.simpleString(), rule=STORE_DDL
            )
        sized = frame.select(*STORE_SCHEMA.names).hint("rebalance", *(F.col(name) for name in PARTITIONED_BY))
        session: Any = self.spark._jsparkSession  # noqa: SLF001  # see the module tables
        options = scala_map(self.spark, {"compression": "zstd"})
        delta_options = self._delta("DeltaOptions")(options, session.sessionState().conf())
        some = scala_some(self.spark, delta_options)
        files = transaction.writeFiles(sized._jdf, some)  # noqa: SLF001
        return _Written(files, tables.as_json(self.spark, files))

    def _commit(
        self, transaction: Any, written: _Written, app_id: str, batch_id: int, moved: Mapping[str, int]
    ) -> int:
        actions, none = written.files, scala_none(self.spark)
        for name, value in {app_id: batch_id, **moved}.items():
            # Without a time, as in tables.append: the table must not forget these.
            actions = actions.appended(self._delta("actions.SetTransaction")(name, value, none))
        return int(transaction.commit(actions, tables.streaming_update(self.spark, app_id, batch_id)))

    def drop(self, partitions: Iterable[tuple[int, int]], *, read_version: int | None = None) -> None:
        """Removes whole partitions in one commit of metadata, and nothing else; what is gone already is no fault.

        Args:
            partitions: Levels and slots.
            read_version: The version in which their rows were read. Files added after it stay. Without it, nothing stays.

        Raises:
            StoreError: A compaction has put rows that came after `read_version` into a file with earlier ones; or others commit all the time.
        """
        self._remove_from(partitions, read_version, self._commit_removal)

    def rearrange(self, frame: DataFrame, partitions: Iterable[tuple[int, int]], *, read_version: int) -> int:
        """Puts the rows of partitions into other files, in one commit that changes no data: no stream sees it.

        Args:
            frame: The rows, with the places that they are to have from now on.
            partitions: Levels and slots where they are.
            read_version: The version in which they were read. Files added after it stay where they are.

        Returns:
            How many files were emptied.

        Raises:
            StoreError: As :meth:`drop`.
        """
        written: _Written | None = None

        def commit(transaction: Any, gone: Sequence[tuple[str, File]]) -> None:
            nonlocal written
            written = written or self._write(transaction, frame)
            self._put_elsewhere(transaction, gone, written)

        return self._remove_from(partitions, read_version, commit)

    def _remove_from(
        self,
        partitions: Iterable[tuple[int, int]],
        read_version: int | None,
        commit: Callable[[Any, Sequence[tuple[str, File]]], None],
    ) -> int:
        """Commits a removal of the files of partitions, again if others have changed them meanwhile; how many files it removed."""
        wanted = frozenset(partitions)
        for _ in range(_MOST_TRIES if wanted else 0):
            transaction = self._log().startTransaction()
            # Asked after the transaction began: what is missing from the list since then is a conflict, and no removal of nothing.
            gone = self._removable(wanted, read_version)
            if not gone:
                return 0
            # Who has joined the same files meanwhile has put their rows into another, which is then what goes.
            with suppress(*_OTHER_REMOVAL):
                commit(transaction, gone)
                return len(gone)
        if wanted:
            raise StoreError(
                "others change the same partitions all the time", field=self.path, value=_MOST_TRIES
            )
        return 0

    def small_files(self, below_bytes: int) -> dict[tuple[int, int], list[str]]:
        """The files of each partition that are smaller, by (level, slot); from the log, no data is read."""
        found: dict[tuple[int, int], list[str]] = {}
        for path, file in self._files.current().items():
            if file.bytes < below_bytes:
                found.setdefault(file.place, []).append(path)
        return found

    def join_files(self, place: tuple[int, int], paths: Sequence[str]) -> int:
        """Puts the rows of some files of a partition into as few as they fill, in one commit that changes no data: no stream sees it.

        Args:
            place: The partition's level and slot.
            paths: As :meth:`small_files` has them.

        Returns:
            How many files were emptied; 0 if one of them is gone meanwhile: somebody else has joined it, or dropped it.
        """
        transaction, there = self._log().startTransaction(), self._files.current()
        gone = [(path, there[path]) for path in paths if path in there]
        if len(gone) < len(paths):
            return 0
        level, slot = place
        rows = self._rows_of(paths).withColumns({"level": F.lit(level), "slot": F.lit(slot).cast("long")})
        with suppress(*_OTHER_REMOVAL):
            self._put_elsewhere(transaction, gone, self._write(transaction, rows))
            return len(gone)
        return 0

    def _put_elsewhere(self, transaction: Any, gone: Sequence[tuple[str, File]], written: _Written) -> None:
        action = self._delta("actions.Action")
        added = [
            action.fromJson(json.dumps({"add": {**file, "dataChange": False}})) for file in written.listed
        ]
        now_ms = int(transaction.clock().getTimeMillis())
        removed = [
            action.fromJson(file.as_add(path)).removeWithTimestamp(now_ms, False)  # noqa: FBT003  # py4j knows no keywords
            for path, file in gone
        ]
        none, empty = scala_none(self.spark), self._seq([])
        operation = self._delta("DeltaOperations$Optimize")(empty, empty, False, none, False)  # noqa: FBT003  # the same
        transaction.commit(self._seq([*added, *removed]), operation)

    def _rows_of(self, paths: Sequence[str]) -> DataFrame:
        """The rows of data files, without the partitions' columns."""
        columns = T.StructType([column for column in STORE_SCHEMA if column.name not in PARTITIONED_BY])
        if not paths:
            return self.spark.createDataFrame([], columns)
        return self.spark.read.schema(columns).parquet(*(f"{self.path}/{path}" for path in paths))

    def vacuum(self) -> None:
        """Deletes the files that have been dropped for longer than the table keeps them. Lists all files: not for the hot path."""
        DeltaTable.forPath(self.spark, self.path).vacuum()

    def _commit_removal(self, transaction: Any, gone: Sequence[tuple[str, File]]) -> None:
        # As DELETE and with its counts: after an operation of no such name Delta writes no checksum, and who then
        # asks for the head has to compute the table's state.
        counts = {
            "numRemovedFiles": len(gone),
            "numDeletedRows": sum(file.rows for _, file in gone),
            "numCopiedRows": 0,
        }
        tables.tell_counts(self.spark, transaction, counts)
        operation = self._delta("DeltaOperations$Delete")(self._seq([]))
        actions = [self._delta("actions.Action").fromJson(file.as_add(path)).remove() for path, file in gone]
        # Its version, or nearly: who looks for changes of others knows ours by any transaction at all.
        mark = self._delta("actions.SetTransaction")(
            _DROP, int(transaction.readVersion()) + 1, scala_none(self.spark)
        )
        transaction.commit(self._seq([*actions, mark]), operation)

    def _removable(
        self, wanted: frozenset[tuple[int, int]], read_version: int | None
    ) -> list[tuple[str, File]]:
        """The files of partitions but those that were added after a version, by path."""
        there = {path: file for path, file in self._files.current().items() if file.place in wanted}
        gone = there.keys() - self._late(wanted, read_version, there)
        return [(path, there[path]) for path in sorted(gone)]

    def _late(
        self, wanted: frozenset[tuple[int, int]], version: int | None, there: Collection[str]
    ) -> set[str]:
        """Paths of files that were added to partitions after a version."""
        if version is None:
            return set()
        added = [
            action
            for _, actions in tables.commits_after(self.spark, self.path, version)
            for action in actions
            if is_addition(action) and place_of(action) in wanted
        ]
        late = {str(action["path"]) for action in added if action["dataChange"]}
        if late.difference(there) and any(not action["dataChange"] for action in added):
            raise StoreError(
                "a compaction mixed rows that were read with rows that were not",
                field=self.path,
                rule="no OPTIMIZE of a partition while it is handed over",
                hint="read its rows again; those that were read before come a second time",
            )
        return late

    def _log(self) -> Any:
        return tables.delta_log(self.spark, self.path)

    def _snapshot(self) -> Any:
        return tables.snapshot(self.spark, self.path)

    def _delta(self, name: str) -> Any:
        return tables.delta_class(self.spark, name)

    def _seq(self, items: Sequence[Any]) -> Any:
        return scala_seq(self.spark, items)


@dataclass(frozen=True, slots=True)
class _Written:
    """Files that no commit names yet.

    Attributes:
        files: Delta's entries of them, a Scala Seq.
        listed: The same entries as JSON has them.
    """

    files: Any
    listed: list[dict[str, Any]]

    @property
    def largest_event_ms(self) -> int | None:
        found = (stats_of(file).get("maxValues", {}).get("event_time_ms") for file in self.listed)
        return max((int(value) for value in found if value is not None), default=None)

    def told(self, version: int, clock_ms: int | None, *, written: bool = True) -> Appended:
        rows = sum(int(stats_of(file)["numRecords"]) for file in self.listed)
        size = sum(int(file["size"]) for file in self.listed)
        return Appended(
            written=written,
            version=version,
            rows=rows,
            files=len(self.listed),
            bytes=size,
            largest_event_ms=self.largest_event_ms,
            clock_ms=clock_ms,
        )


def _moves(marks: Mapping[str, int], to: Mapping[str, int | None]) -> dict[str, int]:
    """Those marks that move on; none goes back."""
    return {
        name: value
        for name, value in to.items()
        if value is not None and (name not in marks or value > marks[name])
    }
