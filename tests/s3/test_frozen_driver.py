"""A driver stands still, as a machine that was suspended; another one takes its job over, and then the first one wakes up.

The checkpoint is on S3, the commands come from a topic and go to a topic: nothing but the lease keeps the two apart.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.job_process import JobProcess, rows_due
from tests.kafka.client import KafkaWorld
from wheel_udf.spark import jars
from wheel_udf.testing import ledger
from wheel_udf.testing.broker import LocalKafka
from wheel_udf.testing.topics import create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.s3.server import Server

COMMANDS, OUT = "commands", "out"
FROZEN_S = 25
DELIVERIES: dict[str, dict[str, Any]] = {"by batches": {}, "punctual": {"delivery": {"punctual": True}}}


def config(root: str, broker: str, **more: Any) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": broker}
    return {
        "wheel": {"shards": 2},
        "clock": {"kind": "processing", "heartbeat": "2 seconds"},
        "source": {
            "format": "kafka",
            "topics": [COMMANDS],
            "options": servers | {"startingOffsets": "earliest"},
        },
        "contract": {"preset": "json"},
        "destinations": {OUT: {"sink": "kafka", "options": servers}},
        "rejects": {"sink": "delta", "path": f"{root}/rejects", "create": True},
        "trigger": "1 second",
        "checkpoint": f"{root}/checkpoint",
        "lease": {"timeout": "10 seconds"},
    } | more


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_driver_that_wakes_up_after_another_one_took_over_sends_and_commits_nothing(
    delivery: str, s3: Server, place: str, tmp_path: Path
) -> None:
    assert jars.jar_files("s3"), "python -m wheel_udf.spark.jars s3"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    settings = {f"spark.hadoop.{key}": value for key, value in s3.settings.items()}
    sent: list[str] = []
    with LocalKafka(tmp_path / "broker") as broker:
        client = KafkaWorld(broker.bootstrap)
        create_topics(broker.bootstrap, [COMMANDS, OUT])
        job = config(f"s3a://bucket/{place.replace(' ', '-')}", broker.bootstrap, **DELIVERIES[delivery])

        def send(name: str, *waits_s: float) -> None:
            waits = [timedelta(seconds=wait_s) for wait_s in waits_s]
            rows = rows_due(name, datetime.now(UTC), waits, OUT)
            client.produce(COMMANDS, [(None, json.dumps(row)) for row in rows])
            sent.extend(row["schedule_id"] for row in rows)

        def driver(name: str) -> JobProcess:
            return JobProcess(tmp_path / name, job, settings=settings, own_machine=True)

        def delivered() -> list[dict[str, Any]]:
            records = (
                {"topic": OUT, "key": row.key, "value": row.value, "headers": row.headers}
                for row in client.everything(OUT)
            )
            return [*ledger.fired_of_kafka(records)]

        def ids() -> set[str]:
            return {row["schedule_id"] for row in delivered()}

        with driver("first") as first:
            send("warm", 0)
            first.wait_for_fired(1)
            send("wave", *(number / 5 for number in range(400)))
            first.wait_for_fired(20)
            first.freeze()
            with driver("second") as second:
                second.wait_for_fired(150)
                second.run_for(FROZEN_S)
                before = client.count(OUT)
                first.thaw()
                assert first.wait_for_end() == 1, first.told()
                second.wait_until(lambda: len(ids()) >= len(sent), "all are delivered", patience_s=240)
                second.wait_for_batches(2)
                assert second.end() == 0, second.told()
        assert "another process" in first.told() or "lease" in first.told(), first.told()
        fired = delivered()
    copies = Counter(row["schedule_id"] for row in fired)
    assert sorted(copies) == sorted(sent)
    assert len({row["fire_id"] for row in fired}) == len(copies)
    # What the frozen driver had sent of a batch that it had not yet recorded comes once more, by the other one. It sends
    # nothing itself when it wakes up.
    again = {row["schedule_id"] for row in fired[before:]} & {row["schedule_id"] for row in fired[:before]}
    assert again == set()
