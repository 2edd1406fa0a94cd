"""The ledger checker on small literal ledgers: a right one passes, each corrupted one is found out by name and id."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.testing import ledger
from wheel_udf.testing.ledger import Finding, LedgerError, Report, Rules, check

Row = dict[str, Any]

UNTIL = Rules(until_ms=1_000, memory_ms=100)


def asked(schedule_id: str | None, due_ms: int | None, seq: int = 1, read_ms: int = 10, **others: Any) -> Row:
    """A SCHEDULE that was read at an instant."""
    row = {
        "schedule_id": schedule_id,
        "seq": seq,
        "deliver_at_ms": due_ms,
        "destination": "out",
        "value": b"v",
    }
    return row | {"event_time_ms": read_ms, "read_from_ms": read_ms, "read_by_ms": read_ms} | others


def cancel(schedule_id: str, seq: int, read_ms: int, **others: Any) -> Row:
    return asked(schedule_id, None, seq, read_ms, op="CANCEL", destination=None, value=None) | others


def out(schedule_id: str, due_ms: int, seq: int = 1, at_ms: int | None = None, **others: Any) -> Row:
    """A fired row; by default released when it was due."""
    at_ms = due_ms if at_ms is None else at_ms
    row = {
        "schedule_id": schedule_id,
        "seq": seq,
        "deliver_at_ms": due_ms,
        "fired_at_ms": at_ms,
        "destination": "out",
    }
    figures = {"lateness_ms": at_ms - due_ms, "fire_id": f"{schedule_id}/{seq}/{due_ms}"}
    return row | {"value": b"v", "table": "out"} | figures | others


def refused(schedule_id: str | None, code: str, seq: int = 1, message: str = "why", **others: Any) -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "error_code": code, "error_message": message} | others


class World:
    """A right run, one of each kind; a test corrupts one thing."""

    def __init__(self) -> None:
        self.commands = [
            asked("tea", 100),
            asked("cake", 200), cancel("cake", 2, 150),
            asked("milk", 200), asked("milk", 300, 2, 150, op="replace"),
            asked("jam", 200, max_lateness="10 ms"),
            asked("rye", 400, destination=None),
            asked("far", 9_000),
        ]  # fmt: skip
        self.fired = [out("tea", 100, at_ms=105), out("milk", 300, 2)]
        self.rejects = [
            refused("rye", "no_destination"),
            refused("jam", "missed", deliver_at_ms=200, rejected_at_ms=260, destination="out", value=b"v"),
        ]
        self.pending: list[Row] | None = [{"schedule_id": "far", "seq": 1, "deliver_at_ms": 9_000}]
        self.account = {
            "pending": 1,
            "fired": 2,
            "missed": 1,
            "cancelled": 1,
            "superseded": 1,
            "rejected": 1,
            "applied": 1,
        }

    def check(self, rules: Rules = UNTIL) -> Report:
        return check(
            self.commands, self.fired, self.rejects, rules=rules, pending=self.pending, account=self.account
        )

    def row(self, schedule_id: str) -> Row:
        return next(row for row in self.fired if row["schedule_id"] == schedule_id)


def test_a_right_run_passes() -> None:
    report = World().check()
    report.require()
    assert (report.ok, report.undecided, report.findings) == (True, 0, [])
    assert (report.commands, report.schedules, report.released) == (8, 7, 2)
    assert str(report) == (
        "the ledger closes\n"
        "  commands   8: 7 schedules, 1 cancels\n"
        "  released   2, repetitions 0; rejects: missed 1, no_destination 1"
    )


def lose(world: World) -> None:
    world.fired.remove(world.row("tea"))


def leave_over(world: World) -> None:
    lose(world)
    world.pending = [{"schedule_id": "tea", "seq": 1, "deliver_at_ms": 100}]


def lose_from_pending(world: World) -> None:
    world.pending = []


def fire_early(world: World) -> None:
    world.row("tea").update(fired_at_ms=99, lateness_ms=-1)


def receive_early(world: World) -> None:
    world.row("tea").update(delivered_at_ms=99)


def fire_twice(world: World) -> None:
    world.fired.append(out("tea", 100, at_ms=105))


def fire_again(world: World) -> None:
    world.fired.append(out("tea", 100, at_ms=150))


def fire_cancelled(world: World) -> None:
    world.fired.append(out("cake", 200))


def fire_replaced(world: World) -> None:
    world.fired.append(out("milk", 200))


def fire_replaced_last(world: World) -> None:
    world.fired.append(out("milk", 200, at_ms=310))


def fire_for_nobody(world: World) -> None:
    world.fired.append(out("nobody", 100))


def fire_a_version_that_is_not(world: World) -> None:
    world.row("tea").update(seq=7)


def change_value(world: World) -> None:
    world.row("tea").update(value=b"w")


def change_due(world: World) -> None:
    world.row("tea").update(deliver_at_ms=101, lateness_ms=4)


def change_destination(world: World) -> None:
    world.row("tea").update(destination="in", table="in")


def change_table(world: World) -> None:
    world.row("tea").update(table="in")


def change_lateness(world: World) -> None:
    world.row("tea").update(lateness_ms=6)


def share_fire_id(world: World) -> None:
    world.row("milk").update(fire_id="tea/1/100")


def drop_fire_id(world: World) -> None:
    world.row("tea").update(fire_id=None)


def deliver_missed(world: World) -> None:
    del world.rejects[1]
    world.fired.append(out("jam", 200, at_ms=260))


def miss_in_time(world: World) -> None:
    world.rejects[1].update(rejected_at_ms=210)


def fire_rejected(world: World) -> None:
    world.fired.append(out("rye", 400))


def forget_reject(world: World) -> None:
    del world.rejects[0]


def forget_reason(world: World) -> None:
    world.rejects[0].update(error_message=None)


def reject_for_nobody(world: World) -> None:
    world.rejects.append(refused("nobody", "oversize"))


def reject_twice(world: World) -> None:
    world.rejects.append(refused("rye", "no_destination"))


def keep_fired_pending(world: World) -> None:
    world.pending = [{"schedule_id": "far", "seq": 1}, {"schedule_id": "tea", "seq": 1}]


def keep_cancelled_pending(world: World) -> None:
    world.pending = [{"schedule_id": "far", "seq": 1}, {"schedule_id": "cake", "seq": 1}]


def keep_nobody_pending(world: World) -> None:
    world.pending = [{"schedule_id": "far", "seq": 1}, {"schedule_id": "nobody", "seq": 1}]


@pytest.mark.parametrize(
    ("corrupt", "kind", "schedule_id"),
    [
        (lose, "lost", "tea"),
        (leave_over, "overdue", "tea"),
        (lose_from_pending, "lost", "far"),
        (fire_early, "early", "tea"),
        (receive_early, "early", "tea"),
        (fire_twice, "twice", "tea"),
        (fire_again, "twice", "tea"),
        (fire_cancelled, "after_cancel", "cake"),
        (fire_replaced, "superseded", "milk"),
        (fire_replaced_last, "superseded", "milk"),
        (fire_for_nobody, "no_command", "nobody"),
        (fire_a_version_that_is_not, "wrong_version", "tea"),
        (change_value, "altered", "tea"),
        (change_due, "altered", "tea"),
        (change_destination, "wrong_destination", "tea"),
        (change_table, "wrong_destination", "tea"),
        (change_lateness, "bad_figures", "tea"),
        (share_fire_id, "fire_id", "milk"),
        (drop_fire_id, "fire_id", "tea"),
        (deliver_missed, "not_missed", "jam"),
        (miss_in_time, "missed_wrongly", "jam"),
        (fire_rejected, "fired_and_rejected", "rye"),
        (forget_reject, "reject_missing", "rye"),
        (forget_reason, "reject_unexplained", "rye"),
        (reject_for_nobody, "reject_no_command", "nobody"),
        (reject_twice, "reject_no_command", "rye"),
        (keep_fired_pending, "not_pending", "tea"),
        (keep_cancelled_pending, "not_pending", "cake"),
        (keep_nobody_pending, "not_pending", "nobody"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_corrupted_run_is_found_out_by_name_and_id(
    corrupt: Callable[[World], None], kind: str, schedule_id: str
) -> None:
    world = World()
    corrupt(world)
    report = world.check()
    assert [each.schedule_id for each in report.of(kind)] == [schedule_id]
    # One fault is not reported under several names; counts follow from rows, and a lost version is not the one in its
    # place.
    assert set(report.counts) - {kind} <= {"account", "lost"}


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"fired": 3}, "fired: the account has 3, input and sinks have 2"),
        ({"missed": 0}, "missed: the account has 0, input and sinks have 1"),
        ({"rejected": 2}, "rejected: the account has 2, input and sinks have 1"),
        ({"pending": 2}, "pending: the account has 2, input and sinks have 1"),
        ({"superseded": 2}, "schedules: the account has 8, input and sinks have 7"),
        ({"late": 1}, "cancels: the account has 2, input and sinks have 1"),
        ({"cancelled": 0, "superseded": 2}, "applied: the account has 1, input and sinks have 0"),
        ({"duplicate": -1, "superseded": 2}, "duplicate: -1"),
    ],
)
def test_an_account_that_does_not_close_is_found_out(change: dict[str, int], detail: str) -> None:
    world = World()
    world.account.update(change)
    report = world.check()
    assert set(report.counts) == {"account"}
    assert detail in [each.detail for each in report.findings]


# --- when a command was read ----------------------------------------------------------------------


def found(commands: list[Row], fired: list[Row], **rules: Any) -> tuple[dict[str, int], int]:
    """Counts of findings, and how much is undecided."""
    report = check(commands, fired, rules=Rules(**{"until_ms": 1_000, "memory_ms": 100} | rules))
    return dict(report.counts), report.undecided


@pytest.mark.parametrize(
    ("read", "rules", "when_fired", "when_not"),
    [
        # The SCHEDULE is due at 200; the CANCEL was read then.
        ({"read_from_ms": 150, "read_by_ms": 199}, {}, ({"after_cancel": 1}, 0), ({}, 0)),
        ({"read_from_ms": 150, "read_by_ms": 200}, {}, ({}, 1), ({}, 1)),
        ({"read_from_ms": 200, "read_by_ms": 200}, {}, ({}, 1), ({}, 1)),
        ({"read_from_ms": 200, "read_by_ms": 200}, {"clock_rises": True}, ({"after_cancel": 1}, 0), ({}, 0)),
        ({"read_from_ms": 250, "read_by_ms": 260}, {"fires_within_ms": 49}, ({}, 0), ({"lost": 1}, 0)),
        ({"read_from_ms": 250, "read_by_ms": 260}, {"fires_within_ms": 50}, ({}, 0), ({}, 1)),
        ({"read_from_ms": 250, "read_by_ms": 260}, {}, ({}, 0), ({}, 1)),
        ({"read_from_ms": None, "read_by_ms": None}, {}, ({}, 1), ({}, 1)),
        (
            {"read_by_ms": None, "event_time_ms": 190},
            {"read_within_ms": 9},
            ({"after_cancel": 1}, 0),
            ({}, 0),
        ),
        ({"read_by_ms": None, "event_time_ms": 190}, {"read_within_ms": 10}, ({}, 1), ({}, 1)),
    ],
)
def test_a_cancel_is_held_against_a_firing_only_if_it_was_read_before_for_certain(
    read: Row, rules: Row, when_fired: tuple[Row, int], when_not: tuple[Row, int]
) -> None:
    commands = [asked("a", 200), cancel("a", 2, 150, **read)]
    assert found(commands, [out("a", 200)], **rules) == when_fired
    assert found(commands, [], **rules) == when_not


def test_a_cancel_of_the_same_seq_is_above_its_schedule_and_a_lower_one_is_not() -> None:
    assert found([asked("a", 200), cancel("a", 1, 150)], [out("a", 200)])[0] == {"after_cancel": 1}
    assert found([asked("a", 200, 2), cancel("a", 1, 150)], [out("a", 200, 2)]) == ({}, 0)
    assert found([asked("a", 200, 2), cancel("a", 1, 150)], []) == ({"lost": 1}, 0)


def test_the_later_of_two_released_versions_must_have_been_released_later() -> None:
    commands = [
        asked("a", 200, 1, read_from_ms=None, read_by_ms=None),
        asked("a", 300, 2, read_from_ms=None, read_by_ms=None),
    ]
    assert found(commands, [out("a", 200), out("a", 300, 2)]) == ({}, 1)
    assert found(commands, [out("a", 200, at_ms=350), out("a", 300, 2)])[0] == {"superseded": 1}
    # With 100 ms between the two, the lower one may have come when the higher one was forgotten.
    assert found(commands, [out("a", 200, at_ms=400), out("a", 300, 2)])[0] == {}


@pytest.mark.parametrize(("read_ms", "again"), [(205, False), (299, False), (300, True), (350, True)])
def test_a_copy_fires_again_only_when_its_first_end_is_forgotten(read_ms: int, again: bool) -> None:
    commands = [asked("a", 200), asked("a", 200, read_ms=read_ms)]
    rows = [out("a", 200), out("a", 200, at_ms=max(read_ms, 200))]
    assert found(commands, rows)[0] == ({} if again else {"twice": 1})
    assert found(commands, rows, memory_ms=None)[0] == {"twice": 1}


def test_what_was_cancelled_may_fire_when_the_cancel_is_forgotten() -> None:
    commands = [cancel("a", 2, 50), asked("a", 200, read_ms=149)]
    assert found(commands, [out("a", 200)])[0] == {"after_cancel": 1}
    commands = [cancel("a", 2, 50), asked("a", 200, read_ms=150)]
    assert found(commands, [out("a", 200)]) == ({}, 0)
    assert found(commands, []) == ({"lost": 1}, 0)


def test_what_was_read_after_cannot_have_been_forgotten_before() -> None:
    unknown = {"read_from_ms": None}
    commands = [asked("a", 200, **unknown), cancel("a", 2, 150, **unknown)]
    assert found(commands, [out("a", 200)]) == ({}, 1)
    assert found(commands, [out("a", 200)], in_order=True)[0] == {"after_cancel": 1}
    ordered = [row | {"batch": number} for number, row in enumerate(commands)]
    assert found(ordered, [out("a", 200)])[0] == {"after_cancel": 1}


def test_a_retry_without_seq_is_one_with_what_has_fired() -> None:
    first, again = (
        {
            "schedule_id": "a",
            "event_time_ms": at,
            "read_by_ms": at,
            "deliver_at_ms": 200,
            "destination": "out",
        }
        for at in (10, 250)
    )
    fired, twice = (out("a", 200, at, at_ms=max(at, 200), value=None) for at in (10, 250))
    assert found([first, again], [fired])[0] == {}
    assert found([first, again], [fired, twice])[0] == {"twice": 1}
    assert found([first, again], [])[0] == {"lost": 1}


# --- forms of input -------------------------------------------------------------------------------


def test_due_times_are_read_from_instants_delays_and_levels() -> None:
    commands = pa.table(
        {
            "Schedule_ID": ["a", "b", "c", "d", "e"],
            "deliver_at": [datetime(1970, 1, 1, 0, 0, 0, 200_001, tzinfo=UTC), None, None, None, None],
            "delay": [None, "0.1 s", "PT0.1S", "1 fortnight", "-5s"],
            "event_time": ["1970-01-01T00:00:00.100Z"] * 5,
            "destination": ["out"] * 5,
        }
    )
    dues = {"a": 201, "b": 200, "c": 200, "e": -4_900}
    rows = [out(name, due, 100, at_ms=210, value=None) for name, due in dues.items()]
    assert found(commands, rows) == ({}, 0)  # type: ignore[arg-type]  # d is unclear: it may be lost or not
    leveled = [out("b", 200, 100, 350, value=None, scheduled_at_ms=350, level_error_ms=150, lateness_ms=0)]
    assert found(commands.slice(1, 1), leveled, levels_ms=(50, 250)) == ({}, 0)  # type: ignore[arg-type]
    assert found(commands.slice(1, 1), leveled, levels_ms=(50, 200))[0] == {"bad_figures": 1}  # type: ignore[arg-type]
    early = [leveled[0] | {"fired_at_ms": 349, "lateness_ms": -1}]
    assert found(commands.slice(1, 1), early, levels_ms=(50, 250))[0] == {"early": 1}  # type: ignore[arg-type]


def test_the_default_seq_is_the_offset_then_the_event_time_and_without_either_the_order_is_open() -> None:
    row = {"schedule_id": "a", "deliver_at_ms": 200, "destination": "out", "value": b"v"}
    assert found([row | {"source_seq": 7, "event_time_ms": 9}], [out("a", 200, 7)]) == ({}, 0)
    assert found([row | {"event_time_ms": 9}], [out("a", 200, 9)]) == ({}, 0)
    assert found([row, row], [out("a", 200, 5), out("a", 200, 6)])[0] == {}
    assert found([row], [out("a", 200, 5, value=b"w")])[0] == {"altered": 1}
    assert found([row], [out("a", 200, 5), out("a", 200, 5)])[0] == {"twice": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"schedule_id": None}, {"schedule_id": ""}, {"schedule_id": "a\0"}, {"schedule_id": "ü" * 257}, {"op": "close"}, {"seq": "1.5"},
        {"deliver_at_ms": None}, {"delay": "1 s"}, {"destination": "../x"}, {"max_lateness": "-1 s"}, {"_corrupt_record": "{"},
    ],
)  # fmt: skip
def test_a_command_that_breaks_the_contract_must_be_in_the_rejects(change: Row) -> None:
    command = asked("a", 200) | change
    assert found([command], [])[0] == {"reject_missing": 1}
    name = command["schedule_id"]
    assert check([command], [], [refused(name, "bad")], rules=UNTIL).ok


def test_a_good_command_may_be_refused_for_a_reason_and_is_then_not_lost() -> None:
    commands = [asked("a", 200), asked("b", 200), asked("b", 300, 2)]
    rejects = [refused("a", "oversize"), refused("b", "limit", seq=2)]
    assert check(commands, [out("b", 200)], rejects, rules=UNTIL).ok
    assert check(commands, [], rejects, rules=UNTIL).counts == {"lost": 1}


def test_repetitions_of_an_at_least_once_sink_are_counted_and_another_fire_id_is_found_out() -> None:
    rows = [out("a", 200), out("a", 200)]
    report = check([asked("a", 200)], rows, rules=Rules(until_ms=1_000, at_least_once=True))
    assert (report.ok, report.released, report.repetitions) == (True, 1, 1)
    rows[1]["fire_id"] = "another"
    report = check([asked("a", 200)], rows, rules=Rules(until_ms=1_000, at_least_once=True))
    assert report.counts == {"twice": 1, "fire_id": 1}


def test_a_command_as_an_act_has_changed_it_is_a_version_of_its_own() -> None:
    commands = [asked("a", 200), asked("a", 500, read_ms=100, amend=1)]
    assert found(commands, [out("a", 500)]) == ({}, 0)
    assert found(commands, [out("a", 200)])[0] == {"superseded": 1, "lost": 1}


def test_a_cancel_of_its_seq_ends_a_command_that_an_act_has_changed() -> None:
    commands = [asked("a", 200), asked("a", 500, read_ms=100, amend=1), cancel("a", 1, read_ms=150)]
    assert found(commands, []) == ({}, 0)
    assert found(commands, [out("a", 500)])[0] == {"after_cancel": 1}


def test_a_row_that_an_act_has_not_changed_may_be_that_of_the_act() -> None:
    commands = [asked("a", 200), asked("a", 200, read_ms=100, amend=1)]
    assert found(commands, [out("a", 200)]) == ({}, 0)
    assert found(commands, [])[0] == {"lost": 1}


def test_an_act_that_came_after_the_firing_must_not_fire() -> None:
    for act in (
        asked("a", 500, read_ms=300, amend=1),
        asked("a", 200, read_ms=300, amend=1, destination="other"),
    ):
        commands = [asked("a", 200), act]
        assert found(commands, [out("a", 200)]) == ({}, 0)
        again = out(
            "a", act["deliver_at_ms"], at_ms=500, destination=act["destination"], table=act["destination"]
        )
        assert found(commands, [out("a", 200), again])[0] == {"twice": 1}
        assert found(commands, [out("a", 200), again], memory_ms=None)[0] == {"twice": 1}


def test_columns_that_fired_rows_lack_are_not_compared_and_headers_are() -> None:
    command = asked("a", 200, headers=[("h", b"1")], key=b"k")
    assert found([command], [{"schedule_id": "a", "seq": 1, "deliver_at_ms": 200, "fired_at_ms": 200}]) == (
        {},
        0,
    )
    assert found([command], [out("a", 200, headers={"h": "1"}, key="k")]) == ({}, 0)
    assert found([command], [out("a", 200, headers={"h": "2"}, key="k")])[0] == {"altered": 1}


def test_too_late_is_what_the_caller_says() -> None:
    assert found([asked("a", 200)], [out("a", 200, at_ms=251)], fires_within_ms=51) == ({}, 0)
    assert found([asked("a", 200)], [out("a", 200, at_ms=251)], fires_within_ms=50)[0] == {"late": 1}


def test_frames_may_be_tables_pandas_frames_or_of_spark() -> None:
    class LikeSpark:
        def toArrow(self) -> pa.Table:  # noqa: N802  # as Spark names it
            return pa.Table.from_pylist([out("a", 200)])

    commands = pd.DataFrame([asked("a", 200), cancel("b", 1, 5)])  # seq stays whole; deliver_at has a NaN
    assert check(commands, LikeSpark(), pd.DataFrame(), rules=UNTIL).ok
    assert check(commands, pa.Table.from_pylist([out("a", 200, at_ms=100)]), rules=UNTIL).counts["early"] == 1


def test_a_frame_without_a_required_column_is_refused() -> None:
    with pytest.raises(ContractError, match="fired rows lack a column: fired_at"):
        check([], [{"schedule_id": "a", "seq": 1, "deliver_at": None}])
    with pytest.raises(ConfigError, match="memory_ms = -1"):
        Rules(memory_ms=-1)


# --- the report -----------------------------------------------------------------------------------


def test_the_report_has_all_counts_the_first_of_each_kind_and_raises_with_its_lines() -> None:
    commands = [asked(f"id{number}", 200) for number in range(5)]
    report = check(commands, [out("nobody", 5)], rules=Rules(until_ms=1_000, keep=2))
    assert report.counts == {"lost": 5, "no_command": 1}
    assert report.of("lost") == [
        Finding("lost", "id0", 1, "due 1970-01-01T00:00:00.200Z, in no sink"),
        Finding("lost", "id1", 1, "due 1970-01-01T00:00:00.200Z, in no sink"),
    ]
    with pytest.raises(LedgerError) as raised:
        report.require()
    assert str(raised.value).splitlines() == [
        "the ledger does NOT close: 6 faults",
        "  commands   5: 5 schedules, 0 cancels",
        "  released   1, repetitions 0; rejects: none",
        "  lost 5",
        "    id0 seq 1: due 1970-01-01T00:00:00.200Z, in no sink",
        "    id1 seq 1: due 1970-01-01T00:00:00.200Z, in no sink",
        "  no_command 1",
        "    nobody seq 1: fired at 1970-01-01T00:00:00.005Z",
    ]


def test_the_account_is_read_from_the_summary_that_a_run_prints() -> None:
    lines = [
        "summary of 12 batches",
        "  schedules   1,010 = 2 pending + 1,005 fired + 0 missed + 1 cancelled + 1 superseded + 0 duplicate + 1 rejected",
        "  cancels     3 = 1 applied + 0 waiting + 0 late + 2 superseded + 0 duplicate + 0 rejected",
    ]
    told = ledger.account_of_summary(lines)
    assert (told["fired"], told["superseded"], told["cancel_superseded"], told["applied"]) == (1_005, 1, 2, 1)
    assert ledger.account_of_summary(["nothing"]) == {}


def test_a_cancel_that_comes_after_the_hand_over_to_the_sender_is_late_and_no_fault() -> None:
    commands = [asked("tea", 500), cancel("tea", 2, 450)]
    assert found_kinds(check(commands, [out("tea", 500)], rules=UNTIL)) == ["after_cancel"]
    ahead = Rules(until_ms=1_000, memory_ms=100, ahead_ms=100)
    assert found_kinds(check(commands, [out("tea", 500)], rules=ahead)) == []
    early = [asked("tea", 500), cancel("tea", 2, 300)]
    assert found_kinds(check(early, [out("tea", 500)], rules=ahead)) == ["after_cancel"]


def test_an_instant_that_is_finer_than_a_microsecond_is_rounded_up_as_the_job_does() -> None:
    command = {
        "schedule_id": "a", "seq": 1, "deliver_at": "1970-01-01T00:00:00.123000001Z", "destination": "out", "value": b"v",
        "event_time_ms": 10, "read_from_ms": 10, "read_by_ms": 10,
    }  # fmt: skip
    assert found_kinds(check([command], [out("a", 124)], rules=UNTIL)) == []


def test_an_event_time_in_a_form_that_is_not_known_here_makes_a_command_unclear_and_not_bad() -> None:
    command = {**asked("a", 200), "event_time": "2026-01-01 09:00:00 UTC"}
    del command["event_time_ms"]
    assert found_kinds(check([command], [out("a", 200)], rules=UNTIL)) == []


def found_kinds(report: Report) -> list[str]:
    return [finding.kind for finding in report.findings]
