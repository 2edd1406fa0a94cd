"""When each file of the input was read at the latest, by the wheel's clock: that decides which cancels were in time.

::

    file written ---.
                    v
    batches   |=--0--|   |=--1--|  |=--2--|   batch 0 may have found it; the first that began later, 1, has. = is the planning of a batch, in which
                                              its clock is read: the file was read by the end of 1's planning
    tiered: that is a batch of the intake; its rows are in the store at its end, and the first batch of the wheel that begins later has them
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq


class Batch(NamedTuple):
    """A batch of a query: its beginning, the end of its planning, and its end, in UTC epoch ms."""

    began_ms: int
    planned_ms: int
    ended_ms: int


Batches = Sequence[Batch]
"""The batches of a query, in order."""


def read_by(written_ms: int, queries: Sequence[Batches]) -> int | None:
    """When something was read by the last of some queries, each of which reads what the one before it has written;
    None if it is not known.
    """
    at_ms, clock_ms = written_ms, None
    for batches in queries:
        number = bisect_right(batches, at_ms, key=lambda batch: batch.began_ms)
        if number == len(batches):
            return None
        at_ms, clock_ms = batches[number].ended_ms, batches[number].planned_ms
    return clock_ms


def queries_of(samples: Path, mode: str) -> list[Batches]:
    """The batches of a mode's queries, in the order in which they pass rows on."""
    found: dict[str, list[Batch]] = {"intake batch": [], "batch": []}
    with samples.open(encoding="utf-8") as lines:
        for line in lines:
            sample = json.loads(line)
            if sample["mode"] == mode and "began_ms" in sample:
                query = "intake batch" if "intake batch" in sample else "batch"
                began_ms = sample["began_ms"]
                found[query].append(Batch(began_ms, sample["planned_ms"], began_ms + sample[query]))
    return [sorted(batches) for batches in found.values() if batches]


def written_of(folder: Path) -> dict[str, int]:
    """When each file was complete: UTC epoch ms by ``NAME/FILE``."""
    lines = (folder / "written.jsonl").read_text(encoding="utf-8").splitlines()
    return dict(json.loads(line) for line in lines)


def gathered(folder: Path, name: str) -> list[Path]:
    """All input files of a source, in order: Spark archives each below the path that it had."""
    found = [*(folder / "archive").rglob(f"in/{name}/*.parquet"), *(folder / "in" / name).glob("*.parquet")]
    return sorted((file for file in found if not file.name.startswith(".")), key=lambda file: file.name)


def input_of(folder: Path, name: str, by: Callable[[int], int | None]) -> pa.Table:
    """The rows of a source, with a column ``read_by_ms``.

    Raises:
        AssertionError: A file that was written is not there any more.
    """
    written, parts = written_of(folder), []
    files = gathered(folder, name)
    missing = {each for each in written if each.startswith(f"{name}/")} - {
        f"{name}/{file.name}" for file in files
    }
    assert not missing, f"no longer there: {sorted(missing)}"
    for file in files:
        table = pq.ParquetFile(file).read()
        at_ms = written.get(f"{name}/{file.name}")
        read_ms = None if at_ms is None else by(at_ms)
        parts.append(table.append_column("read_by_ms", pa.array([read_ms] * table.num_rows, pa.int64())))
    return pa.concat_tables(parts)
