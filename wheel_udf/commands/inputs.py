"""The columns of a frame of the user: found by name in any case, and their values in a batch of rows.

::

    user's frame     Schedule_ID   DELAY    colour
    places_of(...)   {"schedule_id": 0, "delay": 1}       the columns that are known, by their places
    Given            .values("delay")                     pa.Array of the batch, None where there is no such column
                     .read("delay", times.durations_ms)   through a reader of this room
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands.values import text_of
from wheel_udf.common.errors import ContractError

SOURCE_SEQ: Final = "source_seq"
SOURCE_DELIVER_AT: Final = "source_deliver_at"
SOURCE_EVENT_TIME: Final = "source_event_time"
"""Columns that sources add and users may omit: the order of the source, and instants that it has already read."""

Shown = Callable[[int], str | None]
"""The text of a value by the number of its row, for messages."""


class UnfitTypeError(Exception):
    """A column has a type that no valid value can have."""

    def __init__(self, name: str, rule: str) -> None:
        super().__init__(name, rule)
        self.name, self.rule = name, rule


class Given:
    """The known columns of a batch of rows.

    Args:
        columns: Their values by name (in lower case), alike in length.
        rows: How many rows there are.
    """

    def __init__(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        self.rows: Final = rows
        self._names: Final = frozenset(columns)
        # Most columns have nothing in most batches, and reading nothing takes its time, too. Without a row all are
        # read: the types are looked at.
        self._columns: Final = {
            name: values for name, values in columns.items() if not rows or values.null_count < rows
        }

    def __contains__(self, name: str) -> bool:
        """Whether the frame has a column, be there a value in it or not."""
        return name in self._names

    def has_values(self, name: str) -> bool:
        """Whether a row of the batch has a value in a column. A rule about values needs no look at a batch without."""
        return name in self._columns

    def values(self, name: str) -> pa.Array | None:
        """The values of a column as they came; None where it is missing or has none."""
        return self._columns.get(name)

    def read(
        self, name: str, reader: Callable[..., pa.Array], kind: pa.DataType, **options: bool
    ) -> pa.Array:
        """A column through one of the readers of this room; nulls of a type where it is missing or has none.

        Raises:
            UnfitTypeError: The column's type can hold no valid value.
        """
        values = self._columns.get(name)
        if values is None:
            return pa.nulls(self.rows, kind)
        try:
            return reader(values, **options)
        except TypeError as fault:
            raise UnfitTypeError(name, str(fault)) from None

    def is_there(self, name: str) -> pa.BooleanArray:
        """Which rows have a value in a column."""
        values = self._columns.get(name)
        return pa.repeat(pa.scalar(value=False), self.rows) if values is None else pc.is_valid(values)

    def shown(self, name: str) -> Shown:
        """The values of a column as texts."""
        values = self._columns.get(name)
        return lambda row: None if values is None else text_of(values[row])


def places_of(
    names: Sequence[str], known: Collection[str], *, required: Collection[str], what: str
) -> dict[str, int]:
    """Finds the known columns of a frame (in lower case) by name, in any case; returns their places.

    Raises:
        ContractError: A name occurs twice, or a required one is missing. `what` is the noun for the rows.
    """
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        if name.lower() in found:
            raise ContractError(
                f"a column of the {what} is there twice",
                field=name.lower(),
                value=f"{names[found[name.lower()]]}, {name}",
                rule="one column of each name, whatever its case",
            )
        if name.lower() in known:
            found[name.lower()] = place
    if missing := [name for name in required if name not in found]:
        asked = [
            name
            for name in known
            if not name.startswith(("_", SOURCE_SEQ, SOURCE_DELIVER_AT, SOURCE_EVENT_TIME))
            and name not in required
        ]
        raise ContractError(
            f"the {what} have no column {', '.join(missing)}",
            field="columns found",
            value=", ".join(names),
            rule=f"columns expected: {', '.join(required)}, and as needed {', '.join(asked)}",
            hint=meant(names, missing, known)
            or ("rename the column that holds the id" if missing == ["schedule_id"] else None),
        )
    return found


def meant(found: Sequence[str], missing: Collection[str], known: Collection[str]) -> str | None:
    """The hint which of the columns found are misspellings of missing ones; None if none is close. `known` are all
    known names, in lower case.
    """
    # Two spellings may differ by case and joints alone: deliverAt, deliver-at.
    plain = {name.replace("_", ""): name for name in missing}
    renamed = []
    for name in found:
        folded = re.sub("[ _-]", "", name.lower())
        close = get_close_matches(folded, plain, n=1)
        if close and name not in known:
            renamed.append(f"rename {name} to {plain[close[0]]}")
    return ", ".join(renamed) or None
