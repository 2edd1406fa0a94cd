"""Commands are read a batch at a time, without Spark: whatever is in the batch, each row comes out, good or rejected."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from wheel_udf.commands.command_reader import CommandReader
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.delay_levels import FixedLevels
from wheel_udf.commands.inputs import UnfitTypeError
from wheel_udf.commands.rules import TEXTS
from wheel_udf.commands.time_readers import durations_ms, instants_ms
from wheel_udf.common.durations import parse_duration_ms

NOW_MS = 1_767_614_400_000
"""2026-01-05T12:00Z, the time of each batch."""
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "headers": HEADERS,
    "key": pa.binary(),
    "value": pa.binary(),
    "schedule_id": pa.binary(),
    "source_seq": pa.int64(),
}
TYPES |= dict.fromkeys(["source_event_time", "source_deliver_at"], pa.timestamp("us", "UTC"))
LIMITS = Contract(
    max_delay_ms=10**9,
    max_value_bytes=20,
    destinations=("orders", "a*"),
    max_ahead_ms=10**6,
    levels=FixedLevels(on_beyond="top"),
)


def read(columns: dict[str, pa.Array], contract: Contract | None = None) -> list[dict[str, Any]]:
    rows = len(next(iter(columns.values())))
    places = {name: place for place, name in enumerate(columns) if name != "colour"}
    batch = pa.RecordBatch.from_arrays(
        [*columns.values(), pa.repeat(pa.scalar(NOW_MS, pa.int64()), rows)], names=[*columns, "batch_ms"]
    )
    return CommandReader(tuple(columns), places, contract or Contract()).read(batch).to_pylist()


def of_rows(rows: list[dict[str, Any]], contract: Contract | None = None) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {
        name: pa.array([row.get(name) for row in rows], TYPES.get(name, pa.string())) for name in names
    }
    return read(columns, contract)


def test_a_row_of_each_kind_comes_out_in_its_place() -> None:
    made = of_rows(
        [
            {"schedule_id": b"a", "delay": "10 minutes", "destination": "orders", "value": b"v"},
            {"schedule_id": b"b", "delay": "soon", "destination": "orders", "value": b"\xff"},
            {"schedule_id": b"c", "op": " Cancel", "seq": "7"},
            {"schedule_id": b"d", "deliver_at": "2026-01-06T00:00+01:00", "destination": "orders"},
        ]
    )

    assert [(row["schedule_id"], row["op"], row["seq"], row["deliver_at_ms"]) for row in made] == [
        ("a", 0, NOW_MS, NOW_MS + 600_000),
        ("b", 0, NOW_MS, None),
        ("c", 1, 7, None),
        ("d", 0, NOW_MS, NOW_MS + 11 * 3_600_000),
    ]
    assert [row["error_code"] for row in made] == [None, "bad_delay", None, None]
    assert made[1]["error_message"].startswith("not a duration: delay = 'soon'; rule: ")
    assert json.loads(made[1]["record"]) == {
        "schedule_id": "b",
        "delay": "soon",
        "destination": "orders",
        "value": "base64:/w==",
    }


def test_bytes_that_are_no_utf8_spoil_their_own_row_alone() -> None:
    broken = b"\xff\xfe"
    columns = {
        "schedule_id": pa.array([b"a", broken, b"c", b"d"]),
        "destination": pa.array([b"orders", b"orders", broken, b"orders"]),
        "delay": pa.array([b"5 s", b"5 s", b"5 s", broken]),
    }
    made = read(columns)

    assert [(row["schedule_id"], row["error_code"]) for row in made] == [
        ("a", None),
        (None, "bad_schedule_id"),
        ("c", "bad_destination"),
        ("d", "bad_delay"),
    ]
    assert made[2]["destination"] == "\ufffd\ufffd"
    assert json.loads(made[1]["record"])["schedule_id"] == "base64://4="


def test_a_column_of_an_impossible_type_is_found_on_a_batch_without_rows() -> None:
    columns = {"schedule_id": pa.array([], pa.string()), "deliver_at": pa.array([], pa.int64())}

    with pytest.raises(UnfitTypeError) as fault:
        read(columns)
    assert (fault.value.name, fault.value.rule) == (
        "deliver_at",
        "timestamp, timestamp_ntz, date or ISO 8601 text",
    )


def test_a_record_of_the_future_moved_the_clock_if_no_command_of_its_batch_named_an_event_time() -> None:
    columns = {
        "schedule_id": pa.array([b"a", b"b"]),
        "delay": pa.array(["5 s", "5 s"]),
        "destination": pa.array(["orders", "orders"]),
        "event_time": pa.nulls(2, pa.string()),
        "source_event_time": pa.array([NOW_MS, NOW_MS + 10**7], pa.timestamp("ms", "UTC")),
    }
    made = read(columns, LIMITS)

    assert [(row["event_time_ms"], row["error_code"]) for row in made] == [
        (NOW_MS, None),
        (None, "event_time_ahead"),
    ]


def test_a_row_without_a_version_of_its_source_has_that_of_a_row_without_a_source() -> None:
    command = {
        "schedule_id": pa.array([b"a"]),
        "delay": pa.array(["5 s"]),
        "destination": pa.array(["orders"]),
    }
    (made,) = read(command | {"source_seq": pa.nulls(1, pa.int64())})

    assert (made["seq"], made["seq_given"]) == (NOW_MS, False)


def test_a_number_behind_thousands_of_zeros_stopped_the_batch() -> None:
    long = "0" * 5_000 + "1234567890123456789"
    rows = [
        {"schedule_id": b"a", "delay": "5 s", "destination": "orders", "seq": seq}
        for seq in (long, f"-{long}")
    ]

    assert [row["seq"] for row in of_rows(rows)] == [1234567890123456789, -1234567890123456789]


def test_a_spread_wider_than_a_year_put_an_entry_beyond_all_timestamps() -> None:
    common = {"schedule_id": b"a", "destination": "orders"}
    made = of_rows(
        [
            common | {"delay": "5 s", "spread": "1000000000 weeks"},
            common | {"delay": "5 s", "spread": "367 days"},
            common | {"delay": "5 s", "spread": "366 days"},
            common | {"repeat": "@daily", "spread": "367 days"},
            common | {"deliver_at": "294247-01-10T04:00:54.775Z", "spread": "366 days"},
        ]
    )

    assert [row["error_code"] for row in made] == [
        "bad_spread",
        "bad_spread",
        None,
        "bad_spread",
        "beyond_max_delay",
    ]
    assert "rule: not negative, at most 366 days; " in made[0]["error_message"]


def test_a_series_has_no_delay_level() -> None:
    hours = Contract(levels=FixedLevels(list_ms=(30_000, 3_600_000)))
    common = {"schedule_id": b"a", "destination": "orders", "repeat": "every 1 hour"}
    made = of_rows(
        [
            common | {"delay": "17 s"},
            common | {"starts_at": "2026-01-05T12:00:17Z"},
            common | {"deliver_at": "2026-01-05T15:00:00Z"},
            common | {"repeat": None, "delay": "17 s"},
            common | {"repeat": None, "deliver_at": "2026-01-05T15:00:00Z"},
        ],
        hours,
    )

    assert [(row["error_code"], row["delay_level_ms"], row["level_error_ms"]) for row in made] == [
        (None, None, None),
        (None, None, None),
        (None, None, None),
        (None, 30_000, 13_000),
        ("beyond_levels", None, None),
    ]


def test_starts_at_has_the_bounds_of_deliver_at() -> None:
    common = {"schedule_id": b"a", "destination": "orders", "repeat": "@yearly"}
    days = Contract(max_delay_ms=86_400_000)
    for instant, code in (
        ("3000-01-01", "beyond_max_delay"),
        ("1850-01-01", "due_too_early"),
        ("2026-01-06", None),
        ("1999-01-01", None),
    ):
        made = of_rows([common | {name: instant} for name in ("deliver_at", "starts_at")], days)
        assert [row["error_code"] for row in made] == [code, code]


def test_a_retry_is_of_one_delivery_and_has_no_rule() -> None:
    retry = {
        "schedule_id": b"a",
        "destination": "orders",
        "op": "RETRY",
        "attempt": "1",
        "deliver_at": "2026-01-05",
    }
    made = of_rows([retry | {"repeat": "@daily"}, retry | {"repeat": None}])

    assert [row["error_code"] for row in made] == ["retry_repeats", None]


_TEXTS = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.sampled_from(["5 s", "PT1H", "0", "-1 s", "2026-01-05", "2026-01-05T12:00:00.0001Z", "7", "1e3", ""]),
)
_INSTANTS = st.one_of(
    st.none(),
    st.sampled_from([NOW_MS, NOW_MS + 10**7]).map(lambda ms: datetime.fromtimestamp(ms / 1_000, UTC)),
)
_BYTES = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"a", b"orders"]))
_ROWS = st.lists(
    st.fixed_dictionaries(
        {"schedule_id": _BYTES},
        optional={
            **dict.fromkeys(
                (
                    *("deliver_at", "delay", "event_time", "seq", "max_lateness", "spread", "repeat"),
                    *("time_zone", "starts_at", "until", "count", "attempt", "amend", "failed_at", "error"),
                ),
                _TEXTS,
            ),
            "op": st.one_of(_TEXTS, st.sampled_from(["CANCEL", "retry", "FIRE_NOW"])),
            "destination": st.one_of(_TEXTS, st.sampled_from(["orders", "ab", ".."])),
            "on_missed": st.one_of(_TEXTS, st.just("all")),
            "key": _BYTES,
            "value": _BYTES,
            "headers": st.one_of(
                st.none(),
                st.lists(
                    st.one_of(
                        st.none(), st.fixed_dictionaries({"key": st.text(max_size=3), "value": _BYTES})
                    ),
                    max_size=3,
                ),
            ),
            "colour": _TEXTS,
            **dict.fromkeys(("source_event_time", "source_deliver_at"), _INSTANTS),
            "source_seq": st.one_of(st.none(), st.integers(0, 9)),
        },
    ),
    min_size=1,
    max_size=8,
)


@given(_ROWS, st.sampled_from([Contract(), LIMITS]))
def test_whatever_comes_in_each_row_comes_out_good_or_with_a_reason(
    rows: list[dict[str, Any]], contract: Contract
) -> None:
    made = of_rows(rows, contract)

    assert len(made) == len(rows)
    for row in made:
        if row["error_code"] is None:
            assert (row["error_message"], row["record"]) == (None, None)
            assert row["schedule_id"]
            assert row["op"] != 0 or row["destination"]
        else:
            assert row["error_code"] in TEXTS
            assert row["error_message"]
            assert isinstance(json.loads(row["record"]), dict)


@given(_ROWS)
def test_a_row_is_read_alike_whatever_stands_beside_it(rows: list[dict[str, Any]]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    alone = [of_rows([{name: row.get(name) for name in names}], LIMITS)[0] for row in rows]

    assert of_rows(rows, LIMITS) == alone


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001  # walls
    st.integers(-18 * 60, 18 * 60),
    st.sampled_from(["T", " "]),
)
def test_an_instant_as_text_is_what_python_reads(wall: datetime, zone: int, between: str) -> None:
    sign, (hours, minutes) = "-" if zone < 0 else "+", divmod(abs(zone), 60)
    text = f"{wall.isoformat(between, 'microseconds')}{sign}{hours:02d}:{minutes:02d}"
    instant = wall.replace(tzinfo=timezone(timedelta(minutes=zone)))
    micros = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    for round_up, expected in ((False, micros // 1_000), (True, -(-micros // 1_000))):
        assert instants_ms(pa.array([text]), round_up=round_up).to_pylist() == [expected]


@given(st.integers(0, 10**12), st.sampled_from(["ms", "s", "minutes", "h", "days", "w"]), st.booleans())
def test_a_duration_read_all_at_once_is_what_the_grammar_says(number: int, unit: str, joined: bool) -> None:
    text = f"{number}{'' if joined else ' '}{unit}"

    assert durations_ms(pa.array([text, None])).to_pylist() == [parse_duration_ms(text), None]
