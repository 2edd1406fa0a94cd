"""One operation per id at a time: decides which of several operations with the same id counts, and when that can be
decided.

::

    memory 5      a at 0, expires at 10     its id is taken in [0, 15)
    a at 12       a duplicate, in whichever batch it comes
    a at 20       a new operation. But while the clock has not passed 10, the first one may still be extended to 15 or
                  later, and then this one is a duplicate. Until that is decided it is held.

The earliest operation of an id, by (event time, deadline, content), counts. If it arrives after a later one
that is still open, it replaces that one, unless it is late. Any other is a duplicate if it begins while the
id is taken: until the end of the operation plus `memory`, of a join or a heartbeat until the end of its rest.
Times alone decide, so it does not matter which batch brings which row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s, repeats
from wheel_udf.purgatory.generations import remembered_until, rested_until
from wheel_udf.purgatory.operations import offsets_of
from wheel_udf.purgatory.outcomes import Resolved
from wheel_udf.purgatory.state import CLAIM_SCHEMA, NEVER, OPERATION_SCHEMA, hashes_of, named
from wheel_udf.shard.rows import without

_MIX = 0x9E3779B97F4A7C15


def claims_of(requests: pa.Table) -> pa.Table:
    """New operations (``REQUEST_SCHEMA``) as ``CLAIM_SCHEMA``."""
    requests = requests.combine_chunks()
    keys = requests["keys"].combine_chunks()
    groups = requests["group"].combine_chunks().take(pc.list_parent_indices(keys))
    key_hashes = pa.array(hashes_of(named(groups, keys.flatten())))
    columns = [
        *requests.columns,
        pa.array(hashes_of(named(requests["group"], requests["op_id"]))),
        pa.ListArray.from_arrays(pa.array(offsets_of(keys), pa.int32()), key_hashes),
    ]
    return pa.table(columns, schema=CLAIM_SCHEMA)


def opened_at_first(claims: pa.Table, lookback_ms: int) -> pa.Table:
    """Claims as newly opened operations, ``OPERATION_SCHEMA``."""
    claims = claims.combine_chunks()
    size = claims.num_rows
    event_time, deadline, limit = (
        claims[name].fill_null(0).to_numpy() for name in ("event_time_ms", "deadline_ms", "limit_ms")
    )
    offsets = offsets_of(claims["keys"].combine_chunks())
    never = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.full(offsets[-1], NEVER)))
    columns = {
        **{name: claims[name] for name in CLAIM_SCHEMA.names},
        "from_ms": event_time - lookback_ms,
        "delay_ms": deadline - event_time,
        "limit_delay_ms": np.where(claims["limit_ms"].is_null(), 0, limit - event_time),
        "since_ms": event_time - 1,
        "generation": np.ones(size, np.int32),
        "total": np.zeros(size),
        "crossed_at_ms": np.full(size, NEVER),
        "crossed_by": np.zeros(size, np.int32),
        "cancel_at_ms": np.full(size, NEVER),
        "done_at_ms": never,
        "key_cancel_at_ms": never,
        "look_at_ms": deadline,
    }
    return pa.table([columns[name] for name in OPERATION_SCHEMA.names], schema=OPERATION_SCHEMA)


def displaced(opened: pa.Table, claims: pa.Table, standing_ms: int | None) -> tuple[pa.Table, pa.Table]:
    """Turns open operations back into claims if an earlier operation of their id has come in time.

    Args:
        opened: Open operations, ``OPERATION_SCHEMA``.
        claims: ``CLAIM_SCHEMA``.
        standing_ms: The clock of the last step. What was decided by then stays decided.

    Returns:
        The operations that stay open, and the claims including those of the displaced operations.
    """
    asking, holding = _same_id(claims, opened)
    new_time, new_deadline = _order_of(claims, asking)
    old_time, old_deadline = _order_of(opened, holding)
    earlier = (new_time < old_time) | ((new_time == old_time) & (new_deadline < old_deadline))
    tied = np.flatnonzero((new_time == old_time) & (new_deadline == old_deadline))
    if len(tied):
        new, old = (
            content_of(table.take(pa.array(rows[tied])))
            for table, rows in ((claims, asking), (opened, holding))
        )
        earlier[tied] = new < old
    in_time = standing_ms is None or new_time >= standing_ms
    moved = np.unique(holding[earlier & in_time & (old_time != NEVER)])
    if not len(moved):
        return opened, claims
    again = opened.take(pa.array(moved)).select(CLAIM_SCHEMA.names)
    return without(opened, moved), pa.concat_tables([claims, again])


def earliest(claims: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The earliest claim of each id, and the others."""
    hashes = claims["op_hash"].to_numpy()
    if len(np.unique(hashes)) == len(hashes):
        return claims, claims.slice(0, 0)
    code = pc.dictionary_encode(named(claims["group"], claims["op_id"]).combine_chunks()).indices.to_numpy()
    times = _order_of(claims, np.arange(len(code)))
    order = np.lexsort((content_of(claims), *reversed(times), code))
    later = repeats(code[order])
    first, others = (claims.take(pa.array(np.sort(order[which]))) for which in (~later, later))
    return first, others


def content_of(claims: pa.Table) -> Int64s:
    """A hash of everything in an operation but its id and its times.

    It decides between two operations that differ in nothing else, so that the order of arrival does not.
    """
    columns = [
        pc.binary_join(claims["keys"].combine_chunks(), "\0"),
        *(claims[name].cast(pa.string()) for name in ("need", "threshold", "limit_ms")),
        *(claims[name] for name in ("destination", "key", "value", "headers")),
    ]
    total = np.zeros(claims.num_rows, np.uint64)
    for column in columns:
        known = column.is_valid().to_numpy(zero_copy_only=False)
        hashes = hashes_of(column.fill_null("")).view(np.uint64)
        total = total * np.uint64(_MIX) + hashes * np.uint64(2) + known
    return total.view(np.int64)


def contested(
    claims: pa.Table, settled: Resolved, clock_ms: int, memory_ms: int | None
) -> tuple[pa.Table, pa.Table, int]:
    """Sorts claims by whether their id is free.

    Args:
        claims: ``CLAIM_SCHEMA``.
        settled: The result of settling the operations at this clock.
        clock_ms: The clock.
        memory_ms: How long an id stays taken after its end; ``None`` for ever.

    Returns:
        The claims that may begin, those for which it is not known yet, and the number of duplicates.
    """
    taken_until = np.full(claims.num_rows, -1 - NEVER)
    known: Bools = np.ones(claims.num_rows, bool)
    open_until = remembered_until(np.full(settled.waiting.num_rows, clock_ms), memory_ms)
    resting_until = rested_until(settled.resting["from_ms"].to_numpy(), memory_ms)
    for table, until_ms in ((settled.waiting, open_until), (settled.resting, resting_until)):
        asking, holding = _same_id(claims, table)
        taken_until[asking] = until_ms[holding]
        known[asking] = False
    asking, until_ms = _ended(claims, settled.ended, memory_ms)
    taken_until[asking] = until_ms
    repeated = claims["event_time_ms"].to_numpy() <= taken_until
    free, held = (claims.filter(pa.array(~repeated & which)) for which in (known, ~known))
    return free, held, int(repeated.sum())


def not_taken(claims: pa.Table, ended: pa.Table, memory_ms: int | None) -> pa.Table:
    """The claims on ids that are not among the ended (``ENDED_SCHEMA``), or are free again."""
    asking, until_ms = _ended(claims, ended, memory_ms)
    return without(claims, asking[claims["event_time_ms"].to_numpy()[asking] <= until_ms])


def _ended(claims: pa.Table, ended: pa.Table, memory_ms: int | None) -> tuple[Int64s, Int64s]:
    """The claims on ended ids, as places, and until when each id is taken (by its last end)."""
    asking, holding = _same_id(claims, ended := ended.sort_by([("at_ms", "descending")]))
    at_ms = ended["at_ms"].to_numpy()[holding]
    return asking, remembered_until(at_ms, memory_ms)


def _order_of(table: pa.Table, rows: Int64s) -> tuple[Int64s, Int64s]:
    time, deadline = (table[name].to_numpy()[rows] for name in ("event_time_ms", "deadline_ms"))
    return time, deadline


def _same_id(claims: pa.Table, others: pa.Table) -> tuple[Int64s, Int64s]:
    """The claims whose id is among `others`, and the first row of that id there; both as places."""
    none = np.zeros(0, np.int64)
    if not claims.num_rows or not others.num_rows:
        return none, none
    maybe = pc.is_in(claims["op_hash"], value_set=others["op_hash"].combine_chunks()).to_numpy()
    asking = np.flatnonzero(maybe)
    if not len(asking):
        return none, none
    rows = claims.take(pa.array(asking))
    names = named(others["group"], others["op_id"]).combine_chunks()
    at = pc.index_in(named(rows["group"], rows["op_id"]), value_set=names)
    found = at.is_valid().to_numpy()
    return asking[found], at.drop_null().to_numpy().astype(np.int64)
