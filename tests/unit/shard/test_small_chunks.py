"""The step with bounds so small that chunks are split, merged, and lose rows all the time; against the heap model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.wheel.test_advance_property import Pair, Run, crowded, runs, shown
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard import chunk_sizes, chunks, id_index, row_keys, state as shard_state
from wheel_udf.shard.chunk_sizes import Sizes
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.id_index import IndexRun, Places
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=10, size=8, levels=4)
DAY_MS = 86_400_000

within_a_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


TINY = Sizes(
    largest=8,
    backlog=4,
    apart_from=2,
    keys_block=3,
    rewrite_below=1,
    rewrite_at_gone=0.6,
    chunks_per_bucket=2,
    growing_memory=2,
    index_stale=8,
    index_bucket=2,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of at most 8 rows, keys, heads and bodies apart, and rows removed one by one."""
    monkeypatch.setattr(chunk_sizes, "SIZES", TINY)


@pytest.mark.usefixtures("tiny")
@within_a_fixture
@given(run=runs)
def test_tiny_chunks_equal_the_heap_model_across_restarts_limits_and_hostile_clocks(run: Run) -> None:
    pair = Pair(run.wheel, run.memory_ms)
    for move, now_ms, commands in run.batches():
        if move.restart:
            pair.restart()
        pair.batch(commands, now_ms, move.limit)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("memory_ms", [None, 0, 2_000], ids="memory_ms={}".format)
def test_a_crowd_in_tiny_chunks_equals_the_heap_model(memory_ms: int | None) -> None:
    a_crowd_equals_the_heap_model(memory_ms)


@pytest.mark.parametrize("apart_from", [5, 9], ids=["some with keys", "none with keys"])
def test_a_crowd_in_tiny_chunks_of_which_not_all_have_keys_equals_the_heap_model(
    monkeypatch: pytest.MonkeyPatch, apart_from: int
) -> None:
    monkeypatch.setattr(chunk_sizes, "SIZES", replace(TINY, apart_from=apart_from))

    a_crowd_equals_the_heap_model(None)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("hashes", [1, 7], ids="{} hashes".format)
def test_ids_whose_hashes_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch, hashes: int) -> None:
    def colliding(ids: pa.ChunkedArray) -> Any:
        numbers = [sum(each.encode()) % hashes << 29 for each in ids.to_pylist()]
        return np.array(numbers, np.uint32)

    monkeypatch.setattr(id_index, "hashes_of", colliding)

    a_crowd_equals_the_heap_model(None)


@pytest.mark.usefixtures("tiny")
def test_an_index_that_names_chunks_in_vain_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "places_of", everywhere)

    a_crowd_equals_the_heap_model(2_000)


def a_crowd_equals_the_heap_model(memory_ms: int | None) -> None:
    make = random.Random(f"{memory_ms}")
    pair, now_ms = Pair(WHEEL, memory_ms), 1_375_272_000_000
    for _ in range(12):
        now_ms += make.choice([0, 20, 3_000])
        pair.batch(crowded(make, now_ms, 30_000), now_ms, make.choice([None, 1, 25, 200]))
        if make.random() < 0.5:
            pair.restart()
    pair.batch([], now_ms + 300_000, None)
    assert pair.state.pending == 0


@pytest.mark.usefixtures("tiny")
@within_a_fixture
@given(run=runs)
def test_a_step_that_asks_the_index_does_as_one_that_searches_all_chunks(run: Run) -> None:
    asking = searching = ShardState.empty(run.wheel)
    for move, now_ms, rows in run.batches():
        commands = commands_table(rows) if rows else None
        one = advance(asking, commands, now_ms, move.limit, memory_ms=run.memory_ms)
        with pytest.MonkeyPatch.context() as former:
            former.setattr(shard_state, "places_of", everywhere)
            two = advance(searching, commands, now_ms, move.limit, memory_ms=run.memory_ms)
        assert (shown(one.fired), shown(one.missed)) == (shown(two.fired), shown(two.missed))
        assert one.state.to_row(1) == two.state.to_row(1)
        asking, searching = one.state, two.state


def everywhere(runs: Sequence[Chunk], ids: pa.Array) -> Places:
    """The former look-up: each id may be in each row of each chunk."""
    sizes = [pair for run in map(IndexRun, runs) for pair in zip(run.numbers, run.sizes, strict=True)]
    codes = np.arange(len(ids))
    return {
        int(number): (np.repeat(codes, size), np.tile(np.arange(size), len(ids))) for number, size in sizes
    }


# ---- how much is opened --------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The characters of each stream that is decoded."""
    seen: list[int] = []
    decoded = chunks.decoded_table

    def counted(text: str, columns: Any) -> pa.Table:
        seen.append(len(text))
        return decoded(text, columns)

    monkeypatch.setattr(chunks, "decoded_table", counted)
    return seen


def far(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "schedule_id": f"id{n}",
            "deliver_at_ms": DAY_MS + 1_000 * n,
            "value": b"x" * 50,
            "destination": "out",
        }
        for n in range(first, first + count)
    ]


def test_a_new_id_opens_no_chunk(opened: list[int]) -> None:
    state = advance(ShardState.empty(WHEEL), commands_table(far(5_000)), 0, memory_ms=None).state
    opened.clear()

    step = advance(
        state, commands_table([{"schedule_id": "new", "deliver_at_ms": DAY_MS}]), 0, memory_ms=None
    )

    assert (step.state.pending, opened) == (5_001, [])


def test_a_cancel_reads_the_keys_of_a_chunk_and_leaves_its_text_as_it_is(opened: list[int]) -> None:
    state = advance(ShardState.empty(WHEEL), commands_table(far(5_000)), 0, memory_ms=None).state
    (chunk,) = (each for each in state.entry_chunks if "id77" in each.table()["schedule_id"].to_pylist())
    opened.clear()

    after = advance(
        state, commands_table([{"schedule_id": "id77", "seq": 2, "op": 1}]), 0, memory_ms=None
    ).state

    assert chunk.head > 0
    assert opened == []
    (same,) = (each for each in after.entry_chunks if each.number == chunk.number)
    assert (str(same.span), same.rows) == (str(chunk.span), chunk.rows - 1)
    assert "id77" not in same.table()["schedule_id"].to_pylist()


def test_what_a_cancel_decodes_does_not_grow_with_its_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(decode: Callable[[str], Any]) -> Callable[[str], Any]:
        return lambda text: read.append(len(text)) or decode(text)  # type: ignore[func-returns-value]

    monkeypatch.setattr(id_index, "octets_of", counted(id_index.octets_of))
    monkeypatch.setattr(row_keys, "json", SimpleNamespace(loads=counted(json.loads), dumps=json.dumps))
    by_rows = []
    for rows in (1_500, 6_000):
        state = advance(ShardState.empty(WHEEL), commands_table(far(rows)), 0, memory_ms=None).state
        read.clear()
        advance(state, commands_table([{"schedule_id": "id1077", "seq": 2, "op": 1}]), 0, memory_ms=0)
        by_rows.append(sum(read))

    assert 500 < min(by_rows) <= max(by_rows) < 3_000


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("id_", "next_due", "latest"),
    [("id0", 1, 5), ("id3", 0, 5), ("id5", 0, 4)],
    ids=["first", "other", "last"],
)
def test_a_removed_row_no_longer_bounds_the_times_of_its_chunk(id_: str, next_due: int, latest: int) -> None:
    state = advance(ShardState.empty(WHEEL), commands_table(far(6)), 0, memory_ms=None).state
    assert state.next_due_ms == DAY_MS

    after = advance(state, commands_table([{"schedule_id": id_, "seq": 2, "op": 1}]), 0, memory_ms=None).state

    assert after.next_due_ms == DAY_MS + 1_000 * next_due
    assert max(chunk.high_ms for chunk in after.entry_chunks) == DAY_MS + 1_000 * latest


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("source", ["topic/1/9", "topic/2/9", None])
def test_the_partition_of_a_pending_entry_is_known_from_its_keys(source: str | None) -> None:
    rows = [row | {"seq_given": False, "source": f"topic/{n % 2}/{n}"} for n, row in enumerate(far(6))]
    state = advance(ShardState.empty(WHEEL), commands_table(rows), 0, memory_ms=None).state

    again = {"schedule_id": "id3", "seq": 9, "deliver_at_ms": DAY_MS, "seq_given": False, "source": source}
    step = advance(state, commands_table([again]), 0, memory_ms=None)

    assert (step.state.counts["superseded"], step.spread) == (1, 1 if source == "topic/2/9" else 0)


def test_a_batch_opens_as_much_of_a_backlog_as_it_releases(opened: list[int]) -> None:
    state = advance(ShardState.empty(WHEEL), commands_table(far(20_000)), 0, memory_ms=0).state
    state = advance(state, None, 2 * DAY_MS, 1_000, memory_ms=0).state
    rows = state.pending

    for _ in range(5):
        opened.clear()
        step = advance(state, None, 2 * DAY_MS, 1_000, memory_ms=0)
        state = step.state
        assert step.fired.num_rows == 1_000
        assert sum(opened) < len(state.text) / 4
    assert (rows - state.pending, state.next_due_ms) == (5_000, DAY_MS + 6_000_000)


# ---- the text of a state -------------------------------------------------------------------------


def test_an_index_of_another_hash_function_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    state = advance(ShardState.empty(WHEEL), commands_table(far(50)), 0, memory_ms=None).state
    data, hashes = state.to_row(1), id_index.hashes_of
    monkeypatch.setattr(id_index, "hashes_of", lambda ids: hashes(ids) ^ np.uint32(99))

    found = ShardState.from_row(data, WHEEL, 1)
    after = advance(
        found, commands_table([{"schedule_id": "id7", "seq": 2, "op": 1}]), 0, memory_ms=None
    ).state

    assert (after.pending, after.counts["cancelled"]) == (49, 1)
    assert {run.group for run in after.index} == {id_index.check()}


def test_the_index_takes_at_most_ten_characters_an_entry() -> None:
    state = ShardState.empty(WHEEL)
    for first in range(0, 20_000, 2_000):
        state = advance(state, commands_table(far(2_000, first)), 0, memory_ms=None).state

    assert sum(run.size for run in state.index) < 10 * state.pending
    assert len(state.index) < 6


def test_an_emptied_shard_keeps_no_index() -> None:
    state = advance(ShardState.empty(WHEEL), commands_table(far(50)), 0, memory_ms=0).state

    step = advance(state, None, 2 * DAY_MS, memory_ms=0)

    assert (step.fired.num_rows, step.state.chunks) == (50, ())


def test_rows_removed_one_by_one_leave_a_chunk_that_is_written_anew_now_and_then() -> None:
    state = advance(ShardState.empty(WHEEL), commands_table(far(2_000)), 0, memory_ms=0).state
    left = {f"id{n}" for n in range(2_000)}
    for n in range(0, 2_000, 100):
        gone = [{"schedule_id": f"id{n + k}", "seq": 2, "op": 1} for k in range(60)]
        left -= {row["schedule_id"] for row in gone}
        state = advance(state, commands_table(gone), 0, memory_ms=0).state
        assert all(chunk.encoded_rows <= 1.5 * chunk.rows for chunk in state.entry_chunks)

    assert set(state.entries()["schedule_id"].to_pylist()) == left
    assert state.pending == len(left)


# ---- the index -----------------------------------------------------------------------------------


@pytest.mark.parametrize("narrow", [2**24, 100], ids=["positions of 3 bytes", "of 6 bytes"])
def test_the_index_names_the_row_of_each_id_also_after_merges_and_removals(
    monkeypatch: pytest.MonkeyPatch, narrow: int
) -> None:
    monkeypatch.setattr(chunk_sizes, "SIZES", Sizes(index_narrow=narrow))
    state = ShardState.empty(WHEEL)
    for first in range(0, 6_000, 1_500):
        gone = [{"schedule_id": f"id{n}", "seq": 2, "op": 1} for n in range(first % 7, first, 9)]
        state = advance(state, commands_table([*far(1_500, first), *gone]), 0, memory_ms=0).state
        state = ShardState.from_row(state.to_row(1), WHEEL, 1)

    left = state.entries()["schedule_id"].combine_chunks()
    places, found = state.places_of(left), 0
    assert any(chunk.gone for chunk in state.entry_chunks)
    for chunk in state.entry_chunks:
        pairs = places[chunk.number]
        stored = np.full(chunk.encoded_rows, "", object)
        stays = np.delete(np.arange(chunk.encoded_rows), chunk.gone_rows())
        stored[stays] = chunk.table("schedule_id")["schedule_id"].to_pylist()
        found += int((stored[pairs[1]] == np.array(left.to_pylist(), object)[pairs[0]]).sum())
    assert found == len(left) == state.pending
