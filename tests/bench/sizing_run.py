"""The slopes of ``docs/sizing.md``: ``python -m tests.bench.sizing_run``, about 4 minutes.

::

    state     one shard with so many pending entries, without Spark: its row, its files, and what a batch adds to them
    shards    a query with so many shards on a local disk: seconds of a batch of 2,000 rows, each of which fires

The slope of the requests is that of ``make bench-s3``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.loads import T0_MS
from tests.bench.report import median
from tests.bench.step_run import MEMORY_MS, WHEEL, Row, schedules
from wheel_udf import DeltaSink, Destinations, SimulatedClock, build_session, deliver, schedule
from wheel_udf.shard.chunk_files import LEAST_CHARACTERS, ChunkFiles
from wheel_udf.shard.shard_text import external_names
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.step import advance

PENDING, ADDED, SHARDS = (10_000, 100_000, 1_000_000), (1, 100, 2_000), (2, 8, 32)
ROWS, BATCHES, FIRST = 2_000, 14, 4
_FILLED_WITH, _KEPT_BATCHES, _PATIENCE_S = 50_000, 2, 300
_SCHEMA = "schedule_id string, delay string, destination string, event_time timestamp"


def state_sizes(pending: int) -> Iterator[str]:
    """Lines on the state of a shard."""
    random, folder = np.random.default_rng(2), Path(tempfile.mkdtemp(), "0")
    batch, row = 0, ShardState.empty(WHEEL).to_row(1)

    def added(row: Row, ids: list[str]) -> Row:
        texts = ChunkFiles(folder, batch, _KEPT_BATCHES, LEAST_CHARACTERS)
        state = ShardState.from_row(row, WHEEL, 1, texts)
        return advance(state, schedules(ids, random), T0_MS, memory_ms=MEMORY_MS).state.to_row(1)

    def files(row: Row) -> dict[str, int]:
        names = external_names(ShardState.from_row(row, WHEEL, 1, None).text)
        return {name: (folder / name).stat().st_size for name in names}

    ids = [f"{number % 97:04}-{number:010}" for number in range(pending)]
    for start in range(0, pending, _FILLED_WITH):
        row, batch = added(row, ids[start : start + _FILLED_WITH]), batch + 1
    before = files(row)
    size = sum(len(each) if isinstance(each, str | bytes) else 8 for each in row)
    held = sum(before.values())
    yield (
        f"{pending:>9,} pending: a row of {size / 1e3:.1f} KB, {len(before)} files of {held / 1e6:.1f} MB, "
        f"{held / pending:.0f} bytes an entry"
    )
    for count in ADDED:
        batch += 1
        new = files(added(row, [f"new-{count}-{number}" for number in range(count)])).items() - before.items()
        yield f"{count:>19,} adds: {len(new)} new files of {sum(size for _, size in new) / 1e3:.0f} KB"


def seconds_of_batches() -> Iterator[str]:
    """Lines on the seconds of a batch, by the number of shards, which is that of the shuffle's partitions too."""
    root = Path(tempfile.mkdtemp())
    spark = build_session("sizing", master="local[2]", conf={"spark.ui.enabled": False}, checkpoint=str(root))
    for shards in SHARDS:
        place = root / str(shards)
        (place / "in").mkdir(parents=True)
        for number in range(BATCHES + 2):
            at = f"2026-01-01T00:{number:02}:00Z"
            rows = (
                {"schedule_id": f"{number}-{row}", "delay": "0", "destination": "out", "event_time": at}
                for row in range(ROWS)
            )
            (place / "in" / f"{number:03}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        spark.conf.set("spark.sql.shuffle.partitions", shards)
        source = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        clock = SimulatedClock(start_ms=1_767_225_600_000, step_ms=60_000)
        query = deliver(
            schedule(source.json(str(place / "in")), wheel=WHEEL, shards=shards, clock=clock),
            destinations=Destinations({"*": DeltaSink(str(place / "out"), create=True)}),
            rejects=DeltaSink(str(place / "rejects"), create=True),
            checkpoint=str(place / "checkpoint"),
        )
        took: dict[int, float] = {}
        end = time.monotonic() + _PATIENCE_S
        while len(took) < BATCHES and time.monotonic() < end:
            time.sleep(0.2)
            took |= {
                each.batchId: each.durationMs["triggerExecution"] / 1e3
                for each in query.recentProgress
                if each.numInputRows
            }
        query.stop()
        yield f"{shards:>9} shards: {median([*took.values()][FIRST:]):.2f} s a batch, of {len(took) - FIRST}"


def main() -> None:
    """Prints all slopes, or some."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.sizing_run", description="Slopes for sizing."
    )
    parser.add_argument("--only", choices=("state", "shards"))
    only = parser.parse_args().only
    if only != "shards":
        for pending in PENDING:
            for line in state_sizes(pending):
                print(line, flush=True)
    if only != "state":
        for line in seconds_of_batches():
            print(line, flush=True)


if __name__ == "__main__":
    main()
