"""What goes wrong with delayed messages, one sentence and one time line each, against the pure step.

Reading the time lines: time runs to the right, one column for each batch. Above the line are the commands of the batch
(``S1@9`` SCHEDULE seq 1 due 9, ``C2`` CANCEL seq 2), on the line the batch's clock, below it what leaves. The id is
``a`` unless it is said; a fired row is (schedule_id, seq, deliver_at_ms).
"""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf.common.errors import GeometryChangedError, WheelError
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard import state as state_module
from wheel_udf.shard.rows import COMMAND_SCHEMA
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.clocks import ManualClock
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.step import Step, advance

WHEEL = Wheel(tick_ms=1, size=20, levels=3)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
Command = dict[str, Any]


def schedule(seq: int, due_ms: int, schedule_id: str = "a", **rest: Any) -> Command:
    return {"schedule_id": schedule_id, "seq": seq, "deliver_at_ms": due_ms, **rest}


def retry(seq: int, due_ms: int) -> Command:
    """What a producer without versions of its own sends: the seq is only the record's offset."""
    return schedule(seq, due_ms, seq_given=False)


def cancel(seq: int, schedule_id: str = "a") -> Command:
    return {"schedule_id": schedule_id, "op": "CANCEL", "seq": seq}


class Shard:
    """A shard driven by hand; each batch answers the rows that fired."""

    def __init__(self, wheel: Wheel = WHEEL, memory_ms: int | None = None) -> None:
        self.state, self.memory_ms = ShardState.empty(wheel), memory_ms
        self.missed: list[tuple[str, int, int]] = []
        self.step: Step | None = None

    def batch(self, now_ms: int, *commands: Command, limit: int | None = None) -> list[tuple[str, int, int]]:
        rows = commands_table(commands) if commands else None
        self.step = advance(self.state, rows, now_ms, limit, memory_ms=self.memory_ms)
        self.state = self.step.state
        self.missed = [
            (row["schedule_id"], row["seq"], row["deliver_at_ms"]) for row in rows_of(self.step.missed)
        ]
        return [(row["schedule_id"], row["seq"], row["deliver_at_ms"]) for row in rows_of(self.step.fired)]

    def restart(self) -> None:
        self.state = ShardState.from_row(self.state.to_row(1), self.state.wheel, 1)

    @property
    def told(self) -> dict[str, int]:
        """Pending, and the counts that are not zero."""
        counts = {"pending": self.state.pending, **self.state.counts}
        return {name: count for name, count in counts.items() if count}


# ---- cancels -------------------------------------------------------------------------------------


def test_a_cancel_in_the_batch_that_would_fire_wins() -> None:
    #   S1@9        C2
    # ---0----------9---->
    #               nothing fires
    shard = Shard()
    assert shard.batch(0, schedule(1, 9)) == []
    assert shard.batch(9, cancel(2)) == []
    assert shard.told == {"cancelled": 1, "applied": 1}


def test_a_cancel_in_the_batch_of_its_schedule_wins_even_if_it_is_past_due() -> None:
    #   C2 S1@3
    # -----9------>
    shard = Shard()
    assert shard.batch(9, cancel(2), schedule(1, 3)) == []
    assert shard.told == {"cancelled": 1, "applied": 1}


@pytest.mark.parametrize("batches", [[[0, 1]], [[1, 0]], [[0], [1]], [[1], [0]]], ids=str)
def test_a_cancel_stands_above_the_schedule_of_the_same_seq_in_one_batch_or_two(
    batches: list[list[int]],
) -> None:
    #   S7@9 C7            S7@9   C7          C7   S7@9
    # ----0----9-->      ---0-----0---9-->  ---0-----0---9-->
    commands = [schedule(7, 9), cancel(7)]
    shard = Shard()
    for batch in batches:
        assert shard.batch(0, *(commands[n] for n in batch)) == []
    assert shard.batch(9) == []
    assert shard.told == {"cancelled": 1, "applied": 1}


def test_a_cancel_that_comes_before_its_schedule_waits_for_it() -> None:
    #   C2     S1@9
    # --0-------1-------9--->
    shard = Shard()
    shard.batch(0, cancel(2))
    assert shard.told == {"waiting": 1}
    assert shard.batch(1, schedule(1, 9)) == []
    assert shard.batch(9) == []
    assert shard.told == {"cancelled": 1, "applied": 1}


def test_a_waiting_cancel_ends_one_schedule_and_supersedes_the_older_ones_after_it() -> None:
    #   C3     S1@9   S2@9
    # --0-------1------2-----9--->
    shard = Shard()
    shard.batch(0, cancel(3))
    shard.batch(1, schedule(1, 9))
    shard.batch(2, schedule(2, 9))
    assert shard.batch(9) == []
    assert shard.told == {"cancelled": 1, "applied": 1, "superseded": 1}


def test_a_waiting_cancel_does_not_hold_a_newer_schedule() -> None:
    #   C1     S2@9
    # --0-------1-------9--->
    #                   a2
    shard = Shard()
    shard.batch(0, cancel(1))
    shard.batch(1, schedule(2, 9))
    assert shard.batch(9) == [("a", 2, 9)]
    assert shard.told == {"fired": 1, "waiting": 1}


def test_a_newer_cancel_after_one_that_waits_is_late_and_one_of_the_two_is_applied_when_the_schedule_comes() -> (
    None
):
    #   C1     C2    S1@9
    # --0-------1------2------9--->
    shard = Shard()
    shard.batch(0, cancel(1))
    shard.batch(1, cancel(2))
    assert shard.told == {"waiting": 1, "late": 1}
    shard.batch(2, schedule(1, 9))
    assert shard.batch(9) == []
    assert shard.told == {"cancelled": 1, "applied": 1, "late": 1}


def test_a_waiting_cancel_meets_an_older_and_a_newer_schedule_in_one_batch() -> None:
    #   C3     S1@9 S4@9
    # --0----------1---------9--->
    #                        a4
    shard = Shard()
    shard.batch(0, cancel(3))
    shard.batch(1, schedule(4, 9), schedule(1, 9))
    assert shard.batch(9) == [("a", 4, 9)]
    assert shard.told == {"cancelled": 1, "applied": 1, "fired": 1}


def test_of_two_cancels_in_one_batch_the_lower_ends_the_entry_and_the_higher_is_late() -> None:
    #   S1@9   C3 C2
    # ---0-------1-----9--->
    shard = Shard()
    shard.batch(0, schedule(1, 9))
    shard.batch(1, cancel(3), cancel(2))
    assert shard.batch(9) == []
    assert shard.told == {"cancelled": 1, "applied": 1, "late": 1}


def test_a_cancel_leaves_the_neighbours_in_its_slot_alone() -> None:
    #   a@401 b@402 c@403     C2 of b
    # -----------0---------------1--------403-->
    #                                     a c
    shard = Shard()
    shard.batch(0, *(schedule(1, due, name) for name, due in zip("abc", (401, 402, 403), strict=True)))
    shard.batch(1, cancel(2, "b"))
    assert (shard.state.pending, shard.state.next_due_ms) == (2, 401)
    assert shard.batch(403) == [("a", 1, 401), ("c", 1, 403)]


def test_a_cancel_after_the_firing_is_late_and_counted() -> None:
    #   S1@9        C2
    # ---0-----9----10-->
    #          a1
    shard = Shard()
    shard.batch(0, schedule(1, 9))
    assert shard.batch(9) == [("a", 1, 9)]
    assert shard.batch(10, cancel(2)) == []
    assert shard.told == {"fired": 1, "late": 1}


def test_after_a_late_cancel_an_older_schedule_stays_superseded() -> None:
    #   S1@9     C3   S2@50
    # ----9------10----11-----50-->
    #     a1
    shard = Shard()
    shard.batch(9, schedule(1, 9))
    shard.batch(10, cancel(3))
    shard.batch(11, schedule(2, 50))
    assert shard.batch(50) == []
    assert shard.told == {"fired": 1, "late": 1, "superseded": 1}


def test_an_older_cancel_does_not_end_a_newer_schedule() -> None:
    #   S5@9   C4
    # ---0------1-----9-->
    #                 a5
    shard = Shard()
    shard.batch(0, schedule(5, 9))
    shard.batch(1, cancel(4))
    assert shard.batch(9) == [("a", 5, 9)]
    assert shard.told == {"fired": 1, "cancel_superseded": 1}


@pytest.mark.parametrize("apart", [True, False], ids=["in two batches", "in one batch"])
@pytest.mark.parametrize(
    ("known", "copy", "told"),
    [
        (schedule(2, 9), schedule(1, 5), {"pending": 1, "superseded": 2}),
        (schedule(2, 9), cancel(1), {"pending": 1, "cancel_superseded": 2}),
        (cancel(2), schedule(1, 5), {"cancelled": 1, "applied": 1, "superseded": 1}),
        (schedule(2, 0), schedule(1, 5), {"fired": 1, "superseded": 2}),
        (schedule(2, 9), schedule(2, 9), {"pending": 1, "duplicate": 2}),
        (schedule(2, 9), schedule(3, 12), {"pending": 1, "superseded": 1, "duplicate": 1}),
    ],
)
def test_two_copies_of_a_version_count_the_same_in_one_batch_or_two(
    known: Command, copy: Command, told: dict[str, int], *, apart: bool
) -> None:
    shard = Shard()
    shard.batch(0, known)
    for batch in ([copy], [copy]) if apart else ([copy, copy],):
        shard.batch(1, *batch)
    assert shard.told == told


def test_the_same_cancel_twice_is_one_cancel_and_one_duplicate() -> None:
    #   S1@9   C2   C2 C2
    # ---0------1-----2----9-->
    shard = Shard()
    shard.batch(0, schedule(1, 9))
    shard.batch(1, cancel(2))
    shard.batch(2, cancel(2), cancel(2))
    assert shard.batch(9) == []
    assert shard.told == {"cancelled": 1, "applied": 1, "cancel_duplicate": 2}


# ---- versions ------------------------------------------------------------------------------------


def test_a_replacement_that_comes_before_what_it_replaces_wins() -> None:
    #   S2@20     S1@9
    # ---0---------1------9------20-->
    #                            a2
    shard = Shard()
    shard.batch(0, schedule(2, 20, op="REPLACE"))
    shard.batch(1, schedule(1, 9))
    assert shard.batch(9) == []
    assert shard.batch(20) == [("a", 2, 20)]
    assert shard.told == {"fired": 1, "superseded": 1}


def test_a_replacement_moves_the_due_time_both_ways_and_fires_once() -> None:
    #   S1@500   S2@5000   S3@30
    # ---0--------1---------2-------30------5000-->
    #                               a3
    shard = Shard()
    shard.batch(0, schedule(1, 500))
    shard.batch(1, schedule(2, 5_000))
    assert shard.state.next_due_ms == 5_000
    shard.batch(2, schedule(3, 30))
    assert shard.batch(30) == [("a", 3, 30)]
    assert shard.batch(5_000) == []
    assert shard.told == {"fired": 1, "superseded": 2}


def test_an_old_version_after_the_firing_of_a_newer_one_is_superseded() -> None:
    #   S2@9     S1@10
    # ----9-------10----->
    #     a2
    shard = Shard()
    assert shard.batch(9, schedule(2, 9)) == [("a", 2, 9)]
    assert shard.batch(10, schedule(1, 10)) == []
    assert shard.told == {"fired": 1, "superseded": 1}


def test_the_same_version_again_is_a_duplicate_while_pending_and_after_firing() -> None:
    #   S1@9   S1@9     S1@9
    # ---0------1---9----10-->
    #               a1
    shard = Shard()
    shard.batch(0, schedule(1, 9))
    shard.batch(1, schedule(1, 9))
    assert shard.batch(9) == [("a", 1, 9)]
    assert shard.batch(10, schedule(1, 9)) == []
    assert shard.told == {"fired": 1, "duplicate": 2}


def test_a_producer_retry_that_repeats_the_due_time_of_what_fired_is_a_duplicate() -> None:
    #   S100@9      S101@9 (offsets, no seq given)
    # ----9----------10----->
    #     a100
    shard = Shard()
    assert shard.batch(9, retry(100, 9)) == [("a", 100, 9)]
    assert shard.batch(10, retry(101, 9)) == []
    assert shard.told == {"fired": 1, "duplicate": 1}


def test_a_producer_retry_before_the_firing_replaces_and_fires_once() -> None:
    #   S100@9   S101@9 (offsets)
    # ----0--------1--------9-->
    #                       a101
    shard = Shard()
    shard.batch(0, retry(100, 9))
    shard.batch(1, retry(101, 9))
    assert shard.batch(9) == [("a", 101, 9)]
    assert shard.told == {"fired": 1, "superseded": 1}


def test_the_due_time_of_what_fired_is_no_retry_once_something_else_was_asked_for_in_between() -> None:
    #   S100@9    S101@50 S102@9 (offsets, one batch)
    # ----9--------------10----------50-->
    #     a100           a102
    shard = Shard()
    shard.batch(9, retry(100, 9))
    assert shard.batch(10, retry(101, 50), retry(102, 9)) == [("a", 102, 9)]
    assert shard.batch(50) == []
    assert shard.told == {"fired": 2, "superseded": 1}


def test_a_producer_retry_and_a_new_due_time_in_one_batch_are_a_duplicate_and_a_new_entry() -> None:
    #   S100@9    S101@9 S102@50 (offsets, one batch)
    # ----9--------------10----------50-->
    #     a100                       a102
    shard = Shard()
    shard.batch(9, retry(100, 9))
    assert shard.batch(10, retry(101, 9), retry(102, 50)) == []
    assert shard.batch(50) == [("a", 102, 50)]
    assert shard.told == {"fired": 2, "duplicate": 1}


@pytest.mark.parametrize(
    ("again", "fired"),
    [
        ({"deliver_at_ms": 18, "level_error_ms": 1}, 1),
        ({"deliver_at_ms": 30, "level_error_ms": 5}, 2),
    ],
    ids=["the same request, rounded to another instant", "another request, rounded to the same instant"],
)
def test_a_producer_retry_of_a_rounded_due_time_is_known_by_the_requested_one(
    again: dict[str, object], fired: int
) -> None:
    # Requested for 17, rounded by 13.
    first = {"schedule_id": "a", "seq_given": False, "seq": 1, "deliver_at_ms": 30, "level_error_ms": 13}
    step = advance(ShardState.empty(WHEEL), commands_table([first]), 30, memory_ms=None)
    step = advance(step.state, commands_table([first | {"seq": 8} | again]), 31, memory_ms=None)
    assert (step.state.counts["fired"], step.state.counts["duplicate"]) == (fired, 2 - fired)


def test_the_due_time_of_what_fired_with_a_given_higher_seq_is_no_retry() -> None:
    #   S1@9     S2@9
    # ----9-------10-->
    #     a1      a2
    shard = Shard()
    assert shard.batch(9, schedule(1, 9)) == [("a", 1, 9)]
    assert shard.batch(10, schedule(2, 9)) == [("a", 2, 9)]
    assert shard.told == {"fired": 2}


def test_a_late_cancel_does_not_hide_a_producer_retry() -> None:
    #   S100@9   C101    S102@9 (offsets)
    # ----9-------10-------11---->
    #     a100
    shard = Shard()
    shard.batch(9, retry(100, 9))
    shard.batch(10, cancel(101))
    assert shard.batch(11, retry(102, 9)) == []
    assert shard.told == {"fired": 1, "late": 1, "duplicate": 1}


def test_what_was_cancelled_has_not_fired_so_its_due_time_may_come_again() -> None:
    #   S1@9   C2   S3@9 (offsets)
    # ---0------1-----2------9-->
    #                        a3
    shard = Shard()
    shard.batch(0, retry(1, 9))
    shard.batch(1, cancel(2))
    shard.batch(2, retry(3, 9))
    assert shard.batch(9) == [("a", 3, 9)]
    assert shard.told == {"cancelled": 1, "applied": 1, "fired": 1}


def test_a_higher_seq_after_the_firing_arms_the_timer_anew() -> None:
    #   S1@9     S2@30
    # ----9-------10------30-->
    #     a1              a2
    shard = Shard()
    assert shard.batch(9, schedule(1, 9)) == [("a", 1, 9)]
    assert shard.batch(10, schedule(2, 30)) == []
    assert shard.batch(30) == [("a", 2, 30)]
    assert shard.told == {"fired": 2}


def test_the_whole_life_of_an_id_in_one_batch_ends_as_its_last_version_says() -> None:
    #   C4 S3@9 S1@9 C2 S5@9 S5@9
    # --------------0----------------9-->
    #                                a5
    shard = Shard()
    shard.batch(0, cancel(4), schedule(3, 9), schedule(1, 9), cancel(2), schedule(5, 9), schedule(5, 9))
    assert shard.batch(9) == [("a", 5, 9)]
    assert shard.told == {"cancelled": 2, "applied": 2, "fired": 1, "duplicate": 1}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_schedules_with_one_version_the_earlier_due_is_kept_however_they_arrive(order: int) -> None:
    #   S1@9 S1@7
    # ------0--------7----9-->
    #                a1
    shard = Shard()
    shard.batch(0, *[schedule(1, 9), schedule(1, 7)][::order])
    assert shard.batch(7) == [("a", 1, 7)]
    assert shard.batch(9) == []
    assert shard.told == {"fired": 1, "duplicate": 1}


COPIES = {
    "deliver_at_ms": (1, 2),
    "level_error_ms": (0, None),
    "delay_level_ms": (5, None),
    "destination": ("a", "b"),
    "value": (b"", None),
    "key": (b"k", None),
    "headers": ("[]", None),
    "max_lateness_ms": (50, None),
    "repeat": ("{}", None),
    "anchor_ms": (1, 2),
    "last_ms": (0, None),
    "spread_ms": (0, None),
    "source": ("t/0/1", "t/0/2"),
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("decides", COPIES)
def test_of_two_copies_the_first_column_that_differs_decides_and_null_comes_last(
    decides: str, order: int
) -> None:
    #   S1 S1, alike before the column that decides, the other way round after it
    # ----9--->
    #     a1, the one that is lower there
    columns = list(COPIES)
    version = {"schedule_id": "a", "seq": 1, "amend": 0}
    kept, dropped = dict(version), dict(version)
    for column, (low, high) in COPIES.items():
        is_after = columns.index(column) > columns.index(decides)
        kept[column] = high if is_after else low
        dropped[column] = high if column == decides else low
    shard = Shard()
    shard.batch(9, *[kept, dropped][::order])
    assert shard.step is not None
    (fired,) = rows_of(shard.step.fired)
    assert {name: fired[name] for name in kept} == kept
    assert shard.told == {"fired": 1, "duplicate": 1}


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("again_at_ms", "fired"), [(108, []), (109, [("a", 1, 9)])])
def test_beyond_memory_a_command_is_new(again_at_ms: int, fired: list[tuple[str, int, int]]) -> None:
    #   S1@9         S1@9          S1@9
    # ----9----------108-----------109------>   memory 100: [9, 109)
    #     a1         (duplicate)   a1
    shard = Shard(memory_ms=100)
    assert shard.batch(9, schedule(1, 9)) == [("a", 1, 9)]
    assert shard.batch(again_at_ms, schedule(1, 9)) == fired


@pytest.mark.parametrize(
    ("memory_at_start", "fired", "told"),
    [
        (100, [("a", 1, 9)], {"fired": 2}),
        (2_000, [], {"fired": 1, "duplicate": 1}),
    ],
    ids=["the same memory", "a start with a longer memory"],
)
def test_a_repetition_read_after_an_outage_longer_than_memory_fires_again_unless_the_start_remembers_longer(
    memory_at_start: int, fired: list[tuple[str, int, int]], told: dict[str, int]
) -> None:
    #   S1@9   outage      S1 again, sent and not read before it
    # ----9----......--1,000---->   memory 100: [9, 109), in the wheel's clock, which goes on during the outage
    shard = Shard(memory_ms=100)
    assert shard.batch(9, schedule(1, 9)) == [("a", 1, 9)]
    shard.restart()
    shard.memory_ms = memory_at_start
    # The same id, seq and due time: also the same fire_id.
    assert shard.batch(1_000, schedule(1, 9)) == fired
    assert shard.told == told


def test_an_id_is_forgotten_at_its_own_end_of_memory_beside_one_that_is_still_remembered() -> None:
    #   a@9   b@10     a@9 b@10   b@10
    # ---9-----10--------109------109---->   memory 100: a [9, 109), b [10, 110)
    #    a     b         a
    shard = Shard(memory_ms=100)
    shard.batch(9, schedule(1, 9, "a"))
    shard.batch(10, schedule(1, 10, "b"))
    assert shard.batch(109, schedule(1, 9, "a"), schedule(1, 10, "b")) == [("a", 1, 9)]
    assert shard.batch(109, schedule(1, 10, "b")) == []
    assert shard.told == {"fired": 3, "duplicate": 2}


def test_memory_counts_from_the_end_of_an_id_and_not_from_its_due_time() -> None:
    #   S1@9           S1@9
    # ---0-----500-----599-->   memory 100: [500, 600)
    #          a1
    shard = Shard(memory_ms=100)
    shard.batch(0, schedule(1, 9))
    assert shard.batch(500) == [("a", 1, 9)]
    assert shard.batch(599, schedule(1, 9)) == []
    assert shard.told == {"fired": 1, "duplicate": 1}


def test_a_late_cancel_starts_the_memory_of_its_id_anew() -> None:
    #   S1@0   C2     S1@0
    # ---0-----90-----150-->   memory 100: [0, 100), then [90, 190)
    #    a1
    shard = Shard(memory_ms=100)
    shard.batch(0, schedule(1, 0))
    shard.batch(90, cancel(2))
    assert shard.batch(150, schedule(1, 0)) == []
    assert shard.told == {"fired": 1, "late": 1, "superseded": 1}


def test_a_waiting_cancel_is_forgotten_with_its_memory_and_stays_counted_as_waiting() -> None:
    #   C2     S1@110
    # --0--------100-----110-->   memory 100: [0, 100)
    #                    a1
    shard = Shard(memory_ms=100)
    shard.batch(0, cancel(2))
    shard.batch(100, schedule(1, 110))
    assert shard.batch(110) == [("a", 1, 110)]
    assert shard.told == {"fired": 1, "waiting": 1}


def test_a_waiting_cancel_is_remembered_from_its_own_arrival_and_not_from_its_schedules() -> None:
    #   C3      S1@200     S2@200
    # ---0--------90--------100------200-->   memory 100: [0, 100)
    #                                a2
    shard = Shard(memory_ms=100)
    shard.batch(0, cancel(3))
    shard.batch(90, schedule(1, 200))
    shard.batch(100, schedule(2, 200))
    assert shard.batch(200) == [("a", 2, 200)]
    assert shard.told == {"cancelled": 1, "applied": 1, "fired": 1}


def test_a_waiting_cancel_that_met_its_schedule_waits_no_more_in_any_later_batch() -> None:
    #   C3     S1@9   S2@9   S4@9
    # ---0------1------2------3----9-->
    #                              a4
    shard = Shard()
    for now_ms, command in enumerate([cancel(3), schedule(1, 9), schedule(2, 9), schedule(4, 9)]):
        assert shard.batch(now_ms, command) == []
    assert shard.batch(9) == [("a", 4, 9)]
    assert shard.told == {"cancelled": 1, "applied": 1, "superseded": 1, "fired": 1}


def test_the_commands_of_one_batch_know_of_each_other_even_with_a_memory_of_zero() -> None:
    #   C1 C2 S3@9
    # -----0--------9-->
    #               a3
    shard = Shard(memory_ms=0)
    shard.batch(0, cancel(1), cancel(2), schedule(3, 9))
    assert shard.batch(9) == [("a", 3, 9)]
    assert shard.told == {"waiting": 1, "late": 1, "fired": 1}


def test_a_memory_of_zero_remembers_nothing() -> None:
    #   S1@9   S1@9
    # ----9-----9--->
    #     a1    a1
    shard = Shard(memory_ms=0)
    assert shard.batch(9, schedule(1, 9)) == [("a", 1, 9)]
    assert shard.batch(9, schedule(1, 9)) == [("a", 1, 9)]


def test_memory_runs_by_the_wheels_clock_and_not_by_the_wall() -> None:
    #   S1@9        (wall back)   S1@9
    # ----500----------0-----------50--->   memory 100: the wheel stands at 500
    #     a1
    shard = Shard(memory_ms=100)
    shard.batch(500, schedule(1, 9))
    shard.batch(0)
    assert shard.batch(50, schedule(1, 9)) == []
    assert shard.told == {"fired": 1, "duplicate": 1}


# ---- limit and backlog ---------------------------------------------------------------------------


def test_a_backlog_over_the_limit_goes_oldest_first_and_next_due_is_its_oldest() -> None:
    #   c@3 a@1 e@5 b@2 d@4
    # ---0-----9(limit 2)---9(2)---9(2)-->
    #          a b          c d    e
    shard = Shard()
    shard.batch(0, *(schedule(1, due, name) for name, due in zip("caebd", (3, 1, 5, 2, 4), strict=True)))
    assert shard.batch(9, limit=2) == [("a", 1, 1), ("b", 1, 2)]
    assert (shard.state.next_due_ms, shard.state.pending) == (3, 3)
    assert shard.batch(9, limit=2) == [("c", 1, 3), ("d", 1, 4)]
    assert shard.state.next_due_ms == 5
    assert shard.batch(9, limit=2) == [("e", 1, 5)]
    assert shard.state.next_due_ms is None


def test_a_cancel_still_reaches_what_is_due_and_held_back_by_the_limit() -> None:
    #   a@1 b@2     C2 of b
    # ---0-----9(1)---9----->
    #          a
    shard = Shard()
    shard.batch(0, schedule(1, 1, "a"), schedule(1, 2, "b"))
    assert shard.batch(9, limit=1) == [("a", 1, 1)]
    assert shard.batch(9, cancel(2, "b")) == []
    assert shard.told == {"fired": 1, "cancelled": 1, "applied": 1}


def test_a_past_due_arrival_takes_its_place_in_the_backlog_by_due_time() -> None:
    #   b@2 c@3     a@1
    # ---0-----9(1)---9(1)--9(1)-->
    #          b      a     c
    shard = Shard()
    shard.batch(0, schedule(1, 2, "b"), schedule(1, 3, "c"))
    assert shard.batch(9, limit=1) == [("b", 1, 2)]
    assert shard.batch(9, schedule(1, 1, "a"), limit=1) == [("a", 1, 1)]
    assert shard.batch(9, limit=1) == [("c", 1, 3)]


def test_at_one_instant_the_order_is_by_id_in_bytes_and_then_by_seq() -> None:
    #   é Z a 10 9, all @5
    # ---5---->
    #    10 9 Z a é
    shard = Shard()
    fired = shard.batch(5, *(schedule(1, 5, name) for name in ("é", "Z", "a", "10", "9")))
    assert [name for name, _, _ in fired] == ["10", "9", "Z", "a", "é"]


# ---- clocks --------------------------------------------------------------------------------------


def test_a_step_back_of_the_clock_holds_the_wheel_and_fires_nothing_again() -> None:
    #   a@100     b@40 c@101
    # ---100--------50----------99---101-->     the wheel stands at 100 meanwhile
    #     a         b                c
    shard, clock = Shard(), ManualClock(100)
    assert shard.batch(clock.now_ms, schedule(1, 100, "a")) == [("a", 1, 100)]
    assert shard.batch(clock.advance(-50), schedule(1, 40, "b"), schedule(1, 101, "c")) == [("b", 1, 40)]
    assert shard.state.clock_ms == 100
    assert shard.batch(clock.set(99)) == []
    assert shard.batch(clock.advance(2)) == [("c", 1, 101)]


def test_lateness_is_judged_by_the_held_clock() -> None:
    #   x@0      a@40 (at most 10 late)
    # ---100-------45----->     100 - 40 = 60 late
    shard = Shard()
    shard.batch(100, schedule(1, 0, "x"))
    assert shard.batch(45, schedule(1, 40, max_lateness_ms=10)) == []
    assert shard.missed == [("a", 1, 40)]


def test_a_jump_over_several_levels_fires_everything_once_and_in_order() -> None:
    #   one entry at every level and beyond the top one's interval
    # ---0---------------------------------------10000-->
    #                        7 19 20 399 400 7999 8000 9999
    dues = (8_000, 7, 399, 20, 9_999, 7_999, 19, 400)
    shard = Shard()
    shard.batch(0, *(schedule(1, due, f"id{due}") for due in dues), schedule(1, 10_001, "later"))
    assert [due for _, _, due in shard.batch(10_000)] == sorted(dues)
    assert shard.batch(10_000) == []
    assert (shard.state.pending, shard.state.next_due_ms) == (1, 10_001)


def test_small_steps_fire_each_entry_at_the_first_step_at_or_after_its_due() -> None:
    #   7 19 20 21 399 400 401
    # ---0--7----19--20--21---399--400--401--402-->
    dues = [7, 19, 20, 21, 399, 400, 401]
    shard = Shard()
    shard.batch(0, *(schedule(1, due, f"id{due}") for due in dues))
    fired_at = {due: now for now in range(403) for _, _, due in shard.batch(now)}
    assert fired_at == {due: due for due in dues}


def test_a_step_forward_by_a_day_fires_what_became_due_once() -> None:
    #   every hour of a day
    # ---0----------------------------1d---1d-->
    #                                 24 rows
    shard = Shard(Wheel(tick_ms=1_000, size=20, levels=6))
    shard.batch(0, *(schedule(1, hour * HOUR_MS, f"h{hour:02}") for hour in range(1, 25)))
    assert [name for name, _, _ in shard.batch(DAY_MS)] == [f"h{hour:02}" for hour in range(1, 25)]
    assert shard.batch(DAY_MS) == []


@pytest.mark.parametrize("start_ms", [-8_001, -400, -1, 0, 2**53, 2**62])
def test_the_wheel_turns_alike_at_any_instant_of_int64(start_ms: int) -> None:
    #   +0 +1 +20 +399 +8001
    # ---start--------------------- start + each -->
    shard = Shard()
    distances = (0, 1, 20, 399, 8_001)
    shard.batch(start_ms - 1, *(schedule(1, start_ms + far, f"id{far}") for far in distances))
    for far in distances:
        assert shard.batch(start_ms + far) == [(f"id{far}", 1, start_ms + far)]
        assert shard.batch(start_ms + far) == []


# ---- the edges of due times ----------------------------------------------------------------------


def test_an_entry_before_at_and_after_the_clock_fires_twice_now_and_once_later() -> None:
    #   @99 @100 @101
    # ----100---101-->
    #  99 100   101
    shard = Shard()
    rows = [schedule(1, due, f"id{due}") for due in (99, 100, 101)]
    assert shard.batch(100, *rows) == [("id99", 1, 99), ("id100", 1, 100)]
    assert shard.batch(101) == [("id101", 1, 101)]


@pytest.mark.parametrize("due_ms", [999, 1_000, 1_001, 19_999, 20_000, 20_001, 400_000, 7_999_999, 8_000_000])
def test_nothing_fires_a_millisecond_early_at_an_edge_of_any_level(due_ms: int) -> None:
    #   S1@due
    # ---0---------due-1-----due-->
    #                        a1
    shard = Shard(Wheel(tick_ms=1_000, size=20, levels=3))
    shard.batch(0, schedule(1, due_ms))
    assert shard.batch(due_ms - 1) == []
    assert shard.batch(due_ms) == [("a", 1, due_ms)]


@pytest.mark.parametrize("due_ms", [2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1])
def test_a_huge_due_time_neither_wraps_nor_loses_a_millisecond(due_ms: int) -> None:
    #   S1@huge
    # ----0------due-1-----due-->
    #                      a1
    shard = Shard(Wheel(tick_ms=1_000, size=20, levels=6))
    assert shard.batch(0, schedule(1, due_ms)) == []
    assert shard.state.next_due_ms == due_ms
    shard.restart()
    assert shard.batch(due_ms - 1) == []
    assert shard.batch(due_ms) == [("a", 1, due_ms)]


@pytest.mark.parametrize("due_ms", [8, 0, -1, -(2**31), -(2**62), -(2**63)])
def test_what_is_past_due_on_arrival_fires_in_its_own_batch(due_ms: int) -> None:
    #   S1@past
    # -----9--->
    #      a1
    shard = Shard()
    assert shard.batch(9, schedule(1, due_ms)) == [("a", 1, due_ms)]


# ---- lateness ------------------------------------------------------------------------------------


def test_an_entry_later_than_its_own_bound_is_missed_and_not_fired() -> None:
    #   a@10 (bound 5)  b@10 (bound 4)  c@10 (none)
    # ---0---------------------15-->
    #                          a c, missed b
    shard = Shard()
    bounds = {"a": 5, "b": 4, "c": None}
    shard.batch(0, *(schedule(1, 10, name, max_lateness_ms=bound) for name, bound in bounds.items()))
    assert shard.batch(15) == [("a", 1, 10), ("c", 1, 10)]
    assert shard.missed == [("b", 1, 10)]
    assert shard.told == {"fired": 2, "missed": 1}


def test_missed_rows_count_against_the_limit() -> None:
    #   a@1 (bound 0)  b@2  c@3
    # ---0------9(limit 2)--9(2)-->
    #           b, missed a  c
    shard = Shard()
    shard.batch(0, schedule(1, 1, "a", max_lateness_ms=0), schedule(1, 2, "b"), schedule(1, 3, "c"))
    assert (shard.batch(9, limit=2), shard.missed) == ([("b", 1, 2)], [("a", 1, 1)])
    assert (shard.batch(9, limit=2), shard.missed) == ([("c", 1, 3)], [])


def test_a_missed_entry_may_come_again_with_its_old_due_time() -> None:
    #   S100@1 (bound 0)   S101@1 (offsets)
    # ----9-------------------9-->
    #     missed              a101
    shard = Shard()
    shard.batch(9, retry(100, 1) | {"max_lateness_ms": 0})
    assert shard.batch(9, retry(101, 1)) == [("a", 101, 1)]
    assert shard.told == {"missed": 1, "fired": 1}


@pytest.mark.parametrize(("due_ms", "bound_ms"), [(-(2**62), None), (-(2**63), None), (-(2**62), 2**63 - 1)])
def test_an_entry_without_a_real_bound_is_never_missed_whatever_goes_beside_it(
    due_ms: int, bound_ms: int | None
) -> None:
    #   a@ages ago (no bound)  b@0 (bound 0)
    # ---------------10---->
    #                a, missed b
    shard = Shard()
    rows = [schedule(1, due_ms, "a", max_lateness_ms=bound_ms), schedule(1, 0, "b", max_lateness_ms=0)]
    assert shard.batch(10, *rows) == [("a", 1, due_ms)]
    assert shard.missed == [("b", 1, 0)]


# ---- what is written -----------------------------------------------------------------------------


def test_a_tick_with_nothing_due_and_nothing_new_changes_nothing() -> None:
    #   S1@9
    # ---0------8-----8----->
    shard = Shard()
    shard.batch(0, schedule(1, 9))
    before = shard.state.to_row(1)
    for rows in (None, COMMAND_SCHEMA.empty_table()):
        step = advance(shard.state, rows, 8, memory_ms=None)
        assert step.changed is False
        assert (rows_of(step.fired), rows_of(step.missed)) == ([], [])
        assert step.state.to_row(1) == before


def test_a_tick_on_an_empty_shard_changes_nothing_either() -> None:
    step = advance(ShardState.empty(WHEEL), None, 5, memory_ms=None)
    assert (step.changed, step.state.pending, step.state.next_due_ms) == (False, 0, None)


def test_a_batch_of_nothing_but_duplicates_is_written_for_its_counts() -> None:
    #   S1@9   S1@9
    # ---0------1--->
    shard = Shard()
    shard.batch(0, schedule(1, 9))
    shard.batch(1, schedule(1, 9))
    assert shard.step is not None
    assert shard.step.changed is True
    assert shard.told == {"pending": 1, "duplicate": 1}


def test_the_step_does_not_touch_the_state_it_was_given_so_a_retried_task_repeats_it() -> None:
    shard = Shard()
    shard.batch(0, schedule(1, 9), schedule(1, 30, "b"))
    before = shard.state.to_row(1)
    once, again = (
        advance(shard.state, commands_table([cancel(2, "b")]), 9, memory_ms=None) for _ in range(2)
    )
    assert shard.state.to_row(1) == before
    assert once.fired.equals(again.fired)
    assert once.state.to_row(1) == again.state.to_row(1)


def test_a_backlog_of_years_under_a_limit_is_kept_in_few_chunks() -> None:
    #   1,000 entries, one each day
    # ---0-------------------------1,000 d(limit 1)-->
    #                              the first
    shard = Shard(Wheel(tick_ms=1_000, size=20, levels=6))
    shard.batch(0, *(schedule(1, day * DAY_MS, f"d{day}") for day in range(1, 1_001)))
    assert shard.batch(1_000 * DAY_MS, limit=1) == [("d1", 1, DAY_MS)]
    assert len(shard.state.entry_chunks) == 1


def test_many_small_batches_into_one_far_bucket_do_not_pile_up_chunks() -> None:
    #   one entry, due in about a day, every ms
    # ---0---1---2---...---199----------1d + 199-->
    #                                   all 200, in order
    shard = Shard(Wheel(tick_ms=1_000, size=20, levels=6))
    for n in range(200):
        shard.batch(n, schedule(1, DAY_MS + n, f"id{n:03}"))
    assert len(shard.state.entry_chunks) <= 8
    assert [name for name, _, _ in shard.batch(DAY_MS + 199)] == [f"id{n:03}" for n in range(200)]


def test_a_state_comes_back_from_its_bytes_as_it_was() -> None:
    #   a@9 b@30 c@500 C2 of c, C1 of d   (restart)
    # ---------9--------------------------------------30-->
    #          a                                      b
    shard = Shard()
    shard.batch(
        9, schedule(1, 9, "a"), schedule(1, 30, "b"), schedule(1, 500, "c"), cancel(2, "c"), cancel(1, "d")
    )
    told, next_due_ms, data = shard.told, shard.state.next_due_ms, shard.state.to_row(1)
    shard.restart()
    assert (shard.told, shard.state.next_due_ms, shard.state.clock_ms) == (told, next_due_ms, 9)
    assert shard.state.to_row(1) == data
    assert shard.batch(30, schedule(1, 9, "a"), schedule(1, 99, "c"), schedule(0, 99, "d")) == [("b", 1, 30)]
    assert shard.told == {"fired": 2, "duplicate": 1, "superseded": 1, "cancelled": 2, "applied": 2}


def test_a_payload_of_any_bytes_and_of_none_comes_out_as_it_went_in() -> None:
    payloads = {"any": bytes(range(256)), "empty": b"", "none": None}
    shard = Shard()
    rows = [
        schedule(1, 9, name, key=data, value=data, headers='[{"key":"k"}]') for name, data in payloads.items()
    ]
    shard.batch(0, *rows, schedule(1, 9_000_000, "far", value=b"\x00"))
    shard.restart()
    shard.batch(9)
    assert shard.step is not None
    out = {
        row["schedule_id"]: (row["key"], row["value"], row["headers"]) for row in rows_of(shard.step.fired)
    }
    assert out == {name: (data, data, '[{"key":"k"}]') for name, data in payloads.items()}


@pytest.mark.parametrize("other", [Wheel(2, 20, 3), Wheel(1, 10, 3), Wheel(1, 20, 4)], ids=Wheel.fingerprint)
def test_a_state_made_with_another_geometry_is_refused_with_both_named(other: Wheel) -> None:
    shard = Shard()
    shard.batch(0, schedule(1, 9))
    with pytest.raises(GeometryChangedError) as refused:
        ShardState.from_row(shard.state.to_row(1), other, 1)
    assert WHEEL.fingerprint() in str(refused.value)
    assert other.fingerprint() in str(refused.value)
    assert isinstance(refused.value, WheelError)


def test_a_state_made_with_another_number_of_shards_is_refused_with_both_named() -> None:
    data = ShardState.empty(WHEEL).to_row(8)
    with pytest.raises(GeometryChangedError, match=r"shards=8.*shards=16"):
        ShardState.from_row(data, WHEEL, 16)


def test_a_state_of_another_format_version_is_refused_with_both_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = state_module.FORMAT_VERSION
    with monkeypatch.context() as another_release:
        another_release.setattr(ShardState, "FORMAT", ours + 41)
        data = ShardState.empty(WHEEL).to_row(1)
    with pytest.raises(GeometryChangedError, match=rf"format version.*\b{ours + 41}\b.*\b{ours}\b"):
        ShardState.from_row(data, WHEEL, 1)


# ---- incidents of other systems ------------------------------------------------------------------


@pytest.mark.parametrize("behind_ms", [0, 1, 19, 20, 21])
def test_spark_56566_karafka_2578_temporal_425_an_entry_at_or_just_behind_the_cursor_is_skipped(
    behind_ms: int,
) -> None:
    #   x@1000    a@(1000 - behind)
    # ---1000--------1000---------->
    #     x           a
    shard = Shard()
    shard.batch(1_000, schedule(1, 1_000, "x"))
    assert shard.batch(1_000, schedule(1, 1_000 - behind_ms)) == [("a", 1, 1_000 - behind_ms)]


def test_rocketmq_rust_9154_a_message_fires_early_at_an_exact_tick_edge() -> None:
    #   S1@2000, tick 1000
    # ---1000---1999---2000-->
    #                  a1
    shard = Shard(Wheel(tick_ms=1_000, size=2, levels=2))
    assert shard.batch(1_000, schedule(1, 2_000)) == []
    assert shard.batch(1_999) == []
    assert shard.batch(2_000) == [("a", 1, 2_000)]


@pytest.mark.parametrize("cancel_first", [True, False])
def test_karafka_3250_a_cancel_is_not_loaded_at_recovery_and_the_entry_fires(cancel_first: bool) -> None:
    #   C2 | S1@9 |            S1@9 | C2 |          (| = restart)
    # ---0----0-------9-->   ----0----0------9-->
    shard = Shard()
    for command in [cancel(2), schedule(1, 9)][:: 1 if cancel_first else -1]:
        assert shard.batch(0, command) == []
        shard.restart()
    assert shard.batch(9) == []
    assert shard.told == {"cancelled": 1, "applied": 1}


def test_camunda_14882_a_great_many_are_due_at_one_instant() -> None:
    #   10,000 x @500
    # ---0--------500(limit 3000)-500(3000)-500(3000)-500(3000)-->
    #                3000            3000      3000      1000
    shard = Shard()
    shard.batch(0, *(schedule(1, 500, f"{n:05}") for n in range(10_000)))
    batches = [[int(name) for name, _, _ in shard.batch(500, limit=3_000)] for _ in range(4)]
    assert [len(batch) for batch in batches] == [3_000, 3_000, 3_000, 1_000]
    assert [n for batch in batches for n in batch] == list(range(10_000))
    assert shard.batch(500) == []


def test_quartz_48_one_bad_trigger_blocks_the_others() -> None:
    #   a@1 (bound 0), again and again re-armed    b@2
    # ---0----9(limit 1)---9(limit 1)-->
    #         missed a     b
    shard = Shard()
    shard.batch(0, schedule(1, 1, "a", max_lateness_ms=0), schedule(1, 2, "b"))
    assert (shard.batch(9, limit=1), shard.missed) == ([], [("a", 1, 1)])
    assert (shard.batch(9, limit=1), shard.missed) == ([("b", 1, 2)], [])


def test_pulsar_21898_what_waits_longer_than_the_retention_is_deleted_before_it_is_due() -> None:
    #   a@30d      b@k each day
    # ---0-----------1d---2d---...---30d-->   memory 1 s
    #                                a
    shard = Shard(Wheel(tick_ms=1_000, size=20, levels=6), memory_ms=1_000)
    shard.batch(0, schedule(1, 30 * DAY_MS))
    for day in range(1, 30):
        assert shard.batch(day * DAY_MS, schedule(day, day * DAY_MS, "b")) == [("b", day, day * DAY_MS)]
    assert shard.batch(30 * DAY_MS) == [("a", 1, 30 * DAY_MS)]


def test_kafka_664_what_has_ended_stays_in_the_lists_until_memory_runs_out() -> None:
    #   S1@9000 S2@9001 ... S400@9399 (a), S and C of another id each
    # ---0--------1-----...---399-->
    shard = Shard(memory_ms=10)
    sizes = []
    for n in range(400):
        shard.batch(n, schedule(n, 9_000 + n), schedule(1, 5_000, f"id{n}"), cancel(2, f"id{n}"))
        sizes.append(len(shard.state.text))
    assert shard.state.entries().num_rows == 1
    assert max(sizes[200:]) < 2 * max(sizes[:100])
    assert shard.told == {"pending": 1, "superseded": 399, "cancelled": 400, "applied": 400}


@pytest.mark.parametrize("due_ms", [2**31, 2**32 + 1, 2**62, 2**63 - 1])
def test_lavinmq_1781_a_huge_delay_overflows_to_at_once(due_ms: int) -> None:
    #   S1@huge
    # ---now--------------now + 1000 years-->
    now_ms = 1_700_000_000_000
    shard = Shard(Wheel(tick_ms=1_000, size=20, levels=6))
    due_ms = max(due_ms, now_ms + due_ms if due_ms < 2**33 else due_ms)
    assert shard.batch(now_ms, schedule(1, due_ms)) == []
    assert shard.batch(min(now_ms + 365_000 * DAY_MS, due_ms - 1)) == []
    assert shard.told == {"pending": 1}


def test_nats_7687_an_outage_lasts_over_several_due_points() -> None:
    #   a@10 b@20 c@30 d@40      (down)
    # ---0------------------------|-----------35----40-->
    #                                        a b c  d
    shard = Shard()
    shard.batch(0, *(schedule(1, due, name) for name, due in zip("abcd", (10, 20, 30, 40), strict=True)))
    shard.restart()
    assert shard.batch(35) == [("a", 1, 10), ("b", 1, 20), ("c", 1, 30)]
    assert shard.batch(35) == []
    assert shard.batch(40) == [("d", 1, 40)]


def test_redisson_1754_entries_fall_due_while_no_input_comes_for_ten_minutes() -> None:
    #   one each minute
    # ---0----1m---2m---...---10m-->   ticks alone, every 20 s
    #         m1   m2         m10
    shard, clock = Shard(Wheel(tick_ms=1_000, size=20, levels=6)), ManualClock(0)
    shard.batch(0, *(schedule(1, minute * 60_000, f"m{minute}") for minute in range(1, 11)))
    fired = [(clock.now_ms, row) for _ in range(30) for row in shard.batch(clock.advance(20_000))]
    assert fired == [(minute * 60_000, (f"m{minute}", 1, minute * 60_000)) for minute in range(1, 11)]
