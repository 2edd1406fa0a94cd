"""The skew of ``tests/unit/wheel/test_skew.py`` with a million rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.wheel import test_skew as skew

MILLION = 1_000_000


@pytest.mark.parametrize(
    "promise",
    [
        skew.test_nine_of_ten_commands_on_one_id_cost_no_more_than_one_entry_and_starve_nobody,
        skew.test_a_flood_due_in_one_second_leaves_in_bounded_batches_and_lets_earlier_and_later_ones_through,
        skew.test_a_step_of_a_backlog_takes_memory_for_what_leaves_and_little_for_what_waits,
    ],
)
def test_a_million_rows_of_skew_are_borne(promise: Callable[[int], None]) -> None:
    promise(MILLION)
