"""Delta tables on S3: what is done to them without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.tables.log_checkpoints import write_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3.server import Server


def test_the_log_of_a_table_on_s3_gets_a_checkpoint(s3_spark: SparkSession, s3: Server, place: str) -> None:
    table = f"s3a://bucket/{place}"
    s3_spark.range(3).write.format("delta").save(table)
    write_checkpoint(table, keeps_log=False)
    assert "00000000000000000000.checkpoint.parquet" in s3.names(f"{place}/_delta_log")
    assert s3_spark.read.format("delta").load(table).count() == 3
