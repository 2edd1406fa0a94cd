"""The Python worker of ``watch``: one shard's rows of a batch in, its output rows out. Calls
:func:`wheel_udf.purgatory.step.advance`, as :mod:`wheel_udf.stream.wheel_worker` calls the wheel's step.

Imports numpy, pandas and pyarrow only, besides the standard library and pure modules: it runs on executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.purgatory.outcomes import OUTCOME_SCHEMA
from wheel_udf.purgatory.state import (
    CANCEL_OPERATION,
    EVENT_SCHEMA,
    REQUEST_SCHEMA,
    WatchState,
    hashes_of,
    named,
)
from wheel_udf.purgatory.step import WatchStep, advance
from wheel_udf.shard.holdings import Sample, largest
from wheel_udf.stream.arrow_frame import as_frame
from wheel_udf.stream.status_row import WatchStatus
from wheel_udf.stream.worker import (
    DETAIL,
    GroupRows,
    ShardWorker,
    chunk_files,
    ddl_of,
    part,
    row_of,
    schema_of,
)
from wheel_udf.wheel.acted import acts_of_texts

_OUTPUT_SCHEMA = pa.schema(
    [("kind", pa.string()), *OUTCOME_SCHEMA, ("decided_at_ms", pa.int64()), (DETAIL, pa.string())]
)

CANCELLATION_SCHEMA = schema_of("group string, op_id string, event_time_ms long")
"""A row of an act on a purgatory: an operation to cancel, and its own time."""

OUTPUT_TYPE = ddl_of(_OUTPUT_SCHEMA)
"""A row that leaves. ``detail`` by ``kind``: null of an outcome, of a rejected row its reason (the input's
``reject``, JSON), of a status row its JSON (:class:`~wheel_udf.stream.status_row.WatchStatus`)."""

_INPUT_SCHEMA = schema_of(
    "what int, group string, name string, keys string, need int, amount double, event_time_ms long, deadline_ms long, "
    "limit_ms long, destination string, key binary, value binary, headers string, source string, reject string, "
    "tick string"
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


def _cancels(acts: pa.Table, now_ms: int) -> pa.Table:
    """Acts as cancels of operations, at the last instant before the clock: a later one would be decided later.

    A cancel takes effect at the operation's own time. If that is ahead of the event clock, the cancel waits for it.
    """
    at_ms = np.maximum(acts["event_time_ms"].to_numpy(), now_ms - 1)
    size = acts.num_rows
    columns = {
        "what": pa.repeat(pa.scalar(CANCEL_OPERATION, pa.int8()), size),
        "group": acts["group"],
        "name": acts["op_id"],
        "event_time_ms": pa.array(at_ms),
        "hash": pa.array(hashes_of(named(acts["group"], acts["op_id"]))),
        "amount": pa.repeat(0.0, size),
    }
    arrays = [columns.get(field.name, pa.nulls(size, field.type)) for field in EVENT_SCHEMA]
    return pa.table(arrays, schema=EVENT_SCHEMA)


def _renamed(rows: pa.Table, schema: pa.Schema, others: dict[str, Any]) -> pa.Table:
    columns = [others[field.name] if field.name in others else rows[field.name] for field in schema]
    return pa.table(columns, schema=schema)


@dataclass(frozen=True)
class WatchWorker(ShardWorker):
    """The function that ``watch`` passes to ``applyInPandasWithState``.

    Attributes:
        lookback_ms: How long before its own time events count for an operation.
        delivered: Outcomes that leave as rows; the others are only counted.
    """

    lookback_ms: int
    delivered: tuple[str, ...]

    INPUT: ClassVar[pa.Schema] = _INPUT_SCHEMA
    ABSENT: ClassVar[frozenset[str]] = frozenset({"limit_ms", "deadline_ms", "event_time_ms"})

    def batch(self, shard: int, rows: GroupRows, group: Any) -> pd.DataFrame:
        """As :meth:`ShardWorker.batch`."""
        is_request, texts = pc.less(rows.good["what"], 0), chunk_files(shard, self.stores)
        acts = acts_of_texts(rows.tick.acts, CANCELLATION_SCHEMA)
        state = (
            WatchState.from_row(group.get, self.wheel, self.shards, texts)
            if group.exists
            else WatchState.empty(self.wheel, texts)
        )
        before = state
        # The next batch's watermark is at least this: rows that come then with an earlier time are late, so it can be
        # decided now.
        now_ms = max([self.now_ms(state.clock_ms, rows, group), *self.next_watermarks_ms(rows)])
        events = _events(rows.good.filter(pc.invert(is_request)))
        step = advance(
            state,
            _requests(rows.good.filter(is_request)),
            pa.concat_tables([events, _cancels(acts, now_ms)]) if acts.num_rows else events,
            now_ms,
            lookback_ms=self.lookback_ms,
            memory_ms=self.memory_ms,
        )
        if self.holds(state, step.clock_ms, rows):
            step = replace(step, state=replace(step.state, clock_ms=step.clock_ms), changed=True)
        step = _with_rejects(step, rows.rejected)
        if step.changed:
            group.update(row_of(step.state, self.shards, before))
        going = step.outcomes.filter(
            pc.is_in(step.outcomes["outcome"], value_set=pa.array(self.delivered, pa.string()))
        )
        status = self._status(shard, rows, step, going, group, acts.num_rows)
        return _output(going, step.clock_ms, rows.rejected, self.posted(status))

    def _status(
        self, shard: int, rows: GroupRows, step: WatchStep, going: pa.Table, group: Any, acts: int
    ) -> WatchStatus:
        late_ms = step.clock_ms - going["at_ms"].to_numpy()
        return WatchStatus(
            **self.common_status(shard, rows, step.state, step.clock_ms, going, late_ms, group),
            watermark_ms=self.watermark_ms(group, step.clock_ms),
            received=rows.received + acts,
            fired_now=going.num_rows - going["destination"].null_count,
            rejected_now=rows.rejected.num_rows,
            resting=step.state.resting,
            ahead=step.state.ahead,
            decided_now=step.outcomes.num_rows,
        )

    def sample(self, state: WatchState) -> dict[str, Mapping[str, int]]:
        """As :meth:`ShardWorker.sample`."""
        by_destination = Sample.of(state.open_chunks, "destination").counts("destination")
        return {"by_destination": largest(by_destination)}


def _with_rejects(step: WatchStep, rejected: pa.Table) -> WatchStep:
    if not rejected.num_rows:
        return step
    operations = int((rejected["what"].to_numpy() < 0).sum())
    state = step.state.counting(rejected=operations, event_rejected=rejected.num_rows - operations)
    return replace(step, state=state, changed=True)


def _output(outcomes: pa.Table, clock_ms: int, rejected: pa.Table, status: str) -> pd.DataFrame:
    rejects = {
        **{name: rejected[name] for name in ("group", "destination", "key", "value", "headers", "source")},
        "op_id": pc.if_else(pc.less(rejected["what"], 0), rejected["name"], pa.scalar(None, pa.string())),
        DETAIL: rejected["reject"],
    }
    decided = {
        **dict(zip(outcomes.column_names, outcomes.columns, strict=True)),
        "decided_at_ms": pa.array(np.full(outcomes.num_rows, clock_ms)),
    }
    parts = [
        part(_OUTPUT_SCHEMA, "outcome", outcomes.num_rows, decided),
        part(_OUTPUT_SCHEMA, "rejected", rejected.num_rows, rejects),
        part(_OUTPUT_SCHEMA, "status", 1, {DETAIL: pa.array([status])}),
    ]
    return as_frame(parts)
