"""What a sink needs to know about a Delta table before it appends, whichever API answers: :class:`TableState`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import types as T


def has_batch(transactions: Mapping[str, int], app_id: str, batch_id: int) -> bool:
    """Whether a table has a batch, so that it must not be written again: its last transaction of that app id is this
    batch or a later one.

    Args:
        transactions: The version of the last transaction of each app id.
        app_id: Id of the transactions.
        batch_id: Number of the batch.
    """
    return transactions.get(app_id, batch_id - 1) >= batch_id


class TableState(ABC):
    """A version of a Delta table."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Its number; -1 while the log holds no commit."""

    @abstractmethod
    def transactions(self) -> dict[str, int]:
        """The version of the last transaction of each app id."""

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """The table's properties."""

    @abstractmethod
    def columns(self) -> list[dict[str, Any]]:
        """The columns as the JSON of Spark's schemas has them."""

    def contradiction(self, columns: T.StructType, never_null: Collection[str]) -> str | None:
        """What keeps rows from being appended, whatever they hold; None if nothing does.

        Also reported is what would refuse some rows and take others: one such row would fail its batch again and again.

        Args:
            columns: Those of the rows.
            never_null: Names of those that always have a value.
        """
        there = {column["name"].lower(): column for column in self.columns()}
        faults = [_column_fault(column, there.pop(column.name, None), never_null) for column in columns]
        faults += [
            f"its further column {name} is NOT NULL" for name, found in there.items() if not found["nullable"]
        ]
        faults += [
            f"it has the CHECK {name.removeprefix('delta.constraints.')}"
            for name in self.properties()
            if name.startswith("delta.constraints.")
        ]
        return ", ".join(fault for fault in faults if fault) or None


def _column_fault(
    column: T.StructField, found: Mapping[str, Any] | None, never_null: Collection[str]
) -> str | None:
    if found is None:
        return f"it has no column {column.name}"
    if found["type"] != column.dataType.jsonValue() or "__CHAR_VARCHAR_TYPE_STRING" in found["metadata"]:
        return f"its column {column.name} is not {column.dataType.simpleString()}"
    if not found["nullable"] and column.name not in never_null:
        return f"its column {column.name} is NOT NULL"
    return None
