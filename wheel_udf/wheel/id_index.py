"""The index of ids: in which chunks of a shard an id may be, so that a command opens those alone.

An id is known by the upper 32 bits of a hash. The index is a few *runs*, each a sorted list of (hash, chunk), cut into
buckets of about :data:`_BUCKET_ROWS` by the leading bits of the hash. A look-up reads one bucket of each run::

    run of 8 rows, 4 buckets        offsets   0     2     5     5     8
                                    bucket    00..  01..  10..  11..
    entries, 5 bytes each           hash      0a 3f 41 52 6e    c1 d0 f7       24 bits: the first 8 follow from the bucket
                                    chunk      2  0  0  1  0     1  1  2       place in the run's list of chunk numbers

    "a" -> hash 52.. -> bucket 01 -> chunk 1, which is opened and compared text by text

A batch appends a run with the ids of the chunks that it has made. Runs are merged like the chunks of a bucket: when one is
less than twice as long as the next one. A merge leaves out rows of chunks that are gone, and so does a rewrite of all runs
when a third of the rows are of such chunks.

The index may name a chunk that does not hold the id: because hashes collide (at a million ids for one look-up in 4,000),
because the row was removed, or because the chunk is gone. The chunk decides. It never leaves out a chunk that does: a run of another hash
function (:func:`check`) is not read, and its chunks count as unknown.

Cost, measured with a million ids (CPU): one id 0.2 ms in one run and 0.6 ms in six, 1,000 ids 3 ms and 7 ms. A row is merged O(log rows)
times, 0.1 us each. Memory: 7 characters an id, and at most a third as much again for what is stale.

Lost against it: sorted hashes in each chunk, 17 ms for one id and 22 ms for 1,000, because all hashes are decoded from base64. Bloom filters
would be read whole, too, and with 10 bits an id name one chunk in a hundred in vain, of 125 for each id; they were not built.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from wheel_udf.common import repeats
from wheel_udf.wheel.chunks import UNNUMBERED, Chunk, Span, text_of
from wheel_udf.wheel.merging import to_merge
from wheel_udf.wheel.rows import Int64s

INDEX_LEVEL: Final = -100
"""The ``level`` of the runs of the index among the chunks of a shard."""

INDEX_BYTES: Final = 7
"""Characters of the index for each id, in base64."""

Hashes = npt.NDArray[np.uint32]
Octets = npt.NDArray[np.uint8]

_BUCKET_ROWS = 24
_FEWEST_BITS = 8
_ENTRY_BYTES, _OFFSET_BYTES = 5, 4
_STALE = 4 / 3
_FEW_ROWS = 4_096
_MOST_CHUNKS = 2**16
_NONE = np.zeros(0, np.int64)


def hashes_of(ids: pa.ChunkedArray) -> Hashes:
    """32 bits of a hash of each id."""
    texts = ids.to_numpy().astype(object)
    wide = np.asarray(pd.util.hash_array(texts, categorize=False), dtype=np.uint64)
    return np.asarray(wide >> np.uint64(32), dtype=np.uint32)


def check() -> int:
    """A number that tells the hash function from another one; the ``group`` of each run."""
    return int(hashes_of(pa.chunked_array([pa.array(["wheel_udf"])]))[0])


@dataclass(frozen=True)
class Places:
    """In which chunks the ids of a batch may be.

    Attributes:
        count: Number of ids.
        codes: For the number of a chunk, the positions of the ids that may be in it; a chunk with none is left out.
    """

    count: int
    codes: Mapping[int, Int64s]

    def of(self, chunk: Chunk) -> Int64s:
        """The positions of the ids that may be in a chunk: all, if no index knows it."""
        return self.codes.get(chunk.number, _NONE) if chunk.is_known else np.arange(self.count)


def places_of(runs: Sequence[Chunk], ids: pa.Array) -> Places:
    """Looks ids up in the index of a shard.

    Args:
        runs: The index.
        ids: Distinct ids.
    """
    if not runs or not len(ids):
        return Places(len(ids), {})
    hashes = hashes_of(pa.chunked_array([ids]))
    found = [_Run(run).found(hashes) for run in runs]
    codes, numbers = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((codes, numbers))
    codes, numbers = codes[order], numbers[order]
    once = ~repeats(codes, numbers)
    codes, numbers = codes[once], numbers[once]
    starts = np.flatnonzero(~repeats(numbers))
    parts = np.split(codes, starts[1:])
    return Places(len(ids), dict(zip(numbers[starts].tolist(), parts, strict=False)))


def trusted(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The chunks of a shard; without an index, and all unknown, if the index was made with another hash function."""
    runs = [chunk for chunk in chunks if chunk.level == INDEX_LEVEL]
    if not runs or all(run.group == check() for run in runs):
        return tuple(chunks)
    return tuple(replace(chunk, number=UNNUMBERED) for chunk in chunks if chunk.level != INDEX_LEVEL)


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
    stored = sum(chunk.stored for chunk in known)
    stale = not known or sum(run.rows for run in runs) > _STALE * stored + _FEW_ROWS
    tail = len(runs) if stale else to_merge([run.rows for run in reversed(runs)])
    if stale or tail > 1:
        alive = np.array([chunk.number for chunk in known], np.int64)
        runs = [*runs[: len(runs) - tail], *_merged(runs[len(runs) - tail :], alive)]
    return known, list(runs)


def _run_of(chunks: Sequence[Chunk], first: int) -> Chunk:
    """The run of new chunks, which get the numbers from ``first`` on."""
    ids = [chunk.table("schedule_id")["schedule_id"] if chunk.ids is None else chunk.ids for chunk in chunks]
    refs = np.repeat(np.arange(len(chunks)), [len(each) for each in ids])
    hashes = hashes_of(pa.chunked_array([part for each in ids for part in each.chunks], pa.string()))
    return _encoded(hashes, refs, np.arange(first, first + len(chunks)))


def _merged(runs: Sequence[Chunk], alive: Int64s) -> list[Chunk]:
    """One run of the rows of several runs whose chunks are still there; none if there are no such rows."""
    opened = [_Run(run) for run in runs]
    numbers = np.intersect1d(np.concatenate([_NONE, *(run.numbers for run in opened)]), alive)
    hashes, refs = [np.zeros(0, np.uint32)], [_NONE]
    for run in opened:
        of_run, ref = run.rows()
        left = np.isin(run.numbers, numbers)[ref]
        hashes.append(of_run[left])
        refs.append(np.searchsorted(numbers, run.numbers)[ref[left]])
    if not sum(map(len, hashes)):
        return []
    return [_encoded(np.concatenate(hashes), np.concatenate(refs), numbers)]


def _bits_of(rows: int) -> int:
    """How many leading bits of a hash are the bucket, in a run of so many rows."""
    return max(_FEWEST_BITS, (rows // _BUCKET_ROWS).bit_length())


def _encoded(hashes: Hashes, refs: Int64s, numbers: Int64s) -> Chunk:
    """A run.

    Args:
        hashes: Of each row.
        refs: Place of its chunk in ``numbers``.
        numbers: Numbers of chunks.
    """
    assert len(numbers) <= _MOST_CHUNKS, "a shard has some thousand chunks"
    order = np.argsort(hashes, kind="stable")
    hashes, refs, size = hashes[order], refs[order], len(hashes)
    bits = _bits_of(size)
    offsets = np.searchsorted(hashes, np.arange(2**bits, dtype=np.uint64) << np.uint64(32 - bits))
    entries = np.zeros((_rounded(size), _ENTRY_BYTES), np.uint8)
    entries[:size, :3] = hashes.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    entries[:size, 3:] = refs.astype("<u2").view(np.uint8).reshape(-1, 2)
    bounds = np.full(_rounded(2**bits + 1), size, "<u4")
    bounds[: 2**bits] = offsets
    head = text_of(numbers.astype("<i8").tobytes())
    text = head + text_of(bounds.tobytes()) + text_of(entries.tobytes())
    return Chunk(INDEX_LEVEL, check(), size, 0, 0, Span.of(text), int(numbers[-1]) + 1, len(head))


class _Run:
    """A run, of which parts are decoded."""

    def __init__(self, run: Chunk) -> None:
        self.size, self.bits = run.rows, _bits_of(run.rows)
        self.text, start, _ = run.span
        self.numbers: Int64s = np.frombuffer(binascii.a2b_base64(self.text[start : start + run.head]), "<i8")
        self.bounds = start + run.head
        self.entries = self.bounds + _rounded(2**self.bits + 1) // 3 * 4 * _OFFSET_BYTES

    def found(self, hashes: Hashes) -> tuple[Int64s, Int64s]:
        """The positions of the hashes that occur, and the numbers of the chunks."""
        bucket = (hashes >> np.uint32(32 - self.bits)).astype(np.int64)
        bounds = self._records(self.bounds, _OFFSET_BYTES, 2**self.bits + 1, bucket, bucket + 2)
        start, end = bounds.view("<u4").reshape(-1, 2).T.astype(np.int64)
        low, ref = _split(self._records(self.entries, _ENTRY_BYTES, self.size, start, end))
        code = np.repeat(np.arange(len(hashes)), end - start)
        same = np.flatnonzero(low == (hashes & np.uint32(2**24 - 1))[code])
        return code[same], self.numbers[ref[same]]

    def rows(self) -> tuple[Hashes, Int64s]:
        """The hashes of all rows, and the places of their chunks in :attr:`numbers`."""
        buckets, first = 2**self.bits, np.zeros(1, np.int64)
        bounds = self._records(self.bounds, _OFFSET_BYTES, buckets + 1, first, first + buckets + 1)
        low, ref = _split(self._records(self.entries, _ENTRY_BYTES, self.size, first, first + self.size))
        bucket = np.repeat(np.arange(buckets, dtype=np.uint32), np.diff(bounds.view("<u4").ravel()))
        return (bucket >> np.uint32(self.bits - _FEWEST_BITS)) << np.uint32(24) | low, ref

    def _records(self, at: int, width: int, size: int, starts: Int64s, ends: Int64s) -> Octets:
        """Records of a fixed width, from places ``starts`` to ``ends``, one window after the other.

        Three records are a whole number of groups of base64, so windows are cut from the text at multiples of three.
        """
        lengths = ends - starts
        firsts, lasts = starts // 3 * 3, _rounded(ends)
        if 2 * lengths.sum() >= size:
            firsts, lasts = np.zeros(1, np.int64), np.full(1, _rounded(size))
            begins = starts
        else:
            begins = np.cumsum(lasts - firsts) - lasts + starts
        cuts = [at + bounds // 3 * 4 * width for bounds in (firsts, lasts)]
        # A slice for each command and run, 0.2 us: numpy cannot read the characters of a text in place.
        text = "".join([self.text[a:b] for a, b in zip(*(cut.tolist() for cut in cuts), strict=True)])
        records = np.frombuffer(binascii.a2b_base64(text), np.uint8).reshape(-1, width)
        places = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        return np.asarray(records[places], dtype=np.uint8)


def _split(entries: Octets) -> tuple[Hashes, Int64s]:
    """The lower 24 bits of the hashes, and the places of the chunks."""
    octets = entries.astype(np.int64)
    low = octets[:, 0] | octets[:, 1] << 8 | octets[:, 2] << 16
    return np.asarray(low, dtype=np.uint32), np.asarray(octets[:, 3] | octets[:, 4] << 8, dtype=np.int64)


def _rounded(size: Any) -> Any:
    """The next multiple of three."""
    return -(-size // 3) * 3
