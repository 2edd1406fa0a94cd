"""Reads and checks batches of operations and events of the purgatory: columns of the user in, rows for the purgatory's
step out. What the columns mean: :mod:`wheel_udf.commands.operations`. As :mod:`wheel_udf.commands.command_reader`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from wheel_udf.commands import readers as read, time_readers as times
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.contract_reader import ContractReader
from wheel_udf.commands.inputs import Given
from wheel_udf.commands.operation_rules import Asked, operation_rules, shared_rules
from wheel_udf.commands.records import Records
from wheel_udf.commands.rules import (
    GOOD,
    MISREAD,
    SOURCE,
    WATCH_TEXTS,
    Read,
    Rule,
    first_broken,
    is_ahead,
)
from wheel_udf.common.command_facts import MAX_ID_BYTES
from wheel_udf.common.durations import BLANKS
from wheel_udf.common.names import LONGEST_NAME
from wheel_udf.purgatory.state import BEAT, CANCEL, CANCEL_OPERATION, EVENT, SUM

OPERATION: Final = -1
"""``what`` of an operation; an event has one of the kinds beside :data:`wheel_udf.purgatory.state.EVENT`."""

RECORD: Final = "_record"
"""A column with the original row as a struct, if the others were computed from it; the record of a reject."""

OUTPUT: Final = {
    "what": pa.int32(), "group": pa.string(), "name": pa.string(), "event_time_ms": pa.int64(), "source": pa.string(),
    "keys": pa.string(), "need": pa.int32(), "amount": pa.float64(), "deadline_ms": pa.int64(), "limit_ms": pa.int64(),
    "destination": pa.string(), "key": pa.binary(), "value": pa.binary(), "headers": pa.string(), "reject": pa.string(),
}  # fmt: skip
"""The columns of operations and events."""

_OPS: Final = {"": EVENT, "event": EVENT, "cancel": CANCEL, "cancel_operation": CANCEL_OPERATION}
_AT_LEAST: Final = re.compile(r"n:([0-9]{1,9})")
_SUM: Final = re.compile(r"sum>=([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?)")
_NUMBER: Final = re.compile(rf"[{BLANKS}]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[{BLANKS}]*")


class _Reader(ContractReader):
    """What both readers share."""

    def _rows(
        self,
        batch: pa.RecordBatch,
        rows: Read,
        rules: list[Rule],
        own: dict[str, pa.Array],
        ids: dict[str, pa.BinaryArray],
    ) -> pa.RecordBatch:
        """The rows of :data:`OUTPUT`; ``own`` are the columns that only operations or only events have."""
        broken = first_broken(rules, batch.num_rows)
        good = pa.array(broken == GOOD)
        is_time = good
        if self.contract.max_ahead_ms is not None:
            # Even if something else is wrong with the row: the clock may be computed from this column.
            is_time = pc.and_not(good, is_ahead(rows, self.contract.max_ahead_ms))
        given = self._given(batch)
        made = own | {
            **{name: pc.utf8_slice_codeunits(read.text(each), 0, MAX_ID_BYTES) for name, each in ids.items()},
            "event_time_ms": pc.if_else(is_time, rows.made_ms, None),
            "source": given.read(SOURCE, read.text, pa.string()),
            "reject": self._rejects(batch, rules, broken),
        }
        return pa.RecordBatch.from_pydict(
            {
                name: made[name].cast(kind) if name in made else pa.nulls(batch.num_rows, kind)
                for name, kind in OUTPUT.items()
            }
        )

    def _rejects(self, batch: pa.RecordBatch, rules: list[Rule], broken: np.ndarray) -> pa.StringArray:
        texts: list[str | None] = [None] * batch.num_rows
        for row, reason in self._reasons(WATCH_TEXTS, self._records(batch.columns), rules, broken):
            texts[row] = json.dumps(reason._asdict(), ensure_ascii=False, separators=(",", ":"))
        return pa.array(texts, pa.string())

    def _records(self, columns: list[pa.Array]) -> Records:
        if RECORD not in self.names:
            return Records(self.names, columns, (SOURCE, MISREAD))
        made = columns[self.names.index(RECORD)]
        return Records(made.type.names, made.flatten(), (SOURCE, MISREAD))


class OperationReader(_Reader):
    """Reads batches of operations."""

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads a batch.

        Raises:
            UnfitTypeError: A column has a type that no valid value can have.
        """
        given = self._given(batch)
        rows = _read_operation(given, batch.columns[-1], self.contract)
        ids = {"group": given.read("group", read.identity, pa.binary())}
        ids["name"] = given.read("op_id", read.identity, pa.binary())
        rules = shared_rules(given, rows, self.contract, "op_id", ids)
        rules += operation_rules(given, rows, self.contract)
        own = {
            "what": pa.repeat(OPERATION, batch.num_rows),
            "keys": pa.array(
                [None if each is None else "\0".join(_known(each)) for each in rows.keys], pa.string()
            ),
            "need": pc.fill_null(rows.need, 1),
            "amount": rows.threshold,
            "deadline_ms": rows.deadline_ms,
            "limit_ms": rows.limit_ms,
            "destination": pc.utf8_slice_codeunits(rows.destination, 0, LONGEST_NAME),
            "key": rows.key,
            "value": rows.value,
            "headers": read.headers_json(rows.headers),
        }
        return self._rows(batch, rows, rules, own, ids)


class EventReader(_Reader):
    """Reads batches of events."""

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads a batch.

        Raises:
            UnfitTypeError: A column has a type that no valid value can have.
        """
        given, count = self._given(batch), batch.num_rows
        rows = Read(
            batch_ms=batch.columns[-1],
            made_ms=times.event_ms(given, batch.columns[-1]),
            destination=pa.nulls(count, pa.string()),
            key=pa.nulls(count, pa.binary()),
            value=pa.nulls(count, pa.binary()),
            headers=pa.nulls(count, read.HEADERS),
        )
        what = read.code_of(given.read("op", read.words, pa.string()), _OPS)
        amount = given.read("amount", _amounts, pa.float64())
        ids = {name: given.read(column, read.identity, pa.binary()) for name, column in _IDS.items()}
        rules = shared_rules(given, rows, self.contract, "key", ids)
        if "op" in given:
            rules.insert(0, Rule("bad_op", pc.is_null(what), given.shown("op")))
        if "amount" in given:
            unread = pc.and_(given.is_there("amount"), pc.is_null(amount))
            rules.append(Rule("bad_amount", unread, given.shown("amount")))
        own = {
            "what": pc.fill_null(what, EVENT),
            "need": pa.repeat(0, count),
            "amount": pc.fill_null(amount, 0.0),
        }
        return self._rows(batch, rows, rules, own, ids)


_IDS: Final = {"group": "group", "name": "key"}


def _read_operation(given: Given, batch_ms: pa.Int64Array, contract: Contract) -> Asked:
    destination = given.read("destination", read.text, pa.string())
    if contract.default_destination is not None:
        destination = pc.fill_null(destination, contract.default_destination)
    made_ms = times.event_ms(given, batch_ms)
    keys = given.read("keys", _keys, _KEYS).to_pylist()
    distinct = [None if each is None else list(dict.fromkeys(each)) for each in keys]
    rule = pc.fill_null(given.read("rule", read.text, pa.string()), "any")
    needs = [
        _need(re.sub(f"[{BLANKS}]", "", word).lower(), -1 if each is None else len(each))
        for word, each in zip(rule.to_pylist(), distinct, strict=True)
    ]
    return Asked(
        batch_ms=batch_ms,
        made_ms=made_ms,
        destination=destination,
        key=given.read("key", read.octets, pa.binary()),
        value=given.read("value", read.octets, pa.binary()),
        headers=given.read("headers", read.headers, read.HEADERS),
        keys=distinct,
        need=pa.array([need for need, _ in needs], pa.int64()),
        threshold=pa.array([threshold for _, threshold in needs], pa.float64()),
        deadline_ms=_due(given, "deadline", made_ms),
        limit_ms=_due(given, "limit", made_ms),
    )


_KEYS: Final = pa.list_(pa.binary())


def _known(keys: list[bytes | None]) -> list[str]:
    return [each.decode(errors="replace") for each in keys if each is not None]


@lru_cache(maxsize=10_000)
def _need(rule: str, size: int) -> tuple[int | None, float]:
    """How many keys a rule needs, and its threshold; None: it is none. ``size`` is the number of keys."""
    fixed = {"any": 1, "all": size, "beat": BEAT}
    if rule in fixed:
        return fixed[rule], 0.0
    if found := _AT_LEAST.fullmatch(rule):
        number = int(found[1])
        return (number if 1 <= number <= size else None), 0.0
    threshold = float(found[1]) if (found := _SUM.fullmatch(rule)) else 0.0
    return (SUM if 0 < threshold < float("inf") else None), threshold


def _due(given: Given, name: str, made_ms: pa.Int64Array) -> pa.Int64Array:
    """An instant, or a duration after the event time."""
    at_ms = given.read(name, times.instants_ms, pa.int64(), round_up=True)
    values = given.values(name)
    if values is None or not read.are_octets(values.type):
        return at_ms
    return pc.coalesce(at_ms, pc.add(made_ms, times.durations_ms(values)))


def _amounts(values: pa.Array) -> pa.DoubleArray:
    """Doubles, not negative; null where it is not one."""
    kind = values.type
    if kinds.is_string(kind) or kinds.is_null(kind):
        numbers = pa.array([_number(each) for each in read.text(values).to_pylist()], pa.float64())
    elif kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        numbers = values.cast(pa.float64(), safe=False)
    else:
        raise TypeError("a number")
    within = pc.and_(pc.greater_equal(numbers, 0.0), pc.less(numbers, float("inf")))
    return pc.if_else(within, numbers, None)


def _number(words: str | None) -> float | None:
    return float(words) if words is not None and _NUMBER.fullmatch(words) else None


def _keys(values: pa.Array) -> pa.ListArray:
    kind: Any = values.type
    if kinds.is_list(kind):
        each = read.identity(values.values)
        return pa.ListArray.from_arrays(
            values.offsets, each, mask=pc.is_null(values) if values.null_count else None
        )
    names = read.identity(values)
    offsets = pa.array(np.arange(len(values) + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, names, mask=pc.is_null(values) if values.null_count else None)
