"""A broker that is killed in the middle of a job and comes back after a minute: what was due meanwhile goes out late, once or again with its fire id."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.job_process import JobProcess
from tests.kafka.client import KafkaWorld
from wheel_udf.testing import EXTERNAL_VARIABLE, LocalKafka, create_topics, ledger

DOWN_S = 60
ROWS, EVERY_MS = 200, 500


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKafka]:
    monkeypatch.delenv(EXTERNAL_VARIABLE, raising=False)
    with LocalKafka(tmp_path / "broker") as broker:
        create_topics(broker.bootstrap, ["in", "out"])
        yield broker


@pytest.fixture
def job(broker: LocalKafka, tmp_path: Path) -> Iterator[JobProcess]:
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    settings = {
        "source": {"format": "kafka", "topics": ["in"], "options": options},
        "destinations": {"out": {"sink": "kafka", "options": options}},
        "restarts": {"most": 20, "wait": "2 seconds"},
    }
    job = JobProcess(tmp_path, settings)
    yield job
    job.signal_all(signal.SIGKILL)


def fired(world: KafkaWorld) -> list[dict[str, Any]]:
    """What the topic of the deliveries holds."""
    rows = world.everything("out")
    return ledger.fired_of_kafka(
        {"topic": "out", "key": row.key, "value": row.value, "headers": row.headers} for row in rows
    )


def test_a_broker_that_is_down_for_a_minute_delays_what_is_due_and_loses_nothing(
    broker: LocalKafka, job: JobProcess
) -> None:
    world = KafkaWorld(broker.bootstrap)
    now_ms = int(time.time() * 1_000)
    # One is due every half a second: some before the broker is down, some while it is, some after.
    sent = [
        {"schedule_id": f"n{n:03}", "seq": 1, "deliver_at": now_ms + EVERY_MS * n, "destination": "out"}
        for n in range(ROWS)
    ]
    names = {
        "schedule_id": "wheel-id",
        "deliver_at": "wheel-deliver-at",
        "seq": "wheel-seq",
        "destination": "wheel-target",
    }
    world.produce(
        "in",
        [(None, b"v", {header: str(row[name]).encode() for name, header in names.items()}) for row in sent],
    )
    job.start()
    job.wait_until(lambda: world.count("out") > 0, "a delivery")
    broker.kill()
    time.sleep(DOWN_S)
    broker.start()
    job.wait_until(lambda: len({row["schedule_id"] for row in fired(world)}) == ROWS, "all deliveries")
    assert job.stop() == 0, job.log()
    rules = ledger.Rules(until_ms=now_ms + EVERY_MS * ROWS, at_least_once=True)
    commands = [row | {"event_time": now_ms, "value": b"v"} for row in sent]
    ledger.check(commands, fired(world), rejects=[], rules=rules).require()
    assert job.account()["fired"] == ROWS
