"""The ledger checker on retries: several attempts are one delivery, a dead letter is an end, a RETRY is no SCHEDULE."""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf.testing import ledger
from wheel_udf.testing.ledger import Rules, check

Row = dict[str, Any]


def asked(read_ms: int = 10, **others: Any) -> Row:
    row = {"schedule_id": "a", "seq": 1, "deliver_at_ms": 200, "destination": "out", "value": b"v"}
    return row | {"event_time_ms": read_ms, "read_from_ms": read_ms, "read_by_ms": read_ms} | others


def out(at_ms: int, attempt: int | None = 1, **others: Any) -> Row:
    row = {"schedule_id": "a", "seq": 1, "deliver_at_ms": 200, "fired_at_ms": at_ms, "destination": "out"}
    return (
        row | {"value": b"v", "lateness_ms": at_ms - 200, "fire_id": "a/1/200", "attempt": attempt} | others
    )


def retry(attempt: int = 1, **others: Any) -> Row:
    return asked(210) | {"op": "RETRY", "attempt": attempt} | others


def dead(at_ms: int, **others: Any) -> Row:
    """A dead letter, as in a table of them."""
    row = {"schedule_id": "a", "seq": 1, "deliver_at_ms": 200, "dead_at_ms": at_ms, "destination": "dead"}
    return (
        row | {"origin": "out", "value": b"v", "fire_id": "a/1/200", "attempts": 3, "reason": "why"} | others
    )


def rejected(code: str, at_ms: int) -> Row:
    row = {"schedule_id": "a", "seq": 1, "error_code": code, "error_message": "why", "deliver_at_ms": 200}
    return row | {"rejected_at_ms": at_ms, "destination": "out", "value": b"v"}


def found(
    commands: list[Row], fired: list[Row], rejects: list[Row] | None = None, **rules: Any
) -> tuple[Row, int]:
    """Counts of findings, and how much is undecided."""
    report = check(commands, fired, rejects or [], rules=Rules(**{"until_ms": 900} | rules))
    return dict(report.counts), report.undecided


def test_attempts_with_one_fire_id_are_one_release() -> None:
    assert found([asked(), retry(), retry(2)], [out(200), out(250), out(300)])[0] == {"twice": 2}
    assert found([asked(), retry(), retry(2)], [out(200), out(250, 2), out(300, 3)]) == ({}, 0)
    assert found([asked()], [out(300, 3)]) == ({}, 0)
    other = out(250, 2, fire_id="other")
    assert found([asked(), retry()], [out(200), other])[0] == {"twice": 1, "fire_id": 1}
    assert found([asked(), retry()], [out(200), out(250, 2), out(250, 2)])[0] == {"twice": 1}


def test_a_further_attempt_is_not_late_but_must_not_be_early_nor_altered() -> None:
    assert found([asked()], [out(300, 2)], fires_within_ms=10) == ({}, 0)
    assert found([asked()], [out(300, 1)], fires_within_ms=10)[0] == {"late": 1}
    assert found([asked()], [out(199, 2)])[0] == {"early": 1}
    assert found([asked()], [out(300, 2, value=b"w")])[0] == {"altered": 1}
    assert found([asked(max_lateness="50 ms")], [out(300, 2)])[0] == {"not_missed": 1}


def test_a_retry_is_no_schedule() -> None:
    assert found([retry()], [out(200)], until_ms=None)[0] == {"no_command": 1}
    assert found([asked(), retry()], [])[0] == {"lost": 1}
    report = check([asked(), retry()], [out(200), out(250, 2)])
    assert (report.schedules, report.retries) == (1, 1)
    assert "commands   2: 1 schedules, 0 cancels, 1 RETRY" in str(report)


def test_a_dead_letter_ends_a_version() -> None:
    report = check([asked()], [dead(700)], rules=Rules(until_ms=900))
    assert (report.ok, report.undecided, report.dead, report.released) == (True, 0, 1, 0)
    assert "released   0, dead letters 1" in str(report)
    assert found([asked()], [], [rejected("dead_letter", 700)]) == ({}, 0)
    assert found([asked()], [dead(700, value=b"w")])[0] == {"altered": 1}
    assert found([asked()], [dead(700, origin="in")])[0] == {"wrong_destination": 1}
    assert found([asked(schedule_id="b")], [dead(700)])[0] == {"no_command": 1, "lost": 1}


def test_a_delivery_that_is_also_dead_was_given_back_or_is_a_fault() -> None:
    assert found([asked()], [out(200), dead(700)])[0] == {"twice": 1}
    assert found([asked(), retry()], [out(200), dead(700)]) == ({}, 0)
    assert found([asked()], [out(200), dead(700)], at_least_once=True) == ({}, 0)
    assert found([asked()], [dead(700), dead(700)])[0] == {"twice": 1}


def test_what_is_out_after_its_dead_letter_may_have_been_sent_again() -> None:
    assert found([asked()], [dead(300), out(400)]) == ({}, 1)
    assert found([asked()], [dead(300), dead(400)]) == ({}, 1)


def test_what_was_given_back_may_be_missed_then() -> None:
    late = asked(max_lateness="50 ms")
    assert found([late, retry()], [out(200)], [rejected("missed", 300)]) == ({}, 0)
    assert found([late], [out(200)], [rejected("missed", 300)])[0] == {"twice": 1}


def test_a_cancel_ends_what_waits_for_another_attempt() -> None:
    cancel = asked(250, op="CANCEL", destination=None, deliver_at_ms=None)
    assert found([asked(), cancel], [out(300, 2)])[0] == {"after_cancel": 1}
    assert found([asked(), cancel], [])[0] == {}
    # A RETRY may have been read when the CANCEL was forgotten.
    assert found([asked(), cancel, retry()], [out(200), out(300, 2)]) == ({}, 1)


@pytest.mark.parametrize(("attempt", "counts"), [(None, {"overdue": 1}), (0, {"overdue": 1}), (2, {})])
def test_what_waits_for_another_attempt_is_not_overdue(attempt: int | None, counts: Row) -> None:
    pending = [{"schedule_id": "a", "seq": 1, "deliver_at_ms": 200, "attempt": attempt}]
    assert check([asked()], [], rules=Rules(until_ms=900), pending=pending).counts == counts


SERIES = asked(deliver_at_ms=None, repeat="every 100 ms", event_time_ms=0)


def of_series(due_ms: int, number: int, attempt: int = 1, at_ms: int | None = None) -> Row:
    at_ms = due_ms if at_ms is None else at_ms
    row = out(at_ms, attempt, deliver_at_ms=due_ms, fire_id=f"a/1/{due_ms}", lateness_ms=at_ms - due_ms)
    return row | {"occurrence": number, "missed_before": 0 if attempt == 1 else None}


def test_an_occurrence_is_tried_again_by_itself_also_after_the_end_of_its_series() -> None:
    rows = [of_series(100, 1), of_series(200, 2, 2, at_ms=350), of_series(300, 3)]
    cancel = asked(310, op="CANCEL", destination=None, deliver_at_ms=None)
    assert found([SERIES, cancel], rows) == ({}, 0)
    assert found([SERIES, cancel], [rows[0], rows[2]])[0] == {"lost": 1}
    letter = dead(400, deliver_at_ms=200, fire_id="a/1/200")
    assert found([SERIES, cancel], [rows[0], letter, rows[2]]) == ({}, 0)
    assert found([SERIES, cancel], [*rows, of_series(200, 2, 2, at_ms=360)])[0] == {"twice": 1}
    assert found([SERIES, cancel], [*rows, of_series(200, 2, 3, at_ms=360)]) == ({}, 0)


def test_an_occurrence_that_may_wait_for_another_attempt_is_undecided() -> None:
    rows = [of_series(100, 1), of_series(300, 3)]
    assert found([SERIES], rows, until_ms=None) == ({}, 1)
    pending = [
        {"schedule_id": "a", "seq": 1, "deliver_at_ms": due, "attempt": n}
        for due, n in ((200, 1), (400, None))
    ]
    assert check([SERIES], rows, rules=Rules(until_ms=300), pending=pending).ok
    assert check([SERIES], rows, rules=Rules(until_ms=300), pending=pending[1:]).counts == {"lost": 1}


def test_the_account_has_what_came_back_and_dead_letters() -> None:
    lines = [
        "  schedules   4 = 0 pending + 3 fired + 0 missed + 0 cancelled + 0 superseded + 0 duplicate + 0 rejected + 1 dead",
        "  3 of the schedules are entries that came back, because they could not be delivered",
    ]
    account = ledger.account_of_summary(lines)
    assert (account["dead"], account["retried"]) == (1, 3)
    # Its attempts 1 and 2 failed at the destination; the third one was delivered, and given back: no further one.
    commands, rows = [asked(), retry(3)], [out(400, 3), dead(700)]
    check(commands, rows, account=account).require()
    for change, detail in (
        ({"dead": 0, "fired": 4}, "dead: the account has 0, input and sinks have 1"),
        ({"retried": 1}, "schedules: the account has 4, input and sinks have 3"),
        ({"fired": 5, "rejected": -1}, "fired: the account has 5, input and sinks have 4"),
    ):
        report = check(commands, rows, account=account | change)
        assert detail in [each.detail for each in report.findings]


def test_dead_letters_and_attempts_are_read_from_topics() -> None:
    common = [("wheel-id", b"a"), ("wheel-seq", b"1"), ("wheel-deliver-at", b"1970-01-01T00:00:00.200Z")]
    common.append(("wheel-fire-id", b"a/1/200"))
    first = [*common, ("wheel-fired-at", b"1970-01-01T00:00:00.200Z"), ("wheel-attempt", b"1")]
    letter = [*common, ("wheel-target", b"out"), ("wheel-dead-at", b"1970-01-01T00:00:00.700Z")]
    records = [
        {"topic": "out", "value": b"v", "headers": first, "received_ms": 201},
        {"topic": "dead", "value": b"v", "headers": letter, "received_ms": 701},
    ]
    report = check([asked(), retry()], ledger.fired_of_kafka(records), rules=Rules(until_ms=900))
    report.require()
    assert (report.released, report.dead) == (1, 1)
