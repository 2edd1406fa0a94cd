"""The real core, called with a state and rows as Spark calls it: :class:`WheelWorker`, and with it the wheel's step.

A call is a pure function of its arguments. Seeds that differ only in where a process dies make mostly the same calls,
so results are remembered: a call costs 2 to 4 ms, a remembered one some microseconds::

    worker, shard, state row, rows, tick, batch time, watermark --real worker--> next state row, rows that leave, status
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from wheel_udf.control.tick import Tick
from wheel_udf.stream import status_row
from wheel_udf.stream.wheel_worker import WheelWorker, command_bits
from wheel_udf.stream.worker import DETAIL, GroupRows, ShardWorker

pa.set_cpu_count(1)  # tables of three rows: a pool of threads costs more than it gives

_MOST_KEPT = 20_000


@dataclass(frozen=True, repr=False)
class Command:
    """A command as a producer has sent it.

    Attributes:
        id: Its ``schedule_id``.
        op: 0 SCHEDULE, 1 CANCEL.
        seq: Its version.
        due_ms: Its due time.
        to: Its destination.
        lateness_ms: Its ``max_lateness``.
        seq_given: Whether the producer gave the version.
        said_ms: Its event time.
        bad: Whether it cannot be used.
        repeat: Of a series, its rule as the column ``repeat`` of an entry.
        starts_ms: Of a series, its beginning; None: its event time.
    """

    id: str
    op: int = 0
    seq: int = 1
    due_ms: int = 0
    to: str = "left"
    lateness_ms: int | None = None
    seq_given: bool = True
    said_ms: int = 0
    bad: bool = False
    repeat: str | None = None
    starts_ms: int | None = None

    def __repr__(self) -> str:
        said = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self)[1:] if self._says(each)]
        return f"Command({', '.join([repr(self.id), *said])})"

    def _says(self, field: Any) -> bool:
        return bool(getattr(self, field.name) != field.default)

    def row(self) -> dict[str, Any]:
        """The row of the worker's input."""
        return input_row(
            {
                "schedule_id": self.id,
                "seq": self.seq,
                "op": self.op,
                "seq_given": self.seq_given,
                "deliver_at_ms": None if self.op else self.due_ms,
                "max_lateness_ms": self.lateness_ms,
                "destination": None if self.op else self.to,
                "reject": '{"error_code": "bad"}' if self.bad else None,
                **self.series_columns,
            }
        )

    @property
    def series_columns(self) -> dict[str, Any]:
        """What a series has more; it has no due time yet."""
        if self.repeat is None:
            return {}
        own = self.starts_ms is not None
        return {
            "deliver_at_ms": None,
            "repeat": self.repeat,
            "anchor_ms": self.starts_ms if own else self.said_ms,
            "last_ms": self.starts_ms - 1 if self.starts_ms is not None else self.said_ms,
            "spread_ms": 0,
        }


def input_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the worker's input from a command's columns."""
    bits = command_bits(row["op"], int(row["seq_given"]), row.get("act", 0), row.get("amend", 0))
    return {**dict.fromkeys(WheelWorker.INPUT.names), **_known(row), "command_bits": bits}


def _known(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name in WheelWorker.INPUT.names}


@dataclass
class Group:
    """Spark's state of one group."""

    row: tuple[Any, ...] | None
    watermark_ms: int
    processing_ms: int
    written: bool = False

    @property
    def exists(self) -> bool:
        return self.row is not None

    @property
    def get(self) -> tuple[Any, ...] | None:
        return self.row

    def update(self, row: tuple[Any, ...]) -> None:
        self.row, self.written = row, True

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802  # Spark's name
        return self.watermark_ms

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802  # Spark's name
        return self.processing_ms


@dataclass(frozen=True)
class Result:
    """What a call did.

    Attributes:
        state: The shard's next state row.
        rows: Rows that leave, as dicts, without the status.
        status: The status row.
    """

    state: tuple[Any, ...] | None
    rows: tuple[dict[str, Any], ...]
    status: status_row.ShardStatus


class Core:
    """Calls workers and remembers the results.

    Attributes:
        calls: Number of calls so far.
        computed: How many of them were computed.
    """

    def __init__(self) -> None:
        self.calls = self.computed = 0
        self._known: dict[Any, Result] = {}

    def call(
        self,
        worker: ShardWorker,
        shard: int,
        group: Group,
        rows: tuple[Any, ...],
        tick: Tick | None,
    ) -> Result:
        """One batch of one shard.

        Args:
            worker: The worker.
            shard: The shard.
            group: Its state before the batch, and the batch's times.
            rows: The rows, each with a method ``row`` and ``bad``, ``said_ms``.
            tick: What the clock row brings; None without one.
        """
        brought = replace(tick or Tick(""), run="")
        key = (worker, shard, group.row, rows, brought, group.processing_ms, group.watermark_ms)
        self.calls += 1
        found = self._known.get(key)
        if found is None:
            self.computed += 1
            found = _computed(worker, shard, group, rows, brought)
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[key] = found
        return found if tick is None else replace(found, status=replace(found.status, run=tick.run))


def _computed(
    worker: ShardWorker,
    shard: int,
    group: Group,
    rows: tuple[Any, ...],
    tick: Tick,
) -> Result:
    good = [row for row in rows if not row.bad]
    said = [row.said_ms for row in good if row.said_ms is not None]
    left = worker.batch(
        shard,
        GroupRows(
            good=_table(worker, good),
            rejected=_table(worker, [row for row in rows if row.bad]),
            tick=tick,
            latest_event_ms=max(said, default=None),
        ),
        group,
    ).to_pylist()
    (status,) = (row[DETAIL] for row in left if row["kind"] == "status")
    rows_left = tuple(row for row in left if row["kind"] != "status")
    return Result(group.row, rows_left, _status_of(worker).from_json(status))


def _table(worker: ShardWorker, rows: list[Any]) -> pa.Table:
    if not rows:
        return _nothing(worker.INPUT)
    return pa.Table.from_pylist([row.row() for row in rows], schema=worker.INPUT)


@cache
def _nothing(schema: pa.Schema) -> pa.Table:
    return schema.empty_table()


def _status_of(worker: ShardWorker) -> type[status_row.ShardStatus]:
    return status_row.WheelStatus if isinstance(worker, WheelWorker) else status_row.WatchStatus


@contextmanager
def light() -> Iterator[None]:
    """Leaves out what costs more than the step and changes nothing here: pandas frames, the sizes of rows."""
    with (
        patch("wheel_udf.stream.wheel_worker.as_frame", pa.concat_tables),
        patch("wheel_udf.stream.watch_worker.as_frame", pa.concat_tables),
        patch("wheel_udf.stream.worker.largest_of", lambda _: {}),
    ):
        yield


def amend_of(row: dict[str, Any]) -> int:
    """The ``amend`` of a fired row that left."""
    return int(row[DETAIL] or 0)
