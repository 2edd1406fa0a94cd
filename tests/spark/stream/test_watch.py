"""The purgatory on real streams: files of operations and events in, outcomes out. Times are seconds after 2024-01-01
00:00 UTC.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row, functions as F

from tests.spark.streams import T0, at, at_ms, run
from tests.spark.watches import add_rows, event, operation, read_rows
from wheel_udf.commands.contract import EVENT_COLUMNS, OPERATION_COLUMNS, Contract
from wheel_udf.commands.operations import parse_operations
from wheel_udf.common.errors import ConfigError, ConfigErrors, ContractError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock, SimulatedClock
from wheel_udf.job.models.purgatory import EventFilesConfig, OperationFilesConfig
from wheel_udf.job.sources.operations import json_rows, read_both
from wheel_udf.stream.outputs import fired, outcomes, rejects, status
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.stream.watch_operator import watch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
UNTIL = EventClock(until_ms=at_ms(1_000))


def ended(rows: DataFrame) -> list[tuple[str, str, str | None, float]]:
    """(id, outcome, by key, at), in the order of ids."""
    found = outcomes(rows).orderBy("op_id", "generation").collect()
    return [(row.op_id, row.outcome, row.by_key, row.at.timestamp() - T0.timestamp()) for row in found]


def counts(rows: DataFrame) -> dict[str, int]:
    """Pending and all counts, over the last status of every shard; those of none are left out."""
    last: dict[int, Any] = {}
    for row in status(rows).collect():
        if row.shard not in last or row.batch_id > last[row.shard].batch_id:
            last[row.shard] = row
    names = (
        "pending",
        "completed",
        "expired",
        "cancelled",
        "duplicate",
        "rejected",
        "events",
        "event_rejected",
    )
    total = {name: sum(row[name] for row in last.values()) for name in names}
    return {name: count for name, count in total.items() if count}


BATCHES = (
    (
        [
            operation("any", 0, "a", "b"),
            operation("all", 0, "a", "c", rule="all"),
            operation("two", 1, "a", "b", "c", rule="n:2"),
            operation("sum", 1, "x", rule="SUM >= 10.5", value=b"\x00\xff"),
            operation("gone", 1, "y"),
            operation("over", 2, "z", deadline="2024-01-01T00:00:20Z"),
        ],
        [event("b", 5), event("x", 6, amount=10.0)],
    ),
    ([operation("any", 9, "a")], [event("a", 10), event("gone", 12, op="cancel_operation")]),
    ([], [event("c", 14), event("x", 15, amount=0.5), event("z", 21), event("y", 22)]),
)
ENDED = [
    ("all", "completed", "c", 14),
    ("any", "completed", "b", 5),
    ("gone", "cancelled", None, 12),
    ("over", "expired", None, 20),
    ("sum", "completed", "x", 15),
    ("two", "completed", "a", 10),
]
FIRE_IDS = [
    "a3c3a82a336d04ae06f52f36f774ec20",
    "c2c33f5c20b16583e511aed29fa6ca2a",
    "f6720c72738b61c511a5685934d37580",
    "aa86c2082b0210cdb660892a15de8735",
    "44d6cb6f3466ab536625c771be9cfc11",
    "fe88df676ec3392db91e7847a4c9f646",
]


def test_each_operation_ends_once_as_its_rule_says_wherever_batches_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    # All in one batch; the restart test has one a batch.
    add_rows(tmp_path / "in", *BATCHES)
    rows = run(
        watch(*read_rows(spark, tmp_path / "in", 9), wheel=WHEEL, clock=UNTIL),
        tmp_path / "checkpoint",
    )
    assert ended(rows) == ENDED
    assert counts(rows) == {"completed": 4, "expired": 1, "cancelled": 1, "duplicate": 1, "events": 8}
    (two, total) = outcomes(rows).where("op_id IN ('two', 'sum')").orderBy("op_id", ascending=False).collect()
    assert (two.present, two.missing, two.destination) == (["a", "b"], ["c"], "out")
    assert (total.value, total.missing, total.generation) == (bytearray(b"\x00\xff"), [], 1)
    assert [row.fire_id for row in outcomes(rows).orderBy("op_id").collect()] == FIRE_IDS


def test_a_run_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    for batch in (*BATCHES, ([], [])):
        add_rows(tmp_path / "in", batch)
        clock = UNTIL if batch == ([], []) else EventClock()
        frame = watch(*read_rows(spark, tmp_path / "in"), wheel=WHEEL, clock=clock)
        writer = frame.writeStream.format("parquet").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert ended(rows) == ENDED
    assert counts(rows) == {"completed": 4, "expired": 1, "cancelled": 1, "duplicate": 1, "events": 8}


def test_a_frame_is_asked_for_what_it_has(spark: SparkSession, tmp_path: Path) -> None:
    add_rows(tmp_path / "in", ([operation("a", 0, "k")], []))
    operations, events = read_rows(spark, tmp_path / "in")
    frame = watch(operations, events, wheel=WHEEL, clock=UNTIL)
    with pytest.raises(ContractError, match=r"a frame of watch\(\) has outcomes.*outcomes\(frame\)"):
        fired(frame)
    commands = operations.withColumnsRenamed({"op_id": "schedule_id", "deadline": "deliver_at"})
    with pytest.raises(ContractError, match=r"has firings and no outcomes.*fired\(frame\)"):
        outcomes(schedule(commands, wheel=WHEEL, clock=UNTIL))
    with pytest.raises(ContractError, match="the operations have no column group, deadline"):
        watch(operations.drop("group", "deadline"), events, wheel=WHEEL, clock=UNTIL)
    with pytest.raises(ContractError, match=r"a column of the events has a type .*: amount = 'timestamp'"):
        watch(operations, events.withColumn("amount", F.col("event_time")), wheel=WHEEL, clock=UNTIL)
    with pytest.raises(ConfigError, match=r"unknown outcomes: deliver = 'expired'; rule: a list of"):
        watch(operations, events, wheel=WHEEL, clock=UNTIL, deliver="expired")


def test_all_that_is_wrong_with_two_sources_is_told_at_once(spark: SparkSession, tmp_path: Path) -> None:
    add_rows(tmp_path, ([operation("a", 0, "k")], []))
    given = {"format": "parquet", "path": str(tmp_path / "operations")}
    sql = {"op_id": "op_idd", "keys": "array(", "group": "max(group)"}
    operations = OperationFilesConfig.model_validate(given | {"columns": sql, "where": "group"})
    with pytest.raises(ConfigErrors) as caught:
        read_both(
            spark, operations, EventFilesConfig.model_validate(given | {"path": str(tmp_path / "none")})
        )
    told = {fault.field: str(fault) for fault in caught.value.faults}
    assert told.keys() == {
        "operations.where",
        "operations.columns.op_id",
        "operations.columns.keys",
        "operations.columns.group",
        "events.path",
    }
    assert "it is of type string, not boolean" in told["operations.where"]
    assert "PARSE_SYNTAX_ERROR" in told["operations.columns.keys"]
    assert "rule: SQL over op_id, group, keys," in told["operations.columns.op_id"]
    assert told["events.path"].startswith("there is nothing to read: events.path = ")


def test_what_cannot_be_used_is_a_row_of_the_rejects_that_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    operations = [
        operation(None, 0, "a"),
        operation("no-group", 0, "a", group=""),
        operation("no-keys", 0),
        operation("null-key", 0, "a", None),  # type: ignore[arg-type]
        operation("rule", 0, "a", rule="most"),
        operation("too-many", 0, "a", "a", "b", rule="n:3"),
        operation("no-deadline", 0, "a", deadline=None),
        operation("deadline", 0, "a", deadline="soon"),
        operation("past", 5, "a", deadline="2024-01-01T00:00:04Z"),
        operation("far", 0, "a", deadline="2 d"),
        operation("limit", 0, "a", limit="20 s"),
        operation("sum-limit", 0, "a", rule="sum>=1", limit="40 s"),
        operation("where", 0, "a", destination="elsewhere"),
        operation("good", 0, "a", rule=" N : 1 "),
    ]
    events = [event(None, 1), event("a", 1, op="poke"), event("a", 1, amount=-1.0), event("b", 2)]
    add_rows(tmp_path / "in", (operations, events))
    contract = Contract(destinations=("out",), max_delay_ms=86_400_000)
    frame = watch(*read_rows(spark, tmp_path / "in"), wheel=WHEEL, clock=UNTIL, contract=contract)
    rows = run(frame, tmp_path / "checkpoint")
    rejected = {(row.op_id, row.error_code): row for row in rejects(rows).collect()}
    assert rejected.keys() == {
        (None, "no_op_id"), ("no-group", "no_group"), ("no-keys", "no_keys"), ("null-key", "bad_key"), ("rule", "bad_rule"),
        ("too-many", "bad_rule"), ("no-deadline", "no_deadline"), ("deadline", "bad_deadline"), ("past", "deadline_past"),
        ("far", "beyond_max_delay"), ("limit", "bad_limit"), ("sum-limit", "bad_limit"), ("where", "unknown_destination"),
        (None, "no_key"), (None, "bad_op"), (None, "bad_amount"),
    }  # fmt: skip
    rule = rejected["rule", "bad_rule"]
    assert rule.error_message.startswith(
        "not a rule: rule = 'most'; rule: any, all, n:<keys>, sum>=<amount> or beat"
    )
    assert json.loads(rule.record)["keys"] == ["a"]
    # A row without a usable time moves no clock.
    assert max(row.clock_ms for row in status(rows).collect()) == at_ms(1_000)
    assert counts(rows) == {"expired": 1, "rejected": 13, "events": 1, "event_rejected": 3}


def test_only_the_outcomes_that_are_asked_for_leave(spark: SparkSession, tmp_path: Path) -> None:
    add_rows(tmp_path / "in", *BATCHES)
    clock = SimulatedClock(instants_ms=(at_ms(0), at_ms(15), at_ms(500)))
    frame = watch(*read_rows(spark, tmp_path / "in"), wheel=WHEEL, clock=clock, deliver=["expired"])
    rows = run(frame, tmp_path / "checkpoint")
    assert ended(rows) == [("over", "expired", None, 20)]
    assert counts(rows)["completed"] == 4


def test_settings_that_cannot_be_are_errors_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    add_rows(tmp_path / "in", ([], []))
    operations, events = read_rows(spark, tmp_path / "in")
    with pytest.raises(ConfigError, match=r"lookback_ms = 600000; rule: 0 to memory_ms, 300000"):
        watch(operations, events, wheel=WHEEL, clock=UNTIL, lookback_ms=600_000)
    for lookback_ms in (-1, 2**62):
        with pytest.raises(ConfigError, match=rf"a setting is out of range: lookback_ms = {lookback_ms}"):
            watch(operations, events, wheel=WHEEL, clock=UNTIL, lookback_ms=lookback_ms, memory_ms=None)
    with pytest.raises(ConfigError, match=r"unknown outcomes: deliver = 'paid'"):
        watch(operations, events, wheel=WHEEL, clock=UNTIL, deliver=["paid"])
    with pytest.raises(ContractError, match=r"the operations have no column op_id"):
        watch(operations.drop("op_id"), events, wheel=WHEEL, clock=UNTIL)
    with pytest.raises(ContractError, match=r"not a streaming frame"):
        watch(operations, spark.range(1), wheel=WHEEL, clock=UNTIL)


def test_a_kafka_record_without_columns_is_a_json_object_with_their_names(spark: SparkSession) -> None:
    values = [
        '{"op_id": "o", "group": "g", "keys": ["a", "b"], "rule": "all", "deadline": "5 s", "limit": "9 s", "value": "v"}',
        '{"op_id": "p", "group": "g", "keys": ["a"], "deadline": "5 s", "event_time": "2024-01-01T00:00:07Z"}',
        '{"op_id": "q", "group": "g", "keys": "alone", "deadline": "5 s"}',
        '{"op_id": "r", "group": "g", "keys": [], "deadline": "5 s"}',
        "no JSON at all",
        "[1]",
        None,
    ]
    records = spark.createDataFrame(
        [(value and value.encode(), at(3), "orders/0/1") for value in values],
        "value binary, timestamp timestamp, source_coordinates string",
    )
    rows = parse_operations(
        json_rows(records, OPERATION_COLUMNS), Contract(default_destination="out")
    ).collect()
    assert [(row.name, row.need, row.event_time_ms, row.deadline_ms, row.limit_ms) for row in rows[:2]] == [
        ("o", 2, at_ms(3), at_ms(8), at_ms(12)),
        ("p", 1, at_ms(7), at_ms(12), None),
    ]
    assert rows[2].keys == "alone"
    rejected = [json.loads(row.reject) for row in rows[3:]]
    assert [each["error_code"] for each in rejected] == ["no_keys", *["unreadable"] * 3]
    assert "keys = '[]'" in rejected[0]["error_message"]
    assert (rows[0].source, rows[0].value) == ("orders/0/1", bytearray(b"v"))


def test_json_in_an_operation_was_written_anew_and_its_keys_were_not_those_of_the_events(
    spark: SparkSession,
) -> None:
    value = """{"op_id": 0.10, "group": -0, "keys": [1E400, "b", 1.50 ], "deadline": "5 s", "value": { "n": 0.10 }, "headers": {"h": [ ]}}"""
    event = '{"group": -0, "key": 1E400}'
    records = spark.createDataFrame(
        [(each.encode(), at(3), "orders/0/1") for each in (value, event)],
        "value binary, timestamp timestamp, source_coordinates string",
    )
    watched, _ = json_rows(records, OPERATION_COLUMNS).collect()
    _, of_event = json_rows(records, EVENT_COLUMNS).collect()
    assert (watched.op_id, watched.group, watched["keys"]) == ("0.10", "-0", ["1E400", "b", "1.50"])
    assert (watched.value, watched.headers) == ('{ "n": 0.10 }', [Row(key="h", value=bytearray(b"[ ]"))])
    assert (of_event.group, of_event.key) == ("-0", "1E400")
