"""Writes the input of a soak: one file a second, complete when it appears."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.soak.second_by_second import SecondBySecond
from tests.soak.traffic import Row

_INSTANT = pa.timestamp("us", tz="UTC")
SCHEMAS = {
    "commands": pa.schema(
        [
            ("schedule_id", pa.string()),
            ("op", pa.string()),
            ("seq", pa.int64()),
            ("deliver_at", _INSTANT),
            ("event_time", _INSTANT),
            ("destination", pa.string()),
            ("value", pa.binary()),
        ]
    ),
    "operations": pa.schema(
        [
            ("op_id", pa.string()),
            ("group", pa.string()),
            ("keys", pa.list_(pa.string())),
            ("rule", pa.string()),
            ("deadline", pa.string()),
            ("event_time", _INSTANT),
            ("destination", pa.string()),
            ("value", pa.binary()),
        ]
    ),
    "events": pa.schema(
        [("group", pa.string()), ("key", pa.string()), ("op", pa.string()), ("event_time", _INSTANT)]
    ),
}


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def write(folder: Path, number: int, what: str, rows: list[Row]) -> None:
    """Writes a file under a hidden name, then renames it, so that Spark never reads half of it; and notes when it was
    there.
    """
    place = folder / "in" / what
    hidden, file = place / f".{number:06}.parquet", place / f"{number:06}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[what]), hidden)
    hidden.rename(file)
    with (folder / "written.jsonl").open("a", encoding="utf-8") as notes:
        notes.write(json.dumps([f"{what}/{file.name}", now_ms()]) + "\n")


class Feeder(SecondBySecond):
    """Writes files on a thread until it is stopped.

    Args:
        folder: Holds a folder ``in/NAME`` for each source.
        rows: Of a second and its instant: the rows of each source.
    """

    def __init__(self, folder: Path, rows: Callable[[int, int], dict[str, list[Row]]]) -> None:
        super().__init__("soak-feeder")
        self._folder, self._rows = folder, rows

    def do(self, second: int) -> None:
        """Writes the files of a second."""
        for name, rows in self._rows(second, now_ms()).items():
            write(self._folder, second, name, rows)


def make_folders(folder: Path, names: tuple[str, ...]) -> None:
    """Makes the source folders; each begins with a file without rows, so that the first batch, which is long, comes
    before the traffic.
    """
    for name in names:
        (folder / "in" / name).mkdir(parents=True)
        empty = folder / "in" / name / "000000.empty.parquet"
        pq.write_table(SCHEMAS[name].empty_table(), empty)
        os.utime(empty, (1_000_000, 1_000_000))
