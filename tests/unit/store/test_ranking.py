"""Which row of an id counts, and which hashes occur more than once, without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from wheel_udf.shard.rows import CANCEL, COMMAND, FAR, FIRE_NOW, MOVED, SCHEDULE
from wheel_udf.store import ranking
from wheel_udf.store.intake import hash_of
from wheel_udf.store.ranking import (
    fires_of,
    highest,
    is_among,
    repeated,
    repeated_hashes,
    with_version,
)
from wheel_udf.store.scan import ROW_SCHEMA

LEAST, MOST = -(2**63), 2**63 - 1


def rows(*given: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(given), ROW_SCHEMA)


def version(name: str, seq: int, **columns: Any) -> dict[str, Any]:
    return {"schedule_id": name, "id_hash": len(name), "seq": seq, "op": SCHEDULE, "act": COMMAND} | columns


def test_the_hash_of_an_id_is_that_of_spark() -> None:
    # As "SELECT xxhash64(id)" says.
    assert hash_of("") == -7444071767201028348
    assert hash_of("Spark") == -4294468057691064905
    assert hash_of("order-1/ü€😀") == 6747423455165700668


def test_the_highest_version_counts_then_a_cancel_then_the_act_then_the_copy_that_is_due_first() -> None:
    found = highest(
        rows(
            version("a", 1, deliver_at_ms=5),
            version("a", 2, deliver_at_ms=9),
            version("a", 2, deliver_at_ms=8),
            version("b", 3, deliver_at_ms=1),
            version("b", 3, op=CANCEL),
            version("c", 1, amend=1, deliver_at_ms=4),
            version("c", 1, amend=None, deliver_at_ms=3),
            version("d", 1),
            version("d", 1, occurrence=7, deliver_at_ms=2),
        )
    )
    columns = ("schedule_id", "seq", "op", "deliver_at_ms")
    assert [tuple(row[name] for name in columns) for row in found.to_pylist()] == [
        ("a", 2, SCHEDULE, 8),
        ("b", 3, CANCEL, None),
        ("c", 1, SCHEDULE, 4),
        ("d", 1, SCHEDULE, 2),
    ]
    assert highest(rows()).num_rows == 0


def test_rows_without_a_version_of_their_own_do_not_count() -> None:
    given = [
        version("a", 1),
        version("b", 1, act=FAR),
        version("c", 1, act=MOVED),
        version("d", 1, reject="{}"),
    ]
    assert with_version(rows(*given))["schedule_id"].to_pylist() == ["a", "c"]


def test_of_several_fire_nows_of_an_id_the_highest_counts() -> None:
    fires = [version(name, seq, act=FIRE_NOW) for name, seq in [("a", 1), ("a", 3), ("b", 2)]]
    found = fires_of(rows(*fires, version("c", 1, act=FIRE_NOW, reject="{}"), version("d", 1)))
    assert sorted(zip(*(found[name].to_pylist() for name in ("schedule_id", "fire_seq")), strict=True)) == [
        ("a", 3),
        ("b", 2),
    ]


@given(
    st.lists(
        st.lists(st.integers(-5, 5) | st.sampled_from([LEAST, MOST, LEAST + 1]), max_size=8), max_size=4
    ),
    st.integers(1, 40),
)
def test_what_occurs_twice_in_one_file_or_in_two_is_found_once_in_any_number_of_ranges(
    files: list[list[int]], most: int
) -> None:
    arrays = [np.array(file, np.int64) for file in files] + [np.array([3, MOST], np.int64)]
    everything = [each for file in files for each in file] + [3, MOST]
    expected = sorted({each for each in everything if everything.count(each) > 1})
    assert repeated(arrays).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "MOST_HASHES", most)
        assert repeated_hashes(lambda: arrays, len(everything)).tolist() == expected


@given(st.lists(st.integers(-4, 4)), st.sets(st.integers(-4, 4)))
def test_a_value_is_among_others_or_not(hashes: list[int], known: set[int]) -> None:
    found = is_among(np.array(hashes, np.int64), np.array(sorted(known), np.int64))
    assert found.tolist() == [each in known for each in hashes]
