"""Commands of series in files, one file a batch, through the direct and the tiered mode; instants in seconds from
2024-01-01 00:00 UTC.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.streams import T0_MS, at, at_ms
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from wheel_udf.delivery.report import BatchReport
    from wheel_udf.tiered.run import TieredRun

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
LAYOUT = StoreLayout(WHEEL, state_levels=1)  # windows of 20 s
MEMORY_MS = 30_000

_TEXTS = ("schedule_id", "op", "repeat", "on_missed", "spread", "destination", "max_lateness", "error")
_INSTANTS = ("deliver_at", "starts_at", "until", "event_time")
_NUMBERS = ("seq", "count", "attempt", "occurrence", "amend", "first_amend")
_INSTANT = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        *((name, _INSTANT) for name in _INSTANTS),
        *((name, pa.int64()) for name in _NUMBERS),
        ("value", pa.binary()),
    ]
)

Rows = list[tuple[Any, ...]]


def series(name: str, repeat: str, said_s: float, seq: int = 1, **columns: Any) -> dict[str, Any]:
    """A SCHEDULE that repeats, made at `said_s`."""
    instants = {key: at(columns.pop(key)) for key in ("starts_at", "until") if key in columns}
    row = {"schedule_id": name, "repeat": repeat, "seq": seq, "event_time": at(said_s), "destination": "out"}
    return row | instants | columns


def in_s(instant: Any) -> float:
    return float(instant.timestamp() - T0_MS / 1_000)


@dataclass
class World:
    """Input and tables in a folder, and checkpoint and store in a home of its own there."""

    spark: SparkSession
    folder: Path
    home: str = ""
    sink: type[DeltaSink] = DeltaSink
    reports: list[BatchReport] = field(default_factory=list)

    @property
    def checkpoint(self) -> str:
        return str(self.folder / self.home / "checkpoint")

    @property
    def store_path(self) -> str:
        return str(self.folder / self.home / "store")

    def say(self, *batches: list[dict[str, Any]]) -> None:
        """Adds a file for each batch."""
        folder = self.folder / "in"
        folder.mkdir(parents=True, exist_ok=True)
        for number, rows in enumerate(batches, start=len(list(folder.iterdir()))):
            file = folder / f"{number:04}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), file)
            # Spark reads files in the order of their modification times.
            os.utime(file, (1_000_000 + number, 1_000_000 + number))

    def commands(self) -> DataFrame:
        columns = [
            *(f"{name} string" for name in _TEXTS),
            *(f"{name} timestamp" for name in _INSTANTS),
            *(f"{name} long" for name in _NUMBERS),
            "value binary",
        ]
        stream = self.spark.readStream.schema(", ".join(columns)).option("maxFilesPerTrigger", 1)
        return stream.parquet(str(self.folder / "in"))

    def outlet(self) -> dict[str, Any]:
        return {
            "destinations": Destinations({"*": self.sink(str(self.folder / "tables"), create=True)}),
            "rejects": DeltaSink(str(self.folder / "rejects")),
        }

    def direct(self, until_s: float | None = None, **settings: Any) -> None:
        """Runs the direct mode over all files, and its clock on to an instant."""
        clock = EventClock(max_ahead_ms=None, until_ms=None if until_s is None else at_ms(until_s))
        frame = schedule(self.commands(), wheel=WHEEL, clock=clock, shards=2, memory_ms=MEMORY_MS, **settings)
        query = deliver(
            frame,
            **self.outlet(),
            checkpoint=self.checkpoint,
            trigger="available-now",
            on_batch=self.reports.append,
        )
        query.awaitTermination()

    def start(self, until_s: float | None = None, **settings: Any) -> TieredRun:
        """Starts the tiered mode."""
        clock = EventClock(max_ahead_ms=None, until_ms=None if until_s is None else at_ms(until_s))
        what = TieredWheel(
            layout=LAYOUT,
            store=self.store_path,
            clock=clock,
            shards=2,
            memory_ms=MEMORY_MS,
            **settings,
        )
        return start_tiered(
            self.commands(),
            what,
            outlet=Outlet(**self.outlet()),
            checkpoint=self.checkpoint,
            trigger="available-now",
            on_batch=self.reports.append,
        )

    def tiered(self, until_s: float | None = None, **settings: Any) -> None:
        """Runs the tiered mode over all files, and its clock on to an instant."""
        self.start(until_s, **settings).awaitTermination()

    @property
    def store(self) -> SlotStore:
        return SlotStore.open(self.spark, self.store_path, LAYOUT, create=False)

    @property
    def work(self) -> PendingWork:
        return PendingWork(self.checkpoint, self.store)

    def near_rows(self) -> int:
        """The number of near rows that the store still has."""
        return sum(each.rows for each in self.store.partitions() if each.level == 0)

    def pending(self, **options: Any) -> Rows:
        """(id, seq, due, occurrence, place), by id."""
        rows = pending(self.spark, self.work, **options).collect()
        found = [(row.schedule_id, row.seq, in_s(row.deliver_at), row.occurrence, row.place) for row in rows]
        return sorted(found)

    def table(self, name: str = "out") -> DataFrame:
        return self.spark.read.format("delta").load(str(self.folder / "tables" / name))

    def fired(self, name: str = "out") -> Rows:
        """(id, seq, due, fired at, occurrence, missed before), by id and due time."""
        return sorted(
            (
                row.schedule_id,
                row.seq,
                in_s(row.deliver_at),
                in_s(row.fired_at),
                row.occurrence,
                row.missed_before,
            )
            for row in self.table(name).collect()
        )

    def times(self, schedule_id: str, name: str = "out") -> list[float]:
        """The due times of what has fired of an id."""
        return [row[2] for row in self.fired(name) if row[0] == schedule_id]

    def rejects(self) -> Rows:
        """As :meth:`rejected`; empty if there is no table."""
        return self.rejected() if (self.folder / "rejects").exists() else []

    def rejected(self) -> Rows:
        """(id, code), by id."""
        rows = self.spark.read.format("delta").load(str(self.folder / "rejects")).collect()
        return sorted((row.schedule_id, row.error_code) for row in rows)

    def account(self) -> dict[str, int]:
        """The outcomes, and what is pending, near and far together."""
        report = self.reports[-1]
        counts = {name: count for name, count in report.counts.items() if count}
        return counts | {"pending": report.pending}

    @property
    def schedules(self) -> int:
        """How many schedules the account has."""
        names = ("pending", "fired", "missed", "cancelled", "superseded", "duplicate", "rejected", "ended")
        account = self.account()
        return sum(account.get(name, 0) for name in names)
