"""What a shard holds, from the directory of its chunks: bytes, rows by level, how many are due soon.

::

    directory of a shard   level 1, 120 rows, 10:00:05 .. 10:00:19    level 2, 800 rows, 10:00:20 .. 10:06:40
    holdings at 10:00:00   by_level {1: 120, 2: 800}    due within 1 min: 120, and the part of 800 before 10:01:00: 80

Cost: one small Arrow table, whatever the number of entries; the chunks stay closed. What is not in
the directory, such as the entries by destination, is counted in a bounded :class:`Sample` of opened chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.shard_text import directory_of

HORIZONS_MS: Final[Mapping[str, int]] = {"1m": 60_000, "5m": 300_000, "1h": 3_600_000, "24h": 86_400_000}
"""The horizons of :attr:`Holdings.due_within`, by their names."""

OTHERS: Final = ""
"""In :func:`largest`: all but the largest."""

_Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

_MOST: Final = 20
_SAMPLED_BYTES: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a shard, or all of them, holds in Spark's state.

    Attributes:
        bytes: Size of the state, what is outside its row included.
        remembered: Rows about ended ids.
        by_level: Entries by level of the wheel; the levels above the top one count as the top one.
        due_within: Entries that are due within each of :data:`HORIZONS_MS` from the clock. Of a bucket that the
            horizon cuts, the part that lies before it if its entries are spread evenly.
        last_due_ms: When the last entry is due; None if there is none.
    """

    bytes: int = 0
    remembered: int = 0
    by_level: Mapping[int, int] = field(default_factory=dict)
    due_within: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(HORIZONS_MS, 0))
    last_due_ms: int | None = None


def holdings_of(text: str, clock_ms: int, top_level: int) -> Holdings:
    """Returns what a shard holds.

    Args:
        text: The shard's chunks, as in its state. Rows of levels below the first are no pending entries.
        clock_ms: The clock.
        top_level: The highest level of the wheel.
    """
    if not text:
        return Holdings()
    directory = directory_of(text)
    level, rows, low, high = (directory[name].to_numpy() for name in ("level", "rows", "low_ms", "high_ms"))
    is_entry = level > MEMORY_LEVEL
    by_level: Counter[int] = Counter()
    for number, count in zip(level[is_entry].tolist(), rows[is_entry].tolist(), strict=True):
        by_level[min(number, top_level)] += count
    return Holdings(
        bytes=text.index(" ") + 1 + int(directory["length"].to_numpy().sum()),
        remembered=int(rows[level == MEMORY_LEVEL].sum()),
        by_level=dict(sorted(by_level.items())),
        due_within=due_within(low[is_entry], high[is_entry], rows[is_entry], clock_ms),
        last_due_ms=int(high[is_entry].max()) if is_entry.any() else None,
    )


def due_within(low_ms: _Numbers, high_ms: _Numbers, rows: _Numbers, clock_ms: int) -> dict[str, int]:
    """Returns how many rows of some runs are due within each of :data:`HORIZONS_MS`.

    Args:
        low_ms: Earliest due time of each run; int64[n] or float64[n], as the next two.
        high_ms: Latest due time of each run.
        rows: Number of rows of each run.
        clock_ms: The clock.
    """
    # As floats: the distances of hostile due times do not fit into 64 bits.
    low, high = low_ms.astype(np.float64), high_ms.astype(np.float64)
    at = clock_ms + np.array([*HORIZONS_MS.values()], np.float64)[:, None]
    # A run of one instant counts from that instant on.
    part = np.where(high <= at, 1.0, np.clip((at - low) / np.maximum(high - low, 1.0), 0.0, 1.0))
    counts = np.round(part * rows).sum(axis=1).astype(np.int64).tolist()
    return dict(zip(HORIZONS_MS, counts, strict=True))


@dataclass(frozen=True)
class Sample:
    """Some entries of a shard, for counts.

    Attributes:
        rows: The entries that were read.
        total: How many entries the shard has.
    """

    rows: pa.Table
    total: int

    @staticmethod
    def of(chunks: Sequence[Chunk], *columns: str) -> Sample:
        """Reads some columns of up to 4 MB of chunks.

        If the shard has more, chunks are drawn at random (always the same for the same chunks). A chunk that is larger
        by itself is never drawn.
        """
        total, drawn, room = sum(chunk.rows for chunk in chunks), list[Chunk](), _SAMPLED_BYTES
        for number in np.random.default_rng(len(chunks)).permutation(len(chunks)).tolist():
            if chunks[number].size <= room:
                room -= chunks[number].size
                drawn.append(chunks[number])
        if not drawn:
            return Sample(pa.table({name: pa.nulls(0) for name in columns}), total)
        return Sample(pa.concat_tables([chunk.table(*columns).select(columns) for chunk in drawn]), total)

    def counts(self, column: str, *, having: str | None = None) -> dict[Any, int]:
        """Counts the entries of the shard by the values of a column; nulls are not counted.

        Args:
            column: The column.
            having: Only the entries with a value in this column are counted; None for all.
        """
        rows = self.rows if having is None else self.rows.filter(self.rows[having].is_valid())
        found = pc.value_counts(rows[column].drop_null()).to_pylist()
        return {pair["values"]: round(pair["counts"] * self.total / self.rows.num_rows) for pair in found}


def largest(counts: Mapping[str, int]) -> dict[str, int]:
    """The twenty largest of some counts, and the sum of the rest at :data:`OTHERS`."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rest = sum(count for _, count in ranked[_MOST:])
    return dict(ranked[:_MOST]) | ({OTHERS: rest} if rest else {})
