"""A job with punctual delivery that is killed: ``python -m tests.faults.punctual_victim ORDER``, where ORDER is an
:class:`Order` as JSON.

It runs from topic to topic, says its commands itself once its first batch has ended (each due some seconds later, all
within reach of the sender), and ends when nothing is pending, or when its trap strikes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from pyspark.sql.streaming.query import StreamingQuery

from tests.faults.trap import Trap
from tests.faults.world import SETTINGS
from wheel_udf import (
    BatchReport,
    Destinations,
    FileSink,
    KafkaSink,
    ProcessingClock,
    Punctual,
    Wheel,
    build_session,
    deliver,
    schedule,
)
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.punctual import delivery as punctual, packing, sender, sender_note
from wheel_udf.spark.failures import explain

HANDED_OVER: Final = "after the hand-over, nothing sent"
HALF_SENT: Final = "half of the records sent"
NOT_CONFIRMED: Final = "sent and acknowledged, the sender does not know it"
NOT_NOTED: Final = "confirmed, and not noted"
NOT_READ: Final = "noted, and no batch has the news"
POINTS: Final = (HANDED_OVER, HALF_SENT, NOT_CONFIRMED, NOT_NOTED, NOT_READ)

ROWS: Final = 40
"""Commands of one start."""
DUE_IN_S: Final = 20
"""How long after it is said the first of them is due: a loaded machine takes seconds for a batch."""
AHEAD_MS: Final = 120_000

_LOOK_S: Final = 0.1
_LOOKS: Final = 4_000
_TRIES: Final = 4

_TRAP = Trap.of_environment()


@dataclass(frozen=True)
class Order:
    """What a victim has to do.

    Attributes:
        folder: Of checkpoint and rejects, and of the file ``commands.jsonl``.
        kafka: Bootstrap servers.
        start: Number of the start; 0 says nothing new.
    """

    folder: str
    kafka: str
    start: int


def put_traps(start: int) -> None:
    """Puts the trap into the sender. Records of earlier starts are not counted."""
    mine = f"{start}-".encode()
    _around(sender.Sender, "give", after=lambda given: _handed(given[2]))
    _around(sender.Sender, "confirm", after=lambda _: _TRAP.passes(NOT_NOTED))
    _around(sender.SentRows, "acknowledged", before=lambda given: _acknowledged(given[2].key(), mine))
    _around(sender_note.SenderNote, "write", after=lambda _: _noted())
    _around(punctual.PunctualDelivery, "start", before=lambda given: _SENDERS.append(given[0].sender))
    kept = packing.producer_of
    packing.producer_of = lambda *where: _Counting(kept(*where), mine)  # type: ignore[assignment]


class _Counting:
    """A producer with a trap at each record."""

    def __init__(self, producer: Any, mine: bytes) -> None:
        self._producer, self._mine = producer, mine

    def produce(self, topic: str, **record: Any) -> None:
        self._producer.produce(topic, **record)
        if record["key"].startswith(self._mine):
            _SENT.append(record["key"])
            if _TRAP.point == HALF_SENT:
                self._producer.flush(10)
                _TRAP.passes(HALF_SENT)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


_SENT: Final[list[bytes]] = []
_SENDERS: Final[list[Any]] = []


def _handed(records: Any) -> None:
    if records:
        _TRAP.passes(HANDED_OVER)


def _acknowledged(key: bytes, mine: bytes) -> None:
    if key.startswith(mine):
        _TRAP.passes(NOT_CONFIRMED)


def _noted() -> None:
    if len(_SENT) == ROWS and not _SENDERS[-1].held[0]:
        _TRAP.passes(NOT_READ)


def _around(owner: Any, name: str, before: Any = None, after: Any = None) -> None:
    kept = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        if before is not None:
            before(given)
        done = kept(*given, **named)
        if after is not None:
            after(given)
        return done

    setattr(owner, name, call)


def main(order: Order) -> None:
    """Runs the job."""
    put_traps(order.start)
    folder = Path(order.folder)
    spark = build_session("victim", master="local[2]", conf=SETTINGS, checkpoint=str(folder / "checkpoint"))
    servers = {"kafka.bootstrap.servers": order.kafka}
    options = {**servers, "subscribe": "commands", "startingOffsets": "earliest", "includeHeaders": "true"}
    scheduled = schedule(
        kafka_commands(spark.readStream.format("kafka").options(**options).load(), "native"),
        wheel=Wheel(tick_ms=1_000, size=20, levels=4),
        clock=ProcessingClock(),
        shards=2,
        memory_ms=None,
        punctual=Punctual(ahead_ms=AHEAD_MS),
    )
    job = _Running(
        lambda on_batch: deliver(
            scheduled,
            destinations=Destinations({"*": KafkaSink(servers)}),
            rejects=FileSink(str(folder / "rejects")),
            checkpoint=str(folder / "checkpoint"),
            trigger="0 seconds",
            on_batch=on_batch,
        )
    )
    job.wait(lambda report: report.complete)
    if order.start:
        _say(order, folder / "commands.jsonl")
    said = order.start * ROWS
    done = job.wait(lambda report: report.pending == 0 and report.counts["fired"] >= said)
    print(json.dumps({"fired": done.counts["fired"], "pending": done.pending}))  # noqa: T201  # its report
    job.query.stop()


def _say(order: Order, file: Path) -> None:
    producer = Producer({"bootstrap.servers": order.kafka})
    first_ms = time.time_ns() // 1_000_000 + DUE_IN_S * 1_000
    with file.open("a", encoding="utf-8") as lines:
        for number in range(ROWS):
            row = {"schedule_id": f"{order.start}-{number:02}", "due_ms": first_ms + 50 * number}
            lines.write(json.dumps(row) + "\n")
            headers = {
                "wheel-id": row["schedule_id"],
                "wheel-target": "out",
                "wheel-deliver-at": str(row["due_ms"]),
            }
            producer.produce("commands", key=row["schedule_id"], value=b"x", headers=list(headers.items()))
    producer.flush(60)


class _Running:
    """The running query and its last report. It starts again after a failure that may be over a moment later, as the
    command does.
    """

    def __init__(self, start: Callable[[Callable[[BatchReport], None]], StreamingQuery]) -> None:
        self._start, self._tries = start, 0
        self._last: BatchReport | None = None
        self.query = start(self._add)

    def _add(self, report: BatchReport) -> None:
        self._last = report

    def wait(self, holds: Callable[[BatchReport], bool]) -> BatchReport:
        """Waits for a report."""
        for _ in range(_LOOKS):
            if (last := self._last) is not None and holds(last):
                return last
            try:
                self.query.awaitTermination(_LOOK_S)
            except Exception as error:
                self._tries += 1
                if not explain(error).transient or self._tries == _TRIES:
                    raise
                self.query = self._start(self._add)
        raise AssertionError(self._last)


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
