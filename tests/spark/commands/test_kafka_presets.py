"""Kafka records as commands: what each preset reads, what travels, and that no record can stop the stream. No broker."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from pyspark.sql import Row, SparkSession

from wheel_udf.commands.contract import Contract
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.parse import parse_commands
from wheel_udf.common.errors import ConfigError

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
SAID = datetime(2026, 1, 1, 10, 0, 0, 5_000, tzinfo=UTC)
SAID_MS = 1_767_261_600_005
LAST_MS = 9_223_372_036_854_775  # what a timestamp can hold, in ms

GOOD = '{"schedule_id": "a", "delay": "1s", "destination": "out"'  # a good value of json but for its end

Headers = list[tuple[str, bytes | None]]


def record(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers | None = None, offset: int = 7
) -> tuple[Any, ...]:
    return (key, value, "orders", 3, offset, SAID, 0, headers)


def wheel(**named: bytes | None) -> Headers:
    """Headers of the native preset, after one of somebody else's."""
    return [
        ("trace", b"\xff"),
        *((f"wheel-{name.replace('_', '-')}", value) for name, value in named.items()),
    ]


def commands(spark: SparkSession, preset: str, *records: tuple[Any, ...]) -> list[Row]:
    return kafka_commands(spark.createDataFrame(list(records), SCHEMA), preset).collect()


def parsed(spark: SparkSession, preset: str, *records: tuple[Any, ...], **limits: Any) -> list[Row]:
    """The records as rows of the wheel or rejects; no limit on how far away a due time is."""
    frame = kafka_commands(spark.createDataFrame(list(records), SCHEMA), preset)
    rows = parse_commands(frame, Contract(**({"max_delay_ms": None} | limits))).collect()
    assert len(rows) == len(records)
    return rows


# --- native ---------------------------------------------------------------------------------------


def test_native_reads_every_header_and_leaves_the_rest_untouched(spark: SparkSession) -> None:
    headers = wheel(
        id=b"a",
        op=b"replace",
        seq=b"12",
        deliver_at=b"2026-01-02T00:00:00.123Z",
        target=b"out",
        max_lateness=b"1 hour",
        event_time=b"1767225600123",
    )
    (row,) = parsed(spark, "native", record(b"\x00k", b"\xffv", [*headers, ("z", None)]))
    assert (row.schedule_id, row.op, row.seq, row.seq_given) == ("a", 0, 12, True)
    assert (row.deliver_at_ms, row.event_time_ms) == (1_767_312_000_123, 1_767_225_600_123)
    assert (row.destination, row.max_lateness_ms) == ("out", 3_600_000)
    assert (bytes(row.key), bytes(row.value)) == (b"\x00k", b"\xffv")
    assert json.loads(row.headers) == [{"key": "trace", "value": "/w=="}, {"key": "z"}]
    assert (row.error_code, row.source) == (None, "orders/3/7")


def test_native_without_seq_and_event_time_takes_offset_and_timestamp_of_the_record(
    spark: SparkSession,
) -> None:
    (row,) = parsed(spark, "native", record(headers=wheel(id=b"a", delay=b"5s", target=b"out"), offset=41))
    assert (row.seq, row.seq_given, row.event_time_ms, row.deliver_at_ms) == (
        41,
        False,
        SAID_MS,
        SAID_MS + 5_000,
    )


def test_native_cancels_and_a_null_value_alone_does_not(spark: SparkSession) -> None:
    cancel, empty = parsed(
        spark,
        "native",
        record(headers=wheel(id=b"a", op=b"CANCEL")),
        record(value=None, headers=wheel(id=b"a", delay=b"0", target=b"out")),
    )
    assert (cancel.op, cancel.error_code) == (1, None)
    assert (empty.op, empty.error_code, empty.value) == (0, None, None)


INSTANTS = [
    (b"0", 0),
    (b"-1", -1),
    (b" 1767225600123 ", 1_767_225_600_123),
    (b"+5", 5),
    (b"20260101", 20_260_101),
    (b"00000000000000000000", 0),
    (b"999999999", 999_999_999),
    (b"10000000000", 10_000_000_000),
    (b"999999999999999", 999_999_999_999_999),
    (b"-1767225600", -1_767_225_600),
    (b"-2208988800000", -2_208_988_800_000),
    (b"2026-01-01", 1_767_225_600_000),
    (b"2026-01-01T00:00:00.0001Z", 1_767_225_600_001),
]


def test_native_takes_whole_numbers_as_epoch_ms_and_other_texts_as_iso(spark: SparkSession) -> None:
    headers = [wheel(id=b"a", deliver_at=text, target=b"out") for text, _ in INSTANTS]
    rows = parsed(spark, "native", *(record(headers=each) for each in headers))
    assert [(row.deliver_at_ms, row.error_code) for row in rows] == [(due_ms, None) for _, due_ms in INSTANTS]


def test_the_record_of_a_reject_has_the_instants_as_the_producer_wrote_them(spark: SparkSession) -> None:
    headers = wheel(id=b"a", deliver_at=b"1767225600123", event_time=b"1767225600000")
    (row,) = parsed(spark, "native", record(headers=headers))
    written = json.loads(row.record)
    assert (row.error_code, row.event_time_ms) == ("no_destination", 1_767_225_600_000)
    assert (written["deliver_at"], written["event_time"]) == ("1767225600123", "1767225600000")


@pytest.mark.parametrize("preset", ["native", "scheduler"])
@pytest.mark.parametrize(
    "more",
    [[], [("x", b"1")], [("wheel-id", b"b"), ("x", b"1")], [("wheel-nothing", b"1")], [("wheel-id", b"b")]],
    ids=["none", "another", "another and one twice", "one that nobody reads", "one twice"],
)
def test_headers_of_others_are_passed_on_and_no_others(
    spark: SparkSession, preset: str, more: list[tuple[str, bytes]]
) -> None:
    names = (
        ("wheel-id", "wheel-delay", "wheel-target")
        if preset == "native"
        else ("scheduler-epoch", "scheduler-target-topic")
    )
    (row,) = commands(spark, preset, record(headers=[*((name, b"1") for name in names), *more]))
    expected = [("x", b"1")] if ("x", b"1") in more else None
    assert (row.headers and [(each.key, bytes(each.value)) for each in row.headers]) == expected


OTHER_UNITS = [
    b"1767225600",
    b" +1000000000 ",
    b"9999999999",
    b"001767225600",
    b"1767225600123456",
    b"1767225600123456789",
]
NO_INSTANTS = [
    *OTHER_UNITS,
    str(LAST_MS + 1).encode(),
    str(-LAST_MS - 1).encode(),
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"1" * 400,
    b"1.5",
    b"1e3",
    b"tomorrow",
    b"",
    b"\xff\xfe",
]


def test_native_rejects_instants_that_cannot_be_read_or_held(spark: SparkSession) -> None:
    due = [wheel(id=b"a", deliver_at=text, target=b"out") for text in NO_INSTANTS]
    said = [wheel(id=b"a", delay=b"1s", event_time=text, target=b"out") for text in NO_INSTANTS]
    rows = parsed(spark, "native", *(record(headers=each) for each in (*due, *said)))
    assert {(row.error_code, row.deliver_at_ms) for row in rows[: len(due)]} == {("bad_deliver_at", None)}
    assert {(row.error_code, row.event_time_ms) for row in rows[len(due) :]} == {("bad_event_time", None)}


@pytest.mark.parametrize("field", ["deliver_at", "event_time"])
def test_seconds_taken_for_milliseconds_were_due_at_once(spark: SparkSession, field: str) -> None:
    headers = {"id": b"a", "target": b"out", field: b"1767225600"}
    headers |= {"delay": b"1 hour"} if field == "event_time" else {}
    (row,) = parsed(spark, "native", record(headers=wheel(**headers)))
    assert (row.error_code, row.deliver_at_ms) == (f"bad_{field}", None)
    assert f"not an instant: {field} = '1767225600'; rule: " in row.error_message
    assert "take milliseconds (10 digits look like seconds)" in row.error_message


def test_a_delivery_sent_again_with_its_own_headers_is_rejected_with_the_way_out(spark: SparkSession) -> None:
    headers = wheel(
        id=b"a", fire_id=b"f", deliver_at=b"2026-01-01T10:00:00.000Z", seq=b"7", delay=b"5 minutes"
    )
    (row,) = parsed(spark, "native", record(headers=headers))
    assert row.error_message == (
        "two due times: delay beside deliver_at = '5 minutes'; rule: exactly one of deliver_at and delay; "
        "hint: to schedule a delivery again drop its wheel-* headers (wheel_udf.client.kafka.put_back)"
    )


def test_native_holds_a_far_due_time_to_the_limit_of_the_contract(spark: SparkSession) -> None:
    headers = wheel(id=b"a", deliver_at=b"999999999999999", target=b"out")
    (row,) = parsed(spark, "native", record(headers=headers), max_delay_ms=1_000)
    assert row.error_code == "beyond_max_delay"


BROKEN = [
    (None, "no_schedule_id"),
    ([], "no_schedule_id"),
    ([("Wheel-Id", b"a")], "no_schedule_id"),
    (wheel(id=None, delay=b"1s", target=b"out"), "no_schedule_id"),
    (wheel(id=b"", delay=b"1s", target=b"out"), "no_schedule_id"),
    (wheel(id=b"\xff\xfe", delay=b"1s", target=b"out"), "bad_schedule_id"),
    (wheel(id=b"a\x00", delay=b"1s", target=b"out"), "bad_schedule_id"),
    (wheel(id=b"a", op=b"\xff"), "bad_op"),
    (wheel(id=b"a", seq=b"1.5", delay=b"1s", target=b"out"), "bad_seq"),
    (wheel(id=b"a", seq=b"9223372036854775808", delay=b"1s", target=b"out"), "bad_seq"),
    (wheel(id=b"a", seq=b"", delay=b"1s", target=b"out"), "bad_seq"),
    (wheel(id=b"a", target=b"out"), "no_due_time"),
    (wheel(id=b"a", deliver_at=None, target=b"out"), "no_due_time"),
    (wheel(id=b"a", deliver_at=b"0", delay=b"1s", target=b"out"), "two_due_times"),
    (wheel(id=b"a", delay=b"\xff", target=b"out"), "bad_delay"),
    (wheel(id=b"a", delay=b"1s"), "no_destination"),
    (wheel(id=b"a", delay=b"1s", target=b"\xff"), "bad_destination"),
    (wheel(id=b"a", delay=b"1s", target=b"out", max_lateness=b"x"), "bad_max_lateness"),
]


def test_native_rejects_what_breaks_the_contract_with_its_code(spark: SparkSession) -> None:
    rows = parsed(spark, "native", *(record(headers=headers) for headers, _ in BROKEN))
    assert [row.error_code for row in rows] == [code for _, code in BROKEN]


def test_native_takes_the_last_of_two_headers_as_kafka_does(spark: SparkSession) -> None:
    twice = [*wheel(id=b"first", delay=b"1s", target=b"out"), ("wheel-id", b"last")]
    none_last = [*wheel(id=b"first", delay=b"1s", target=b"out"), ("wheel-id", None)]
    good, bad = parsed(spark, "native", record(headers=twice), record(headers=none_last))
    assert (good.schedule_id, bad.error_code) == ("last", "no_schedule_id")


def test_headers_that_are_all_ours_leave_none(spark: SparkSession) -> None:
    rows = commands(
        spark, "native", record(headers=[("wheel-id", b"a")]), record(headers=[]), record(headers=None)
    )
    assert [row.headers for row in rows] == [None, None, None]


def test_a_reject_of_native_records_all_that_the_record_was(spark: SparkSession) -> None:
    headers = [("wheel-id", b"x"), *wheel(id=b"\xff", deliver_at=b"0"), ("empty", None)]
    (row,) = parsed(spark, "native", record(None, b"\xfe", headers, offset=9))
    told = json.loads(row.record)
    assert told["value"] == "base64:/g=="
    assert "key" not in told
    assert told["kafka"] == {
        "topic": "orders",
        "partition": 3,
        "offset": 9,
        "timestamp": "2026-01-01T10:00:00.005000Z",
        "headers": [
            {"key": "wheel-id", "value": "x"},
            {"key": "trace", "value": "base64:/w=="},
            {"key": "wheel-id", "value": "base64:/w=="},
            {"key": "wheel-deliver-at", "value": "0"},
            {"key": "empty"},
        ],
    }
    assert row.source == "orders/3/9"


# --- json -----------------------------------------------------------------------------------------


def json_record(**fields: Any) -> tuple[Any, ...]:
    return record(b"rk", json.dumps(fields).encode(), [("h", b"1"), ("wheel-x", b"2")])


def test_json_reads_every_field(spark: SparkSession) -> None:
    (row,) = parsed(
        spark,
        "json",
        json_record(
            schedule_id="a",
            op="schedule",
            seq=7,
            deliver_at="2026-01-02T00:00Z",
            event_time="2026-01-01",
            destination="out",
            key="kk",
            value="caf\u00e9",
            headers={"x": "y", "n": 5, "z": None, "wheel-id": "q"},
            max_lateness="1 hour",
            other={"ignored": True},
        ),
    )
    assert (row.schedule_id, row.op, row.seq, row.seq_given) == ("a", 0, 7, True)
    assert (row.deliver_at_ms, row.event_time_ms) == (1_767_312_000_000, 1_767_225_600_000)
    assert (row.destination, row.max_lateness_ms, row.error_code) == ("out", 3_600_000, None)
    assert (bytes(row.key), bytes(row.value)) == (b"kk", b"caf\xc3\xa9")
    assert json.loads(row.headers) == [
        {"key": "x", "value": "eQ=="},
        {"key": "n", "value": "NQ=="},
        {"key": "z"},
    ]


def test_json_defaults_come_from_the_record(spark: SparkSession) -> None:
    for nulls in ({}, {"key": None, "headers": None, "event_time": None, "seq": None, "value": None}):
        (row,) = parsed(spark, "json", json_record(schedule_id="a", delay="5s", destination="out", **nulls))
        assert (row.seq, row.seq_given, row.event_time_ms) == (7, False, SAID_MS)
        assert row.deliver_at_ms == SAID_MS + 5_000
        assert (bytes(row.key), row.value) == (b"rk", None)
        assert json.loads(row.headers) == [{"key": "h", "value": "MQ=="}]


VALUES = [
    ('"text"', b"text"),
    ('""', b""),
    ('"null"', b"null"),
    ("null", None),
    ("5", b"5"),
    ("true", b"true"),
    (r'"\u0000\n"', b"\x00\n"),
    (r'"{\"n\": 0.10}"', b'{"n": 0.10}'),
    (r'"\ud83d\ude00\ud83d"', "\U0001f600?".encode()),
]
WRITTEN = [
    "0.10",
    "-0",
    "1E400",
    "12345678901234567890.123456789",
    "9" * 1_000,
    '{"n": [0.10, {"m" : -0}], "n": 1E400 ,\t"e": { }}',
    "[ 1,\r\n\t[ ] , [[ 2.0 ]], null ]",
    r'{"\u0041\/": "\u0041\/\ud83d\ude00\ud800", "\"}": "]\\"}',
    '{"a": "\U0001f600\u2028\uffff"}',
    '{"value": 1.0, "headers": {"x": 2.0}, "a": ", \\"value\\": 3.0"}',
    "[" * 990 + " 0.10 " + "]" * 990,
    '["' + '\\"' * 100_000 + '", 0.10]',
]
"""JSON that Spark would write in another way."""


def test_json_values_are_text_or_the_json_of_what_is_no_text(spark: SparkSession) -> None:
    texts = [f'{GOOD}, "value": {value}}}' for value, _ in VALUES]
    rows = parsed(spark, "json", *(record(value=text.encode()) for text in texts))
    assert [row.value and bytes(row.value) for row in rows] == [expected for _, expected in VALUES]
    assert {row.error_code for row in rows} == {None}


def test_json_that_is_no_text_was_written_anew_with_other_numbers_and_without_white_space(
    spark: SparkSession,
) -> None:
    frames = (
        '{{"schedule_id": 0.10, "value": {0}, "key": {0}, "headers": {{"wheel-x": {0}, "b": {0}, "b": "{{", "n": null}}}}',
        '\n{{ "headers" :[ {{"key": "b" , "value" : {0} }}, {{"value": "{{", "key": "b"}},{{"key": "n"}}], "value": "x", "k\\u0065y":{0},"\\u0076alue"\t:\t{0}\t,"schedule_id": 0.10 }} ',
        '{{"schedule_id": 0.10, "value": "value", "key": {0}, "headers": {{"b": {0}, "b": "{{", "n": null}}, "value": {0}}}',
    )
    texts = [(json_, frame.format(json_)) for json_ in WRITTEN for frame in frames]
    rows = commands(spark, "json", *(record(value=text.encode()) for _, text in texts))
    for (json_, text), row in zip(texts, rows, strict=True):
        octets = json_.encode()
        assert (row.schedule_id, bytes(row.value), bytes(row.key)) == ("0.10", octets, octets), text
        assert [tuple(each) for each in row.headers] == [("b", octets), ("b", b"{"), ("n", None)], text


BLANKS = st.text(" \t\r\n", max_size=2)
ESCAPES = [*(rf"\{each}" for each in '"\\/bfnrt'), r"\u0041", r"\u0000", r"\uD83D\uDE00", r"\ud800"]
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32)
TEXTS = st.lists(CHARACTERS | st.sampled_from(ESCAPES) | st.sampled_from("{}[]:,"), max_size=6).map(
    lambda parts: f'"{"".join(parts)}"'
)
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


def spaced(*parts: Any) -> st.SearchStrategy[str]:
    return st.tuples(*(part if isinstance(part, st.SearchStrategy) else st.just(part) for part in parts)).map(
        "".join
    )


def listed(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(elements, max_size=3).map(",".join)


JSON = st.recursive(
    TEXTS | NUMBERS | st.sampled_from(["null", "true", "false"]),
    lambda inner: (
        spaced("[", listed(spaced(BLANKS, inner, BLANKS)), BLANKS, "]")
        | spaced("{", listed(spaced(BLANKS, TEXTS, BLANKS, ":", BLANKS, inner, BLANKS)), BLANKS, "}")
    ),
    max_leaves=8,
)


def octets_of(json_: str) -> bytes | None:
    """What is delivered of a field."""
    if json_.startswith('"'):
        return re.sub("[\ud800-\udfff]", "?", json.loads(json_)).encode()
    return None if json_ == "null" else json_.encode()


@given(st.lists(st.tuples(JSON, JSON, JSON, BLANKS), min_size=5, max_size=40))
# Each example is a query of its own: few, with many records, and no search for a smaller one.
@settings(max_examples=12, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_what_a_producer_writes_as_json_arrives_byte_for_byte(
    spark: SparkSession, cases: list[tuple[str, str, str, str]]
) -> None:
    texts = [
        f'{b}{{"value"{b}:{b}{first}{b},"schedule_id":"value","headers":{{{b}"a"{b}:{b}{second}{b},"b":{third}}}{b},"value":{third}{b}}}'
        for first, second, third, b in cases
    ]
    rows = commands(spark, "json", *(record(value=text.encode()) for text in texts))
    for text, row, (_, second, third, _) in zip(texts, rows, cases, strict=True):
        assert row._corrupt_record is None, text
        found = [row.value, *(each.value for each in row.headers)]
        expected = [octets_of(third), octets_of(second), octets_of(third)]
        assert [each and bytes(each) for each in found] == expected, text


def test_json_ids_may_be_numbers_and_instants_may_not(spark: SparkSession) -> None:
    number, epoch = parsed(
        spark,
        "json",
        json_record(schedule_id=42, delay="1s", destination="out"),
        json_record(schedule_id="a", deliver_at=1_767_225_600_123, destination="out"),
    )
    assert (number.schedule_id, epoch.error_code) == ("42", "bad_deliver_at")


UNREADABLE = [
    b"",
    b" ",
    b"null",
    b"5",
    b'"text"',
    b"[]",
    f"[{GOOD}}}]".encode(),
    b"{",
    f"{GOOD}".encode(),
    f"{GOOD}}} and more".encode(),
    f"{GOOD}}}{GOOD}}}".encode(),
    f"{GOOD}}}, {GOOD}}}".encode(),
    f"{GOOD}}}]".encode(),
    b"{'schedule_id': 'a'}",
    b"{schedule_id: 1}",
    f'{GOOD}, "value": NaN}}'.encode(),
    f'{GOOD}, "headers": "x"}}'.encode(),
    f'{GOOD}, "headers": [1]}}'.encode(),
    f'{GOOD}, "headers": 5}}'.encode(),
    f'{GOOD}, "headers": [null]}}'.encode(),
    f'{GOOD}, "headers": [{{"value": "x"}}]}}'.encode(),
    f'{GOOD}, "value": {{"n": 01}}}}'.encode(),
    f'{GOOD}, "value": [0.10,]}}'.encode(),
    f'{GOOD}, "value": {{"a": "\t"}}}}'.encode(),
    GOOD.encode() + b', "value": {"a": "\x00"}}',
    GOOD.encode() + b', "value": {"a": "\xff"}}',
    GOOD.encode() + b', "value": {"a": "\xed\xa0\x80"}}',
    GOOD.encode() + b', "value": "\xff"}',
    b'\xef\xbb\xbf{"schedule_id": "a"}',
    b'\xff{"schedule_id": "a"}',
    b'{"schedule_id": "\xff"}',
    GOOD.encode() + b', "value": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    GOOD.encode() + b', "value": ' + b"9" * 3_000 + b"}",
    b"\x00",
]


def test_what_is_not_one_json_object_is_unreadable_and_keeps_its_own_payload(spark: SparkSession) -> None:
    headers = [("wheel-x", b"2"), ("h", b"1")]
    *rows, good = parsed(
        spark,
        "json",
        *(record(b"rk", value, headers) for value in UNREADABLE),
        record(value=f"{GOOD}}}".encode()),
    )
    assert [bytes(row.value) for row in rows] == UNREADABLE
    told = {(row.error_code, row.schedule_id, bytes(row.key), row.event_time_ms) for row in rows}
    assert told == {("unreadable", None, b"rk", SAID_MS)}
    assert good.error_code is None


def test_a_null_value_is_no_json(spark: SparkSession) -> None:
    (row,) = parsed(spark, "json", record(value=None))
    assert (row.error_code, row.value) == ("unreadable", None)


def test_a_text_that_is_not_utf8_is_told_in_base64(spark: SparkSession) -> None:
    (row,) = commands(spark, "json", record(value=b"\xff{}"))
    assert row._corrupt_record == "base64:/3t9"


def test_a_reject_of_json_records_the_value_as_it_came(spark: SparkSession) -> None:
    text = f'{GOOD}, "seq": "x", "value": {{"n": 1.50}}, "more": 1}}'
    (row,) = parsed(spark, "json", record(b"rk", text.encode(), [("h", b"1"), ("wheel-x", b"2")]))
    assert row.error_code == "bad_seq"
    assert json.loads(row.record)["kafka"] == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": "2026-01-01T10:00:00.005000Z",
        "key": "rk",
        "value": text,
        "headers": [{"key": "h", "value": "1"}, {"key": "wheel-x", "value": "2"}],
    }


# --- scheduler ------------------------------------------------------------------------------------


def scheduler(epoch: bytes | None = b"1767225600", target_key: bytes | None = b"tk") -> Headers:
    return [
        ("scheduler-epoch", epoch),
        ("scheduler-target-topic", b"out"),
        ("scheduler-target-key", target_key),
        ("trace", b"1"),
    ]


def test_scheduler_reads_its_headers_and_the_key_is_the_id(spark: SparkSession) -> None:
    (row,) = parsed(spark, "scheduler", record(b"id-1", b"v", [*scheduler(), ("wheel-id", b"other")]))
    assert (row.schedule_id, row.op, row.seq, row.seq_given) == ("id-1", 0, 7, False)
    assert (row.deliver_at_ms, row.event_time_ms, row.destination) == (1_767_225_600_000, SAID_MS, "out")
    assert (bytes(row.key), bytes(row.value)) == (b"tk", b"v")
    assert json.loads(row.headers) == [{"key": "trace", "value": "MQ=="}]


def test_scheduler_cancels_by_a_null_value_with_or_without_headers(spark: SparkSession) -> None:
    rows = parsed(
        spark,
        "scheduler",
        record(b"id", None, scheduler()),
        record(b"id", None, None),
        record(b"id", b"", scheduler()),
    )
    assert [(row.schedule_id, row.op, row.error_code) for row in rows] == [
        ("id", 1, None),
        ("id", 1, None),
        ("id", 0, None),
    ]


def test_scheduler_delivers_without_a_key_where_none_is_named(spark: SparkSession) -> None:
    nameless = [pair for pair in scheduler() if pair[0] != "scheduler-target-key"]
    rows = parsed(
        spark, "scheduler", record(b"id", b"v", nameless), record(b"id", b"v", scheduler(target_key=None))
    )
    assert [(row.key, row.error_code) for row in rows] == [(None, None), (None, None)]


def test_scheduler_takes_the_first_of_two_headers_as_there(spark: SparkSession) -> None:
    (row,) = parsed(spark, "scheduler", record(b"id", b"v", [*scheduler(b"1"), ("scheduler-epoch", b"2")]))
    assert row.deliver_at_ms == 1_000


EPOCHS = [
    (b"0", 0, None),
    (b"-1", -1_000, None),
    (b"999999999999", 999_999_999_999_000, None),
    (b"1767225600123", None, "bad_deliver_at"),
    (b"9223372036854775807", None, "bad_deliver_at"),
    (b"-9223372036854775808", None, "bad_deliver_at"),
    (b"1.5", None, "bad_deliver_at"),
    (b"2026-01-01T00:00:00Z", None, "bad_deliver_at"),
    (b"", None, "bad_deliver_at"),
    (b"\xff", None, "bad_deliver_at"),
    (None, None, "no_due_time"),
]


def test_scheduler_epochs_are_whole_seconds_and_nothing_else(spark: SparkSession) -> None:
    rows = parsed(spark, "scheduler", *(record(b"id", b"v", scheduler(epoch)) for epoch, _, _ in EPOCHS))
    assert [(row.deliver_at_ms, row.error_code) for row in rows] == [case[1:] for case in EPOCHS]


KEYS = [(None, "no_schedule_id"), (b"", "no_schedule_id"), (b"\xff", "bad_schedule_id")]


def test_scheduler_needs_a_key_that_is_an_id(spark: SparkSession) -> None:
    rows = parsed(spark, "scheduler", *(record(key, b"v", scheduler()) for key, _ in KEYS))
    assert [row.error_code for row in rows] == [code for _, code in KEYS]


def test_a_reject_of_scheduler_records_its_headers(spark: SparkSession) -> None:
    (row,) = parsed(spark, "scheduler", record(b"id", b"v", [("scheduler-epoch", b"soon")]))
    told = json.loads(row.record)
    assert "deliver_at = 'scheduler-epoch soon, not whole seconds'" in row.error_message
    assert (told["schedule_id"], told["value"]) == ("id", "v")
    assert told["kafka"]["headers"] == [{"key": "scheduler-epoch", "value": "soon"}]


# --- all ------------------------------------------------------------------------------------------


def test_an_unknown_preset_is_a_fault_of_the_config(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="not a preset of Kafka records: preset = 'columns'"):
        commands(spark, "columns", record())


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_no_instant_depends_on_the_zone_of_the_session(spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    headers = wheel(id=b"a", deliver_at=b"1767225600123", target=b"out")
    native, scheduled = (
        parsed(spark, "native", record(headers=headers))[0],
        parsed(spark, "scheduler", record(b"id", b"v", scheduler()))[0],
    )
    assert (native.deliver_at_ms, native.event_time_ms) == (1_767_225_600_123, SAID_MS)
    assert (scheduled.deliver_at_ms, scheduled.event_time_ms) == (1_767_225_600_000, SAID_MS)
