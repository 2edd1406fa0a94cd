"""The operator on real streams: files in, rows of every kind out. Times are seconds after 2024-01-01 00:00 UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from tests.spark.streams import T0, account, add_files, at, at_ms, cancel, due, read_files, run
from wheel_udf.commands.parse import Contract
from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock, ProcessingClock, SimulatedClock
from wheel_udf.stream.outputs import fired, rejects, status
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.stream.sharding import shard_keys, shard_of_id

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)


def fired_of(rows: DataFrame) -> list[tuple[str, int, float]]:
    """(id, seq, fired at), in the order of firing."""
    ordered = fired(rows).orderBy("fired_at", "deliver_at", "schedule_id")
    return [
        (row.schedule_id, row.seq, (row.fired_at.timestamp() - T0.timestamp())) for row in ordered.collect()
    ]


def test_a_shard_has_the_first_key_that_is_free_and_whose_hash_is_its_number_modulo_720(
    spark: SparkSession,
) -> None:
    keys = shard_keys(1024)
    numbers = spark.range(max(keys) + 1).select(F.pmod(F.hash(F.col("id").cast("int")), F.lit(720)))
    found: dict[int, list[int]] = {}
    for key, (residue,) in enumerate(numbers.collect()):
        found.setdefault(residue, []).append(key)
    assert keys == tuple(found[shard % 720][shard // 720] for shard in range(1024))


def test_each_command_of_a_stream_ends_as_it_should(spark: SparkSession, tmp_path: Path) -> None:
    # said at        0          10          20          25         until 100
    # paid           due 60     -           cancel                             cancelled
    # moved          due 30     due 70                                         superseded, fired
    # plain          due 15                 |fires                             fired by the batch whose watermark is 20
    # old                                   due 5: past due                    fired by the batch that reads it
    add_files(
        tmp_path / "in",
        [due("paid", 60, 0), due("moved", 30, 0), due("plain", 15, 0), due(None, 9, 0)],
        [due("moved", 70, 10, seq=2)],
        [cancel("paid", 20, seq=2), due("old", 5, 20)],
        [due("moved", 30, 25, seq=1)],
    )
    clock = EventClock(until_ms=at_ms(100))
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock), tmp_path / "checkpoint"
    )
    assert fired_of(rows) == [("old", 1, 10), ("plain", 1, 20), ("moved", 2, 100)]
    assert account(rows) == {"fired": 3, "cancelled": 1, "superseded": 2, "rejected": 1, "applied": 1}


def test_a_fired_row_carries_what_the_contract_says(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "in", [due("a", 1.5, 0, seq=7, value=b"\x00\xff")])
    clock = SimulatedClock(instants_ms=(at_ms(0), at_ms(2)))
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock), tmp_path / "checkpoint"
    )
    expected = spark.createDataFrame(
        [
            (
                "a",
                7,
                "3a5c2e71e43dc51cd944a5ea32239583",
                "out",
                None,
                bytearray(b"\x00\xff"),
                None,
                at(1.5),
                at(2),
                500,
            )
        ],
        "schedule_id string, seq long, fire_id string, destination string, key binary, value binary, "
        "headers array<struct<key: string, value: binary>>, deliver_at timestamp, fired_at timestamp, lateness_ms long",
    )
    assert_df_equality(fired(rows), expected, ignore_nullable=True)


def test_headers_and_keys_come_out_as_they_went_in(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "in", [due("a", 1, 0)])
    headers = F.array(F.struct(F.lit("trace").alias("key"), F.lit(bytearray(b"\x01")).alias("value")))
    commands = (
        read_files(spark, tmp_path / "in")
        .withColumn("headers", headers)
        .withColumn("key", F.lit(bytearray(b"")))
    )
    clock = SimulatedClock(instants_ms=(at_ms(2),))
    rows = run(schedule(commands, wheel=WHEEL, clock=clock), tmp_path / "checkpoint")
    (row,) = fired(rows).collect()
    assert (row.key, row.headers) == (bytearray(b""), [("trace", bytearray(b"\x01"))])


def test_a_cancel_in_a_later_file_wins_because_until_does_not_ride_on_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = [[due("a", 50, 0), due("b", 50, 0)], [due("c", 50, 1)], [cancel("a", 2, seq=2)]]
    add_files(tmp_path / "in", *files)
    clock = EventClock(until_ms=at_ms(100))
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock), tmp_path / "checkpoint"
    )
    assert fired_of(rows) == [("b", 1, 100), ("c", 1, 100)]


def test_a_clock_set_back_holds_and_a_jump_fires_once(spark: SparkSession, tmp_path: Path) -> None:
    # clock      10      0 (holds 10)   40               5000 (jump)
    # fires                             a due 30         b due 60, c due 4000
    add_files(tmp_path / "in", [due("a", 30, 0), due("b", 60, 0), due("c", 4000, 0)])
    clock = SimulatedClock(instants_ms=(at_ms(10), at_ms(0), at_ms(40), at_ms(5000), at_ms(5000)))
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock), tmp_path / "checkpoint"
    )
    assert fired_of(rows) == [("a", 1, 40), ("b", 1, 5000), ("c", 1, 5000)]


def test_a_backlog_over_the_limit_drains_oldest_first_without_new_data(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_files(tmp_path / "in", [due(f"id{n}", n, 0) for n in (5, 3, 1, 4, 2)])
    clock = EventClock(until_ms=at_ms(100))
    # One shard: several share the limit, and each has its own oldest.
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock, shards=1, limit=2),
        tmp_path / "checkpoint",
    )
    released = status(rows).where("fired_now > 0").orderBy("batch_id").select("fired_now").collect()
    assert [row.fired_now for row in released] == [2, 2, 1]
    assert [row.schedule_id for row in fired(rows).collect()] == ["id1", "id2", "id3", "id4", "id5"]


def test_a_backlog_in_one_shard_gets_what_the_others_leave_of_the_limit(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers = spark.range(2_000).select(F.col("id").cast("string"))
    mine = [row.id for row in numbers.where(shard_of_id(F.col("id"), 4) == 2).limit(300).collect()]
    add_files(tmp_path / "in", [due(each, 10 + place / 100, 0) for place, each in enumerate(mine)])
    rows = run(
        schedule(
            read_files(spark, tmp_path / "in"),
            wheel=WHEEL,
            clock=EventClock(until_ms=at_ms(100)),
            shards=4,
            limit=40,
        ),
        tmp_path / "checkpoint",
    )
    released = status(rows).where("fired_now > 0").orderBy("batch_id").select("fired_now").collect()
    # Ten of forty in the first batch, which shows that the shard is behind; then the other three keep one each.
    assert [row.fired_now for row in released] == [10, *[37] * 7, 31]
    assert [row.schedule_id for row in fired(rows).collect()] == mine


def test_one_far_future_event_time_is_rejected_and_does_not_move_the_clock(
    spark: SparkSession, tmp_path: Path
) -> None:
    year_2200 = 5.6e9
    add_files(
        tmp_path / "in",
        [due("a", 50, 0), due("poison", 60, year_2200), cancel("b", year_2200)],
        [due("c", 20, 10)],
        [],
    )
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=EventClock()), tmp_path / "checkpoint"
    )
    assert fired_of(rows) == []
    assert [row.error_code for row in rejects(rows).collect()] == ["event_time_ahead"] * 2
    assert account(rows) == {"pending": 2, "rejected": 1, "cancel_rejected": 1}


def test_a_flood_of_rows_without_an_id_is_the_work_of_all_shards(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "in", [due(None, number, 0) for number in range(400)])
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=EventClock(), shards=4),
        tmp_path / "checkpoint",
    )
    by_shard = status(rows).groupBy("shard").agg(F.sum("rejected_now").alias("rejected")).collect()
    assert {row.shard for row in by_shard} == {0, 1, 2, 3}
    assert min(row.rejected for row in by_shard) > 70
    assert account(rows) == {"rejected": 400}
    assert rejects(rows).count() == 400


def test_data_of_the_future_moves_the_clock_where_the_clock_allows_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_files(tmp_path / "in", [due("a", 50, 0)], [due("b", 6e9, 5.6e9)])
    clock = EventClock(max_ahead_ms=None)
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock), tmp_path / "checkpoint"
    )
    assert [row[0] for row in fired_of(rows)] == ["a"]


def test_due_times_of_1900_and_9999_are_data_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "in", [due("1900", -3.9e9, 0), due("9999", 2.5e11, 0)])
    clock = ProcessingClock(until_ms=at_ms(100))
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock), tmp_path / "checkpoint"
    )
    assert [row.schedule_id for row in fired(rows).collect()] == ["1900"]
    assert account(rows) == {"pending": 1, "fired": 1}


def test_an_entry_past_its_max_lateness_is_missed_and_a_row_of_the_rejects(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_files(
        tmp_path / "in", [due("late", 1, 0, max_lateness="2 seconds"), due("fine", 1, 0, max_lateness="PT9S")]
    )
    clock = SimulatedClock(instants_ms=(at_ms(0), at_ms(10)))
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=clock), tmp_path / "checkpoint"
    )
    assert fired_of(rows) == [("fine", 1, 10)]
    (missed,) = rejects(rows).collect()
    assert (missed.error_code, missed.schedule_id, missed.rejected_at.timestamp()) == (
        "missed",
        "late",
        at(10).timestamp(),
    )
    assert (
        missed.record
        == '{"schedule_id":"late","seq":1,"destination":"out","deliver_at":"2024-01-01T00:00:01.000Z"}'
    )


def test_an_unbounded_query_goes_idle_when_nothing_is_due(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "in", [due("a", 5, 0), due("far", 1e8, 10)])
    scheduled = schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=EventClock())
    query = scheduled.writeStream.format("memory").queryName("idle").start()
    query.processAllAvailable()
    assert fired_of(spark.table("idle")) == [("a", 1, 10)]
    last = query.lastProgress["batchId"]
    query.processAllAvailable()
    assert query.lastProgress["batchId"] == last
    add_files(tmp_path / "in", [due("b", 15, 20)])
    query.processAllAvailable()
    assert fired_of(spark.table("idle")) == [("a", 1, 10), ("b", 1, 20)]
    query.stop()


def test_an_empty_source_runs_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = run(
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=EventClock(until_ms=at_ms(9))),
        tmp_path / "checkpoint",
    )
    assert account(rows) == {}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"shards": 0}, "shards"),
        ({"shards": 1025}, "shards"),
        ({"limit": 0}, "limit"),
        ({"memory_ms": -1}, "memory_ms"),
        ({"memory_ms": 2**62}, "memory_ms"),
    ],
)
def test_a_setting_out_of_its_bounds_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, settings: dict[str, int], field: str
) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigError) as fault:
        schedule(read_files(spark, tmp_path / "in"), wheel=WHEEL, clock=EventClock(), **settings)
    assert fault.value.field == field


def test_a_frame_without_a_column_for_the_due_time_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    misspelt = read_files(spark, tmp_path / "in").withColumnRenamed("deliver_at", "deliver_time")
    with pytest.raises(
        ContractError, match=r"no column with a due time: .*hint: rename deliver_time to deliver_at"
    ):
        schedule(misspelt, wheel=WHEEL, clock=EventClock())


def test_a_frame_that_does_not_stream_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ContractError, match="streaming frame"):
        schedule(spark.range(1), wheel=WHEEL, clock=EventClock(), contract=Contract())
