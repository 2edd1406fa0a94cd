"""The rules that operations and events of the purgatory can break: order, conditions, messages. As
:mod:`wheel_udf.commands.rules`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands import readers as read
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.inputs import Given
from wheel_udf.commands.rules import (
    MOST_KEYS,
    Read,
    Rule,
    destination_rules,
    event_time_rules,
    id_rules,
    is_too_far,
    nothing,
    record_rules,
    size_rules,
)
from wheel_udf.common.command_facts import MAX_ID_BYTES
from wheel_udf.purgatory.state import BEAT, SUM

Keys = list[list[bytes | None] | None]


@dataclass
class Asked(Read):
    """What was read of operations: n values each; null means missing, null or unreadable.

    Attributes:
        keys: The bytes of the keys of each, every key once.
        need: How many of them complete it (int64), or one of the kinds of the purgatory's state.
        threshold: Of the sum that completes it (float64); 0 for none.
        deadline_ms: UTC epoch ms (int64), as ``limit_ms``.
    """

    keys: Keys
    need: pa.Int64Array
    threshold: pa.DoubleArray
    deadline_ms: pa.Int64Array
    limit_ms: pa.Int64Array


def shared_rules(
    given: Given, rows: Read, contract: Contract, name: str, ids: Mapping[str, pa.BinaryArray]
) -> list[Rule]:
    """The rules of both operations and events, in order. ``ids["name"]`` was read from ``name``, an id or a key."""
    of_ids = id_rules(name, ids["name"]) + id_rules("group", ids["group"])
    return record_rules(given) + of_ids + event_time_rules(given, rows, contract)


def operation_rules(given: Given, rows: Asked, contract: Contract) -> list[Rule]:
    """The rules of operations alone, in order."""
    keys, need, asked = rows.keys, rows.need, given.shown("deadline")
    deadline_ms, limit_ms, made_ms = rows.deadline_ms, rows.limit_ms, rows.made_ms

    def shown_keys(row: int) -> str | None:
        found = keys[row]
        if found is None:
            return None
        words = [None if each is None else each.decode(errors="replace") for each in found]
        return json.dumps(words, ensure_ascii=False, separators=(",", ":"))

    def shown_count(row: int) -> str | None:
        found = keys[row]
        return f"{len(found)} keys" if found is not None and len(found) > MOST_KEYS else shown_keys(row)

    is_past = pc.less(deadline_ms, made_ms)
    is_beat = pc.and_kleene(pc.equal(need, BEAT), pc.equal(deadline_ms, made_ms))
    rules = [
        Rule(
            "no_keys", pa.array([not each or len(each) > MOST_KEYS for each in keys], pa.bool_()), shown_count
        ),
        Rule("bad_key", pa.array([_has_bad_key(each) for each in keys], pa.bool_()), shown_keys),
        Rule("bad_rule", pc.is_null(need), given.shown("rule")),
        Rule("no_deadline", pc.invert(given.is_there("deadline")), nothing),
        Rule("bad_deadline", pc.is_null(deadline_ms), asked),
        Rule("deadline_past", pc.or_kleene(is_past, is_beat), asked),
        Rule("beyond_max_delay", is_too_far(rows, deadline_ms, contract), asked),
    ]
    if "limit" in given:
        unread = pc.or_kleene(pc.is_null(limit_ms), pc.less(limit_ms, deadline_ms))
        unread = pc.or_kleene(unread, is_too_far(rows, limit_ms, contract))
        unread = pc.or_kleene(unread, pc.is_in(need, pa.array([SUM, BEAT], pa.int64())))
        rules.append(Rule("bad_limit", pc.and_kleene(given.is_there("limit"), unread), given.shown("limit")))
    if "destination" in given or contract.default_destination is not None:
        rules += destination_rules(given, rows, contract)
    return rules + size_rules(rows, contract)


def _has_bad_key(keys: list[bytes | None] | None) -> bool:
    return keys is not None and any(
        not each or len(each) > MAX_ID_BYTES or b"\0" in each or not read.is_text(each) for each in keys
    )
