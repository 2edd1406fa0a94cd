"""Data files as Python workers write them into an object store: what a task makes of its rows. No JVM."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, strategies as st

from wheel_udf.tables.object_files import by_partition, folders_of, parquet_of, tables_of

ROWS = pa.table(
    {
        "level": pa.array([1, 0, 1, 0, None], pa.int32()),
        "day": pa.array([date(2026, 1, 2), date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3), None]),
        "name": pa.array(["a", "b", "c", "d", "e"]),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 5, pa.timestamp("us", tz="UTC")),
    }
)


def test_each_partition_has_its_rows_without_the_partition_columns() -> None:
    parts = [(values, rows["name"].to_pylist()) for values, rows in by_partition(ROWS, ["level", "day"])]
    assert parts == [
        ({"level": "0", "day": "2026-01-01"}, ["b"]),
        ({"level": "0", "day": "2026-01-03"}, ["d"]),
        ({"level": "1", "day": "2026-01-02"}, ["a", "c"]),
        ({"level": None, "day": None}, ["e"]),
    ]
    assert all(rows.column_names == ["name", "at"] for _, rows in by_partition(ROWS, ["level", "day"]))


def test_without_partition_columns_all_rows_are_together_as_they_came() -> None:
    assert [(values, rows.equals(ROWS)) for values, rows in by_partition(ROWS, [])] == [({}, True)]


@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["", "a", "ä/%", None]))))
def test_no_row_is_lost_or_twice_whatever_the_partitions(rows: list[tuple[int, str | None]]) -> None:
    table = pa.table(
        {
            "number": pa.array([number for number, _ in rows], pa.int64()),
            "text": pa.array([text for _, text in rows], pa.string()),
            "row": pa.array(range(len(rows)), pa.int64()),
        }
    )
    found = [
        ((values["number"], values["text"]), row)
        for values, part in by_partition(table, ["number", "text"])
        for row in part["row"].to_pylist()
    ]
    assert sorted(found, key=lambda each: each[1]) == [
        ((str(number), text), row) for row, (number, text) in enumerate(rows)
    ]


def test_a_large_task_makes_several_files_and_an_empty_one_none() -> None:
    batch = ROWS.to_batches()[0]
    assert [table.num_rows for table in tables_of([batch] * 5, 2 * batch.nbytes)] == [10, 10, 5]
    assert list(tables_of([], 100)) == []
    assert list(tables_of([batch.slice(0, 0)], 100)) == []


def test_a_partition_has_folders_named_as_sparks_own_unless_a_value_is_no_name() -> None:
    assert folders_of({"level": "0", "slot": "-181"}) == "level=0/slot=-181/"
    assert folders_of({}) == ""
    for value in (None, "", "a/b", "ä", "..", "%41", "a b"):
        assert folders_of({"level": "0", "name": value}) == ""


def test_a_footer_tells_of_its_file() -> None:
    content, footer = parquet_of(ROWS, "zstd")
    read, told = pq.read_table(pa.BufferReader(content)), pq.read_metadata(pa.BufferReader(footer))
    assert read.equals(ROWS)
    assert told.num_rows == 5
    assert told.row_group(0).column(2).statistics.max == "e"
    assert told.row_group(0).column(0).compression == "ZSTD"
