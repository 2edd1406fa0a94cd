"""A real job is scraped over HTTP while it runs; its batch log, its JSON lines and Spark's observed metrics tell the
same.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import wheel_udf
from tests.command_line import say
from wheel_udf.job import loader
from wheel_udf.job.begin import run
from wheel_udf.metrics.batch_log import read_batches

COMMANDS: list[dict[str, Any]] = [
    {"schedule_id": "past", "deliver_at": "2020-01-01T00:00:00Z", "value": "1"},
    {"schedule_id": "far", "deliver_at": "2099-01-01T00:00:00Z"},
    {"schedule_id": "gone", "delay": "1 hour", "seq": 1},
    {"schedule_id": "gone", "op": "cancel", "seq": 2},
    {"schedule_id": "lost", "delay": "1 second", "destination": "../../x"},
    {"delay": "1 second"},
    {"schedule_id": "late", "deliver_at": "2020-01-01T00:00:00Z", "max_lateness": "1 hour"},
]


def configured(folder: Path, **changes: Any) -> Path:
    settings = {
        "name": "metered",
        "wheel": {"shards": 2},
        "clock": {"kind": "processing", "heartbeat": "1 second"},
        "source": {"format": "json", "path": str(folder / "in")},
        "contract": {"max_delay": "unlimited", "default_destination": "t"},
        "destinations": {"t": {"sink": "json", "path": str(folder / "out")}},
        "rejects": {"sink": "json", "path": str(folder / "bad")},
        "trigger": "0 seconds",
        "checkpoint": str(folder / "state"),
        "metrics": {"observed": True},
        "api": {"address": "localhost"},
    }
    file = folder / "job.yml"
    file.write_text(yaml.safe_dump(settings | changes))
    return file


def send(folder: Path, commands: list[dict[str, Any]]) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "1.json").write_text("".join(json.dumps(command) + "\n" for command in commands))


PHASE = "wheel_batch_phase_seconds_sum{addBatch}{wheel}"


class Scraper:
    """Takes the lines of a job that runs: scrapes it when a batch has ended, and asks it to end as a process manager
    would.

    It takes the second batch, or a later one: Spark tells of the phases of a batch some time after its end.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.samples: dict[str, float] = {}
        self.health = 0, ""

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("batch ") and not line.startswith("batch     0 |") and PHASE not in self.samples:
            _, _, metrics, *_, healthz = self.lines[0].replace(",", "").split()
            self.samples, self.health = scraped(metrics), health(healthz)
            if PHASE in self.samples:
                os.kill(os.getpid(), signal.SIGTERM)


def scraped(url: str) -> dict[str, float]:
    """Each sample as ``name{label="value"}``."""
    with urlopen(url) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        sample.name + "".join(f"{{{value}}}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def health(url: str) -> tuple[int, str]:
    try:
        with urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Listener(StreamingQueryListener):
    """What Spark's own listeners are told of a query."""

    def __init__(self) -> None:
        self.observed: list[dict[str, Any]] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...
    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if event.progress.name == "metered":
            self.observed.append(event.progress.observedMetrics["wheel_udf"].asDict())


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[Listener]:
    listener = Listener()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def test_a_running_job_is_scraped_over_http(spark: SparkSession, tmp_path: Path, listener: Listener) -> None:
    send(tmp_path, COMMANDS)
    job = Scraper()
    assert run(loader.load(configured(tmp_path)), None, job) == 0
    found = job.samples

    assert job.lines[0].startswith("metrics at http://")
    assert job.health == (200, "ok\n")
    assert found[f"wheel_info{{processing}}{{direct}}{{metered}}{{{wheel_udf.__version__}}}"] == 1
    assert found["wheel_healthy"] == 1
    assert found["wheel_received_total"] == 7
    assert found["wheel_fired_total"] == 1
    assert {code: found.get(f"wheel_rejected_total{{{code}}}") for code in ("bad_destination", "no_schedule_id", "missed")} == {
        "bad_destination": 1, "no_schedule_id": 1, "missed": 1,
    }  # fmt: skip
    outcomes = ("fired", "missed", "cancelled", "superseded", "duplicate", "rejected")
    assert [found[f"wheel_schedules_total{{{name}}}"] for name in outcomes] == [1, 1, 1, 0, 0, 2]
    assert found["wheel_cancels_total{applied}"] == 1
    assert found["wheel_scheduled_total"] == 6
    assert found["wheel_pending{state}"] == 1
    assert found["wheel_pending_by_level{6}{state}"] == 1
    assert found["wheel_pending_by_destination{t}"] == 1
    assert found["wheel_due_within{24h}"] == 0
    assert found["wheel_state_rows{pending}"] == 1
    assert found["wheel_state_bytes"] > 100
    assert found["wheel_oldest_due_age_seconds"] == 0
    assert found["wheel_lateness_seconds_count"] == 1
    assert found[PHASE] > 0
    assert found["wheel_batches_total{wheel}"] >= 2

    first, *more = read_batches(str(tmp_path / "state"), 0)
    assert (first["batch_id"], first["received"], first["fired"], first["missed"]) == (0, 7, 1, 1)
    # A line whose progress comes after the next batch has none.
    assert all(line["phases"]["addBatch"] <= line["seconds"] for line in (first, *more) if line["phases"])

    assert tuple(listener.observed[0]) == (
        "received",
        "fired",
        "missed",
        "rejected",
        "lateness_max_ms",
        "clock_ms",
    )
    told = {name: listener.observed[0][name] for name in ("received", "fired", "missed", "rejected")}
    assert told == {"received": 7, "fired": 1, "missed": 1, "rejected": 2}
    assert listener.observed[0]["lateness_max_ms"] == first["lateness"]["max_ms"]
    assert listener.observed[0]["clock_ms"] == first["clock_ms"]


def test_with_json_lines_each_batch_is_the_object_of_the_batch_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    send(tmp_path, COMMANDS)
    code, out, err = say(
        configured(tmp_path, log="json", api={"enabled": False}), "run", "--trigger", "available-now"
    )

    assert code == 0, err
    printed = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert printed == read_batches(str(tmp_path / "state"), 0)
    assert sum(line["fired"] for line in printed) == 1
    assert all(line["seconds"] is None or line["seconds"] > 0 for line in printed)
    assert out.splitlines()[len(printed)].startswith("summary of")
    assert "batch  " not in out


@pytest.mark.parametrize("verb", ["run", "dry-run"])
def test_a_port_in_use_stops_the_job_before_it_starts(spark: SparkSession, tmp_path: Path, verb: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, out, err = say(configured(tmp_path, api={"port": port}), verb)

    assert (code, out) == (2, "")
    assert err.startswith(
        f"error: the port of the job cannot be opened (Address already in use): api.port = {port}; "
    )
    assert not (tmp_path / "state").exists()
