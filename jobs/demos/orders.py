"""The orders demo: 200,000 orders and their payments through Kafka and the purgatory, on a simulated day and then on the
wall clock.

::

    1 broker      a real one, in a JVM of its own (or the one that WHEEL_UDF_KAFKA names), and the demo's topics
    2 a day       200,000 orders, 92 % paid at log-normal times, 5 % cancelled, the rest forgotten; unpaid after 30 minutes they expire.
                  All is in the topics before the job starts; a simulated clock moves through the day; every outcome is checked by its times
    3 two minutes the same on the wall clock, time-outs scaled to 15 seconds: sent when it is time, 200 orders a second
    4 account     orders = completed + expired + cancelled, none twice

What an order's end must be follows from its times alone (:func:`expected`). On the wall clock a payment can be sent in
time and read too late, by the time that Kafka and the batch take; the demo prints how many.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer
from pyspark.sql import SparkSession, functions as F

from jobs.demos.kafka_traffic import now_ms
from jobs.demos.workspace import at_least, clear_outputs, exclusive, outcome_of
from wheel_udf.common.instants import instant_text
from wheel_udf.common.progress import Progress
from wheel_udf.control.wall import elapsed_ms
from wheel_udf.job import loader as config
from wheel_udf.job.begin import run
from wheel_udf.job.sessions import session
from wheel_udf.testing.broker import LocalKafka
from wheel_udf.testing.topics import create_topics, delete_topics

FOLDER = Path("data/orders_demo")
DAY_MS = 1_767_225_600_000  # 2026-01-01
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
SCALE = 120  # on the wall clock 30 minutes are 15 seconds
SEED = 20_260_101
PAID, CANCELLED = 0.92, 0.05

PrintLine = Callable[[str], None]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Orders:
    """Orders by number; int64[n], UTC epoch ms. An instant of -1 does not come.

    Attributes:
        placed_ms: When each was placed, rising.
        paid_ms: When it is paid.
        cancelled_ms: When it is cancelled.
        timeout_ms: How long it waits.
    """

    placed_ms: Int64s
    paid_ms: Int64s
    cancelled_ms: Int64s
    timeout_ms: int


def draw(count: int, start_ms: int, span_ms: int, timeout_ms: int) -> Orders:
    """Orders placed over a span: paid ones after a log-normal time with a median of a tenth of the time-out, cancelled
    ones at any time before it.
    """
    random = np.random.default_rng(SEED)
    placed = np.sort(start_ms + random.integers(0, span_ms, count))
    what = random.random(count)
    paying = random.lognormal(np.log(timeout_ms / 10), 1.1, count).astype(np.int64)
    changing = random.integers(0, timeout_ms + 1, count)
    is_paid, is_cancelled = what < PAID, (what >= PAID) & (what < PAID + CANCELLED)
    return Orders(
        placed_ms=placed,
        paid_ms=np.where(is_paid, placed + paying, -1),
        cancelled_ms=np.where(is_cancelled, placed + changing, -1),
        timeout_ms=timeout_ms,
    )


def expected(orders: Orders) -> dict[str, str]:
    """How each order must end, by its times."""
    deadline = orders.placed_ms + orders.timeout_ms
    completed = (orders.paid_ms >= 0) & (orders.paid_ms <= deadline)
    cancelled = (orders.cancelled_ms >= 0) & (orders.cancelled_ms <= deadline)
    ends = np.where(completed, "completed", np.where(cancelled, "cancelled", "expired"))
    return {f"o-{number}": str(end) for number, end in enumerate(ends)}


def messages(orders: Orders) -> list[tuple[int, str, bytes]]:
    """All that is said, by time: (when, what kind, JSON)."""
    said = []
    for number, at_ms in enumerate(orders.placed_ms.tolist()):
        said.append((at_ms, "orders", _json(order=f"o-{number}", at=at_ms)))
    for what, times in (("paid", orders.paid_ms), ("cancelled", orders.cancelled_ms)):
        for number in np.flatnonzero(times >= 0).tolist():
            at_ms = int(times[number])
            said.append((at_ms, "payments", _json(order=f"o-{number}", what=what, at=at_ms)))
    return sorted(said)


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def settings(
    folder: Path, bootstrap: str, prefix: str, timeout_ms: int, clock: Mapping[str, Any], trigger: str
) -> dict[str, Any]:
    """The config of the job, as a file would hold it."""
    kafka = {"kafka.bootstrap.servers": bootstrap}

    def field(name: str) -> str:
        return f"get_json_object(cast(value AS string), '$.{name}')"

    time = f"timestamp_millis(cast({field('at')} AS bigint))"
    source = {"format": "kafka", "options": kafka | {"maxOffsetsPerTrigger": 20_000}}
    return {
        "name": f"{prefix}-orders",
        "wheel": {"shards": 4},
        "clock": dict(clock),
        "operations": source
        | {
            "topics": [f"orders-demo-{prefix}-orders"],
            "columns": {
                "op_id": field("order"), "group": field("order"), "keys": "array('paid')", "deadline": f"'{timeout_ms} ms'",
                "event_time": time, "key": field("order"), "value": "value",
            },
        },
        "events": source
        | {
            "topics": [f"orders-demo-{prefix}-payments"],
            "columns": {
                "group": field("order"), "event_time": time,
                "op": f"if({field('what')} = 'cancelled', 'CANCEL_OPERATION', 'EVENT')",
                "key": f"if({field('what')} = 'cancelled', {field('order')}, 'paid')",
            },
        },
        "contract": {"default_destination": f"orders-demo-{prefix}-outcomes", "memory": "1 hour"},
        "destinations": {f"orders-demo-{prefix}-outcomes": {"sink": "kafka", "options": kafka}},
        "rejects": {"sink": "delta", "path": str(folder / f"{prefix}-rejects")},
        "trigger": trigger,
        "checkpoint": str(folder / f"{prefix}-checkpoint"),
    }  # fmt: skip


def outcomes(spark: SparkSession, bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """What a topic holds: (id, outcome) of each record."""
    reader = (
        spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    )
    headers = F.map_from_entries("headers")
    named = [headers[name].cast("string") for name in ("wheel-id", "wheel-outcome")]
    rows = reader.option("includeHeaders", "true").load().select(*named)
    return [(row[0], row[1]) for row in rows.collect()]


@dataclass(frozen=True)
class Account:
    """What came of the orders.

    Attributes:
        counts: How many ended how.
        missing: Orders without an end.
        twice: Orders with more than one record.
        other: Orders that ended otherwise than their times say.
    """

    counts: Mapping[str, int]
    missing: int
    twice: int
    other: int


def take_account(must: Mapping[str, str], found: Sequence[tuple[str, str]]) -> Account:
    """Compares what must be with what is."""
    ends = dict(found)
    return Account(
        counts=Counter(end for _, end in found),
        missing=len(must.keys() - ends.keys()),
        twice=len(found) - len(ends) + len(ends.keys() - must.keys()),
        other=sum(ends[order] != end for order, end in must.items() if order in ends),
    )


def main(arguments: Sequence[str], root: Path, *, print_line: PrintLine) -> int:
    """Runs the demo; exit code 0 if both accounts close, 1 if not, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.demos.orders", description="Unpaid orders through Kafka and the purgatory."
    )
    parser.add_argument(
        "--orders",
        type=at_least(1),
        default=200_000,
        metavar="N",
        help="how many on the simulated day (default: 200,000)",
    )
    parser.add_argument(
        "--seconds",
        type=at_least(0),
        default=120,
        metavar="S",
        help="how long on the wall clock (default: 120; 0: not at all)",
    )
    chosen = parser.parse_args(arguments)

    def work() -> int:
        with exclusive(root / FOLDER):
            names = [f"{prefix}-{what}" for prefix in ("day", "wall") for what in ("rejects", "checkpoint")]
            clear_outputs(root / FOLDER, (*names, "broker"))
            with LocalKafka(root / FOLDER / "broker") as broker, session("orders demo") as spark:
                if broker.pid is None:  # not ours: what an earlier run has left there
                    delete_topics(broker.bootstrap, (*_names("day"), *_names("wall")))
                closes = _day(spark, root / FOLDER, broker.bootstrap, chosen.orders, print_line)
                if chosen.seconds:
                    closes &= _wall(spark, root / FOLDER, broker.bootstrap, chosen.seconds, print_line)
        print_line("the accounts close" if closes else "an account does NOT close")
        return 0 if closes else 1

    return outcome_of(work, print_line)


def _topics(bootstrap: str, prefix: str) -> None:
    create_topics(bootstrap, _names(prefix), partitions=2)


def _names(prefix: str) -> tuple[str, ...]:
    return tuple(f"orders-demo-{prefix}-{what}" for what in ("orders", "payments", "outcomes"))


def _produce(producer: Producer, prefix: str, said: tuple[int, str, bytes]) -> None:
    _, kind, value = said
    while True:
        try:
            producer.produce(
                f"orders-demo-{prefix}-{kind}", key=json.loads(value)["order"].encode(), value=value
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _produce_all(producer: Producer, prefix: str, said: Sequence[tuple[int, str, bytes]]) -> None:
    with Progress("produce", sys.stderr, elapsed_ms, unit="messages") as progress:
        for number, each in enumerate(said):
            _produce(producer, prefix, each)
            if number % 1_000 == 0:
                progress.show(number, len(said))
        producer.flush()


def _day(spark: SparkSession, folder: Path, bootstrap: str, count: int, print_line: PrintLine) -> bool:
    print_line(f"a day: {count:,} orders from {instant_text(DAY_MS)}, time-out 30 minutes, simulated clock")
    _topics(bootstrap, "day")
    orders = draw(count, DAY_MS, 24 * HOUR_MS, 30 * MINUTE_MS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
    _produce_all(producer, "day", messages(orders))
    # The topics are read at 20,000 records a batch; the clock stays behind what has been read.
    step_ms = 24 * HOUR_MS * 20_000 // max(count, 20_000) * 8 // 10
    clock = {"kind": "simulated", "start": instant_text(DAY_MS), "step": f"{step_ms} ms"}
    job = config.check(settings(folder, bootstrap, "day", orders.timeout_ms, clock, "available-now"))
    run(job, DAY_MS + 48 * HOUR_MS, print_line)
    account = take_account(expected(orders), outcomes(spark, bootstrap, _names("day")[2]))
    return _told(account, count, print_line, exact=True)


def _wall(spark: SparkSession, folder: Path, bootstrap: str, seconds: int, print_line: PrintLine) -> bool:
    timeout_ms, count = 30 * MINUTE_MS // SCALE, seconds * 200
    print_line(f"the wall clock: {count:,} orders over {seconds} s, time-out {timeout_ms / 1000:.0f} s")
    _topics(bootstrap, "wall")
    start_ms = now_ms() + 15_000  # the job comes up meanwhile
    orders = draw(count, start_ms, seconds * 1_000, timeout_ms)
    last_ms = int(orders.placed_ms[-1]) + timeout_ms + 10_000
    said = [each for each in messages(orders) if each[0] <= last_ms]
    sender = threading.Thread(target=_say_in_time, args=(bootstrap, said), name="orders", daemon=True)
    sender.start()
    clock = {"kind": "processing", "heartbeat": "5 seconds"}  # the demo's end is not to wait for a minute's
    job = config.check(settings(folder, bootstrap, "wall", timeout_ms, clock, "1 second"))
    run(job, last_ms + 5_000, print_line)
    sender.join(60)
    account = take_account(expected(orders), outcomes(spark, bootstrap, _names("wall")[2]))
    return _told(account, count, print_line, exact=False)


def _say_in_time(bootstrap: str, said: Sequence[tuple[int, str, bytes]]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
    )
    tick = threading.Event()
    for each in said:
        while (early_ms := each[0] - now_ms()) > 0:
            producer.poll(0)
            tick.wait(min(early_ms, 50) / 1_000)
        _produce(producer, "wall", each)
    producer.flush()


def _told(account: Account, count: int, print_line: PrintLine, *, exact: bool) -> bool:
    ends = " + ".join(
        f"{account.counts.get(end, 0):,} {end}" for end in ("completed", "expired", "cancelled")
    )
    closes = not account.missing and not account.twice and not (exact and account.other)
    print_line(f"account: {count:,} orders = {ends}; missing {account.missing:,}, twice {account.twice:,}")
    word = "with another outcome than their times require" if exact else "sent in time, read too late"
    print_line(f"         {word}: {account.other:,}")
    return closes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[2], print_line=partial(print, flush=True)))
