"""The columns of a frame of the user: found by name in any case, and renamed so that no name can collide.

::

    user's frame     Schedule_ID   DELAY    colour    located(...)   in0   in1   in2     the frame
    known names      schedule_id   delay              ---------->    {"schedule_id": in0, "delay": in1}    known columns
                                                                     [in0, in1, in2]                all, for rejects
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, functions as F, types as T

from wheel_udf.common.errors import ContractError

SOURCE_SEQ: Final = "source_seq"
SOURCE_DELIVER_AT: Final = "source_deliver_at"
SOURCE_EVENT_TIME: Final = "source_event_time"
"""Columns that sources add and users may omit: the order of the source, and instants that it has already read."""


class Input(NamedTuple):
    """A column of the input: its name, how to refer to it, its type, and the noun for its rows."""

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


def read_or_null(
    given: Inputs, name: str, reader: Callable[..., Column], kind: str, **options: bool
) -> Column:
    """A column through one of the readers of this room; a null of a type where the column is missing.

    Raises:
        ContractError: The column's type can hold no valid value.
    """
    return given[name].read(reader, **options) if name in given else F.lit(None).cast(kind)


def located(
    frame: DataFrame, known: Collection[str], *, required: Collection[str], what: str
) -> tuple[DataFrame, Inputs, list[Input]]:
    """Finds the known columns of a frame (in lower case) by name, in any case.

    Returns:
        The frame with its columns renamed to positions, so that names of the user collide neither with ours
        nor with each other; the known columns by name; all columns.

    Raises:
        ContractError: A name occurs twice, or a required one is missing. `what` is the noun for the rows.
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
        asked = [
            name
            for name in known
            if not name.startswith(("_", SOURCE_SEQ, SOURCE_DELIVER_AT, SOURCE_EVENT_TIME))
            and name not in required
        ]
        raise ContractError(
            f"the {what} have no column {', '.join(missing)}",
            field="columns found",
            value=", ".join(frame.columns),
            rule=f"columns expected: {', '.join(required)}, and as needed {', '.join(asked)}",
            hint=meant(frame.columns, missing, known)
            or ("rename the column that holds the id" if missing == ["schedule_id"] else None),
        )
    given = {name: Input(name, *original[at][1:]) for name, at in found.items()}
    return frame.toDF(*(f"in{at}" for at in range(len(original)))), given, original


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
