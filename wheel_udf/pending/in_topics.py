"""The part of an id's history that is in Kafka: deliveries and rejects. See :mod:`wheel_udf.pending.history`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from wheel_udf.delivery.progress import duration_text
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.sinks.kafka_search import records_of
from wheel_udf.sinks.kafka_sink import KafkaSink


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
        by: The user whose act it was; None for a command, and for an act without a record.
        act: That act, such as ``move to timestamp'2026-01-01'``.
        acted_at_ms: When it was done by the wall clock (UTC epoch ms); ``at_ms`` is by the wheel's clock.
    """

    at_ms: int | None
    what: str
    seq: int | None = None
    amend: int | None = None
    deliver_at_ms: int | None = None
    destination: str | None = None
    detail: str | None = None
    by: str | None = None
    act: str | None = None
    acted_at_ms: int | None = None


def fired_to_topics(
    spark: SparkSession, destinations: Destinations | None, schedule_id: str
) -> Iterator[Event]:
    """Yields the deliveries of an id that are in topics; each repetition is one."""
    sinks = {sink for _, sink in destinations or () if isinstance(sink, KafkaSink)}
    for sink in sinks:
        assert destinations is not None
        names = kafka_admin.topic_names(sink.options)
        topics = [name for name in names if destinations.resolve(name) == sink]
        for record in records_of(spark, sink.options, topics, schedule_id):
            at_ms, due_ms = record.instant_ms("fired-at"), record.instant_ms("deliver-at")
            if at_ms is None or due_ms is None:
                continue  # something else with such a header
            scheduled_ms = record.instant_ms("scheduled-at")
            late = duration_text(at_ms - (due_ms if scheduled_ms is None else scheduled_ms))
            detail = f"{late} after due, fire_id {record.headers.get('fire-id')}, record {record.place}"
            yield Event(at_ms, "fired", record.number("seq"), None, due_ms, record.topic, detail)


def rejected_to_topic(spark: SparkSession, sink: KafkaSink, schedule_id: str) -> Iterator[Event]:
    """Yields the rejects of an id that are in the topic of a sink."""
    own = [] if sink.topic is None else [sink.topic]
    topics = [name for name in own if not kafka_admin.missing_topics(sink.options, own)]
    for record in records_of(spark, sink.options, topics, schedule_id):
        code, destination = record.headers.get("error-code"), record.headers.get("destination")
        what = "missed" if code == "missed" else f"rejected: {code}"
        detail = f"{record.headers.get('error-message')}, record {record.place}"
        yield Event(record.sent_ms, what, destination=destination, detail=detail)
