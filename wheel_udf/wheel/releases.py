"""What a step releases: the due entries, oldest first, up to a limit; and what is left of them.

::

    due entries --plan--> firings --gate, limit--> released now | stay, unchanged | held back: asked again later
                                                   series:  wait for another occurrence | have ended

Without series nothing is planned: an entry is its own firing. Without a gate only the limit holds entries back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s, before_in_run, repeats
from wheel_udf.shard.rows import ENTRY_SCHEMA, OLDEST_FIRST, asked_ms, unheld_ms, with_columns
from wheel_udf.wheel.policies import Firings, Passed, Policies, Repeat

RELEASE_SCHEMA = ENTRY_SCHEMA.append(pa.field("missed_before", pa.int64()))
"""A released entry. Of a series: ``occurrence`` is the number of the occurrence, from 1, and ``missed_before`` how many
right before it were dropped; null of others."""


@dataclass(frozen=True)
class Releases:
    """What a step releases.

    Attributes:
        fired: To be delivered (``RELEASE_SCHEMA``), oldest first.
        missed: Later than their ``max_lateness_ms``, or dropped by the policy of their series; of several dropped
            occurrences one row, the newest, with the number of the others in ``missed_before``.
        flown: What stays of the entries that had left ahead of their due time (``ENTRY_SCHEMA``).
        waiting: What stays of the entries in buckets, series that wait for another occurrence included.
        ended: Series after their last occurrence (``ENTRY_SCHEMA``).
        counts: Occurrences of series, by how they ended.
        tokens: What the gate has left; None without one.
    """

    fired: pa.Table
    missed: pa.Table
    flown: pa.Table
    waiting: pa.Table
    ended: pa.Table = field(default_factory=ENTRY_SCHEMA.empty_table)
    counts: Counter[str] = field(default_factory=Counter)
    tokens: str | None = None

    @property
    def released(self) -> int:
        """How many rows leave."""
        return int(self.fired.num_rows + self.missed.num_rows)


@dataclass(frozen=True)
class _Due:
    """The due entries of a batch.

    Attributes:
        entries: The entries, as they are to be released: nothing holds them back (``ENTRY_SCHEMA``).
        has_waited: Which of them were held back, bool[n].
        clock_ms: The clock of the batch.
        limit: Most rows to release; None for no bound.
        policies: What decides on them.
        tokens: Of the gate.
        pending: How many entries the shard holds, an upper bound.
    """

    entries: pa.Table
    has_waited: Bools
    clock_ms: int
    limit: int | None
    policies: Policies
    tokens: str
    pending: int

    def passed(self, destinations: pa.ChunkedArray, has_waited: Bools) -> Passed:
        """Which rows leave; `destinations` are those of rows in the order of release."""
        if self.policies.gate is None:
            leaves = np.arange(len(destinations)) < (len(destinations) if self.limit is None else self.limit)
            return Passed(leaves, np.zeros(len(destinations), np.int64), self.tokens)
        return self.policies.gate.pass_through(
            self.tokens, destinations, has_waited, self.clock_ms, limit=self.limit, pending=self.pending
        )

    def held(self, rows: Int64s, wake_ms: Int64s) -> pa.Table:
        """Some of the entries, as they are held back until they ask again."""
        entries = self.entries.take(pa.array(rows))
        held_ms = wake_ms - entries["deliver_at_ms"].to_numpy()
        return with_columns(entries, deliver_at_ms=pa.array(wake_ms), held_ms=pa.array(held_ms))


def release(
    again: pa.Table,
    opened: pa.Table,
    clock_ms: int,
    limit: int | None,
    policies: Policies,
    *,
    tokens: str = "",
    pending: int = 0,
) -> Releases:
    """Releases what is due.

    Args:
        again: Entries that left ahead of their due time and came back.
        opened: Entries of opened buckets.
        clock_ms: The clock of the batch.
        limit: Most rows to release; None for no bound.
        policies: Of series, and of the gate.
        tokens: Of the gate, as the last batch left them.
        pending: How many entries the shard holds, an upper bound.
    """
    both = pa.concat_tables([again, opened])
    is_due = pc.less_equal(both["deliver_at_ms"], clock_ms)
    rows, stays = both.filter(is_due), pc.invert(is_due).to_numpy()
    has_waited = rows["held_ms"].is_valid().to_numpy()
    if has_waited.any():
        nothing = pa.nulls(rows.num_rows, pa.int64())
        rows = with_columns(rows, deliver_at_ms=unheld_ms(rows), held_ms=nothing)
    due = _Due(rows, has_waited, clock_ms, limit, policies, tokens, pending)
    repeat = policies.repeat
    if limit != 0 and repeat is not None and rows["repeat"].null_count < rows.num_rows:
        return _release_series(both, due, stays, again.num_rows, repeat)
    order = pc.sort_indices(rows, sort_keys=OLDEST_FIRST).to_numpy().astype(np.int64)
    passed = due.passed(rows["destination"].take(pa.array(order)), has_waited[order])
    is_held = passed.wake_ms > 0
    stays[np.flatnonzero(~stays)[order[~passed.leaves & ~is_held]]] = True
    left = rows.take(pa.array(order[passed.leaves]))
    fired, missed = _split_missed(
        left.append_column("missed_before", pa.nulls(left.num_rows, pa.int64())), clock_ms
    )
    flown, kept = stays[: again.num_rows], opened.filter(pa.array(stays[again.num_rows :]))
    waiting = pa.concat_tables([kept, due.held(order[is_held], passed.wake_ms[is_held])])
    return Releases(fired, missed, again.filter(pa.array(flown)), waiting, tokens=passed.tokens)


def _release_series(
    both: pa.Table, due: _Due, stays: npt.NDArray[np.bool_], again: int, repeat: Repeat
) -> Releases:
    rows = due.entries
    plan = repeat.plan(rows, due.clock_ms)
    firings = _firings(rows, plan)
    order = _oldest_first(rows, firings, plan)
    passed = due.passed(firings["destination"].take(pa.array(order)), due.has_waited[plan.row[order]])
    leaving = order[passed.leaves]
    released = np.bincount(plan.row[leaving], minlength=rows.num_rows).astype(np.int64)
    going_on, ends = repeat.going_on(rows, plan, released)
    wake_ms = np.zeros(rows.num_rows, np.int64)
    stay = order[~passed.leaves]
    # Of several firings that stay, the first.
    wake_ms[plan.row[stay][::-1]] = passed.wake_ms[~passed.leaves][::-1]
    planned = plan.planned(rows.num_rows)
    going_on = _until_their_turn(going_on, wake_ms[(released > 0) & (released < planned)])
    is_whole = (released == 0) & (planned > 0)
    held = np.flatnonzero(is_whole & (wake_ms > 0))
    stays[np.flatnonzero(~stays)[is_whole & (wake_ms == 0)]] = True
    left = firings.take(pa.array(leaving)).append_column("is_dropped", pa.array(plan.is_dropped[leaving]))
    left = left.take(pc.sort_indices(left, sort_keys=OLDEST_FIRST))
    dropped = left.filter(left["is_dropped"]).drop_columns("is_dropped")
    fired, late = _split_missed(
        left.filter(pc.invert(left["is_dropped"])).drop_columns("is_dropped"), due.clock_ms
    )
    missed = pa.concat_tables([late, dropped])
    before = int(pc.sum(fired["missed_before"]).as_py() or 0)
    counts = Counter(
        occurrences_fired=fired.num_rows - fired["repeat"].null_count,
        occurrences_missed=_occurrences(missed) + before,
    )
    kept = both.filter(pa.array(stays))
    flown = int(stays[:again].sum())
    waiting = pa.concat_tables([kept.slice(flown), going_on, due.held(held, wake_ms[held])])
    ended = rows.filter(pa.array(ends))
    return Releases(fired, missed, kept.slice(0, flown), waiting, ended, counts, passed.tokens)


def _until_their_turn(going_on: pa.Table, wake_ms: Int64s) -> pa.Table:
    """Lets the last rows, series of which a part has left, keep the turns that the gate gave to the rest (0: none)."""
    if not (wake_ms > 0).any():
        return going_on
    wakes = np.concatenate([np.zeros(going_on.num_rows - len(wake_ms), np.int64), wake_ms])
    due_ms = going_on["deliver_at_ms"].to_numpy()
    return with_columns(
        going_on,
        deliver_at_ms=pa.array(np.where(wakes > 0, wakes, due_ms)),
        held_ms=pa.array(wakes - due_ms, mask=wakes == 0),
    )


def _oldest_first(due: pa.Table, firings: pa.Table, plan: Firings) -> Int64s:
    """The order of release. The first firing of a series has the place of its entry: it has waited since then. None of
    a series comes before an earlier one, also if an act has moved that one.
    """
    is_first = ~repeats(plan.row)
    waited = due["deliver_at_ms"].to_numpy()[plan.row]
    since = np.where(is_first, waited, np.maximum(waited, firings["deliver_at_ms"].to_numpy()))
    keys = pa.table(
        {
            "since": pa.array(since),
            **{name: firings[name] for name in ("schedule_id", "seq")},
            "place": pa.array(np.arange(len(since))),
        }
    )
    order = pc.sort_indices(
        keys, sort_keys=[(name, "ascending") for name in ("since", "schedule_id", "seq", "place")]
    )
    return np.asarray(order.to_numpy(), np.int64)


def _firings(due: pa.Table, plan: Firings) -> pa.Table:
    """The planned firings as rows (``RELEASE_SCHEMA``)."""
    rows = due.take(pa.array(plan.row))
    is_series = rows["repeat"].is_valid().to_numpy()
    asked = asked_ms(rows).to_numpy()
    # An act may have moved the occurrence for which the entry waits.
    moved = rows["level_error_ms"].fill_null(0).to_numpy()
    late_ms = np.where(
        is_series & (plan.nominal_ms != asked), rows["spread_ms"].fill_null(0).to_numpy(), moved
    )
    has_none = rows["level_error_ms"].is_null().to_numpy()
    before = rows["occurrence"].fill_null(0).to_numpy()
    has_no_number = rows["occurrence"].is_null().to_numpy()
    number = before + plan.missed_before + _place_in_run(plan.row) + 1
    return with_columns(
        rows.append_column("missed_before", pa.array(plan.missed_before, mask=~is_series)),
        deliver_at_ms=pa.array(plan.nominal_ms + late_ms),
        level_error_ms=pa.array(late_ms, mask=(is_series | has_none) & (late_ms == 0)),
        occurrence=pa.array(np.where(is_series, number, before), mask=has_no_number & ~is_series),
    )


def _place_in_run(row: Int64s) -> Int64s:
    """The place of each firing among those of its entry, from 0."""
    return before_in_run(np.ones(len(row), bool), row)


def _occurrences(missed: pa.Table) -> int:
    """How many occurrences of series the rows stand for."""
    of_series = missed.filter(missed["repeat"].is_valid())
    return int(of_series.num_rows + (pc.sum(of_series["missed_before"]).as_py() or 0))


def _split_missed(due: pa.Table, clock_ms: int) -> tuple[pa.Table, pa.Table]:
    """Splits released entries into those to deliver and those that are later than their ``max_lateness_ms``."""
    if due["max_lateness_ms"].null_count == due.num_rows:
        return due, due.slice(0, 0)
    # A due time is not after the clock, so the distance fits into 64 bits without a sign, wherever in int64
    # the two are.
    lateness_ms = np.uint64(clock_ms % 2**64) - due["deliver_at_ms"].to_numpy().astype(np.uint64)
    bound_ms = due["max_lateness_ms"].fill_null(0).to_numpy().astype(np.uint64)
    on_time = due["max_lateness_ms"].is_null().to_numpy() | (lateness_ms <= bound_ms)
    return due.filter(pa.array(on_time)), due.filter(pa.array(~on_time))
