"""The bench of the peers: what it makes of the lines that it has read."""

from __future__ import annotations

import pytest

from tests.bench.peers.figures import (
    Arrival,
    Chunk,
    arrivals_of,
    burst_figures,
    kill_figures,
    steady_figures,
    table,
)
from tests.bench.peers.ours import received

DUE_MS = {"a": 1_000, "b": 2_000, "c": 3_000}


def test_a_line_arrives_with_the_chunk_that_ends_it() -> None:
    chunks = [Chunk(10.0, b"a\nb"), Chunk(20.0, b"b\n"), Chunk(30.0, b"c\n")]
    assert arrivals_of([chunks]) == [Arrival("a", 10.0), Arrival("bb", 20.0), Arrival("c", 30.0)]


def test_a_line_that_was_cut_off_by_a_kill_is_left_out() -> None:
    assert arrivals_of([[Chunk(10.0, b"a\nhal")], [Chunk(20.0, b"b\n")]]) == [
        Arrival("a", 10.0),
        Arrival("b", 20.0),
    ]


def test_the_arrivals_of_two_consumers_are_in_order_of_time() -> None:
    assert [each.identity for each in arrivals_of([[Chunk(9.0, b"b\n")], [Chunk(8.0, b"a\n")]])] == ["a", "b"]


def test_lateness_counts_from_the_due_time_to_the_first_arrival() -> None:
    arrivals = [Arrival("a", 1_010.0), Arrival("b", 2_030.0), Arrival("b", 9_000.0), Arrival("c", 3_020.0)]
    found = steady_figures(DUE_MS, arrivals)
    assert (found["lateness p50"], found["earliest"]) == (20.0, 10.0)
    assert (found["early"], found["missing"], found["duplicates"]) == (0.0, 0.0, 1.0)


def test_what_comes_before_its_due_time_is_early_by_any_part_of_a_millisecond() -> None:
    found = steady_figures(DUE_MS, [Arrival("a", 999.9), Arrival("b", 2_000.0)])
    assert (found["early"], found["missing"]) == (1.0, 1.0)


def test_entries_of_another_load_do_not_count() -> None:
    assert steady_figures({"a": 1_000}, [Arrival("warm-1", 1.0), Arrival("a", 1_000.0)])["early"] == 0.0


def test_a_load_of_which_nothing_came_has_no_figures() -> None:
    with pytest.raises(ValueError, match="nothing has arrived"):
        steady_figures(DUE_MS, [Arrival("warm-1", 1.0)])


def test_the_throughput_of_a_burst_is_its_size_over_the_time_of_its_last_entry() -> None:
    found = burst_figures({"a": 1_000, "b": 1_000}, [Arrival("a", 1_100.0), Arrival("b", 1_500.0)])
    assert (found["until the last is out"], found["throughput"]) == (0.5, 4.0)


def test_after_a_kill_only_what_comes_after_the_start_is_the_next_delivery() -> None:
    arrivals = [Arrival("a", 1_000.0), Arrival("b", 2_550.0), Arrival("b", 6_000.0)]
    found = kill_figures(DUE_MS, arrivals, killed_ms=2_500.0, again_ms=4_500.0)
    assert found == {
        "lost": 1.0,
        "duplicates": 1.0,
        "early": 0.0,
        "until the next delivery": 3.5,
        "latest": 0.55,
    }


def test_a_peer_that_never_came_back_has_no_next_delivery() -> None:
    found = kill_figures(DUE_MS, [Arrival("a", 1_000.0)], killed_ms=2_500.0, again_ms=4_500.0)
    assert ("until the next delivery" in found, found["lost"]) == (False, 2.0)


def test_the_table_has_a_column_for_each_peer_and_a_row_for_each_figure_of_the_cases_that_ran() -> None:
    found = {
        "one": {"kill": {"lost": 0.0, "latest": 2.25}},
        "another": {"kill": {"lost": 1_234.0}},
        "third": {},
    }
    assert table(found).splitlines() == [
        "case  what                         one  another  third",
        "-" * 54,
        "kill  lost                           0    1,234      -",
        "kill  duplicates                     -        -      -",
        "kill  early                          -        -      -",
        "kill  until the next delivery  s     -        -      -",
        "kill  latest                   s  2.25        -      -",
    ]


def test_the_commands_that_are_in_the_wheel_are_those_of_its_batches() -> None:
    assert (
        received("a warning\n0 in 20 fired 0 pending 20\n1 in 5 fired 3 pending 22\nx 7 in 9 fired\n") == 25
    )
