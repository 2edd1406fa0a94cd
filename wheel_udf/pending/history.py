"""Collects everything that is known of one id: whether and when it fired, why not, and through which levels it passes.

Nothing is stored for this purpose. The answer is put together from these sources, each of which keeps its part for a
limited time::

    source                content                                            kept
    slot store (tiered)   each version that came, also replaced ones         far versions until their due time,
                                                                             near ones until their window is retired
    state                 the pending entry; the record of an ended id       until it fires; ``memory``
    destinations, tables  when it fired, how late                            as long as the tables
    destinations, topics  the same                                           as long as the records of the topics
    rejects               why a command was refused, or the entry missed     the same
    records of acts       who moved, rerouted or cancelled it, when, by      always
                          which act
    the geometry          the levels it passes, and when                     always

Caveats: files are not searched, and topics are read whole. The levels are computed from the wheel's rule, from the
version's event time (of an act: its clock) up to the moment when a higher version came; a clock that jumps skips the
levels in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from wheel_udf.checkpoint.act_files import acts_of
from wheel_udf.commands.delay_levels import level_name
from wheel_udf.common.geometry import Wheel, path_of
from wheel_udf.delivery.progress import duration_text
from wheel_udf.pending.acts_on_store import rows_not_taken
from wheel_udf.pending.audit import Act, act_of, act_of_file
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.pending.in_topics import Event, fired_to_topics, rejected_to_topic
from wheel_udf.pending.state import clock_of, remembered
from wheel_udf.shard.rows import (
    ACTED,
    CANCEL,
    COMMAND,
    FAR,
    FIRE_NOW,
    GONE_CANCELLED,
    GONE_DUPLICATE,
    GONE_SUPERSEDED,
    MOVED,
    PAUSED_MS,
    RETRY,
    filled,
)
from wheel_udf.sinks.catalog_sink import CatalogTableSink
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations, Sink
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.store.layout import INBOX, is_far
from wheel_udf.store.scan import ROW_SCHEMA, Scan
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.wheel.acted import ACT_SCHEMA, acts_of_texts
from wheel_udf.wheel.known import ENDED, FIRED, IN_STORE, WAITING

_COMMANDS: Final = (COMMAND, MOVED, ACTED)
_STORE_EVENTS: Final = {
    MOVED: "handed over to the near side",
    FIRE_NOW: "FIRE_NOW",
    RETRY: "given back by a consumer",
    GONE_CANCELLED: "ended in the store: cancelled",
    GONE_SUPERSEDED: "ended in the store: superseded",
    GONE_DUPLICATE: "ended in the store: a duplicate",
}
_REMEMBERED: Final = {
    WAITING: "remembered: a CANCEL that has ended nothing yet",
    IN_STORE: "remembered: this version waits, or waited, in the store",
    ENDED: "remembered: ended without firing",
    FIRED: "remembered: fired",
}


def history_of(
    spark: SparkSession,
    work: PendingWork,
    schedule_id: str,
    *,
    geometry: Wheel,
    destinations: Destinations | None = None,
    rejects: Sink | None = None,
) -> list[Event]:
    """Returns everything that is known of an id.

    Args:
        spark: A session.
        work: Where pending entries are.
        schedule_id: The id.
        geometry: The wheel's geometry.
        destinations: Where rows of the id may have been delivered.
        rejects: Where rejects are written.

    Returns:
        The facts, ordered by time; facts without a recorded time come last. Empty if nothing is known.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    require_jvm(spark, "history_of()")
    events: list[Event] = []
    if work.store is not None:
        events += _in_store(work.store, work.query, schedule_id, geometry)
    else:
        events += _acts_on_state(work.query, schedule_id)
    events += _waiting(spark, work, schedule_id, geometry)
    events += _in_memory(spark, work, schedule_id)
    for table in written_tables(spark, destinations):
        events += _fired(table, schedule_id)
    events += fired_to_topics(spark, destinations, schedule_id)
    events += rejected_to_table(spark, rejects, schedule_id)
    if isinstance(rejects, KafkaSink):
        events += rejected_to_topic(spark, rejects, schedule_id)
    return sorted(events, key=lambda event: (event.at_ms is None, event.at_ms or 0, event.seq or 0))


def _in_store(store: SlotStore, checkpoint: str, schedule_id: str, geometry: Wheel) -> Iterator[Event]:
    rows = _rows_of(store, checkpoint, schedule_id)
    acts = dict(enumerate(act_of_file(noted) for noted, _ in acts_of(checkpoint)))
    for row in rows:
        about = (row.seq, row.amend or None, row.asked_ms, row.destination)
        if row.act not in _COMMANDS:
            yield Event(row.event_time_ms, _STORE_EVENTS[row.act], *about)
            continue
        number = act_of(row.arrived)
        act = None if number is None else acts.get(number)
        if row.op == CANCEL:
            yield _command("CANCEL", row, act, *about)
        elif row.repeat is not None:
            yield _command("SCHEDULE", row, act, *about)
        elif row.deliver_at_ms is not None:
            yield _command("SCHEDULE", row, act, *about, _place(row) + _level(row))
            if row.act == MOVED:
                yield Event(None, _STORE_EVENTS[MOVED], *about)
            if row.event_time_ms is not None:
                yield from _way(
                    geometry, row.seq, row.deliver_at_ms, row.event_time_ms, _beaten_ms(row, rows)
                )


def _acts_on_state(checkpoint: str, schedule_id: str) -> Iterator[Event]:
    for noted, rows in acts_of(checkpoint):
        table = acts_of_texts(list(rows.values()), ACT_SCHEMA)
        record = act_of_file(noted)
        for row in table.filter(pc.equal(table["schedule_id"], schedule_id)).to_pylist():
            due_ms = row["deliver_at_ms"]
            asked_ms = None if due_ms in (None, PAUSED_MS) else due_ms - (row["level_error_ms"] or 0)
            about = (row["seq"], row["amend"] or None, asked_ms, row["destination"])
            event = Event(record.at_ms, "CANCEL" if row["op"] == CANCEL else "SCHEDULE", *about)
            yield replace(event, by=record.by, act=f"{record.act} {record.change}".strip())


def _rows_of(store: SlotStore, checkpoint: str, schedule_id: str) -> list[Row]:
    """Returns the rows of an id but FAR ones, which only repeat the version of an entry that has a row of its own. The
    rows of acts that the store does not have yet are among them.
    """
    contents = store.contents()
    found = [Scan(store.path, contents.files).of_ids([schedule_id])]
    acts = rows_not_taken(store, contents.head, checkpoint)
    if acts is not None:
        found.append(filled(acts.where(F.col("schedule_id") == schedule_id).toArrow(), ROW_SCHEMA))
    rows = pa.concat_tables(found)
    rows = rows.filter(pc.and_(pc.is_null(rows["reject"]), pc.not_equal(rows["act"], FAR)))
    asked_ms = pc.subtract(rows["deliver_at_ms"], pc.fill_null(rows["level_error_ms"], 0))
    slim = rows.drop_columns(["key", "value", "headers"]).append_column("asked_ms", asked_ms)
    return [Row(**row) for row in slim.to_pylist()]


def _command(what: str, row: Row, act: Act | None, *about: Any) -> Event:
    # An entry that was imported has no event time, either.
    unknown = row.event_time_ms is None and (row.op == CANCEL or bool(row.amend))
    by_act = act is None and (act_of(row.arrived) is not None or unknown)
    event = Event(row.event_time_ms, what + (" by an act" if by_act else ""), *about)
    if act is None:
        return event
    return replace(event, by=act.by, act=f"{act.act} {act.change}".strip(), acted_at_ms=act.at_ms)


def _beaten_ms(row: Row, rows: list[Row]) -> int | None:
    """When a higher version replaced or cancelled a row; None if no one did, or it is not recorded."""
    own = _version(row)
    later = [each.event_time_ms for each in rows if each.act in _COMMANDS and _version(each) > own]
    return min((at_ms for at_ms in later if at_ms is not None), default=None)


def _version(row: Row) -> tuple[int, int, int]:
    return row.seq, row.op or 0, row.amend or 0


def _way(
    geometry: Wheel, seq: int, due_ms: int, from_ms: int, until_ms: int | None = None
) -> Iterator[Event]:
    """Yields the levels that an entry passes, up to the moment when it was replaced or cancelled."""
    for level, slot, at_ms in path_of(geometry, due_ms, from_ms):
        if until_ms is None or at_ms < max(until_ms, from_ms + 1):
            yield Event(at_ms, "on a level of the wheel", seq=seq, detail=f"level {level}, slot {slot}")


def _level(row: Row) -> str:
    return "" if row.delay_level_ms is None else f", delay level {level_name(row.delay_level_ms)}"


def _place(row: Row) -> str:
    if row.level == INBOX:
        return "in the store's inbox"
    return (
        f"in the store, level {row.level}, partition {row.slot}" if is_far(row.level) else "on the near side"
    )


def _waiting(spark: SparkSession, work: PendingWork, schedule_id: str, geometry: Wheel) -> Iterator[Event]:
    rows = pending(spark, work, ids=[schedule_id])
    instants = (F.unix_millis(name).alias(name) for name in ("deliver_at", "scheduled_at"))
    named = rows.select("seq", "amend", *instants, "destination", "place", "delay_level_ms", "paused")
    for row in named.collect():
        about = (row.seq, row.amend or None, row.deliver_at, row.destination)
        if row.paused:
            yield Event(None, "paused", *about, f"pending in the {row.place}")
            continue
        yield Event(row.scheduled_at, "will fire", *about, f"pending in the {row.place}" + _level(row))
        clock_ms = clock_of(spark, work.query) if work.store is None else None
        if clock_ms is not None:
            yield from _way(geometry, row.seq, row.scheduled_at, clock_ms)


def _in_memory(spark: SparkSession, work: PendingWork, schedule_id: str) -> Iterator[Event]:
    for row in remembered(spark, work.query, ids=[schedule_id]).collect():
        yield Event(
            row.ended_at_ms,
            _REMEMBERED[row.status],
            seq=row.seq,
            amend=row["rank"] // 2 or None,
            deliver_at_ms=row.deliver_at_ms,
        )


def written_tables(spark: SparkSession, destinations: Destinations | None) -> list[DataFrame]:
    """The rows of each existing table of the destinations."""
    found: dict[str, DataFrame] = {}
    if destinations is None:
        return []
    for pattern, sink in destinations:
        if isinstance(sink, DeltaSink | CatalogTableSink):
            for table in sink.tables(spark, pattern):
                if (
                    isinstance(sink, CatalogTableSink)
                    or destinations.resolve(table.rpartition("/")[2]) == sink
                ):
                    found.setdefault(table, sink.rows(spark, table))
    return [found[table] for table in sorted(found)]


def _fired(table: DataFrame, schedule_id: str) -> Iterator[Event]:
    for row in _of_table(table, schedule_id, "fired_at", "lateness_ms", "fire_id"):
        detail = f"{duration_text(row.lateness_ms)} after due, fire_id {row.fire_id}"
        yield Event(row.at, "fired", row.seq, None, row.due, row.destination, detail)


def rejected_to_table(spark: SparkSession, rejects: Sink | None, schedule_id: str) -> Iterator[Event]:
    """Yields the rejects of an id that are in a table."""
    if not isinstance(rejects, DeltaSink | CatalogTableSink):
        return
    for table in rejects.tables(spark, None):
        for row in _of_table(
            rejects.rows(spark, table), schedule_id, "rejected_at", "error_code", "error_message"
        ):
            what = "missed" if row.error_code == "missed" else f"rejected: {row.error_code}"
            yield Event(row.at, what, row.seq, None, row.due, row.destination, row.error_message)


def _of_table(table: DataFrame, schedule_id: str, at: str, *more: str) -> list[Row]:
    """Returns the rows of an id: ``seq``, ``destination``, ``due`` and ``at`` in ms, and the columns `more`."""
    rows = table.where(F.col("schedule_id") == schedule_id)
    instants = (F.unix_millis(column).alias(name) for column, name in (("deliver_at", "due"), (at, "at")))
    return rows.select("seq", "destination", *instants, *more).collect()
