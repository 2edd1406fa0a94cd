"""Pending series: the load to come, and acts on them, on a job that stops and goes on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ActError, ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.instants import parse_instant_ms
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.delivery.summary import Summary
from wheel_udf.job.next import lines_of
from wheel_udf.job.picture import draw
from wheel_udf.pending import acts
from wheel_udf.pending.acts import Picked
from wheel_udf.pending.entries import PendingWork, forecast, pending
from wheel_udf.pending.history import history_of
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
    summary: list[str] = field(default_factory=list)

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
        summary = Summary()
        for report in reports:
            summary.add(report)
        assert summary.commands_close
        self.summary = [
            line for line in summary.render().splitlines() if re.match("  (sched|canc|fires)", line)
        ]
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
    lines = day.select(F.to_json(F.struct("*")).alias("line")).collect()
    draw([json.loads(row.line) for row in lines], tmp_path / "forecast.png")
    assert (tmp_path / "forecast.png").stat().st_size > 0
    with pytest.raises(ConfigError, match=r"^a forecast of too many steps: horizon = '2 days'; rule: up to "):
        forecast(pending(job.spark, job.work), "1 second", horizon="2 days")


def test_a_paused_series_waits_until_it_is_resumed_and_has_missed_what_came_meanwhile(job: Job) -> None:
    spark, ping = job.spark, Picked(["ping"])
    job.run("10:05", command("ping", repeat="every 15 minutes"), command("once", delay="2 hours"))
    everything = Picked(where="true")
    assert acts.pause(spark, job.work, everything, dry_run=True) == 1, (
        "an entry that is no series has no pause"
    )
    assert acts.pause(spark, job.work, everything) == 1
    assert job.waiting() == {"ping": ("10:15", None, True), "once": ("12:00", "12:00", False)}
    assert job.load("1 hour", "10:05", "3 hours") == [("12:00", "out", 1, 0, 0)]

    job.run("10:50")
    assert job.waiting()["ping"] == ("10:15", None, True)
    (event,) = [each for each in history_of(spark, job.work, "ping", geometry=WHEEL) if each.what == "paused"]
    assert (event.at_ms, event.deliver_at_ms) == (None, at_ms("10:15"))
    assert [act(spark, job.work, ping) for act in (acts.pause, acts.skip, acts.fire_now)] == [0, 0, 0]
    assert acts.move(spark, job.work, ping, to="deliver_at") == 0
    assert acts.reroute(spark, job.work, ping, to="mail") == 1
    assert job.waiting()["ping"] == ("10:15", None, True), "elsewhere, and still paused"

    assert acts.resume(spark, job.work, everything, dry_run=True) == 1
    assert acts.resume(spark, job.work, ping) == 1
    assert job.waiting()["ping"] == ("10:15", "10:15", False)
    account = job.run("11:05")
    rows = spark.read.format("delta").load(str(job.folder / "tables" / "mail"))
    # The first batch has the clock at which the job stopped, 10:50.
    found = rows.select(_time("deliver_at"), "missed_before").orderBy("deliver_at").collect()
    assert found == [("10:45", 2), ("11:00", 0)]
    assert job.waiting()["ping"] == ("11:15", "11:15", False)
    assert account == {"occurrences_fired": 2, "occurrences_missed": 2, "superseded": 3}
    recorded = acts.audit(spark, job.checkpoint).orderBy("batch").collect()
    assert [(row.act, row.rows) for row in recorded] == [("pause", 1), ("reroute", 1), ("resume", 1)]


def test_a_pause_and_its_end_that_no_batch_has_taken_leave_the_series_as_it_was(job: Job) -> None:
    job.run("10:05", command("ping", repeat="every 15 minutes", spread="1 minute"))
    before = job.waiting()
    assert acts.pause(job.spark, job.work, Picked(["ping"])) == 1
    assert acts.resume(job.spark, job.work, Picked(["ping"])) == 1
    assert job.waiting() == before
    job.run("10:06")
    assert job.waiting() == before


def test_the_next_times_of_an_id_are_those_that_acts_have_left(job: Job) -> None:
    job.run(
        "10:20",
        command("report", repeat="0 * * * *", count=3),
        command("ping", repeat="every 15 minutes"),
        command("over", repeat="every 15 minutes"),
        command("once", delay="1 hour"),
    )
    assert lines_of(job.spark, job.work, ["report"], 5) == [
        f"2026-01-01T{hour}:00:00.000Z  2026-01-01T{hour}:00:00.000+00:00 UTC" for hour in (11, 12, 13)
    ]
    acts.pause(job.spark, job.work, Picked(["ping"]))
    acts.cancel(job.spark, job.work, Picked(["over"]))
    assert lines_of(job.spark, job.work, ["ping", "over", "once", "nobody"], 1) == [
        "ping:",
        "ping is paused",
        "over:",
        "over is not pending",
        "once:",
        "2026-01-01T11:00:00.000Z  2026-01-01T11:00:00.000+00:00 UTC",
        "nobody:",
        "nobody is not pending",
    ]


@pytest.mark.sentinel
def test_what_fires_now_is_released_once_and_a_series_goes_on_behind_it(job: Job) -> None:
    job.run("10:05", command("ping", repeat="every 15 minutes"), command("once", delay="2 hours"))
    assert acts.fire_now(job.spark, job.work, Picked(where="true"), dry_run=True) == 2
    assert acts.fire_now(job.spark, job.work, Picked(where="true")) == 2
    job.run("10:10")
    # A series keeps the nominal time; the due time of another entry is the clock of the act.
    assert job.fired() == [("once", "10:05", "10:05", None), ("ping", "10:15", "10:05", 0)]
    job.run("10:20")
    assert len(job.fired()) == 2
    assert job.waiting() == {"ping": ("10:30", "10:30", False)}


def test_a_backfill_delivers_the_occurrences_of_a_range_as_entries_of_their_own(job: Job) -> None:
    spark = job.spark
    job.run(
        "10:35",
        command("ping", repeat="every 15 minutes", value="payload", max_lateness="1 minute"),
        command("cron", repeat="0 * * * *", value="other"),
    )
    before = job.waiting()
    told = {"from_ms": at_ms("09:00"), "to_ms": at_ms("10:30")}
    assert acts.backfill(spark, job.work, Picked(where="true"), dry_run=True, **told) == 4
    assert acts.backfill(spark, job.work, Picked(where="true"), **told) == 4
    added = {
        "ping@2026-01-01T10:00:00Z": ("10:00", "10:00", False),
        "ping@2026-01-01T10:15:00Z": ("10:15", "10:15", False),
        "cron@2026-01-01T09:00:00Z": ("09:00", "09:00", False),
        "cron@2026-01-01T10:00:00Z": ("10:00", "10:00", False),
    }
    assert job.waiting() == before | added
    assert pending(spark, job.work, ids=["ping"]).count() == 1

    account = job.run("10:36")
    rows = spark.read.format("delta").load(str(job.folder / "tables" / "out"))
    found = rows.where("schedule_id LIKE '%@%'").select("schedule_id", _time("deliver_at"), "value", "seq")
    values = {row.schedule_id: (row.deliver_at, bytes(row.value)) for row in found.collect()}
    assert values == {
        name: (due, b"payload" if name.startswith("ping") else b"other") for name, (due, *_) in added.items()
    }
    assert job.waiting() == before, "the series are as they were"
    assert account["fired"] == 4
    assert acts.backfill(spark, job.work, Picked(["ping"]), **told) == 2
    assert job.run("10:37") == account | {"duplicate": 2}, "the same within memory"


def test_a_backfill_is_of_a_range_that_has_passed_and_of_a_bounded_number(job: Job) -> None:
    job.run("10:05", command("ping", repeat="* * * * *"), command("x" * 500, repeat="@hourly"))

    def refused(begin: str, end: str, name: str = "ping", **more: Any) -> str:
        with pytest.raises(ActError) as fault:
            acts.backfill(job.spark, job.work, Picked([name]), from_ms=at_ms(begin), to_ms=at_ms(end), **more)
        return str(fault.value)

    assert refused("09:00", "09:00").startswith(
        "an empty range: to = '2026-01-01T09:00:00.000Z'; rule: after"
    )
    assert refused("09:00", "10:06").startswith(
        "a range in the future: to = '2026-01-01T10:06:00.000Z'; rule: "
    )
    assert refused("09:00", "10:00", most=59) == (
        "too many occurrences for an act: most = 'more than 59'; rule: up to 59; hint: a shorter range or fewer "
        "series, or a larger bound (--most)"
    )
    assert refused("09:00", "10:00", most=0) == "not a number of occurrences: most = 0; rule: at least 1"
    assert refused("09:00", "10:00", "x" * 500).startswith("an id is too long: schedule_id = '521 bytes'")
    told = {"from_ms": at_ms("09:00"), "to_ms": at_ms("10:00")}
    assert acts.backfill(job.spark, job.work, Picked(["ping"]), most=60, dry_run=True, **told) == 60
    assert acts.audit(job.spark, job.checkpoint).isEmpty()


def test_a_command_fires_what_waits_under_its_id_with_the_batch_that_reads_it(job: Job) -> None:
    job.run("10:05", command("ping", repeat="every 15 minutes"), command("once", delay="2 hours", value="v"))
    fires = [command(name, "10:06", op="FIRE_NOW", destination=None) for name in ("ping", "once", "nobody")]
    account = job.run("10:06", *fires, command("bad", op="FIRE_NOW", event_time="soon"))
    # The batch that reads them has the clock of the run before.
    assert job.fired() == [("once", "10:05", "10:05", None), ("ping", "10:15", "10:05", 0)]
    told = {"fired": 1, "occurrences_fired": 1, "fire_applied": 2, "fire_late": 1, "fire_rejected": 1}
    assert account == told
    assert job.waiting() == {"ping": ("10:30", "10:30", False)}

    late = command("once", "10:07", op="FIRE_NOW")
    assert job.run("10:07", late) == told | {"fire_late": 2}
    assert job.summary == [
        "  schedules   2 = 1 pending + 1 fired + 0 missed + 0 cancelled + 0 superseded + 0 duplicate + 0 rejected",
        "  cancels     0 = 0 applied + 0 waiting + 0 late + 0 superseded + 0 duplicate + 0 rejected",
        "  fires       5 = 2 applied + 2 late + 1 rejected",
    ]


def test_a_command_to_fire_an_older_version_or_one_that_is_cancelled_with_it_is_late(job: Job) -> None:
    job.run("10:05", command("a", delay="2 hours", seq=1), command("b", delay="2 hours", seq=1))
    account = job.run(
        "10:06",
        command("a", "10:06", delay="3 hours", seq=3),
        command("a", "10:06", op="FIRE_NOW", seq=2),
        command("b", "10:06", op="CANCEL", seq=2),
        command("b", "10:06", op="FIRE_NOW", seq=2),
        command("c", "10:06", delay="3 hours", seq=1),
        command("c", "10:06", op="FIRE_NOW", seq=1),
    )
    assert [row[0] for row in job.fired()] == ["c"]
    assert job.waiting() == {"a": ("13:06", "13:06", False)}
    assert account == {
        "superseded": 1, "cancelled": 1, "applied": 1, "fired": 1, "fire_applied": 1, "fire_late": 2,
    }  # fmt: skip
