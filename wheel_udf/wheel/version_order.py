"""The order of versions: ``(seq, op, amend)``, and the commands of a batch sorted by it.

::

    seq  op        amend    rank = 2 * amend + op        order of the versions of an id
     1   SCHEDULE    0      0                            1
     1   SCHEDULE    1      2                            2     an act of the project's own API (move, reroute)
     1   CANCEL      0      1                            3     a CANCEL is above all versions of its seq's SCHEDULE
     2   SCHEDULE    0      0                            4     any later command of the producer

``rank`` is a name for ``(op, amend)``: it is what checkpoints hold. Its order is that of :func:`order_of`.

Commands without a version of their own have Kafka's offset as ``seq``. Offsets of two partitions cannot be
compared; the fold uses the number all the same, and counts the ids for which this happened
(:func:`count_spread`): within a batch, or between a batch and what is pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, repeats
from wheel_udf.shard.rows import FAR, Int64s, partition_texts

Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Objects = npt.NDArray[np.object_]

_TIE_BREAKERS = (
    "code", "seq", "rank", "is_far", "deliver_at_ms", "level_error_ms", "delay_level_ms", "destination", "value", "key",
    "headers", "max_lateness_ms", "repeat", "anchor_ms", "last_ms", "spread_ms", "seq_given", "source",
)  # fmt: skip


@dataclass
class Rows:
    """Commands in (id, version) order: arrays of one length.

    Attributes:
        at: Position of the row in the batch.
        code: Number of its id (of the batch's distinct ids).
        seq: Its ``seq``.
        rank: Its ``amend`` and ``op`` (:func:`rank_of`).
        act: Its ``act``.
    """

    at: Int64s
    code: Int64s
    seq: Int64s
    rank: Int32s
    act: Int8s

    @property
    def op(self) -> Int32s:
        """SCHEDULE or CANCEL."""
        return self.rank & 1

    def where(self, keep: Bools) -> Rows:
        """The rows of a mask."""
        return Rows(self.at[keep], self.code[keep], self.seq[keep], self.rank[keep], self.act[keep])


def rank_of(amend: npt.NDArray[np.integer], op: npt.NDArray[np.integer] | int) -> Int32s:
    """``(op, amend)`` as one number."""
    return np.asarray(2 * amend.astype(np.int32) + op, dtype=np.int32)


def order_of(rank: Int32s) -> Int32s:
    """A number for each rank, in the order of ``(op, amend)``."""
    return np.asarray((rank & 1) << 30 | rank >> 1, dtype=np.int32)


def is_later(left: Sequence[npt.NDArray[np.generic]], right: Sequence[npt.NDArray[np.generic]]) -> Bools:
    """Row by row, whether the tuple on the left is greater than the one on the right."""
    greater: Bools = np.zeros(len(left[0]), bool)
    equal: Bools = np.ones(len(left[0]), bool)
    for a, b in zip(left, right, strict=True):
        greater |= equal & (a > b)  # type: ignore[operator]
        equal &= a == b
    return np.asarray(greater, dtype=np.bool_)


def in_version_order(commands: pa.Table, code: Int64s) -> Rows:
    """Sorts the commands of a batch by (id, version).

    Args:
        commands: ``COMMAND_SCHEMA``, any order.
        code: The number of the id of each command.
    """
    seq, act = commands["seq"].to_numpy(), commands["act"].to_numpy()
    rank = rank_of(commands["amend"].to_numpy(), commands["op"].to_numpy())
    is_far = act == FAR
    order = np.lexsort((is_far, order_of(rank), seq, code))
    again = repeats(code[order], seq[order], rank[order])
    if again.any():
        # Of several copies one is kept. Which one must not depend on the order of arrival: a replay may
        # change it.
        copies = again | np.r_[again[1:], False]
        subset = commands.take(pa.array(order[copies])).append_column("code", pa.array(code[order[copies]]))
        subset = subset.append_column("rank", pa.array(rank[order[copies]]))
        subset = subset.append_column("is_far", pa.array(is_far[order[copies]]))
        by_all = pc.sort_indices(subset, sort_keys=[(key, "ascending") for key in _TIE_BREAKERS])
        order[copies] = order[copies][by_all.to_numpy()]
    return Rows(order.astype(np.int64), code[order], seq[order], rank[order], act[order])


def partitions_of(commands: pa.Table) -> Objects | None:
    """Topic and partition of the commands whose version is their offset (else None); None if there is none."""
    by_offset = pc.and_(pc.is_valid(commands["source"]), pc.invert(commands["seq_given"]))
    by_offset = pc.and_(by_offset, pc.equal(commands["amend"], 0))
    if not pc.any(by_offset).as_py():
        return None
    sources = pc.if_else(by_offset, commands["source"], pa.scalar(None, pa.string()))
    found: Objects = partition_texts(sources).to_numpy(zero_copy_only=False)
    return found


def count_spread(rows: Rows, partitions: Objects, pending_in: Objects) -> int:
    """Counts the ids with rows of several partitions, one after the other or after the pending entry.

    Args:
        rows: All rows of the batch.
        partitions: Topic and partition of each row, in the order of ``rows``.
        pending_in: Topic and partition of the pending entry of each id, by its code.
    """
    before = np.r_[[None], partitions[:-1]]
    starts = ~repeats(rows.code)
    before[starts] = pending_in[rows.code[starts]]
    differs = (before != partitions) & (before != None) & (partitions != None)  # noqa: E711  # element by element
    return len(np.unique(rows.code[differs]))
