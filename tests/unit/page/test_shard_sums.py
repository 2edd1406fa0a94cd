"""What executors count of a shard's state: the same as listing its entries would give."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given, strategies as st

from wheel_udf.common import geometry
from wheel_udf.common.geometry import Wheel
from wheel_udf.page.shard_sums import (
    EDGES_MS,
    HELD,
    PAUSED,
    RESTING,
    SUMS_SCHEMA,
    sums_of_entries,
    sums_of_operations,
)
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.rows import ENTRY_SCHEMA, PAUSED_MS
from wheel_udf.shard.shard_text import chunks_to_text
from wheel_udf.wheel.buckets import Buckets

GEOMETRY = Wheel(tick_ms=1_000, size=20, levels=4)


def text_of(clock_ms: int, *entries: tuple[int, str]) -> str:
    rows = pa.Table.from_pylist(
        [{"schedule_id": str(n), "seq": 1, "deliver_at_ms": due_ms, "destination": name} for n, (due_ms, name) in enumerate(entries)],
        schema=ENTRY_SCHEMA,
    )  # fmt: skip
    return chunks_to_text(Buckets(GEOMETRY, "deliver_at_ms").place(rows, clock_ms))


def listed(found: pa.Table) -> list[tuple[int, int, str, int, int]]:
    assert found.schema == SUMS_SCHEMA
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_entries_are_counted_by_level_slot_destination_and_step() -> None:
    text = text_of(0, (500, "sms"), (900, "sms"), (25_000, "sms"), (31_000, "sms"), (39_000, "mail"))
    assert listed(sums_of_entries(text, geometry=GEOMETRY, clock_ms=0)) == [
        (1, 0, "sms", 1, 2),
        (2, 1, "mail", 5, 1),
        (2, 1, "sms", 4, 1),
        (2, 1, "sms", 5, 1),
    ]


def test_an_entry_that_the_clock_has_reached_is_in_step_0() -> None:
    text = text_of(0, (1_000, "sms"), (1_001, "sms"))
    found = listed(sums_of_entries(text, geometry=GEOMETRY, clock_ms=1_000))
    assert found == [(1, 1, "sms", 0, 1), (1, 1, "sms", 1, 1)]


def test_an_entry_is_on_the_level_of_the_clock_also_in_a_bucket_that_no_one_has_opened_since() -> None:
    found = listed(sums_of_entries(text_of(0, (500_000, "sms")), geometry=GEOMETRY, clock_ms=495_000))
    assert found == [(1, 500, "sms", 3, 1)]


def test_a_paused_series_is_outside_the_wheel() -> None:
    found = listed(
        sums_of_entries(text_of(0, (PAUSED_MS, "sms"), (900, "sms")), geometry=GEOMETRY, clock_ms=0)
    )
    assert found == [(PAUSED, 0, "sms", -1, 1), (1, 0, "sms", 1, 1)]


def test_an_empty_shard_has_no_rows() -> None:
    assert listed(sums_of_entries("", geometry=GEOMETRY, clock_ms=0)) == []


@given(
    st.lists(st.tuples(st.integers(0, 10**13), st.sampled_from(["a", "b"])), min_size=1, max_size=40),
    st.integers(0, 10**13),
)
def test_the_counts_are_those_of_the_entries(entries: list[tuple[int, str]], clock_ms: int) -> None:
    found = sums_of_entries(text_of(clock_ms, *entries), geometry=GEOMETRY, clock_ms=clock_ms).to_pylist()
    expected = Counter((name, sum(edge < due_ms - clock_ms for edge in EDGES_MS)) for due_ms, name in entries)
    steps: Counter[tuple[str, int]] = Counter()
    for row in found:
        steps[row["destination"], row["step"]] += row["rows"]
    places = Counter(
        (level, geometry.slot_of(GEOMETRY, level, due_ms))
        for due_ms, _ in entries
        for level in [geometry.level_of(GEOMETRY, due_ms, clock_ms)]
    )
    counted: Counter[tuple[int, int]] = Counter()
    for row in found:
        counted[row["level"], row["slot"]] += row["rows"]
    assert (steps, counted) == (expected, places)


def test_operations_outside_the_wheel_are_counted_by_their_place_and_memory_is_not_counted() -> None:
    rows = pa.table(
        {"destination": ["out", "out", None], "look_at_ms": [5_000, 6_000, 7_000], "at": [1, 2, 3]}
    )
    chunks = [Chunk.of(level, 0, rows, "at") for level in (RESTING, HELD, MEMORY_LEVEL, 1, -1)]
    found = sums_of_operations(chunks_to_text(chunks), geometry=GEOMETRY, clock_ms=0).to_pylist()
    by_level: Counter[int] = Counter()
    for row in found:
        by_level[row["level"]] += row["rows"]
    assert by_level == {RESTING: 3, HELD: 3, 1: 3}
