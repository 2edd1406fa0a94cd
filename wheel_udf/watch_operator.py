"""The purgatory on Spark: operations and events in, outcomes out. The durable form of Kafka's delayed-operation purgatory.

::

    operations --parse--> rows --.
    events     --parse--> rows --+ union --> groupBy(shard of the group) --> step --> outcome | rejected | status
    clock source --> clock rows -'

:func:`watch` is a function of two DataFrames to a DataFrame, as :func:`wheel_udf.operator.schedule` is of one: it starts nothing, and any sources and any
sinks will do. What an operation waits for and when it ends: :mod:`wheel_udf.watching`; the columns of both: :mod:`wheel_udf.watch_rows`.

The watermark of the event clock is that of both streams together: the largest event time of either, less the delay. So the delay has to cover how far
one may lag behind the other; a row that is later still counts if its operation is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wheel_udf.by_shard import (
    DEFAULT_MEMORY_MS,
    HEADERS_TYPE,
    REASON_TYPE,
    check_settings,
    event_column,
    kind_with,
    long_or,
    no_tick,
    null_if_absent,
    shard_column,
    stepped,
)
from wheel_udf.clock import Clock, EventClock
from wheel_udf.columns import batch_ms
from wheel_udf.contract import Contract
from wheel_udf.errors import ConfigError
from wheel_udf.geometry import Wheel
from wheel_udf.group_step import NO_LONG
from wheel_udf.watch_rows import parse_events, parse_operations
from wheel_udf.watch_state import WATCH_STATE_COLUMNS, watch_fingerprint
from wheel_udf.watch_step import OUTPUT_TYPE, ShardWatch

ENDS = ("completed", "expired", "cancelled")
"""The outcomes that are rows."""


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
        check_settings(frame, shards, memory_ms)
    _check(lookback_ms, memory_ms, deliver)
    contract = contract or Contract()
    if isinstance(clock, EventClock):
        contract = replace(contract, max_ahead_ms=clock.max_ahead_ms)
    rows = _rows(parse_operations(operations, contract), shards).unionByName(
        _rows(parse_events(events, contract), shards)
    )
    ended, facts = stepped(
        rows,
        ShardWatch,
        wheel=wheel,
        clock=clock,
        shards=shards,
        memory_ms=memory_ms,
        output_type=OUTPUT_TYPE,
        state_columns=WATCH_STATE_COLUMNS,
        lookback_ms=lookback_ms,
        delivered=tuple(deliver),
    )
    return _public(ended, facts | {"wheel": watch_fingerprint(wheel.fingerprint())})


def _check(lookback_ms: int, memory_ms: int | None, deliver: Sequence[str]) -> None:
    if lookback_ms < 0 or (memory_ms is not None and memory_ms < lookback_ms):
        raise ConfigError(
            "an operation cannot look back so far",
            field="lookback_ms",
            value=lookback_ms,
            rule=f"0 to memory_ms, {memory_ms}: what is forgotten cannot be seen",
        )
    unknown = [deliver] if isinstance(deliver, str) else sorted(set(deliver) - set(ENDS))
    if unknown:
        rule = f"a list of {', '.join(ENDS)}"
        raise ConfigError("no such outcomes", field="deliver", value=", ".join(unknown), rule=rule)


def _rows(parsed: DataFrame, shards: int) -> DataFrame:
    """Parsed rows as the step takes them."""
    return parsed.select(
        shard_column("group", shards),
        *("what", "group", "name", "keys", "need", "amount"),
        *(long_or(name, NO_LONG) for name in ("event_time_ms", "deadline_ms", "limit_ms")),
        *("destination", "key", "value", "headers", "source", "reject"),
        event_column(F.col("event_time_ms")),
        no_tick(),
    )


def _public(ended: DataFrame, facts: dict[str, Any]) -> DataFrame:
    """Turns the operator's rows into public ones: instants as timestamps, keys and headers as arrays."""
    kind = F.col("kind")
    is_outcome, is_rejected = kind == "outcome", kind == "rejected"
    reason = F.when(is_rejected, F.from_json("note", REASON_TYPE))
    identity = F.concat_ws("\0", "group", "op_id", "generation", "outcome", "at_ms")
    return ended.select(
        kind_with(facts),
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
