"""Helpers for tests of the wheel, public because users of the library test their own streams with it.

Time is an argument everywhere in this package, so a test needs no waiting and no patching: it makes literal commands, a
clock that moves by hand, and compares literal rows::

    clock = ManualClock(0)
    rows = commands_table([{"schedule_id": "tea", "deliver_at_ms": 1_000}])
    step = advance(ShardState.empty(Wheel(1, 20, 3)), rows, clock.now_ms, memory_ms=None)    # fires nothing
    step = advance(step.state, None, clock.advance(1_000), memory_ms=None)
    rows_of(step.fired)                                     # one row: tea, due 1000

Needs no JVM: numpy and pyarrow only.

Caveats: a table made here goes to the step as it is. It is not parsed and not validated; bad commands become rejects one
stage earlier (see :mod:`wheel_udf.commands`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from wheel_udf.errors import ContractError

SCHEDULE = 0
CANCEL = 1
_OPS = {"SCHEDULE": SCHEDULE, "REPLACE": SCHEDULE, "CANCEL": CANCEL}


class ManualClock:
    """A clock that stands until it is moved by hand.

    It may be set back, as a wall clock may; what holds its own time against that is the code under test.

    Args:
        now_ms: First instant, UTC epoch ms.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    @property
    def now_ms(self) -> int:
        """The instant at which the clock stands, UTC epoch ms."""
        return self._now_ms

    def advance(self, ms: int) -> int:
        """Move by `ms` (negative: back) and return the new instant."""
        self._now_ms += ms
        return self._now_ms

    def set(self, now_ms: int) -> int:
        """Move to an instant, later or earlier, and return it."""
        self._now_ms = now_ms
        return self._now_ms

    def __repr__(self) -> str:
        return f"ManualClock(now_ms={self._now_ms})"


def commands_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Literal commands as the table that the pure step takes.

    Args:
        rows: One mapping for each command. `schedule_id` is required, and `deliver_at_ms` unless it is a CANCEL. Defaults of
            the rest: `op` SCHEDULE (its number, or SCHEDULE, REPLACE, CANCEL as text), `seq`, `amend` and `act` 0, `seq_given` whether the row
            names a `seq`, `destination` "out" (a CANCEL has none), and null.

    Returns:
        A table of schema `wheel_udf.state.COMMAND_SCHEMA`, rows in the order given; no rows make an empty table.

    Raises:
        ContractError: A row lacks what it needs, has a column that no command has, or a value that does not fit its type.
    """
    from wheel_udf.state import COMMAND_SCHEMA

    filled = [_filled(row, COMMAND_SCHEMA.names) for row in rows]
    try:
        return pa.Table.from_pylist(filled, schema=COMMAND_SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ContractError(f"a command has a value that does not fit its column ({error})") from error


def rows_of(table: pa.Table | None) -> list[dict[str, Any]]:
    """The rows of a table as plain dicts, in order; no table is no rows."""
    if table is None:
        return []
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _filled(row: Mapping[str, Any], columns: list[str]) -> dict[str, Any]:
    op = _op(row.get("op", SCHEDULE))
    defaults: dict[str, Any] = dict.fromkeys(columns)
    defaults |= {
        "seq": 0,
        "amend": 0,
        "act": 0,
        "seq_given": "seq" in row,
        "destination": "out" if op == SCHEDULE else None,
    }
    filled = defaults | dict(row) | {"op": op}
    if unknown := sorted(filled.keys() - set(columns)):
        raise ContractError(
            "a command has a column that no command has", field=unknown[0], rule=", ".join(columns)
        )
    tells = filled["act"] not in (0, 2)  # a row about an entry of the slot store has no payload
    required = ("schedule_id", "deliver_at_ms") if op == SCHEDULE and not tells else ("schedule_id",)
    for name in required:
        if filled[name] is None:
            raise ContractError(
                "a command lacks a column", field=name, rule=f"{', '.join(required)} must be there"
            )
    return filled


def _op(op: object) -> int:
    number = _OPS.get(op.upper()) if isinstance(op, str) else op
    if number not in (SCHEDULE, CANCEL):
        raise ContractError(
            "a command has no such op", field="op", value=op, rule="SCHEDULE, REPLACE or CANCEL"
        )
    return int(number)
