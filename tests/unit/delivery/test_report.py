"""The lateness histogram, the line of a batch and the account of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from wheel_udf.delivery.progress import duration_text, next_line, progress_line
from wheel_udf.delivery.report import BatchReport
from wheel_udf.delivery.summary import Summary
from wheel_udf.wheel.lateness import RELATIVE_ERROR, LatenessHistogram

latenesses = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 5_000), min_size=1, max_size=50)


def report(batch_id: int = 0, **changes: object) -> BatchReport:
    """A batch in which nothing happened, but for the changes."""
    empty = BatchReport(
        batch_id=batch_id,
        received=0,
        fired=0,
        missed=0,
        rejected=0,
        undeliverable=0,
        pending=0,
        next_due_ms=None,
        clock_ms=None,
        watermark_ms=None,
        lateness=LatenessHistogram(),
        counts={},
        held_input=False,
        backlog=False,
    )
    return replace(empty, **changes)  # type: ignore[arg-type]


@given(latenesses, st.floats(0, 1))
def test_a_quantile_is_within_one_percent_of_the_exact_one(values: list[int], q: float) -> None:
    exact = sorted(values)[max(1, int(np.ceil(q * len(values)))) - 1]
    found = LatenessHistogram.of(values).quantile(q)
    assert found is not None
    assert abs(found - exact) <= RELATIVE_ERROR * exact * (1 + 1e-9) + 0.5


@given(latenesses, latenesses)
def test_merging_two_histograms_is_counting_both_at_once(left: list[int], right: list[int]) -> None:
    assert LatenessHistogram.of(left).merge(LatenessHistogram.of(right)) == LatenessHistogram.of(left + right)


@given(st.lists(st.integers(0, 2**63 - 1), max_size=20))
def test_a_histogram_survives_its_text(values: list[int]) -> None:
    histogram = LatenessHistogram.of(np.array(values, dtype=np.int64))
    assert LatenessHistogram.from_json(histogram.to_json()) == histogram


def test_the_text_of_a_histogram_is_compact_and_in_order() -> None:
    assert (
        LatenessHistogram.of([100, 0, 0, 1]).to_json()
        == '{"n":4,"min":0,"max":100,"bins":[[0,2],[1,1],[232,1]]}'
    )
    assert LatenessHistogram().to_json() == '{"n":0,"min":null,"max":null,"bins":[]}'


def test_minimum_maximum_and_count_are_exact() -> None:
    histogram = LatenessHistogram.of([7, 123_456_789, 2**63 - 1])
    assert (histogram.count, histogram.minimum_ms, histogram.maximum_ms) == (3, 7, 2**63 - 1)
    assert (histogram.quantile(0), histogram.quantile(1)) == (7, 2**63 - 1)


def test_small_latenesses_are_exact() -> None:
    histogram = LatenessHistogram.of(range(40))
    assert [histogram.quantile((n + 1) / 40) for n in range(40)] == list(range(40))


def test_an_empty_histogram_has_no_quantile_and_changes_nothing() -> None:
    empty, one = LatenessHistogram.of([]), LatenessHistogram.of([5])
    assert empty.quantile(0.5) is None
    assert empty.merge(one) == one == one.merge(empty)


def test_a_negative_lateness_counts_as_none() -> None:
    assert LatenessHistogram.of([-5]) == LatenessHistogram.of([0])


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan")])
def test_a_quantile_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        LatenessHistogram.of([1]).quantile(q)


def test_a_million_latenesses_take_a_few_hundred_bins() -> None:
    histogram = LatenessHistogram.of(np.arange(1_000_000))
    assert histogram.count == 1_000_000
    assert len(histogram.bins) < 700


def test_a_batch_is_one_line() -> None:
    busy = report(
        7,
        received=1_000,
        fired=250,
        pending=12_000,
        clock_ms=1_357_000_000_000,
        watermark_ms=1_356_999_999_999,
        lateness=LatenessHistogram.of([400] * 98 + [1_000] * 2),
    )
    assert progress_line(busy) == (
        "batch     7 | in    1,000 | fired      250 | pending    12,000 | lateness p50  400 ms p99   1.0 s"
        " | clock 2013-01-01T00:26:40Z | watermark 2013-01-01T00:26:39Z"
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "nothing is pending"),
        ({"pending": 1_000}, "1,000 pending, none of them near"),
        (
            {"pending": 1_000, "far": 999, "next_due_ms": 1_357_000_060_000},
            "1,000 pending, the next near one is due at 2013-01-01T00:27:40Z, in 1.0 min",
        ),
        (
            {"pending": 4, "next_due_ms": 1_357_000_095_000},
            "4 pending, the next one is due at 2013-01-01T00:28:15Z, in 1.6 min",
        ),
        ({"pending": 4, "next_due_ms": 1_356_999_999_000}, "4 pending, the next one is due now"),
    ],
)
def test_a_line_says_what_the_job_waits_for(changes: dict[str, int], line: str) -> None:
    assert next_line(report(**changes), now_ms=1_357_000_000_000) == line


@pytest.mark.parametrize("kind", ["event", "simulated"])
def test_under_a_clock_of_the_data_the_line_does_not_call_the_distance_lateness(kind: str) -> None:
    backfill = report(clock_kind=kind, lateness=LatenessHistogram.of([86_400_000]))
    assert "| data time after due p50   1.0 d p99   1.0 d |" in progress_line(backfill)
    assert "lateness" not in progress_line(backfill)


def test_a_quiet_batch_has_dashes_where_there_is_nothing_to_say() -> None:
    assert progress_line(report(12)) == (
        "batch    12 | in        0 | fired        0 | pending         0 | lateness p50       - p99       -"
        " | clock -                    | watermark -"
    )


def test_the_line_tells_what_is_pending_by_level_where_there_are_levels() -> None:
    assert progress_line(report(levels={"30s": 12, "1m": 3_000})).endswith(" | levels 30s 12 1m 3,000")
    assert "levels" not in progress_line(report())


def test_beside_a_store_the_line_and_the_account_tell_near_and_far_apart() -> None:
    held = report(pending=356, far=340, counts={"fired": 4, "superseded": 1})
    assert "| fired        0 | near        16 far       340 | lateness" in progress_line(held)
    summary = Summary()
    summary.add(held)
    assert "  schedules   361 = 16 near + 340 far + 4 fired + 0 missed" in summary.render()
    nothing = replace(held, pending=0, far=0)
    assert nothing.waiting == {"near": 0, "far": 0}


def test_what_is_unusual_is_added_to_the_line() -> None:
    line = progress_line(report(rejected=3, missed=2, undeliverable=1_000, backlog=True))
    assert line.endswith("| rejected 3 | missed 2 | undeliverable 1,000 | backlog over the limit")


COUNTS = {"fired": 5, "missed": 1, "cancelled": 1, "superseded": 2, "duplicate": 1, "rejected": 1}
CANCELS = {
    "applied": 1,
    "waiting": 1,
    "late": 1,
    "cancel_superseded": 1,
    "cancel_duplicate": 1,
    "cancel_rejected": 1,
}


def test_the_account_of_a_run_names_every_outcome() -> None:
    summary = Summary()
    lateness = LatenessHistogram.of([10, 30])
    summary.add(
        report(0, received=10, fired=3, pending=4, lateness=lateness, counts={"fired": 3, "superseded": 3})
    )
    summary.add(
        report(
            1,
            received=9,
            fired=2,
            missed=1,
            rejected=2,
            pending=2,
            clock_ms=0,
            lateness=LatenessHistogram.of([20, 90]),
            counts=COUNTS | CANCELS,
        )
    )
    assert summary.render().splitlines() == [
        "summary of 2 batches",
        "  schedules   13 = 2 pending + 5 fired + 1 missed + 1 cancelled + 2 superseded + 1 duplicate + 1 rejected",
        "  cancels     6 = 1 applied + 1 waiting + 1 late + 1 superseded + 1 duplicate + 1 rejected",
        "  this run    in 19, fired 5, missed 1, rejected 2, undeliverable 0",
        "  lateness    p50 20 ms, p99 90 ms, max 90 ms",
        "  clock       1970-01-01T00:00:00Z, next due -",
        "  identities  every command accounted for: yes; cancelled = applied: yes",
    ]


def test_the_account_of_a_backfill_bounds_the_distance_by_the_span_of_a_batch() -> None:
    day_ms, summary = 86_400_000, Summary()
    for number, (days, fired, late) in enumerate(
        [(0, 0, None), (2, 1, 1), (14, 3, 11), (21, 2, 6), (365, 0, None)]
    ):
        lateness = LatenessHistogram.of([] if late is None else [late * day_ms])
        clock = {"clock_kind": "event", "clock_ms": days * day_ms}
        summary.add(report(number, fired=fired, lateness=lateness, **clock))
    assert summary.render().splitlines()[4] == (
        "  released    within 11.0 d of data time after due (p50 6.0 d, p99 11.0 d); one batch spans up to 12.0 d of data"
    )


def test_a_backfill_that_released_nothing_gives_no_distance() -> None:
    summary = Summary()
    summary.add(report(clock_kind="event", clock_ms=0))
    assert "  released    nothing" in summary.render().splitlines()


def test_a_command_that_has_no_outcome_breaks_the_identity() -> None:
    summary = Summary()
    summary.add(report(0, received=3, fired=2, counts={"fired": 2}))
    assert not summary.commands_close
    assert "every command accounted for: NO" in summary.render()


def test_an_entry_cancelled_without_a_cancel_breaks_the_identity() -> None:
    summary = Summary()
    summary.add(report(0, received=1, counts={"cancelled": 1}))
    assert not summary.cancels_close
    assert "cancelled = applied: NO" in summary.render()


def test_a_run_that_goes_on_from_a_checkpoint_accounts_for_its_own_commands() -> None:
    summary = Summary()
    summary.add(report(8, received=1, pending=1, counts={"fired": 20}, complete=False))
    summary.add(report(9, received=2, pending=3, counts={"fired": 100}))
    summary.add(report(10, received=4, pending=6, counts={"fired": 101}))
    assert summary.commands_close
    summary.add(report(11, received=1, pending=6, counts={"fired": 101}))
    assert not summary.commands_close


def test_a_batch_that_is_told_twice_counts_once() -> None:
    summary = Summary()
    for _ in range(2):
        summary.add(report(0, received=2, fired=2, counts={"fired": 2}))
    assert (summary.batches, summary.totals["received"], summary.commands_close) == (1, 2, True)


def test_a_run_without_a_batch_says_so() -> None:
    assert Summary().render() == "summary: no batch ran"


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (90_000, "1.5 min"),
        (7_200_000, "2.0 h"),
        (63_072_000_000, "730.0 d"),
        (400 * 31_557_600_000, "400.0 y"),
        (2**63 - 1, "292,271,023 y"),
    ],
)
def test_a_duration_is_told_in_a_readable_unit(span_ms: int, text: str) -> None:
    assert duration_text(span_ms) == text


def test_ambiguous_commands_are_told_with_the_advice_to_give_a_seq() -> None:
    assert progress_line(report(ambiguous=3)).endswith("| ambiguous, give seq 3")
    assert "ambiguous" not in progress_line(report())
    summary = Summary()
    for batch_id in (0, 1):
        summary.add(report(batch_id, ambiguous=3))
    warning = "  warning     6 ambiguous: no seq, and the id and event time of another command, which was kept; give a seq"
    assert summary.render().splitlines()[-1] == warning


def test_the_line_says_what_is_in_flight_where_there_is_a_sender() -> None:
    assert "in flight" not in progress_line(report(pending=3))
    assert progress_line(report(pending=3, in_flight=0)).endswith("| in flight 0")
    assert progress_line(report(pending=1_200, in_flight=1_000, missed=2)).endswith(
        "| in flight 1,000 | missed 2"
    )
