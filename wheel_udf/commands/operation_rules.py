"""The rules that operations and events of the purgatory can break: order, conditions, messages. As
:mod:`wheel_udf.commands.rules`.

:data:`WATCH_TEXTS` has all codes. The conditions read the columns of the input, and those that
:mod:`wheel_udf.commands.operations` has read from them, which begin with an underscore.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import functions as F

from wheel_udf.commands import readers as read
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.inputs import Inputs
from wheel_udf.commands.rules import (
    INSTANT_RULE,
    TEXTS,
    UNREADABLE,
    Rule,
    Text,
    counted_from_ms,
    destination_rules,
    is_ahead,
    is_ill_formed,
    misread_rules,
    payload_bytes,
)
from wheel_udf.common.command_facts import ID_RULE
from wheel_udf.common.durations import DURATION_RULE
from wheel_udf.common.instants import MAX_INSTANT_MS
from wheel_udf.purgatory.state import BEAT, SUM

MOST_KEYS: Final = 10_000

_RULE_FORMS: Final = "any, all, n:<keys>, sum>=<amount> or beat"
_DEADLINE_RULE: Final = f"{INSTANT_RULE}; or {DURATION_RULE}"

WATCH_TEXTS: Final[Mapping[str, Text]] = {
    **{
        name: TEXTS[name]
        for name in ("bad_type", "unreadable", "bad_event_time", "event_time_ahead", "no_destination")
    },
    **{name: TEXTS[name] for name in ("bad_destination", "unknown_destination", "oversize")},
    "bad_op": Text("not an operation on a key", "op", "EVENT, CANCEL or CANCEL_OPERATION"),
    "no_op_id": Text("no id", "op_id", ID_RULE),
    "bad_op_id": Text("not an id", "op_id", ID_RULE),
    "no_group": Text("no group", "group", ID_RULE, "an operation and its events share one"),
    "bad_group": Text("not a group", "group", ID_RULE),
    "no_keys": Text("no keys", "keys", f"1 to {MOST_KEYS} keys to wait for"),
    "no_key": Text("no key", "key", ID_RULE),
    "bad_key": Text("not a key", "key", ID_RULE),
    "bad_rule": Text(
        "not a rule", "rule", f"{_RULE_FORMS}; at least 1 and not more keys than there are, an amount above 0"
    ),
    "bad_amount": Text("not an amount", "amount", "a number, not negative"),
    "no_deadline": Text("no deadline", "deadline", _DEADLINE_RULE),
    "bad_deadline": Text("not a deadline", "deadline", _DEADLINE_RULE),
    "deadline_past": Text(
        "a deadline in the past",
        "deadline",
        "not before event_time; of a beat after it",
        "durations count from event_time",
    ),
    "beyond_max_delay": Text("due too far away", "deadline", "{max_delay} after {counted_from}"),
    "bad_limit": Text(
        "not a limit", "limit", "as deadline, not before it, and with any, all or n:<keys> alone"
    ),
}
"""What is wrong with a rejected operation or event, by its code."""


def shared_rules(given: Inputs, contract: Contract, name: str, column: str) -> list[Rule]:
    """The rules of both operations and events, in order. ``column`` was read from ``name``, an id or a key."""
    rules = misread_rules(given)
    if unreadable := given.get(UNREADABLE):
        rules.append(Rule("unreadable", unreadable.column.isNotNull(), unreadable.shown))
    for what, read_as in ((name, F.col(column)), ("group", F.col("_group"))):
        rules.append(Rule(f"no_{what}", read_as.isNull() | (read_as == ""), read_as))
        rules.append(Rule(f"bad_{what}", is_ill_formed(read_as), read_as))
    if made := given.get("event_time"):
        rules.append(Rule("bad_event_time", F.col("_made_ms").isNull(), made.shown))
        if contract.max_ahead_ms is not None:
            rules.append(Rule("event_time_ahead", is_ahead(contract.max_ahead_ms), made.shown))
    return rules


def operation_rules(given: Inputs, contract: Contract) -> list[Rule]:
    """The rules of operations alone, in order."""
    keys, need = F.col("_keys"), F.col("_need")
    deadline_ms, limit_ms, made_ms = F.col("_deadline_ms"), F.col("_limit_ms"), F.col("_made_ms")
    asked = {
        name: given[name].shown if name in given else read.null("string")
        for name in ("deadline", "limit", "rule")
    }
    bad_key = F.exists(keys, lambda key: key.isNull() | (key == "") | is_ill_formed(key))
    too_far = F.abs(deadline_ms) > MAX_INSTANT_MS
    if contract.max_delay_ms is not None:
        too_far |= deadline_ms - counted_from_ms(contract) > contract.max_delay_ms
    rules = [
        Rule(
            "no_keys",
            keys.isNull() | (F.size(keys) == 0) | (F.size(keys) > MOST_KEYS),
            F.when(F.size(keys) > MOST_KEYS, F.concat(F.size(keys).cast("string"), F.lit(" keys"))).otherwise(
                F.to_json(keys)
            ),
        ),
        Rule("bad_key", bad_key, F.to_json(keys)),
        Rule("bad_rule", need.isNull(), asked["rule"]),
        Rule("no_deadline", asked["deadline"].isNull(), read.null("string")),
        Rule("bad_deadline", deadline_ms.isNull(), asked["deadline"]),
        Rule(
            "deadline_past",
            (deadline_ms < made_ms) | ((need == BEAT) & (deadline_ms == made_ms)),
            asked["deadline"],
        ),
        Rule("beyond_max_delay", too_far, asked["deadline"]),
    ]
    if "limit" in given:
        unread = limit_ms.isNull() | (limit_ms < deadline_ms) | (F.abs(limit_ms) > MAX_INSTANT_MS)
        if contract.max_delay_ms is not None:
            unread |= limit_ms - counted_from_ms(contract) > contract.max_delay_ms
        rules.append(
            Rule("bad_limit", asked["limit"].isNotNull() & (unread | need.isin(SUM, BEAT)), asked["limit"])
        )
    if "destination" in given or contract.default_destination is not None:
        rules += destination_rules(given, contract)
    if contract.max_value_bytes is not None:
        size = payload_bytes(given)
        rules.append(Rule("oversize", size > contract.max_value_bytes, size.cast("string")))
    return rules
