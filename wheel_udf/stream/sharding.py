"""The shard of an id, and the grouping key of a shard, chosen so that shards spread evenly over Spark's partitions.

Spark sends a group to partition ``pmod(murmur3(key), partitions)``. With keys 0..3 and two partitions, three
shards may well end up in one. So a shard's key is not its number but the first integer whose hash is
congruent to that number modulo :data:`_MODULUS`: for every number of partitions that divides it (1 to 6, 8,
9, 10, 12, 15, 16, ...) shard i goes to partition ``i mod partitions``.

The keys depend on nothing but the shard's number, so they hold over restarts with another
``spark.sql.shuffle.partitions``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pyspark.sql import Column

_MODULUS = 720
_SEED = 42
_TRIED = 1_000_000

UInt32s = npt.NDArray[np.uint32]


def murmur3(keys: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Spark's hash of an ``int`` column (Murmur3, x86, 32 bit, seed 42)."""
    k = keys.astype(np.uint32) * np.uint32(0xCC9E2D51)
    k = _rotated(k, 15) * np.uint32(0x1B873593)
    h = _rotated(np.uint32(_SEED) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h.astype(np.int32)


def _rotated(words: UInt32s, by: int) -> UInt32s:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


@cache
def shard_keys(shards: int) -> tuple[int, ...]:
    """The grouping keys of shards 0 to ``shards - 1`` (at most 1024)."""
    residues = murmur3(np.arange(_TRIED, dtype=np.int32)).astype(np.int64) % _MODULUS
    by_residue = {r: np.flatnonzero(residues == r) for r in range(min(shards, _MODULUS))}
    return tuple(int(by_residue[shard % _MODULUS][shard // _MODULUS]) for shard in range(shards))


def key_of_shard(number: Column, shards: int) -> Column:
    """The grouping key of a shard's number."""
    from pyspark.sql import functions as F

    return F.element_at(F.array(*[F.lit(key) for key in shard_keys(shards)]), number + 1).cast("int")


def shard_of_id(schedule_id: Column, shards: int) -> Column:
    """The number of the shard that an id belongs to."""
    from pyspark.sql import functions as F

    return F.pmod(F.xxhash64(schedule_id), F.lit(shards)).cast("int")
