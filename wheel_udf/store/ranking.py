"""Ranks versions of ids in Arrow tables, for questions that are answered without a Spark job. The same rules as
expressions of Spark, for the job: :mod:`wheel_udf.store.versions`.

::

    rows of a store --with_version--> those with a version --repeated--> hashes of several --highest--> a row per id
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.shard.rows import FIRE_NOW
from wheel_udf.store.versions import HAS_VERSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_HASHES: Final = 1 << 25
"""So many hashes are sorted at a time, 256 MB; more are cut into ranges, and read once for each."""

_BEST_FIRST: Final = (
    ("id_hash", "ascending"),
    ("schedule_id", "ascending"),
    ("seq", "descending"),
    ("op", "descending"),
    ("amend", "descending"),
    ("occurrence", "ascending"),
    ("deliver_at_ms", "ascending"),
    ("arrived", "ascending"),
)


def with_version(rows: pa.Table) -> pa.Table:
    """The rows of a store (``act``, ``reject``) that have a version of their own."""
    kinds = pa.array(HAS_VERSION, rows.schema.field("act").type)
    return rows.filter(pc.and_(pc.is_in(rows["act"], value_set=kinds), pc.is_null(rows["reject"])))


def fires_of(rows: pa.Table) -> pa.Table:
    """The ids of FIRE_NOWs among near rows, ``schedule_id`` and ``id_hash``, with the highest ``fire_seq`` of each."""
    is_fire = pc.and_(pc.equal(rows["act"], FIRE_NOW), pc.is_null(rows["reject"]))
    found = rows.filter(is_fire).group_by(["schedule_id", "id_hash"]).aggregate([("seq", "max")])
    return found.rename_columns(["schedule_id", "id_hash", "fire_seq"])


def highest(rows: pa.Table) -> pa.Table:
    """The row of the highest version of each id; of copies the one that is due first. Of a series, that of the state,
    which has an ``occurrence``, comes before others.
    """
    if not rows.num_rows:
        return rows
    order = pc.sort_indices(rows, sort_keys=list(_BEST_FIRST))  # nulls at the end
    in_order = rows.take(order)
    ids, before = in_order["schedule_id"].combine_chunks()[1:], in_order["schedule_id"].combine_chunks()[:-1]
    is_first = np.concatenate([[True], pc.not_equal(ids, before).to_numpy(zero_copy_only=False)])
    return in_order.filter(pa.array(is_first))


def repeated_hashes(read: Callable[[], Iterable[NDArray[np.int64]]], rows: int) -> NDArray[np.int64]:
    """The hashes that occur more than once, in order, each once: int64[m].

    Args:
        read: Reads all hashes, int64 in some arrays. It is called once for each :data:`MOST_HASHES` rows.
        rows: About how many there are.
    """
    ranges = max(1, -(-rows // MOST_HASHES))
    bounds = [None, *(-(2**63) + number * 2**64 // ranges for number in range(1, ranges)), None]
    return np.concatenate([repeated(_between(part, *ends) for part in read()) for ends in pairwise(bounds)])


def _between(hashes: NDArray[np.int64], begin: int | None, end: int | None) -> NDArray[np.int64]:
    if begin is not None:
        hashes = hashes[hashes >= begin]
    return hashes if end is None else hashes[hashes < end]


def repeated(hashes: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The values that occur more than once in some arrays, which are joined: in order, each once, int64[m]."""
    in_order = np.concatenate([np.empty(0, np.int64), *hashes])
    in_order.sort()
    return np.unique(in_order[1:][in_order[1:] == in_order[:-1]])


def is_among(hashes: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of some values is one of others, bool[n].

    Args:
        hashes: int64[n].
        known: In order, int64[m].
    """
    if not len(known):
        return np.zeros(len(hashes), bool)
    at = np.searchsorted(known, hashes)
    found: NDArray[np.bool_] = known[np.minimum(at, len(known) - 1)] == hashes
    return found
