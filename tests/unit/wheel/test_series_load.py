"""The load of series to come, against a list of their occurrences."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from wheel_udf.policies.series import rule_of
from wheel_udf.policies.series_load import SERIES_SCHEMA, Steps, later_occurrences
from wheel_udf.policies.series_range import occurrences_in
from wheel_udf.recurrence.rule import Kind

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
T0_MS = 1_774_569_600_000
"""2026-03-27T00:00Z, two days before Paris sets its clocks forward."""


def series(repeat: str, nominal_ms: int, **others: Any) -> dict[str, Any]:
    names = ("time_zone", "until_ms", "count", "on_gap", "on_fold")
    told = {"repeat": repeat, "time_zone": "UTC"} | {
        name: others.pop(name) for name in names if name in others
    }
    row = {"anchor_ms": T0_MS, "nominal_ms": nominal_ms, "spread_ms": 0, "occurrence": 0, "rows": 1}
    row |= {"repeat": json.dumps(told), "destination": "out", "bytes": 0} | others
    return row | {"released_ms": others.get("released_ms", nominal_ms + row["spread_ms"])}


def load_of(steps: Steps, *rows: dict[str, Any]) -> list[tuple[int, str, int, int]]:
    """The steps, by the distance of their begin from T0 in minutes."""
    found = later_occurrences(pa.Table.from_pylist(list(rows), schema=SERIES_SCHEMA), steps).to_pylist()
    minutes = [((row["from_ms"] - T0_MS) // MINUTE_MS, *list(row.values())[1:]) for row in found]
    return sorted(minutes)


def hours(number: int, clock_ms: int = T0_MS) -> Steps:
    return Steps(clock_ms, T0_MS, HOUR_MS, number)


def test_each_occurrence_behind_the_next_one_is_counted_in_its_step() -> None:
    row = series("every 15 minutes", T0_MS + 15 * MINUTE_MS, rows=3, bytes=20)
    assert load_of(hours(3), row) == [(0, "out", 6, 40), (60, "out", 12, 80), (120, "out", 12, 80)]


def test_count_and_until_end_a_series() -> None:
    counted = series("every 15 minutes", T0_MS + 15 * MINUTE_MS, count=10, occurrence=4)
    ended = series("*/15 * * * *", T0_MS + 15 * MINUTE_MS, until_ms=T0_MS + 65 * MINUTE_MS)
    assert load_of(hours(3), counted) == [(0, "out", 2, 0), (60, "out", 3, 0)]
    assert load_of(hours(3), ended) == [(0, "out", 2, 0), (60, "out", 1, 0)]


def test_a_spread_moves_an_occurrence_into_the_step_in_which_it_is_released() -> None:
    rows = [
        series("0 * * * *", T0_MS + HOUR_MS, spread_ms=minutes * MINUTE_MS, destination=str(minutes))
        for minutes in (0, 59, 60)
    ]
    assert load_of(hours(4), *rows) == [
        (120, "0", 1, 0),
        (120, "59", 1, 0),
        (180, "0", 1, 0),
        (180, "59", 1, 0),
        (180, "60", 1, 0),
    ]


def test_an_occurrence_right_after_the_clock_is_counted_though_its_spread_is_rounded_down() -> None:
    # 90 minutes are rounded down to 72, three sixtieths of a day.
    row = series("every 15 minutes", T0_MS - 2 * DAY_MS, spread_ms=90 * MINUTE_MS)
    assert load_of(Steps(T0_MS, T0_MS, DAY_MS, 1), row) == [(0, "out", 95, 0)], "from 00:15 to 23:45"


def test_what_has_passed_while_nothing_ran_is_not_load_to_come_but_counts_in_the_series() -> None:
    clock_ms = T0_MS + 2 * HOUR_MS
    row = series("every 1 hour", T0_MS + HOUR_MS - 5 * HOUR_MS, anchor_ms=T0_MS - 9 * HOUR_MS, count=8)
    assert load_of(hours(9, clock_ms), row) == [(180, "out", 1, 0)]
    days = series("every 1 day", T0_MS - 3 * DAY_MS, anchor_ms=T0_MS - 9 * DAY_MS, count=5)
    assert load_of(hours(50), days) == [(24 * 60, "out", 1, 0)]


def test_what_passes_until_the_time_to_which_an_act_has_moved_an_occurrence_is_no_load() -> None:
    row = series("every 1 hour", T0_MS + HOUR_MS, released_ms=T0_MS + 3 * HOUR_MS + MINUTE_MS)
    assert load_of(hours(6), row) == [(240, "out", 1, 0), (300, "out", 1, 0)]


def test_a_local_time_follows_the_clocks_of_its_zone() -> None:
    row = series("30 2 * * *", T0_MS + 90 * MINUTE_MS, time_zone="Europe/Paris")
    day = [25 * 60, 49 * 60, 72 * 60]  # 01:30, then 03:00 for 02:30, then 02:30 in summer, in UTC
    assert load_of(hours(80), row) == [(minute // 60 * 60, "out", 1, 0) for minute in day]


def test_every_second_of_a_year_is_counted_and_not_listed() -> None:
    year = Steps(T0_MS, T0_MS, 6 * HOUR_MS, 1_460)
    for repeat in ("every 1 second", "* * * * * *"):
        found = load_of(year, series(repeat, T0_MS + SECOND_MS))
        assert [rows for _, _, rows, _ in found] == [21_598, *[21_600] * 1_459]


def test_the_occurrences_in_a_range_begin_with_its_first_instant_and_end_before_its_last() -> None:
    cron, every = (
        json.dumps({"repeat": each, "time_zone": "UTC"}) for each in ("0 * * * *", "every 30 minutes")
    )
    texts = pa.chunked_array([[cron, every, cron, every]])
    anchors = np.array([T0_MS, T0_MS + MINUTE_MS, T0_MS, T0_MS + HOUR_MS])
    rows, at_ms = occurrences_in(texts, anchors, T0_MS - HOUR_MS, T0_MS + HOUR_MS, 100)
    found = sorted(zip(rows.tolist(), ((at_ms - T0_MS) // MINUTE_MS).tolist(), strict=True))
    assert found == [(0, -60), (0, 0), (1, 1), (1, 31), (2, -60), (2, 0)], "a period begins at its anchor"
    rows, _ = occurrences_in(texts, anchors, T0_MS - 10**12, T0_MS, 100)
    assert len(rows) > 100, "more than the bound: the search ended"


RULES: list[tuple[dict[str, Any], int]] = [
    ({"repeat": "every 15 minutes"}, 3),
    ({"repeat": "every 7 minutes"}, 3),
    ({"repeat": "*/20 * * * *"}, 3),
    ({"repeat": "0 9 * * MON-FRI", "time_zone": "Europe/Paris"}, 40),
    ({"repeat": "30 2 * * *", "time_zone": "Europe/Paris", "on_fold": "both"}, 40),
    ({"repeat": "every 1 day", "time_zone": "Europe/Paris"}, 40),
    ({"repeat": "every 1 month"}, 400),
    ({"repeat": "RRULE:FREQ=DAILY;INTERVAL=2"}, 40),
]
"""Rules, and how many days from T0 on are listed."""
somes = st.fixed_dictionaries(
    {
        "anchor": st.sampled_from((-3_000, -1_001, -17, 0)),
        "skip": st.integers(0, 9),
        "spread": st.sampled_from((0, 0, 1, 10, 90, 2_000)),
        "count": st.none() | st.integers(1, 60),
        "until": st.none() | st.integers(0, 6_000),
        "moved": st.sampled_from((0, 0, 0, 45, 3_000)),
        "rows": st.integers(1, 3),
        "to": st.sampled_from("ab"),
    }
)


@cache
def listed(text: str, days: int, anchor: int) -> list[int]:
    """All occurrences from an anchor (in minutes from T0) on."""
    anchor_ms = T0_MS + anchor * MINUTE_MS
    found = rule_of(text).occurrences.between(anchor_ms - 1, T0_MS + days * DAY_MS, anchor_ms, 10_000)
    return [int(each) for each in found]


@given(
    some=st.lists(somes, min_size=1, max_size=5),
    one=st.sampled_from(RULES),
    clock=st.integers(-2_000, 500),
    width=st.sampled_from((1, 7, 60, 1_440)),
    number=st.integers(1, 500),
)
def test_what_is_counted_is_what_a_list_of_the_occurrences_holds(
    some: list[dict[str, Any]], one: tuple[dict[str, Any], int], clock: int, width: int, number: int
) -> None:
    clock_ms, width_ms = T0_MS + clock * MINUTE_MS, width * MINUTE_MS
    rule, days = {"time_zone": "UTC"} | one[0], one[1]
    number = max(1, min(number, (days - 1) * 1_440 // width))
    steps = Steps(clock_ms, clock_ms // width_ms * width_ms, width_ms, number)
    # What is counted is exact; of rules that are not walked, a sixtieth of a step decides in which step.
    of_rule = rule_of(json.dumps(rule)).occurrences.rule
    wanted: Counter[tuple[int, str]] = Counter()
    rows = []
    for each in some:
        until_ms = None if each["until"] is None else T0_MS + each["until"] * MINUTE_MS
        ends = {"count": each["count"], "until_ms": until_ms}
        spread_ms, skip = each["spread"] * MINUTE_MS, each["skip"]
        nominal_ms, *later = listed(json.dumps(rule), days, each["anchor"])[skip:]
        released_ms = nominal_ms + spread_ms + each["moved"] * MINUTE_MS
        row = series("", nominal_ms, spread_ms=spread_ms, occurrence=skip, released_ms=released_ms)
        row |= {"rows": each["rows"], "bytes": 5, "destination": each["to"]}
        row["anchor_ms"] = T0_MS + each["anchor"] * MINUTE_MS
        rows.append(row | {"repeat": json.dumps(rule | {name: end for name, end in ends.items() if end})})
        shift_ms = spread_ms if of_rule.kind == Kind.CRON else 0
        if of_rule.kind == Kind.ELAPSED:
            shift_ms = spread_ms + row["anchor_ms"] % of_rule.size
        rest_ms = shift_ms % steps.unit_ms
        for number_of, at_ms in enumerate(later, skip + 2):
            is_over = number_of > (each["count"] or 10**9) or at_ms > (until_ms or 10**15)
            if not is_over and max(clock_ms, released_ms) < at_ms + spread_ms < steps.edges_ms[-1]:
                counted_ms = max(at_ms + spread_ms - rest_ms, steps.first_ms)
                wanted[counted_ms // width_ms * width_ms, each["to"]] += each["rows"]
    found = later_occurrences(pa.Table.from_pylist(rows, schema=SERIES_SCHEMA), steps).to_pylist()
    assert {(row["from_ms"], row["destination"]): row["rows"] for row in found} == wanted
