"""Running a query over a load and reading what Spark itself says of its batches; and the CPU time of processes, from
``/proc``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.bench.report import median
from wheel_udf.checkpoint.chunk_place import chunks_of_tasks

WHOLE = "triggerExecution"
"""The phase that is the whole of a batch, from its planning to its commit."""

_COUNTED = "counted"
_LOOK_EVERY_S = 2.0
_PAGES_OF_NO_FILE = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Batch:
    """One micro-batch, as Spark's progress has it.

    Attributes:
        number: Spark's number of the batch.
        rows_out: Rows that reached the sink and that the query counts (see :func:`run`).
        phases_ms: Duration of each phase; :data:`WHOLE` is all of it.
        state_rows_written: Rows of state written; ``None`` without a stateful operator.
        state_bytes: Memory of the state stores; ``None`` likewise.
    """

    number: int
    rows_out: int
    phases_ms: dict[str, int]
    state_rows_written: int | None
    state_bytes: int | None

    @property
    def seconds(self) -> float:
        """How long the batch took."""
        return self.phases_ms[WHOLE] / 1000


def run(frame: DataFrame, checkpoint: Path, *, counted: Column, in_files: bool = True) -> list[Batch]:
    """Runs a streaming frame over all its input into a sink that takes every column of every row and keeps none.

    Args:
        frame: The streaming frame.
        checkpoint: Folder for the query's progress and state.
        counted: Which rows to count, so that no measurement is of a query that does nothing.
        in_files: Whether long chunks of the state are in files, as with ``deliver``; else all are in the row of the
            state.

    Returns:
        Its batches in order, those without data included.
    """
    observed = frame.observe(_COUNTED, F.count_if(counted).alias("rows"))
    writer = observed.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    with chunks_of_tasks(frame.sparkSession, str(checkpoint)) if in_files else nullcontext():
        query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        return _batches(query)
    finally:
        query.stop()


def _batches(query: StreamingQuery) -> list[Batch]:
    batches = {}
    for progress in query.recentProgress:
        if WHOLE in progress.durationMs and "addBatch" in progress.durationMs:
            batches[progress.batchId] = _batch(progress)
    return [batches[number] for number in sorted(batches)]


def _batch(progress: Any) -> Batch:
    state = progress.stateOperators[0] if progress.stateOperators else None
    counted = progress.observedMetrics.get(_COUNTED)
    return Batch(
        number=progress.batchId,
        rows_out=int(counted["rows"]) if counted is not None else 0,
        phases_ms=dict(progress.durationMs),
        state_rows_written=None if state is None else state.numRowsUpdated,
        state_bytes=None if state is None else state.memoryUsedBytes,
    )


def seconds_of(batches: Sequence[Batch]) -> float:
    """Median time of a batch."""
    return median([batch.seconds for batch in batches])


def phases_of(batches: Sequence[Batch]) -> dict[str, float]:
    """Median ms of each phase; phases are medians by themselves and need not add up to the whole."""
    names = dict.fromkeys(name for batch in batches for name in batch.phases_ms if name != WHOLE)
    return {
        WHOLE: median([batch.phases_ms[WHOLE] for batch in batches]),
        **{name: median([batch.phases_ms.get(name, 0) for batch in batches]) for name in names},
    }


def record_of(batches: Sequence[Batch]) -> dict[str, Any]:
    """All that was measured of some batches, for JSON."""
    return {
        "batches": len(batches),
        "seconds": [batch.seconds for batch in batches],
        "median_seconds": seconds_of(batches),
        "rows_out": [batch.rows_out for batch in batches],
        "state_rows_written": [batch.state_rows_written for batch in batches],
        "state_bytes": [batch.state_bytes for batch in batches],
        "phases_ms": phases_of(batches),
    }


class CpuMeter:
    """CPU time (user and system) that this process and all its descendants use from now on: the driver, its JVM, the
    JVM's workers.

    Each process is looked at by itself, again and again: one that ends takes its time with it unless its parent waited
    for it, and the daemon of Spark's Python workers does not.
    """

    def __init__(self, root: int | None = None) -> None:
        self._root = os.getpid() if root is None else root
        self._before = _seconds_below(self._root)
        self._latest = dict(self._before)

    def seconds(self) -> float:
        """CPU seconds since the meter was made; a process that came and went between two calls is not seen."""
        self._latest |= _seconds_below(self._root)
        return sum(used - self._before.get(process, 0.0) for process, used in self._latest.items())


def cpu_seconds_over(seconds: float) -> float:
    """CPU seconds that :class:`CpuMeter` finds while so much time goes by."""
    meter, used, end_s = CpuMeter(), 0.0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(min(_LOOK_EVERY_S, max(end_s - time.monotonic(), 0)))
        used = meter.seconds()
    return used


def family_of(root: int) -> list[int]:
    """The ids of a process and of all its living descendants; without it, if it has ended, those are not known."""
    return list(_seconds_below(root))


def memory_bytes(processes: Sequence[int]) -> int:
    """What processes hold in memory and in no file: their own pages, and each one's part of the pages that they share.

    Pages of files are left out: the files are counted on the disk.
    """
    total = 0
    for process in processes:
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:  # ended meanwhile
            continue
        total += sum(int(kilobytes) for kilobytes in _PAGES_OF_NO_FILE.findall(text)) * 1024
    return total


def _seconds_below(root: int) -> dict[int, float]:
    """CPU seconds of a process and of each of its living descendants."""
    used, parents = _process_table()
    family: dict[int, float] = {}
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        family[parent] = used.get(parent, 0.0)
        waiting += [child for child, its_parent in parents.items() if its_parent == parent]
    return family


def _process_table() -> tuple[dict[int, float], dict[int, int]]:
    ticks = os.sysconf("SC_CLK_TCK")
    used, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # ended meanwhile
            continue
        # The name stands in parentheses and may hold any character, so what counts begins behind the last one.
        fields = text.rpartition(")")[2].split()
        parents[int(folder.name)] = int(fields[1])
        used[int(folder.name)] = sum(map(int, fields[11:13])) / ticks
    return used, parents
