"""The sizes by which the content of a shard is cut into chunks, merged and rewritten. None changes what a step does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Bounds, in rows unless the name says otherwise. Those marked as layout are read as they were written.

    Attributes:
        largest: Most rows of a chunk.
        largest_bytes: Most bytes of a chunk of entries, as Arrow holds them in memory; one row may have more.
        backlog: Most rows of a chunk of due entries.
        apart_from: From here on the keys and the head of a chunk of entries are apart from its body.
        keys_block: Rows of a block of keys (layout).
        rewrite_below: A chunk with fewer rows is written anew when rows are removed,
        rewrite_at_gone: and any chunk when this part of its rows is removed.
        chunks_per_bucket: Number of small chunks from which on those of a bucket are merged.
        growing_memory: A chunk of memory records with fewer rows always takes more.
        index_bucket: About how many ids share a bucket of the index (layout).
        index_stale: With so many rows of chunks that are gone, and a third of the rest, the index is rewritten.
        index_narrow: With at most so many rows a run of the index has positions of three bytes (layout).
    """

    largest: int = 8_192
    largest_bytes: int = 4_000_000
    backlog: int = 1_024
    apart_from: int = 1_024
    keys_block: int = 64
    rewrite_below: int = 64
    rewrite_at_gone: float = 0.25
    chunks_per_bucket: int = 4
    growing_memory: int = 1_024
    index_bucket: int = 24
    index_stale: int = 4_096
    index_narrow: int = 2**24

    def most(self, low_ms: int, clock_ms: int) -> int:
        """Most rows of a chunk whose earliest entry is due at an instant."""
        return self.backlog if low_ms <= clock_ms else self.largest


SIZES = Sizes()
"""The sizes of this process. Tests replace them by small ones."""
