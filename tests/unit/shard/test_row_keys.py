"""The keys of a chunk: what is written is read, row by row and as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

from wheel_udf.shard.row_keys import KEY_COLUMNS, RowKeys, packed
from wheel_udf.shard.rows import ENTRY_SCHEMA

INT64 = st.integers(-(2**63), 2**63 - 1)
SOURCES = st.sampled_from([None, "t/0/17", "t/1/17", "t/0/18", "other/0/0", "ü/3/1"])
IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.just("a" * 500)


def table(ids: list[str], seq: list[int], amend: list[int], source: list[str | None]) -> pa.Table:
    blank = [None] * len(ids)
    columns = {"schedule_id": ids, "seq": seq, "amend": amend, "source": source}
    return pa.table(
        [pa.array(columns.get(each.name, blank), each.type) for each in ENTRY_SCHEMA], schema=ENTRY_SCHEMA
    )


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(IDS, INT64, st.integers(0, 2**31 - 1), SOURCES),
        min_size=1,
        max_size=200,
        unique_by=lambda row: row[0],
    ),
    before=st.text(max_size=5),
    data=st.data(),
)
def test_what_is_packed_is_read(
    rows: list[tuple[str, int, int, str | None]], before: str, data: st.DataObject
) -> None:
    ids, seq, amend, source = (list(column) for column in zip(*rows, strict=True))
    entries = table(ids, seq, amend, source)

    text = packed(entries)

    assert text.isascii()
    keys = RowKeys(before + text + "...", len(before))
    assert keys.table() == entries.select(KEY_COLUMNS)
    assert keys.table("seq") == entries.select(["seq"])
    at = data.draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, max_size=5))
    names = [name and name.rstrip("0123456789") for name in source]
    assert keys.at(np.array(at)) == [[column[row] for row in at] for column in (ids, seq, amend, names)]


def test_a_slice_of_a_table_has_the_keys_of_its_own_rows() -> None:
    rows = table(["x", "yy", "zzz"], [1, 2, 3], [0, 0, 1], ["t/0/1", None, "t/1/2"])

    keys = RowKeys(packed(rows.slice(1)), 0)

    assert keys.at(np.array([1, 0])) == [["zzz", "yy"], [3, 2], [1, 0], ["t/1/", None]]
