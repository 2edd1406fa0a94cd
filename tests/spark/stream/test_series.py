"""Series on real streams: columns of commands in, occurrences out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.spark.streams import account, run
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.parse import Contract, parse_commands
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import SimulatedClock
from wheel_udf.delivery.query import deliver
from wheel_udf.shard.rows import ID_JOINT
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.stream.outputs import fired, rejects
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.stream.sharding import shard_of_id

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
DAY_MS = 86_400_000
MARCH_27_MS = 1_774_569_600_000
_COLUMNS = (
    *("schedule_id", "op", "repeat", "time_zone", "starts_at", "until", "on_missed", "on_gap", "on_fold"),
    *("spread", "delay", "destination", "event_time"),
)


def command(name: str, **columns: Any) -> dict[str, Any]:
    return {"schedule_id": name, "event_time": "2026-03-27T00:00:00Z", "destination": "out"} | columns


def stream_of(spark: SparkSession, folder: Path, *rows: dict[str, Any]) -> DataFrame:
    folder.mkdir()
    (folder / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    schema = ", ".join(f"{name} STRING" for name in _COLUMNS)
    return spark.readStream.schema(f"{schema}, count BIGINT").json(str(folder))


def clock(*days: float) -> SimulatedClock:
    return SimulatedClock(instants_ms=tuple(MARCH_27_MS + int(day * DAY_MS) for day in days))


def lines(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of fired rows, instants as text in UTC, by id and number."""
    shown = fired(rows).withColumn(
        "at", F.date_format(F.to_utc_timestamp("deliver_at", F.current_timezone()), "MM-dd HH:mm")
    )
    return [
        tuple(row)
        for row in shown.orderBy("schedule_id", "occurrence").select("schedule_id", *columns).collect()
    ]


def test_a_series_comes_at_its_local_time_across_a_change_of_clocks(
    spark: SparkSession, tmp_path: Path
) -> None:
    commands = stream_of(
        spark,
        tmp_path / "in",
        command("gap", repeat="30 2 * * *", time_zone="Europe/Paris", on_missed="all"),
        command("skips", repeat="30 2 * * *", time_zone="Europe/Paris", on_missed="all", on_gap="skip"),
        command("hourly", repeat="@hourly", count=2, on_missed="all"),
    )
    rows = run(schedule(commands, wheel=WHEEL, clock=clock(0, 4)), tmp_path / "checkpoint")

    assert lines(rows, "at", "occurrence") == [
        ("gap", "03-27 01:30", 1),
        ("gap", "03-28 01:30", 2),
        ("gap", "03-29 01:00", 3),
        ("gap", "03-30 00:30", 4),
        ("hourly", "03-27 01:00", 1),
        ("hourly", "03-27 02:00", 2),
        ("skips", "03-27 01:30", 1),
        ("skips", "03-28 01:30", 2),
        ("skips", "03-30 00:30", 3),
    ]
    assert account(rows) == {"pending": 2, "ended": 1, "occurrences_fired": 9}


def test_each_occurrence_has_a_fire_id_of_its_own_and_says_what_was_missed_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    commands = stream_of(
        spark,
        tmp_path / "in",
        command("latest", repeat="every 6 hours"),
        command("none", repeat="every 6 hours", on_missed="none"),
        command("once", delay="1 hour"),
    )
    rows = run(schedule(commands, wheel=WHEEL, clock=clock(0, 0.25, 1.1)), tmp_path / "checkpoint")

    assert lines(rows, "at", "occurrence", "missed_before") == [
        ("latest", "03-27 06:00", 1, 0),
        ("latest", "03-28 00:00", 4, 2),
        ("none", "03-27 06:00", 1, 0),
        ("once", "03-27 01:00", None, None),
    ]
    assert fired(rows).select("fire_id").distinct().count() == 4
    (reject,) = rejects(rows).collect()
    assert (reject.schedule_id, reject.error_code) == ("none", "missed")
    assert reject.error_message == "occurrences that were over: 3; rule: on_missed, and max_lateness"


def test_what_cannot_repeat_is_a_row_of_the_rejects_that_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    commands = stream_of(
        spark,
        tmp_path / "in",
        command("cron", repeat="61 * * * *"),
        command("zone", repeat="@daily", time_zone="Europe/Pari"),
        command("over", repeat="@daily", until="2026-03-01"),
        command("two", repeat="@daily", delay="1 hour", starts_at="2026-04-01"),
        command("alone", delay="1 hour", until="2026-04-01"),
        command("missed", repeat="@daily", on_missed="some"),
        command("spread", repeat="@daily", spread="-1 s"),
        command("count", repeat="@daily", count=0),
        command("long", repeat="0 9 * * *" + " " * 300),
    )
    rows = run(schedule(commands, wheel=WHEEL, clock=clock(0, 4)), tmp_path / "checkpoint")

    found = {row.schedule_id: (row.error_code, row.error_message) for row in rejects(rows).collect()}
    assert {name: code for name, (code, _) in found.items()} == {
        "cron": "bad_repeat",
        "zone": "bad_time_zone",
        "over": "no_occurrence",
        "two": "two_starts",
        "alone": "no_repeat",
        "missed": "bad_on_missed",
        "spread": "bad_spread",
        "count": "bad_count",
        "long": "bad_repeat",
    }
    assert found["cron"][1].startswith("not a cron expression: repeat = '61 * * * *'; rule: ")
    assert account(rows) == {"rejected": 9}


def test_an_occurrence_that_is_tried_again_belongs_to_the_shard_of_its_series(spark: SparkSession) -> None:
    ids = spark.range(200).select(F.concat(F.lit("order-"), "id").alias("outer"))
    inner = F.concat("outer", F.lit(ID_JOINT), F.lit("1767225600000"))
    rows = ids.select(shard_of_id(F.col("outer"), 7).alias("a"), shard_of_id(inner, 7).alias("b"))
    assert rows.where("a <> b").count() == 0
    assert rows.select("a").distinct().count() == 7


def test_a_spread_moves_each_id_within_its_window_and_keeps_the_nominal_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    ids = [f"id-{number}" for number in range(200)]
    commands = stream_of(
        spark,
        tmp_path / "in",
        *(command(name, repeat="0 9 * * *", spread="10 minutes", count=1) for name in ids),
        *(command(f"once {name}", delay="9 hours", spread="10 minutes") for name in ids),
    )
    hours = [9 / 24 + minutes / 1440 for minutes in range(11)]
    rows = run(schedule(commands, wheel=WHEEL, clock=clock(0, *hours)), tmp_path / "checkpoint")

    assert {row[1] for row in lines(rows, "at")} == {"03-27 09:00"}
    for_each_minute = fired(rows).groupBy(F.minute("fired_at").alias("minute")).count()
    counts = {row.minute: row["count"] for row in for_each_minute.collect()}
    assert sum(counts.values()) == 400
    assert len(counts) >= 9, "even, and not all at once"
    assert max(counts.values()) < 80


def test_a_table_without_the_columns_of_series_gets_their_rows_without_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/tables/out` (schedule_id STRING, seq BIGINT, fire_id STRING, destination STRING, "
        "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, deliver_at TIMESTAMP, "
        "fired_at TIMESTAMP, lateness_ms BIGINT) USING delta"
    )
    commands = stream_of(
        spark,
        tmp_path / "in",
        command("a", repeat="@daily"),
        command("b", repeat="@daily", destination="new"),
    )
    query = deliver(
        schedule(commands, wheel=WHEEL, clock=clock(0, 1, 2)),
        destinations=Destinations({"*": DeltaSink(str(tmp_path / "tables"), create=True)}),
        rejects=DeltaSink(str(tmp_path / "rejects")),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger="available-now",
    )
    query.awaitTermination()

    old, new = (spark.read.format("delta").load(str(tmp_path / "tables" / name)) for name in ("out", "new"))
    assert old.count() == new.count() == 2
    assert set(new.columns) - set(old.columns) == {"occurrence", "missed_before"}


def test_without_a_rule_the_contract_of_a_command_is_what_it_was(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("a", "1 hour", None), ("b", None, None)], "schedule_id string, delay string, repeat string"
    )
    rows = {
        row.schedule_id: row for row in parse_commands(frame, Contract(default_destination="out")).collect()
    }

    assert (rows["a"].error_code, rows["a"].repeat) == (None, None)
    assert rows["b"].error_code == "no_due_time"


@pytest.mark.parametrize("preset", ["native", "json"])
def test_a_preset_reads_the_rule_of_a_series(spark: SparkSession, preset: str) -> None:
    given = {
        "repeat": "0 9 * * *",
        "time_zone": "Europe/Paris",
        "until": "2026-05-01T00:00:00Z",
        "count": "3",
    }
    headers = (
        []
        if preset == "json"
        else [("wheel-id", "a"), *((f"wheel-{name.replace('_', '-')}", text) for name, text in given.items())]
    )
    value = json.dumps(given | {"schedule_id": "a"}) if preset == "json" else "v"
    record = (
        b"a",
        value.encode(),
        "t",
        0,
        7,
        1_774_569_600.0,
        [(name, text.encode()) for name, text in headers],
    )
    frame = spark.createDataFrame(
        [record],
        "key binary, value binary, topic string, partition int, offset long, seconds double, "
        "headers array<struct<key: string, value: binary>>",
    ).withColumn("timestamp", F.timestamp_seconds("seconds"))
    (row,) = parse_commands(kafka_commands(frame, preset), Contract(default_destination="out")).collect()

    assert row.error_code is None, row.error_message
    assert json.loads(row.repeat) == {
        "repeat": "0 9 * * *",
        "time_zone": "Europe/Paris",
        "until_ms": 1_777_593_600_000,
        "count": 3,
    }
    assert (row.anchor_ms, row.last_ms, row.spread_ms) == (MARCH_27_MS, MARCH_27_MS, 0)
    assert not row.headers
