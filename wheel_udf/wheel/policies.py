"""What a step leaves to others, as protocols; :func:`wheel_udf.wheel.step.advance` is given what implements them.

::

    policy    the question                                                   implemented by
    Admit     which new entries find room?                                   back-pressure (policies.shard_limits)
    Hold      which entries leave ahead of their due time, and which of      a sender (policies.in_flight)
              those that left have fired?
    Report    what has become of entries that wait elsewhere?                a slot store (policies.store_reports)
    Repeat    which occurrences of a series are released, and which is       recurring series (policies.series)
              the next one?
    Gate      which due entries may leave now, and when do the others ask    rates and breakers (policies.rates)
              again?

A policy is a value: it reads nothing but its arguments and what it was made of, so that a repeated batch decides alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.rows import ENTRY_SCHEMA
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.buckets import is_wanted
from wheel_udf.wheel.known import Known
from wheel_udf.wheel.version_order import Rows

# ---- admit ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """What a shard holds before the new entries of a batch are added.

    Attributes:
        state: The shard before the batch.
        removed: For each index into its entry chunks, the rows that the batch removes.
        now_ms: The clock of the batch.
        released: Most entries that surely leave with the batch; None for no bound.
        flight: What has left ahead of its due time.
    """

    state: ShardState
    removed: Mapping[int, Int64s]
    now_ms: int
    released: int | None
    flight: Flight


@dataclass(frozen=True)
class Verdict:
    """Which new entries are admitted.

    Attributes:
        refused_by: int8[n]: -1 for an admitted entry, else the place in :attr:`Admit.bounds` of the bound that refused
            it.
        fullest: For each applied bound, how many entries the fullest group holds, of the groups that new entries came
            to.
    """

    refused_by: npt.NDArray[np.int8]
    fullest: Mapping[str, int]


class Admit(Protocol):
    """Which new entries find room."""

    @property
    def bounds(self) -> Sequence[str]:
        """Names of the bounds."""

    def judge(self, new: pa.Table, staying: pa.Table, before: Before) -> Verdict:
        """Decides on the new entries of a batch.

        Args:
            new: New entries, ``COMMAND_SCHEMA``.
            staying: Entries of the batch that replace others, likewise.
            before: What the shard holds.
        """


# ---- hold ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flight:
    """Entries that left ahead of their due time and count as pending, after the news of a batch.

    Attributes:
        chunks: The chunks that stay closed.
        loose: Chunks of entries that nobody holds, not opened yet.
        again: Entries that are to be split once more (``ENTRY_SCHEMA``).
        confirmed: How many entries have fired.
    """

    chunks: tuple[Chunk, ...] = ()
    loose: tuple[Chunk, ...] = ()
    again: pa.Table = field(default_factory=ENTRY_SCHEMA.empty_table)
    confirmed: int = 0

    def opened(self, horizon_ms: int, latest_ms: int) -> tuple[list[Chunk], pa.Table]:
        """The chunks that stay closed, and all entries that may leave with a batch.

        Args:
            horizon_ms: Up to which due time the batch looks.
            latest_ms: The due time after which nothing can leave with it.
        """
        closed, opened = [*self.chunks], [self.again]
        for chunk in self.loose:
            if chunk.low_ms <= horizon_ms and is_wanted(chunk, latest_ms):
                opened.append(chunk.table())
            else:
                closed.append(chunk)
        return closed, pa.concat_tables(opened)


@dataclass(frozen=True)
class Handed:
    """What a batch hands over.

    Attributes:
        entries: The entries, oldest first (``ENTRY_SCHEMA``).
        new: Those of them that had not been handed over before.
        waiting: What stays in the buckets.
        chunks: Chunks to add: what has left and is not confirmed.
    """

    entries: pa.Table
    new: pa.Table
    waiting: pa.Table
    chunks: list[Chunk]


class Hold(Protocol):
    """Which entries leave ahead of their due time, and which of those that left have fired."""

    def horizon_ms(self, clock_ms: int) -> int:
        """Up to which due time a batch looks into its buckets: the clock, or later."""

    def has_no_work(self, state: ShardState, clock_ms: int) -> bool:
        """Whether a batch without commands changes nothing."""

    def flight(self, state: ShardState) -> Flight:
        """Decides what has become of the entries of a state that left ahead of their due time."""

    def hand_over(self, again: pa.Table, waiting: pa.Table, clock_ms: int, room: int | None) -> Handed:
        """Chooses what a batch hands over, oldest first.

        Args:
            again: Entries that left before, and are not due, or over the limit of the batch.
            waiting: Entries of opened buckets, likewise.
            clock_ms: The clock of the batch.
            room: How many entries the limit of the batch leaves; None for no bound.
        """


class NoHold:
    """Nothing leaves ahead of its due time."""

    def horizon_ms(self, clock_ms: int) -> int:
        """The clock."""
        return clock_ms

    def has_no_work(self, state: ShardState, clock_ms: int) -> bool:
        """Whether nothing is due."""
        return state.next_due_ms is None or state.next_due_ms > clock_ms

    def flight(self, state: ShardState) -> Flight:
        """What left under another policy stays as it is."""
        return Flight(state.in_flight_chunks)

    def hand_over(self, again: pa.Table, waiting: pa.Table, clock_ms: int, room: int | None) -> Handed:  # noqa: ARG002
        """Nothing."""
        return Handed(again, again, waiting, [])


# ---- report --------------------------------------------------------------------------------------


class Report(Protocol):
    """What has become of entries that wait elsewhere; the rows of a batch say so (column ``act``)."""

    def count_ended(self, commands: pa.Table, counts: Counter[str]) -> tuple[pa.Table, int]:
        """Counts entries that ended elsewhere.

        Returns:
            The rows that are left to fold, and how many more entries wait elsewhere.
        """

    def drop_met(self, rows: Rows, known: Known, now_ms: int) -> tuple[Rows, pa.Table]:
        """Drops the rows of CANCELs that ended an entry elsewhere.

        Returns:
            The rows that are left, and memory records (:func:`~wheel_udf.wheel.outcomes.records_of`).
        """

    def beaten(self, rows: Rows, known: Known, commands: pa.Table) -> pa.Table:
        """Memory records of entries that went elsewhere though a version that is pending here beats them."""

    def apply_waiting(self, state: ShardState, ended: int, counts: Counter[str]) -> None:
        """Turns waiting CANCELs into applied ones, for so many entries that CANCELs ended elsewhere."""


# ---- repeat --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Firings:
    """What is released of some due entries; of an entry that is no series, the entry itself.

    Attributes:
        row: Which entry each firing is of, int64[k], in order; several of a series are one after the other.
        nominal_ms: Its requested time, int64[k].
        missed_before: How many occurrences right before it were dropped, int64[k].
        begin_ms: The nominal time of the first occurrence that it stands for, int64[k].
        is_dropped: Whether it is dropped, too, with those before it, bool[k]; it is the last one of its series.
        next_ms: Of each entry, the nominal time of the occurrence after all that have passed, int64[n]; the largest
            int64 for none.
        last_ms: Of each entry, the nominal time of the last one that has passed, int64[n].
        passed: Of each entry, how many have passed, int64[n]; 0 of an entry that is no series.
    """

    row: Int64s
    nominal_ms: Int64s
    missed_before: Int64s
    begin_ms: Int64s
    is_dropped: Bools
    next_ms: Int64s
    last_ms: Int64s
    passed: Int64s

    def planned(self, entries: int) -> Int64s:
        """How many firings each of so many entries has: int64[n]."""
        return np.bincount(self.row, minlength=entries).astype(np.int64)

    def around(self, released: Int64s, which: Bools) -> tuple[Int64s, Int64s]:
        """Of some entries, from where the first firing goes on that was not released, and the one before it.

        Args:
            released: How many firings of each entry were released: int64[n].
            which: The entries of which some were, and not all: bool[n].
        """
        starts = np.searchsorted(self.row, np.flatnonzero(which))
        at = starts + released[which]
        return self.begin_ms[at], self.nominal_ms[at - 1]


class Repeat(Protocol):
    """Which occurrences of due series are released, and which is the next one."""

    def plan(self, due: pa.Table, clock_ms: int) -> Firings:
        """Plans what is released of due entries, if there is no limit.

        Args:
            due: Entries (``ENTRY_SCHEMA``), series and others.
            clock_ms: The clock of the batch.
        """

    def going_on(self, due: pa.Table, plan: Firings, released: Int64s) -> tuple[pa.Table, Bools]:
        """Decides where the series go on.

        Args:
            due: As in :meth:`plan`.
            plan: Its result.
            released: How many firings of each entry were released.

        Returns:
            The series that wait for another occurrence, at last those of which only a part of the firings was released,
            in the order of `due`; and a mask of those that have had their last one. A series of which nothing was
            released though something was planned is in neither: it stays as it is.
        """


# ---- gate ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passed:
    """Which due rows leave with a batch.

    Attributes:
        leaves: The rows that leave, bool[n].
        wake_ms: When each of the others asks again, int64[n]; 0 of rows that leave, or that stay due because of the
            limit.
        tokens: The tokens that are left.
    """

    leaves: Bools
    wake_ms: Int64s
    tokens: str


class Gate(Protocol):
    """Which due entries may leave now: a destination may take no more than so many for now."""

    def pass_through(
        self,
        tokens: str,
        destinations: pa.ChunkedArray,
        has_waited: Bools,
        clock_ms: int,
        *,
        limit: int | None,
        pending: int,
    ) -> Passed:
        """Decides which due rows leave.

        Args:
            tokens: What the last batch has left.
            destinations: Of the due rows, oldest first.
            has_waited: Which of them have been held back before.
            clock_ms: The clock of the batch.
            limit: Most rows that leave; None for no bound.
            pending: How many entries the shard holds, an upper bound.
        """


@dataclass(frozen=True)
class Policies:
    """The policies of a step.

    Attributes:
        admit: None: every new entry is admitted.
        hold: By default, nothing leaves ahead of its due time.
        report: None: entries wait here alone.
        repeat: None: each entry is released once.
        gate: None: every due entry may leave.
    """

    admit: Admit | None = None
    hold: Hold = NoHold()  # noqa: RUF009  # it has no state
    report: Report | None = None
    repeat: Repeat | None = None
    gate: Gate | None = None


NO_POLICIES = Policies()
