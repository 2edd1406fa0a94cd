"""The pure parts of the bench: ratios, verdicts, the table and the JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.bench.report import (
    Line,
    Target,
    document,
    median,
    phases_table,
    slope_per_million,
    table,
    write_json,
)

if TYPE_CHECKING:
    from pathlib import Path

FASTER = Line(
    case="a",
    what="20,000 a batch",
    figure=30_000,
    unit="rows/s",
    beside=1_000,
    beside_what="one key per message",
    target=Target(at_least=20),
)
NOTHING = Line(
    case="d", what="state rows written", figure=3, unit="rows", target=Target(of="figure", at_most=0)
)


def test_a_ratio_is_the_figure_over_the_one_beside_it() -> None:
    assert FASTER.ratio == 30.0


@pytest.mark.parametrize("beside", [None, 0.0])
def test_without_a_figure_beside_it_there_is_no_ratio(beside: float | None) -> None:
    assert Line(case="c", what="w", figure=1.0, unit="s", beside=beside).ratio is None


def test_a_target_is_met_or_missed_and_without_one_neither() -> None:
    assert (FASTER.met, NOTHING.met, Line(case="c", what="w", figure=1.0, unit="s").met) == (
        True,
        False,
        None,
    )


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (Target(at_least=20), 20.0, True),
        (Target(at_least=20), 19.9, False),
        (Target(at_most=0), 0.0, True),
        (Target(at_least=9, at_most=11), 12.0, False),
        (Target(at_least=9, at_most=11), 8.0, False),
    ],
)
def test_the_bounds_of_a_target_belong_to_it(target: Target, value: float, met: bool) -> None:
    assert target.is_met(value) is met


def test_a_target_for_a_ratio_that_does_not_exist_is_missed() -> None:
    assert Line(case="a", what="w", figure=1.0, unit="s", beside=0.0, target=Target(at_least=1)).met is False


def test_the_slope_is_that_of_the_straight_line_through_the_points() -> None:
    assert slope_per_million({10_000: 1.02, 100_000: 1.2, 1_000_000: 3.0}) == pytest.approx(2.0)


def test_one_size_has_no_slope() -> None:
    with pytest.raises(ValueError, match="two sizes at least, not 1"):
        slope_per_million({10_000: 1.0})


@pytest.mark.parametrize(("values", "middle"), [([3.0], 3.0), ([9.0, 1.0, 2.0], 2.0), ([4.0, 1.0], 2.5)])
def test_the_median_is_the_middle(values: list[float], middle: float) -> None:
    assert median(values) == middle


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="needs a value"):
        median([])


def test_the_table_has_figures_ratio_target_and_verdict_in_columns() -> None:
    assert table([FASTER, NOTHING]).splitlines() == [
        "case  what                       figure  beside                             ratio  target",
        "-" * 97,
        "a     20,000 a batch      30,000 rows/s  1,000 rows/s, one key per message    30x  >= 20x  met",
        "d     state rows written         3 rows                                            <= 0    MISSED",
    ]


def test_numbers_have_three_digits_and_whole_ones_are_whole() -> None:
    lines = [
        Line(case="c", what="w", figure=figure, unit="s")
        for figure in (0.01234, 1.234, 12.34, 123.4, 12_345.6, 7.0)
    ]
    assert [line.split()[2] for line in table(lines).splitlines()[2:]] == [
        "0.0123",
        "1.23",
        "12.3",
        "123",
        "12,346",
        "7",
    ]


def test_the_phases_of_each_run_stand_in_columns_and_absent_ones_are_marked() -> None:
    profiles = {"wheel": {"triggerExecution": 900.0, "addBatch": 700.5}, "idle": {"triggerExecution": 90.0}}
    assert phases_table(profiles).splitlines() == [
        "ms a batch (median)  triggerExecution  addBatch",
        "-" * 47,
        "wheel                             900       700",
        "idle                               90         -",
    ]


def test_the_file_holds_figures_ratios_verdicts_and_what_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "build" / "bench.json"
    write_json(file, document([FASTER], {"about": {"cores": 2}}))
    assert json.loads(file.read_text()) == {
        "comparisons": [
            {
                "case": "a",
                "what": "20,000 a batch",
                "figure": 30_000,
                "unit": "rows/s",
                "beside": 1_000,
                "beside_what": "one key per message",
                "target": {"of": "ratio", "at_least": 20, "at_most": None},
                "ratio": 30.0,
                "met": True,
            }
        ],
        "about": {"cores": 2},
    }
