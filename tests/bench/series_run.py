"""``python -m tests.bench.series_run``: the step of one shard with few and with many series, and the cost of an occurrence. No Spark.

::

    step          so many series, `every 1 day`, evenly spread over a day; each step releases 1,000 of them
    occurrence    the next occurrence of a million instants, by rule

All figures are CPU of this process. A step includes the row that it reads and the row that it writes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.bench.loads import DAY_MS, T0_MS
from tests.bench.report import Line, Target, median, table
from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.series import Series, begin
from wheel_udf.recurrence.occurrences import occurrences_of
from wheel_udf.shard.chunk_files import LEAST_CHARACTERS, ChunkFiles
from wheel_udf.shard.rows import COMMAND_SCHEMA, SCHEDULE
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
FIRED, STEPS, FIRST, MEMORY_MS, FILLED_WITH = 1_000, 24, 4, 300_000, 50_000
MOST_RATIO, MOST_US = 1.25, 2.0
_POLICIES = Policies(repeat=Series(WHEEL.tick_ms))
_RULES = ("*/5 * * * *", "0 9 * * MON-FRI", "every 15 minutes", "every 1 day")


def commands(first: int, count: int, series: int) -> pa.Table:
    """New series; each begins at a time of the day of its own."""
    numbers = np.arange(first, first + count)
    anchors = T0_MS + numbers * DAY_MS // series
    columns = {
        "schedule_id": [f"series-{number * 7919 % series:08}" for number in numbers.tolist()],
        "seq": np.ones(count, np.int64),
        "amend": np.zeros(count, np.int32),
        "destination": ["out"] * count,
        "value": [bytes(100)] * count,
        "repeat": [json.dumps({"repeat": "every 1 day", "time_zone": "Europe/Paris"})] * count,
        "anchor_ms": anchors,
        "last_ms": anchors - 1,
        "spread_ms": np.zeros(count, np.int64),
        "op": np.full(count, SCHEDULE, np.int8),
        "seq_given": np.ones(count, bool),
        "act": np.zeros(count, np.int8),
    }
    blank = [None] * count
    arrays = [pa.array(columns.get(each.name, blank), each.type) for each in COMMAND_SCHEMA]
    return pa.table(arrays, schema=COMMAND_SCHEMA)


def seconds_of_a_step(series: int) -> float:
    """CPU seconds of a step that releases a thousand of so many series."""
    with tempfile.TemporaryDirectory() as folder:
        batch = 0

        def texts() -> ChunkFiles:
            return ChunkFiles(Path(folder) / "0", batch, 2, LEAST_CHARACTERS)

        row = ShardState.empty(WHEEL).to_row(1)
        for first in range(0, series, FILLED_WITH):
            state = ShardState.from_row(row, WHEEL, 1, texts())
            begun, _ = begin(commands(first, min(FILLED_WITH, series - first), series), state, T0_MS - 1)
            row = advance(state, begun, T0_MS - 1, memory_ms=MEMORY_MS, policies=_POLICIES).state.to_row(1)
            batch += 1
        took: list[float] = []
        for number in range(STEPS):
            now_ms, began = T0_MS + FIRED * (number + 1) * DAY_MS // series - 1, time.process_time()
            state = ShardState.from_row(row, WHEEL, 1, texts())
            step = advance(state, None, now_ms, memory_ms=MEMORY_MS, policies=_POLICIES)
            row = step.state.to_row(1)
            took.append(time.process_time() - began)
            assert step.fired.num_rows == FIRED
            batch += 1
    return median(took[FIRST:])


def microseconds_of_an_occurrence(rule: str, count: int = 1_000_000) -> float:
    """CPU microseconds of a next occurrence."""
    occurrences = occurrences_of(rule, "Europe/Paris")
    at_ms = T0_MS + np.random.default_rng(1).integers(0, 400 * DAY_MS, count)
    occurrences.after(at_ms[:10], at_ms[:10])
    began = time.process_time()
    occurrences.after(at_ms, at_ms - DAY_MS)
    return (time.process_time() - began) / count * 1e6


def main() -> int:
    """Runs the bench; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.series_run", description="Cost of series.")
    parser.add_argument("--series", type=int, nargs="+", default=[10_000, 1_000_000], metavar="N")
    numbers = parser.parse_args().series
    first = seconds_of_a_step(numbers[0])
    lines = [
        Line(
            case="step",
            what=f"{FIRED:,} of {number:,} series fire",
            figure=seconds_of_a_step(number) * 1e3,
            unit="ms",
            beside=first * 1e3,
            beside_what=f"{numbers[0]:,} series",
            target=Target(at_most=MOST_RATIO),
        )
        for number in numbers[1:]
    ]
    lines += [
        Line(
            case="occurrence",
            what=rule,
            figure=microseconds_of_an_occurrence(rule),
            unit="us",
            beside=None,
            beside_what="",
            target=None,
        )
        for rule in _RULES
    ]
    print(table(lines))
    return 0 if all(line.met is not False for line in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
