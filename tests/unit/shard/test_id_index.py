"""The index of ids: it names the chunk and the row of each id that a shard holds, however many ids are asked for at
once.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, strategies as st

from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.id_index import indexed, places_of
from wheel_udf.shard.rows import ENTRY_SCHEMA

Found = set[tuple[str, int, int]]


def chunk(ids: list[str]) -> Chunk:
    rows = [
        {"schedule_id": each, "seq": 1, "amend": 0, "deliver_at_ms": due_ms, "destination": "out"}
        for due_ms, each in enumerate(ids)
    ]
    return Chunk.of_entries(1, 0, pa.Table.from_pylist(rows, schema=ENTRY_SCHEMA))


def shard_of(batches: list[list[list[str]]]) -> tuple[list[Chunk], list[Chunk]]:
    """The chunks and the index after some batches, each of which adds chunks of ids."""
    chunks: list[Chunk] = []
    runs: list[Chunk] = []
    for batch in batches:
        chunks, runs = indexed([*chunks, *map(chunk, batch)], runs)
    return chunks, runs


def found(runs: list[Chunk], ids: list[str]) -> Found:
    """Id, chunk and row, of each place that the index names."""
    places = places_of(runs, pa.array(ids, pa.string()))
    return {
        (ids[code], number, row)
        for number, pairs in places.items()
        for code, row in zip(*(each.tolist() for each in pairs), strict=True)
    }


def held(chunks: list[Chunk]) -> Found:
    """The same, read from the chunks."""
    return {
        (name, each.number, row)
        for each in chunks
        for row, name in enumerate(each.table("schedule_id")["schedule_id"].to_pylist())
    }


MANY = [f"order-{number}" for number in range(2_000)]


def test_many_ids_at_once_are_found_where_each_alone_is() -> None:
    chunks, runs = shard_of([[MANY[:900], MANY[900:1_200]], [MANY[1_200:1_900]], [MANY[1_900:1_950]]])

    assert found(runs, MANY) == held(chunks)
    assert set().union(*(found(runs, [each]) for each in MANY)) == held(chunks)


def test_the_codes_of_a_chunk_are_the_places_of_its_ids_in_the_question() -> None:
    chunks, runs = shard_of([[MANY[:1_000]], [MANY[1_000:1_500]]])

    places = places_of(runs, pa.array(MANY[::-1]))

    for each in chunks:
        ids = each.table("schedule_id")["schedule_id"].to_pylist()
        assert [MANY[::-1][code] for code in places[each.number][0].tolist()] == sorted(
            ids, key=MANY[::-1].index
        )


@given(
    batches=st.lists(
        st.lists(
            st.lists(st.integers(0, 3_000).map("id-{}".format), min_size=1, max_size=300, unique=True),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    ),
    asked=st.lists(st.integers(0, 3_000).map("id-{}".format), max_size=600, unique=True),
)
def test_each_place_of_an_id_is_found_and_no_other(batches: list[list[list[str]]], asked: list[str]) -> None:
    chunks, runs = shard_of(batches)

    assert found(runs, asked) == {place for place in held(chunks) if place[0] in asked}
