"""The scalars of the new shards: the clock for all of them, the account shared among them.

::

    counts      all on shard 0, but for waiting
    waiting     on the shard of the CANCEL that waits, as far as it is remembered; the rest on shard 0
    far         on the shard of each entry in the store

Only ``waiting`` depends on the shard: a shard counts a CANCEL as applied when its entry comes or ends, from its own
``waiting``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, functions as F

from wheel_udf.stream.sharding import shard_of_id
from wheel_udf.transfer.manifest import Manifest
from wheel_udf.transfer.ranks import amend_of, op_of
from wheel_udf.wheel.known import WAITING
from wheel_udf.wheel.seed import Seed


def seeds_of(
    manifest: Manifest,
    shards: int,
    *,
    entries: DataFrame | None = None,
    memory: DataFrame | None = None,
    far: DataFrame | None = None,
) -> list[Seed]:
    """The seed of each shard.

    Args:
        manifest: Of the export.
        shards: The new number of shards.
        entries: All pending entries of a wheel; None for a purgatory.
        memory: The memory records of a wheel; None for a purgatory.
        far: The entries that are in the store; None without a store.
    """
    waiting: dict[int, int] = {}
    if manifest.counts.get("waiting", 0) and entries is not None and memory is not None:
        waiting = _waiting(entries, memory, shards)
    shares = shared(manifest.counts, waiting, shards)
    in_store = {} if far is None else _by_shard(far, shards)
    return [Seed(manifest.clock_ms, shares[shard], in_store.get(shard, 0)) for shard in range(shards)]


def shared(counts: Mapping[str, int], waiting: Mapping[int, int], shards: int) -> list[dict[str, int]]:
    """The counts of each shard; their sum is `counts`, and none is negative.

    Args:
        counts: Of all shards.
        waiting: Number of remembered CANCELs that wait, by shard.
        shards: Number of shards.
    """
    if "waiting" not in counts:
        return [dict(counts), *({} for _ in range(1, shards))]
    left = counts["waiting"]
    own = []
    for shard in range(shards):
        here = min(waiting.get(shard, 0), left)
        own.append({"waiting": here})
        left -= here
    own[0] = {**counts, "waiting": own[0]["waiting"] + left}
    return own


def _waiting(entries: DataFrame, memory: DataFrame, shards: int) -> dict[int, int]:
    """Number of ids by shard of which the newest that is known is a CANCEL that waits."""
    rank = F.col("rank")
    version = F.struct("seq", op_of(rank), amend_of(rank), "status")
    newest = memory.groupBy("schedule_id").agg(F.max(version).alias("newest"))
    found = newest.where(F.col("newest.status") == WAITING).join(entries, "schedule_id", "left_anti")
    return _by_shard(found, shards)


def _by_shard(rows: DataFrame, shards: int) -> dict[int, int]:
    """Number of rows by the shard of their ``schedule_id``."""
    shard = shard_of_id(F.col("schedule_id"), shards).alias("shard")
    return {row["shard"]: row["count"] for row in rows.groupBy(shard).count().collect()}
