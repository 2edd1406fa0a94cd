"""The Python worker of ``schedule``: one shard's rows of a batch in, its output rows out. Calls
:func:`wheel_udf.wheel.step.advance`, and writes the state only if the step changed it.

Imports numpy, pandas and pyarrow only, besides the standard library and pure modules: it runs on executors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands.delay_levels import level_name
from wheel_udf.control.shares import even_share
from wheel_udf.policies.in_flight import HandOver, InFlight, beyond_ms, complete_ms, flight_size
from wheel_udf.policies.limits import BOUNDS, Limits, code_of, reason
from wheel_udf.policies.punctual import NOTED_PROPERTY, Punctual
from wheel_udf.policies.rates import NO_RATES, Rates, Turnstile
from wheel_udf.policies.retries import NO_RETRIES, RETURNED_SCHEMA, Retries, come_back
from wheel_udf.policies.sender_news import SenderNews
from wheel_udf.policies.series import Series, begin
from wheel_udf.policies.shard_limits import ShardLimits
from wheel_udf.policies.store_reports import StoreReports
from wheel_udf.shard.holdings import Sample, largest
from wheel_udf.shard.rows import ACTED, CANCEL, COMMAND_SCHEMA, FAR, FIRE_NOW, RETRY, SCHEDULE, outer_id
from wheel_udf.shard.state import ShardState
from wheel_udf.stream.arrow_frame import as_frame
from wheel_udf.stream.status_row import WheelStatus, codes_of, counts_of, largest_of
from wheel_udf.stream.worker import (
    DETAIL,
    NO_LONG,
    GroupRows,
    ShardWorker,
    batch_of_task,
    chunk_files,
    part,
    property_of_task,
    row_of,
    schema_of,
)
from wheel_udf.wheel.acted import ACT_SCHEMA, acts_of_texts, as_commands
from wheel_udf.wheel.fire_now import split_fires
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import Step, advance

OUTPUT_TYPE = (
    "kind string, schedule_id string, seq long, destination string, key binary, value binary, headers string, "
    f"source string, deliver_at_ms long, fired_at_ms long, {DETAIL} string, level_error_ms long, "
    "occurrence long, missed_before long"
)
RETRY_TYPE = (
    "amend int, max_lateness_ms long, attempt long, failed_at_ms long, first_error string, last_error string, "
    "origin string, dead_reason string"
)
"""Further columns if entries may come back: the amend, and what an entry has (``ENTRY_SCHEMA``); ``attempt`` is the
number of this attempt, from 1. Of a dead letter ``attempt`` is how many have failed, and ``origin`` the destination
that it was for."""

"""A row that leaves. ``deliver_at_ms`` is when the wheel releases it, ``level_error_ms`` as in ``ENTRY_SCHEMA``,
``occurrence`` and ``missed_before`` as in :data:`~wheel_udf.wheel.releases.RELEASE_SCHEMA`.

``detail`` by ``kind``: of a fired row, and of a row that goes to the sender (``ahead``), the ``amend`` of its fire id
(null for 0),
of a missed row its ``max_lateness_ms``, of a rejected row its reason (the input's ``reject``, JSON), of a status row
its JSON (:class:`~wheel_udf.stream.status_row.WheelStatus`)."""

_OUTPUT_SCHEMA = schema_of(OUTPUT_TYPE)
_RETRY_SCHEMA = schema_of(f"{OUTPUT_TYPE}, {RETRY_TYPE}")
_PACKED = ("op", "seq_given", "act", "amend")
"""Columns of a command that travel packed into one, ``command_bits`` (:func:`command_bits`)."""
_INPUT_SCHEMA = pa.schema(
    [
        # A long, as the other columns with nulls (ABSENT).
        *(
            field.with_type(pa.int64()) if field.name == "first_amend" else field
            for field in COMMAND_SCHEMA
            if field.name not in _PACKED
        ),
        ("command_bits", pa.int32()),
        ("reject", pa.string()),
        ("tick", pa.string()),
    ]
)
_PAYLOAD = ("schedule_id", "seq", "destination", "key", "value", "headers", "source", "deliver_at_ms")


def command_bits(op: Any, seq_given: Any, act: Any = 0, amend: Any = 0) -> Any:
    """Packs ``op`` (1 bit), ``seq_given`` (1), ``act`` (4) and ``amend`` (rest) into one int, numpy array or Column."""
    return op + 2 * seq_given + 4 * act + 64 * amend


def _commands(rows: pa.Table) -> pa.Table:
    """Input rows as commands (``COMMAND_SCHEMA``): :func:`command_bits` unpacked."""
    bits = rows["command_bits"].to_numpy()
    parts = {
        "op": bits & 1,
        "seq_given": (bits >> 1 & 1).astype(bool),
        "act": bits >> 2 & 15,
        "amend": bits >> 6,
    }
    arrays = [
        pa.array(parts[field.name], field.type) if field.name in parts else rows[field.name].cast(field.type)
        for field in COMMAND_SCHEMA
    ]
    return pa.table(arrays, schema=COMMAND_SCHEMA)


def _acts_apart(commands: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The commands of a batch without the rows of acts that a slot store brings, and these (``ACT_SCHEMA``)."""
    is_act = pc.equal(commands["act"], ACTED)
    if not pc.any(is_act).as_py():
        return commands, ACT_SCHEMA.empty_table()
    return commands.filter(pc.invert(is_act)), commands.filter(is_act).select(ACT_SCHEMA.names)


@dataclass(frozen=True)
class WheelWorker(ShardWorker):
    """The function that ``schedule`` passes to ``applyInPandasWithState``.

    Attributes:
        limit: Most rows released in a batch, all shards together.
        stored: Whether entries may wait in a slot store.
        limits: How much may be pending, all shards together.
        punctual: How entries are handed to a sender; None without one.
        waits_for_clock: Whether a batch without the clock's instant releases nothing: its rows belong to the instant
            that the next batch brings (:class:`~wheel_udf.control.clocks.StoreClock`).
        retries: Which destinations are tried again.
        rates: How much they get.
    """

    limit: int | None
    stored: bool = False
    limits: Limits = Limits()  # noqa: RUF009  # frozen
    punctual: Punctual | None = None
    waits_for_clock: bool = False
    retries: Retries = NO_RETRIES
    rates: Rates = NO_RATES

    INPUT: ClassVar[pa.Schema] = _INPUT_SCHEMA
    ABSENT: ClassVar[frozenset[str]] = frozenset(
        {
            *("deliver_at_ms", "max_lateness_ms", "delay_level_ms", "level_error_ms"),
            *("anchor_ms", "spread_ms", "last_ms", "occurrence", "attempt", "first_amend", "failed_at_ms"),
        }
    )

    def batch(self, shard: int, rows: GroupRows, group: Any) -> pd.DataFrame:
        """As :meth:`ShardWorker.batch`."""
        texts = chunk_files(shard, self.stores)
        state = (
            ShardState.from_row(group.get, self.wheel, self.shards, texts)
            if group.exists
            else ShardState.empty(self.wheel, texts)
        )
        before = state
        commands, acts = _acts_apart(_commands(rows.good))
        commands, fires = split_fires(commands)
        of_tick = acts_of_texts(rows.tick.acts, ACT_SCHEMA)
        acts, late, skipped = pa.concat_tables([acts, of_tick]), 0, 0
        if acts.num_rows:
            acted, late = as_commands(state, acts)
            commands, skipped = pa.concat_tables([commands, acted]), _skipped(acted)
        now_ms = self.now_ms(state.clock_ms, rows, group)
        standing_ms = now_ms if state.clock_ms is None else max(state.clock_ms, now_ms)
        commands, given_back = _given_back(commands)
        returned = pa.concat_tables([given_back, returned_of_texts(rows.tick.returned)])
        if returned.num_rows:
            commands = pa.concat_tables([commands, come_back(returned, self.retries, standing_ms)])
        commands, no_series = begin(commands, state, standing_ms, self.memory_ms)
        over = self._hand_over(shard, rows, state)
        policies = Policies(
            admit=ShardLimits(self.limits.share(shard, self.shards)) if self.limits else None,
            hold=InFlight(over),
            report=StoreReports() if self.stored else None,
            repeat=Series(self.wheel.tick_ms),
            gate=self._gate(shard, dict(rows.tick.closed)),
        )
        waits = self.waits_for_clock and rows.tick.instant_ms is None
        step = advance(
            state,
            commands,
            now_ms,
            0 if waits else self.share_of_limit(shard, rows.tick.share),
            memory_ms=self.memory_ms,
            policies=policies,
            fires=fires,
        )
        # A series that is refused is input, too, though the step has not seen it.
        holds = self.holds(state, step.clock_ms, rows) or (no_series is not None and not step.changed)
        state, rejects = step.state, rows.rejected.num_rows
        if holds:
            state = replace(state, clock_ms=step.clock_ms)
        if rejects:
            bits = rows.rejected["command_bits"].to_numpy()
            cancels, fired = int((bits & 1 == CANCEL).sum()), int((bits >> 2 & 15 == FIRE_NOW).sum())
            state = state.counting(
                rejected=rejects - cancels - fired, cancel_rejected=cancels, fire_rejected=fired
            )
        if late or skipped:
            state = state.counting(superseded=late, occurrences_skipped=skipped)
        if given_back.num_rows:
            # A RETRY is a command that was received; only what comes back by itself is one schedule more.
            state = state.counting(retried=-given_back.num_rows)
        if no_series is not None:
            state = state.counting(rejected=no_series.num_rows)
        if step.changed or rejects or holds or late:
            group.update(row_of(state, self.shards, before))
        dead_to = self.retries.dead_letters_of(step.dead["destination"])
        received = rows.received + of_tick.num_rows - _reported(commands)
        status = self._status(shard, rows, received, step, state, group, no_series, dead_to)
        if over is not None and self.punctual is not None:
            status = replace(status, **_sent(step, state, over))
        refused = [each for each in (no_series, self._refused(step)) if each is not None]
        return self._output(step, [rows.rejected, *refused], dead_to, self.posted(status))

    def _gate(self, shard: int, closed: Mapping[str, int]) -> Turnstile | None:
        """Which due entries may leave; None if all may."""
        return Turnstile(self.rates, shard, self.shards, closed) if self.rates or closed else None

    def sample(self, state: ShardState) -> dict[str, Mapping[str, int]]:
        """As :meth:`ShardWorker.sample`."""
        chunks = (*state.entry_chunks, *state.in_flight_chunks)
        sample = Sample.of(chunks, "destination", "delay_level_ms", "held_ms")
        levels = sample.counts("delay_level_ms")
        return {
            "by_destination": largest(sample.counts("destination")),
            "held_by": largest(sample.counts("destination", having="held_ms")),
            "levels": {level_name(level_ms): count for level_ms, count in levels.items()},
        }

    def _hand_over(self, shard: int, rows: GroupRows, state: ShardState) -> HandOver | None:
        """How the batch hands entries to the sender; None without one, and without a note of an earlier one."""
        punctual, news = self.punctual, rows.tick.sender
        if punctual is None:
            noted = property_of_task(NOTED_PROPERTY)
            if not noted:
                return None
            punctual, news = Punctual(rows=0), SenderNews.from_json(json.loads(noted))
        over = punctual.hand_over(batch_of_task()[0], shard, self.shards, news, lambda: flight_size(state))
        if not self.rates:
            return over
        # What has a rate leaves at its turn, which is no due time that a sender could wait for.
        return replace(over, is_punctual=lambda names: over.is_punctual(names) & ~self.rates.mask(names))

    def _full(self, shard: int, step: Step, state: ShardState) -> dict[str, float]:
        """Used part of each limit, as far as this batch touched it; 1 is all."""
        share = self.limits.share(shard, self.shards).bounds
        used = {**step.fullest, "pending": state.pending}
        return {bound: used[bound] / share[bound] for bound in used if bound in share}

    def _refused(self, step: Step) -> pa.Table | None:
        """The commands over a limit, with their reason in the column ``reject``."""
        if step.refused is None:
            return None
        texts = pa.array([reason(self.limits, bound, self.shards) for bound in BOUNDS])
        return step.refused.append_column(
            "reject", texts.take(pc.index_in(step.refused["bound"], pa.array(BOUNDS)))
        )

    def _codes(
        self, invalid: dict[str, int], step: Step, no_series: pa.Table | None, lost: int
    ) -> dict[str, int]:
        """The rejects of a batch by code: invalid commands, and those of the step, with its lost dead letters."""
        refused = {} if step.refused is None else counts_of(step.refused["bound"])
        codes = Counter(invalid) + Counter({} if no_series is None else codes_of(no_series["reject"]))
        codes += Counter(missed=step.missed.num_rows, dead_letter=lost)
        return codes | {code_of(bound): count for bound, count in refused.items()}

    def share_of_limit(self, shard: int, of_tick: int | None) -> int | None:
        """This shard's part of the limit of a batch: that of the tick, or an even one."""
        if self.limit is None or of_tick is not None:
            return of_tick
        return even_share(self.limit, shard, self.shards)

    def _status(
        self,
        shard: int,
        rows: GroupRows,
        received: int,
        step: Step,
        state: ShardState,
        group: Any,
        no_series: pa.Table | None,
        dead_to: pa.Array,
    ) -> WheelStatus:
        refused = 0 if step.refused is None else step.refused.num_rows
        invalid = rows.rejected.num_rows + (0 if no_series is None else no_series.num_rows)
        late_ms = step.clock_ms - step.fired["deliver_at_ms"].to_numpy()
        common = self.common_status(shard, rows, state, step.clock_ms, step.fired, late_ms, group)
        return WheelStatus(
            **common | {"codes": self._codes(common["codes"], step, no_series, dead_to.null_count)},
            watermark_ms=self.watermark_ms(group, *self.next_watermarks_ms(rows)),
            received=received,
            fired_now=step.fired.num_rows,
            rejected_now=invalid + refused,
            far=state.far,
            missed_now=step.missed.num_rows,
            refused_now=refused,
            full=self._full(shard, step, state),
            spread_now=step.spread,
            ambiguous_now=step.ambiguous,
            dead_to=counts_of(pc.fill_null(dead_to, "")),
        )

    def _output(
        self, step: Step, rejected: Sequence[pa.Table], dead_to: pa.Array, status: str
    ) -> pd.DataFrame:
        schema = _RETRY_SCHEMA if self.retries else _OUTPUT_SCHEMA
        # What goes to the sender fires when it is due, which is not always what was asked for.
        released = {
            "fired": (step.fired, step.clock_ms),
            "ahead": (step.handed, step.handed["deliver_at_ms"]),
        }
        lost = step.dead.filter(dead_to.is_null())
        dead = step.dead.filter(dead_to.is_valid())
        parts = [
            *(
                _rows(schema, kind, rows, fired_at_ms=at_ms, detail=_amend_of(rows),
                      **(_tried(rows) if self.retries else {}))
                for kind, (rows, at_ms) in released.items()
                if rows.num_rows
            ),
            _rows(schema, "missed", step.missed, fired_at_ms=step.clock_ms,
                  detail=step.missed["max_lateness_ms"].cast(pa.string())),
            *(_rows(schema, "rejected", rows, detail=rows["reject"]) for rows in rejected),
            _rows(schema, "rejected", lost, fired_at_ms=step.clock_ms, detail=_lost_because(lost)),
            part(schema, "status", 1, {DETAIL: pa.array([status])}),
        ]  # fmt: skip
        if dead.num_rows:
            to = {"destination": dead_to.drop_null(), "origin": dead["destination"]}
            to["occurrence"] = dead["occurrence"].fill_null(NO_LONG)
            parts.append(
                _rows(schema, "dead", dead, fired_at_ms=step.clock_ms, detail=_amend_of(dead),
                      **{**_tried(dead), "attempt": dead["attempt"], "dead_reason": dead["dead_reason"], **to})
            )  # fmt: skip
        return as_frame(parts)


def _reported(commands: pa.Table) -> int:
    """The number of reports of the store on entries, which were counted when they were first received."""
    act = commands["act"].to_numpy()
    return int(((act > FAR) & (act != RETRY)).sum())


def _given_back(commands: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Takes out the RETRYs; returns the other commands, and the entries that come back (``RETURNED_SCHEMA``)."""
    is_retry = pc.equal(commands["act"], RETRY)
    if not pc.any(is_retry).as_py():
        return commands, RETURNED_SCHEMA.empty_table()
    rows = commands.filter(is_retry)
    size = rows.num_rows
    columns = {
        "attempt": pc.subtract(rows["attempt"], 1),
        "error": rows["last_error"],
        "is_final": pa.repeat(pa.scalar(False), size),  # noqa: FBT003  # the value
        "is_tried": pa.repeat(pa.scalar(True), size),  # noqa: FBT003  # likewise
        "retry_after_ms": pa.nulls(size, pa.int64()),
    }
    arrays = [columns[each.name] if each.name in columns else rows[each.name] for each in RETURNED_SCHEMA]
    return commands.filter(pc.invert(is_retry)), pa.table(arrays, schema=RETURNED_SCHEMA)


def returned_of_texts(texts: Sequence[str]) -> pa.Table:
    """The entries that come back to a shard, one text each, in one table."""
    return acts_of_texts(texts, RETURNED_SCHEMA)


def _skipped(acted: pa.Table) -> int:
    """The number of series whose next occurrence acts leave out."""
    skips = pc.and_(pc.equal(acted["op"], SCHEDULE), acted["deliver_at_ms"].is_null())
    return len(pc.unique(acted["schedule_id"].filter(skips)))


def _sent(step: Step, state: ShardState, hand_over: HandOver) -> dict[str, Any]:
    """The columns of a status row about the sender."""
    return {
        "in_flight": state.in_flight,
        "handed": counts_of(step.handed["destination"]),
        "handed_largest": largest_of(step.handed),
        "confirmed_now": step.confirmed,
        "beyond_ms": beyond_ms(state, hand_over.horizon_ms(step.clock_ms)),
        "complete_ms": complete_ms(state),
    }


def _amend_of(entries: pa.Table) -> pa.ChunkedArray | None:
    """The amends of the fire ids, which stay when an entry comes back."""
    amend = pc.coalesce(entries["first_amend"], entries["amend"])
    if not pc.any(pc.not_equal(amend, 0)).as_py():
        return None
    return pc.if_else(pc.equal(amend, 0), pa.scalar(None, pa.string()), amend.cast(pa.string()))


def _tried(entries: pa.Table) -> dict[str, Any]:
    """The columns of ``RETRY_TYPE`` of rows that are tried now."""
    plain = {name: entries[name] for name in ("amend", "first_error", "last_error")}
    longs = {name: entries[name].fill_null(NO_LONG) for name in ("max_lateness_ms", "failed_at_ms")}
    return {**plain, **longs, "attempt": pc.add(entries["attempt"].fill_null(0), 1)}


def _lost_because(dead: pa.Table) -> pa.Array:
    """The reasons of dead letters that have no destination, as those of rejects."""
    columns = ("attempt", "dead_reason", "last_error", "first_error")
    found = [
        {
            "error_code": "dead_letter",
            "error_message": f"not delivered in {attempt} attempts, and not tried again: {reason}; "
            f"last error: {last}; first error: {first}",
        }
        for attempt, reason, last, first in zip(*(dead[name].to_pylist() for name in columns), strict=True)
    ]
    return pa.array([json.dumps(each) for each in found], pa.string())


def _rows(
    schema: pa.Schema,
    kind: str,
    rows: pa.Table,
    *,
    detail: pa.Array | None,
    fired_at_ms: int | pa.ChunkedArray = NO_LONG,
    **more: Any,
) -> pa.Table:
    columns = {name: rows[name] for name in _PAYLOAD} | {
        "schedule_id": outer_id(rows["schedule_id"]),
        "deliver_at_ms": rows["deliver_at_ms"].fill_null(NO_LONG),
        "fired_at_ms": pa.repeat(fired_at_ms, rows.num_rows) if isinstance(fired_at_ms, int) else fired_at_ms,
        "level_error_ms": rows["level_error_ms"].fill_null(NO_LONG),
    }
    if "missed_before" in rows.schema.names:
        columns |= {name: rows[name].fill_null(NO_LONG) for name in ("occurrence", "missed_before")}
    return part(
        schema, kind, rows.num_rows, columns | more if detail is None else columns | more | {DETAIL: detail}
    )
