"""Adds the clock's rows to the rows of an operator, so that every touched shard sees the time in its batch.

::

    rows of the operator (shard, ..., event_at, tick = null) --.
                                                                union, with the watermark under the event clock
    clock source --> (shard, tick) ----------------------------'       tick: a wheel_udf.control.tick.Tick as text

The process that plans a streaming Python source gets no ``--py-files`` (Spark 4.2) and takes its ``PYTHONPATH`` from
the context's environment at the moment of registration. So the folder of the package is added to that environment,
behind what is in it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.datasource import DataSource

from wheel_udf.control.board import ShardBoard
from wheel_udf.control.clocks import Clock, EventClock, StoreClock, clock_options
from wheel_udf.control.source import CLOCK_FORMAT, ClockSource
from wheel_udf.spark.connect_session import is_connect
from wheel_udf.spark.local_mode import with_package_folder
from wheel_udf.stream.sharding import key_of_shard
from wheel_udf.stream.worker import NO_LONG

_EARLIEST, _LATEST = "1678-01-01 00:00:00Z", "2261-12-31 00:00:00Z"
"""Bounds of what pandas can hold as a timestamp."""


def with_clock_rows(
    rows: DataFrame,
    clock: Clock | StoreClock,
    shards: int,
    board: ShardBoard,
    frame: str,
    *,
    has_sender: bool = False,
    limit: int | None = None,
    returns: bool = False,
) -> DataFrame:
    """Rows of an operator, plus one row per shard for each tick of the clock; its other columns are blank.

    Args:
        rows: With the columns ``shard``, ``tick`` (:func:`no_tick`) and ``event_at`` (:func:`event_column`).
            The last one makes the watermark of the event clock, and is dropped under other clocks.
        clock: The clock.
        shards: Number of shards.
        board: Where the shards report.
        frame: Name of the operator's frame on the board.
        has_sender: Whether the query has a sender, whose news are in the ticks.
        limit: Most rows of a batch over all shards; None for no limit.
        returns: Whether entries that cannot be delivered come back.
    """
    spark = rows.sparkSession
    register(spark, ClockSource)
    ticks = (
        spark.readStream.format(CLOCK_FORMAT)
        .options(
            **clock_options(
                clock, shards, board.folder, frame, has_sender=has_sender, limit=limit, returns=returns
            )
        )
        .load()
    )
    own = {"shard": key_of_shard(F.col("shard"), shards), "tick": F.col("tick")}
    blank = {"bigint": F.lit(NO_LONG), "int": F.lit(0)}
    columns = [
        own.get(field.name, blank.get(kind := field.dataType.simpleString(), F.lit(None).cast(kind))).alias(
            field.name
        )
        for field in rows.schema
    ]
    # Spark plans the sources in the order of the union. With the clock first, all commits that a published instant
    # covers are in the store's log when the store's source is planned.
    rows = ticks.select(columns).unionByName(rows)
    if isinstance(clock, EventClock):
        return rows.withWatermark("event_at", f"{clock.delay_ms} milliseconds")
    return rows.drop("event_at")


def event_column(event_time_ms: Column) -> Column:
    """The column ``event_at``, from which Spark makes the watermark, from ms; null stays null."""
    event_at = F.timestamp_millis(event_time_ms)
    # least and greatest skip nulls.
    bounded = F.greatest(
        F.least(event_at, F.lit(_LATEST).cast("timestamp")), F.lit(_EARLIEST).cast("timestamp")
    )
    return F.when(event_at.isNotNull(), bounded).alias("event_at")


def no_tick() -> Column:
    """The column ``tick`` of rows that are not clock rows."""
    return F.lit(None).cast("string").alias("tick")


_registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Registers a source of this package in a session, once: Spark warns when a source is registered again."""
    known = _registered.setdefault(spark, set())
    if source.name() in known:
        return
    if not is_connect(spark):  # the Python of a Connect server finds the package by itself
        environment = spark.sparkContext.environment
        environment["PYTHONPATH"] = with_package_folder(environment.get("PYTHONPATH"))
    try:
        spark.dataSource.register(source)
    except AnalysisException as fault:
        if fault.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark 4.2 looks for the name in this thread's active session, which may be another one than ours.
        spark.createDataFrame([], "nothing int")  # makes ours the active one
        _search(spark, source.name())
        spark.dataSource.register(source)
    known.add(source.name())


def _search(spark: SparkSession, name: str) -> None:
    """Repeats the search for sources on the class path, after Spark has reported that `name`, which is ours, exists.

    Spark 4.2 also reports this when its search, which reads the lists of sources in all jars, fails, and drops the
    cause. If the search fails here too, the original error is raised.
    """
    try:
        spark.read.format(name).load()
    except Exception as fault:  # pyspark has no class of its own for this error
        if "DATA_SOURCE_NOT_FOUND" not in str(fault):
            raise
