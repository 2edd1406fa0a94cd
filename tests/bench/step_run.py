"""``make bench-step``: the pure step of one shard, at few and at many pending entries, and a backlog under a limit. No
Spark.

::

    state row --from_row--> state --advance--> state' --to_row--> state row'
               |--------------- step ---------------| |-- row --|                 pickle: the row both ways, as Spark's worker does it

    make bench-step                                      about 5 minutes
    make bench-step ARGS='--pending 1000 100000'         other numbers of pending entries; the first is what the others are set beside
    make bench-step ARGS='--backlog 10000 40000'         other backlogs

All figures are CPU milliseconds of this process (one thread), the median of several batches on the same state, with
values of 100 random bytes due in 30 days. The states take turns. The text of the next row is joined in ``to_row``: a
copy of the whole state, which costs as little as a copy can, and grows with what is pending, as its pickling does.

The exit code is 0 when all targets are met, 1 when one is missed.
"""

from __future__ import annotations

import argparse
import gc
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.bench.loads import DAY_MS, T0_MS, VALUE_BYTES
from tests.bench.report import Line, Target, median, table
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.rows import CANCEL, COMMAND_SCHEMA, SCHEDULE
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.step import advance

WHEEL: Final = Wheel(tick_ms=1_000, size=20, levels=6)
MEMORY_MS: Final = 300_000
FIRED_PER_BATCH: Final = 5_000
MOST_RATIO: Final = 1.5

_FILLED_WITH = 50_000
_MANY = 1_000

Int64s = npt.NDArray[np.int64]
Row = tuple[object, ...]


@dataclass
class Shard:
    """The state row of a shard, and the ids that wait in it.

    Attributes:
        row: As it is stored.
        ids: The pending ids.
        random: Where its commands come from.
    """

    row: Row
    ids: list[str]
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def state(self) -> ShardState:
        """The state, from the row."""
        return ShardState.from_row(self.row, WHEEL, 1)

    def adds(self, count: int) -> pa.Table:
        """Commands that add new entries."""
        return schedules(
            [f"new-{number}-{self.random.integers(1 << 40)}" for number in range(count)], self.random
        )

    def cancels(self, count: int) -> pa.Table:
        """Commands that cancel pending entries."""
        return commands(self._chosen(count), np.zeros(count, np.int64), CANCEL, 2, self.random)

    def replaces(self, count: int) -> pa.Table:
        """Commands that replace pending entries."""
        return schedules(self._chosen(count), self.random, seq=2)

    def _chosen(self, count: int) -> list[str]:
        return [self.ids[at] for at in self.random.choice(len(self.ids), count, replace=False)]


def schedules(ids: Sequence[str], random: np.random.Generator, seq: int = 1) -> pa.Table:
    """Commands due in 1 to 31 days."""
    due = T0_MS + DAY_MS + random.integers(0, 30 * DAY_MS, len(ids))
    return commands(ids, due, SCHEDULE, seq, random)


def commands(ids: Sequence[str], due: Int64s, op: int, seq: int, random: np.random.Generator) -> pa.Table:
    """Commands (``COMMAND_SCHEMA``)."""
    size = len(ids)
    octets = random.bytes(size * VALUE_BYTES)
    values = [octets[at : at + VALUE_BYTES] for at in range(0, len(octets), VALUE_BYTES)]
    columns = {
        "schedule_id": ids,
        "seq": np.full(size, seq),
        "amend": np.zeros(size, np.int32),
        "deliver_at_ms": due,
        "destination": ["out"] * size,
        "value": values,
        "op": np.full(size, op, np.int8),
        "seq_given": np.ones(size, bool),
        "act": np.zeros(size, np.int8),
    }
    blank = [None] * size
    return pa.table(
        [pa.array(columns.get(each.name, blank), each.type) for each in COMMAND_SCHEMA], schema=COMMAND_SCHEMA
    )


def filled(pending: int, due: Callable[[int], Int64s] | None = None) -> Shard:
    """A shard with so many pending entries, from batches of 50,000."""
    random, state = np.random.default_rng(2), ShardState.empty(WHEEL)
    ids = [f"{number % 97:04}-{number:010}" for number in range(pending)]
    for start in range(0, pending, _FILLED_WITH):
        some = ids[start : start + _FILLED_WITH]
        rows = schedules(some, random) if due is None else commands(some, due(len(some)), SCHEDULE, 1, random)
        state = advance(state, rows, T0_MS, memory_ms=MEMORY_MS).state
    return Shard(state.to_row(1), ids)


# ---- commands ------------------------------------------------------------------------------------


CASES: Final = (
    ("1 add", lambda shard: shard.adds(1)),
    ("1 cancel", lambda shard: shard.cancels(1)),
    (f"{_MANY:,} adds", lambda shard: shard.adds(_MANY)),
    (f"{_MANY:,} cancels", lambda shard: shard.cancels(_MANY)),
    (f"{_MANY:,} replaces", lambda shard: shard.replaces(_MANY)),
)


def of_commands(pending: Sequence[int], rounds: int) -> list[Line]:
    """The cases at each number of pending entries, beside the first number."""
    first, *others = _measured([filled(number) for number in pending], rounds)
    lines = []
    for number, figures in zip(pending[1:], others, strict=True):
        beside_what = f"{pending[0]:,} pending"
        for what, figure in figures.items():
            is_step = what.startswith("step")
            target = Target(at_most=MOST_RATIO) if is_step else None
            unit = "characters" if "entry" in what else "ms"
            lines.append(
                Line(
                    case="a",
                    what=f"{what}, {number:,} pending",
                    figure=figure,
                    unit=unit,
                    beside=first[what],
                    beside_what=beside_what,
                    target=target,
                )
            )
    return lines


def _measured(shards: Sequence[Shard], rounds: int) -> list[dict[str, float]]:
    gc.collect()
    gc.freeze()  # the ids of a million entries are not looked through in the middle of a step
    figures: list[dict[str, float]] = [{} for _ in shards]
    for what, made in CASES:
        taken: list[list[float]] = [[] for _ in shards]
        # In turns: within seconds a shared machine becomes twice as fast, or half.
        for _ in range(rounds + 1):
            for shard, steps in zip(shards, taken, strict=True):
                steps.append(_cpu_ms(partial(_step, shard, made(shard))))
        for steps, found in zip(taken, figures, strict=True):
            found[f"step: {what}"] = median(steps[1:])
    for shard, found in zip(shards, figures, strict=True):
        after = _step(shard, shard.adds(1))
        found["row: joined"] = _cpu_ms(partial(after.to_row, 1))
        octets = pickle.dumps(shard.row)
        pickled_ms = _cpu_ms(partial(pickle.dumps, shard.row))
        found["row: pickled"] = pickled_ms + _cpu_ms(partial(pickle.loads, octets))
        found["state of an entry"] = len(str(shard.row[-1])) / len(shard.ids)
    gc.unfreeze()
    return figures


def _step(shard: Shard, rows: pa.Table | None) -> ShardState:
    return advance(shard.state(), rows, T0_MS + 1_000, memory_ms=MEMORY_MS).state


def _cpu_ms(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return (time.process_time() - began) * 1_000


# ---- a backlog -----------------------------------------------------------------------------------


def of_backlogs(backlogs: Sequence[int]) -> list[Line]:
    """Each backlog is drained under the limit; us an entry, beside the first one."""
    figures = [_drained_us(backlog) for backlog in backlogs]
    return [
        Line(
            case="b",
            what=f"{what}: a backlog of {backlog:,}, {FIRED_PER_BATCH:,} a batch, an entry",
            figure=figure[what],
            unit="us",
            beside=figures[0][what],
            beside_what=f"{backlogs[0]:,}",
            target=Target(at_most=MOST_RATIO) if what == "step" else None,
        )
        for backlog, figure in zip(backlogs[1:], figures[1:], strict=True)
        for what in figure
    ]


def _drained_us(backlog: int) -> dict[str, float]:
    random = np.random.default_rng(3)
    shard = filled(backlog, lambda count: T0_MS + DAY_MS + random.integers(0, DAY_MS // 48, count))
    now_ms, fired, step_ms, row_ms = T0_MS + 2 * DAY_MS, 0, 0.0, 0.0
    while fired < backlog:
        began = time.process_time()
        step = advance(shard.state(), None, now_ms, FIRED_PER_BATCH, memory_ms=MEMORY_MS)
        step_ms += (time.process_time() - began) * 1_000
        row_ms += _cpu_ms(partial(step.state.to_row, 1))
        shard.row, now_ms, fired = step.state.to_row(1), now_ms + 100, fired + step.fired.num_rows
    return {"step": step_ms * 1_000 / backlog, "row": row_ms * 1_000 / backlog}


def main(arguments: list[str] | None = None) -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.step_run", description="The pure step of one shard."
    )
    parser.add_argument("--pending", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--backlog", type=int, nargs="+", default=[50_000, 100_000, 200_000])
    parser.add_argument("--rounds", type=int, default=25, help="batches of each kind")
    asked = parser.parse_args(arguments)
    lines = [*of_commands(asked.pending, asked.rounds), *of_backlogs(asked.backlog)]
    print(table(lines))
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
