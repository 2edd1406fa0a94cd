"""What carries the state of a shard from batch to batch, side by side: ``python -m tests.bench.carrier_run [--rows N]
[--chunks N] [--rounds N]``.

::

    row    applyInPandasWithState: the row has a directory of 12 KB, the chunks are files beside the checkpoint (what the package does)
    map    transformWithStateInPandas: the directory is a value, the chunks are the values of a map

Both operators return their rows. In each batch a shard reads two chunks of 100 KB and writes two in their place. It
prints the median of ``addBatch`` of ten batches, after four. ``transformWithStateInPandas`` needs protobuf, which the
package does not: ``pip install protobuf``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tests.bench.report import median
from tests.bench.workplace import workplace

TOUCHED, CHUNK_BYTES, DIRECTORY_BYTES = 2, 100_000, 12_000
FIRST, MEASURED = 4, 10
_OUTPUT = "shard int, value long, payload binary"
_STATE = "batches long, directory binary"


def _touched(batches: int, chunks: int) -> list[int]:
    return [(batches * TOUCHED + number) % chunks for number in range(TOUCHED)]


class Row:
    """The function of ``applyInPandasWithState``."""

    def __init__(self, chunks: int, folder: str) -> None:
        self._chunks, self._folder = chunks, folder

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        batches = state.get[0] if state.exists else 0
        place = Path(self._folder, str(key[0]))
        if not batches:
            place.mkdir(parents=True)
            for number in range(self._chunks):
                (place / str(number)).write_bytes(os.urandom(CHUNK_BYTES))
        for number in _touched(batches, self._chunks):
            (place / str(number)).read_bytes()
            (place / "new").write_bytes(os.urandom(CHUNK_BYTES))
            (place / "new").rename(place / str(number))
        state.update((batches + 1, os.urandom(DIRECTORY_BYTES)))
        yield from frames


class Map(StatefulProcessor):
    """The processor of ``transformWithStateInPandas``."""

    def __init__(self, chunks: int) -> None:
        self._count = chunks

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._row = handle.getValueState("row", _STATE)
        self._chunks = handle.getMapState("chunks", "number int", "data binary")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,  # noqa: ARG002
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Does what the other one does."""
        found = self._row.get() if self._row.exists() else None
        batches = found[0] if found else 0
        if not batches:
            for number in range(self._count):
                self._chunks.updateValue((number,), (os.urandom(CHUNK_BYTES),))
        for number in _touched(batches, self._count):
            self._chunks.getValue((number,))
            self._chunks.updateValue((number,), (os.urandom(CHUNK_BYTES),))
        self._row.update((batches + 1, os.urandom(DIRECTORY_BYTES)))
        yield from rows

    def close(self) -> None:
        """Has nothing to close."""


def _rows(spark: SparkSession, rows: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    payload = F.unhex(F.repeat(F.lit("ab"), 100))
    return source.select((F.col("value") % 2).cast("int").alias("shard"), "value", payload.alias("payload"))


def _batch_ms(frame: DataFrame, checkpoint: Path) -> float:
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        while len(done := [one for one in query.recentProgress if one["numInputRows"]]) < FIRST + MEASURED:
            query.awaitTermination(1)
    finally:
        query.stop()
    return median([one["durationMs"]["addBatch"] for one in done[FIRST : FIRST + MEASURED]])


def main() -> None:
    """Runs both, in turns; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.carrier_run")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--chunks", type=int, default=400, help="chunks of a shard")
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {"row": [], "map": []}
    with workplace("carrier", "2g") as (spark, folder, say):
        for turn in range(asked.rounds):
            shards = _rows(spark, asked.rows).groupBy("shard")
            row = Row(asked.chunks, str(folder / f"chunks-{turn}"))
            frames = {
                "row": shards.applyInPandasWithState(row, _OUTPUT, _STATE, "append", "NoTimeout"),
                "map": shards.transformWithStateInPandas(Map(asked.chunks), _OUTPUT, "append", "None"),
            }
            for name, frame in frames.items():
                found[name].append(_batch_ms(frame, folder / f"{name}-{turn}"))
                say(f"{name}: {found[name][-1]:.0f} ms")
        say(f"map / row: {median(found['map']) / median(found['row']):.2f}")


if __name__ == "__main__":
    main()
