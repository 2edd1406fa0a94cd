"""The search for hashes that occur more than once, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from wheel_udf.store import repeated

LEAST, MOST = -(2**63), 2**63 - 1


def test_hashes_are_cut_into_ranges_at_the_same_bounds_in_every_task() -> None:
    hashes = np.array([MOST, 0, -1, LEAST, 2**62, -(2**62), 0], np.int64)
    assert [part.tolist() for part in repeated.cut(hashes, 2)] == [
        [LEAST, -(2**62), -1],
        [0, 0, 2**62, MOST],
    ]
    assert [part.tolist() for part in repeated.cut(hashes, 4)] == [
        [LEAST],
        [-(2**62), -1],
        [0, 0],
        [2**62, MOST],
    ]
    assert [part.tolist() for part in repeated.cut(hashes[:0], 2)] == [[], []]


@pytest.mark.parametrize("ranges", [1, 2, 3, 7])
def test_what_occurs_twice_in_one_task_or_in_two_is_found_once(ranges: int) -> None:
    tasks = [[5, MOST, 5, -3, 0], [MOST, LEAST, 7], [], [LEAST, -3, -3, 9]]
    cut = [
        batch
        for hashes in tasks
        for batch in repeated.hashes_in_ranges([_batch(hashes[:2]), _batch(hashes[2:])], ranges=ranges)
    ]
    found = []
    for number in range(ranges):
        mine = [batch for batch in cut if batch.column(0)[0].as_py() == number]
        found += [each for batch in repeated.repeated_in_range(mine) for each in batch.column(0).to_pylist()]
    assert found == [LEAST, -3, 5, MOST]


def test_a_task_without_rows_sends_nothing() -> None:
    assert list(repeated.hashes_in_ranges([], ranges=2)) == []
    assert list(repeated.repeated_in_range([])) == []


def _batch(hashes: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(hashes, pa.int64())], ["id_hash"])
