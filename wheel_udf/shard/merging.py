"""Which runs of rows to merge, so that there are few of them and each row is rewritten seldom (tiered merging, as in
log-structured stores).

::

    runs, the latest first     1  1  3  9  40       1 + 1 + 3 are merged to 5; 9 is less than 2 * 5: to 14
    afterwards                 14  40               40 is not less than 2 * 14

Each merge makes at least one and a half times as much of a row's run, so a row is rewritten O(log(rows / rows added))
times, and the number of runs is O(log(rows)).
"""

from __future__ import annotations

from collections.abc import Sequence


def to_merge(sizes: Sequence[int]) -> int:
    """How many runs to merge, from the first one on: each that has less than twice as many rows as those before it
    together.

    Args:
        sizes: Rows of each run, the latest or smallest first; at least one run.

    Returns:
        The number of runs; 1 if none is to be merged.
    """
    total = 0
    for count, size in enumerate(sizes):
        if count and size >= 2 * total:
            return count
        total += size
    return len(sizes)
