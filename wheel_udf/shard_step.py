"""What runs in the Python worker: one shard's rows of a batch in, its rows out. A thin shell around :func:`wheel_udf.cascade.advance`.

The rows of a group are commands, rejected commands and clock rows, in any order and any number of pandas chunks. The shell turns them into
Arrow, asks what time it is, makes the step, and writes the state only if the step changed it. Nulls in long columns are the
:data:`NO_LONG` value on the way in and out (pandas has no null in an int64).

Decision: few columns, and one frame for all that a group gives. What the step does not look at (why a row was rejected) is one column that the
JVM has packed and will unpack. Measured, 500 rows in and out: 16 columns and two or three frames took twice as long as 11 and one.

Imports numpy, pandas and pyarrow alone, besides the standard library and the pure modules.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.cascade import Step, advance
from wheel_udf.geometry import Wheel
from wheel_udf.hints import HintBoard, answer_of
from wheel_udf.levels import level_name
from wheel_udf.limits import BOUNDS, Limits, reason
from wheel_udf.metrics import LatenessHistogram
from wheel_udf.state import CANCEL, COMMAND_SCHEMA, FAR, ShardState, asked_ms

NO_LONG = -(2**63)
"""Stands for null in the long columns that enter and leave the operator."""

OUTPUT_TYPE = (
    "kind string, schedule_id string, seq long, destination string, key binary, value binary, headers string, source string, "
    "deliver_at_ms long, fired_at_ms long, note string"
)
"""``deliver_at_ms`` is when the wheel releases a row; where there are no delay levels, what was asked for.

``note`` is opaque here: of a rejected row what its ``reject`` was, of a missed one its ``max_lateness_ms``, of a fired one its ``amend``
where it is not 0, of a status row its JSON."""

LEVELED_OUTPUT_TYPE = f"{OUTPUT_TYPE}, level_error_ms long"
"""With delay levels: what of ``deliver_at_ms`` is their rounding; null where there is none."""

_ARROW_TYPES = {"string": pa.string(), "binary": pa.binary(), "long": pa.int64()}
_LEVELED_OUTPUT_SCHEMA = pa.schema(
    [(name, _ARROW_TYPES[kind]) for name, kind in (part.split() for part in LEVELED_OUTPUT_TYPE.split(", "))]
)
_OUTPUT_SCHEMA = pa.schema(list(_LEVELED_OUTPUT_SCHEMA)[:-1])
_FORM = ("op", "seq_given", "act", "amend")
"""What travels packed into one column, ``form``: see :func:`form_of`."""
_INPUT_SCHEMA = pa.schema(
    [
        *(field for field in COMMAND_SCHEMA if field.name not in _FORM),
        ("form", pa.int32()),
        ("reject", pa.string()),
        ("tick", pa.string()),
    ]
)
_PAYLOAD = ("schedule_id", "seq", "destination", "key", "value", "headers", "source", "deliver_at_ms")
_SIZED = ("schedule_id", "key", "value", "headers", "source")
_LEVEL_COLUMNS = ("delay_level_ms", "level_error_ms")
_ABSENT = {"deliver_at_ms", "max_lateness_ms", *_LEVEL_COLUMNS}


def form_of(op: Any, seq_given: Any, act: Any = 0, amend: Any = 0) -> Any:
    """``op`` (1 bit), ``seq_given`` (1), ``act`` (3) and ``amend`` (the rest) as one number; of ints, numpy arrays or Spark columns."""
    return op + 2 * seq_given + 4 * act + 32 * amend


def _with_form(rows: pa.Table) -> pa.Table:
    """Commands with their form unpacked, ``COMMAND_SCHEMA``."""
    form = rows["form"].to_numpy()
    parts = {
        "op": form & 1,
        "seq_given": (form >> 1 & 1).astype(bool),
        "act": form >> 2 & 7,
        "amend": form >> 5,
    }
    arrays = [
        pa.array(parts[field.name], field.type) if field.name in parts else rows[field.name]
        for field in COMMAND_SCHEMA
    ]
    return pa.table(arrays, schema=COMMAND_SCHEMA)


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
    rejected: pa.Table
    instant_ms: int | None
    run: str | None
    latest_event_ms: int | None

    @property
    def received(self) -> int:
        """How many commands came, good and bad; what the store tells of was counted when it came."""
        told = int((self.commands["act"].to_numpy() > FAR).sum())
        return int(self.commands.num_rows + self.rejected.num_rows) - told


def told_apart(frames: Iterable[pd.DataFrame]) -> Rows:
    """Sorts the rows of a group by what they are: clock rows have a ``tick`` (``run|instant``), rejected ones a ``reject``.

    Each of the group's chunks goes to Arrow at once and by itself: pandas asks every object in Python whether it is null, and takes
    rows column by column; both cost as much as the whole step.
    """
    commands, rejected = [COMMAND_SCHEMA.empty_table()], [_INPUT_SCHEMA.empty_table()]
    ticks: list[str] = []
    latest: list[int] = []
    for frame in frames:
        rows = as_arrow(frame, _INPUT_SCHEMA, _ABSENT)
        size = rows.num_rows
        if rows["tick"].null_count < size:
            ticks += rows["tick"].drop_null().to_pylist()
            rows = rows.filter(rows["tick"].is_null())
        if rows["reject"].null_count < rows.num_rows:
            rejected.append(rows.filter(rows["reject"].is_valid()))
            rows = rows.filter(rows["reject"].is_null())
        commands.append(_with_form(rows))
        latest += latest_event_ms(frame)
    run, instant_ms = read_ticks(ticks)
    return Rows(
        commands=pa.concat_tables(commands),
        rejected=pa.concat_tables(rejected),
        instant_ms=instant_ms,
        run=run,
        latest_event_ms=max(latest, default=None),
    )


def read_ticks(ticks: Sequence[str]) -> tuple[str | None, int | None]:
    """The run of the clock source and the latest instant, from clock rows (``run|instant``); None without one."""
    runs, _, instants = zip(*(tick.partition("|") for tick in ticks), strict=True) if ticks else ((), (), ())
    return runs[0] if runs else None, max((int(instant) for instant in instants if instant), default=None)


def latest_event_ms(frame: pd.DataFrame) -> list[int]:
    """The largest event time of a frame, if there is one; only good rows have one."""
    if "event_at" not in frame or pd.isna(at := frame["event_at"].max()):
        return []
    return [int(at.value // 1_000_000)]


def as_arrow(frame: pd.DataFrame, schema: pa.Schema, absent: Collection[str]) -> pa.Table:
    """The columns of a frame in Arrow; in the `absent` ones :data:`NO_LONG` is null."""
    arrays = []
    for field in schema:
        if field.name in _LEVEL_COLUMNS and field.name not in frame:  # there are no levels
            arrays.append(pa.nulls(len(frame), field.type))
            continue
        values = frame[field.name].to_numpy()
        nulls = values == NO_LONG if field.name in absent else None
        arrays.append(pa.array(values, field.type, mask=nulls, from_pandas=nulls is None))
    return pa.table(arrays, schema=schema)


def now_of(
    clock_kind: str, first_ms: int, standing_ms: int | None, instant_ms: int | None, group: Any
) -> int:
    """What time a batch has.

    Args:
        clock_kind: As :attr:`ShardStep.clock_kind`.
        first_ms: Where a simulated clock stands before its first row.
        standing_ms: The shard's clock so far.
        instant_ms: What a clock row brought.
        group: Spark's state of the group, which knows watermark and batch time.
    """
    if clock_kind in ("simulated", "store"):
        before_ms = first_ms if standing_ms is None else standing_ms
        return before_ms if instant_ms is None else instant_ms
    now_ms = int(
        group.getCurrentWatermarkMs() if clock_kind == "event" else group.getCurrentProcessingTimeMs()
    )
    return now_ms if instant_ms is None else max(now_ms, instant_ms)


@dataclass(frozen=True)
class ShardStep:
    """The function given to ``applyInPandasWithState``.

    Attributes:
        wheel: The geometry.
        shards: Number of shards.
        keys: Grouping key of each shard, by its number.
        clock_kind: ``event``, ``processing``, ``simulated`` or ``store``; the last two bring their instants in clock rows.
        first_ms: Where a simulated clock stands before its first row.
        delay_ms: Distance of the watermark from the largest event time.
        memory_ms: How long ended ids are remembered; ``None`` for ever.
        limit: Most rows released in a batch, all shards together.
        board_folder: Where to post answers; ``None`` where the driver's folder is out of reach.
        stored: Whether entries may wait in a slot store.
        limits: How much may be pending, all shards together.
        leveled: Whether there are delay levels: the rows have two columns for them, and what comes out one.
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
    stored: bool = False
    limits: Limits = Limits()  # noqa: RUF009  # frozen
    leveled: bool = False

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group: Any
    ) -> Iterator[pd.DataFrame]:
        """One batch of one shard; see the module."""
        silence_pyspark()
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
            now_of(self.clock_kind, self.first_ms, state.clock_ms, rows.instant_ms, group),
            self._share(shard),
            memory_ms=self.memory_ms,
            stored=self.stored,
            limits=self.limits.share(shard, self.shards) if self.limits else None,
        )
        state, rejects = step.state, rows.rejected.num_rows
        if rejects:
            cancels = int((rows.rejected["form"].to_numpy() & 1 == CANCEL).sum())
            state = state.counting(rejected=rejects - cancels, cancel_rejected=cancels)
        if step.changed or rejects:
            group.update(state.to_row(self.shards))
        status = json.dumps(self._status(shard, rows, step, state, group))
        yield _output(step, rows.rejected, self._refused(step), status, leveled=self.leveled)

    def _full(self, shard: int, step: Step, state: ShardState) -> dict[str, float]:
        """How much of each bound is used, as far as this batch tells; 1 is all."""
        share = self.limits.share(shard, self.shards).bounds
        used = {**step.fullest, "pending": state.pending}
        return {bound: used[bound] / share[bound] for bound in used if bound in share}

    def _refused(self, step: Step) -> pa.Table | None:
        """The commands that found no room, each with its reason."""
        if step.refused is None:
            return None
        texts = pa.array([reason(self.limits, bound, self.shards) for bound in BOUNDS])
        return step.refused.append_column(
            "note", texts.take(pc.index_in(step.refused["bound"], pa.array(BOUNDS)))
        )

    def _share(self, shard: int) -> int | None:
        """This shard's part of the batch's limit."""
        if self.limit is None:
            return None
        whole, rest = divmod(self.limit, self.shards)
        return max(1, whole + (shard < rest))

    def _status(self, shard: int, rows: Rows, step: Step, state: ShardState, group: Any) -> dict[str, Any]:
        batch_id, query_id = batch_of_task()
        refused = 0 if step.refused is None else step.refused.num_rows
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
            "far": state.far,
            "levels": {level_name(level_ms): count for level_ms, count in state.levels.items()},
            "received": rows.received,
            "fired_now": step.fired.num_rows,
            "missed_now": step.missed.num_rows,
            "rejected_now": rows.rejected.num_rows + refused,
            "refused_now": refused,
            "full": self._full(shard, step, state),
            "spread_now": step.spread,
            "lateness": LatenessHistogram.of(
                step.clock_ms - step.fired["deliver_at_ms"].to_numpy()
            ).to_json(),
            "destinations": counts_of(step.fired["destination"]),
            "largest": largest_of(step.fired, _SIZED),
            **state.counts,
        }
        if self.board_folder is not None:
            HintBoard(self.board_folder).post(query_id, rows.run, {shard: answer_of(status)})
        return status


def counts_of(values: pa.ChunkedArray) -> dict[str, int]:
    """How often each value occurs."""
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(values).to_pylist()}


def largest_of(entries: pa.Table, sized: Sequence[str]) -> dict[str, int]:
    """Bytes of the largest entry of each destination, from above: headers count as the JSON text they are here."""
    if not entries.num_rows:
        return {}
    parts = [pc.binary_length(entries[name]).fill_null(0) for name in sized]
    total = reduce(pc.add, (part.cast(pa.int64()) for part in parts))
    sizes = pa.table({"destination": entries["destination"], "bytes": total})
    found = sizes.group_by("destination").aggregate([("bytes", "max")])
    return dict(zip(found["destination"].to_pylist(), found["bytes_max"].to_pylist(), strict=True))


def _output(
    step: Step, rejected: pa.Table, refused: pa.Table | None, status: str, *, leveled: bool
) -> pd.DataFrame:
    """All rows of a group as one frame: each frame costs pyspark as much as some hundred rows, and so does each column."""
    bounds = step.missed["max_lateness_ms"].cast(pa.string())
    part = partial(_part, _LEVELED_OUTPUT_SCHEMA if leveled else _OUTPUT_SCHEMA)
    parts = [
        part("fired", step.fired, fired_at_ms=step.clock_ms, note=_amend_of(step.fired)),
        part("missed", step.missed, fired_at_ms=step.clock_ms, note=bounds),
        part("rejected", rejected, note=rejected["reject"]),
        *([] if refused is None else [part("rejected", refused, note=refused["note"])]),
        part("status", None, note=pa.array([status])),
    ]
    table = pa.concat_tables(rows for rows in parts if rows.num_rows)
    frame: pd.DataFrame = table.to_pandas(use_threads=False, split_blocks=True)
    return frame


def _amend_of(entries: pa.Table) -> pa.ChunkedArray | None:
    amend = entries["amend"]
    if not pc.any(pc.not_equal(amend, 0)).as_py():
        return None
    return pc.if_else(pc.equal(amend, 0), pa.scalar(None, pa.string()), amend.cast(pa.string()))


def _part(
    schema: pa.Schema,
    kind: str,
    rows: pa.Table | None,
    *,
    fired_at_ms: int = NO_LONG,
    note: pa.Array | None = None,
) -> pa.Table:
    size = 1 if rows is None else rows.num_rows
    columns: dict[str, Any] = {"kind": pa.repeat(kind, size), "fired_at_ms": pa.repeat(fired_at_ms, size)}
    if rows is not None:
        columns |= {name: rows[name] for name in _PAYLOAD}
        leveled = "level_error_ms" in schema.names
        due = rows["deliver_at_ms"] if leveled else asked_ms(rows)
        columns |= {
            "deliver_at_ms": due.fill_null(NO_LONG),
            "level_error_ms": rows["level_error_ms"].fill_null(NO_LONG),
        }
    if note is not None:
        columns["note"] = note
    blank = {pa.int64(): NO_LONG}
    arrays = [
        columns[field.name]
        if field.name in columns
        else pa.repeat(pa.scalar(blank.get(field.type), field.type), size)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


@cache
def silence_pyspark() -> None:
    """Keeps a warning of pandas about pyspark's own doing from the users."""
    # pyspark 4.2 concatenates what a group gave with an empty frame of other dtypes, and pandas warns of it once per worker; the result
    # is right, and users would take the warning for theirs.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.sql\.pandas\.serializers")


def batch_of_task() -> tuple[int, str]:
    """Id of the batch, and of the query, that the running task works for; outside Spark there is none.

    Spark hands them to tasks as local properties (``MicroBatchExecution.BATCH_ID_KEY``, ``StreamExecution.QUERY_ID_KEY``).
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return -1, ""
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return int(batch_id) if batch_id else -1, context.getLocalProperty("sql.streaming.queryId") or ""
