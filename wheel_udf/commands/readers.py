"""Readers of user data as Spark ``Column`` expressions: text, bytes, headers, numbers. Times are in
:mod:`wheel_udf.commands.time_readers`.

A reader takes a column and its Spark type, and returns a column that is null where the value cannot be read.
No reader raises on data (ANSI mode is on in Spark 4: a bad cast or an overflow would stop a stream). A type
that can hold no valid value raises :class:`TypeError` with the rule it breaks.

Where a projection uses an expression twice, Spark computes it twice. So a reader that needs an intermediate
result more than once comes in two halves, for two projections (``duration_parts`` and ``duration_ms``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, functions as F, types as T

from wheel_udf.commands.generated_code import of_batch
from wheel_udf.common.durations import BLANKS

HEADERS: Final = "array<struct<key:string,value:binary>>"
"""The type of headers, as in Kafka's connector."""

LONG_JSON: Final[Mapping[str, str]] = {"maxStringLen": str(2**31 - 1)}
"""Options of Spark's readers of JSON. By default a text of over 20,000,000 characters makes the record unreadable."""

_OCTETS: Final = (T.StringType, T.CharType, T.VarcharType, T.BinaryType, T.NullType)
_LARGEST_EXACT: Final = float(2**53)


def null(kind: str) -> Column:
    """A null of a type."""
    return F.lit(None).cast(kind)


def batch_ms() -> Column:
    """The time of the batch (UTC epoch ms). Spark journals it before a streaming batch: a replay reads the same."""
    return of_batch(F.unix_millis(F.current_timestamp()))


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
    """A long from any numeric type or numeric text; null for fractions and for numbers beyond 64 bits.

    A float or double is taken up to 2**53, where it stops being exact.

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
