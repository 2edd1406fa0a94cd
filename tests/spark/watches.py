"""Streams of operations and events for tests: literal rows in files, one file a micro-batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.streams import at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_INSTANT = pa.timestamp("us", tz="UTC")
_OPERATIONS = pa.schema(
    [
        ("op_id", pa.string()),
        ("group", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("rule", pa.string()),
        ("deadline", pa.string()),
        ("limit", pa.string()),
        ("event_time", _INSTANT),
        ("destination", pa.string()),
        ("value", pa.binary()),
    ]
)
_EVENTS = pa.schema(
    [
        ("group", pa.string()),
        ("key", pa.string()),
        ("op", pa.string()),
        ("amount", pa.float64()),
        ("event_time", _INSTANT),
    ]
)
_DDL = {
    "operations": "op_id string, group string, keys array<string>, rule string, deadline string, limit string, event_time timestamp, destination string, value binary",
    "events": "group string, key string, op string, amount double, event_time timestamp",
}


def operation(op_id: str | None, said_s: float, *keys: str, **others: Any) -> dict[str, Any]:
    """An operation of the group g made at `said_s` seconds, that waits 30 seconds for any of its keys."""
    row = {"op_id": op_id, "group": "g", "keys": list(keys), "deadline": "30 s", "event_time": at(said_s)}
    return row | {"destination": "out"} | others


def event(key: str | None, said_s: float, **others: Any) -> dict[str, Any]:
    """An event of the group g at `said_s` seconds."""
    return {"group": "g", "key": key, "event_time": at(said_s)} | others


def add_rows(folder: Path, *batches: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    """Adds one file of operations and one of events for each batch, in order."""
    for name, schema, place in (("operations", _OPERATIONS, 0), ("events", _EVENTS, 1)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        count = len(list((folder / name).iterdir()))
        for number, batch in enumerate(batches, start=count):
            file = folder / name / f"{number:04}.parquet"
            pq.write_table(pa.Table.from_pylist(batch[place], schema=schema), file)
            # Spark reads files in the order of their modification times.
            os.utime(file, (1_000_000 + number, 1_000_000 + number))


def read_rows(spark: SparkSession, folder: Path, files_per_batch: int = 1) -> tuple[DataFrame, DataFrame]:
    """The streams of operations and of events."""
    operations, events = (
        spark.readStream.schema(_DDL[name])
        .option("maxFilesPerTrigger", files_per_batch)
        .parquet(str(folder / name))
        for name in ("operations", "events")
    )
    return operations, events
