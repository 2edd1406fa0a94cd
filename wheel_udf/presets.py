"""Presets: what a Kafka record says as a command. Records in, the columns of the contract out, row by row.

Each preset is a table from the parts of a record to the columns that :mod:`wheel_udf.commands` reads::

    column        native                       json (value is one object)   scheduler (compacted topics)
    schedule_id   header wheel-id              schedule_id                  the record's key
    op            header wheel-op              op                           CANCEL if the value is null
    seq           header wheel-seq             seq                          -
    deliver_at    header wheel-deliver-at *    deliver_at (ISO text)        header scheduler-epoch (s)
    delay         header wheel-delay           delay                        -
    event_time    header wheel-event-time *    event_time (ISO text)        -
    destination   header wheel-target          destination                  header scheduler-target-topic
    max_lateness  header wheel-max-lateness    max_lateness                 -
    key           the record's key             key, or the record's key     header scheduler-target-key
    value         the record's value           value                        the record's value
    headers       the record's others          headers, or the record's     the record's others

    * ISO 8601 text, or a whole number: UTC epoch ms.   - : none.   event_time that is not given: the record's timestamp

``wheel-*`` headers (and ``scheduler-*`` ones in that preset) are read and do not travel. Where a header stands twice the last one counts,
as Kafka's ``lastHeader``; in the scheduler preset the first, as there. A record without ``seq`` has its offset for a version: the latest of a
partition wins, so the commands of an id belong in one partition, which a record key that depends on nothing but the id sees to. Offsets of two
partitions say nothing about which command came later: of an id that is spread the higher offset wins, and a producer that
cannot keep it together gives ``seq`` itself.

A compacted topic (``scheduler``) loses records that a later one of their key has replaced, and tombstones after ``delete.retention.ms`` (Kafka's
documentation, "Log Compaction"). The gaps mean nothing: versions are compared, not counted. A tombstone needs its key alone, headers or none.

Nothing here raises on data, and no row is lost: what cannot be read goes on as it came, so that the rule of its column rejects it. A ``json`` value that
is not one JSON object is in ``_corrupt_record``. In all presets ``kafka`` keeps what the record was (coordinates, timestamp and what the columns do
not hold untouched, texts where they are UTF-8 and else ``base64:...``) for ``record`` of a reject.

Caveats: a whole number is epoch ms even if its digits look like a date (``20260101`` is 05:37 in 1970). Numbers of the years that no
timestamp holds stay texts and are rejected as ``bad_deliver_at``. Spark's connector itself fails on a record whose own timestamp is beyond the
year 294247; brokers refuse such records unless they are told not to (``message.timestamp.after.max.ms``).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf import columns as read
from wheel_udf.errors import ConfigError
from wheel_udf.kafka_options import PRESETS

_NATIVE: Final = {
    "schedule_id": "wheel-id",
    "op": "wheel-op",
    "seq": "wheel-seq",
    "deliver_at": "wheel-deliver-at",
    "delay": "wheel-delay",
    "event_time": "wheel-event-time",
    "destination": "wheel-target",
    "max_lateness": "wheel-max-lateness",
}
_OURS: Final = "wheel-"
_SCHEDULERS: Final = "scheduler-"
_KNOWN: Final = tuple(_NATIVE.values())
_JSON_FIELDS: Final = (
    *("schedule_id", "op", "seq", "deliver_at", "delay", "event_time"),
    *("destination", "key", "value", "headers", "max_lateness"),
)
# Texts all of them: a field of another type is then its JSON text, and no type can make Spark give up half of a row.
_JSON_TYPE: Final = f"array<struct<{', '.join(f'{name}: string' for name in _JSON_FIELDS)}>>"
_STRICT: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_JSON_BLANKS: Final = " \t\r\n"


def kafka_commands(records: DataFrame, preset: str) -> DataFrame:
    """Reads Kafka records as commands.

    Args:
        records: The connector's columns, of a batch or a stream: ``key``, ``value`` (binary), ``topic``, ``partition``, ``offset``,
            ``timestamp`` and ``headers`` (option ``includeHeaders``).
        preset: One of :data:`~wheel_udf.kafka_options.PRESETS`.

    Returns:
        One row for each record: the columns of the command contract, ``source_coordinates`` (``topic/partition/offset``), ``source_seq``
        (the offset), ``kafka`` (struct: the record as it was) and with ``json`` ``_corrupt_record``.

    Raises:
        ConfigError: There is no such preset.
    """
    readers = {"native": _native, "json": _json, "scheduler": _scheduler}
    if preset not in readers:
        raise ConfigError(
            "not a preset of Kafka records", field="preset", value=preset, rule=f"one of {', '.join(PRESETS)}"
        )
    return readers[preset](records)


def _native(records: DataFrame) -> DataFrame:
    frame = _with_headers(records, _OURS)
    named = {column: _header(name) for column, name in _NATIVE.items()}
    given = frame.select("*", *(value.alias(f"_{column}") for column, value in named.items()))
    columns = {column: F.col(f"_{column}") for column in named} | {
        "deliver_at": _instant(F.col("_deliver_at").cast("string")),
        "event_time": F.coalesce(_instant(F.col("_event_time").cast("string")), _said()),
        "key": F.col("key"),
        "value": F.col("value"),
        "headers": _others(),
    }
    return given.select(*_named(columns), *_source("headers"))


def _scheduler(records: DataFrame) -> DataFrame:
    frame = _with_headers(records, _SCHEDULERS, _OURS, last=False)
    given = frame.select(
        "*",
        _header(f"{_SCHEDULERS}epoch").cast("string").alias("_epoch"),
        _header(f"{_SCHEDULERS}target-topic").alias("_target"),
        _header(f"{_SCHEDULERS}target-key").alias("_target_key"),
    )
    epoch_s = read.whole_number(F.col("_epoch"), T.StringType())
    last_s = read.MAX_INSTANT_MS // 1000
    columns = {
        "schedule_id": F.col("key"),
        "op": F.when(F.col("value").isNull(), F.lit("CANCEL")),
        # What is no number of seconds must not be read as something else: named, it is no instant.
        "deliver_at": F.when(
            epoch_s.between(-last_s, last_s), _iso(F.try_multiply(epoch_s, F.lit(1000)))
        ).otherwise(F.concat(F.lit(f"{_SCHEDULERS}epoch "), F.col("_epoch"), F.lit(", not whole seconds"))),
        "event_time": F.col("timestamp"),
        "destination": F.col("_target"),
        "key": F.col("_target_key"),
        "value": F.col("value"),
        "headers": _others(),
    }
    return given.select(*_named(columns), *_source("headers"))


def _json(records: DataFrame) -> DataFrame:
    frame = _with_headers(records, _OURS)
    # In brackets: Spark reads one value and leaves unread whatever follows it, but an array it reads to its end.
    words = F.concat(F.lit("["), F.col("value").cast("string"), F.lit("]"))
    plain = F.when(F.is_valid_utf8(F.col("value").cast("string")), words)
    frame = frame.select("*", F.from_json(plain, _JSON_TYPE, _STRICT).alias("_parsed"))
    trimmed = F.btrim(F.col("value").cast("string"), F.lit(_JSON_BLANKS))
    is_one = (F.size("_parsed") == 1) & F.startswith(trimmed, F.lit("{")) & F.endswith(trimmed, F.lit("}"))
    frame = frame.select("*", F.when(is_one, F.get("_parsed", F.lit(0))).alias("_said"))
    headers = F.from_json(F.col("_said.headers"), "map<string, string>", _STRICT)
    frame = frame.select("*", F.map_entries(headers).cast(read.HEADERS).alias("_asked_headers"))
    bad = F.col("_said").isNull() | (F.col("_said.headers").isNotNull() & F.col("_asked_headers").isNull())
    frame = frame.select("*", bad.alias("_bad"))
    fields = {name: F.when(~F.col("_bad"), F.col(f"_said.{name}")) for name in _JSON_FIELDS}
    asked = F.filter("_asked_headers", lambda each: ~F.startswith(each.getField("key"), F.lit(_OURS)))
    as_it_came = F.when(F.col("_bad"), F.col("value"))
    columns = fields | {
        "event_time": F.coalesce(fields["event_time"], _iso(F.unix_millis("timestamp"))),
        "key": F.coalesce(fields["key"].cast("binary"), F.col("key")),
        # A record that cannot be read goes into the rejects with its own key, value and headers.
        "value": F.coalesce(as_it_came, fields["value"].cast("binary")),
        "headers": F.coalesce(F.when(~F.col("_bad"), asked), _others()),
        "_corrupt_record": F.when(F.col("_bad"), F.coalesce(_readable(F.col("value")), F.lit("null"))),
    }
    return frame.select(*_named(columns), *_source("key", "value", "headers"))


# --- parts of a record ------------------------------------------------------------------------------------------------


def _with_headers(records: DataFrame, *prefixes: str, last: bool = True) -> DataFrame:
    """Adds the names and values of the headers, the one that counts first, and the headers that travel."""
    headers = F.reverse("headers") if last else F.col("headers")
    travels = F.filter("headers", lambda each: _travels(each.getField("key"), prefixes))
    # Spark interprets a lambda, and most records have no other headers.
    names = F.col("headers").getField("key")
    others = F.size(F.array_except(names, F.array(*map(F.lit, _KNOWN)))) > 0
    return records.select(
        "*",
        headers.getField("key").alias("_names"),
        headers.getField("value").alias("_values"),
        F.when(others, travels).alias("_travelling"),
    )


def _travels(name: Column, prefixes: tuple[str, ...]) -> Column:
    found = F.startswith(name, F.lit(prefixes[0]))
    for prefix in prefixes[1:]:
        found |= F.startswith(name, F.lit(prefix))
    return ~found


def _header(name: str) -> Column:
    """The value of a header, as bytes; null where there is none."""
    # Two compiled lookups and no lambda, which Spark would interpret: there are eight of them for each record.
    return F.get(F.col("_values"), F.array_position("_names", name).cast("int") - 1)


def _others() -> Column:
    """The headers that travel; null for none, as the connector has it."""
    return F.when(F.size("_travelling") > 0, F.col("_travelling"))


def _said() -> Column:
    return _iso(F.unix_millis("timestamp"))


def _instant(words: Column) -> Column:
    """ISO text as it is, a whole number (UTC epoch ms) as ISO text; one that no timestamp can hold stays a number."""
    at_ms = read.whole_number(words, T.StringType())
    # between and not abs, which overflows for -2^63
    return F.when(at_ms.between(-read.MAX_INSTANT_MS, read.MAX_INSTANT_MS), _iso(at_ms)).otherwise(words)


def _iso(at_ms: Column) -> Column:
    # Not through a timestamp, whose text is in the zone of the session; and bounded, since Spark may compute it in vain.
    within = F.greatest(F.lit(-read.MAX_INSTANT_MS), F.least(F.lit(read.MAX_INSTANT_MS), at_ms))
    epoch = F.lit("1970-01-01").cast("timestamp_ntz")
    return F.concat(F.timestamp_add("MILLISECOND", within, epoch).cast("string"), F.lit("Z"))


def _named(columns: dict[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _source(*past: str) -> list[Column]:
    """Where the row is from, and the parts of the record that the other columns do not keep."""
    return [
        F.concat_ws("/", "topic", "partition", "offset").alias("source_coordinates"),
        F.col("offset").alias("source_seq"),
        F.struct("topic", "partition", "offset", "timestamp", *past).alias("kafka"),
    ]


def _readable(octets: Column) -> Column:
    words = octets.cast("string")
    plain = F.is_valid_utf8(words) & ~F.startswith(words, F.lit("base64:"))
    return F.when(plain, words).otherwise(F.concat(F.lit("base64:"), F.base64(octets)))
