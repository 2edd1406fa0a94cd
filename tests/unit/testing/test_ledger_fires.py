"""The ledger checker on FIRE_NOW: an entry may be out, or must be, before it is due."""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf.testing.ledger import Rules, account_of_summary, check

Row = dict[str, Any]


def asked(seq: int = 1, due_ms: int | None = 500, read_ms: int = 10, **others: Any) -> Row:
    row = {
        "schedule_id": "a",
        "seq": seq,
        "deliver_at_ms": due_ms,
        "destination": "out",
        "event_time_ms": read_ms,
    }
    return row | {"read_from_ms": read_ms, "read_by_ms": read_ms} | others


def fire_now(
    seq: int = 1, read_from_ms: int | None = 200, read_by_ms: int | None = 220, **others: Any
) -> Row:
    row = {"schedule_id": "a", "op": "FIRE_NOW", "seq": seq, "event_time_ms": 190}
    return row | {"read_from_ms": read_from_ms, "read_by_ms": read_by_ms} | others


def out(due_ms: int, seq: int = 1, at_ms: int | None = None, **others: Any) -> Row:
    at_ms = due_ms if at_ms is None else at_ms
    row = {
        "schedule_id": "a",
        "seq": seq,
        "deliver_at_ms": due_ms,
        "fired_at_ms": at_ms,
        "destination": "out",
    }
    return row | {"lateness_ms": at_ms - due_ms, "fire_id": f"a/{seq}/{due_ms}"} | others


def found(
    commands: list[Row], fired: list[Row], rejects: list[Row] | None = None, **rules: Any
) -> tuple[Row, int]:
    """Counts of findings, and how much is undecided."""
    report = check(commands, fired, rejects or [], rules=Rules(**{"until_ms": 300, "memory_ms": 100} | rules))
    return dict(report.counts), report.undecided


def test_an_entry_that_a_fire_now_releases_has_the_clock_of_its_batch_as_due_time() -> None:
    assert found([asked(), fire_now()], [out(210)]) == ({}, 0)
    assert found([asked(), fire_now()], [out(210, at_ms=260)]) == ({}, 0)  # the limit held it back
    assert found([asked(), fire_now(seq=7)], [out(210)]) == ({}, 0)


@pytest.mark.parametrize(
    ("commands", "row", "kinds"),
    [
        ([asked()], out(210), {"altered", "early"}),
        ([asked(), fire_now()], out(199), {"altered", "early"}),  # before it was read
        ([asked(), fire_now()], out(221), {"altered", "early"}),  # not the clock of its batch
        ([asked(), fire_now(seq=0)], out(210), {"altered", "early"}),  # the entry is above it
        ([asked(), fire_now()], out(210, at_ms=209), {"early"}),
        ([asked(read_ms=215), fire_now()], out(210), {"altered", "early"}),  # before the entry was read
        ([asked(), fire_now()], out(500, at_ms=210), {"early"}),  # the due time has not moved
    ],
)
def test_what_no_fire_now_explains_is_early(commands: list[Row], row: Row, kinds: set[str]) -> None:
    assert set(found(commands, [row], until_ms=None)[0]) == kinds


def test_an_entry_must_be_out_when_a_fire_now_was_read_after_it_for_certain() -> None:
    assert found([asked(), fire_now()], []) == ({"lost": 1}, 0)
    assert found([asked(), fire_now()], [], until_ms=219) == ({}, 1)
    assert found([asked(), fire_now(read_from_ms=None)], []) == ({}, 1)
    assert found([asked(), fire_now(read_from_ms=5, read_by_ms=9)], []) == ({}, 1)
    unknown = {"read_from_ms": None}
    assert found([asked(**unknown), fire_now(**unknown)], [], in_order=True) == ({"lost": 1}, 0)
    assert found([asked(due_ms=290), fire_now()], [out(290)]) == ({}, 0)
    assert found([asked(), fire_now(seq=0)], []) == ({}, 0)


def test_an_entry_that_may_be_with_the_sender_already_need_not_be_out() -> None:
    assert found([asked(), fire_now()], [], ahead_ms=279) == ({"lost": 1}, 0)
    assert found([asked(), fire_now()], [], ahead_ms=280) == ({}, 1)


def test_a_pending_entry_that_a_fire_now_must_have_released_is_overdue() -> None:
    pending = [{"schedule_id": "a", "seq": 1, "deliver_at_ms": 500}]
    rules = Rules(until_ms=300)
    assert check([asked(), fire_now()], [], rules=rules, pending=pending).counts == {"overdue": 1}
    assert check([asked(), fire_now(read_from_ms=5)], [], rules=rules, pending=pending).ok


def test_a_cancel_before_a_fire_now_wins_and_one_after_it_is_late() -> None:
    cancel = asked(due_ms=None, op="CANCEL", destination=None, read_ms=100)
    assert found([asked(), cancel, fire_now()], []) == ({}, 0)
    assert found([asked(), cancel, fire_now()], [out(210)])[0] == {"after_cancel": 1}
    late = cancel | {"read_from_ms": 280, "read_by_ms": 280}
    assert found([asked(), fire_now(), late], [out(210)], fires_within_ms=10) == ({}, 0)
    assert found([asked(), fire_now(), late], [], fires_within_ms=10) == ({"lost": 1}, 0)


def test_a_refused_fire_now_changes_nothing_and_its_reject_is_that_of_no_schedule() -> None:
    reject = {"schedule_id": "a", "seq": 1, "error_code": "no_fire_now", "error_message": "why"}
    assert found([asked(), fire_now()], [out(500)], [reject], until_ms=500) == ({}, 0)
    assert found([asked(), fire_now()], [], [reject], until_ms=500) == ({"lost": 1}, 0)
    assert "early" in found([asked(), fire_now()], [out(210)], [reject])[0]


def test_a_schedule_without_seq_that_is_repeated_after_a_fire_now_is_new() -> None:
    first, again = asked(seq=None, read_ms=10), asked(seq=None, read_ms=250)  # type: ignore[arg-type]
    assert found([first, fire_now(seq=15), again], [out(210, 10), out(500, 250)], until_ms=500) == ({}, 0)
    assert found([first, fire_now(seq=15), again], [out(210, 10)], until_ms=500) == ({"lost": 1}, 0)


def test_a_series_is_fired_now_with_its_nominal_time_and_goes_on_behind_it() -> None:
    series = asked(due_ms=None, repeat="every 100 ms")  # 110, 210, 310
    columns = {"occurrence": 3, "missed_before": 0, "lateness_ms": 0}
    two = [out(110, occurrence=1, missed_before=0), out(210, occurrence=2, missed_before=0)]
    early = out(310, at_ms=215, **columns)
    assert found([series, fire_now()], [*two, early]) == ({}, 0)
    assert found([series], [*two, early])[0] == {"early": 1}
    assert found([series, fire_now(read_from_ms=216)], [*two, early])[0] == {"early": 1}
    assert found([series, fire_now(seq=0)], [*two, early])[0] == {"early": 1}
    assert found([series, fire_now()], [*two, early, early | {"fired_at_ms": 310}])[0] == {"twice": 1}


def test_the_account_has_a_line_of_fires() -> None:
    lines = [
        "  schedules   1 = 0 pending + 1 fired + 0 missed + 0 cancelled + 0 superseded + 0 duplicate + 0 rejected",
        "  cancels     0 = 0 applied + 0 waiting + 0 late + 0 superseded + 0 duplicate + 0 rejected",
        "  fires       2 = 1 applied + 1 late + 0 rejected",
    ]
    account = account_of_summary(lines)
    assert (account["fire_applied"], account["fire_late"], account["applied"], account["late"]) == (
        1,
        1,
        0,
        0,
    )
    commands = [asked(), fire_now(), fire_now(read_from_ms=230, read_by_ms=240)]
    report = check(commands, [out(210)], account=account)
    report.require()
    assert "commands   3: 1 schedules, 0 cancels, 2 FIRE_NOW" in str(report)
    report = check(commands[:2], [out(210)], account=account)
    assert [each.detail for each in report.findings] == ["fires: the account has 2, input and sinks have 1"]
