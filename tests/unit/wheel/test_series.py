"""What goes wrong with recurring schedules, one sentence each, against the pure step.

All of it happens on Monday 2026-01-05, UTC, unless a test says a date. A row that was released is (id, its nominal
time, number of the occurrence, how many were dropped right before it). The rule is ``*/15 * * * *`` unless it is said:
10:15, 10:30, 10:45 and so on. Time lines as in ``test_advance_scenarios.py``: ``S1`` is a series of seq 1, ``@`` the
time of its event, a ``|`` the step that reads or releases.
"""

from __future__ import annotations

import itertools
import json
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from wheel_udf.common.geometry import Wheel
from wheel_udf.common.outcomes import SCHEDULE_OUTCOMES
from wheel_udf.policies.rates import Rate, Rates, Turnstile
from wheel_udf.policies.series import Series, begin
from wheel_udf.shard.rows import CANCEL, COMMAND_SCHEMA, PAUSED_MS, SCHEDULE
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import rows_of
from wheel_udf.wheel.acted import ACT_SCHEMA, as_commands
from wheel_udf.wheel.policies import Gate, Policies
from wheel_udf.wheel.step import Step, advance

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
DAY = "2026-01-05"
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
Command = dict[str, Any]
Shown = tuple[str, str, int | None, int | None]


def at(text: str) -> int:
    """UTC epoch ms of a time on the day of these tests, or of a whole date and time."""
    moment = datetime.fromisoformat(text if "T" in text else f"{DAY}T{text}").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def told_time(instant_ms: int) -> str:
    moment = datetime.fromtimestamp(instant_ms / 1_000, UTC)
    text = moment.isoformat(timespec="minutes").removesuffix("+00:00").removeprefix(f"{DAY}T")
    rest = instant_ms % MINUTE_MS
    return f"{text}+{rest}ms" if rest else text


def command(seq: int, schedule_id: str, **columns: Any) -> Command:
    filled: Command = dict.fromkeys(COMMAND_SCHEMA.names)
    filled |= {"schedule_id": schedule_id, "seq": seq, "amend": 0, "act": 0, "op": SCHEDULE}
    return filled | {"seq_given": True, "destination": "out"} | columns


def series(
    seq: int,
    event: str | int = "10:00",
    rule: str = "*/15 * * * *",
    schedule_id: str = "a",
    *,
    begins: str | int | None = None,
    spread_ms: int = 0,
    max_lateness_ms: int | None = None,
    seq_given: bool = True,
    time_zone: str = "UTC",
    until: str | int | None = None,
    **told: Any,
) -> Command:
    """A new series. `event` is the time of its command, `begins` its own beginning."""
    event_ms, begins_ms, until_ms = (
        at(each) if isinstance(each, str) else each for each in (event, begins, until)
    )
    text = {"repeat": rule, "time_zone": time_zone, **told} | (
        {} if until_ms is None else {"until_ms": until_ms}
    )
    return command(
        seq,
        schedule_id,
        repeat=json.dumps(text),
        anchor_ms=event_ms if begins_ms is None else begins_ms,
        last_ms=event_ms if begins_ms is None else begins_ms - 1,
        spread_ms=spread_ms,
        max_lateness_ms=max_lateness_ms,
        seq_given=seq_given,
    )


def one_shot(seq: int, due: str, schedule_id: str = "a", **columns: Any) -> Command:
    return command(seq, schedule_id, deliver_at_ms=at(due), **columns)


def cancel(seq: int, schedule_id: str = "a") -> Command:
    return command(seq, schedule_id, op=CANCEL, destination=None)


def nominal_ms(row: dict[str, Any]) -> int:
    nominal: int = row["deliver_at_ms"] - (row["level_error_ms"] or 0)
    return nominal


def shown(table: pa.Table) -> list[Shown]:
    return [
        (row["schedule_id"], told_time(nominal_ms(row)), row["occurrence"], row["missed_before"])
        for row in rows_of(table)
    ]


class Shard:
    """A shard driven by hand, as the worker does it; each batch answers the rows that fired."""

    def __init__(self, wheel: Wheel = WHEEL, memory_ms: int | None = None) -> None:
        self.state, self.memory_ms = ShardState.empty(wheel), memory_ms
        self.schedules = self.cancels = 0
        self.refused: list[tuple[str, str]] = []
        self.missed: list[Shown] = []
        self.step: Step | None = None

    def batch(
        self, now: str | int, *commands: Command, limit: int | None = None, gate: Gate | None = None
    ) -> list[Shown]:
        now_ms = at(now) if isinstance(now, str) else now
        rows = pa.Table.from_pylist([*commands], schema=COMMAND_SCHEMA)
        clock_ms = now_ms if self.state.clock_ms is None else max(self.state.clock_ms, now_ms)
        begun, refused = begin(rows, self.state, clock_ms, self.memory_ms)
        policies = Policies(repeat=Series(self.state.wheel.tick_ms), gate=gate)
        self.step = advance(self.state, begun, now_ms, limit, memory_ms=self.memory_ms, policies=policies)
        self.state, self.missed = self.step.state, shown(self.step.missed)
        self.refused = [
            (row["schedule_id"], json.loads(row["reject"])["error_code"]) for row in rows_of(refused)
        ]
        self.schedules += sum(each["op"] == SCHEDULE for each in commands) - len(self.refused)
        assert self.schedules == self.state.pending + sum(
            self.state.counts[name] for name in SCHEDULE_OUTCOMES
        )
        return shown(self.step.fired)

    def restart(self) -> None:
        before = self.state.entries().to_pylist()
        self.state = ShardState.from_row(self.state.to_row(1), self.state.wheel, 1)
        assert self.state.entries().to_pylist() == before

    @property
    def next_due(self) -> str | None:
        return None if self.state.next_due_ms is None else told_time(self.state.next_due_ms)

    @property
    def told(self) -> dict[str, int]:
        """Pending, and the counts that are not zero."""
        counts = {"pending": self.state.pending, **self.state.counts}
        return {name: count for name, count in counts.items() if count}


def fired_at(shard: Shard, *times: str) -> list[Shown]:
    return [row for time in times for row in shard.batch(time)]


# ---- the life of a series ------------------------------------------------------------------------


def test_a_series_fires_at_each_of_its_instants_and_stays_one_pending_entry() -> None:
    #   S1@10:01
    # ----10:01-----10:15----10:30----10:45-->
    shard = Shard()
    assert shard.batch("10:01", series(1, "10:01")) == []
    assert shard.told == {"pending": 1}
    assert fired_at(shard, "10:15", "10:30") == [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)]
    assert shard.told == {"pending": 1, "occurrences_fired": 2}
    [entry] = rows_of(shard.state.entries())
    assert (entry["schedule_id"], entry["seq"], entry["amend"]) == ("a", 1, 0)
    assert (entry["deliver_at_ms"], entry["last_ms"], entry["occurrence"]) == (at("10:45"), at("10:30"), 2)


def test_an_occurrence_is_released_neither_a_millisecond_early_nor_twice() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    assert shard.batch(at("10:15") - 1) == []
    assert shard.batch(at("10:15")) == [("a", "10:15", 1, 0)]
    assert shard.batch(at("10:15")) == []
    assert shard.batch(at("10:30") - 1) == []


def test_a_late_release_does_not_move_the_next_one() -> None:
    #   S1@10:01
    # ----10:01-----10:22---10:45-->
    #               10:16   10:31
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", "every 15 minutes"))
    assert shard.batch("10:22") == [("a", "10:16", 1, 0)]
    assert shard.next_due == "10:31"
    assert shard.batch("10:45") == [("a", "10:31", 2, 0)]


@pytest.mark.parametrize(
    ("event_ms", "first"),
    [(at("10:15") - 1, "10:15"), (at("10:15"), "10:30"), (at("10:15") + 1, "10:30")],
)
def test_the_first_occurrence_is_strictly_after_the_event(event_ms: int, first: str) -> None:
    shard = Shard()
    shard.batch(event_ms, series(1, event_ms))
    assert shard.next_due == first


@pytest.mark.parametrize(
    ("begins_ms", "first"),
    [(at("10:15") - 1, "10:15"), (at("10:15"), "10:15"), (at("10:15") + 1, "10:30")],
)
def test_a_beginning_of_its_own_may_be_the_first_occurrence(begins_ms: int, first: str) -> None:
    shard = Shard()
    shard.batch("10:00", series(1, "10:00", begins=begins_ms))
    assert shard.next_due == first


def test_a_period_is_counted_from_the_event_or_from_the_beginning_of_its_own() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", "every 20 minutes", "event"))
    shard.batch("10:01", series(1, "10:01", "every 20 minutes", "begins", begins="10:07"))
    assert fired_at(shard, "10:07", "10:21", "10:27") == [
        ("begins", "10:07", 1, 0),
        ("event", "10:21", 1, 0),
        ("begins", "10:27", 2, 0),
    ]


def test_a_beginning_in_the_past_is_made_up_for_by_the_policy() -> None:
    shard = Shard()
    assert shard.batch(
        "11:00",
        series(1, "11:00", schedule_id="latest", begins="10:00"),
        series(1, "11:00", schedule_id="all", begins="10:30", on_missed="all"),
    ) == [
        ("all", "10:30", 1, 0),
        ("all", "10:45", 2, 0),
        ("all", "11:00", 3, 0),
        ("latest", "11:00", 5, 4),
    ]


def test_the_clock_that_steps_back_releases_nothing_again() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:31")
    assert fired_at(shard, "10:15", "10:30", "10:44") == []
    assert shard.batch("10:45") == [("a", "10:45", 3, 0)]


def test_a_step_before_the_next_occurrence_changes_nothing() -> None:
    shard = Shard()
    shard.batch("10:15", series(1, "10:01"))
    before = shard.state.to_row(1)
    assert shard.batch("10:29") == []
    assert shard.step is not None
    assert shard.step.changed is False
    assert shard.state.to_row(1) == before


def test_the_same_version_again_is_a_duplicate_while_the_series_waits() -> None:
    #   S1@10:01         S1@10:01
    # ----10:01---10:15----10:16---10:30-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:15")
    assert shard.batch("10:16", series(1, "10:01")) == []
    assert shard.told == {"pending": 1, "duplicate": 1, "occurrences_fired": 1}
    assert shard.batch("10:30") == [("a", "10:30", 2, 0)]


def test_a_series_of_many_ids_releases_each_of_them() -> None:
    shard = Shard()
    shard.batch("10:01", *(series(1, "10:01", schedule_id=f"id{n:03}") for n in range(300)))
    for number, time in enumerate(("10:15", "10:30", "10:45"), 1):
        assert shard.batch(time) == [(f"id{n:03}", time, number, 0) for n in range(300)]


def test_a_released_row_carries_the_payload_and_says_when_it_was_asked_for() -> None:
    shard = Shard()
    payload = {"key": b"k", "value": b"\x00\xff", "headers": "[]", "source": "t/0/1", "destination": "there"}
    shard.batch("10:01", series(7, "10:01", spread_ms=90_000) | payload, series(7, "10:01", schedule_id="b"))
    shard.restart()
    shard.batch("10:17")
    assert shard.step is not None
    b, a = rows_of(shard.step.fired)
    assert {name: a[name] for name in payload} == payload
    assert (a["deliver_at_ms"], a["level_error_ms"]) == (at("10:16:30"), 90_000)
    assert (b["deliver_at_ms"], b["level_error_ms"]) == (at("10:15"), None)
    assert (a["seq"], a["amend"], a["occurrence"], a["missed_before"]) == (7, 0, 1, 0)


def test_a_one_shot_beside_a_series_has_no_occurrence() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"), one_shot(1, "10:14", "b"))
    assert shard.batch("10:15") == [("b", "10:14", None, None), ("a", "10:15", 1, 0)]
    assert shard.told == {"pending": 1, "fired": 1, "occurrences_fired": 1}


def test_a_series_of_many_occurrences_is_kept_in_one_chunk() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", "every 6 hours"))
    start_ms = at("10:01")
    for n in range(1, 200):
        assert len(shard.batch(start_ms + n * 6 * HOUR_MS)) == 1
    assert len(shard.state.entry_chunks) == 1


# ---- its end -------------------------------------------------------------------------------------


def test_after_count_occurrences_a_series_has_ended() -> None:
    #   S1@10:01 (count 2)
    # ----10:01-----10:15----10:30----10:45-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", count=2))
    assert len(fired_at(shard, "10:15")) == 1
    assert shard.told == {"pending": 1, "occurrences_fired": 1}
    assert fired_at(shard, "10:30", "10:45") == [("a", "10:30", 2, 0)]
    assert shard.told == {"ended": 1, "occurrences_fired": 2}


@pytest.mark.parametrize(("until_ms", "last"), [(at("10:30") - 1, "10:15"), (at("10:30"), "10:30")])
def test_there_is_no_occurrence_after_until_and_there_is_one_at_it(until_ms: int, last: str) -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", until=until_ms))
    assert fired_at(shard, "10:15", "10:30", "10:45")[-1][1] == last
    assert shard.told["ended"] == 1
    assert shard.state.pending == 0


def test_until_bounds_the_nominal_time_and_not_the_time_of_release() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", until="10:15", spread_ms=HOUR_MS))
    assert fired_at(shard, "10:15", "11:14") == []
    assert shard.batch("11:15") == [("a", "10:15", 1, 0)]
    assert shard.told == {"ended": 1, "occurrences_fired": 1}


@pytest.mark.parametrize("told", [{"count": 3}, {"until": "10:45"}, {"count": 3, "until": "12:00"}])
@pytest.mark.parametrize(
    ("on_missed", "fired", "missed", "counts"),
    [
        ("latest", [("a", "10:45", 3, 2)], [], {"occurrences_fired": 1, "occurrences_missed": 2}),
        (
            "all",
            [("a", "10:15", 1, 0), ("a", "10:30", 2, 0), ("a", "10:45", 3, 0)],
            [],
            {"occurrences_fired": 3},
        ),
        ("none", [], [("a", "10:45", 3, 2)], {"occurrences_missed": 3}),
    ],
)
def test_a_series_whose_end_has_passed_ends_with_its_last_occurrence(
    told: dict[str, Any], on_missed: str, fired: list[Shown], missed: list[Shown], counts: dict[str, int]
) -> None:
    #   S1@10:01
    # ----10:01---------------12:30-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed=on_missed, **told))
    assert (shard.batch("12:30"), shard.missed) == (fired, missed)
    assert shard.told == {"ended": 1, **counts}


def test_missed_and_dropped_occurrences_count_for_count() -> None:
    #   S1@10:01 (count 4)
    # ----10:01---------10:46------11:00--11:15-->
    #                   10:45      11:00
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", count=4))
    assert fired_at(shard, "10:46", "11:00", "11:15") == [("a", "10:45", 3, 2), ("a", "11:00", 4, 0)]
    assert shard.told == {"ended": 1, "occurrences_fired": 2, "occurrences_missed": 2}


def test_the_version_of_a_series_that_has_ended_is_a_duplicate_within_memory() -> None:
    #   S1@10:01 (count 1)     S1        S1
    # ----10:01--------10:15---10:44:59--10:45--->   memory 30 min
    shard = Shard(memory_ms=30 * MINUTE_MS)
    once = series(1, "10:01", count=1)
    shard.batch("10:01", once)
    shard.batch("10:15")
    assert shard.batch("10:44:59", once) == []
    assert shard.told == {"ended": 1, "occurrences_fired": 1, "duplicate": 1}
    assert shard.batch("10:45", once) == [("a", "10:15", 1, 0)]


def test_a_series_that_fires_on_is_not_forgotten_however_short_the_memory() -> None:
    shard = Shard(memory_ms=0)
    shard.batch("10:01", series(2, "10:01"))
    fired_at(shard, "10:15", "10:30")
    shard.batch("10:31", series(2, "10:01"), series(1, "10:01"))
    assert shard.told == {"pending": 1, "occurrences_fired": 2, "duplicate": 1, "superseded": 1}


def test_a_newer_version_begins_a_series_that_has_ended_anew() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", count=1))
    shard.batch("10:15")
    shard.batch("10:16", series(2, "10:16", count=1))
    assert shard.batch("10:30") == [("a", "10:30", 1, 0)]
    assert shard.told == {"ended": 2, "occurrences_fired": 2}


def test_an_older_version_and_a_cancel_after_the_end_change_nothing() -> None:
    shard = Shard()
    shard.batch("10:01", series(5, "10:01", count=1))
    shard.batch("10:15")
    shard.batch("10:16", series(4, "10:16"), cancel(6))
    assert fired_at(shard, "10:30") == []
    assert shard.told == {"ended": 1, "occurrences_fired": 1, "superseded": 1, "late": 1}


def test_a_producer_without_versions_that_sends_an_ended_series_again_begins_it_again() -> None:
    # Only a one-shot is known by its due time.
    shard = Shard()
    shard.batch("10:01", series(100, "10:01", count=1, seq_given=False))
    shard.batch("10:15")
    assert shard.batch("10:15", series(101, "10:01", count=1, seq_given=False)) == [("a", "10:15", 1, 0)]
    assert shard.told == {"ended": 2, "occurrences_fired": 2}


def test_a_series_whose_first_occurrence_is_the_due_time_of_a_fired_one_shot_is_no_retry_of_it() -> None:
    #   O100@10:15    S101@10:01 (offsets)
    # ----10:01--10:15--10:16-----10:30-->
    shard = Shard()
    shard.batch("10:01", one_shot(100, "10:15", seq_given=False))
    shard.batch("10:15")
    assert shard.batch("10:16", series(101, "10:01", seq_given=False)) == [("a", "10:15", 1, 0)]
    assert shard.batch("10:30") == [("a", "10:30", 2, 0)]
    assert shard.told == {"pending": 1, "fired": 1, "occurrences_fired": 2}


# ---- several occurrences are due -----------------------------------------------------------------


def test_latest_fires_the_newest_and_says_how_many_were_before_it() -> None:
    #   S1@10:01
    # ----10:01-----------11:05---11:15-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    assert fired_at(shard, "11:05", "11:15") == [("a", "11:00", 4, 3), ("a", "11:15", 5, 0)]
    assert shard.told == {"pending": 1, "occurrences_fired": 2, "occurrences_missed": 3}


def test_all_fires_each_of_them_oldest_first() -> None:
    shard = Shard()
    shard.batch(
        "10:01", series(1, "10:01", on_missed="all"), series(1, "10:01", schedule_id="b", on_missed="all")
    )
    assert shard.batch("10:45") == [
        (name, time, number, 0)
        for number, time in enumerate(("10:15", "10:30", "10:45"), 1)
        for name in ("a", "b")
    ]
    assert shard.told == {"pending": 2, "occurrences_fired": 6}


def test_all_fires_the_oldest_most_and_tells_the_rest_in_one_row() -> None:
    #   S1@10:01 (most 2)
    # ----10:01------------11:15----11:30-->
    #                10:15 10:30    11:30
    #                missed 10:45 11:00 11:15
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all", most=2))
    assert shard.batch("11:15") == [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)]
    assert shard.missed == [("a", "11:15", 5, 2)]
    assert shard.told == {"pending": 1, "occurrences_fired": 2, "occurrences_missed": 3}
    assert (shard.batch("11:30"), shard.missed) == ([("a", "11:30", 6, 0)], [])


def test_as_many_as_most_are_all_fired_and_nothing_is_told_missed() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all", most=2))
    assert len(shard.batch("10:30")) == 2
    assert shard.missed == []


def test_the_one_row_of_what_was_dropped_has_the_time_of_the_newest_and_the_spread() -> None:
    shard = Shard()
    shard.batch("10:01", series(3, "10:01", on_missed="none", spread_ms=5_000) | {"value": b"v"})
    assert shard.batch("11:01") == []
    assert shard.step is not None
    [row] = rows_of(shard.step.missed)
    assert (row["schedule_id"], row["seq"], row["value"]) == ("a", 3, b"v")
    assert (row["deliver_at_ms"], row["level_error_ms"]) == (at("11:00:05"), 5_000)
    assert (row["occurrence"], row["missed_before"]) == (4, 3)


@pytest.mark.parametrize("late_ms", [0, 1, HOUR_MS // 4 - 1])
def test_none_fires_a_single_occurrence_however_late(late_ms: int) -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="none"))
    assert shard.batch(at("10:15") + late_ms) == [("a", "10:15", 1, 0)]


@pytest.mark.parametrize(
    ("max_lateness_ms", "late_ms", "fires"),
    [
        (None, 0, True),
        (None, 1_000, True),  # a tick
        (None, 1_001, False),
        (0, 0, True),
        (0, 1, False),
        (60_000, 60_000, True),
        (60_000, 60_001, False),
    ],
)
def test_none_fires_the_newest_of_several_only_on_time(
    max_lateness_ms: int | None, late_ms: int, fires: bool
) -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="none", max_lateness_ms=max_lateness_ms))
    newest = ("a", "10:45", 3, 2)
    fired = shard.batch(at("10:45") + late_ms)
    assert (fired, shard.missed) == (([newest], []) if fires else ([], [newest]))
    dropped = {"occurrences_fired": 1, "occurrences_missed": 2} if fires else {"occurrences_missed": 3}
    assert shard.told == {"pending": 1, **dropped}
    assert shard.batch("11:00") == [("a", "11:00", 4, 0)]


@pytest.mark.parametrize("spread_ms", [1, 30_000, 20 * MINUTE_MS])
def test_on_time_is_measured_from_the_time_of_release(spread_ms: int) -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="none", spread_ms=spread_ms))
    assert shard.batch(at("10:45") + spread_ms + SECOND_MS) == [("a", "10:45", 3, 2)]


@pytest.mark.parametrize("on_missed", ["latest", "all", "none"])
def test_a_firing_later_than_its_bound_is_missed_for_series_too(on_missed: str) -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed=on_missed, max_lateness_ms=MINUTE_MS))
    assert (shard.batch(at("10:16")), shard.missed) == ([("a", "10:15", 1, 0)], [])
    assert (shard.batch(at("10:31") + 1), shard.missed) == ([], [("a", "10:30", 2, 0)])
    assert shard.told == {"pending": 1, "occurrences_fired": 1, "occurrences_missed": 1}


def test_of_all_only_those_on_time_fire_and_each_late_one_is_a_row() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all", max_lateness_ms=16 * MINUTE_MS))
    assert shard.batch("11:00") == [("a", "10:45", 3, 0), ("a", "11:00", 4, 0)]
    assert shard.missed == [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)]
    assert shard.told == {"pending": 1, "occurrences_fired": 2, "occurrences_missed": 2}


def test_a_newest_firing_that_is_too_late_takes_those_before_it_with_it() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", max_lateness_ms=MINUTE_MS))
    assert (shard.batch("10:40"), shard.missed) == ([], [("a", "10:30", 2, 1)])
    assert shard.told == {"pending": 1, "occurrences_missed": 2}


def test_a_too_late_last_occurrence_ends_the_series() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", max_lateness_ms=MINUTE_MS, count=1))
    assert shard.batch("10:40") == []
    assert shard.told == {"ended": 1, "occurrences_missed": 1}


@pytest.mark.parametrize(
    "told", [{}, {"on_missed": "all"}, {"on_missed": "all", "most": 3}, {"on_missed": "none"}]
)
@pytest.mark.parametrize("max_lateness_ms", [None, 0, 20 * MINUTE_MS])
@pytest.mark.parametrize("jump_minutes", [1, 14, 45, 46, 600])
def test_fired_and_missed_are_the_occurrences_that_have_passed(
    told: dict[str, Any], max_lateness_ms: int | None, jump_minutes: int
) -> None:
    shard, now_ms = Shard(), at("10:00")
    shard.batch(now_ms, series(1, now_ms, max_lateness_ms=max_lateness_ms, spread_ms=7_000, **told))
    for _ in range(5):
        now_ms += jump_minutes * MINUTE_MS
        shard.batch(now_ms)
        passed = (now_ms - 7_000 - at("10:00")) // (15 * MINUTE_MS)
        counts = shard.state.counts
        assert counts["occurrences_fired"] + counts["occurrences_missed"] == passed
        assert shard.told.keys() <= {"pending", "occurrences_fired", "occurrences_missed"}


def test_series_of_one_rule_that_differ_in_all_but_the_rule_do_not_mix() -> None:
    shard = Shard()
    waiting = {
        "early": series(1, "10:01", "every 15 minutes", "early", on_missed="all", most=3),
        "late": series(1, "10:05", "every 15 minutes", "late", on_missed="all", most=3),
        "spread": series(
            1, "10:01", "every 15 minutes", "spread", on_missed="all", most=3, spread_ms=20 * MINUTE_MS
        ),
    }
    shard.batch("10:05", *waiting.values())
    fired = shard.batch("11:02")
    assert [row for row in fired if row[0] == "early"] == [
        ("early", "10:16", 1, 0),
        ("early", "10:31", 2, 0),
        ("early", "10:46", 3, 0),
    ]
    assert [row for row in fired if row[0] == "late"] == [
        ("late", "10:20", 1, 0),
        ("late", "10:35", 2, 0),
        ("late", "10:50", 3, 0),
    ]
    assert [row for row in fired if row[0] == "spread"] == [
        ("spread", "10:16", 1, 0),
        ("spread", "10:31", 2, 0),
    ]
    assert shard.missed == [("early", "11:01", 4, 0)]


def test_of_more_than_a_hundred_thousand_occurrences_no_more_are_counted() -> None:
    shard, start_ms = Shard(), at("10:00")
    shard.batch(start_ms, series(1, start_ms, "every 1 ms"))
    assert [row[0] for row in shard.batch(start_ms + 250_000)] == ["a"]
    assert shard.told == {"pending": 1, "occurrences_fired": 1, "occurrences_missed": 100_000}


# ---- spread --------------------------------------------------------------------------------------


def test_each_occurrence_is_released_by_the_spread_after_its_nominal_time() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", spread_ms=90_000))
    assert shard.batch(at("10:16:30") - 1) == []
    assert shard.batch("10:16:30") == [("a", "10:15", 1, 0)]
    assert shard.batch(at("10:31:30") - 1) == []
    assert shard.batch("10:31:30") == [("a", "10:30", 2, 0)]


def test_a_spread_longer_than_the_period_delays_all_and_loses_none() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", spread_ms=40 * MINUTE_MS))
    assert fired_at(shard, "10:54", "10:55", "11:09", "11:10") == [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)]


def test_a_new_spread_of_an_edit_holds_from_the_next_occurrence() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:15")
    shard.batch("10:16", series(2, "10:16", spread_ms=60_000))
    assert fired_at(shard, "10:30", "10:31") == [("a", "10:30", 1, 0)]


# ---- the limit -----------------------------------------------------------------------------------


def test_one_shots_and_series_leave_together_oldest_first_under_a_limit() -> None:
    #   a, c: series; b, d: one-shots
    shard = Shard()
    shard.batch(
        "10:01",
        series(1, "10:01", schedule_id="c"),
        series(1, "10:01", "*/30 * * * *", "a"),
        one_shot(1, "10:15", "b"),
        one_shot(1, "10:29", "d"),
    )
    released = [shard.batch("10:30", limit=1) for _ in range(5)]
    assert released == [
        [("b", "10:15", None, None)],
        [("c", "10:30", 2, 1)],
        [("d", "10:29", None, None)],
        [("a", "10:30", 1, 0)],
        [],
    ]


def test_what_a_limit_leaves_of_all_goes_next_and_is_not_dropped() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all"), one_shot(1, "10:40", "b"))
    released = [shard.batch("11:00", limit=2) for _ in range(4)]
    assert released == [
        [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)],
        [("b", "10:40", None, None), ("a", "10:45", 3, 0)],
        [("a", "11:00", 4, 0)],
        [],
    ]
    assert shard.told == {"pending": 1, "fired": 1, "occurrences_fired": 4}


def test_most_counts_anew_for_what_a_limit_left() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all", most=3))
    assert shard.batch("11:30", limit=2) == [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)]
    assert shard.missed == []
    assert shard.batch("11:30") == [("a", "10:45", 3, 0), ("a", "11:00", 4, 0), ("a", "11:15", 5, 0)]
    assert shard.missed == [("a", "11:30", 6, 0)]


def test_an_occurrence_that_was_moved_behind_later_ones_was_lost_under_a_limit_and_another_came_twice() -> (
    None
):
    #   S1@10:01, its 10:15 is moved to 10:50
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all"))
    act(shard, "10:50", 0)
    released = [shard.batch("11:02", limit=1) for _ in range(5)]
    assert released == [
        [("a", "10:15", 1, 0)],
        [("a", "10:30", 2, 0)],
        [("a", "10:45", 3, 0)],
        [("a", "11:00", 4, 0)],
        [],
    ]


def test_a_count_that_ended_during_a_long_outage_is_not_listed_one_by_one() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", "every 15 seconds", count=5_760))
    assert shard.batch("2026-01-08T00:00") == [("a", "2026-01-06T10:01", 5_760, 5_759)]
    assert shard.told == {"ended": 1, "occurrences_fired": 1, "occurrences_missed": 5_759}


def test_a_series_that_catches_up_under_a_rate_keeps_its_turns() -> None:
    shard, gate = Shard(), Turnstile(Rates({"out": Rate(1, 1)}), 0, 1)
    others = [one_shot(1, "2027-01-01T00:00", f"x{number}", destination="other") for number in range(50)]
    shard.batch("10:01", series(1, "10:01", "every 1 minute", on_missed="all"), *others)
    began, fired = at("10:11"), 0
    for second in range(9):
        released = shard.batch(began + second * SECOND_MS, gate=gate)
        fired += len(released)
        assert fired == second + 1


def test_a_skip_of_the_first_occurrence_at_the_beginning_of_a_series_was_none() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", "every 15 minutes", begins=at("10:10")))
    act(shard, None, 0, now="10:02")
    assert shard.next_due == "10:25"
    assert shard.batch("10:25") == [("a", "10:25", 2, 0)]


def test_a_series_without_an_occurrence_is_refused_also_if_it_comes_twice_in_a_batch() -> None:
    shard = Shard()
    over = {"until": "2026-01-01T00:00"}
    assert shard.batch("10:01", series(1, "10:01", **over), series(2, "10:01", **over)) == []
    assert shard.refused == [("a", "no_occurrence"), ("a", "no_occurrence")]
    assert shard.batch("10:02", series(1, "10:01", **over), series(2, "10:01")) == []
    assert (shard.refused, shard.told) == ([], {"pending": 1, "superseded": 1})


def test_a_series_that_is_cut_at_its_last_occurrence_but_one_ends_with_the_last() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all", count=3))
    assert len(shard.batch("12:00", limit=2)) == 2
    assert shard.told == {"pending": 1, "occurrences_fired": 2}
    shard.restart()
    assert shard.batch("12:00", limit=2) == [("a", "10:45", 3, 0)]
    assert shard.told == {"ended": 1, "occurrences_fired": 3}


def test_a_series_of_the_latest_that_found_no_room_stays_as_it_was() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"), one_shot(1, "10:10", "b"))
    before = rows_of(shard.state.entries().filter(pc.is_valid(shard.state.entries()["repeat"])))
    assert shard.batch("10:31", limit=1) == [("b", "10:10", None, None)]
    assert rows_of(shard.state.entries()) == before
    assert shard.batch("10:46", limit=1) == [("a", "10:45", 3, 2)]


def test_a_cut_series_can_be_cancelled_before_the_rest_goes() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all"))
    shard.batch("11:00", limit=1)
    assert shard.batch("11:00", cancel(2)) == []
    assert shard.told == {"occurrences_fired": 1, "cancelled": 1, "applied": 1}


def test_rows_too_late_take_room_of_the_limit() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all", max_lateness_ms=0))
    assert (shard.batch("10:45", limit=2), shard.missed) == ([], [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)])
    assert (shard.batch("10:45", limit=2), shard.missed) == ([("a", "10:45", 3, 0)], [])


def test_the_limit_counts_the_rows_of_what_was_dropped() -> None:
    shard = Shard()
    shard.batch("10:01", *(series(1, "10:01", schedule_id=f"id{n}", on_missed="none") for n in range(5)))
    shard.batch("11:01", limit=2)
    assert len(shard.missed) == 2


def test_a_step_that_may_release_nothing_drops_nothing() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="none"))
    assert shard.batch("11:01", limit=0) == []
    assert (shard.missed, shard.next_due) == ([], "10:15")


@pytest.mark.parametrize("others", [1, 3, 40])
def test_under_a_limit_a_series_has_the_place_of_the_occurrence_for_which_it_waits(others: int) -> None:
    # The series fires its 12:00, and waits for 10:15, before the others.
    shard = Shard()
    shard.batch(
        "10:01",
        series(1, "10:01"),
        *(one_shot(1, f"11:{n:02}", f"id{n:02}") for n in range(others)),
    )
    released = [row for _ in range(others + 1) for row in shard.batch("12:00", limit=1)]
    assert [time for _, time, _, _ in released] == ["12:00", *(f"11:{n:02}" for n in range(others))]


def test_under_a_limit_a_series_is_before_a_large_bucket_too() -> None:
    shard = Shard()
    others = [one_shot(1, "2026-01-07T00:00", f"id{n:04}") for n in range(2_000)]
    shard.batch("10:01", series(1, "10:01"), *others)
    assert [name for name, *_ in shard.batch(at("2026-01-08T00:00"), limit=1)] == ["a"]
    assert [name for name, *_ in shard.batch(at("2026-01-08T00:00"), limit=1)] == ["id0000"]


def test_a_dropped_series_takes_room_of_a_limit_and_the_others_go_next() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="none"), one_shot(1, "11:30", "b"))
    assert (shard.batch("12:10", limit=1), len(shard.missed)) == ([], 1)
    assert shard.batch("12:10", limit=1) == [("b", "11:30", None, None)]


# ---- versions and cancels ------------------------------------------------------------------------


def test_a_newer_version_replaces_a_series_and_the_older_one_is_superseded() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:02", series(2, "10:02", "*/10 * * * *"))
    assert shard.told == {"pending": 1, "superseded": 1}
    assert fired_at(shard, "10:10", "10:15", "10:20") == [("a", "10:10", 1, 0), ("a", "10:20", 2, 0)]


def test_an_older_version_that_comes_late_changes_nothing() -> None:
    shard = Shard()
    shard.batch("10:01", series(2, "10:01"))
    shard.batch("10:02", series(1, "10:00", "*/10 * * * *"))
    assert fired_at(shard, "10:10", "10:15") == [("a", "10:15", 1, 0)]
    assert shard.told == {"pending": 1, "superseded": 1, "occurrences_fired": 1}


def test_a_cancel_ends_a_series() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:15")
    assert shard.batch("10:16", cancel(2)) == []
    assert fired_at(shard, "10:30", "10:45") == []
    assert shard.told == {"occurrences_fired": 1, "cancelled": 1, "applied": 1}
    shard.batch("10:46", series(1, "10:01"))
    assert shard.told == {"occurrences_fired": 1, "cancelled": 1, "applied": 1, "superseded": 1}


def test_a_cancel_in_the_batch_that_would_release_an_occurrence_wins() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    assert shard.batch("10:15", cancel(1)) == []
    assert shard.told == {"cancelled": 1, "applied": 1}


def test_a_cancel_wins_over_all_the_occurrences_of_an_outage() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all"))
    assert (shard.batch("11:15", cancel(2)), shard.missed) == ([], [])
    assert shard.told == {"cancelled": 1, "applied": 1}


def test_a_replacement_in_the_batch_that_would_release_an_occurrence_wins() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01") | {"value": b"old"})
    shard.batch("10:15", series(2, "10:14") | {"value": b"new"})
    assert shard.step is not None
    assert [(row["seq"], row["value"]) for row in rows_of(shard.step.fired)] == [(2, b"new")]


def test_a_cancel_that_comes_before_its_series_waits_for_it() -> None:
    shard = Shard()
    shard.batch("10:00", cancel(2))
    assert shard.batch("10:15", series(1, "10:01")) == []
    assert shard.told == {"cancelled": 1, "applied": 1}


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_series_cancel_and_series_of_one_batch_leave_the_newest(order: tuple[int, ...]) -> None:
    commands = [series(1, "10:01"), cancel(2), series(3, "10:02", "*/10 * * * *")]
    shard = Shard()
    assert shard.batch("10:10", *(commands[n] for n in order)) == [("a", "10:10", 1, 0)]
    assert shard.told == {"pending": 1, "cancelled": 1, "applied": 1, "occurrences_fired": 1}


def test_a_series_replaces_a_one_shot() -> None:
    shard = Shard()
    shard.batch("10:01", one_shot(1, "10:20"))
    shard.batch("10:02", series(2, "10:02"))
    assert fired_at(shard, "10:15", "10:20", "10:30") == [("a", "10:15", 1, 0), ("a", "10:30", 2, 0)]
    assert shard.told == {"pending": 1, "superseded": 1, "occurrences_fired": 2}


@pytest.mark.parametrize("due", ["10:05", "10:20"])
def test_a_series_that_replaces_a_one_shot_begins_after_its_own_event(due: str) -> None:
    shard = Shard()
    shard.batch("10:01", one_shot(1, due))
    shard.batch("10:04", series(2, "10:17"))
    assert shard.next_due == "10:30"


def test_a_one_shot_replaces_a_series() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:16", series(1, "10:01"))
    assert shard.batch("10:16", one_shot(2, "10:20")) == []
    assert fired_at(shard, "10:20", "10:30") == [("a", "10:20", None, None)]
    assert shard.told == {
        "superseded": 1,
        "duplicate": 1,
        "occurrences_fired": 1,
        "fired": 1,
    }


def test_a_one_shot_and_a_series_of_one_id_in_one_batch_leave_the_newer() -> None:
    shard = Shard()
    assert shard.batch("10:15", series(1, "10:01"), one_shot(2, "10:20")) == []
    assert shard.batch("10:20") == [("a", "10:20", None, None)]
    assert shard.told == {"superseded": 1, "fired": 1}


# ---- an edit at the boundary ---------------------------------------------------------------------


@pytest.mark.parametrize("released_before", [True, False])
@pytest.mark.parametrize("off_ms", [-MINUTE_MS, -1, 0, 1, MINUTE_MS])
@pytest.mark.parametrize("spread_ms", [0, 1, 30_000])
@pytest.mark.parametrize("told", [{}, {"on_missed": "all"}, {"on_missed": "none"}])
def test_an_edit_of_an_unchanged_rule_yields_every_occurrence_once(
    released_before: bool, off_ms: int, spread_ms: int, told: dict[str, Any]
) -> None:
    # P is 10:30.
    #   S1@10:01                        S2@P + off
    # ----10:01---10:15--[P + spread]---P + 2 min---10:45---11:00-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", spread_ms=spread_ms, **told))
    fired = shard.batch(at("10:15") + spread_ms)
    if released_before:
        fired += shard.batch(at("10:30") + spread_ms)
    fired += shard.batch("10:32", series(2, at("10:30") + off_ms, spread_ms=spread_ms, **told))
    fired += shard.batch(at("10:45") + spread_ms)
    fired += shard.batch(at("11:00") + spread_ms)
    assert [time for _, time, _, _ in fired] == ["10:15", "10:30", "10:45", "11:00"]
    assert shard.missed == []


@pytest.mark.parametrize("off_ms", [-1, 0, 1])
@pytest.mark.parametrize("step_ms", [-1, 0, 1])
def test_an_edit_read_in_the_millisecond_of_an_occurrence_yields_it_once(off_ms: int, step_ms: int) -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    fired = shard.batch("10:15")
    fired += shard.batch(at("10:30") + step_ms, series(2, at("10:30") + off_ms))
    fired += shard.batch(at("10:30") + 2)
    fired += shard.batch("10:45")
    assert [time for _, time, _, _ in fired] == ["10:15", "10:30", "10:45"]


@pytest.mark.parametrize("off_ms", [-1, 0, 1])
@pytest.mark.parametrize("released_before", [True, False])
def test_an_edit_at_the_first_occurrence_yields_it_once(released_before: bool, off_ms: int) -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    fired = shard.batch("10:15") if released_before else []
    fired += shard.batch("10:16", series(2, at("10:15") + off_ms))
    fired += shard.batch("10:30")
    assert [time for _, time, _, _ in fired] == ["10:15", "10:30"]


@pytest.mark.parametrize("rule", ["every 15 minutes", "*/15 * * * *"])
@pytest.mark.parametrize("released_before", [True, False])
def test_an_edit_with_the_same_beginning_of_its_own_yields_every_occurrence_once(
    released_before: bool, rule: str
) -> None:
    # Its beginning is long ago: what it has had does not come again.
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", rule, begins="10:15"))
    fired = shard.batch("10:15")
    if released_before:
        fired += shard.batch("10:30")
    fired += shard.batch("10:31", series(2, "10:30", rule, begins="10:15"))
    fired += shard.batch("10:45")
    assert [time for _, time, _, _ in fired] == ["10:15", "10:30", "10:45"]


def test_an_edit_with_a_later_beginning_of_its_own_waits_for_it() -> None:
    # The producer has said when the new one begins: the occurrence of the old one before it is not the new one's.
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    assert shard.batch("10:16", series(2, "10:16", begins="11:00")) == []
    assert fired_at(shard, "10:30", "10:45", "11:00") == [("a", "11:00", 1, 0)]


def test_an_edit_read_long_after_its_event_repeats_nothing() -> None:
    #   S1@10:01                        S2@10:16
    # ----10:01---10:15---10:30---10:45---10:46---11:00-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    fired_at(shard, "10:15", "10:30", "10:45")
    assert shard.batch("10:46", series(2, "10:16", on_missed="all")) == []
    assert shard.batch("11:00") == [("a", "11:00", 1, 0)]


@pytest.mark.parametrize(
    ("told", "fired"),
    [
        ({}, [("a", "10:45", 3, 2)]),
        ({"on_missed": "all"}, [("a", "10:15", 1, 0), ("a", "10:30", 2, 0), ("a", "10:45", 3, 0)]),
    ],
)
def test_an_edit_after_an_outage_has_all_that_the_old_one_has_not_released(
    told: dict[str, Any], fired: list[Shown]
) -> None:
    #   S1@10:01     S2@10:40
    # ----10:01--------10:50-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", **told))
    assert shard.batch("10:50", series(2, "10:40", **told)) == fired


def test_an_edit_to_another_rule_has_the_occurrence_at_the_boundary_if_it_has_that_instant() -> None:
    # P is 10:15. Every ten minutes there is 10:20, which is after the event.
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"), series(1, "10:01", schedule_id="b"))
    assert shard.batch(
        "10:16", series(2, "10:15:30", "*/10 * * * *"), series(2, "10:15:30", "*/5 * * * *", "b")
    ) == [("b", "10:15", 1, 0)]
    assert shard.batch("10:20") == [("a", "10:20", 1, 0), ("b", "10:20", 2, 0)]


def test_an_edit_of_a_series_that_was_cut_goes_on_with_the_rest() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", on_missed="all"))
    assert shard.batch("10:50", limit=1) == [("a", "10:15", 1, 0)]
    assert shard.batch("10:50", series(2, "10:50", on_missed="all")) == [
        ("a", "10:30", 1, 0),
        ("a", "10:45", 2, 0),
    ]


def test_an_edit_of_an_edit_yields_every_occurrence_once() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:14", series(2, "10:14"))
    fired = shard.batch("10:16", series(3, "10:15"))
    fired += shard.batch("10:17", series(4, "10:15"))
    fired += shard.batch("10:30")
    assert [time for _, time, _, _ in fired] == ["10:15", "10:30"]


def test_random_edits_of_an_unchanged_rule_lose_nothing_and_repeat_nothing() -> None:
    make, shard, fired = random.Random(7), Shard(), []
    event_ms = now_ms = at("10:01")
    shard.batch(now_ms, series(1, now_ms, on_missed="all"))
    for seq in range(2, 200):
        now_ms += make.choice((0, 1, 1_000, MINUTE_MS, 14 * MINUTE_MS, 15 * MINUTE_MS, 40 * MINUTE_MS))
        if make.random() < 0.6:
            next_ms = shard.state.next_due_ms or 0
            edit_ms = make.choice((now_ms, now_ms - MINUTE_MS, next_ms - 1, next_ms, next_ms + 1))
            event_ms = max(
                event_ms, min(edit_ms, now_ms)
            )  # it is written in order and read after it is written
            fired += shard.batch(now_ms, series(seq, event_ms, on_missed="all"))
        else:
            fired += shard.batch(now_ms)
    quarters = (now_ms - at("10:15")) // (15 * MINUTE_MS) + 1
    assert [time for _, time, _, _ in fired] == [
        told_time(at("10:15") + n * 15 * MINUTE_MS) for n in range(quarters)
    ]


def test_an_edit_read_with_the_series_itself_has_what_the_series_would_have_had() -> None:
    # In one batch as in two: the occurrence between the two events comes once.
    #   S1@10:01 S2@10:16            S1@10:01     S2@10:16
    # --------10:17------->        ----10:17-------10:17-->
    together, apart = Shard(), Shard()
    first, edit = series(1, "10:01"), series(2, "10:16")
    fired = apart.batch("10:02", first) + apart.batch("10:17", edit)
    assert fired == [("a", "10:15", 1, 0)]
    assert together.batch("10:17", first, edit) == fired


def test_a_series_after_a_cancel_in_its_batch_has_nothing_of_the_one_that_was_cancelled() -> None:
    #   S1@10:01    C2 (10:10)  S3@10:20
    # ----10:01-----------------10:21--->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    assert shard.batch("10:21", cancel(2), series(3, "10:20")) == []
    assert shard.next_due == "10:30"


@pytest.mark.parametrize("spread_ms", [0, 5 * MINUTE_MS])
def test_an_edit_between_a_nominal_time_and_its_release_yields_the_occurrence_once(spread_ms: int) -> None:
    #   S1@10:01 (5 min)     S2@10:31 (5 min, or none)
    # ----10:01------10:20-----10:32---10:35---10:50-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", spread_ms=5 * MINUTE_MS))
    fired = shard.batch("10:20")
    fired += shard.batch("10:32", series(2, "10:31", spread_ms=spread_ms))
    fired += fired_at(shard, "10:35", "10:50")
    assert [time for _, time, _, _ in fired] == ["10:15", "10:30", "10:45"]


@pytest.mark.parametrize(
    "read_at",
    [
        "10:59",
        pytest.param(
            "11:01",
        ),
    ],
)
def test_an_edit_that_gives_a_series_its_end_ends_it_whenever_it_is_read(read_at: str) -> None:
    #   S1@10:01                             S2@10:58 (until 11:00)
    # ----10:01---10:15---10:30---10:45---11:00---11:01---11:15-->
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    edit = series(2, "10:58", until="11:00")
    fired = fired_at(shard, "10:15", "10:30", "10:45")
    for time in ("10:59", "11:00", "11:01", "11:15"):
        fired += shard.batch(time, *([edit] if time == read_at else []))
    assert [time for _, time, _, _ in fired] == ["10:15", "10:30", "10:45", "11:00"]


def test_an_old_version_that_comes_again_is_superseded_though_its_end_has_passed() -> None:
    #   S1@10:01 (until 11:00)   S2@10:02           S1 again
    # ----10:01-------------------10:02-----11:15-----11:16-->
    shard = Shard()
    shard.batch("10:01", old := series(1, "10:01", until="11:00"))
    shard.batch("10:02", series(2, "10:02"))
    shard.batch("11:15")
    shard.batch("11:16", old)
    assert shard.refused == []
    assert shard.state.counts["superseded"] == 2


# ---- clocks of a zone ----------------------------------------------------------------------------


def paris(rule: str, event: str, **told: Any) -> Command:
    return series(1, event, rule, time_zone="Europe/Paris", on_missed="all", **told)


@pytest.mark.parametrize(
    ("told", "second"),
    [({}, ["2026-03-29T01:00"]), ({"on_gap": "shift"}, ["2026-03-29T01:00"]), ({"on_gap": "skip"}, [])],
)
def test_a_time_of_day_that_the_clock_skips_is_shifted_or_skipped(
    told: dict[str, str], second: list[str]
) -> None:
    shard = Shard()
    shard.batch(at("2026-03-28T00:00"), paris("30 2 * * *", "2026-03-28T00:00", **told))
    fired = shard.batch(at("2026-03-30T12:00"))
    assert [time for _, time, _, _ in fired] == ["2026-03-28T01:30", *second, "2026-03-30T00:30"]


@pytest.mark.parametrize(
    ("told", "sunday"),
    [
        ({}, ["2026-10-25T00:30"]),
        ({"on_fold": "last"}, ["2026-10-25T01:30"]),
        ({"on_fold": "both"}, ["2026-10-25T00:30", "2026-10-25T01:30"]),
    ],
)
def test_a_time_of_day_that_the_clock_shows_twice_fires_as_the_policy_says(
    told: dict[str, str], sunday: list[str]
) -> None:
    shard = Shard()
    shard.batch(at("2026-10-24T00:00"), paris("30 2 * * *", "2026-10-24T00:00", **told))
    fired = shard.batch(at("2026-10-26T12:00"))
    assert [time for _, time, _, _ in fired] == ["2026-10-24T00:30", *sunday, "2026-10-26T01:30"]


@pytest.mark.parametrize(
    "event", ["2026-10-25T00:29:59", "2026-10-25T00:30", "2026-10-25T01:29", "2026-10-25T01:31"]
)
def test_an_edit_within_a_fold_repeats_nothing(event: str) -> None:
    shard = Shard()
    shard.batch(at("2026-10-25T00:00"), paris("30 2 * * *", "2026-10-25T00:00"))
    fired = shard.batch(at("2026-10-25T00:30"))
    fired += shard.batch(at("2026-10-25T01:32"), paris("30 2 * * *", event) | {"seq": 2})
    fired += shard.batch(at("2026-10-26T12:00"))
    assert [time for _, time, _, _ in fired] == ["2026-10-25T00:30", "2026-10-26T01:30"]


# ---- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (series(1, rule="61 * * * *"), "bad_repeat"),
        (series(1, rule="every day at noon"), "bad_repeat"),
        (series(1, rule=""), "bad_repeat"),
        (series(1, time_zone="Mars/Olympus"), "bad_time_zone"),
        (series(1, "10:00", until="10:14"), "no_occurrence"),
        (series(1, "10:15", until="10:15"), "no_occurrence"),
        (series(1, "10:00", begins="10:16", until="10:29"), "no_occurrence"),
    ],
)
def test_a_series_that_is_none_is_refused_and_the_others_of_its_batch_are_not(
    bad: Command, code: str
) -> None:
    shard = Shard()
    others = [series(1, "10:01", schedule_id="b"), one_shot(1, "10:15", "c"), cancel(1, "d")]
    assert shard.batch("10:15", others[0], bad, *others[1:]) == [
        ("b", "10:15", 1, 0),
        ("c", "10:15", None, None),
    ]
    assert shard.refused == [("a", code)]
    assert shard.told == {"pending": 1, "occurrences_fired": 1, "fired": 1, "waiting": 1}


def test_a_refused_command_is_given_back_whole_with_its_reason() -> None:
    bad = series(4, rule="61 * * * *", spread_ms=3) | {"value": b"v"}
    rows = pa.Table.from_pylist([bad, series(1, schedule_id="b")], schema=COMMAND_SCHEMA)
    begun, refused = begin(rows, ShardState.empty(WHEEL))
    assert begun.schema.equals(COMMAND_SCHEMA)
    assert begun["schedule_id"].to_pylist() == ["b"]
    [row] = rows_of(refused)
    reason = json.loads(row.pop("reject"))
    assert row == bad
    assert reason.keys() == {"error_code", "error_message"}
    assert "61 * * * *" in reason["error_message"]


def test_a_refused_edit_leaves_the_series_as_it_was() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:02", series(2, "10:02", "61 * * * *"))
    assert shard.batch("10:15") == [("a", "10:15", 1, 0)]
    assert shard.told == {"pending": 1, "occurrences_fired": 1}


def test_commands_that_are_no_series_come_back_from_begin_as_they_were() -> None:
    rows = pa.Table.from_pylist([one_shot(1, "10:15"), cancel(2)], schema=COMMAND_SCHEMA)
    begun, refused = begin(rows, ShardState.empty(WHEEL))
    assert begun.equals(rows)
    assert refused is None
    for empty in (COMMAND_SCHEMA.empty_table(), rows.slice(0, 0)):
        assert begin(empty, ShardState.empty(WHEEL))[0].num_rows == 0


def test_begin_works_on_a_table_of_several_pieces() -> None:
    pieces = [
        pa.Table.from_pylist([each], schema=COMMAND_SCHEMA)
        for each in (series(1, "10:01"), one_shot(1, "10:02", "b"), series(1, "10:16", schedule_id="c"))
    ]
    begun, refused = begin(pa.concat_tables(pieces), ShardState.empty(WHEEL))
    due = {row["schedule_id"]: told_time(row["deliver_at_ms"]) for row in rows_of(begun)}
    assert (due, refused) == ({"a": "10:15", "b": "10:02", "c": "10:30"}, None)


# ---- determinism and the state -------------------------------------------------------------------


def test_the_order_of_the_rows_never_shows_even_between_copies_of_one_version() -> None:
    copies = [
        series(1, "10:01"),
        series(1, "10:02"),
        series(1, "10:01", "*/20 * * * *"),
        series(1, "10:01", count=5),
        series(1, "10:01", spread_ms=1),
        series(1, "10:01", begins="10:15"),
    ]
    for some in itertools.combinations(copies, 2):
        results = []
        for order in itertools.permutations(some):
            shard = Shard()
            shard.batch("10:10", *order)
            results.append(
                (rows_of(shard.state.entries()), shard.batch("12:00"), shard.told, shard.state.to_row(1))
            )
        assert all(result == results[0] for result in results)


def test_the_step_does_not_touch_the_state_it_was_given() -> None:
    shard = Shard()
    shard.batch(
        "10:01", series(1, "10:01", on_missed="all"), series(1, "10:01", schedule_id="b", on_missed="none")
    )
    before = shard.state.to_row(1)
    policies = Policies(repeat=Series(1_000))
    once, again = (
        advance(shard.state, None, at("11:20"), memory_ms=None, policies=policies) for _ in range(2)
    )
    assert shard.state.to_row(1) == before
    assert once.fired.equals(again.fired)
    assert once.missed.equals(again.missed)
    assert once.state.to_row(1) == again.state.to_row(1)


def test_a_state_with_series_comes_back_from_its_bytes_as_it_was() -> None:
    shard = Shard()
    shard.batch(
        "10:01",
        series(1, "10:01", spread_ms=9, count=9, max_lateness_ms=HOUR_MS),
        series(1, "10:01", "every 15 minutes", "b", on_missed="all"),
        one_shot(1, "10:20", "c"),
    )
    shard.batch("11:00", limit=2)
    told, data = shard.told, shard.state.to_row(1)
    shard.restart()
    assert (shard.told, shard.state.to_row(1)) == (told, data)
    assert shard.batch("11:16") == [
        ("c", "10:20", None, None),
        ("b", "10:31", 2, 0),
        ("b", "10:46", 3, 0),
        ("b", "11:01", 4, 0),
        ("a", "11:15", 5, 1),
        ("b", "11:16", 5, 0),
    ]


# ---- acts ----------------------------------------------------------------------------------------


def act(
    shard: Shard, due: str | int | None, occurrence: int | None, amend: int = 1, now: str = "10:05"
) -> list[Shown]:
    """A step that reads the row of an act on the series `a`; a row without a due time skips."""
    row = {"schedule_id": "a", "seq": 1, "amend": amend, "destination": "out", "op": SCHEDULE}
    row |= {"deliver_at_ms": at(due) if isinstance(due, str) else due, "occurrence": occurrence}
    rows, late = as_commands(shard.state, pa.Table.from_pylist([row], schema=ACT_SCHEMA))
    begun, _ = begin(rows, shard.state, at(now), None)
    shard.step = advance(
        shard.state, begun, at(now), memory_ms=None, policies=Policies(repeat=Series(WHEEL.tick_ms))
    )
    shard.state, shard.missed = shard.step.state.counting(superseded=late), shown(shard.step.missed)
    shard.schedules += 1
    return shown(shard.step.fired)


def test_a_skipped_occurrence_is_left_out_and_counts_as_one_of_the_series() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", count=3))
    assert act(shard, None, occurrence=0) == []
    assert shard.next_due == "10:30"
    assert shard.batch("10:30") + shard.batch("10:45") == [("a", "10:30", 2, 0), ("a", "10:45", 3, 0)]
    assert shard.state.pending == 0


def test_a_series_whose_last_occurrence_is_skipped_has_ended() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", until="10:20"))
    assert act(shard, None, occurrence=0) == []
    assert (shard.state.pending, shard.state.counts["ended"]) == (0, 1)


def test_a_moved_occurrence_comes_when_it_was_moved_to_and_the_next_one_at_its_nominal_time() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    assert act(shard, "10:05", occurrence=0) == [("a", "10:15", 1, 0)]
    assert shard.next_due == "10:30"


def test_an_act_on_an_occurrence_that_was_released_meanwhile_comes_too_late() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", "*/2 * * * *"))
    shard.batch("10:02")
    assert act(shard, "12:00", occurrence=0) == [("a", "10:04", 2, 0)]
    assert shard.next_due == "10:06"
    assert shard.state.counts["superseded"] == 1


def paused(**told: Any) -> Shard:
    """A series of 10:15, 10:30 and so on, paused at 10:20."""
    shard = Shard()
    shard.batch("10:01", series(1, "10:01", **told))
    assert shard.batch("10:15") == [("a", "10:15", 1, 0)]
    assert act(shard, PAUSED_MS, None, now="10:20") == []
    return shard


def test_a_paused_series_waits_and_nothing_is_due() -> None:
    shard = paused()
    assert (shard.next_due, shard.state.pending) == (None, 1)
    shard.batch("10:21", one_shot(1, "12:00", "b"))
    assert shard.next_due == "12:00"
    assert shard.batch("2026-01-09T10:00") == [("b", "12:00", None, None)]
    shard.restart()
    assert (shard.next_due, shard.state.pending) == (None, 1)


@pytest.mark.parametrize(
    ("on_missed", "fires", "missed"),
    [
        ("latest", [("a", "11:00", 4, 2)], []),
        ("all", [("a", "10:30", 2, 0), ("a", "10:45", 3, 0), ("a", "11:00", 4, 0)], []),
        ("none", [], [("a", "11:00", 4, 2)]),
    ],
)
def test_the_occurrences_of_a_pause_are_missed_ones_when_it_ends(
    on_missed: str, fires: list[Shown], missed: list[Shown]
) -> None:
    shard = paused(on_missed=on_missed)
    assert act(shard, "10:30", 1, amend=2, now="11:07") == fires
    assert (shard.missed, shard.next_due) == (missed, "11:15")


def test_a_series_that_is_resumed_before_its_next_occurrence_has_missed_none() -> None:
    shard = paused()
    assert act(shard, "10:30", 1, amend=2, now="10:25") == []
    assert shard.batch("10:30") == [("a", "10:30", 2, 0)]


@pytest.mark.parametrize(("on_missed", "fires"), [("latest", [("a", "10:45", 3, 1)]), ("none", [])], ids=str)
def test_a_series_whose_until_passes_while_it_is_paused_ends_when_it_is_resumed(
    on_missed: str, fires: list[Shown]
) -> None:
    shard = paused(until="10:50", on_missed=on_missed)
    shard.batch("10:55")
    assert shard.state.pending == 1
    assert act(shard, "10:30", 1, amend=2, now="11:07") == fires
    assert (shard.state.pending, shard.state.counts["ended"]) == (0, 1)


def test_a_pause_holds_whichever_occurrence_the_series_waits_for_by_then() -> None:
    shard = Shard()
    shard.batch("10:01", series(1, "10:01"))
    shard.batch("10:15")
    assert act(shard, PAUSED_MS, None, now="10:30") == []
    assert act(shard, "10:30", 1, amend=2, now="10:31") == [("a", "10:30", 2, 0)]


def test_a_new_version_of_a_paused_series_is_not_paused_and_has_what_the_pause_held_back() -> None:
    shard = paused()
    assert shard.batch("10:50", series(2, "10:50")) == [("a", "10:45", 2, 1)]
    assert shard.next_due == "11:00"
    assert act(shard, "10:30", 1, amend=2, now="10:51") == [], "the act on the old version is late"


def test_a_cancel_ends_a_paused_series() -> None:
    shard = paused()
    shard.batch("10:50", cancel(1))
    assert shard.told == {"cancelled": 1, "applied": 1, "superseded": 1, "occurrences_fired": 1}
