"""The entries that are due next: the same as sorting all that a shard holds, with few chunks opened."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from wheel_udf.common.geometry import Wheel
from wheel_udf.page.shard_next import (
    NEXT_SCHEMA,
    SHARD_SCHEMA,
    entries_of_shard,
    next_entries,
    next_operations,
)
from wheel_udf.purgatory.state import EVENT_SCHEMA, EVENTS_LEVEL, OPERATION_SCHEMA
from wheel_udf.shard.chunks import IN_FLIGHT_LEVEL, MEMORY_LEVEL, Chunk
from wheel_udf.shard.rows import ENTRY_SCHEMA, ID_JOINT, PAUSED_MS
from wheel_udf.shard.shard_text import chunks_to_text
from wheel_udf.wheel.buckets import Buckets

GEOMETRY = Wheel(tick_ms=1_000, size=20, levels=4)


def entries(*rows: tuple[str, int], **others: Any) -> pa.Table:
    made = [
        {"schedule_id": name, "seq": 1, "deliver_at_ms": due_ms, "destination": "sms"}
        for name, due_ms in rows
    ]
    return pa.Table.from_pylist([row | others for row in made], schema=ENTRY_SCHEMA)


def text_of(*tables: pa.Table, clock_ms: int = 0) -> str:
    placed = [chunk for rows in tables for chunk in Buckets(GEOMETRY).place(rows, clock_ms)]
    return chunks_to_text(placed)


def ids(found: pa.Table) -> list[str]:
    assert found.schema == NEXT_SCHEMA
    return [str(name) for name in found["schedule_id"].to_pylist()]


def test_the_next_entries_of_all_levels_come_in_the_order_of_their_due_times() -> None:
    text = text_of(entries(("late", 900_000), ("soon", 500), ("mid", 25_000), ("over", -5)))
    assert next_entries(text, 3).to_pylist() == [
        {"schedule_id": "over", "due_ms": -5, "destination": "sms", "is_series": False},
        {"schedule_id": "soon", "due_ms": 500, "destination": "sms", "is_series": False},
        {"schedule_id": "mid", "due_ms": 25_000, "destination": "sms", "is_series": False},
    ]
    assert ids(next_entries(text)) == ["over", "soon", "mid", "late"]
    assert next_entries("").to_pylist() == []


def test_a_series_is_marked_and_a_paused_one_is_left_out() -> None:
    text = text_of(
        entries(("daily", 700), repeat="{}"),
        entries(("paused", PAUSED_MS), repeat="{}"),
        entries(("once", 800)),
    )
    found = [(row["schedule_id"], row["is_series"]) for row in next_entries(text).to_pylist()]
    assert found == [("daily", True), ("once", False)]


def test_an_occurrence_that_is_tried_again_has_the_id_of_its_series() -> None:
    assert ids(next_entries(text_of(entries((f"daily{ID_JOINT}700", 900))))) == ["daily"]


def test_what_a_sender_has_is_among_them_and_what_is_only_remembered_is_not() -> None:
    chunks = [
        Chunk.of_entries(level, 0, entries((name, 500)))
        for level, name in ((IN_FLIGHT_LEVEL, "sent"), (MEMORY_LEVEL, "ended"), (-3, "apart"))
    ]
    assert ids(next_entries(chunks_to_text(chunks))) == ["sent"]


def test_only_the_chunks_that_may_hold_one_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(entries(*((f"{n:04}", n * 7_000) for n in range(2_000))))
    opened: list[int] = []
    table = Chunk.table

    def counted(chunk: Chunk, *columns: str) -> pa.Table:
        opened.append(chunk.rows)
        return table(chunk, *columns)

    monkeypatch.setattr(Chunk, "table", counted)
    assert ids(next_entries(text)) == [f"{n:04}" for n in range(10)]
    assert sum(opened) < 100


def test_a_shard_gives_counts_and_next_entries_in_one_table() -> None:
    found = entries_of_shard(text_of(entries(("a", 500))), geometry=GEOMETRY, clock_ms=0)
    assert found.schema == SHARD_SCHEMA
    count = {"level": 1, "slot": 0, "destination": "sms", "step": 1, "rows": 1}
    entry = {"schedule_id": "a", "due_ms": 500, "is_series": False}
    assert found.to_pylist() == [
        count | dict.fromkeys(entry),
        dict.fromkeys(count) | entry | {"destination": "sms"},
    ]


def test_an_operation_is_listed_with_the_instant_that_decides_it() -> None:
    rows = [{"op_id": "open", "group": "o-1", "look_at_ms": 7_000, "destination": "out"}]
    placed = Buckets(GEOMETRY, "look_at_ms").place(pa.Table.from_pylist(rows, schema=OPERATION_SCHEMA), 0)
    event = pa.Table.from_pylist([{"event_time_ms": 5}], schema=EVENT_SCHEMA)
    events = Chunk.of(EVENTS_LEVEL, 0, event, "event_time_ms")  # the level of what a wheel's sender has
    assert next_operations(chunks_to_text([*placed, events])).to_pylist() == [
        {"schedule_id": "open", "due_ms": 7_000, "destination": "out", "is_series": False}
    ]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60), st.integers(1, 15), st.integers(0, 10**9))
def test_they_are_those_that_sorting_all_gives(dues_ms: list[int], most: int, clock_ms: int) -> None:
    rows = entries(*((f"{number:03}", due_ms) for number, due_ms in enumerate(dues_ms)))
    found = next_entries(text_of(rows, clock_ms=clock_ms), most)
    assert found["due_ms"].to_pylist() == sorted(dues_ms)[:most]
