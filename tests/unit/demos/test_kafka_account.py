"""The account of the Kafka demo: it finds what is missing, early, twice, altered or should not have come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.demos.kafka_account import Received, fate_of, longest_fall, quantile, take_account
from jobs.demos.kafka_plan import TARGETS, Command, Sent, headers_of, iso, key_of, plan, value_of
from jobs.demos.kafka_report import bins, draw, histogram, lateness_line, render

NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z
A, B = TARGETS


def said(
    schedule_id: str, at_s: float, delay_s: float, *, op: str = "SCHEDULE", version: int = 1, target: str = A
) -> Sent:
    said_ms = NOON_MS + int(at_s * 1000)
    command = Command(
        int(at_s * 1000), schedule_id, version, op, int(delay_s * 1000), target, says_delay=True
    )
    return Sent(command, said_ms, acked_ms=said_ms + 5)


def out(
    sent: Sent, late_s: float, *, fire_id: str = "f1", stamped_s: float | None = None, fired_s: float = 0
) -> Received:
    """The record as the contract wants it, received `late_s` after its due time."""
    late_ms = int(late_s * 1000)
    stamped_ms = sent.due_ms + (late_ms if stamped_s is None else int(stamped_s * 1000))
    own = [(name, value) for name, value in headers_of(sent) if not name.startswith("wheel-")]
    ours = [
        ("wheel-id", sent.command.schedule_id.encode()),
        ("wheel-fire-id", fire_id.encode()),
        ("wheel-deliver-at", iso(sent.due_ms).encode()),
        ("wheel-fired-at", iso(NOON_MS + int(fired_s * 1000)).encode()),
    ]
    key, value = key_of(sent.command), value_of(sent.command)
    return Received(sent.command.target, 0, key, value, (*own, *ours), stamped_ms, sent.due_ms + late_ms)


X, Y = said("x", 0, 10), said("y", 1, 10, target=B)


def test_all_that_was_said_and_came_in_time_is_an_account_that_agrees() -> None:
    account = take_account([X, Y], [out(X, 0.5), out(Y, 0.7)], shards=2)

    assert (account.commands, account.expected, account.delivered, account.records) == (2, 2, 2, 2)
    assert account.lateness == [(NOON_MS + 10_000, 500), (NOON_MS + 11_000, 700)]
    assert account.faults == {}


def test_what_did_not_come_is_missing() -> None:
    account = take_account([X, Y], [out(X, 0.5)], shards=2)

    assert (account.expected, account.delivered, account.missing) == (2, 1, 1)
    assert account.faults == {"missing": 1}


@pytest.mark.parametrize(
    ("late_s", "stamped_s", "early"),
    [(0.0, 0.0, 0), (-0.001, 0.0, 1), (0.5, -0.001, 1), (-1, -1, 1)],
    ids=["on time", "received early", "stamped early", "both"],
)
def test_early_is_what_the_record_or_its_receipt_says(late_s: float, stamped_s: float, early: int) -> None:
    account = take_account([X], [out(X, late_s, stamped_s=stamped_s)], shards=2)

    assert account.early == early
    assert account.faults == ({"early": 1} if early else {})


def test_a_repetition_with_the_same_fire_id_is_no_fault_and_one_with_another_is() -> None:
    received = [out(X, 0.5), out(Y, 0.5, fire_id="f2"), out(X, 3), out(X, 4), out(Y, 9, fire_id="f3")]

    account = take_account([X, Y], received, shards=2)

    assert (account.delivered, account.repeated_same_fire_id, account.repeated_other_fire_id) == (2, 2, 1)
    assert account.lateness == [(NOON_MS + 10_000, 500), (NOON_MS + 11_000, 500)]  # of the first receipts
    assert account.faults == {"duplicates with another fire id": 1}


def test_what_was_cancelled_in_good_time_must_not_come() -> None:
    cancel = said("x", 6, 0, op="CANCEL", version=2)

    quiet = take_account([X, cancel], [], shards=2)
    loud = take_account([X, cancel], [out(X, 0.5)], shards=2)

    assert (quiet.expected, quiet.cancelled, quiet.missing, quiet.faults) == (0, 1, 0, {})
    assert loud.faults == {"cancelled, delivered anyway": 1}


def test_what_was_replaced_in_good_time_comes_once_in_its_new_version() -> None:
    anew = said("x", 6, 20, op="REPLACE", version=2)

    assert take_account([X, anew], [out(anew, 0.5)], shards=2).faults == {}
    assert take_account([X, anew], [out(X, 0.5)], shards=2).faults == {
        "missing": 1,
        "replaced, delivered anyway": 1,
    }
    assert take_account([X, anew], [out(X, 0.5), out(anew, 0.5)], shards=2).faults == {
        "replaced, delivered anyway": 1
    }


@pytest.mark.parametrize(
    ("acked_s", "must", "may"),
    [(9.0, None, set()), (9.001, None, {1}), (12.0, None, {1}), (None, None, {1})],
    ids=["a second to spare", "less", "too late", "never heard of"],
)
def test_a_cancel_too_close_to_the_due_time_is_not_judged(
    acked_s: float | None, must: int | None, may: set[int]
) -> None:
    cancel = replace(said("x", 8.9, 0, op="CANCEL", version=2))
    cancel.acked_ms = None if acked_s is None else NOON_MS + int(acked_s * 1000)

    fate = fate_of([X, cancel])

    assert (fate.must, fate.may) == (must, may)
    assert take_account([X, cancel], [], shards=2).undecided == len(may)


def test_a_replace_too_close_to_the_due_time_still_has_to_come() -> None:
    anew = said("x", 9.5, 20, op="REPLACE", version=2)

    account = take_account([X, anew], [out(X, 0.5), out(anew, 0.5)], shards=2)

    assert (account.undecided, account.expected, account.faults) == (1, 1, {})


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"other"},
        {"topic": B},
        {"headers": out(X, 0.5).headers[1:]},
        {"headers": (("wheel-target", A.encode()), *out(X, 0.5).headers[:-3])},
        {"headers": tuple((n, b"z") if n == "wheel-deliver-at" else (n, v) for n, v in out(X, 0.5).headers)},
    ],
    ids=["key", "topic", "a header lost", "no fire id", "due time"],
)
def test_a_record_that_differs_from_its_command_is_altered(change: dict) -> None:
    assert take_account([X], [replace(out(X, 0.5), **change)], shards=2).faults == {"altered": 1}


def test_what_was_never_said_is_told_also_without_a_value() -> None:
    strangers = [replace(out(X, 0.5), value=b"who"), replace(out(X, 0.5), value=None)]

    assert take_account([X], [out(X, 0.5), *strangers], shards=2).faults == {"never sent": 2}


def test_rejects_and_commands_that_the_broker_refused_are_faults() -> None:
    refused = replace(X, acked_ms=None)

    assert take_account([refused], [out(X, 0.5)], shards=2, rejects=3).faults == {
        "rejects": 3,
        "refused by the broker": 1,
    }


def test_order_is_judged_within_a_batch_and_a_partition() -> None:
    """Two shards, each oldest first, mixed: 1 4 | 2 3 may come as 2 1 3 4, and never as 4 3 1."""
    one, two, three, four = (said(f"i{n}", 0, n) for n in (1, 2, 3, 4))

    def fall(*order: Sent, fired_s: tuple[float, ...] = (9, 9, 9, 9)) -> int:
        return longest_fall((each, out(each, 5, fired_s=s)) for each, s in zip(order, fired_s, strict=False))

    assert fall(one, two, three, four) == 1
    assert fall(two, one, three, four) == 2
    assert fall(four, two, three, one) == 3
    assert fall(four, three, two, one) == 4
    assert fall(four, three, two, one, fired_s=(6, 7, 8, 9)) == 1
    assert fall(one, replace(one)) == 1
    assert fall() == 0
    received = [out(each, 5, fire_id=str(n)) for n, each in enumerate((four, three, two, one))]
    assert take_account([one, two, three, four], received, shards=2).faults == {"out of order": 2}


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([], 0.5, 0),
        ([7], 0.99, 7),
        ([1, 2, 3, 4], 0.5, 2),
        ([4, 3, 2, 1], 0.75, 3),
        (list(range(1, 101)), 0.99, 99),
    ],
)
def test_quantiles(values: list[int], share: float, found: int) -> None:
    assert quantile(values, share) == found


def test_the_report_tells_every_count_and_marks_what_is_not_so() -> None:
    text = render(take_account([X, Y], [out(X, -0.5)], shards=2))

    assert "delivered                                  1  of 2" in text
    assert "missing                                    1  must be 0   <-- WRONG" in text
    assert "early                                      1  must be 0   <-- WRONG" in text
    assert "never sent                                 0  must be 0\n" in text


def test_latenesses_as_a_line_and_as_bars() -> None:
    lateness_ms = [0, 40, 60, 110, 110, -5]

    assert lateness_line(lateness_ms) == "lateness: p50 0.04 s  p99 0.11 s  max 0.11 s  min -0.01 s"
    assert bins(lateness_ms) == (50, [3, 1, 2])
    assert histogram([0, 0, 60]) == f"    0.00 s        2  {'#' * 50}\n    0.05 s        1  {'#' * 25}"
    assert lateness_line([]) == "lateness: nothing was delivered"
    assert bins([]) == (50, [0])
    assert bins([500_000_000])[0] == 20_833_334


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    path = draw([100, 200, 300], tmp_path / "new" / "lateness.png")

    assert path.read_bytes()[:4] == b"\x89PNG"


def test_the_plan_is_the_same_each_time_and_as_told() -> None:
    commands = plan(20_000, 60_000)

    assert commands == plan(20_000, 60_000)
    assert len(commands) == 20_000
    assert [sum(each.op == op for each in commands) for op in ("SCHEDULE", "REPLACE", "CANCEL")] == [
        17_000,
        1_300,
        1_700,
    ]
    assert [each.at_ms for each in commands] == sorted(each.at_ms for each in commands)
    assert max(each.at_ms for each in commands) < 60_000
    delays_ms = [each.delay_ms for each in commands if each.op != "CANCEL"]
    assert 1_000 <= min(delays_ms) <= 1_100
    assert 29_900 <= max(delays_ms) <= 30_000
    assert {each.target for each in commands if each.op != "CANCEL"} == set(TARGETS)


def test_second_commands_of_the_plan_leave_time_and_no_id_has_three() -> None:
    commands = plan(2_000, 30_000)
    first = {each.schedule_id: each for each in commands if each.version == 1}
    second = [each for each in commands if each.version == 2]

    assert len({each.schedule_id for each in second}) == len(second) == 300
    for each in second:
        schedule = first[each.schedule_id]
        assert schedule.at_ms + 1_000 <= each.at_ms <= schedule.at_ms + schedule.delay_ms - 4_000


@pytest.mark.parametrize("count", [200, 1_000])
@pytest.mark.parametrize("seconds", [20, 60])
def test_small_plans_have_room_too(count: int, seconds: int) -> None:
    assert len(plan(count, seconds * 1000)) == count


def test_commands_as_records_of_the_native_preset() -> None:
    delay = said("x", 0, 1.5)
    instant = replace(delay, command=replace(delay.command, says_delay=False))
    cancel = said("x", 1, 0, op="CANCEL", version=2, target="")

    trace = ("trace", b"x")
    assert headers_of(delay) == [
        ("wheel-id", b"x"),
        ("wheel-delay", b"1500 ms"),
        ("wheel-target", A.encode()),
        trace,
    ]
    assert headers_of(instant)[1] == ("wheel-deliver-at", b"2026-01-01T12:00:01.500Z")
    assert headers_of(cancel) == [("wheel-id", b"x"), ("wheel-op", b"CANCEL")]
    assert (key_of(delay.command), value_of(delay.command)) == (b"x", b"x version 1")
    assert (key_of(cancel.command), value_of(cancel.command)) == (b"x", None)
