"""Facts from the log of the slot store: head and partitions of a version, and the result of a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wheel_udf.tables.delta_files import File, stats_of

CURSOR: Final = "cursor"
"""Name of the transaction that holds the cursor."""

CLOCK: Final = "clock"
"""Name of the transaction that holds the clock."""

CLOCK_BEFORE: Final = "clock-before"
"""Name of the transaction that holds the clock before the last commit that could move it."""

ACTS: Final = "-acts"
"""End of the app id of acts; their batches are the numbers of acts."""

DROP: Final = "drop"
"""Name of the transaction of drops, by which a drop is known as the store's own commit."""


@dataclass(frozen=True, slots=True)
class Head:
    """Cursor, clock and last batches of a version of the table, from its log.

    Attributes:
        version: Version of the table, from 0.
        cursor_ms: The cursor: entries due before it are near; None before it is set.
        clock_ms: The largest clock written with rows; None before there is one.
        batches: The last batch of each app id.
        clock_before_ms: The clock before the last commit that could move it; None before there are two.
    """

    version: int
    cursor_ms: int | None
    clock_ms: int | None
    batches: Mapping[str, int]
    clock_before_ms: int | None = None

    @property
    def acts_taken(self) -> int:
        """The number of acts whose rows the table has."""
        return max((last + 1 for app_id, last in self.batches.items() if app_id.endswith(ACTS)), default=0)

    @property
    def owners(self) -> frozenset[str]:
        """The writers: the app ids without their last part (``-intake``, ``-cascade``, ``-acts``)."""
        return frozenset(app_id.rpartition("-")[0] for app_id in self.batches)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition with its size from the log.

    Attributes:
        level: 0 for near, otherwise a far level.
        slot: Number of the slot on the level.
        files: Number of files.
        rows: Number of rows.
        bytes: Size of the files.
    """

    level: int
    slot: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """A version of the table, from its log.

    Attributes:
        head: Its head.
        files: Its data files, by their path in the log.
    """

    head: Head
    files: Mapping[str, File]

    @property
    def partitions(self) -> list[Partition]:
        """As :func:`partitions_of`."""
        return partitions_of(self.files)


def partitions_of(files: Mapping[str, File]) -> list[Partition]:
    """Returns the partitions that files lie in, by level and slot, with their sizes."""
    totals: dict[tuple[int, int], list[int]] = {}
    for file in files.values():
        total = totals.setdefault(file.place, [0, 0, 0])
        for number, more in enumerate((1, file.rows, file.bytes)):
            total[number] += more
    return [Partition(*place, *total) for place, total in sorted(totals.items())]


@dataclass(frozen=True, slots=True)
class Appended:
    """Result of an append.

    Attributes:
        written: False if the table had this batch already; then nothing was written and the numbers are 0.
        version: Version of the append, or the version that was found to have the batch.
        rows: Number of rows.
        clock_ms: The store's clock after the append; None if the store has none.
        clock_before_ms: As :attr:`Head.clock_before_ms`, after the append.
    """

    written: bool
    version: int
    rows: int
    clock_ms: int | None
    clock_before_ms: int | None = None


ClockOf = Callable[[int | None], int | None]
"""Computes the clock to record from the largest event time of the rows just written; None for no new clock."""


def largest_event_ms(files: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns the largest event time in new files, from their statistics; None if no row has one."""
    found = (stats_of(file).get("maxValues", {}).get("event_time_ms") for file in files)
    return max((int(value) for value in found if value is not None), default=None)


def appended(
    files: Sequence[Mapping[str, Any]], version: int, marks: Mapping[str, int], *, written: bool = True
) -> Appended:
    """Makes the result of an append from Delta's entries of its files and from the marks after it."""
    return Appended(
        written=written,
        version=version,
        rows=sum(int(stats_of(file)["numRecords"]) for file in files),
        clock_ms=marks.get(CLOCK),
        clock_before_ms=marks.get(CLOCK_BEFORE),
    )


def moved_marks(marks: Mapping[str, int], to: Mapping[str, int | None]) -> dict[str, int]:
    """Returns the marks that rise; none goes back."""
    return {
        name: value
        for name, value in to.items()
        if value is not None and (name not in marks or value > marks[name])
    }
