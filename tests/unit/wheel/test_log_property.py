"""A log through the wheel: what fires is what a fold over the log leaves, however the log is cut, shuffled, repeated or
compacted.

::

    log        a=1  b=1  a=2  b=-  c=1  a=3       offsets 0 1 2 3 4 5; - is a tombstone
    fold       {a: 3, c: 1}                       a dict: the latest value of each id, a tombstone removes
    compacted  b=-  c=1  a=3,  or  c=1  a=3       superseded records are gone; a tombstone too, once what it ended is gone
    wheel      any batches of any of these before the first due time, then the clock runs on: fires a=3 and c=1

The same for the change feed of a table, whose log is its commits; a first start reads a snapshot, which is that log
compacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.unit.wheel.heap_model import CANCEL_OUTCOMES, SCHEDULE_OUTCOMES
from tests.unit.wheel.test_versions_with_store import Tiered
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.step import advance

IDS = ("a", "b", "c", "d")
END_MS = 10_000
"""All of the log is read before it, and nothing is due earlier."""
LAST_DUE_MS = 15_000
WHEELS = (Wheel(1, 20, 3), Wheel(10, 8, 4), Wheel(1_000, 20, 6))


@dataclass(frozen=True)
class Record:
    """A record of a log; without a due time it is a tombstone."""

    schedule_id: str
    seq: int
    due_ms: int | None
    value: int

    def as_command(self) -> dict[str, Any]:
        row = {"schedule_id": self.schedule_id, "seq": self.seq, "seq_given": False, "source": self._source}
        if self.due_ms is None:
            return row | {"op": "CANCEL"}
        return row | {"deliver_at_ms": self.due_ms, "value": str(self.value).encode()}

    @property
    def _source(self) -> str:
        return f"log/{IDS.index(self.schedule_id) % 2}/{self.seq}"  # an id belongs in one partition


def fold(log: Sequence[Record]) -> dict[str, Record]:
    """What a table holds that is kept from the log."""
    table: dict[str, Record] = {}
    for record in log:
        table.pop(record.schedule_id, None)
        if record.due_ms is not None:
            table[record.schedule_id] = record
    return table


def told(table: dict[str, Record]) -> list[tuple[str, int, bytes]]:
    """What fires of a table: (id, due time, value), oldest first."""
    rows = ((r.due_ms, r.schedule_id, str(r.value).encode()) for r in table.values() if r.due_ms is not None)
    return [(schedule_id, due, value) for due, schedule_id, value in sorted(rows)]


dues = st.none() | st.integers(END_MS, LAST_DUE_MS)


def _numbered(drafts: list[tuple[str, int | None, int]]) -> list[Record]:
    offsets = accumulate((gap for _, _, gap in drafts), initial=-1)
    next(offsets)
    return [Record(name, at, due, at) for (name, due, _), at in zip(drafts, offsets, strict=True)]


logs = st.lists(st.tuples(st.sampled_from(IDS), dues, st.integers(1, 9)), max_size=25).map(_numbered)
chance = st.randoms(use_true_random=False)


def compacted(log: list[Record], make: Random) -> list[Record]:
    """Less of a log, as the cleaner of a topic may leave it."""
    last = {record.schedule_id: record for record in log}
    kept = [record for record in log if record is last[record.schedule_id] or make.random() < 0.5]
    left = Counter(record.schedule_id for record in kept)
    return [r for r in kept if r.due_ms is not None or left[r.schedule_id] > 1 or make.random() < 0.5]


def cut(records: list[Record], make: Random) -> list[list[Record]]:
    """Into batches, some of them empty."""
    places = sorted(make.randint(0, len(records)) for _ in range(make.randrange(8)))
    return [records[a:b] for a, b in pairwise([0, *places, len(records)])]


def shuffled(log: list[Record], make: Random) -> list[list[Record]]:
    """Batches of a log that is read in any order, and some of it twice."""
    records = log + [record for record in log if make.random() < 0.2]
    make.shuffle(records)
    return cut(records, make)


def in_order(log: list[Record], make: Random) -> list[list[Record]]:
    """Batches of a log that is read as it stands; within a batch there is no order."""
    return [make.sample(batch, len(batch)) for batch in cut(log, make)]


def fired_of(
    batches: list[list[Record]], wheel: Wheel, memory_ms: int | None
) -> list[tuple[str, int, bytes]]:
    """Runs the batches and then the clock, at most two firings a step; the account is checked, too."""
    state = ShardState.empty(wheel)
    for number, batch in enumerate(batches):
        table = commands_table(record.as_command() for record in batch)
        step = advance(state, table, number * 1_000, memory_ms=memory_ms)
        assert (step.fired.num_rows, step.missed.num_rows, step.spread) == (0, 0, 0)
        state = ShardState.from_row(step.state.to_row(1), wheel, 1)
    fired, now_ms = [], END_MS
    while state.pending:
        step = advance(state, None, now_ms, 2, memory_ms=memory_ms)
        fired += [(row["schedule_id"], row["deliver_at_ms"], row["value"]) for row in rows_of(step.fired)]
        state, now_ms = step.state, now_ms + 700
    adds_up(state, batches)
    assert state.counts["fired"] == len(fired)
    return fired


def adds_up(state: ShardState, batches: list[list[Record]], *, stored: bool = False) -> None:
    tombstones = sum(record.due_ms is None for batch in batches for record in batch)
    schedules = sum(map(len, batches)) - tombstones
    assert sum(state.counts[name] for name in SCHEDULE_OUTCOMES) == schedules
    assert sum(state.counts[name] for name in CANCEL_OUTCOMES) == tombstones
    # Beside a store, a CANCEL that has been counted as superseded may end an older entry there; see
    # wheel_udf.wheel.versions.
    assert state.counts["applied"] == state.counts["cancelled"] or stored
    assert state.counts["applied"] <= state.counts["cancelled"]
    assert min(state.counts.values()) >= 0


@given(log=logs, wheel=st.sampled_from(WHEELS), whole=st.booleans(), make=chance)
def test_a_log_whole_or_compacted_read_in_any_order_and_in_any_batches_fires_what_a_fold_leaves(
    log: list[Record], wheel: Wheel, make: Random, *, whole: bool
) -> None:
    read = log if whole else compacted(log, make)
    assert fired_of(shuffled(read, make), wheel, memory_ms=None) == told(fold(log))


@given(log=logs, memory_ms=st.sampled_from((0, 1, 500, 1_000, 3_000)), make=chance)
def test_a_log_that_is_read_in_its_own_order_needs_no_memory(
    log: list[Record], memory_ms: int, make: Random
) -> None:
    assert fired_of(in_order(compacted(log, make), make), WHEELS[0], memory_ms) == told(fold(log))


@given(log=logs, make=chance)
def test_beside_a_slot_store_a_log_fires_what_a_fold_leaves(log: list[Record], make: Random) -> None:
    tiered, batches = Tiered(), shuffled(compacted(log, make), make)
    fired = []
    for number, batch in enumerate(batches):
        fired += tiered.batch(number * 1_000, [record.as_command() for record in batch])
        if make.random() < 0.5:
            fired += tiered.hand_over(tiered.cursor_ms + make.randrange(6_000), number * 1_000)
    assert fired == []
    fired += tiered.hand_over(max(tiered.cursor_ms, LAST_DUE_MS + 1), LAST_DUE_MS)
    assert sorted(fired) == sorted((r.schedule_id, r.seq) for r in fold(log).values())
    assert (tiered.far, tiered.shard.state.far, tiered.shard.state.pending) == ([], 0, 0)
    adds_up(tiered.shard.state, batches, stored=True)


@pytest.mark.parametrize(("memory_ms", "fired"), [(None, []), (1_001, []), (1_000, [("a", END_MS, b"1")])])
def test_a_tombstone_read_before_its_schedule_is_kept_for_memory_and_no_longer(
    memory_ms: int | None, fired: list[tuple[str, int, bytes]]
) -> None:
    tombstone, schedule = Record("a", 2, None, 2), Record("a", 1, END_MS, 1)
    assert fired_of([[tombstone], [schedule]], WHEELS[0], memory_ms) == fired


# --- a table's change feed ------------------------------------------------------------------------

Commit = dict[str, tuple[str, int]]
"""What a commit does to ids: (delete, write, or replace: delete and insert, due time)."""

commits = st.lists(
    st.dictionaries(
        st.sampled_from(IDS),
        st.tuples(st.sampled_from(("delete", "write", "replace")), st.integers(END_MS, LAST_DUE_MS)),
        max_size=3,
    ),
    max_size=10,
)


def changes_of(commits: list[Commit], since: int) -> tuple[list[Record], dict[str, Record]]:
    """The feed of a table from its snapshot at a version on, as commands; and the table in the end.

    A commit's rows have its number for a version, and its deletes the number before: what a commit deletes is what
    stood there before it.
    """
    feed: list[Record] = []
    table: dict[str, Record] = {}
    for version, commit in enumerate(commits, start=1):
        for name, (what, due_ms) in commit.items():
            if what != "write" and table.pop(name, None):
                feed.append(Record(name, version - 1, None, 0))
            if what != "delete":
                table[name] = Record(name, version, due_ms, value=version)
                feed.append(table[name])
        if version == since:
            feed = [Record(r.schedule_id, since, r.due_ms, r.value) for r in table.values()]
    return feed, table


@given(commits=commits, since=st.integers(0, 10), make=chance)
def test_a_change_feed_from_any_snapshot_on_fires_what_the_table_holds_in_the_end(
    commits: list[Commit], since: int, make: Random
) -> None:
    feed, table = changes_of(commits, since)
    assert fired_of(shuffled(feed, make), WHEELS[0], memory_ms=None) == told(table)
