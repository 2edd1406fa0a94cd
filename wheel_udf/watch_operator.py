"""The purgatory on Spark: operations and events in, outcomes out. The durable form of Kafka's delayed-operation purgatory.

::

    operations --parse--> rows --.
    events     --parse--> rows --+ union --> groupBy(shard of the group) --> step --> outcome | rejected | status
    clock source --> clock rows -'

:func:`watch` is a function of two DataFrames to a DataFrame, as :func:`wheel_udf.operator.schedule` is of one: it starts nothing, and any sources and any
sinks will do. What an operation waits for and when it ends: :mod:`wheel_udf.watching`; the columns of both: :mod:`wheel_udf.watch_rows`.

The watermark of the event clock is that of both streams together: the largest event time of either, less the delay. So the delay has to cover how far
one may lag behind the other; a row that is later still counts if its operation is open.

:func:`delayed_join` and :func:`heartbeats` put such frames together from members and beats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from wheel_udf.clock import Clock, EventClock
from wheel_udf.columns import batch_ms
from wheel_udf.contract import Contract
from wheel_udf.errors import ConfigError
from wheel_udf.geometry import Wheel
from wheel_udf.hints import HintBoard
from wheel_udf.operator import (
    DEFAULT_MEMORY_MS,
    HEADERS_TYPE,
    METADATA_KEY,
    check_settings,
    is_local,
    long_or,
    null_if_absent,
    with_clock_rows,
)
from wheel_udf.prepared import Prepared
from wheel_udf.shard_step import NO_LONG
from wheel_udf.shards import key_of_shard, shard_keys, shard_of_id
from wheel_udf.watch_rows import parse_events, parse_operations
from wheel_udf.watch_state import COUNTED, WATCH_STATE_COLUMNS
from wheel_udf.watch_step import OUTPUT_TYPE, ShardWatch

ENDS = ("completed", "expired", "cancelled")
"""The outcomes that are rows."""

OUTCOME_COLUMNS = (
    "op_id", "group", "outcome", "by_key", "at", "decided_at", "present", "missing", "generation", "destination", "key", "value",
    "headers", "fire_id",
)  # fmt: skip
_STATUS_TYPE = ", ".join(
    [
        "shard int, batch_id long, query_id string, run string, clock_ms long, watermark_ms long, next_due_ms long, pending long, resting long",
        "received long, fired_now long, decided_now long, rejected_now long, lateness string",
        *(f"{name} long" for name in COUNTED),
    ]
)
_REASON_TYPE = "error_code string, error_message string, record string"


def watch(  # noqa: PLR0913  # each is a setting of its own
    operations: DataFrame,
    events: DataFrame,
    *,
    wheel: Wheel,
    clock: Clock,
    shards: int = 4,
    contract: Contract | None = None,
    lookback_ms: int = 0,
    memory_ms: int | None = DEFAULT_MEMORY_MS,
    deliver: Sequence[str] = ENDS,
) -> DataFrame:
    """Lets operations wait for events on their keys until they are complete, cancelled or over.

    Args:
        operations: A streaming frame with the columns of operations (see :mod:`wheel_udf.watch_rows`).
        events: A streaming frame with those of events.
        wheel: The geometry of the deadlines.
        clock: What time it is, as in :func:`~wheel_udf.operator.schedule`.
        shards: How many independent purgatories share the groups, 1 to 1024.
        contract: Bounds and defaults of the operations; by default none.
        lookback_ms: How long before its own ``event_time`` an event counts for an operation.
        memory_ms: How long events and ended operations are remembered, at least `lookback_ms`; ``None``: operations for ever, events for
            `lookback_ms` and five minutes.
        deliver: Which outcomes leave as rows; the others are counted.

    Returns:
        A streaming frame; ``kind`` is ``outcome``, ``rejected`` or ``status``.

    Raises:
        ConfigError: A setting is out of its bounds.
        ContractError: A frame lacks what it needs, or is not a streaming one.
    """
    for frame in (operations, events):
        check_settings(frame, shards, memory_ms, None)
    _check(lookback_ms, memory_ms, deliver)
    contract = contract or Contract()
    if isinstance(clock, EventClock):
        contract = replace(contract, max_ahead_ms=clock.max_ahead_ms)
    rows = _rows(parse_operations(operations, contract), shards).unionByName(
        _rows(parse_events(events, contract), shards)
    )
    board = HintBoard()
    step = ShardWatch(
        wheel=wheel,
        shards=shards,
        keys=shard_keys(shards),
        clock_kind=clock.kind,
        first_ms=getattr(clock, "first_ms", 0),
        delay_ms=getattr(clock, "delay_ms", 0),
        lookback_ms=lookback_ms,
        memory_ms=memory_ms,
        delivered=tuple(deliver),
        board_folder=str(board.folder) if is_local(rows.sparkSession) else None,
    )
    ended = (
        with_clock_rows(rows, clock, shards, board)
        .groupBy("shard")
        .applyInPandasWithState(
            step,
            outputStructType=OUTPUT_TYPE,
            stateStructType=", ".join(f"{name} {kind}" for name, kind in WATCH_STATE_COLUMNS.items()),
            outputMode="append",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
    )
    facts = {"wheel": wheel.fingerprint(), "shards": shards, "clock": clock.kind, "board": str(board.folder)}
    return _public(ended, facts | {"watch": True})


def outcomes(watched: DataFrame) -> DataFrame:
    """The outcomes (:data:`OUTCOME_COLUMNS`)."""
    return watched.where("kind = 'outcome'").select(*OUTCOME_COLUMNS)


def watch_rejects(watched: DataFrame) -> DataFrame:
    """The operations and events that could not be used, each with its reason."""
    columns = (
        "error_code",
        "error_message",
        "record",
        "source",
        "op_id",
        "group",
        "destination",
        "rejected_at",
    )
    return watched.where("kind = 'rejected'").select(*columns)


def watch_status(watched: DataFrame) -> DataFrame:
    """One row per touched shard and batch: clock, next due, pending, and all counts by outcome since the beginning."""
    parsed = F.from_json("status", _STATUS_TYPE)
    return watched.where(F.col("kind") == "status").select(parsed.alias("status")).select("status.*")


def going(watched: DataFrame) -> DataFrame:
    """The outcomes as a batch is written: those with a destination, and their ``source``."""
    return _GOING.select(watched.where("kind = 'outcome' AND destination IS NOT NULL"))


def going_wrong(watched: DataFrame) -> DataFrame:
    """The rejected rows as a batch is written, with the columns of all rejects; ``schedule_id`` is the operation's."""
    return _GOING_WRONG.select(watched.where("kind = 'rejected'"))


_GOING = Prepared(lambda: [F.col(name) for name in (*OUTCOME_COLUMNS, "source")])
_GOING_WRONG = Prepared(
    lambda: [
        *(F.col(name) for name in ("error_code", "error_message", "record", "source")),
        F.col("op_id").alias("schedule_id"),
        F.lit(None).cast("long").alias("seq"),
        *(F.col(name) for name in ("destination", "key", "value", "headers")),
        F.lit(None).cast("timestamp").alias("deliver_at"),
        F.col("rejected_at"),
    ]
)


def _check(lookback_ms: int, memory_ms: int | None, deliver: Sequence[str]) -> None:
    if lookback_ms < 0 or (memory_ms is not None and memory_ms < lookback_ms):
        raise ConfigError(
            "an operation cannot look back so far",
            field="lookback_ms",
            value=lookback_ms,
            rule=f"0 to memory_ms, {memory_ms}: what is forgotten cannot be seen",
        )
    unknown = sorted(set(deliver) - set(ENDS))
    if unknown:
        raise ConfigError("no such outcome", field="deliver", value=", ".join(unknown), rule=", ".join(ENDS))


def _rows(parsed: DataFrame, shards: int) -> DataFrame:
    """Parsed rows as the step takes them."""
    # No timestamp holds every long; the watermark asks for nothing beyond these years.
    bounded = F.greatest(F.least("event_time_ms", F.lit(_LATEST_MS)), F.lit(_EARLIEST_MS))
    return parsed.select(
        key_of_shard(shard_of_id(F.col("group"), shards), shards).alias("shard"),
        "what",
        "group",
        "name",
        "keys",
        "need",
        "amount",
        *(long_or(name, NO_LONG) for name in ("event_time_ms", "deadline_ms", "limit_ms")),
        *("destination", "key", "value", "headers", "source", "reject"),
        # Of a row without a time there is none: least and greatest pass over nulls.
        F.when(F.col("event_time_ms").isNotNull(), F.timestamp_millis(bounded)).alias("event_at"),
        F.lit(None).cast("string").alias("tick"),
    )


_EARLIEST_MS, _LATEST_MS = -9_214_560_000_000, 9_214_560_000_000  # 1678 and 2261, within what pandas can hold


def _public(ended: DataFrame, facts: dict[str, Any]) -> DataFrame:
    """Turns the operator's rows into public ones: instants as timestamps, keys and headers as arrays."""
    kind = F.col("kind")
    is_outcome, is_rejected = kind == "outcome", kind == "rejected"
    reason = F.when(is_rejected, F.from_json("note", _REASON_TYPE))
    identity = F.concat_ws("\0", "group", "op_id", "generation", "outcome", "at_ms")
    return ended.select(
        kind.alias("kind", metadata={METADATA_KEY: json.dumps(facts)}),
        "op_id",
        "group",
        "outcome",
        "by_key",
        F.timestamp_millis(null_if_absent("at_ms")).alias("at"),
        F.timestamp_millis(null_if_absent("decided_at_ms")).alias("decided_at"),
        *(_split(name).alias(name) for name in ("present", "missing")),
        F.when(is_outcome, F.col("generation")).alias("generation"),
        "destination",
        "key",
        "value",
        F.from_json("headers", HEADERS_TYPE).alias("headers"),
        F.when(is_outcome, F.md5(identity.cast("binary"))).alias("fire_id"),
        reason.error_code.alias("error_code"),
        reason.error_message.alias("error_message"),
        reason.record.alias("record"),
        "source",
        F.when(is_rejected, F.timestamp_millis(batch_ms())).alias("rejected_at"),
        F.when(kind == "status", F.col("note")).alias("status"),
    )


def _split(name: str) -> Column:
    return F.when(F.col(name) == "", F.array().cast("array<string>")).otherwise(F.split(name, "\\x00"))
