"""What reads Arrow batches in Spark's Python workers, and two such readers one after the other: Arrow goes once to
Python and once back, whatever is read there.

::

    key value topic ... headers batch_ms --first--> schedule_id op ... kafka (+ batch_ms) --second--> command rows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

BATCH_MS = "batch_ms"
"""The last column of what a reader reads: the time of the batch (int64, UTC epoch ms)."""


class Reader(Protocol):
    """What reads batches, and can be sent to a worker."""

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads the columns of a frame by their places, and at last :data:`BATCH_MS`; a row for each row."""


@dataclass(frozen=True)
class InTurn:
    """Reads what the first reader made with the second; both get the same time of the batch."""

    first: Reader
    second: Reader

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads a batch; see :class:`Reader`."""
        made = self.first.read(batch)
        return self.second.read(
            pa.RecordBatch.from_arrays(
                [*made.columns, batch.columns[-1]], names=[*made.schema.names, BATCH_MS]
            )
        )


def read_all(batches: Iterator[pa.RecordBatch], reader: Reader) -> Iterator[pa.RecordBatch]:
    """Passes batches through a reader: with the reader given, the function of ``mapInArrow``."""
    return map(reader.read, batches)
