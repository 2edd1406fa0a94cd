"""Decides when a shard takes a sample, for which it opens chunks: about once a minute, by the batches' timestamps.

A sample changes no row that leaves and no state, so a repeated batch may sample anew. Imports nothing: it runs on
executors.
"""

from __future__ import annotations

SAMPLE_EVERY_MS = 60_000

_sampled: dict[tuple[str, int], int] = {}
"""The batch timestamp of the last sample of this worker, by query and shard. A new worker samples at once."""


def is_time_to_sample(query_id: str, shard: int, batch_ms: int) -> bool:
    """Whether this batch samples the shard.

    Args:
        query_id: The query.
        shard: The shard.
        batch_ms: The timestamp of the batch (UTC epoch ms).
    """
    last_ms = _sampled.get((query_id, shard))
    if last_ms is not None and last_ms <= batch_ms < last_ms + SAMPLE_EVERY_MS:
        return False
    _sampled[query_id, shard] = batch_ms
    return True
