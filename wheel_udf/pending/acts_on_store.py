"""Appends the rows of an act to the slot store, in one commit together with the record of the act.

Rows are placed by the store's cursor. If a hand-over moves the cursor meanwhile, or another act comes first, they are
placed again::

    head: cursor, last act --> rows of the act --> files --> commit, if cursor and last act are the same; else once more

A cancel is selected, written and counted in one pass over the store: its rows are slim, all of them belong to the
newest near window, and the files say how many there are. So the commit, which comes after the files, can name their
number, and nothing is cached. Another try selects anew. A move or a reroute is selected once, since its new due times
are checked before it is written.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from wheel_udf.common.errors import ActError, StoreError, StoreMovedError
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.pending.acts_on_state import ActDescription
from wheel_udf.pending.audit import Act, arrived_by, user_name
from wheel_udf.store.head import CURSOR, Head
from wheel_udf.store.intake import stored_rows
from wheel_udf.store.slot_store import SlotStore

_MOST_TRIES = 20


def append_act(
    store: SlotStore,
    chosen: Callable[[], DataFrame],
    description: ActDescription,
    *,
    count: int | None = None,
) -> Act | None:
    """Commits the rows of an act together with its record.

    Args:
        store: The store.
        chosen: Returns the rows of the act as parsed commands; called for each try.
        description: The act in words.
        count: The number of entries; None for a cancel, which has a row for each.

    Returns:
        The record; None if there are no rows, and nothing was committed.

    Raises:
        ActError: Too many conflicting commits.
        StoreError: The store has more than one writer.
    """
    for _ in range(_MOST_TRIES):
        head = store.head()
        if head.cursor_ms is None:
            return None
        ((app_id, last),) = head.last_act(_owner(store, head)).items()
        attempt = _Attempt(description, 0 if last is None else last + 1, count)
        rows = stored_rows(
            chosen(),
            store.layout,
            cursor_ms=head.cursor_ms,
            arrived=arrived_by(attempt.batch),
            only_cancels=count is None,
        )
        try:
            done = store.append(
                rows,
                app_id=app_id,
                batch_id=attempt.batch,
                expect={CURSOR: head.cursor_ms},
                note=attempt.note,
                in_one_place=count is None,
            )
        except StoreMovedError:
            continue
        if done.written or attempt.is_empty:
            return attempt.record
    raise ActError(
        f"gave up after {_MOST_TRIES} conflicting commits",
        field=store.path,
        hint="nothing was changed: try again",
    )


class _Attempt:
    """One try of an act: its number, and the record that it makes of the number of rows written."""

    def __init__(self, description: ActDescription, batch: int, count: int | None) -> None:
        self.batch, self.is_empty = batch, False
        self.record: Act | None = None
        self._description, self._count = description, count

    def note(self, written: int) -> str | None:
        """The record as text; None if no rows were written."""
        self.is_empty = not written
        if self.is_empty:
            return None
        description, rows = self._description, written if self._count is None else self._count
        self.record = Act(
            wall_clock_ms(),
            description.act,
            user_name(),
            description.picked,
            description.change,
            rows=rows,
            batch=self.batch,
        )
        return self.record.text()


def _owner(store: SlotStore, head: Head) -> str:
    owners = sorted(head.owners)
    if len(owners) != 1:
        raise StoreError(
            "the slot store has more than one writer",
            field=store.path,
            value=", ".join(owners),
            rule="a store belongs to one checkpoint",
        )
    return owners[0]
