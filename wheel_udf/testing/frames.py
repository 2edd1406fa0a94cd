"""Literal rows for tests of the pure step: commands in, released rows out.

Example: :mod:`wheel_udf.testing`. A table made here goes to the step as it is; bad commands become rejects one stage
earlier, in :mod:`wheel_udf.commands.parse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from wheel_udf.common.errors import ContractError
from wheel_udf.shard.rows import CANCEL, COMMAND_SCHEMA, SCHEDULE

_OPS = {"SCHEDULE": SCHEDULE, "REPLACE": SCHEDULE, "CANCEL": CANCEL}
_ACTS_WITH_PAYLOAD = (0, 2)  # the others are rows about an entry of the slot store, which carry no due time


def commands_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Returns literal commands as the table that the pure step takes.

    Args:
        rows: One mapping for each command. `schedule_id` is required, and `deliver_at_ms` unless the op is CANCEL.
            Defaults: `op` SCHEDULE (given as its number, or as SCHEDULE, REPLACE or CANCEL); `seq`, `amend` and `act`
            0; `seq_given` is whether the row names a `seq`; `destination` "out" (null for a CANCEL); every other
            column null.

    Returns:
        A table with the schema `COMMAND_SCHEMA` of :mod:`wheel_udf.wheel`, rows in the order given; empty without
        rows.

    Raises:
        ContractError: A row lacks a required column, has an unknown column, or a value that does not fit its type.
    """
    filled = [_filled(row, COMMAND_SCHEMA.names) for row in rows]
    try:
        return pa.Table.from_pylist(filled, schema=COMMAND_SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ContractError(f"a command has a value that does not fit its column ({error})") from error


def rows_of(table: pa.Table | None) -> list[dict[str, Any]]:
    """Returns the rows of a table as dicts, in order; an empty list for None."""
    if table is None:
        return []
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _filled(row: Mapping[str, Any], columns: list[str]) -> dict[str, Any]:
    given = row.get("op", SCHEDULE)
    op = _OPS.get(given.upper()) if isinstance(given, str) else given
    if op not in (SCHEDULE, CANCEL):
        rule = "SCHEDULE, REPLACE or CANCEL"
        raise ContractError("unknown op of a command", field="op", value=given, rule=rule)
    defaults: dict[str, Any] = dict.fromkeys(columns)
    defaults |= {"seq": 0, "amend": 0, "act": 0, "seq_given": "seq" in row}
    defaults["destination"] = "out" if op == SCHEDULE else None
    filled = defaults | dict(row) | {"op": op}
    if unknown := sorted(filled.keys() - set(columns)):
        raise ContractError("unknown column of a command", field=unknown[0], rule=", ".join(columns))
    has_due_time = op == SCHEDULE and filled["act"] in _ACTS_WITH_PAYLOAD
    required = ("schedule_id", "deliver_at_ms") if has_due_time else ("schedule_id",)
    for name in required:
        if filled[name] is None:
            rule = f"required: {', '.join(required)}"
            raise ContractError("a command lacks a required column", field=name, rule=rule)
    return filled
