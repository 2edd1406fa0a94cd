"""The keys of a chunk: what is written is read, row by row and as columns."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from wheel_udf.wheel.row_keys import KEY_COLUMNS, LONGEST, IdBytes, RowKeys, packed
from wheel_udf.wheel.rows import ENTRY_SCHEMA

INT64 = st.integers(-(2**63), 2**63 - 1)
SOURCES = st.sampled_from([None, "t/0/17", "t/1/17", "t/0/18", "other/0/0", "ü/3/1"])
IDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)


def table(ids: list[str], seq: list[int], amend: list[int], source: list[str | None]) -> pa.Table:
    blank = [None] * len(ids)
    columns = {"schedule_id": ids, "seq": seq, "amend": amend, "source": source}
    return pa.table(
        [pa.array(columns.get(each.name, blank), each.type) for each in ENTRY_SCHEMA], schema=ENTRY_SCHEMA
    )


def plain(ids: list[str]) -> pa.Table:
    return table(ids, [1] * len(ids), [0] * len(ids), [None] * len(ids))


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(IDS, INT64, st.integers(0, 2**31 - 1), SOURCES),
        min_size=2,
        max_size=40,
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
    if not text:
        return  # records would not be small

    keys = RowKeys(before + text + "...", len(before))
    assert text.isascii()

    assert keys.table(len(ids), *KEY_COLUMNS) == entries.select(KEY_COLUMNS)
    at = np.array(data.draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, max_size=5)))
    records = keys.at(at)
    assert keys.seq(records).tolist() == [seq[row] for row in at]
    assert keys.amend(records).tolist() == [amend[row] for row in at]
    names = [source[row] for row in at]
    assert keys.partition(records).tolist() == [name and name.rstrip("0123456789") for name in names]
    wanted = IdBytes.of(entries["schedule_id"].combine_chunks())
    for code in range(len(ids)):
        same = wanted.equal(np.full(len(at), code), keys.id_octets(records))
        assert same.tolist() == [row == code for row in at]


@pytest.mark.parametrize("asked", ["ab", "abcd", "abc\0", "abx", "", "a" * 500, "äbc"])
def test_an_id_is_not_taken_for_another_one(asked: str) -> None:
    keys = RowKeys(packed(plain(["abc", "abd", "b", "cc"])), 0)
    octets = keys.id_octets(keys.at(np.arange(4)))

    assert not IdBytes.of(pa.array([asked])).equal(np.zeros(4, np.int64), octets).any()
    both = IdBytes.of(pa.array([asked, "b"]))
    assert both.equal(np.ones(4, np.int64), octets).tolist() == [False, False, True, False]


def test_ids_of_a_slice_are_read_from_where_it_begins() -> None:
    some = pa.array(["x", "yy", "zzz", "a" * 200, "bb"]).slice(1)

    found = IdBytes.of(some)

    assert [bytes(row).rstrip(b"\0") for row in found.octets] == [b"yy", b"zzz", b"a" * LONGEST, b"bb"]
    assert found.lengths.tolist() == [2, 3, 2 * LONGEST, 2]


@pytest.mark.parametrize(
    ("what", "ids"),
    [
        ("a zero byte", ["a\0", "b"]),
        ("a long id", ["a" * (LONGEST + 1), "b"]),
        ("one id", ["same", "same"]),
        ("very different forms", [f"{'ab' * (n % 50)}{chr(97 + n % 26) * (n % 60)}" for n in range(200)]),
    ],
)
def test_there_are_no_keys_where_records_would_not_be_small(what: str, ids: list[str]) -> None:
    assert packed(plain(ids)) == "", what


def test_rows_of_many_partitions_get_no_keys() -> None:
    rows = [(f"id{n}", 1, 0, f"t{n}/x/1") for n in range(300)]

    assert packed(table(*(list(column) for column in zip(*rows, strict=True)))) == ""


def test_a_uuid_takes_16_bytes_and_a_number_a_byte_for_two_digits() -> None:
    random = np.random.default_rng(1)
    uuids = [str(uuid.UUID(bytes=random.bytes(16))) for _ in range(3_000)]

    assert len(packed(plain(uuids))) / 3_000 == pytest.approx(16 * 4 / 3, abs=0.8)
    assert len(packed(plain([f"order-{n:08}" for n in range(3_000)]))) / 3_000 == pytest.approx(
        2 * 4 / 3, abs=0.2
    )
