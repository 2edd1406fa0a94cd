"""The command contract as Spark ``Column`` expressions: a frame of anything in, the command frame out.

A command is one row: schedule this, replace it, cancel it. :func:`parse` finds the columns it knows by name
(in any case), reads and checks them, and gives one row for each row of its input, on batch and on streaming
frames alike. It holds no state and runs in the JVM alone. A row that breaks the contract is no error: it
becomes a row with an ``error_code``.

======================  ==================================================================================
input column            accepted types, and meaning
======================  ==================================================================================
``schedule_id``         string or a whole number (42 is the id ``42``); 1 to 512 bytes of UTF-8 without NUL
``op``                  string: SCHEDULE (also null or empty), REPLACE, CANCEL; case and outer blanks ignored
``seq``                 a whole number, or a float, decimal or text that is one; null: ``event_time`` in ms
``deliver_at``          timestamp, timestamp_ntz, date or ISO 8601 text; no zone = UTC; parts of a ms round up
``delay``               text in the grammar of :mod:`wheel_udf.durations`; counts from ``event_time``
``event_time``          as ``deliver_at``, but parts of a ms round down; null: the time of the batch
``destination``         string; null: the contract's default
``key``, ``value``      binary or string
``headers``             array of structs (key, value) or map; their keys and values binary or string
``max_lateness``        as ``delay``, not negative; null: the contract's
``source_coordinates``  string: where the row came from (file and row, partition and offset), for rejects
``source_seq``          long: the version of rows without ``seq``, from a source that has an order (Kafka's offset)
``_corrupt_record``     string: not null says that the row could not be read at all (as Spark's own readers do)
======================  ==================================================================================

Every column but ``schedule_id`` may be missing, which is as null. With a column ``source_seq`` the coordinates travel
with good rows too, into the wheel and out again. Strings may be binary, which is taken as
UTF-8. Extra columns are kept in ``record`` and nowhere else. A column whose type can hold no valid value (a
boolean ``deliver_at``) raises ``ContractError`` before anything runs; numbers as instants or durations are
refused row by row, since nulls and a delay of 0 are fine.

What is checked, in which order, and what of it concerns a CANCEL: :mod:`wheel_udf.rules`. An empty text is a
value and not a null, and breaks the rule of its column (but for ``op``). A due time that no timestamp can
hold is ``beyond_max_delay``, whatever the contract says.

Delay levels (:mod:`wheel_udf.levels`), if the contract has some, move due times: ``deliver_at_ms`` is then when the wheel is to release the
row, and what was asked for is ``deliver_at_ms - level_error_ms``. ``max_delay`` holds what was asked for.

Rejected rows carry the original row as JSON in ``record``: instants in UTC, nulls left out, texts and bytes
as text where they are UTF-8 and else as ``base64:...``, those in structs and in arrays of structs too (bytes in
other arrays and in maps are plain base64, broken text there has U+FFFD in it). Their ``op`` is 1 if it said
CANCEL; ``schedule_id`` is cut to 512 characters and null if it was not UTF-8; ``destination`` is what was asked for, cut to 249 characters; ``event_time_ms`` is null where
it was unusable, so that no clock can be moved by it; key, value and headers pass through.

Cost, measured: 0.6 to 0.7 us a row on one core where instants are timestamps; 0.9 us more for instants as
text, 1.5 us more for delays, 0.4 us more for frames of over 20 columns, 0.7 us more for twelve delay levels. Two things keep it there. Projections
lie between the steps, so that the optimizer does not copy one expression into all that use it. And no method
that Spark makes of them is too big for Java's just-in-time compiler: see ``interpreted``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf import columns as read
from wheel_udf.contract import Contract
from wheel_udf.durations import BLANKS
from wheel_udf.levels import NO_LEVEL, error_column, level_column
from wheel_udf.rules import (
    CANCEL,
    MAX_ID_BYTES,
    SCHEDULE,
    common_rules,
    error_code,
    error_message,
    is_ahead,
    schedule_rules,
    shown,
)

__all__ = ["CANCEL", "SCHEDULE", "Contract", "parse"]

_SOURCE: Final = "source_coordinates"
_SOURCE_SEQ: Final = "source_seq"
_UNREADABLE: Final = "_corrupt_record"
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
    *("max_lateness", _SOURCE, _SOURCE_SEQ, _UNREADABLE),
)
_COMPILED_COLUMNS: Final = 20
"""Widest frame that Spark compiles whole: every column makes its methods longer (see ``interpreted``)."""
_RECORD_OPTIONS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def parse(commands: DataFrame, contract: Contract) -> DataFrame:
    """Read and check commands.

    Args:
        commands: A batch or streaming frame with the columns of the table above.
        contract: The limits to hold them to.

    Returns:
        One row for each row of ``commands``: ``schedule_id`` string, ``op`` byte (0 schedule or replace, 1
        cancel), ``seq`` long, ``seq_given`` boolean, ``deliver_at_ms`` long (UTC epoch ms, null for a
        cancel; with levels when it is to be released), ``event_time_ms`` long, ``destination`` string, ``key`` binary, ``value`` binary, ``headers``
        string (the JSON of :data:`wheel_udf.columns.HEADERS`), ``max_lateness_ms`` long; and for rejected
        rows only ``error_code``, ``error_message``, ``record`` and ``source``, all string (``source`` of good rows
        too where the input has ``source_seq``). With delay levels also ``delay_level_ms`` long (the span of its level) and
        ``level_error_ms`` long, both null without a level. A good cancel has neither payload nor destination. All strings
        are valid UTF-8.

    Raises:
        ContractError: No ``schedule_id``, two columns of one name, or a type that can hold no valid value.
    """
    frame, given, original = read.located(commands, _NAMES, required=("schedule_id",), what="commands")
    frame = frame.select("*", read.batch_ms().alias("_batch_ms"))
    name, at_ms = given["schedule_id"].read(read.identity), F.col("_at_ms")
    if len(original) > _COMPILED_COLUMNS:
        name, at_ms = _uncompiled(name), _uncompiled(at_ms)
    frame = frame.select("*", name.alias("_id"), *_read(given, contract))
    frame = frame.select("*", *_derive(given, at_ms))
    if contract.levels is not None:
        delay_ms = F.col("_due_ms") - F.col("_made_ms")
        # A branch for each level: compiled, a long list would make the method too big for all of it.
        level_ms = interpreted(level_column(contract.levels, delay_ms), delay_ms.isNotNull())
        frame = frame.select("*", level_ms.alias("_level_ms"))
        error_ms = error_column(contract.levels, delay_ms, F.col("_level_ms"))
        frame = frame.select("*", error_ms.alias("_level_error_ms"))
    common, schedules = common_rules(given, contract), schedule_rules(given, contract)
    frame = frame.select("*", error_code(common, schedules).alias("_code"))
    message = error_message(F.col("_code"), common + schedules, contract)
    leveled = [] if contract.levels is None else _leveled()
    return frame.select(*_outcome(given, contract), *_rejection(given, original, message), *leveled)


def _read(given: read.Inputs, contract: Contract) -> list[Column]:
    """First projection: each column by itself. Null means missing, null or unreadable."""

    def column(name: str, reader: Callable[..., Column], kind: str, **options: bool) -> Column:
        return given[name].read(reader, **options) if name in given else read.null(kind)

    made_ms = F.col("_batch_ms")
    if made := given.get("event_time"):
        made_ms = F.when(made.column.isNull(), made_ms).otherwise(made.read(read.instant_ms, round_up=False))
    destination = column("destination", read.text, "string")
    if contract.default_destination is not None:
        destination = F.coalesce(destination, F.lit(contract.default_destination))
    return [
        (given["op"].read(_op) if "op" in given else F.lit(SCHEDULE).cast("byte")).alias("_op"),
        column("seq", read.whole_number, "long").alias("_seq"),
        column("deliver_at", read.instant_ms, "long", round_up=True).alias("_at_ms"),
        column("delay", _duration_parts, "array<string>").alias("_delay_parts"),
        made_ms.alias("_made_ms"),
        destination.alias("_destination"),
        column("key", read.octets, "binary").alias("_key"),
        column("value", read.octets, "binary").alias("_value"),
        column("headers", read.headers, read.HEADERS).alias("_headers"),
        column("max_lateness", _duration_parts, "array<string>").alias("_max_lateness_parts"),
    ]


def _op(column: Column, kind: T.DataType) -> Column:
    word = F.lower(F.btrim(read.text(column, kind), F.lit(BLANKS)))
    is_schedule = word.isNull() | word.isin("", "schedule", "replace")
    return F.when(is_schedule, SCHEDULE).when(word == "cancel", CANCEL).cast("byte")


def _duration_parts(column: Column, kind: T.DataType) -> Column:
    # Numbers too: a delay of 0 needs no unit.
    return read.duration_parts(
        column.cast("string") if isinstance(kind, T.NumericType) else read.text(column, kind)
    )


def _derive(given: read.Inputs, at_ms: Column) -> list[Column]:
    """Second projection: what needs two columns, or a second look at one."""
    due_ms, lateness_ms = at_ms, read.null("long")
    if delay := given.get("delay"):
        delay_ms = read.duration_ms(delay.shown, F.col("_delay_parts"))
        due_ms = F.coalesce(due_ms, F.col("_made_ms") + delay_ms)
    if lateness := given.get("max_lateness"):
        exact_ms = read.duration_ms(lateness.shown, F.col("_max_lateness_parts"))
        lateness_ms = interpreted(exact_ms, lateness.column.isNotNull())
    return [due_ms.alias("_due_ms"), lateness_ms.alias("_lateness_ms")]


def interpreted(column: Column, needed: Column) -> Column:
    """A long expression that few rows need, so that Spark does not compile it; null where it is not needed.

    What Spark compiles of a projection is one method, and beyond 8,000 bytes Java's just-in-time compiler
    leaves a method alone: measured, every row then took five times as long. Inside of a lambda Spark
    interprets.
    """
    return F.when(needed, F.get(F.transform(F.array(F.lit(0)), lambda _: column), F.lit(0)))


def _uncompiled(column: Column) -> Column:
    """The same column, in a form that makes Spark compile its projection in pieces: slower, never too big."""
    return F.coalesce(column, F.get(F.transform(F.array(column), lambda same: same), F.lit(0)))


def _outcome(given: read.Inputs, contract: Contract) -> list[Column]:
    """The columns that good rows fill."""
    rejected = F.col("_code").isNotNull()
    schedule = F.coalesce(F.col("_op"), F.lit(SCHEDULE).cast("byte")) == SCHEDULE
    carried = rejected | schedule  # a good CANCEL carries nothing
    name, due_ms, made_ms = F.col("_id"), F.col("_due_ms"), F.col("_made_ms")
    wheel_ms = (
        due_ms
        if contract.levels is None
        else due_ms + F.when(rejected, 0).otherwise(F.col("_level_error_ms"))
    )
    readable_name = F.when(F.is_valid_utf8(name), F.substring(name, 1, MAX_ID_BYTES))
    if "event_time" in given and contract.max_ahead_ms is not None:
        # Whatever else is wrong with the row: the clock may be made from this column.
        made_ms = F.when(~is_ahead(contract.max_ahead_ms), made_ms)
    seq_given = given["seq"].column.isNotNull() if "seq" in given else F.lit(False)
    own_seq = given[_SOURCE_SEQ].read(read.whole_number) if _SOURCE_SEQ in given else made_ms
    asked = F.col("_destination")
    lateness_ms = F.coalesce("_lateness_ms", F.lit(contract.max_lateness_ms)).cast("long")
    return [
        F.when(rejected, readable_name).otherwise(name).alias("schedule_id"),
        F.when(schedule, SCHEDULE).otherwise(CANCEL).cast("byte").alias("op"),
        F.when(seq_given, F.col("_seq")).otherwise(own_seq).alias("seq"),
        seq_given.alias("seq_given"),
        F.when(schedule & (F.abs(due_ms) <= read.MAX_INSTANT_MS), wheel_ms).alias("deliver_at_ms"),
        made_ms.alias("event_time_ms"),
        F.when(rejected, shown(asked, 249)).when(schedule, asked).alias("destination"),
        F.when(carried, F.col("_key")).alias("key"),
        F.when(carried, F.col("_value")).alias("value"),
        F.when(carried, F.to_json("_headers")).alias("headers"),
        F.when(schedule, lateness_ms).alias("max_lateness_ms"),
    ]


def _leveled() -> list[Column]:
    """The level and the error of good schedules that have a level."""
    has_level = F.col("_code").isNull() & (F.col("_op") == SCHEDULE) & (F.col("_level_ms") > NO_LEVEL)
    return [
        F.when(has_level, F.col("_level_ms")).alias("delay_level_ms"),
        F.when(has_level, F.col("_level_error_ms")).alias("level_error_ms"),
    ]


def _rejection(given: read.Inputs, original: list[read.Input], message: Column) -> list[Column]:
    """The columns that rejected rows alone fill; a good row computes none of them."""
    code = F.col("_code")
    source = F.make_valid_utf8(given[_SOURCE].read(read.text)) if _SOURCE in given else read.null("string")
    return [
        code.alias("error_code"),
        interpreted(message, code.isNotNull()).alias("error_message"),
        interpreted(recorded_row(original, _SOURCE, _SOURCE_SEQ), code.isNotNull()).alias("record"),
        (source if _SOURCE_SEQ in given else F.when(code.isNotNull(), source)).alias("source"),
    ]


def recorded_row(original: list[read.Input], *left_out: str) -> Column:
    """The JSON of a row as it came."""
    told = [each for each in original if each.name.lower() not in left_out]
    return F.to_json(
        F.struct(*(recorded(each.column, each.kind).alias(each.name) for each in told)), _RECORD_OPTIONS
    )


def recorded(column: Column, kind: T.DataType) -> Column:
    """Texts and bytes, in structs and arrays of structs too, as they are, or in base64 if JSON would not keep them."""
    if isinstance(kind, T.StructType):
        fields = (recorded(column.getField(each.name), each.dataType).alias(each.name) for each in kind)
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType) and not isinstance(kind.elementType, T.AtomicType):
        return F.transform(column, lambda each: recorded(each, kind.elementType))
    if not isinstance(kind, T.StringType | T.CharType | T.VarcharType | T.BinaryType):
        return column
    words = column.cast("string")
    readable = F.is_valid_utf8(words) & ~F.startswith(words, F.lit("base64:"))
    return F.when(readable, words).otherwise(F.concat(F.lit("base64:"), F.base64(column.cast("binary"))))
