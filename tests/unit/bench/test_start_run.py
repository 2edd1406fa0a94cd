"""The bench of starts: what it makes of the seconds that it has measured."""

from __future__ import annotations

from tests.bench.start_run import lines_of, lines_of_plain


def test_the_median_of_this_tree_is_compared_with_the_bar_and_with_the_other_tree() -> None:
    here = {("direct", "first delivery"): [11.0, 30.0, 10.0], ("tiered", "kill to delivery"): [16.0]}
    there = {("direct", "first delivery"): [22.0, 22.0, 26.0], ("tiered", "kill to delivery"): [32.0]}
    lines = lines_of(here, there)
    assert [(line.figure, line.ratio, line.met) for line in lines] == [(11.0, 0.5, True), (16.0, 0.5, False)]
    assert [(line.case, line.what) for line in lines] == [
        ("direct", "first delivery, median of 3"),
        ("tiered", "kill to delivery, median of 1"),
    ]


def test_without_another_tree_there_is_no_ratio() -> None:
    (line,) = lines_of({("direct", "second start"): [0.9]}, {})
    assert (line.ratio, line.beside, line.met) == (None, None, True)


def test_cpu_seconds_are_compared_and_have_no_target() -> None:
    (line,) = lines_of(
        {("direct", "first delivery, CPU"): [20.0]}, {("direct", "first delivery, CPU"): [30.0]}
    )

    assert (line.figure, line.beside, line.target) == (20.0, 30.0, None)


def test_a_start_and_one_after_a_kill_are_compared_with_those_of_queries_without_the_wheel() -> None:
    here = {
        ("direct", "first delivery"): [18.0],
        ("direct", "kill to delivery"): [15.0],
        ("direct", "second start"): [0.9],
        ("tiered", "first delivery"): [22.0],
    }
    plain = {
        ("plain", "first delivery"): [20.0, 30.0, 20.0],
        ("plain", "kill to delivery"): [12.0],
        ("tuned", "first delivery"): [10.0],
    }
    lines = lines_of_plain(here, plain)
    assert [(line.case, line.what, line.ratio, line.met) for line in lines] == [
        ("direct", "first delivery beside a plain query", 0.9, True),
        ("direct", "kill to delivery beside a plain query", 1.25, False),
        ("direct", "first delivery beside a tuned query", 1.8, None),
        ("tiered", "first delivery beside a plain query", 1.1, None),
        ("tiered", "first delivery beside a tuned query", 2.2, None),
    ]
