"""``watch``: operations and events in, outcomes out; Kafka's delayed-operation purgatory as a durable Spark operator.

::

    operations --parse--> rows --.
    events     --parse--> rows --+ union --> groupBy(shard of the group) --> purgatory/step --> outcome|rejected|status
    clock source --> clock rows -'

Rules of completion and expiry: :mod:`wheel_udf.purgatory.step`. Columns of both inputs:
:mod:`wheel_udf.commands.operations`.

The watermark of the event clock is that of both streams together: the largest event time of either, less the
delay. The delay must therefore cover how far one stream may lag behind the other. A later row still counts
while its operation is open.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.commands.columns import LONG_JSON, batch_ms
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.operations import parse_events, parse_operations
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.instants import require_ms
from wheel_udf.common.outcomes import DECIDED
from wheel_udf.control.clocks import Clock
from wheel_udf.purgatory.state import WATCH_STATE_COLUMNS, watch_fingerprint
from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.stream.clock_rows import event_column, no_tick
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.sharded_query import (
    DEFAULT_MEMORY_MS,
    HEADERS_TYPE,
    REASON_TYPE,
    check_settings,
    clocked,
    long_or,
    null_if_absent,
    shard_column,
    stepped,
)
from wheel_udf.stream.watch_worker import OUTPUT_TYPE, WatchWorker
from wheel_udf.stream.worker import DETAIL, NO_LONG


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
    deliver: Sequence[str] = DECIDED,
) -> DataFrame:
    """Lets operations wait for events on their keys until they are completed, cancelled or expired.

    Args:
        operations: A streaming frame with the columns of operations (see
            :mod:`wheel_udf.commands.operations`).
        events: A streaming frame with the columns of events (same module).
        wheel: The geometry of the wheel that holds the deadlines.
        clock: The clock, as in :func:`~wheel_udf.stream.schedule_operator.schedule`.
        shards: Number of independent purgatories that share the groups, 1 to 1024.
        contract: Bounds and defaults of the operations; by default none.
        lookback_ms: How long before its own ``event_time`` an event counts for an operation.
        memory_ms: How long events and ended operations are remembered, at least `lookback_ms`; ``None``:
            operations for ever, events for `lookback_ms` plus five minutes.
        deliver: Outcomes that leave as rows; the others are only counted.

    Returns:
        A streaming frame; ``kind`` is ``outcome``, ``rejected`` or ``status``.

    Raises:
        ConfigError: A setting is out of range.
        ContractError: A frame lacks a required column, or is not a streaming frame.
        SessionError: The Python of Spark's workers is missing, of another version, or lacks a module; or this is a
            session of Spark Connect.
    """
    require_jvm(operations.sparkSession, "watch()")
    for frame in (operations, events):
        check_settings(frame, shards, memory_ms)
    _check(lookback_ms, memory_ms, deliver)
    contract = contract or Contract()
    contract = clocked(contract, clock)
    rows = _rows(parse_operations(operations, contract), shards).unionByName(
        _rows(parse_events(events, contract), shards)
    )
    facts = FrameFacts(
        is_purgatory=True,
        wheel=watch_fingerprint(wheel.fingerprint()),
        shards=shards,
        clock=clock.kind,
    )
    ended = stepped(
        rows,
        WatchWorker,
        facts,
        wheel=wheel,
        clock=clock,
        memory_ms=memory_ms,
        output_type=OUTPUT_TYPE,
        state_columns=WATCH_STATE_COLUMNS,
        lookback_ms=lookback_ms,
        delivered=tuple(deliver),
    )
    return _to_output_columns(ended, facts)


def _check(lookback_ms: int, memory_ms: int | None, deliver: Sequence[str]) -> None:
    require_ms("lookback_ms", lookback_ms, 0)
    if memory_ms is not None and memory_ms < lookback_ms:
        raise ConfigError(
            "an operation cannot look back further than events are remembered",
            field="lookback_ms",
            value=lookback_ms,
            rule=f"0 to memory_ms, {memory_ms}",
        )
    unknown = [deliver] if isinstance(deliver, str) else sorted(set(deliver) - set(DECIDED))
    if unknown:
        rule = f"a list of {', '.join(DECIDED)}"
        raise ConfigError("unknown outcomes", field="deliver", value=", ".join(unknown), rule=rule)


def _rows(parsed: DataFrame, shards: int) -> DataFrame:
    """Parsed rows as input of the worker."""
    return parsed.select(
        shard_column("group", shards, "source", "reject"),
        *("what", "group", "name", "keys", "need", "amount"),
        *(long_or(name, NO_LONG) for name in ("event_time_ms", "deadline_ms", "limit_ms")),
        *("destination", "key", "value", "headers", "source", "reject"),
        event_column(F.col("event_time_ms")),
        no_tick(),
    )


def _to_output_columns(ended: DataFrame, facts: FrameFacts) -> DataFrame:
    """Converts the worker's rows to output columns: instants as timestamps, keys and headers as arrays, fire ids."""
    kind = F.col("kind")
    is_outcome, is_rejected = kind == "outcome", kind == "rejected"
    reason_json, status_json = F.col(DETAIL), F.col(DETAIL)  # what it holds depends on the kind
    reason = F.when(is_rejected, F.from_json(reason_json, REASON_TYPE, LONG_JSON))
    identity = F.concat_ws("\0", "group", "op_id", "generation", "outcome", "at_ms")
    return ended.select(
        facts.kind_column(),
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
        F.from_json("headers", HEADERS_TYPE, LONG_JSON).alias("headers"),
        F.when(is_outcome, F.md5(identity.cast("binary"))).alias("fire_id"),
        reason.error_code.alias("error_code"),
        reason.error_message.alias("error_message"),
        reason.record.alias("record"),
        "source",
        F.when(is_rejected, F.timestamp_millis(batch_ms())).alias("rejected_at"),
        F.when(kind == "status", status_json).alias("status"),
    )


def _split(name: str) -> Column:
    return F.when(F.col(name) == "", F.array().cast("array<string>")).otherwise(F.split(name, "\\x00"))
