"""The keeper of a slot store: hands far slots over to the near side when the clock comes near, and drops what nobody needs any more.

A hand-over moves the *cursor*, the instant before which everything is on the near side, from one window's bound to another::

    1  the new cursor holds for the intake            from now on what is due before it goes near; then the inbox is emptied into slots
    2  reached slots are read, versions compared      at one version of the table, while the intake goes on
    3  one commit: near rows, what has ended,         if anything came meanwhile that it is about, slots are read once more; and neither a command
       rows for lower levels, the cursor              nor an act of another process comes between that look and the commit
    4  the new cursor is published                    the wheel's clock, which never passes it, may go on
    5  the reached slots are dropped, whole           a crash before this leaves rows that the cursor says are done

Each entry is rewritten at most once per level (see :mod:`wheel_udf.store_layout`). A crash anywhere repeats nothing: commit 3 carries the cursor as its
transaction, and whatever a far slot that the cursor has reached still holds at a start is dropped.

The handover leaves no gap: a CANCEL that was committed before 3 is seen by it; one that is committed after 3 reaches the wheel after the entry. Both
are in the log of the same table, which the wheel reads in order.

Retirement: near rows stay in the store while their window can matter. When all of a window has been released, what was in it bears
versions that an older entry in a far slot may still meet. Those that have one (found by one pass over the store's id hashes) become slim *marks* (level -1);
then the window is dropped, and marks whose older entry is gone are left out of the new marks. So marks are as many as the versions that are
really waited for, not as the commands that ever came.

Times are arguments here; :mod:`wheel_udf.tiered_run` gives them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wheel_udf.errors import IntakePausedError, StoreError, StoreMovedError
from wheel_udf.pressure import Pressure
from wheel_udf.slot_store import CURSOR, Appended, ClockOf, Head, Partition, SlotStore
from wheel_udf.state import COMMAND, GONE_CANCELLED, MOVED
from wheel_udf.store_intake import stored_rows
from wheel_udf.store_layout import INBOX, MARKS, NEAR, is_far_column
from wheel_udf.store_table import STORE_SCHEMA
from wheel_udf.store_versions import verdicts, with_version

_PLACED_AT_ONCE_ROWS = 50_000
"""A batch of so many rows is placed in its slots at once; the far entries of smaller ones go to the inbox."""

_INBOX_FILES = 64
"""So many files in the inbox are placed together; so many small ones in another partition are joined."""

_MOST_TRIES = 20

_SMALL_BYTES = 4_000_000
"""64 files of this size fill four of the size that Spark aims at."""


@dataclass(frozen=True)
class HandedOver:
    """What a hand-over did.

    Attributes:
        cursor_ms: The cursor from now on.
        slots: How many far slots were emptied.
        rows: How many rows they held.
    """

    cursor_ms: int
    slots: int
    rows: int


class Keeper:
    """Writes to one store: the intake's batches, hand-overs and retirements. One in a process, one process on a store.

    Args:
        store: The store.
        app_id: Id of the transactions of this run and its restarts.
        on_change: Called after each commit that the wheel's clock should know of.
        pressure: The limits that batches of the intake have to pass; None for none.
    """

    def __init__(
        self,
        store: SlotStore,
        *,
        app_id: str,
        on_change: Callable[[Keeper], None],
        pressure: Pressure | None = None,
    ) -> None:
        self.store, self.layout = store, store.layout
        self._owner = app_id
        self._intake_id, self._cascade_id, self._retire_id = (
            f"{app_id}-{part}" for part in ("intake", "cascade", "retire")
        )
        self._on_change, self._pressure = on_change, pressure
        self._lock = threading.RLock()
        head = store.head()
        self.version, self.cursor_ms, self.clock_ms = head.version, head.cursor_ms, head.clock_ms
        self._placing_ms = head.cursor_ms
        # How large batches are is not known yet, and a small one in fifty files is no harm once.
        self._is_small = False
        self._in_inbox = sum(p.files for p in store.partitions() if p.level == INBOX)
        self._drop_handed_over()

    # ---- intake ------------------------------------------------------------------------------------------------------

    def take_in(self, parsed: DataFrame, batch_id: int, clock_of: ClockOf) -> int:
        """Commits a batch of parsed commands.

        Args:
            parsed: What :func:`wheel_udf.commands.parse` made of it.
            batch_id: Its number.
            clock_of: From the largest event time to the clock it makes; None if events make none.

        Returns:
            Rows written; 0 if the store has the batch already.

        Raises:
            IntakePausedError: A limit is reached, and it is one at which the intake pauses. Nothing was written.
        """
        if self._pressure is None:
            return self._take_in(parsed, batch_id, clock_of)
        if self._pressure.pauses:
            if not self._pressure.has_room():
                raise IntakePausedError("a limit on what is pending is reached", field="limits")
            return self._take_in(parsed, batch_id, clock_of)
        parsed = parsed.persist()
        try:
            admitted = self._pressure.admitted(parsed, self.clock_ms)
            return self._take_in(admitted, batch_id, clock_of)
        finally:
            parsed.unpersist()

    def _take_in(self, parsed: DataFrame, batch_id: int, clock_of: ClockOf) -> int:
        with self._lock:
            if self._placing_ms is None:
                self.start(self._first_clock(parsed, clock_of))
            assert self._placing_ms is not None
            rows = stored_rows(
                parsed, self.layout, cursor_ms=self._placing_ms, arrived=batch_id, inbox=self._is_small
            )
            done = self.store.append(
                rows,
                app_id=self._intake_id,
                batch_id=batch_id,
                clock_ms=clock_of,
                expect={CURSOR: self.cursor_ms},
            )
            # The next batch will be about as large.
            self._in_inbox += self._is_small
            self._is_small = done.rows < _PLACED_AT_ONCE_ROWS
            if self._pressure is not None:
                self._pressure.came(done.rows)
            self._committed(done, clock_ms=done.clock_ms)
            return done.rows

    def _first_clock(self, parsed: DataFrame, clock_of: ClockOf) -> int:
        good = parsed.where(F.col("error_code").isNull())
        latest_ms = good.agg(F.max("event_time_ms")).collect()[0][0]
        clock_ms = clock_of(latest_ms)
        # Nothing usable came, so whatever the cursor is, nothing is placed by it.
        return 0 if clock_ms is None else clock_ms

    def start(self, clock_ms: int) -> None:
        """Sets the first cursor of a new store by the clock; does nothing to one that has a cursor."""
        with self._lock:
            if self.cursor_ms is None:
                self._placing_ms = self.layout.cursor_of(clock_ms)
                self._move_cursor(None, self._placing_ms)

    def require_untouched(self) -> None:
        """Sees to it that nobody else has changed rows; see :meth:`wheel_udf.slot_store.SlotStore.require_untouched`."""
        self.store.require_untouched(self._owner)

    # ---- hand-over ---------------------------------------------------------------------------------------------------

    def step(self, clock_ms: int) -> HandedOver | None:
        """Hands over what the clock has come near to; None if it has come near to nothing yet."""
        if self.cursor_ms is None or not self.layout.is_due(clock_ms, self.cursor_ms):
            return None
        return self._hand_over(self.layout.cursor_of(clock_ms))

    def _hand_over(self, cursor_ms: int) -> HandedOver:
        self.require_untouched()
        with self._lock:
            self._placing_ms = cursor_ms
        self._empty_inbox()
        head = self.store.head()
        reached = self._reached(cursor_ms)
        moved = self._moved(head, reached, cursor_ms)
        # The intake is held up no longer than it must: only what has come meanwhile is looked at with the lock.
        with self._lock:
            for _ in range(_MOST_TRIES):
                try:
                    if moved is None or not self._news_since(head, moved.leaving):
                        # An act that came since has placed its rows by the old cursor: its slots may be among the reached ones.
                        expect = head.last_act(self._owner)
                        self._move_cursor(moved.rows if moved else None, cursor_ms, expect)
                        break
                except StoreMovedError:
                    pass
                finally:
                    if moved:
                        moved.close()
                head = self.store.head()
                reached = self._reached(cursor_ms)
                moved = self._moved(head, reached, cursor_ms)
            else:
                raise StoreError("acts come all the time", field=self.store.path, value=_MOST_TRIES)
        self._drop(reached, head.version)
        return HandedOver(cursor_ms, len(reached), sum(partition.rows for partition in reached))

    def _reached(self, cursor_ms: int) -> list[Partition]:
        return [p for p in self.store.partitions() if self.layout.reached(p.level, p.slot, cursor_ms)]

    def _moved(self, head: Head, reached: Sequence[Partition], cursor_ms: int) -> _Moved | None:
        if not reached:
            return None
        rows = self.store.rows(version=head.version)
        here = _in(reached)
        near = F.col("deliver_at_ms") < cursor_ms
        leaving = rows.where(here & near).withColumn("uid", F.monotonically_increasing_id()).persist()
        # All other rows: what stays behind in a reached slot can beat what leaves it.
        ended = verdicts(leaving, rows.where(~(here & near))).persist()
        return _Moved(leaving, ended, self._placed(rows.where(here & ~near), leaving, ended, cursor_ms))

    def _placed(self, later: DataFrame, leaving: DataFrame, ended: DataFrame, cursor_ms: int) -> DataFrame:
        """Everything that a hand-over writes, each row in its place."""
        due = F.col("deliver_at_ms")
        lower = self._lower(later, cursor_ms)
        going = leaving.join(F.broadcast(ended.select("uid")), "uid", "left_anti")
        going = going.withColumns(
            {
                "level": F.lit(NEAR),
                "slot": self.layout.slot_column(NEAR, due, cursor_ms),
                "act": F.lit(MOVED).cast("byte"),
                # What moves is no producer's retry, whatever has fired of its id.
                "seq_given": F.lit(True),
            }
        )
        told = self.layout.slot_of(NEAR, cursor_ms - 1, cursor_ms)
        gone = _row(ended, level=NEAR, slot=told, act=F.col("act"), version=("seq", "amend", "op"))
        own = _row(
            ended.where(F.col("act") == GONE_CANCELLED),
            level=MARKS,
            slot=told,
            act=F.lit(COMMAND),
            version=("own_seq", "own_amend", None),
        )
        names = STORE_SCHEMA.names
        return lower.select(names).unionByName(going.select(names)).unionByName(gone).unionByName(own)

    def _lower(self, later: DataFrame, cursor_ms: int) -> DataFrame:
        """Entries in their places by a cursor that they lie behind."""
        due, level = F.col("deliver_at_ms"), self.layout.level_column(F.col("deliver_at_ms"), cursor_ms)
        return later.withColumns({"slot": self.layout.slot_column(level, due, cursor_ms), "level": level})

    def _news_since(self, head: Head, leaving: DataFrame) -> bool:
        """Whether commands on the leaving ids have come since their versions were compared."""
        new = with_version(self.store.added_since(head.version))
        ids = F.broadcast(leaving.select("id_hash").distinct())
        return not new.join(ids, "id_hash", "left_semi").isEmpty()

    def _move_cursor(
        self, rows: DataFrame | None, cursor_ms: int, expect: Mapping[str, int | None] = MappingProxyType({})
    ) -> None:
        done = self.store.append(
            rows, app_id=self._cascade_id, batch_id=cursor_ms, cursor_ms=cursor_ms, expect=expect
        )
        self.cursor_ms = cursor_ms
        self._committed(done)

    def _drop_handed_over(self) -> None:
        """Drops what a run that was cut off between the commit of a hand-over and the drop has left."""
        if self.cursor_ms is not None:
            self._drop(self._reached(self.cursor_ms), self.version)

    def _drop(self, partitions: Sequence[Partition], version: int) -> None:
        if partitions:
            self.store.drop([(p.level, p.slot) for p in partitions], read_version=version)

    def _committed(self, done: Appended, clock_ms: int | None = None) -> None:
        self.version = done.version
        if clock_ms is not None:
            self.clock_ms = clock_ms
        self._on_change(self)

    # ---- the inbox ---------------------------------------------------------------------------------------------------

    def tidy(self) -> int:
        """Places what lies in the inbox, if that is many files.

        Returns:
            How many files were emptied.
        """
        return self._empty_inbox() if self._in_inbox >= _INBOX_FILES else 0

    def compact(self) -> int:
        """Joins the small files of a partition where they are many: each commit of the intake adds one to near windows, each emptied inbox one
        to far slots. Large files stay as they are, so the cost follows what has come and not what is pending.

        No stream sees it, and one that has not read the small files yet still finds them.

        Returns:
            How many files were emptied.
        """
        return sum(
            self.store.join_files(place, paths)
            for place, paths in self.store.small_files(_SMALL_BYTES).items()
            if place[0] != INBOX and len(paths) >= _INBOX_FILES
        )

    def _empty_inbox(self) -> int:
        with self._lock:
            cursor_ms = self.cursor_ms
            if not self._in_inbox or cursor_ms is None:
                return 0
            version, self._in_inbox = self.store.head().version, 0
        # By the cursor that the store has: by a new one some would be near, and rows go there in a commit that streams see.
        waiting = self.store.rows(version=version).where(F.col("level") == INBOX)
        return self.store.rearrange(self._lower(waiting, cursor_ms), [(INBOX, 0)], read_version=version)

    # ---- retirement --------------------------------------------------------------------------------------------------

    def retire(self, done_ms: int, memory_ms: int | None, history_ms: int = 0) -> int:
        """Drops the near windows that nobody needs any more, keeping the versions that an older far entry may still meet.

        Args:
            done_ms: Everything due before this has been released, and read up to here; rows that arrived since lie in later windows.
            memory_ms: How long the wheel remembers what has ended; what it may still compare with stays as long here. ``None``: for ever.
            history_ms: How long rows stay after their due time, for whoever looks at them.

        Returns:
            How many windows were dropped.
        """
        if self.cursor_ms is None or memory_ms is None:
            return 0
        # Past-due rows join the window before last, so two windows back nothing comes any more.
        done_ms = min(done_ms - max(memory_ms, history_ms), self.cursor_ms - 2 * self.layout.window_ms)
        partitions = self.store.partitions()
        windows = [
            p for p in partitions if p.level == NEAR and (p.slot + 1) * self.layout.window_ms <= done_ms
        ]
        if not windows:
            return 0
        head = self.store.head()
        old = [*windows, *(p for p in partitions if p.level == MARKS)]
        generation = max(p.slot for p in windows)
        done = self.store.append(
            self._marks(head, old, generation), app_id=self._retire_id, batch_id=generation
        )
        # Where a run that was cut off has written this generation of marks already, those are the ones to keep.
        over = generation + done.written
        self._drop([p for p in old if p.level == NEAR or p.slot < over], head.version)
        return len(windows)

    def _marks(self, head: Head, old: Sequence[Partition], generation: int) -> DataFrame | None:
        rows = self.store.rows(version=head.version)
        far_ids = rows.where(is_far_column(F.col("level"))).select("id_hash")
        versions = (
            with_version(rows.where(_in(old)))
            .select("id_hash", "schedule_id", "seq", "amend", "op")
            .distinct()
        )
        # The versions are few beside what is far: they are what is sent around, and the far ids are only passed over.
        met = far_ids.join(
            F.broadcast(versions.select("id_hash").distinct()), "id_hash", "left_semi"
        ).distinct()
        kept = versions.join(F.broadcast(met), "id_hash", "left_semi")
        return _row(kept, level=MARKS, slot=generation, act=F.lit(COMMAND), version=("seq", "amend", "op"))


@dataclass
class _Moved:
    """The rows of a hand-over, and the frames that are kept while they are written."""

    leaving: DataFrame
    ended: DataFrame
    rows: DataFrame

    def close(self) -> None:
        self.ended.unpersist()
        self.leaving.unpersist()


def _in(partitions: Sequence[Partition]) -> Column:
    found = F.lit(False)
    by_level: dict[int, list[int]] = {}
    for partition in partitions:
        by_level.setdefault(partition.level, []).append(partition.slot)
    for level, slots in by_level.items():
        found = found | ((F.col("level") == level) & F.col("slot").isin(slots))
    return found


def _row(
    rows: DataFrame, *, level: int, slot: int, act: Column, version: tuple[str, str, str | None]
) -> DataFrame:
    """Rows of the store that bear an id and a version and nothing else."""
    seq, amend, op = version
    columns = {
        "level": F.lit(level),
        "slot": F.lit(slot),
        "act": act,
        # The wheel takes it off its count of that delay level.
        **({"delay_level_ms": F.col("delay_level_ms")} if "delay_level_ms" in rows.columns else {}),
        "schedule_id": F.col("schedule_id"),
        "id_hash": F.col("id_hash"),
        "seq": F.col(seq),
        "amend": F.col(amend),
        "op": F.lit(0) if op is None else F.col(op),
        "seq_given": F.lit(True),
        "arrived": F.lit(0),
    }
    return rows.select(
        *(
            columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in STORE_SCHEMA
        )
    )
