"""What a shard holds: told from the directory of its chunks, or from a sample of them."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest

from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.holdings import Holdings, Sample, holdings_of, largest
from wheel_udf.shard.rows import ENTRY_SCHEMA
from wheel_udf.shard.shard_text import chunks_from_text, chunks_to_text, directory_of
from wheel_udf.shard.state import ShardState

MINUTE, HOUR = 60_000, 3_600_000
LEVEL_COLUMN = ENTRY_SCHEMA.get_field_index("delay_level_ms")
NOTHING = {"1m": 0, "5m": 0, "1h": 0, "24h": 0}


def entries(*due_ms: int, destination: str = "a", noise: int = 0) -> pa.Table:
    blank: dict[str, Any] = {name: [None] * len(due_ms) for name in ENTRY_SCHEMA.names}
    ids = [f"{destination}{number}" for number in range(len(due_ms))]
    filled = {
        "schedule_id": ids,
        "seq": [1] * len(due_ms),
        "deliver_at_ms": due_ms,
        "destination": [destination] * len(due_ms),
    }
    return pa.table(
        blank | filled | {"amend": [0] * len(due_ms), "value": [os.urandom(noise) for _ in due_ms]},
        schema=ENTRY_SCHEMA,
    )


def text(*chunks: tuple[int, pa.Table]) -> str:
    return chunks_to_text([Chunk.of_entries(level, 0, rows) for level, rows in chunks])


def test_a_shard_that_has_lost_its_last_chunk_holds_nothing() -> None:
    emptied = chunks_to_text([])

    assert holdings_of(emptied, 0, 3) == Holdings(bytes=len(emptied))


def test_entries_are_counted_by_level_and_levels_above_the_top_are_the_top() -> None:
    held = holdings_of(
        text((1, entries(1, 2)), (2, entries(30)), (5, entries(99, 100, 101)), (2, entries(31))), 0, 3
    )

    assert held.by_level == {1: 2, 2: 2, 3: 3}
    assert held.remembered == 0


def test_rows_about_ended_ids_are_no_entries() -> None:
    held = holdings_of(text((MEMORY_LEVEL, entries(1, 2, 3)), (-1, entries(1)), (1, entries(5))), 0, 3)

    assert (held.remembered, held.by_level, held.due_within["1m"]) == (3, {1: 1}, 1)


@pytest.mark.parametrize(
    ("due_ms", "clock_ms", "expected"),
    [
        ([0], 0, {"1m": 1, "5m": 1, "1h": 1, "24h": 1}),
        ([MINUTE], 0, {"1m": 1, "5m": 1, "1h": 1, "24h": 1}),
        ([MINUTE + 1], 0, {"1m": 0, "5m": 1, "1h": 1, "24h": 1}),
        ([25 * HOUR], 0, NOTHING),
        ([25 * HOUR], HOUR, NOTHING | {"24h": 1}),
        # One bucket from 0 to 2 h: half of its rows are taken to be due in the first hour.
        ([0, 1, 2, 2 * HOUR], 0, {"1m": 0, "5m": 0, "1h": 2, "24h": 4}),
        # Overdue: due within any time.
        ([5, 6], 10 * HOUR, {"1m": 2, "5m": 2, "1h": 2, "24h": 2}),
        ([-(2**63), 2**63 - 1], 0, {"1m": 1, "5m": 1, "1h": 1, "24h": 1}),
    ],
)  # fmt: skip
def test_what_is_due_soon_is_exact_but_for_the_bucket_that_the_horizon_cuts(
    due_ms: list[int], clock_ms: int, expected: dict[str, int]
) -> None:
    assert holdings_of(text((4, entries(*due_ms))), clock_ms, 6).due_within == expected


def test_an_empty_shard_holds_nothing() -> None:
    held = holdings_of(ShardState.empty(Wheel(1_000, 20, 6)).text, 0, 6)

    assert (held.bytes, held.by_level, held.due_within) == (0, {}, NOTHING)
    assert Sample.of((), "destination").counts("destination") == {}


def test_no_chunk_is_opened() -> None:
    whole = text((1, entries(1, 2)), (2, entries(30)))
    # Only the directory is left: all that is held is still known.
    directory = whole[: whole.index(" ") + 1]

    assert directory_of(directory).num_rows == 2
    assert holdings_of(directory, 0, 6).by_level == {1: 2, 2: 1}


def test_a_small_shard_is_counted_whole_by_each_column_and_nulls_are_left_out() -> None:
    levels = pa.array([5, None, 5], pa.int64())
    rows = [
        (1, entries(1, 2, 3, destination="b").set_column(LEVEL_COLUMN, "delay_level_ms", levels)),
        (2, entries(9, destination="a")),
    ]

    sample = Sample.of(chunks_from_text(text(*rows)), "destination", "delay_level_ms")

    assert [sample.counts("destination"), sample.counts("delay_level_ms")] == [{"b": 3, "a": 1}, {5: 2}]


def test_counts_beyond_the_twenty_largest_are_added_up() -> None:
    found = largest({f"d{number:02}": number + 1 for number in range(25)})

    assert len(found) == 21
    assert found["d24"] == 25
    assert found[""] == 1 + 2 + 3 + 4 + 5
    assert sum(found.values()) == 325


def test_a_large_shard_is_sampled_and_scaled_to_its_entries() -> None:
    # Twelve chunks of about 1.4 MB each: less than half of them are read.

    chunks = [(2, entries(*range(100), destination="ab"[number % 2], noise=10_000)) for number in range(12)]
    found = Sample.of(chunks_from_text(text(*chunks)), "destination").counts("destination")

    assert 0 < len(found) <= 2
    assert sum(found.values()) == pytest.approx(1_200, abs=1)


def test_a_chunk_that_is_too_large_by_itself_is_not_opened() -> None:
    large = entries(*range(500), destination="large", noise=10_000)
    beside = chunks_from_text(text((3, large), (1, entries(1, destination="small"))))

    assert Sample.of(chunks_from_text(text((3, large))), "destination").counts("destination") == {}
    assert Sample.of(beside, "destination").counts("destination") == {"small": 501}
