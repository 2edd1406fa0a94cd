"""A steady load through a tiered run over a store that holds much already: batch times of both queries, lateness as a
reader of the table sees it, and what the run costs when nothing comes.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.measure import WHOLE, cpu_seconds_over
from wheel_udf.control.clocks import ProcessingClock
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wheel_udf.store.layout import StoreLayout

SHARDS = 2
NAME = "bench"
_COLUMNS = "schedule_id string, deliver_at timestamp, destination string, value binary"
_FILE_EVERY_S = 0.5
_SHORTEST_MS, _LONGEST_MS = 2_000, 30_000
_FAR_SHARE, _FAR_FROM_MS, _FAR_SPAN_MS = 0.1, 86_400_000, 30 * 86_400_000
_SETTLE_S = 15
VALUE_BYTES = 96
"""Of each command's value: random, so that no compression flatters what an entry takes beside it."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How long and how much.

    Attributes:
        rate: Commands a second; one in ten is far.
        seconds: How long they come.
        idle_s: How long the run is then looked at with nothing to do.
    """

    rate: int = 2_000
    seconds: int = 60
    idle_s: int = 60


def wheel(layout: StoreLayout, store: str) -> TieredWheel:
    """The run's wheel."""
    return TieredWheel(layout=layout, store=store, clock=ProcessingClock(), shards=SHARDS)


def measure(
    spark: SparkSession, what: TieredWheel, folder: Path, sizes: Sizes, turn: int = 0
) -> dict[str, float]:
    """Runs the load and lets it rest.

    Args:
        spark: The session.
        what: The wheel, whose store may be full.
        folder: For the run's input, tables and checkpoint (``checkpoint``).
        sizes: The load.
        turn: How many times the load has run over this store: the run goes on from its checkpoint.

    Returns:
        ``intake batch`` and ``wheel batch`` (median s), ``late p50``, ``late p99``, ``late min`` (s), ``fired``,
        ``idle CPU`` (s a minute).
    """
    (folder / "in").mkdir(parents=True, exist_ok=True)
    run = start_tiered(
        spark.readStream.schema(_COLUMNS).parquet(str(folder / "in")),
        what,
        outlet=Outlet(
            Destinations({"*": DeltaSink(str(folder / "tables"), create=True)}),
            DeltaSink(str(folder / "rejects")),
        ),
        checkpoint=str(folder / "checkpoint"),
        name=NAME,
    )
    try:
        began_ms = _produce(folder / "in", sizes, turn)
        batches = {"intake": _batch_s(run.intake, began_ms), "wheel": _batch_s(run.wheel, began_ms)}
        expected = _near_of(sizes) * (turn + 1)
        _wait(run, lambda: _count(folder) >= expected)
        idle = cpu_seconds_over(sizes.idle_s) / sizes.idle_s * 60
    finally:
        run.stop()
    late_s = _lateness_s(folder / "tables" / "out", began_ms + _SETTLE_S * 1_000)
    return {
        **{f"{name} batch": seconds for name, seconds in batches.items()},
        **{f"late p{at}": float(np.percentile(late_s, at)) for at in (50, 99)},
        "late min": float(late_s.min()),
        "fired": float(_count(folder)),
        "expected": float(expected),
        "idle CPU": idle,
    }


def _near_of(sizes: Sizes) -> int:
    each = int(sizes.rate * _FILE_EVERY_S)
    return (each - int(each * _FAR_SHARE)) * int(sizes.seconds / _FILE_EVERY_S)


def _produce(folder: Path, sizes: Sizes, turn: int) -> int:
    """Writes a file of commands every half second, on this thread; when it began (epoch ms)."""
    random, each = np.random.default_rng(7 + turn), int(sizes.rate * _FILE_EVERY_S)
    began_ms, began_s = wall_clock_ms(), time.monotonic()
    for number in range(int(sizes.seconds / _FILE_EVERY_S)):
        time.sleep(max(0.0, began_s + number * _FILE_EVERY_S - time.monotonic()))
        far = np.arange(each) < int(each * _FAR_SHARE)
        delay_ms = np.where(
            far,
            _FAR_FROM_MS + random.integers(0, _FAR_SPAN_MS, each),
            random.integers(_SHORTEST_MS, _LONGEST_MS, each),
        )
        rows = pa.table(
            {
                "schedule_id": [f"live-{turn}-{number}-{row}" for row in range(each)],
                "deliver_at": pa.array(wall_clock_ms() + delay_ms, pa.timestamp("ms", "UTC")),
                "destination": ["out"] * each,
                "value": [random.bytes(VALUE_BYTES) for _ in range(each)],
            }
        )
        hidden = folder / f".{turn}-{number}.parquet"
        pq.write_table(rows, hidden)
        hidden.rename(folder / f"{turn}-{number}.parquet")
    return began_ms


def _batch_s(query: Any, began_ms: int) -> float:
    """Median seconds of the batches with data, once the load is steady."""
    after = began_ms / 1_000 + _SETTLE_S
    took = [
        progress.durationMs[WHOLE] / 1_000
        for progress in query.recentProgress
        if progress.numInputRows > SHARDS and datetime.fromisoformat(progress.timestamp).timestamp() >= after
    ]
    return float(np.median(took))


def _wait(run: TieredRun, is_so: Any, at_most_s: float = 120) -> None:
    for _ in range(int(at_most_s)):
        if is_so():
            return
        run.awaitTermination(1)
        if not run.isActive:
            break
    raise RuntimeError("not all of the load came out")


def _commits(table: Path) -> dict[str, tuple[float, int]]:
    """For each data file of a table: when its commit could be read (epoch s), and its rows."""
    found = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text(encoding="utf-8").splitlines():
            action = json.loads(line).get("add")
            if action is not None:
                found[action["path"]] = (entry.stat().st_mtime, json.loads(action["stats"])["numRecords"])
    return found


def _count(folder: Path) -> int:
    return sum(rows for _, rows in _commits(folder / "tables" / "out").values())


def _lateness_s(table: Path, from_ms: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds from the due time to the commit, of what was due from an instant on."""
    parts = []
    for path, (at_s, _) in _commits(table).items():
        due = pq.read_table(table / path, columns=["deliver_at"]).column(0)
        due_ms = due.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
        parts.append(at_s - due_ms[due_ms >= from_ms] / 1_000)
    return np.concatenate(parts)
