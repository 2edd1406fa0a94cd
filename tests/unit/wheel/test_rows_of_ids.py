"""The rows of some ids in the state of a shard."""

from __future__ import annotations

import pyarrow as pa
import pytest

from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.rows import ENTRY_SCHEMA, MEMORY_SCHEMA
from wheel_udf.shard.shard_text import chunks_to_text, entries_of_text, memory_of_text


def entry(schedule_id: str, due_ms: int, level_ms: int | None = None) -> dict[str, object]:
    row: dict[str, object] = {"schedule_id": schedule_id, "seq": 1, "amend": 0, "deliver_at_ms": due_ms}
    return row | {"destination": "out", "delay_level_ms": level_ms, "level_error_ms": level_ms and 0}


def ended(schedule_id: str, at_ms: int) -> dict[str, object]:
    return {"schedule_id": schedule_id, "seq": 1, "rank": 0, "status": 3, "ended_at_ms": at_ms}


TEXT = chunks_to_text(
    [
        Chunk.of_entries(1, 0, pa.Table.from_pylist([entry("a", 10), entry("b", 11)], schema=ENTRY_SCHEMA)),
        Chunk.of_entries(2, 0, pa.Table.from_pylist([entry("c", 900, 60_000)], schema=ENTRY_SCHEMA)),
        Chunk.of(
            MEMORY_LEVEL,
            0,
            pa.Table.from_pylist([ended("a", 5), ended("z", 6)], schema=MEMORY_SCHEMA),
            "ended_at_ms",
        ),
    ]
)


@pytest.mark.parametrize(
    ("ids", "entries", "memory"),
    [
        (None, ["a", "b", "c"], ["a", "z"]),
        (["b"], ["b"], []),
        (["c", "a", "nobody"], ["a", "c"], ["a"]),
        (["nobody"], [], []),
        ([], [], []),
    ],
)
def test_only_the_rows_of_the_ids_are_returned(
    ids: list[str] | None, entries: list[str], memory: list[str]
) -> None:
    found, known = entries_of_text(TEXT, ids), memory_of_text(TEXT, ids)

    assert found["schedule_id"].to_pylist() == entries
    assert found.schema == ENTRY_SCHEMA
    assert known["schedule_id"].to_pylist() == memory
    assert known.schema == MEMORY_SCHEMA
