"""The step with long chunks in files: the same rows, counts and states as with all chunks in the row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given

from tests.unit.shard.test_small_chunks import tiny, within_a_fixture
from tests.unit.wheel.test_advance_property import Pair, Row, Run, crowded, runs
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.chunk_files import ChunkFiles
from wheel_udf.shard.holdings import holdings_of
from wheel_udf.shard.shard_text import entries_of_text, external_names, memory_of_text
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table
from wheel_udf.wheel.step import advance

__all__ = ["tiny"]

WHEEL = Wheel(tick_ms=10, size=8, levels=4)


class PairInFiles(Pair):
    """The step and its model; after each batch the state goes through its row and its files, as between two tasks."""

    def __init__(self, run_wheel: Wheel, memory_ms: int | None, folder: Path, least: int) -> None:
        self.folder, self.least, self.number = folder, least, 0
        super().__init__(run_wheel, memory_ms)

    def files(self) -> ChunkFiles:
        return ChunkFiles(self.folder, self.number, 2, self.least)

    def batch(self, commands: list[Row], now_ms: int, limit: int | None) -> list[Row]:
        before = external_names(self.state.text)
        self.state = ShardState.from_row(self.state.to_row(1), self.wheel, 1, self.files())
        fired = super().batch(commands, now_ms, limit)
        row = self.state.to_row(1)
        self.files().release_files(before, external_names(self.state.text))
        self.number += 1
        self.state = ShardState.from_row(row, self.wheel, 1, self.files())
        return fired


@pytest.mark.usefixtures("tiny")
@within_a_fixture
@given(run=runs)
def test_chunks_in_files_equal_the_heap_model(tmp_path: Path, run: Run) -> None:
    pair = PairInFiles(run.wheel, run.memory_ms, tmp_path / "chunks", 1)
    for _, now_ms, commands in run.batches():
        pair.batch(commands, now_ms, None)


@pytest.mark.parametrize("least", [1, 2_000, 10**9])
def test_a_crowd_in_files_equals_the_heap_model(tmp_path: Path, least: int) -> None:
    make = random.Random(f"{least}")
    pair, now_ms = PairInFiles(WHEEL, 2_000, tmp_path, least), 1_375_272_000_000
    for _ in range(12):
        now_ms += make.choice([0, 20, 3_000])
        pair.batch(crowded(make, now_ms, 30_000), now_ms, make.choice([None, 25, 200]))
    pair.batch([], now_ms + 300_000, None)
    assert pair.state.pending == 0


def _of_3_000(texts: ChunkFiles | None) -> ShardState:
    rows = [
        {"schedule_id": f"id{n}", "seq": 1, "deliver_at_ms": 10**9 + n, "value": bytes(50)}
        for n in range(3_000)
    ]
    return advance(ShardState.empty(WHEEL, texts), commands_table(rows), 0, memory_ms=None).state


def test_the_row_has_the_directory_and_the_names_of_the_files(tmp_path: Path) -> None:
    state = _of_3_000(ChunkFiles(tmp_path, 7, 2, 1_000))

    names = external_names(state.text)

    assert names == [*dict.fromkeys(names)]
    assert all(name.startswith("7-") for name in names)
    assert sorted(place.name for place in tmp_path.iterdir()) == sorted(names)
    assert len(state.text) < 3_000


def test_what_a_shard_holds_is_told_without_opening_a_file(tmp_path: Path) -> None:
    apart, whole = _of_3_000(ChunkFiles(tmp_path, 7, 2, 1_000)), _of_3_000(None)
    text = apart.text
    for place in tmp_path.iterdir():
        place.unlink()

    found = holdings_of(text, 0, WHEEL.levels)

    assert (found.by_level, found.due_within) == (
        holdings_of(whole.text, 0, WHEEL.levels).by_level,
        holdings_of(whole.text, 0, WHEEL.levels).due_within,
    )
    assert abs(found.bytes - len(whole.text)) < 1_000


def test_a_chunk_that_stays_closed_stays_in_its_file(tmp_path: Path) -> None:
    state = _of_3_000(ChunkFiles(tmp_path, 0, 2, 1_000))
    row, before = state.to_row(1), external_names(state.text)

    state = ShardState.from_row(row, WHEEL, 1, ChunkFiles(tmp_path, 1, 2, 1_000))
    more = commands_table([{"schedule_id": "one more", "seq": 1, "deliver_at_ms": 5 * 10**9}])
    after = advance(state, more, 10, memory_ms=None).state

    assert set(before) <= set(external_names(after.text))


def test_a_cancelled_row_is_noted_in_the_row_and_its_file_stays(tmp_path: Path) -> None:
    state = _of_3_000(ChunkFiles(tmp_path, 0, 2, 1_000))
    row, before = state.to_row(1), external_names(state.text)

    state = ShardState.from_row(row, WHEEL, 1, ChunkFiles(tmp_path, 1, 2, 1_000))
    cancel = commands_table([{"schedule_id": "id1000", "seq": 2, "op": 1}])
    after = advance(state, cancel, 10, memory_ms=None).state
    again = ShardState.from_row(after.to_row(1), WHEEL, 1, ChunkFiles(tmp_path, 2, 2, 1_000))

    assert before[0] in external_names(after.text)
    assert again.pending == 2_999
    assert "id1000" not in again.entries()["schedule_id"].to_pylist()


def test_a_text_with_files_has_the_rows_that_one_without_them_has(tmp_path: Path) -> None:
    files = ChunkFiles(tmp_path, 0, 2, 1_000)
    apart, whole = _of_3_000(files).text, _of_3_000(None).text

    assert external_names(apart) != []
    for rows_of in (entries_of_text, memory_of_text):
        assert rows_of(apart, texts=files) == rows_of(whole) == rows_of(whole, texts=files)


def test_where_no_files_are_written_any_more_all_chunks_come_back_into_the_row(tmp_path: Path) -> None:
    row = _of_3_000(ChunkFiles(tmp_path, 0, 2, 1_000)).to_row(1)

    state = ShardState.from_row(row, WHEEL, 1, ChunkFiles(tmp_path, 1))
    cancel = commands_table([{"schedule_id": "id1000", "seq": 2, "op": 1}])
    after = advance(state, cancel, 10, memory_ms=None).state

    assert external_names(after.text) == []
    assert ShardState.from_row(after.to_row(1), WHEEL, 1).entries().num_rows == 2_999
