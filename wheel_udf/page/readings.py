"""Readings: each reads one kind of figures of a job, with Spark or from its files, and returns them as a small
dictionary.

::

    reading    from                              exact                                   cost
    wheel      the state of all shards           yes, after the last committed batch     O(entries in the state)
    store      the log of the slot store         counts replaced, cancelled entries      O(changes since the last one)
    exact      store and state                   yes                                     O(rows of the store)
    batches    the batch log                     yes                                     the lines of the last hour
    rejects    the table of the rejects          yes                                     one column of the table
    acts       the record of acts                yes                                     small

The two that may read millions of entries (wheel, exact) are made again only if a batch was committed, the store has
changed, or an act was made, since the last one; otherwise their figures are still those of the moment.

Nothing is drawn here: :mod:`wheel_udf.page.reader` decides when a reading is made again, :mod:`wheel_udf.page.views`
what is shown.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.checkpoint.act_files import acts_made
from wheel_udf.checkpoint.identity import identity_of, require_checkpoint
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.spark_logs import committed_offsets, last_committed
from wheel_udf.common.errors import LeaseError
from wheel_udf.common.outcomes import WATCH_COUNTS, WHEEL_COUNTS
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.metrics.batch_log import read_batches
from wheel_udf.page.hour import hour_of
from wheel_udf.page.shard_next import (
    MOST_NEXT,
    NEXT_SCHEMA,
    SHARD_SCHEMA,
    entries_of_shard,
    operations_of_shard,
)
from wheel_udf.page.shard_sums import EDGES_MS, HELD, PAUSED, RESTING
from wheel_udf.page.subject import Subject
from wheel_udf.pending import acts
from wheel_udf.pending.entries import pending
from wheel_udf.pending.state import from_state, heads_of
from wheel_udf.sinks.catalog_sink import CatalogTableSink
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.store.layout import INBOX, MARKS, NEAR
from wheel_udf.store.slot_store import SlotStore

Reading = Callable[[], dict[str, Any]]

HOUR_MS: Final = 3_600_000
_SAMPLES: Final = 40
_LONGEST_TEXT: Final = 2_000
"""Characters of a message or a record that a sample shows."""
_MOST_ACTS: Final = 100


def readings_of(subject: Subject) -> dict[str, Reading]:
    """Returns the readings that a job has, by name."""
    chosen: dict[str, Callable[[Subject], dict[str, Any]]] = {
        "wheel": unless_unchanged(read_wheel, lambda subject: (_runs(subject), *_state_of(subject))),
        "batches": read_hour,
        "rejects": read_rejects,
        "acts": read_acts,
    }
    if subject.is_tiered:
        chosen |= {"store": read_store, "exact": unless_unchanged(read_exact, _work_of)}
    return {name: partial(read, subject) for name, read in chosen.items()}


def unless_unchanged(
    read: Callable[[Subject], dict[str, Any]], version_of: Callable[[Subject], Any]
) -> Callable[[Subject], dict[str, Any]]:
    """Returns a reading that keeps its result as long as what it reads has the same version.

    Args:
        read: The reading.
        version_of: Returns the version: cheap, and read before the reading, so that a change during it is noticed.
    """
    kept: list[Any] = []

    def read_if_changed(subject: Subject) -> dict[str, Any]:
        version = version_of(subject)
        if not kept or kept[0] != version:
            kept[:] = [version, read(subject)]
        result: dict[str, Any] = kept[1]
        return result

    return read_if_changed


def _state_of(subject: Subject) -> tuple[Any, ...]:
    """The version of the state: the checkpoint, and the offsets after its last committed batch."""
    require_checkpoint(subject.query)
    return identity_of(subject.query).app_id, last_committed(subject.query), committed_offsets(subject.query)


def _work_of(subject: Subject) -> Any:
    """The version of store and state together, with the acts that the store does not have yet."""
    return _store_of(subject).head().version, acts_made(subject.query), *_state_of(subject)


def read_wheel(subject: Subject) -> dict[str, Any]:
    """Reads what Spark's state holds.

    Returns:
        ``runs`` (whether the job does), ``clock_ms``, ``next_due_ms``, ``pending``, ``far`` (what the store holds, as
        far as the shards were informed), ``counts`` by outcome, ``cells`` (level, slot, rows), ``steps`` (destination
        to step to rows), ``resting`` and ``held`` (of a purgatory), ``paused`` (series), ``next`` (the entries of the
        state that are due next, in order: ``schedule_id``, ``due_ms``, ``destination``, ``is_series``).

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    heads = heads_of(subject.spark, subject.query)
    clocks = [head["clock_ms"] for head in heads if head["clock_ms"] is not None]
    dues = [head["next_due_ms"] for head in heads if head["next_due_ms"] is not None]
    counted = WATCH_COUNTS if subject.is_purgatory else WHEEL_COUNTS
    clock_ms = max(clocks, default=None)
    found = {
        "runs": _runs(subject),
        "clock_ms": clock_ms,
        "next_due_ms": min(dues, default=None),
        "pending": sum(head["pending"] for head in heads),
        "far": sum(head.get("far", 0) for head in heads),
        "counts": {name: sum(head[name] for head in heads) for name in counted},
    }
    rows = _rows_of_shards(subject, clock_ms) if clock_ms is not None else []
    sums = by_place(row for row in rows if row["due_ms"] is None)
    return found | sums | {"next": next_due(row for row in rows if row["due_ms"] is not None)}


def by_place(sums: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Adds up rows of :data:`.shard_sums.SUMS_SCHEMA` to ``cells``, ``steps``, ``resting``, ``held`` and ``paused``."""
    places: Counter[tuple[int, int]] = Counter()
    steps: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for row in sums:
        steps[row["destination"] or ""][row["step"]] += row["rows"]
        places[row["level"], row["slot"]] += row["rows"]
    return {
        "cells": [(level, slot, rows) for (level, slot), rows in sorted(places.items()) if level > 0],
        "steps": {name: dict(counts) for name, counts in steps.items()},
        "resting": places[RESTING, 0],
        "held": places[HELD, 0],
        "paused": places[PAUSED, 0],
    }


def next_due(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all shards that are due next, of rows of :data:`.shard_next.NEXT_SCHEMA`."""
    found = heapq.nsmallest(MOST_NEXT, rows, key=lambda row: (row["due_ms"], row["schedule_id"]))
    return [{name: row[name] for name in NEXT_SCHEMA.names} for row in found]


def _rows_of_shards(subject: Subject, clock_ms: int) -> list[dict[str, Any]]:
    read = operations_of_shard if subject.is_purgatory else entries_of_shard
    of_shard = partial(read, geometry=subject.geometry, clock_ms=clock_ms)
    rows = from_state(subject.spark, subject.query, of_shard, SHARD_SCHEMA)
    keys = [name for name in SHARD_SCHEMA.names if name != "rows"]
    return [row.asDict() for row in rows.groupBy(*keys).agg(F.sum("rows").alias("rows")).collect()]


def _runs(subject: Subject) -> bool:
    """Whether a process holds the lease of the query. One on another machine that was killed counts until the next
    start.
    """
    try:
        Lease(subject.query).require_free(waits=False)
    except LeaseError:
        return True
    return False


def read_store(subject: Subject) -> dict[str, Any]:
    """Reads the size of the slot store from its log.

    Returns:
        ``rows`` that wait in it (replaced and cancelled ones count until their window is handed over), of these
        ``inbox`` without a slot; ``windows`` (level, start and end in UTC epoch ms, rows), ``files``, ``bytes``,
        ``cursor_ms``.
    """
    store = _store_of(subject)
    found = store.partitions()
    far = [each for each in found if each.level > NEAR]
    widths = {level: store.layout.width_ms(level) for level in store.layout.far_levels}
    return {
        "rows": sum(each.rows for each in found if each.level not in (NEAR, MARKS)),
        "inbox": sum(each.rows for each in found if each.level == INBOX),
        "windows": [
            (each.level, each.slot * widths[each.level], (each.slot + 1) * widths[each.level], each.rows)
            for each in far
        ],
        "files": sum(each.files for each in found),
        "bytes": sum(each.bytes for each in found),
        "cursor_ms": store.head().cursor_ms,
    }


def _store_of(subject: Subject) -> SlotStore:
    store = subject.open_work().store
    assert store is not None, "of a tiered job"
    return store


def read_exact(subject: Subject) -> dict[str, Any]:
    """Counts what is pending near and far, exactly.

    Returns:
        ``rows``, ``clock_ms`` of the wheel, and ``steps`` (destination to step to rows).
    """
    heads = heads_of(subject.spark, subject.query)
    clock_ms = max((head["clock_ms"] for head in heads if head["clock_ms"] is not None), default=None)
    rows = pending(subject.spark, subject.open_work())
    ahead_ms = F.unix_millis("scheduled_at") - F.lit(wall_clock_ms() if clock_ms is None else clock_ms)
    counted = rows.groupBy("destination", step_column(ahead_ms).alias("step")).count().collect()
    steps: dict[str, dict[int, int]] = {}
    for row in counted:
        steps.setdefault(row.destination or "", {})[row.step] = row["count"]
    return {"rows": sum(row["count"] for row in counted), "clock_ms": clock_ms, "steps": steps}


def step_column(ahead_ms: Column) -> Column:
    """The step of a distance from the clock, as a Spark expression: the number of edges (``EDGES_MS``) below it; -1 for
    null, of a paused series.
    """
    edges = F.array(*(F.lit(edge).cast("long") for edge in EDGES_MS))
    step = F.size(F.filter(edges, lambda edge: edge < ahead_ms))
    return F.when(ahead_ms.isNull(), F.lit(-1)).otherwise(step)


def read_hour(subject: Subject) -> dict[str, Any]:
    """Reads the batch log: minutes of the last hour, and totals (:func:`~wheel_udf.page.hour.hour_of`)."""
    now_ms = wall_clock_ms()
    return hour_of(read_batches(subject.checkpoint, now_ms - HOUR_MS), now_ms)


def read_rejects(subject: Subject) -> dict[str, Any]:
    """Counts the rejects by code, and reads the latest of them.

    Returns:
        ``codes`` (code to rows, the most first) and ``samples`` (the latest first); or ``elsewhere``, if the rejects
        are in no table.
    """
    sink = subject.rejects
    if not isinstance(sink, DeltaSink | CatalogTableSink):
        return {"codes": {}, "samples": [], "elsewhere": type(sink).__name__.removesuffix("Sink").lower()}
    table = next(iter(sink.tables(subject.spark, None)), None)
    if table is None:
        return {"codes": {}, "samples": []}
    rows = sink.rows(subject.spark, table)
    codes = rows.groupBy("error_code").count().orderBy(F.desc("count"), "error_code").collect()
    return {
        "codes": {row.error_code: row["count"] for row in codes},
        "samples": [row.asDict() for row in _latest(rows).collect()],
    }


def _latest(rows: DataFrame) -> DataFrame:
    texts = [
        F.substring(name, 1, _LONGEST_TEXT).alias(name) for name in ("error_message", "record", "source")
    ]
    payload = F.substring("value", 1, _LONGEST_TEXT).alias("value")
    at_ms, size = F.unix_millis("rejected_at").alias("at_ms"), F.octet_length("value").alias("value_bytes")
    shown = rows.select("error_code", "schedule_id", "destination", at_ms, payload, size, *texts)
    return shown.orderBy(F.desc("at_ms"), "schedule_id").limit(_SAMPLES)


def read_acts(subject: Subject) -> dict[str, Any]:
    """Reads the record of acts: ``acts``, the latest first."""
    work = subject.open_work()
    rows = acts.audit(subject.spark, work.query)
    at_ms = F.unix_millis("at").alias("at_ms")
    found = rows.select("act", "by", "picked", "change", "rows", at_ms, "batch").orderBy(F.desc("at_ms"))
    return {"acts": [row.asDict() for row in found.limit(_MOST_ACTS).collect()]}
