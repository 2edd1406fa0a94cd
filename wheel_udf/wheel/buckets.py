"""Buckets: which bucket an entry of a shard is kept in, and when a bucket is opened. The wheel as the state
stores it.

The bucket of an entry is decided here, in :meth:`Buckets.place`, by the formulas of
:mod:`wheel_udf.wheel.geometry`::

    due time, clock  --levels_of-->  level  --slots_of-->  slot  --// slots_per_group-->  group       bucket = (level, group)

    Wheel(tick_ms=1, size=20, levels=3), clock 0      450  ->  level 3, slot 1 [400, 800)     bucket (3, 1)
                                         clock 400    450  ->  level 2, slot 22 [440, 460)    bucket (2, 22)
                                         clock 440    450  ->  level 1, slot 450 [450, 451)   bucket (1, 450)

A bucket is a list of chunks. Adding to a bucket adds a chunk, O(rows added); only a bucket with more than
:data:`CHUNKS_PER_BUCKET` chunks is merged. Otherwise only opened buckets are rewritten.

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

import numpy as np
import pyarrow as pa

from wheel_udf.wheel.chunks import Chunk
from wheel_udf.wheel.geometry import INT64_MAX, Wheel, levels_of, slots_of

GROUPS_PER_LEVEL = 32
"""A level is kept in about this many buckets at most."""

CHUNKS_PER_BUCKET = 4


@dataclass(frozen=True)
class Buckets:
    """Places the rows of a shard into buckets, and says which buckets the clock has reached.

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
        """
        if entries.num_rows == 0:
            return []
        due = np.maximum(entries[self.due].to_numpy(), clock_ms)
        levels = levels_of(self.deep, due, clock_ms)
        groups = slots_of(self.deep, levels, due) // self.slots_per_group
        order = np.lexsort((groups, levels))
        levels, groups = levels[order], groups[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(levels) != 0) | (np.diff(groups) != 0)])
        ordered = entries.take(pa.array(order))
        bounds = [*starts.tolist(), len(order)]
        return [
            Chunk.of(int(levels[a]), int(groups[a]), ordered.slice(a, b - a), self.due)
            for a, b in pairwise(bounds)
        ]

    def reached(self, chunk: Chunk, clock_ms: int) -> bool:
        """Whether the clock has reached the slot of the chunk's earliest entry: the entry fires or moves down a level now."""
        if chunk.level == 1:
            return chunk.low_ms <= clock_ms
        tick_ms = self.deep.tick_of(chunk.level)
        return chunk.low_ms // tick_ms * tick_ms <= clock_ms


def merged(chunks: Sequence[Chunk], due: str = "deliver_at_ms") -> list[Chunk]:
    """Merges each bucket of more than :data:`CHUNKS_PER_BUCKET` chunks into one chunk; the others stay closed."""
    buckets: dict[tuple[int, int], list[Chunk]] = {}
    for chunk in chunks:
        buckets.setdefault((chunk.level, chunk.group), []).append(chunk)
    result: list[Chunk] = []
    for (level, group), members in buckets.items():
        if len(members) <= CHUNKS_PER_BUCKET:
            result += members
        else:
            result.append(
                Chunk.of(level, group, pa.concat_tables([member.table() for member in members]), due)
            )
    return result
