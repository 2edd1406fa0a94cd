"""Search for hashes that occur more than once. Versions are compared only for such ids, and a store has few of them.

Spark's own aggregation sends each hash through a shuffle as a row and keeps a hash table. Here a task sorts its hashes
and sends them in bulk::

    scan task     sorts its hashes, cuts them into ranges      one row per range: its number, and the hashes as bytes
    range task    joins the hashes of one range, sorts them    equal neighbours are hashes that occur more than once

The result is exact. Cost: O(rows), 8 bytes per row in the shuffle, about 24 bytes per row of a range in the memory of
a Python worker.

This module is imported on executors: numpy and pyarrow only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from wheel_udf.spark.partitions import by_number

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

_ROWS_PER_RANGE: Final = 4_000_000
_LEAST, _COUNT = -(2**63), 2**64


def repeated_hashes(hashes: DataFrame, about: int) -> DataFrame:
    """Returns the hashes that occur more than once, each once.

    Args:
        hashes: A column ``id_hash``, long; nulls are ignored.
        about: About how many rows, by which the number of ranges is chosen.
    """
    ranges = max(2, -(-about // _ROWS_PER_RANGE))
    cut = hashes.where("id_hash IS NOT NULL").mapInArrow(
        partial(hashes_in_ranges, ranges=ranges), "range int, hashes binary"
    )
    return by_number(cut, ranges, "range").mapInArrow(repeated_in_range, "id_hash long")


def hashes_in_ranges(batches: Iterable[pa.RecordBatch], *, ranges: int) -> Iterator[pa.RecordBatch]:
    """Cuts the hashes of a task into ranges, one batch for each."""
    parts = [batch.column(0).to_numpy() for batch in batches]
    for number, hashes in enumerate(cut(np.concatenate(parts), ranges) if parts else ()):
        columns = [pa.array([number], pa.int32()), pa.array([hashes.tobytes()], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, ["range", "hashes"])


def repeated_in_range(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The hashes of a range, or of several, that are there twice."""
    parts = [
        np.frombuffer(part.as_buffer(), np.int64)
        for batch in batches
        for part in batch.column(1)
        if part.is_valid
    ]
    if parts:
        yield pa.RecordBatch.from_arrays([pa.array(repeated(np.concatenate(parts)))], ["id_hash"])


def cut(hashes: NDArray[np.int64], ranges: int) -> list[NDArray[np.int64]]:
    """Sorts hashes and cuts them into ranges of equal width over all of int64.

    Args:
        hashes: int64[n].
        ranges: Number of ranges, at least 1.

    Returns:
        The sorted hashes of each range.
    """
    bounds = [_LEAST + number * _COUNT // ranges for number in range(1, ranges)]
    in_order = np.sort(hashes)
    return np.split(in_order, np.searchsorted(in_order, np.array(bounds, np.int64)))


def repeated(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the values that occur more than once, in order, each once: int64[m]."""
    in_order = np.sort(hashes)
    again = in_order[1:][in_order[1:] == in_order[:-1]]
    return np.unique(again)
