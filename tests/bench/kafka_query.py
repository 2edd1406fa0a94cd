"""The inside of the Kafka bench: one query from topic to topic, in a process (and a JVM) of its own, told by its
arguments.

``python -m tests.bench.kafka_query wheel|tables|punctual|tiered|pass|floor|bare --bootstrap B --commands TOPIC --folder F
[--trigger T] [--memory-ms N]``

``punctual`` is the wheel with punctual delivery (``--ahead-ms``: how far ahead; by default the job chooses), and
``tiered`` the same in the tiered mode, beside ``--stored`` entries that its store holds already; the file ``F/filled``
says that it does. With ``--aside`` it fills such a store and runs beside another one, an empty one: in a JVM that has
done the same before. ``pass`` is the same query with the wheel taken out: records are read as commands, checked, and
written to their topic at once. ``floor`` is Spark's own query with ``foreachBatch``, which writes the records to their
topic as they are; ``bare`` is the same with a stateful Python operator of Spark between them that returns the rows it
gets; ``tables`` is the wheel with Delta tables as destinations. Each batch is a line of JSON in ``F/batches.jsonl``:
what Spark says of its phases; ``F/about.json`` has the number of Spark's jobs and the lines of the plan of a batch. It
runs until its standard input is closed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.bench import store_traffic
from tests.bench.store_run import Ground
from wheel_udf import (
    Contract,
    DeltaSink,
    Destinations,
    FileSink,
    KafkaSink,
    ProcessingClock,
    Punctual,
    Wheel,
    deliver,
    schedule,
)
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.commands.parse import parse_commands
from wheel_udf.sinks.kafka_record import delivery_records
from wheel_udf.spark.session import build_session, stop_session
from wheel_udf.stream.sharded_query import HEADERS_TYPE
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.start import Outlet, start_tiered

CORES = 2
_LOOK_EVERY_S = 60.0
_MOMENT_S = 0.1
_REPORTS = 10_000
"""So many are kept by Spark. They are read once, at the end: to read them keeps the driver's Python, and with it the
sender, from all else for 1 ms each.
"""


def main() -> int:
    """Runs the query; see the module."""
    asked = _arguments()
    asked.folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, str | float | bool] = {
        "spark.sql.shuffle.partitions": asked.partitions,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(asked.folder / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": _REPORTS,
    }
    spark = build_session(
        "wheel_udf kafka bench", master=f"local[{CORES}]", conf=settings, checkpoint=str(asked.folder)
    )
    try:
        start = {"pass": _without, "floor": _floor, "bare": _bare, "tiered": _tiered}.get(asked.query, _wheel)
        query = start(spark, asked)
        _report(spark, query, asked.folder)
    finally:
        stop_session(spark)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=("wheel", "tables", "punctual", "tiered", "pass", "floor", "bare"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--commands", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--trigger", default="0 seconds")
    parser.add_argument("--memory-ms", type=int, default=300_000)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--shards", type=int, default=CORES)  # each costs a batch some ms
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--ahead-ms", type=int, default=None)
    parser.add_argument("--stored", type=int, default=0)
    parser.add_argument("--aside", action="store_true")
    return parser.parse_args()


def _commands(spark: SparkSession, asked: argparse.Namespace) -> DataFrame:
    return kafka_commands(_records(spark, asked), "native")


def _records(spark: SparkSession, asked: argparse.Namespace) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": asked.bootstrap,
        "subscribe": asked.commands,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    return spark.readStream.format("kafka").options(**options).load()


def _wheel(spark: SparkSession, asked: argparse.Namespace) -> StreamingQuery:
    scheduled = schedule(
        _commands(spark, asked),
        wheel=Wheel(tick_ms=1_000, size=20, levels=6),
        clock=ProcessingClock(),
        shards=asked.shards,
        memory_ms=asked.memory_ms,
        limit=asked.limit,
        punctual=Punctual(ahead_ms=asked.ahead_ms) if asked.query == "punctual" else None,
    )
    return deliver(
        scheduled,
        destinations=_topics(asked),
        rejects=_rejects(asked),
        checkpoint=str(asked.folder / "checkpoint"),
        trigger=asked.trigger,
        name="bench",
        on_batch=_line,
    )


def _tiered(spark: SparkSession, asked: argparse.Namespace) -> TieredRun:
    ground = Ground(spark, asked.folder, asked.stored)
    if asked.stored:
        ground.fill()
    if asked.aside:
        ground = Ground(spark, asked.folder / "aside", 0)
    (asked.folder / "filled").touch()
    return start_tiered(
        _commands(spark, asked),
        replace(ground.what, memory_ms=asked.memory_ms, punctual=Punctual(ahead_ms=asked.ahead_ms)),
        outlet=Outlet(_topics(asked), _rejects(asked)),
        checkpoint=str(ground.folder / "checkpoint"),
        trigger=asked.trigger,
        name=store_traffic.NAME,
        on_batch=_line,
    )


def _floor(spark: SparkSession, asked: argparse.Namespace) -> StreamingQuery:
    def write(rows: DataFrame, _batch_id: int) -> None:
        _to_kafka(rows, asked)

    return _start(_outgoing(spark, asked), write, asked)


def _bare(spark: SparkSession, asked: argparse.Namespace) -> StreamingQuery:
    rows = _outgoing(spark, asked).withColumn("headers", F.to_json("headers"))  # an array is slow in pandas
    passed = (
        rows.withColumn("shard", F.pmod(F.hash("key"), F.lit(CORES)))
        .groupBy("shard")
        .applyInPandasWithState(
            _same_rows,
            outputStructType="key binary, value binary, headers string, topic string",
            stateStructType="batches long",
            outputMode="append",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
    )

    def write(rows: DataFrame, _batch_id: int) -> None:
        rows.persist()
        rows.count()  # the scheduler's first job: what is to be written, and how much, is known before anything is
        _to_kafka(rows, asked)
        rows.unpersist()

    return _start(passed.withColumn("headers", F.from_json("headers", HEADERS_TYPE)), write, asked)


def _start(
    outgoing: DataFrame, write: Callable[[DataFrame, int], None], asked: argparse.Namespace
) -> StreamingQuery:
    writer = outgoing.writeStream.foreachBatch(write).trigger(processingTime=asked.trigger)
    return writer.option("checkpointLocation", str(asked.folder / "checkpoint")).start()


def _same_rows(_shard: Any, pieces: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    state.update(((state.get[0] if state.exists else 0) + 1,))
    for piece in pieces:
        yield piece.drop(columns="shard")


def _outgoing(spark: SparkSession, asked: argparse.Namespace) -> DataFrame:
    target = F.expr("element_at(filter(headers, header -> header.key = 'wheel-target'), 1).value").cast(
        "string"
    )
    return _records(spark, asked).select("key", "value", "headers", target.alias("topic"))


def _to_kafka(rows: DataFrame, asked: argparse.Namespace) -> None:
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", asked.bootstrap)
    writer.option("includeHeaders", "true").save()


def _topics(asked: argparse.Namespace) -> Destinations:
    if asked.query == "tables":
        return Destinations({"*": DeltaSink(str(asked.folder / "tables"), create=True)})
    return Destinations({"*": KafkaSink({"kafka.bootstrap.servers": asked.bootstrap})})


def _rejects(asked: argparse.Namespace) -> FileSink:
    return FileSink(str(asked.folder / "rejects"))


def _line(report: Any) -> None:
    sys.stderr.write(
        f"{report.batch_id} in {report.received} fired {report.fired} pending {report.pending} rejected {report.rejected} handed {report.handed} in flight {report.in_flight}\n"
    )


def _without(spark: SparkSession, asked: argparse.Namespace) -> StreamingQuery:
    parsed = parse_commands(_commands(spark, asked), Contract())
    identity = F.concat_ws("\x1f", "schedule_id", "seq", F.lit(0), "deliver_at_ms")
    due = F.timestamp_millis("deliver_at_ms")
    rows = parsed.where(F.col("error_code").isNull()).select(
        "destination",
        "key",
        "value",
        F.from_json("headers", HEADERS_TYPE).alias("headers"),
        "schedule_id",
        "seq",
        F.md5(identity.cast("binary")).alias("fire_id"),
        due.alias("deliver_at"),
        due.alias("fired_at"),
        "source",
    )
    writer = delivery_records(rows).writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", asked.bootstrap).trigger(processingTime=asked.trigger)
    checkpoint = str(asked.folder / "checkpoint")
    return writer.option("checkpointLocation", checkpoint).start()


def _report(spark: SparkSession, query: StreamingQuery | TieredRun, folder: Path) -> None:
    """Waits for the end of standard input, or of the query, and writes down each batch."""
    wheel = query.wheel if isinstance(query, TieredRun) else query
    assert wheel is not None, "begun"
    with (folder / "batches.jsonl").open("w", encoding="utf-8") as lines:
        while not (_is_input_closed(_LOOK_EVERY_S) or query.awaitTermination(_MOMENT_S)):
            pass
        for progress in wheel.recentProgress:
            if "addBatch" in progress.durationMs:
                record = {
                    "batch": progress.batchId,
                    "began": progress.timestamp,
                    "rows": progress.numInputRows,
                    "ms": dict(progress.durationMs),
                }
                lines.write(json.dumps(record) + "\n")
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(wheel.runId))
    with redirect_stdout(StringIO()) as plan:
        wheel.explain()
    about = {
        # Spark keeps the last ones alone; their numbers go up by one.
        "jobs": max(jobs, default=-1) + 1,
        "batches": 1 + max((each.batchId for each in wheel.recentProgress), default=-1),
        "plan_lines": len(plan.getvalue().splitlines()),
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    query.stop()


def _is_input_closed(within_s: float) -> bool:
    import select

    ready, _, _ = select.select([sys.stdin], [], [], within_s)
    return bool(ready) and not sys.stdin.read(1)


if __name__ == "__main__":
    sys.exit(main())
