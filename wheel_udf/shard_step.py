"""What runs in the Python worker: one shard's rows of a batch in, its rows out. A thin shell around :func:`wheel_udf.cascade.advance`.

The rows of a group are commands, rejected commands and clock rows, in any order and any number of pandas chunks. The shell turns them into
Arrow, asks what time it is, makes the step, and writes the state only if the step changed it. Nulls in long columns are the
:data:`NO_LONG` value on the way in (pandas has no null in an int64).

Imports numpy, pandas and pyarrow alone, besides the standard library and the pure modules.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.cascade import Step, advance
from wheel_udf.geometry import Wheel
from wheel_udf.hints import HintBoard, answer_of
from wheel_udf.metrics import LatenessHistogram
from wheel_udf.state import CANCEL, COMMAND_SCHEMA, ShardState

NO_LONG = -(2**63)
"""Stands for null in the long columns that enter the operator."""

OUTPUT_TYPE = (
    "kind string, schedule_id string, seq long, destination string, key binary, value binary, headers string, source string, "
    "deliver_at_ms long, fired_at_ms long, lateness_ms long, error_code string, error_message string, record string, status string"
)
_OUTPUT_DTYPES = {
    name: "Int64" if kind == "long" else "object"
    for name, kind in (part.split() for part in OUTPUT_TYPE.split(", "))
}
_PAYLOAD = ["schedule_id", "seq", "destination", "key", "value", "headers", "source"]
_SIZED = ("schedule_id", "key", "value", "headers", "source")
_REASON = ["error_code", "error_message", "record"]


@dataclass(frozen=True)
class Rows:
    """The rows of one shard in one batch, told apart.

    Attributes:
        commands: Valid commands, ``COMMAND_SCHEMA``.
        rejected: Rejected ones, as they came.
        instant_ms: Latest instant a clock row brought; ``None`` if none did.
        run: The run of the clock source, from a clock row; ``None`` without one.
        latest_event_ms: Largest event time of the valid commands; ``None`` if none is known.
    """

    commands: pa.Table
    rejected: pd.DataFrame
    instant_ms: int | None
    run: str | None
    latest_event_ms: int | None

    @property
    def received(self) -> int:
        """How many commands came, good and bad."""
        return int(self.commands.num_rows) + len(self.rejected)


def told_apart(frames: Iterable[pd.DataFrame]) -> Rows:
    """Sorts the rows of a group by what they are.

    Each of the group's chunks goes to Arrow by itself: ``pandas.concat`` asks every object of an all-null column in Python whether
    it is null, which took as long as the whole step.
    """
    commands = [COMMAND_SCHEMA.empty_table()]
    rejected: list[pd.DataFrame] = []
    instants: list[int] = []
    latest: list[int] = []
    run = None
    for frame in frames:
        is_clock = frame["run"].notna().to_numpy()
        is_bad = frame["error_code"].notna().to_numpy()
        good = frame if not (is_clock.any() or is_bad.any()) else frame[~(is_clock | is_bad)]
        commands.append(_commands(good))
        if is_bad.any():
            rejected.append(frame[is_bad])
        if is_clock.any():
            ticks = frame[is_clock]
            run = str(ticks["run"].iloc[0])
            instants += [instant for instant in ticks["instant_ms"].tolist() if instant != NO_LONG]
        if "event_at" in frame and good["event_at"].notna().any():
            latest.append(int(good["event_at"].max().value // 1_000_000))
    return Rows(
        commands=pa.concat_tables(commands),
        rejected=pd.concat(rejected, ignore_index=True) if rejected else pd.DataFrame(),
        instant_ms=max(instants, default=None),
        run=run,
        latest_event_ms=max(latest, default=None),
    )


def _commands(good: pd.DataFrame) -> pa.Table:
    if not len(good):
        return COMMAND_SCHEMA.empty_table()
    arrays = []
    for field in COMMAND_SCHEMA:
        values = good[field.name].to_numpy()
        absent = values == NO_LONG if field.name in ("deliver_at_ms", "max_lateness_ms") else None
        arrays.append(pa.array(values, field.type, mask=absent, from_pandas=absent is None))
    return pa.table(arrays, schema=COMMAND_SCHEMA)


@dataclass(frozen=True)
class ShardStep:
    """The function given to ``applyInPandasWithState``.

    Attributes:
        wheel: The geometry.
        shards: Number of shards.
        keys: Grouping key of each shard, by its number.
        clock_kind: ``event``, ``processing`` or ``simulated``.
        first_ms: Where a simulated clock stands before its first row.
        delay_ms: Distance of the watermark from the largest event time.
        memory_ms: How long ended ids are remembered; ``None`` for ever.
        limit: Most rows released in a batch, all shards together.
        board_folder: Where to post answers; ``None`` where the driver's folder is out of reach.
    """

    wheel: Wheel
    shards: int
    keys: tuple[int, ...]
    clock_kind: str
    first_ms: int
    delay_ms: int
    memory_ms: int | None
    limit: int | None
    board_folder: str | None

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group: Any
    ) -> Iterator[pd.DataFrame]:
        """One batch of one shard; see the module."""
        _silence_pyspark()
        shard = self.keys.index(key[0])
        rows = told_apart(frames)
        state = (
            ShardState.from_row(group.get, self.wheel, self.shards)
            if group.exists
            else ShardState.empty(self.wheel)
        )
        step = advance(
            state,
            rows.commands,
            self._now_ms(state, rows, group),
            self._share(shard),
            memory_ms=self.memory_ms,
        )
        state = step.state
        if len(rows.rejected):
            cancels = int((rows.rejected["op"] == CANCEL).sum())
            state = state.counting(rejected=len(rows.rejected) - cancels, cancel_rejected=cancels)
        if step.changed or len(rows.rejected):
            group.update(state.to_row(self.shards))
        if step.fired.num_rows:
            yield _released(step.fired, "fired", step.clock_ms)
        if step.missed.num_rows:
            yield _missed(step.missed, step.clock_ms)
        if len(rows.rejected):
            yield _as_output(
                rows.rejected[_PAYLOAD + _REASON].assign(
                    kind="rejected", deliver_at_ms=_due_of(rows.rejected)
                )
            )
        status = self._status(shard, rows, step, state, group)
        yield _as_output(pd.DataFrame({"kind": ["status"], "status": [json.dumps(status)]}))

    def _now_ms(self, state: ShardState, rows: Rows, group: Any) -> int:
        if self.clock_kind == "simulated":
            standing = self.first_ms if state.clock_ms is None else state.clock_ms
            return standing if rows.instant_ms is None else rows.instant_ms
        now_ms = int(
            group.getCurrentWatermarkMs()
            if self.clock_kind == "event"
            else group.getCurrentProcessingTimeMs()
        )
        return now_ms if rows.instant_ms is None else max(now_ms, rows.instant_ms)

    def _share(self, shard: int) -> int | None:
        """This shard's part of the batch's limit."""
        if self.limit is None:
            return None
        whole, rest = divmod(self.limit, self.shards)
        return max(1, whole + (shard < rest))

    def _status(self, shard: int, rows: Rows, step: Step, state: ShardState, group: Any) -> dict[str, Any]:
        batch_id, query_id = _batch_of_task()
        watermark_ms = None
        if self.clock_kind == "event":
            told = [] if rows.latest_event_ms is None else [rows.latest_event_ms - self.delay_ms]
            watermark_ms = max([int(group.getCurrentWatermarkMs()), *told])
        status = {
            "shard": shard,
            "batch_id": batch_id,
            "query_id": query_id,
            "run": rows.run,
            "clock_ms": step.clock_ms,
            "watermark_ms": watermark_ms,
            "next_due_ms": state.next_due_ms,
            "pending": state.pending,
            "received": rows.received,
            "fired_now": step.fired.num_rows,
            "missed_now": step.missed.num_rows,
            "rejected_now": len(rows.rejected),
            "spread_now": step.spread,
            "lateness": LatenessHistogram.of(
                step.clock_ms - step.fired["deliver_at_ms"].to_numpy()
            ).to_json(),
            "destinations": _counts_of(step.fired["destination"]),
            "largest": _largest_of(step.fired),
            **state.counts,
        }
        if self.board_folder is not None:
            HintBoard(self.board_folder).post(query_id, rows.run, {shard: answer_of(status)})
        return status


def _counts_of(values: pa.ChunkedArray) -> dict[str, int]:
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(values).to_pylist()}


def _largest_of(entries: pa.Table) -> dict[str, int]:
    """Bytes of the largest entry of each destination, from above: headers count as the JSON text they are here."""
    if not entries.num_rows:
        return {}
    parts = [pc.binary_length(entries[name]).fill_null(0) for name in _SIZED]
    total = reduce(pc.add, (part.cast(pa.int64()) for part in parts))
    sizes = pa.table({"destination": entries["destination"], "bytes": total})
    found = sizes.group_by("destination").aggregate([("bytes", "max")])
    return dict(zip(found["destination"].to_pylist(), found["bytes_max"].to_pylist(), strict=True))


def _released(entries: pa.Table, kind: str, clock_ms: int) -> pd.DataFrame:
    due = entries["deliver_at_ms"].to_numpy()
    frame = entries.drop_columns(["max_lateness_ms"]).to_pandas()
    return _as_output(frame.assign(kind=kind, fired_at_ms=clock_ms, lateness_ms=clock_ms - due))


def _missed(entries: pa.Table, clock_ms: int) -> pd.DataFrame:
    late = (clock_ms - entries["deliver_at_ms"].to_numpy()).astype(str).astype(object)
    bound = entries["max_lateness_ms"].to_numpy().astype(np.int64).astype(str).astype(object)
    message = "released too late: lateness_ms = " + late + "; rule: at most max_lateness = " + bound + " ms"
    return _released(entries, "missed", clock_ms).assign(error_code="missed", error_message=message)


def _due_of(rejected: pd.DataFrame) -> pd.Series[Any]:
    due = rejected["deliver_at_ms"].astype("Int64")
    return due.mask(due == NO_LONG)


def _as_output(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with all columns of the output, absent ones null.

    Spark concatenates the frames of a batch: every one must have the same dtypes, also where a column is all null.
    """
    return frame.reindex(columns=list(_OUTPUT_DTYPES)).astype(_OUTPUT_DTYPES)


@cache
def _silence_pyspark() -> None:
    # pyspark 4.2 concatenates what a group gave with an empty frame of other dtypes, and pandas warns of it once per worker; the result
    # is right, and users would take the warning for theirs.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.sql\.pandas\.serializers")


def _batch_of_task() -> tuple[int, str]:
    """Id of the batch, and of the query, that the running task works for; outside Spark there is none.

    Spark hands them to tasks as local properties (``MicroBatchExecution.BATCH_ID_KEY``, ``StreamExecution.QUERY_ID_KEY``).
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return -1, ""
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return int(batch_id) if batch_id else -1, context.getLocalProperty("sql.streaming.queryId") or ""
