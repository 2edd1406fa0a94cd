"""States of earlier formats go on. ``tests/golden/shard-5.arrow`` and ``shard-6.arrow`` were written by builds of these state formats."""

from __future__ import annotations

import pytest

from tests.golden import HERE
from wheel_udf.testing import commands_table
from wheel_udf.wheel import FORMAT_VERSION, ShardState, Wheel, advance, buckets, chunks, step as step_module
from wheel_udf.wheel.shard_text import directory_of

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
"""In it: id010 to id298, due each second from 20 s on; the others up to id299 have ended, and "other" has a CANCEL 5 that waits. The clock is at 19 s."""


@pytest.fixture
def state() -> ShardState:
    return ShardState.from_bytes((HERE / "shard-5.arrow").read_bytes(), WHEEL)


def test_a_row_of_format_5_is_read(state: ShardState) -> None:
    assert (state.pending, state.clock_ms, state.next_due_ms) == (289, 19_000, 20_000)
    assert state.counts["fired"] == 10
    assert [chunk.number for chunk in state.chunks] == [-1] * len(state.chunks)


def test_a_step_with_nothing_to_do_leaves_it_as_it_is(state: ShardState) -> None:
    step = advance(state, None, 19_500, memory_ms=None)

    assert (step.changed, step.state.text) == (False, state.text)


def test_the_first_step_with_something_to_do_writes_the_present_format(
    state: ShardState, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (chunks, buckets, step_module):
        monkeypatch.setattr(module, "LARGEST_ROWS", 32)

    step = advance(
        state, commands_table([{"schedule_id": "id100", "seq": 2, "op": 1}]), 19_500, memory_ms=None
    )

    row = step.state.to_row(1)
    assert (row[0], step.state.pending, step.state.counts["cancelled"]) == (FORMAT_VERSION, 288, 2)
    assert all(chunk.is_known for chunk in step.state.chunks)
    assert max(chunk.rows for chunk in step.state.entry_chunks) <= 64
    assert "number" in directory_of(step.state.text).schema.names


def test_what_it_knows_of_ids_is_known_afterwards(state: ShardState) -> None:
    rows = [
        {"schedule_id": "id000", "seq": 1, "deliver_at_ms": 10_000},  # has fired
        {"schedule_id": "id298", "seq": 1, "deliver_at_ms": 308_000},  # is pending
        {"schedule_id": "other", "seq": 5, "deliver_at_ms": 99_000},  # its CANCEL waits
    ]
    for _ in range(2):
        state = ShardState.from_row(state.to_row(1), WHEEL, 1)
        step = advance(state, commands_table(rows), 19_500, memory_ms=None)
        state = step.state

    assert (state.pending, state.counts["duplicate"], state.counts["waiting"]) == (289, 4, 0)
    fired = advance(state, None, 10**6, memory_ms=None).fired
    assert fired["schedule_id"].to_pylist() == [f"id{n:03}" for n in range(10, 299)]


# ---- format 6 -------------------------------------------------------------------------------------------------------


@pytest.fixture
def state_6() -> ShardState:
    """That of format 5, less id299, and far0000 to far2999, due each 100 ms from 40,000 s on, of which each hundredth was cancelled."""
    return ShardState.from_bytes((HERE / "shard-6.arrow").read_bytes(), WHEEL)


def test_a_row_of_format_6_is_read_without_its_index(state_6: ShardState) -> None:
    assert (state_6.pending, state_6.clock_ms, state_6.next_due_ms) == (289 + 2_970, 19_000, 20_000)
    assert [chunk.number for chunk in state_6.chunks] == [-1] * len(state_6.chunks)
    assert state_6.content.index == ()
    assert [len(chunk.gone_rows()) for chunk in state_6.entry_chunks if chunk.head] == [30]
    assert state_6.entries().num_rows == state_6.pending


def test_the_first_step_indexes_a_state_of_format_6_anew_and_later_steps_find_its_rows(
    state_6: ShardState,
) -> None:
    rows = [{"schedule_id": name, "seq": 2, "op": 1} for name in ("id100", "far0100", "far0101")]
    state = advance(state_6, commands_table(rows), 19_500, memory_ms=None).state
    assert state.to_row(1)[0] == FORMAT_VERSION
    assert all(chunk.is_known for chunk in state.chunks)
    assert (state.pending, state.counts["cancelled"], state.counts["cancel_superseded"]) == (3_257, 33, 0)

    state = ShardState.from_row(state.to_row(1), WHEEL, 1)
    rows = [{"schedule_id": f"far{n:04}", "seq": 3, "op": 1} for n in (101, 102, 2_999)]
    state = advance(state, commands_table(rows), 19_500, memory_ms=None).state

    assert (state.pending, state.counts["cancelled"]) == (3_255, 35)
    fired = advance(state, None, 10**8, memory_ms=None).fired["schedule_id"].to_pylist()
    far = [f"far{n:04}" for n in range(2_999) if n % 100 and n not in (101, 102)]
    assert fired == [*(f"id{n:03}" for n in range(10, 299) if n != 100), *far]
