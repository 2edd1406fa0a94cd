"""The rules that a command can break: their order, their conditions, and what the message of each says.

:data:`TEXTS` lists all codes in the order in which they are tried; the first rule broken names the row. A
CANCEL is held to the first seven only: it needs a readable record, an id, a readable ``seq`` and an
``event_time`` that may move the clock.

The conditions look at the columns of the input as they came, and at those that :mod:`wheel_udf.commands` has
read from them, which begin with an underscore (``_made_ms`` is the event time). A condition may be null, which
is as false. Rules that nothing can break, for want of a column, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from wheel_udf import columns as read
from wheel_udf.contract import NAME_PATTERN, NAME_RULE, Contract, allow_list, shortened
from wheel_udf.durations import RULE as DURATION_RULE
from wheel_udf.levels import is_beyond_column, level_name, refused_beyond_ms

SCHEDULE: Final = 0
CANCEL: Final = 1
MAX_ID_BYTES: Final = 512

ID_RULE: Final = f"1 to {MAX_ID_BYTES} bytes of UTF-8 without NUL"
INSTANT_RULE: Final = "a timestamp, a date, or ISO 8601 text with Z, an offset, or no zone for UTC"
_EPOCH_HINT: Final = "numbers are taken only where a preset names their unit"
_DUE_RULE: Final = "exactly one of deliver_at and delay"
_DUE_COLUMNS: Final = ("deliver_at", "delay")
_LONGEST_VALUE: Final = 100


class Text(NamedTuple):
    """What the message of a code says beside the value; ``rule`` may have settings in braces."""

    what: str
    field: str
    rule: str
    hint: str | None = None


TEXTS: Final[Mapping[str, Text]] = {
    "unreadable": Text("not readable", "record", "a record in the format of the source"),
    "bad_op": Text("not an operation", "op", "SCHEDULE, REPLACE or CANCEL"),
    "no_schedule_id": Text("no id", "schedule_id", ID_RULE),
    "bad_schedule_id": Text("not an id", "schedule_id", ID_RULE),
    "bad_seq": Text(
        "not a version", "seq", "a whole number of 64 bits", "leave it null for event_time in ms"
    ),
    "bad_event_time": Text("not an instant", "event_time", INSTANT_RULE, _EPOCH_HINT),
    "event_time_ahead": Text(
        "event time in the future", "event_time", "at most {max_ahead_ms} ms beyond the time of the batch"
    ),
    # Schedules only, from here on.
    "no_due_time": Text("no due time", "deliver_at", _DUE_RULE),
    "two_due_times": Text("two due times", "delay beside deliver_at", _DUE_RULE),
    "bad_deliver_at": Text("not an instant", "deliver_at", INSTANT_RULE, _EPOCH_HINT),
    "bad_delay": Text("not a duration", "delay", DURATION_RULE, "for an instant use deliver_at"),
    "beyond_max_delay": Text(
        "due too far away", "due", "{max_delay} after event_time, between the years -290308 and 294247"
    ),
    "beyond_levels": Text(
        "beyond the last delay level",
        "due",
        "at most {last_level} after event_time",
        "on_beyond: top or exact takes it",
    ),
    "no_destination": Text("no destination", "destination", "a name, or a default in the contract"),
    "bad_destination": Text("not a destination", "destination", NAME_RULE),
    "unknown_destination": Text(
        "unknown destination", "destination", "one of {allowed}", "add it to the allow-list of destinations"
    ),
    "oversize": Text("too large", "bytes", "at most {max_value_bytes} bytes of value, key and headers"),
    "bad_max_lateness": Text("not a duration", "max_lateness", f"not negative; {DURATION_RULE}"),
}
"""All codes that :func:`wheel_udf.commands.parse` gives, in the order of the rules."""


class Rule(NamedTuple):
    """One rule: its code, when it is broken, and the value to show then."""

    code: str
    broken: Column
    value: Column


def common_rules(given: read.Inputs, contract: Contract) -> list[Rule]:
    """The rules of schedules and cancels, in order."""
    name = F.col("_id")
    ill_formed = (
        ~F.is_valid_utf8(name) | (F.octet_length(name) > MAX_ID_BYTES) | F.contains(name, F.lit("\0"))
    )
    rules = [
        Rule("no_schedule_id", name.isNull() | (name == ""), name),
        Rule("bad_schedule_id", ill_formed, name),
    ]
    if op := given.get("op"):
        rules.insert(0, Rule("bad_op", F.col("_op").isNull(), op.shown))
    if unreadable := given.get("_corrupt_record"):
        rules.insert(0, Rule("unreadable", unreadable.column.isNotNull(), unreadable.shown))
    if seq := given.get("seq"):
        rules.append(Rule("bad_seq", seq.column.isNotNull() & F.col("_seq").isNull(), seq.shown))
    if made := given.get("event_time"):
        rules.append(Rule("bad_event_time", F.col("_made_ms").isNull(), made.shown))
        if contract.max_ahead_ms is not None:
            rules.append(Rule("event_time_ahead", is_ahead(contract.max_ahead_ms), _utc(F.col("_made_ms"))))
    return rules


def is_ahead(max_ahead_ms: int) -> Column:
    """Whether the event time lies too far beyond the time of the batch."""
    return F.col("_made_ms") - F.col("_batch_ms") > max_ahead_ms


def schedule_rules(given: read.Inputs, contract: Contract) -> list[Rule]:
    """The rules that a CANCEL is not held to, in order."""
    rules = [*_due_rules(given, contract), *destination_rules(given, contract)]
    if contract.max_value_bytes is not None:
        size = payload_bytes(given)
        rules.append(Rule("oversize", size > contract.max_value_bytes, size.cast("string")))
    if lateness := given.get("max_lateness"):
        bad = F.col("_lateness_ms").isNull() | (F.col("_lateness_ms") < 0)
        rules.append(Rule("bad_max_lateness", lateness.column.isNotNull() & bad, lateness.shown))
    return rules


def _due_rules(given: read.Inputs, contract: Contract) -> list[Rule]:
    at, delay = (given[name].column if name in given else read.null("string") for name in _DUE_COLUMNS)
    asked_at, asked_delay = at.cast("string"), delay.cast("string")
    due_ms, unread = F.col("_due_ms"), F.col("_due_ms").isNull()
    too_far = F.abs(due_ms) > read.MAX_INSTANT_MS
    if contract.max_delay_ms is not None:
        too_far |= due_ms - F.col("_made_ms") > contract.max_delay_ms
    shown_due = F.coalesce(asked_delay, _utc(due_ms))
    beyond = []
    if contract.levels is not None:
        # Rounded up, a due time may leave what a timestamp can hold.
        too_far |= due_ms + F.col("_level_error_ms") > read.MAX_INSTANT_MS
        delay_ms = due_ms - F.col("_made_ms")
        beyond = [Rule("beyond_levels", is_beyond_column(contract.levels, delay_ms), shown_due)]
    return [
        Rule("no_due_time", at.isNull() & delay.isNull(), read.null("string")),
        Rule("two_due_times", at.isNotNull() & delay.isNotNull(), asked_delay),
        Rule("bad_deliver_at", at.isNotNull() & unread, asked_at),
        Rule("bad_delay", unread, asked_delay),
        Rule("beyond_max_delay", too_far, shown_due),
        *beyond,
    ]


def destination_rules(given: read.Inputs, contract: Contract) -> list[Rule]:
    """The rules of ``destination``, in order."""
    if "destination" not in given and contract.default_destination is not None:
        return []
    name = F.col("_destination")
    rules = [
        Rule("no_destination", name.isNull(), name),
        Rule("bad_destination", ~name.rlike(rf"\A{NAME_PATTERN}\z") | name.isin(".", ".."), name),
    ]
    if contract.destinations is not None:
        names, patterns = allow_list(contract.destinations)
        listed = name.isin(names) if names else F.lit(False)
        listed = listed | name.rlike(rf"\A(?:{patterns})\z") if patterns else listed
        rules.append(Rule("unknown_destination", ~listed, name))
    return rules


def payload_bytes(given: read.Inputs) -> Column:
    """Bytes of value, key and headers together."""
    sizes = [F.octet_length(F.col(f"_{name}")) for name in ("value", "key") if name in given]
    sizes += read.headers_octets(F.col("_headers")) if "headers" in given else []
    total = F.lit(0).cast("long")
    for size in sizes:
        total += F.coalesce(size, F.lit(0))
    return total


def first_broken(rules: list[Rule]) -> Column:
    """The code of the first rule broken; null where none is."""
    chain = F.when(rules[0].broken, rules[0].code)
    for rule in rules[1:]:
        chain = chain.when(rule.broken, rule.code)
    return chain


def error_code(common: list[Rule], schedules: list[Rule]) -> Column:
    """The code of the first rule broken; a CANCEL is held to the common ones."""
    chain = first_broken(common)
    chain = chain.when(F.col("_op") == CANCEL, read.null("string"))
    for rule in schedules:
        chain = chain.when(rule.broken, rule.code)
    return chain


def error_message(
    code: Column, rules: list[Rule], contract: Contract, texts: Mapping[str, Text] = TEXTS
) -> Column:
    """What is wrong, where, the value found, the rule and a hint, as ``WheelError`` says it."""
    named = {
        "max_ahead_ms": contract.max_ahead_ms,
        "max_value_bytes": contract.max_value_bytes,
        "max_delay": "any time" if contract.max_delay_ms is None else f"at most {contract.max_delay_ms} ms",
        "allowed": shortened(contract.destinations or ()),
        "last_level": _last_level(contract),
    }
    chain: Column | None = None
    for rule in rules:
        text = texts[rule.code]
        after = f"; rule: {text.rule.format(**named)}" + (f"; hint: {text.hint}" if text.hint else "")
        quoted = F.concat(F.lit("'"), shown(rule.value, _LONGEST_VALUE), F.lit("'"))
        message = F.concat(
            F.lit(f"{text.what}: {text.field} = "), F.coalesce(quoted, F.lit("null")), F.lit(after)
        )
        chain = (
            F.when(code == rule.code, message) if chain is None else chain.when(code == rule.code, message)
        )
    assert chain is not None, "there are rules for every contract"
    return chain


def _last_level(contract: Contract) -> str | None:
    last_ms = None if contract.levels is None else refused_beyond_ms(contract.levels)
    return None if last_ms is None else level_name(last_ms)


def shown(words: Column, length: int) -> Column:
    """Text of the user's that is fit to be stored: valid UTF-8, and not too long (in characters)."""
    return F.substring(F.make_valid_utf8(words), 1, length)


def _utc(instant_ms: Column) -> Column:
    """An instant as text. Not through a timestamp, whose text is in the zone of the session."""
    within = F.greatest(F.lit(-read.MAX_INSTANT_MS), F.least(F.lit(read.MAX_INSTANT_MS), instant_ms))
    epoch = F.lit("1970-01-01").cast("timestamp_ntz")
    return F.concat(F.timestamp_add("MILLISECOND", within, epoch).cast("string"), F.lit("Z"))
