"""Reads operations and events of the purgatory: frames of user columns in, rows for the purgatory's step out.

Works as :mod:`wheel_udf.commands.parse`: columns are found by name in any case, read and checked in the JVM
alone, and a row that breaks a rule does not raise: it gets a ``reject``. The rules:
:mod:`wheel_udf.commands.operation_rules`.

==================  ================================================================================================
operations          accepted types, and meaning
==================  ================================================================================================
``op_id``           string or a whole number; 1 to 512 bytes of UTF-8 without NUL; an operation's name in its group
``group``           as ``op_id``; shared by an operation and its events
``keys``            array of strings, or a string for one key; each as an id; repeats count once
``rule``            ``any`` (also null), ``all``, ``n:3``, ``sum>=100`` (of amounts), ``beat``
``deadline``        timestamp, date, ISO 8601 text, or a duration counted from ``event_time``
``limit``           as ``deadline``: makes it a join, whose deadline is extended up to here; null: none
``event_time``      as in commands; null: the time of the batch
``destination``     string: where the outcome goes; may be missing where outcomes are not delivered
``key``, ``value``  binary or string; passed through
``headers``         array of structs (key, value) or map; passed through
==================  ================================================================================================

==================  ================================================================================================
events              accepted types, and meaning
==================  ================================================================================================
``group``           as above
``key``             as an id: the key of the event, or (CANCEL) to cancel; of CANCEL_OPERATION the operation's id
``op``              string: EVENT (also null), CANCEL, CANCEL_OPERATION; case and outer blanks ignored
``amount``          a number, not negative; null: 0; for rules that sum
``event_time``      as above
==================  ================================================================================================

Both may have ``source_coordinates`` and ``_corrupt_record``, like commands.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame, functions as F, types as T

from wheel_udf.commands import readers as read, time_readers as times
from wheel_udf.commands.contract import EVENT_COLUMNS, OPERATION_COLUMNS, Contract
from wheel_udf.commands.generated_code import interpreted
from wheel_udf.commands.inputs import Input, Inputs, located, read_or_null
from wheel_udf.commands.operation_rules import operation_rules, shared_rules
from wheel_udf.commands.records import record_of
from wheel_udf.commands.rules import (
    MISREAD,
    SOURCE,
    UNREADABLE,
    WATCH_TEXTS,
    Rule,
    error_message,
    first_broken,
    is_ahead,
    shown,
)
from wheel_udf.common.command_facts import MAX_ID_BYTES
from wheel_udf.common.durations import BLANKS
from wheel_udf.purgatory.state import BEAT, CANCEL, CANCEL_OPERATION, EVENT, SUM

OPERATION = -1
"""``what`` of an operation; an event has one of the kinds beside :data:`wheel_udf.purgatory.state.EVENT`."""

RECORD: Final = "_record"
"""A column with the original row as a struct, if the others were computed from it; the record of a reject."""

_OPERATION_NAMES: Final = (*OPERATION_COLUMNS, SOURCE, UNREADABLE, MISREAD)
_EVENT_NAMES: Final = (*EVENT_COLUMNS, SOURCE, UNREADABLE, MISREAD)
_OPS: Final = {"": EVENT, "event": EVENT, "cancel": CANCEL, "cancel_operation": CANCEL_OPERATION}


def parse_operations(operations: DataFrame, contract: Contract) -> DataFrame:
    """Reads and checks operations.

    Args:
        operations: A batch or streaming frame with the columns above.
        contract: ``max_delay_ms`` (of deadlines), ``max_value_bytes``, ``max_ahead_ms`` and destinations
            apply here, too.

    Returns:
        A row for each: ``what`` int (:data:`OPERATION`), ``group``, ``name`` (the id), ``keys`` (joined by
        NUL), ``need`` int, ``amount`` double (a sum's threshold), ``event_time_ms``, ``deadline_ms``,
        ``limit_ms`` long, ``destination``, ``key``, ``value``, ``headers`` (JSON), ``source``, and of
        rejected ones ``reject`` (JSON of code, message and record).

    Raises:
        ContractError: ``op_id``, ``group``, ``keys`` or ``deadline`` is missing, two columns have one name,
            or a type can hold no valid value.
    """
    needed = ("op_id", "group", "keys", "deadline")
    frame, given, original = located(operations, _OPERATION_NAMES, required=needed, what="operations")
    frame = frame.select("*", read.batch_ms().alias("_batch_ms"))
    frame = frame.select("*", *_read_operation(given, contract))
    frame = frame.select("*", *_derived(given))
    rules = [*shared_rules(given, contract, "op_id", "_name"), *operation_rules(given, contract)]
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
    """Reads and checks events, as :func:`parse_operations`; ``what`` is the kind of event, ``name`` its key or id."""
    frame, given, original = located(events, _EVENT_NAMES, required=("group", "key"), what="events")
    frame = frame.select("*", read.batch_ms().alias("_batch_ms"))
    op = given["op"].read(_op) if "op" in given else F.lit(EVENT)
    amount = read_or_null(given, "amount", _amount, "double")
    frame = frame.select(
        "*",
        op.cast("int").alias("_op"),
        F.coalesce(amount, F.lit(0.0)).alias("_amount"),
        given["key"].read(read.identity).alias("_name"),
        *_read_common(given),
    )
    rules = shared_rules(given, contract, "key", "_name")
    if asked := given.get("op"):
        rules.insert(0, Rule("bad_op", F.col("_op").isNull(), asked.shown))
    if asked := given.get("amount"):
        unread = asked.column.isNotNull() & amount.isNull()
        rules.append(Rule("bad_amount", unread, asked.shown))
    frame = _checked(frame, rules, contract)
    text, octets = F.lit(None).cast("string"), F.lit(None).cast("binary")
    return frame.select(
        F.coalesce("_op", F.lit(EVENT)).alias("what"),
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


# --- reading --------------------------------------------------------------------------------------


def _read_common(given: Inputs) -> list[Column]:
    return [times.event_ms(given).alias("_made_ms"), given["group"].read(read.identity).alias("_group")]


def _read_operation(given: Inputs, contract: Contract) -> list[Column]:
    column = partial(read_or_null, given)
    destination = column("destination", read.text, "string")
    if contract.default_destination is not None:
        destination = F.coalesce(destination, F.lit(contract.default_destination))
    rule = F.coalesce(column("rule", read.text, "string"), F.lit("any"))
    return [
        *_read_common(given),
        given["op_id"].read(read.identity).alias("_name"),
        F.array_distinct(given["keys"].read(_keys)).alias("_keys"),
        F.lower(F.regexp_replace(rule, f"[{BLANKS}]", "")).alias("_rule"),
        *(column for name in ("deadline", "limit") for column in _instant_or_duration(given, name)),
        destination.alias("_destination"),
        column("key", read.octets, "binary").alias("_key"),
        column("value", read.octets, "binary").alias("_value"),
        column("headers", read.headers, read.HEADERS).alias("_headers"),
    ]


def _instant_or_duration(given: Inputs, name: str) -> list[Column]:
    """An instant and the parts of a duration; at least one of them is null."""
    asked = given.get(name)
    parts = read.null("array<string>")
    if asked is not None and isinstance(asked.kind, T.StringType | T.BinaryType | T.CharType | T.VarcharType):
        parts = times.duration_parts(asked.shown)
    at_ms = read_or_null(given, name, times.instant_ms, "long", round_up=True)
    return [at_ms.alias(f"_{name}_at_ms"), parts.alias(f"_{name}_parts")]


def _derived(given: Inputs) -> list[Column]:
    """Values that need two columns, or an intermediate result."""
    size, rule = F.size("_keys"), F.col("_rule")
    n = F.regexp_extract(rule, r"\An:([0-9]{1,9})\z", 1).try_cast("int")
    threshold = F.regexp_extract(rule, r"\Asum>=([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?)\z", 1).try_cast(
        "double"
    )
    need = (
        F.when(rule == "any", 1)
        .when(rule == "all", size)
        .when(rule == "beat", BEAT)
        .when((n >= 1) & (n <= size), n)
        .when((threshold > 0) & (threshold < float("inf")), SUM)
    )
    due = {name: _due(given, name) for name in ("deadline", "limit")}
    return [
        need.alias("_need"),
        F.coalesce(threshold, F.lit(0.0)).alias("_threshold"),
        *(column.alias(f"_{name}_ms") for name, column in due.items()),
    ]


def _due(given: Inputs, name: str) -> Column:
    if name not in given:
        return read.null("long")
    span_ms = interpreted(
        times.duration_ms(given[name].shown, F.col(f"_{name}_parts")), given[name].column.isNotNull()
    )
    return F.coalesce(F.col(f"_{name}_at_ms"), F.col("_made_ms") + span_ms)


def _op(column: Column, kind: T.DataType) -> Column:
    word = F.coalesce(F.lower(F.btrim(read.text(column, kind), F.lit(BLANKS))), F.lit(""))
    chain = F.when(word.isin([each for each, number in _OPS.items() if number == EVENT]), EVENT)
    for each, number in _OPS.items():
        chain = chain.when(word == each, number)
    return chain


def _amount(column: Column, kind: T.DataType) -> Column:
    """A double, not negative; null where it is not one."""
    if not isinstance(kind, T.NumericType | T.StringType | T.NullType):
        raise TypeError("a number")
    number = column.try_cast("double")
    return F.when((number >= 0) & (number < float("inf")), number)


def _keys(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.ArrayType):
        _ = read.identity(column, kind.elementType)
        return column.cast("array<string>")
    return F.when(column.isNotNull(), F.array(read.identity(column, kind)))


# --- checking -------------------------------------------------------------------------------------


def _checked(frame: DataFrame, rules: list[Rule], contract: Contract) -> DataFrame:
    frame = frame.select("*", first_broken(rules).alias("_code"))
    ahead = F.lit(False) if contract.max_ahead_ms is None else is_ahead(contract.max_ahead_ms)
    # Even if something else is wrong with the row: the clock may be computed from this column.
    return frame.select("*", F.when(~ahead & F.col("_code").isNull(), F.col("_made_ms")).alias("_event_ms"))


def _identified(given: Inputs) -> list[Column]:
    source = read_or_null(given, SOURCE, read.text, "string")
    good = F.col("_code").isNull()
    return [
        *(
            F.when(good, F.col(f"_{name}")).otherwise(shown(F.col(f"_{name}"), MAX_ID_BYTES)).alias(name)
            for name in ("group", "name")
        ),
        F.col("_event_ms").alias("event_time_ms"),
        F.make_valid_utf8(source).alias("source"),
    ]


def _reject(original: list[Input], rules: list[Rule], contract: Contract) -> Column:
    code = F.col("_code")
    message = interpreted(error_message(code, rules, contract, WATCH_TEXTS), code.isNotNull())
    made = next((each for each in original if each.name == RECORD), None)
    if made is not None:
        assert isinstance(made.kind, T.StructType)
        original = [
            Input(field.name, made.column.getField(field.name), field.dataType) for field in made.kind
        ]
    record = interpreted(record_of(original, SOURCE, MISREAD), code.isNotNull())
    reason = F.struct(code.alias("error_code"), message.alias("error_message"), record.alias("record"))
    return F.when(code.isNotNull(), F.to_json(reason)).alias("reject")
