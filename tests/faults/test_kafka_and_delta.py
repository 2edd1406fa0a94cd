"""A job with a table and a topic, killed between its two sinks: the topic may have a row twice, with the same fire id;
the table never.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.chain import Running
from tests.faults.checker import ledger_faults
from tests.faults.points import DIRECT, KAFKA, Chain, Kill
from tests.kafka.client import KafkaWorld
from wheel_udf.testing import ledger
from wheel_udf.testing.broker import LocalKafka

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "right"


def _sent(client: KafkaWorld) -> list[dict[str, Any]]:
    return [
        {"topic": TOPIC, "key": row.key, "value": row.value, "headers": row.headers}
        for row in client.everything(TOPIC)
    ]


def test_a_job_killed_between_table_and_topic_repeats_rows_of_the_topic_alone(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds = 1 if request.config.getoption("--share") < 1 else 4
    kills = tuple(Kill(point, 1 + turn % 2) for turn in range(rounds) for point in KAFKA)
    with LocalKafka(tmp_path / "broker") as broker:
        client = KafkaWorld(broker.bootstrap)
        running = Running(
            tmp_path, Chain(DIRECT, rounds, kills), where=("left", TOPIC), kafka=broker.bootstrap
        )
        for kill in kills:
            running.kill(kill)
        running.end()
        fired = ledger.fired_of_kafka(_sent(client))
    fired += ledger.read_delta(tmp_path / "tables").to_pylist()
    commands = [row for rows in running.commands for row in rows]
    assert ledger_faults(commands, fired, ledger.read_delta(tmp_path / "rejects"), running.files) == []
    times = Counter((row["table"], row["fire_id"]) for row in fired)
    assert {table for (table, _), count in times.items() if count > 1} == {TOPIC}
