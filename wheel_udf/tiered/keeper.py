"""The keeper of a slot store: commits the intake's batches and acts, moves the cursor, joins small files and drops what
is no longer needed.

::

    command batches --take_in--> | near rows                | --stream--> wheel
    acts ---------take_acts----> | far slots   --step-->    |   (hand_over)
                                 | inbox       --tidy-->    |
                                 | old windows --retire-->  dropped (retirement)

All writes to the store go through one keeper. A lock serialises them where they depend on the cursor, so no row is
placed by a cursor that a hand-over is replacing. Times are arguments; :mod:`wheel_udf.tiered.run` supplies them.

Acts and hand-overs are made on one thread, so no act comes between the check of a hand-over and its commit. A commit
that a killed run has begun, of an act too, is repeated by this run before its first hand-over: whichever lands second
finds the number of the act in the log, and adds nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, functions as F

from wheel_udf.checkpoint.act_files import read_act, remove_rows
from wheel_udf.common.errors import StoreError, StoreMovedError
from wheel_udf.pending.acts_on_store import cancels_only, rows_of_act
from wheel_udf.spark.files import open_folder
from wheel_udf.store.head import ACTS, CURSOR, Appended, ClockOf, Head, Partition
from wheel_udf.store.intake import stored_rows
from wheel_udf.store.layout import INBOX, NEAR
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables.delta_transaction import NewFiles
from wheel_udf.tiered import hand_over, retirement
from wheel_udf.tiered.bad_rules import with_rejects
from wheel_udf.tiered.fires import with_fired
from wheel_udf.tiered.hand_over import HandedOver, Moving
from wheel_udf.tiered.pressure import Pressure

_PLACED_AT_ONCE_ROWS = 50_000
"""A batch of at least this many rows is placed in its slots at once; far entries of smaller ones go to the inbox."""

_MOST_TRIES = 20

_SMALL_BYTES = 4_000_000
"""Files below this size are joined: 16 of them fill one file of the size that Spark aims at."""


def intake_app_id(app_id: str) -> str:
    """The app id of what the intake of a job writes to the store."""
    return f"{app_id}-intake"


@dataclass(frozen=True)
class FileBounds:
    """How many files are placed or joined together.

    Attributes:
        inbox: So many in the inbox are placed, at the cost of about two batches (a file for each slot).
        near: So many small files are joined in a near window, to which each commit of the intake adds one. The batches
            of the wheel wait for a join, and it costs about the same for 64 files as for 16.
        joined: So many in any other partition. A read of the whole store (a count, an act by predicate, the comparison
            of a hand-over) takes more time for its files than for its rows.
    """

    inbox: int = 128
    near: int = 64
    joined: int = 16


class Keeper:
    """Writes to one store: the intake's batches, acts, hand-overs and retirements. A store has one keeper, in one
    process.

    Args:
        store: The store.
        app_id: Transaction id of this run and its restarts.
        on_change: Called after each commit that may move the wheel's clock.
        pressure: The limits on pending entries; None for no limits.
        bounds: How many files are placed or joined together.
    """

    def __init__(
        self,
        store: SlotStore,
        *,
        app_id: str,
        on_change: Callable[[Keeper], None],
        pressure: Pressure | None = None,
        bounds: FileBounds = FileBounds(),
    ) -> None:
        self.store, self.layout, self._bounds = store, store.layout, bounds
        self._owner = app_id
        self._intake_id = intake_app_id(app_id)
        self._cascade_id, self._retire_id = (f"{app_id}-{part}" for part in ("cascade", "retire"))
        self._acts_id = f"{app_id}{ACTS}"
        self._on_change, self._pressure = on_change, pressure
        self.lock = threading.RLock()
        head = store.head()
        self.version, self.cursor_ms = head.version, head.cursor_ms
        self.clock_ms, self.clock_before_ms = head.clock_ms, head.clock_before_ms
        self.taken_in = head.version
        """The version that has all batches of the intake so far."""
        self._placing_ms = head.cursor_ms
        # The size of batches is not known yet; placing one small batch in fifty files does no harm.
        self._is_small = False
        self._acts_taken = head.acts_taken
        self._last_batch: int | None = None
        self._look_at_intake()
        self._drop_handed_over()

    # ---- intake --------------------------------------------------------------------------------------

    def take_in(self, parsed: DataFrame, batch_id: int, clock_of: ClockOf) -> int:
        """Commits a batch of parsed commands, without the entries that limits reject.

        Args:
            parsed: The batch, as :func:`wheel_udf.commands.parse_commands` returns it.
            batch_id: Number of the batch.
            clock_of: Computes the clock from the largest event time; returns None if event times make no clock.

        Returns:
            Rows written; 0 if the store has the batch already.
        """
        if self._pressure is None or self._pressure.pauses:
            return self._take_in(parsed, batch_id, clock_of)
        parsed = parsed.persist()
        try:
            admitted = self._pressure.admitted(parsed, self.clock_ms)
            return self._take_in(admitted, batch_id, clock_of)
        finally:
            parsed.unpersist()

    def _take_in(self, parsed: DataFrame, batch_id: int, clock_of: ClockOf) -> int:
        with self.lock:
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
                check=partial(self._checked, self.cursor_ms, self._placing_ms),
            )
            if done.written:
                self._last_batch = batch_id
            # The next batch will be about as large.
            self._in_inbox += self._is_small
            self._is_small = done.rows < _PLACED_AT_ONCE_ROWS
            if self._pressure is not None:
                self._pressure.came(done.rows)
            self.taken_in = done.version
            self.note_commit(done, has_clock=True)
            return done.rows

    def _checked(self, cursor_ms: int | None, placing_ms: int, files: NewFiles) -> DataFrame | None:
        """The rows of a batch to write in place of those in some new files; None to keep them."""
        checked = with_rejects(self.store, files)
        if cursor_ms is None:
            return checked  # the batch has no usable command
        return with_fired(self.store, files, checked, cursor_ms=cursor_ms, placing_ms=placing_ms)

    def _first_clock(self, parsed: DataFrame, clock_of: ClockOf) -> int:
        good = parsed.where(F.col("error_code").isNull())
        latest_ms = good.agg(F.max("event_time_ms")).collect()[0][0]
        clock_ms = clock_of(latest_ms)
        # The batch has no usable command, so nothing is placed by this cursor.
        return 0 if clock_ms is None else clock_ms

    def start(self, clock_ms: int) -> None:
        """Sets the first cursor of a new store from the clock; does nothing if the store has a cursor."""
        with self.lock:
            if self.cursor_ms is None:
                self._placing_ms = self.layout.cursor_of(clock_ms)
                self._move_cursor(None, self._placing_ms)

    def require_untouched(self) -> None:
        """See :meth:`wheel_udf.store.slot_store.SlotStore.require_untouched`."""
        self.store.require_untouched(self._owner)

    # ---- acts ----------------------------------------------------------------------------------------

    def take_acts(self, checkpoint: str) -> int:
        """Appends the rows of acts that the store does not have yet, in order, each in one commit with its number. Call
        it on the thread of the hand-overs, and before the wheel's query starts.

        Args:
            checkpoint: Of the wheel's query (:mod:`wheel_udf.checkpoint.act_files`).

        Returns:
            The number of acts taken.

        Raises:
            CheckpointError: The file of an act is damaged.
        """
        files, first = open_folder(checkpoint), self._acts_taken
        while (act := read_act(files, self._acts_taken)) is not None:
            # Not before: a process may still read the rows of the last act.
            if (before := read_act(files, self._acts_taken - 1)) is not None:
                remove_rows(checkpoint, before[1])
            self._take_act(checkpoint, act)
        return self._acts_taken - first

    def _take_act(self, checkpoint: str, act: tuple[dict[str, Any], dict[str, str]]) -> None:
        with self.lock:
            assert self.cursor_ms is not None, "an act changes entries of the store"
            done = self.store.append(
                rows_of_act(self.store, checkpoint, self._acts_taken, act, self.cursor_ms),
                app_id=self._acts_id,
                batch_id=self._acts_taken,
                expect={CURSOR: self.cursor_ms},
                in_one_place=cancels_only(act[0]),
            )
            self._acts_taken += 1
            self.note_commit(done)

    # ---- hand-over -----------------------------------------------------------------------------------

    def step(self, clock_ms: int) -> HandedOver | None:
        """Hands over the slots that the clock has come near to; returns None if there are none."""
        if self.cursor_ms is None or not self.layout.is_due(clock_ms, self.cursor_ms):
            return None
        return self._hand_over(self.layout.cursor_of(clock_ms))

    def _hand_over(self, cursor_ms: int) -> HandedOver:
        self.require_untouched()
        with self.lock:
            self._placing_ms = cursor_ms
        head, reached, moved = self._prepare(cursor_ms)
        # The intake waits only for the check of what has come meanwhile and for the commit.
        with self.lock:
            for _ in range(_MOST_TRIES):
                try:
                    if moved is None or not hand_over.news_since(self.store, head, moved.leaving):
                        expect = {self._intake_id: self._last_batch}
                        self._move_cursor(moved.rows if moved else None, cursor_ms, expect)
                        break
                except StoreMovedError:
                    pass
                finally:
                    if moved:
                        moved.close()
                self._look_at_intake()
                head, reached, moved = self._prepare(cursor_ms)
            else:
                raise StoreError(
                    f"the hand-over gave up after {_MOST_TRIES} conflicting commits", field=self.store.path
                )
        self.drop_partitions(reached, head.version)
        by_level: Counter[int] = Counter()
        for partition in reached:
            by_level[partition.level] += partition.rows
        return HandedOver(cursor_ms, len(reached), by_level.total(), by_level)

    def _prepare(self, cursor_ms: int) -> tuple[Head, list[Partition], Moving | None]:
        """The current store, the partitions that a cursor reaches, and their rows; None if they are empty."""
        self.empty_inbox()
        now = self.store.contents()
        reached = self._reached(now.partitions, cursor_ms)
        return now.head, reached, hand_over.prepare(self.store, now, reached, cursor_ms)

    def _look_at_intake(self) -> None:
        """Reads from the log how far the intake is.

        In one process the lock keeps batches away from a hand-over. But a batch or a hand-over that a killed driver
        has begun may be committed after this run has started. A hand-over expects the last batch that this keeper
        knows, so that no entry counts as handed over that it has not seen.
        """
        self._last_batch = self.store.head().batches.get(self._intake_id)
        self._in_inbox = sum(p.files for p in self.store.partitions() if p.level == INBOX)

    def _reached(self, partitions: Sequence[Partition], cursor_ms: int) -> list[Partition]:
        return [p for p in partitions if self.layout.reached(p.level, p.slot, cursor_ms)]

    def _move_cursor(
        self, rows: DataFrame | None, cursor_ms: int, expect: Mapping[str, int | None] = MappingProxyType({})
    ) -> None:
        done = self.store.append(
            rows, app_id=self._cascade_id, batch_id=cursor_ms, cursor_ms=cursor_ms, expect=expect
        )
        self.cursor_ms = cursor_ms
        self.note_commit(done)

    def _drop_handed_over(self) -> None:
        """Drops slots that an interrupted run has handed over and not dropped."""
        if self.cursor_ms is not None:
            self.drop_partitions(self._reached(self.store.partitions(), self.cursor_ms), self.version)

    def drop_partitions(self, partitions: Sequence[Partition], version: int) -> None:
        """Drops partitions, as they were in a version."""
        if partitions:
            self.store.drop([(p.level, p.slot) for p in partitions], read_version=version)

    def note_commit(self, done: Appended, *, has_clock: bool = False) -> None:
        """Notes a commit, and passes it on."""
        self.version = done.version
        if has_clock:
            self.clock_ms, self.clock_before_ms = done.clock_ms, done.clock_before_ms
        self._on_change(self)

    # ---- the inbox -----------------------------------------------------------------------------------

    def tidy(self) -> int:
        """Places the entries of the inbox into their slots, once the inbox has many files.

        Returns:
            The number of files emptied.
        """
        return self.empty_inbox() if self._in_inbox >= self._bounds.inbox else 0

    def compact(self) -> Iterator[int]:
        """Joins small files of partitions that have many of them, one partition after the other as the caller asks for
        the next.

        Each commit of the intake adds a file to near windows, each emptied inbox one to far slots. Large files stay as
        they are, so the cost follows the rows that have come and not the number pending. Streams do not see the
        change, and a stream that has not read the small files yet still finds them.

        Yields:
            The number of files emptied in a partition.
        """
        for place, paths in self.store.small_files(_SMALL_BYTES).items():
            if place[0] != INBOX and len(paths) >= (
                self._bounds.near if self._grows(*place) else self._bounds.joined
            ):
                yield self.store.join_files(paths)

    def _grows(self, level: int, slot: int) -> bool:
        """Whether a partition is a near window that batches still add rows to."""
        return (
            level == NEAR
            and self.cursor_ms is not None
            and slot >= self.layout.first_near_slot(self.cursor_ms)
        )

    def empty_inbox(self) -> int:
        """Places the entries of the inbox into their slots; returns the number of files emptied."""
        with self.lock:
            cursor_ms = self.cursor_ms
            if not self._in_inbox or cursor_ms is None:
                return 0
            now, self._in_inbox = self.store.contents(), 0
        # Placed by the store's current cursor: by a later one some entries would be near, and near rows must come in a
        # commit that streams see.
        waiting = {path: file for path, file in now.files.items() if file.place[0] == INBOX}
        rows = hand_over.to_lower_levels(self.layout, self.store.rows_of_files(waiting), cursor_ms)
        return self.store.rearrange(rows, [(INBOX, 0)], read_version=now.head.version)

    # ---- retirement ----------------------------------------------------------------------------------

    def retire(self, done_ms: int, memory_ms: int | None, history_ms: int = 0) -> int:
        """Drops the near windows that are no longer needed; see :mod:`wheel_udf.tiered.retirement`.

        Args:
            done_ms: Everything due before this instant has been released and read; rows that arrived later lie in
                later windows.
            memory_ms: How long the wheel remembers ended ids; rows that it may still compare with stay as long.
                ``None``: for ever.
            history_ms: How long rows stay after their due time, for queries over them.

        Returns:
            The number of windows dropped.
        """
        if self.cursor_ms is None or memory_ms is None:
            return 0
        # Rows that are past due on arrival go to the window before last, so nothing is added to windows before that.
        done_ms = min(done_ms - max(memory_ms, history_ms), self.cursor_ms - 2 * self.layout.window_ms)
        return retirement.retire(self.store, app_id=self._retire_id, done_ms=done_ms)
