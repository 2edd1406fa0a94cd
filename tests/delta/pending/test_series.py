"""Pending series: the load to come, and acts on them, on a job that stops and goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.instants import parse_instant_ms
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.job.picture import draw
from wheel_udf.pending.entries import PendingWork, forecast, pending
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.stream.schedule_operator import schedule

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
_COLUMNS = "schedule_id op repeat until on_missed spread delay destination event_time value max_lateness"


def at_ms(time: str) -> int:
    """An instant of 1 January 2026."""
    return parse_instant_ms(f"2026-01-01T{time}Z")


def command(name: str, at: str = "10:00", **columns: Any) -> dict[str, Any]:
    return {"schedule_id": name, "event_time": f"2026-01-01T{at}:00Z", "destination": "out"} | columns


@dataclass
class Job:
    """A wheel in the direct mode over JSON files in a folder, whose clock runs to a given time."""

    spark: SparkSession
    folder: Path

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def work(self) -> PendingWork:
        return PendingWork(self.checkpoint, contract=Contract(max_delay_ms=10**10))

    def run(self, until: str, *commands: dict[str, Any]) -> dict[str, int]:
        """Reads the commands and runs to a time; the counts of the account that are not 0."""
        (self.folder / "in").mkdir(exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in commands)
        number = len(list((self.folder / "in").iterdir()))
        (self.folder / "in" / f"{number}.json").write_text(lines, encoding="utf-8")
        schema = ", ".join(f"{name} STRING" for name in _COLUMNS.split())
        frame = self.spark.readStream.schema(f"{schema}, count BIGINT, seq BIGINT").json(
            str(self.folder / "in")
        )
        reports: list[Any] = []
        deliver(
            schedule(frame, wheel=WHEEL, clock=EventClock(until_ms=at_ms(until)), shards=3),
            destinations=Destinations({"*": DeltaSink(str(self.folder / "tables"), create=True)}),
            rejects=DeltaSink(str(self.folder / "rejects"), create=True),
            checkpoint=self.checkpoint,
            trigger="available-now",
            on_batch=reports.append,
        ).awaitTermination()
        return {name: count for name, count in reports[-1].counts.items() if count}

    def fired(self) -> list[tuple[Any, ...]]:
        """Of each row: id, due time, the time of its release, the number missed before it."""
        rows = self.spark.read.format("delta").load(str(self.folder / "tables" / "out"))
        rows = rows.select("schedule_id", _time("deliver_at"), _time("fired_at"), "missed_before")
        return sorted(tuple(row) for row in rows.collect())

    def waiting(self) -> dict[str, tuple[Any, ...]]:
        """Of each pending entry: due time, the time of its release, whether it is paused."""
        rows = pending(self.spark, self.work)
        named = rows.select("schedule_id", _time("deliver_at"), _time("scheduled_at"), "paused").collect()
        return {row.schedule_id: tuple(row)[1:] for row in named}

    def load(self, every: str, clock: str, horizon: str, where: str = "true") -> list[tuple[Any, ...]]:
        rows = pending(self.spark, self.work).where(where)
        return load_of(forecast(rows, every, horizon=horizon, clock_ms=at_ms(clock)))


def _time(name: str) -> Any:
    return F.date_format(F.to_utc_timestamp(name, F.current_timezone()), "HH:mm").alias(name)


def load_of(steps: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in steps.withColumn("due_from", _time("due_from")).collect()]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def test_a_forecast_counts_each_occurrence_up_to_the_horizon(job: Job, tmp_path: Path) -> None:
    job.run(
        "10:05",
        *(command(f"quarter {n}", repeat="every 15 minutes", value="12345") for n in range(3)),
        command("cron", repeat="*/30 * * * *", count=2, destination="mail"),
        command("once", delay="40 minutes"),
    )
    assert job.load("30 minutes", "10:05", "1 hour 25 minutes") == [
        ("10:00", "out", 3, 15, 0),
        ("10:30", "mail", 1, 0, 0),
        ("10:30", "out", 7, 30, 6),
        ("11:00", "mail", 1, 0, 1),
        ("11:00", "out", 6, 30, 6),
    ]
    assert job.load("30 minutes", "10:05", "1 minute", "schedule_id = 'once'") == [("10:30", "out", 1, 0, 0)]
    day = forecast(pending(job.spark, job.work), "1 second", horizon="1 day", clock_ms=at_ms("10:05"))
    assert day.groupBy().sum("rows", "estimated").collect() == [(3 * 96 + 2 + 1, 3 * 95 + 1)]
    draw(day, tmp_path / "forecast.png")
    assert (tmp_path / "forecast.png").stat().st_size > 0
    with pytest.raises(ConfigError, match=r"^a forecast of too many steps: horizon = '2 days'; rule: up to "):
        forecast(pending(job.spark, job.work), "1 second", horizon="2 days")
