"""The index of ids: finds the chunk and the row of a shard that may hold an id, so that a command reads that row alone.

An id is known by the upper 32 bits of a hash. The index is a few *runs*, each a sorted list of (hash, position), cut
into buckets of about 24 by the leading bits of the hash. A look-up reads one bucket of each run::

    run of 8 rows, 4 buckets        offsets   0     2     5     5     8
                                    bucket    00..  01..  10..  11..
    entries, 6 bytes each           hash      0a 3f 41 52 6e    c1 d0 f7     24 bits: the first 8 follow from the bucket
                                    position   7  1  0  4  2     3  5  6     of all rows of the chunks (6 bytes if many)

    chunks of the run               number     9  12  13     with 3, 3 and 2 rows: begin at positions 0, 3 and 6

    "a" -> hash 52.. -> bucket 01 -> position 4 -> chunk 12, row 1, which is opened and compared text by text

Offsets and entries are records of three bytes or a multiple, in base64. So each begins with a character, and some are
read without the others.

A row keeps its place in its chunk when other rows are removed. A batch appends a run with the ids of the chunks that it
has made. Runs are merged like the chunks of a bucket: when one is less than twice as long as the next one. A merge
leaves out rows of chunks that are gone, and so does a rewrite of all runs when a third of the rows are of such chunks.

The index may name a row that does not hold the id: because hashes collide (at a million ids for one look-up in 4,000),
because the row was removed, or because the chunk is gone. The chunk decides. It never leaves out a row that does: an
index of another hash function (:func:`check`) is made anew from the chunks.

Cost: one bucket of each run for each id; a batch with as many ids as a run has buckets reads the whole run. A row is
merged O(log rows) times. Memory: 8 characters an id, and at most a third as much again for stale rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from wheel_udf.common.arrays import repeats, runs_of
from wheel_udf.shard import chunk_sizes
from wheel_udf.shard.arrow_text import base64_of, octets_of
from wheel_udf.shard.chunk_store import Span
from wheel_udf.shard.chunks import UNNUMBERED, Chunk
from wheel_udf.shard.merging import to_merge
from wheel_udf.shard.rows import Int64s

INDEX_LEVEL: Final = -101
"""The ``level`` of the runs of the index among the chunks of a shard."""

INDEX_BYTES: Final = 8
"""Characters of the index for each id, in base64."""

Hashes = npt.NDArray[np.uint32]
Octets = npt.NDArray[np.uint8]

_FEWEST_BITS = 8
_HASH_BYTES, _OFFSET_BYTES = 3, 6
_STALE = 4 / 3
_MOST_POSITIONS = 2**32
_NONE = np.zeros(0, np.int64)

Places = Mapping[int, tuple[Int64s, Int64s]]
"""By number of a chunk with ids: their positions, in order, and the row (of all stored rows) where each may be."""


def hashes_of(ids: pa.ChunkedArray) -> Hashes:
    """32 bits of a hash of each id."""
    texts = ids.to_numpy().astype(object)
    wide = np.asarray(pd.util.hash_array(texts, categorize=False), dtype=np.uint64)
    return np.asarray(wide >> np.uint64(32), dtype=np.uint32)


def check() -> int:
    """A number that identifies the hash function; the ``group`` of each run."""
    return int(hashes_of(pa.chunked_array([pa.array(["wheel_udf"])]))[0])


def places_of(runs: Sequence[Chunk], ids: pa.Array) -> Places:
    """Looks ids up in the index of a shard.

    Args:
        runs: The index.
        ids: Distinct ids.
    """
    if not runs or not len(ids):
        return {}
    hashes = hashes_of(pa.chunked_array([ids]))
    by_hash = np.argsort(hashes)
    hashes = hashes[by_hash]
    found = [IndexRun(run).found(hashes) for run in runs]
    codes, numbers, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    codes = by_hash[codes]
    order = np.lexsort((codes, numbers))
    codes, numbers, rows = codes[order], numbers[order], rows[order]
    starts = np.flatnonzero(~repeats(numbers))
    pairs = zip(np.split(codes, starts[1:]), np.split(rows, starts[1:]), strict=True)
    return dict(zip(numbers[starts].tolist(), pairs, strict=False))


def trusted(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The chunks of a shard; with a new index, if theirs is of another hash function."""
    if all(run.group == check() for run in chunks if run.level == INDEX_LEVEL):
        return tuple(chunks)
    of_rows = [chunk for chunk in chunks if chunk.level != INDEX_LEVEL]
    unknown = [replace(chunk, number=UNNUMBERED) for chunk in of_rows if chunk.is_known]
    known, runs = indexed(unknown, [])
    return (*known, *(chunk for chunk in of_rows if not chunk.is_known), *runs)


def indexed(chunks: Sequence[Chunk], runs: Sequence[Chunk]) -> tuple[list[Chunk], list[Chunk]]:
    """Numbers the chunks that are new, and adds their ids to the index.

    Args:
        chunks: All chunks of the next state that hold ids.
        runs: The index of the last state.

    Returns:
        The chunks, all of them known to the index, and the index.
    """
    # Runs are numbered, too: so a number comes back only when no run is left that may name it.
    first = 1 + max((chunk.number for chunk in (*chunks, *runs)), default=-1)
    added = [chunk for chunk in chunks if not chunk.is_known]
    numbers = iter(range(first, first + len(added)))
    known = [chunk if chunk.is_known else replace(chunk, number=next(numbers)) for chunk in chunks]
    if added:
        runs = [*runs, _run_of(added, first)]
    stored = sum(chunk.encoded_rows for chunk in known)
    stale = not known or sum(run.rows for run in runs) > _STALE * stored + chunk_sizes.SIZES.index_stale
    tail = len(runs) if stale else to_merge([run.rows for run in reversed(runs)])
    if stale or tail > 1:
        alive = np.array([chunk.number for chunk in known], np.int64)
        runs = [*runs[: len(runs) - tail], *_merged(runs[len(runs) - tail :], alive)]
    return known, list(runs)


def _run_of(chunks: Sequence[Chunk], first: int) -> Chunk:
    """The run of new chunks, which get the numbers from ``first`` on."""
    ids = [chunk.table("schedule_id")["schedule_id"] if chunk.ids is None else chunk.ids for chunk in chunks]
    hashes = hashes_of(pa.chunked_array([part for each in ids for part in each.chunks], pa.string()))
    sizes = np.array([chunk.encoded_rows for chunk in chunks], np.int64)
    stays = np.ones(sizes.sum(), bool)
    for chunk, start in zip(chunks, _starts_of(sizes).tolist(), strict=True):
        if chunk.gone:
            stays[start + chunk.gone_rows()] = False
    return _encoded(hashes, np.flatnonzero(stays), np.arange(first, first + len(chunks)), sizes)


def _merged(runs: Sequence[Chunk], alive: Int64s) -> list[Chunk]:
    """One run of the rows of several runs whose chunks are still there; none if there are no such rows."""
    opened = [IndexRun(run) for run in runs]
    numbers, sizes = (
        np.concatenate([_NONE, *parts])
        for parts in ([run.numbers for run in opened], [run.sizes for run in opened])
    )
    # A chunk is in one run alone.
    order = np.argsort(numbers)
    order = order[np.isin(numbers[order], alive)]
    numbers, sizes = numbers[order], sizes[order]
    hashes, positions, starts = [np.zeros(0, np.uint32)], [_NONE], _starts_of(sizes)
    for run in opened:
        of_run, position = run.rows()
        is_alive, place = np.isin(run.numbers, numbers), np.searchsorted(numbers, run.numbers)
        by = np.zeros(len(run.numbers), np.int64)
        by[is_alive] = starts[place[is_alive]] - run.starts[is_alive]
        moved = np.arange(run.sizes.sum()) + np.repeat(by, run.sizes)
        if not is_alive.all():
            left = np.repeat(is_alive, run.sizes)[position]
            of_run, position = of_run[left], position[left]
        hashes.append(of_run)
        positions.append(moved[position])
    if not sum(map(len, hashes)):
        return []
    return [_encoded(np.concatenate(hashes), np.concatenate(positions), numbers, sizes, are_sorted=True)]


def _starts_of(sizes: Int64s) -> Int64s:
    """The position of the first row of each chunk."""
    return np.asarray(np.cumsum(sizes) - sizes, dtype=np.int64)


def _bits_of(rows: int) -> int:
    """How many leading bits of a hash are the bucket, in a run of so many rows."""
    return max(_FEWEST_BITS, (rows // chunk_sizes.SIZES.index_bucket).bit_length())


def _position_bytes(rows: int) -> int:
    """Bytes of a position among so many rows."""
    return 3 if rows <= chunk_sizes.SIZES.index_narrow else 6


def _encoded(
    hashes: Hashes, positions: Int64s, numbers: Int64s, sizes: Int64s, *, are_sorted: bool = False
) -> Chunk:
    """A run.

    Args:
        hashes: Of each row.
        positions: Of each row among all rows of the chunks.
        numbers: Numbers of the chunks.
        sizes: Their rows.
        are_sorted: Whether the hashes are some sorted lists, one after the other.
    """
    assert sizes.sum() <= _MOST_POSITIONS, "a shard has some million rows"
    # As one number each, they are sorted faster. Timsort, which is called "stable" here, merges parts that are sorted.
    rows = hashes.astype(np.uint64) << np.uint64(32) | positions.astype(np.uint64)
    rows.sort(kind="stable" if are_sorted else None)
    hashes, size = (rows >> np.uint64(32)).astype(np.uint32), len(rows)
    bits, more = _bits_of(size), _position_bytes(sizes.sum())
    offsets = np.searchsorted(hashes, np.arange(2**bits, dtype=np.uint64) << np.uint64(32 - bits))
    entries = np.hstack([_octets(hashes, _HASH_BYTES), _octets(rows & np.uint64(2**32 - 1), more)])
    bounds = _octets(np.append(offsets, size), _OFFSET_BYTES)
    head = base64_of(np.concatenate([numbers, sizes]).astype("<i8").tobytes())
    text = head + base64_of(bounds.tobytes()) + base64_of(entries.tobytes())
    return Chunk(INDEX_LEVEL, check(), size, 0, 0, Span.of(text), int(numbers[-1]) + 1, len(head))


def _octets(values: npt.NDArray[Any], width: int) -> Octets:
    """The lowest bytes of numbers: uint8[n, width]."""
    return values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]


def _numbers(octets: Octets) -> Int64s:
    """The inverse of :func:`_octets`."""
    wide = np.zeros((len(octets), 8), np.uint8)
    wide[:, : octets.shape[1]] = octets
    return wide.view("<i8").ravel()


class IndexRun:
    """A run, of which parts are decoded."""

    def __init__(self, run: Chunk) -> None:
        self.size, self.bits = run.rows, _bits_of(run.rows)
        self.text, start, _ = run.span
        head = np.frombuffer(octets_of(self.text[start : start + run.head]), "<i8")
        self.numbers: Int64s
        self.sizes: Int64s
        self.numbers, self.sizes = head.reshape(2, -1)
        self.starts = _starts_of(self.sizes)
        self.width = _HASH_BYTES + _position_bytes(self.sizes.sum())
        self.bounds = start + run.head
        self.entries = self.bounds + (2**self.bits + 1) * _OFFSET_BYTES // 3 * 4

    def found(self, hashes: Hashes) -> tuple[Int64s, Int64s, Int64s]:
        """The places of the hashes (in order) that occur, the numbers of the chunks, and the rows."""
        # With an id for each bucket, most of the buckets would be read, and some of them often.
        code, position = self._among_all(hashes) if len(hashes) >= 2**self.bits else self._in_buckets(hashes)
        ref = np.searchsorted(self.starts, position, side="right") - 1
        return code, self.numbers[ref], position - self.starts[ref]

    def _among_all(self, hashes: Hashes) -> tuple[Int64s, Int64s]:
        """The places of the hashes that occur, and the positions: all rows are read."""
        of_run, position = self.rows()
        start, end = (np.searchsorted(of_run, hashes, side=side) for side in ("left", "right"))
        return np.repeat(np.arange(len(hashes)), end - start), position[runs_of(start, end - start)]

    def _in_buckets(self, hashes: Hashes) -> tuple[Int64s, Int64s]:
        """As :meth:`_among_all`: the bucket of each hash is read."""
        bucket = (hashes >> np.uint32(32 - self.bits)).astype(np.int64)
        start, end = self._offsets(bucket, bucket + 2).reshape(-1, 2).T
        low, position = self._entries(start, end)
        code = np.repeat(np.arange(len(hashes)), end - start)
        same = np.flatnonzero(low == (hashes & np.uint32(2**24 - 1))[code])
        return code[same], position[same]

    def rows(self) -> tuple[Hashes, Int64s]:
        """The hashes and the positions of all rows."""
        buckets, first = 2**self.bits, np.zeros(1, np.int64)
        sizes = np.diff(self._offsets(first, first + buckets + 1))
        low, position = self._entries(first, first + self.size)
        bucket = np.repeat(np.arange(buckets, dtype=np.uint32), sizes)
        return (bucket >> np.uint32(self.bits - _FEWEST_BITS)) << np.uint32(24) | low, position

    def _offsets(self, starts: Int64s, ends: Int64s) -> Int64s:
        return _numbers(self._records(self.bounds, _OFFSET_BYTES, starts, ends))

    def _entries(self, starts: Int64s, ends: Int64s) -> tuple[Hashes, Int64s]:
        """The lower 24 bits of the hashes, and the positions."""
        both = self._records(self.entries, self.width, starts, ends)
        return _numbers(both[:, :_HASH_BYTES]).astype(np.uint32), _numbers(both[:, _HASH_BYTES:])

    def _records(self, at: int, width: int, starts: Int64s, ends: Int64s) -> Octets:
        """Reads runs of records, one after the other: uint8[n, width]."""
        cuts = [(at + bounds * width // 3 * 4).tolist() for bounds in (starts, ends)]
        # A slice for each run: numpy cannot read the characters of a text in place.
        parts = "".join([self.text[a:b] for a, b in zip(*cuts, strict=True)])
        return np.frombuffer(octets_of(parts), np.uint8).reshape(-1, width)
