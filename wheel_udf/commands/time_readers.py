"""Readers of instants and durations as Spark ``Column`` expressions. For the rules of all readers see
:mod:`wheel_udf.commands.readers`.

Instants as text are ISO 8601: ``2026-02-28``, ``2026-02-28T07:30``, ``2026-02-28 07:30:00.123456789+01:00``,
``...Z``. An instant without a zone is UTC, whatever the time zone of the session is. Named zones are refused:
a local time may occur twice or not at all, and only the producer knows which instant was intended.

Durations have the grammar of :mod:`wheel_udf.common.durations`, the same pattern as the Python reader::

    words   "1.5h"                   "PT1H30M"
    parts   ["","","1.5","","",""]   ["","","1","30","",""]   duration_parts: weeks, days, hours, minutes, seconds, ms
    ms      5400000                  5400000                  duration_ms, in a later projection
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Final

from pyspark.sql import Column, functions as F, types as T

from wheel_udf.commands import readers as read
from wheel_udf.commands.inputs import SOURCE_EVENT_TIME, Inputs
from wheel_udf.common.durations import BLANKS, DURATION_PATTERN, LONGEST_TEXT, TOO_LONG_MS, UNITS_MS
from wheel_udf.common.instants import MAX_INSTANT_MS

_DAY_MS: Final = 86_400_000
_DATE: Final = "[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_MINUTES: Final = "[T ][0-9]{2}:[0-9]{2}"
_SECONDS: Final = r":[0-9]{2}(?:\.[0-9]{1,9})?"
_ZONE: Final = " ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)"


def instant_ms(column: Column, kind: T.DataType, *, round_up: bool) -> Column:
    """UTC epoch ms (long) from a timestamp, timestamp_ntz (taken as UTC), date (its midnight in UTC) or text.

    Null for dates that no timestamp can hold. A number is refused: only a preset knows the unit of an epoch number. A
    fraction of a ms is rounded up (due times: never early) or down (the time of an event).

    Raises:
        TypeError: Any other type.
    """
    if isinstance(kind, T.TimestampType):
        return _timestamp_ms(column, round_up=round_up)
    if isinstance(kind, T.TimestampNTZType):
        return _wall_time_ms(column, round_up=round_up)
    if isinstance(kind, T.DateType):
        days = F.unix_date(column).cast("long")
        return F.when(F.abs(days) <= MAX_INSTANT_MS // _DAY_MS, days * _DAY_MS)
    try:
        return _text_instant_ms(read.text(column, kind), round_up=round_up)
    except TypeError:
        raise TypeError("timestamp, timestamp_ntz, date or ISO 8601 text") from None


def event_ms(given: Inputs) -> Column:
    """The ``event_time`` of a row (UTC epoch ms), else that of the source, else ``_batch_ms``; null if unreadable."""
    made_ms = F.col("_batch_ms")
    if asked := given.get("event_time"):
        made_ms = F.when(asked.column.isNull(), made_ms).otherwise(asked.read(instant_ms, round_up=False))
    return of_source_or(given, SOURCE_EVENT_TIME, made_ms, round_up=False)


def of_source_or(given: Inputs, name: str, text_ms: Column, *, round_up: bool) -> Column:
    """The instant that a source has read already (its text is then not read), else another one (UTC epoch ms)."""
    read_already = given.get(name)
    if read_already is None:
        return text_ms
    at_ms = read_already.read(instant_ms, round_up=round_up)
    return F.when(read_already.column.isNotNull(), at_ms).otherwise(text_ms)


def utc_text(instant_ms: Column) -> Column:
    """Writes an instant (UTC epoch ms) as text that :func:`instant_ms` reads, such as ``2026-01-01 10:00:00.5Z``.

    A timestamp's own text would be in the zone of the session. The instant is bounded, since Spark may compute it
    for rows that do not use it.
    """
    within = F.greatest(F.lit(-MAX_INSTANT_MS), F.least(F.lit(MAX_INSTANT_MS), instant_ms))
    epoch = F.lit("1970-01-01").cast("timestamp_ntz")
    return F.concat(F.timestamp_add("MILLISECOND", within, epoch).cast("string"), F.lit("Z"))


def _timestamp_ms(stamp: Column, *, round_up: bool) -> Column:
    floor = F.unix_millis(stamp)
    if not round_up:
        return F.greatest(floor, F.lit(-MAX_INSTANT_MS))  # floored, the first ms of all fits no timestamp
    return floor + (F.unix_micros(stamp) % 1000 != 0).cast("long")


def _wall_time_ms(wall: Column, *, round_up: bool) -> Column:
    # Not through a cast to timestamp: that would read the wall time in the zone of the session.
    seconds = F.date_part(F.lit("SECOND"), wall) * 1000
    fields = F.ceil(seconds) if round_up else F.floor(seconds)
    minutes = F.hour(wall) * 60 + F.minute(wall)
    return F.unix_date(wall.cast("date")).cast("long") * _DAY_MS + minutes * 60_000 + fields.cast("long")


def _text_instant_ms(words: Column, *, round_up: bool) -> Column:
    plain = F.btrim(words, F.lit(BLANKS))
    whole = F.when(plain.rlike(rf"\A{_DATE}{_MINUTES}{_SECONDS}{_ZONE}\z"), plain)
    whole = whole.when(plain.rlike(rf"\A{_DATE}{_MINUTES}{_SECONDS}\z"), F.concat(plain, F.lit("Z")))
    whole = whole.when(plain.rlike(rf"\A{_DATE}\z"), F.concat(plain, F.lit("T00:00:00Z")))
    with_seconds = F.regexp_replace(plain, rf"\A({_DATE}{_MINUTES})", "$1:00")
    whole = whole.when(plain.rlike(rf"\A{_DATE}{_MINUTES}{_ZONE}\z"), with_seconds)
    whole = whole.when(plain.rlike(rf"\A{_DATE}{_MINUTES}\z"), F.concat(with_seconds, F.lit("Z")))
    floor = F.unix_millis(whole.try_cast("timestamp"))
    if not round_up:
        return floor
    # From the text and not from the timestamp: Spark reads nine digits and keeps six, and all nine count.
    return floor + plain.rlike(r"\.[0-9]{3}0*[1-9]").cast("long")


def duration_parts(words: Column) -> Column:
    """First half of reading a duration: its numbers, as an array of six strings (weeks, days, hours, minutes, seconds,
    milliseconds), most of them empty; null or of another size where the text is not a duration.
    """
    listed = ",".join((*(f"${unit}${unit + len(UNITS_MS)}" for unit in range(1, len(UNITS_MS))), "$6"))
    numbers = F.split(F.regexp_replace(words, rf"\A{DURATION_PATTERN}\z", listed), ",")
    # A text that does not match is returned unchanged, and would pass for six numbers if it had commas in it.
    return F.when((F.length(words) <= LONGEST_TEXT) & ~F.contains(words, F.lit(",")), numbers)


def duration_parts_of(column: Column, kind: T.DataType) -> Column:
    """As :func:`duration_parts`, of a column of the user. Numbers too: a delay of 0 needs no unit.

    Raises:
        TypeError: Neither a number nor text.
    """
    return duration_parts(
        column.cast("string") if isinstance(kind, T.NumericType) else read.text(column, kind)
    )


def duration_ms(words: Column, parts: Column) -> Column:
    """Second half of reading a duration: ms (long), rounded up, saturated as in
    :mod:`wheel_udf.common.durations`; null where the text is null or not a duration. `parts` is the result of
    :func:`duration_parts`, in a column of an earlier projection.
    """
    total = reduce(
        operator.add, (_component(F.get(parts, F.lit(i)), unit) for i, unit in enumerate(UNITS_MS))
    )
    sign = F.when(F.contains(words, F.lit("-")), -1).otherwise(1).cast("decimal(1,0)")
    limit = F.lit(TOO_LONG_MS).cast("decimal(38,0)")
    total_ms = F.greatest(-limit, F.least(limit, F.ceil(total * sign).cast("decimal(38,0)")))
    return F.when(F.size(parts) == len(UNITS_MS), total_ms.cast("long"))


def _component(number: Column, unit_ms: int) -> Column:
    """One component in ms, exact to nine places, saturated; no sum of six of them overflows its decimal."""
    limit = F.lit(TOO_LONG_MS).cast("decimal(28,9)")
    exact = number.try_cast("decimal(28,9)") * F.lit(unit_ms).cast("decimal(9,0)")  # null from 20 digits on
    size = F.least(limit, F.coalesce(exact, limit)).cast("decimal(28,9)")
    return F.when(number == "", F.lit(0).cast("decimal(28,9)")).otherwise(size)
