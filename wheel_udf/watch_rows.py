"""Operations and events of users as rows of the purgatory's step: :func:`parse_operations`, :func:`parse_events`.

As :mod:`wheel_udf.commands`, and with its tools: columns are found by name in any case, read, checked in the JVM alone, and a row that breaks a
rule is no error: it becomes a row with a ``reject``.

==================  ================================================================================================
operations          accepted types, and meaning
==================  ================================================================================================
``op_id``           string or a whole number; 1 to 512 bytes of UTF-8 without NUL; an operation's name in its group
``group``           likewise; what an operation and its events share
``keys``            array of strings, or a string for one key; what it waits for, each as an id; repeats are one
``rule``            ``any`` (also null), ``all``, ``n:3``, ``sum>=100`` (of amounts), ``beat``
``deadline``        timestamp, date, ISO 8601 text, or a duration counted from ``event_time``
``limit``           as ``deadline``: makes it a join, whose deadline is put off up to here; null: none
``event_time``      as in commands; null: the time of the batch
``destination``     string: where the outcome goes; may be left out where outcomes go nowhere
``key``, ``value``  binary or string; passed through
``headers``         array of structs (key, value) or map; passed through
==================  ================================================================================================

==================  ================================================================================================
events              accepted types, and meaning
==================  ================================================================================================
``group``           as above
``key``             as an id: what has happened, or (CANCEL) is cancelled; of CANCEL_OPERATION the operation's id
``op``              string: EVENT (also null), CANCEL, CANCEL_OPERATION; case and outer blanks ignored
``amount``          a number, not negative; null: 0; counts for rules that sum
``event_time``      as above
==================  ================================================================================================

Both may have ``source_coordinates`` and ``_corrupt_record``, as commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf import columns as read
from wheel_udf.commands import interpreted, recorded_row
from wheel_udf.contract import EVENT_COLUMNS, OPERATION_COLUMNS, Contract
from wheel_udf.durations import BLANKS
from wheel_udf.durations import RULE as DURATION_RULE
from wheel_udf.rules import (
    ID_RULE,
    INSTANT_RULE,
    MAX_ID_BYTES,
    TEXTS,
    Rule,
    Text,
    destination_rules,
    error_message,
    first_broken,
    is_ahead,
    payload_bytes,
    shown,
)

OPERATION = -1
"""What ``what`` says of an operation; of others see :data:`wheel_udf.watch_state.EVENT` and its like."""

MOST_KEYS: Final = 10_000

RECORD: Final = "_record"
"""A column with the row that the others were made of, a struct: what a reject tells of then."""

_SOURCE: Final = "source_coordinates"
_UNREADABLE: Final = "_corrupt_record"
_OPERATION_NAMES: Final = (*OPERATION_COLUMNS, _SOURCE, _UNREADABLE)
_EVENT_NAMES: Final = (*EVENT_COLUMNS, _SOURCE, _UNREADABLE)
_OPS: Final = {"": 0, "event": 0, "cancel": 1, "cancel_operation": 2}
_RULE_FORMS: Final = "any, all, n:<keys>, sum>=<amount> or beat"
_DEADLINE_RULE: Final = f"{INSTANT_RULE}; or {DURATION_RULE}"

WATCH_TEXTS: Final[Mapping[str, Text]] = {
    **{name: TEXTS[name] for name in ("unreadable", "bad_event_time", "event_time_ahead", "no_destination")},
    **{name: TEXTS[name] for name in ("bad_destination", "unknown_destination", "oversize")},
    "bad_op": Text("not an act", "op", "EVENT, CANCEL or CANCEL_OPERATION"),
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
    "beyond_max_delay": Text("due too far away", "deadline", "{max_delay} after event_time"),
    "bad_limit": Text(
        "not a limit", "limit", "as deadline, not before it, and with any, all or n:<keys> alone"
    ),
}
"""What is wrong with a rejected operation or event, by its code."""


def parse_operations(operations: DataFrame, contract: Contract) -> DataFrame:
    """Reads and checks operations.

    Args:
        operations: A batch or streaming frame with the columns above.
        contract: ``max_delay_ms`` (of deadlines), ``max_value_bytes``, ``max_ahead_ms`` and destinations hold here too.

    Returns:
        A row for each: ``what`` int (:data:`OPERATION`), ``group``, ``name`` (the id), ``keys`` (joined by NUL), ``need`` int, ``amount`` double (a sum's
        threshold), ``event_time_ms``, ``deadline_ms``, ``limit_ms`` long, ``destination``, ``key``, ``value``, ``headers`` (JSON), ``source``,
        and of rejected ones ``reject`` (JSON of code, message and record).

    Raises:
        ContractError: No ``op_id``, ``group``, ``keys`` or ``deadline``, two columns of one name, or a type that can hold no valid value.
    """
    needed = ("op_id", "group", "keys", "deadline")
    frame, given, original = read.located(operations, _OPERATION_NAMES, required=needed, what="operations")
    frame = frame.select("*", read.batch_ms().alias("_batch_ms"))
    frame = frame.select("*", *_read_operation(given, contract))
    frame = frame.select("*", *_derived(given))
    rules = [*_common(given, contract, "op_id", "_name"), *_operation_rules(given, contract)]
    frame = _checked(frame, rules, contract)
    return frame.select(
        F.lit(OPERATION).alias("what"),
        *_identified(given),
        F.array_join("_keys", "\0").alias("keys"),
        F.coalesce("_need", F.lit(1)).cast("int").alias("need"),
        F.col("_threshold").alias("amount"),
        F.col("_deadline_ms").alias("deadline_ms"),
        F.col("_limit_ms").alias("limit_ms"),
        F.when(F.col("_code").isNull(), F.col("_destination"))
        .otherwise(shown(F.col("_destination"), 249))
        .alias("destination"),
        F.col("_key").alias("key"),
        F.col("_value").alias("value"),
        F.to_json("_headers").alias("headers"),
        _reject(original, rules, contract),
    )


def parse_events(events: DataFrame, contract: Contract) -> DataFrame:
    """Reads and checks events; as :func:`parse_operations`, whose columns the rows have; ``what`` says what they are, ``name`` is the key or the id."""
    frame, given, original = read.located(events, _EVENT_NAMES, required=("group", "key"), what="events")
    frame = frame.select("*", read.batch_ms().alias("_batch_ms"))
    op = given["op"].read(_op) if "op" in given else F.lit(0)
    amount = given["amount"].read(_amount) if "amount" in given else F.lit(0.0)
    frame = frame.select(
        "*",
        op.cast("int").alias("_op"),
        F.coalesce(amount, F.lit(0.0)).alias("_amount"),
        given["key"].read(read.identity).alias("_name"),
        *_read_common(given),
    )
    rules = _common(given, contract, "key", "_name")
    if said := given.get("op"):
        rules.insert(0, Rule("bad_op", F.col("_op").isNull(), said.shown))
    if said := given.get("amount"):
        unread = said.column.isNotNull() & amount.isNull()
        rules.append(Rule("bad_amount", unread, said.shown))
    frame = _checked(frame, rules, contract)
    text, octets = F.lit(None).cast("string"), F.lit(None).cast("binary")
    return frame.select(
        F.coalesce("_op", F.lit(0)).alias("what"),
        *_identified(given),
        text.alias("keys"),
        F.lit(0).alias("need"),
        F.col("_amount").alias("amount"),
        *(F.lit(None).cast("long").alias(name) for name in ("deadline_ms", "limit_ms")),
        text.alias("destination"),
        octets.alias("key"),
        octets.alias("value"),
        text.alias("headers"),
        _reject(original, rules, contract),
    )


# --- reading ------------------------------------------------------------------------------------------------------------


def _read_common(given: read.Inputs) -> list[Column]:
    made_ms = F.col("_batch_ms")
    if made := given.get("event_time"):
        made_ms = F.when(made.column.isNull(), made_ms).otherwise(made.read(read.instant_ms, round_up=False))
    return [made_ms.alias("_made_ms"), given["group"].read(read.identity).alias("_group")]


def _read_operation(given: read.Inputs, contract: Contract) -> list[Column]:
    destination = given["destination"].read(read.text) if "destination" in given else read.null("string")
    if contract.default_destination is not None:
        destination = F.coalesce(destination, F.lit(contract.default_destination))
    keys = given["keys"].read(_keys)
    rule = given["rule"].read(read.text) if "rule" in given else read.null("string")
    rule = F.lower(F.regexp_replace(F.coalesce(rule, F.lit("any")), f"[{BLANKS}]", ""))
    return [
        *_read_common(given),
        given["op_id"].read(read.identity).alias("_name"),
        F.array_distinct(keys).alias("_keys"),
        rule.alias("_rule"),
        *(column for name in ("deadline", "limit") for column in _instant_or_duration(given, name)),
        destination.alias("_destination"),
        (given["key"].read(read.octets) if "key" in given else read.null("binary")).alias("_key"),
        (given["value"].read(read.octets) if "value" in given else read.null("binary")).alias("_value"),
        (given["headers"].read(read.headers) if "headers" in given else read.null(read.HEADERS)).alias(
            "_headers"
        ),
    ]


def _instant_or_duration(given: read.Inputs, name: str) -> list[Column]:
    """An instant and the parts of a duration; at least one of them is null."""
    asked = given.get(name)
    parts = read.null("array<string>")
    if asked is not None and isinstance(asked.kind, T.StringType | T.BinaryType | T.CharType | T.VarcharType):
        parts = read.duration_parts(asked.shown)
    at_ms = asked.read(read.instant_ms, round_up=True) if asked is not None else read.null("long")
    return [at_ms.alias(f"_{name}_at_ms"), parts.alias(f"_{name}_parts")]


def _derived(given: read.Inputs) -> list[Column]:
    """What needs two columns, or a second look at one."""
    size, rule = F.size("_keys"), F.col("_rule")
    n = F.regexp_extract(rule, r"\An:([0-9]{1,9})\z", 1).try_cast("int")
    threshold = F.regexp_extract(rule, r"\Asum>=([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?)\z", 1).try_cast(
        "double"
    )
    need = (
        F.when(rule == "any", 1)
        .when(rule == "all", size)
        .when(rule == "beat", -1)
        .when((n >= 1) & (n <= size), n)
        .when((threshold > 0) & (threshold < float("inf")), 0)
    )
    due = {name: _due(given, name) for name in ("deadline", "limit")}
    return [
        need.alias("_need"),
        F.coalesce(threshold, F.lit(0.0)).alias("_threshold"),
        *(column.alias(f"_{name}_ms") for name, column in due.items()),
    ]


def _due(given: read.Inputs, name: str) -> Column:
    if name not in given:
        return read.null("long")
    span_ms = interpreted(
        read.duration_ms(given[name].shown, F.col(f"_{name}_parts")), given[name].column.isNotNull()
    )
    return F.coalesce(F.col(f"_{name}_at_ms"), F.col("_made_ms") + span_ms)


def _op(column: Column, kind: T.DataType) -> Column:
    word = F.coalesce(F.lower(F.btrim(read.text(column, kind), F.lit(BLANKS))), F.lit(""))
    chain = F.when(word.isin([each for each, number in _OPS.items() if number == 0]), 0)
    for each, number in _OPS.items():
        chain = chain.when(word == each, number)
    return chain


def _amount(column: Column, kind: T.DataType) -> Column:
    """A double, not negative; null for what is none."""
    if not isinstance(kind, T.NumericType | T.StringType | T.NullType):
        raise TypeError("a number")
    number = column.try_cast("double")
    return F.when((number >= 0) & (number < float("inf")), number)


def _keys(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.ArrayType):
        _ = read.identity(column, kind.elementType)
        return column.cast("array<string>")
    return F.when(column.isNotNull(), F.array(read.identity(column, kind)))


# --- checking -----------------------------------------------------------------------------------------------------------


def _ill_formed(name: Column) -> Column:
    return ~F.is_valid_utf8(name) | (F.octet_length(name) > MAX_ID_BYTES) | F.contains(name, F.lit("\0"))


def _common(given: read.Inputs, contract: Contract, name: str, column: str) -> list[Rule]:
    """The rules of operations and events alike, in order."""
    rules = []
    if unreadable := given.get(_UNREADABLE):
        rules.append(Rule("unreadable", unreadable.column.isNotNull(), unreadable.shown))
    for what, read_as in ((name, F.col(column)), ("group", F.col("_group"))):
        rules.append(Rule(f"no_{what}", read_as.isNull() | (read_as == ""), read_as))
        rules.append(Rule(f"bad_{what}", _ill_formed(read_as), read_as))
    if made := given.get("event_time"):
        rules.append(Rule("bad_event_time", F.col("_made_ms").isNull(), made.shown))
        if contract.max_ahead_ms is not None:
            rules.append(Rule("event_time_ahead", is_ahead(contract.max_ahead_ms), made.shown))
    return rules


def _operation_rules(given: read.Inputs, contract: Contract) -> list[Rule]:
    keys, need = F.col("_keys"), F.col("_need")
    deadline_ms, limit_ms, made_ms = F.col("_deadline_ms"), F.col("_limit_ms"), F.col("_made_ms")
    asked = {
        name: given[name].shown if name in given else read.null("string")
        for name in ("deadline", "limit", "rule")
    }
    bad_key = F.exists(keys, lambda key: key.isNull() | (key == "") | _ill_formed(key))
    too_far = F.abs(deadline_ms) > read.MAX_INSTANT_MS
    if contract.max_delay_ms is not None:
        too_far |= deadline_ms - made_ms > contract.max_delay_ms
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
            (deadline_ms < made_ms) | ((need == -1) & (deadline_ms == made_ms)),
            asked["deadline"],
        ),
        Rule("beyond_max_delay", too_far, asked["deadline"]),
    ]
    if "limit" in given:
        unread = limit_ms.isNull() | (limit_ms < deadline_ms) | (F.abs(limit_ms) > read.MAX_INSTANT_MS)
        if contract.max_delay_ms is not None:
            unread |= limit_ms - made_ms > contract.max_delay_ms
        rules.append(Rule("bad_limit", asked["limit"].isNotNull() & (unread | (need < 1)), asked["limit"]))
    if "destination" in given or contract.default_destination is not None:
        rules += destination_rules(given, contract)
    if contract.max_value_bytes is not None:
        size = payload_bytes(given)
        rules.append(Rule("oversize", size > contract.max_value_bytes, size.cast("string")))
    return rules


def _checked(frame: DataFrame, rules: list[Rule], contract: Contract) -> DataFrame:
    frame = frame.select("*", first_broken(rules).alias("_code"))
    ahead = F.lit(False) if contract.max_ahead_ms is None else is_ahead(contract.max_ahead_ms)
    # Whatever else is wrong with the row: the clock may be made from this column.
    return frame.select("*", F.when(~ahead & F.col("_code").isNull(), F.col("_made_ms")).alias("_event_ms"))


def _identified(given: read.Inputs) -> list[Column]:
    source = given[_SOURCE].read(read.text) if _SOURCE in given else read.null("string")
    good = F.col("_code").isNull()
    return [
        *(
            F.when(good, F.col(f"_{name}")).otherwise(shown(F.col(f"_{name}"), MAX_ID_BYTES)).alias(name)
            for name in ("group", "name")
        ),
        F.col("_event_ms").alias("event_time_ms"),
        F.make_valid_utf8(source).alias("source"),
    ]


def _reject(original: list[read.Input], rules: list[Rule], contract: Contract) -> Column:
    code = F.col("_code")
    message = interpreted(error_message(code, rules, contract, WATCH_TEXTS), code.isNotNull())
    made = next((each for each in original if each.name == RECORD), None)
    if made is not None:
        assert isinstance(made.kind, T.StructType)
        original = [
            read.Input(field.name, made.column.getField(field.name), field.dataType) for field in made.kind
        ]
    record = interpreted(recorded_row(original, _SOURCE), code.isNotNull())
    told = F.struct(code.alias("error_code"), message.alias("error_message"), record.alias("record"))
    return F.when(code.isNotNull(), F.to_json(told)).alias("reject")
