"""Tiered merging: few runs, and few rewrites of a row."""

from __future__ import annotations

import pytest

from wheel_udf.shard.merging import to_merge


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([7], 1),
        ([1, 1], 2),
        ([1, 2], 1),
        ([2, 3], 2),
        ([1, 1, 3, 9, 40], 4),
        ([5, 10], 1),
        ([5, 9, 27, 1], 4),
    ],
)
def test_runs_are_merged_while_the_next_is_less_than_twice_as_long(sizes: list[int], merged: int) -> None:
    assert to_merge(sizes) == merged


def test_a_row_is_rewritten_a_few_times_however_many_batches_follow() -> None:
    runs: list[int] = []
    rewritten = 0
    for _ in range(10_000):
        runs.append(1)
        count = to_merge(runs[::-1])
        if count > 1:
            rewritten += sum(runs[-count:])
            runs[-count:] = [sum(runs[-count:])]
        assert len(runs) <= 14

    assert (sum(runs), rewritten < 8 * 10_000) == (10_000, True)
