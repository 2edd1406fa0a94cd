"""The manual clock and the literal frames of :mod:`wheel_udf.testing`."""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf.common.errors import ContractError
from wheel_udf.shard.rows import COMMAND_SCHEMA, HELD_COLUMNS, SERIES_COLUMNS
from wheel_udf.testing.clocks import ManualClock
from wheel_udf.testing.frames import commands_table, rows_of


def test_a_manual_clock_stands_until_it_is_moved_and_moves_both_ways() -> None:
    clock = ManualClock(100)
    assert (clock.now_ms, clock.now_ms) == (100, 100)
    assert (clock.advance(50), clock.advance(-200), clock.set(7), clock.now_ms) == (150, -50, 7, 7)


def test_a_table_of_commands_fills_in_what_a_test_does_not_care_about() -> None:
    rows = [{"schedule_id": "a", "deliver_at_ms": 5}, {"schedule_id": "b", "op": "cancel", "seq": 3}]
    nothing = {"max_lateness_ms": None, "key": None, "value": None, "headers": None, "source": None}
    nothing |= {"delay_level_ms": None, "level_error_ms": None, "amend": 0, "act": 0}
    nothing |= dict.fromkeys((*SERIES_COLUMNS, *HELD_COLUMNS))
    table = commands_table(rows)
    assert table.schema.equals(COMMAND_SCHEMA)
    a = {"schedule_id": "a", "op": 0, "seq": 0, "seq_given": False, "deliver_at_ms": 5, "destination": "out"}
    b = {"schedule_id": "b", "op": 1, "seq": 3, "seq_given": True, "deliver_at_ms": None, "destination": None}
    assert rows_of(table) == [a | nothing, b | nothing]
    assert (commands_table([]).num_rows, rows_of(None)) == (0, [])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"deliver_at_ms": 5}, "schedule_id"),
        ({"schedule_id": "a"}, "deliver_at_ms"),
        ({"schedule_id": "a", "deliver_at_ms": 5, "due": 5}, "due"),
        ({"schedule_id": "a", "deliver_at_ms": 5, "op": "AMEND"}, "op = 'AMEND'"),
        ({"schedule_id": "a", "deliver_at_ms": 2**63}, "does not fit"),
        ({"schedule_id": "a", "deliver_at_ms": "soon"}, "does not fit"),
    ],
)
def test_a_table_of_commands_refuses_a_row_that_is_a_slip_of_the_test(
    row: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        commands_table([row])
