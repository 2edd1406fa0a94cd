"""The rules that a command can break: order, conditions, messages.

:data:`TEXTS` lists all codes in the order in which they are checked; the first broken rule gives the row its
code. Only the first eight apply to a CANCEL or a FIRE_NOW: it needs a readable record, an id, a readable ``seq`` and an
``event_time`` that may move the clock.

The conditions read the columns of the input, and those that :mod:`wheel_udf.commands.parse` has read from
them, which begin with an underscore (``_made_ms`` is the event time). A condition that is null counts as
false. A rule is left out where the column that could break it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, functions as F

from wheel_udf.commands import readers as read, time_readers as times
from wheel_udf.commands.contract import Contract, shortened
from wheel_udf.commands.delay_levels import level_name, refused_beyond_ms
from wheel_udf.commands.inputs import Inputs
from wheel_udf.common.command_facts import FIRST_DUE, FIRST_DUE_MS, ID_RULE, MAX_ID_BYTES, REPEAT_RULE
from wheel_udf.common.durations import DURATION_RULE
from wheel_udf.common.instants import MAX_INSTANT_MS
from wheel_udf.common.names import NAME_PATTERN, NAME_RULE, NOT_NAMES, AllowList
from wheel_udf.common.package_data import toml_of

DUE_COLUMNS: Final = ("deliver_at", "delay")
"""The columns that a due time comes from."""

SOURCE: Final = "source_coordinates"
"""Column: where a row came from, for rejects."""

UNREADABLE: Final = "_corrupt_record"
"""Column: not null if the row could not be read at all (as in Spark's own readers)."""

MISREAD: Final = "_misread_columns"
"""Column: the names of columns of a readable record whose values are not of their types; null for none."""

MOST_KEYS: Final = 10_000
"""Most keys of an operation."""

INSTANT_RULE: Final = "a timestamp, a date, or ISO 8601 text with Z, an offset, or no zone for UTC"
_LONGEST_VALUE: Final = 100
_VALUE, _PAIR_JOINT, _PAIR_END = "\x1a", "\x1f", "\x1e"
"""Placeholders in the templates of messages; no rule contains them."""


_CONSTANTS: Final = {
    "id_rule": ID_RULE,
    "instant_rule": INSTANT_RULE,
    "duration_rule": DURATION_RULE,
    "name_rule": NAME_RULE,
    "first_due": FIRST_DUE,
    "most_keys": MOST_KEYS,
    "repeat_rule": REPEAT_RULE,
    "value": _VALUE,
}
_TEXTS: Final = toml_of(__name__, "texts.toml")
TEXTS: Final[Mapping[str, str]] = _TEXTS["commands"]
"""The messages of :func:`wheel_udf.commands.parse.parse_commands` by their code, in the order of the rules."""

WATCH_TEXTS: Final[Mapping[str, str]] = TEXTS | _TEXTS["watch"]
"""The messages of :mod:`wheel_udf.commands.operations` by their code."""


class Rule(NamedTuple):
    """One rule: its code (none: the row is good), the condition that breaks it, and the value to show."""

    code: str | None
    broken: Column
    value: Column


def is_ill_formed(name: Column) -> Column:
    """Whether an id is too long, not UTF-8, or has a NUL."""
    return ~F.is_valid_utf8(name) | (F.octet_length(name) > MAX_ID_BYTES) | F.contains(name, F.lit("\0"))


def common_rules(given: Inputs, contract: Contract) -> list[Rule]:
    """The rules of all commands, in order."""
    rules = record_rules(given)
    if op := given.get("op"):
        rules.append(Rule("bad_op", F.col("_op").isNull(), op.shown))
    rules += id_rules("schedule_id", F.col("_id"))
    if seq := given.get("seq"):
        rules.append(Rule("bad_seq", seq.column.isNotNull() & F.col("_seq").isNull(), seq.shown))
    return rules + event_time_rules(given, contract)


def record_rules(given: Inputs) -> list[Rule]:
    """The rules of rows that the source could not read, or not as the types of their columns; they come first."""
    codes = {"bad_type": given.get(MISREAD), "unreadable": given.get(UNREADABLE)}
    return [Rule(code, each.column.isNotNull(), each.shown) for code, each in codes.items() if each]


def id_rules(what: str, name: Column) -> list[Rule]:
    """The rules of a required id."""
    return [
        Rule(f"no_{what}", name.isNull() | (name == ""), name),
        Rule(f"bad_{what}", is_ill_formed(name), name),
    ]


def event_time_rules(given: Inputs, contract: Contract) -> list[Rule]:
    """The rules of ``event_time``, in order."""
    if (made := given.get("event_time")) is None:
        return []
    rules = [Rule("bad_event_time", F.col("_made_ms").isNull(), made.shown)]
    if contract.max_ahead_ms is not None:
        shown_time = times.utc_text(F.col("_made_ms"))
        rules.append(Rule("event_time_ahead", is_ahead(contract.max_ahead_ms), shown_time))
    return rules


def is_ahead(max_ahead_ms: int) -> Column:
    """Whether the event time is too far after the time of the batch."""
    return F.col("_made_ms") - F.col("_batch_ms") > max_ahead_ms


def schedule_rules(given: Inputs, contract: Contract) -> list[Rule]:
    """The rules that do not apply to a CANCEL, in order."""
    rules = [*_due_rules(given, contract), *destination_rules(given, contract)]
    if contract.max_value_bytes is not None:
        size = payload_bytes(given)
        rules.append(Rule("oversize", size > contract.max_value_bytes, size.cast("string")))
    if lateness := given.get("max_lateness"):
        bad = F.col("_lateness_ms").isNull() | (F.col("_lateness_ms") < 0)
        rules.append(Rule("bad_max_lateness", lateness.column.isNotNull() & bad, lateness.shown))
    return rules


def _due_rules(given: Inputs, contract: Contract) -> list[Rule]:
    at, delay, repeat = (
        given[name].column if name in given else read.null("string") for name in (*DUE_COLUMNS, "repeat")
    )
    asked_at, asked_delay = at.cast("string"), delay.cast("string")
    due_ms, unread = F.col("_due_ms"), F.col("_due_ms").isNull()
    too_far = is_too_far(due_ms, contract)
    shown_due = F.coalesce(asked_delay, times.utc_text(due_ms))
    beyond = []
    if contract.levels is not None:
        # A due time that is rounded up may be beyond the last timestamp.
        too_far |= due_ms + F.col("_level_error_ms") > MAX_INSTANT_MS
        if (last_ms := refused_beyond_ms(contract.levels)) is not None:
            beyond = [Rule("beyond_levels", due_ms - F.col("_made_ms") > last_ms, shown_due)]
    return [
        Rule("no_due_time", at.isNull() & delay.isNull() & repeat.isNull(), read.null("string")),
        Rule("two_due_times", at.isNotNull() & delay.isNotNull(), asked_delay),
        Rule("bad_deliver_at", at.isNotNull() & unread, asked_at),
        Rule("bad_delay", delay.isNotNull() & unread, asked_delay),
        Rule("beyond_max_delay", too_far, shown_due),
        Rule("due_too_early", due_ms < FIRST_DUE_MS, shown_due),
        *beyond,
    ]


def is_too_far(due_ms: Column, contract: Contract) -> Column:
    """Whether a due time is beyond the last timestamp, or beyond ``max_delay_ms``."""
    too_far = F.abs(due_ms) > MAX_INSTANT_MS
    if contract.max_delay_ms is None:
        return too_far
    made_ms = F.col("_made_ms")
    from_ms = F.least(made_ms, F.col("_batch_ms")) if contract.from_batch else made_ms
    return too_far | (due_ms - from_ms > contract.max_delay_ms)


def destination_rules(given: Inputs, contract: Contract) -> list[Rule]:
    """The rules of ``destination``, in order."""
    if "destination" not in given and contract.default_destination is not None:
        return []
    name = F.col("_destination")
    rules = [
        Rule("no_destination", name.isNull(), name),
        Rule("bad_destination", ~name.rlike(rf"\A{NAME_PATTERN}\z") | name.isin(*NOT_NAMES), name),
    ]
    if contract.destinations is not None:
        allowed = AllowList(contract.destinations)
        listed = name.isin(*allowed.names) if allowed.names else F.lit(False)
        listed = listed | name.rlike(rf"\A(?:{allowed.expression})\z") if allowed.expression else listed
        rules.append(Rule("unknown_destination", ~listed, name))
    return rules


def payload_bytes(given: Inputs) -> Column:
    """Bytes of value, key and headers together."""
    sizes = [F.octet_length(F.col(f"_{name}")) for name in ("value", "key") if name in given]
    sizes += read.headers_octets(F.col("_headers")) if "headers" in given else []
    total = F.lit(0).cast("long")
    for size in sizes:
        total += F.coalesce(size, F.lit(0))
    return total


def first_broken(rules: list[Rule]) -> Column:
    """The code of the first broken rule; null if no rule is broken."""
    chain = F.when(rules[0].broken, F.lit(rules[0].code))
    for rule in rules[1:]:
        chain = chain.when(rule.broken, F.lit(rule.code))
    return chain


def error_message(
    code: Column, rules: list[Rule], contract: Contract, texts: Mapping[str, str] = TEXTS
) -> Column:
    """The message: what is wrong, field, value, rule and hint, in the form of ``WheelError``."""
    named = _CONSTANTS | {
        "max_ahead_ms": contract.max_ahead_ms,
        "max_value_bytes": contract.max_value_bytes,
        "max_delay": "any time" if contract.max_delay_ms is None else f"at most {contract.max_delay_ms} ms",
        "counted_from": "event_time" + (" and after the time of the batch" if contract.from_batch else ""),
        "allowed": shortened(contract.destinations or ()),
        "last_level": _last_level(contract),
    }
    templates = {name: texts[name].format_map(named) for name in (rule.code for rule in rules) if name}
    pairs = _PAIR_END.join(f"{name}{_PAIR_JOINT}{template}" for name, template in templates.items())
    quoted = F.concat(F.lit("'"), shown(_value(code, rules), _LONGEST_VALUE), F.lit("'"))
    # One look-up in a literal, and not a branch for each rule: Spark analyses each node at each start and plans it in
    # each batch.
    template = F.element_at(F.str_to_map(F.lit(pairs), F.lit(_PAIR_END), F.lit(_PAIR_JOINT)), code)
    return F.replace(template, F.lit(_VALUE), F.coalesce(quoted, F.lit("null")))


def _value(code: Column, rules: list[Rule]) -> Column:
    """The value that the rule of a code shows. Several rules show the same column, which comes in here once."""
    values = {id(rule.value): rule.value for rule in rules}.values()
    return F.coalesce(
        *(F.when(code.isin(*(rule.code for rule in rules if rule.value is value)), value) for value in values)
    )


def _last_level(contract: Contract) -> str | None:
    last_ms = None if contract.levels is None else refused_beyond_ms(contract.levels)
    return None if last_ms is None else level_name(last_ms)


def shown(words: Column, length: int) -> Column:
    """A text of the user made fit to be stored: valid UTF-8, cut to this many characters."""
    return F.substring(F.make_valid_utf8(words), 1, length)
