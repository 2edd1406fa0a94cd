"""Back-pressure: how many entries may be pending, and which new entries are refused beyond that.

Three bounds on pending entries: in all, for one destination, and in one due slot (a tick of level 1 of the
wheel; the bound of RocketMQ's timer, ``timerCongestNumEachSlot``, where a slot is a second). A new entry
needs room under each. Without room it is a reject::

    held, in one slot   0 ............ soft * limit ............ limit
    a new entry is      admitted       refused more and more     refused
                                       (chance 0 -> 1)

The soft zone is RocketMQ's, too: it leaves room for entries that come later, and it slows producers early.
The chance is computed from the id and the version, so a repeated batch refuses the same rows. ``soft`` is 1
by default: no zone.

No room is needed for a CANCEL, a version that replaces a waiting one (also one for another destination), and
an entry that is already due. Due entries leave with the batch and take no room, unless the bound on the rows
of a batch keeps some back. So after a batch a limit can be exceeded in one case only: by entries that were
due on arrival and were kept back by that bound (also if a later version has given them a new due time).

New entries are admitted in the order of (seq, schedule_id). The bounds apply one after the other: first those of
the slots, then those of the destinations to the entries that are left, then that of all entries. Within one
batch, an entry that its destination refuses has still taken a place in its slot. So at times a few entries
more than necessary are refused, and never too many are admitted.

Cost: nothing without limits. With limits, in each batch with new entries, one pass over the due times (and
destinations) of what the shard holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s, before_in_run
from wheel_udf.wheel.policies import Verdict

BOUNDS = ("per_slot", "per_destination", "pending")
"""The bounds, in the order in which they are applied."""

_ENOUGH_BITS = 2.0**64


def share_of(whole: int, shard: int, shards: int) -> int:
    """One shard's part of a number: the parts of all shards add up to the whole."""
    return whole // shards + (shard < whole % shards)


@dataclass(frozen=True)
class Limits:
    """Bounds on waiting entries; None is no bound.

    Attributes:
        pending: In all.
        per_destination: For one destination.
        per_slot: In one due slot.
        soft: Share of each bound at which the soft zone begins, above 0 and at most 1 (no zone).
    """

    pending: int | None = None
    per_destination: int | None = None
    per_slot: int | None = None
    soft: float = 1.0

    @property
    def bounds(self) -> dict[str, int]:
        """The bounds that are set, by name, in the order in which they are applied."""
        return {bound: most for bound in BOUNDS if (most := getattr(self, bound)) is not None}

    def __bool__(self) -> bool:
        return bool(self.bounds)

    def share(self, shard: int, shards: int) -> Limits:
        """One shard's part."""
        return replace(self, **{bound: share_of(most, shard, shards) for bound, most in self.bounds.items()})


@dataclass(frozen=True)
class Held:
    """What waits already, without the entries that leave with this batch.

    Attributes:
        count: How many entries.
        counts: Counts by group: takes a bound and the keys of groups (see :func:`keys_of`), returns int64 of
            the same length. Called only for bounds that are set.
    """

    count: int
    counts: Callable[[str, pa.Array], Int64s]


def code_of(bound: str) -> str:
    """The code of rejects that a bound refuses."""
    return f"limit_{bound}"


def reason(limits: Limits, bound: str, shards: int = 1) -> str:
    """The reason of a reject, as JSON: which limit refused the command."""
    shared = "" if shards == 1 else f", shared by {shards} shards"
    zone = "" if limits.soft == 1 else f" (from {limits.soft:.0%} of it on, some are refused)"
    limit = f"limits.{bound} = {getattr(limits, bound)}{shared}{zone}"
    message = f"no room: {limit}; {_MEANING[bound]}; hint: send it again later"
    return json.dumps({"error_code": code_of(bound), "error_message": message})


_MEANING = {
    "pending": "rule: at most so many entries wait",
    "per_destination": "rule: at most so many entries wait for one destination",
    "per_slot": "rule: at most so many entries are due in one tick of the wheel",
}


def judge(limits: Limits, held: Held, new: pa.Table, tick_ms: int) -> Verdict:
    """Decides which new entries find room.

    Args:
        limits: The bounds.
        held: What waits already.
        new: Entries with ``schedule_id``, ``seq``, ``destination`` and ``deliver_at_ms``.
        tick_ms: Width of a due slot.
    """
    refused_by = np.full(new.num_rows, -1, np.int8)
    asked: dict[str, tuple[Int64s, Int64s, Int64s]] = {}
    if not (limits and new.num_rows):
        return Verdict(refused_by, {})
    first = pc.sort_indices(new, sort_keys=[("seq", "ascending"), ("schedule_id", "ascending")]).to_numpy()
    chance = _chance(new) if limits.soft < 1 else None
    for bound, most in limits.bounds.items():
        candidates = first[refused_by[first] < 0]
        if not len(candidates):
            break
        group, before = _groups(bound, new.take(pa.array(candidates)), held, tick_ms)
        over = _over(most, limits.soft, group, before, None if chance is None else chance[candidates])
        refused_by[candidates[over]] = BOUNDS.index(bound)
        asked[bound] = candidates, group, before
    return Verdict(refused_by, {bound: _fullest(refused_by, *groups) for bound, groups in asked.items()})


def _fullest(refused_by: npt.NDArray[np.int8], candidates: Int64s, group: Int64s, before: Int64s) -> int:
    admitted = group[refused_by[candidates] < 0]
    return int((before + np.bincount(admitted, minlength=len(before))).max())


def keys_of(bound: str, entries: pa.Table, tick_ms: int) -> pa.Array:
    """The key by which a bound groups entries: their destination, or the number of their due slot."""
    if bound == "per_destination":
        return entries["destination"].combine_chunks()
    return pa.array(np.floor_divide(entries["deliver_at_ms"].to_numpy(), tick_ms))


def _groups(bound: str, new: pa.Table, held: Held, tick_ms: int) -> tuple[Int64s, Int64s]:
    """The number of the group of each new entry, and how many entries each group holds already."""
    if bound == "pending":
        return np.zeros(new.num_rows, np.int64), np.array([held.count], np.int64)
    keys = keys_of(bound, new, tick_ms)
    names = pc.unique(keys)
    return pc.index_in(keys, value_set=names).to_numpy().astype(np.int64), held.counts(bound, names)


def counted(keys: pa.Array, names: pa.Array) -> Int64s:
    """How often each of the names occurs among the keys."""
    found = pc.index_in(keys, value_set=names).drop_null().to_numpy()
    return np.bincount(found, minlength=len(names)).astype(np.int64)


def _over(
    most: int, soft: float, group: Int64s, before: Int64s, chance: npt.NDArray[np.float64] | None
) -> Bools:
    """Whether each entry, in the order given, finds its group full (or is refused in its soft zone)."""
    over: Bools = np.zeros(len(group), bool)
    if chance is not None:
        over = chance < _refusing(most, soft, before[group], _rank(group, ~over))
    rank = _rank(group, ~over)
    return np.asarray(over | (before[group] + rank >= most), dtype=np.bool_)


def _refusing(most: int, soft: float, before: Int64s, rank: Int64s) -> npt.NDArray[np.float64]:
    """The chance of being refused.

    With ``c`` held, an entry in the zone from ``s`` to ``h`` is refused with the chance (c - s) / (h - s). Of
    one after the other only the admitted raise ``c``: dc/dn = 1 - (c - s) / (h - s), so the distance from
    ``h`` shrinks by exp(-n / (h - s)).
    """
    start = soft * most
    zone = max(most - start, 1e-9)
    in_zone = rank - np.maximum(start - before, 0)
    left = np.clip(most - np.maximum(before, start), 0, None) / zone
    return np.where(in_zone < 0, 0.0, 1 - left * np.exp(-np.maximum(in_zone, 0) / zone))


def _rank(group: Int64s, counted: Bools) -> Int64s:
    """For each entry, how many counted ones of its group stand before it."""
    order = np.argsort(group, kind="stable")
    rank = np.empty(len(group), np.int64)
    rank[order] = before_in_run(counted[order], group[order])
    return rank


def _chance(entries: pa.Table) -> npt.NDArray[np.float64]:
    """A number from 0 to 1 for each entry, computed from its id and version."""
    ids: Any = pd.util.hash_array(
        entries["schedule_id"].to_numpy(zero_copy_only=False).astype(object), categorize=False
    )
    versions: Any = pd.util.hash_array(entries["seq"].to_numpy())
    mixed: Any = pd.util.hash_array(np.bitwise_xor(ids, versions))
    return np.asarray(mixed / _ENOUGH_BITS, dtype=np.float64)
