"""Single values of a batch as text and as JSON, in the forms of Spark: for messages and records of rejected rows.

Instants are written in UTC. Of types that Arrow does not have, Spark writes the JSON (:data:`VERBATIM`).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from wheel_udf.commands.readers import are_octets

VERBATIM: Final = "_json"
"""The only field of a struct that stands for a value of a type that Arrow does not have: its JSON."""

_DAY_US: Final = 86_400_000_000
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_PLAIN_FLOATS: Final = (1e-3, 1e7)
"""Java writes a float without an exponent from the first on and below the second."""
_NAMES_OF_FLOATS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_MOST_DIGITS_OF_A_YEAR: Final = 4


def readable(octets: bytes) -> str:
    """Bytes as text where they are UTF-8, else as ``base64:...``."""
    try:
        words = octets.decode()
    except UnicodeDecodeError:
        words = "base64:"
    return f"base64:{base64.b64encode(octets).decode()}" if words.startswith("base64:") else words


def _octets_of(value: pa.Scalar) -> bytes | None:
    """The bytes of a binary or a string, which may be no UTF-8."""
    buffer = value.as_buffer()
    return None if buffer is None else buffer.to_pybytes()


def text_of(value: pa.Scalar) -> str | None:
    """A value as text, valid UTF-8; None for null."""
    if not value.is_valid:
        return None
    kind = value.type
    if are_octets(kind):
        words = (_octets_of(value) or b"").decode(errors="replace")
    elif kinds.is_timestamp(kind):
        words = utc_text(value.value, "" if kind.tz is None else "Z")
    elif kinds.is_date32(kind):
        words = _date_text(value.value)
    elif kinds.is_floating(kind):
        words = _float_text(value)
    elif kinds.is_nested(kind):
        words = json_of(value)
    else:
        words = str(value.as_py())
        words = words.lower() if kinds.is_boolean(kind) else words
    return words


def utc_text(instant_us: int, zone: str = "Z") -> str:
    """Writes an instant (UTC epoch microseconds), such as ``2026-01-01 10:00:00.5Z``."""
    days, rest_us = divmod(instant_us, _DAY_US)
    fraction = f"{rest_us % 1_000_000:06d}".rstrip("0")
    return f"{_date_text(days)} {_time_text(rest_us)}{'.' if fraction else ''}{fraction}{zone}"


def json_of(value: pa.Scalar) -> str:
    """A value as JSON: nulls of structs left out, bytes as :func:`readable` writes them."""
    kind = value.type
    if kinds.is_struct(kind):
        if kind.num_fields == 1 and kind.field(0).name == VERBATIM:
            return str(value[0].as_py()) if value.is_valid else "null"
        return json_of_fields(_fields(value))
    if kinds.is_map(kind):
        # Arrow gives its entries as pairs.
        pairs = ((pair[0], pair[1]) for pair in value.values)
        return "{" + ",".join(f"{_quoted(text_of(key) or '')}:{_element(item)}" for key, item in pairs) + "}"
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        write = _json_of_nullable if kinds.is_struct(kind.value_type) else _element
        return f"[{','.join(map(write, value.values))}]"
    return _leaf(value)


def json_of_fields(
    fields: list[tuple[str, pa.Scalar]], left_out: Sequence[str] = (), inside: str | None = None
) -> str:
    """The JSON of an object; fields that are null are left out.

    Args:
        fields: Names and values.
        left_out: Names, in lower case, of fields to leave out.
        inside: The field, a struct, whose fields of these names are left out, too.
    """
    parts = []
    for name, value in fields:
        if not value.is_valid or name.lower() in left_out:
            continue
        is_inside = name == inside and kinds.is_struct(value.type)
        words = json_of_fields(_fields(value), left_out) if is_inside else json_of(value)
        parts.append(f"{_quoted(name)}:{words}")
    return "{" + ",".join(parts) + "}"


def _fields(value: pa.Scalar) -> list[tuple[str, pa.Scalar]]:
    return [(field.name, value[at]) for at, field in enumerate(value.type)]


def _json_of_nullable(value: pa.Scalar) -> str:
    """As :func:`json_of`; ``null`` for null."""
    return json_of(value) if value.is_valid else "null"


def _element(value: pa.Scalar) -> str:
    """An element of an array, or a value of a map: bytes are plain base64."""
    if value.is_valid and kinds.is_binary(value.type):
        return _quoted(base64.b64encode(_octets_of(value) or b"").decode())
    if value.is_valid and kinds.is_string(value.type):
        return _quoted(text_of(value) or "")
    return _json_of_nullable(value)


def _leaf(value: pa.Scalar) -> str:
    kind = value.type
    if are_octets(kind):
        return _quoted(readable(_octets_of(value) or b""))
    if kinds.is_timestamp(kind):
        days, rest_us = divmod(value.value, _DAY_US)
        zone = "" if kind.tz is None else "Z"
        return f'"{_date_text(days)}T{_time_text(rest_us)}.{rest_us % 1_000_000:06d}{zone}"'
    words = text_of(value) or "null"
    is_bare = kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_decimal(kind)
    return words if is_bare or (kinds.is_floating(kind) and math.isfinite(value.as_py())) else f'"{words}"'


def _quoted(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)


def _date_text(days: int) -> str:
    # Python's dates end in the year 9999, Spark's in the year 294247; the calendar repeats itself.
    cycles, day = divmod(days, _CYCLE_DAYS)
    same = date(1970, 1, 1) + timedelta(days=day)
    year = same.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if len(str(year)) > _MOST_DIGITS_OF_A_YEAR else ""
    return f"{sign}{abs(year):04d}-{same:%m-%d}"


def _time_text(of_day_us: int) -> str:
    seconds = of_day_us // 1_000_000
    return f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _float_text(value: pa.Scalar) -> str:
    """A float or double as Java writes it: ``1.0E10``, ``0.1``."""
    number = value.as_py()
    words = str(value.cast(pa.string()).as_py()) if kinds.is_float32(value.type) else repr(number)
    if not math.isfinite(number):
        return _NAMES_OF_FLOATS[repr(number)]
    least, beyond = _PLAIN_FLOATS
    if number == 0 or least <= abs(number) < beyond:
        plain = words if "e" not in words else f"{number:f}"
        return plain if "." in plain else f"{plain}.0"
    exact = Decimal(words)
    digits = "".join(map(str, exact.as_tuple().digits)).strip("0")
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exact.adjusted()}"
