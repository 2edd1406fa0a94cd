"""The columns of a RETRY: a consumer gives a delivery back that it could not handle.

::

    op: RETRY, schedule_id, seq, deliver_at, destination, key, value, headers   as they were delivered
    attempt     which attempt has failed, from 1                                header wheel-attempt of the delivery
    occurrence  of a series, which one it was                                   likewise
    amend, first_amend, failed_at, first_error                                  likewise, what the delivery said
    error       why it has failed

The wheel decides when there is another attempt, or that there is none (:mod:`wheel_udf.policies.retries`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, functions as F

from wheel_udf.commands import readers as read, time_readers as times
from wheel_udf.commands.generated_code import interpreted
from wheel_udf.commands.inputs import Inputs, read_or_null
from wheel_udf.commands.rules import Rule
from wheel_udf.common.command_facts import LONGEST_ERROR
from wheel_udf.common.durations import BLANKS
from wheel_udf.shard.rows import RETRY

OUTPUT: Final = (
    *("act", "amend", "attempt", "occurrence", "first_amend"),
    *("failed_at_ms", "first_error", "last_error"),
)
"""The columns of :func:`output_columns`."""

MOST: Final = 2**24 - 1
"""The largest attempt and amend."""

_NUMBERS: Final = {
    "attempt": (1, MOST),
    "occurrence": (1, 2**53),
    "amend": (0, MOST),
    "first_amend": (0, MOST),
}
"""With the least and the largest."""


def is_there(given: Inputs) -> bool:
    """Whether rows may be RETRYs."""
    return "op" in given and "attempt" in given


def read_columns(given: Inputs) -> list[Column]:
    """``_is_retry``, and what else a RETRY has; null of other rows."""
    if not is_there(given):
        return []
    word = F.lower(F.btrim(given["op"].read(read.text), F.lit(BLANKS)))
    return [F.coalesce(word == "retry", F.lit(False)).alias("_is_retry")]


def rules(given: Inputs) -> list[Rule]:
    """The rules of a RETRY, in order."""
    if not is_there(given):
        return []
    numbers = []
    for name, (least, most) in _NUMBERS.items():
        if name in given:
            number, asked = _number(given, name), given[name].column.isNotNull()
            bad = asked & ~F.coalesce(number.between(least, most), F.lit(False))
            numbers.append(Rule(f"bad_{name}", bad, given[name].shown))
    return numbers


def _number(given: Inputs, name: str) -> Column:
    return read_or_null(given, name, read.whole_number, "long")


def output_columns(given: Inputs) -> list[Column]:
    """The columns :data:`OUTPUT`: of a good RETRY; of other rows 0 and null."""
    if not is_there(given):
        return []

    def text(name: str) -> Column:
        return read_or_null(given, name, read.text, "string")

    columns = {
        "act": F.lit(RETRY).cast("byte"),
        "amend": F.coalesce(_number(given, "amend"), F.lit(0)).cast("int"),
        "attempt": F.coalesce(_number(given, "attempt"), F.lit(1)),
        "occurrence": _number(given, "occurrence"),
        "first_amend": F.coalesce(_number(given, "first_amend"), F.lit(0)).cast("int"),
        "failed_at_ms": read_or_null(given, "failed_at", times.instant_ms, "long", round_up=False),
        "first_error": _short(text("first_error")),
        "last_error": _short(F.coalesce(text("error"), F.lit("the consumer has given it back"))),
    }
    is_retry = F.col("_code").isNull() & F.col("_is_retry")
    return [interpreted(column, is_retry).alias(name) for name, column in columns.items()]


def _short(text: Column) -> Column:
    return F.make_valid_utf8(F.substring(text, 1, LONGEST_ERROR))
