"""What a step releases: the due entries, oldest first, up to a limit; and what is left of them.

::

    due entries     --limit-->  released now | stay, unchanged
    due series      --plan-->   firings  --limit-->  released now | wait for another occurrence | have ended

Without series nothing is planned: an entry is its own firing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Int64s, before_in_run, repeats
from wheel_udf.shard.rows import ENTRY_SCHEMA, OLDEST_FIRST, asked_ms, with_columns
from wheel_udf.wheel.policies import Firings, Repeat

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
    """

    fired: pa.Table
    missed: pa.Table
    flown: pa.Table
    waiting: pa.Table
    ended: pa.Table = field(default_factory=ENTRY_SCHEMA.empty_table)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def released(self) -> int:
        """How many rows leave."""
        return int(self.fired.num_rows + self.missed.num_rows)


def release(
    again: pa.Table, opened: pa.Table, clock_ms: int, limit: int | None, repeat: Repeat | None
) -> Releases:
    """Releases what is due.

    Args:
        again: Entries that left ahead of their due time and came back.
        opened: Entries of opened buckets.
        clock_ms: The clock of the batch.
        limit: Most rows to release; None for no bound.
        repeat: The policy of series; None without series.
    """
    both = pa.concat_tables([again, opened])
    is_due = pc.less_equal(both["deliver_at_ms"], clock_ms)
    due, stays = both.filter(is_due), pc.invert(is_due).to_numpy()
    if limit != 0 and repeat is not None and due["repeat"].null_count < due.num_rows:
        plan = repeat.plan(due, clock_ms)
        return _release_series(both, due, stays, again.num_rows, clock_ms, limit, repeat, plan)
    order = pc.sort_indices(due, sort_keys=OLDEST_FIRST)
    if limit is not None and due.num_rows > limit:
        stays[np.flatnonzero(~stays)[order[limit:].to_numpy()]] = True
        order = order[:limit]
    left = due.take(order)
    fired, missed = _split_missed(
        left.append_column("missed_before", pa.nulls(left.num_rows, pa.int64())), clock_ms
    )
    flown, waiting = stays[: again.num_rows], stays[again.num_rows :]
    return Releases(fired, missed, again.filter(pa.array(flown)), opened.filter(pa.array(waiting)))


def _release_series(
    both: pa.Table,
    due: pa.Table,
    stays: npt.NDArray[np.bool_],
    again: int,
    clock_ms: int,
    limit: int | None,
    repeat: Repeat,
    plan: Firings,
) -> Releases:
    firings = _firings(due, plan)
    order = _oldest_first(due, firings, plan)
    if limit is not None:
        order = order[:limit]
    released = np.bincount(plan.row[order], minlength=due.num_rows).astype(np.int64)
    going_on, ends = repeat.going_on(due, plan, released)
    stays[np.flatnonzero(~stays)[(released == 0) & (plan.planned(due.num_rows) > 0)]] = True
    left = firings.take(pa.array(order)).append_column("is_dropped", pa.array(plan.is_dropped[order]))
    left = left.take(pc.sort_indices(left, sort_keys=OLDEST_FIRST))
    dropped = left.filter(left["is_dropped"]).drop_columns("is_dropped")
    fired, late = _split_missed(
        left.filter(pc.invert(left["is_dropped"])).drop_columns("is_dropped"), clock_ms
    )
    missed = pa.concat_tables([late, dropped])
    before = int(pc.sum(fired["missed_before"]).as_py() or 0)
    counts = Counter(
        occurrences_fired=fired.num_rows - fired["repeat"].null_count,
        occurrences_missed=_occurrences(missed) + before,
    )
    kept = both.filter(pa.array(stays))
    flown = int(stays[:again].sum())
    waiting = pa.concat_tables([kept.slice(flown), going_on])
    return Releases(fired, missed, kept.slice(0, flown), waiting, due.filter(pa.array(ends)), counts)


def _oldest_first(due: pa.Table, firings: pa.Table, plan: Firings) -> Int64s:
    """The order of release. The first firing of a series has the place of its entry: it has waited since then."""
    is_first = ~repeats(plan.row)
    waited = due["deliver_at_ms"].to_numpy()[plan.row]
    since = np.where(is_first, waited, firings["deliver_at_ms"].to_numpy())
    keys = pa.table(
        {
            "since": pa.array(since),
            **{name: firings[name] for name in ("schedule_id", "seq", "deliver_at_ms")},
        }
    )
    order = pc.sort_indices(
        keys, sort_keys=[(name, "ascending") for name in ("since", "schedule_id", "seq", "deliver_at_ms")]
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
    number = before + plan.missed_before + _place_in_run(plan.row) + 1
    return with_columns(
        rows.append_column("missed_before", pa.array(plan.missed_before, mask=~is_series)),
        deliver_at_ms=pa.array(plan.nominal_ms + late_ms),
        level_error_ms=pa.array(late_ms, mask=(is_series | has_none) & (late_ms == 0)),
        occurrence=pa.array(number, mask=~is_series),
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
