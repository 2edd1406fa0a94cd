"""Commands as Kafka records: the headers and values of the presets, and an error for each argument that breaks the
contract.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, StrEnum
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Message

from wheel_udf import ContractError
from wheel_udf.client import kafka

DUE = datetime(2026, 1, 1, 10, 0, 0, 250_000, tzinfo=UTC)


def test_a_schedule_is_the_arguments_of_produce() -> None:
    record = kafka.schedule("order-7", delay="30 minutes", destination="orders_to_close", value=b"close")

    assert record == {
        "key": b"order-7",
        "value": b"close",
        "headers": [
            ("wheel-id", b"order-7"),
            ("wheel-op", b"SCHEDULE"),
            ("wheel-delay", b"30 minutes"),
            ("wheel-target", b"orders_to_close"),
        ],
    }


def test_a_replace_has_every_header_of_the_contract() -> None:
    record = kafka.replace(
        42,
        deliver_at=DUE,
        destination="t",
        key="customer-3",
        value="über",
        headers={"trace": b"\x01", "none": None},
        seq=-7,
        event_time="2026-01-01T10:30:00+01:00",
        max_lateness=timedelta(hours=1),
    )

    assert record == {
        "key": b"customer-3",
        "value": "über".encode(),
        "headers": [
            ("wheel-id", b"42"),
            ("wheel-op", b"REPLACE"),
            ("wheel-seq", b"-7"),
            ("wheel-event-time", b"2026-01-01T09:30:00.000000Z"),
            ("wheel-deliver-at", b"2026-01-01T10:00:00.250000Z"),
            ("wheel-target", b"t"),
            ("wheel-max-lateness", b"3600000.000 ms"),
            ("trace", b"\x01"),
            ("none", None),
        ],
    }


def test_a_series_needs_no_due_time_and_has_its_rule_in_headers() -> None:
    record = kafka.schedule(
        "a",
        repeat="0 9 * * *",
        time_zone="Europe/Paris",
        starts_at=DUE,
        until="2026-02-01T00:00:00Z",
        count=3,
        on_missed="all",
        on_gap="skip",
        on_fold="both",
        spread="10 minutes",
    )

    assert dict(record["headers"]) == {
        "wheel-id": b"a",
        "wheel-op": b"SCHEDULE",
        "wheel-spread": b"10 minutes",
        "wheel-repeat": b"0 9 * * *",
        "wheel-time-zone": b"Europe/Paris",
        "wheel-starts-at": b"2026-01-01T10:00:00.250000Z",
        "wheel-until": b"2026-02-01T00:00:00.000000Z",
        "wheel-count": b"3",
        "wheel-on-missed": b"all",
        "wheel-on-gap": b"skip",
        "wheel-on-fold": b"both",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"repeat": ""}, "not a text: repeat = ''; rule: cron"),
        ({"repeat": "@daily", "count": 0}, "not a number of occurrences: count = 0"),
        (
            {"delay": "1 s", "count": 3},
            "an argument of a series without a rule: count = 3; rule: beside repeat",
        ),
        ({"delay": "1 s", "on_gap": "skip"}, "an argument of a series without a rule: on_gap = 'skip'"),
        (
            {"repeat": "@daily", "delay": "1 s", "deliver_at": DUE},
            "two beginnings of a series: deliver_at, delay; rule",
        ),
        (
            {"repeat": "@daily", "delay": "1 s", "starts_at": DUE},
            "two beginnings of a series: delay, starts_at",
        ),
        ({"delay": pd.Timedelta(1_000_001, "ns")}, "not a duration: delay = Timedelta"),
        ({"deliver_at": "2026-01-01T10:00:00,1230001Z"}, "not an instant: deliver_at = "),
        ({"deliver_at": pd.Timestamp("2026-01-01T10:00:00.123000001Z")}, "not an instant: deliver_at = "),
        ({"repeat": "@daily", "spread": "367 days"}, "not negative; at most 366 days"),
        ({"repeat": "@daily", "on_gap": "jump"}, "not a policy: on_gap = 'jump'; rule: one of shift, skip"),
        ({"repeat": "@daily", "spread": "-1 s"}, "not a duration: spread = '-1 s'; rule: not negative"),
    ],
)
def test_an_argument_of_a_series_that_breaks_the_contract_is_named(arguments: Any, words: str) -> None:
    with pytest.raises(ContractError, match=re.escape(words)):
        kafka.schedule("a", **arguments)


def test_a_cancel_needs_its_id_alone() -> None:
    assert kafka.cancel("order-7") == {
        "key": b"order-7",
        "value": None,
        "headers": [("wheel-id", b"order-7"), ("wheel-op", b"CANCEL")],
    }
    assert kafka.cancel("order-7", key=b"customer-3", seq=9)["key"] == b"customer-3"


def test_what_is_to_fire_now_needs_its_id_alone() -> None:
    assert kafka.fire_now("order-7") == {
        "key": b"order-7",
        "value": None,
        "headers": [("wheel-id", b"order-7"), ("wheel-op", b"FIRE_NOW")],
    }
    record = kafka.fire_now("order-7", seq=3, preset="json")
    assert record["value"] == b'{"schedule_id":"order-7","op":"FIRE_NOW","seq":"3"}'


def test_a_record_of_the_preset_json_has_the_id_as_its_key_and_one_object_as_its_value() -> None:
    record = kafka.schedule(
        "order-7",
        deliver_at=DUE,
        destination="t",
        key=b"customer-3",
        value={"close": [7, None]},
        headers=[("a", b"\xff"), ("a", "2")],
        preset="json",
    )

    assert record["key"] == b"order-7"
    assert json.loads(record["value"] or b"") == {
        "schedule_id": "order-7",
        "op": "SCHEDULE",
        "deliver_at": "2026-01-01T10:00:00.250000Z",
        "destination": "t",
        "key": "customer-3",
        "value": {"close": [7, None]},
    }
    assert record["headers"] == [("a", b"\xff"), ("a", b"2")]


def test_a_cancel_of_the_preset_json_is_an_object_too() -> None:
    record = kafka.cancel("order-7", seq=3, preset="json")

    assert record == {
        "key": b"order-7",
        "value": b'{"schedule_id":"order-7","op":"CANCEL","seq":"3"}',
        "headers": [],
    }


class Name(StrEnum):
    ORDER = "order-7"


def test_an_enum_that_is_a_text_is_sent_as_its_value() -> None:
    class Old(str, Enum):  # noqa: UP042  # as users have them
        ORDER, ALL = "order-7", "all"

    for name in (Name.ORDER, Old.ORDER):
        assert kafka.cancel(name)["headers"][0] == ("wheel-id", b"order-7")
    assert ("wheel-on-missed", b"all") in kafka.schedule("a", repeat="@daily", on_missed=Old.ALL)["headers"]


def test_what_is_given_back_has_the_key_of_its_delivery_also_if_that_is_none() -> None:
    headers = [("wheel-id", b"a"), ("wheel-fire-id", b"f"), ("wheel-attempt", b"1"), ("wheel-seq", b"1")]
    message = Message(topic="t", partition=0, offset=0, value=b"v", headers=headers)
    assert kafka.retry(message, error="no")["key"] is None
    assert kafka.put_back(message, delay="1 s")["key"] is None


def test_an_occurrence_that_was_put_back_ended_its_series() -> None:
    headers = [("wheel-id", b"a"), ("wheel-fire-id", b"f"), ("wheel-occurrence", b"3"), ("wheel-seq", b"1")]
    message = Message(topic="t", partition=0, offset=0, value=b"v", headers=headers)
    with pytest.raises(
        ContractError, match="cannot be put back: occurrence = '3'; hint: retry gives it back"
    ):
        kafka.put_back(message, delay="1 s")


def a_delivery(*, without: str = "", seq: bytes = b"41") -> Message:
    headers = {
        "trace": b"\x01",
        "wheel-id": b"order-7",
        "wheel-fire-id": b"f1",
        "wheel-deliver-at": b"2026-01-01T10:00:00.000Z",
        "wheel-fired-at": b"2026-01-01T10:00:00.700Z",
        "wheel-seq": seq,
        "wheel-source": b"commands/0/41",
    }
    left = [pair for pair in headers.items() if pair[0] != without]
    return Message(
        topic="orders_to_close", partition=0, offset=3, key=b"customer-3", value=b"\xff", headers=left
    )


def test_a_delivery_that_is_put_back_is_the_next_version_of_its_id() -> None:
    record = kafka.put_back(a_delivery(), delay="5 minutes")

    assert record == {
        "key": b"customer-3",
        "value": b"\xff",
        "headers": [
            ("wheel-id", b"order-7"),
            ("wheel-op", b"SCHEDULE"),
            ("wheel-seq", b"42"),
            ("wheel-delay", b"5 minutes"),
            ("wheel-target", b"orders_to_close"),
            ("trace", b"\x01"),
        ],
    }
    given = kafka.put_back(a_delivery(), deliver_at=DUE, destination="t", seq=-7, max_lateness="1 h")
    assert given["headers"] == [
        ("wheel-id", b"order-7"),
        ("wheel-op", b"SCHEDULE"),
        ("wheel-seq", b"-7"),
        ("wheel-deliver-at", b"2026-01-01T10:00:00.250000Z"),
        ("wheel-target", b"t"),
        ("wheel-max-lateness", b"1 h"),
        ("trace", b"\x01"),
    ]


def test_an_outcome_of_the_purgatory_has_no_version_and_takes_its_offset() -> None:
    record = kafka.put_back(a_delivery(without="wheel-seq"), delay="1 s")

    assert "wheel-seq" not in dict(record["headers"])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            a_delivery(without="wheel-fire-id"),
            "not a delivery: delivery = ['wheel-deliver-at', 'wheel-fired-at'",
        ),
        (a_delivery(without="wheel-id"), "rule: a message with the headers wheel-id and wheel-fire-id"),
        (Message(topic="t"), "not a delivery: delivery = []"),
        (a_delivery(seq=b"9223372036854775807"), "not a version: seq = 9223372036854775808"),
    ],
)
def test_what_cannot_be_put_back_is_named_with_its_rule(message: Message, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        kafka.put_back(message, delay="1 s")

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("delay", "sent"),
    [
        (timedelta(minutes=10), b"600000.000 ms"),
        (timedelta(microseconds=1), b"0.001 ms"),
        (timedelta(seconds=-5), b"-5000.000 ms"),
        (timedelta.max, b"86399999999999999.999 ms"),
        ("1 hour 30 minutes", b"1 hour 30 minutes"),
        ("PT10M", b"PT10M"),
        ("0", b"0"),
    ],
)
def test_a_delay_is_a_text_or_a_timedelta(delay: Any, sent: bytes) -> None:
    assert dict(kafka.schedule("a", delay=delay)["headers"])["wheel-delay"] == sent


@pytest.mark.parametrize(
    ("instant", "sent"),
    [
        (datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), b"2026-01-01T10:00:00.000000Z"),
        ("2026-01-01 10:00Z", b"2026-01-01T10:00:00.000000Z"),
        ("1900-01-01T00:00:00Z", b"1900-01-01T00:00:00.000000Z"),
        ("9999-12-31T23:59:59.999999Z", b"9999-12-31T23:59:59.999999Z"),
        ("2026-01-01T10:00:00.1234560Z", b"2026-01-01T10:00:00.123456Z"),
    ],
)
def test_a_due_time_is_sent_in_utc(instant: Any, sent: bytes) -> None:
    assert dict(kafka.schedule("a", deliver_at=instant)["headers"])["wheel-deliver-at"] == sent


@pytest.mark.parametrize("good", ["a", "é" * 256, "x" * 512, " ", "\n", -1, 0])
def test_an_id_has_1_to_512_bytes(good: Any) -> None:
    assert kafka.cancel(good)["key"] == str(good).encode()


@pytest.mark.parametrize("bad", ["", "x" * 513, "é" * 257, "a\0b", "\ud800", None, True, 1.5, b"a"])
def test_another_id_is_refused(bad: Any) -> None:
    with pytest.raises(ContractError, match=r"not an id: schedule_id.*rule: 1 to 512 bytes of UTF-8"):
        kafka.cancel(bad)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "no due time: deliver_at, delay; rule: exactly one of deliver_at and delay"),
        ({"delay": "1 s", "deliver_at": DUE}, "two due times: deliver_at, delay; rule: exactly one"),
        ({"delay": "1 month"}, "not a duration: delay = '1 month'; rule: numbers with units"),
        ({"delay": 5}, "not a duration: delay = 5; rule: numbers with units"),
        ({"delay": DUE}, "hint: for an instant use deliver_at"),
        ({"deliver_at": DUE.replace(tzinfo=None)}, "an instant without a time zone: deliver_at = datetime"),
        ({"deliver_at": "2026-01-01 10:00"}, "hint: datetime.now(UTC), or .replace(tzinfo=...)"),
        ({"deliver_at": "soon"}, "not an instant: deliver_at = 'soon'; rule: a datetime with a time zone"),
        ({"deliver_at": 1_767_261_600}, "hint: epoch numbers name no unit: datetime.fromtimestamp"),
        ({"deliver_at": "2026-01-01T10:00:00.0000001Z"}, "to the microsecond"),
        ({"deliver_at": "1899-12-31T23:59:59Z"}, "due before all calendars in use: deliver_at"),
        ({"deliver_at": "0001-01-01T00:00:00+01:00"}, "not an instant: deliver_at"),
        ({"delay": "1 s", "event_time": "2026-01-01"}, "an instant without a time zone: event_time"),
        ({"delay": "1 s", "destination": "a b"}, "not a destination: destination = 'a b'; rule: 1 to 249 of"),
        ({"delay": "1 s", "destination": ".."}, "not a destination: destination = '..'"),
        ({"delay": "1 s", "seq": 2**63}, "not a version: seq = 9223372036854775808; rule: a whole number of 64"),
        ({"delay": "1 s", "seq": "7"}, "not a version: seq = '7'"),
        ({"delay": "1 s", "max_lateness": "-1 s"}, "not a duration: max_lateness = '-1 s'; rule: not negative"),
        ({"delay": "1 s", "value": {}}, "not a payload: value = {}; rule: bytes, or text in UTF-8; hint: preset json"),
        ({"delay": "1 s", "key": 7}, "not a payload: key = 7"),
        ({"delay": "1 s", "value": "\ud800"}, "not a payload: value"),
        ({"delay": "1 s", "headers": {"wheel-x": b""}}, "not a header to deliver: headers = 'wheel-x'; rule: a text that"),
        ({"delay": "1 s", "headers": {"wheel-x": b""}}, "hint: drop them; put_back schedules a delivery again"),
        ({"delay": "1 s", "headers": {"a": 7}}, "not a payload: headers.a = 7"),
        ({"delay": "1 s", "preset": "scheduler"}, "not a preset of this client: preset = 'scheduler'; rule: one of native"),
        ({"delay": "1 s", "preset": "json", "value": b"\xff"}, "hint: preset native takes any bytes"),
        ({"delay": "1 s", "preset": "json", "value": float("nan")}, "not a payload: value = nan; rule: bytes or text"),
        ({"delay": "1 s", "preset": "json", "value": {"a": {1}}}, "or a value of JSON"),
    ],
)  # fmt: skip
def test_an_argument_that_breaks_the_contract_is_named_with_its_rule(arguments: Any, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        kafka.schedule("a", **arguments)

    assert words in str(caught.value)
