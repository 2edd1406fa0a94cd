"""Readers of user data as Spark ``Column`` expressions: text, bytes, instants, durations, version numbers.

A reader takes a column and its Spark type, and gives a column that is null where the value cannot be read.
None can raise on data (ANSI mode is on in Spark 4: a bad cast or an overflow would stop a stream), and none
depends on the time zone of the session: an instant without a zone is UTC. A type that can hold no valid value
raises :class:`TypeError` with the rule it breaks; :meth:`Input.read` makes that a ``ContractError`` which
names the column.

Instants as text are ISO 8601: ``2026-02-28``, ``2026-02-28T07:30``, ``2026-02-28 07:30:00.123456789+01:00``,
``...Z``. Named zones are refused: a local time may exist twice or not at all, and only the producer knows
which instant was meant.

Where a projection uses an expression twice, Spark computes it twice. So a reader that needs an intermediate
result more than once comes in two halves, for two projections (``duration_parts`` and ``duration_ms``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf.durations import BLANKS, LONGEST_TEXT, PATTERN, TOO_LONG_MS, UNITS_MS
from wheel_udf.errors import ContractError

MAX_INSTANT_MS: Final = (2**63 - 1) // 1000
"""The last whole ms that a Spark timestamp (64-bit microseconds) can hold, in the year 294247."""

HEADERS: Final = "array<struct<key:string,value:binary>>"
"""The type of headers, as Kafka's connector has it."""

_OCTETS: Final = (T.StringType, T.CharType, T.VarcharType, T.BinaryType, T.NullType)
_DAY_MS: Final = 86_400_000
_LARGEST_EXACT: Final = float(2**53)

_DATE: Final = "[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_MINUTES: Final = "[T ][0-9]{2}:[0-9]{2}"
_SECONDS: Final = r":[0-9]{2}(?:\.[0-9]{1,9})?"
_ZONE: Final = " ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)"


class Input(NamedTuple):
    """A column of the input: its name, how to refer to it, its type, and what the rows are."""

    name: str
    column: Column
    kind: T.DataType
    what: str = "commands"

    def read(self, reader: Callable[..., Column], **options: bool) -> Column:
        """The column through one of the readers of this module.

        Raises:
            ContractError: The column's type can hold no valid value.
        """
        try:
            return reader(self.column, self.kind, **options)
        except TypeError as fault:
            raise ContractError(
                f"a column of the {self.what} has a type that no valid value can have",
                field=self.name,
                value=self.kind.simpleString(),
                rule=str(fault),
                hint="cast the column, or drop it",
            ) from None

    @property
    def shown(self) -> Column:
        """The column as text, for messages."""
        return self.column.cast("string")


Inputs = dict[str, Input]


def located(
    frame: DataFrame, known: Collection[str], *, required: Collection[str], what: str
) -> tuple[DataFrame, Inputs, list[Input]]:
    """Finds the columns of a frame that are known by name, in any case.

    Args:
        frame: Of the user.
        known: The names, in lower case.
        required: Those that have to be there.
        what: What the rows are, for messages.

    Returns:
        The frame with positions for names, so that columns of the user can meet neither ours nor each other; the known columns by name; all columns.

    Raises:
        ContractError: A name that is there twice, or a required one is not there.
    """
    original = [
        Input(field.name, F.col(f"in{at}"), field.dataType, what) for at, field in enumerate(frame.schema)
    ]
    found: dict[str, int] = {}
    for position, (name, *_) in enumerate(original):
        if name.lower() in found:
            raise ContractError(
                f"a column of the {what} is there twice",
                field=name.lower(),
                value=f"{original[found[name.lower()]].name}, {name}",
                rule="one column of each name, whatever its case",
            )
        if name.lower() in known:
            found[name.lower()] = position
    if missing := [name for name in required if name not in found]:
        asked = [name for name in known if not name.startswith(("_", "source_seq")) and name not in required]
        raise ContractError(
            f"the {what} have no column {', '.join(missing)}",
            field="columns found",
            value=", ".join(frame.columns),
            rule=f"columns expected: {', '.join(required)}, and as needed {', '.join(asked)}",
            hint="rename the column that holds the id" if missing == ["schedule_id"] else None,
        )
    given = {name: Input(name, *original[at][1:]) for name, at in found.items()}
    return frame.toDF(*(f"in{at}" for at in range(len(original)))), given, original


def null(kind: str) -> Column:
    """A null of a type."""
    return F.lit(None).cast(kind)


def batch_ms() -> Column:
    """The time of the batch (UTC epoch ms). In a stream Spark journals it before the batch runs: a replay sees the same.

    Spark writes the time into the code that it generates, so code with a time in it is compiled anew for every batch, and runs cold.
    A lambda is interpreted, its time is no part of any code. And since the number of a partition (shifted, it is 0) is not deterministic, the
    optimizer makes no copies of the whole: it is asked once for each row.
    """
    once = F.transform(F.array(F.lit(0)), lambda _: F.unix_millis(F.current_timestamp()))
    return F.get(once, F.shiftrightunsigned(F.spark_partition_id(), 31))


def text(column: Column, kind: T.DataType) -> Column:
    """Text from a string or binary column (bytes are taken as UTF-8 and not checked).

    Raises:
        TypeError: Any other type.
    """
    if not isinstance(kind, _OCTETS):
        raise TypeError("string")
    return column.cast("string")


def identity(column: Column, kind: T.DataType) -> Column:
    """Text from a string, binary or whole-number column (42 becomes ``42``).

    Raises:
        TypeError: Any other type: a float or a timestamp has more than one spelling.
    """
    if isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and kind.scale == 0):
        return column.cast("string")
    try:
        return text(column, kind)
    except TypeError:
        raise TypeError("string, binary or a whole number") from None


def octets(column: Column, kind: T.DataType) -> Column:
    """Bytes from a binary or string column.

    Raises:
        TypeError: Any other type.
    """
    if not isinstance(kind, _OCTETS):
        raise TypeError("binary or string")
    return column.cast("binary")


def headers(column: Column, kind: T.DataType) -> Column:
    """Headers as :data:`HEADERS`, from an array of structs with a key and a value, or from a map.

    Keys and values may be string or binary; other fields of the structs are dropped.

    Raises:
        TypeError: Any other type.
    """
    if isinstance(kind, T.NullType):
        return column.cast(HEADERS)
    if isinstance(kind, T.MapType) and _are_octets(kind.keyType, kind.valueType):
        return F.map_entries(column).cast(HEADERS)
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.StructType):
        parts = {field.name.lower(): field for field in kind.elementType.fields}
        if {"key", "value"} <= parts.keys() and _are_octets(parts["key"].dataType, parts["value"].dataType):
            if [name.lower() for name in kind.elementType.names] == ["key", "value"]:
                return column.cast(HEADERS)
            names = parts["key"].name, parts["value"].name
            return F.transform(column, lambda each: F.struct(*(each.getField(name) for name in names))).cast(
                HEADERS
            )
    raise TypeError("array<struct<key, value>> or map, of strings or binaries")


def headers_octets(column: Column) -> list[Column]:
    """The bytes of all keys, and of all values, of a column of :data:`HEADERS`; null for null."""
    # Joined and not summed: a sum needs a lambda, which Spark does not compile.
    keys, values = column.getField("key"), column.getField("value").cast("array<string>")
    return [F.octet_length(F.array_join(each, "")) for each in (keys, values)]


def _are_octets(*kinds: T.DataType) -> bool:
    return all(isinstance(kind, _OCTETS) for kind in kinds)


def whole_number(column: Column, kind: T.DataType) -> Column:
    """A long from any numeric type or numeric text; null for fractions and for what 64 bits cannot hold.

    A float or double counts up to 2**53, where it stops being exact. (Readers of JSON and pandas make doubles
    of integers.)

    Raises:
        TypeError: Any other type.
    """
    if isinstance(kind, (T.IntegralType, T.NullType)):
        return column.cast("long")
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        number = column.cast("double")
        exact = (F.rint(number) == number) & (F.abs(number) <= _LARGEST_EXACT)  # NaN sorts above all: not <=
        return F.when(exact, number.try_cast("long"))
    if isinstance(kind, T.DecimalType):
        number = column.try_cast("long")
        return F.when(number == column, number)
    words = text(column, kind)
    return F.when(words.rlike(rf"\A[{BLANKS}]*[+-]?[0-9]+[{BLANKS}]*\z"), words.try_cast("long"))


def instant_ms(column: Column, kind: T.DataType, *, round_up: bool) -> Column:
    """UTC epoch ms (long) from a timestamp, timestamp_ntz (taken as UTC), date (its midnight in UTC) or text.

    A number is null: what unit an epoch number has is for a preset to say. Also null: dates that no timestamp
    can hold.

    Args:
        column: The instants.
        kind: Their Spark type.
        round_up: A fraction of a ms goes up (due times: never early) or down (the time an event was made).

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
    if isinstance(kind, T.NumericType):
        return F.lit(None).cast("long")
    try:
        return _text_instant_ms(text(column, kind), round_up=round_up)
    except TypeError:
        raise TypeError("timestamp, timestamp_ntz, date or string") from None


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
    # Asked of the text, not of the timestamp: Spark reads nine digits and keeps six, and all of them count.
    return floor + plain.rlike(r"\.[0-9]{3}0*[1-9]").cast("long")


def duration_parts(words: Column) -> Column:
    """First half of reading a duration: its numbers.

    Returns:
        An array of six strings, the numbers of weeks, days, hours, minutes, seconds and milliseconds, most of
        them empty; null or of another size where the text is no duration.
    """
    listed = ",".join((*(f"${unit}${unit + len(UNITS_MS)}" for unit in range(1, len(UNITS_MS))), "$6"))
    numbers = F.split(F.regexp_replace(words, rf"\A{PATTERN}\z", listed), ",")
    # What does not match comes back as it was, and would be taken for six numbers if it had commas in it.
    return F.when((F.length(words) <= LONGEST_TEXT) & ~F.contains(words, F.lit(",")), numbers)


def duration_ms(words: Column, parts: Column) -> Column:
    """Second half of reading a duration: ms (long), rounded up, saturated as in :mod:`wheel_udf.durations`.

    Args:
        words: The text.
        parts: What :func:`duration_parts` made of it, in a column of a projection below.

    Returns:
        Null where the text is null or no duration.
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
