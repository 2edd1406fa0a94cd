"""The broker is killed while a batch is being written to it, stays away for a while, and comes back: the job goes on
by itself.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.checker import texts_of
from tests.faults.job_process import COLUMNS, JobProcess, add_json, rows_due
from tests.kafka.client import KafkaWorld
from wheel_udf.testing import ledger
from wheel_udf.testing.broker import LocalKafka
from wheel_udf.testing.topics import create_topics

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS, OUT = "commands", "out"
BURST = 3_000
SPREAD_S = 20
"""For so many seconds a row falls due each tenth of a second, most of them while the broker is down."""

SLOW = {"kafka.batch.size": "1", "kafka.max.in.flight.requests.per.connection": "1"}
"""One record a request, one after the other: the batch takes some seconds, so it can be hit in its middle."""
SHORT = {"kafka.request.timeout.ms": "2000", "kafka.delivery.timeout.ms": "4000", "kafka.linger.ms": "0"}
"""The producer gives up after seconds, not after two minutes: the batch fails."""


CASES = {
    "from-the-same-broker-and-the-batch-fails": ("kafka", SHORT),
    "from-files-and-the-producer-waits": ("json", {}),
}
"""Source of the commands and options of the producer."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both cases, or the one in which more fails."""
    if "producer" in metafunc.fixturenames:
        cases = list(CASES)[: 1 if metafunc.config.getoption("--share") < 1 else None]
        metafunc.parametrize(("source", "producer"), [CASES[name] for name in cases], ids=cases)


@dataclass
class World:
    """A job to a topic of a broker, with its input: a topic there, or files."""

    folder: Path
    source: str
    client: KafkaWorld
    commands: list[dict[str, Any]] = field(default_factory=list)

    def config(self, producer: dict[str, str]) -> dict[str, Any]:
        servers = {"kafka.bootstrap.servers": self.client.bootstrap}
        files = {"format": "json", "path": str(self.folder / "in"), "schema": COLUMNS}
        topic = {
            "format": "kafka",
            "topics": [COMMANDS],
            "options": servers | {"startingOffsets": "earliest"},
        }
        return {
            "wheel": {"shards": 2},
            "clock": {"kind": "processing", "heartbeat": "2 seconds"},
            "source": topic if self.source == "kafka" else files,
            "contract": {"preset": "json" if self.source == "kafka" else "columns"},
            "destinations": {OUT: {"sink": "kafka", "options": servers | SLOW | producer}},
            "rejects": {"sink": "delta", "path": str(self.folder / "rejects"), "create": True},
            "trigger": "1 second",
            "checkpoint": str(self.folder / "checkpoint"),
            "restarts": {"most": 20, "wait": "1 second"},
        }

    def send(self, name: str, *waits_s: float) -> None:
        """Sends commands, each due so many seconds from now."""
        rows = rows_due(name, datetime.now(UTC), (timedelta(seconds=wait_s) for wait_s in waits_s), OUT)
        if self.source == "kafka":
            self.client.produce(COMMANDS, [(None, json.dumps(row)) for row in rows])
        else:
            add_json(self.folder, name, rows)
        self.commands += rows

    def delivered(self) -> list[dict[str, Any]]:
        """The rows of all records in the topic."""
        return ledger.fired_of_kafka(
            {"topic": OUT, "key": row.key, "value": row.value, "headers": row.headers}
            for row in self.client.everything(OUT)
        )

    def faults(self, fired: list[dict[str, Any]]) -> list[str]:
        """What the ledger checker finds in the sinks of the ended job."""
        rules = ledger.Rules(until_ms=int(time.time() * 1_000))
        return texts_of(ledger.check(self.commands, fired, [], rules=rules))


def test_a_broker_killed_in_the_middle_of_a_batch_gets_every_row_once_it_is_back(
    source: str, producer: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    down_s = 15 if request.config.getoption("--share") < 1 else 60
    (tmp_path / "in").mkdir()
    with LocalKafka(tmp_path / "broker", {"num.partitions": "2"}) as broker:
        world = World(tmp_path, source, KafkaWorld(broker.bootstrap))
        create_topics(broker.bootstrap, [COMMANDS, OUT], partitions=2)
        with JobProcess(tmp_path, world.config(producer)) as job:
            world.send("first", 0)
            job.wait_for_fired(1)

            world.send("burst", *[3] * BURST)
            world.send("spread", *(3 + number / 10 for number in range(10 * SPREAD_S)))
            job.wait_until(lambda: world.client.count(OUT) > BURST // 20, "the burst is on its way")
            broker.kill()
            assert job.fired < BURST, "in the middle of its batch"
            time.sleep(down_s)
            assert job.fired < BURST
            broker.start()

            job.wait_for_fired(1 + BURST + 10 * SPREAD_S)
            world.send("last", 0)
            job.wait_for_fired(2 + BURST + 10 * SPREAD_S)
            assert job.end() == 0, job.told()
            restarted = any("it starts again from its checkpoint" in line for line in job.lines)
        fired = world.delivered()
    assert world.faults(fired) == []
    copies = Counter(row["schedule_id"] for row in fired)
    assert copies.keys() == {row["schedule_id"] for row in world.commands}
    assert len({row["fire_id"] for row in fired}) == len(copies)
    # With the producer that waits, nothing has failed. A batch that failed is repeated, and with it what the broker
    # had of it already.
    assert (restarted, max(copies.values()) > 1) == (bool(producer), bool(producer))
