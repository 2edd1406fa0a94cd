"""The load to come of series: how many later occurrences fall due in each step of time. Nothing is listed that can be
counted.

::

    every 15 minutes, waits for 10:15; steps of an hour from 10:00, horizon 13:00

    step        10:00  11:00  12:00        the occurrence at 10:15 is the entry itself: it is not counted here
    later           3      4      4

Later occurrences are those after the one that a series waits for, and after the clock: what has passed while nothing
ran is missed or released at once, and is no load to come. `count`, `until` and `spread` hold as in the wheel.

How they are counted depends on the rule. Let C(x) be the number of its occurrences before an instant; of a series,
those between its first later one and its last one are counted, so a step adds ``clip(C(end)) - clip(C(begin))``::

    cron                 C by one pass over the bounds of all steps, for all series of the rule
    elapsed time         C is one division; the phase of a series is a part of its spread
    days, months, RRULE  from one occurrence to the next, all series at once

Bounds: at most :data:`MOST_STEPS` steps. What is counted over all steps is exact; in which step it is counted hangs on
a spread that is rounded down to a sixtieth of a step (:attr:`Steps.unit_ms`). Of rules that are walked, no more than
:data:`MOST` occurrences of a series are counted, and of a cron rule no more in one step.

Cost: of cron and elapsed time, O(steps + series log series) for each distinct spread in sixtieths of a step; of the
others, O(occurrences in the horizon).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Int64s
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.policies.series import rule_of
from wheel_udf.recurrence.occurrences import Occurrences
from wheel_udf.recurrence.rule import Kind
from wheel_udf.recurrence.sources import MOST

MOST_STEPS: Final = 100_000
"""How many steps a forecast of series has at most."""

SERIES_SCHEMA: Final = pa.schema(
    [
        ("repeat", pa.string()),
        ("anchor_ms", pa.int64()),
        ("nominal_ms", pa.int64()),
        ("released_ms", pa.int64()),
        ("spread_ms", pa.int64()),
        ("occurrence", pa.int64()),
        ("destination", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""Alike series that wait: their columns as in ``ENTRY_SCHEMA``, the nominal time of the occurrence for which they wait
and when it is to be released, how many they are, and the bytes of their payloads."""

LOAD_SCHEMA: Final = pa.schema(
    [("from_ms", pa.int64()), ("destination", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
)


@dataclass(frozen=True)
class Steps:
    """Steps of time: ``[first, first + width)`` and so on.

    Attributes:
        clock_ms: Nothing up to this instant is counted.
        first_ms: Where the first step begins.
        width_ms: Of a step.
        number: How many there are, up to :data:`MOST_STEPS`.
    """

    clock_ms: int
    first_ms: int
    width_ms: int
    number: int

    @property
    def edges_ms(self) -> Int64s:
        """The bounds of all steps: int64[number + 1]."""
        return self.first_ms + self.width_ms * np.arange(self.number + 1, dtype=np.int64)

    @property
    def unit_ms(self) -> int:
        """The unit in which spreads are counted: a step's sixtieth, or the next larger part that is a whole number."""
        return self.width_ms // max(each for each in range(1, 61) if self.width_ms % each == 0)


@dataclass(frozen=True)
class _Some:
    """Series of one rule that have one destination: arrays of one length, as in :data:`SERIES_SCHEMA`.

    Attributes:
        after_ms: Their later occurrences are after it.
        upto_ms: And up to it.
        left: How many there may be after the nominal one.
    """

    nominal_ms: Int64s
    anchor_ms: Int64s
    spread_ms: Int64s
    after_ms: Int64s
    upto_ms: Int64s
    left: Int64s
    weights: Int64s  # [2, n]: rows and bytes


def later_occurrences(series: pa.Table, steps: Steps) -> pa.Table:
    """Counts the later occurrences of series whose instants are those of one rule.

    Args:
        series: :data:`SERIES_SCHEMA`. Their rules, zones and policies of gaps and folds are the same.
        steps: The steps.

    Returns:
        :data:`LOAD_SCHEMA`: the steps that have some, for each destination.
    """
    series = series.combine_chunks()
    parts = [LOAD_SCHEMA.empty_table()]
    if not series.num_rows:
        return parts[0]
    occurrences = rule_of(series["repeat"][0].as_py()).occurrences
    by_counting = occurrences.rule.kind in (Kind.CRON, Kind.ELAPSED)
    for name in pc.unique(series["destination"]).to_pylist():
        of_name = series.filter(pc.equal(series["destination"], name))
        some = _some_of(of_name, steps)
        load = (_counted if by_counting else _walked)(occurrences, some, steps)
        at = np.flatnonzero(load[0])
        columns = [steps.edges_ms[at], [name] * len(at), load[0][at], load[1][at]]
        arrays = [pa.array(each, field.type) for each, field in zip(columns, LOAD_SCHEMA, strict=True)]
        parts.append(pa.table(arrays, schema=LOAD_SCHEMA))
    return pa.concat_tables(parts)


def _some_of(series: pa.Table, steps: Steps) -> _Some:
    texts = pc.dictionary_encode(series["repeat"]).combine_chunks()
    rules = [rule_of(text) for text in texts.dictionary.to_pylist()]
    code = texts.indices.to_numpy()
    until_ms = np.array([rule.until_ms for rule in rules], np.int64)[code]
    count = np.array([rule.count for rule in rules], np.int64)[code]
    nominal_ms, anchor_ms, released_ms, spread_ms, occurrence, rows, bytes_ = (
        series[name].to_numpy()
        for name in ("nominal_ms", "anchor_ms", "released_ms", "spread_ms", "occurrence", "rows", "bytes")
    )
    # What passes while the entry waits for a later time, to which an act has moved it, is missed.
    passed_ms = np.maximum(released_ms, max(steps.clock_ms, steps.first_ms - 1)) - spread_ms
    return _Some(
        nominal_ms,
        anchor_ms,
        spread_ms,
        after_ms=np.maximum(nominal_ms, passed_ms),
        upto_ms=np.minimum(until_ms, int(steps.edges_ms[-1]) - 1 - spread_ms),
        left=np.where(count == INT64_MAX, INT64_MAX // 2, count - occurrence - 1),
        weights=np.stack([rows, bytes_]),
    )


# ---- by counting ---------------------------------------------------------------------------------


def _counted(occurrences: Occurrences, some: _Some, steps: Steps) -> Int64s:
    """Of each step, the rows and bytes of what falls into it: int64[2, number]."""
    shift_ms = some.spread_ms.copy()
    before: _Passed | _Before
    if occurrences.rule.kind == Kind.ELAPSED:
        before, phase_ms = _Passed(occurrences.rule.size), some.anchor_ms % occurrences.rule.size
        shift_ms += phase_ms
    else:
        phase_ms = np.zeros(len(shift_ms), np.int64)
        longest_ms = int(shift_ms.max())
        before = _Before(occurrences, steps, longest_ms)
    first = before.count(some.after_ms + 1 - phase_ms)
    end = before.count(some.upto_ms + 1 - phase_ms)
    last = before.count(some.nominal_ms + 1 - phase_ms) + np.maximum(some.left, 0)
    end = np.maximum(np.minimum(end, last), first)
    units = shift_ms // steps.unit_ms
    load = np.zeros((2, steps.number), np.int64)
    order = np.argsort(units, kind="stable")
    shifts, begins = np.unique(units[order], return_index=True)
    ends = [*begins[1:].tolist(), len(order)]
    for shift, begin, stop in zip(shifts.tolist(), begins.tolist(), ends, strict=True):
        rows = order[begin:stop]
        bounds = before.count(steps.edges_ms - shift * steps.unit_ms)
        # What a rounded spread would count before the first step is counted in it.
        bounds[0], bounds[-1] = min(bounds[0], first[rows].min()), max(bounds[-1], end[rows].max())
        load += np.diff(_clipped(bounds, first[rows], end[rows], some.weights[:, rows]), axis=1)
    return load


def _clipped(bounds: Int64s, first: Int64s, end: Int64s, weights: Int64s) -> Int64s:
    """For each bound, the sum over the rows of their weight times the bound, clipped to [first, end): int64[2, n]."""
    return np.asarray(_smaller(bounds, end, weights) - _smaller(bounds, first, weights), np.int64)


def _smaller(bounds: Int64s, values: Int64s, weights: Int64s) -> Int64s:
    """For each bound, the sum of weight times the smaller of the bound and the row's value."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[:, order]
    below = np.searchsorted(values, bounds)
    sums = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(weights * values, axis=1)], axis=1)
    some = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(weights, axis=1)], axis=1)
    return np.asarray(sums[:, below] + (some[:, -1:] - some[:, below]) * bounds, np.int64)


@dataclass(frozen=True)
class _Passed:
    """C of a period of elapsed time whose phase is 0."""

    size_ms: int

    def count(self, at_ms: Int64s) -> Int64s:
        """How many occurrences are before each instant, from any beginning."""
        return np.asarray(-(-at_ms // self.size_ms), np.int64)


class _Before:
    """C of a cron rule, from the begin of the steps less the longest spread."""

    def __init__(self, occurrences: Occurrences, steps: Steps, longest_ms: int) -> None:
        self._of = occurrences
        self._unit_ms = steps.unit_ms if longest_ms else steps.width_ms
        units = -(-longest_ms // self._unit_ms) + steps.number * (steps.width_ms // self._unit_ms)
        self._last = int(units)
        end_ms = int(steps.edges_ms[-1])
        self._at_ms = end_ms - self._unit_ms * np.arange(units, -1, -1, dtype=np.int64)
        none = np.zeros(units, np.int64)
        found, _ = occurrences.upto(self._at_ms[:-1] - 1, self._at_ms[1:] - 1, none)
        self._counts = np.r_[np.int64(0), np.cumsum(found)]

    def count(self, at_ms: Int64s) -> Int64s:
        """How many occurrences are before each instant, from the begin; below 0 before it."""
        at_ms = np.minimum(at_ms, self._at_ms[-1])
        place = np.clip((at_ms - self._at_ms[0]) // self._unit_ms, 0, self._last)
        found, rest = self._counts[place], at_ms - self._at_ms[place]
        earlier, later = np.flatnonzero(rest < 0), np.flatnonzero(rest > 0)
        begin_ms = self._at_ms[place]
        zeros = np.zeros(len(at_ms), np.int64)
        found[earlier] -= self._of.upto(at_ms[earlier] - 1, begin_ms[earlier] - 1, zeros[earlier])[0]
        found[later] += self._of.upto(begin_ms[later] - 1, at_ms[later] - 1, zeros[later])[0]
        return np.asarray(found, np.int64)


# ---- from one to the next ------------------------------------------------------------------------


def _walked(occurrences: Occurrences, some: _Some, steps: Steps) -> Int64s:
    """As :func:`_counted`."""
    load = np.zeros((2, steps.number), np.int64)
    skipped, _ = occurrences.upto(some.nominal_ms, some.after_ms, some.anchor_ms)
    left, at_ms, rows = some.left - skipped, some.after_ms, np.arange(len(some.left))
    for _ in range(MOST):
        at_ms = occurrences.after(at_ms, some.anchor_ms[rows])
        goes_on = (at_ms <= some.upto_ms[rows]) & (left[rows] > 0)
        at_ms, rows = at_ms[goes_on], rows[goes_on]
        if not len(rows):
            break
        left[rows] -= 1
        step = (at_ms + some.spread_ms[rows] - steps.first_ms) // steps.width_ms
        for each, weights in zip(load, some.weights, strict=True):
            np.add.at(each, step, weights[rows])
    return load
