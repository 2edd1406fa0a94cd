"""What runs in the Python worker for a purgatory: one shard's rows of a batch in, its rows out. A thin shell around
:func:`wheel_udf.watching.advance`, as :mod:`wheel_udf.shard_step` is one around the wheel's step.

Imports numpy, pandas and pyarrow alone, besides the standard library and the pure modules.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.geometry import Wheel
from wheel_udf.hints import HintBoard, answer_of
from wheel_udf.metrics import LatenessHistogram
from wheel_udf.shard_step import (
    NO_LONG,
    as_arrow,
    batch_of_task,
    counts_of,
    largest_of,
    latest_event_ms,
    now_of,
    read_ticks,
    silence_pyspark,
)
from wheel_udf.watch_open import OUTCOME_SCHEMA
from wheel_udf.watch_state import EVENT_SCHEMA, REQUEST_SCHEMA, WatchState, hashes_of, named
from wheel_udf.watching import WatchStep, advance

OUTPUT_SCHEMA = pa.schema(
    [("kind", pa.string()), *OUTCOME_SCHEMA, ("decided_at_ms", pa.int64()), ("note", pa.string())]
)
"""A row that leaves: an outcome, a rejected row (``note`` is its reason) or a status (``note`` is its JSON)."""

_DDL = {pa.string(): "string", pa.binary(): "binary", pa.int64(): "long", pa.int32(): "int"}
OUTPUT_TYPE = ", ".join(f"{field.name} {_DDL[field.type]}" for field in OUTPUT_SCHEMA)

_INPUT_SCHEMA = pa.schema(
    [
        ("what", pa.int32()),
        ("group", pa.string()),
        ("name", pa.string()),
        ("keys", pa.string()),
        ("need", pa.int32()),
        ("amount", pa.float64()),
        ("event_time_ms", pa.int64()),
        ("deadline_ms", pa.int64()),
        ("limit_ms", pa.int64()),
        ("destination", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("source", pa.string()),
        ("reject", pa.string()),
        ("tick", pa.string()),
    ]
)
_ABSENT = {"limit_ms", "deadline_ms", "event_time_ms"}
_SIZED = ("op_id", "key", "value", "headers", "source")


@dataclass(frozen=True)
class WatchRows:
    """The rows of one shard in one batch, told apart.

    Attributes:
        requests: New operations, ``REQUEST_SCHEMA``.
        events: Events and cancels, ``EVENT_SCHEMA``.
        rejected: Rejected ones of both, as they came.
        instant_ms: Latest instant a clock row brought; ``None`` if none did.
        run: The run of the clock source, from a clock row; ``None`` without one.
        latest_event_ms: Largest event time of the valid rows; ``None`` if none is known.
    """

    requests: pa.Table
    events: pa.Table
    rejected: pa.Table
    instant_ms: int | None
    run: str | None
    latest_event_ms: int | None

    @property
    def received(self) -> int:
        """How many rows came, good and bad."""
        return int(self.requests.num_rows + self.events.num_rows + self.rejected.num_rows)


def told_apart(frames: Iterable[pd.DataFrame]) -> WatchRows:
    """Sorts the rows of a group by what they are."""
    rows, rejected = [_INPUT_SCHEMA.empty_table()], [_INPUT_SCHEMA.empty_table()]
    ticks: list[str] = []
    latest: list[int] = []
    for frame in frames:
        table = as_arrow(frame, _INPUT_SCHEMA, _ABSENT)
        ticks += table["tick"].drop_null().to_pylist()
        table = table.filter(table["tick"].is_null())
        rejected.append(table.filter(table["reject"].is_valid()))
        rows.append(table.filter(table["reject"].is_null()))
        latest += latest_event_ms(frame)
    good = pa.concat_tables(rows)
    is_request = pc.less(good["what"], 0)
    run, instant_ms = read_ticks(ticks)
    return WatchRows(
        requests=_requests(good.filter(is_request)),
        events=_events(good.filter(pc.invert(is_request))),
        rejected=pa.concat_tables(rejected),
        instant_ms=instant_ms,
        run=run,
        latest_event_ms=max(latest, default=None),
    )


def _requests(rows: pa.Table) -> pa.Table:
    columns = {
        "op_id": rows["name"],
        "threshold": rows["amount"],
        "keys": pc.split_pattern(rows["keys"], "\0"),
    }
    return _renamed(rows, REQUEST_SCHEMA, columns)


def _events(rows: pa.Table) -> pa.Table:
    columns = {
        "what": rows["what"].cast(pa.int8()),
        "hash": pa.array(hashes_of(named(rows["group"], rows["name"]))),
    }
    return _renamed(rows, EVENT_SCHEMA, columns)


def _renamed(rows: pa.Table, schema: pa.Schema, others: dict[str, Any]) -> pa.Table:
    columns = [others[field.name] if field.name in others else rows[field.name] for field in schema]
    return pa.table(columns, schema=schema)


@dataclass(frozen=True)
class ShardWatch:
    """The function given to ``applyInPandasWithState``.

    Attributes:
        wheel: The geometry.
        shards: Number of shards.
        keys: Grouping key of each shard, by its number.
        clock_kind: ``event``, ``processing`` or ``simulated``.
        first_ms: Where a simulated clock stands before its first row.
        delay_ms: Distance of the watermark from the largest event time.
        lookback_ms: How long before its own time an operation looks for events.
        memory_ms: How long events and ended operations are remembered; ``None`` for ever.
        delivered: Outcomes that go to their destination; the others are counted.
        board_folder: Where to post answers; ``None`` where the driver's folder is out of reach.
    """

    wheel: Wheel
    shards: int
    keys: tuple[int, ...]
    clock_kind: str
    first_ms: int
    delay_ms: int
    lookback_ms: int
    memory_ms: int | None
    delivered: tuple[str, ...]
    board_folder: str | None

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group: Any
    ) -> Iterator[pd.DataFrame]:
        """One batch of one shard; see the module."""
        silence_pyspark()
        shard, rows = self.keys.index(key[0]), told_apart(frames)
        state = (
            WatchState.from_row(group.get, self.wheel, self.shards)
            if group.exists
            else WatchState(self.wheel)
        )
        step = advance(
            state,
            rows.requests,
            rows.events,
            self._now_ms(state, rows, group),
            lookback_ms=self.lookback_ms,
            memory_ms=self.memory_ms,
        )
        step = self._with_rejects(step, rows.rejected)
        if step.changed:
            group.update(step.state.to_row(self.shards))
        going = step.outcomes.filter(
            pc.is_in(step.outcomes["outcome"], value_set=pa.array(self.delivered, pa.string()))
        )
        status = json.dumps(self._status(shard, rows, step, going, group))
        yield _output(going, step.clock_ms, rows.rejected, status)

    def _now_ms(self, state: WatchState, rows: WatchRows, group: Any) -> int:
        now_ms = now_of(self.clock_kind, self.first_ms, state.clock_ms, rows.instant_ms, group)
        if self.clock_kind != "event" or rows.latest_event_ms is None:
            return now_ms
        # The watermark of the next batch is at least this, so what comes then and is earlier is late: it can be decided now.
        return max(now_ms, rows.latest_event_ms - self.delay_ms)

    def _with_rejects(self, step: WatchStep, rejected: pa.Table) -> WatchStep:
        if not rejected.num_rows:
            return step
        operations = int((rejected["what"].to_numpy() < 0).sum())
        more = Counter(rejected=operations, event_rejected=rejected.num_rows - operations)
        counts = {name: count + more[name] for name, count in step.state.counts.items()}
        return replace(step, state=replace(step.state, counts=counts), changed=True)

    def _status(
        self, shard: int, rows: WatchRows, step: WatchStep, going: pa.Table, group: Any
    ) -> dict[str, Any]:
        batch_id, query_id = batch_of_task()
        watermark_ms = None
        if self.clock_kind == "event":
            watermark_ms = max(step.clock_ms, int(group.getCurrentWatermarkMs()))
        status = {
            "shard": shard,
            "batch_id": batch_id,
            "query_id": query_id,
            "run": rows.run,
            "clock_ms": step.clock_ms,
            "watermark_ms": watermark_ms,
            "next_due_ms": step.state.next_due_ms,
            "pending": step.state.pending,
            "resting": step.state.resting,
            "received": rows.received,
            "fired_now": going.num_rows - going["destination"].null_count,
            "decided_now": step.outcomes.num_rows,
            "rejected_now": rows.rejected.num_rows,
            "lateness": LatenessHistogram.of(step.clock_ms - going["at_ms"].to_numpy()).to_json(),
            "destinations": counts_of(going["destination"].drop_null()),
            "largest": largest_of(going, _SIZED),
            **step.state.counts,
        }
        if self.board_folder is not None:
            HintBoard(self.board_folder).post(query_id, rows.run, {shard: answer_of(status)})
        return status


def _output(outcomes: pa.Table, clock_ms: int, rejected: pa.Table, status: str) -> pd.DataFrame:
    """All rows of a group as one frame: each frame costs pyspark as much as some hundred rows, and so does each column."""
    rejects = {
        **{name: rejected[name] for name in ("group", "destination", "key", "value", "headers", "source")},
        "op_id": pc.if_else(pc.less(rejected["what"], 0), rejected["name"], pa.scalar(None, pa.string())),
        "note": rejected["reject"],
    }
    decided = pa.array(np.full(outcomes.num_rows, clock_ms))
    parts = [
        _part("outcome", outcomes.num_rows, {**_columns(outcomes), "decided_at_ms": decided}),
        _part("rejected", rejected.num_rows, rejects),
        _part("status", 1, {"note": pa.array([status])}),
    ]
    table = pa.concat_tables(part for part in parts if part.num_rows)
    frame: pd.DataFrame = table.to_pandas(use_threads=False, split_blocks=True)
    return frame


def _columns(table: pa.Table) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _part(kind: str, size: int, columns: dict[str, Any]) -> pa.Table:
    columns = columns | {"kind": pa.repeat(kind, size)}
    blank = {pa.int64(): NO_LONG, pa.int32(): 0}
    arrays = [
        columns[field.name]
        if field.name in columns
        else pa.repeat(pa.scalar(blank.get(field.type), field.type), size)
        for field in OUTPUT_SCHEMA
    ]
    return pa.table(arrays, schema=OUTPUT_SCHEMA)
