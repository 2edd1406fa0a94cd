"""A Spark frame under a manual clock: literal batches in, all output rows out. For tests of users' own jobs.

::

    [("10:00:00", [order 7, order 8]),      file 0, clock 10:00:00  --.
     ("10:12:00", [order 8 is paid]),       file 1, clock 10:12:00  --+--> pipeline(commands, clock) --> rows of play()
     ("10:31:00", [])]                      file 2, clock 10:31:00  --'

Each batch is one micro-batch of a real streaming query, so what is tested is what runs: parsing, the operator, its
state. The clock of a batch is the instant that stands beside its rows; nothing waits, and no wall clock is read.

Spark is imported inside the function: the room can be imported without it.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wheel_udf.common.instants import parse_instant_ms
from wheel_udf.control.clocks import SimulatedClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batch = tuple[str | datetime, Sequence[Mapping[str, Any]]]
"""An instant (ISO text or a datetime; UTC where it names no zone), and the rows of that batch."""


def play(
    spark: SparkSession,
    batches: Sequence[Batch],
    schema: str,
    pipeline: Callable[[DataFrame, SimulatedClock], DataFrame],
) -> DataFrame:
    """Runs a pipeline over literal batches.

    Args:
        spark: A session.
        batches: The batches in order, at least one; a batch may have no rows.
        schema: Columns of the rows, as DDL.
        pipeline: Makes the frame to test from a streaming frame of the rows and the clock, for example
            ``lambda rows, clock: fired(schedule(rows, wheel=wheel, clock=clock))``.

    Returns:
        All rows that have left the pipeline, a table in memory.

    Raises:
        ConfigError: There is no batch.
        ValueError: An instant is no ISO text.
    """
    from wheel_udf.spark.queries import AVAILABLE_NOW, start_with

    instants_ms = tuple(parse_instant_ms(str(at)) for at, _ in batches)
    simulated = SimulatedClock(instants_ms=instants_ms)
    name = f"played_{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="wheel-play-") as folder:
        for number, (_, rows) in enumerate(batches):
            _write(spark, Path(folder), number, rows, schema)
        read = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        frame = pipeline(read.parquet(f"{folder}/in"), simulated)
        writer = frame.writeStream.format("memory").queryName(name)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        start_with(writer, AVAILABLE_NOW, python_source=True).awaitTermination()
    return spark.table(name)


def _write(
    spark: SparkSession, folder: Path, number: int, rows: Sequence[Mapping[str, Any]], schema: str
) -> None:
    """Writes the rows of a batch as one file; Spark reads files in the order of their modification times."""
    import pyarrow.parquet as pq

    file = folder / "in" / f"{number:06}.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(spark.createDataFrame([dict(row) for row in rows], schema).toArrow(), file)
    os.utime(file, (1_000_000 + number, 1_000_000 + number))
