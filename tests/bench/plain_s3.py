"""The query that a job on S3 is compared with: JSON files into a Delta table by Spark alone, all of it in a bucket.

``python -m tests.bench.plain_s3 ROOT TRIGGER`` reads ``ROOT/in`` at each trigger until it is killed, and prints a line for each
batch with rows. It has Spark's own way of writing checkpoints there.
"""

from __future__ import annotations

import sys
import time

from wheel_udf.spark.session import build_session

SCHEMA = "schedule_id STRING, delay STRING, value STRING"
_LOOK_S = 0.05


def main() -> None:
    """Runs the query until it is killed."""
    root, trigger = sys.argv[1:]
    spark = build_session("plain query on S3")
    rows = spark.readStream.schema(SCHEMA).json(f"{root}/in")
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{root}/checkpoint")
    query = writer.trigger(processingTime=trigger).start(f"{root}/tables/out")
    told = -1
    while query.isActive:
        for batch in query.recentProgress:
            if batch.batchId > told and batch.numInputRows:
                told = batch.batchId
                print(f"batch {told} | fired {batch.numInputRows:,} |", flush=True)
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
