"""The query that a start is compared with: JSON files through a stateful Python operator into a Delta table, and no
wheel.

``python -m tests.bench.plain_start plain|tuned FOLDER`` reads ``FOLDER/in`` each second until it is killed, and tells
of its first batch; started again after a kill, it goes on from its checkpoint. ``plain`` is Spark as one starts it
with pyspark and the jars of Delta alone, ``tuned`` has the session of this project, with all that makes a start
shorter: what is then left of a start is the wheel's own part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from wheel_udf.spark.jars import jars_folder
from wheel_udf.spark.session import build_session

DONE = "first batch"
KINDS = ("plain", "tuned")
SCHEMA = "schedule_id STRING, seq LONG, deliver_at TIMESTAMP, event_time TIMESTAMP, destination STRING"
_SHARDS = 2
_LOOK_S = 0.02


def _plain() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    settings = {
        "spark.jars": ",".join(sorted(map(str, jars_folder().glob("*.jar")))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.master("local[*]").getOrCreate()
    return session


def _given_back(_: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    (count,) = state.get if state.exists else (0,)
    for frame in frames:
        count += len(frame)
        yield frame.drop(columns="shard")
    state.update((count,))


def main() -> None:
    """Runs the query until it is killed."""
    kind, folder = sys.argv[1:]
    spark = _plain() if kind == "plain" else build_session("plain start", checkpoint=folder)
    spark.conf.set("spark.sql.shuffle.partitions", _SHARDS)
    commands = spark.readStream.schema(SCHEMA).json(f"{folder}/in")
    sharded = commands.withColumn("shard", F.pmod(F.hash("schedule_id"), F.lit(_SHARDS))).groupBy("shard")
    held = sharded.applyInPandasWithState(
        _given_back, SCHEMA, "n LONG", "append", GroupStateTimeout.NoTimeout
    )
    writer = held.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(processingTime="1 second").start(f"{folder}/out")
    while not any(batch.numInputRows for batch in query.recentProgress):
        query.awaitTermination(_LOOK_S)
    print(DONE, flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
