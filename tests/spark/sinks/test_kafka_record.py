"""Deliveries and rejects as Kafka records: which headers, in which order, and a size that is Kafka's own to the byte."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from wheel_udf.punctual.timed_records import TimedRecords
from wheel_udf.sinks.destinations import (
    FIRED as DELIVERED,
    FIRED_SCHEMA,
    ISO_STYLE,
    LEVELED,
    REJECT_SCHEMA,
    Shape,
)
from wheel_udf.sinks.kafka_record import (
    OWN_BYTES_OF_DELIVERY,
    SMALLEST_REJECTS_TOPIC,
    delivery_headers,
    delivery_records,
    reject_records,
    size_bound,
    timed_records,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = "array<struct<key: string, value: binary>>"
Headers = list[tuple[str | None, bytes | None] | None] | None

FIRED = {
    "schedule_id": "order-7",
    "seq": 3,
    "fire_id": "f1",
    "destination": "orders",
    "key": b"\x00k",
    "value": b"\xffv",
    "headers": None,
    "deliver_at": datetime(2026, 1, 1, 10, tzinfo=UTC),
    "fired_at": datetime(2026, 1, 1, 10, 0, 0, 250_999, tzinfo=UTC),
    "lateness_ms": 250,
    "source": "commands/0/17",
}
REJECT = {
    "error_code": "bad_op",
    "error_message": "no such op",
    "record": '{"op":"x"}',
    "source": "commands/1/4",
    "schedule_id": "order-7",
    "seq": None,
    "destination": "orders",
    "key": b"k",
    "value": b"v",
    "headers": [("trace", b"\x01")],
    "deliver_at": None,
    "rejected_at": datetime(2026, 1, 1, tzinfo=UTC),
}
OURS = [
    ("wheel-id", b"order-7"),
    ("wheel-fire-id", b"f1"),
    ("wheel-deliver-at", b"2026-01-01T10:00:00.000Z"),
    ("wheel-fired-at", b"2026-01-01T10:00:00.250Z"),
    ("wheel-seq", b"3"),
]
SOURCE = ("wheel-source", b"commands/0/17")


def fired(spark: SparkSession, **changes: Any) -> DataFrame:
    return spark.createDataFrame([tuple((FIRED | changes).values())], f"{FIRED_SCHEMA}, source string")


def rejected(spark: SparkSession, **changes: Any) -> DataFrame:
    return spark.createDataFrame([tuple((REJECT | changes).values())], REJECT_SCHEMA)


def record(frame: DataFrame) -> tuple[str, Any, Any, list[tuple[str, Any]]]:
    (row,) = frame.collect()
    return row.topic, row.key, row.value, [tuple(header) for header in row.headers]


# --- deliveries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_a_delivery_has_its_payload_untouched_and_our_headers_behind_its_own(
    spark: SparkSession, zone: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    frame = fired(spark, headers=[("trace", b"\x01"), ("trace", b""), ("empty", None)])
    own = [("trace", b"\x01"), ("trace", b""), ("empty", None)]
    assert record(delivery_records(frame)) == ("orders", b"\x00k", b"\xffv", [*own, *OURS, SOURCE])


@pytest.mark.parametrize("headers", [None, []])
def test_a_delivery_without_key_value_headers_and_source_has_our_headers_alone(
    spark: SparkSession, headers: Headers
) -> None:
    frame = fired(spark, key=None, value=None, headers=headers, source=None)
    assert record(delivery_records(frame)) == ("orders", None, None, OURS)


def test_a_delivery_with_a_delay_level_says_when_it_was_scheduled_and_what_the_level_has_added(
    spark: SparkSession,
) -> None:
    scheduled = F.timestamp_millis(F.lit(1_767_261_600_000 + 13_000))
    frame = fired(spark, source=None).withColumns(
        {"scheduled_at": scheduled, "level_error_ms": F.lit(13_000)}
    )
    assert record(delivery_records(frame, LEVELED))[3] == [
        *OURS,
        ("wheel-scheduled-at", b"2026-01-01T10:00:13.000Z"),
        ("wheel-level-error-ms", b"13000"),
    ]


@pytest.mark.parametrize("shape", [DELIVERED, LEVELED])
@pytest.mark.parametrize("source", [None, "commands/0/17"])
@pytest.mark.parametrize(
    "headers", [None, [], [("trace", b"\x01"), ("wheel-id", b"old"), None, (None, b"2"), ("empty", None)]]
)
def test_a_record_that_is_sent_at_its_due_time_is_the_one_that_a_batch_sends(
    spark: SparkSession, shape: Shape, source: str | None, headers: Headers
) -> None:
    frame = fired(spark, source=source, headers=headers).withColumns(
        {"scheduled_at": F.timestamp_millis(F.lit(1_767_261_613_000)), "level_error_ms": F.lit(13_000)}
    )
    timed = TimedRecords.of(timed_records(frame, shape).toArrow())
    (found,) = timed.records(0, 1, b"2026-01-01T10:00:00.250Z")
    assert found == record(delivery_records(frame, shape))
    # What waits for the sender has its time of release there, which a spread or an act may have moved.
    assert timed.due_ms.tolist() == [1_767_261_600_250]


def test_headers_that_came_in_with_our_names_are_not_sent_on(spark: SparkSession) -> None:
    own: Headers = [("wheel-id", b"old"), ("wheel-", b""), ("Wheel-id", b"kept"), ("wheelbase", b"kept")]
    headers = record(delivery_records(fired(spark, headers=own)))[3]
    assert headers == [("Wheel-id", b"kept"), ("wheelbase", b"kept"), *OURS, SOURCE]


def test_a_header_without_a_name_gets_the_empty_name_because_kafka_has_no_other(spark: SparkSession) -> None:
    headers = record(delivery_records(fired(spark, headers=[(None, b"1"), None, ("a", b"2")])))[3]
    assert headers[:3] == [("", b"1"), ("", None), ("a", b"2")]


@pytest.mark.parametrize(
    ("instant_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
    ],
)
def test_instants_are_iso_8601_in_utc_to_the_millisecond(
    spark: SparkSession, instant_ms: int, text: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    frame = spark.range(1).select(F.timestamp_millis(F.lit(instant_ms)).alias("at"))
    assert frame.select(F.to_csv(F.struct("at"), ISO_STYLE)).collect()[0][0] == text


# --- sizes ----------------------------------------------------------------------------------------

EDGES = [0, 1, 63, 64, 8191, 8192, 1_048_575, 1_048_576]
SIZED: list[tuple[bytes | None, bytes | None, Headers]] = [
    *((b"k" * size, None, []) for size in EDGES),
    *((None, b"v" * size, [("h", None)]) for size in EDGES),
    *((b"", b"", [("n" * size, b"v" * size)]) for size in EDGES[:-2]),
    *((None, None, [("h", b"x")] * count) for count in (63, 64, 65, 8192)),
    (b"k", b"v", [("", b""), ("é", b"\x00"), ("日本", None), ("😀", b"\xff"), ("\x00", b"")]),
]


def kafkas_own_bound(
    spark: SparkSession, key: bytes | None, value: bytes | None, headers: list[tuple[str, Any]]
) -> int:
    jvm: Any = spark._jvm
    kafka, buffer = jvm.org.apache.kafka.common, jvm.java.nio.ByteBuffer
    made = spark._sc._gateway.new_array(kafka.header.Header, len(headers))
    for number, (name, octets) in enumerate(headers):
        made[number] = kafka.header.internals.RecordHeader(
            name, None if octets is None else bytearray(octets)
        )
    parts = (None if octets is None else buffer.wrap(bytearray(octets)) for octets in (key, value))
    codec = kafka.record.CompressionType.NONE
    return int(kafka.record.AbstractRecords.estimateSizeInBytesUpperBound(2, codec, *parts, made))


def test_the_size_of_a_record_is_kafkas_own_upper_bound_to_the_byte(spark: SparkSession) -> None:
    frame = spark.createDataFrame(SIZED, f"key binary, value binary, headers {HEADERS}")
    sizes = [row[0] for row in frame.select(size_bound(*map(F.col, ("key", "value", "headers")))).collect()]
    assert sizes == [kafkas_own_bound(spark, key, value, headers) for key, value, headers in SIZED]  # type: ignore[arg-type]


def test_a_name_that_is_no_utf8_is_taken_for_three_bytes_each_as_the_client_may_send_it(
    spark: SparkSession,
) -> None:
    broken = F.lit(bytearray(b"a\xff\xfe")).cast("string")
    headers = F.array(F.struct(broken.alias("key"), F.lit(None).cast("binary").alias("value")))
    nothing = F.lit(None).cast("binary")
    (row,) = spark.range(1).select(size_bound(nothing, nothing, headers)).collect()
    assert row[0] >= kafkas_own_bound(spark, None, None, [("a\ufffd\ufffd", None)])


def test_what_a_delivery_adds_is_less_than_the_sink_reckons_with(spark: SparkSession) -> None:
    frame = fired(
        spark,
        schedule_id="x" * 512,
        seq=-(2**63),
        fire_id="f" * 32,
        key=b"",
        value=b"",
        source=f"{'t' * 249}/2147483647/9223372036854775807",
        fired_at=datetime(9999, 12, 31, tzinfo=UTC),
    )
    (row,) = frame.select(size_bound(F.col("key"), F.col("value"), delivery_headers())).collect()
    assert row[0] < OWN_BYTES_OF_DELIVERY


# --- rejects --------------------------------------------------------------------------------------

LIMIT = SMALLEST_REJECTS_TOPIC
REASONS = [
    ("wheel-error-code", b"bad_op"),
    ("wheel-error-message", b"no such op"),
    ("wheel-id", b"order-7"),
    ("wheel-destination", b"orders"),
    ("wheel-source", b"commands/1/4"),
]


def test_a_reject_is_the_record_as_it_came_with_its_reason_behind_its_headers(spark: SparkSession) -> None:
    own = [("trace", b"\x01"), ("wheel-op", b"x")]
    frame = reject_records(rejected(spark, headers=own), "bad", LIMIT)
    assert record(frame) == ("bad", b"k", b"v", [*own, *REASONS])


def test_what_is_not_known_of_a_reject_has_no_header(spark: SparkSession) -> None:
    frame = rejected(spark, schedule_id=None, destination=None, source=None, headers=None, value=None)
    assert record(reject_records(frame, "bad", LIMIT)) == ("bad", b"k", None, REASONS[:2])


def test_a_reject_without_key_and_value_carries_its_record(spark: SparkSession) -> None:
    frame = rejected(spark, key=None, value=None, headers=None)
    assert record(reject_records(frame, "bad", LIMIT))[1:3] == (None, b'{"op":"x"}')


def test_a_headers_of_an_earlier_reject_gives_way_to_the_new_one(spark: SparkSession) -> None:
    own: Headers = [("wheel-error-code", b"old"), ("wheel-id", b"order-7"), ("wheel-seq", b"1"), (None, b"")]
    headers = record(reject_records(rejected(spark, headers=own), "bad", LIMIT))[3]
    assert headers == [("wheel-seq", b"1"), ("", b""), *REASONS]


@pytest.mark.parametrize(
    ("key", "value", "name", "kept", "dropped"),
    [
        (b"k", b"v" * LIMIT, "h", (b"k", None, ["h"]), b"value"),
        (b"k" * LIMIT, b"v", "h", (None, None, ["h"]), b"value,key"),
        (b"k" * LIMIT, b"v" * LIMIT, "h", (None, None, ["h"]), b"value,key"),
        (b"k", b"v", "h" * LIMIT, (None, None, []), b"value,key,headers"),
        (None, b"v", "h" * LIMIT, (None, None, []), b"value,key,headers"),
    ],
)
def test_a_reject_that_is_too_large_loses_its_value_then_its_key_then_its_headers(
    spark: SparkSession, key: bytes, value: bytes, name: str, kept: tuple[Any, Any, list[str]], dropped: bytes
) -> None:
    frame = rejected(spark, key=key, value=value, headers=[(name, b"")])
    _, *payload, headers = record(reject_records(frame, "bad", LIMIT))
    own = [header for header, _ in headers if not header.startswith("wheel-")]
    assert (*payload, own) == kept
    assert headers[len(own) :] == [*REASONS, ("wheel-dropped", dropped)]


@pytest.mark.parametrize("over", [0, 1])
def test_a_reject_loses_nothing_up_to_the_very_limit(spark: SparkSession, over: int) -> None:
    frame = rejected(spark, value=b"v" * 20_000)
    whole = reject_records(frame, "bad", 10**6)
    (row,) = whole.select(size_bound(*map(F.col, ("key", "value", "headers")))).collect()
    fitted = record(reject_records(frame, "bad", row[0] - over))
    assert (fitted[2] is None) == bool(over)


def test_any_reject_fits_into_the_smallest_topic_for_rejects(spark: SparkSession) -> None:
    wide = "😀" * 20_000
    texts = dict.fromkeys(
        ("error_code", "error_message", "record", "source", "schedule_id", "destination"), wide
    )
    hostile = rejected(spark, **texts, key=b"k" * LIMIT, value=b"v" * LIMIT, headers=[(wide, b"h" * LIMIT)])
    frame = reject_records(hostile, "bad", LIMIT)
    (size,) = frame.select(size_bound(*map(F.col, ("key", "value", "headers")))).collect()[0]
    assert size <= LIMIT
    message = dict(record(frame)[3])["wheel-error-message"]
    assert message.decode() == "😀" * 1000
