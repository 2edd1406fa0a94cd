"""Readers of user data, a column of a batch at a time: text, bytes, headers, numbers. Times are in
:mod:`wheel_udf.commands.time_readers`.

A reader takes a ``pa.Array`` of n values and returns one of n values that is null where the value is null or cannot be
read. No reader raises on data. A type that can hold no valid value raises :class:`TypeError` with the rule it breaks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from wheel_udf.common.durations import BLANKS

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The type of headers, as in Kafka's connector."""

_LARGEST_EXACT: Final = float(2**53)
_SAFE_DIGITS: Final = 18
"""Any number of so many digits fits into 64 bits."""
# One way to match: if zeros in front had a part of their own, RE2 would take four times as long.
_WHOLE: Final = rf"\A[{BLANKS}]*(?P<sign>[+-]?)(?P<digits>[0-9]+)[{BLANKS}]*\z"


def are_octets(kind: pa.DataType) -> bool:
    """Whether a type is a string or binary, or has nulls alone."""
    return bool(
        kinds.is_string(kind)
        or kinds.is_binary(kind)
        or kinds.is_large_string(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_null(kind)
    )


def octets(values: pa.Array) -> pa.BinaryArray:
    """Bytes from a binary or string column.

    Raises:
        TypeError: Any other type.
    """
    if not are_octets(values.type):
        raise TypeError("binary or string")
    return values.cast(pa.binary())


def text(values: pa.Array) -> pa.StringArray:
    """Text from a string or binary column; bytes that are no UTF-8 become U+FFFD, which no grammar here has.

    Raises:
        TypeError: Any other type.
    """
    if not are_octets(values.type):
        raise TypeError("string")
    raw = values.cast(pa.binary())
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if each is None else each.decode(errors="replace") for each in raw.to_pylist()], pa.string()
        )


def words(values: pa.Array) -> pa.StringArray:
    """Key words, as :func:`text`: in lower case, without outer blanks.

    Raises:
        TypeError: Neither a string nor binary.
    """
    return pc.ascii_lower(pc.ascii_trim(text(values), BLANKS))


def code_of(found: pa.StringArray, known: Mapping[str, int]) -> pa.Int64Array:
    """The numbers of key words (int64); null for words that are not known, and null is the empty word."""
    place = pc.index_in(pc.fill_null(found, ""), pa.array(list(known)))
    return pa.array(list(known.values()), pa.int64()).take(place)


def is_utf8(raw: pa.BinaryArray) -> pa.BooleanArray:
    """Which values are UTF-8; null for null."""
    try:
        return pc.is_valid(raw.cast(pa.string()))
    except pa.ArrowInvalid:
        return pa.array([None if each is None else is_text(each) for each in raw.to_pylist()], pa.bool_())


def is_text(raw: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def identity(values: pa.Array) -> pa.BinaryArray:
    """The bytes of a text, from a string, binary or whole-number column (42 becomes ``42``).

    Raises:
        TypeError: Any other type: a float or a timestamp has more than one spelling.
    """
    kind = values.type
    if kinds.is_integer(kind) or (kinds.is_decimal(kind) and kind.scale == 0):
        return values.cast(pa.string()).cast(pa.binary())
    try:
        return octets(values)
    except TypeError:
        raise TypeError("string, binary or a whole number") from None


def whole_number(values: pa.Array) -> pa.Int64Array:
    """A long from any numeric type or numeric text; null for fractions and for numbers beyond 64 bits.

    A float or double is taken up to 2**53, where it stops being exact.

    Raises:
        TypeError: Any other type.
    """
    kind = values.type
    if kinds.is_integer(kind):
        return values.cast(pa.int64())
    if kinds.is_floating(kind):
        exact = pc.and_(pc.equal(pc.round(values), values), pc.less_equal(pc.abs(values), _LARGEST_EXACT))
        return pc.if_else(exact, values, None).cast(pa.int64())
    if kinds.is_decimal(kind):
        return pa.array([_of_decimal(each) for each in values.to_pylist()], pa.int64())
    return _whole_text(text(values))


def _of_decimal(number: object) -> int | None:
    whole = None if number is None else int(number)  # type: ignore[call-overload]
    return whole if whole is not None and whole == number and -(2**63) <= whole < 2**63 else None


def _whole_text(words: pa.StringArray) -> pa.Int64Array:
    if words.null_count == len(words):
        return pa.nulls(len(words), pa.int64())
    parts = pc.extract_regex(words, _WHOLE)
    sign, digits = pc.struct_field(parts, 0), pc.ascii_ltrim(pc.struct_field(parts, 1), "0")
    length = pc.utf8_length(digits)
    size = pc.if_else(pc.equal(length, 0), "0", digits)  # of 0 nothing is left
    size = pc.if_else(pc.less_equal(length, _SAFE_DIGITS), size, None).cast(pa.int64())
    number = pc.if_else(pc.equal(sign, "-"), pc.negate(size), size)
    long = pc.fill_null(pc.equal(length, _SAFE_DIGITS + 1), fill_value=False)
    if not pc.any(long).as_py():
        return number
    rows = np.flatnonzero(long.to_numpy(zero_copy_only=False))
    # Of the digits without zeros in front: Python refuses to read a number of thousands of digits.
    exact = [int(f"{sign[row].as_py()}{digits[row].as_py()}") for row in rows.tolist()]
    return pc.replace_with_mask(
        number, long, pa.array([each if -(2**63) <= each < 2**63 else None for each in exact], pa.int64())
    )


# --- headers --------------------------------------------------------------------------------------


def headers(values: pa.Array) -> pa.ListArray:
    """Headers as :data:`HEADERS`, from an array of structs with a key and a value, or from a map.

    Keys and values may be string or binary; other fields of the structs are dropped.

    Raises:
        TypeError: Any other type.
    """
    kind = values.type
    if kinds.is_null(kind):
        return values.cast(HEADERS)
    if kinds.is_map(kind) and are_octets(kind.key_type) and are_octets(kind.item_type):
        return _headers_of(values, values.keys, values.items, None)
    if kinds.is_list(kind) and kinds.is_struct(kind.value_type):
        fields = [kind.value_type.field(at) for at in range(kind.value_type.num_fields)]
        places = {field.name.lower(): at for at, field in enumerate(fields)}
        if {"key", "value"} <= places.keys():
            at, at_value = places["key"], places["value"]
            if are_octets(fields[at].type) and are_octets(fields[at_value].type):
                each = values.values
                return _headers_of(values, each.field(at), each.field(at_value), pc.is_null(each))
    raise TypeError("array<struct<key, value>> or map, of strings or binaries")


def _headers_of(
    values: pa.Array, names: pa.Array, items: pa.Array, missing: pa.BooleanArray | None
) -> pa.ListArray:
    pairs = pa.StructArray.from_arrays(
        [text(names), octets(items)],
        fields=[HEADERS.value_type.field(0), HEADERS.value_type.field(1)],
        mask=missing,
    )
    return pa.ListArray.from_arrays(
        values.offsets, pairs, type=HEADERS, mask=pc.is_null(values) if values.null_count else None
    )


def headers_octets(values: pa.ListArray) -> pa.Int64Array:
    """How many bytes all names and values of the headers of a row have; 0 for null."""
    pairs = pc.list_flatten(values)
    sizes = np.zeros(len(pairs), np.int64)
    for part in (pc.struct_field(pairs, 0), pc.struct_field(pairs, 1)):
        sizes += _filled(pc.binary_length(part))
    rows = pc.list_parent_indices(values).to_numpy()
    return pa.array(np.bincount(rows, weights=sizes, minlength=len(values)).astype(np.int64))


def _filled(numbers: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False))


def headers_json(values: pa.ListArray) -> pa.StringArray:
    """The JSON of headers, values as base64, as Spark's ``to_json`` writes :data:`HEADERS`; null for null."""
    # Most rows have none, so a loop over the headers of those that have some costs little.
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.string())
    pairs = pc.list_flatten(values)
    names, items = pc.struct_field(pairs, 0).to_pylist(), pc.struct_field(pairs, 1).to_pylist()
    is_there = pc.is_valid(pairs).to_pylist()
    each = [
        _pair_json(name, item) if there else "null"
        for name, item, there in zip(names, items, is_there, strict=True)
    ]
    ends = np.cumsum(_filled(pc.list_value_length(values)))
    texts, begin = [], 0
    for end, valid in zip(ends.tolist(), pc.is_valid(values).to_pylist(), strict=True):
        texts.append(f"[{','.join(each[begin:end])}]" if valid else None)
        begin = end
    return pa.array(texts, pa.string())


def _pair_json(name: str | None, item: bytes | None) -> str:
    parts = [] if name is None else [f'"key":{_quoted(name)}']
    if item is not None:
        parts.append(f'"value":"{base64.b64encode(item).decode()}"')
    return "{" + ",".join(parts) + "}"


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
