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

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands import readers as read, time_readers as times
from wheel_udf.commands.inputs import Given
from wheel_udf.commands.rules import Rule
from wheel_udf.common.command_facts import LONGEST_ERROR
from wheel_udf.shard.rows import RETRY

OUTPUT: Final = {
    "act": pa.int8(), "amend": pa.int32(), "attempt": pa.int64(), "occurrence": pa.int64(),
    "first_amend": pa.int32(), "failed_at_ms": pa.int64(), "first_error": pa.string(), "last_error": pa.string(),
}  # fmt: skip
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


@dataclass(frozen=True)
class Failures:
    """The columns of a RETRY, read: an array of n values each, null for null or unreadable.

    Attributes:
        is_retry: Which rows are RETRYs.
        numbers: Attempt, occurrence and the rest (int64).
        failed_at_ms: UTC epoch ms (int64).
        first_error: Text, as `error`.
    """

    is_retry: pa.BooleanArray
    numbers: dict[str, pa.Int64Array]
    failed_at_ms: pa.Int64Array
    first_error: pa.StringArray
    error: pa.StringArray


def read_columns(given: Given) -> Failures:
    """Reads the columns, each by itself.

    Raises:
        UnfitTypeError: A column's type can hold no valid value.
    """
    word = given.read("op", read.words, pa.string())
    return Failures(
        is_retry=pc.fill_null(pc.equal(word, "retry"), fill_value=False),
        numbers={name: given.read(name, read.whole_number, pa.int64()) for name in _NUMBERS},
        failed_at_ms=given.read("failed_at", times.instants_ms, pa.int64(), round_up=False),
        first_error=given.read("first_error", read.text, pa.string()),
        error=given.read("error", read.text, pa.string()),
    )


def rules(given: Given, failures: Failures) -> list[Rule]:
    """The rules of a RETRY, in order."""
    broken = []
    for name, (least, most) in _NUMBERS.items():
        number = failures.numbers[name]
        within = pc.and_(pc.greater_equal(number, least), pc.less_equal(number, most))
        is_bad = pc.and_(given.is_there(name), pc.invert(pc.fill_null(within, fill_value=False)))
        broken.append(Rule(f"bad_{name}", is_bad, given.shown(name)))
    if given.has_values("repeat"):
        repeats = pc.and_(failures.is_retry, given.is_there("repeat"))
        broken.append(Rule("retry_repeats", repeats, given.shown("repeat")))
    return broken


def output_columns(failures: Failures, good: pa.BooleanArray) -> dict[str, pa.Array]:
    """The columns :data:`OUTPUT`: of a good RETRY; null of other rows."""
    zero, numbers = pa.scalar(0, pa.int64()), failures.numbers
    columns = {
        "act": pa.scalar(RETRY, pa.int8()),
        "amend": pc.coalesce(numbers["amend"], zero),
        "attempt": pc.coalesce(numbers["attempt"], pa.scalar(1, pa.int64())),
        "occurrence": numbers["occurrence"],
        "first_amend": pc.coalesce(numbers["first_amend"], zero),
        "failed_at_ms": failures.failed_at_ms,
        "first_error": _short(failures.first_error),
        "last_error": _short(pc.fill_null(failures.error, "the consumer has given it back")),
    }
    is_retry = pc.and_(good, failures.is_retry)
    return {name: pc.if_else(is_retry, column, None).cast(OUTPUT[name]) for name, column in columns.items()}


def _short(texts: pa.StringArray) -> pa.StringArray:
    return pc.utf8_slice_codeunits(texts, 0, LONGEST_ERROR)
