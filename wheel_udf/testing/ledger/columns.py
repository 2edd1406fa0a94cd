"""Frames of any kind as columns of plain Python values: instants as UTC epoch ms, payloads as bytes.

::

    Arrow table | pandas frame | Spark DataFrame | dicts  -->  Columns  -->  texts("schedule_id"), ...

An instant is a timestamp, ISO text, or a whole number of ms in a column whose name ends in ``_ms``. A missing column
is all None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.errors import ContractError
from wheel_udf.testing.ledger import texts

Frame = Any
"""An Arrow table, a pandas frame, a Spark DataFrame (anything with ``toArrow``), or an iterable of mappings."""

Headers = tuple[tuple[str, bytes | None], ...]

UNREADABLE: Final = object()
"""In place of a value that cannot be read."""


class Columns:
    """The columns of a frame, by name in lower case."""

    def __init__(self, frame: Frame, required: Iterable[str] = (), what: str = "rows") -> None:
        self._columns = _columns_of(frame)
        self.rows = len(next(iter(self._columns.values()), ()))
        for name in required if self.rows else ():
            if not self.has(name):
                raise ContractError(
                    f"{what} lack a column", field=name, rule=f"required: {', '.join(required)}"
                )

    def has(self, name: str) -> bool:
        """Whether the column, or the one of the same name in ms, is there."""
        return name in self._columns or f"{name}_ms" in self._columns

    def values(self, name: str) -> list[Any]:
        """The values as they are."""
        column = self._columns.get(name)
        if column is None:
            return [None] * self.rows
        values: list[Any] = column.to_pylist() if isinstance(column, pa.ChunkedArray) else column
        return values

    def texts(self, name: str) -> list[Any]:
        """Texts; whole numbers and bytes become text."""
        return [
            value if isinstance(value, str) or value is None else _text(value) for value in self.values(name)
        ]

    def octets(self, name: str) -> list[bytes | None]:
        """Bytes; text becomes UTF-8."""
        return [
            value if isinstance(value, bytes) or value is None else _octets(value)
            for value in self.values(name)
        ]

    def headers(self, name: str) -> list[Headers]:
        """Headers as pairs; none and null are the same."""
        return [_headers(value) if value is not None else () for value in self.values(name)]

    def whole(self, name: str) -> list[Any]:
        """Whole numbers of 64 bits; :data:`UNREADABLE` for other values."""
        return [
            value if type(value) is int or value is None else _whole(value) for value in self.values(name)
        ]

    def instants(self, name: str, *, up: bool) -> list[Any]:
        """Instants in ms; parts of a ms round up or down; :data:`UNREADABLE` for other values."""
        if name not in self._columns:
            return self.whole(f"{name}_ms")
        column = self._columns[name]
        if isinstance(column, pa.ChunkedArray) and pa.types.is_timestamp(column.type):
            return _timestamps(column, up=up)
        return [None if value is None else _instant(value, up=up) for value in self.values(name)]


def _columns_of(frame: Frame) -> dict[str, Any]:
    if hasattr(frame, "toArrow"):
        frame = frame.toArrow()
    if isinstance(frame, pd.DataFrame):
        frame = pa.Table.from_pandas(frame, preserve_index=False)
    if isinstance(frame, pa.Table):
        return {name.lower(): frame[number] for number, name in enumerate(frame.column_names)}
    rows = [{name.lower(): value for name, value in row.items()} for row in frame]
    names = {name for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


def _timestamps(column: pa.ChunkedArray, *, up: bool) -> list[int | None]:
    utc = column.cast(pa.timestamp(column.type.unit))
    rounded = (pc.ceil_temporal if up else pc.floor_temporal)(utc, unit="millisecond")
    numbers: list[int | None] = rounded.cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    return numbers


def _instant(value: Any, *, up: bool) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001  # a date is UTC midnight
    if value is pd.NaT:
        return None
    found = texts.instant_ms(value, up=up) if isinstance(value, str | datetime) else None
    return UNREADABLE if found is None else found


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return UNREADABLE
    return str(value)


def _octets(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _whole(value: Any) -> Any:
    try:
        exact = Decimal(str(value).strip())
    except ArithmeticError:
        return UNREADABLE
    if exact.is_nan() and isinstance(value, float):
        return None  # pandas writes a missing number so
    if not exact.is_finite() or abs(exact) >= 2**63 or exact != int(exact):
        return UNREADABLE
    return int(exact)


def _headers(value: Any) -> Headers:
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple(_header(pair) for pair in pairs)


def _header(pair: Any) -> tuple[str, bytes | None]:
    key, value = (pair.get("key"), pair.get("value")) if isinstance(pair, Mapping) else (pair[0], pair[1])
    name = "" if key is None else key if isinstance(key, str) else str(_text(key))
    return name, value if value is None else _octets(value)
