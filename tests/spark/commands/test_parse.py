"""The command contract, rule by rule: literal rows in and out; nothing raises; one bad row hurts no other."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from tests.spark.commands.test_kafka_presets import SCHEMA as RECORDS
from tests.spark.generated import generated_code
from tests.unit.common.test_durations import BAD, GOOD
from wheel_udf.commands.columns import HEADERS
from wheel_udf.commands.contract import PRESETS
from wheel_udf.commands.delay_levels import MOST_LEVELS, FixedLevels
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.parse import Contract, parse_commands
from wheel_udf.commands.rules import TEXTS
from wheel_udf.commands.time_readers import durations_ms
from wheel_udf.common.errors import ContractError
from wheel_udf.common.instants import MAX_INSTANT_MS

NOON = "2026-01-05T12:00:00Z"
NOON_MS = 1_767_614_400_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def command(**columns: Any) -> dict[str, Any]:
    """A good command, but for what is said."""
    return {"schedule_id": "a", "delay": "0", "event_time": NOON, "destination": "orders"} | columns


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], **types: str) -> DataFrame:
    names = dict.fromkeys(name for row in rows for name in row)
    schema = ", ".join(f"`{name}` {types.get(name, 'string')}" for name in names)
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def parsed(
    spark: SparkSession, rows: list[dict[str, Any]], contract: Contract | None = None, **types: str
) -> list[Row]:
    return parse_commands(frame_of(spark, rows, **types), contract or Contract()).collect()


def one(
    spark: SparkSession, contract: Contract | None = None, types: dict[str, str] | None = None, **columns: Any
) -> Row:
    (row,) = parsed(spark, [command(**columns)], contract, **types or {})
    return row


def from_sql(spark: SparkSession, columns: str, contract: Contract | None = None) -> Row:
    """What becomes of ``SELECT columns``, which has to say all of the command."""
    (row,) = parse_commands(spark.sql(f"SELECT {columns}"), contract or Contract()).collect()
    return row


# The frame as a whole


def test_the_command_frame_has_these_columns_whatever_comes_in(spark: SparkSession) -> None:
    frame = parse_commands(frame_of(spark, [{"schedule_id": "a"}]), Contract())

    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("schedule_id", "string"),
        ("op", "tinyint"),
        ("seq", "bigint"),
        ("seq_given", "boolean"),
        ("deliver_at_ms", "bigint"),
        ("event_time_ms", "bigint"),
        ("destination", "string"),
        ("key", "binary"),
        ("value", "binary"),
        ("headers", "string"),
        ("max_lateness_ms", "bigint"),
        ("error_code", "string"),
        ("error_message", "string"),
        ("record", "string"),
        ("source", "string"),
    ]


def test_good_commands_come_out_whole(spark: SparkSession) -> None:
    rows = [
        command(schedule_id="a", seq=7, delay="10 minutes", key="k", value="v", max_lateness="1h", extra="x"),
        command(schedule_id="b", op="REPLACE", delay=None, deliver_at="2026-01-06", source_coordinates="f#2"),
        command(
            schedule_id="c", op="cancel", seq=9, delay="nonsense", key="k", value="v", destination="../x"
        ),
    ]
    expected = [
        ("a", 0, 7, True, NOON_MS + 10 * MINUTE, NOON_MS, "orders", b"k", b"v", None, HOUR, *[None] * 4),
        ("b", 0, NOON_MS, False, NOON_MS + DAY // 2, NOON_MS, "orders", *[None] * 8),
        ("c", 1, 9, True, None, NOON_MS, *[None] * 9),
    ]
    frame = parse_commands(frame_of(spark, rows, seq="long"), Contract())

    assert_df_equality(frame, spark.createDataFrame(expected, frame.schema))


def test_a_bad_row_beside_good_ones_is_rejected_alone_and_keeps_its_record(spark: SparkSession) -> None:
    rows = [
        command(schedule_id="a", source_coordinates="f#1"),
        command(
            schedule_id="b", op="DELETE", key="k", value="v", note="as it came", source_coordinates="f#2"
        ),
        command(schedule_id="c", source_coordinates="f#3"),
    ]
    good, bad, also_good = parsed(spark, rows)

    assert [good.error_code, also_good.error_code] == [None, None]
    assert [good[name] for name in ("error_message", "record", "source")] == [None] * 3
    assert tuple(bad) == (
        *("b", 0, NOON_MS, False, NOON_MS, NOON_MS, "orders", b"k", b"v", None, None, "bad_op"),
        "not an operation: op = 'DELETE'; rule: SCHEDULE, REPLACE, CANCEL, FIRE_NOW, or RETRY beside attempt",
        bad.record,
        "f#2",
    )
    assert json.loads(bad.record) == {
        "schedule_id": "b",
        "delay": "0",
        "event_time": NOON,
        "destination": "orders",
        "op": "DELETE",
        "key": "k",
        "value": "v",
        "note": "as it came",
    }


def test_column_names_are_matched_in_any_case_and_the_record_keeps_their_spelling(
    spark: SparkSession,
) -> None:
    (row,) = parsed(spark, [{"Schedule_ID": "a", "DELAY": "5", "Event_Time": NOON, "Destination": "x"}])

    assert row.error_code == "bad_delay"
    assert json.loads(row.record) == {
        "Schedule_ID": "a",
        "DELAY": "5",
        "Event_Time": NOON,
        "Destination": "x",
    }


def test_columns_of_the_user_cannot_meet_those_of_the_parser(spark: SparkSession) -> None:
    names = ("in0", "_id", "_op", "_code", "error_code", "record", "op_", "a.b", "a b", "ärger`")
    row = one(spark, op="CANCEL", **dict.fromkeys(names[:7], "x"))
    frame = frame_of(spark, [command(op="no")]).select("*", *(F.lit(name).alias(name) for name in names))
    (rejected,) = parse_commands(frame, Contract()).collect()

    assert (row.op, row.error_code) == (1, None)
    assert json.loads(rejected.record).items() >= {name: name for name in names}.items()


def test_a_frame_without_an_id_is_refused_with_what_was_found_and_what_was_expected(
    spark: SparkSession,
) -> None:
    with pytest.raises(ContractError) as caught:
        parse_commands(spark.createDataFrame([("k", "v")], "key string, value string"), Contract())

    assert str(caught.value) == (
        "the commands have no column schedule_id: columns found = 'key, value'; rule: columns expected: schedule_id, "
        "and as needed op, seq, deliver_at, delay, event_time, destination, key, value, headers, max_lateness, "
        "spread, repeat, time_zone, starts_at, until, count, on_missed, on_gap, on_fold, attempt, occurrence, amend, first_amend, failed_at, first_error, error, source_coordinates; hint: rename the column that holds the id"
    )


def test_two_columns_that_differ_in_case_are_refused(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("'a' AS schedule_id", "1 AS seq", "2 AS SEQ")
    with pytest.raises(ContractError, match="there twice: seq = 'seq, SEQ'"):
        parse_commands(frame, Contract())


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("schedule_id", "struct<a:int>"),
        ("schedule_id", "double"),
        ("schedule_id", "boolean"),
        ("op", "int"),
        ("seq", "boolean"),
        ("seq", "timestamp"),
        ("deliver_at", "boolean"),
        ("deliver_at", "array<string>"),
        ("event_time", "interval day to second"),
        ("delay", "boolean"),
        ("delay", "timestamp"),
        ("delay", "interval day to second"),
        ("destination", "int"),
        ("key", "int"),
        ("value", "struct<a:int>"),
        ("headers", "string"),
        ("headers", "array<string>"),
        ("headers", "map<string,int>"),
        ("max_lateness", "boolean"),
        ("source_coordinates", "int"),
    ],
)
def test_a_type_that_can_hold_no_valid_value_is_refused_up_front(
    spark: SparkSession, name: str, type_: str
) -> None:
    frame = spark.sql(
        f"SELECT {'' if name == 'schedule_id' else '1 AS schedule_id,'} CAST(NULL AS {type_}) AS {name}"
    )
    with pytest.raises(
        ContractError, match=f"no valid value can have: {name} = '{type_}.*rule: .*; hint: cast"
    ):
        parse_commands(frame, Contract())


# What identifies a command


def test_operations_are_read_in_any_case(spark: SparkSession) -> None:
    asked = [
        None,
        "",
        " ",
        "SCHEDULE",
        "schedule",
        " Replace\n",
        "CANCEL",
        "\tcancel ",
        "fire_NOW ",
        "DELETE",
        "cancel!",
        "\u017fchedule",
    ]
    rows = parsed(spark, [command(op=op) for op in asked])

    assert [(row.op, row.error_code) for row in rows] == [
        *[(0, None)] * 6,
        *[(1, None)] * 2,
        (2, None),
        *[(0, "bad_op")] * 3,
    ]


def test_an_id_is_1_to_512_bytes_without_nul(spark: SparkSession) -> None:
    names = ["a", "ü" * 256, "x" * 512, " ", None, "", "x" * 513, "ü" * 257, "a\0b", "x" * 65_536]
    rows = parsed(spark, [command(schedule_id=name) for name in names])

    assert [row.error_code for row in rows] == [
        *[None] * 4,
        *["no_schedule_id"] * 2,
        *["bad_schedule_id"] * 4,
    ]
    assert rows[-1].schedule_id == "x" * 512
    assert json.loads(rows[-1].record)["schedule_id"] == "x" * 65_536
    assert rows[-1].error_message == (
        f"not an id: schedule_id = '{'x' * 100}'; rule: 1 to 512 bytes of UTF-8 without NUL"
    )
    assert rows[8].schedule_id == "a\0b"


@pytest.mark.parametrize("cast", ["CAST(X'61FF62' AS string)", "X'61FF62'"])
def test_an_id_that_is_not_utf8_is_rejected_and_kept_as_base64(spark: SparkSession, cast: str) -> None:
    row = from_sql(spark, f"{cast} AS schedule_id, '0' AS delay, 'orders' AS destination")

    assert (row.error_code, row.schedule_id) == ("bad_schedule_id", None)
    assert json.loads(row.record)["schedule_id"] == "base64:Yf9i"
    assert row.error_message.startswith("not an id: schedule_id = 'a\ufffdb'; rule: ")


def test_whole_numbers_and_bytes_are_ids_too(spark: SparkSession) -> None:
    ids = [
        from_sql(spark, f"{id_} AS schedule_id, 'cancel' AS op").schedule_id
        for id_ in ("42", "-7L", "CAST(42 AS decimal(20,0))", "X'616263'", "'abc' COLLATE UTF8_LCASE")
    ]

    assert ids == ["42", "-7", "42", "abc", "abc"]


def test_a_version_is_a_whole_number_of_64_bits(spark: SparkSession) -> None:
    asked = [
        "7",
        " -7 ",
        "+7",
        "9223372036854775807",
        "9223372036854775808",
        "1.0",
        "1e3",
        "",
        "x",
        "٣",
        "0x10",
        None,
    ]
    rows = parsed(spark, [command(seq=seq) for seq in asked])

    assert [(row.seq, row.seq_given, row.error_code) for row in rows] == [
        (7, True, None),
        (-7, True, None),
        (7, True, None),
        (2**63 - 1, True, None),
        *[(None, True, "bad_seq")] * 7,
        (NOON_MS, False, None),
    ]


def test_a_version_may_be_a_float_or_decimal_that_is_whole(spark: SparkSession) -> None:
    given = [
        ("CAST(3 AS double)", 3),
        ("CAST(3.5 AS double)", None),
        ("CAST('NaN' AS double)", None),
        ("CAST('inf' AS double)", None),
        ("9007199254740992D", 2**53),
        ("9007199254740994D", None),
        ("CAST(3 AS float)", 3),
        ("CAST(3.00 AS decimal(10,2))", 3),
        ("CAST(3.01 AS decimal(10,2))", None),
        ("CAST('9223372036854775808' AS decimal(38,0))", None),
        ("CAST(3 AS tinyint)", 3),
    ]
    rows = [from_sql(spark, f"'a' AS schedule_id, {seq} AS seq, 'cancel' AS op") for seq, _ in given]

    assert [row.seq for row in rows] == [seq for _, seq in given]
    assert [row.error_code for row in rows] == [None if seq is not None else "bad_seq" for _, seq in given]


# Instants

# Texts, each with its event time and its due time in ms.
INSTANTS = [
    ("2026-01-05T12:00:00Z", NOON_MS, NOON_MS),
    ("2026-01-05 12:00:00", NOON_MS, NOON_MS),
    ("2026-01-05T12:00", NOON_MS, NOON_MS),
    ("2026-01-05T12:00Z", NOON_MS, NOON_MS),
    ("2026-01-05T13:00+01:00", NOON_MS, NOON_MS),
    ("2026-01-05 07:00:00-0500", NOON_MS, NOON_MS),
    ("2026-01-05 14:00:00.000 +02", NOON_MS, NOON_MS),
    (" 2026-01-05T12:00:00 UTC\n", NOON_MS, NOON_MS),
    ("2026-01-05", NOON_MS - 12 * HOUR, NOON_MS - 12 * HOUR),
    ("2026-01-05T12:00:00.001Z", NOON_MS + 1, NOON_MS + 1),
    ("2026-01-05T12:00:00.0011Z", NOON_MS + 1, NOON_MS + 2),
    ("2026-01-05T12:00:00.001000001Z", NOON_MS + 1, NOON_MS + 2),
    ("2026-01-05T12:00:00.001000000Z", NOON_MS + 1, NOON_MS + 1),
    ("2024-02-29T00:00:00Z", 1_709_164_800_000, 1_709_164_800_000),
    ("2038-01-19T03:14:08Z", 2**31 * 1000, 2**31 * 1000),
    ("2262-04-12T00:00:00Z", 9_223_372_800_000, 9_223_372_800_000),
    ("9999-12-31T23:59:59.999Z", 253_402_300_799_999, 253_402_300_799_999),
    ("1900-01-01T00:00:00Z", -2_208_988_800_000, -2_208_988_800_000),
    ("1899-12-31T23:59:59.9995Z", -2_208_988_800_001, -2_208_988_800_000),
    ("+10000-01-01T00:00:00Z", 253_402_300_800_000, 253_402_300_800_000),
    # Neither missing nor there twice: without a zone the clock is that of UTC.
    ("2026-03-08T02:30:00", 1_772_937_000_000, 1_772_937_000_000),
    ("2026-11-01T01:30:00", 1_793_496_600_000, 1_793_496_600_000),
]
NO_INSTANTS = [
    *("", "soon", "2023-02-29", "2026-13-01", "2026-01-05T24:00:00Z", "2026-01-05T12:00:60Z", "now", "today"),
    *("1767614400", "1767614400000", "20260105", "2026-1-5", "12:00", "2026-01-05T12", "NaN", "epoch"),
    *("2026-01-05T12:00:00+19:00", "2026-03-08T02:30:00 America/New_York", "2026-01-05T12:00:00.1234567890Z"),
    *(
        "2026-01-05T12:00:00,5Z",
        "300000-01-01",
        "2026-01-05Z",
        "٢٠٢٦-01-05",
        "2026-01-05T12:00:00Z; DROP TABLE t",
    ),
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_instants_do_not_depend_on_the_time_zone_of_the_session(spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    rows = parsed(spark, [command(event_time=text, deliver_at=text, delay=None) for text, _, _ in INSTANTS])
    expected = [(made_ms, due_ms, None) for _, made_ms, due_ms in INSTANTS]

    assert [(row.event_time_ms, row.deliver_at_ms, row.error_code) for row in rows] == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(
    ("typed", "made_ms", "due_ms"),
    [
        ("TIMESTAMP '2026-01-05 12:00:00.0015Z'", NOON_MS + 1, NOON_MS + 2),
        ("TIMESTAMP_NTZ '2026-01-05 12:00:00.0015'", NOON_MS + 1, NOON_MS + 2),
        ("TIMESTAMP_NTZ '2026-03-08 02:30:00'", 1_772_937_000_000, 1_772_937_000_000),
        ("TIMESTAMP_NTZ '1899-12-31 23:59:59.9995'", -2_208_988_800_001, -2_208_988_800_000),
        ("DATE '2026-01-05'", NOON_MS - 12 * HOUR, NOON_MS - 12 * HOUR),
        ("DATE '1900-01-01'", -2_208_988_800_000, -2_208_988_800_000),
        ("X'323032362D30312D3035'", NOON_MS - 12 * HOUR, NOON_MS - 12 * HOUR),
    ],
)
def test_instants_may_be_of_any_type_that_says_which_instant(
    spark: SparkSession, zone: str, typed: str, made_ms: int, due_ms: int
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    row = from_sql(
        spark, f"'a' AS schedule_id, {typed} AS event_time, {typed} AS deliver_at, 'orders' AS destination"
    )

    assert (row.event_time_ms, row.deliver_at_ms, row.error_code) == (made_ms, due_ms, None)


def test_a_due_time_that_python_cannot_read_back_is_a_reject_and_a_cancel_needs_none(
    spark: SparkSession,
) -> None:
    rows = parsed(
        spark,
        [
            command(deliver_at="0001-01-01", delay=None),
            command(deliver_at="1900-01-01", delay=None),
            command(delay="-P50000D", event_time="2026-01-05T12:00:00Z"),
            command(op="CANCEL", deliver_at="0001-01-01", delay=None),
        ],
    )

    assert [row.error_code for row in rows] == ["due_too_early", None, "due_too_early", None]
    assert "due = '0001-01-01 00:00:00Z'; rule: not before 1900-01-01T00:00:00Z" in rows[0].error_message


def test_what_is_no_instant_is_rejected(spark: SparkSession) -> None:
    due = parsed(spark, [command(deliver_at=text, delay=None) for text in NO_INSTANTS])
    made = parsed(spark, [command(event_time=text) for text in NO_INSTANTS])

    assert {text: row.error_code for text, row in zip(NO_INSTANTS, due, strict=True)} == dict.fromkeys(
        NO_INSTANTS, "bad_deliver_at"
    )
    assert [(row.error_code, row.event_time_ms, row.seq) for row in made] == [
        ("bad_event_time", None, None)
    ] * len(made)


@pytest.mark.parametrize("kind", ["int", "bigint", "double", "decimal(20,0)"])
def test_numbers_are_no_instants_and_a_column_of_them_is_refused_up_front(
    spark: SparkSession, kind: str
) -> None:
    for name in ("deliver_at", "event_time"):
        with pytest.raises(ContractError) as caught:
            from_sql(spark, f"'a' AS schedule_id, CAST(1767614400 AS {kind}) AS {name}")
        assert str(caught.value).endswith(
            f"{name} = '{kind}'; rule: timestamp, timestamp_ntz, date or ISO 8601 text; "
            "hint: cast the column, or drop it"
        )


def test_the_first_and_the_last_instant_of_spark_pass(spark: SparkSession) -> None:
    def at(micros: str) -> Row:
        stamp = f"timestamp_micros({micros})"
        return from_sql(
            spark,
            f"'a' AS schedule_id, {stamp} AS deliver_at, {stamp} AS event_time, 'orders' AS destination",
        )

    first, last, beyond = (
        at("-9223372036854775807L - 1"),
        at("9223372036854775000L"),
        at("9223372036854775807L"),
    )

    assert (first.event_time_ms, first.error_code) == (-MAX_INSTANT_MS, "due_too_early")
    assert (last.deliver_at_ms, last.event_time_ms, last.error_code) == (MAX_INSTANT_MS, MAX_INSTANT_MS, None)
    # Rounded up it fits no timestamp.
    assert (beyond.deliver_at_ms, beyond.error_code) == (None, "beyond_max_delay")


def test_one_reject_due_in_the_year_294000_made_the_whole_table_of_rejects_unreadable_from_python(
    spark: SparkSession,
) -> None:
    rows = [
        command(schedule_id="far", deliver_at="+294000-01-01T00:00:00Z", delay=None),
        command(schedule_id="first", deliver_at="0000-01-01T00:00:00Z", delay=None),
        command(schedule_id="too far", deliver_at="9999-12-31T23:59:59.999Z", delay=None),
    ]
    frame = parse_commands(frame_of(spark, rows), Contract(max_delay_ms=1_000))

    found = frame.select("schedule_id", "error_code", F.timestamp_millis("deliver_at_ms")).collect()

    last = datetime(9999, 12, 31, 23, 59, 59, 999_000)  # noqa: DTZ001  # as Spark gives it
    assert sorted(map(tuple, found)) == [
        ("far", "beyond_max_delay", None),
        ("first", "due_too_early", None),
        ("too far", "beyond_max_delay", last),
    ]


def test_a_date_that_no_timestamp_can_hold_is_rejected(spark: SparkSession) -> None:
    row = from_sql(
        spark, "'a' AS schedule_id, date_from_unix_date(2147483647) AS deliver_at, 'orders' AS destination"
    )

    assert (row.error_code, row.deliver_at_ms) == ("bad_deliver_at", None)


# Due times


def test_a_delay_counts_from_the_event_time_and_may_be_negative(spark: SparkSession) -> None:
    delays = ["10 minutes", "PT10M", "0", "-5 seconds", "-P1D"]
    rows = parsed(spark, [command(delay=delay) for delay in delays])

    assert [row.deliver_at_ms - NOON_MS for row in rows] == [10 * MINUTE, 10 * MINUTE, 0, -5_000, -DAY]


def test_durations_of_a_column_are_those_of_the_grammar() -> None:
    hostile = [mark * 100_000 for mark in ("9", "1 ", "1 w", "P1D", " ", "-1 s ")] + [
        "1 w" + " " * 100_000 + "x"
    ]
    texts = [text for text, _ in GOOD] + BAD + hostile
    found = durations_ms(pa.array(texts)).to_pylist()

    assert dict(zip(texts, found, strict=True)) == dict(GOOD) | dict.fromkeys([*BAD, *hostile])


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (
            "string",
            [
                ("0", NOON_MS),
                ("-1 ms", NOON_MS - 1),
                ("5s", NOON_MS + 5_000),
                ("-1", "bad_delay"),
                ("NaN", "bad_delay"),
                ("inf", "bad_delay"),
                ("", "bad_delay"),
                ("2147483648", "bad_delay"),
                ("2147483648 ms", NOON_MS + 2**31),
                ("9007199254740992 ms", NOON_MS + 2**53),
                ("9223372036854775807 ms", "beyond_max_delay"),
                ("9223372036854775807", "bad_delay"),
                ("-9223372036854775808 ms", "beyond_max_delay"),
                ("99999999999999999999999999 weeks", "beyond_max_delay"),
                ("1e308", "bad_delay"),
                ("true", "bad_delay"),
                (None, "no_due_time"),
            ],
        ),
        (
            "int",
            [
                (0, NOON_MS),
                (-1, "bad_delay"),
                (5, "bad_delay"),
                (None, "no_due_time"),
            ],
        ),
        (
            "long",
            [
                (2**63 - 1, "bad_delay"),
            ],
        ),
        (
            "double",
            [
                (0.0, NOON_MS),
                (-0.0, NOON_MS),
                (5.0, "bad_delay"),
                (float("nan"), "bad_delay"),
                (float("inf"), "bad_delay"),
                (1e308, "bad_delay"),
            ],
        ),
    ],
)
def test_hostile_delays_are_now_or_rejected_and_never_wrap(
    spark: SparkSession, type_: str, expected: list[tuple[object, int | str]]
) -> None:
    rows = parsed(spark, [command(delay=delay) for delay, _ in expected], delay=type_)

    assert [row.error_code or row.deliver_at_ms for row in rows] == [answer for _, answer in expected]


def test_a_schedule_has_exactly_one_due_time(spark: SparkSession) -> None:
    pairs = [(None, None), (NOON, "1s"), ("", "1s"), (NOON, ""), (NOON, None), (None, "1s")]
    rows = parsed(spark, [command(deliver_at=at, delay=delay) for at, delay in pairs])

    assert [row.error_code for row in rows] == ["no_due_time", *["two_due_times"] * 3, None, None]
    assert rows[0].error_message == (
        "no due time: deliver_at = null; rule: exactly one of deliver_at and delay"
    )


def test_the_longest_delay_counts_from_the_event_time(spark: SparkSession) -> None:
    contract = Contract(max_delay_ms=DAY)
    late = "2026-01-06T12:00:00.001Z"
    rows = [
        *parsed(
            spark, [command(delay=delay) for delay in ("1 day", "1 d", "86400001 ms", "-730 days")], contract
        ),
        *parsed(
            spark, [command(deliver_at=at, delay=None) for at in (late, "1900-01-01", "9999-12-31")], contract
        ),
    ]

    assert [row.error_code for row in rows] == [
        *(None, None, "beyond_max_delay", None),
        *("beyond_max_delay", None, "beyond_max_delay"),
    ]
    assert rows[2].error_message == (
        "due too far away: due = '86400001 ms'; rule: at most 86400000 ms after event_time, "
        "between the years -290308 and 294247"
    )
    assert "due = '2026-01-06 12:00:00.001Z'" in rows[4].error_message
    # An instant that a timestamp can hold is told, though it was refused.
    assert rows[4].deliver_at_ms == NOON_MS + DAY + 1


def test_the_years_1900_and_9999_are_due_times_like_others(spark: SparkSession) -> None:
    rows = parsed(
        spark, [command(deliver_at=at, delay=None) for at in ("1900-01-01", "9999-12-31T23:59:59.999Z")]
    )

    assert [(row.deliver_at_ms, row.error_code) for row in rows] == [
        (-2_208_988_800_000, None),
        (253_402_300_799_999, None),
    ]


# Event times


def test_an_event_time_far_ahead_is_rejected_and_moves_no_clock(spark: SparkSession) -> None:
    far = "9999-01-01"
    asked = [
        command(event_time=far),
        command(event_time=far, op="CANCEL"),
        command(event_time=far, op="what?"),
        command(event_time=far, schedule_id=None),
        command(event_time=far, seq="5"),
        command(event_time=NOON),
        command(event_time=None),
    ]
    rows = parsed(spark, asked, Contract(max_ahead_ms=MINUTE))

    assert [(row.op, row.error_code) for row in rows] == [
        (0, "event_time_ahead"),
        (1, "event_time_ahead"),
        (0, "bad_op"),
        (0, "no_schedule_id"),
        (0, "event_time_ahead"),
        (0, None),
        (0, None),
    ]
    assert [row.event_time_ms for row in rows[:5]] == [None] * 5
    assert [row.seq for row in rows[:6]] == [None, None, None, None, 5, NOON_MS]
    assert rows[0].error_message == (
        "event time in the future: event_time = '9999-01-01 00:00:00Z'; "
        "rule: at most 60000 ms beyond the time of the batch"
    )


def test_without_a_limit_event_times_may_lie_in_the_future(spark: SparkSession) -> None:
    row = one(spark, event_time="9999-01-01", delay="1 day")

    assert (row.event_time_ms, row.error_code) == (253_370_764_800_000, None)
    assert row.deliver_at_ms == row.event_time_ms + DAY


def test_the_event_time_is_that_of_the_batch_where_none_is_given(spark: SparkSession) -> None:
    now = F.unix_millis(F.current_timestamp())
    given = [command(schedule_id="a", event_time=None, delay="1s"), command(schedule_id="b", event_time=None)]
    row, other = parse_commands(frame_of(spark, given), Contract()).withColumn("now", now).collect()

    assert row.event_time_ms == other.event_time_ms == row.now
    assert (row.deliver_at_ms, row.seq, row.seq_given) == (row.now + 1_000, row.now, False)


def test_the_columns_of_times_may_be_missing(spark: SparkSession) -> None:
    (row,) = parsed(spark, [{"schedule_id": "a", "op": "cancel"}])
    (rejected,) = parsed(spark, [{"schedule_id": "a", "destination": "x"}])

    assert (row.error_code, row.seq) == (None, row.event_time_ms)
    assert rejected.error_code == "no_due_time"


# Destinations


def test_destinations_are_well_formed_names_before_any_pattern_is_tried(spark: SparkSession) -> None:
    good = ["orders", "a", "A.b_c-9", "...", "x" * 249]
    bad = [
        *(
            "",
            ".",
            "..",
            "../../x",
            "/etc/passwd",
            "a/b",
            "a b",
            "a; DROP TABLE t",
            "`a`",
            "a\n",
            "a\0",
            "\u043erders",
        ),
        *("x" * 250, "a,b", "a*", "s3://bucket/x", "C:\\x", "\uff41"),
    ]
    for contract in (Contract(), Contract(destinations=("*",))):
        rows = parsed(spark, [command(destination=name) for name in [*good, *bad]], contract)

        assert [row.error_code for row in rows] == [*[None] * len(good), *["bad_destination"] * len(bad)]
    assert rows[8].error_message == (
        "not a destination: destination = '../../x'; rule: 1 to 249 of A-Z a-z 0-9 . _ -, not . or .."
    )
    assert [len(row.destination) for row in rows if row.destination.startswith("xxx")] == [249, 249]


def test_an_allow_list_takes_names_and_two_wildcards(spark: SparkSession) -> None:
    contract = Contract(destinations=("reminders_*", "t.1", "shard-??"))
    asked = [
        "reminders_",
        "reminders_EWR",
        "t.1",
        "shard-01",
        "tx1",
        "shard-1",
        "Reminders_x",
        "a_reminders_x",
        "t.12",
    ]
    rows = parsed(spark, [command(destination=name) for name in asked], contract)

    assert [row.error_code for row in rows] == [*[None] * 4, *["unknown_destination"] * 5]
    assert rows[4].error_message == (
        "unknown destination: destination = 'tx1'; rule: one of reminders_*, t.1, shard-??; "
        "hint: add it to the allow-list of destinations"
    )


@pytest.mark.parametrize("destinations", [("a", "b"), ("a*",), ("?",)])
def test_names_alone_and_patterns_alone_make_an_allow_list_too(
    spark: SparkSession, destinations: tuple[str, ...]
) -> None:
    rows = parsed(
        spark, [command(destination=name) for name in ("a", "zz")], Contract(destinations=destinations)
    )

    assert [row.error_code for row in rows] == [None, "unknown_destination"]


def test_rows_without_a_destination_need_a_default(spark: SparkSession) -> None:
    default = Contract(default_destination="inbox")
    given = [command(destination=None), command(destination="orders"), command(destination="")]
    without = {"schedule_id": "a", "delay": "0"}

    assert [row.error_code for row in parsed(spark, given)] == ["no_destination", None, "bad_destination"]
    assert [row.destination for row in parsed(spark, given, default)] == ["inbox", "orders", ""]
    assert parsed(spark, [without])[0].error_code == "no_destination"
    assert parsed(spark, [without], default)[0].destination == "inbox"


# Payload


def test_payload_bytes_pass_through_untouched(spark: SparkSession) -> None:
    row = from_sql(
        spark,
        "'a' AS schedule_id, '0' AS delay, 'orders' AS destination, X'00FF' AS key, CAST(X'FFFE00' AS string) AS value",
    )

    assert (row.key, row.value, row.error_code) == (b"\x00\xff", b"\xff\xfe\x00", None)


def test_an_empty_key_is_not_a_missing_one(spark: SparkSession) -> None:
    row = one(spark, key="", value=None)

    assert (row.key, row.value) == (b"", None)


@pytest.mark.parametrize(
    "typed",
    [
        "array(struct('h' AS key, X'FF00' AS value), struct('n' AS key, NULL AS value))",
        "array(struct(X'FF00' AS value, 'h' AS KEY, 1 AS other), struct(NULL AS value, 'n' AS KEY, 2 AS other))",
        "map('h', X'FF00', 'n', NULL)",
    ],
)
def test_headers_come_from_arrays_and_maps(spark: SparkSession, typed: str) -> None:
    frame = parse_commands(
        spark.sql(f"SELECT 'a' AS schedule_id, '0' AS delay, 'orders' AS destination, {typed} AS headers"),
        Contract(),
    )
    (row,) = frame.select(F.from_json("headers", HEADERS).alias("headers"), "error_code").collect()

    assert row.error_code is None
    assert [tuple(header) for header in row.headers] == [("h", b"\xff\x00"), ("n", None)]


def test_headers_of_texts_are_taken_as_bytes_and_none_are_null(spark: SparkSession) -> None:
    texts = from_sql(
        spark, "'a' AS schedule_id, '0' AS delay, 'orders' AS destination, map('h', 'text') AS headers"
    )
    none, void = (
        from_sql(spark, f"'a' AS schedule_id, '0' AS delay, 'orders' AS destination, {typed} AS headers")
        for typed in ("CAST(NULL AS array<struct<key:string,value:binary>>)", "NULL")
    )

    assert texts.headers == '[{"key":"h","value":"dGV4dA=="}]'
    assert (none.headers, void.headers) == (None, None)


def test_value_key_and_headers_together_are_limited(spark: SparkSession) -> None:
    def size(value: str, key: str, headers: str) -> Row:
        payload = f"{value} AS value, {key} AS key, {headers} AS headers"
        return from_sql(
            spark,
            f"'a' AS schedule_id, '0' AS delay, 'orders' AS destination, {payload}",
            Contract(max_value_bytes=10),
        )

    six = "array(struct('hh' AS key, X'01020304' AS value), struct(NULL AS key, NULL AS value))"

    assert size("'xx'", "X'0102'", six).error_code is None
    assert size("'xxx'", "X'0102'", six).error_code == "oversize"
    assert size("'üüüüüü'", "NULL", "NULL").error_code == "oversize"
    assert size("repeat('x', 10)", "NULL", "NULL").error_code is None
    assert size("NULL", "NULL", "NULL").error_code is None
    rejected = size("repeat('x', 2000000)", "'k'", "NULL")
    assert (
        rejected.error_message
        == "too large: bytes = '2000001'; rule: at most 10 bytes of value, key and headers"
    )
    assert (len(rejected.value), rejected.key) == (2_000_000, b"k")


def test_the_longest_lateness_is_a_duration_that_is_not_negative(spark: SparkSession) -> None:
    asked = [None, "1 minute", "0", "PT1H", "-1s", "", "soon", "99999999999999999999 d"]
    rows = parsed(spark, [command(max_lateness=text) for text in asked], Contract(max_lateness_ms=5))

    assert [(row.max_lateness_ms, row.error_code) for row in rows] == [
        *[(5, None), (MINUTE, None), (0, None), (HOUR, None)],
        *[(-1_000, "bad_max_lateness"), (5, "bad_max_lateness"), (5, "bad_max_lateness")],
        (2**60, None),
    ]


# Cancels, and the order of the rules


def test_a_cancel_needs_an_id_a_version_and_an_event_time_only(spark: SparkSession) -> None:
    broken = {
        "deliver_at": "x",
        "delay": "y",
        "destination": "../..",
        "max_lateness": "never",
        "value": "far too long",
        "key": "k",
    }
    contract = Contract(max_value_bytes=1, max_delay_ms=0, destinations=("a",), max_lateness_ms=5)
    rows = parsed(
        spark,
        [
            command(op="CANCEL", **broken),
            command(op="CANCEL", seq="x", **broken),
            command(op="CANCEL", event_time="x", **broken),
            command(op="CANCEL", **broken | {"schedule_id": ""}),
        ],
        contract,
    )

    assert tuple(rows[0]) == ("a", 1, NOON_MS, False, None, NOON_MS, *[None] * 9)
    assert [(row.op, row.error_code) for row in rows[1:]] == [
        (1, "bad_seq"),
        (1, "bad_event_time"),
        (1, "no_schedule_id"),
    ]
    assert (rows[1].key, rows[1].value, rows[1].destination) == (b"k", b"far too long", "../..")
    assert (rows[1].deliver_at_ms, rows[1].max_lateness_ms) == (None, None)


# One way to break each rule; where two of them are broken the one further up is told.
BREAKS: dict[str, dict[str, Any]] = {
    "bad_type": {"_misread_columns": "seq = abc, not bigint"},
    "unreadable": {"_corrupt_record": "{"},
    "bad_op": {"op": "?"},
    "no_schedule_id": {"schedule_id": ""},
    "bad_schedule_id": {"schedule_id": "a\0"},
    "bad_seq": {"seq": "?"},
    "bad_event_time": {"event_time": "?"},
    "event_time_ahead": {"event_time": "9999-01-01"},
    "no_due_time": {"delay": None},
    "two_due_times": {"delay": "1s", "deliver_at": NOON},
    "bad_deliver_at": {"delay": None, "deliver_at": "?"},
    "bad_delay": {"delay": "?"},
    "beyond_max_delay": {"delay": "2 days"},
    "due_too_early": {"delay": None, "deliver_at": "1899-12-31T23:59:59.999Z"},
    "beyond_levels": {"delay": "3 hours"},
    "no_destination": {"destination": None},
    "bad_destination": {"destination": "?"},
    "unknown_destination": {"destination": "b"},
    "oversize": {"value": "xxxx"},
    "bad_max_lateness": {"max_lateness": "?"},
}


def test_the_first_rule_broken_names_the_row(spark: SparkSession) -> None:
    contract = Contract(
        max_delay_ms=DAY,
        max_value_bytes=3,
        destinations=("orders",),
        max_ahead_ms=0,
        levels=FixedLevels(),
    )
    expected, rows = [], []
    for number, (first, fault) in enumerate(BREAKS.items()):
        for second in list(BREAKS)[number:]:
            if BREAKS[second].keys().isdisjoint(fault) or first == second:
                expected.append((first, second, first))
                rows.append(command(**BREAKS[second] | fault))
    found = parsed(spark, rows, contract)

    of_retries = list(TEXTS).index("bad_attempt")
    assert list(BREAKS) == list(TEXTS)[:of_retries], "those of series: tests/spark/stream/test_series.py"
    assert [
        (first, second, row.error_code) for (first, second, _), row in zip(expected, found, strict=True)
    ] == expected


# Commands of a source that has an order of its own


def test_where_the_source_has_an_order_it_is_the_version_of_rows_without_one(spark: SparkSession) -> None:
    rows = [
        command(schedule_id="a", source_seq=41, source_coordinates="t/0/41"),
        command(schedule_id="b", source_seq=42, source_coordinates="t/0/42", seq="7"),
        command(schedule_id="c", source_seq=43, source_coordinates="t/0/43", op="CANCEL", event_time=None),
    ]
    found = parsed(spark, rows, source_seq="bigint")

    assert [(row.seq, row.seq_given, row.source) for row in found] == [
        (41, False, "t/0/41"),
        (7, True, "t/0/42"),
        (43, False, "t/0/43"),
    ]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_instants_that_the_source_has_read_come_before_their_texts_and_are_not_in_the_record(
    spark: SparkSession, zone: str
) -> None:
    # A microsecond after noon: due a ms later, said at noon.
    at = datetime(2026, 1, 5, 12, 0, 0, 1, tzinfo=UTC)
    rows = [
        command(schedule_id="read", deliver_at="1767614400000", delay=None, event_time="soon", source_deliver_at=at, source_event_time=at),
        command(schedule_id="no text", event_time=None, source_event_time=at),
        command(schedule_id="texts", deliver_at=NOON, delay=None),
        command(schedule_id="neither", deliver_at="soon", delay=None),
    ]  # fmt: skip
    spark.conf.set("spark.sql.session.timeZone", zone)
    found = parsed(spark, rows, source_deliver_at="timestamp", source_event_time="timestamp")

    assert [(row.schedule_id, row.deliver_at_ms, row.event_time_ms, row.error_code) for row in found] == [
        ("read", NOON_MS + 1, NOON_MS, None),
        ("no text", NOON_MS, NOON_MS, None),
        ("texts", NOON_MS, NOON_MS, None),
        ("neither", None, NOON_MS, "bad_deliver_at"),
    ]
    assert not {"source_deliver_at", "source_event_time"} & set(json.loads(found[3].record))


def test_what_could_not_be_read_is_told_before_all_else_and_keeps_its_text(spark: SparkSession) -> None:
    row = one(spark, schedule_id=None, op="?", _corrupt_record='{"a')

    assert row.error_code == "unreadable"
    assert row.error_message == "not readable: record = '{\"a'; rule: a record in the format of the source"
    assert json.loads(row.record)["_corrupt_record"] == '{"a'


# What is kept of a rejected row


def test_the_record_of_a_row_is_readable_in_any_session(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    row = from_sql(
        spark,
        "'' AS schedule_id, TIMESTAMP '2026-01-05 12:00:00.001Z' AS deliver_at, "
        "TIMESTAMP_NTZ '2026-03-08 02:30:00' AS event_time, X'FF00' AS value, X'616263' AS key, "
        "map('h', X'FF') AS headers, CAST(X'FF' AS string) AS destination, 'base64:abc' AS delay, "
        "DATE '9999-12-31' AS d, CAST('NaN' AS double) AS n, CAST(NULL AS int) AS nothing, NULL AS void, "
        "INTERVAL '1' DAY AS i, make_interval(1, 2) AS ci, TIME '10:00:00' AS t, parse_json('[1]') AS j, "
        "array(named_struct('x', CAST(X'61FF' AS string))) AS nested, map(1, TIMESTAMP '1900-01-01 00:00:00Z') AS m, "
        "timestamp_micros(9223372036854775807L) AS last, 12.50BD AS dec, CAST(X'FF' AS string) AS source_coordinates",
    )

    assert row.error_code == "no_schedule_id"
    assert (row.destination, row.source) == ("\ufffd", "\ufffd")
    assert json.loads(row.record) == {
        "schedule_id": "",
        "deliver_at": "2026-01-05T12:00:00.001000Z",
        "event_time": "2026-03-08T02:30:00.000000",
        "value": "base64:/wA=",
        "key": "abc",
        "headers": {"h": "/w=="},
        "destination": "base64:/w==",
        "delay": "base64:YmFzZTY0OmFiYw==",
        "d": "9999-12-31",
        "n": "NaN",
        "i": "INTERVAL '1' DAY",
        "ci": "1 years 2 months",
        "t": "10:00:00",
        "j": [1],
        "nested": [{"x": "base64:Yf8="}],
        "m": {"1": "1900-01-01T00:00:00.000000Z"},
        "last": "+294247-01-10T04:00:54.775807Z",
        "dec": 12.5,
    }


def test_values_in_messages_are_cut_and_valid(spark: SparkSession) -> None:
    row = from_sql(spark, "'a' AS schedule_id, concat(CAST(X'FF' AS string), repeat('é', 200)) AS op")

    assert row.error_message == (
        "not an operation: op = '\ufffd"
        + "é" * 99
        + "'; rule: SCHEDULE, REPLACE, CANCEL, FIRE_NOW, or RETRY beside attempt"
    )


def test_all_columns_may_be_null_or_void(spark: SparkSession) -> None:
    names = (
        "op",
        "seq",
        "deliver_at",
        "delay",
        "event_time",
        "destination",
        "key",
        "value",
        "headers",
        "max_lateness",
    )
    row = from_sql(
        spark, ", ".join(f"NULL AS {name}" for name in ("schedule_id", *names, "source_coordinates"))
    )

    assert (row.error_code, row.record, row.source) == ("no_schedule_id", "{}", None)


# How it runs


def test_commands_are_parsed_on_a_stream_too(spark: SparkSession, tmp_path: Path) -> None:
    given = [
        command(schedule_id="a", delay="PT1M"),
        command(schedule_id="b", delay="soon"),
        command(schedule_id="c", op="cancel"),
    ]
    frame = frame_of(spark, given)
    frame.coalesce(1).write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).json(str(tmp_path / "in"))
    found: list[Row] = []
    query = (
        parse_commands(stream, Contract(max_ahead_ms=0))
        .writeStream.foreachBatch(lambda batch, _id: found.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert [(row.schedule_id, row.op, row.deliver_at_ms, row.error_code) for row in found] == [
        ("a", 0, NOON_MS + MINUTE, None),
        ("b", 0, None, "bad_delay"),
        ("c", 1, None, None),
    ]


def test_an_empty_frame_gives_an_empty_frame(spark: SparkSession) -> None:
    assert (
        parse_commands(spark.createDataFrame([], "schedule_id string, delay string"), Contract()).collect()
        == []
    )


def largest_method(frame: DataFrame) -> int:
    """Bytes of the largest method that Spark generates for a frame, in a session that generates code or in one that
    does not.
    """
    package = getattr(frame.sparkSession._jvm.org.apache.spark.sql.execution.debug, "package")  # noqa: B009  # a keyword of Scala
    settings = frame.sparkSession.conf
    generating = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: settings.get(name) for name in generating}
    try:
        for name, value in generating.items():
            settings.set(name, value)
        stages = package.codegenStringSeq(frame._jdf.queryExecution().executedPlan())
    finally:
        for name, found in before.items():
            settings.set(name, found)
    return max(stages.apply(at)._3().maxMethodCodeSize() for at in range(stages.size()))


def all_limits() -> Contract:
    bounds = Contract(
        max_delay_ms=DAY, max_value_bytes=9, destinations=("a*", "b"), max_ahead_ms=9, max_lateness_ms=9
    )
    return replace(bounds, levels=FixedLevels(tuple(range(1, MOST_LEVELS + 1))))


def test_what_spark_compiles_stays_small_enough_for_the_just_in_time_compiler(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Beyond 8,000 bytes of bytecode Java interprets a method, and each row costs five times as much.
    full = command(
        op="x", seq="1", deliver_at=NOON, key="k", value="v", max_lateness="1s", source_coordinates="f"
    )
    extras = [F.col("op").alias(f"extra{number}") for number in range(80)]
    frame_of(spark, [full]).select("*", *extras).write.parquet(str(tmp_path / "in"))
    found = spark.read.parquet(str(tmp_path / "in")).withColumn("headers", F.create_map("key", "value"))
    sizes = {
        width: largest_method(
            parse_commands(found.drop(*(f"extra{number}" for number in range(width, 80))), all_limits())
        )
        for width in (0, 8, 9, 40, 80)
    }

    assert {width: size for width, size in sizes.items() if not 0 < size < 8_000} == {}


@pytest.mark.parametrize("preset", PRESETS)
def test_records_of_kafka_were_interpreted_because_their_preset_made_the_method_too_big(
    spark: SparkSession, tmp_path: Path, preset: str
) -> None:
    spark.createDataFrame([], RECORDS).write.parquet(str(tmp_path / "in"))
    records = spark.read.parquet(str(tmp_path / "in"))
    sizes = {
        name: largest_method(parse_commands(kafka_commands(records, preset), contract))
        for name, contract in (("no limits", Contract()), ("all limits", all_limits()))
    }

    assert {name: size for name, size in sizes.items() if not 0 < size < 8_000} == {}


# What Spark makes of it


def test_the_time_of_a_batch_was_part_of_the_code_so_that_every_batch_was_compiled_anew(
    spark: SparkSession,
) -> None:
    rows = frame_of(spark, [command(event_time=None), command()])
    contract = Contract(max_ahead_ms=MINUTE)
    first, second = (
        generated_code(parse_commands(rows, contract)) for _ in range(2)
    )  # planned at two instants

    assert first
    assert first == second
