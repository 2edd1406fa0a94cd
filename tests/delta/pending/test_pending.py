"""What is pending as a table in the direct mode, and predicates. The tiered mode: test_tiered.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.delta.tiered.test_tiered import LAYOUT
from tests.spark.streams import T0_MS, add_files, at, cancel, due, read_files, waiting
from wheel_udf.common.errors import ActError, CheckpointError, ConfigError
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.job.picture import draw
from wheel_udf.pending.acts import Picked
from wheel_udf.pending.entries import PendingWork, forecast, pending, step_ms
from wheel_udf.pending.history import history_of
from wheel_udf.pending.operations import operations_pending
from wheel_udf.pending.state import waiting as in_state
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.stream.schedule_operator import schedule

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_forecast_takes_due_times_of_the_year_9999_and_later(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(
        "SELECT timestamp_millis(at) AS scheduled_at, 'out' AS destination, X'00' AS key, X'0000' AS value "
        "FROM VALUES (253402300799999L), (253402300740000L), (9223372036854775L), (-1L) AS t(at)"
    )
    found = forecast(rows, "1 minute").select(F.unix_millis("due_from"), "rows", "bytes").collect()
    assert [tuple(row) for row in found] == [
        (-60_000, 1, 3),
        (253_402_300_740_000, 2, 6),
        (9_223_372_036_800_000, 1, 3),
    ]
    lines = forecast(rows, "1 minute").select(F.to_json(F.struct("*")).alias("line")).collect()
    draw([json.loads(row.line) for row in lines], tmp_path / "forecast.png")
    assert (tmp_path / "forecast.png").stat().st_size > 0


@pytest.mark.parametrize("every", ["0", "0 minutes", "-1 minute", "1 month", "soon", ""])
def test_the_width_of_a_step_is_a_duration_above_0(every: str) -> None:
    with pytest.raises(ConfigError, match=rf"^not the width of a step: every = '{every}'; rule: above 0; "):
        step_ms(every)


def test_the_state_of_a_direct_wheel_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    assert in_state(spark, str(tmp_path / "no batch yet")).isEmpty()
    for look in (
        lambda place: pending(spark, PendingWork(place)),
        lambda place: operations_pending(spark, place),
    ):
        with pytest.raises(
            CheckpointError, match=r"there is no checkpoint: .*/nowhere; rule: .*; hint: check the path"
        ):
            look(str(tmp_path / "nowhere"))
    add_files(
        tmp_path / "in",
        [
            due("soon", 5, 0),
            due("a", 60, 0, value=b"12345"),
            due("b", 100_000, 0, destination="other"),
            due("c", 70, 0),
        ],
        [cancel("c", 20, seq=2), due("d", 61, 20)],
    )
    query = deliver(
        schedule(read_files(spark, tmp_path / "in"), wheel=LAYOUT.wheel, clock=EventClock(), shards=2),
        destinations=Destinations({"*": DeltaSink(str(tmp_path / "tables"), create=True)}),
        rejects=DeltaSink(str(tmp_path / "rejects")),
        checkpoint=checkpoint,
        trigger="available-now",
    )
    query.awaitTermination()
    work = PendingWork(checkpoint)
    assert waiting(spark, work) == [("a", 1, 60, "state"), ("d", 1, 61, "state"), ("b", 1, 100_000, "state")]
    load = [tuple(row) for row in forecast(pending(spark, work)).collect()]
    assert load == [(naive(60), "out", 2, 5, 0), (naive(99_960), "other", 1, 0, 0)]
    first_ms = planned_ms(tmp_path / "checkpoint", batch=0)
    assert waiting(spark, work, as_of_ms=first_ms - 1) == []
    assert waiting(spark, work, as_of_ms=first_ms) == [
        ("soon", 1, 5, "state"),
        ("a", 1, 60, "state"),
        ("c", 1, 70, "state"),
        ("b", 1, 100_000, "state"),
    ]
    pending(spark, work).createOrReplaceTempView("waiting")
    assert spark.sql("SELECT schedule_id FROM waiting WHERE destination = 'other'").collect() == [("b",)]

    told = {name: heard(spark, work, tmp_path, name) for name in ("soon", "c", "b", "nobody")}
    assert told == {
        "soon": [("remembered: fired", 20), ("fired", 20)],
        "c": [("remembered: ended without firing", 0)],
        "b": [
            ("on a level of the wheel", 20),
            ("on a level of the wheel", 92_800),
            ("will fire", 100_000),
            ("on a level of the wheel", 100_000),
        ],
        "nobody": [],
    }


def planned_ms(checkpoint: Path, batch: int) -> int:
    metadata = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[1]
    return int(json.loads(metadata)["batchTimestampMs"])


def heard(spark: SparkSession, work: PendingWork, folder: Path, name: str) -> list[tuple[str, int | None]]:
    events = history_of(
        spark,
        work,
        name,
        geometry=LAYOUT.wheel,
        destinations=Destinations({"*": DeltaSink(str(folder / "tables"))}),
        rejects=DeltaSink(str(folder / "rejects")),
    )
    return [(event.what, None if event.at_ms is None else (event.at_ms - T0_MS) // 1_000) for event in events]


def naive(seconds: float) -> Any:
    """Collected timestamps have no zone; the tests' zone is UTC."""
    return at(seconds).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nobody = 1", "nobody"),
        ("schedule_id", "where"),
        ("count(*) > 1", "where"),
        ("1 = 1; DROP TABLE x", "where"),
        ("", "where"),
    ],
)
def test_a_predicate_that_is_none_is_an_error_that_quotes_it(
    spark: SparkSession, where: str, said: str
) -> None:
    rows = spark.createDataFrame([("a", 1)], "schedule_id string, seq long")
    with pytest.raises(ActError, match="predicate") as fault:
        Picked(where=where).of(rows)
    assert said in str(fault.value)


def test_an_act_on_everything_has_to_be_said() -> None:
    with pytest.raises(ActError, match="without ids and without a predicate"):
        Picked()
