"""The shard of an id, and the grouping key of a shard, chosen so that shards spread evenly over Spark's partitions.

Spark sends a group to partition ``pmod(murmur3(key), partitions)``. With keys 0..3 and two partitions, three
shards may well end up in one. So a shard's key is not its number but one of the first integers whose hash is
congruent to that number modulo 720: for every number of partitions that divides it (1 to 6, 8, 9, 10, 12, 15, 16,
...) shard i goes to partition ``i mod partitions``. The keys of shards 0 to 1023 are in ``shard_keys.json``; they
depend on nothing but the shard's number, so they hold over restarts with another ``spark.sql.shuffle.partitions``.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from wheel_udf.common.package_data import content_of
from wheel_udf.shard.rows import ID_JOINT

if TYPE_CHECKING:
    from pyspark.sql import Column


@cache
def shard_keys(shards: int) -> tuple[int, ...]:
    """The grouping keys of shards 0 to ``shards - 1`` (at most 1024)."""
    return tuple(json.loads(content_of(__name__, "shard_keys.json"))[:shards])


def key_of_shard(number: Column, shards: int) -> Column:
    """The grouping key of a shard's number."""
    from pyspark.sql import functions as F

    return F.element_at(F.array(*[F.lit(key) for key in shard_keys(shards)]), number + 1).cast("int")


def shard_of_id(schedule_id: Column, shards: int) -> Column:
    """The number of the shard that an id belongs to: an occurrence of a series that is tried again, to that of its
    series.
    """
    from pyspark.sql import functions as F

    return F.pmod(F.xxhash64(F.substring_index(schedule_id, ID_JOINT, 1)), F.lit(shards)).cast("int")
