"""Runs commands through the real step of the wheel under several plans, and measures.

The clock of a batch is the end of its trigger interval::

    trigger 1 s      commands with event time in      are in the batch at
                     (10:00:00, 10:00:01]             10:00:01

A trigger at which nothing has come and nothing is due is left out, as by the clock source: ``batches`` counts those
that are left.

In the tiered mode an entry that is due at or after the cursor waits outside the state until the cursor has passed it,
by the layout's own formulas. It is then taken in with the next batch. The state gets the version of a far entry at
once, as from the store, so that a version that goes far ends an older one that is near. A command that replaces or
cancels a far entry ends it at once (the store compares versions at the hand-over).

Cost: one call of :func:`wheel_udf.wheel.advance` for each shard and batch: some milliseconds, and more the more is
pending.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.errors import ContractError
from wheel_udf.policies.store_reports import StoreReports
from wheel_udf.replay.plans import Plan
from wheel_udf.shard.rows import CANCEL, COMMAND_SCHEMA, FAR, MOVED, SCHEDULE
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.buckets import Buckets
from wheel_udf.wheel.lateness import LatenessHistogram
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import advance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REQUIRED = ("schedule_id", "deliver_at_ms", "event_time_ms")
_MOST_BATCHES = 1_000_000
_MOST_PIECES = 100
"""A table of more pieces is copied into one: each filter takes time for every piece."""


def replay(commands: pa.Table | DataFrame, plans: Sequence[Plan]) -> pd.DataFrame:
    """Replays commands under several plans.

    Args:
        commands: An Arrow table, or a batch DataFrame, with the columns ``schedule_id`` (string), ``deliver_at_ms``
            (long; null of a CANCEL) and ``event_time_ms`` (long); optional ``seq`` (long), ``op`` (0 SCHEDULE, 1
            CANCEL), ``destination``, ``key``, ``value``. That is what :func:`wheel_udf.commands.parse_commands`
            returns of the valid commands.
        plans: The plans.

    Returns:
        A row for each plan: ``plan``, ``fired``, ``lateness_p50_ms``, ``lateness_p99_ms``, ``lateness_max_ms``,
        ``batches``, ``moved_rows`` (opened, and placed again on a lower level), ``state_bytes`` (written, all batches
        together), ``peak_bytes`` (of the state), ``peak_pending``, ``hand_overs``, ``handed_over_rows`` and
        ``far_files`` (tiered mode: windows that became near, their rows, and partitions that got a file).

    Raises:
        ContractError: A required column is missing, or a command is a series or a FIRE_NOW.
    """
    table = _checked(commands)
    return pd.DataFrame([_Replay(plan).run(table) for plan in plans])


def _checked(commands: pa.Table | DataFrame) -> pa.Table:
    """The commands as ``COMMAND_SCHEMA`` plus ``event_time_ms``, in the order of event time."""
    table = commands if isinstance(commands, pa.Table) else commands.toArrow()
    if missing := [name for name in _REQUIRED if name not in table.column_names]:
        raise ContractError("a column is missing", field=missing[0], rule=f"required: {', '.join(_REQUIRED)}")
    size = table.num_rows
    defaults: dict[str, Any] = {
        "seq": table["event_time_ms"],
        "op": pa.repeat(SCHEDULE, size),
        "amend": pa.repeat(0, size),
        "act": pa.repeat(0, size),
        "seq_given": pa.repeat(pa.scalar("seq" in table.column_names), size),
        "destination": pa.repeat("out", size),
    }
    schema = COMMAND_SCHEMA.append(pa.field("event_time_ms", pa.int64()))
    columns = [
        (
            table[each.name] if each.name in table.column_names else defaults.get(each.name, pa.nulls(size))
        ).cast(each.type)
        for each in schema
    ]
    found = pa.table(columns, schema=schema).sort_by("event_time_ms")
    _require_plain(found)
    return found


def _require_plain(commands: pa.Table) -> None:
    is_plain = pc.is_in(commands["op"], value_set=pa.array([SCHEDULE, CANCEL], commands["op"].type))
    has_due = pc.or_(pc.equal(commands["op"], CANCEL), commands["deliver_at_ms"].is_valid())
    left = commands.filter(pc.invert(pc.and_(is_plain, has_due)))
    if left.num_rows:
        raise ContractError(
            "a replay has no series and no FIRE_NOW",
            field="schedule_id",
            value=left["schedule_id"][0].as_py(),
            rule="SCHEDULE with a due time, or CANCEL",
            hint=f"leave out these commands, {left.num_rows:,} here",
        )


@dataclass
class _Replay:
    """One plan on its way."""

    plan: Plan
    figures: Counter[str] = field(default_factory=Counter)
    late: LatenessHistogram = field(default_factory=lambda: LatenessHistogram.of([]))
    states: list[ShardState] = field(init=False)
    cursor_ms: int | None = None

    def __post_init__(self) -> None:
        self.states = [ShardState.empty(self.plan.wheel) for _ in range(self.plan.shards)]
        self.buckets = Buckets(self.plan.wheel)
        self.far = COMMAND_SCHEMA.empty_table()

    def run(self, commands: pa.Table) -> dict[str, Any]:
        """Runs to the end; the row of figures."""
        for at_ms, rows in self._batches(commands):
            self._batch(at_ms, rows)
        names = ("fired", "batches", "moved_rows", "state_bytes", "peak_bytes", "peak_pending", "hand_overs")
        quantiles = {
            f"lateness_{name}_ms": self.late.quantile(q)
            for name, q in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        }
        more = ("handed_over_rows", "far_files")
        return {"plan": self.plan.name, **quantiles, **{name: self.figures[name] for name in (*names, *more)}}

    def _batches(self, commands: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The batches that are not empty ticks: their instants, and the commands in them."""
        every = self.plan.trigger_ms
        at = -(-commands["event_time_ms"].to_numpy() // every) * every
        starts = np.flatnonzero(np.r_[True, np.diff(at) != 0]) if len(at) else np.zeros(0, np.int64)
        instants, bounds = at[starts].tolist(), [*starts.tolist(), len(at)]
        rows = commands.select(COMMAND_SCHEMA.names)
        place, now_ms = 0, -(2**62)
        for _ in range(_MOST_BATCHES):
            due_ms = self._next_due_ms()
            # What is due already, beyond the limit of a batch, is released by the next trigger.
            tick_ms = None if due_ms is None else max(-(-due_ms // every) * every, now_ms + every)
            if place < len(instants) and (tick_ms is None or instants[place] <= tick_ms):
                now_ms = instants[place]
                yield now_ms, rows.slice(bounds[place], bounds[place + 1] - bounds[place])
                place += 1
            elif tick_ms is not None:
                now_ms = tick_ms
                yield now_ms, rows.slice(0, 0)
            else:
                return

    def _next_due_ms(self) -> int | None:
        """The next instant at which something happens: an entry is due, or the cursor has to move on."""
        found = [state.next_due_ms for state in self.states if state.next_due_ms is not None]
        layout = self.plan.layout
        if layout is not None and self.far.num_rows and self.cursor_ms is not None:
            found.append(self.cursor_ms - layout.lead_ms // 2)
        return min(found, default=None)

    def _batch(self, at_ms: int, rows: pa.Table) -> None:
        rows = self._near(at_ms, rows)
        self.figures["batches"] += 1
        shard_of = np.array(
            [zlib.crc32(name.encode()) % self.plan.shards for name in rows["schedule_id"].to_pylist()]
        )
        for shard in range(self.plan.shards):
            mine = rows.filter(pa.array(shard_of == shard)) if rows.num_rows else rows
            self._step(shard, at_ms, mine)
        held = sum(len(state.text) for state in self.states)
        self.figures["peak_bytes"] = max(self.figures["peak_bytes"], held)
        pending = sum(state.pending for state in self.states) + self.far.num_rows
        self.figures["peak_pending"] = max(self.figures["peak_pending"], pending)

    def _step(self, shard: int, at_ms: int, rows: pa.Table) -> None:
        state, plan = self.states[shard], self.plan
        opened = sum(chunk.rows for chunk in state.entry_chunks if self.buckets.reached(chunk, at_ms))
        limit = None if plan.limit is None else max(1, plan.limit // plan.shards)
        policies = Policies(report=None if plan.layout is None else StoreReports())
        step = advance(state, rows, at_ms, limit, memory_ms=plan.memory_ms, policies=policies)
        if not step.changed:
            return
        self.states[shard] = step.state
        self.figures["fired"] += step.fired.num_rows
        self.figures["moved_rows"] += max(0, opened - step.fired.num_rows)
        self.figures["state_bytes"] += len(step.state.text)
        late_ms = step.clock_ms - step.fired["deliver_at_ms"].to_numpy()
        self.late = self.late.merge(LatenessHistogram.of(late_ms))

    # ---- tiered --------------------------------------------------------------------------------------

    def _near(self, at_ms: int, rows: pa.Table) -> pa.Table:
        """Of the rows of a batch those that go to the state, and with them what a hand-over brings."""
        layout = self.plan.layout
        if layout is None:
            return rows
        self.far = _without_older(self.far, rows)
        handed = COMMAND_SCHEMA.empty_table()
        if self.cursor_ms is None or layout.is_due(at_ms, self.cursor_ms):
            self.cursor_ms = layout.cursor_of(at_ms)
            is_near = pc.less(self.far["deliver_at_ms"], self.cursor_ms)
            handed, self.far = self.far.filter(is_near), self.far.filter(pc.invert(is_near))
            self.figures["hand_overs"] += 1
            self.figures["handed_over_rows"] += handed.num_rows
        is_far = pc.greater_equal(rows["deliver_at_ms"], self.cursor_ms).fill_null(fill_value=False)
        far = rows.filter(is_far)
        if far.num_rows:
            places = layout.place(far["deliver_at_ms"].to_numpy(), self.cursor_ms)
            self.figures["far_files"] += len(set(zip(*(each.tolist() for each in places), strict=True)))
            self.far = pa.concat_tables([self.far, _newest(far)])
            if self.far["seq"].num_chunks > _MOST_PIECES:
                self.far = self.far.combine_chunks()
        return pa.concat_tables([rows.filter(pc.invert(is_far)), _versions_of(far), _moved(handed)])


def _versions_of(far: pa.Table) -> pa.Table:
    """Far entries as reported to the state: id and version."""
    for name in ("key", "value", "headers"):
        far = _with(far, name, None)
    return _with(far, "act", FAR)


def _moved(handed: pa.Table) -> pa.Table:
    """Far entries as the state gets them when their window is handed over."""
    return _with(_with(handed, "act", MOVED), "seq_given", True)  # noqa: FBT003  # the value


def _with(rows: pa.Table, name: str, value: object) -> pa.Table:
    """The rows with one value in a column."""
    field_of = rows.schema.field(name)
    column = pa.repeat(pa.scalar(value, field_of.type), rows.num_rows)
    return rows.set_column(rows.schema.get_field_index(name), field_of, column)


def _newest(far: pa.Table) -> pa.Table:
    """Of each id the highest version."""
    if pc.count_distinct(far["schedule_id"]).as_py() == far.num_rows:
        return far
    ordered = far.sort_by([("schedule_id", "ascending"), ("seq", "ascending")])
    ids = ordered["schedule_id"].to_numpy()
    return ordered.filter(pa.array(np.r_[ids[1:] != ids[:-1], True]))


def _without_older(far: pa.Table, rows: pa.Table) -> pa.Table:
    """The far entries that no command of the batch replaces or cancels."""
    met = pc.is_in(far["schedule_id"], value_set=pc.unique(rows["schedule_id"]))
    if not pc.any(met).as_py():
        return far
    newest: dict[str, int] = {}
    for name, seq in zip(rows["schedule_id"].to_pylist(), rows["seq"].to_pylist(), strict=True):
        newest[name] = max(seq, newest.get(name, seq))
    known = zip(far["schedule_id"].to_pylist(), far["seq"].to_pylist(), strict=True)
    return far.filter(pa.array([seq > newest.get(name, seq - 1) for name, seq in known]))
