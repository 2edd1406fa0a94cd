"""The command contract as Spark ``Column`` expressions: a frame of user columns in, command rows out.

:func:`parse_commands` finds the known columns by name (in any case), reads and checks them, and returns one row for
each row of its input, on batch and streaming frames. It keeps no state and runs in the JVM alone. A row that breaks the
contract does not raise: it gets an ``error_code``.

======================  ==================================================================================
input column            accepted types, and meaning
======================  ==================================================================================
``schedule_id``         string or a whole number (42 is the id ``42``); 1 to 512 bytes of UTF-8 without NUL
``op``                  string: SCHEDULE (also null or empty), REPLACE, CANCEL, FIRE_NOW, RETRY (only beside
                        ``attempt``); case and outer blanks ignored
``seq``                 a whole number, or a float, decimal or text that is one; null: ``event_time`` in ms
``deliver_at``          timestamp, timestamp_ntz, date or ISO 8601 text; no zone = UTC; parts of a ms round up
``delay``               text in the grammar of :mod:`wheel_udf.common.durations`; counts from ``event_time``
``event_time``          as ``deliver_at``, but parts of a ms round down; null: the time of the batch
``destination``         string; null: the contract's default
``key``, ``value``      binary or string
``headers``             array of structs (key, value) or map; their keys and values binary or string
``max_lateness``        as ``delay``, not negative; null: the contract's
``spread``              as ``delay``, not negative: a hash of the id moves the due time within it
``repeat``              string: the rule of a series (:mod:`wheel_udf.recurrence.rule`); then no due time is needed
``time_zone``           string: a name (``Europe/Paris``) or an offset; null: the contract's
``starts_at``           as ``deliver_at``: the series has no occurrence before it; so do ``deliver_at`` and ``delay``
``until``               as ``event_time``: the series has no occurrence after it
``count``               a whole number from 1: how many occurrences there are
``on_missed``           string: ``latest`` (also null), ``all`` or ``none``
``on_gap``              string: ``shift`` (also null) or ``skip``
``on_fold``             string: ``first`` (also null), ``last`` or ``both``
``attempt``             a whole number: of a RETRY, which attempt has failed, from 1; null: 1
``error``               string: of a RETRY, why; its other columns: :mod:`wheel_udf.commands.retry_columns`
``source_coordinates``  string: where the row came from (file and row, partition and offset), for rejects
``source_seq``          long: the version of rows without ``seq``, from a source that has an order (Kafka's offset)
``source_deliver_at``   timestamp: ``deliver_at`` as the source has read it; used instead of its text
``source_event_time``   timestamp: likewise ``event_time``; also the instant of rows without one (Kafka's timestamp)
``_corrupt_record``     string: not null if the row could not be read at all (as in Spark's own readers)
``_misread_columns``    string: the names of columns whose values are not of their types; null for none
======================  ==================================================================================

Every column but ``schedule_id`` may be missing, which is the same as null. With ``source_seq``, good rows carry their
coordinates, too, into the wheel and out again. Strings may be binary, which is read as UTF-8. A column whose type can
hold no valid value (a boolean or a number as ``deliver_at``) raises ``ContractError`` before anything runs; numbers as
durations are refused row by row, since a delay of 0 is valid.

Order of the rules, and which apply to a CANCEL: :mod:`wheel_udf.commands.rules`. An empty text is a value, not a null,
and breaks the rule of its column (except ``op``). A due time that no timestamp can hold is ``beyond_max_delay``,
whatever the contract allows; one before the year 1900 is ``due_too_early``. With delay levels
(:mod:`wheel_udf.commands.delay_levels`) ``deliver_at_ms`` is when the wheel is to release the row, and the requested
time, which ``max_delay`` limits, is ``deliver_at_ms - level_error_ms``.

A series has no ``deliver_at_ms``: the wheel computes its occurrences (:mod:`wheel_udf.policies.series`). Without a
beginning of its own, the first one is the first after ``event_time``; with one, the first that is not before it.

Rejects carry the original row in ``record`` (:mod:`wheel_udf.commands.records`); key, value and headers of more
than ``max_value_bytes`` are in their own columns alone. Their ``op`` is 1 if it was CANCEL, 2 if FIRE_NOW;
``schedule_id`` is cut to 512 characters, and null if it was not UTF-8; ``destination`` is cut to 249 characters;
``deliver_at_ms`` is null outside of the years 1900 to 9999; ``event_time_ms`` is null where it was unusable, so that it
cannot move a clock.

Projections between the steps keep the optimizer from copying one expression into all its uses; generated code is kept
to what the just-in-time compiler accepts (:mod:`wheel_udf.commands.generated_code`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame, functions as F, types as T

from wheel_udf.commands import (
    readers as read,
    retry_columns as retry,
    series_columns as series,
    time_readers as times,
)
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.delay_levels import NO_LEVEL
from wheel_udf.commands.generated_code import evaluate_once, interpreted, uncompiled
from wheel_udf.commands.inputs import (
    SOURCE_DELIVER_AT,
    SOURCE_EVENT_TIME,
    SOURCE_SEQ,
    Input,
    Inputs,
    located,
    meant,
    read_or_null,
)
from wheel_udf.commands.json_objects import COMMAND_FIELDS
from wheel_udf.commands.records import record_of
from wheel_udf.commands.rules import (
    DUE_COLUMNS,
    MISREAD,
    SOURCE,
    UNREADABLE,
    Rule,
    common_rules,
    error_message,
    first_broken,
    is_ahead,
    payload_bytes,
    schedule_rules,
    shown,
)
from wheel_udf.commands.tier_columns import delay_error_column, delay_level_column
from wheel_udf.common.command_facts import FIRST_DUE_MS, MAX_ID_BYTES
from wheel_udf.common.durations import BLANKS
from wheel_udf.common.errors import ContractError
from wheel_udf.shard.rows import CANCEL, FIRE_NOW_OP, SCHEDULE

_NAMES: Final = (
    *COMMAND_FIELDS,
    *(SOURCE, SOURCE_SEQ, SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, UNREADABLE, MISREAD),
)
_PAYLOAD: Final = ("key", "value", "headers")
_NOT_RECORDED: Final = (SOURCE, SOURCE_SEQ, SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, MISREAD)
_LAST_OF_PYTHON_MS: Final = 253_402_300_799_999  # the year 9999
_SPANS: Final = {"max_lateness": "_lateness_ms", "spread": "_window_ms"}
"""Durations that few rows have, and what they become. One expression reads both, because each is a hundred nodes of the
plan."""

_COMPILED_COLUMNS: Final = 20
"""Widest frame that Spark compiles whole: every column makes its methods longer
(:mod:`wheel_udf.commands.generated_code`). A record of Kafka counts as wide, because the expressions that read its
headers are in the same method."""


def require_due_column(names: Sequence[str], *, exact: bool = False) -> None:
    """Refuses commands without a column that a due time can come from: each schedule would be rejected.

    If `exact`, the case of the names counts, as it does for keys of JSON.

    Raises:
        ContractError: None of ``deliver_at``, ``delay`` and ``repeat`` is there; the hint names the closest column.
    """
    found = {name if exact else name.lower() for name in names}
    if found.isdisjoint((*DUE_COLUMNS, "repeat")):
        shown_names = [name for name in names if not name.startswith(("_", "source_"))]
        raise ContractError(
            "the commands have no column with a due time",
            field="columns found",
            value=", ".join(shown_names),
            rule=f"a column {' or '.join(DUE_COLUMNS)}",
            hint=meant(shown_names, DUE_COLUMNS, _NAMES) or "for cancels alone add a column delay of nulls",
        )


def parse_commands(commands: DataFrame, contract: Contract) -> DataFrame:
    """Reads and checks commands.

    Args:
        commands: A batch or streaming frame with the columns of the table above.
        contract: The limits to check them against.

    Returns:
        One row for each row of ``commands``: ``schedule_id`` string, ``op`` byte (0 schedule or replace, 1
        cancel, 2 fire now), ``seq`` long, ``seq_given`` boolean, ``deliver_at_ms`` long (UTC epoch ms, null but for a
        schedule; with delay levels, when it is to be released), ``event_time_ms`` long, ``destination`` string, ``key``
        binary, ``value`` binary, ``headers`` string (the JSON of :data:`wheel_udf.commands.readers.HEADERS`),
        ``max_lateness_ms`` long; and for rejected rows alone ``error_code``, ``error_message``, ``record`` and
        ``source``, all string (``source`` of good rows too where the input has ``source_seq``). With delay
        levels also ``delay_level_ms`` long (the span of its level) and ``level_error_ms`` long, both null
        without a level. With ``op`` and ``attempt`` also the columns of
        :data:`wheel_udf.commands.retry_columns.OUTPUT`. Only a schedule has payload and destination. All
        strings are valid UTF-8.

    Raises:
        ContractError: ``schedule_id`` is missing, two columns have one name, or a type can hold no valid value.
    """
    frame, given, original = located(commands, _NAMES, required=("schedule_id",), what="commands")
    frame = frame.select("*", read.batch_ms().alias("_batch_ms"))
    name, at_ms = given["schedule_id"].read(read.identity), F.col("_at_ms")
    if SOURCE_SEQ in given or len(original) > _COMPILED_COLUMNS:
        name, at_ms = uncompiled(name), uncompiled(at_ms)
    frame = frame.select("*", name.alias("_id"), *_read(given, contract))
    frame = frame.select("*", *_derive(given, at_ms))
    frame = frame.select(
        "*", *(F.get("_spans", F.lit(at)).alias(name) for at, name in enumerate(_SPANS.values()))
    )
    if contract.levels is not None:
        delay_ms = F.col("_due_ms") - F.col("_made_ms")
        # A branch for each level: compiled, a long list would make the whole method too big.
        level_ms = interpreted(delay_level_column(contract.levels, delay_ms), delay_ms.isNotNull())
        frame = frame.select("*", level_ms.alias("_level_ms"))
        error_ms = delay_error_column(contract.levels, delay_ms, F.col("_level_ms"))
        frame = frame.select("*", error_ms.alias("_level_error_ms"))
    common = common_rules(given, contract)
    schedules, of_series = schedule_rules(given, contract), series.rules(given)
    schedules += retry.rules(given)
    # Only the common rules apply to a CANCEL and a FIRE_NOW.
    rules = [*common, Rule(None, F.col("_op") != SCHEDULE, read.null("string")), *schedules]
    code = first_broken(rules)
    if of_series:
        is_asked = (F.col("_op") == SCHEDULE) & series.is_given(given)
        code = F.coalesce(code, interpreted(first_broken(of_series), is_asked))
    frame = frame.select("*", code.alias("_code"))
    message = error_message(F.col("_code"), common + schedules + of_series, contract)
    leveled = [] if contract.levels is None and "spread" not in given else _leveled(given, contract)
    if "repeat" in given:
        leveled += series.output_columns(given, contract)
    leveled += retry.output_columns(given)
    return frame.select(*_outcome(given, contract), *_rejection(given, original, message, contract), *leveled)


def _read(given: Inputs, contract: Contract) -> list[Column]:
    """First projection: each column by itself. Null means missing, null or unreadable."""
    column = partial(read_or_null, given)
    at_ms = column("deliver_at", times.instant_ms, "long", round_up=True)
    destination = column("destination", read.text, "string")
    if contract.default_destination is not None:
        destination = F.coalesce(destination, F.lit(contract.default_destination))
    return [
        _op_of(given).alias("_op"),
        column("seq", read.whole_number, "long").alias("_seq"),
        times.of_source_or(given, SOURCE_DELIVER_AT, at_ms, round_up=True).alias("_at_ms"),
        column("delay", times.duration_parts_of, "array<string>").alias("_delay_parts"),
        times.event_ms(given).alias("_made_ms"),
        destination.alias("_destination"),
        column("key", read.octets, "binary").alias("_key"),
        column("value", read.octets, "binary").alias("_value"),
        column("headers", read.headers, read.HEADERS).alias("_headers"),
        column("max_lateness", times.duration_parts_of, "array<string>").alias("_max_lateness_parts"),
        column("spread", times.duration_parts_of, "array<string>").alias("_spread_parts"),
        *series.read_columns(given),
        *retry.read_columns(given),
    ]


def _op_of(given: Inputs) -> Column:
    if "op" not in given:
        return F.lit(SCHEDULE).cast("byte")
    return given["op"].read(_op, takes_retries=retry.is_there(given))


def _op(column: Column, kind: T.DataType, *, takes_retries: bool) -> Column:
    word = F.lower(F.btrim(read.text(column, kind), F.lit(BLANKS)))
    is_schedule = word.isNull() | word.isin("", "schedule", "replace", *(["retry"] if takes_retries else []))
    known = F.when(is_schedule, SCHEDULE).when(word == "cancel", CANCEL).when(word == "fire_now", FIRE_NOW_OP)
    return known.cast("byte")


def _derive(given: Inputs, at_ms: Column) -> list[Column]:
    """Second projection: values that need two columns, or an intermediate result."""
    due_ms = at_ms
    if delay := given.get("delay"):
        delay_ms = times.duration_ms(delay.shown, F.col("_delay_parts"))
        due_ms = F.coalesce(due_ms, F.col("_made_ms") + delay_ms)
    return [due_ms.alias("_due_ms"), _rare_spans(given).alias("_spans")]


def _rare_spans(given: Inputs) -> Column:
    """The durations of :data:`_SPANS`, in ms, as one array; null if the row has none."""
    asked = [given[name] for name in _SPANS if name in given]
    if not asked:
        return read.null("array<bigint>")
    both = F.array(
        *(
            F.struct(
                (given[name].shown if name in given else read.null("string")).alias("words"),
                F.col(f"_{name}_parts").alias("parts"),
            )
            for name in _SPANS
        )
    )
    spans_ms = F.transform(
        both, lambda each: times.duration_ms(each.getField("words"), each.getField("parts"))
    )
    return F.when(reduce(operator.or_, (each.column.isNotNull() for each in asked)), spans_ms)


def _outcome(given: Inputs, contract: Contract) -> list[Column]:
    """The columns of good rows."""
    rejected = F.col("_code").isNotNull()
    schedule = F.coalesce(F.col("_op"), F.lit(SCHEDULE).cast("byte")) == SCHEDULE
    carried = rejected | schedule  # a good CANCEL carries nothing, nor does a FIRE_NOW
    name, due_ms, made_ms = F.col("_id"), F.col("_due_ms"), F.col("_made_ms")
    wheel_ms = (
        due_ms
        if contract.levels is None
        else due_ms + F.when(rejected, 0).otherwise(F.col("_level_error_ms"))
    )
    if "spread" in given:
        wheel_ms += F.when(rejected, 0).otherwise(series.offset_ms())
    if "repeat" in given:
        wheel_ms = F.when(given["repeat"].column.isNull() | rejected, wheel_ms)
    readable_name = F.when(F.is_valid_utf8(name), F.substring(name, 1, MAX_ID_BYTES))
    if "event_time" in given and contract.max_ahead_ms is not None:
        # Even if something else is wrong with the row: the clock may be computed from this column.
        made_ms = F.when(~is_ahead(contract.max_ahead_ms), made_ms)
    # Python cannot collect a table with one instant beyond the year 9999. The message of a reject has the value.
    is_kept = ~rejected | due_ms.between(FIRST_DUE_MS, _LAST_OF_PYTHON_MS)
    seq_given = given["seq"].column.isNotNull() if "seq" in given else F.lit(False)
    own_seq = given[SOURCE_SEQ].read(read.whole_number) if SOURCE_SEQ in given else made_ms
    asked = F.col("_destination")
    lateness_ms = F.coalesce("_lateness_ms", F.lit(contract.max_lateness_ms)).cast("long")
    return [
        F.when(rejected, readable_name).otherwise(name).alias("schedule_id"),
        F.coalesce(F.col("_op"), F.lit(SCHEDULE).cast("byte")).alias("op"),
        F.when(seq_given, F.col("_seq")).otherwise(own_seq).alias("seq"),
        seq_given.alias("seq_given"),
        F.when(schedule & is_kept, wheel_ms).alias("deliver_at_ms"),
        made_ms.alias("event_time_ms"),
        F.when(rejected, shown(asked, 249)).when(schedule, asked).alias("destination"),
        F.when(carried, F.col("_key")).alias("key"),
        F.when(carried, F.col("_value")).alias("value"),
        F.when(carried, F.to_json("_headers")).alias("headers"),
        F.when(schedule, lateness_ms).alias("max_lateness_ms"),
    ]


def _leveled(given: Inputs, contract: Contract) -> list[Column]:
    """The level of good schedules that have one, and by how much the wheel is to release a good schedule later."""
    is_good = F.col("_code").isNull() & (F.col("_op") == SCHEDULE)
    level_ms = error_ms = read.null("long")
    if contract.levels is not None:
        has_level = is_good & (F.col("_level_ms") > NO_LEVEL)
        level_ms, error_ms = (F.when(has_level, F.col(name)) for name in ("_level_ms", "_level_error_ms"))
    if "spread" in given:
        is_once = is_good if "repeat" not in given else is_good & given["repeat"].column.isNull()
        moved_ms = F.when(
            is_once & (series.offset_ms() > 0), F.coalesce(error_ms, F.lit(0)) + series.offset_ms()
        )
        error_ms = F.coalesce(moved_ms, error_ms)
    return [level_ms.alias("delay_level_ms"), error_ms.alias("level_error_ms")]


def _rejection(given: Inputs, original: list[Input], message: Column, contract: Contract) -> list[Column]:
    """The columns of rejected rows; not computed for good rows."""
    code = F.col("_code")
    if contract.max_value_bytes is None:
        record = record_of(original, *_NOT_RECORDED)
    else:
        # Each copy of a row of many MiB counts: the columns of the reject keep the payload, so the record need not.
        record = evaluate_once(
            payload_bytes(given) <= contract.max_value_bytes,
            lambda is_small: record_of([_with_payload(each, is_small) for each in original], *_NOT_RECORDED),
        )
    source = F.make_valid_utf8(read_or_null(given, SOURCE, read.text, "string"))
    return [
        code.alias("error_code"),
        interpreted(message, code.isNotNull()).alias("error_message"),
        interpreted(record, code.isNotNull()).alias("record"),
        (source if SOURCE_SEQ in given else F.when(code.isNotNull(), source)).alias("source"),
    ]


def _with_payload(each: Input, kept: Column) -> Input:
    """A column with its part of the payload (of presets, in the column ``kafka``) only where it is kept."""
    if each.name.lower() in _PAYLOAD:
        return each._replace(column=F.when(kept, each.column))
    if each.name != "kafka" or not isinstance(each.kind, T.StructType) or "offset" not in each.kind.names:
        return each
    fields = (
        (F.when(kept, part) if name in _PAYLOAD else part).alias(name)
        for name, part in ((field.name, each.column.getField(field.name)) for field in each.kind)
    )
    return each._replace(column=F.struct(*fields))
