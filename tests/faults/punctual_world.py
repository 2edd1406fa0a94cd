"""A job with punctual delivery as its users run it: commands from files, deliveries to a topic whose broker notes when
each record has come.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.faults.checker import texts_of
from tests.faults.job_process import COLUMNS, add_json, rows_due
from tests.kafka.client import KafkaWorld
from wheel_udf.testing import ledger
from wheel_udf.testing.topics import create_topics

OUT = "out"


@dataclass
class PunctualWorld:
    """The folder of a job, its broker, and what was said to it.

    Attributes:
        folder: An empty folder.
        bootstrap: The servers of the broker.
        settings: Of the job, besides those that each has.
        delivery: The section of that name, besides ``punctual``.
        producer: Options of the sink.
        by_broker: Whether the broker, which notes in each record when it came, is a witness of "never early". Not with
            a clock that is moved.
    """

    folder: Path
    bootstrap: str
    settings: dict[str, Any] = field(default_factory=dict)
    delivery: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, str] = field(default_factory=dict)
    by_broker: bool = True
    commands: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "in").mkdir()
        self.client = KafkaWorld(self.bootstrap)
        any_time = {f"message.timestamp.{word}.max.ms": str(2**63 - 1) for word in ("before", "after")}
        stamped = {"message.timestamp.type": "LogAppendTime"} if self.by_broker else any_time
        create_topics(self.bootstrap, [OUT], partitions=2, config=stamped)

    @property
    def config(self) -> dict[str, Any]:
        """The job."""
        servers = {"kafka.bootstrap.servers": self.bootstrap}
        return {
            "wheel": {"shards": 2},
            "clock": {"kind": "processing", "heartbeat": "2 seconds"},
            "source": {"format": "json", "path": str(self.folder / "in"), "schema": COLUMNS},
            "contract": {"preset": "columns"},
            "destinations": {OUT: {"sink": "kafka", "options": servers | self.producer}},
            "rejects": {"sink": "delta", "path": str(self.folder / "rejects"), "create": True},
            "trigger": "1 second",
            "checkpoint": str(self.folder / "checkpoint"),
            "restarts": {"most": 20, "wait": "1 second"},
            "delivery": {"punctual": True, "ahead": "60 seconds"} | self.delivery,
        } | self.settings

    def send(self, name: str, waits_s: Iterable[float], now: datetime | None = None) -> None:
        """Adds a file of commands, each due so many seconds from now; their ids are ``name-0`` and so on."""
        waits = (timedelta(seconds=wait_s) for wait_s in waits_s)
        rows = rows_due(name, now or datetime.now(UTC), waits, OUT)
        add_json(self.folder, name, rows)
        self.commands += rows

    def faults(self, until_ms: int | None = None) -> list[str]:
        """What the ledger checker finds in the topic of the ended job, where a row may be repeated with its fire id;
        early, too, by the broker's clock.
        """
        fired = self.fired()
        until_ms = int(time.time() * 1_000) if until_ms is None else until_ms
        rules = ledger.Rules(until_ms=until_ms)
        early = [
            f"at the broker before it is due: {row['schedule_id']}"
            for row in fired
            if self.by_broker and row["delivered_at_ms"] < _ms(row["deliver_at"])
        ]
        return texts_of(ledger.check(self.commands, fired, [], rules=rules)) + early

    def fired(self) -> list[dict[str, Any]]:
        """The rows of all records in the topic."""
        return ledger.fired_of_kafka(self.client.messages(OUT))

    def copies(self) -> Counter[str]:
        """How often the topic has each id."""
        return Counter(row["schedule_id"] for row in self.fired())

    @property
    def ids(self) -> set[str]:
        """All ids that were said."""
        return {row["schedule_id"] for row in self.commands}


def _ms(instant: datetime | str | int) -> int:
    if isinstance(instant, int):
        return instant
    if isinstance(instant, str):
        instant = datetime.fromisoformat(instant)
    return round(instant.timestamp() * 1_000)
