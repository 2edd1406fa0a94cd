"""Buckets: which bucket an entry of a shard is kept in, and when a bucket is opened. The wheel as the state
stores it.

The bucket of an entry is decided here, in :meth:`Buckets.place`, by the formulas of
:mod:`wheel_udf.common.geometry`::

    due time, clock  --levels_of-->  level  --slots_of-->  slot  --// slots_per_group-->  group
    bucket = (level, group)

    Wheel(tick_ms=1, size=20, levels=3), clock 0      450  ->  level 3, slot 1 [400, 800)     bucket (3, 1)
                                         clock 400    450  ->  level 2, slot 22 [440, 460)    bucket (2, 22)
                                         clock 440    450  ->  level 1, slot 450 [450, 451)   bucket (1, 450)

A bucket is a list of chunks. Adding to a bucket adds a chunk, O(rows added). A bucket with more than a few small chunks
(:mod:`wheel_udf.shard.chunk_sizes`) is merged from the smallest one up, as long as the next one is not twice as large;
a chunk of half the largest size stays as it is. So an entry is rewritten O(log) times while it waits in a bucket,
however many wait there. Otherwise only opened buckets are rewritten. The rows of a bucket are encoded in order of their
due times.

A *backlog*, due entries beyond the limit of a batch, is kept in the bucket of the clock, in runs of about a thousand
rows by due time. The next batch opens the oldest runs (:mod:`wheel_udf.wheel.step`), and the others stay closed::

    due before the clock    [0:00 .. 0:07] [0:07 .. 0:15] [0:15 .. 0:24] ... [9:52 .. 10:00]       clock 10:00
                             opened         opened         closed             closed               2,000 leave

Differences from the geometry, neither of which changes when an entry fires:

* The top level is open-ended. Here it is split by the same formula into more levels (the *overflow wheels* of
  the classic design), so the number of buckets is logarithmic in the horizon and the top level is never a
  chunk for each slot.
* A wheel with more than :data:`GROUPS_PER_LEVEL` slots a level keeps a run of neighbouring slots (a group) in
  one bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

import numpy as np
import pyarrow as pa

from wheel_udf.common.geometry import INT64_MAX, INT64_MIN, Wheel, levels_of, slots_of
from wheel_udf.shard import chunk_sizes
from wheel_udf.shard.chunks import Chunk, in_runs
from wheel_udf.shard.merging import to_merge

GROUPS_PER_LEVEL = 32
"""A level is kept in about this many buckets at most."""


@dataclass(frozen=True)
class Buckets:
    """Places the rows of a shard into buckets, and finds the buckets that the clock has reached.

    Attributes:
        wheel: The geometry.
        due: Name of the column with the time by which rows are placed.
    """

    wheel: Wheel
    due: str = "deliver_at_ms"

    @cached_property
    def deep(self) -> Wheel:
        """The wheel of the same tick and size with as many levels as int64 can hold."""
        levels = self.wheel.levels
        while self.wheel.tick_ms * self.wheel.size ** (levels + 1) <= INT64_MAX:
            levels += 1
        return replace(self.wheel, levels=levels)

    @cached_property
    def slots_per_group(self) -> int:
        """How many neighbouring slots share a bucket."""
        return -(-self.wheel.size // GROUPS_PER_LEVEL)

    def place(self, entries: pa.Table, clock_ms: int) -> list[Chunk]:
        """Sorts rows into new chunks, one for each bucket that they belong to at this clock.

        An overdue entry is kept in the bucket of the clock itself: a backlog of years is one bucket, not one
            for each tick.

        Large buckets are cut into several chunks, by due time.
        """
        if entries.num_rows == 0:
            return []
        actual = entries[self.due].to_numpy()
        due = np.maximum(actual, clock_ms)
        levels = levels_of(self.deep, due, clock_ms)
        groups = slots_of(self.deep, levels, due) // self.slots_per_group
        order = np.lexsort((actual, groups, levels))
        levels, groups = levels[order], groups[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(levels) != 0) | (np.diff(groups) != 0)])
        ordered = entries.take(pa.array(order))
        bounds = [*starts.tolist(), len(order)]
        chunks: list[Chunk] = []
        for a, b in pairwise(bounds):
            most = chunk_sizes.SIZES.most(actual[order[a]], clock_ms)
            chunks += in_runs(int(levels[a]), int(groups[a]), ordered.slice(a, b - a), self.due, most)
        return chunks

    def reached(self, chunk: Chunk, clock_ms: int) -> bool:
        """Whether the clock has reached the slot of the chunk's earliest entry, which then fires or moves down."""
        if chunk.level == 1:
            return chunk.low_ms <= clock_ms
        tick_ms = self.deep.tick_of(chunk.level)
        return chunk.low_ms // tick_ms * tick_ms <= clock_ms


def is_wanted(chunk: Chunk, latest_ms: int) -> bool:
    """Whether a batch opens a chunk that it reaches, if nothing due after `latest_ms` can leave with it.

    Small chunks of a backlog are opened once and become runs, so that there are few.
    """
    return chunk.low_ms <= latest_ms or 2 * chunk.rows < chunk_sizes.SIZES.backlog


def merged(chunks: Sequence[Chunk], due: str = "deliver_at_ms", clock_ms: int = INT64_MIN) -> list[Chunk]:
    """Merges small chunks of each bucket that has more than ``chunks_per_bucket`` of them; the others stay closed.

    Args:
        chunks: The chunks of all buckets.
        due: Name of the column with the time by which rows are placed.
        clock_ms: The clock, if entries due by then may be left.
    """
    buckets: dict[tuple[int, int], list[Chunk]] = {}
    for chunk in chunks:
        buckets.setdefault((chunk.level, chunk.group), []).append(chunk)
    result: list[Chunk] = []
    for members in buckets.values():
        is_short = len(members) <= chunk_sizes.SIZES.chunks_per_bucket
        result += members if is_short else _merged_bucket(members, due, clock_ms)
    return result


def _merged_bucket(members: Sequence[Chunk], due: str, clock_ms: int) -> list[Chunk]:
    small = sorted((chunk for chunk in members if _is_small(chunk, clock_ms)), key=attrgetter("rows"))
    is_short = len(small) <= chunk_sizes.SIZES.chunks_per_bucket
    if is_short or (count := to_merge([chunk.rows for chunk in small])) == 1:
        return list(members)
    merging = {id(chunk) for chunk in small[:count]}
    rows = pa.concat_tables([chunk.table() for chunk in small[:count]]).sort_by(due)
    most = chunk_sizes.SIZES.most(rows[due][0].as_py(), clock_ms)
    first = members[0]
    return [
        *(chunk for chunk in members if id(chunk) not in merging),
        *in_runs(first.level, first.group, rows, due, most),
    ]


def _is_small(chunk: Chunk, clock_ms: int) -> bool:
    most = chunk_sizes.SIZES.most(chunk.low_ms, clock_ms)
    return 2 * chunk.rows < most and 2 * chunk.size < chunk_sizes.SIZES.largest_bytes
