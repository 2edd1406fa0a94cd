"""The state of a shard made anew from its rows: another geometry, another number of shards, the same firings and the
same account.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, strategies as st

from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.rows import ENTRY_SCHEMA, MEMORY_SCHEMA
from wheel_udf.shard.shard_text import entries_of_text, memory_of_text
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.transfer.seeds import shared
from wheel_udf.wheel.known import WAITING
from wheel_udf.wheel.seed import Seed, encoded_runs, seeded
from wheel_udf.wheel.step import advance

OLD, NEW = Wheel(1, 4, 3), Wheel(5, 20, 2)
MEMORY_MS = 30
IDS = "abcdef"


def content(state: ShardState) -> tuple[pa.Table, pa.Table]:
    if not state.text:
        return ENTRY_SCHEMA.empty_table(), MEMORY_SCHEMA.empty_table()
    return entries_of_text(state.text), memory_of_text(state.text)


def moved(state: ShardState, wheel: Wheel, ids: str, counts: dict[str, int]) -> ShardState:
    """What a new shard with these ids has of an old one."""
    chosen = pa.array(list(ids))
    entries, memory = (
        rows.filter(pc.is_in(rows["schedule_id"], value_set=chosen)) for rows in content(state)
    )
    return seeded(ShardState.empty(wheel), Seed(state.clock_ms, counts), entries, memory)


def waiting_of(state: ShardState, ids: str) -> int:
    """How many of these ids have a CANCEL that waits."""
    entries, memory = content(state)
    known: dict[str, tuple[int, ...]] = {}
    for row in memory.to_pylist():
        version = (row["seq"], row["rank"] % 2, row["rank"] // 2, row["status"])
        known[row["schedule_id"]] = max(version, known.get(row["schedule_id"], version))
    pending = entries["schedule_id"].to_pylist()
    return sum(known[name][-1] == WAITING for name in known if name in ids and name not in pending)


def command(schedule_id: str, seq: int, op: str, due_ms: int) -> dict[str, Any]:
    row: dict[str, Any] = {"schedule_id": schedule_id, "seq": seq, "op": op}
    return row if op == "CANCEL" else row | {"deliver_at_ms": due_ms}


COMMANDS = st.builds(
    command,
    st.sampled_from(IDS),
    st.integers(1, 4),
    st.sampled_from(["SCHEDULE", "SCHEDULE", "CANCEL"]),
    st.integers(0, 120),
)
BATCHES = st.lists(st.tuples(st.integers(0, 12), st.lists(COMMANDS, max_size=5)), min_size=1, max_size=10)


@given(BATCHES, st.integers(0, 9))
def test_a_shard_that_is_split_in_two_fires_and_counts_as_one_that_stays(
    batches: list[tuple[int, list[dict[str, Any]]]], moves_after: int
) -> None:
    whole = ShardState.empty(OLD)
    parts = {IDS: ShardState.empty(OLD)}
    clock_ms = 0
    for number, (later_ms, rows) in enumerate([*batches, (1_000, [])]):
        clock_ms += later_ms
        stays = advance(whole, commands_table(rows), clock_ms, memory_ms=MEMORY_MS)
        whole = stays.state
        fired = []
        for ids, state in parts.items():
            own = commands_table([row for row in rows if row["schedule_id"] in ids])
            step = advance(state, own, clock_ms, memory_ms=MEMORY_MS)
            parts[ids] = step.state
            fired += rows_of(step.fired)
        assert sorted(fired, key=str) == sorted(rows_of(stays.fired), key=str)
        if number == moves_after:
            first, second = IDS[:2], IDS[2:]
            old = parts.pop(IDS)
            counts = shared(old.counts, {1: waiting_of(old, second)}, 2)
            parts[first] = moved(old, NEW, first, counts[0])
            parts[second] = moved(old, NEW, second, counts[1])
    assert {
        name: sum(state.counts[name] for state in parts.values()) for name in whole.counts
    } == whole.counts


def test_the_clock_is_that_of_the_seed_and_what_is_due_by_it_fires_with_the_next_step() -> None:
    overdue = commands_table([{"schedule_id": "a", "seq": 1, "deliver_at_ms": 40}]).select(ENTRY_SCHEMA.names)
    state = seeded(
        ShardState.empty(NEW), Seed(100, {"fired": 7}, far=2), overdue, MEMORY_SCHEMA.empty_table()
    )

    assert (state.clock_ms, state.pending, state.next_due_ms, state.far) == (100, 1, 40, 2)
    step = advance(state, None, 0, memory_ms=MEMORY_MS)
    assert [row["schedule_id"] for row in rows_of(step.fired)] == ["a"]
    assert (step.clock_ms, step.state.counts["fired"]) == (100, 8)


def test_a_job_without_a_clock_has_counts_alone() -> None:
    state = seeded(
        ShardState.empty(NEW),
        Seed(None, {"rejected": 3}),
        ENTRY_SCHEMA.empty_table(),
        MEMORY_SCHEMA.empty_table(),
    )

    assert (state.clock_ms, state.pending, state.counts["rejected"], state.text) == (None, 0, 3, "")


def test_memory_is_kept_in_runs_in_order_of_time() -> None:
    times = [*range(2_000, 0, -1)]
    rows = pa.table({"at": times})

    runs = encoded_runs(rows, level=0, time_column="at")

    assert [(run.rows, run.low_ms, run.high_ms) for run in runs] == [(1_024, 1, 1_024), (976, 1_025, 2_000)]
