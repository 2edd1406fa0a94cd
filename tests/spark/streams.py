"""Streams for tests: literal commands in files, one file a micro-batch, and runs that end by themselves."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.stream.outputs import status

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

T0 = datetime(2024, 1, 1, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)

_INSTANT = pa.timestamp("us", tz="UTC")
_COMMANDS = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("op", pa.string()),
        ("seq", pa.int64()),
        ("deliver_at", _INSTANT),
        ("event_time", _INSTANT),
        ("destination", pa.string()),
        ("value", pa.binary()),
        ("max_lateness", pa.string()),
    ]
)


def at(seconds: float) -> datetime:
    """The instant some seconds after the tests' beginning of time, 2024-01-01 00:00 UTC."""
    return T0 + timedelta(seconds=seconds)


def at_ms(seconds: float) -> int:
    """The same in ms."""
    return T0_MS + int(seconds * 1000)


def due(schedule_id: str | None, due_s: float, said_s: float, seq: int = 1, **others: Any) -> dict[str, Any]:
    """A SCHEDULE for `due_s`, made at `said_s`, both in seconds from the beginning."""
    row = {"schedule_id": schedule_id, "seq": seq, "deliver_at": at(due_s), "event_time": at(said_s)}
    return row | {"destination": "out"} | others


def cancel(schedule_id: str, said_s: float, seq: int = 1) -> dict[str, Any]:
    """A CANCEL made at `said_s`."""
    return {"schedule_id": schedule_id, "op": "CANCEL", "seq": seq, "event_time": at(said_s)}


def add_files(folder: Path, *batches: list[dict[str, Any]]) -> None:
    """Adds one file for each batch, in order; an empty batch is a file without rows."""
    folder.mkdir(parents=True, exist_ok=True)
    count = len(list(folder.iterdir()))
    for number, rows in enumerate(batches, start=count):
        file = folder / f"{number:04}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=_COMMANDS), file)
        # Spark reads files in the order of their modification times.
        os.utime(file, (1_000_000 + number, 1_000_000 + number))


def read_files(spark: SparkSession, folder: Path, files_per_batch: int = 1) -> DataFrame:
    """The stream of these files."""
    schema = "schedule_id string, op string, seq long, deliver_at timestamp, event_time timestamp, destination string, value binary, max_lateness string"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch).parquet(str(folder))


def run(scheduled: DataFrame, checkpoint: Path) -> DataFrame:
    """Runs a frame of ``schedule()`` over all its input into a table in memory; the frame of its rows."""
    spark = scheduled.sparkSession
    name = f"out_{abs(hash(checkpoint))}"
    query = (
        scheduled.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.table(name)


def waiting(
    spark: SparkSession, work: PendingWork, as_of_ms: int | None = None
) -> list[tuple[str, int, int, str]]:
    """What is pending, or was: (id, seq, due in seconds from the beginning, place), by due time and id."""
    rows = pending(spark, work, as_of_ms=as_of_ms).orderBy("deliver_at", "schedule_id").collect()
    return [
        (row.schedule_id, row.seq, int(row.deliver_at.timestamp() - T0_MS / 1_000), row.place) for row in rows
    ]


def account(rows: DataFrame) -> dict[str, int]:
    """Pending and all outcomes, over the last status of every shard; outcomes of none are left out."""
    last: dict[int, Row] = {}
    for row in status(rows).collect():
        if row.shard not in last or row.batch_id > last[row.shard].batch_id:
            last[row.shard] = row
    names = ["pending", *[name for name in status(rows).columns if name in _OUTCOMES]]
    total = {name: sum(row[name] for row in last.values()) for name in names}
    return {name: count for name, count in total.items() if count}


_OUTCOMES = frozenset(
    [
        "fired",
        "missed",
        "cancelled",
        "superseded",
        "duplicate",
        "rejected",
        "ended",
        "occurrences_fired",
        "occurrences_missed",
        "occurrences_skipped",
        "applied",
        "waiting",
        "late",
        "cancel_superseded",
        "cancel_duplicate",
        "cancel_rejected",
    ]
)
