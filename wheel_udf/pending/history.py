"""Collects everything that is known of one id: whether and when it fired, why not, and through which levels it passes.

Nothing is stored for this purpose. The answer is put together from these sources, each of which keeps its part for a limited time::

    source                          what it contains                                              how long it is kept
    slot store (tiered)             each version that came, also those that lost                  far versions until their due time has passed;
                                                                                                  near ones until their window is retired
    state                           the entry that waits; what is remembered of an ended id       until it fires; ``memory``
    tables of the destinations      when it fired, how late                                       as long as the tables are kept
    table of the rejects            why a command was refused, or the entry missed                the same
    the geometry                    the levels it passes, and when                                always

Caveats: Kafka topics and files are not searched. The levels are computed from the wheel's rule, from the version's event time on; a clock that
jumps skips the levels in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Row, SparkSession, functions as F

from wheel_udf.delivery import DeltaSink, Destinations, Sink, duration_text
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.pending.state import clock_of, remembered
from wheel_udf.platform import delta_log as tables, open_folder
from wheel_udf.store import INBOX, id_hash, is_far
from wheel_udf.wheel import (
    CANCEL,
    COMMAND,
    ENDED,
    FAR,
    FIRED,
    GONE_CANCELLED,
    GONE_DUPLICATE,
    GONE_SUPERSEDED,
    IN_STORE,
    MOVED,
    WAITING,
    Wheel,
    level_name,
    path_of,
)

_SAID_BY_STORE: Final = {
    MOVED: "handed over to the near side",
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


@dataclass(frozen=True)
class Event:
    """One fact about an id.

    Attributes:
        at_ms: When it happened (UTC epoch ms); None if that is not recorded.
        what: What happened.
        seq: The version concerned; None if the fact concerns no version.
        amend: Number of acts on that version.
        deliver_at_ms: The requested due time of the version.
        destination: The destination of the version.
        detail: Further information.
    """

    at_ms: int | None
    what: str
    seq: int | None = None
    amend: int | None = None
    deliver_at_ms: int | None = None
    destination: str | None = None
    detail: str | None = None


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
    events: list[Event] = []
    if work.store is not None:
        events += _in_store(work, schedule_id, geometry)
    events += _waiting(spark, work, schedule_id, geometry)
    events += _in_memory(spark, work, schedule_id)
    places = sorted(set(_tables_of(spark, destinations)) if destinations is not None else ())
    for place in places:
        events += _fired(spark, place, schedule_id)
    if isinstance(rejects, DeltaSink):
        events += _rejected(spark, rejects.path, schedule_id)
    return sorted(events, key=lambda event: (event.at_ms is None, event.at_ms or 0, event.seq or 0))


def _in_store(work: PendingWork, schedule_id: str, geometry: Wheel) -> Iterator[Event]:
    assert work.store is not None, "tiered mode"
    rows = work.store.rows().where(F.col("id_hash") == id_hash(F.lit(schedule_id)))
    names = ("level", "slot", "act", "op", "seq", "amend", "deliver_at_ms", "destination", "event_time_ms")
    asked_ms = F.col("deliver_at_ms") - F.coalesce("level_error_ms", F.lit(0))
    columns = (*names, "delay_level_ms", asked_ms.alias("asked_ms"))
    found = rows.where((F.col("schedule_id") == schedule_id) & F.col("reject").isNull()).select(*columns)
    for row in found.collect():
        if row.act == FAR:
            continue  # only repeats the version of an entry that has a row of its own
        about = (row.seq, row.amend or None, row.asked_ms, row.destination)
        if row.act != COMMAND:
            yield Event(None, _SAID_BY_STORE[row.act], *about)
        elif row.op == CANCEL:
            yield Event(row.event_time_ms, "CANCEL" + _by_act(row), *about)
        elif row.deliver_at_ms is not None:
            yield Event(row.event_time_ms, "SCHEDULE" + _by_act(row), *about, _place(row) + _level(row))
            if row.event_time_ms is not None:
                yield from _way(geometry, row.seq, row.deliver_at_ms, row.event_time_ms)


def _way(geometry: Wheel, seq: int, due_ms: int, from_ms: int) -> Iterator[Event]:
    for level, slot, at_ms in path_of(geometry, due_ms, from_ms):
        yield Event(at_ms, "on a level of the wheel", seq=seq, detail=f"level {level}, slot {slot}")


def _by_act(row: Row) -> str:
    return " by an act" if row.event_time_ms is None else ""


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
    named = rows.select("seq", "amend", *instants, "destination", "place", "delay_level_ms")
    for row in named.collect():
        about = (row.seq, row.amend or None, row.deliver_at, row.destination)
        yield Event(row.scheduled_at, "will fire", *about, f"pending in the {row.place}" + _level(row))
        clock_ms = clock_of(spark, work.query) if work.store is None else None
        if clock_ms is not None:
            yield from _way(geometry, row.seq, row.scheduled_at, clock_ms)


def _in_memory(spark: SparkSession, work: PendingWork, schedule_id: str) -> Iterator[Event]:
    for row in remembered(spark, work.query).where(F.col("schedule_id") == schedule_id).collect():
        yield Event(
            row.ended_at_ms,
            _REMEMBERED[row.status],
            seq=row.seq,
            amend=row["rank"] // 2 or None,
            deliver_at_ms=row.deliver_at_ms,
        )


def _tables_of(spark: SparkSession, destinations: Destinations) -> Iterator[str]:
    """Yields the existing tables of the destinations."""
    for _, sink in destinations:
        if isinstance(sink, DeltaSink):
            for name in open_folder(sink.path).names():
                if destinations.resolve(name) == sink and tables.has_log(spark, f"{sink.path}/{name}"):
                    yield f"{sink.path}/{name}"


def _fired(spark: SparkSession, place: str, schedule_id: str) -> Iterator[Event]:
    for row in _of_table(spark, place, schedule_id, "fired_at", "lateness_ms", "fire_id"):
        detail = f"{duration_text(row.lateness_ms)} after due, fire_id {row.fire_id}"
        yield Event(row.at, "fired", row.seq, None, row.due, row.destination, detail)


def _rejected(spark: SparkSession, place: str, schedule_id: str) -> Iterator[Event]:
    if not tables.has_log(spark, place):
        return
    for row in _of_table(spark, place, schedule_id, "rejected_at", "error_code", "error_message"):
        what = "missed" if row.error_code == "missed" else f"rejected: {row.error_code}"
        yield Event(row.at, what, row.seq, None, row.due, row.destination, row.error_message)


def _of_table(spark: SparkSession, place: str, schedule_id: str, at: str, *more: str) -> list[Row]:
    """Returns the rows of an id: ``seq``, ``destination``, ``due`` and ``at`` in ms, and the columns `more`."""
    rows = spark.read.format("delta").load(place).where(F.col("schedule_id") == schedule_id)
    instants = (F.unix_millis(column).alias(name) for column, name in (("deliver_at", "due"), (at, "at")))
    return rows.select("seq", "destination", *instants, *more).collect()
