"""The columns that make a command a series, and ``spread``: read, checked, and made one rule.

::

    repeat, time_zone, until, count, on_missed, on_gap, on_fold  -->  repeat     one JSON text, alike for equal rules
    starts_at, deliver_at, delay, event_time                     -->  anchor_ms  the instant from which a rule counts
                                                                      last_ms    the instant before the first occurrence
    spread, schedule_id                                          -->  spread_ms  how much later each is released

What a rule means, and whether it is one, the wheel finds out (:mod:`wheel_udf.policies.series`). Here stand the
checks of the other columns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands import readers as read, time_readers as times
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.inputs import Given
from wheel_udf.commands.rules import DUE_COLUMNS, Rule
from wheel_udf.common.command_facts import (
    LONGEST_REPEAT,
    LONGEST_ZONE,
    MOST_SPREAD_MS,
    ON_FOLD,
    ON_GAP,
    ON_MISSED,
    SERIES_FIELDS,
)
from wheel_udf.common.durations import BLANKS
from wheel_udf.common.instants import MAX_INSTANT_MS

OUTPUT: Final = ("repeat", "anchor_ms", "spread_ms", "last_ms")
"""The columns of :func:`output_columns`: a string and three longs (int64)."""

_POLICIES: Final = {"on_missed": ON_MISSED, "on_gap": ON_GAP, "on_fold": ON_FOLD}
_ROUNDED_UP: Final = {"starts_at": True, "until": False}
_TEXTS: Final = {"repeat": LONGEST_REPEAT, "time_zone": LONGEST_ZONE}


@dataclass(frozen=True)
class Series:
    """The columns of a series, read: an array of n values each, null for null or unreadable.

    Attributes:
        times_ms: ``starts_at`` and ``until`` (int64).
        texts: ``repeat`` and ``time_zone``.
        policies: The words in lower case.
        count: How many occurrences (int64).
        window_ms: ``spread`` (int64).
    """

    times_ms: dict[str, pa.Int64Array]
    texts: dict[str, pa.StringArray]
    policies: dict[str, pa.StringArray]
    count: pa.Int64Array
    window_ms: pa.Int64Array


def read_columns(given: Given) -> Series:
    """Reads the columns, each by itself.

    Raises:
        UnfitTypeError: A column's type can hold no valid value.
    """
    return Series(
        times_ms={
            name: given.read(name, times.instants_ms, pa.int64(), round_up=up)
            for name, up in _ROUNDED_UP.items()
        },
        texts={name: given.read(name, read.text, pa.string()) for name in _TEXTS},
        policies={name: given.read(name, read.words, pa.string()) for name in _POLICIES},
        count=given.read("count", read.whole_number, pa.int64()),
        window_ms=given.read("spread", times.durations_ms, pa.int64()),
    )


def rules(given: Given, series: Series) -> list[Rule]:
    """The rules of these columns, in order."""
    nothing_else = pc.invert(given.is_there("repeat"))
    is_due = reduce(pc.or_, (given.is_there(name) for name in DUE_COLUMNS))
    broken: list[tuple[str, str, pa.BooleanArray]] = [("two_starts", "starts_at", is_due)]
    broken += [("no_repeat", name, nothing_else) for name in ("starts_at", "until", "count")]
    for name, most in _TEXTS.items():
        if given.has_values(name):
            words = series.texts[name]
            is_bad = pc.or_(pc.equal(words, ""), pc.greater(pc.utf8_length(words), most))
            is_text = read.is_utf8(given.read(name, read.octets, pa.binary()))
            broken.append((f"bad_{name}", name, pc.or_(is_bad, pc.invert(is_text))))
    for name, at_ms in series.times_ms.items():
        is_bad = pc.or_kleene(pc.is_null(at_ms), pc.greater(pc.abs(at_ms), MAX_INSTANT_MS))
        broken.append((f"bad_{name}", name, is_bad))
    broken.append(("bad_count", "count", _is_not_from(series.count, 1)))
    for name, known in _POLICIES.items():
        is_known = pc.is_in(series.policies[name], pa.array(known))
        broken.append((f"bad_{name}", name, pc.invert(is_known)))
    is_wide = pc.greater(series.window_ms, MOST_SPREAD_MS)
    broken.append(("bad_spread", "spread", pc.or_kleene(_is_not_from(series.window_ms, 0), is_wide)))
    return [
        Rule(code, pc.and_kleene(given.is_there(name), condition), given.shown(name))
        for code, name, condition in broken
        if given.has_values(name)
    ]


def _is_not_from(numbers: pa.Int64Array, least: int) -> pa.BooleanArray:
    return pc.or_kleene(pc.is_null(numbers), pc.less(numbers, least))


def is_given(given: Given) -> pa.BooleanArray:
    """Which rows have a value in one of these columns."""
    return reduce(pc.or_, (given.is_there(name) for name in SERIES_FIELDS))


def offsets_ms(names: pa.BinaryArray, window_ms: pa.Int64Array) -> pa.Int64Array:
    """How far each row is moved within the window of its ``spread``: by a hash of its id; 0 without a window."""
    moved = np.zeros(len(names), np.int64)
    is_window = pc.and_(pc.greater(window_ms, 1), pc.less_equal(window_ms, MOST_SPREAD_MS))
    is_moved = pc.fill_null(is_window, fill_value=False).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(is_moved & pc.is_valid(names).to_numpy(zero_copy_only=False)).tolist():
        digest = blake2b(names[row].as_py(), digest_size=8).digest()
        moved[row] = int.from_bytes(digest, "big") % window_ms[row].as_py()
    return pa.array(moved)


def output_columns(
    series: Series,
    contract: Contract,
    *,
    is_series: pa.BooleanArray,
    due_ms: pa.Int64Array,
    made_ms: pa.Int64Array,
    spread_ms: pa.Int64Array,
) -> dict[str, pa.Array]:
    """The columns :data:`OUTPUT` of good schedules with ``repeat`` (``is_series``); null of others."""
    begin_ms = pc.coalesce(due_ms, series.times_ms["starts_at"])
    columns = {
        "repeat": _rules_json(series, contract, is_series),
        "anchor_ms": pc.coalesce(begin_ms, made_ms),
        "spread_ms": spread_ms,
        "last_ms": pc.coalesce(pc.subtract(begin_ms, 1), made_ms),
    }
    return {name: pc.if_else(is_series, column, None) for name, column in columns.items()}


def _rules_json(series: Series, contract: Contract, is_series: pa.BooleanArray) -> pa.StringArray:
    texts: list[str | None] = [None] * len(is_series)
    for row in np.flatnonzero(is_series.to_numpy(zero_copy_only=False)).tolist():
        # Policies that are the default are left out, so that equal rules have equal texts.
        policies = {name: words[row].as_py() for name, words in series.policies.items()}
        rule: dict[str, Any] = {
            "repeat": series.texts["repeat"][row].as_py().strip(BLANKS),
            "time_zone": series.texts["time_zone"][row].as_py() or contract.time_zone,
            "until_ms": series.times_ms["until"][row].as_py(),
            "count": series.count[row].as_py(),
            **{name: None if word == _POLICIES[name][0] else word for name, word in policies.items()},
            "most": contract.most_missed if policies["on_missed"] == "all" else None,
        }
        texts[row] = json.dumps(
            {name: value for name, value in rule.items() if value is not None},
            ensure_ascii=False,
            separators=(",", ":"),
        )
    return pa.array(texts, pa.string())
