"""Which commands without a seq are counted as ambiguous."""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.store_reports import StoreReports
from wheel_udf.shard.rows import FAR
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import advance

Row = dict[str, Any]


def said(due_ms: int, at_ms: int = 1, **others: Any) -> Row:
    """A command without a seq: its version is its event time."""
    return {"schedule_id": "a", "seq": at_ms, "seq_given": False, "deliver_at_ms": due_ms, **others}


def ambiguous(*batches: list[Row], now_ms: int = 1) -> list[int]:
    state, found = ShardState.empty(Wheel(1, 20, 3)), []
    for batch in batches:
        step = advance(
            state, commands_table(batch), now_ms, memory_ms=None, policies=Policies(report=StoreReports())
        )
        state = step.state
        found.append(step.ambiguous)
    return found


@pytest.mark.parametrize(
    ("second", "count"),
    [
        (said(20), 1),
        (said(10, value=b"other"), 1),
        (said(10, destination="other"), 1),
        (said(10, max_lateness_ms=5), 1),
        (said(10), 0),
        (said(20, at_ms=2), 0),
        (said(20, schedule_id="b"), 0),
        ({"schedule_id": "a", "seq": 1, "op": "CANCEL", "seq_given": False}, 0),
    ],
    ids=["due", "value", "destination", "lateness", "copy", "later", "other id", "cancel"],
)
def test_a_row_that_says_something_else_in_the_same_version_is_ambiguous_in_one_batch_and_in_two(
    second: Row, count: int
) -> None:
    first = said(10, value=b"one") if second.get("value") else said(10)
    assert ambiguous([first, second]) == [count]
    assert ambiguous([second, first]) == [count]
    assert ambiguous([first], [second]) == [0, count]


def test_a_row_with_a_seq_is_never_ambiguous_and_one_without_is_beside_it() -> None:
    assert ambiguous([said(10)], [said(20, seq_given=True)]) == [0, 0]
    assert ambiguous([said(20, seq_given=True)], [said(10)]) == [0, 1]


def test_what_differs_from_what_has_fired_is_ambiguous_and_a_repetition_is_not() -> None:
    assert ambiguous([said(0)], [said(0), said(9)]) == [0, 1]


def test_of_three_rows_two_are_lost() -> None:
    assert ambiguous([said(10), said(20), said(30)]) == [2]


def test_far_rows_are_compared_too() -> None:
    assert ambiguous([said(500, act=FAR), said(900, act=FAR)]) == [1]


def test_the_row_that_is_due_first_is_kept_in_a_batch() -> None:
    step = advance(ShardState.empty(Wheel(1, 20, 3)), commands_table([said(1), said(0)]), 5, memory_ms=None)
    assert [row["deliver_at_ms"] for row in rows_of(step.fired)] == [0]
    assert (step.ambiguous, step.state.counts["duplicate"]) == (1, 1)
