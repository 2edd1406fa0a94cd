"""What the steps of both operators share in the Python worker: one shard's rows of a batch told apart, what time it is, what a shard tells of itself.

The rows of a group are the operator's own, rejected ones and clock rows, in any order and any number of pandas chunks. Nulls in long columns are the
:data:`NO_LONG` value on the way in and out (pandas has no null in an int64).

Decision: few columns, and one frame for all that a group gives. What the step does not look at (why a row was rejected) is one column that the
JVM has packed and will unpack. Measured, 500 rows in and out: 16 columns and two or three frames took twice as long as 11 and one.

Imports numpy, pandas and pyarrow alone, besides the standard library and the pure modules.
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.geometry import Wheel
from wheel_udf.hints import HintBoard, answer_of
from wheel_udf.metrics import LatenessHistogram
from wheel_udf.runs import Int64s
from wheel_udf.state import Kept

NO_LONG = -(2**63)
"""Stands for null in the long columns that enter and leave an operator."""

_DDL = {pa.string(): "string", pa.binary(): "binary", pa.int64(): "long", pa.int32(): "int"}


def ddl_of(schema: pa.Schema) -> str:
    """The columns of a schema as Spark names their types."""
    return ", ".join(f"{field.name} {_DDL[field.type]}" for field in schema)


@dataclass(frozen=True)
class GroupRows:
    """The rows of one shard in one batch, told apart.

    Attributes:
        good: The rows that can be used, with the columns that were asked for.
        rejected: Rejected ones, likewise.
        instant_ms: Latest instant a clock row brought; ``None`` if none did.
        run: The run of the clock source, from a clock row; ``None`` without one.
        latest_event_ms: Largest event time of the good rows; ``None`` if none is known.
    """

    good: pa.Table
    rejected: pa.Table
    instant_ms: int | None
    run: str | None
    latest_event_ms: int | None

    @property
    def received(self) -> int:
        """How many rows came, good and bad."""
        return int(self.good.num_rows + self.rejected.num_rows)


def _told_apart(frames: Iterable[pd.DataFrame], schema: pa.Schema, absent: Collection[str]) -> GroupRows:
    """Sorts the rows of a group by what they are: clock rows have a ``tick`` (``run|instant``), rejected ones a ``reject``.

    Each of the group's chunks goes to Arrow at once and by itself: pandas asks every object in Python whether it is null, and takes
    rows column by column; both cost as much as the whole step.

    Args:
        frames: The chunks.
        schema: The columns to take; one that a chunk lacks is null.
        absent: Those in which :data:`NO_LONG` is null.
    """
    good, rejected = [schema.empty_table()], [schema.empty_table()]
    ticks: list[str] = []
    latest: list[int] = []
    for frame in frames:
        rows = _as_arrow(frame, schema, absent)
        size = rows.num_rows
        if rows["tick"].null_count < size:
            ticks += rows["tick"].drop_null().to_pylist()
            rows = rows.filter(rows["tick"].is_null())
        if rows["reject"].null_count < rows.num_rows:
            rejected.append(rows.filter(rows["reject"].is_valid()))
            rows = rows.filter(rows["reject"].is_null())
        good.append(rows)
        latest += _latest_event_ms(frame)
    runs, _, instants = zip(*(tick.partition("|") for tick in ticks), strict=True) if ticks else ((), (), ())
    return GroupRows(
        good=pa.concat_tables(good),
        rejected=pa.concat_tables(rejected),
        instant_ms=max((int(instant) for instant in instants if instant), default=None),
        run=runs[0] if runs else None,
        latest_event_ms=max(latest, default=None),
    )


def _as_arrow(frame: pd.DataFrame, schema: pa.Schema, absent: Collection[str]) -> pa.Table:
    arrays = []
    for field in schema:
        if field.name not in frame:
            arrays.append(pa.nulls(len(frame), field.type))
            continue
        values = frame[field.name].to_numpy()
        nulls = values == NO_LONG if field.name in absent else None
        arrays.append(pa.array(values, field.type, mask=nulls, from_pandas=nulls is None))
    return pa.table(arrays, schema=schema)


def _latest_event_ms(frame: pd.DataFrame) -> list[int]:
    """The largest event time of a frame, if there is one; only good rows have one."""
    if "event_at" not in frame or pd.isna(at := frame["event_at"].max()):
        return []
    return [int(at.value // 1_000_000)]


@dataclass(frozen=True)
class GroupStep(ABC):
    """What any function given to ``applyInPandasWithState`` knows.

    Attributes:
        wheel: The geometry.
        shards: Number of shards.
        keys: Grouping key of each shard, by its number.
        clock_kind: ``event``, ``processing``, ``simulated`` or ``store``; the last two bring their instants in clock rows.
        first_ms: Where a simulated clock stands before its first row.
        delay_ms: Distance of the watermark from the largest event time.
        memory_ms: How long what has ended is remembered; ``None`` for ever.
        board_folder: Where to post answers; ``None`` where the driver's folder is out of reach.
    """

    wheel: Wheel
    shards: int
    keys: tuple[int, ...]
    clock_kind: str
    first_ms: int
    delay_ms: int
    memory_ms: int | None
    board_folder: str | None

    INPUT: ClassVar[pa.Schema]
    """The columns that the step takes."""
    ABSENT: ClassVar[frozenset[str]]
    """Those in which :data:`NO_LONG` is null."""

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group: Any
    ) -> Iterator[pd.DataFrame]:
        """One batch of one shard, as ``applyInPandasWithState`` asks for it.

        Args:
            key: The grouping key.
            frames: The rows of the group.
            group: Spark's state of it.
        """
        _silence_pyspark()
        rows = _told_apart(frames, self.INPUT, self.ABSENT)
        yield self.batch(self.keys.index(key[0]), rows, group)

    @abstractmethod
    def batch(self, shard: int, rows: GroupRows, group: Any) -> pd.DataFrame:
        """Makes the step, writes the state if that changed it, and says what leaves."""

    def now_ms(self, standing_ms: int | None, rows: GroupRows, group: Any) -> int:
        """What time a batch has.

        Args:
            standing_ms: The shard's clock so far.
            rows: What has come.
            group: Spark's state of the group, which knows watermark and batch time.
        """
        if self.clock_kind in ("simulated", "store"):
            before_ms = self.first_ms if standing_ms is None else standing_ms
            return before_ms if rows.instant_ms is None else rows.instant_ms
        now_ms = int(
            group.getCurrentWatermarkMs()
            if self.clock_kind == "event"
            else group.getCurrentProcessingTimeMs()
        )
        return now_ms if rows.instant_ms is None else max(now_ms, rows.instant_ms)

    def told_ms(self, rows: GroupRows) -> list[int]:
        """The watermark that the event times of this batch make, under the event clock; the next batch's is at least that."""
        if self.clock_kind != "event" or rows.latest_event_ms is None:
            return []
        return [rows.latest_event_ms - self.delay_ms]

    def watermark_ms(self, group: Any, *more: int) -> int | None:
        """The watermark of the next batch as far as this shard can tell; none but under the event clock."""
        return max([int(group.getCurrentWatermarkMs()), *more]) if self.clock_kind == "event" else None

    def status(
        self, shard: int, rows: GroupRows, state: Kept, clock_ms: int, released: pa.Table, late_ms: Int64s
    ) -> dict[str, Any]:
        """What each status tells.

        Args:
            shard: The shard.
            rows: What has come.
            state: The next state.
            clock_ms: The clock of the step.
            released: The rows that go to a destination, with the columns of a payload.
            late_ms: How late each of them is.
        """
        batch_id, query_id = _batch_of_task()
        return {
            "shard": shard,
            "batch_id": batch_id,
            "query_id": query_id,
            "run": rows.run,
            "clock_ms": clock_ms,
            "next_due_ms": state.next_due_ms,
            "pending": state.pending,
            "rejected_now": rows.rejected.num_rows,
            "lateness": LatenessHistogram.of(late_ms).to_json(),
            "destinations": _counts_of(released["destination"].drop_null()),
            "largest": _largest_of(released),
            **state.counts,
        }

    def posted(self, status: Mapping[str, Any]) -> str:
        """The status as JSON; the clock source is told of it."""
        if self.board_folder is not None:
            answers = {status["shard"]: answer_of(status)}
            HintBoard(self.board_folder).post(status["query_id"], status["run"], answers)
        return json.dumps(status)


def _counts_of(values: pa.ChunkedArray) -> dict[str, int]:
    """How often each value occurs."""
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(values).to_pylist()}


_SIZED = {
    "schedule_id": 1,
    "op_id": 1,
    "key": 1,
    "value": 1,
    "headers": 1,
    "source": 1,
    "present": 6,
    "missing": 6,
}
"""What has no bound of its own, and into how many bytes one of it may turn: JSON writes control characters as six."""


def _largest_of(entries: pa.Table) -> dict[str, int]:
    """Bytes of the largest entry of each destination, from above: headers count as the JSON text they are here."""
    if not entries.num_rows:
        return {}
    sized = ((entries[name], times) for name, times in _SIZED.items() if name in entries.column_names)
    parts = (
        pc.multiply(pc.binary_length(part).fill_null(0).cast(pa.int64()), times) for part, times in sized
    )
    total = reduce(pc.add, parts)
    sizes = pa.table({"destination": entries["destination"], "bytes": total})
    found = sizes.group_by("destination").aggregate([("bytes", "max")])
    return dict(zip(found["destination"].to_pylist(), found["bytes_max"].to_pylist(), strict=True))


def part(schema: pa.Schema, kind: str, size: int, columns: Mapping[str, Any]) -> pa.Table:
    """Rows of one kind that leave: these columns, and blanks in the others."""
    columns = {**columns, "kind": pa.repeat(kind, size)}
    blank = {pa.int64(): NO_LONG, pa.int32(): 0}
    arrays = [
        columns[field.name]
        if field.name in columns
        else pa.repeat(pa.scalar(blank.get(field.type), field.type), size)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def as_frame(parts: Sequence[pa.Table]) -> pd.DataFrame:
    """All rows of a group as one frame: each frame costs pyspark as much as some hundred rows, and so does each column."""
    table = pa.concat_tables(rows for rows in parts if rows.num_rows)
    frame: pd.DataFrame = table.to_pandas(use_threads=False, split_blocks=True)
    return frame


@cache
def _silence_pyspark() -> None:
    """Keeps a warning of pandas about pyspark's own doing from the users."""
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
