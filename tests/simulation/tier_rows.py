"""What the tiered mode computes with DataFrames, over lists: rows of the intake, verdicts, moving rows, marks.

The real ones are Spark expressions and are tested against Spark (``tests/delta/store``, ``tests/delta/tiered``). These
follow their docstrings: :mod:`wheel_udf.store.intake`, ``versions``, :mod:`wheel_udf.tiered.hand_over`,
``retirement``. Levels, slots and what is reached come from the real :class:`~wheel_udf.store.StoreLayout`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from tests.places import placed
from tests.simulation.core import input_row
from tests.simulation.frames import Rows
from tests.simulation.store_model import SimulatedStore
from wheel_udf.shard.rows import (
    CANCEL,
    COMMAND,
    FAR,
    GONE_CANCELLED,
    GONE_DUPLICATE,
    GONE_SUPERSEDED,
    MOVED,
    SCHEDULE,
)
from wheel_udf.store.head import Contents, Head, Partition
from wheel_udf.store.layout import INBOX, MARKS, NEAR, StoreLayout, is_far
from wheel_udf.tiered.hand_over import Moving

_HAS_VERSION = (COMMAND, MOVED, GONE_SUPERSEDED, GONE_DUPLICATE)


@dataclass(frozen=True)
class StoredRow:
    """A row of the store. Its place is no part of what the wheel sees of it."""

    level: int
    slot: int
    id: str
    act: int = COMMAND
    seq: int = 0
    amend: int = 0
    op: int = SCHEDULE
    seq_given: bool = True
    due_ms: int | None = None
    to: str | None = None
    lateness_ms: int | None = None
    said_ms: int | None = None
    bad: bool = False
    arrived: int = 0
    repeat: str | None = None
    anchor_ms: int | None = None
    last_ms: int | None = None

    @property
    def version(self) -> tuple[int, int, int]:
        return self.seq, self.op, self.amend

    @property
    def has_version(self) -> bool:
        """Whether the row has a version of its own."""
        return self.act in _HAS_VERSION and not self.bad

    def as_seen(self) -> StoredRow:
        """The row without what the wheel does not see."""
        return replace(self, level=0, slot=0, arrived=0, said_ms=None)

    def row(self) -> dict[str, Any]:
        """The row of the worker's input."""
        return input_row(
            {
                "schedule_id": self.id,
                "seq": self.seq,
                "amend": self.amend,
                "op": self.op,
                "act": self.act,
                "seq_given": self.seq_given,
                "deliver_at_ms": self.due_ms,
                "max_lateness_ms": self.lateness_ms,
                "destination": self.to,
                "reject": '{"error_code": "bad"}' if self.bad else None,
                "repeat": self.repeat,
                "anchor_ms": self.anchor_ms,
                "last_ms": self.last_ms,
                "spread_ms": None if self.repeat is None else 0,
            }
        )


# ---- intake --------------------------------------------------------------------------------------


def stored_rows(
    parsed: Rows,
    layout: StoreLayout,
    *,
    cursor_ms: int,
    arrived: int,
    inbox: bool = False,
    only_cancels: bool = False,  # for Spark
) -> Rows:
    """As :func:`wheel_udf.store.stored_rows`."""
    newest = layout.newest_near_slot(cursor_ms)
    rows: list[StoredRow] = []
    for command in parsed.rows:
        series = getattr(command, "series_columns", {})
        entry = not command.bad and command.op != CANCEL and not series
        due_ms = command.due_ms if entry else cursor_ms - 1
        level, slot = placed(layout, due_ms, cursor_ms)
        if level != NEAR and inbox:
            level, slot = INBOX, 0
        was_due_ms = getattr(command, "was_due_ms", None)
        row = StoredRow(
            level,
            slot,
            command.id,
            seq=command.seq,
            amend=getattr(command, "amend", 0),
            op=command.op,
            seq_given=was_due_ms is None or was_due_ms >= cursor_ms,
            due_ms=command.due_ms if command.op != CANCEL and not series else None,
            to=command.to if command.op != CANCEL else None,
            lateness_ms=command.lateness_ms,
            said_ms=None if command.bad else command.said_ms,
            bad=command.bad,
            arrived=arrived,
            **{name: series.get(name) for name in ("repeat", "anchor_ms", "last_ms")},
        )
        rows.append(row)
        if level != NEAR:
            rows.append(replace(row, level=NEAR, slot=newest, act=FAR, lateness_ms=None, said_ms=None))
    return Rows(rows)


# ---- hand-over -----------------------------------------------------------------------------------


def prepare(
    store: SimulatedStore, now: Contents, reached: Sequence[Partition], cursor_ms: int
) -> Moving | None:
    """As :func:`wheel_udf.tiered.hand_over.prepare`."""
    if not reached:
        return None
    layout, places = store.layout, {(p.level, p.slot) for p in reached}
    store.spark.world.point("store is about to be read")
    rows: tuple[StoredRow, ...] = store.rows(version=now.head.version).rows
    here = [row for row in rows if (row.level, row.slot) in places]
    leaving = [row for row in here if _due(row) < cursor_ms]
    others = [row for row in rows if (row.level, row.slot) not in places or _due(row) >= cursor_ms]
    ended = verdicts(leaving, others)
    if store.spark.world.fault == "no cancels in a hand-over":
        ended = {at: verdict for at, verdict in ended.items() if verdict.act != GONE_CANCELLED}
    newest = layout.newest_near_slot(cursor_ms)
    out = list(to_lower_levels(layout, Rows(row for row in here if _due(row) >= cursor_ms), cursor_ms).rows)
    for at, row in enumerate(leaving):
        if at not in ended:
            _, slot = placed(layout, _due(row), cursor_ms)
            out.append(replace(row, level=NEAR, slot=slot, act=MOVED, seq_given=True))
            continue
        verdict = ended[at]
        out.append(replace(verdict, level=NEAR, slot=newest))
        if verdict.act == GONE_CANCELLED:
            out.append(StoredRow(MARKS, newest, row.id, seq=row.seq, amend=row.amend))
    store.spark.world.point("store was read")
    moving: Any = Moving(Rows(leaving), Rows(out))  # type: ignore[arg-type]
    return moving  # type: ignore[no-any-return]


def _due(row: StoredRow) -> int:
    assert row.due_ms is not None, "far rows are entries"
    return row.due_ms


def to_lower_levels(layout: StoreLayout, later: Rows, cursor_ms: int) -> Rows:
    """As :func:`wheel_udf.tiered.hand_over.to_lower_levels`."""
    moved = []
    for row in later.rows:
        level, slot = placed(layout, _due(row), cursor_ms)
        moved.append(replace(row, level=level, slot=slot))
    return Rows(moved)


def news_since(store: SimulatedStore, head: Head, leaving: Rows) -> bool:
    """As :func:`wheel_udf.tiered.hand_over.news_since`."""
    if store.spark.world.fault == "no look at news":
        return False
    ids = {row.id for row in leaving.rows}
    added = [
        action["path"]
        for actions in store.spark.commits[head.version + 1 :]
        for action in actions
        if "modificationTime" in action and action["dataChange"]
    ]
    return any(row.has_version and row.id in ids for row in store.spark.rows(added))


def verdicts(leaving: Sequence[StoredRow], others: Iterable[StoredRow]) -> dict[int, StoredRow]:
    """As :func:`wheel_udf.store.verdicts`: for each leaving row that has ended, by its number, the row that says so."""
    ids = {row.id for row in leaving}
    known = [(row, 2 if is_far(row.level) else 0, -1) for row in others if row.has_version and row.id in ids]
    known += [(row, 1, at) for at, row in enumerate(leaving)]
    known.sort(key=lambda k: (k[0].id, k[0].version, k[1], k[0].due_ms or 0, k[0].arrived, k[2]))
    ended: dict[int, StoredRow] = {}
    for name, of_id in groupby(known, key=lambda k: k[0].id):
        first: list[tuple[StoredRow, int, int]] = []
        for row, place, at in of_id:
            if first and first[-1][0].version == row.version:
                if at >= 0:
                    ended[at] = _verdict(GONE_DUPLICATE, name, row)
            else:
                first.append((row, place, at))
        for (_, _, at), (above, _, _) in pairwise(first):
            if at >= 0 and above.op == CANCEL:
                ended[at] = _verdict(GONE_CANCELLED, name, above)
            elif at >= 0:
                ended[at] = _verdict(GONE_SUPERSEDED, name, leaving[at])
    return ended


def _verdict(act: int, name: str, version: StoredRow) -> StoredRow:
    return StoredRow(NEAR, 0, name, act=act, seq=version.seq, amend=version.amend, op=version.op)


# ---- retirement, acts ----------------------------------------------------------------------------


def marks(store: SimulatedStore, now: Contents, old: Sequence[Partition], generation: int) -> Rows:
    """As ``retirement._marks``: the versions of these partitions that a far entry may still be compared with."""
    if store.spark.world.fault == "no marks are kept":
        return Rows(())
    rows: tuple[StoredRow, ...] = store.rows(version=now.head.version).rows
    places = {(p.level, p.slot) for p in old}
    far_ids = {row.id for row in rows if is_far(row.level)}
    kept = {
        (row.id, *row.version)
        for row in rows
        if (row.level, row.slot) in places and row.has_version and row.id in far_ids
    }
    return Rows(
        StoredRow(MARKS, generation, name, seq=seq, amend=amend, op=op)
        for name, seq, op, amend in sorted(kept)
    )


def winners(rows: Iterable[StoredRow], cursor_ms: int | None) -> dict[str, StoredRow]:
    """As ``pending.entries._entries_at``: the entries that no higher version replaces, by id."""
    best: dict[str, StoredRow] = {}
    for row in rows:
        moved_on = cursor_ms is not None and is_far(row.level) and _due(row) < cursor_ms
        if row.has_version and not moved_on and (row.id not in best or row.version > best[row.id].version):
            best[row.id] = row
    return {name: row for name, row in best.items() if row.op == SCHEDULE and row.due_ms is not None}
