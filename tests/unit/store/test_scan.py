"""Rows of data files as Arrow tables, without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wheel_udf.common.errors import StoreError
from wheel_udf.store import scan as scans
from wheel_udf.store.scan import FILE, ROW, ROW_SCHEMA, Scan
from wheel_udf.store.table import PARTITIONED_BY
from wheel_udf.tables.delta_files import File


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    """Two files: ids a, b, c in slot 5 of level 2, and d, a near."""
    files = {"rows-1/level=2/slot=5/a%20b.parquet": "abc", "rows-1/level=0/slot=-7/c.parquet": "da"}
    found = {}
    for name, ids in files.items():
        rows = [
            {
                "schedule_id": each,
                "id_hash": ord(each),
                "seq": number,
                "value": each.encode(),
                "act": 0,
                "arrived": 1,
            }
            for number, each in enumerate(ids)
        ]
        place = tmp_path / name.replace("%20", " ")
        place.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, ROW_SCHEMA).drop_columns(list(PARTITIONED_BY)), place)
        level, slot = (int(part.partition("=")[2]) for part in name.split("/")[1:3])
        found[name] = File((level, slot), len(ids), place.stat().st_size)
    return Scan(str(tmp_path), found)


def test_columns_come_with_the_partition_and_the_place_of_a_row(scan: Scan) -> None:
    found = scan.columns(scan.files, ["schedule_id", "level", "slot"])
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("a", 2, 5, 0, 0),
        ("b", 2, 5, 0, 1),
        ("c", 2, 5, 0, 2),
        ("d", 0, -7, 1, 0),
        ("a", 0, -7, 1, 1),
    ]
    assert scan.columns([], ["level"]).schema.names == ["level", FILE, ROW]


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_rows_are_fetched_whole_by_their_places(
    scan: Scan, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(scans, "ROWS_AT_ONCE", at_once)
    everything = scan.columns(scan.files, ["seq"])
    found = scan.fetch(everything.take([4, 2, 0]))
    assert found.schema == ROW_SCHEMA
    columns = ("schedule_id", "seq", "value", "level", "slot")
    assert sorted(tuple(row[name] for name in columns) for row in found.to_pylist()) == [
        ("a", 0, b"a", 2, 5),
        ("a", 1, b"a", 0, -7),
        ("c", 2, b"c", 2, 5),
    ]
    assert scan.fetch(everything.slice(0, 0)).num_rows == 0


def test_rows_are_found_by_their_hashes(scan: Scan) -> None:
    assert sorted(each for part in scan.hashes(scan.files) for each in part) == [97, 97, 98, 99, 100]
    found = scan.of_hashes(scan.files, np.array([97, 98]), ["schedule_id", "level"])
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("a", 2, 0, 0),
        ("b", 2, 0, 1),
        ("a", 0, 1, 1),
    ]
    assert scan.of_hashes(scan.files, np.array([5])).num_rows == 0


def test_a_file_that_is_gone_is_named(scan: Scan, tmp_path: Path) -> None:
    (tmp_path / "rows-1/level=2/slot=5/a b.parquet").unlink()
    with pytest.raises(StoreError, match=r"not there any more: .*/a b\.parquet"):
        scan.columns(scan.files, ["seq"])
