"""Converts deliveries and rejects to Kafka records, and computes the size of a record, as Column expressions.

A delivery: the topic is the destination; key and value are unchanged; the headers are the entry's own, in their order,
followed by those of its shape (``wheel_udf/stream/shapes.toml``) and ``wheel-source``, ``topic/partition/offset`` of
the command, if known. A header whose column is null is left out.

A reject: key, value and headers of the record as they came (if it had neither key nor value: the JSON ``record`` as
the value), followed by these headers, each only if known and cut to a sensible length::

    wheel-error-code    wheel-error-message    wheel-id    wheel-destination    wheel-source

A reject that is too large for its topic loses its value, then its key, then its own headers, until it fits; the header
``wheel-dropped`` says which (``value``, ``value,key`` or ``value,key,headers``).

The entry's own headers named ``wheel-*`` are dropped from a delivery, because a consumer could not tell them from the
scheduler's. A header without a name, which Kafka does not have, gets the empty name.

The size is Kafka's own upper bound (kafka-clients, ``AbstractRecords.estimateSizeInBytesUpperBound``), by which the
producer refuses a record before it sends it. Uncompressed, a batch of this one record is never larger, so the broker
does not refuse it either::

    61 batch + 21 record + varint(key) + key + varint(value) + value + varint(headers)
    '------- constants     each header: + varint(name) + name + varint(value) + value
    a varint of n takes 1 byte below 64, then 2, 3, 4, 5: seven bits a byte, one of them the sign; null is 1 byte
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.common.command_facts import OUR_PREFIX
from wheel_udf.sinks.destinations import FIRED, ISO_STYLE, SOURCE, HeaderForm, Shape

_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 21
_VARINT_STEPS: Final = ((1 << 6, 1), (1 << 13, 2), (1 << 20, 3), (1 << 27, 4))

_SOURCE_HEADER: Final = "wheel-source"
_TEXT_LIMITS: Final = {  # characters, of up to 4 bytes in UTF-8
    "wheel-error-code": ("error_code", 64),
    "wheel-error-message": ("error_message", 1000),
    "wheel-id": ("schedule_id", 512),
    "wheel-destination": ("destination", 249),
    _SOURCE_HEADER: (SOURCE, 512),
}

OWN_BYTES_OF_DELIVERY: Final = 2048
"""Upper bound of the bytes that a delivery adds to key, value and own headers (id: at most 512, source: 280)."""

SMALLEST_REJECTS_TOPIC: Final = 10_000
"""A topic for rejects must take records of this many bytes, so that every reject fits once its payload is dropped."""

_HEADER: Final = "struct<key: string, value: binary>"
_DROPPED: Final = "wheel-dropped"
_PAYLOAD: Final = "value,key,headers"


def delivery_records(fired: DataFrame, shape: Shape = FIRED) -> DataFrame:
    """Converts deliveries (the columns of `shape`, and ``source``) to rows for Spark's Kafka writer: ``topic`` string,
    ``key`` binary, ``value`` binary, ``headers`` array of (key, value).
    """
    return fired.select(*_delivery(shape, fired.sparkSession.sparkContext))


def timed_records(fired: DataFrame, shape: Shape = FIRED) -> DataFrame:
    """Converts deliveries to rows for a client that sends them later, see :mod:`wheel_udf.punctual.timed_records`.

    The columns of :func:`delivery_records`, with the entry's own headers alone, or null; ``due_ms`` bigint, when each
    is due (UTC epoch ms); and our headers in their order, each a column with its name: a string, or the UTC epoch ms of
    an instant.
    """
    return fired.select(*_timed(shape, fired.sparkSession.sparkContext))


def delivery_headers(shape: Shape = FIRED) -> Column:
    """Returns the headers of a delivery, from the columns of a row of that shape; a null column gives no header."""
    sure = [each for each in shape.headers if each[1] not in shape.may_be_null]
    named = F.array(*(_header(name, _written(column, form)) for name, column, form in sure))
    unsure = [each for each in shape.headers if each[1] in shape.may_be_null]
    # An array for each header: an expression that held another one twice would double with each header.
    parts = [
        F.when(F.col(column).isNull(), _no_headers()).otherwise(
            F.array(_header(name, _written(column, form)))
        )
        for name, column, form in (*unsure, (_SOURCE_HEADER, SOURCE, "text"))
    ]
    own = F.when(F.col("headers").isNull(), _no_headers()).otherwise(_own_headers())
    return F.concat(own, named, *parts)


def _own_headers() -> Column:
    """The entry's own headers."""
    return _all_named(
        F.filter("headers", lambda each: ~F.coalesce(each["key"], F.lit("")).startswith(OUR_PREFIX))
    )


def _written(column: str, form: HeaderForm) -> Column:
    if form == "instant":
        return F.to_csv(F.struct(column), ISO_STYLE)
    return F.to_json(column) if form == "json" else F.col(column).cast("string")


def _record_columns(headers: Column) -> list[Column]:
    return [F.col("destination").alias("topic"), F.col("key"), F.col("value"), headers.alias("headers")]


# The same in every batch, and each call on a pyspark column is a round trip to the JVM: built once for a context.
@lru_cache(maxsize=4)
def _delivery(shape: Shape, _context: SparkContext) -> list[Column]:
    return _record_columns(delivery_headers(shape))


@lru_cache(maxsize=4)
def _timed(shape: Shape, _context: SparkContext) -> list[Column]:
    return [
        *_record_columns(F.when(F.col("headers").isNotNull(), _own_headers())),
        F.unix_millis("fired_at").alias("due_ms"),
        *(
            (F.unix_millis(column) if form == "instant" else _written(column, form)).alias(name)
            for name, column, form in shape.headers
        ),
        F.col(SOURCE).alias(_SOURCE_HEADER),
    ]


def reject_records(rejects: DataFrame, topic: str, limit: int) -> DataFrame:
    """Converts rejects to the columns of :func:`delivery_records`, each small enough for the topic.

    Args:
        rejects: Rows of :data:`~wheel_udf.sinks.destinations.REJECT_SCHEMA`.
        topic: The topic of the rejects.
        limit: Bytes of the largest record that the topic takes; at least :data:`SMALLEST_REJECTS_TOPIC`.
    """
    whole = rejects.select(
        "key",
        F.when(F.col("key").isNull() & F.col("value").isNull(), F.col("record").cast("binary"))
        .otherwise(F.col("value"))
        .alias("value"),
        _reject_headers().alias("ours"),
        "headers",
    )
    added = F.col("ours")["key"]
    kept = F.filter("headers", lambda each: ~F.array_contains(added, F.coalesce(each["key"], F.lit(""))))
    own = F.when(F.col("headers").isNull(), _no_headers()).otherwise(_all_named(kept))
    dropped = _dropped(limit).alias("dropped")
    fitted = whole.select("key", "value", "ours", own.alias("own")).select("*", dropped)
    is_whole = F.col("dropped").isNull()
    headers = F.concat(
        F.when(F.coalesce(F.col("dropped") == _PAYLOAD, F.lit(False)), _no_headers()).otherwise(F.col("own")),
        F.col("ours"),
        F.when(is_whole, _no_headers()).otherwise(F.array(_header(_DROPPED, F.col("dropped")))),
    )
    return fitted.select(
        F.lit(topic).alias("topic"),
        F.when(is_whole | (F.col("dropped") == "value"), F.col("key")).alias("key"),
        F.when(is_whole, F.col("value")).alias("value"),
        headers.alias("headers"),
    )


def _reject_headers() -> Column:
    cut = (
        _header(name, F.substring(F.col(column), 1, longest))
        for name, (column, longest) in _TEXT_LIMITS.items()
    )
    return F.filter(F.array(*cut), lambda each: each["value"].isNotNull())


def _dropped(limit: int) -> Column:
    """Returns which parts a reject has to lose, from its columns key, value, own and ours; null for none."""
    key, value, own = F.col("key"), F.col("value"), F.concat("own", "ours")
    nothing = F.lit(None).cast("binary")
    marked = F.concat(own, F.array(_header(_DROPPED, F.lit("value,key"))))
    return (
        F.when(size_bound(key, value, own) <= limit, F.lit(None).cast("string"))
        .when(size_bound(key, nothing, marked) <= limit, "value")
        .when(size_bound(nothing, nothing, marked) <= limit, "value,key")
        .otherwise(_PAYLOAD)
    )


def size_bound(key: Column, value: Column, headers: Column) -> Column:
    """Returns the bytes of a record (bigint), as Kafka's producer estimates them before it sends it.

    Key and value are binary or null; the headers are an array of (key, value), not null, no header without a name.
    """

    def add(total: Column, header: Column) -> Column:
        return total + _sized(_name_octets(header["key"])) + _sized(F.octet_length(header["value"]))

    fixed = F.lit(_BATCH_OVERHEAD + _RECORD_OVERHEAD).cast("bigint")
    payload = _sized(F.octet_length(key)) + _sized(F.octet_length(value)) + _varint(F.size(headers))
    return F.aggregate(headers, fixed, add) + payload


def _name_octets(name: Column) -> Column:
    # Kafka's client treats a name as text: each byte that is not UTF-8 becomes at most one U+FFFD, which has three
    # bytes.
    return F.when(F.is_valid_utf8(name), F.octet_length(name)).otherwise(F.octet_length(name) * 3)


def _sized(octets: Column) -> Column:
    """Returns the bytes of a field with its length prefix; the field may be null."""
    return F.when(octets.isNull(), F.lit(1).cast("bigint")).otherwise(octets.cast("bigint") + _varint(octets))


def _varint(number: Column) -> Column:
    """Returns the bytes of a non-negative number as a varint."""
    (first, least), *steps = _VARINT_STEPS
    chain = F.when(number < first, least)
    for bound, octets in steps:
        chain = chain.when(number < bound, octets)
    return chain.otherwise(5).cast("bigint")


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


def _no_headers() -> Column:
    return F.array().cast(f"array<{_HEADER}>")


def _all_named(headers: Column) -> Column:
    def named(each: Column) -> Column:
        return F.struct(F.coalesce(each["key"], F.lit("")).alias("key"), each["value"].alias("value"))

    return F.transform(headers, named)
