"""A short run that loads the classes which every job needs, for :mod:`wheel_udf.platform.class_archive`.

A file is streamed through a stateful Python function into a Delta table, which is then read, changed and read again. Run as a program, with
the JVM's options as the only argument, or ``build`` to make the archive, and Python's byte code (:mod:`wheel_udf.platform.byte_code`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from wheel_udf.common import INTERRUPTED, SessionError
from wheel_udf.platform import byte_code, class_archive
from wheel_udf.platform.session import build_session, stop_session

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


def train(jvm_options: str) -> None:
    """Starts Spark with options of its JVM, does what a job does, and stops it."""
    conf: dict[str, str | float | bool] = {
        "spark.driver.extraJavaOptions": jvm_options,
        "spark.sql.shuffle.partitions": 1,
        "spark.log.level": "OFF",
    }
    spark = build_session("class archive", master="local[2]", conf=conf)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _stream(spark, folder)
            _change(spark, folder)
    finally:
        stop_session(spark)


def _stream(spark: SparkSession, folder: str) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    columns = "id string, at timestamp, part long, payload binary"
    rows = spark.range(100).select(
        F.col("id").cast("string"),
        F.current_timestamp().alias("at"),
        F.pmod("id", F.lit(2)).alias("part"),
        F.to_json(F.struct("id")).cast("binary").alias("payload"),
    )
    rows.write.parquet(f"{folder}/rows")

    def counted(_key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        state.update((sum(len(frame) for frame in frames),))
        yield from ()

    def written(batch: DataFrame, _batch_id: int) -> None:
        batch.cache()
        batch.write.format("delta").mode("append").partitionBy("part").save(f"{folder}/table")
        batch.groupBy("part").agg(F.count("*"), F.max("at")).collect()
        batch.unpersist()

    source = spark.readStream.schema(columns).parquet(f"{folder}/rows")
    grouped = source.unionByName(source.where("part = 0")).groupBy("part")
    held = grouped.applyInPandasWithState(counted, columns, "n long", "append", GroupStateTimeout.NoTimeout)
    for name, frame in (("held", held), ("passed", source)):
        query = frame.writeStream.foreachBatch(written).trigger(availableNow=True)
        query.option("checkpointLocation", f"{folder}/{name}").start().awaitTermination()


def _change(spark: SparkSession, folder: str) -> None:
    from delta.tables import DeltaTable

    table = DeltaTable.forPath(spark, f"{folder}/table")
    table.delete("part = 1 AND id > '5'")
    table.update("id = '2'", {"payload": "NULL"})
    table.history(1).collect()
    frame = spark.read.format("delta").load(f"{folder}/table")
    frame.createOrReplaceTempView("held")
    spark.sql("SELECT part, count(*), max_by(id, at) FROM held GROUP BY part ORDER BY part").toPandas()
    frame.join(frame.select("id").distinct(), "id", "left_anti").orderBy("at").collect()


def main(arguments: list[str]) -> int:
    """``build``: makes byte code and archive and says so; else trains with the JVM options given."""
    if arguments != ["build"]:
        train(*arguments)
        return 0
    made: tuple[tuple[str, Callable[[], object]], ...] = (
        ("byte code, zips written", byte_code.compile_all),
        ("class archive", class_archive.build),
    )
    for what, make in made:
        try:
            sys.stdout.write(f"{what}: {make()}\n")
        except SessionError as fault:
            sys.stderr.write(f"note: {fault}\n")  # not an error: everything works without
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
