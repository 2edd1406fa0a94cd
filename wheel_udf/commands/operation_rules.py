"""The rules that operations and events of the purgatory can break: order, conditions, messages. As
:mod:`wheel_udf.commands.rules`.

The conditions read the columns of the input, and those that
:mod:`wheel_udf.commands.operations` has read from them, which begin with an underscore.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from wheel_udf.commands import readers as read
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.inputs import Inputs
from wheel_udf.commands.rules import (
    MOST_KEYS,
    Rule,
    destination_rules,
    event_time_rules,
    id_rules,
    is_ill_formed,
    is_too_far,
    payload_bytes,
    record_rules,
)
from wheel_udf.purgatory.state import BEAT, SUM


def shared_rules(given: Inputs, contract: Contract, name: str, column: str) -> list[Rule]:
    """The rules of both operations and events, in order. ``column`` was read from ``name``, an id or a key."""
    ids = id_rules(name, F.col(column)) + id_rules("group", F.col("_group"))
    return record_rules(given) + ids + event_time_rules(given, contract)


def operation_rules(given: Inputs, contract: Contract) -> list[Rule]:
    """The rules of operations alone, in order."""
    keys, need = F.col("_keys"), F.col("_need")
    deadline_ms, limit_ms, made_ms = F.col("_deadline_ms"), F.col("_limit_ms"), F.col("_made_ms")
    asked = {
        name: given[name].shown if name in given else read.null("string")
        for name in ("deadline", "limit", "rule")
    }
    bad_key = F.exists(keys, lambda key: key.isNull() | (key == "") | is_ill_formed(key))
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
        Rule("beyond_max_delay", is_too_far(deadline_ms, contract), asked["deadline"]),
    ]
    if "limit" in given:
        unread = limit_ms.isNull() | (limit_ms < deadline_ms) | is_too_far(limit_ms, contract)
        rules.append(
            Rule("bad_limit", asked["limit"].isNotNull() & (unread | need.isin(SUM, BEAT)), asked["limit"])
        )
    if "destination" in given or contract.default_destination is not None:
        rules += destination_rules(given, contract)
    if contract.max_value_bytes is not None:
        size = payload_bytes(given)
        rules.append(Rule("oversize", size > contract.max_value_bytes, size.cast("string")))
    return rules
