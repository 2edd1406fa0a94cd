"""Presets: map Kafka records to commands, row by row.

Each preset maps the parts of a record to the columns that :mod:`wheel_udf.commands.parse` reads::

    column        native                       json (value is one object)   scheduler (compacted topics)
    schedule_id   header wheel-id              schedule_id                  the record's key
    op            header wheel-op              op                           CANCEL if the value is null
    seq           header wheel-seq             seq                          -
    deliver_at    header wheel-deliver-at *    deliver_at (ISO text)        header scheduler-epoch (s)
    delay         header wheel-delay           delay                        -
    event_time    header wheel-event-time *    event_time (ISO text)        -
    destination   header wheel-target          destination                  header scheduler-target-topic
    max_lateness  header wheel-max-lateness    max_lateness                 -
    spread        header wheel-spread          spread                       -
    repeat **     header wheel-repeat          repeat                       -
    key           the record's key             key, or the record's key     header scheduler-target-key
    value         the record's value           value                        the record's value
    headers       the record's others          headers, or the record's     the record's others

    * ISO 8601 text, or a whole number: UTC epoch ms (of 10 digits, and of more than 15, it is rejected: another unit).
    ** and with it time_zone, starts_at *, until *, count, on_missed, on_gap, on_fold (header wheel-time-zone, ...),
       which without it are not read from headers; likewise attempt, and with it occurrence, amend, first_amend,
       failed_at, first_error, error, as a delivery has them (header wheel-attempt, ...)
    - : none.   without event_time: the record's timestamp

``wheel-*`` headers (and ``scheduler-*`` ones in that preset) are read and not passed on. Of repeated headers the last
one counts, as with Kafka's ``lastHeader``; in the scheduler preset the first.

With names of headers of other systems (:mod:`wheel_udf.commands.header_names`) ``native`` reads these where a record
has no ``wheel-*`` header for the column. Due time and delay are not passed on: a receiver would wait once more. The
others are (a Celery worker needs ``id``). A due time or delay that is empty or the text ``null`` is missing. A number
in ``delay_from`` gets the unit of the setting: 5000 becomes ``5000 ms``; as a level, 3 becomes the delay of the level,
and a number that is no level becomes ``level 19``, which is no duration.

A record without ``seq`` has its offset as version. So all commands of an id belong in one partition; a record key that
depends on the id alone ensures this. Offsets of two partitions have no common order: of an id in several partitions the
higher offset wins. A compacted topic loses records that a later record of their key replaced; gaps are harmless,
because versions are compared, not counted.

No data raises an error, and no row is lost: an unreadable value is passed on unchanged, and the rule of its column
rejects it. The column ``kafka`` keeps the record for ``record`` of a reject: coordinates, timestamp, and the parts that
no other column holds unchanged.

Units. A number in another unit would be due at once, or never. Seconds have 10 digits from 2001 to 2286, which as ms
is 12 January to 26 April 1970; microseconds have more than 15, which as ms is beyond the year 33658. Such numbers are
rejected as ``bad_deliver_at`` and ``bad_event_time``, as are milliseconds in ``scheduler-epoch`` (more than 12 digits).

Caveats: a whole number is epoch ms even if its digits look like a date (``20260101`` is 05:37 in 1970). Spark's
connector itself fails on a record whose own timestamp is beyond the year 294247; brokers refuse such records
by default (``message.timestamp.after.max.ms``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.commands.columns import utc_text, whole_number
from wheel_udf.commands.contract import PRESETS
from wheel_udf.commands.generated_code import evaluate_once
from wheel_udf.commands.header_names import CONSTANT, KEY, NO_NAMES, OFFSET, HeaderNames, header_of
from wheel_udf.commands.inputs import SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, SOURCE_SEQ
from wheel_udf.commands.json_objects import COMMAND_FIELDS, with_json_object
from wheel_udf.commands.rules import UNREADABLE
from wheel_udf.common.command_facts import COMMAND_HEADERS, OUR_PREFIX, RETRY_FIELDS, SERIES_FIELDS
from wheel_udf.common.durations import BLANKS
from wheel_udf.common.errors import ConfigError

_SCHEDULERS: Final = "scheduler-"
_EPOCH, _TARGET, _TARGET_KEY = (f"{_SCHEDULERS}{name}" for name in ("epoch", "target-topic", "target-key"))
# 0 to 9 digits, or 11 to 15; below zero any number.
_EPOCH_MS: Final = rf"\A[{BLANKS}]*(?:-[0-9]+|\+?0*+(?:[0-9]{{0,9}}|[0-9]{{11,15}}))[{BLANKS}]*\z"
_LAST_EPOCH_S: Final = 10**12 - 1
_OF_RETRY: Final = tuple(name for name in RETRY_FIELDS if name != "attempt")
_OF_SERIES: Final = tuple(name for name in SERIES_FIELDS if name not in ("spread", "repeat"))
_RARE: Final = {COMMAND_HEADERS["repeat"]: _OF_SERIES, COMMAND_HEADERS["attempt"]: _OF_RETRY}
"""Columns that are read only beside a header, because few records have them."""

_BETWEEN: Final = "\n"
"""Separates names of headers where they are one text."""


def kafka_commands(records: DataFrame, preset: str, names: HeaderNames = NO_NAMES) -> DataFrame:
    """Reads Kafka records as commands.

    Args:
        records: The connector's columns, of a batch or a stream: ``key``, ``value`` (binary), ``topic``,
            ``partition``, ``offset``, ``timestamp`` and ``headers`` (option ``includeHeaders``).
        preset: One of :data:`~wheel_udf.commands.contract.PRESETS`.
        names: The headers of other systems that ``native`` reads, too.

    Returns:
        One row for each record: the columns of the command contract, ``source_coordinates``
        (``topic/partition/offset``), ``source_seq`` (the offset), ``source_event_time`` (the timestamp of a record
        without an ``event_time``), ``kafka`` (struct: the original record); with ``native`` ``source_deliver_at`` (a
        due time that is a number) and with ``json`` ``_corrupt_record``.

    Raises:
        ConfigError: The preset is unknown.
    """
    if preset == "native":
        return _native(records, names)
    readers = {"json": _json, "scheduler": _scheduler}
    if preset not in readers:
        raise ConfigError(
            "not a preset of Kafka records", field="preset", value=preset, rule=f"one of {', '.join(PRESETS)}"
        )
    return readers[preset](records)


def _native(records: DataFrame, names: HeaderNames) -> DataFrame:
    frame = _with_headers(records, OUR_PREFIX, times=names.times)
    beside = [
        _values_of(first, [COMMAND_HEADERS[each] for each in others]).alias(f"_beside_{first}")
        for first, others in _RARE.items()
    ]
    frame = frame.select("*", *beside)
    named = {column: _header(name) for column, name in COMMAND_HEADERS.items()}
    for first, others in _RARE.items():
        named |= {column: F.get(F.col(f"_beside_{first}"), F.lit(at)) for at, column in enumerate(others)}
    named |= {column: F.coalesce(named[column], other) for column, other in _named_columns(names).items()}
    given = frame.select("*", *(value.alias(f"_{column}") for column, value in named.items()))
    at, made = (F.col(name).cast("string") for name in ("_deliver_at", "_event_time"))
    instants = {name: F.col(f"_{name}").cast("string") for name in ("starts_at", "until")}
    own_key = _part(names.key_from)
    columns = {column: F.col(f"_{column}") for column in named} | {
        **{
            name: F.when(_epoch(text).isNotNull(), utc_text(F.unix_millis(_epoch(text)))).otherwise(text)
            for name, text in instants.items()
        },
        "deliver_at": at,
        "event_time": made,
        SOURCE_DELIVER_AT: _epoch(at),
        SOURCE_EVENT_TIME: F.when(made.isNull(), F.col("timestamp")).otherwise(_epoch(made)),
        "key": F.col("key") if own_key is None else F.coalesce(own_key, F.col("key")),
        "value": F.col("value"),
        "headers": _others(),
    }
    return given.select(*_named(columns), *_source(*([] if own_key is None else ["key"]), "headers"))


def _scheduler(records: DataFrame) -> DataFrame:
    frame = _with_headers(records, _SCHEDULERS, OUR_PREFIX, last=False)
    given = frame.select(
        "*",
        _header(_EPOCH).cast("string").alias("_epoch"),
        _header(_TARGET).alias("_target"),
        _header(_TARGET_KEY).alias("_target_key"),
    )
    epoch_s = whole_number(F.col("_epoch"))
    columns = {
        "schedule_id": F.col("key"),
        "op": F.when(F.col("value").isNull(), F.lit("CANCEL")),
        # A text that is not a number of seconds must not be read as another instant: with the header's name
        # in front it is none.
        "deliver_at": F.when(
            epoch_s.between(-_LAST_EPOCH_S, _LAST_EPOCH_S),
            utc_text(F.try_multiply(epoch_s, F.lit(1000))),
        ).otherwise(F.concat(F.lit(f"{_EPOCH} "), F.col("_epoch"), F.lit(", not whole seconds"))),
        "event_time": F.col("timestamp"),
        "destination": F.col("_target"),
        "key": F.col("_target_key"),
        "value": F.col("value"),
        "headers": _others(),
    }
    return given.select(*_named(columns), *_source("headers"))


def _json(records: DataFrame) -> DataFrame:
    frame = _with_headers(records, OUR_PREFIX)
    frame = with_json_object(frame, F.col("value"))
    fields = {name: F.col(f"_object.{name}") for name in COMMAND_FIELDS}
    own = F.filter(fields["headers"], lambda each: ~F.startswith(each.getField("key"), F.lit(OUR_PREFIX)))
    columns = fields | {
        SOURCE_EVENT_TIME: F.when(fields["event_time"].isNull(), F.col("timestamp")),
        "key": F.coalesce(fields["key"].cast("binary"), F.col("key")),
        # An unreadable record goes to the rejects with its own key, value and headers.
        "value": F.when(F.col("_object").isNull(), F.col("value")).otherwise(fields["value"].cast("binary")),
        "headers": F.coalesce(own, _others()),
        UNREADABLE: F.col(UNREADABLE),
    }
    return frame.select(*_named(columns), *_source("key", "value", "headers"))


# --- headers of other systems ---------------------------------------------------------------------


def _named_columns(names: HeaderNames) -> dict[str, Column]:
    """The columns that other headers, or other parts of the record, hold."""
    columns = {
        "schedule_id": _part(names.id_from),
        "deliver_at": _time(header_of(names.due_from), _none_if_blank),
        "delay": _time(header_of(names.delay_from), lambda text: _with_unit(text, names)),
        "destination": _part(names.destination_from),
        "seq": _part(names.seq_from),
    }
    return {name: column for name, column in columns.items() if column is not None}


def _time(name: str | None, read_text: Callable[[Column], Column]) -> Column | None:
    """The text of a header of a time through a reader, as bytes."""
    if name is None:
        return None
    # By a lambda: the readers name the text several times, and compiled they would make the method too big
    # (wheel_udf.commands.generated_code).
    read_value = evaluate_once(_header(name).cast("string"), read_text)
    return F.when(_place(name) > 0, read_value).cast("binary")


def _part(setting: str | None) -> Column | None:
    """The part of the record that a setting names, as bytes."""
    if setting == KEY:
        return F.col("key")
    if setting == OFFSET:
        return F.concat_ws("/", "topic", "partition", "offset").cast("binary")
    if setting == CONSTANT:
        return F.lit("0").cast("binary")
    name = header_of(setting)
    return None if name is None else _header(name)


def _none_if_blank(text: Column) -> Column:
    return F.when(~text.rlike(rf"\A[{BLANKS}]*(?i:null)?[{BLANKS}]*\z"), text)


def _with_unit(text: Column, names: HeaderNames) -> Column:
    """A delay whose number has a unit."""
    if names.delay_unit is None:
        return _none_if_blank(text)
    plain = F.btrim(text, F.lit(BLANKS))
    if names.delay_unit == "level":
        spans = ",".join(f"{level}:{span} ms" for level, span in enumerate((0, *names.levels_ms)))
        known = F.try_element_at(F.str_to_map(F.lit(spans), F.lit(","), F.lit(":")), plain)
        number = F.coalesce(known, F.concat(F.lit("level "), plain))
    else:
        number = F.concat(plain, F.lit(f" {names.delay_unit}"))
    return F.when(plain.rlike(r"\A[+-]?[0-9.]+\z"), number).otherwise(_none_if_blank(text))


# --- parts of a record ----------------------------------------------------------------------------


def _with_headers(
    records: DataFrame, *prefixes: str, last: bool = True, times: Sequence[str] = ()
) -> DataFrame:
    """Adds the names and values of the headers (the one that counts comes first), and the headers to pass on.

    Headers whose names begin with a prefix are not passed on, nor are `times`; `last`: whether the last one of repeated
    headers counts.
    """
    headers = F.reverse("headers") if last else F.col("headers")
    frame = records.select(
        "*", headers.getField("key").alias("_names"), headers.getField("value").alias("_values")
    )

    def is_passed_on(each: Column) -> Column:
        name = each.getField("key")
        is_read = reduce(operator.or_, (F.startswith(name, F.lit(prefix)) for prefix in prefixes))
        return ~(is_read | name.isin(*times) if times else is_read)

    # Spark interprets a lambda, and most records have no other headers. So one pattern looks through all names first;
    # a name with the separator in it, which none should have, only makes it look closer.
    read_names = "|".join(
        (*map(re.escape, prefixes), *(rf"{re.escape(name)}(?:{_BETWEEN}|\z)" for name in times))
    )
    has_others = F.array_join("_names", _BETWEEN).rlike(rf"(?:\A|{_BETWEEN})(?!{read_names})")
    passed_on = F.filter("headers", is_passed_on)
    return frame.select("*", F.when((F.size("_names") > 0) & has_others, passed_on).alias("_passed_on"))


def _values_of(first: str, names: Sequence[str]) -> Column:
    """The values of headers that only records with the header `first` have, as one array; null for other records."""
    # By a lambda, which Spark interprets: few records have them, and in each batch Spark plans each look-up that stands
    # by itself, and generates code for it in each task.
    values = F.transform(
        F.array(*map(F.lit, names)), lambda name: F.get("_values", _place(name).cast("int") - 1)
    )
    return F.when(_place(first) > 0, values)


def _header(name: str) -> Column:
    """The value of a header, as bytes; null where it is missing."""
    # Two compiled lookups and no lambda, which Spark would interpret: there are eight of them for each record.
    return F.get(F.col("_values"), _place(name).cast("int") - 1)


def _place(name: str | Column) -> Column:
    """The place of a header, from 1; 0 where it is missing."""
    return F.array_position("_names", name)


def _others() -> Column:
    """The headers to pass on; null for none, as in the connector."""
    return F.when(F.size("_passed_on") > 0, F.col("_passed_on"))


def _epoch(words: Column) -> Column:
    """The instant of a whole number (UTC epoch ms); null for other text, another unit, or beyond any timestamp."""
    # By its digits: Spark would compute the number again for each comparison with a bound. What overflows is null.
    number = F.when(words.rlike(_EPOCH_MS), words.try_cast("long"))
    return F.timestamp_micros(F.try_multiply(number, F.lit(1000)))


def _named(columns: dict[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _source(*parts: str) -> list[Column]:
    """The origin of the row, and the parts of the record that the other columns do not hold."""
    return [
        F.concat_ws("/", "topic", "partition", "offset").alias("source_coordinates"),
        F.col("offset").alias(SOURCE_SEQ),
        F.struct("topic", "partition", "offset", "timestamp", *parts).alias("kafka"),
    ]
