"""Kafka records as commands, a batch at a time: records in, columns out. No Spark.

What becomes of them in a frame: ``tests/spark/commands/test_kafka_presets.py``, ``test_header_names.py``.
"""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from wheel_udf.commands.command_reader import CommandReader
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.header_names import NO_NAMES, HeaderNames
from wheel_udf.commands.in_turn import InTurn, Reader
from wheel_udf.commands.inputs import UnfitTypeError
from wheel_udf.commands.record_reader import RECORD, NativeReader, SchedulerReader

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "Europe/Paris"), "headers": HEADERS, "batch_ms": pa.int64(),
}  # fmt: skip
SAID = datetime(2026, 1, 1, 10, tzinfo=UTC)

Headers = list[tuple[str | None, bytes | None] | None] | None


def record(headers: Headers, key: bytes | None = b"k", value: bytes | None = b"v") -> tuple[Any, ...]:
    return (key, value, "orders", 3, 7, SAID, headers, 0)


def batch(*records: tuple[Any, ...]) -> pa.RecordBatch:
    columns = zip(*records, strict=True) if records else ((),) * len(TYPES)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, TYPES.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


def column(reader: Reader, name: str, *headers: Headers) -> list[Any]:
    """A column of records with these headers."""
    values: list[Any] = reader.read(batch(*map(record, headers))).column(name).to_pylist()
    return values


def native(**names: Any) -> NativeReader:
    return NativeReader(HeaderNames(**names))


# --- headers --------------------------------------------------------------------------------------


def test_a_header_is_a_column_and_a_record_without_it_has_null() -> None:
    rows = column(
        native(), "schedule_id", [("x", b"1"), ("wheel-id", b"a")], [("Wheel-Id", b"b")], [], None, [("wheel-id", None)]
    )  # fmt: skip
    assert rows == [b"a", None, None, None, None]


def test_of_repeated_headers_native_takes_the_last_and_scheduler_the_first() -> None:
    twice: Headers = [("wheel-id", b"a"), ("wheel-id", b"b"), ("x", None)]
    none_last: Headers = [("wheel-id", b"a"), ("wheel-id", None)]
    assert column(native(), "schedule_id", twice, none_last) == [b"b", None]
    topics: Headers = [("scheduler-target-topic", b"a"), ("scheduler-target-topic", b"b")]
    none_first: Headers = [("scheduler-target-topic", None), *(topics or [])]
    assert column(SchedulerReader(), "destination", topics, none_first) == [b"a", None]


def test_headers_of_others_are_passed_on_in_their_order_and_none_is_null() -> None:
    rows = column(
        native(due_from="header:eta"),
        "headers",
        [("b", b"1"), ("wheel-id", b"a"), ("a", None), ("eta", b"0"), ("b", b"2"), ("eta2", b"3")],
        [("wheel-", b"1"), ("eta", b"0")],
        [("wheel", b"1")],
        [],
        None,
    )
    assert rows == [
        [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b"2"}, {"key": "eta2", "value": b"3"}],
        None,
        [{"key": "wheel", "value": b"1"}],
        None,
        None,
    ]  # fmt: skip


def test_a_header_without_a_name_and_one_that_is_null_are_no_headers() -> None:
    headers: Headers = [None, (None, b"x"), ("wheel-id", b"a")]
    assert column(native(), "schedule_id", headers) == [b"a"]
    assert column(native(), "headers", headers) == [None]


def test_a_name_that_is_no_utf8_is_another_name() -> None:
    names = pa.array([b"wheel-id", b"wheel-id\xff", b"\xffwheel-id"]).view(pa.string())
    pairs = pa.StructArray.from_arrays([names, pa.array([b"a", b"b", b"c"])], fields=list(HEADERS.value_type))
    headers = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), pairs, type=HEADERS)
    read = batch(record(None))
    made = native().read(read.set_column(RECORD.index("headers"), "headers", headers))
    assert made.column("schedule_id").to_pylist() == [b"a"]
    (passed_on,) = made.column("headers")
    assert [each[0].as_buffer().to_pybytes() for each in passed_on.values] == [b"\xffwheel-id"]


def test_columns_of_a_series_are_read_beside_repeat_and_those_of_a_retry_beside_attempt() -> None:
    headers: Headers = [("wheel-count", b"3"), ("wheel-error", b"503"), ("wheel-spread", b"1s")]
    both: Headers = [*(headers or []), ("wheel-repeat", None), ("wheel-attempt", b"1")]
    assert column(native(), "count", headers, both) == [None, b"3"]
    assert column(native(), "error", headers, both) == [None, b"503"]
    assert column(native(), "spread", headers, both) == [b"1s", b"1s"]


# --- instants -------------------------------------------------------------------------------------

EPOCHS = [
    (b"0", "1970-01-01 00:00:00Z"),
    (b" -1\n", "1969-12-31 23:59:59.999Z"),
    (b"+1767225600120", "2026-01-01 00:00:00.12Z"),
    (b"000000000000000000005", "1970-01-01 00:00:00.005Z"),
    (b"-1767225600", "1969-12-11 13:06:14.4Z"),
    (b"-62135596800001", "0000-12-31 23:59:59.999Z"),
    (b"253402300800000", "+10000-01-01 00:00:00Z"),
    (b"-9223372036854775", "-290308-12-21 19:59:05.225Z"),
]
NO_EPOCHS = [
    b"1767225600", b"1767225600123456", b"-9223372036854776", b"-9223372036854775809", b"1" * 400, b"-" + b"1" * 400,
    b"1.5", b"0x1f", b"1 2", b"+", b"", b"\xff", "\u0663".encode(), b"2026-01-01",
]  # fmt: skip


def test_a_whole_number_is_an_instant_in_ms_and_the_text_stays() -> None:
    texts = [text for text, _ in EPOCHS]
    made = native().read(batch(*(record([("wheel-deliver-at", text)]) for text in texts)))
    numbers = [0, -1, 1_767_225_600_120, 5, -1_767_225_600, -62_135_596_800_001, 253_402_300_800_000]
    read_us = made.column("source_deliver_at").cast(pa.int64()).to_pylist()
    assert read_us == [number * 1_000 for number in (*numbers, -9_223_372_036_854_775)]
    assert made.column("deliver_at").to_pylist() == [text.decode() for text in texts]


def test_the_begin_of_a_series_is_text_whatever_it_was() -> None:
    headers: list[Headers] = [[("wheel-repeat", b"@daily"), ("wheel-starts-at", text)] for text, _ in EPOCHS]
    iso: Headers = [("wheel-repeat", b"@daily"), ("wheel-starts-at", b"2026-01-01")]
    assert column(native(), "starts_at", *headers, iso) == [*(text for _, text in EPOCHS), "2026-01-01"]


def test_another_unit_another_text_and_an_instant_beyond_all_timestamps_are_none() -> None:
    headers: list[Headers] = [[("wheel-deliver-at", text)] for text in NO_EPOCHS]
    assert column(native(), "source_deliver_at", *headers) == [None] * len(NO_EPOCHS)


def test_the_time_of_the_record_counts_where_no_header_has_one() -> None:
    headers: list[Headers] = [[("wheel-event-time", text)] for text in (b"0", b"soon", None)]
    rows = column(native(), "source_event_time", *headers, None)
    assert rows == [datetime(1970, 1, 1, tzinfo=UTC), None, SAID, SAID]


def test_seconds_of_the_scheduler_become_text_and_other_text_gets_a_name_that_no_instant_has() -> None:
    texts = [b"1767225600", b"-1", b"999999999999", b"1767225600123", b"\xc3\xa9", None]
    rows = column(SchedulerReader(), "deliver_at", *([("scheduler-epoch", text)] for text in texts))
    assert rows == [
        "2026-01-01 00:00:00Z",
        "1969-12-31 23:59:59Z",
        "+33658-09-27 01:46:39Z",
        "scheduler-epoch 1767225600123, not whole seconds",
        "scheduler-epoch \u00e9, not whole seconds",
        None,
    ]


# --- other systems --------------------------------------------------------------------------------

DELAYS: list[bytes | None] = [b"5000", b" +1.5 ", b"5 s", b"null", b" NULL\t", b"", b"\xff5", b"3", None]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (None, [b"5000", b" +1.5 ", b"5 s", None, None, None, b"\xff5", b"3", None]),
        ("ms", [b"5000 ms", b"+1.5 ms", b"5 s", None, None, None, b"\xff5", b"3 ms", None]),
        ("level", [b"level 5000", b"level +1.5", b"5 s", None, None, None, b"\xff5", b"10000 ms", None]),
    ],
)
def test_a_number_gets_the_unit_of_its_setting_and_what_is_blank_is_missing(
    unit: str | None, expected: list[bytes | None]
) -> None:
    headers: list[Headers] = [[("x-delay", text)] for text in DELAYS]
    assert column(native(delay_from="header:x-delay", delay_unit=unit), "delay", *headers) == expected


def test_headers_of_the_wheel_come_before_those_of_others_but_for_null_ones() -> None:
    both: Headers = [("id", b"theirs"), ("wheel-id", b"ours")]
    rows = column(
        native(id_from="header:id"), "schedule_id", both, [("id", b"theirs"), ("wheel-id", None)], None
    )
    assert rows == [b"ours", b"theirs", None]


def test_an_id_may_be_the_key_or_the_place_of_the_record_and_a_version_a_constant() -> None:
    assert column(native(id_from="key"), "schedule_id", None) == [b"k"]
    made = native(id_from="offset", seq_from="constant", key_from="header:c").read(
        batch(record(None), record([("c", b"customer")]))
    )
    assert made.column("schedule_id").to_pylist() == [b"orders/3/7"] * 2
    assert made.column("seq").to_pylist() == [b"0", b"0"]
    assert made.column("key").to_pylist() == [b"k", b"customer"]
    assert made.column("kafka")[1]["key"].as_py() == b"k"


# --- the whole ------------------------------------------------------------------------------------


def test_the_record_is_kept_but_for_what_other_columns_hold() -> None:
    made = native().read(batch(record([("wheel-id", b"a")])))
    assert made.column("source_coordinates").to_pylist() == ["orders/3/7"]
    assert made.column("source_seq").to_pylist() == [7]
    assert made.column("kafka").to_pylist() == [
        {"topic": "orders", "partition": 3, "offset": 7, "timestamp": SAID, "headers": [{"key": "wheel-id", "value": b"a"}]}
    ]  # fmt: skip
    assert made.schema.field("kafka").type.field("timestamp").type == pa.timestamp("us", "UTC")


def test_a_null_value_cancels_in_the_scheduler_preset() -> None:
    made = SchedulerReader().read(batch(record(None, value=None), record(None)))
    assert made.column("op").to_pylist() == ["CANCEL", None]


@pytest.mark.parametrize("reader", [NativeReader(NO_NAMES), SchedulerReader()])
def test_a_batch_of_no_records_and_a_part_of_a_batch_have_the_same_columns(reader: Reader) -> None:
    whole = batch(
        *(record([("wheel-id", each), ("scheduler-epoch", b"1"), ("x", each)]) for each in (b"a", b"b", b"c"))
    )
    made = reader.read(whole)
    assert reader.read(batch()).schema == made.schema
    assert reader.read(whole.slice(1, 1)).to_pylist() == made.to_pylist()[1:2]


def test_columns_that_are_not_those_of_the_connector_are_named_with_their_rule() -> None:
    texts = pa.array(["a"])
    for name in ("headers", "timestamp"):
        with pytest.raises(UnfitTypeError) as found:
            native().read(batch(record(None)).set_column(RECORD.index(name), name, texts))
        assert found.value.name == name


def test_records_are_read_as_commands_in_one_turn_after_a_journey_to_a_worker() -> None:
    first = native()
    names = tuple(first.read(batch()).schema.names)
    second = CommandReader(names, {name: at for at, name in enumerate(names) if name != "kafka"}, Contract())
    both: Reader = pickle.loads(pickle.dumps(InTurn(first, second)))
    headers: Headers = [("wheel-id", b"a"), ("wheel-delay", b"1 s"), ("wheel-target", b"out"), ("x", b"1")]
    (row,) = both.read(batch(record(headers))).to_pylist()
    assert (row["schedule_id"], row["deliver_at_ms"], row["seq"]) == ("a", 1_767_261_601_000, 7)
    assert (row["headers"], row["error_code"]) == ('[{"key":"x","value":"MQ=="}]', None)
