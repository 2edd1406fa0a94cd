"""Retention of near rows: drops the near windows that are no longer needed and keeps the versions that still matter.

Near rows stay in the store while their window can matter: until all of it has been released and the wheel has
forgotten its ids (``memory``). The versions in such a window may still beat an older version of the same id in a far
slot. Those versions (found by one pass over the id hashes of the store) are rewritten as slim *marks* (level -1), in a
new generation that also replaces the marks of before::

    near window, to be dropped     far slots            marks of the next generation
    a seq 2, b seq 1, c seq 3      a seq 1, c seq 1     a seq 2, c seq 3

Then the window and the earlier marks are dropped. So there are as many marks as versions that are still needed, not as
commands that ever came.

:class:`Retirements` decides when a run may do this, :func:`retire` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, functions as F

from wheel_udf.delivery.report import BatchReport
from wheel_udf.shard.rows import COMMAND
from wheel_udf.store.head import Contents, Partition
from wheel_udf.store.layout import MARKS, NEAR, is_far
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.versions import with_version
from wheel_udf.tiered.queries import Position
from wheel_udf.tiered.rows import version_rows

if TYPE_CHECKING:
    from wheel_udf.tiered.keeper import Keeper


def retire(store: SlotStore, *, app_id: str, done_ms: int) -> int:
    """Drops the near windows that end at or before an instant.

    Args:
        store: The store.
        app_id: Id of the transactions that write marks.
        done_ms: Nothing due before this instant is needed any more.

    Returns:
        The number of windows dropped.
    """
    now = store.contents()
    partitions = now.partitions
    width_ms = store.layout.window_ms
    windows = [p for p in partitions if p.level == NEAR and (p.slot + 1) * width_ms <= done_ms]
    if not windows:
        return 0
    old = [*windows, *(p for p in partitions if p.level == MARKS)]
    generation = max(p.slot for p in windows)
    done = store.append(rows_of_marks(store, now, old, generation), app_id=app_id, batch_id=generation)
    # If an interrupted run has already written the marks of this generation, those are kept.
    over = generation + done.written
    gone = [(p.level, p.slot) for p in old if p.level == NEAR or p.slot < over]
    store.drop(gone, read_version=now.head.version)
    return len(windows)


def rows_of_marks(store: SlotStore, now: Contents, old: Sequence[Partition], generation: int) -> DataFrame:
    """The marks of a generation, as rows of the store."""
    places = {(p.level, p.slot) for p in old}
    far, dropped = (
        store.rows_of_files({path: file for path, file in now.files.items() if chosen(file.place)})
        for chosen in (lambda place: is_far(place[0]), places.__contains__)
    )
    far_ids = far.select("id_hash")
    versions = with_version(dropped).select("id_hash", "schedule_id", "seq", "amend", "op").distinct()
    # The versions are few compared with the far entries, so the versions are broadcast and the far ids are only
    # scanned.
    met = far_ids.join(F.broadcast(versions.select("id_hash").distinct()), "id_hash", "left_semi").distinct()
    kept = versions.join(F.broadcast(met), "id_hash", "left_semi")
    return version_rows(kept, level=MARKS, slot=generation, act=F.lit(COMMAND))


class Retirements:
    """Decides when near windows can be dropped: all their entries are released, and the wheel has read what was in the
    store by then.

    Args:
        keeper: Drops the windows.
        memory_ms: How long the wheel remembers ended ids; ``None``: for ever.
        history_ms: How long rows stay after their due time.
    """

    def __init__(self, keeper: Keeper, memory_ms: int | None, history_ms: int) -> None:
        self._keeper, self._memory_ms, self._history_ms = keeper, memory_ms, history_ms
        self._next: tuple[int, int] | None = None

    def look(self, report: BatchReport | None, position: Position | None) -> None:
        """Drops windows that an earlier check found finished, if the wheel has read up to there; then checks again.

        Args:
            report: The wheel's last report.
            position: The position of the wheel's query.
        """
        if report is None or position is None:
            return
        if self._next is not None and position.version >= self._next[0]:
            self._keeper.retire(self._next[1], self._memory_ms, self._history_ms)
            self._next = None
        done_ms = _done_ms(report)
        if self._next is None and done_ms is not None:
            self._next = (self._keeper.version, done_ms)

    def finish(self, report: BatchReport | None) -> None:
        """Drops what a bounded run no longer needs at its end: it leaves no more in the store than a continuous run."""
        done_ms = None if report is None else _done_ms(report)
        if done_ms is not None and self._keeper.retire(done_ms, self._memory_ms, self._history_ms):
            self._keeper.store.vacuum()


def _done_ms(report: BatchReport) -> int | None:
    """Returns the instant before which everything has been released; None if that is not known of all shards."""
    if not report.complete or report.clock_ms is None:
        return None
    return min(at for at in (report.next_due_ms, report.clock_ms) if at is not None)
