"""When the clock source lets time move on: what it offers, given what the shards answered. No Spark runs, no time
passes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.control.ticks import ticks_of
from wheel_udf.common.errors import ConfigError
from wheel_udf.control import wall as clock_module
from wheel_udf.control.board import ShardBoard, ShardReport
from wheel_udf.control.clocks import (
    EventClock,
    ProcessingClock,
    SimulatedClock,
    clock_of,
    clock_options,
)
from wheel_udf.control.reports import forget_run, post_reports
from wheel_udf.control.source import ClockReader, is_clock_offset

if TYPE_CHECKING:
    from pathlib import Path

    from wheel_udf.control.clocks import Clock

HOUR_MS = 3_600_000


class Run:
    """A query's life as the clock source sees it: plan a batch, then hear the answers of its shards."""

    def __init__(self, folder: Path, clock: Clock, shards: int = 2, *, bounded: bool = False) -> None:
        self.board = ShardBoard(str(folder))
        self.reader = ClockReader(clock, shards, self.board)
        if bounded:
            self.reader.prepareForTriggerAvailableNow()
        self.shards = shards
        self.offset: dict[str, Any] = self.reader.initialOffset()
        self.batch_id = -1

    def plan(self) -> bool:
        """Whether the source offers something new."""
        before, self.offset = self.offset, self.reader.latestOffset(self.offset)
        return self.offset != before

    def answer(
        self,
        *next_due_ms: int | None,
        clock_ms: int = 0,
        watermark_ms: int | None = None,
        held_input: bool = False,
    ) -> None:
        """All shards answer, at the end of a batch."""
        self.batch_id += 1
        post_reports(
            self.board,
            "query",
            self.reader.run,
            {
                shard: ShardReport(self.batch_id, due_ms, clock_ms, watermark_ms, held_input)
                for shard, due_ms in enumerate(next_due_ms)
            },
        )


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A wall clock that stands at 0 until a test moves it."""
    now = {"ms": 0}
    monkeypatch.setattr(clock_module, "wall_clock_ms", lambda: now["ms"])
    monkeypatch.setattr(clock_module, "elapsed_ms", lambda: now["ms"])
    return now


def test_a_new_run_ticks_once_to_hear_from_every_shard(tmp_path: Path, wall: dict[str, int]) -> None:
    run = Run(tmp_path, ProcessingClock())
    assert run.plan()
    run.answer(None, None)
    assert not run.plan()


def test_an_answer_that_is_absent_counts_as_due_now(tmp_path: Path, wall: dict[str, int]) -> None:
    run = Run(tmp_path, ProcessingClock(), shards=3)
    assert run.plan()
    run.answer(None, None)  # the third shard has said nothing
    assert run.plan()


def test_another_querys_answers_are_not_read(tmp_path: Path, wall: dict[str, int]) -> None:
    other = Run(tmp_path, ProcessingClock())
    other.plan()
    other.answer(None, None)
    run = Run(tmp_path, ProcessingClock())
    assert run.plan()
    assert run.plan()


def test_a_hint_lost_while_running_costs_a_tick_and_no_firing(tmp_path: Path, wall: dict[str, int]) -> None:
    run = Run(tmp_path, ProcessingClock())
    run.plan()
    run.answer(None, 5_000)
    assert not run.plan()
    forget_run(run.board, run.reader.run)
    assert run.plan()


def test_the_processing_clock_sleeps_until_the_earliest_entry_of_any_shard_is_due(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path, ProcessingClock())
    run.plan()
    run.answer(9_000, 5_000)
    wall["ms"] = 4_999
    assert not run.plan()
    wall["ms"] = 5_000
    assert run.plan()


def test_an_idle_wheel_runs_a_batch_only_at_its_heartbeat(tmp_path: Path, wall: dict[str, int]) -> None:
    run = Run(tmp_path, ProcessingClock(heartbeat_ms=60_000))
    planned = []
    for second in range(601):
        wall["ms"] = second * 1000
        if run.plan():
            planned.append(second)
            run.answer(10 * HOUR_MS, None)
    assert planned == [0, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600]


def test_a_backlog_over_the_limit_is_due_at_once_without_new_data(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path, ProcessingClock())
    wall["ms"] = 10_000
    run.plan()
    run.answer(7_000, None, clock_ms=10_000)
    assert run.plan()


def test_a_wall_clock_set_back_does_not_delay_what_the_wheel_has_passed(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path, ProcessingClock())
    run.plan()
    run.answer(7_000, None, clock_ms=10_000)
    wall["ms"] = 1_000
    assert run.plan()


def test_the_event_clock_offers_again_for_a_shard_whose_entry_the_next_watermark_passes(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    # Shard 0 holds an entry due at 500 and had no command; a command in shard 1 has moved the watermark to 600.
    run = Run(tmp_path, EventClock())
    run.plan()
    post_reports(
        run.board,
        "query",
        run.reader.run,
        {0: ShardReport(0, 500, 100, 100, True), 1: ShardReport(0, None, 100, 600, True)},
    )
    assert run.plan()


def test_the_event_clock_stands_while_no_commands_come(tmp_path: Path, wall: dict[str, int]) -> None:
    run = Run(tmp_path, EventClock())
    run.plan()
    run.answer(500, None, clock_ms=100, watermark_ms=499)
    wall["ms"] = 30_000
    assert not run.plan()


def test_a_simulated_clock_skips_the_steps_at_which_nothing_is_due(tmp_path: Path) -> None:
    run = Run(tmp_path, SimulatedClock(start_ms=1_000, step_ms=100))
    run.plan()
    assert run.offset == {"wheel_clock": 1, "instant_ms": 1_000}
    run.answer(5_250, None, clock_ms=1_000)
    run.plan()
    assert run.offset == {"wheel_clock": 44, "instant_ms": 5_300}
    run.answer(5_301, None, clock_ms=5_300)
    run.plan()
    assert run.offset == {"wheel_clock": 45, "instant_ms": 5_400}
    run.answer(None, None, clock_ms=5_400)
    assert not run.plan()


def test_a_simulated_clock_gives_a_list_of_instants_one_a_batch_and_stays_on_a_step_back(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, SimulatedClock(instants_ms=(100, 50, 200)))
    instants = []
    while run.plan():
        instants.append(run.offset["instant_ms"])
        run.answer(None, None, clock_ms=max(instants))
    assert instants == [100, 100, 200]


def test_a_simulated_clock_ends_at_until(tmp_path: Path) -> None:
    run = Run(tmp_path, SimulatedClock(start_ms=0, step_ms=1_000, until_ms=2_500))
    instants = []
    while run.plan():
        instants.append(run.offset["instant_ms"])
        run.answer(9_999, None, clock_ms=instants[-1])
    assert instants == [0, 2_500]


@pytest.mark.parametrize(
    ("clock", "instants"),
    [
        (SimulatedClock(start_ms=0, step_ms=1_000, until_ms=2_500), [0, 2_500]),
        (SimulatedClock(instants_ms=(5, 7), until_ms=2_500), [5, 7, 2_500]),
    ],
)
def test_a_simulated_clock_with_nothing_pending_still_comes_to_until(
    tmp_path: Path, clock: SimulatedClock, instants: list[int]
) -> None:
    run = Run(tmp_path, clock)
    offered = []
    while run.plan():
        offered.append(run.offset["instant_ms"])
        run.answer(None, None, clock_ms=offered[-1])
    assert offered == instants


def test_bounded_input_until_comes_after_the_first_batch_without_input_and_never_with_a_file(
    tmp_path: Path,
) -> None:
    # batch   0      1      2      3           4              5
    # input   file   file   file   -           -              end
    # clock   tick   tick   tick   tick        until          (nothing offered)
    run = Run(tmp_path, EventClock(until_ms=9_000), bounded=True)
    offered = []
    for held_input in (True, True, True, False, False):
        assert run.plan()
        offered.append(run.offset.get("instant_ms"))
        run.answer(None, None, watermark_ms=100, held_input=held_input)
    assert offered == [None, None, None, None, 9_000]
    assert not run.plan()


def test_bounded_input_the_clock_offers_until_again_while_a_backlog_is_left(tmp_path: Path) -> None:
    run = Run(tmp_path, EventClock(until_ms=9_000), bounded=True)
    run.plan()
    run.answer(None, 5_000, watermark_ms=100)
    run.plan()
    run.answer(None, 6_000, clock_ms=9_000, watermark_ms=100)
    assert run.plan()
    assert run.offset == {"wheel_clock": 3, "instant_ms": 9_000}
    run.answer(None, 9_001, clock_ms=9_000, watermark_ms=100)
    assert not run.plan()


def test_bounded_input_of_nothing_still_runs_on_to_until(tmp_path: Path) -> None:
    run = Run(tmp_path, ProcessingClock(until_ms=9_000), bounded=True)
    assert run.plan()
    run.answer(None, None)
    assert run.plan()
    assert run.offset["instant_ms"] == 9_000


def test_bounded_input_without_answers_ends_instead_of_ticking_for_ever(tmp_path: Path) -> None:
    run = Run(tmp_path, EventClock(), bounded=True)
    assert run.plan()
    assert not run.plan()


def test_bounded_input_plays_a_list_of_instants_to_its_end(tmp_path: Path) -> None:
    run = Run(tmp_path, SimulatedClock(instants_ms=(1, 2, 3, 4)), bounded=True)
    instants = []
    while run.plan():
        instants.append(run.offset["instant_ms"])
        run.answer(None, None, clock_ms=instants[-1], held_input=len(instants) == 1)
    assert instants == [1, 2, 3, 4]


def test_a_replayed_offset_gives_the_same_instant(tmp_path: Path) -> None:
    first = Run(tmp_path, SimulatedClock(start_ms=0, step_ms=100))
    again = Run(tmp_path, SimulatedClock(start_ms=0, step_ms=100))
    offsets = {"wheel_clock": 3, "instant_ms": 200}, {"wheel_clock": 4, "instant_ms": 300}
    rows = [
        [(shard, tick.instant_ms) for shard, tick in enumerate(ticks_of(run.reader, *offsets))]
        for run in (first, again)
    ]
    assert rows[0] == rows[1] == [(0, 300), (1, 300)]


def test_an_offset_of_the_clock_is_known_in_sparks_offset_log() -> None:
    assert is_clock_offset({"wheel_clock": 7})
    assert not is_clock_offset({"logOffset": 7})


@pytest.mark.parametrize(
    "clock",
    [EventClock(delay_ms=5, max_ahead_ms=None), ProcessingClock(until_ms=3), SimulatedClock(instants_ms=(1, 2)), SimulatedClock(start_ms=-5, step_ms=2)],
)  # fmt: skip
def test_a_clock_reaches_the_source_as_it_was_made(clock: Clock, tmp_path: Path) -> None:
    settings = json.loads(clock_options(clock, 4, tmp_path)["settings"])
    assert clock_of(settings["clock"]) == clock


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: EventClock(delay_ms=-1), "clock.delay_ms"),
        (lambda: EventClock(max_ahead_ms=-1), "clock.max_ahead_ms"),
        (lambda: ProcessingClock(heartbeat_ms=0), "clock.heartbeat_ms"),
        (lambda: SimulatedClock(start_ms=0, step_ms=0), "clock.step_ms"),
        (lambda: EventClock(delay_ms=2**60), "clock.delay_ms"),
        (lambda: EventClock(max_ahead_ms=2**63), "clock.max_ahead_ms"),
        (lambda: EventClock(until_ms=2**62), "clock.until_ms"),
        (lambda: ProcessingClock(until_ms=2**62), "clock.until_ms"),
        (lambda: ProcessingClock(heartbeat_ms=2**63), "clock.heartbeat_ms"),
        (lambda: SimulatedClock(start_ms=0, step_ms=1, until_ms=-(2**62)), "clock.until_ms"),
        (lambda: SimulatedClock(start_ms=2**62, step_ms=1), "clock.start_ms"),
        (lambda: SimulatedClock(start_ms=0, step_ms=2**62), "clock.step_ms"),
        (lambda: SimulatedClock(instants_ms=(0, 2**62)), "clock.instants_ms"),
        (lambda: SimulatedClock(start_ms=0), "clock"),
        (lambda: SimulatedClock(start_ms=0, step_ms=1, instants_ms=(1,)), "clock"),
    ],
)
def test_a_clock_that_cannot_run_is_refused_by_name(make: Any, field: str) -> None:
    with pytest.raises(ConfigError) as fault:
        make()
    assert fault.value.field == field


def test_a_step_ends_at_the_last_instant_that_a_timestamp_holds() -> None:
    last_ms = (2**63 - 1) // 1_000
    clock = SimulatedClock(start_ms=0, step_ms=last_ms - 1)
    assert [clock.instant_of(counter) for counter in (2, 3, 4)] == [last_ms - 1, last_ms, last_ms]


@pytest.mark.parametrize("bounded", [False, True])
def test_after_a_step_back_one_tick_brings_all_shards_to_the_latest_instant_that_one_has_reached(
    tmp_path: Path, wall: dict[str, int], *, bounded: bool
) -> None:
    # One shard saw 10:00 before the wall clock was set back to 9:00, the other waits for 9:30: it got tick after tick
    # and released nothing.
    run = Run(tmp_path, ProcessingClock(heartbeat_ms=24 * HOUR_MS), bounded=bounded)
    wall["ms"] = 9 * HOUR_MS
    assert run.plan()
    run.batch_id = 0
    post_reports(
        run.board,
        "query",
        run.reader.run,
        {
            0: ShardReport(0, None, 10 * HOUR_MS, None, held_input=False),
            1: ShardReport(0, 9 * HOUR_MS + HOUR_MS // 2, 9 * HOUR_MS, None, held_input=False),
        },
    )
    assert run.plan()
    assert run.offset == {"wheel_clock": 2, "instant_ms": 10 * HOUR_MS}
    run.answer(None, None, clock_ms=10 * HOUR_MS)
    assert not run.plan()


def test_a_shard_that_has_not_got_a_batch_for_a_while_needs_no_tick_where_time_goes_on(
    tmp_path: Path, wall: dict[str, int]
) -> None:
    run = Run(tmp_path, ProcessingClock())
    assert run.plan()
    run.answer(None, None, clock_ms=0)
    wall["ms"] = 9
    post_reports(run.board, "query", run.reader.run, {0: ShardReport(1, None, 9, None, held_input=True)})
    assert not run.plan()
