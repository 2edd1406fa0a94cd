"""Shares: divides the row limit of a batch (``fired_per_batch``) among the shards.

Each shard has an even share. A shard that held back due rows also gets what the others do not need::

    limit 100, four shards    even: 25 each    shard 0 is behind, the others release 2, 0 and 9 a batch: 75, 4, 3, 18

The others keep twice the rows that they have just released, so a small rise does not put them behind; a shard that
falls behind nevertheless gets its even share in the next batch. The shares are in the offset of the clock, so a
repeated batch has the same shares. A batch without a clock row has even shares.

Imports the standard library only: it runs in the planning process of the clock source and on executors.
"""

from __future__ import annotations

from collections.abc import Mapping

from wheel_udf.control.board import ShardReport

_LEAST_PART = 8
"""A shard that is not behind keeps at least an eighth of its even share."""


def even_share(limit: int, shard: int, shards: int) -> int:
    """A shard's part of a limit, at least 1."""
    whole, rest = divmod(limit, shards)
    return max(1, whole + (shard < rest))


def shares_of(limit: int, reports: Mapping[int, ShardReport], shards: int) -> list[int] | None:
    """The shares of a batch, by shard; None if all have their even share.

    Args:
        limit: Most rows of a batch.
        reports: The last reports of the shards.
        shards: Number of shards.
    """
    if limit < shards or any(shard not in reports for shard in range(shards)):
        return None
    behind = [shard for shard in range(shards) if _is_behind(reports[shard])]
    if not behind or len(behind) == shards:
        return None
    shares = [_kept(even_share(limit, shard, shards), reports[shard].released) for shard in range(shards)]
    left = limit - sum(share for shard, share in enumerate(shares) if shard not in behind)
    for place, shard in enumerate(behind):
        shares[shard] = even_share(left, place, len(behind))
    return shares


def _is_behind(report: ShardReport) -> bool:
    """Whether a shard has held back entries that were due."""
    return report.next_due_ms is not None and report.next_due_ms <= report.clock_ms


def _kept(even: int, released: int) -> int:
    return min(even, max(1, even // _LEAST_PART, 2 * released))
