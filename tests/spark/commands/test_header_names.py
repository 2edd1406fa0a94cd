"""Kafka records with the headers of Celery, RabbitMQ and RocketMQ as commands, and records without any header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.spark.commands.test_kafka_presets import SAID_MS, SCHEMA, Headers, record
from tests.spark.commands.test_parse import all_limits, largest_method
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.header_names import HeaderNames
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.parse import parse_commands
from wheel_udf.job.sources.topics import with_default_delay

CELERY = HeaderNames(id_from="header:id", due_from="header:eta", destination_from="header:queue")
RABBITMQ = HeaderNames(id_from="offset", delay_from="header:x-delay", delay_unit="ms")
ROCKETMQ = HeaderNames(
    id_from="header:UNIQ_KEY",
    due_from="header:TIMER_DELIVER_MS",
    delay_from="header:DELAY",
    delay_unit="level",
    destination_from="header:REAL_TOPIC",
)
AT_NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00Z


def parsed(
    spark: SparkSession,
    names: HeaderNames,
    *records: tuple[Any, ...],
    default_delay_ms: int | None = None,
    preset: str = "native",
) -> list[Row]:
    frame = kafka_commands(spark.createDataFrame(list(records), SCHEMA), preset, names)
    contract = Contract(max_delay_ms=None, default_destination="out")
    rows = parse_commands(with_default_delay(frame, default_delay_ms), contract).collect()
    assert len(rows) == len(records)
    return rows


def dues(rows: list[Row]) -> list[tuple[int | None, str | None]]:
    return [(row.deliver_at_ms, row.error_code) for row in rows]


def passed_on(row: Row) -> list[str]:
    return [each["key"] for each in json.loads(row.headers or "[]")]


# --- the three systems ----------------------------------------------------------------------------


def test_a_celery_task_waits_for_its_eta_and_keeps_the_headers_that_a_worker_needs(
    spark: SparkSession,
) -> None:
    headers: Headers = [
        ("lang", b"py"),
        ("task", b"shop.remind"),
        ("id", b"3f2c"),
        ("eta", b"2026-01-01T14:00:00.000001+02:00"),
        ("expires", b"null"),
        ("queue", b"reminders"),
    ]
    (row,) = parsed(spark, CELERY, record(key=None, value=b"[[7], {}, {}]", headers=headers, offset=41))
    assert (row.schedule_id, row.seq, row.seq_given) == ("3f2c", 41, False)
    assert (row.deliver_at_ms, row.event_time_ms) == (AT_NOON_MS + 1, SAID_MS)
    assert (row.destination, bytes(row.value), row.error_code) == ("reminders", b"[[7], {}, {}]", None)
    assert passed_on(row) == ["lang", "task", "id", "expires", "queue"]


@pytest.mark.parametrize("eta", [[("eta", b"null")], [("eta", b"")], [("eta", b" ")], [("eta", None)], []])
def test_a_celery_task_without_an_eta_is_due_at_once_if_the_default_delay_is_0(
    spark: SparkSession, eta: Headers
) -> None:
    task = record(headers=[("id", b"3f2c"), *eta])
    (at_once,) = parsed(spark, CELERY, task, default_delay_ms=0)
    (refused,) = parsed(spark, CELERY, task)
    assert dues([at_once, refused]) == [(SAID_MS, None), (None, "no_due_time")]
    assert passed_on(at_once) == ["id"]


def test_a_rabbitmq_message_waits_for_its_milliseconds_and_each_record_is_an_entry_of_its_own(
    spark: SparkSession,
) -> None:
    delays = (b"5000", b" 60000 ", b"0", b"-5000")
    rows = parsed(
        spark,
        RABBITMQ,
        *(
            record(headers=[("x-delay", each), ("trace", b"t")], offset=offset)
            for offset, each in enumerate(delays)
        ),
    )
    assert dues(rows) == [
        (SAID_MS + 5_000, None),
        (SAID_MS + 60_000, None),
        (SAID_MS, None),
        (SAID_MS - 5_000, None),
    ]
    assert [row.schedule_id for row in rows] == [f"orders/3/{offset}" for offset in range(4)]
    assert [passed_on(row) for row in rows] == [["trace"]] * 4


def test_a_rocketmq_message_waits_for_its_instant_or_for_the_delay_of_its_level(spark: SparkSession) -> None:
    own = [("UNIQ_KEY", b"7F00"), ("REAL_TOPIC", b"orders-due")]
    timed, lowest, highest, at_once = parsed(
        spark,
        ROCKETMQ,
        record(headers=[*own, ("TIMER_DELIVER_MS", b"1767268800000")]),
        *(record(headers=[*own, ("DELAY", level)]) for level in (b"1", b"18", b"0")),
    )
    assert (timed.schedule_id, timed.destination, timed.deliver_at_ms) == ("7F00", "orders-due", AT_NOON_MS)
    assert dues([lowest, highest, at_once]) == [
        (SAID_MS + 1_000, None),
        (SAID_MS + 7_200_000, None),
        (SAID_MS, None),
    ]
    assert passed_on(timed) == passed_on(lowest) == ["UNIQ_KEY", "REAL_TOPIC"]


def test_the_numbers_of_levels_are_those_of_a_list_of_the_config(spark: SparkSession) -> None:
    names = HeaderNames(
        id_from="key", delay_from="header:DELAY", delay_unit="level", levels_ms=(5_000, 9_000)
    )
    rows = parsed(spark, names, *(record(headers=[("DELAY", level)]) for level in (b"2", b"3")))
    assert dues(rows) == [(SAID_MS + 9_000, None), (None, "bad_delay")]


def test_a_delay_in_seconds_may_have_a_fraction_or_a_unit_of_its_own(spark: SparkSession) -> None:
    names = HeaderNames(id_from="key", delay_from="header:TIMER_DELAY_SEC", delay_unit="s")
    rows = parsed(
        spark,
        names,
        *(record(headers=[("TIMER_DELAY_SEC", text)]) for text in (b"90", b"1.5", b"5 ms", b"PT1M")),
    )
    assert [row.deliver_at_ms - SAID_MS for row in rows] == [90_000, 1_500, 5, 60_000]


# --- what cannot be read --------------------------------------------------------------------------


def test_a_header_that_cannot_be_read_is_a_reject_and_its_record_has_all_headers(spark: SparkSession) -> None:
    rows = parsed(
        spark,
        ROCKETMQ,
        *(
            record(headers=[("UNIQ_KEY", b"a"), *each])
            for each in (
                [("TIMER_DELIVER_MS", b"1767268800")],
                [("TIMER_DELIVER_MS", b"tomorrow")],
                [("TIMER_DELIVER_MS", b"\xff")],
                [("TIMER_DELIVER_MS", b"1" * 400)],
                [("DELAY", b"19")],
                [("DELAY", b"-1")],
                [("DELAY", b"1.5")],
                [("DELAY", b"soon")],
                [("DELAY", b"\xff")],
                [("TIMER_DELIVER_MS", b"1767268800000"), ("DELAY", b"3")],
            )
        ),
        record(headers=[("DELAY", b"3")]),
        record(headers=[("UNIQ_KEY", b"\xff"), ("DELAY", b"3")]),
        record(headers=[("UNIQ_KEY", b"a"), ("DELAY", b"3"), ("REAL_TOPIC", b"a b")]),
        record(headers=None),
    )
    assert [row.error_code for row in rows] == [
        *["bad_deliver_at"] * 4,
        *["bad_delay"] * 5,
        *("two_due_times", "no_schedule_id", "bad_schedule_id", "bad_destination", "no_schedule_id"),
    ]
    assert "delay = 'level 19'" in rows[4].error_message
    assert [each["key"] for each in json.loads(rows[4].record)["kafka"]["headers"]] == ["UNIQ_KEY", "DELAY"]


def test_a_number_without_a_unit_is_no_delay(spark: SparkSession) -> None:
    names = HeaderNames(id_from="key", delay_from="header:x-delay")
    rows = parsed(spark, names, *(record(headers=[("x-delay", text)]) for text in (b"5000", b"5 s")))
    assert dues(rows) == [(None, "bad_delay"), (SAID_MS + 5_000, None)]


# --- beside wheel-* headers -----------------------------------------------------------------------


def test_headers_of_the_wheel_come_first_so_a_cancel_of_a_client_is_read_in_the_same_topic(
    spark: SparkSession,
) -> None:
    cancel, schedule = parsed(
        spark,
        CELERY,
        record(headers=[("wheel-id", b"3f2c"), ("wheel-op", b"CANCEL"), ("wheel-seq", b"50")]),
        record(
            headers=[("id", b"other"), ("wheel-id", b"3f2c"), ("wheel-delay", b"5s"), ("wheel-target", b"t")]
        ),
    )
    assert (cancel.schedule_id, cancel.op, cancel.seq, cancel.error_code) == ("3f2c", 1, 50, None)
    assert (schedule.schedule_id, schedule.destination, schedule.deliver_at_ms) == (
        "3f2c",
        "t",
        SAID_MS + 5_000,
    )
    assert passed_on(schedule) == ["id"]


def test_the_key_and_the_version_may_come_from_headers_and_the_last_of_repeated_ones_counts(
    spark: SparkSession,
) -> None:
    names = HeaderNames(
        id_from="key", due_from="header:at", seq_from="header:version", key_from="header:customer"
    )
    headers: Headers = [("version", b"1"), ("at", b"x"), ("version", b"9"), ("customer", b"c"), ("at", b"0")]
    with_them, without, bad = parsed(
        spark,
        names,
        record(headers=headers),
        record(headers=[("at", b"0")]),
        record(headers=[("at", b"0"), ("version", b"v1")]),
    )
    assert (with_them.seq, with_them.seq_given, bytes(with_them.key)) == (9, True, b"c")
    assert (with_them.deliver_at_ms, passed_on(with_them)) == (0, ["version", "version", "customer"])
    assert (without.seq, without.seq_given, bytes(without.key)) == (7, False, b"k")
    assert bad.error_code == "bad_seq"


def test_without_names_nothing_changes(spark: SparkSession) -> None:
    frame = spark.createDataFrame([record(headers=[("id", b"a"), ("eta", b"0")])], SCHEMA)
    (row,) = kafka_commands(frame, "native").collect()
    assert (row.schedule_id, row.deliver_at, [each.key for each in row.headers]) == (
        None,
        None,
        ["id", "eta"],
    )


# --- the default delay ----------------------------------------------------------------------------


@pytest.mark.sentinel
def test_the_default_delay_is_of_commands_that_name_no_due_time_with_each_preset(spark: SparkSession) -> None:
    names = HeaderNames(id_from="key")
    rows = parsed(
        spark,
        names,
        record(headers=None),
        record(headers=[("wheel-delay", b"1s")]),
        record(headers=[("wheel-deliver-at", b"0")]),
        record(headers=[("wheel-repeat", b"every 1 minute")]),
        record(headers=[("wheel-op", b"RETRY"), ("wheel-attempt", b"1")]),
        default_delay_ms=30_000,
    )
    assert dues(rows) == [
        (SAID_MS + 30_000, None),
        (SAID_MS + 1_000, None),
        (0, None),
        (None, None),
        (None, "no_due_time"),
    ]

    in_json = record(value=b'{"schedule_id": "a"}')
    compacted = record(headers=[("scheduler-target-topic", b"out")])
    for preset, each in (("json", in_json), ("scheduler", compacted)):
        (row,) = parsed(spark, HeaderNames(), each, default_delay_ms=30_000, preset=preset)
        assert dues([row]) == [(SAID_MS + 30_000, None)]


# --- code -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        CELERY,
        RABBITMQ,
        ROCKETMQ,
        HeaderNames(
            id_from="header:a",
            due_from="header:b",
            delay_from="header:c",
            delay_unit="ms",
            destination_from="header:d",
            seq_from="header:e",
            key_from="header:f",
        ),
    ],
)
def test_what_spark_compiles_stays_small_with_names_of_headers(
    spark: SparkSession, tmp_path: Path, names: HeaderNames
) -> None:
    spark.createDataFrame([], SCHEMA).write.parquet(str(tmp_path / "in"))
    records = spark.read.parquet(str(tmp_path / "in"))
    sizes = {
        name: largest_method(
            parse_commands(with_default_delay(kafka_commands(records, "native", names), 0), contract)
        )
        for name, contract in (("no limits", Contract()), ("all limits", all_limits()))
    }
    assert {name: size for name, size in sizes.items() if not 0 < size < 8_000} == {}
