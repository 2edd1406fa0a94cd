"""Where cells, bars and lines lie."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.page.figures import GEOMETRY, NOW_MS, line
from wheel_udf.common.geometry import Wheel
from wheel_udf.page import charts
from wheel_udf.page.hour import hour_of

SLOT = NOW_MS // 1_000


def filled(chart: dict[str, Any]) -> dict[tuple[int, int], int]:
    """Level and column of the cells that hold entries."""
    return {
        (row["level"], place): cell["rows"]
        for row in chart["rows"]
        for place, cell in enumerate(row["cells"])
        if cell["shade"]
    }


def test_a_cell_is_a_slot_from_the_clock_on_and_the_last_one_is_what_is_beyond_the_ring() -> None:
    cells = [
        (1, SLOT - 5, 1),
        (1, SLOT, 2),
        (1, SLOT + 19, 3),
        (2, SLOT // 20 + 1, 4),
        (4, SLOT // 8_000 + 99, 5),
    ]
    chart = charts.heat_map(GEOMETRY, NOW_MS, cells)
    assert filled(chart) == {(1, 0): 3, (1, 19): 3, (2, 1): 4, (4, 20): 5}
    assert [row["tick"] for row in chart["rows"]] == ["1 s", "20 s", "6.7 min", "2.2 h"]
    assert chart["columns"] == 21
    assert (
        chart["rows"][0]["cells"][1]["tip"]
        == "level 1, due 2026-01-01 10:00:01 to 2026-01-01 10:00:02 UTC: 0"
    )


def test_windows_of_the_store_are_cells_of_their_level_and_are_counted_apart() -> None:
    chart = charts.heat_map(
        GEOMETRY, NOW_MS, [(3, SLOT // 400 + 1, 1)], [(3, NOW_MS + 400_000, NOW_MS + 800_000, 7)]
    )
    assert filled(chart) == {(3, 1): 8}
    assert [row["stored"] for row in chart["rows"]] == [0, 0, 7, 0]


def test_a_level_of_many_slots_has_at_most_32_cells_and_one_more() -> None:
    chart = charts.heat_map(Wheel(1_000, 7_200, 1), NOW_MS, [(1, SLOT + 226, 2), (1, SLOT + 7_199, 1)])
    assert chart["columns"] == 33
    assert filled(chart) == {(1, 1): 2, (1, 31): 1}


def test_shades_follow_the_logarithm_of_the_count() -> None:
    assert [charts.shade(rows, 1_000_000) for rows in (0, 1, 10, 1_000, 1_000_000)] == [0, 1, 2, 4, 8]
    assert charts.shade(1, 1) < 4


def test_a_bar_of_the_forecast_is_a_step_stacked_by_destination() -> None:
    chart = charts.forecast({"sms": {2: 30, 4: 5}, "mail": {2: 10}}, NOW_MS)
    assert [(bar["name"], bar["rows"]) for bar in chart["bars"]] == [
        ("≤ 3 s", 40),
        ("≤ 10 s", 0),
        ("≤ 30 s", 5),
    ]
    assert [(part["name"], part["rows"]) for part in chart["bars"][0]["parts"]] == [("sms", 30), ("mail", 10)]
    assert [part["below"] for part in chart["bars"][0]["parts"]] == [0, 30]
    assert chart["axis"] == {"ticks": ["0", "10", "20", "30", "40"], "top": 40}
    assert chart["bars"][0]["tip"] == "≤ 3 s, by 2026-01-01 10:00:03 UTC: 40 (sms 30; mail 10)"
    assert charts.forecast({}, NOW_MS)["bars"] == []


def test_more_than_six_destinations_are_the_largest_six_and_others() -> None:
    kept = charts.largest_series({f"d{n}": {1: n} for n in range(1, 10)})
    assert kept == {
        "d9": {1: 9},
        "d8": {1: 8},
        "d7": {1: 7},
        "d6": {1: 6},
        "d5": {1: 5},
        "d4": {1: 4},
        "3 others": {1: 6},
    }


def test_rows_of_a_window_are_divided_among_steps_by_their_spans() -> None:
    # 30 s to 90 s: half of it is the step up to a minute, half the one up to three.
    assert charts.spread([(3, NOW_MS + 30_000, NOW_MS + 90_000, 100)], NOW_MS) == {5: 50, 6: 50}
    assert charts.spread([(3, NOW_MS - 10_000, NOW_MS, 4)], NOW_MS) == {0: 4}


def test_a_line_has_a_gap_where_nothing_fired() -> None:
    assert charts.line_path([None, 900, None, 900, 9_000], 1_500) == "M1 80.0H2M3 80.0H4V0.0H5"


@pytest.mark.parametrize(
    ("most", "texts"),
    [(0, ["0", "1"]), (7, ["0", "2", "4", "6", "8"]), (1_200_000, ["0", "500k", "1.0M", "1.5M"])],
)
def test_an_axis_of_counts_has_round_ticks(most: int, texts: list[str]) -> None:
    assert charts.count_axis(most)["ticks"] == texts


def test_an_axis_of_spans_has_spans_that_people_use() -> None:
    assert charts.span_axis(1_200) == {"ticks": ["0 ms", "500 ms", "1 s", "1.5 s"], "top": 1_500}


def test_the_hour_adds_up_the_wheels_batches_and_leaves_out_the_intake_and_what_is_older() -> None:
    lines = [
        line(3_700_000, fired=99),
        line(50_000, paused=True),
        line(40_000, query="intake", fired=None, lateness=None),
        line(30_000, lateness={"count": 10, "p50_ms": 1, "p99_ms": 2_000, "max_ms": 5_000}),
        line(20_000, fired=0, lateness=None),
    ]
    hour = hour_of(lines, NOW_MS)
    assert (hour["fired"], hour["received"], hour["rejected"], hour["batches"]) == (20, 36, 3, 3)
    assert (hour["p99_ms"], hour["paused"]) == (2_000, False)
    assert hour["minutes"][58] == {
        "fired": 20, "received": 36, "rejected": 3, "p50_ms": 1, "p99_ms": 2_000, "max_ms": 5_000,
    }  # fmt: skip


def test_one_late_row_was_the_median_of_its_minute() -> None:
    usual = {"count": 1_000, "p50_ms": 100, "p99_ms": 100, "max_ms": 100}
    late = {"count": 1, "p50_ms": 60_000, "p99_ms": 60_000, "max_ms": 60_000}
    lines = [*(line(30_000, lateness=usual) for _ in range(19)), line(30_000, lateness=late)]
    minute = hour_of(lines, NOW_MS)["minutes"][58]
    assert (minute["p50_ms"], minute["p99_ms"], minute["max_ms"]) == (100, 100, 60_000)
