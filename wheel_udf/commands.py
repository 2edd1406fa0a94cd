"""The command contract as Spark ``Column`` expressions: a frame of anything in, the command frame out.

A command is one row: schedule this, replace it, cancel it. :func:`parse` reads the columns it knows, finds by name (without
regard to case), and gives one row for each row of its input, in order, on batch and on streaming frames alike; it holds no
state and runs in the JVM alone. A row that breaks the contract is not an error: it becomes a row with an ``error_code``.

====================  ==========================================================================================
input column          accepted types and meaning (every column but ``schedule_id`` may be missing, which is as null)
====================  ==========================================================================================
``schedule_id``       string, binary (UTF-8) or a whole number (42 is the id ``42``); 1 to 512 bytes without NUL
``op``                string: SCHEDULE (also null or empty), REPLACE, CANCEL; any case, blanks around it ignored
``seq``               whole number, or a float, decimal or text that is one; null: ``event_time`` in ms
``deliver_at``        timestamp, timestamp_ntz, date or ISO 8601 text; no zone = UTC; a fraction of a ms goes up
``delay``             text in the grammar of :mod:`wheel_udf.durations`; counts from ``event_time``
``event_time``        as ``deliver_at``, a fraction of a ms goes down; null: the time of the batch
``destination``       string; null: the contract's default
``key``, ``value``    binary or string
``headers``           array of struct (key, value) or map; values binary or string
``max_lateness``      as ``delay``, not negative; null: the contract's
``source_coordinates``  string: where the row came from (file and row, partition and offset), for the rejects only
====================  ==========================================================================================

Extra columns are kept in ``record`` and nowhere else. A column whose type can hold no valid value at all (a boolean
``deliver_at``) raises ``ContractError`` before anything runs; numbers as instants or durations are refused row by row, as
a null or a delay of 0 beside them is fine.

Rules are checked in this order and the first one broken names the row's ``error_code``; *schedule* rules do not apply to a
CANCEL, which needs an id, a readable ``seq`` and a usable ``event_time`` only (the last because it would move the clock):

    bad_op, no_schedule_id, bad_schedule_id, bad_seq, bad_event_time, event_time_ahead; schedule: no_due_time, two_due_times,
    bad_deliver_at, bad_delay, beyond_max_delay, no_destination, bad_destination, unknown_destination, oversize, bad_max_lateness

An empty text is a value and not a null, and breaks the rule of its column (but for ``op``). A due time that no timestamp can
hold (before the year -290308 or after 294247) is ``beyond_max_delay``, whatever the contract's limit.

Rejected rows carry the original row as JSON in ``record``: instants in UTC, nulls left out, top-level texts and bytes as text
where they are UTF-8, else as ``base64:...`` (nested bytes are plain base64). Their ``op`` is 1 if it said CANCEL; ``schedule_id``
is the first 512 characters if the id was UTF-8, ``destination`` the first 249 characters of what was asked for, ``event_time_ms``
null where it was unusable (so that no clock can be moved by it); key, value and headers pass through.

Cost: three projections, so that no expression is copied into several others by the optimizer; about 1 us a row (see the
tests). Nothing of the rejects' messages and records is computed for a good row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf import columns as read
from wheel_udf.durations import BLANKS
from wheel_udf.durations import RULE as DURATION_RULE
from wheel_udf.errors import ConfigError, ConfigErrors, ContractError

SCHEDULE: Final = 0
CANCEL: Final = 1
MAX_ID_BYTES: Final = 512
DESTINATION_NAME: Final = "[A-Za-z0-9._-]{1,249}"
"""Names of destinations, but for ``.`` and ``..``: those of Kafka's topics. Checked before any pattern of an allow-list."""

_SOURCE: Final = "source_coordinates"
_NAMES: Final = (
    *(
        "schedule_id",
        "op",
        "seq",
        "deliver_at",
        "delay",
        "event_time",
        "destination",
        "key",
        "value",
        "headers",
    ),
    *("max_lateness", _SOURCE),
)
_WELL_NAMED: Final = re.compile(DESTINATION_NAME)
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?-]+")
_INSTANT_RULE: Final = "a timestamp, a date or ISO 8601 text with Z, an offset or no zone (UTC)"
_EPOCH_HINT: Final = "numbers are taken only where a preset names their unit"
_RECORD_OPTIONS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_NAME_RULE: Final = "1 to 249 of A-Z a-z 0-9 . _ - and neither . nor .."


@dataclass(frozen=True)
class Contract:
    """What a command may ask for. All limits are off by default.

    Args:
        max_delay_ms: Longest time from ``event_time`` to the due time, in ms.
        max_value_bytes: Most bytes of value, key and headers (their keys and values) together.
        destinations: Allow-list of names; ``*`` stands for any text and ``?`` for any one character. None: any well-formed name.
        default_destination: Where rows without a destination go. None: they are rejected.
        max_ahead_ms: How far ``event_time`` may lie beyond the time of the batch, in ms.
        max_lateness_ms: ``max_lateness`` of rows without one, in ms. None: deliver however late.

    Raises:
        ConfigError: A value that cannot work; all faults at once.
    """

    max_delay_ms: int | None = None
    max_value_bytes: int | None = None
    destinations: tuple[str, ...] | None = None
    default_destination: str | None = None
    max_ahead_ms: int | None = None
    max_lateness_ms: int | None = None

    def __post_init__(self) -> None:
        faults = [
            fault
            for field in fields(self)
            if field.name.startswith("max_")
            for fault in self._limit(field.name)
        ]
        faults += self._allow_list() or self._default()
        if faults:
            raise faults[0] if len(faults) == 1 else ConfigErrors(faults)

    def _limit(self, name: str) -> list[ConfigError]:
        value = getattr(self, name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63):
            return []
        rule = "a whole number from 0 to 2**63 - 1, or None"
        return [ConfigError("not a limit", field=name, value=value, rule=rule)]

    def _allow_list(self) -> list[ConfigError]:
        patterns = self.destinations
        if patterns is None:
            return []
        if isinstance(patterns, str) or not patterns:
            rule = "a tuple of at least one name or pattern, or None for any well-formed name"
            return [ConfigError("not an allow-list", field="destinations", value=patterns, rule=rule)]
        object.__setattr__(self, "destinations", tuple(patterns))
        rule = "letters, digits and . _ - with * for any text and ? for any one character"
        bad = [name for name in patterns if not (isinstance(name, str) and _PATTERN.fullmatch(name))]
        return [
            ConfigError("no destination can match", field="destinations", value=name, rule=rule)
            for name in bad
        ]

    def _default(self) -> list[ConfigError]:
        name = self.default_destination
        if name is None:
            return []
        if not (isinstance(name, str) and _WELL_NAMED.fullmatch(name)) or name in (".", ".."):
            return [
                ConfigError("not a destination", field="default_destination", value=name, rule=_NAME_RULE)
            ]
        if self.destinations is not None and not re.fullmatch(_allowed(self.destinations), name):
            rule = f"one of the destinations allowed: {', '.join(self.destinations)}"
            return [
                ConfigError("not an allowed destination", field="default_destination", value=name, rule=rule)
            ]
        return []


def _allowed(patterns: tuple[str, ...]) -> str:
    """The allow-list as one regular expression, for Python and Java."""
    meaning = {"*": ".*", "?": "."}
    return "|".join("".join(meaning.get(char) or re.escape(char) for char in name) for name in patterns)


@dataclass(frozen=True)
class _Rule:
    """One way to be rejected: what the message says, and when (a condition that may be null, for "not broken")."""

    code: str
    broken: Column
    what: str
    field: str
    value: Column
    rule: str
    hint: str | None = None

    def message(self) -> Column:
        hint = f"; hint: {self.hint}" if self.hint else ""
        value = F.coalesce(F.concat(F.lit("'"), _shown(self.value, 100), F.lit("'")), F.lit("null"))
        return F.concat(F.lit(f"{self.what}: {self.field} = "), value, F.lit(f"; rule: {self.rule}{hint}"))


def _shown(words: Column, length: int) -> Column:
    return F.substring(F.make_valid_utf8(words), 1, length)


def parse(commands: DataFrame, contract: Contract) -> DataFrame:
    """Read and check commands.

    Args:
        commands: A batch or streaming frame with the columns of the table above.
        contract: The limits to hold them to.

    Returns:
        One row for each row of ``commands``: ``schedule_id`` string, ``op`` byte (0 schedule or replace, 1 cancel), ``seq`` long,
        ``seq_given`` boolean, ``deliver_at_ms`` long (UTC epoch ms, null for a cancel), ``event_time_ms`` long, ``destination`` string,
        ``key`` binary, ``value`` binary, ``headers`` string (JSON of :data:`~wheel_udf.columns.HEADERS`), ``max_lateness_ms`` long, and for rejected rows
        only ``error_code``, ``error_message``, ``record`` and ``source``, all string. A good cancel has no payload and no destination.
        All strings are valid UTF-8.

    Raises:
        ContractError: No ``schedule_id``, two columns of one name, or a column of a type that can hold no valid value.
    """
    found = _locate(commands.schema)
    # Positions for names: user columns can then meet neither ours nor each other (some differ in case only).
    frame = commands.toDF(*(f"in{at}" for at in range(len(commands.columns))))
    given = {name: _Input(name, F.col(f"in{at}"), commands.schema[at].dataType) for name, at in found.items()}
    frame = frame.select("*", *_read(given, contract))
    frame = frame.select("*", *_derive(given))
    common, schedules = _common_rules(given, contract), _schedule_rules(given, contract)
    frame = frame.select("*", _error_code(common, schedules).alias("error_code"))
    original = [
        _Input(field.name, F.col(f"in{at}"), field.dataType) for at, field in enumerate(commands.schema)
    ]
    return frame.select(*_outcome(given, contract), *_rejection(given, original, common + schedules))


@dataclass(frozen=True)
class _Input:
    """A column of the input that the contract knows."""

    name: str
    column: Column
    kind: T.DataType

    def read(self, reader: Callable[..., Column], **options: bool) -> Column:
        """The column through one of the readers of :mod:`wheel_udf.columns`."""
        try:
            return reader(self.column, self.kind, **options)
        except TypeError as fault:
            raise ContractError(
                "a column of the commands has a type that no valid value can have",
                field=self.name,
                value=self.kind.simpleString(),
                rule=str(fault),
                hint="cast the column, or drop it",
            ) from None

    @property
    def shown(self) -> Column:
        return self.column.cast("string")


_Inputs = dict[str, _Input]


def _locate(schema: T.StructType) -> dict[str, int]:
    """Positions of the contract's columns in the input, by their names here."""
    found: dict[str, int] = {}
    for position, name in enumerate(schema.names):
        known = name.lower()
        if known in found:
            both = f"{schema.names[found[known]]}, {name}"
            rule = "one column of each name, whatever its case"
            raise ContractError("a column of the commands is there twice", field=known, value=both, rule=rule)
        if known in _NAMES:
            found[known] = position
    if "schedule_id" not in found:
        raise ContractError(
            "the commands have no column schedule_id",
            field="columns found",
            value=", ".join(schema.names),
            rule=f"columns expected: schedule_id, and as needed {', '.join(_NAMES[1:])}",
            hint="rename the column that holds the id",
        )
    return found


def _null(kind: str) -> Column:
    return F.lit(None).cast(kind)


def _batch_ms() -> Column:
    # In a stream Spark journals this instant with the batch before it runs: a replay sees the same.
    return F.unix_millis(F.current_timestamp())


def _read(given: _Inputs, contract: Contract) -> list[Column]:
    """First projection: each column by itself. Null means missing, null or unreadable."""

    def column(name: str, reader: Callable[..., Column], kind: str, **options: bool) -> Column:
        return given[name].read(reader, **options) if name in given else _null(kind)

    made_ms = _batch_ms()
    if "event_time" in given:
        event_ms = given["event_time"].read(read.instant_ms, round_up=False)
        made_ms = F.when(given["event_time"].column.isNull(), made_ms).otherwise(event_ms)
    destination = column("destination", read.text, "string")
    if contract.default_destination is not None:
        destination = F.coalesce(destination, F.lit(contract.default_destination))
    return [
        given["schedule_id"].read(read.identity).alias("id"),
        (given["op"].read(_op) if "op" in given else F.lit(SCHEDULE).cast("byte")).alias("op"),
        column("seq", read.whole_number, "long").alias("seq"),
        column("deliver_at", read.instant_ms, "long", round_up=True).alias("at_ms"),
        column("delay", _duration_parts, "array<string>").alias("delay_parts"),
        made_ms.alias("made_ms"),
        destination.alias("destination"),
        column("key", read.octets, "binary").alias("key"),
        column("value", read.octets, "binary").alias("value"),
        column("headers", read.headers, read.HEADERS).alias("headers"),
        column("max_lateness", _duration_parts, "array<string>").alias("lateness_parts"),
    ]


def _op(column: Column, kind: T.DataType) -> Column:
    word = F.lower(F.btrim(read.text(column, kind), F.lit(BLANKS)))
    codes = F.when(word.isNull() | word.isin("", "schedule", "replace"), SCHEDULE).when(
        word == "cancel", CANCEL
    )
    return codes.cast("byte")


def _duration_parts(column: Column, kind: T.DataType) -> Column:
    # Numbers too: a delay of 0 needs no unit.
    return read.duration_parts(
        column.cast("string") if isinstance(kind, T.NumericType) else read.text(column, kind)
    )


def _derive(given: _Inputs) -> list[Column]:
    """Second projection: what needs two columns, or a second look at one."""
    due_ms = F.col("at_ms")
    if "delay" in given:
        due_ms = F.coalesce(due_ms, F.col("made_ms") + read.duration_ms(F.col("delay_parts")))
    lateness_ms = read.duration_ms(F.col("lateness_parts")) if "max_lateness" in given else _null("long")
    return [due_ms.alias("due_ms"), lateness_ms.alias("lateness_ms")]


def _common_rules(given: _Inputs, contract: Contract) -> list[_Rule]:
    """The rules of schedules and cancels."""
    rules, name = [], F.col("id")
    if "op" in given:
        rule = "SCHEDULE, REPLACE or CANCEL"
        rules += [_Rule("bad_op", F.col("op").isNull(), "not an operation", "op", given["op"].shown, rule)]
    missing, rule = "no id", "1 to 512 bytes of UTF-8 without NUL"
    rules += [_Rule("no_schedule_id", name.isNull() | (name == ""), missing, "schedule_id", name, rule)]
    bad_id = ~F.is_valid_utf8(name) | (F.octet_length(name) > MAX_ID_BYTES) | F.contains(name, F.lit("\0"))
    rules += [_Rule("bad_schedule_id", bad_id, "not an id", "schedule_id", name, rule)]
    if "seq" in given:
        unread, rule = given["seq"].column.isNotNull() & F.col("seq").isNull(), "a whole number of 64 bits"
        hint = "leave it null for event_time in ms"
        rules += [_Rule("bad_seq", unread, "not a version", "seq", given["seq"].shown, rule, hint)]
    if "event_time" in given:
        made_ms, shown = F.col("made_ms"), given["event_time"].shown
        rules += [
            _Rule(
                "bad_event_time",
                made_ms.isNull(),
                "not an instant",
                "event_time",
                shown,
                _INSTANT_RULE,
                _EPOCH_HINT,
            )
        ]
        if contract.max_ahead_ms is not None:
            rule = f"at most {contract.max_ahead_ms} ms beyond the time of the batch"
            rules += [
                _Rule(
                    "event_time_ahead",
                    _ahead(contract),
                    "event time in the future",
                    "event_time",
                    _utc(made_ms),
                    rule,
                )
            ]
    return rules


def _ahead(contract: Contract) -> Column:
    return F.col("made_ms") - _batch_ms() > contract.max_ahead_ms


def _schedule_rules(given: _Inputs, contract: Contract) -> list[_Rule]:
    """The rules that a CANCEL is not held to."""
    rules = _due_rules(given, contract) + _destination_rules(given, contract)
    if contract.max_value_bytes is not None:
        sizes = [F.octet_length(F.col(name)) for name in ("value", "key") if name in given]
        sizes += read.headers_octets(F.col("headers")) if "headers" in given else []
        total = sum((F.coalesce(size, F.lit(0)).cast("long") for size in sizes), F.lit(0).cast("long"))
        rule, what = f"at most {contract.max_value_bytes} bytes of value, key and headers", "too large"
        over = total > contract.max_value_bytes
        rules += [
            _Rule("oversize", over, what, "bytes", total.cast("string"), rule, "send a reference instead")
        ]
    if "max_lateness" in given:
        lateness, lateness_ms = given["max_lateness"], F.col("lateness_ms")
        bad = lateness.column.isNotNull() & (lateness_ms.isNull() | (lateness_ms < 0))
        rule = f"not negative; {DURATION_RULE}"
        rules += [_Rule("bad_max_lateness", bad, "not a duration", "max_lateness", lateness.shown, rule)]
    return rules


def _due_rules(given: _Inputs, contract: Contract) -> list[_Rule]:
    at, delay = (given[name].column if name in given else _null("string") for name in ("deliver_at", "delay"))
    due_ms, made_ms, rule = F.col("due_ms"), F.col("made_ms"), "exactly one of deliver_at and delay"
    rules = [
        _Rule(
            "no_due_time", at.isNull() & delay.isNull(), "no due time", "deliver_at", _null("string"), rule
        ),
        _Rule(
            "two_due_times",
            at.isNotNull() & delay.isNotNull(),
            "two due times",
            "delay",
            delay.cast("string"),
            rule,
        ),
    ]
    unread = due_ms.isNull()
    if "deliver_at" in given:
        shown = given["deliver_at"].shown
        bad = at.isNotNull() & unread
        rules += [
            _Rule("bad_deliver_at", bad, "not an instant", "deliver_at", shown, _INSTANT_RULE, _EPOCH_HINT)
        ]
    if "delay" in given:
        hint = "give a unit, as in 10 minutes; for an instant use deliver_at"
        rules += [
            _Rule("bad_delay", unread, "not a duration", "delay", given["delay"].shown, DURATION_RULE, hint)
        ]
    too_far, rule = F.abs(due_ms) > read.MAX_INSTANT_MS, "an instant between the years -290308 and 294247"
    if contract.max_delay_ms is not None:
        too_far |= due_ms - made_ms > contract.max_delay_ms
        rule = f"at most {contract.max_delay_ms} ms after event_time"
    asked = F.coalesce(delay.cast("string"), _utc(due_ms))
    return [
        *rules,
        _Rule("beyond_max_delay", too_far, "due too far away", "deliver_at or delay", asked, rule),
    ]


def _destination_rules(given: _Inputs, contract: Contract) -> list[_Rule]:
    if "destination" not in given and contract.default_destination is not None:
        return []
    name = F.col("destination")
    ill_named = ~name.rlike(rf"\A{DESTINATION_NAME}\z") | name.isin(".", "..")
    rules = [
        _Rule(
            "no_destination",
            name.isNull(),
            "no destination",
            "destination",
            name,
            "a name, or a default in the contract",
        ),
        _Rule("bad_destination", ill_named, "not a destination", "destination", name, _NAME_RULE),
    ]
    if contract.destinations is None:
        return rules
    unlisted = ~name.rlike(rf"\A(?:{_allowed(contract.destinations)})\z")
    rule = f"one of {', '.join(contract.destinations)}"
    hint = "add it to the allow-list of destinations"
    return [
        *rules,
        _Rule("unknown_destination", unlisted, "unknown destination", "destination", name, rule, hint),
    ]


def _error_code(common: list[_Rule], schedules: list[_Rule]) -> Column:
    """The code of the first rule broken; null where none is."""
    chain = F.when(common[0].broken, common[0].code)
    for rule in common[1:]:
        chain = chain.when(rule.broken, rule.code)
    chain = chain.when(F.col("op") == CANCEL, _null("string"))
    for rule in schedules:
        chain = chain.when(rule.broken, rule.code)
    return chain


def _outcome(given: _Inputs, contract: Contract) -> list[Column]:
    """The columns that good rows fill."""
    rejected = F.col("error_code").isNotNull()
    schedule = F.coalesce(F.col("op"), F.lit(SCHEDULE).cast("byte")) == SCHEDULE
    carried = rejected | schedule  # a good CANCEL carries nothing
    name, due_ms, made_ms = F.col("id"), F.col("due_ms"), F.col("made_ms")
    if "event_time" in given and contract.max_ahead_ms is not None:
        made_ms = F.when(~_ahead(contract), made_ms)
    seq_given = given["seq"].column.isNotNull() if "seq" in given else F.lit(False)
    return [
        F.when(~rejected, name)
        .when(F.is_valid_utf8(name), F.substring(name, 1, MAX_ID_BYTES))
        .alias("schedule_id"),
        F.when(schedule, F.lit(SCHEDULE)).otherwise(CANCEL).cast("byte").alias("op"),
        F.when(seq_given, F.col("seq")).otherwise(made_ms).alias("seq"),
        seq_given.alias("seq_given"),
        F.when(schedule & (F.abs(due_ms) <= read.MAX_INSTANT_MS), due_ms).alias("deliver_at_ms"),
        made_ms.alias("event_time_ms"),
        F.when(rejected, _shown(F.col("destination"), 249))
        .when(schedule, F.col("destination"))
        .alias("destination"),
        F.when(carried, F.col("key")).alias("key"),
        F.when(carried, F.col("value")).alias("value"),
        F.when(carried, F.to_json("headers")).alias("headers"),
        F.when(schedule, F.coalesce("lateness_ms", F.lit(contract.max_lateness_ms)))
        .cast("long")
        .alias("max_lateness_ms"),
    ]


def _rejection(given: _Inputs, original: list[_Input], rules: list[_Rule]) -> list[Column]:
    """The columns that rejected rows alone fill; a good row computes none of them."""
    code = F.col("error_code")
    message = F.when(code == rules[0].code, rules[0].message())
    for rule in rules[1:]:
        message = message.when(code == rule.code, rule.message())
    source = _null("string")
    if _SOURCE in given:
        source = F.make_valid_utf8(given[_SOURCE].read(read.text))
    record = F.struct(
        *(_recorded(each).alias(each.name) for each in original if each.name.lower() != _SOURCE)
    )
    return [
        code,
        F.when(code.isNotNull(), message).alias("error_message"),
        F.when(code.isNotNull(), F.to_json(record, _RECORD_OPTIONS)).alias("record"),
        F.when(code.isNotNull(), source).alias("source"),
    ]


def _recorded(original: _Input) -> Column:
    """Bytes as text where they are UTF-8 and cannot be taken for ours, else in base64."""
    if not isinstance(original.kind, (T.StringType, T.CharType, T.VarcharType, T.BinaryType)):
        return original.column
    words = original.shown
    readable = F.is_valid_utf8(words) & ~F.startswith(words, F.lit("base64:"))
    return F.when(readable, words).otherwise(
        F.concat(F.lit("base64:"), F.base64(original.column.cast("binary")))
    )


def _utc(instant_ms: Column) -> Column:
    """An instant as text. Not through a timestamp, whose text is in the zone of the session."""
    within = F.greatest(F.lit(-read.MAX_INSTANT_MS), F.least(F.lit(read.MAX_INSTANT_MS), instant_ms))
    epoch = F.lit("1970-01-01").cast("timestamp_ntz")
    return F.concat(F.timestamp_add("MILLISECOND", within, epoch).cast("string"), F.lit("Z"))
