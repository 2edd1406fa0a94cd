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

``native`` and ``scheduler`` are read in Spark's Python workers (:mod:`wheel_udf.commands.record_reader`), in one turn
with the check of the commands if nothing is done to their frame in between
(:func:`~wheel_udf.commands.arrow_stage.through_arrow`); ``json`` is read by Spark's expressions.

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

from typing import Final

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.commands.arrow_stage import through_arrow
from wheel_udf.commands.contract import PRESETS
from wheel_udf.commands.header_names import NO_NAMES, HeaderNames
from wheel_udf.commands.in_turn import Reader
from wheel_udf.commands.inputs import SOURCE_EVENT_TIME, SOURCE_SEQ
from wheel_udf.commands.json_objects import COMMAND_FIELDS, with_json_object
from wheel_udf.commands.record_reader import RECORD, NativeReader, SchedulerReader
from wheel_udf.commands.rules import UNREADABLE
from wheel_udf.common.command_facts import OUR_PREFIX
from wheel_udf.common.errors import ConfigError

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
        ContractError: With ``native`` and ``scheduler``: a column has not the connector's type.
    """
    if preset == "json":
        return _json(records)
    readers: dict[str, Reader] = {"native": NativeReader(names), "scheduler": SchedulerReader()}
    if preset not in readers:
        raise ConfigError(
            "not a preset of Kafka records", field="preset", value=preset, rule=f"one of {', '.join(PRESETS)}"
        )
    return through_arrow(records.select(*RECORD), readers[preset], "records")


def _json(records: DataFrame) -> DataFrame:
    frame = records.select("*", _others().alias("_passed_on"))
    frame = with_json_object(frame, F.col("value"))
    fields = {name: F.col(f"_object.{name}") for name in COMMAND_FIELDS}
    own = F.filter(fields["headers"], lambda each: ~_is_ours(each))
    columns = fields | {
        SOURCE_EVENT_TIME: F.when(fields["event_time"].isNull(), F.col("timestamp")),
        "key": F.coalesce(fields["key"].cast("binary"), F.col("key")),
        # An unreadable record goes to the rejects with its own key, value and headers.
        "value": F.when(F.col("_object").isNull(), F.col("value")).otherwise(fields["value"].cast("binary")),
        "headers": F.coalesce(own, F.when(F.size("_passed_on") > 0, F.col("_passed_on"))),
        UNREADABLE: F.col(UNREADABLE),
        "source_coordinates": F.concat_ws("/", "topic", "partition", "offset"),
        SOURCE_SEQ: F.col("offset"),
        "kafka": F.struct("topic", "partition", "offset", "timestamp", "key", "value", "headers"),
    }
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def _others() -> Column:
    """The headers to pass on; null or empty for none."""
    # Spark interprets a lambda, and most records have no other headers. So one pattern looks through all names first;
    # a name with the separator in it, which none should have, only makes it look closer.
    names = F.col("headers").getField("key")
    has_others = F.array_join(names, _BETWEEN).rlike(rf"(?:\A|{_BETWEEN})(?!{OUR_PREFIX})")
    passed_on = F.filter("headers", lambda each: ~_is_ours(each))
    return F.when((F.size("headers") > 0) & has_others, passed_on)


def _is_ours(header: Column) -> Column:
    return F.startswith(header.getField("key"), F.lit(OUR_PREFIX))
