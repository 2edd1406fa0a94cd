"""The ledger checker on literal series: a right run passes, each corrupted one is found out, acts are undecided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wheel_udf.testing.ledger import Finding, Report, Rules, check

Row = dict[str, Any]

FROM_10_TO_11 = Rules(until_ms=1_100, memory_ms=100, fires_within_ms=50)
"""The clock goes from 1,000 to 1,100 ms; a series of every 10 ms has its first occurrence at 1,010."""


def series(schedule_id: str = "a", seq: int = 1, made_ms: int = 1_000, **others: Any) -> Row:
    """A series that was read when it was made."""
    row = {
        "schedule_id": schedule_id,
        "seq": seq,
        "repeat": "every 10 ms",
        "destination": "out",
        "value": b"v",
    }
    return row | {"event_time_ms": made_ms, "read_from_ms": made_ms, "read_by_ms": made_ms} | others


def cancel(schedule_id: str, seq: int, read_ms: int) -> Row:
    row = {"schedule_id": schedule_id, "seq": seq, "op": "CANCEL", "event_time_ms": read_ms}
    return row | {"read_from_ms": read_ms, "read_by_ms": read_ms}


def out(
    due_ms: int,
    number: int | None,
    before: int | None = 0,
    schedule_id: str = "a",
    seq: int = 1,
    **others: Any,
) -> Row:
    """A fired row of an occurrence, released when it was due."""
    at_ms = others.pop("at_ms", due_ms)
    row = {"schedule_id": schedule_id, "seq": seq, "deliver_at_ms": due_ms, "fired_at_ms": at_ms}
    row |= {"destination": "out", "value": b"v", "lateness_ms": at_ms - due_ms, "occurrence": number}
    return row | {"missed_before": before, "fire_id": f"{schedule_id}/{seq}/{due_ms}"} | others


def dropped(due_ms: int, at_ms: int, over: int, schedule_id: str = "a") -> Row:
    """A row of the rejects that stands for occurrences."""
    row = {"schedule_id": schedule_id, "seq": 1, "error_code": "missed", "deliver_at_ms": due_ms}
    text = f"occurrences that were over: {over}; rule: on_missed, and max_lateness"
    return row | {"rejected_at_ms": at_ms, "error_message": text, "destination": "out", "value": b"v"}


class World:
    """Four right series, from 1,000 to 1,100: a test corrupts one thing.

    =====  ===========================================================================================
    every  every 10 ms: 1,010 to 1,030; down until 1,075: 1,070 stands for 4; 1,080 to 1,100
    three  three times: 1,010, 1,020, 1,030
    all    on_missed all: down until 1,045, then 1,010 and 1,020 (most_missed is 2), and one row for two; 1,050 and on
    until  cancelled at 1,035: 1,010 to 1,030
    =====  ===========================================================================================
    """

    def __init__(self) -> None:
        self.commands = [
            series("every"), series("three", count=3), series("all", on_missed="all"),
            series("until", until_ms=1_200), cancel("until", 2, 1_035),
        ]  # fmt: skip
        numbers = enumerate(range(1_010, 1_110, 10), start=1)
        of_every = [
            out(due, number, schedule_id="every") for number, due in numbers if not 1_030 < due < 1_080
        ]
        of_every.append(out(1_070, 7, 3, "every", at_ms=1_075))
        some = [(1_010, 1), (1_020, 2), (1_030, 3)]
        self.fired = [
            *of_every,
            *(out(due, number, schedule_id="three") for due, number in some),
            *(out(due, number, schedule_id="all", at_ms=1_045) for due, number in some[:2]),
            *(out(1_000 + 10 * number, number, schedule_id="all") for number in range(5, 11)),
            *(out(due, number, schedule_id="until") for due, number in some),
        ]
        self.rejects = [dropped(1_040, 1_045, 2, "all")]
        self.pending: list[Row] | None = [
            {"schedule_id": name, "seq": 1, "deliver_at_ms": 1_110} for name in ("every", "all")
        ]
        self.account = {"pending": 2, "ended": 1, "cancelled": 1, "applied": 1}
        self.account |= {"occurrences_fired": 7 + 3 + 8 + 3, "occurrences_missed": 3 + 2}

    def check(self, rules: Rules = FROM_10_TO_11) -> Report:
        return check(
            self.commands, self.fired, self.rejects, rules=rules, pending=self.pending, account=self.account
        )

    def row(self, schedule_id: str, due_ms: int) -> Row:
        return next(
            row for row in self.fired if (row["schedule_id"], row["deliver_at_ms"]) == (schedule_id, due_ms)
        )


def test_right_series_pass_and_all_is_decided() -> None:
    report = World().check()
    report.require()
    assert (report.ok, report.undecided, report.schedules, report.released) == (True, 0, 4, 21)


def lose_one(world: World) -> None:
    world.fired.remove(world.row("every", 1_020))


def lose_the_first(world: World) -> None:
    world.fired.remove(world.row("every", 1_010))


def lose_the_last(world: World) -> None:
    world.fired.remove(world.row("every", 1_100))
    world.pending = [{"schedule_id": name, "seq": 1, "deliver_at_ms": 1_110} for name in ("all",)]


def leave_over(world: World) -> None:
    world.fired.remove(world.row("every", 1_100))


def lose_what_was_dropped(world: World) -> None:
    del world.rejects[0]


def lose_from_pending(world: World) -> None:
    world.pending = [{"schedule_id": "all", "seq": 1, "deliver_at_ms": 1_110}]


def lose_before_the_cancel(world: World) -> None:
    # fires_within_ms says that 1,010 was out when the CANCEL was read at 1,065.
    world.commands[-1] |= {"read_from_ms": 1_065, "read_by_ms": 1_065}
    world.fired = [row for row in world.fired if row["schedule_id"] != "until"]


def fire_twice(world: World) -> None:
    world.fired.append(world.row("three", 1_020) | {"fired_at_ms": 1_025, "lateness_ms": 5})


def fire_beside_the_rule(world: World) -> None:
    world.row("three", 1_020).update(deliver_at_ms=1_021, fired_at_ms=1_021)


def fire_before_the_beginning(world: World) -> None:
    world.fired.append(out(1_000, None, None, "every"))


def fire_after_the_count(world: World) -> None:
    world.fired.append(out(1_040, 4, schedule_id="three"))


def fire_after_until(world: World) -> None:
    world.commands[-2] |= {"until_ms": 1_025}


def number_wrongly(world: World) -> None:
    world.row("three", 1_020).update(occurrence=3)


def count_too_many_as_missed(world: World) -> None:
    world.row("every", 1_070).update(missed_before=4)


def count_too_few_as_missed(world: World) -> None:
    world.row("every", 1_070).update(missed_before=2)


def fire_an_older_one(world: World) -> None:
    row = world.row("every", 1_070)
    row.update(fired_at_ms=1_080, lateness_ms=10)  # when 1,080 was due, and on_missed is latest


def fire_early(world: World) -> None:
    world.row("three", 1_020).update(fired_at_ms=1_019, lateness_ms=-1)


def fire_cancelled(world: World) -> None:
    world.fired.append(out(1_040, 4, schedule_id="until"))


def change_value(world: World) -> None:
    world.row("three", 1_020).update(value=b"w")


def change_lateness(world: World) -> None:
    world.row("three", 1_020).update(lateness_ms=-2)


def fire_late(world: World) -> None:
    world.commands[2] |= {"max_lateness": "20 ms"}  # 1,010 and 1,020 were 35 and 25 ms late


def miss_in_time(world: World) -> None:
    world.fired.remove(world.row("three", 1_030))
    world.rejects.append(dropped(1_030, 1_030, 1, "three"))


def keep_cancelled_pending(world: World) -> None:
    assert world.pending is not None
    world.pending.append({"schedule_id": "until", "seq": 1, "deliver_at_ms": 1_040})


@pytest.mark.parametrize(
    ("corrupt", "kind", "schedule_id"),
    [
        (lose_one, "lost", "every"),
        (lose_the_first, "lost", "every"),
        (lose_the_last, "lost", "every"),
        (leave_over, "overdue", "every"),
        (lose_what_was_dropped, "lost", "all"),
        (lose_from_pending, "lost", "every"),
        (lose_before_the_cancel, "lost", "until"),
        (fire_twice, "twice", "three"),
        (fire_beside_the_rule, "wrong_occurrence", "three"),
        (fire_before_the_beginning, "wrong_occurrence", "every"),
        (fire_after_the_count, "wrong_occurrence", "three"),
        (fire_after_until, "wrong_occurrence", "until"),
        (number_wrongly, "wrong_occurrence", "three"),
        (count_too_many_as_missed, "wrong_occurrence", "every"),
        (count_too_few_as_missed, "lost", "every"),
        (fire_an_older_one, "wrong_occurrence", "every"),
        (fire_early, "early", "three"),
        (fire_cancelled, "after_cancel", "until"),
        (change_value, "altered", "three"),
        (change_lateness, "bad_figures", "three"),
        (miss_in_time, "missed_wrongly", "three"),
        (keep_cancelled_pending, "not_pending", "until"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_corrupted_series_is_found_out_by_name_and_id(
    corrupt: Callable[[World], None], kind: str, schedule_id: str
) -> None:
    world = World()
    corrupt(world)
    report = world.check()
    assert [each.schedule_id for each in report.of(kind)] == [schedule_id]
    # What is beside the rule leaves a hole, and the counts follow from the rows.
    assert set(report.counts) - {kind} <= {"account", "lost"}


def test_an_occurrence_later_than_its_max_lateness_must_be_missed() -> None:
    world = World()
    fire_late(world)
    assert [each.schedule_id for each in world.check().of("not_missed")] == ["all", "all"]


def test_a_finding_names_the_occurrence() -> None:
    world = World()
    lose_one(world)
    at = "1970-01-01T00:00:01.0"
    text = f"{at}20Z in no sink, before {at}30Z"
    assert world.check().of("lost") == [Finding("lost", "every", 1, text)]


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"occurrences_fired": 22}, "occurrences_fired: the account has 22, input and sinks have 21"),
        ({"occurrences_missed": 4}, "occurrences_missed: the account has 4, input and sinks have 5"),
        ({"ended": 2}, "schedules: the account has 5, input and sinks have 4"),
    ],
)
def test_an_account_that_does_not_agree_with_the_occurrences_is_found_out(
    change: dict[str, int], detail: str
) -> None:
    world = World()
    world.account.update(change)
    report = world.check()
    assert [each.detail for each in report.findings] == [detail]


def found(
    commands: list[Row], fired: list[Row], rejects: list[Row] | None = None, **rules: Any
) -> tuple[Row, int]:
    """Counts of findings, and how much is undecided."""
    rules = {"until_ms": 1_030, "memory_ms": 100, "fires_within_ms": 50} | rules
    report = check(commands, fired, rejects or [], rules=Rules(**rules))
    return dict(report.counts), report.undecided


THREE = [out(1_010, 1), out(1_020, 2), out(1_030, 3)]


@pytest.mark.parametrize(
    ("read", "when_three", "when_two"),
    [
        # The occurrences are at 1,010, 1,020, 1,030; a higher version, a CANCEL, was read then.
        ({"read_from_ms": 1_025, "read_by_ms": 1_029}, ({"after_cancel": 1}, 0), ({}, 0)),
        ({"read_from_ms": 1_025, "read_by_ms": 1_040}, ({}, 1), ({}, 1)),
        ({"read_from_ms": 1_081, "read_by_ms": 1_090}, ({}, 0), ({"lost": 1}, 0)),
        ({"read_from_ms": None, "read_by_ms": None}, ({}, 3), ({}, 3)),
    ],
)
def test_a_cancel_ends_a_series_from_when_it_was_read_and_until_then_it_is_undecided(
    read: Row, when_three: tuple[Row, int], when_two: tuple[Row, int]
) -> None:
    commands = [series(), cancel("a", 2, 1_025) | read]
    assert found(commands, THREE)[0] == when_three[0]
    assert found(commands, THREE[:2])[0] == when_two[0]
    assert found(commands, THREE)[1] >= when_three[1]
    assert (found(commands, THREE[:2])[1] > 0) == (when_two[1] > 0)


def test_an_act_on_a_series_leaves_open_what_is_left_out() -> None:
    skip = series(made_ms=1_015, amend=1)
    rows = [THREE[0], THREE[2]]
    assert found([series()], rows)[0] == {"lost": 1}
    assert found([series(), skip], rows)[0] == {}
    assert found([series(), skip], [*rows, out(1_025, 9)])[0] == {"wrong_occurrence": 1}


def test_occurrences_that_a_backfill_delivers_belong_to_the_series_and_are_undecided() -> None:
    again = out(1_010, None, None, "a@1970-01-01T00:00:01.010Z", at_ms=1_025)
    assert found([series()], [*THREE, again]) == ({}, 1)
    assert found([series()], [*THREE, again | {"deliver_at_ms": 1_020}])[0] == {"wrong_occurrence": 1}
    beside = out(1_011, None, None, "a@1970-01-01T00:00:01.011Z", at_ms=1_025)
    assert found([series()], [*THREE, beside])[0] == {"wrong_occurrence": 1}
    assert found([series("b")], [again])[0] == {"no_command": 1, "lost": 1}


def test_a_new_version_goes_on_where_the_old_one_stands_and_repeats_nothing() -> None:
    # The same rule keeps its phase: 1,030 comes of version 2, which was made at 1,024.
    commands = [series(), series(seq=2, made_ms=1_024)]
    rows = [*THREE[:2], out(1_030, 1, seq=2)]
    assert found(commands, rows) == ({}, 0)
    assert found(commands, [*rows[:2], out(1_034, 1, seq=2)], until_ms=1_035) == ({}, 0)
    assert found(commands, [*rows[:2], out(1_031, 1, seq=2)])[0] == {"wrong_occurrence": 1}
    assert found(commands, [*rows, out(1_030, 3)])[0].get("superseded") == 1
    again = [out(1_020, 1, seq=2, at_ms=1_024), out(1_030, 2, seq=2)]
    assert found(commands, [*THREE[:2], *again])[0] == {"twice": 1}
    assert found(commands, [*rows[:2], out(1_040, 2, seq=2)], until_ms=1_040)[0] == {"lost": 1}


def test_a_series_after_the_end_of_another_one_may_have_the_same_occurrences() -> None:
    commands = [series(), cancel("a", 2, 1_025), series(seq=3, made_ms=1_028, starts_at_ms=1_010)]
    rows = [*THREE[:2], out(1_020, 2, 1, seq=3, at_ms=1_028), out(1_030, 3, seq=3)]
    assert found(commands, rows) == ({}, 1)


def test_a_spread_moves_all_occurrences_by_less_than_it() -> None:
    commands = [series(spread="5 ms")]
    rows = [
        out(due, number, at_ms=due + 3, lateness_ms=0) for number, due in enumerate((1_010, 1_020, 1_030), 1)
    ]
    assert found(commands, rows, until_ms=1_035) == ({}, 0)
    assert found(commands, rows[:2], until_ms=1_034)[0] == {"lost": 1}
    assert found(commands, rows[:2], until_ms=1_033)[0] == {}
    rows[1]["fired_at_ms"] += 2
    assert found(commands, rows, until_ms=1_035)[0] == {"bad_figures": 1}


def test_a_table_without_the_columns_of_series_leaves_holes_open() -> None:
    bare = [
        {name: each[name] for name in ("schedule_id", "seq", "deliver_at_ms", "fired_at_ms")}
        for each in THREE
    ]
    assert found([series()], bare) == ({}, 0)
    assert found([series()], [bare[0], bare[2]]) == ({}, 1)
    assert found([series()], bare[:2])[0] == {"lost": 1}


@pytest.mark.parametrize(
    "others",
    [
        {"repeat": "every fortnight"}, {"time_zone": "Europe/Atlantis"}, {"event_time_ms": None}, {"on_missed": "some"},
        {"repeat": "every 1 ms", "event_time_ms": -1_000_000},
    ],
)  # fmt: skip
def test_a_series_that_cannot_be_read_is_undecided(others: Row) -> None:
    assert found([series() | others], THREE) == ({}, 1)
    assert found([series() | others], []) == ({}, 1)


@pytest.mark.parametrize("others", [{"starts_at_ms": 1_010, "delay": "1 s"}, {"repeat": None, "count": 3}])
def test_terms_that_break_the_contract_must_be_in_the_rejects(others: Row) -> None:
    assert found([series() | others], [])[0] == {"reject_missing": 1}


def test_what_on_missed_none_drops_is_in_the_rejects() -> None:
    commands = [series(on_missed="none")]
    rows = [THREE[0], out(1_050, 5, at_ms=1_050)]
    assert found(commands, rows, [dropped(1_040, 1_045, 3)], until_ms=1_050) == ({}, 0)
    assert found(commands, rows, [dropped(1_040, 1_045, 2)], until_ms=1_050)[0] == {"lost": 1}
    assert found(commands, rows, until_ms=1_050)[0] == {"lost": 1}


def test_a_rule_with_a_start_and_a_number_counts_from_its_start() -> None:
    rule = {"repeat": "R3/1970-01-01T00:00:01Z/PT0.01S", "event_time_ms": 1_005}
    assert found([series() | rule], [out(1_010, 2), out(1_020, 3)]) == ({}, 0)
    assert found([series() | rule], [out(1_010, 1), out(1_020, 2)])[0] == {"wrong_occurrence": 2}
    assert found([series() | rule], [out(1_010, 2), out(1_020, 3), out(1_030, 4)])[0] == {
        "wrong_occurrence": 1
    }
