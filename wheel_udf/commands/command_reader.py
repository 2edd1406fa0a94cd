"""Reads and checks a batch of commands: columns of the user in, command rows out. What the columns mean:
:mod:`wheel_udf.commands.parse`.

::

    in0 in1 in2 ... batch_ms --> Given --readers--> Read, Series, Failures --rules--> number of the broken rule
                                                              |                             |
                                                              +--------> command row <------+  record, message

It runs in Spark's Python workers, all rows of an Arrow batch at a time; only what few rows have (headers, the rule of a
series, a rejection) is made row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands import (
    readers as read,
    retry_columns as retry,
    series_columns as series,
    time_readers as times,
)
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.contract_reader import ContractReader, Reason
from wheel_udf.commands.delay_levels import NO_LEVEL, errors_of, levels_of, refused_beyond_ms
from wheel_udf.commands.inputs import SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, SOURCE_SEQ, Given
from wheel_udf.commands.records import Records
from wheel_udf.commands.rules import (
    DUE_COLUMNS,
    GOOD,
    MISREAD,
    SOURCE,
    TEXTS,
    Read,
    Rule,
    destination_rules,
    event_time_rules,
    first_broken,
    id_rules,
    instants_of,
    is_ahead,
    is_too_far,
    nothing,
    payload_bytes,
    record_rules,
    size_rules,
)
from wheel_udf.common.command_facts import FIRST_DUE_MS, MAX_ID_BYTES
from wheel_udf.common.instants import MAX_INSTANT_MS
from wheel_udf.common.names import LONGEST_NAME
from wheel_udf.shard.rows import CANCEL, FIRE_NOW_OP, SCHEDULE

NOT_RECORDED: Final = (SOURCE, SOURCE_SEQ, SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, MISREAD)
"""Columns of the source that are no part of the original row."""

_OPS: Final = {
    "": SCHEDULE,
    "schedule": SCHEDULE,
    "replace": SCHEDULE,
    "cancel": CANCEL,
    "fire_now": FIRE_NOW_OP,
}
_RETRY_OPS: Final = _OPS | {"retry": SCHEDULE}
_LAST_OF_PYTHON_MS: Final = 253_402_300_799_999  # the year 9999


@dataclass
class _Command(Read):
    """What was read of commands: an array of n values each."""

    name: pa.BinaryArray
    op: pa.Int8Array
    seq: pa.Int64Array
    due_ms: pa.Int64Array
    lateness_ms: pa.Int64Array
    series: series.Series
    failures: retry.Failures | None
    level_ms: pa.Int64Array
    level_error_ms: pa.Int64Array
    offset_ms: pa.Int64Array

    @cached_property
    def moved_ms(self) -> pa.Int64Array:
        """By how much a delay level and a spread put off the due time."""
        return pc.add(pc.fill_null(self.level_error_ms, 0), self.offset_ms)

    @cached_property
    def is_schedule(self) -> pa.BooleanArray:
        """Which are schedules, or have an operation that cannot be read."""
        return pc.fill_null(pc.equal(self.op, SCHEDULE), fill_value=True)


class CommandReader(ContractReader):
    """Reads batches of commands."""

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads a batch: the columns of the user by their places, and at last the time of the batch (UTC epoch ms).

        Returns:
            A row for each row, with the columns of :func:`wheel_udf.commands.parse.parse_commands`.

        Raises:
            UnfitTypeError: A column has a type that no valid value can have.
        """
        columns = batch.columns
        given = self._given(batch)
        rows = _read(given, columns[-1], self.contract)
        rules = _rules(given, rows, self.contract)
        broken = first_broken(rules, batch.num_rows)
        good = pa.array(broken == GOOD)
        columns_out = _outcome(given, rows, self.contract, good) | self._rejection(
            given, rows, columns, rules, broken
        )
        if self.contract.levels is not None or "spread" in given:
            columns_out |= _leveled(given, rows, self.contract, good)
        if "repeat" in given:
            is_series = pc.and_(pc.and_(good, rows.is_schedule), given.is_there("repeat"))
            columns_out |= series.output_columns(
                rows.series,
                self.contract,
                is_series=is_series,
                due_ms=rows.due_ms,
                made_ms=rows.made_ms,
                spread_ms=rows.offset_ms,
            )
        if rows.failures is not None:
            columns_out |= retry.output_columns(rows.failures, good)
        return pa.RecordBatch.from_pydict(columns_out)

    def _rejection(
        self, given: Given, rows: _Command, columns: list[pa.Array], rules: list[Rule], broken: np.ndarray
    ) -> dict[str, pa.Array]:
        """The columns of rejected rows; null for good ones, but for the source where rows have an order."""
        sources = given.read(SOURCE, read.text, pa.string())
        texts: dict[str, list[str | None]] = {name: [None] * given.rows for name in Reason._fields}
        records, sizes = Records(self.names, columns, NOT_RECORDED), payload_bytes(rows)
        for row, reason in self._reasons(TEXTS, records, rules, broken, sizes):
            for name, text in reason._asdict().items():
                texts[name][row] = text
        is_rejected = pa.array(broken != GOOD)
        return {name: pa.array(values, pa.string()) for name, values in texts.items()} | {
            "source": sources if SOURCE_SEQ in given else pc.if_else(is_rejected, sources, None)
        }


def _read(given: Given, batch_ms: pa.Int64Array, contract: Contract) -> _Command:
    """Reads the columns."""
    has_retries = "op" in given and "attempt" in given
    destination = given.read("destination", read.text, pa.string())
    if contract.default_destination is not None:
        destination = pc.fill_null(destination, contract.default_destination)
    made_ms = times.event_ms(given, batch_ms)
    due_ms = times.of_source_or(given, SOURCE_DELIVER_AT, "deliver_at", round_up=True)
    if "delay" in given:
        due_ms = pc.coalesce(due_ms, pc.add(made_ms, given.read("delay", times.durations_ms, pa.int64())))
    name, series_read = given.read("schedule_id", read.identity, pa.binary()), series.read_columns(given)
    # A series has no level: its occurrences are due as its rule says.
    delay_ms = pc.if_else(given.is_there("repeat"), None, pc.subtract(due_ms, made_ms))
    level_ms, error_ms = _level_of(delay_ms, contract)
    return _Command(
        batch_ms=batch_ms,
        made_ms=made_ms,
        destination=destination,
        key=given.read("key", read.octets, pa.binary()),
        value=given.read("value", read.octets, pa.binary()),
        headers=given.read("headers", read.headers, read.HEADERS),
        name=name,
        op=_op_of(given, _RETRY_OPS if has_retries else _OPS),
        seq=given.read("seq", read.whole_number, pa.int64()),
        due_ms=due_ms,
        lateness_ms=given.read("max_lateness", times.durations_ms, pa.int64()),
        series=series_read,
        failures=retry.read_columns(given) if has_retries else None,
        level_ms=level_ms,
        level_error_ms=error_ms,
        offset_ms=series.offsets_ms(name, series_read.window_ms),
    )


def _op_of(given: Given, known: dict[str, int]) -> pa.Int8Array:
    """The number of the operation; null for another word."""
    if not given.has_values("op"):
        return pa.repeat(pa.scalar(SCHEDULE, pa.int8()), given.rows)
    return read.code_of(given.read("op", read.words, pa.string()), known).cast(pa.int8())


def _level_of(delay_ms: pa.Int64Array, contract: Contract) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Span and error of the delay level; nulls without levels, or without a delay."""
    if contract.levels is None:
        return pa.nulls(len(delay_ms), pa.int64()), pa.nulls(len(delay_ms), pa.int64())
    missing = pc.is_null(delay_ms).to_numpy(zero_copy_only=False)
    delays_ms = pc.fill_null(delay_ms, 0).to_numpy()
    spans_ms = levels_of(contract.levels, delays_ms)
    errors_ms = errors_of(contract.levels, delays_ms, spans_ms)
    return pa.array(spans_ms, mask=missing), pa.array(errors_ms, mask=missing)


# --- rules ----------------------------------------------------------------------------------------


def _rules(given: Given, rows: _Command, contract: Contract) -> list[Rule]:
    """All rules, in order."""
    common = record_rules(given)
    if given.has_values("op"):
        common.append(Rule("bad_op", pc.is_null(rows.op), given.shown("op")))
    common += id_rules("schedule_id", rows.name)
    if given.has_values("seq"):
        unread = pc.and_(given.is_there("seq"), pc.is_null(rows.seq))
        common.append(Rule("bad_seq", unread, given.shown("seq")))
    common += event_time_rules(given, rows, contract)
    # Only the common rules apply to a CANCEL and a FIRE_NOW.
    common.append(Rule(None, pc.invert(rows.is_schedule), nothing))
    common += _due_rules(given, rows, contract)
    common += destination_rules(given, rows, contract)
    common += size_rules(rows, contract)
    if given.has_values("max_lateness"):
        bad = pc.or_kleene(pc.is_null(rows.lateness_ms), pc.less(rows.lateness_ms, 0))
        bad = pc.and_(given.is_there("max_lateness"), bad)
        common.append(Rule("bad_max_lateness", bad, given.shown("max_lateness")))
    if rows.failures is not None:
        common += retry.rules(given, rows.failures)
    return common + series.rules(given, rows.series)


def _due_rules(given: Given, rows: _Command, contract: Contract) -> list[Rule]:
    has_at, has_delay, has_repeat = (given.is_there(name) for name in (*DUE_COLUMNS, "repeat"))
    # Of a series, starts_at is another word for deliver_at.
    starts_ms = pc.if_else(has_repeat, rows.series.times_ms["starts_at"], None)
    due_ms, unread = pc.coalesce(rows.due_ms, starts_ms), pc.is_null(rows.due_ms)
    asked_delay, due_text = given.shown("delay"), instants_of(due_ms)
    # A due time that is rounded up, or moved by a spread, may be beyond the last timestamp.
    is_late = pc.greater(due_ms, pc.subtract(MAX_INSTANT_MS, rows.moved_ms))
    too_far = pc.or_kleene(is_too_far(rows, due_ms, contract), is_late)

    def asked_or_due(row: int) -> str | None:
        asked = asked_delay(row)
        return due_text(row) if asked is None else asked

    beyond = []
    if contract.levels is not None and (last_ms := refused_beyond_ms(contract.levels)) is not None:
        is_long = pc.greater(pc.subtract(due_ms, rows.made_ms), last_ms)
        beyond = [Rule("beyond_levels", pc.and_(is_long, pc.invert(has_repeat)), asked_or_due)]
    has_none = pc.invert(pc.or_(pc.or_(has_at, has_delay), has_repeat))
    return [
        Rule("no_due_time", has_none, nothing),
        Rule("two_due_times", pc.and_(has_at, has_delay), asked_delay),
        Rule("bad_deliver_at", pc.and_(has_at, unread), given.shown("deliver_at")),
        Rule("bad_delay", pc.and_(has_delay, unread), asked_delay),
        Rule("beyond_max_delay", too_far, asked_or_due),
        Rule("due_too_early", pc.less(due_ms, FIRST_DUE_MS), asked_or_due),
        *beyond,
    ]


# --- output ---------------------------------------------------------------------------------------


def _outcome(given: Given, rows: _Command, contract: Contract, good: pa.BooleanArray) -> dict[str, pa.Array]:
    """The columns of good rows, and of rejected ones what can be kept."""
    rejected, is_schedule = pc.invert(good), rows.is_schedule
    carried = pc.or_(rejected, is_schedule)  # a good CANCEL carries nothing, nor does a FIRE_NOW
    wheel_ms = pc.add(rows.due_ms, pc.if_else(good, rows.moved_ms, 0))
    if "repeat" in given:
        wheel_ms = pc.if_else(pc.and_(given.is_there("repeat"), good), None, wheel_ms)
    made_ms = rows.made_ms
    if "event_time" in given and contract.max_ahead_ms is not None:
        # Even if something else is wrong with the row: the clock may be computed from this column.
        made_ms = pc.if_else(is_ahead(rows, contract.max_ahead_ms), None, made_ms)
    # Python cannot collect a table with one instant beyond the year 9999. The message of a reject has the value.
    within = pc.and_(
        pc.greater_equal(rows.due_ms, FIRST_DUE_MS), pc.less_equal(rows.due_ms, _LAST_OF_PYTHON_MS)
    )
    is_kept = pc.or_kleene(good, within)
    seq_given = given.is_there("seq")
    own_seq = pc.coalesce(given.read(SOURCE_SEQ, read.whole_number, pa.int64()), made_ms)
    lateness_ms = pc.coalesce(rows.lateness_ms, pa.scalar(contract.max_lateness_ms, pa.int64()))
    shown_name = pc.if_else(rejected, pc.utf8_slice_codeunits(rows.destination, 0, LONGEST_NAME), None)
    return {
        "schedule_id": _id_of(rows.name),
        "op": pc.fill_null(rows.op, SCHEDULE),
        "seq": pc.if_else(seq_given, rows.seq, own_seq),
        "seq_given": seq_given,
        "deliver_at_ms": pc.if_else(_true(pc.and_kleene(is_schedule, is_kept)), wheel_ms, None),
        "event_time_ms": made_ms,
        "destination": pc.coalesce(shown_name, pc.if_else(is_schedule, rows.destination, None)),
        "key": pc.if_else(carried, rows.key, None),
        "value": pc.if_else(carried, rows.value, None),
        "headers": pc.if_else(carried, read.headers_json(rows.headers), None),
        "max_lateness_ms": pc.if_else(is_schedule, lateness_ms, None),
    }


def _true(mask: pa.BooleanArray) -> pa.BooleanArray:
    return pc.fill_null(mask, fill_value=False)


def _id_of(names: pa.BinaryArray) -> pa.StringArray:
    """Ids as text, cut to the length that ids may have; null where they are not UTF-8."""
    is_text = read.is_utf8(names)
    kept = names if pc.all(is_text).as_py() in (True, None) else pc.if_else(is_text, names, None)
    return pc.utf8_slice_codeunits(kept.cast(pa.string()), 0, MAX_ID_BYTES)


def _leveled(given: Given, rows: _Command, contract: Contract, good: pa.BooleanArray) -> dict[str, pa.Array]:
    """The level of good schedules that have one, and by how much the wheel is to release a good schedule later."""
    is_good = pc.and_(good, rows.is_schedule)
    level_ms = error_ms = pa.nulls(given.rows, pa.int64())
    if contract.levels is not None:
        has_level = _true(pc.and_kleene(is_good, pc.greater(rows.level_ms, NO_LEVEL)))
        level_ms, error_ms = (
            pc.if_else(has_level, each, None) for each in (rows.level_ms, rows.level_error_ms)
        )
    if "spread" in given:
        is_once = pc.and_(is_good, pc.invert(given.is_there("repeat")))
        is_moved = pc.and_(is_once, pc.greater(rows.offset_ms, 0))
        error_ms = pc.if_else(is_moved, pc.add(pc.fill_null(error_ms, 0), rows.offset_ms), error_ms)
    return {"delay_level_ms": level_ms, "level_error_ms": error_ms}
