"""The streaming query that both operators share: rows and clock rows, grouped by shard, through the step of a Python
worker. Why the key is the shard, and why time comes as data: :mod:`wheel_udf.stream.schedule_operator`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.instants import MAX_INSTANT_MS
from wheel_udf.control.board import ShardBoard
from wheel_udf.control.clocks import Clock, EventClock, ProcessingClock, StoreClock
from wheel_udf.policies.limits import BOUNDS, Limits
from wheel_udf.spark.local_mode import executors_are_here
from wheel_udf.spark.object_stores import settings_of
from wheel_udf.spark.worker_python import require_worker_python
from wheel_udf.stream.clock_rows import with_clock_rows
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.sharding import key_of_shard, shard_keys, shard_of_id
from wheel_udf.stream.worker import NO_LONG, ShardWorker

HEADERS_TYPE = "array<struct<key: string, value: binary>>"
DEFAULT_MEMORY_MS = 300_000
LARGEST_SHARDS = 1024

REASON = ("error_code", "error_message", "record")
REASON_TYPE = ", ".join(f"{name} string" for name in REASON)
"""Why a row was rejected. It passes through the worker as JSON."""


def stepped(
    rows: DataFrame,
    worker: type[ShardWorker],
    facts: FrameFacts,
    *,
    wheel: Wheel,
    clock: Clock | StoreClock,
    memory_ms: int | None,
    output_type: str,
    state_columns: Mapping[str, str],
    **settings: Any,
) -> DataFrame:
    """Passes rows and clock rows, by shard, through a worker; returns the rows that leave it.

    Args:
        rows: The operator's rows, with the columns ``shard``, ``tick`` and ``event_at``.
        worker: The worker; one call of it is one batch of one shard.
        facts: The facts about the operator's frame.
        wheel: The geometry.
        clock: The clock.
        memory_ms: How long ended ids are remembered.
        output_type: Columns of the output, as DDL.
        state_columns: Columns of a shard's state, name and Spark type.
        settings: Further settings of the worker.

    Raises:
        SessionError: The Python of Spark's workers cannot run it.
    """
    require_worker_python(rows.sparkSession)
    board = ShardBoard(facts.board)
    function = worker(
        wheel=wheel,
        shards=facts.shards,
        keys=shard_keys(facts.shards),
        clock_kind=clock.kind,
        first_ms=getattr(clock, "first_ms", 0),
        delay_ms=getattr(clock, "delay_ms", 0),
        memory_ms=memory_ms,
        board_folder=str(board.folder) if executors_are_here(rows.sparkSession) else None,
        stores=settings_of(rows.sparkSession),
        **settings,
    )
    contributors: dict[str, Any] = {
        "has_sender": facts.punctual is not None,
        "returns": bool(facts.retries),
        "limit": settings.get("limit"),
    }
    rows = with_clock_rows(rows, clock, facts.shards, board, facts.frame, **contributors)
    return by_shard(rows, function, output_type, state_columns)


def by_shard(rows: DataFrame, function: Any, output_type: str, state_columns: Mapping[str, str]) -> DataFrame:
    """Passes rows with a column ``shard`` through a stateful function, one group for each shard."""
    return rows.groupBy("shard").applyInPandasWithState(
        function,
        outputStructType=output_type,
        stateStructType=", ".join(f"{name} {kind}" for name, kind in state_columns.items()),
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )


def check_settings(
    rows: DataFrame,
    shards: int,
    memory_ms: int | None,
    limit: int | None = None,
    limits: Limits | None = None,
) -> None:
    """Checks that a frame is a stream and that the settings are in range.

    Raises:
        ContractError: Not a streaming frame.
        ConfigError: A setting is out of range.
    """
    if not rows.isStreaming:
        raise ContractError(
            "not a streaming frame",
            field="rows.isStreaming",
            value=False,
            hint="read it with spark.readStream",
        )
    bounds = (
        ("shards", shards, 1, LARGEST_SHARDS),
        ("memory_ms", memory_ms, 0, MAX_INSTANT_MS),
        ("limit", limit, 1, None),
        # Each shard needs a part of it.
        *((f"limits.{bound}", getattr(limits, bound), shards, None) for bound in BOUNDS if limits),
    )
    for name, value, least, most in bounds:
        if value is not None and (value < least or (most is not None and value > most)):
            rule = f"{least} to {most}" if most is not None else f"at least {least}"
            raise ConfigError("a setting is out of range", field=name, value=value, rule=rule)


def clocked(contract: Contract, clock: Clock) -> Contract:
    """The contract with the clock's settings: how far ahead an event time may be, the start of ``max_delay``."""
    if isinstance(clock, EventClock):
        return replace(contract, max_ahead_ms=clock.max_ahead_ms)
    return replace(contract, from_batch=isinstance(clock, ProcessingClock))


def shard_column(name: str, shards: int, *of_rejects: str) -> Column:
    """The column ``shard``: the grouping key of the shard of an id. The columns `of_rejects` spread rows without an id,
    which are rejects, over all shards.
    """
    number = shard_of_id(F.col(name), shards)
    if of_rejects:
        spread = F.pmod(F.xxhash64(*of_rejects), F.lit(shards)).cast("int")
        number = F.when(F.col(name).isNull(), spread).otherwise(number)
    return key_of_shard(number, shards).alias("shard")


def long_or(column: str, instead: int) -> Column:
    """A long column with another value in place of null."""
    # A long with nulls becomes a float64 in pandas and loses its low bits beyond 2^53.
    return F.coalesce(F.col(column), F.lit(instead).cast("long")).alias(column)


def null_if_absent(column: str) -> Column:
    """A long column with null in place of :data:`~wheel_udf.stream.worker.NO_LONG`."""
    return F.when(F.col(column) != NO_LONG, F.col(column))
