"""What became of an id: why it fired or not, when, and through which levels.

Nothing is kept for this question alone; it is answered from what is there, and says so where that is no longer everything::

    where                           what it tells                                                 for how long
    slot store (tiered)             each version that came, also those that lost                  until a far version's time has come and gone;
                                                                                                  near ones until their window is retired
    state                           the entry that waits; what an ended id is remembered for      until it fires; ``memory``
    tables of the destinations      when it fired, how late                                       as long as the tables are kept
    table of the rejects            why a command was refused, or the entry missed                the same
    the geometry                    through which levels it comes down, and when

Caveats: rows in Kafka topics and files are not looked at. The way down is what the wheel's rule gives for a version from its event time on: a clock that
jumps skips the levels in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from wheel_udf import tables
from wheel_udf.delta_sink import DeltaSink
from wheel_udf.destinations import Destinations, Sink
from wheel_udf.files import open_folder
from wheel_udf.fold import ENDED, FIRED, IN_STORE, WAITING
from wheel_udf.geometry import Wheel as Geometry
from wheel_udf.geometry import path_of
from wheel_udf.levels import level_name
from wheel_udf.metrics import duration_text
from wheel_udf.pending import Wheel, clock_of, pending, remembered
from wheel_udf.state import CANCEL, COMMAND, FAR, GONE_CANCELLED, GONE_DUPLICATE, GONE_SUPERSEDED, MOVED
from wheel_udf.store_intake import id_hash
from wheel_udf.store_layout import INBOX, is_far

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
    """One thing that is known of an id.

    Attributes:
        at_ms: When (UTC epoch ms); None where that is not on record.
        what: What happened.
        seq: Version it is about; None where it is about none.
        amend: Count of acts on that version.
        deliver_at_ms: Its due time, as it was asked for.
        destination: Its destination.
        detail: More about it.
    """

    at_ms: int | None
    what: str
    seq: int | None = None
    amend: int | None = None
    deliver_at_ms: int | None = None
    destination: str | None = None
    detail: str | None = None


def history(
    spark: SparkSession,
    wheel: Wheel,
    schedule_id: str,
    *,
    geometry: Geometry,
    destinations: Destinations | None = None,
    rejects: Sink | None = None,
) -> list[Event]:
    """Everything that is known of an id.

    Args:
        spark: A session.
        wheel: Where entries wait.
        schedule_id: The id.
        geometry: Of the wheel.
        destinations: Where its rows may have gone.
        rejects: Where refused rows went.

    Returns:
        By time; what has none on record stands last. Empty: nothing is known.

    Raises:
        CheckpointError: The checkpoint is damaged.
    """
    events: list[Event] = []
    if wheel.store is not None:
        events += _in_store(wheel, schedule_id, geometry)
    events += _waiting(spark, wheel, schedule_id, geometry)
    events += _in_memory(spark, wheel, schedule_id)
    places = sorted(set(_tables_of(spark, destinations)) if destinations is not None else ())
    for place in places:
        events += _fired(spark, place, schedule_id)
    if isinstance(rejects, DeltaSink):
        events += _rejected(spark, rejects.path, schedule_id)
    return sorted(events, key=lambda event: (event.at_ms is None, event.at_ms or 0, event.seq or 0))


def _in_store(wheel: Wheel, schedule_id: str, geometry: Geometry) -> Iterator[Event]:
    assert wheel.store is not None, "of the tiered mode"
    rows = wheel.store.rows().where(F.col("id_hash") == id_hash(F.lit(schedule_id)))
    names = ("level", "slot", "act", "op", "seq", "amend", "deliver_at_ms", "destination", "event_time_ms")
    asked_ms = F.col("deliver_at_ms") - F.coalesce("level_error_ms", F.lit(0))
    columns = (*names, "delay_level_ms", asked_ms.alias("asked_ms"))
    found = rows.where((F.col("schedule_id") == schedule_id) & F.col("reject").isNull()).select(*columns)
    for row in found.collect():
        if row.act == FAR:
            continue  # the entry itself has a row of its own
        about = (row.seq, row.amend or None, row.asked_ms, row.destination)
        if row.act != COMMAND:
            yield Event(None, _SAID_BY_STORE[row.act], *about)
        elif row.op == CANCEL:
            yield Event(row.event_time_ms, "CANCEL" + _by_act(row), *about)
        elif row.deliver_at_ms is not None:
            yield Event(row.event_time_ms, "SCHEDULE" + _by_act(row), *about, _place(row) + _level(row))
            if row.event_time_ms is not None:
                yield from _way(geometry, row.seq, row.deliver_at_ms, row.event_time_ms)


def _way(geometry: Geometry, seq: int, due_ms: int, from_ms: int) -> Iterator[Event]:
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


def _waiting(spark: SparkSession, wheel: Wheel, schedule_id: str, geometry: Geometry) -> Iterator[Event]:
    rows = pending(spark, wheel, ids=[schedule_id])
    instants = (F.unix_millis(name).alias(name) for name in ("deliver_at", "scheduled_at"))
    named = rows.select("seq", "amend", *instants, "destination", "place", "delay_level_ms")
    for row in named.collect():
        about = (row.seq, row.amend or None, row.deliver_at, row.destination)
        yield Event(row.scheduled_at, "will fire", *about, f"pending in the {row.place}" + _level(row))
        clock_ms = clock_of(spark, wheel.query) if wheel.store is None else None
        if clock_ms is not None:
            yield from _way(geometry, row.seq, row.scheduled_at, clock_ms)


def _in_memory(spark: SparkSession, wheel: Wheel, schedule_id: str) -> Iterator[Event]:
    for row in remembered(spark, wheel.query).where(F.col("schedule_id") == schedule_id).collect():
        yield Event(
            row.ended_at_ms,
            _REMEMBERED[row.status],
            seq=row.seq,
            amend=row["rank"] // 2 or None,
            deliver_at_ms=row.deliver_at_ms,
        )


def _tables_of(spark: SparkSession, destinations: Destinations) -> Iterator[str]:
    """The tables that the destinations have, as far as they are there."""
    for _, sink in destinations:
        if isinstance(sink, DeltaSink):
            for name in open_folder(sink.path).names():
                if destinations.resolve(name) == sink and tables.has_log(spark, f"{sink.path}/{name}"):
                    yield f"{sink.path}/{name}"


def _fired(spark: SparkSession, place: str, schedule_id: str) -> Iterator[Event]:
    for row in _of_table(spark, place, schedule_id, "fired_at", "lateness_ms", "fire_id"):
        detail = f"{duration_text(row.lateness_ms)} late, fire_id {row.fire_id}"
        yield Event(row.at, "fired", row.seq, None, row.due, row.destination, detail)


def _rejected(spark: SparkSession, place: str, schedule_id: str) -> Iterator[Event]:
    if not tables.has_log(spark, place):
        return
    for row in _of_table(spark, place, schedule_id, "rejected_at", "error_code", "error_message"):
        what = "missed" if row.error_code == "missed" else f"rejected: {row.error_code}"
        yield Event(row.at, what, row.seq, None, row.due, row.destination, row.error_message)


def _of_table(spark: SparkSession, place: str, schedule_id: str, at: str, *more: str) -> list[Row]:
    """The rows of an id: ``seq``, ``destination``, ``due`` and ``at`` in ms, and more columns."""
    rows = spark.read.format("delta").load(place).where(F.col("schedule_id") == schedule_id)
    instants = (F.unix_millis(column).alias(name) for column, name in (("deliver_at", "due"), (at, "at")))
    return rows.select("seq", "destination", *instants, *more).collect()
