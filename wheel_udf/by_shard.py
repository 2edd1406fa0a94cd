"""What both operators share on the driver: rows and clock rows, by shard, through a step.

::

    rows of the operator --.
                           union --> groupBy(shard) --> step --> rows that leave
    clock source ----------'

What the key is, why time comes as data, and what travels as metadata: :mod:`wheel_udf.operator`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from wheel_udf.clock import CLOCK_FORMAT, Clock, ClockSource, EventClock, StoreClock, clock_options
from wheel_udf.errors import ConfigError, ContractError
from wheel_udf.geometry import Wheel
from wheel_udf.group_step import NO_LONG, GroupStep
from wheel_udf.hints import HintBoard
from wheel_udf.limits import BOUNDS, Limits
from wheel_udf.shards import key_of_shard, shard_keys, shard_of_id

HEADERS_TYPE = "array<struct<key: string, value: binary>>"
DEFAULT_MEMORY_MS = 300_000
LARGEST_SHARDS = 1024

REASON = ("error_code", "error_message", "record")
REASON_TYPE = ", ".join(f"{name} string" for name in REASON)
"""Why a row was rejected; through the step it travels as JSON."""

_METADATA_KEY = "wheel_udf"
_EARLIEST, _LATEST = "1678-01-01 00:00:00Z", "2261-12-31 00:00:00Z"
_STATUS_HEAD = (
    "shard int, batch_id long, query_id string, run string, clock_ms long, watermark_ms long, next_due_ms long, pending long, received long, "
    "fired_now long, rejected_now long, lateness string, destinations map<string, long>, largest map<string, long>"
)


def stepped(
    rows: DataFrame,
    step: type[GroupStep],
    *,
    wheel: Wheel,
    clock: Clock | StoreClock,
    shards: int,
    memory_ms: int | None,
    output_type: str,
    state_columns: Mapping[str, str],
    **settings: Any,
) -> tuple[DataFrame, dict[str, Any]]:
    """Rows and clock rows, by shard, through a step.

    Args:
        rows: The operator's rows, with the columns ``shard``, ``tick`` and ``event_at``.
        step: What makes the step.
        wheel: The geometry.
        clock: What time it is.
        shards: How many.
        memory_ms: How long what has ended is remembered.
        output_type: The columns of what leaves.
        state_columns: Those of a shard's state.
        settings: The step's own.

    Returns:
        What leaves, and the facts about it that :func:`facts_of` tells.
    """
    board = HintBoard()
    function = step(
        wheel=wheel,
        shards=shards,
        keys=shard_keys(shards),
        clock_kind=clock.kind,
        first_ms=getattr(clock, "first_ms", 0),
        delay_ms=getattr(clock, "delay_ms", 0),
        memory_ms=memory_ms,
        board_folder=str(board.folder) if _is_local(rows.sparkSession) else None,
        **settings,
    )
    grouped = _with_clock_rows(rows, clock, shards, board).groupBy("shard")
    released = grouped.applyInPandasWithState(
        function,
        outputStructType=output_type,
        stateStructType=", ".join(f"{name} {kind}" for name, kind in state_columns.items()),
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    facts = {"wheel": wheel.fingerprint(), "shards": shards, "clock": clock.kind, "board": str(board.folder)}
    return released, facts


def kind_with(facts: Mapping[str, Any]) -> Column:
    """The column ``kind``, which bears the facts about its frame."""
    return F.col("kind").alias("kind", metadata={_METADATA_KEY: json.dumps(facts)})


def facts_of(scheduled: DataFrame) -> dict[str, Any]:
    """What is noted about a frame of ``schedule`` or ``watch``: geometry, shards, clock and hint board.

    Raises:
        ContractError: The frame was made by neither.
    """
    fields = {field.name: field for field in scheduled.schema.fields}
    if "kind" not in fields or _METADATA_KEY not in fields["kind"].metadata:
        raise ContractError(
            "this frame was not made by schedule()",
            field="columns",
            value=scheduled.columns,
            rule="the frame of schedule(), with its column `kind`",
            hint="deliver the frame itself; rows of a kind are selected by the sinks",
        )
    facts: dict[str, Any] = json.loads(fields["kind"].metadata[_METADATA_KEY])
    return facts


def check_settings(
    rows: DataFrame,
    shards: int,
    memory_ms: int | None,
    limit: int | None = None,
    limits: Limits | None = None,
) -> None:
    """Sees to it that a frame is a stream and settings are within their bounds.

    Raises:
        ContractError: It is none.
        ConfigError: One is not.
    """
    if not rows.isStreaming:
        raise ContractError(
            "this needs a streaming frame",
            field="rows.isStreaming",
            value=False,
            hint="read it with spark.readStream",
        )
    bounds = (
        ("shards", shards, 1, LARGEST_SHARDS),
        ("memory_ms", memory_ms, 0, None),
        ("limit", limit, 1, None),
        # Each shard has to have a part of it.
        *((f"limits.{bound}", getattr(limits, bound), shards, None) for bound in BOUNDS if limits),
    )
    for name, value, least, most in bounds:
        if value is not None and (value < least or (most is not None and value > most)):
            rule = f"{least} to {most}" if most is not None else f"at least {least}"
            raise ConfigError("a setting is out of its bounds", field=name, value=value, rule=rule)


def status_of(frame: DataFrame, own_type: str) -> DataFrame:
    """The rows of status of a frame, taken apart: what each operator's tell, and columns of its own."""
    parsed = F.from_json("status", f"{_STATUS_HEAD}, {own_type}")
    return frame.where(F.col("kind") == "status").select(parsed.alias("status")).select("status.*")


def shard_column(name: str, shards: int) -> Column:
    """The column ``shard``, by the id in another."""
    return key_of_shard(shard_of_id(F.col(name), shards), shards).alias("shard")


def event_column(event_time_ms: Column) -> Column:
    """The column ``event_at``, which makes the watermark, from ms; null where there are none."""
    event_at = F.timestamp_millis(event_time_ms)
    # Within what pandas can hold; least and greatest pass over nulls.
    bounded = F.greatest(
        F.least(event_at, F.lit(_LATEST).cast("timestamp")), F.lit(_EARLIEST).cast("timestamp")
    )
    return F.when(event_at.isNotNull(), bounded).alias("event_at")


def no_tick() -> Column:
    """The column ``tick`` of what is no clock row."""
    return F.lit(None).cast("string").alias("tick")


def long_or(column: str, instead: int) -> Column:
    """A long without nulls."""
    # A long with nulls becomes a float64 in pandas and loses its low bits beyond 2^53.
    return F.coalesce(F.col(column), F.lit(instead).cast("long")).alias(column)


def null_if_absent(column: str) -> Column:
    """A long with nulls again."""
    return F.when(F.col(column) != NO_LONG, F.col(column))


def _is_local(spark: SparkSession) -> bool:
    """Whether executors run on the driver's machine."""
    return spark.conf.get("spark.master", "").startswith("local")  # type: ignore[union-attr]


_with_clock: WeakSet[SparkSession] = WeakSet()


def _register_clock(spark: SparkSession) -> None:
    # Spark warns when a source is registered again in a session.
    if spark not in _with_clock:
        with _package_on_path(spark):
            spark.dataSource.register(ClockSource)
        _with_clock.add(spark)


@contextmanager
def _package_on_path(spark: SparkSession) -> Iterator[None]:
    """Functions that Spark is given inside look for this package where the driver has found it, besides their own places.

    The Python process beside the driver that runs a streaming source gets no ``--py-files`` (Spark 4.2), unlike those on executors.
    """
    environment: dict[str, str] = spark.sparkContext.environment
    before = environment.get("PYTHONPATH")
    home = str(Path(__file__).parents[1])  # a folder, or the zip itself
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [before, home]))
    try:
        yield
    finally:
        del environment["PYTHONPATH"]
        if before is not None:
            environment["PYTHONPATH"] = before


def _with_clock_rows(rows: DataFrame, clock: Clock | StoreClock, shards: int, board: HintBoard) -> DataFrame:
    """Rows of a step and a row for each shard in each tick of the clock, which has ``shard`` and ``tick`` and blanks in all other columns.

    Args:
        rows: With the columns ``shard``, ``tick`` and ``event_at``. The last is what makes the watermark of the event clock, and is dropped for others.
        clock: What time it is.
        shards: How many.
        board: Where the answers of the shards are posted.
    """
    spark = rows.sparkSession
    _register_clock(spark)
    ticks = spark.readStream.format(CLOCK_FORMAT).options(**clock_options(clock, shards, board.folder)).load()
    instant = F.coalesce(F.col("instant_ms").cast("string"), F.lit(""))
    own = {
        "shard": key_of_shard(F.col("shard"), shards),
        "tick": F.concat_ws("|", F.coalesce("run", F.lit("")), instant),
    }
    blank = {"bigint": F.lit(NO_LONG), "int": F.lit(0)}
    columns = [
        own.get(field.name, blank.get(kind := field.dataType.simpleString(), F.lit(None).cast(kind))).alias(
            field.name
        )
        for field in rows.schema
    ]
    # The clock first: Spark asks the sources in this order, so what a published instant covers is in the log when that is read.
    rows = ticks.select(columns).unionByName(rows)
    if isinstance(clock, EventClock):
        return rows.withWatermark("event_at", f"{clock.delay_ms} milliseconds")
    return rows.drop("event_at")
