"""Skew in one shard: nearly all commands for one id, and a great many entries due in one second. Memory stays bounded and
the others progress.

200,000 rows here; ``tests/faults/test_skew.py`` runs the same with a million.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.rows import COMMAND_SCHEMA
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
ROWS = 200_000
VALUE = b"v" * 50
OLDEST_FIRST = [("deliver_at_ms", "ascending"), ("schedule_id", "ascending"), ("seq", "ascending")]


def schedules(ids: pa.Array, seqs: NDArray[np.int64], due_ms: NDArray[np.int64]) -> pa.Table:
    """Commands with a value of 50 bytes each."""
    count = len(ids)
    given = {
        "schedule_id": ids,
        "op": pa.array(np.zeros(count, np.int8)),
        "seq": pa.array(seqs),
        "amend": pa.array(np.zeros(count, np.int32)),
        "seq_given": pa.array(np.ones(count, bool)),
        "act": pa.array(np.zeros(count, np.int8)),
        "deliver_at_ms": pa.array(due_ms),
        "destination": pa.array(["out"] * count),
        "value": pa.array([VALUE] * count, pa.binary()),
    }
    columns = [
        given[field.name] if field.name in given else pa.nulls(count, field.type) for field in COMMAND_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=COMMAND_SCHEMA)


def cancel_of(schedule_id: str) -> pa.Table:
    return commands_table([{"schedule_id": schedule_id, "op": "CANCEL", "seq": 2}])


_POOLS: list[pa.MemoryPool] = []  # what was allocated from a pool may outlive the measurement


class Peak:
    """The most memory in use at one time, of Arrow and of numpy and Python, above what was in use before."""

    bytes = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    before, pool, found = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool()), Peak()
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield found
        found.bytes = tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def ids_of(numbers: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.char.add("id-", numbers.astype(str)))


@pytest.mark.parametrize("rows", [ROWS])
def test_nine_of_ten_commands_on_one_id_cost_no_more_than_one_entry_and_starve_nobody(rows: int) -> None:
    numbers, others = np.arange(rows), rows // 10
    ids = pa.array(np.where(numbers % 10 == 0, np.char.add("id-", numbers.astype(str)), "hot"))
    table = schedules(ids, numbers, MINUTE_MS + numbers[::-1] % MINUTE_MS)
    with peak_memory() as peak:
        step = advance(ShardState.empty(WHEEL), table, 0, memory_ms=HOUR_MS)

    assert step.state.pending == others + 1
    assert step.state.counts["superseded"] == rows - others - 1
    assert peak.bytes < 3 * table.nbytes
    assert len(step.state.text) < table.nbytes / 30, "what is superseded is not kept"

    # All others are due. The hot id is armed a thousand times a batch, before all of them, and takes one place of each
    # batch.
    fired: list[pa.Table] = []
    for batch in range(11):
        again = rows + 1_000 * batch + np.arange(1_000)
        storm = schedules(pa.array(["hot"] * 1_000), again, np.zeros(1_000, np.int64))
        step = advance(step.state, storm, 3 * MINUTE_MS, others // 10, memory_ms=HOUR_MS)
        assert step.fired.num_rows <= others // 10
        assert step.fired["schedule_id"][0].as_py() == "hot"
        fired.append(step.fired.slice(1))
    left = pa.concat_tables(fired)
    assert left.num_rows == others == pc.count_distinct(left["schedule_id"]).as_py()
    assert left.equals(left.sort_by(OLDEST_FIRST)), "the oldest first, over all batches"
    assert step.state.pending == 0


@pytest.mark.parametrize("rows", [ROWS])
def test_a_flood_due_in_one_second_leaves_in_bounded_batches_and_lets_earlier_and_later_ones_through(
    rows: int,
) -> None:
    numbers, limit = np.arange(rows), rows // 20
    flood = schedules(ids_of(numbers), np.ones(rows, np.int64), 5_000 + numbers % 1_000)
    with peak_memory() as peak:
        step = advance(ShardState.empty(WHEEL), flood, 0, memory_ms=HOUR_MS)
    assert peak.bytes < 6 * flood.nbytes
    assert step.state.next_due_ms == 5_000

    order: list[str] = []
    for batch in range(21):
        # In each batch one that was due before the flood, one due behind it, and the cancel of one of the flood.
        new = schedules(
            pa.array([f"early-{batch}", f"behind-{batch}"]), np.ones(2, np.int64), np.array([4_000, 6_000])
        )
        step = advance(
            step.state,
            pa.concat_tables([new, cancel_of(f"id-{rows - 1 - 1_000 * batch}")]),
            6_000,
            limit,
            memory_ms=HOUR_MS,
        )
        ids = step.fired["schedule_id"].to_pylist()
        assert len(ids) <= limit
        assert ids[0] == f"early-{batch}"
        order += ids
    assert step.state.counts["cancelled"] == 20
    assert step.state.counts["late"] == 1, "the last of them has fired before"
    assert len(set(order)) == len(order) == rows - 20 + 42
    assert order[-21:] == sorted(f"behind-{batch}" for batch in range(21))
    assert step.state.pending == 0


@pytest.mark.parametrize("rows", [ROWS])
def test_a_step_of_a_backlog_takes_memory_for_what_leaves_and_little_for_what_waits(rows: int) -> None:
    numbers = np.arange(rows)
    flood = schedules(ids_of(numbers), np.ones(rows, np.int64), 5_000 + numbers % 1_000)
    state, peaks = advance(ShardState.empty(WHEEL), flood, 0, memory_ms=0).state, []
    for _ in range(4):
        with peak_memory() as peak:
            state = advance(state, None, 6_000, rows // 4, memory_ms=0).state
        peaks.append(peak.bytes)

    assert peaks == sorted(peaks, reverse=True)
    # In the first one four times as much waits as in the last one; as many leave.
    assert peaks[0] < 2 * peaks[-1]
    assert peaks[0] < 2 * flood.nbytes
