"""The loads: commands in Parquet files, one file a micro-batch, the same files for whoever is measured.

Time is event time, and each batch owns an interval of it, which begins where that of the batch before ends::

    interval of a batch      |  ids said here, evenly  ............ last one at the very end |
    due                      |        each between its own event time and the end            |
    watermark in the next batch                                                   = the end: all of them fire

So each steady batch takes in n commands and fires the n of the batch before: what comes in goes out, and no more is
pending than one batch's worth, besides what the case puts there. Values are random bytes, which nothing on the way can
compress.

All is numpy and Arrow: a million commands take about a second, before anything is measured.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

T0_MS = 1_704_067_200_000  # 2024-01-01 00:00 UTC
DAY_MS = 86_400_000
VALUE_BYTES = 100
SCHEMA_DDL = "schedule_id string, seq long, deliver_at timestamp, event_time timestamp, destination string, value binary"

_INSTANT = pa.timestamp("ms", tz="UTC")
_SEED = 20_240_101
_FAR_DAYS = 30

Int64s = npt.NDArray[np.int64]


@dataclass
class Load:
    """A folder of files in the making, each the commands of one batch.

    Attributes:
        folder: Where the files are.
        now_ms: Where the event time of the next batch begins.
        value_bytes: Size of a value.
        files: How many files there are.
    """

    folder: Path
    now_ms: int = T0_MS
    value_bytes: int = VALUE_BYTES
    files: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def add_near(self, rows: int, interval_ms: int, *, batches: int = 1) -> Load:
        """Batches of commands due by the end of their own interval: they fire in the next batch."""
        for _ in range(batches):
            start_ms, self.now_ms = self.now_ms, self.now_ms + interval_ms
            said = start_ms + np.linspace(1, interval_ms, rows).astype(np.int64)
            share = self._random().random(rows)
            due = np.minimum(said + (share * (self.now_ms - said)).astype(np.int64), self.now_ms - 1)
            self._add(said, due)
        return self

    def add_far(self, rows: int) -> Load:
        """A batch of commands due 1 to 31 days later, spread evenly: they stay pending, and no clock of a case comes
        near them.
        """
        self.now_ms += 1
        due = self.now_ms + DAY_MS + self._random().integers(0, _FAR_DAYS * DAY_MS, rows)
        return self._add(np.full(rows, self.now_ms), due)

    def _random(self) -> np.random.Generator:
        return np.random.default_rng([_SEED, self.files])

    def _add(self, said: Int64s, due: Int64s) -> Load:
        rows = len(said)
        commands = pa.table(
            {
                "schedule_id": pa.array([f"{self.files:04}-{number:010}" for number in range(rows)]),
                "seq": pa.array(np.ones(rows, np.int64)),
                "deliver_at": pa.array(due).cast(_INSTANT),
                "event_time": pa.array(said).cast(_INSTANT),
                "destination": pa.array(["out"]).take(pa.array(np.zeros(rows, np.int64))),
                "value": _random_values(self._random(), rows, self.value_bytes),
            }
        )
        file = self.folder / f"{self.files:04}.parquet"
        pq.write_table(commands, file, compression="none", use_dictionary=["destination"])
        # Spark reads files in the order of their modification times.
        os.utime(file, (1_000_000 + self.files, 1_000_000 + self.files))
        self.files += 1
        return self


def _random_values(random: np.random.Generator, rows: int, size: int) -> pa.Array:
    ends = np.arange(0, (rows + 1) * size, size, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(random.bytes(rows * size))]
    )
