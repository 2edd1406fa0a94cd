"""The scalars of the new shards: the clock for all of them, the account shared among them.

::

    counts      all on shard 0, but for waiting
    waiting     on the shard of the CANCEL that waits, as far as it is remembered; the rest on shard 0
    far         on the shard of each entry in the store

Only ``waiting`` depends on the shard: a shard counts a CANCEL as applied when its entry comes or ends, from its own ``waiting``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import DataFrame, functions as F

from wheel_udf.stream import shard_of_id
from wheel_udf.transfer.manifest import Manifest
from wheel_udf.wheel import WAITING, Seed

_NO_LEVEL = -1


def seeds_of(
    manifest: Manifest, shards: int, memory: DataFrame | None = None, far: DataFrame | None = None
) -> list[Seed]:
    """The seed of each shard.

    Args:
        manifest: Of the export.
        shards: The new number of shards.
        memory: The memory records of a wheel; None for a purgatory.
        far: The entries that are in the store; None without a store.
    """
    waiting = {} if memory is None else _waiting(memory, shards)
    shares = shared(manifest.counts, waiting, shards)
    levels = {} if far is None else _far_levels(far, shards)
    return [
        Seed(
            manifest.clock_ms,
            shares[shard],
            far=sum(levels.get(shard, {}).values()),
            far_levels={level: n for level, n in levels.get(shard, {}).items() if level != _NO_LEVEL},
        )
        for shard in range(shards)
    ]


def shared(counts: Mapping[str, int], waiting: Mapping[int, int], shards: int) -> list[dict[str, int]]:
    """The counts of each shard; their sum is `counts`."""
    own = [{"waiting": waiting.get(shard, 0)} if "waiting" in counts else {} for shard in range(shards)]
    rest = counts.get("waiting", 0) - sum(waiting.values())
    own[0] = {**counts, **own[0]}
    if "waiting" in counts:
        own[0]["waiting"] += rest
    return own


def _waiting(memory: DataFrame, shards: int) -> dict[int, int]:
    # A CANCEL that was met later has a second record of the same version.
    newest = memory.groupBy("schedule_id", "seq", "rank").agg(F.max("status").alias("status"))
    found = newest.where(F.col("status") == WAITING).select("schedule_id").distinct()
    shard = shard_of_id(F.col("schedule_id"), shards).alias("shard")
    return {row["shard"]: row["count"] for row in found.groupBy(shard).count().collect()}


def _far_levels(far: DataFrame, shards: int) -> dict[int, Counter[int]]:
    shard = shard_of_id(F.col("schedule_id"), shards).alias("shard")
    level = F.coalesce("delay_level_ms", F.lit(_NO_LEVEL)).alias("level")
    found: dict[int, Counter[int]] = {}
    for row in far.groupBy(shard, level).count().collect():
        found.setdefault(row["shard"], Counter())[row["level"]] += row["count"]
    return found
