"""Frames for the code of the tiered mode that was written for Spark: rows in a list, with the few methods that it calls.

::

    rows.where(F.col("level") == INBOX)        a filter by an attribute of the rows
    good.agg(F.max("event_time_ms"))           the largest event time
    rows.withColumns({...}), F.lit(...)        the rows; they know their place
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


class Rows:
    """A frame: rows of the store or parsed commands."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows = tuple(rows)

    def where(self, holds: Callable[[Any], bool]) -> Rows:
        return Rows(row for row in self.rows if holds(row))

    def agg(self, largest: Callable[[Any], int | None]) -> Rows:
        found = [value for row in self.rows if (value := largest(row)) is not None]
        return Rows([(max(found, default=None),)])

    def collect(self) -> list[Any]:
        return list(self.rows)

    def withColumns(self, _: Mapping[str, Any]) -> Rows:  # noqa: N802  # Spark's name
        """The rows; they know their place."""
        return self

    def unpersist(self) -> None:
        """Nothing is cached."""


class Columns:
    """What the keeper asks of Spark's functions, over rows of this model."""

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, value: object) -> Any:
            return lambda row: getattr(row, self.name) == value

        __hash__ = None  # type: ignore[assignment]

        def isNull(self) -> Callable[[Any], bool]:  # noqa: N802  # Spark's name
            return lambda row: not row.bad

    @staticmethod
    def col(name: str) -> Columns.Named:
        return Columns.Named(name)

    @staticmethod
    def max(_name: str) -> Callable[[Any], int | None]:
        return lambda row: row.said_ms

    class Literal:
        def cast(self, _kind: str) -> None:
            """A literal has no type here."""

    @staticmethod
    def lit(_value: object) -> Columns.Literal:
        return Columns.Literal()
