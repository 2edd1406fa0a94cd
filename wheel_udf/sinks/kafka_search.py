"""Finds the records of one id in topics: deliveries and rejects of a :class:`~wheel_udf.sinks.kafka_sink.KafkaSink`.

A topic has no index, so the whole topic is read, in the JVM, and compared by the header ``wheel-id``; the few records
found are read from their headers::

    wheel-fired-at, wheel-deliver-at, wheel-seq, wheel-fire-id       a delivery
    wheel-error-code, wheel-error-message, wheel-destination         a reject; its time is that of the record

Cost: O(records that the topics keep). A record that has expired, or was compacted away, is not found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession, functions as F

from wheel_udf.common.instants import parse_instant_ms

_ID = "wheel-id"


@dataclass(frozen=True)
class FoundRecord:
    """A record of the wheel.

    Attributes:
        place: ``topic/partition/offset``.
        topic: Its topic.
        sent_ms: When it was sent (UTC epoch ms).
        headers: Its headers whose names begin with ``wheel-``, without that prefix; of repeated ones the last.
    """

    place: str
    topic: str
    sent_ms: int
    headers: Mapping[str, str]

    def instant_ms(self, name: str) -> int | None:
        """The instant in a header (UTC epoch ms); None if it has none that can be read."""
        try:
            return parse_instant_ms(self.headers[name])
        except (KeyError, ValueError, OverflowError):
            return None

    def number(self, name: str) -> int | None:
        """The whole number in a header; None if it has none."""
        text = self.headers.get(name, "")
        return int(text) if text.lstrip("-").isdecimal() else None


def records_of(
    spark: SparkSession, options: Mapping[str, str], topics: Sequence[str], schedule_id: str
) -> list[FoundRecord]:
    """Returns the records of an id in topics that exist. Of the options of the sink those of the client are used."""
    if not topics:
        return []
    client = {name: value for name, value in options.items() if name.lower().startswith("kafka.")}
    reader = spark.read.format("kafka").options(**client).options(
        subscribe=",".join(topics), includeHeaders="true", startingOffsets="earliest", endingOffsets="latest"
    )  # fmt: skip
    wanted = F.lit(schedule_id).cast("binary")
    is_of_id = F.exists("headers", lambda each: (each["key"] == _ID) & (each["value"] == wanted))
    ours = F.filter("headers", lambda each: each["key"].startswith("wheel-")).alias("headers")
    place = F.concat_ws("/", "topic", "partition", "offset").alias("place")
    found = (
        reader.load()
        .where(is_of_id)
        .select("topic", place, F.unix_millis("timestamp").alias("sent_ms"), ours)
        .collect()
    )
    return [
        FoundRecord(
            row.place,
            row.topic,
            row.sent_ms,
            {
                each.key.removeprefix("wheel-"): bytes(each.value).decode(errors="replace")
                for each in row.headers
                if each.value is not None
            },
        )
        for row in found
    ]
