"""A job with punctual delivery, killed at each point of a record's way: nothing is missing or early, and what is
repeated was in flight.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.punctual_victim import HALF_SENT, NOT_READ, POINTS, ROWS, Order
from tests.faults.trap import Trap, run_victim
from tests.kafka.client import KafkaWorld
from wheel_udf.common.instants import parse_instant_ms
from wheel_udf.testing.broker import LocalKafka
from wheel_udf.testing.topics import create_topics

_PATIENCE_S = 500


class Chain:
    """Starts of one job, each killed at a point; the last one runs to its end."""

    def __init__(self, folder: Path, kafka: str) -> None:
        self.folder, self.kafka, self.starts = folder, kafka, 0

    def start(self, point: str = "", times: int = 1, *, says: bool = True) -> tuple[int, str]:
        """Runs a victim; returns its exit code and its last line."""
        self.starts += says
        trap = Trap(str(self.folder), point, times)
        order = Order(str(self.folder), self.kafka, self.starts if says else 0)
        return run_victim("tests.faults.punctual_victim", order, self.folder, trap, _PATIENCE_S)

    def kill(self, point: str, times: int = 1) -> None:
        """Starts a victim that has to die at its point."""
        code, _ = self.start(point, times)
        mark = Path(self.folder, "mark")
        reached = mark.read_text() if mark.exists() else None
        assert (code, reached) == (-signal.SIGKILL, point), f"{point}: {code}\n{self.log()}"

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-6_000:]

    @property
    def commands(self) -> dict[str, int]:
        """The due time of each command by its id."""
        lines = (self.folder / "commands.jsonl").read_text().splitlines()
        return {row["schedule_id"]: row["due_ms"] for row in map(json.loads, lines)}


def _text(headers: list[tuple[str, bytes | None]], name: str) -> str:
    return (dict(headers)[name] or b"").decode()


_KILLS = dict.fromkeys(POINTS, 1) | {HALF_SENT: ROWS // 2}


@pytest.mark.parametrize(
    "points",
    [pytest.param(POINTS, id="each"), pytest.param((HALF_SENT,), id="one", marks=pytest.mark.sentinel)],
)
def test_nothing_is_missing_or_early_whenever_the_sender_is_killed(
    points: tuple[str, ...], tmp_path: Path
) -> None:
    with LocalKafka(tmp_path / "broker") as broker:
        create_topics(broker.bootstrap, ["commands", "out"])
        chain = Chain(tmp_path, broker.bootstrap)
        for point in points:
            chain.kill(point, _KILLS[point])
        code, said = chain.start()
        assert code == 0, chain.log()
        account: dict[str, Any] = json.loads(said)
        rows = KafkaWorld(broker.bootstrap).everything("out")
    commands = chain.commands
    times = Counter((row.key or b"").decode() for row in rows)
    fire_ids = {((row.key or b"").decode(), _text(row.headers, "wheel-fire-id")) for row in rows}
    assert times.keys() == commands.keys()
    assert len(fire_ids) == len(commands), "a repetition has the fire id of the first time"
    for row in rows:
        assert parse_instant_ms(_text(row.headers, "wheel-fired-at")) >= commands[(row.key or b"").decode()]
    again = {name.partition("-")[0] for name, count in times.items() if count > 1}
    noted = {str(start) for start, point in enumerate((*points, NOT_READ), start=1) if point == NOT_READ}
    assert not again & noted, "they were noted, or nobody was killed"
    assert max(times.values()) <= len(points) + 1
    assert account == {"fired": len(commands), "pending": 0}
