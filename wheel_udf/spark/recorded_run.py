"""A small job that loads the classes of a job: a stateful function, a Delta table written and read. The JVM that runs
it records them (:mod:`wheel_udf.spark.fast_start`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from wheel_udf.spark.session import build_session, stop_session


def main(options: str) -> None:
    """Runs the job in a session with these JVM options."""

    def counted(_key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        state.update((sum(len(frame) for frame in frames),))
        yield from ()

    settings = {"spark.driver.extraJavaOptions": options, "spark.log.level": "OFF"}
    spark = build_session("class archive", master="local[2]", conf=settings)
    with tempfile.TemporaryDirectory() as folder:
        made = (
            "string(id) AS id",
            "current_timestamp() AS at",
            "id % 2 AS part",
            "to_json(struct(id)) AS text",
        )
        spark.range(100).selectExpr(*made).write.parquet(f"{folder}/rows")
        columns = "id string, at timestamp, part long, text string"
        source = spark.readStream.schema(columns).parquet(f"{folder}/rows")
        grouped = source.unionByName(source.where("part = 0")).groupBy("part")
        held = grouped.applyInPandasWithState(
            counted, columns, "n long", "append", GroupStateTimeout.NoTimeout
        )
        for name, frame in (("held", held), ("passed", source)):
            writer = frame.writeStream.format("delta").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{folder}/{name}-log")
            writer.start(f"{folder}/{name}").awaitTermination()
        table = spark.read.format("delta").load(f"{folder}/passed")
        table.groupBy("part").agg(F.count("*"), F.max_by("id", "at")).orderBy("part").toPandas()
    stop_session(spark)


if __name__ == "__main__":
    main(sys.argv[1])
