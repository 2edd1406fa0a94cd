"""The part of the Python worker that both operators share: splits a shard's rows by kind, derives the time, fills the
common status columns.

::

    pandas chunks of a group --> GroupRows: good | rejected | clock row --> WheelWorker, WatchWorker --> a pandas frame

The rows of a group come in any order and any number of pandas chunks. In long columns :data:`NO_LONG` stands for null
on the way in and out, because pandas has no null in an int64.

Few columns, and one frame for the whole output of a group, because each has a fixed cost: values that only the JVM
needs (the reason of a reject) travel as one column, and values of one kind of output row share the column
:data:`DETAIL`. Chunks and frame have Arrow's columns where pyspark allows it (:mod:`wheel_udf.spark.arrow_groups`).

Imports numpy, pandas and pyarrow only, besides the standard library and pure modules: it runs on executors.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa

from wheel_udf.common.arrays import Int64s
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.board import ShardBoard
from wheel_udf.control.reports import post_reports
from wheel_udf.control.tick import Tick
from wheel_udf.shard.chunk_files import CHUNKS_PROPERTY, ChunkFiles, ChunkPlace
from wheel_udf.shard.holdings import holdings_of
from wheel_udf.shard.shard_text import external_names
from wheel_udf.shard.state import BaseShardState
from wheel_udf.spark.arrow_groups import ArrowColumn, take_arrow
from wheel_udf.spark.object_stores import Settings, object_folder, store_options
from wheel_udf.stream.sampling import is_time_to_sample
from wheel_udf.stream.status_row import ShardStatus, codes_of, counts_of, largest_of
from wheel_udf.wheel.lateness import LatenessHistogram

_LONGEST_S = 120.0
"""How long a file of chunks may take to an object store, over a slow link."""

NO_LONG = -(2**63)
"""Stands for null in the long columns that enter and leave an operator."""

DETAIL = "detail"
"""Column of the rows that leave, a text: values of this ``kind`` of row only, listed in each output schema."""

_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
}
_DDL = {arrow: name for name, arrow in _TYPES.items()}


def ddl_of(schema: pa.Schema) -> str:
    """The columns of a schema as Spark's DDL."""
    return ", ".join(f"{field.name} {_DDL[field.type]}" for field in schema)


def schema_of(ddl: str) -> pa.Schema:
    """The inverse of :func:`ddl_of`."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in ddl.split(","))])


@dataclass(frozen=True)
class GroupRows:
    """The rows of one shard in one batch, by kind.

    Attributes:
        good: Valid rows, with the requested columns.
        rejected: Rejected rows, with the same columns.
        tick: What the clock row brought; nothing in a batch without one.
        latest_event_ms: Largest event time of the good rows; ``None`` if none is known.
    """

    good: pa.Table
    rejected: pa.Table
    tick: Tick
    latest_event_ms: int | None

    @property
    def received(self) -> int:
        """Number of rows received, good and rejected."""
        return int(self.good.num_rows + self.rejected.num_rows)


def _split(frames: Iterable[pd.DataFrame], schema: pa.Schema, absent: Collection[str]) -> GroupRows:
    """Splits the rows of a group by kind: the clock row has a ``tick``, rejected rows have a ``reject``.

    Each chunk is converted to Arrow separately and before anything else: pandas would take as long as the whole step.

    Args:
        frames: The chunks.
        schema: The columns to take; a column that a chunk lacks is null.
        absent: Columns in which :data:`NO_LONG` stands for null.
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
    assert len(ticks) <= 1, "a batch has one tick for each shard"
    return GroupRows(
        good=pa.concat_tables(good),
        rejected=pa.concat_tables(rejected),
        tick=Tick.from_text(ticks[0]) if ticks else Tick(run=""),
        latest_event_ms=max(latest, default=None),
    )


def _as_arrow(frame: pd.DataFrame, schema: pa.Schema, absent: Collection[str]) -> pa.Table:
    arrays = []
    for field in schema:
        if field.name not in frame:
            arrays.append(pa.nulls(len(frame), field.type))
            continue
        values = frame[field.name]
        if isinstance(values.array, ArrowColumn):
            arrays.append(pa.array(values.array, field.type))
            continue
        values = values.to_numpy()
        nulls = values == NO_LONG if field.name in absent else None
        arrays.append(pa.array(values, field.type, mask=nulls, from_pandas=nulls is None))
    return pa.table(arrays, schema=schema)


def _latest_event_ms(frame: pd.DataFrame) -> list[int]:
    """The largest event time of a frame, if it has one; only good rows do."""
    if "event_at" not in frame or pd.isna(at := frame["event_at"].max()):
        return []
    return [int(at.value // 1_000_000)]


@dataclass(frozen=True)
class ShardWorker(ABC):
    """The function that an operator passes to ``applyInPandasWithState``: one call is one batch of one shard.

    Attributes:
        wheel: The geometry.
        shards: Number of shards.
        keys: Grouping key of each shard, by its number.
        clock_kind: ``event``, ``processing``, ``simulated`` or ``store``; the instants of the last two come
            in clock rows.
        first_ms: A simulated clock before its first row.
        delay_ms: Distance of the watermark from the largest event time.
        memory_ms: How long ended ids are remembered; ``None`` for ever.
        board_folder: Folder of the board; ``None`` if executors cannot reach the driver's folder.
        stores: Settings of object stores (:func:`wheel_udf.spark.object_stores.settings_of`).
    """

    wheel: Wheel
    shards: int
    keys: tuple[int, ...]
    clock_kind: str
    first_ms: int
    delay_ms: int
    memory_ms: int | None
    board_folder: str | None
    stores: Settings

    INPUT: ClassVar[pa.Schema]
    """The input columns."""
    ABSENT: ClassVar[frozenset[str]]
    """Input columns in which :data:`NO_LONG` stands for null."""

    def __setstate__(self, settings: dict[str, Any]) -> None:
        """As a Python worker reads the function."""
        self.__dict__.update(settings)
        take_arrow()

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group: Any
    ) -> Iterator[pd.DataFrame]:
        """Runs one batch of one shard, as ``applyInPandasWithState`` calls it: key, rows and state of the group."""
        _silence_pyspark()
        rows = _split(frames, self.INPUT, self.ABSENT)
        yield self.batch(self.keys.index(key[0]), rows, group)

    @abstractmethod
    def batch(self, shard: int, rows: GroupRows, group: Any) -> pd.DataFrame:
        """Runs the step, writes the state if it changed, and returns the rows that leave."""

    def now_ms(self, standing_ms: int | None, rows: GroupRows, group: Any) -> int:
        """The clock of a batch; `standing_ms` is the shard's clock before it, ``None`` before its first."""
        if self.clock_kind in ("simulated", "store"):
            before_ms = self.first_ms if standing_ms is None else standing_ms
            return before_ms if rows.tick.instant_ms is None else rows.tick.instant_ms
        now_ms = int(
            group.getCurrentWatermarkMs()
            if self.clock_kind == "event"
            else group.getCurrentProcessingTimeMs()
        )
        return now_ms if rows.tick.instant_ms is None else max(now_ms, rows.tick.instant_ms)

    def holds(self, state: BaseShardState, clock_ms: int, rows: GroupRows) -> bool:
        """Whether the shard must write its clock, even if nothing else changes in `state`, that before the batch.

        A shard with input (commands, rejects, acts, also late ones) writes its clock. A shard without input need not:
        the next batch brings a later clock. Exception: the clock's row brings an instant. The time may be set back
        after it, and until the time has passed that instant again all shards must keep it. (The instants of a store's
        clock never go back.)
        """
        brought = rows.tick.instant_ms is not None and self.clock_kind != "store"
        needed = brought or rows.rejected.num_rows > 0 or bool(rows.tick.acts) or bool(rows.tick.returned)
        return needed and (state.clock_ms is None or state.clock_ms < clock_ms)

    def next_watermarks_ms(self, rows: GroupRows) -> list[int]:
        """Under the event clock: the watermark of this batch's event times, a lower bound of the next. Else empty."""
        if self.clock_kind != "event" or rows.latest_event_ms is None:
            return []
        return [rows.latest_event_ms - self.delay_ms]

    def watermark_ms(self, group: Any, *more: int) -> int | None:
        """Lower bound of the next batch's watermark, as reported to this shard; ``None`` without the event clock."""
        return max([int(group.getCurrentWatermarkMs()), *more]) if self.clock_kind == "event" else None

    def common_status(
        self,
        shard: int,
        rows: GroupRows,
        state: BaseShardState,
        clock_ms: int,
        released: pa.Table,
        late_ms: Int64s,
        group: Any,
    ) -> dict[str, Any]:
        """The columns of :class:`ShardStatus` that both operators fill in the same way.

        `state` is the next one, `released` are the rows that go to a destination, with the columns of a payload, and
        `late_ms` is the lateness of each.
        """
        batch_id, query_id = batch_of_task()
        held = holdings_of(state.text, clock_ms, self.wheel.levels)
        batch_ms = int(group.getCurrentProcessingTimeMs())
        samples = not state.pending or is_time_to_sample(query_id, shard, batch_ms)
        return {
            "shard": shard,
            "batch_id": batch_id,
            "query_id": query_id,
            "run": rows.tick.run or None,
            "clock_ms": clock_ms,
            "next_due_ms": state.next_due_ms,
            "pending": state.pending,
            "lateness": LatenessHistogram.of(late_ms).to_json(),
            "destinations": counts_of(released["destination"].drop_null()),
            "largest": largest_of(released),
            "codes": codes_of(rows.rejected["reject"]),
            "state_bytes": held.bytes,
            "remembered": held.remembered,
            "by_level": {str(level): count for level, count in held.by_level.items()},
            "due_within": held.due_within,
            "last_due_ms": held.last_due_ms,
            "counts": state.counts,
            **(self.sample(state) if samples else {}),
        }

    @abstractmethod
    def sample(self, state: Any) -> dict[str, Mapping[str, int]]:
        """The columns of the status row that need opened chunks (:attr:`ShardStatus.SAMPLED`)."""

    def posted(self, status: ShardStatus) -> str:
        """Posts the shard's report for the clock source, where the board can be reached; the status as JSON."""
        if self.board_folder is not None:
            board = ShardBoard(self.board_folder)
            post_reports(board, status.query_id, status.run, {status.shard: status.report()})
        return status.to_json()


def part(schema: pa.Schema, kind: str, size: int, columns: Mapping[str, Any]) -> pa.Table:
    """Rows of one kind that leave, with these columns; the other columns of the schema are blank."""
    columns = {**columns, "kind": pa.repeat(kind, size)}
    blank = {pa.int64(): NO_LONG, pa.int32(): 0}
    arrays = [
        columns[field.name]
        if field.name in columns
        else pa.repeat(pa.scalar(blank.get(field.type), field.type), size)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


@cache
def _silence_pyspark() -> None:
    """Suppresses a warning that pyspark's own serializer causes; the filter matches that module only."""
    # pyspark 4.2 concatenates the output of a group with an empty frame of other dtypes, and pandas warns of it once
    # per worker. The result is right, and users would attribute the warning to their own code.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.sql\.pandas\.serializers")


def row_of(state: BaseShardState, shards: int, before: BaseShardState | None = None) -> tuple[object, ...]:
    """The row of a state for Spark, when its long chunks are in files; `before` is the last state, if any."""
    row = state.to_row(shards)
    if isinstance(files := state.content.texts, ChunkFiles):
        files.release_files(external_names(before.text) if before else (), external_names(state.text))
    return row


def property_of_task(name: str) -> str | None:
    """A local property of the running task; None if it has none, and outside Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


def chunk_files(shard: int, stores: Settings) -> ChunkFiles | None:
    """The files of a shard's chunks in the running task; None if they are in the row of its state."""
    text = property_of_task(CHUNKS_PROPERTY)
    if not text:
        return None
    place = ChunkPlace.from_text(text)
    if place.is_remote:
        place = replace(place, options=store_options(place.folder, dict(stores).get))
    return files_of(place, shard, batch_of_task()[0])


def files_of(place: ChunkPlace, shard: int, batch: int = -1) -> ChunkFiles:
    """The files of a shard's chunks on any executor."""
    return place.of_shard(shard, batch, partial(object_folder, request_s=_LONGEST_S))


def batch_of_task() -> tuple[int, str]:
    """Batch id and query id of the running task; -1 and an empty text outside Spark.

    Spark passes them to tasks as local properties (``MicroBatchExecution.BATCH_ID_KEY``,
    ``StreamExecution.QUERY_ID_KEY``).
    """
    batch_id = property_of_task("streaming.sql.batchId")
    return int(batch_id) if batch_id else -1, property_of_task("sql.streaming.queryId") or ""
