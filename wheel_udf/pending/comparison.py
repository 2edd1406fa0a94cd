"""Which rows of a slot store are pending, by the versions of their ids: in Arrow tables, without a Spark job. The rule,
and what is read of a store for which question: :mod:`wheel_udf.pending.in_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wheel_udf.shard.rows import SCHEDULE, filled
from wheel_udf.store.head import Contents
from wheel_udf.store.layout import INBOX, NEAR
from wheel_udf.store.log import StoreLog
from wheel_udf.store.ranking import fires_of, highest, is_among, repeated, repeated_hashes, with_version
from wheel_udf.store.scan import FILE, PENDING_SCHEMA, ROW, ROW_SCHEMA, Scan
from wheel_udf.tables.delta_files import File

FEW_ROWS: Final = 100_000
"""Up to this many rows are read whole, and handed to Spark by this process."""

FEW_BYTES: Final = 32 << 20

SLIM: Final = (
    *("level", "id_hash", "schedule_id", "seq", "op", "amend"),
    *("act", "reject", "repeat", "occurrence", "deliver_at_ms", "arrived"),
)
"""The columns that decide."""

IN_MEMORY: Final = -1
"""Number in :data:`~wheel_udf.store.scan.FILE` of rows that are in no file."""

_ORDER: Final = ("deliver_at_ms", "schedule_id")
_FOR_ORDER: Final = (*_ORDER, FILE, ROW)
VERSION: Final = ("schedule_id", "seq", "amend")


Left = Callable[[pa.Table, pa.Table], pa.Table]
"""Takes the highest versions, and the FIRE_NOWs; returns those that wait."""


# ---- rows ----------------------------------------------------------------------------------------


def of_ids(rows: pa.Table, ids: Sequence[str] | None) -> pa.Table:
    """The rows of some ids; of all for None."""
    if ids is None:
        return rows
    return rows.filter(pc.is_in(rows["schedule_id"], value_set=pa.array(ids, pa.string())))


def unread_rows(scan: Scan, acts: pa.Table, ids: Sequence[str] | None) -> pa.Table:
    """The rows of files, and of acts: whole those of series, of the others the version."""
    slim = of_ids(scan.columns(scan.files, SLIM), ids)
    is_series = pc.is_valid(slim["repeat"])
    found = [scan.fetch(slim.filter(is_series)), filled(slim.filter(pc.invert(is_series)), ROW_SCHEMA), acts]
    return pa.concat_tables(found)


def still_left(clock_ms: int | None, alive: pa.Table) -> Left:
    """Leaves out the near entries, due or fired now, that the wheel has read and holds no more; no series."""

    def left(rows: pa.Table, fires: pa.Table) -> pa.Table:
        if clock_ms is None:
            return rows
        is_fired = pc.is_in(rows["schedule_id"], value_set=fires["schedule_id"].combine_chunks())
        is_due = pc.or_(pc.less_equal(rows["deliver_at_ms"], clock_ms), is_fired)
        is_asked = pc.and_(pc.and_(is_near(rows), is_due), pc.is_null(rows["repeat"]))
        asked = rows.filter(is_asked)
        numbered = versions_of(asked).append_column("_row", pa.array(np.arange(asked.num_rows)))
        kept = numbered.join(alive, list(VERSION), join_type="left semi")["_row"]
        return pa.concat_tables([rows.filter(pc.invert(is_asked)), asked.take(kept)])

    return left


def left_after(after_ms: int) -> Left:
    """Leaves out what was due by an instant, or released by a FIRE_NOW."""

    def left(rows: pa.Table, fires: pa.Table) -> pa.Table:
        later = rows.filter(pc.greater(rows["deliver_at_ms"], after_ms))
        at = pc.index_in(later["schedule_id"], value_set=fires["schedule_id"].combine_chunks())
        fire_seq = fires["fire_seq"].take(at)
        is_fired = pc.and_(is_near(later), pc.less_equal(later["seq"], fire_seq))
        return later.filter(pc.invert(pc.fill_null(is_fired, False)))  # noqa: FBT003  # Arrow's name of a value

    return left


def is_near(rows: pa.Table) -> pa.ChunkedArray:
    """Whether the rows are on the near side (``level``)."""
    level = rows["level"]
    return pc.invert(pc.or_(pc.greater(level, NEAR), pc.equal(level, INBOX)))


def versions_of(rows: pa.Table) -> pa.Table:
    """``schedule_id``, ``seq`` and ``amend``, 0 for null."""
    return rows.select(VERSION).set_column(2, "amend", pc.fill_null(rows["amend"], 0))


# ---- comparison ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A store at a moment, and what else decides.

    Attributes:
        log: The store's.
        contents: Its head and files.
        memory: Rows that are in no file: of series, and of acts that the store does not have yet (``PENDING_SCHEMA``).
        left: Which of the highest versions wait.
        came_back: Entries of the state that were released and could not be delivered (``PENDING_SCHEMA``).
        due_after_ms: Only entries that are due later count; None: all.
    """

    log: StoreLog
    contents: Contents
    memory: pa.Table
    left: Left
    came_back: pa.Table
    due_after_ms: int | None = None

    @cached_property
    def scan(self) -> Scan:
        """Reads its files."""
        return Scan(self.log.path, self.contents.files)

    @property
    def is_small(self) -> bool:
        """Whether the store is read whole."""
        files = self.contents.files.values()
        return sum(file.rows for file in files) <= FEW_ROWS and sum(file.bytes for file in files) <= FEW_BYTES

    @cached_property
    def divided(self) -> Divided:
        """The comparison, with the far rows that need none left where they are."""
        return Divided.of(self)

    def whole(self, ids: Sequence[str] | None) -> pa.Table:
        """What is pending, or of some ids, with all columns (``PENDING_SCHEMA``); all rows of these ids are read."""
        scan = self.scan
        rows = scan.columns(scan.files, ROW_SCHEMA.names) if ids is None else scan.of_ids(ids)
        compared = self.compared(pa.concat_tables([filled(rows, PENDING_SCHEMA), self.memory]))
        return pa.concat_tables([compared, self.came_back])

    def compared(self, rows: pa.Table) -> pa.Table:
        """The pending ones of some rows of the store, with the same columns (:data:`SLIM` and others).

        Args:
            rows: With each row all others of its hash.
        """
        fires, standing = fires_of(rows), self.standing(rows)
        hashes = standing["id_hash"].to_numpy()
        is_one_of_several = pa.array(is_among(hashes, repeated([hashes])))
        best = highest(standing.filter(is_one_of_several))
        single = standing.filter(pc.invert(is_one_of_several))
        found = pa.concat_tables([single, best])
        is_entry = pc.and_(pc.equal(found["op"], SCHEDULE), pc.is_valid(found["deliver_at_ms"]))
        return self.left(found.filter(is_entry), fires)

    def standing(self, rows: pa.Table) -> pa.Table:
        """The rows that have a version, without far ones that were handed over and are not dropped yet."""
        rows, cursor_ms = with_version(rows), self.contents.head.cursor_ms
        if cursor_ms is None:
            return rows
        is_over = pc.and_(pc.invert(is_near(rows)), pc.less(rows["deliver_at_ms"], cursor_ms))
        return rows.filter(pc.invert(pc.fill_null(is_over, False)))  # noqa: FBT003  # Arrow's name of a value

    def is_plain(self, file: File) -> bool:
        """Whether a file has far rows that the cursor has not reached. All of them are entries."""
        (level, slot), cursor_ms = file.place, self.contents.head.cursor_ms
        return level > NEAR and (cursor_ms is None or not self.log.layout.reached(level, slot, cursor_ms))


@dataclass(frozen=True)
class Divided:
    """A comparison in which the far rows stay where they are that are the only ones of their hash.

    Attributes:
        moment: The moment.
        plain: The files of far rows that the cursor has not reached.
        several: The hashes of several rows, in order, int64[m].
        met: How many rows of `plain` have one of them.
        rows: What is pending of these rows and of all others: :data:`SLIM`, ``FILE``, ``ROW``.
    """

    moment: Moment
    plain: dict[str, File]
    several: NDArray[np.int64]
    met: int
    rows: pa.Table

    @staticmethod
    def of(moment: Moment) -> Divided:
        """Compares."""
        scan, files = moment.scan, moment.contents.files
        plain = {name: file for name, file in files.items() if moment.is_plain(file)}
        memory = moment.memory.select(SLIM)
        numbers = {FILE: np.full(memory.num_rows, IN_MEMORY, np.int32), ROW: np.arange(memory.num_rows)}
        for name, column in numbers.items():
            memory = memory.append_column(name, pa.array(column))
        others = pa.concat_tables([memory, scan.columns(files.keys() - plain.keys(), SLIM)])
        others_hashes = moment.standing(others)["id_hash"].to_numpy()
        far_rows = sum(file.rows for file in plain.values())
        several = repeated_hashes(
            lambda: chain(scan.hashes(plain), [others_hashes]), far_rows + len(others_hashes)
        )
        met = scan.of_hashes(plain if len(several) else (), several, SLIM)
        return Divided(moment, plain, several, met.num_rows, moment.compared(pa.concat_tables([others, met])))

    def count(self) -> int:
        """How many entries wait."""
        far = sum(file.rows for file in self.plain.values()) - self.met
        return far + int(self.rows.num_rows) + int(self.moment.came_back.num_rows)

    def first(self, most: int) -> pa.Table:
        """The entries that are due first, at most so many (``PENDING_SCHEMA``)."""
        best = _earliest([self.rows.select(_FOR_ORDER)], most)
        for begin_ms, names in self._plain_by_time():
            # The entries of a partition are due from its begin on.
            if best.num_rows == most and begin_ms > best["deliver_at_ms"][most - 1].as_py():
                break
            rows = self.moment.scan.columns(names, (*_ORDER, "id_hash"))
            single = rows.filter(pa.array(~is_among(rows["id_hash"].to_numpy(), self.several)))
            best = _earliest([best, single.select(_FOR_ORDER)], most)
        return pa.concat_tables([self.fetch(best), self.moment.came_back])

    def _plain_by_time(self) -> Iterator[tuple[int, list[str]]]:
        """The files of each partition with its begin (UTC epoch ms), the earliest first."""
        found: dict[int, list[str]] = {}
        for name, file in self.plain.items():
            level, slot = file.place
            found.setdefault(slot * self.moment.log.layout.width_ms(level), []).append(name)
        return iter(sorted(found.items()))

    def fetch(self, rows: pa.Table) -> pa.Table:
        """Some of the rows with all columns (``PENDING_SCHEMA``)."""
        is_in_memory = pc.equal(rows[FILE], IN_MEMORY)
        stored = self.moment.scan.fetch(rows.filter(pc.invert(is_in_memory)))
        memory = self.moment.memory.take(rows[ROW].filter(is_in_memory))
        return pa.concat_tables([filled(stored, PENDING_SCHEMA), memory])


def _earliest(parts: Iterable[pa.Table], most: int) -> pa.Table:
    rows = pa.concat_tables(parts)
    return rows.take(pc.select_k_unstable(rows, most, [(name, "ascending") for name in _ORDER]))
