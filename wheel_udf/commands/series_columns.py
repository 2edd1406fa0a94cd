"""The columns that make a command a series, and ``spread``: read, checked, and made one rule.

::

    repeat, time_zone, until, count, on_missed, on_gap, on_fold  -->  repeat     one JSON text, alike for equal rules
    starts_at, deliver_at, delay, event_time                     -->  anchor_ms  the instant from which a rule counts
                                                                      last_ms    the instant before the first occurrence
    spread, schedule_id                                          -->  spread_ms  how much later each is released

What a rule means, and whether it is one, the wheel finds out (:mod:`wheel_udf.policies.series`): the JVM knows neither
cron nor RRULE. Here stand the checks of the other columns.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Final

from pyspark.sql import Column, functions as F

from wheel_udf.commands import readers as read, time_readers as times
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.generated_code import interpreted
from wheel_udf.commands.inputs import Inputs
from wheel_udf.commands.rules import DUE_COLUMNS, Rule
from wheel_udf.common.command_facts import (
    LONGEST_REPEAT,
    LONGEST_ZONE,
    ON_FOLD,
    ON_GAP,
    ON_MISSED,
    SERIES_FIELDS,
)
from wheel_udf.common.durations import BLANKS
from wheel_udf.common.instants import MAX_INSTANT_MS
from wheel_udf.shard.rows import SCHEDULE

OUTPUT: Final = ("repeat", "anchor_ms", "spread_ms", "last_ms")
"""The columns of :func:`output_columns`: a string and three longs."""

_POLICIES: Final = {"on_missed": ON_MISSED, "on_gap": ON_GAP, "on_fold": ON_FOLD}
_ROUNDED_UP: Final = {"starts_at": True, "until": False}


def read_columns(given: Inputs) -> list[Column]:
    """The columns that are there, each by itself: null means null or unreadable."""
    columns = [
        interpreted(given[name].read(times.instant_ms, round_up=up), given[name].column.isNotNull()).alias(
            f"_{name}_ms"
        )
        for name, up in _ROUNDED_UP.items()
        if name in given
    ]
    columns += [
        given[name].read(read.text).alias(f"_{name}") for name in ("repeat", "time_zone") if name in given
    ]
    columns += [
        interpreted(
            F.lower(F.btrim(given[name].read(read.text), F.lit(BLANKS))), given[name].column.isNotNull()
        ).alias(f"_{name}")
        for name in _POLICIES
        if name in given
    ]
    if "count" in given:
        number = given["count"].read(read.whole_number)
        columns.append(interpreted(number, given["count"].column.isNotNull()).alias("_count"))
    return columns


def rules(given: Inputs) -> list[Rule]:
    """The rules of these columns, in order."""
    broken: list[tuple[str, str, Column]] = []
    due = [given[name].column.isNotNull() for name in DUE_COLUMNS if name in given]
    if due:
        broken.append(("two_starts", "starts_at", reduce(operator.or_, due)))
    has_repeat = given["repeat"].column.isNotNull() if "repeat" in given else F.lit(False)
    broken += [("no_repeat", name, ~has_repeat) for name in ("starts_at", "until", "count")]
    for name, most in {"repeat": LONGEST_REPEAT, "time_zone": LONGEST_ZONE}.items():
        words = F.col(f"_{name}")
        broken.append(
            (f"bad_{name}", name, (words == "") | (F.length(words) > most) | ~F.is_valid_utf8(words))
        )
    for name in _ROUNDED_UP:
        at_ms = F.col(f"_{name}_ms")
        broken.append((f"bad_{name}", name, at_ms.isNull() | (F.abs(at_ms) > MAX_INSTANT_MS)))
    broken.append(("bad_count", "count", F.col("_count").isNull() | (F.col("_count") < 1)))
    for name, words_of in _POLICIES.items():
        broken.append((f"bad_{name}", name, ~F.coalesce(F.col(f"_{name}").isin(*words_of), F.lit(False))))
    broken.append(("bad_spread", "spread", F.col("_window_ms").isNull() | (F.col("_window_ms") < 0)))
    return [
        Rule(code, given[name].column.isNotNull() & condition, given[name].shown)
        for code, name, condition in broken
        if name in given
    ]


def is_given(given: Inputs) -> Column:
    """Whether a row has a value in one of these columns."""
    return reduce(operator.or_, (given[name].column.isNotNull() for name in SERIES_FIELDS if name in given))


def offset_ms() -> Column:
    """How far a row is moved within the window of its ``spread``; 0 without one."""
    window_ms = F.greatest(F.coalesce("_window_ms", F.lit(0)), F.lit(1))
    return F.pmod(F.xxhash64("_id"), window_ms)


def output_columns(given: Inputs, contract: Contract) -> list[Column]:
    """The columns :data:`OUTPUT` of good schedules with ``repeat``; null of others."""
    is_series = F.col("_code").isNull() & (F.col("_op") == SCHEDULE) & given["repeat"].column.isNotNull()

    def text(name: str, kind: str = "string") -> Column:
        return F.col(f"_{name}") if name.removesuffix("_ms") in given else read.null(kind)

    # Policies that are the default are left out, so that equal rules have equal texts.
    rule = F.struct(
        F.btrim("_repeat", F.lit(BLANKS)).alias("repeat"),
        F.coalesce(text("time_zone"), F.lit(contract.time_zone)).alias("time_zone"),
        text("until_ms", "long").alias("until_ms"),
        text("count", "long").alias("count"),
        *(F.nullif(text(name), F.lit(words[0])).alias(name) for name, words in _POLICIES.items()),
        F.when(text("on_missed") == "all", F.lit(contract.most_missed)).alias("most"),
    )
    begin_ms = F.col("_due_ms")
    if "starts_at" in given:
        begin_ms = F.coalesce(begin_ms, F.col("_starts_at_ms"))
    columns = (
        F.to_json(rule),
        F.coalesce(begin_ms, F.col("_made_ms")),
        offset_ms() if "spread" in given else F.lit(0).cast("long"),
        F.coalesce(begin_ms - 1, F.col("_made_ms")),
    )
    return [interpreted(each, is_series).alias(name) for name, each in zip(OUTPUT, columns, strict=True)]
