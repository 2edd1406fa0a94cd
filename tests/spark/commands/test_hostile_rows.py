"""Thousands of damaged rows through every reader at once: each comes out once, as a command that obeys the contract or
as a reject with a known code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.hostile import BAD_NAMES, GOOD_NAMES, is_id, mangled_at_random
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.operations import parse_events, parse_operations
from wheel_udf.commands.parse import parse_commands
from wheel_udf.common.durations import TOO_LONG_MS

ROWS = 1_500
MIB = 1_048_576
CONTRACT = Contract(max_value_bytes=MIB, max_ahead_ms=60_000, destinations=("orders", "a*", "*-*"))
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
CODES = {
    *("bad_type", "unreadable", "bad_op", "no_schedule_id", "bad_schedule_id", "bad_seq", "bad_event_time"),
    *("event_time_ahead", "no_due_time", "two_due_times", "bad_deliver_at", "bad_delay", "beyond_max_delay"),
    *("due_too_early", "beyond_levels", "no_destination", "bad_destination", "unknown_destination"),
    *("oversize", "bad_max_lateness"),
}
WATCH_CODES = {
    *("bad_type", "unreadable", "bad_op", "no_op_id", "bad_op_id", "no_group", "bad_group", "no_keys"),
    *("no_key", "bad_key", "bad_rule", "bad_event_time", "event_time_ahead", "bad_amount", "no_deadline"),
    *("bad_deadline", "deadline_past", "beyond_max_delay", "bad_limit", "no_destination"),
    *("bad_destination", "unknown_destination", "oversize"),
}
Headers = list[tuple[str | None, bytes | None]]

TEXTS_OF = {
    "op": [b"SCHEDULE", b"cancel", b" replace ", b""],
    "seq": [b"7", b"-9223372036854775808", b"9223372036854775807", b" 12 ", b"7.5", b"1e3"],
    "deliver_at": [b"2026-01-05T12:00:00.123456789+01:00", b"2026-02-28", b"9999-12-31T23:59:59Z", b"1767614400000"],
    "delay": [b"10 minutes", b"P1DT2H3M4.5S", b"-PT5S", b"PT-1H-30M", b"99999999999999999999 weeks", b"0"],
    "event_time": [b"2026-01-05T12:00:00Z", b"2026-01-05 07:30", b"-290307-12-31T00:00:00Z"],
    "destination": [b"orders", b"a1", b"x-y"] * 100 + [name.encode() for name in (*GOOD_NAMES, *BAD_NAMES)],
    "max_lateness": [b"1 minute", b"PT0.0000001S", b"-1s"],
}  # fmt: skip
JSON = (
    b'{"schedule_id": "a", "op": "SCHEDULE", "seq": 7, "delay": "1s", "destination": "orders", '
    b'"key": "k", "value": {"n": 1.50}, "headers": {"h": "v"}}'
)


def names(make: Random) -> bytes:
    odd = mangled_at_random(make, [name.encode() for name in BAD_NAMES])
    return make.choice([b"order-7", mangled_at_random(make, [b"order-7"]), odd])


def maybe(make: Random, share: float, octets: bytes) -> bytes | None:
    return octets if make.random() < share else None


def asked(make: Random) -> dict[str, bytes | None]:
    """The columns of a command; of the two due times most rows have one."""
    shares = dict.fromkeys(TEXTS_OF, 0.6) | {"destination": 0.95, "max_lateness": 0.1}
    shares["deliver_at"], shares["delay"] = make.choice([(0.0, 1.0), (1.0, 0.0), (1.0, 0.1)])
    return {
        name: maybe(make, shares[name], mangled_at_random(make, texts)) for name, texts in TEXTS_OF.items()
    }


def headers_of(make: Random, named: dict[str, bytes | None]) -> Headers | None:
    found: Headers = [(name, value) for name, value in named.items() if value is not None]
    others: list[str | None] = ["trace", "", "wheel-", "wheel-other", "\u202egnp", "a\0b", None]
    found += [(name, maybe(make, 0.8, names(make))) for name in make.sample(others[:-1], make.randrange(3))]
    make.shuffle(found)
    return found if found or make.random() < 0.5 else None


def require_account(rows: list[Row], there: range) -> Counter[str | None]:
    """No row is lost or doubled, each has a known code or obeys the contract; the rows of each code."""
    numbers = [int(row.source.rpartition("/")[2]) for row in rows]
    assert sorted(numbers) == list(there), "in = commands + rejects"
    for row in rows:
        assert row.error_code is None or row.error_code in CODES
        if row.error_code is None:
            require_good(row)
        else:
            assert row.record is not None
            assert len(row.error_message) < 1_500
    return Counter(row.error_code for row in rows)


def require_good(row: Row) -> None:
    assert is_id(row.schedule_id)
    assert -(2**63) <= row.seq < 2**63
    if row.op == 1:
        assert (row.deliver_at_ms, row.destination) == (None, None)
        return
    assert re.fullmatch("orders|a[A-Za-z0-9._-]*|[A-Za-z0-9._-]*-[A-Za-z0-9._-]*", row.destination)
    assert -2_208_988_800_000 <= row.deliver_at_ms < 2**63 // 1_000
    assert row.max_lateness_ms is None or 0 <= row.max_lateness_ms <= TOO_LONG_MS


# --- commands -------------------------------------------------------------------------------------


def test_damaged_columns_are_commands_or_rejects(spark: SparkSession) -> None:
    make = Random(18)
    rows = []
    for number in range(ROWS):
        payload = [maybe(make, 0.3, make.randbytes(9)) for _ in "kv"]
        rows.append(
            (names(make), *asked(make).values(), *payload, headers_of(make, {}), f"f/{number}", number)
        )
    schema = (
        "schedule_id binary, " + ", ".join(f"{name} binary" for name in TEXTS_OF) + ", key binary, value binary, "
        "headers array<struct<key: string, value: binary>>, source_coordinates string, source_seq long"
    )  # fmt: skip
    parsed = parse_commands(spark.createDataFrame(rows, schema), CONTRACT)
    found = require_account(parsed.collect(), range(ROWS))

    assert found[None] > 100
    assert {
        "no_schedule_id",
        "bad_schedule_id",
        "bad_op",
        "bad_seq",
        "bad_deliver_at",
        "bad_delay",
    } <= found.keys()
    assert {"bad_event_time", "bad_destination", "unknown_destination", "two_due_times"} <= found.keys()


def record(offset: int, key: bytes | None, value: bytes | None, headers: Headers | None) -> tuple[Any, ...]:
    return (key, value, "orders", 3, offset, NOON, 0, headers)


def of_records(spark: SparkSession, preset: str, records: list[tuple[Any, ...]]) -> list[Row]:
    frame: DataFrame = spark.createDataFrame(records, RECORDS)
    return parse_commands(kafka_commands(frame, preset), CONTRACT).collect()


def hostile_record(make: Random, preset: str, offset: int) -> tuple[Any, ...]:
    if preset == "json":
        value = mangled_at_random(make, [JSON])
        return record(offset, maybe(make, 0.5, names(make)), maybe(make, 0.95, value), headers_of(make, {}))
    if preset == "scheduler":
        epochs = [b"1767614400", b"-9223372036854775808", b"9223372036854775807", b"9223372036854775", b"1.5"]
        named: dict[str, bytes | None] = {
            "scheduler-epoch": maybe(make, 0.9, mangled_at_random(make, epochs)),
            "scheduler-target-topic": maybe(make, 0.9, mangled_at_random(make, TEXTS_OF["destination"])),
            "scheduler-target-key": maybe(make, 0.5, names(make)),
        }
        return record(offset, maybe(make, 0.9, names(make)), maybe(make, 0.8, b"v"), headers_of(make, named))
    given = {"id": maybe(make, 0.95, names(make))} | asked(make)
    given["target"] = given.pop("destination")
    named = {f"wheel-{name.replace('_', '-')}": value for name, value in given.items()}
    return record(offset, maybe(make, 0.5, names(make)), maybe(make, 0.5, b"v"), headers_of(make, named))


@pytest.mark.parametrize(
    ("preset", "codes"),
    [
        ("native", {"bad_schedule_id", "bad_op", "bad_seq", "bad_delay", "bad_deliver_at", "bad_destination"}),
        ("json", {"unreadable", "no_schedule_id"}),
        ("scheduler", {"bad_schedule_id", "bad_deliver_at", "no_due_time", "bad_destination", "no_destination"}),
    ],
)  # fmt: skip
def test_damaged_records_are_commands_or_rejects(spark: SparkSession, preset: str, codes: set[str]) -> None:
    make = Random(21)
    found = require_account(
        of_records(spark, preset, [hostile_record(make, preset, offset) for offset in range(ROWS)]), range(ROWS)
    )  # fmt: skip

    assert found[None] > 50
    assert codes <= found.keys()


# --- the purgatory --------------------------------------------------------------------------------


def test_damaged_operations_and_events_are_rows_or_rejects(spark: SparkSession) -> None:
    make = Random(18)
    rules = [b"any", b"all", b"n:2", b"sum>=100", b"sum>=1e308", b"n:999999999", b"beat", b" N : 1 "]
    times = TEXTS_OF["delay"] + TEXTS_OF["deliver_at"]
    operations = [
        (
            names(make),
            maybe(make, 0.95, mangled_at_random(make, [b"g"])),
            [maybe(make, 0.98, names(make)) for _ in range(make.randrange(4))],
            maybe(make, 0.8, mangled_at_random(make, rules)),
            maybe(make, 0.95, mangled_at_random(make, times)),
            maybe(make, 0.2, mangled_at_random(make, times)),
            maybe(make, 0.5, mangled_at_random(make, TEXTS_OF["event_time"])),
        )
        for _ in range(ROWS)
    ]
    schema = "op_id binary, group binary, keys array<binary>, rule binary, deadline binary, limit binary, event_time binary"
    events = [
        (
            maybe(make, 0.95, mangled_at_random(make, [b"g"])),
            names(make),
            maybe(make, 0.5, mangled_at_random(make, [b"EVENT", b"cancel", b"CANCEL_OPERATION", b""])),
            maybe(make, 0.5, mangled_at_random(make, [b"1.5", b"-1", b"NaN", b"1e400", b"Infinity"])),
            maybe(make, 0.5, mangled_at_random(make, TEXTS_OF["event_time"])),
        )
        for _ in range(ROWS)
    ]
    of_events = spark.createDataFrame(
        events, "group binary, key binary, op binary, amount binary, event_time binary"
    )
    of_events = of_events.selectExpr("group", "key", "op", "cast(amount as string) amount", "event_time")
    contract = Contract(max_ahead_ms=60_000, max_delay_ms=2**50)
    for parsed in (
        parse_operations(spark.createDataFrame(operations, schema), contract),
        parse_events(of_events, contract),
    ):
        rows = parsed.selectExpr("*", "get_json_object(reject, '$.error_code') AS code").collect()
        found = Counter(row.code for row in rows)
        good = [row for row in rows if row.code is None]

        assert len(rows) == ROWS
        assert found.keys() <= {None, *WATCH_CODES}
        assert min(len(good), len(found)) > 5
        assert all(is_id(row.name) and is_id(row.group) and row.event_time_ms is not None for row in good)
        assert all((row.reject is None) == (row.code is None) for row in rows)
        assert all(0 <= row.amount < float("inf") for row in good)


# --- headers --------------------------------------------------------------------------------------


def test_headers_of_nothing_to_a_mebibyte_pass_or_are_oversize(spark: SparkSession) -> None:
    ours: Headers = [("wheel-id", b"a"), ("wheel-delay", b"1s"), ("wheel-target", b"orders")]
    cases: list[tuple[Headers, str | None]] = [
        ([], None),
        ([("", b"")], None),
        ([("h", None)], None),
        ([("h", b"x" * (MIB - 2))], None),  # with the value of one byte: the bound itself
        ([("h", b"x" * (MIB - 1))], "oversize"),
        ([("h" * (MIB - 1), b"")], None),
        ([("h" * MIB, None)], "oversize"),
        ([("h", b"x" * 1_024)] * 1_000, None),
        ([("h", b"x" * 1_024)] * 1_024, "oversize"),
        ([("", b"")] * 100_000, None),
        # Our own headers are not passed on and count for nothing, however long; what they say is read, or not.
        ([("wheel-other", b"x" * 2 * MIB)], None),
        ([("wheel-id", b"x" * MIB)], "bad_schedule_id"),
        ([("wheel-op", b" " * MIB)], None),
        ([("wheel-op", b"x" * MIB)], "bad_op"),
        ([("wheel-seq", b"9" * MIB)], "bad_seq"),
        ([("wheel-delay", b"9" * MIB + b" ms")], "bad_delay"),
        ([("wheel-delay", b"P" + b"1D" * MIB)], "bad_delay"),
        ([("wheel-target", b"o" * MIB)], "bad_destination"),
        ([("wheel-event-time", b"2" * MIB)], "bad_event_time"),
        ([("wheel-max-lateness", b"0" * MIB)], "bad_max_lateness"),
    ]
    records = [record(offset, None, b"v", [*ours, *headers]) for offset, (headers, _) in enumerate(cases)]
    rows = of_records(spark, "native", records)
    require_account(rows, range(len(cases)))
    passed_on = [0 if row.headers is None else row.headers.count('"value"') for row in rows]

    assert [row.error_code for row in rows] == [code for _, code in cases]
    assert passed_on[:2] == [0, 1]
    assert passed_on[7:10] == [1_000, 1_024, 100_000], "a reject keeps its headers, too"
    assert [len(row.record) < 2_000 for row in rows if row.error_code == "oversize"] == [True] * 3


def test_the_record_of_an_oversize_value_of_json_is_slim_and_its_payload_is_in_its_columns(
    spark: SparkSession,
) -> None:
    value = b'{"schedule_id": "a", "delay": "1s", "destination": "orders", "value": "' + b"x" * MIB + b'"}'
    (row,) = of_records(spark, "json", [record(0, b"k", value, [("h", b"v")])])

    assert (row.error_code, row.value, row.key) == ("oversize", b"x" * MIB, b"k")
    assert json.loads(row.record).keys() >= {"schedule_id", "delay", "destination", "kafka"}
    assert json.loads(row.record)["kafka"].keys() == {"topic", "partition", "offset", "timestamp"}
